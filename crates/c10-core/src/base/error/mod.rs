//! The crate's one error type.
//!
//! Every failure a caller can act on is a variant with its figures. Where PyTorch has a text that programs match on,
//! `Display` writes that text. Nothing here is fatal by itself: after any error the runtime can be used on, unless
//! [`Error::context_is_lost`] says that the device's context is gone.

mod buffer;
mod deferred;
mod graph;
mod graphed;
mod launch;
mod memory;
mod status;

use std::fmt;
use std::path::PathBuf;

use cuda_sys::{CUresult, CallError, CudaVersion, DriverError, LoadError, NvmlError, nvmlReturn_t};

use crate::base::config::ConfigError;
use crate::base::device::{DeviceIndex, DeviceType};
use crate::base::ids::PoolId;

pub use buffer::BufferError;
pub use deferred::DeferredCudaCallError;
pub use graph::{GraphNode, GraphNodeKind, GraphUpdateError, GraphUpdateFailure};
pub use graphed::GraphedError;
pub use launch::{LaunchError, LaunchErrorKind, ModuleError};
pub use memory::{HostOutOfMemoryError, OutOfMemory, OutOfMemoryError, OutOfMemoryHint, ProcessMemory};
pub use status::{CudaError, check_error, cudaStatus};
pub(crate) use status::{error_string, status};

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Oldest driver the runtime works with.
pub(crate) const OLDEST_DRIVER: CudaVersion = CudaVersion(11080);

