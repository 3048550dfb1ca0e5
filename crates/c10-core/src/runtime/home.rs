//! The pinned memory of one runtime, and what is left of a runtime that is gone while buffers are still there.
//!
//! Counting the owners of a runtime for each buffer would make every thread that takes a buffer write to the same
//! place. So a buffer refers to its home, which is never freed, and not to the runtime. A runtime whose last handle is
//! dropped while there are buffers leaves what it needs with the home, and whoever drops the last buffer finishes.
//! After that the home serves another runtime; there are as many as runtimes were ever at work at a time.
//!
//! **Invariants:** a home belongs to one started runtime at a time, and to none when it is in `SPARE`. `closed` is set
//! before the closing thread asks whether there are owners, and is looked at after an owner is gone, so that one of the
//! two finishes. An owner who parks its block orders the two by nothing; so the closing thread asks again when any
//! processor has long made its stores visible.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::base::config::AllocatorConfig;
use crate::driver::Api;
use crate::pinned::{Block, BlockId, PinnedCache, Released};
use crate::runtime::handle::{Runtime, WeakRuntime};
use crate::runtime::shutdown;
use crate::runtime::started::Started;

/// By far longer than a processor keeps a store to itself.
const GRACE: Duration = Duration::from_millis(1);

/// Homes without a runtime.
static SPARE: Mutex<Vec<&'static Home>> = Mutex::new(Vec::new());

pub(crate) struct Home {
    pub(crate) cache: PinnedCache,
    /// Whether the runtime is gone.
    closed: AtomicBool,
    runtime: Mutex<Option<WeakRuntime>>,
    /// What a runtime has left for whoever drops the last buffer.
    left: Mutex<Option<Box<Started>>>,
}

impl Home {
    /// A home for a runtime that starts.
    pub(crate) fn open(config: &AllocatorConfig) -> &'static Self {
        let spare = lock(&SPARE).pop();
        let home: &'static Self = spare.unwrap_or_else(|| {
            let cache = PinnedCache::new(config);
            Box::leak(Box::new(Self {
                cache,
                closed: AtomicBool::new(false),
                runtime: Mutex::default(),
                left: Mutex::default(),
            }))
        });
        home.cache.restart(config);
        home.closed.store(false, Ordering::Release);
        home
    }

    /// Says which runtime it is, so that streams' events can be recorded when buffers are dropped.
    pub(crate) fn belong_to(&self, runtime: WeakRuntime) {
        *lock(&self.runtime) = Some(runtime);
    }

    /// Whether the runtime is gone, and with it all work that used the memory.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The runtime, unless it is gone or about to.
    pub(crate) fn runtime(&self) -> Option<Runtime> {
        lock(&self.runtime).as_ref().and_then(Runtime::upgrade)
    }

    /// Gives a block up that the caller owned.
    #[inline]
    pub(crate) fn release(&'static self, (id, block): (BlockId, &Block)) {
        if self.cache.release_if_unused((id, block)) == Released::Waits {
            self.release_used(id);
        }
        self.released();
    }

    /// Gives a block up as its last owner, which streams may still use.
    #[cold]
    fn release_used(&'static self, block: BlockId) {
        let runtime = self.runtime();
        match runtime.as_ref().and_then(Runtime::started) {
            Some(ready) => {
                self.cache.wait_for_streams(Some(&ready.api), block);
                self.cache.wake_background(|| ready.api.event_queries());
            }
            None => self.cache.wait_for_streams::<Api>(None, block),
        }
    }

    /// As [`Self::release`], but calls nothing; for what the runtime itself holds.
    pub(crate) fn release_silently(&'static self, (id, block): (BlockId, &Block)) {
        if self.cache.release_if_unused((id, block)) == Released::Waits {
            self.cache.wait_for_streams::<Api>(None, id);
        }
        self.released();
    }

    #[inline]
    fn released(&'static self) {
        if self.closed.load(Ordering::Relaxed) {
            self.finish_if_last();
        }
    }

    /// The runtime is gone. What is left of it is given back now, or when the last buffer is dropped.
    pub(crate) fn close(&'static self, ready: Started) {
        let mut left = lock(&self.left);
        self.closed.store(true, Ordering::Release);
        *lock(&self.runtime) = None;
        *left = Some(Box::new(ready));
        drop(left);
        self.finish_if_last();
        if self.cache.is_owned() {
            std::thread::sleep(GRACE);
            self.finish_if_last();
        }
    }

    #[cold]
    fn finish_if_last(&'static self) {
        let mut left = lock(&self.left);
        if left.is_none() || self.cache.is_owned() {
            return;
        }
        let Some(ready) = left.take() else { return };
        drop(left);
        shutdown::dismantle(&ready);
        drop(ready);
        lock(&SPARE).push(self);
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("closed", &self.closed).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
