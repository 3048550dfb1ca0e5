//! How many processes still use shared memory: a number in a small file that all of them open.
//!
//! **Invariants:** the number changes only under the file's lock. It begins at 1 for the receiver to come, which takes
//! that one over; each further receiver adds one, and each takes its own away once, when it is dropped. At 0 nobody comes
//! any more. The sender removes the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::{Error, IpcError, Result};
use crate::base::process;

/// What the file begins with, so that no other file is ever written to.
const MAGIC: [u8; 8] = *b"c10-ipc1";
const BYTES: usize = 24;

/// What is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Count {
    users: u64,
    /// Whether the first receiver has come.
    opened: bool,
}

fn failed(error: io::Error) -> Error {
    Error::Ipc(IpcError::Counter { reason: error.into() })
}

fn read(file: &File) -> io::Result<Count> {
    let mut bytes = [0; BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    if bytes[..8] != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file counts nothing"));
    }
    Ok(Count { users: word(8), opened: word(16) != 0 })
}

fn write(file: &File, count: Count) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&count.users.to_le_bytes());
    bytes[16..].copy_from_slice(&u64::from(count.opened).to_le_bytes());
    file.write_all_at(&bytes, 0)
}

/// Changes the count under the file's lock.
fn change(file: &File, change: impl FnOnce(Count) -> Result<Count>) -> Result<()> {
    file.lock().map_err(failed)?;
    let changed = read(file).map_err(failed).and_then(change).and_then(|count| write(file, count).map_err(failed));
    // Closing the file unlocks it too, should this fail.
    let _ = file.unlock();
    changed
}

/// The sender's end.
#[derive(Debug)]
pub(crate) struct SentCount {
    path: PathBuf,
    file: File,
}

impl SentCount {
    /// A count of one receiver that has yet to come, in a file of its own that only this user can open.
    pub(crate) fn new() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("c10-ipc-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut path = std::env::temp_dir().join(name);
        // What a process of the same number has left behind is not touched.
        let file = loop {
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    path.as_mut_os_string().push(format!("-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
                }
                opened => break opened.map_err(failed)?,
            }
        };
        let sent = Self { path, file };
        write(&sent.file, Count { users: 1, opened: false }).map_err(failed)?;
        Ok(sent)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether all receivers have let go. A file that cannot be read counts as used.
    pub(crate) fn is_released(&self) -> bool {
        let mut users = u64::MAX;
        let looked = change(&self.file, |count| {
            users = count.users;
            Ok(count)
        });
        looked.is_ok() && users == 0
    }
}

impl Drop for SentCount {
    fn drop(&mut self) {
        if !process::in_bad_fork() {
            // Left behind, it is a few bytes of a folder for such things.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// One receiver.
#[derive(Debug)]
pub(crate) struct ReceivedCount {
    file: File,
    counted: bool,
}

impl ReceivedCount {
    /// Counts this receiver.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let file = file.map_err(|error| if gone(&error) { Error::Ipc(IpcError::Released) } else { failed(error) })?;
        change(&file, |count| match count {
            Count { users: 0, .. } => Err(Error::Ipc(IpcError::Released)),
            Count { opened: false, .. } => Ok(Count { opened: true, ..count }),
            Count { users, .. } => Ok(Count { users: users.saturating_add(1), ..count }),
        })?;
        Ok(Self { file, counted: true })
    }

    /// Undoes the count of a receiver that could not open the memory: it may try again.
    pub(crate) fn give_up(mut self) {
        self.counted = false;
        let _ = change(&self.file, |count| {
            let alone = count.users <= 1;
            Ok(if alone { Count { opened: false, ..count } } else { Count { users: count.users - 1, ..count } })
        });
    }
}

impl Drop for ReceivedCount {
    fn drop(&mut self) {
        if self.counted && !process::in_bad_fork() {
            // There is nobody to tell; the sender then keeps the memory.
            let _ = change(&self.file, |count| Ok(Count { users: count.users.saturating_sub(1), ..count }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_receiver_releases() {
        let sent = SentCount::new().unwrap();
        assert!(!sent.is_released(), "the receiver may still come");
        let first = ReceivedCount::new(sent.path()).unwrap();
        let second = ReceivedCount::new(sent.path()).unwrap();
        drop(first);
        assert!(!sent.is_released());
        drop(second);
        assert!(sent.is_released());
        assert_eq!(ReceivedCount::new(sent.path()).unwrap_err(), Error::Ipc(IpcError::Released));
        let path = sent.path().to_owned();
        drop(sent);
        assert!(!path.exists());
        assert_eq!(ReceivedCount::new(&path).unwrap_err(), Error::Ipc(IpcError::Released));
    }

    #[test]
    fn a_receiver_that_fails_may_come_again() {
        let sent = SentCount::new().unwrap();
        ReceivedCount::new(sent.path()).unwrap().give_up();
        assert!(!sent.is_released());
        let first = ReceivedCount::new(sent.path()).unwrap();
        ReceivedCount::new(sent.path()).unwrap().give_up();
        assert!(!sent.is_released());
        drop(first);
        assert!(sent.is_released());
    }

    #[test]
    fn no_other_file_is_written_to() {
        let other = std::env::temp_dir().join(format!("c10-ipc-other-{}", std::process::id()));
        std::fs::write(&other, [7; 64]).unwrap();
        let refused = ReceivedCount::new(&other).unwrap_err();
        let kept = std::fs::read(&other).unwrap();
        std::fs::remove_file(&other).unwrap();
        assert!(matches!(refused, Error::Ipc(IpcError::Counter { .. })), "{refused}");
        assert_eq!(kept, [7; 64]);
    }
}
