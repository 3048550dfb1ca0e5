//! The sender's side of the file in which a process counts who uses the memory that it has shared.
//!
//! A runtime that shares memory has one such file. Each sharing has a slot in it: a number that is never used again, and a
//! state. A receiver holds a shared lock on the first byte of the slot as long as it uses the memory ([`super::users`]), so a
//! receiver that is killed does not keep the memory with the sender: the system takes its locks away. (A child that the
//! receiver forked meanwhile has a part in the locks, and keeps them until it ends.) The sender itself holds a lock on
//! another byte, by which others see whether it lives.
//!
//! **Invariants:** a slot is written only under a lock: its number by the sender while nobody uses it, its state by
//! receivers that hold the slot and by the sender when it alone does. The sender gives memory free only after it has noted
//! [`RELEASED`] so; after that nobody opens it any more. The file is read and written by calls of the system and never
//! mapped: whoever cuts it short makes errors and no signal.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, PoisonError};
use std::time::SystemTime;

use crate::base::error::IpcError;
use crate::base::error::{Error, Result};
use crate::base::process;
use crate::driver::ByteLock;
use crate::sync::{Mutex, MutexGuard};

/// What the file begins with, so that no other file is ever written to. It is written when the sender holds its lock.
const MAGIC: [u8; 8] = *b"c10-ipc3";
/// How the names of the files begin, in the folder for temporary files.
const PREFIX: &str = "c10-ipc-";
/// The byte that the sender has locked as long as it lives.
const ALIVE: u64 = 8;
/// Where the slots begin.
const FIRST: u64 = 64;
/// Bytes of a slot: eight for the number, one for the state.
const SLOT: u64 = 16;

/// No receiver has come yet.
pub(super) const WAITING: u8 = 0;
/// A receiver is about to open the memory.
pub(super) const OPENING: u8 = 1;
/// A receiver has opened it.
pub(super) const OPENED: u8 = 2;
/// The sender has freed it.
pub(super) const RELEASED: u8 = 3;

/// The files of the senders in this process.
static OWN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn own() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a sender of this process has made the file.
pub(crate) fn is_own(path: &Path) -> bool {
    own().contains(path)
}

pub(super) fn failed(error: io::Error) -> Error {
    Error::Ipc(IpcError::File { reason: error.into() })
}

/// A slot, as other processes are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotName {
    /// The file.
    pub(crate) path: PathBuf,
    /// Which slot of it.
    pub(crate) index: u32,
    /// The number that the slot has for this sharing.
    pub(crate) number: u64,
}

/// The byte that receivers lock.
pub(super) fn users_byte(index: u32) -> u64 {
    FIRST + u64::from(index) * SLOT
}

/// The byte that is locked while a receiver changes the state.
pub(super) fn state_byte(index: u32) -> u64 {
    users_byte(index) + 1
}

/// The number and the state of a slot.
pub(super) fn read(file: &File, index: u32) -> Result<(u64, u8)> {
    let mut bytes = [0; 9];
    file.read_exact_at(&mut bytes, users_byte(index)).map_err(failed)?;
    let [number @ .., state] = bytes;
    Ok((u64::from_le_bytes(number), state))
}

pub(super) fn write_state(file: &File, index: u32, state: u8) -> Result<()> {
    file.write_all_at(&[state], users_byte(index) + 8).map_err(failed)
}

/// Opens the file of a sender that may be another process.
pub(super) fn open(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let file = file.map_err(|error| if gone(&error) { Error::Ipc(IpcError::Released) } else { failed(error) })?;
    let mut magic = [0; MAGIC.len()];
    let is_ledger = file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC;
    let other = || failed(io::Error::new(io::ErrorKind::InvalidData, "the file is not that of shared memory"));
    if is_ledger { Ok(file) } else { Err(other()) }
}

/// The socket beside a sender's file.
pub(crate) fn socket_beside(path: &Path) -> PathBuf {
    let mut socket = path.to_owned();
    socket.as_mut_os_string().push(".sock");
    socket
}

/// Whether the sender has ended. Two that ask at the same moment may hear that it lives.
pub(super) fn has_ended(file: &File) -> bool {
    let ended = ByteLock::Exclusive.try_set(file, ALIVE).unwrap_or(false);
    if ended {
        let _ = ByteLock::Unlocked.set(file, ALIVE);
    }
    ended
}

/// Removes the file of a sender that has ended, and its socket; nothing where it lives.
pub(super) fn remove_if_ended(path: &Path, file: &File) {
    let is_the_same = || -> io::Result<bool> {
        let (there, here) = (std::fs::symlink_metadata(path)?, file.metadata()?);
        Ok((there.dev(), there.ino()) == (here.dev(), here.ino()))
    };
    if ByteLock::Exclusive.try_set(file, ALIVE).unwrap_or(false) && is_the_same().unwrap_or(false) {
        // What cannot be removed is a few bytes in the folder for temporary files.
        let _ = std::fs::remove_file(socket_beside(path));
        let _ = std::fs::remove_file(path);
    }
}

/// Removes what processes have left behind that ended without a word.
fn sweep(folder: &Path) {
    const MOST: usize = 10_000;
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.take(MOST).flatten() {
        let name = entry.file_name();
        let is_ledger = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && !name.ends_with(".sock"));
        if is_ledger
            && !is_own(&entry.path())
            && let Ok(file) = open(&entry.path())
        {
            remove_if_ended(&entry.path(), &file);
        }
    }
}

