//! Whether other processes still use shared memory: each of them holds a lock on a small file.
//!
//! The sender makes the file and removes it. A receiver holds a shared lock on it as long as it uses the memory. The system
//! takes the lock away when a process ends, however it ends, so a receiver that was killed does not keep the memory with
//! the sender. (A child that the receiver forked meanwhile holds the lock as well, and keeps it until it ends.)
//!
//! **Invariants:** the file is written only under a lock of it. It says whether a receiver has opened the memory,
//! before which the sender keeps it, and whether the sender has freed the memory, after which nobody may open it. A
//! sender frees the memory only while it alone holds a lock.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::error::IpcError;
use crate::base::error::{Error, Result};
use crate::base::process;

/// What the file begins with, so that no other file is ever written to. One byte follows: the state.
const MAGIC: [u8; 8] = *b"c10-ipc2";

/// No receiver has opened the memory yet.
const WAITING: u8 = 0;
/// A receiver has opened it.
const OPENED: u8 = 1;
/// The sender has freed it.
const RELEASED: u8 = 2;

/// The files of senders in this process.
static OWN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn own() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: io::Error) -> Error {
    Error::Ipc(IpcError::File { reason: error.into() })
}

fn read(file: &File) -> Result<u8> {
    let mut bytes = [0; MAGIC.len() + 1];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    match bytes.strip_prefix(&MAGIC) {
        Some([state]) => Ok(*state),
        _ => Err(failed(io::Error::new(io::ErrorKind::InvalidData, "the file is not that of shared memory"))),
    }
}

fn write(file: &File, state: u8) -> Result<()> {
    file.write_all_at(&[state], MAGIC.len() as u64).map_err(failed)
}

/// The sender's side.
#[derive(Debug)]
pub(crate) struct SenderFile {
    path: PathBuf,
    file: File,
}

impl SenderFile {
    /// Makes a new file that only this user can open, for a receiver that has yet to come.
    pub(crate) fn new() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("c10-ipc-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut path = std::env::temp_dir().join(name);
        // A file that an earlier process with the same number has left behind is not touched.
        let file = loop {
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    path.as_mut_os_string().push(format!("-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
                }
                opened => break opened.map_err(failed)?,
            }
        };
        own().insert(path.clone());
        let sent = Self { path, file };
        sent.file.write_all_at(&MAGIC, 0).map_err(failed)?;
        write(&sent.file, WAITING)?;
        Ok(sent)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a receiver has opened the memory and none uses it any more. If so, no receiver can open it any more. A
    /// file that cannot be locked or read counts as used.
    pub(crate) fn is_released(&self) -> bool {
        if self.file.try_lock().is_err() {
            return false;
        }
        let released = match read(&self.file) {
            Ok(OPENED) => write(&self.file, RELEASED).is_ok(),
            Ok(state) => state == RELEASED,
            Err(_) => false,
        };
        // Closing the file unlocks it too, should this fail.
        let _ = self.file.unlock();
        released
    }
}

impl Drop for SenderFile {
    fn drop(&mut self) {
        own().remove(&self.path);
        if !process::in_bad_fork() {
            // If it stays, it is a few bytes in the folder for temporary files.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// One receiver, which holds its lock until it is dropped.
#[derive(Debug)]
pub(crate) struct ReceiverLock(File);

impl ReceiverLock {
    /// Keeps the memory with the sender from now on.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        if own().contains(path) {
            return Err(Error::Ipc(IpcError::OwnMemory));
        }
        Self::open(path)
    }

    fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let file = file.map_err(|error| if gone(&error) { Error::Ipc(IpcError::Released) } else { failed(error) })?;
        // The sender holds its lock for a moment only.
        file.lock_shared().map_err(failed)?;
        if read(&file)? == RELEASED { Err(Error::Ipc(IpcError::Released)) } else { Ok(Self(file)) }
    }

    /// Notes that the memory has been opened: the sender need not wait for a first receiver any more.
    pub(crate) fn confirm(&self) -> Result<()> {
        write(&self.0, OPENED)
    }
}

impl Drop for ReceiverLock {
    fn drop(&mut self) {
        // Closing the file would not be enough: a forked child may have it open too.
        if !process::in_bad_fork() {
            let _ = self.0.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sent: &SenderFile) -> Result<ReceiverLock> {
        let lock = ReceiverLock::open(sent.path())?;
        lock.confirm()?;
        Ok(lock)
    }

    #[test]
    fn the_last_receiver_releases() {
        let sent = SenderFile::new().unwrap();
        assert!(!sent.is_released(), "the receiver may still come");
        let (first, second) = (open(&sent).unwrap(), open(&sent).unwrap());
        drop(first);
        assert!(!sent.is_released());
        drop(second);
        assert!(sent.is_released());
        assert_eq!(open(&sent).unwrap_err(), Error::Ipc(IpcError::Released));
        let path = sent.path().to_owned();
        drop(sent);
        assert!(!path.exists());
        assert_eq!(ReceiverLock::new(&path).unwrap_err(), Error::Ipc(IpcError::Released));
    }

    #[test]
    fn a_receiver_that_fails_may_come_again() {
        let sent = SenderFile::new().unwrap();
        drop(ReceiverLock::open(sent.path()).unwrap());
        assert!(!sent.is_released(), "it has not opened the memory");
        let first = open(&sent).unwrap();
        drop(ReceiverLock::open(sent.path()).unwrap());
        assert!(!sent.is_released());
        drop(first);
        assert!(sent.is_released());
    }

    #[test]
    fn a_process_does_not_receive_from_itself() {
        let sent = SenderFile::new().unwrap();
        assert_eq!(ReceiverLock::new(sent.path()).unwrap_err(), Error::Ipc(IpcError::OwnMemory));
        assert!(!sent.is_released());
    }

    #[test]
    fn no_other_file_is_written_to() {
        let other = std::env::temp_dir().join(format!("c10-ipc-other-{}", std::process::id()));
        std::fs::write(&other, [7; 64]).unwrap();
        let refused = ReceiverLock::new(&other).unwrap_err();
        let kept = std::fs::read(&other).unwrap();
        std::fs::remove_file(&other).unwrap();
        assert!(matches!(refused, Error::Ipc(IpcError::File { .. })), "{refused}");
        assert_eq!(kept, [7; 64]);
    }
}
