//! The capture under way, and what waits for its end.
//!
//! **Invariant:** there is at most one capture at a time. While there is none, asking is one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::backend::driver_pools::live::Live;
use crate::base::error::{BackendError, Error, Result};
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::sync::Mutex;
use crate::sync::lock;

/// A capture.
#[derive(Debug)]
struct UnderWay {
    pool: PoolId,
    /// The driver's number, 0 until it is known.
    number: Arc<AtomicU64>,
    /// Streams on which memory was freed in it. Those that it has forked have to be joined again before it ends, also
    /// where the program has joined them before that.
    freed_on: Vec<StreamRef>,
    /// Memory from outside that was given back by a stream that captures.
    deferred: Vec<(u64, Live)>,
    /// Memory of the capture that could not be freed in it where it was given back.
    unfreed: Vec<(u64, Live)>,
}

/// The captures of a runtime.
#[derive(Debug, Default)]
pub(super) struct Captures {
    any: AtomicBool,
    under_way: Mutex<Option<UnderWay>>,
    /// Whether the program was told that memory from outside is freed in a capture.
    warned: AtomicBool,
}

impl Captures {
    /// Whether a capture is under way.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// A capture is about to begin.
    pub(super) fn begin(&self, pool: PoolId, number: &Arc<AtomicU64>) -> Result<()> {
        let mut under_way = lock(&self.under_way);
        if under_way.is_some() {
            return Err(Error::Backend(BackendError::OneCapture));
        }
        let number = Arc::clone(number);
        *under_way = Some(UnderWay { pool, number, freed_on: Vec::new(), deferred: Vec::new(), unfreed: Vec::new() });
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// It is over; the memory that waited for that.
    pub(super) fn end(&self) -> Vec<(u64, Live)> {
        let mut under_way = lock(&self.under_way);
        self.any.store(false, Ordering::Release);
        under_way.take().map_or_else(Vec::new, |ended| ended.deferred)
    }

    /// The pool of the capture under way, if it has this number.
    pub(super) fn pool_of(&self, capture: u64) -> Option<PoolId> {
        let under_way = lock(&self.under_way);
        under_way
            .as_ref()
            .filter(|now| capture != 0 && now.number.load(Ordering::Acquire) == capture)
            .map(|now| now.pool)
    }

    /// Memory is freed on a stream in the capture under way.
    pub(super) fn freed_on(&self, stream: StreamRef) {
        if let Some(now) = lock(&self.under_way).as_mut()
            && !now.freed_on.contains(&stream)
        {
            now.freed_on.push(stream);
        }
    }

    /// The streams on which memory was freed, and the memory that could not be; asking again answers with none.
    pub(super) fn take_freed(&self) -> (Vec<StreamRef>, Vec<(u64, Live)>) {
        let mut under_way = lock(&self.under_way);
        let taken = |now: &mut UnderWay| (std::mem::take(&mut now.freed_on), std::mem::take(&mut now.unfreed));
        under_way.as_mut().map_or_else(Default::default, taken)
    }

    /// Memory of the capture could not be freed in it; the end of the capture tries again.
    pub(super) fn keep_unfreed(&self, address: u64, live: Live) {
        if let Some(now) = lock(&self.under_way).as_mut() {
            now.unfreed.push((address, live));
        }
    }

    /// Keeps memory until the capture ends; gives it back if it has ended meanwhile.
    pub(super) fn defer(&self, address: u64, live: Live) -> Option<Live> {
        match lock(&self.under_way).as_mut() {
            Some(now) => now.deferred.push((address, live)),
            None => return Some(live),
        }
        None
    }

    /// Whether the program has not been told yet; it will be now.
    pub(super) fn shall_warn(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
    }
}
