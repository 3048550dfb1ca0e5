//! Descriptors of shared pages for receivers that may not take them over: a thread hands them out on a Unix socket.
//!
//! A receiver may copy descriptors out of the sender's process where the system lets it trace that process, which containers
//! often forbid. So the sender listens on a socket beside its file of users. Who names a slot and its number gets the
//! descriptors of the pages that the sharing is about, and is let go.
//!
//! **Invariants:** the socket answers to this user alone. A peer that does not say within [`PATIENCE`] what it wants, or asks
//! for what is not there, is let go without an answer. The thread holds no runtime and no memory, descriptors only while it
//! sends them; it ends when the sender does, and a forked child neither answers nor removes the socket.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::ledger::{SlotName, socket_beside};
use crate::base::process;
use crate::driver::{own_user, peer_user, receive_descriptors, send_descriptors};
use crate::sync::{Mutex, MutexGuard};

/// What a request begins with; the slot and its number follow.
const MAGIC: [u8; 8] = *b"c10-pgs1";
const REQUEST: usize = MAGIC.len() + 4 + 8;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the thread waits before it tries again, where the system cannot take a peer.
const PAUSE: Duration = Duration::from_millis(100);

/// Descriptors by the slot and its number.
type Entries = BTreeMap<(u32, u64), Arc<Vec<OwnedFd>>>;
type Table = Mutex<Entries>;

/// What a sender hands out, as long as this lives.
#[derive(Debug)]
pub(super) struct Offers {
    socket: PathBuf,
    table: Arc<Table>,
    /// The listening socket once more, to end the thread's waiting.
    stop: UnixStream,
    is_over: Arc<AtomicBool>,
}

fn lock(table: &Table) -> MutexGuard<'_, Entries> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Offers {
    /// Listens on the socket beside a sender's file.
    pub(super) fn start(ledger: &Path) -> io::Result<Self> {
        let socket = socket_beside(ledger);
        // The file beside it is new, so a socket of that name was left behind.
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o600))?;
        let stop = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let (table, is_over) = (Arc::new(Table::default()), Arc::new(AtomicBool::new(false)));
        let offers = Self { socket, table: Arc::clone(&table), stop, is_over: Arc::clone(&is_over) };
        let thread = std::thread::Builder::new().name("shared pages".to_owned());
        thread.spawn(move || answer_all(&listener, &table, &is_over))?;
        Ok(offers)
    }

    /// Hands out descriptors to whoever names the slot, until they are withdrawn.
    pub(super) fn put(&self, slot: &SlotName, descriptors: Arc<Vec<OwnedFd>>) {
        lock(&self.table).insert((slot.index, slot.number), descriptors);
    }

    pub(super) fn withdraw(&self, slot: &SlotName) {
        let withdrawn = lock(&self.table).remove(&(slot.index, slot.number));
        drop(withdrawn);
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        self.is_over.store(true, Ordering::Release);
        // Neither can fail in a way that matters: the process may have no such socket any more.
        let _ = self.stop.shutdown(Shutdown::Both);
        let _ = std::fs::remove_file(&self.socket);
        // A thread that still answers has the table for a moment.
        lock(&self.table).clear();
    }
}

/// Answers one peer after the other until the sender is gone.
fn answer_all(listener: &UnixListener, table: &Table, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        match listener.accept() {
            // A peer that has gone, or asks for nothing that is there, has no answer and gives no reason to stop.
            Ok((peer, _)) => drop(answer(peer, table)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if is_over.load(Ordering::Acquire) => return,
            // The process may have too many files open: it may have fewer soon.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn answer(mut peer: UnixStream, table: &Table) -> io::Result<()> {
    if peer_user(&peer)? != own_user() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    peer.set_read_timeout(Some(PATIENCE))?;
    peer.set_write_timeout(Some(PATIENCE))?;
    let mut request = [0; REQUEST];
    peer.read_exact(&mut request)?;
    let asked = request.strip_prefix(&MAGIC).and_then(|rest| {
        let (index, number) = rest.split_first_chunk()?;
        Some((u32::from_le_bytes(*index), u64::from_le_bytes(number.try_into().ok()?)))
    });
    let found = asked.and_then(|slot| lock(table).get(&slot).cloned()).ok_or(io::ErrorKind::NotFound)?;
    send_descriptors(&peer, &found)
}

/// Asks a sender for the descriptors of a sharing, of which there are `count`.
pub(crate) fn fetch_descriptors(slot: &SlotName, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut sender = UnixStream::connect(socket_beside(&slot.path))?;
    if peer_user(&sender)? != own_user() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // Others may be answered before.
    sender.set_read_timeout(Some(PATIENCE * 10))?;
    sender.set_write_timeout(Some(PATIENCE))?;
    let mut request = MAGIC.to_vec();
    request.extend(slot.index.to_le_bytes());
    request.extend(slot.number.to_le_bytes());
    sender.write_all(&request)?;
    receive_descriptors(&sender, count)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn who_names_a_slot_gets_its_descriptors() {
        let path = std::env::temp_dir().join(format!("c10-offers-{}", std::process::id()));
        let slot = SlotName { path: path.clone(), index: 3, number: 17 };
        assert_eq!(fetch_descriptors(&slot, 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        let offers = Offers::start(&path).unwrap();
        let file = || OwnedFd::from(File::open("/proc/self/status").unwrap());
        offers.put(&slot, Arc::new(vec![file(), file()]));
        let inode = |of: OwnedFd| File::from(of).metadata().unwrap().ino();
        let fetched = fetch_descriptors(&slot, 2).unwrap();
        assert!(fetched.into_iter().all(|descriptor| inode(descriptor) == inode(file())));

        let stale = SlotName { number: 16, ..slot.clone() };
        assert!(fetch_descriptors(&stale, 1).is_err(), "the slot has another number");
        assert!(fetch_descriptors(&slot, 3).is_err(), "there are fewer");
        let mut rude = UnixStream::connect(socket_beside(&path)).unwrap();
        rude.write_all(&[0; REQUEST]).unwrap();
        assert_eq!(rude.read(&mut [0; 8]).unwrap(), 0, "garbage is not answered");
        assert_eq!(fetch_descriptors(&slot, 2).unwrap().len(), 2, "and ends nothing");

        offers.withdraw(&slot);
        assert!(fetch_descriptors(&slot, 2).is_err());
        drop(offers);
        assert!(!socket_beside(&path).exists());
    }
}