/// Why an operation failed.
///
/// `Debug` writes the same text as `Display`, since that is what a program shows whose `main` returns the error, and
/// adds the driver call where one failed, and what may help where memory ran out.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// The process was forked after the runtime had been initialised; the child cannot use the driver.
    #[error(
        "Cannot re-initialize CUDA in forked subprocess. The driver does not work in a child that was forked after the parent had started it: fork before CUDA is first used, or start the child as a program of its own (std::process::Command)."
    )]
    BadFork,
    /// The driver answered a call with an error; torch's `AcceleratorError`.
    #[error(transparent)]
    Accelerator(#[from] AcceleratorError),
    /// A call that was queued before the runtime started failed; torch's `DeferredCudaCallError`.
    #[error(transparent)]
    DeferredCudaCall(Box<DeferredCudaCallError>),
    /// A code of the runtime API that was asked about; torch's `CudaError`.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The driver lacks a function that was needed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),

    /// The device has not enough memory; torch's `OutOfMemoryError`.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemoryError>),
    /// More was asked for than any device can have; torch's `OutOfMemoryError`.
    #[error("CUDA out of memory. Tried to allocate more than 1EB memory.")]
    RequestTooLarge {
        /// Bytes asked for.
        requested: u64,
    },
    /// The host has not enough memory that can be pinned.
    #[error(transparent)]
    HostOutOfMemory(Box<HostOutOfMemoryError>),
    /// The address was not handed out by this allocator, or was given back already.
    #[error("invalid device pointer: {address:#x}")]
    InvalidDevicePointer {
        /// The address.
        address: u64,
    },

    /// A device index below zero or not below the number of devices; torch's assertion of that text.
    #[error("Invalid device id")]
    InvalidDeviceId,
    /// The driver does not know an address, so that it is on no device.
    #[error("The specified pointer resides on host memory and is not registered with any CUDA device.")]
    PointerOnNoDevice {
        /// The address.
        address: u64,
    },
    /// A second device's index below zero or not below the number of devices; torch's assertion of that text.
    #[error("Invalid peer device id")]
    InvalidPeerDeviceId,
    /// A text that names no device.
    #[error("Invalid device string: '{text}'")]
    InvalidDeviceString {
        /// The text.
        text: String,
    },
    /// A text that names no architecture of code.
    #[error("Invalid architecture: '{text}'. Expected a kind and a number such as sm_90 or compute_90")]
    InvalidArch {
        /// The text.
        text: String,
    },
    /// A device of another type where a CUDA device is needed.
    #[error("Expected a cuda device, but got: {device}")]
    NotCuda {
        /// What was given, for example `cpu`.
        device: String,
    },
    /// A device without an index where one is needed.
    #[error("Expected a torch.device with a specified index or an integer, but got:{device}")]
    IndexRequired {
        /// What was given, for example `cuda`.
        device: String,
    },
    /// A stream, event, buffer or graph was used with a runtime that did not make it.
    #[error("the {what} belongs to another runtime")]
    OtherRuntime {
        /// What kind of object.
        what: &'static str,
    },

    /// A stream of one device was given where another device was named.
    #[error("the stream is on device {stream}, but device {device} was asked for")]
    StreamDevice {
        /// The device that was named.
        device: DeviceIndex,
        /// The stream's device.
        stream: DeviceIndex,
    },
    /// A number that names no stream of the device.
    #[error("the device has no stream with the id {id}")]
    UnknownStream {
        /// The number.
        id: i64,
    },
    /// A priority was asked for a stream that was made elsewhere and has its own.
    #[error("Priority was explicitly set for a external stream")]
    ExternalStreamPriority,

    /// An event without timing was asked for a time.
    #[error("Both events must be created with argument 'enable_timing=True'.")]
    EventWithoutTiming,
    /// An event that was never recorded was asked for a time.
    #[error("Both events must be recorded before calculating elapsed time.")]
    EventNotRecorded,
    /// An event whose work is not done was asked for a time.
    #[error("Both events must be completed before calculating elapsed time.")]
    EventNotCompleted,
    /// An event of a kind of device that has no streams was to be recorded.
    #[error("{kind} backend doesn't support events.")]
    NoEvents {
        /// Kind of the device, for example `cpu`.
        kind: DeviceType,
    },
    /// The time between events of two kinds of devices was asked for.
    #[error("Event device type {first} does not match other's device type {last}.")]
    EventKind {
        /// Kind of the first event's device.
        first: DeviceType,
        /// Kind of the second event's device.
        last: DeviceType,
    },
    /// A time was asked for that ends before it begins.
    #[error("the first event was recorded after the second; there is no duration from it to that")]
    EventsReversed,
    /// An event was recorded on one device and then on another.
    #[error("Event device {event} does not match recording stream's device {stream}.")]
    EventDevice {
        /// Device of the event.
        event: DeviceIndex,
        /// Device of the stream.
        stream: DeviceIndex,
    },

    /// The graph object has captured already and was not reset.
    #[error("This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance.")]
    GraphAlreadyCaptured,
    /// The graph object is capturing.
    #[error("This CUDAGraph instance is capturing; end that capture first.")]
    GraphIsCapturing,
    /// The graph object is not capturing.
    #[error("capture_end() called without a preceding capture_begin()")]
    GraphNotCapturing,
    /// Capture was asked for on the default stream.
    #[error(
        "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the default stream.)"
    )]
    CaptureOnDefaultStream,
    /// The capture was ended while another stream was current.
    #[error("Capture must end on the same stream it began on.")]
    CaptureEndedElsewhere,
    /// The driver gave no graph at the end of the capture.
    #[error("Invalid capture.")]
    InvalidCapture,
    /// A text that names no capture mode.
    #[error("Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {text}")]
    UnknownCaptureMode {
        /// The text.
        text: String,
    },
    /// A graph was to be replayed that has captured nothing.
    #[error("Called CUDAGraph::replay without a preceding successful capture.")]
    ReplayWithoutCapture,
    /// The memory pool of a graph that has captured nothing was asked for.
    #[error("Called CUDAGraph::pool() without a preceding successful capture.")]
    PoolWithoutCapture,
    /// A graph was to be instantiated that has captured nothing.
    #[error("capture_end() must have been called before calling instantiate")]
    InstantiateWithoutCapture,
    /// Instantiation by hand of a graph that instantiates itself.
    #[error("instantiate() is intended to be called by the user only when keep_graph=true")]
    InstantiateByUser,
    /// A call that needs what was captured, on a graph that has captured nothing.
    #[error("Called CUDAGraph::{call}() without a preceding successful capture.")]
    GraphWithoutCapture {
        /// The function.
        call: &'static str,
    },
    /// Two graphs were to be joined that were captured on different devices.
    #[error("the graph was captured on device {graph}, but device {device} was expected")]
    GraphDevice {
        /// The device expected.
        device: DeviceIndex,
        /// The graph's device.
        graph: DeviceIndex,
    },
    /// The driver's graph was to be used of a graph object that gives it up once it is instantiated.
    #[error("the captured graph was given up when it was instantiated; make the CUDAGraph with keep_graph=true")]
    GraphNotKept,
    /// The driver's graph was asked for of a graph object that gives it up once it is instantiated.
    #[error("You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true")]
    RawGraphNotKept,
    /// The driver's graph was asked for before there is one.
    #[error("You cannot access the raw cudaGraph_t instance until capture_end() has been called")]
    RawGraphWithoutCapture,
    /// The executable graph was asked for before there is one.
    #[error("You cannot access the raw cudaGraphExec_t instance until instantiate() has been called")]
    RawGraphExecWithoutInstantiate,
    /// A generator was to be registered with a graph that is capturing.
    #[error("Cannot register the state during capturing stage.")]
    GeneratorDuringCapture,
    /// A graph that draws random numbers was to become a part of another, which would repeat its numbers.
    #[error("a graph that draws random numbers cannot be added to another graph")]
    ChildGraphDraws,
    /// A condition was to be used by another capture than that which made it, or by a node in another body.
    #[error("the condition belongs to another scope of a capture")]
    ConditionElsewhere,
    /// A condition was to be set to a number whose address is no multiple of its size.
    #[error("a condition is set to a number at a multiple of 4 bytes, but offset {offset} was given")]
    UnalignedCondition {
        /// Where the number is in its buffer.
        offset: usize,
    },
    /// An executable graph could not take over a newly captured one.
    #[error(transparent)]
    GraphUpdate(Box<GraphUpdateError>),
    /// A path that the driver cannot be given, since it ends texts at a NUL.
    #[error("the path {} has a NUL inside", path.display())]
    PathWithNul {
        /// The path.
        path: PathBuf,
    },
    /// A pool that receives allocations already was to receive them once more.
    #[error("beginAllocateToPool: already recording to mempool_id")]
    AlreadyRecordingToPool,
    /// A pool that receives no allocations was to stop receiving them.
    #[error("endAllocatePool: not currently recording to mempool_id")]
    NotRecordingToPool,
    /// The last use of a pool was to be given up while requests still come from it.
    #[error("the memory pool still receives allocations; end that first")]
    PoolStillRecording,
    /// A pool was to be used that all its users have given up and that still holds memory.
    #[error("the memory pool was released; make a new one")]
    PoolReleased,
    /// A pool's own source of segments gave memory that cannot be handed out.
    #[error("a memory pool's allocator gave memory at {address:#x}, which is not a multiple of 512 bytes")]
    UnusableSegment {
        /// The memory, which was given back.
        address: u64,
    },
    /// A memory pool was named that the device does not have.
    #[error("Could not find pool of id ({}, {})", .pool.0, .pool.1)]
    PoolNotFound {
        /// The name.
        pool: PoolId,
    },
    /// The state of a pool was to be noted or restored that all its users have given up.
    #[error("Not expected to checkpoint freeable graph")]
    CheckpointOfReleasedPool,
    /// The state of a pool was to be noted or restored while other streams may still use memory of it.
    #[error(
        "memory at {address:#x} of the memory pool may still be used by other streams; free it and synchronize those streams before its state is noted or restored"
    )]
    CheckpointOfPendingMemory {
        /// The memory.
        address: u64,
    },
    /// The state of a pool was to be restored on another device than the one it was noted on.
    #[error("the checkpoint is of device {checkpoint}, but device {device} was asked for")]
    CheckpointDevice {
        /// Device of the checkpoint.
        checkpoint: DeviceIndex,
        /// Device that was named.
        device: DeviceIndex,
    },
    /// The state of a pool cannot be restored, since memory of it went back to the driver.
    #[error("the memory pool no longer holds the segment at {address:#x} that the checkpoint notes")]
    CheckpointIsStale {
        /// The segment.
        address: u64,
    },
    /// A pool was to be brought back to a state in which memory is not handed out that somebody holds and has not given up.
    #[error(
        "Any stale tensors which are being manually freed must be passed to set checkpoint, but the memory at {address:#x} was not"
    )]
    StaleMemory {
        /// The memory.
        address: u64,
    },
    /// A buffer was given up that has other handles, is not the pool's, or does not own its memory.
    #[error("the buffer at {address:#x} cannot be given up: it must be the only handle of memory of the pool")]
    BufferNotGivenUp {
        /// The buffer's memory.
        address: u64,
    },
    /// A part of a device's memory below 0 or above 1.
    #[error("Invalid fraction value: {fraction}. Allowed range: 0~1")]
    InvalidFraction {
        /// The number.
        fraction: String,
    },
    /// The allocator's configuration text was refused; torch's `ValueError`.
    #[error(transparent)]
    AllocatorConfig(#[from] ConfigError),
    /// A function was to be called once by a stream that captures; its graph would call it at each replay.
    #[error(
        "a function that is called once cannot be captured; record one that can be called again with CaptureScope::launch_host_func"
    )]
    HostFunctionDuringCapture,
    /// Memory of the host that is not pinned cannot take part in a graph: nobody keeps it alive until the replay.
    #[error(
        "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU memory is a pinned buffer."
    )]
    UnpinnedCopyDuringCapture,

    /// Bytes that cannot be the handle of an event.
    #[error("cudaIpcEventHandle_t expects byte-like object of size 64, but got {got}")]
    IpcEventHandleSize {
        /// How many there are.
        got: usize,
    },
    /// Memory in an expandable segment was to be shared, which the driver does not export.
    #[error(
        "Tensors allocated with expandable_segments:True cannot be shared between processes. Consider turning the option off before memory is allocated that is to be shared."
    )]
    SharingOfExpandableSegment,
    /// Memory of another process was to be shared once more.
    #[error("memory that another process has shared cannot be shared once more; let that process share it")]
    SharedTwice,
    /// Memory was to be shared or opened while the current stream captures, so that nobody can wait for its work.
    #[error("memory cannot be shared between processes while the current stream is capturing")]
    SharingDuringCapture,
    /// Shared memory was to be opened by the process that shared it.
    #[error("this process has shared the memory itself; use the buffer that was shared")]
    SharedByThisProcess,
    /// Shared memory was to be opened after its receivers, or the sender, had let it go.
    #[error("the shared memory is gone: all its receivers have dropped it, or the process that shared it has ended")]
    SharedBufferReleased,
    /// Bytes that are no shared buffer.
    #[error("the bytes are not those of a shared buffer")]
    InvalidSharedBuffer,
    /// The file by which a sender knows whether shared memory is still used cannot be used.
    #[error("cannot tell which processes use shared memory: {reason}")]
    SharedMemoryFile {
        /// What the system said.
        reason: String,
    },

    /// An operation that makes the host wait, which the sync debug mode forbids.
    #[error("called a synchronizing CUDA operation")]
    SynchronizingOperation,
    /// A number that is no sync debug mode.
    #[error("invalid value of debug_mode, expected one of 0,1,2")]
    SyncDebugNumber {
        /// The number.
        number: i32,
    },
    /// A text that names no sync debug mode.
    #[error("invalid value of debug_mode, expected one of `default`, `warn`, `error`")]
    SyncDebugName {
        /// The text.
        text: String,
    },

    /// NVML, which tells what devices do, could not be loaded.
    #[error("NVML, which tells what devices do, cannot be loaded. It comes with the NVIDIA driver.\n{reason}")]
    NvmlMissing {
        /// What was tried.
        reason: String,
    },
    /// NVML found no driver at work.
    #[error("cuda driver can't be loaded, is cuda enabled?")]
    NvmlDriverNotLoaded,
    /// A call to NVML failed; torch passes pynvml's `NVMLError` on.
    #[error("{} ({call}: {:?})", nvml_text(*.code), nvmlReturn_t(*.code))]
    Nvml {
        /// The C function.
        call: &'static str,
        /// NVML's code.
        code: u32,
    },
    /// A device that `CUDA_VISIBLE_DEVICES` does not name.
    #[error("device {device} is not visible (CUDA_VISIBLE_DEVICES={visible})")]
    DeviceNotVisible {
        /// The device.
        device: DeviceIndex,
        /// The devices that are visible, as a list of Python.
        visible: String,
    },
    /// `CUDA_VISIBLE_DEVICES` names identities of devices, and NVML does not tell them.
    #[error("Can't get device UUIDs")]
    NvmlUuids,

    /// Code could not be loaded onto a device, or a kernel not be found in it.
    #[error(transparent)]
    Module(Box<ModuleError>),
    /// A launch was refused before anything was queued.
    #[error(transparent)]
    Launch(Box<LaunchError>),
    /// Functions could not be captured together, or a captured one not be called.
    #[error(transparent)]
    Graphed(Box<GraphedError>),
    /// A copy, a fill or an argument reaches past the end of a buffer.
    #[error("{bytes} bytes at offset {offset} are not within a buffer of {len} bytes")]
    OutOfRange {
        /// First byte inside the buffer.
        offset: usize,
        /// Bytes from there on.
        bytes: usize,
        /// Bytes the buffer has.
        len: usize,
    },
    /// Memory cannot be looked at as elements, or as a slice of the host.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A range of a buffer ends before it begins.
    #[error("the range {start}..{end} of a buffer ends before it begins")]
    ReversedRange {
        /// First byte.
        start: usize,
        /// The byte after the last.
        end: usize,
    },
}

