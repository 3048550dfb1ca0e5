//! Why the runtime could not start.

use std::fmt;

use cuda_sys::{CUresult, CudaVersion, LoadError};

use crate::base::config::EnvironmentError;
use crate::base::device::DeviceIndex;
use crate::base::error::{AcceleratorError, DeferredCudaCallError, Error};

/// Oldest driver the runtime works with.
pub(crate) const OLDEST_DRIVER: CudaVersion = CudaVersion(11080);

/// Why the runtime could not start.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(0)).unwrap();
/// use c10_core::{Error, Runtime, StartError};
///
/// let refused = Runtime::current().init().unwrap_err();
/// assert_eq!(refused, Error::Start(StartError::NoDevices));
/// assert_eq!(refused.to_string(), "No CUDA GPUs are available");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No usable driver could be loaded.
    #[error(transparent)]
    NoDriver(Box<NoDriver>),
    /// The driver is older than CUDA 11.8.
    #[error(
        "The NVIDIA driver on your system is too old (found version {found}). Install a driver that supports CUDA {} or newer.",
        OLDEST_DRIVER
    )]
    DriverTooOld {
        /// Version the driver answered with: 1000 * major + 10 * minor.
        found: u32,
    },
    /// The driver works, but there is no device it may use.
    #[error("No CUDA GPUs are available")]
    NoDevices,
    /// The driver refused to start.
    #[error("{}", initialization_text(.0))]
    Initialization(#[source] AcceleratorError),
    /// An environment variable with options of the allocators was refused.
    #[error(transparent)]
    Environment(Box<EnvironmentError>),
    /// The backend `elastic` was asked for, and a device cannot put memory behind addresses.
    #[error("The allocator backend elastic needs virtual memory management, which device {device} has not, use native")]
    NoVirtualMemory {
        /// The device.
        device: DeviceIndex,
    },
    /// The backend `cudaMallocAsync` was asked for, and a device has no pools of stream-ordered memory.
    #[error("The allocator backend cudaMallocAsync needs memory pools, which device {device} has not, use native")]
    NoMemoryPools {
        /// The device.
        device: DeviceIndex,
    },
    /// The process was forked after the runtime had been initialised; the child cannot use the driver.
    #[error(
        "Cannot re-initialize CUDA in forked subprocess. The driver does not work in a child that was forked after the parent had started it: fork before CUDA is first used, or start the child as a program of its own (std::process::Command)."
    )]
    BadFork,
    /// A call that was queued before the runtime started failed; torch's `DeferredCudaCallError`.
    #[error(transparent)]
    DeferredCall(Box<DeferredCudaCallError>),
}

fn initialization_text(error: &AcceleratorError) -> String {
    let head = if error.error_code() == CUresult::CUDA_ERROR_UNKNOWN.0 {
        "CUDA unknown error - this may be due to an incorrectly set up environment"
    } else {
        "CUDA driver initialization failed, you might not have a CUDA gpu."
    };
    format!("{head} ({}: {})", error.call(), CUresult(error.error_code()))
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Start(StartError::NoDriver(Box::new(NoDriver(error))))
    }
}

/// No usable driver could be loaded; [`std::error::Error::source`] lists every attempt.
///
/// ```
/// use c10_core::{Error, Runtime, StartError};
///
/// let started = Runtime::on_driver_file("/nonexistent/libcuda.so.1").init();
/// let Err(Error::Start(StartError::NoDriver(error))) = started else { panic!("there is no such file") };
/// assert!(error.is_not_installed());
/// assert!(error.to_string().starts_with("Found no NVIDIA driver on your system."));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoDriver(LoadError);

impl NoDriver {
    /// Whether there was no driver at all, rather than one that could not be used (a stub, for example).
    #[must_use]
    pub fn is_not_installed(&self) -> bool {
        self.0.is_not_installed()
    }
}

/// What a machine without a GPU can do.
const SIMULATOR: &str = "To run without a GPU, build the simulated driver (cargo build --release -p libcuda-sim) and set \
                         CUDA_SYS_LIBCUDA=target/release/libcuda_sim_driver.so";

impl fmt::Display for NoDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = if self.is_not_installed() {
            "Found no NVIDIA driver on your system. Check that there is an NVIDIA GPU and that its driver is installed."
        } else {
            "CUDA driver initialization failed, you might not have a CUDA gpu."
        };
        write!(f, "{head}\n{}\n{SIMULATOR}", self.0)
    }
}

impl std::error::Error for NoDriver {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<EnvironmentError> for Error {
    fn from(error: EnvironmentError) -> Self {
        Self::Start(StartError::Environment(Box::new(error)))
    }
}
