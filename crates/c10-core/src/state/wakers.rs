//! Tasks that wait for events, and the thread that wakes them.
//!
//! The driver does not notify anybody when an event completes. It would call a function that is queued behind the
//! event, but such a function may not use the driver, while a waker may run its task at once, which does. Each event
//! would also need a stream of its own, since the functions of one stream wait for each other. So a thread polls the
//! events. It works with every executor, needs no streams, and works during captures.
//!
//! **Invariants:** a runtime has at most one such thread, and none after nothing has waited for some time. The thread
//! holds the driver's functions but no runtime. It queries an event under the lock, so that a thread that removes the
//! entry may destroy the event right afterwards. Wakers are called without the lock.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::base::handles::{CaptureMode, EventHandle};
use crate::driver::EventQuery;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The shortest and the longest time between two polls. Each round in which no event completed doubles the time.
const PERIODS: (Duration, Duration) = (Duration::from_micros(10), Duration::from_millis(1));
/// How long the thread stays when nothing waits.
const STAY: Duration = Duration::from_millis(200);

/// Number of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WaiterId(u64);

#[derive(Debug, Default)]
struct Waiting {
    entries: BTreeMap<WaiterId, (EventHandle, Waker)>,
    next: u64,
    /// Whether the thread is there.
    works: bool,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Told when an entry is new.
    added: Condvar,
}

/// What waits for events of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Arc<Shared>);

impl Wakers {
    /// Calls the waker once the event has completed or cannot be queried. `driver` makes the functions that a new
    /// thread polls with. `None` if the system cannot start a thread.
    pub(crate) fn add<E>(&self, event: EventHandle, waker: Waker, driver: impl FnOnce() -> E) -> Option<WaiterId>
    where
        E: EventQuery + Send + 'static,
    {
        let mut waiting = self.0.lock();
        if !waiting.works {
            let (shared, driver) = (Arc::clone(&self.0), driver());
            let thread = std::thread::Builder::new().name("event-wakers".to_owned());
            thread.spawn(move || shared.work(&driver)).ok()?;
            waiting.works = true;
        }
        let id = WaiterId(waiting.next);
        waiting.next += 1;
        waiting.entries.insert(id, (event, waker));
        self.0.added.notify_one();
        Some(id)
    }

    /// Puts another waker in an entry's place; `false` if the entry is gone, because its waker was called.
    pub(crate) fn change(&self, id: WaiterId, waker: &Waker) -> bool {
        let mut waker = waker.clone();
        let mut waiting = self.0.lock();
        let Some((_, known)) = waiting.entries.get_mut(&id) else { return false };
        std::mem::swap(known, &mut waker);
        drop(waiting);
        // The old waker is dropped without the lock: it may take locks itself.
        drop(waker);
        true
    }

    /// Removes an entry. The event is not queried any more when this returns.
    pub(crate) fn remove(&self, id: WaiterId) {
        let entry = self.0.lock().entries.remove(&id);
        // A waker may take locks when it is dropped.
        drop(entry);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, driver: &impl EventQuery) {
        // Without it a capture of another thread would forbid queries. Then the query fails, and the task learns of it.
        let _ = driver.exchange_mode(CaptureMode::Relaxed);
        let (shortest, longest) = PERIODS;
        let mut period = shortest;
        loop {
            let mut waiting = self.lock();
            if waiting.entries.is_empty() {
                period = shortest;
                waiting = self.wait(waiting, STAY);
                if waiting.entries.is_empty() {
                    waiting.works = false;
                    return;
                }
            }
            // If an event cannot be queried, its task is woken, queries it and gets the error.
            let passed = waiting.entries.extract_if(.., |_, (event, _)| driver.query(*event).unwrap_or(true));
            let passed: Vec<Waker> = passed.map(|(_, (_, waker))| waker).collect();
            period = if passed.is_empty() { longest.min(period * 2) } else { shortest };
            if passed.is_empty() {
                drop(self.wait(waiting, period));
            } else {
                drop(waiting);
                passed.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Waits until an entry is new, or for some time.
    fn wait<'a>(&self, waiting: MutexGuard<'a, Waiting>, time: Duration) -> MutexGuard<'a, Waiting> {
        self.added.wait_timeout(waiting, time).unwrap_or_else(PoisonError::into_inner).0
    }
}
