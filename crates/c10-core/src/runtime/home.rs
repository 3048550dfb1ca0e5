//! The pinned memory of one runtime, and the rest of a runtime that has ended while buffers of pinned memory still
//! exist.
//!
//! Counting the owners of a runtime for each buffer would make every thread that takes a buffer write to the same
//! place. So a buffer refers to its home, which is never freed, and not to the runtime. If the last handle of a runtime
//! is dropped while there are buffers, the runtime leaves its remaining parts with the home, and the thread that drops
//! the last buffer frees them. After that another runtime uses the home, so that there are never more homes than
//! runtimes existed at one time.
//!
//! **Invariants:** a home belongs to one started runtime at a time, and to none when it is in `SPARE`. The closing
//! thread sets `closed` before it asks whether there are owners, and an owner reads it after it has released its block,
//! so that one of the two finishes. An owner that parks its block uses no memory ordering between the two steps, so the
//! closing thread asks again after a time in which every processor has made its stores visible.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::config::AllocatorConfig;
use crate::driver::Api;
use crate::pinned::{Block, BlockId, PinnedCache, Released};
use crate::runtime::handle::{Runtime, WeakRuntime};
use crate::runtime::shutdown;
use crate::runtime::started::Started;
use crate::sync::{Mutex, MutexGuard};
use crate::trace::{TraceEvent, TraceKind};

/// Much longer than a processor takes to make a store visible to the others.
const GRACE: Duration = Duration::from_millis(1);

/// Homes without a runtime.
static SPARE: Mutex<Vec<&'static Home>> = Mutex::new(Vec::new());

pub(crate) struct Home {
    pub(crate) cache: PinnedCache,
    /// Whether the runtime is gone.
    closed: AtomicBool,
    /// Whether somebody wants to know what is given back.
    heard: AtomicBool,
    runtime: Mutex<Option<WeakRuntime>>,
    /// The parts of a runtime that the thread which drops the last buffer frees.
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
                heard: AtomicBool::new(false),
                runtime: Mutex::default(),
                left: Mutex::default(),
            }))
        });
        home.cache.restart(config);
        home.closed.store(false, Ordering::Release);
        home.hear(false);
        home
    }

    /// Says which runtime it is, so that streams' events can be recorded when buffers are dropped.
    pub(crate) fn belong_to(&self, runtime: WeakRuntime) {
        *lock(&self.runtime) = Some(runtime);
    }

    /// Whether the runtime has ended, and with it all work that used the memory.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The runtime, unless it has ended or is about to end.
    pub(crate) fn runtime(&self) -> Option<Runtime> {
        lock(&self.runtime).as_ref().and_then(Runtime::upgrade)
    }

    /// Reports from now on, or no more, what is given back.
    pub(crate) fn hear(&self, heard: bool) {
        self.heard.store(heard, Ordering::Relaxed);
    }

    /// Whether somebody wants to know what happens to the memory.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Ends one ownership of a block.
    #[inline]
    pub(crate) fn release(&'static self, (id, block): (BlockId, &Block)) {
        if self.heard.load(Ordering::Relaxed) {
            return self.release_heard((id, block));
        }
        if self.cache.release_if_unused((id, block)) == Released::Waits {
            self.release_used(id);
        }
        self.released();
    }

    /// The same where somebody wants to know.
    #[cold]
    fn release_heard(&'static self, (id, block): (BlockId, &Block)) {
        let (address, runtime) = (block.memory().address as u64, self.runtime());
        let released = self.cache.release_if_unused((id, block));
        if released == Released::Waits {
            self.release_used(id);
        }
        if let Some(runtime) = runtime.filter(|_| released != Released::Shared) {
            runtime.trace().report_now(TraceKind::Pinned, || TraceEvent::PinnedFreed { address });
        }
        self.released();
    }

    /// Releases a block as its last owner; streams may still use the block.
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

    /// As [`Self::release`], but makes no driver call; for blocks that the runtime itself holds.
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

    /// The runtime has ended. Its remaining parts are freed now, or when the last buffer is dropped.
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
