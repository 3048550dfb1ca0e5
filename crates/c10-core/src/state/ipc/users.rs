//! The receiver's side of the file in which a sender counts who uses shared memory; [`super::ledger`] says how.
//!
//! **Invariants:** a sender's file is open once in this process, whatever is received from it; what several holders here
//! have locked together is unlocked by the last. A receiver that fails, but lives, leaves the state as it was, so that it may
//! come again. The last one that lets go removes the file of a sender that has ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};

use super::ledger::{self, OPENED, OPENING, RELEASED, SlotName, WAITING, failed};
use crate::base::error::IpcError;
use crate::base::error::{Error, Result};
use crate::base::process;
use crate::driver::ByteLock;
use crate::sync::{Mutex, MutexGuard};

/// The files of other processes that are open.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Opened>>> = Mutex::new(BTreeMap::new());

/// A sender's file.
#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: File,
    /// How often each slot is held here.
    held: Mutex<BTreeMap<u32, usize>>,
}

impl Opened {
    fn of(path: &Path) -> Result<Arc<Self>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = open.get(path).and_then(Weak::upgrade) {
            return Ok(opened);
        }
        let opened =
            Arc::new(Self { path: path.to_owned(), file: ledger::open(path)?, held: Mutex::new(BTreeMap::new()) });
        open.retain(|_, other| other.strong_count() > 0);
        open.insert(path.to_owned(), Arc::downgrade(&opened));
        Ok(opened)
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state of a slot that is held, to what `change` says of the one before.
    fn change(&self, index: u32, change: impl FnOnce(u8) -> Option<u8>) -> Result<()> {
        // Threads of this process share the locks of the opening.
        let _here = self.held();
        ByteLock::Exclusive.set(&self.file, ledger::state_byte(index)).map_err(failed)?;
        let before = ledger::read(&self.file, index);
        let changed = before
            .and_then(|(_, state)| change(state).map_or(Ok(()), |state| ledger::write_state(&self.file, index, state)));
        let _ = ByteLock::Unlocked.set(&self.file, ledger::state_byte(index));
        changed
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !process::in_bad_fork() {
            ledger::remove_if_ended(&self.path, &self.file);
        }
    }
}

/// One receiver, which keeps the memory with the sender until it is dropped.
#[derive(Debug)]
pub(crate) struct ReceiverLock {
    opened: Arc<Opened>,
    index: u32,
    /// Whether it has noted that it opens the memory, and not yet that it has.
    is_opening: bool,
}

impl ReceiverLock {
    /// Keeps the memory with the sender from now on.
    pub(crate) fn new(name: &SlotName) -> Result<Self> {
        let mut lock = Self::hold(name)?;
        let (number, state) = ledger::read(&lock.opened.file, lock.index)?;
        if number != name.number || state == RELEASED || ledger::has_ended(&lock.opened.file) {
            return Err(Error::Ipc(IpcError::Released));
        }
        let mut is_first = false;
        lock.opened.change(lock.index, |state| {
            is_first = state == WAITING;
            is_first.then_some(OPENING)
        })?;
        lock.is_opening = is_first;
        Ok(lock)
    }

    fn hold(name: &SlotName) -> Result<Self> {
        let opened = Opened::of(&name.path)?;
        let mut held = opened.held();
        let count = held.entry(name.index).or_default();
        if *count == 0 {
            // The sender holds its lock for a moment only.
            ByteLock::Shared.set(&opened.file, ledger::users_byte(name.index)).map_err(failed)?;
        }
        *count += 1;
        drop(held);
        Ok(Self { opened, index: name.index, is_opening: false })
    }

    /// Whether the sender has ended since.
    pub(crate) fn sender_has_ended(&self) -> bool {
        ledger::has_ended(&self.opened.file)
    }

    /// Notes that the memory has been opened: the sender need not wait for a first receiver any more.
    pub(crate) fn confirm(&mut self) -> Result<()> {
        self.opened.change(self.index, |_| Some(OPENED))?;
        self.is_opening = false;
        Ok(())
    }
}

