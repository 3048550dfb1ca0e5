//! The default streams of threads, all of which go by one name (`CU_STREAM_PER_THREAD`).
//!
//! The allocator tells streams apart by their names. So each thread has a stand-in for its own in each context: a stream on
//! which the program runs nothing. A thread's memory is the stand-in's to the allocator, which reuses it without a wait
//! on the same thread alone.
//!
//! **Invariants**
//! - Memory that a thread gives back was its stand-in's, or the stand-in waits for what the thread has queued, before the
//!   allocator sees the stand-in as a user of it.
//! - A backend that queues work on streams or waits for them has the stand-in wait for its thread at each free, and the
//!   thread for its stand-in at each allocation. The native one alone, in its plain form, does nothing on a stream.
//! - A stand-in has one thread at a time. It gets another thread when everything that the one before had queued at its end
//!   is done, and never waits for that: nobody knows what the device waits for meanwhile.
//!
//! # Safety
//! Streams and events are those made here, which are never destroyed, or the calling thread's own stream.
#![expect(unsafe_code, reason = "makes and orders streams")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use c10_core::{DeviceIndex, Runtime};
use cuda_sys::driver::types::*;
use cuda_sys::{Driver, DriverError};

use crate::real::driver;
use crate::streams::{self, PER_THREAD, Use};

/// The stream does not wait for the default stream (`CU_STREAM_NON_BLOCKING`).
const NON_BLOCKING: u32 = 1;
/// The event only orders (`CU_EVENT_DISABLE_TIMING`).
const DISABLE_TIMING: u32 = 2;

/// A stream in the place of a thread's default stream in a device's primary context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StandIn {
    pub(crate) device: DeviceIndex,
    context: usize,
    pub(crate) stream: usize,
    /// Orders the two streams, again and again.
    event: usize,
}

/// The stand-ins of the thread that holds this.
struct Mine(RefCell<Vec<StandIn>>);

thread_local! {
    static MINE: Mine = const { Mine(RefCell::new(Vec::new())) };
}

/// The stand-ins of threads that have ended; the event of each was recorded last on the thread's own stream.
static SPARE: Mutex<Vec<StandIn>> = Mutex::new(Vec::new());

impl Drop for Mine {
    fn drop(&mut self) {
        let Some(driver) = driver() else { return };
        // Where the end of the thread's work cannot be noted, the stand-in is not used again. Its free memory goes back to
        // the driver when there is no other.
        self.0.get_mut().retain(|own| own.note_the_end(driver));
        lock(&SPARE).append(self.0.get_mut());
    }
}

/// The calling thread's stand-in in the current context; none where that is no device's primary one, or the thread ends.
pub(crate) fn own(driver: &Driver) -> Result<Option<StandIn>, DriverError> {
    let Some(context) = streams::current(driver) else { return Ok(None) };
    let find = |mine: &Mine| mine.0.borrow().iter().find(|own| own.context == context.addr()).copied();
    match MINE.try_with(find) {
        Ok(None) => {}
        Ok(known) => return Ok(known),
        Err(_) => return Ok(None),
    }
    // SAFETY: a context that is current.
    let Some(device) = (unsafe { streams::of_context(driver, context) }) else { return Ok(None) };
    let own = match spare(driver, context.addr()) {
        Some(spare) => spare,
        None => create(driver, device, context.addr())?,
    };
    MINE.with(|mine| mine.0.borrow_mut().push(own));
    Ok(Some(own))
}

/// Whether the calling thread is past the point where it can have a stand-in.
pub(crate) fn is_ending() -> bool {
    MINE.try_with(|_| ()).is_err()
}

/// The stand-in of a thread that has ended and whose work is done.
fn spare(driver: &Driver, context: usize) -> Option<StandIn> {
    let mut spare = lock(&SPARE);
    let place = spare.iter().position(|spare| spare.context == context && spare.is_done(driver))?;
    Some(spare.swap_remove(place))
}

fn create(driver: &Driver, device: DeviceIndex, context: usize) -> Result<StandIn, DriverError> {
    let (mut stream, mut event): (CUstream, CUevent) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: `event` outlives the call.
    unsafe { driver.cuEventCreate(&mut event, DISABLE_TIMING) }?;
    // SAFETY: `stream` outlives the call.
    let made = unsafe { driver.cuStreamCreate(&mut stream, NON_BLOCKING) };
    if let Err(error) = made {
        // SAFETY: nobody else knows it.
        let _ = unsafe { driver.cuEventDestroy_v2(event) };
        return Err(error);
    }
    Ok(StandIn { device, context, stream: stream.expose_provenance(), event: event.expose_provenance() })
}