impl Error {
    /// The driver's code, where a driver call failed; torch's `error_code`.
    #[must_use]
    pub fn error_code(&self) -> Option<u32> {
        self.accelerator().map(AcceleratorError::error_code)
    }

    /// The failed driver call, where there was one.
    #[must_use]
    pub fn accelerator(&self) -> Option<&AcceleratorError> {
        if let Self::Accelerator(error) | Self::Initialization(error) = self {
            return Some(error);
        }
        if let Self::HostOutOfMemory(error) = self {
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
        matches!(self, Self::UnpinnedCopyDuringCapture | Self::InvalidCapture | Self::CaptureOnDefaultStream)
            || self.error_code().is_some_and(|code| (first..=last).contains(&code))
    }

    /// Whether memory ran out: of a device, where torch raises its `OutOfMemoryError`, or of the host for pinned memory
    /// ([`Self::HostOutOfMemory`]).
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_) | Self::RequestTooLarge { .. } | Self::HostOutOfMemory(_))
    }

    /// Whether the driver itself said that memory is exhausted.
    pub(crate) fn driver_is_out_of_memory(&self) -> bool {
        self.error_code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY.0)
    }

    /// Whether the driver or the system said that there is no memory left to pin.
    pub(crate) fn host_is_out_of_memory(&self) -> bool {
        self.driver_is_out_of_memory() || matches!(self, Self::HostOutOfMemory(_))
    }

    /// The error of a failed `cuInit`.
    pub(crate) fn from_init(error: DriverError) -> Self {
        let error = Self::from(error);
        match error.accelerator() {
            Some(failed) if failed.code == CUresult::CUDA_ERROR_NO_DEVICE.0 => Self::NoDevices,
            Some(failed) => Self::Initialization(*failed),
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
            write!(f, "({} answered {:?})", failed.call, CUresult(failed.code))?;
        }
        if let Self::OutOfMemory(failed) = self {
            write!(f, "\n{}", failed.hint())?;
        }
        Ok(())
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        match error {
            CallError::Missing(missing) => Self::Unavailable(Unavailable {
                symbol: missing.function.symbol,
                needs: missing.function.version.0,
                found: missing.found.0,
            }),
            CallError::Failed { call, status } => Self::Accelerator(AcceleratorError { call, code: status.0 }),
        }
    }
}

