//! The part of the CUDA runtime API that torch shows: `cudart()`, its status codes and their texts.
//!
//! There is no CUDA runtime library here. Each function does through the driver what the function of the same name does
//! there, and returns its status code as a number. The functions that take addresses of the program are in
//! `addresses.rs`.
//!
//! **Invariant:** a code of the driver and a code of the runtime API with the same meaning are the same number. The few
//! that only one of them has are listed in `base/error/status.rs`.

mod addresses;

use crate::api::arg::DeviceArg;
use crate::base::device::DeviceIndex;
use crate::base::error::{Result, error_string, status};
use crate::runtime::{Runtime, Started};

/// The CUDA runtime API on a started runtime; what torch's `cudart` returns. Functions have the names of C.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Runtime, check_error};
///
/// let cudart = Runtime::current().cudart()?;
/// check_error(cudart.cudaProfilerStart())?;
/// assert_eq!(cudart.cudaGetErrorString(2), "out of memory");
/// let (free, total) = cudart.cudaMemGetInfo(0)?;
/// assert!(free <= total);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cudart {
    pub(crate) runtime: Runtime,
}

impl Runtime {
    /// The runtime API; starts the runtime.
    ///
    /// # Errors
    /// The runtime cannot start.
    pub fn cudart(&self) -> Result<Cudart> {
        self.ready()?;
        Ok(Cudart { runtime: self.clone() })
    }
}

#[expect(non_snake_case, reason = "the names of C")]
impl Cudart {
    /// The text of a status code.
    #[must_use]
    pub fn cudaGetErrorString(&self, error: i32) -> &'static str {
        error_string(&error)
    }

    /// Starts the collection of a profiler that waits for it, on the current device. Returns the status code of the
    /// runtime API.
    #[must_use = "the answer is a code"]
    pub fn cudaProfilerStart(&self) -> i32 {
        status(self.on_current_device(|ready, device| ready.api.profiler_start(device)))
    }

    /// Ends the collection that [`Self::cudaProfilerStart`] started.
    #[must_use = "the answer is a code"]
    pub fn cudaProfilerStop(&self) -> i32 {
        status(self.on_current_device(|ready, device| ready.api.profiler_stop(device)))
    }

    /// Makes a stream of the current device that waits for the default stream, and writes its handle to `stream`. It
    /// lives until `cudaStreamDestroy`, or until its context ends.
    #[must_use = "the answer is a code"]
    pub fn cudaStreamCreate(&self, stream: &mut usize) -> i32 {
        status(self.on_current_device(|ready, device| {
            *stream = ready.api.stream_create_blocking(device)?.0;
            Ok(())
        }))
    }

    /// Free and total bytes of a device.
    ///
    /// # Errors
    /// The device does not exist, or the driver's error.
    pub fn cudaMemGetInfo(&self, device: impl DeviceArg) -> Result<(u64, u64)> {
        let info = self.runtime.memory().info(device.resolve(&self.runtime)?)?;
        Ok((info.free, info.total))
    }
}

impl Cudart {
    /// Does something on this thread's current device.
    pub(crate) fn on_current_device(&self, action: impl FnOnce(&Started, DeviceIndex) -> Result<()>) -> Result<()> {
        let device = self.runtime.current_device()?;
        action(self.runtime.ready()?, device)
    }
}
