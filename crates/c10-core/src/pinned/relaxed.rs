//! The capture mode in which the pinned allocator calls the driver.

use crate::base::error::Result;
use crate::base::handles::CaptureMode;
use crate::driver::EventQuery;

/// Until this is dropped, this thread may make calls that a capture of any thread would otherwise forbid or be invalidated
/// by, also of a capture that was not begun through this crate.
pub(crate) struct Relaxed<'a, E: EventQuery> {
    driver: &'a E,
    before: CaptureMode,
}

impl<'a, E: EventQuery> Relaxed<'a, E> {
    pub(crate) fn new(driver: &'a E) -> Result<Self> {
        Ok(Self { driver, before: driver.exchange_mode(CaptureMode::Relaxed)? })
    }
}

impl<E: EventQuery> Drop for Relaxed<'_, E> {
    fn drop(&mut self) {
        // Nobody can be told of a failure here. It leaves the thread relaxed, which forbids less than before.
        let _ = self.driver.exchange_mode(self.before);
    }
}
