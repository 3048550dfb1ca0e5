//! What a runtime has shared with other processes and keeps for them; torch's list of blocks in limbo.
//!
//! **Invariants:** memory is kept until a receiver has opened it and no receiver uses it any more. It is dropped without a
//! lock, since it goes back to the allocator then. The file of users and the socket are made with the first sharing that
//! needs them, and closed when the program collects and nothing is shared any more.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use super::ledger::{Ledger, SenderSlot, SlotName};
use super::offers::Offers;
use crate::base::error::Result;
use crate::base::handles::EventHandle;
use crate::base::warning::warning;
use crate::driver::Api;
use crate::state::deferred_destroy::{DeferredDestroy, DriverObject};
use crate::sync::{Mutex, MutexGuard};

/// With more blocks than these that are kept for others alone, torch warns.
const WARN_AFTER: usize = 1000;
/// With fewer sharings than these, each further one looks which are over. With more, it does when they have doubled.
const LOOK_ALWAYS: usize = 64;
/// Events for other processes that there may be at a time, as in torch: drivers run out of them.
const MOST_EVENTS: usize = 1000;

/// Memory that receivers may still use.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) slot: SenderSlot,
    /// Recorded behind the work on it.
    pub(crate) event: Option<EventHandle>,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
    /// What is the same in all sharings of the memory, so that a receiver knows it again.
    pub(crate) identity: u64,
    /// Descriptors of the pages that the memory is in.
    pub(crate) descriptors: Arc<Vec<OwnedFd>>,
}

/// What a runtime has shared.
#[derive(Debug, Default)]
pub(crate) struct Sendings {
    ledger: Mutex<Option<Arc<Ledger>>>,
    offers: Mutex<Option<Offers>>,
    list: Mutex<Vec<Sent>>,
    /// How many sharings there are when it is looked the next time which are over.
    next_look: AtomicU64,
    identities: AtomicU64,
    has_warned: AtomicBool,
}

impl Sendings {
    fn list(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for one more sharing.
    pub(crate) fn slot(&self) -> Result<SenderSlot> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger = if let Some(ledger) = &*ledger { ledger } else { ledger.insert(Ledger::new()?) };
        ledger.slot()
    }

    /// The identity of memory and the descriptors of its pages, where it is shared already.
    pub(crate) fn known(&self, memory: &Arc<dyn Any + Send + Sync>) -> Option<(u64, Arc<Vec<OwnedFd>>)> {
        let list = self.list();
        let sent = list.iter().find(|sent| is_same(&sent.memory, memory))?;
        Some((sent.identity, Arc::clone(&sent.descriptors)))
    }