/// The file of one sender.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    free: Vec<u32>,
    /// How many there are.
    count: u32,
    /// The number of the next sharing. It begins with the time, so that a name of an earlier process fits to nothing.
    next: u64,
}

impl Ledger {
    /// Makes a new file that only this user can open.
    pub(crate) fn new() -> Result<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        static SWEPT: Once = Once::new();
        let folder = std::env::temp_dir();
        SWEPT.call_once(|| sweep(&folder));
        // A file that an earlier process with the same number has left behind is not touched.
        let (path, file) = loop {
            let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = folder.join(name);
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => break (path, opened.map_err(failed)?),
            }
        };
        own().insert(path.clone());
        let next = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(0));
        let ledger = Self { path, file, slots: Mutex::new(Slots { free: Vec::new(), count: 0, next }) };
        ByteLock::Exclusive.set(&ledger.file, ALIVE).map_err(failed)?;
        ledger.file.write_all_at(&MAGIC, 0).map_err(failed)?;
        Ok(Arc::new(ledger))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a receiver that has yet to come.
    pub(crate) fn slot(self: &Arc<Self>) -> Result<SenderSlot> {
        let mut slots = self.slots();
        let index = slots.free.pop().unwrap_or(slots.count);
        slots.count = slots.count.max(index + 1);
        slots.next += 1;
        let number = slots.next;
        drop(slots);
        let slot = SenderSlot { ledger: Arc::clone(self), index, number };
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.push(WAITING);
        self.file.write_all_at(&bytes, users_byte(index)).map_err(failed)?;
        Ok(slot)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        own().remove(&self.path);
        if !process::in_bad_fork() {
            // If it stays, it is a few bytes that a later process removes.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// One sharing.
#[derive(Debug)]
pub(crate) struct SenderSlot {
    ledger: Arc<Ledger>,
    index: u32,
    number: u64,
}

impl SenderSlot {
    /// What receivers are told.
    pub(crate) fn name(&self) -> SlotName {
        SlotName { path: self.ledger.path.clone(), index: self.index, number: self.number }
    }

    /// Whether it is the slot of that name.
    pub(crate) fn is(&self, name: &SlotName) -> bool {
        (self.index, self.number) == (name.index, name.number) && self.ledger.path == name.path
    }

    /// Whether a receiver has opened the memory, or tried to and ended, and none uses it any more. If so, no receiver can
    /// open it any more. A slot that cannot be locked or read counts as used.
    pub(crate) fn is_released(&self) -> bool {
        let file = &self.ledger.file;
        match read(file, self.index) {
            Ok((_, OPENING | OPENED)) => {}
            Ok((_, state)) => return state == RELEASED,
            Err(_) => return false,
        }
        let byte = users_byte(self.index);
        if !ByteLock::Exclusive.try_set(file, byte).unwrap_or(false) {
            return false;
        }
        // A receiver that failed may have put the state back before it let go.
        let is_over = matches!(read(file, self.index), Ok((_, OPENING | OPENED)));
        let released = is_over && write_state(file, self.index, RELEASED).is_ok();
        let _ = ByteLock::Unlocked.set(file, byte);
        released
    }

    /// Notes that the sender waits for no receiver any more. Those that have come keep the memory.
    pub(crate) fn withdraw(&self) -> Result<()> {
        let file = &self.ledger.file;
        ByteLock::Exclusive.set(file, state_byte(self.index)).map_err(failed)?;
        let written = write_state(file, self.index, OPENED);
        let _ = ByteLock::Unlocked.set(file, state_byte(self.index));
        written
    }
}

impl Drop for SenderSlot {
    fn drop(&mut self) {
        if !process::in_bad_fork() {
            // If it cannot be written, the slot is not used again.
            if write_state(&self.ledger.file, self.index, RELEASED).is_ok() {
                self.ledger.slots().free.push(self.index);
            }
        }
    }
}

#[cfg(test)]
impl SenderSlot {
    /// Takes the sender's lock away, as the system does when it ends.
    pub(super) fn end_for_a_test(&self) {
        ByteLock::Unlocked.set(&self.ledger.file, ALIVE).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_that_ended_has_left_is_removed() {
        let folder = std::env::temp_dir().join(format!("c10-ledgers-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let make = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let (ended, lives) = (make("c10-ipc-1-0", &MAGIC), make("c10-ipc-2-0", &MAGIC));
        let (socket, other) = (make("c10-ipc-1-0.sock", b""), make("c10-ipc-3-0", b"something else"));
        let sender = OpenOptions::new().read(true).write(true).open(&lives).unwrap();
        ByteLock::Exclusive.set(&sender, ALIVE).unwrap();
        sweep(&folder);
        assert_eq!([&ended, &socket, &lives, &other].map(|path| path.exists()), [false, false, true, true]);
        drop(sender);
        sweep(&folder);
        assert!(!lives.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn slots_are_used_again_under_other_numbers() {
        let ledger = Ledger::new().unwrap();
        let (first, second) = (ledger.slot().unwrap(), ledger.slot().unwrap());
        let (before, kept) = (first.name(), second.name());
        assert_ne!(before.index, kept.index);
        drop(first);
        let third = ledger.slot().unwrap();
        assert_eq!(third.name().index, before.index);
        assert!(third.name().number > kept.number && !third.is(&before) && second.is(&kept));
        assert!(!third.is_released(), "the receiver may still come");
        third.withdraw().unwrap();
        assert!(third.is_released());
        let path = ledger.path().to_owned();
        drop((ledger, second, third));
        assert!(!path.exists());
    }
}