impl From<NvmlError> for Error {
    fn from(error: NvmlError) -> Self {
        match error {
            CallError::Failed { status: nvmlReturn_t::NVML_ERROR_DRIVER_NOT_LOADED, .. } => Self::NvmlDriverNotLoaded,
            CallError::Failed { call, status } => Self::Nvml { call, code: status.0 },
            CallError::Missing(missing) => {
                Self::Nvml { call: missing.function.symbol, code: nvmlReturn_t::NVML_ERROR_FUNCTION_NOT_FOUND.0 }
            }
        }
    }
}

fn nvml_text(code: u32) -> &'static str {
    nvmlReturn_t(code).text().unwrap_or("Unknown Error")
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::NoDriver(Box::new(NoDriver(error)))
    }
}

/// No usable driver could be loaded; [`std::error::Error::source`] lists every attempt.
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

/// A driver call that was answered with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceleratorError {
    call: &'static str,
    code: u32,
}

impl AcceleratorError {
    /// The C function that failed, for example `cuMemAlloc_v2`.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// The driver's code; torch's `error_code`.
    #[must_use]
    pub fn error_code(&self) -> u32 {
        self.code
    }

    /// The code's C name, for example `CUDA_ERROR_INVALID_DEVICE`; `None` for codes newer than this crate.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        CUresult(self.code).name()
    }

    /// The driver's words for the code.
    #[must_use]
    pub fn text(&self) -> &'static str {
        CUresult(self.code).text().unwrap_or("unrecognized error code")
    }

    /// Whether the context in which the error arose can no longer be used.
    ///
    /// Faults of a kernel or of the device stay: every later call in that context answers with the same code.
    #[must_use]
    pub fn context_is_lost(&self) -> bool {
        LOSES_CONTEXT.contains(&CUresult(self.code))
    }

    /// Whether the error may be that of work which was queued before, and not of the call that answered it.
    ///
    /// Faults of kernels and of the device are such errors, and codes that tell nothing or that this crate does not know.
    /// All others, such as an invalid value or a missing device, are about the call itself.
    #[must_use]
    pub fn may_be_asynchronous(&self) -> bool {
        self.context_is_lost() || UNEXPLAINED.contains(&CUresult(self.code)) || self.name().is_none()
    }
}

