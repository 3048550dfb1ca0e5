//! Tasks that wait for events, and the thread that wakes them.
//!
//! A driver calls no one when an event passes. A function queued behind the event would be called, but may not use the
//! driver, which a task that is run at once by its waker does; it would also need a stream of its own for each event, since
//! the functions of one stream wait for each other. So a thread asks for the events: it serves every runtime of the
//! program's choice, needs nothing of the streams, and works during captures.
//!
//! **Invariants:** there is at most one thread for a runtime, and none while nothing waited for some time. It holds the
//! driver's functions but no runtime. An event is asked for under the lock, so that whoever takes its entry out may destroy
//! it right after. Wakers are called without the lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::base::handles::{CaptureMode, EventHandle};
use crate::driver::EventQuery;

/// How soon the thread asks again at first, and at most. Each round without a passed event doubles the time.
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
    /// Calls the waker once the event has passed or cannot be asked for. `driver` is what a new thread asks with. `None`
    /// where the system gives no thread.
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
        // The old one goes without the lock: it may take locks itself.
        drop(waker);
        true
    }

    /// Takes an entry out. The event is not asked for any more when this returns.
    pub(crate) fn remove(&self, id: WaiterId) {
        let entry = self.0.lock().entries.remove(&id);
        // A waker may take locks when it goes.
        drop(entry);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, driver: &impl EventQuery) {
        // Without it a capture of another thread would forbid asking; then asking fails, and the task hears of that.
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
            // What cannot be asked for is told to the task, which asks itself.
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