impl StandIn {
    /// Makes the stand-in wait for what its thread has queued. Called by that thread, as [`Self::lead`].
    pub(crate) fn follow(&self, driver: &Driver) -> Result<(), DriverError> {
        self.order(driver, PER_THREAD, self.stream)
    }

    /// Makes the thread's later work wait for what the stand-in has queued.
    pub(crate) fn lead(&self, driver: &Driver) -> Result<(), DriverError> {
        self.order(driver, self.stream, PER_THREAD)
    }

    /// Records the event behind everything that the calling thread has queued, as its last act; whether that worked.
    fn note_the_end(&self, driver: &Driver) -> bool {
        // SAFETY: a primary context, which the runtime retains.
        if unsafe { driver.cuCtxPushCurrent_v2(ptr::with_exposed_provenance_mut(self.context)) }.is_err() {
            return false;
        }
        // SAFETY: the calling thread's stream.
        let runs = unsafe { streams::asked(driver, PER_THREAD) }.is_ok_and(|found| found == Use::Runs);
        let (event, stream) =
            (ptr::with_exposed_provenance_mut(self.event), ptr::with_exposed_provenance_mut(PER_THREAD));
        // SAFETY: see the top of the file.
        let noted = runs && unsafe { driver.cuEventRecord(event, stream) }.is_ok();
        let mut popped: CUcontext = ptr::null_mut();
        // SAFETY: `popped` outlives the call.
        let _ = unsafe { driver.cuCtxPopCurrent_v2(&mut popped) };
        noted
    }

    /// Whether the event has passed.
    fn is_done(&self, driver: &Driver) -> bool {
        // SAFETY: see the top of the file.
        unsafe { driver.cuEventQuery(ptr::with_exposed_provenance_mut(self.event)) }.is_ok()
    }

    fn order(&self, driver: &Driver, first: usize, then: usize) -> Result<(), DriverError> {
        let event = ptr::with_exposed_provenance_mut(self.event);
        // SAFETY: see the top of the file.
        unsafe { driver.cuEventRecord(event, ptr::with_exposed_provenance_mut(first)) }?;
        // SAFETY: see the top of the file; 0 is the only flag that a stream outside captures takes.
        unsafe { driver.cuStreamWaitEvent(ptr::with_exposed_provenance_mut(then), event, 0) }
    }
}

/// Whether the allocator queues work on the streams that it serves, or waits for it.
pub(crate) fn has_work_on_streams() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // Nobody can change the options later: they come from the environment.
    *ANSWER.get_or_init(|| {
        let runtime = Runtime::default_runtime();
        let config = runtime.memory().config();
        runtime.memory().backend() != "native" || config.expandable_segments || config.learn_plans
    })
}

/// The stand-in that each address handed out to a thread belongs to, in shards by the address.
static OWNERS: [Mutex<Option<HashMap<CUdeviceptr, usize>>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];
const SHARDS: usize = 16;

/// Whether there was an address in [`OWNERS`], so that programs without such streams need not look.
static IS_USED: AtomicBool = AtomicBool::new(false);

fn owners(address: CUdeviceptr) -> MutexGuard<'static, Option<HashMap<CUdeviceptr, usize>>> {
    // Addresses are multiples of 512.
    lock(&OWNERS[(address / 512) as usize % SHARDS])
}

/// Notes that an address was handed out to the thread of a stand-in.
pub(crate) fn note(address: CUdeviceptr, own: &StandIn) {
    IS_USED.store(true, Ordering::Release);
    owners(address).get_or_insert_default().insert(address, own.stream);
}

/// Forgets an address that is given back; the stand-in it belongs to, if it was handed out to a thread. Whoever has the
/// address has it from a thread that called [`note`], and so sees what that has written.
pub(crate) fn forget(address: CUdeviceptr) -> Option<usize> {
    if !IS_USED.load(Ordering::Acquire) {
        return None;
    }
    owners(address).as_mut()?.remove(&address)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_an_owner_until_it_is_given_back() {
        let own = |stream| StandIn { device: DeviceIndex(0), context: 0, stream, event: 0 };
        assert_eq!(forget(512), None);
        note(512, &own(7));
        note(1024, &own(8));
        assert_eq!((forget(512), forget(512)), (Some(7), None));
        note(512, &own(8));
        assert_eq!((forget(512), forget(1024)), (Some(8), Some(8)));
    }
}