/// Codes without a cause that the call itself would have to tell.
const UNEXPLAINED: &[CUresult] = &[CUresult::CUDA_ERROR_UNKNOWN];

/// Codes after which a context answers nothing else.
const LOSES_CONTEXT: &[CUresult] = &[
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
];

impl fmt::Display for AcceleratorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA error: {}", self.text())?;
        if self.code == CUresult::CUDA_ERROR_INVALID_DEVICE.0 {
            write!(f, "\nGPU device may be out of range, do you have enough GPUs?")?;
        }
        if !self.may_be_asynchronous() {
            return Ok(());
        }
        f.write_str("\nCUDA kernel errors might be asynchronously reported at some other API call, ")?;
        writeln!(f, "so the stacktrace below might be incorrect.")?;
        if !launch_blocking() {
            writeln!(f, "For debugging consider passing CUDA_LAUNCH_BLOCKING=1")?;
        }
        writeln!(f, "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.")
    }
}

impl std::error::Error for AcceleratorError {}

/// Whether launches wait already, so that advising it makes no sense.
fn launch_blocking() -> bool {
    std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| is_switched_on(&value))
}

/// Reads a variable as C's `atoi` does: `1x` is a 1, `yes` is a 0.
fn is_switched_on(value: &str) -> bool {
    let value = value.trim_start();
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    digits.chars().take_while(char::is_ascii_digit).any(|digit| digit != '0')
}