impl Drop for ReceiverLock {
    fn drop(&mut self) {
        // A forked child has the file open too, and leaves its parent's locks alone.
        if process::in_bad_fork() {
            return;
        }
        if self.is_opening {
            let _ = self.opened.change(self.index, |state| (state == OPENING).then_some(WAITING));
        }
        let mut held = self.opened.held();
        if let Some(count) = held.get_mut(&self.index) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.index);
                // Closing the file would not be enough: a forked child may have it open too.
                let _ = ByteLock::Unlocked.set(&self.opened.file, ledger::users_byte(self.index));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ledger::{Ledger, SenderSlot};
    use super::*;

    #[test]
    fn nobody_receives_from_a_process_that_has_ended() {
        let sent = sent();
        let mut lock = ReceiverLock::new(&sent.name()).unwrap();
        lock.confirm().unwrap();
        assert!(!lock.sender_has_ended());
        sent.end_for_a_test();
        assert_eq!(ReceiverLock::new(&sent.name()).unwrap_err(), Error::Ipc(IpcError::Released));
        assert!(sent.name().path.exists());
        assert!(lock.sender_has_ended());
        drop(lock);
        assert!(!sent.name().path.exists(), "the last receiver tidies up");
    }

    fn sent() -> SenderSlot {
        Ledger::new().unwrap().slot().unwrap()
    }

    fn open(sent: &SenderSlot) -> Result<ReceiverLock> {
        let mut lock = ReceiverLock::new(&sent.name())?;
        lock.confirm()?;
        Ok(lock)
    }

    #[test]
    fn the_last_receiver_releases() {
        let sent = sent();
        assert!(!sent.is_released(), "the receiver may still come");
        let (first, second) = (open(&sent).unwrap(), open(&sent).unwrap());
        drop(first);
        assert!(!sent.is_released());
        drop(second);
        assert!(sent.is_released());
        assert_eq!(open(&sent).unwrap_err(), Error::Ipc(IpcError::Released));
        let name = sent.name();
        drop(sent);
        assert!(!name.path.exists());
        assert_eq!(ReceiverLock::new(&name).unwrap_err(), Error::Ipc(IpcError::Released));
    }

    #[test]
    fn a_receiver_that_fails_may_come_again() {
        let sent = sent();
        drop(ReceiverLock::new(&sent.name()).unwrap());
        assert!(!sent.is_released(), "it has not opened the memory");
        let first = open(&sent).unwrap();
        drop(ReceiverLock::new(&sent.name()).unwrap());
        assert!(!sent.is_released());
        drop(first);
        assert!(sent.is_released());
    }

    #[test]
    fn a_receiver_that_ends_while_it_opens_keeps_nothing() {
        let sent = sent();
        let mut lock = ReceiverLock::new(&sent.name()).unwrap();
        assert!(!sent.is_released());
        // As the system leaves it: the lock is gone, the state is not put back.
        lock.is_opening = false;
        drop(lock);
        assert!(sent.is_released());
    }

    #[test]
    fn no_other_file_is_written_to() {
        let other = std::env::temp_dir().join(format!("c10-other-{}", std::process::id()));
        std::fs::write(&other, [7; 256]).unwrap();
        let refused = ReceiverLock::new(&SlotName { path: other.clone(), index: 0, number: 7 }).unwrap_err();
        let kept = std::fs::read(&other).unwrap();
        std::fs::remove_file(&other).unwrap();
        assert!(matches!(refused, Error::Ipc(IpcError::File { .. })), "{refused}");
        assert_eq!(kept, [7; 256]);
        let folder = ReceiverLock::new(&SlotName { path: std::env::temp_dir(), index: 0, number: 7 }).unwrap_err();
        assert!(matches!(folder, Error::Ipc(IpcError::File { .. })), "{folder}");
    }
}
