//! The crate's one error type.
//!
//! Every failure a caller can act on is a variant with its figures. Where PyTorch has a text that programs match on,
//! `Display` writes that text. Nothing here is fatal by itself: after any error the runtime can be used on, unless
//! [`Error::context_is_lost`] says that the device's context is gone.

mod allocator;
mod backend;
mod buffer;
mod deferred;
mod device;
mod driver;
mod event;
mod export;
mod fault;
mod graph;
mod graphed;
mod green;
mod held;
mod ipc;
mod launch;
mod memory;
mod pool;
mod sanitizer;
mod start;
mod status;
mod stream;
mod sync_debug;
mod telemetry;

use std::convert::Infallible;
use std::fmt;

use cuda_sys::{CUresult, DriverError};

use crate::base::config::ConfigError;

pub use allocator::{AllocatorError, PluginLoadError};
pub use backend::BackendError;
pub use buffer::BufferError;
pub use deferred::DeferredCudaCallError;
pub use device::DeviceError;
pub(crate) use driver::launch_blocking;
pub use driver::{AcceleratorError, Unavailable};
pub use event::EventError;
pub use export::ExportError;
pub use fault::{DeviceAssertionError, DeviceFaultError, LaunchRecord};
pub use graph::{GraphError, GraphNode, GraphNodeKind, GraphUpdateError, GraphUpdateFailure};
pub use graphed::GraphedError;
pub use green::GreenContextError;
pub use held::{HeldMemory, MemoryHolder};
pub use ipc::{IpcError, SystemError};
pub use launch::{LaunchError, LaunchErrorKind, ModuleError};
pub use memory::{
    HostOutOfMemoryError, MemoryError, OutOfMemory, OutOfMemoryError, OutOfMemoryHint, ProcessMemory, RefusedFraction,
};
pub use pool::PoolError;
pub use sanitizer::{AccessType, CUDASanitizerErrors, SanitizedAccess, UnsynchronizedAccessError};
pub(crate) use start::OLDEST_DRIVER;
pub use start::{NoDriver, StartError};
pub use status::{CudaError, check_error, cudaStatus};
pub(crate) use status::{error_string, status};
pub use stream::StreamError;
pub use sync_debug::SyncDebugError;
pub use telemetry::{NvmlMissing, TelemetryError};

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
///
/// `Debug` writes the same text as `Display`, since that is what a program shows whose `main` returns the error, and
/// adds the driver call where one failed, and what may help where memory ran out.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Error, Runtime};
///
/// let error = Runtime::current().set_device(9).unwrap_err();
/// assert!(error.to_string().starts_with("CUDA error: invalid device ordinal"));
/// assert_eq!((error.error_code(), error.is_out_of_memory()), (Some(101), false));
/// assert!(DeviceBuffer::new(1 << 50, None).is_err_and(|error| error.is_out_of_memory()));
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver answered a call with an error; torch's `AcceleratorError`.
    #[error(transparent)]
    Accelerator(#[from] AcceleratorError),
    /// Work on a device has failed, and the device is lost; torch's `AcceleratorError` too. The last launches are named.
    #[error(transparent)]
    DeviceFault(Box<DeviceFaultError>),
    /// A kernel has refused a value, such as an index out of range; torch's device-side assertion. The device is not
    /// lost.
    #[error(transparent)]
    DeviceAssertion(Box<DeviceAssertionError>),
    /// A code of the runtime API that was asked about; torch's `CudaError`.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The driver lacks a function that was needed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The device has not enough memory; torch's `OutOfMemoryError`.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemoryError>),
    /// A stream, event, buffer or graph was used with a runtime that did not make it.
    #[error("the {what} belongs to another runtime")]
    OtherRuntime {
        /// What kind of object.
        what: &'static str,
    },
    /// Memory cannot be looked at as elements, or as a slice of the host.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The allocator's configuration text was refused; torch's `ValueError`.
    #[error(transparent)]
    AllocatorConfig(#[from] ConfigError),
    /// Code could not be loaded onto a device, or a kernel not be found in it.
    #[error(transparent)]
    Module(Box<ModuleError>),
    /// A launch was refused before anything was queued.
    #[error(transparent)]
    Launch(Box<LaunchError>),
    /// Functions could not be captured together, or a captured one not be called.
    #[error(transparent)]
    Graphed(Box<GraphedError>),
    /// Why the runtime could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Why memory was not given, taken back or reached.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// What is wrong with a memory pool or a checkpoint of it.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// What is wrong with an allocator that the program brings, or why a memory resource gives nothing.
    #[error(transparent)]
    Allocator(#[from] AllocatorError),
    /// What the backend of device memory does not do.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Why a device cannot be used by that name.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What is wrong with a stream.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Why a green context cannot be made or left.
    #[error(transparent)]
    GreenContext(#[from] GreenContextError),
    /// Why an event cannot be recorded or asked.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Why a graph could not be captured, changed or replayed.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Why memory or an event could not be shared between processes.
    #[error(transparent)]
    Ipc(#[from] IpcError),
    /// What the sync debug mode refuses, and what names no such mode.
    #[error(transparent)]
    SyncDebug(#[from] SyncDebugError),
    /// Why NVML did not tell what a device does.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The work was queued, and takes part in races that the stream sanitizer has found.
    #[error(transparent)]
    Sanitizer(Box<CUDASanitizerErrors>),
    /// Why figures cannot be shown to other processes.
    #[error(transparent)]
    Export(Box<ExportError>),
}

/// Error that may wrap an error of the runtime: the bound for errors of closures that
/// [`crate::CUDAGraph::capture_or_run`] runs.
///
/// ```
/// use c10_core::{Error, GraphError, RuntimeCause};
///
/// #[derive(Debug)]
/// enum Failure {
///     Runtime(Error),
///     Loss,
/// }
/// impl From<Error> for Failure {
///     fn from(error: Error) -> Self {
///         Self::Runtime(error)
///     }
/// }
/// impl RuntimeCause for Failure {
///     fn runtime_cause(&self) -> Option<&Error> {
///         if let Self::Runtime(error) = self { Some(error) } else { None }
///     }
/// }
/// assert!(Failure::from(Error::Graph(GraphError::UnpinnedCopy)).runtime_cause().is_some());
/// assert!(Failure::Loss.runtime_cause().is_none());
/// ```
pub trait RuntimeCause: From<Error> {
    /// Returns the runtime's error that caused this error, if there is one.
    fn runtime_cause(&self) -> Option<&Error>;
}

impl RuntimeCause for Error {
    fn runtime_cause(&self) -> Option<&Error> {
        Some(self)
    }
}

/// Results carry errors through the fast paths: what is large lies behind a pointer.
const _: () = assert!(size_of::<Error>() <= 48);

impl Error {
    /// The driver's code, where a driver call failed; torch's `error_code`.
    #[must_use]
    pub fn error_code(&self) -> Option<u32> {
        self.accelerator().map(AcceleratorError::error_code)
    }

    /// The failed driver call, where there was one.
    #[must_use]
    pub fn accelerator(&self) -> Option<&AcceleratorError> {
        if let Self::Accelerator(error) | Self::Start(StartError::Initialization(error)) = self {
            return Some(error);
        }
        if let Self::DeviceFault(fault) = self {
            return Some(fault.accelerator());
        }
        if let Self::Memory(MemoryError::HostOutOfMemory(error)) = self {
            return error.driver.as_ref();
        }
        if let Self::Module(error) = self { error.accelerator() } else { None }
    }

    /// Whether the device's context can no longer be used, so that everything on that device is lost.
    #[must_use]
    pub fn context_is_lost(&self) -> bool {
        self.accelerator().is_some_and(AcceleratorError::context_is_lost)
    }

    /// Whether there would be no such error without a capture: something was done that captures forbid, or the driver did
    /// not capture it.
    #[must_use]
    pub fn is_caused_by_capture(&self) -> bool {
        let first = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0;
        let last = CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0;
        matches!(
            self,
            Self::Graph(GraphError::UnpinnedCopy)
                | Self::Graph(GraphError::InvalidCapture)
                | Self::Graph(GraphError::OnDefaultStream)
        ) || self.error_code().is_some_and(|code| (first..=last).contains(&code))
    }

    /// Whether memory ran out: of a device, where torch raises its `OutOfMemoryError`, or of the host for pinned memory
    /// ([`crate::MemoryError::HostOutOfMemory`]).
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory(_)
                | Self::Memory(MemoryError::RequestTooLarge { .. })
                | Self::Memory(MemoryError::HostOutOfMemory(_) | MemoryError::HostAllocation { .. })
        ) || matches!(self, Self::Allocator(error) if error.is_out_of_memory())
    }

    /// Whether the driver does not know a handle, for example of a stream that its owner has destroyed.
    pub(crate) fn is_invalid_handle(&self) -> bool {
        self.error_code() == Some(CUresult::CUDA_ERROR_INVALID_HANDLE.0)
    }

    /// Whether the driver refused an argument, for example the address of memory that is gone.
    pub(crate) fn is_invalid_value(&self) -> bool {
        self.error_code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE.0)
    }

    /// Whether the driver itself said that memory is exhausted.
    pub(crate) fn driver_is_out_of_memory(&self) -> bool {
        self.error_code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY.0)
    }

    /// Whether the driver or the system said that there is no memory left to pin.
    pub(crate) fn host_is_out_of_memory(&self) -> bool {
        self.driver_is_out_of_memory() || matches!(self, Self::Memory(MemoryError::HostOutOfMemory(_)))
    }

    /// Whether the machine has no driver or no device, and nothing is wrong with it.
    pub(crate) fn is_no_device(&self) -> bool {
        if let Self::Start(StartError::NoDriver(error)) = self {
            return error.is_not_installed();
        }
        matches!(self, Self::Start(StartError::NoDevices))
    }

    /// The error of a failed `cuInit`.
    pub(crate) fn from_init(error: DriverError) -> Self {
        let error = Self::from(error);
        match error.accelerator() {
            Some(failed) if failed.error_code() == CUresult::CUDA_ERROR_NO_DEVICE.0 => {
                Self::Start(StartError::NoDevices)
            }
            Some(failed) => Self::Start(StartError::Initialization(*failed)),
            None => error,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        if let Self::Accelerator(failed) = self {
            // The long text ends its last line itself.
            f.write_str(if failed.may_be_asynchronous() { "" } else { "\n" })?;
        }
        if let Self::DeviceFault(_) = self {
            f.write_str("\n")?;
        }
        if let (Self::Accelerator(_) | Self::DeviceFault(_), Some(failed)) = (self, self.accelerator()) {
            write!(f, "({} answered {:?})", failed.call(), CUresult(failed.error_code()))?;
        }
        Ok(())
    }
}

impl From<ExportError> for Error {
    fn from(error: ExportError) -> Self {
        Self::Export(Box::new(error))
    }
}

/// A conversion that cannot fail has no error. This lets a value be given where something that converts into it is
/// accepted.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