fn initialization_text(error: &AcceleratorError) -> String {
    let head = if error.code == CUresult::CUDA_ERROR_UNKNOWN.0 {
        "CUDA unknown error - this may be due to an incorrectly set up environment"
    } else {
        "CUDA driver initialization failed, you might not have a CUDA gpu."
    };
    format!("{head} ({}: {})", error.call, CUresult(error.code))
}

/// The driver lacks a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{symbol} needs a driver for CUDA {}, but the loaded driver is for CUDA {}", CudaVersion(*.needs), CudaVersion(*.found))]
pub struct Unavailable {
    /// The C function.
    pub symbol: &'static str,
    /// Version that has it: 1000 * major + 10 * minor.
    pub needs: u32,
    /// Version of the loaded driver.
    pub found: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_the_message_and_the_call() {
        assert_eq!(format!("{:?}", Error::NoDevices), "No CUDA GPUs are available");
        let failed = Error::Accelerator(AcceleratorError { call: "cuMemAlloc_v2", code: 719 });
        let text = format!("{failed:?}");
        assert!(text.starts_with("CUDA error: unspecified launch failure\n"), "{text}");
        assert!(text.ends_with("\n(cuMemAlloc_v2 answered CUDA_ERROR_LAUNCH_FAILED)"), "{text}");
    }

    #[test]
    fn the_variable_is_read_as_the_driver_reads_it() {
        assert!(["1", " 2", "-1", "10", "1x", "+3"].into_iter().all(is_switched_on));
        assert!(!["0", "", "yes", "00", "x1", "--1"].into_iter().any(is_switched_on));
    }

    #[test]
    fn only_errors_of_queued_work_speak_of_it() {
        let text = |code| AcceleratorError { call: "cuX", code }.to_string();
        for code in [700, 719, 710, 214, 999, 987_654] {
            assert!(text(code).contains("might be asynchronously reported"), "{code}");
        }
        // Invalid value, out of memory, not initialised, invalid handle, launch out of resources, a capture's.
        for code in [1, 2, 3, 400, 701, 900] {
            assert_eq!(text(code), format!("CUDA error: {}", CUresult(code).text().unwrap()));
        }
        let debug = format!("{:?}", Error::Accelerator(AcceleratorError { call: "cuX", code: 1 }));
        assert_eq!(debug, "CUDA error: invalid argument\n(cuX answered CUDA_ERROR_INVALID_VALUE)");
    }

    #[test]
    fn lost_contexts_are_told_from_passing_errors() {
        let lost = |code| AcceleratorError { call: "cuX", code }.context_is_lost();
        assert!(lost(700) && lost(719));
        assert!(!lost(2) && !lost(101) && !lost(900) && !lost(600));
    }
}