    /// An identity for memory that is shared for the first time.
    pub(crate) fn new_identity(&self) -> u64 {
        self.identities.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether there can be one more event for other processes.
    pub(crate) fn may_have_event(&self) -> bool {
        self.list().iter().filter(|sent| sent.event.is_some()).count() < MOST_EVENTS
    }

    /// Keeps memory, the descriptors of its pages and the event behind the work on it, until no receiver uses it any more.
    pub(crate) fn add(&self, sent: Sent) {
        if !sent.descriptors.is_empty() {
            let name = sent.slot.name();
            let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
            if offers.is_none() {
                // Without it receivers can take the descriptors over, where they may.
                *offers = Offers::start(&name.path).ok();
            }
            if let Some(offers) = &*offers {
                offers.put(&name, Arc::clone(&sent.descriptors));
            }
        }
        self.list().push(sent);
    }

    /// Whether a file of users is this runtime's.
    pub(crate) fn is_in(&self, path: &Path) -> bool {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.as_ref().is_some_and(|ledger| ledger.path() == path)
    }

    /// The memory of a sharing of this runtime, and the event behind the sender's work.
    pub(crate) fn own(&self, name: &SlotName) -> Option<(Arc<dyn Any + Send + Sync>, Option<EventHandle>)> {
        let list = self.list();
        let sent = list.iter().find(|sent| sent.slot.is(name))?;
        Some((Arc::clone(&sent.memory), sent.event))
    }

    /// Waits for no receiver of a sharing any more; whether it is one of this runtime.
    pub(crate) fn withdraw(&self, name: &SlotName) -> Result<bool> {
        match self.list().iter().find(|sent| sent.slot.is(name)) {
            Some(sent) => sent.slot.withdraw().map(|()| true),
            None => Ok(false),
        }
    }

    /// As [`Self::collect`], now and then.
    pub(crate) fn collect_sometimes(&self, api: &Api, deferred: &DeferredDestroy) {
        let count = self.list().len();
        if count >= LOOK_ALWAYS && (count as u64) < self.next_look.load(Ordering::Relaxed) {
            return;
        }
        self.collect(api, deferred);
        self.next_look.store(self.list().len().max(LOOK_ALWAYS) as u64 * 2, Ordering::Relaxed);
    }

    /// Frees the memory that no receiver uses any more. Returns whether there was any.
    pub(crate) fn collect(&self, api: &Api, deferred: &DeferredDestroy) -> bool {
        let released: Vec<Sent> = self.list().extract_if(.., |sent| sent.slot.is_released()).collect();
        let any = !released.is_empty();
        self.drop_all(api, deferred, released);
        self.warn_of_limbo();
        any
    }

    /// As [`Self::collect`], of memory in limbo alone: what this process still uses would not become free.
    pub(crate) fn collect_limbo(&self, api: &Api, deferred: &DeferredDestroy) {
        let mut list = self.list();
        let limbo = in_limbo(&list);
        let is_over = |sent: &mut Sent| limbo.contains(&address_of(sent)) && sent.slot.is_released();
        let released: Vec<Sent> = list.extract_if(.., is_over).collect();
        drop(list);
        self.drop_all(api, deferred, released);
    }

    fn drop_all(&self, api: &Api, deferred: &DeferredDestroy, released: Vec<Sent>) {
        for sent in released {
            self.withdraw_offer(&sent);
            if let Some(event) = sent.event {
                // What fails is tried again later.
                let _ = deferred.destroy(api, DriverObject::Event(event));
            }
        }
    }

    /// Closes the file and the socket, where nothing is shared any more.
    pub(crate) fn close_if_idle(&self) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        // A slot that is about to be used holds the file.
        if ledger.as_ref().is_some_and(|ledger| Arc::strong_count(ledger) == 1) {
            drop(self.offers.lock().unwrap_or_else(PoisonError::into_inner).take());
            *ledger = None;
        }
    }

    fn withdraw_offer(&self, sent: &Sent) {
        if !sent.descriptors.is_empty()
            && let Some(offers) = &*self.offers.lock().unwrap_or_else(PoisonError::into_inner)
        {
            offers.withdraw(&sent.slot.name());
        }
    }

    /// Warns once of many blocks that only others use.
    fn warn_of_limbo(&self) {
        let list = self.list();
        if list.len() <= WARN_AFTER || self.has_warned.load(Ordering::Relaxed) {
            return;
        }
        let limbo = in_limbo(&list).len();
        drop(list);
        if limbo > WARN_AFTER && !self.has_warned.swap(true, Ordering::Relaxed) {
            warning!(
                "Producer process tried to deallocate over {WARN_AFTER} memory blocks referred by consumer processes. Deallocation might be significantly slowed down. Receivers have to drop what they were sent, or the sender to withdraw it."
            );
        }
    }

    /// Frees everything, even if receivers still use it, and says so. The devices are idle.
    pub(crate) fn dismantle(&self, api: &Api) {
        let sent = std::mem::take(&mut *self.list());
        let (over, used): (Vec<Sent>, Vec<Sent>) = sent.into_iter().partition(|sent| sent.slot.is_released());
        if !used.is_empty() {
            warning!(
                "Producer process has been terminated before all shared CUDA tensors released: {} are still used, or were never opened.",
                used.len()
            );
        }
        for event in over.iter().chain(&used).filter_map(|sent| sent.event) {
            let _ = api.event_destroy_handle(event);
        }
        drop(self.offers.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Whether both are the same memory.
fn is_same(one: &Arc<dyn Any + Send + Sync>, other: &Arc<dyn Any + Send + Sync>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

fn address_of(sent: &Sent) -> usize {
    Arc::as_ptr(&sent.memory).addr()
}

/// The memory that this process keeps for others alone.
fn in_limbo(list: &[Sent]) -> BTreeSet<usize> {
    let mut sharings: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for sent in list {
        let holders = Arc::strong_count(&sent.memory);
        sharings.entry(address_of(sent)).or_insert((0, holders)).0 += 1;
    }
    sharings.into_iter().filter(|(_, (sharings, holders))| sharings == holders).map(|(address, _)| address).collect()
}
