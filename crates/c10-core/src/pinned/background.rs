//! The thread that asks for events when `pinned_use_background_threads` is set.
//!
//! **Invariants:** there is at most one, started by the first block that waits for a stream. It holds the driver's
//! functions but no runtime, and is joined before the runtime destroys its events. It sleeps while no block waits. If the
//! system gives no thread, requests ask for the events as they do without the option.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::driver::EventQuery;
use crate::pinned::cache::PinnedCache;
use crate::sync::{Mutex, MutexGuard};

/// How often the thread asks.
const PERIOD: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
pub(crate) struct Background {
    wanted: AtomicBool,
    /// Whether the thread runs, so that nobody else has to ask.
    works: AtomicBool,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Background {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread of its own asks for the events.
    pub(crate) fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    /// Sets the option. Without it the thread ends before this returns.
    pub(crate) fn set(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Release);
        if !wanted {
            self.stop();
        }
    }

    /// Ends the thread, if there is one.
    pub(crate) fn stop(&self) {
        self.works.store(false, Ordering::Release);
        let running = self.lock().take();
        if let Some(running) = running {
            running.stop.store(true, Ordering::Release);
            running.thread.thread().unpark();
            // A panic of the thread is ignored: the books are consistent after each of its steps.
            let _ = running.thread.join();
        }
    }
}

impl PinnedCache {
    /// Wakes the thread, or starts it if the option is set, since a block waits for a stream.
    pub(crate) fn wake_background<E: EventQuery + Send + 'static>(&'static self, driver: impl FnOnce() -> E) {
        let background = self.background();
        if !background.wanted.load(Ordering::Acquire) {
            return;
        }
        let mut running = background.lock();
        // Read again under the lock: whoever ends the thread clears the option first and takes the lock then.
        if running.is_none() && background.wanted.load(Ordering::Acquire) {
            *running = begin(self, driver());
            background.works.store(running.is_some(), Ordering::Release);
        }
        running.iter().for_each(|running| running.thread.thread().unpark());
    }
}

fn begin<E: EventQuery + Send + 'static>(home: &'static PinnedCache, driver: E) -> Option<Running> {
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    let work = move || {
        while !stops.load(Ordering::Acquire) {
            if home.any_waiting() {
                home.poll(&driver);
                std::thread::park_timeout(PERIOD);
            } else {
                std::thread::park();
            }
        }
    };
    let thread = std::thread::Builder::new().name("pinned-events".to_owned()).spawn(work).ok()?;
    Some(Running { stop, thread })
}
