//! Modules and kernels: loading code onto a device and launching it.
//!
//! Reading order: this file ([`Module`], [`Kernel`]), `arguments` (what a launch takes), `prepared` (launches that are
//! checked once and repeated), `link` (modules of several inputs), `steps` (code that is there soon and good later), `ptx` (what parameters a text declares), `own` (kernels of our own: `sleep`, `condition`),
//! `tensor_map` (a parameter that describes a tensor).
//!
//! **Invariants:** a module stays loaded as long as anybody holds it or one of its kernels, graphs that captured one of
//! them included. It is unloaded when the program next waits for its device, because unloading may block and dropping a
//! module must not. What can be checked of a launch is checked before anything is called; buffers
//! are recorded on the stream as those of copies are.
//!
//! # Safety
//! [`Kernel::launch`] passes the caller's promise on: nobody but whoever wrote a kernel knows what it does to memory.
#![expect(unsafe_code, reason = "launches of kernels that are somebody else's")]

mod arguments;
mod builder;
mod condition;
mod detached;
mod link;
mod own;
mod prepared;
mod ptx;
mod sleep;
mod steps;
mod tensor_map;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use cuda_sys::driver::types::{CUdevice_attribute as DeviceAttribute, CUfunction_attribute as Attribute};

pub use arguments::{Arg, LaunchConfig, MemoryAccess};
pub use builder::{Dim3, LaunchBuilder};
pub(crate) use condition::launch_set_condition;
pub use detached::DetachedKernel;
pub use prepared::PreparedLaunch;
pub(crate) use sleep::queue_sleep;
use steps::Later;
pub use steps::TextSteps;
pub use tensor_map::TensorMap;

use crate::api::arg::StreamArg;
use crate::api::buffers::DeviceBuffer;
use crate::api::stream::Stream;
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{Error, LaunchError, LaunchErrorKind, ModuleError, Result};
use crate::base::handles::StreamRef;
use crate::base::process;
use crate::driver::{Api, FunctionHandle, ModuleHandle, Shape, Value, with_array};
use crate::runtime::{Runtime, Started, WeakRuntime};
use crate::state::captures::{KeptId, Told};
use crate::state::launches::NameId;
use crate::sync::Mutex;
use crate::thread::pending::PuttingOff;
use crate::trace::{MemoryUse, lasting_name};

/// Code loaded onto a device.
///
/// This is a handle: clones refer to the same module.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Module, Runtime};
///
/// let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// let module = Module::from_ptx(&Runtime::current(), 0, text)?;
/// assert_eq!((module.device_index(), module.kernel("nothing")?.name()), (0, "nothing"));
/// assert!(module.kernel("something").is_err());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Module {
    runtime: Runtime,
    loaded: Arc<Loaded>,
}

/// A module that is marked for unloading when this is dropped.
struct Loaded {
    device: DeviceIndex,
    handle: ModuleHandle,
    home: WeakRuntime,
    /// Sizes of the parameters of its kernels as its text declares them, where the driver does not tell them.
    declared: BTreeMap<String, Vec<usize>>,
    /// Functions that were asked for.
    functions: Mutex<BTreeMap<String, Arc<Function>>>,
    told: Told,
    /// Better code, where it comes later.
    later: Option<Later>,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        // Without the runtime the module is gone already.
        if let Some(runtime) = Runtime::upgrade(&self.home)
            && let Some(ready) = runtime.started()
        {
            ready.modules.retire(self.handle);
        }
    }
}

/// A function, and the limits of its launches.
struct Function {
    name: String,
    /// The name where launches are noted.
    noted: NameId,
    /// The name where accesses to memory are reported.
    reported: &'static str,
    handle: FunctionHandle,
    /// How many times as many threads a block of that has as a launch says.
    block_factor: u32,
    /// The same function of better code.
    better: OnceLock<FunctionHandle>,
    attributes: KernelAttributes,
    /// Sizes of the parameters, where the driver or the module's text tells them.
    parameters: Option<Vec<usize>>,
    grid_limits: [u32; 3],
    block_limits: [u32; 3],
    /// The most bytes of shared memory that a launch may ask for.
    dynamic_shared: AtomicU32,
}

/// What the driver says of a kernel.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Module, Runtime};
///
/// # let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// let attributes = Module::from_ptx(&Runtime::current(), 0, text)?.kernel("nothing")?.attributes();
/// assert_eq!((attributes.max_threads_per_block, attributes.shared_bytes), (1024, 0));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelAttributes {
    /// The most threads that a block may have.
    pub max_threads_per_block: u32,
    /// Bytes of shared memory that the kernel itself declares.
    pub shared_bytes: u32,
    /// Bytes of constant memory.
    pub const_bytes: u32,
    /// Bytes of local memory of each thread.
    pub local_bytes: u32,
    /// Registers of each thread.
    pub registers: u32,
    /// Version of PTX that the code was made of, as 10 * major + minor.
    pub ptx_version: u32,
    /// Compute capability that the code was made for, as 10 * major + minor.
    pub binary_version: u32,
}

/// A kernel of a module.
///
/// This is a handle: clones refer to the same kernel. It keeps its module loaded.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{LaunchConfig, Module, Runtime};
///
/// # let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
/// let kernel = Module::from_ptx(&Runtime::current(), 0, text)?.kernel("nothing")?;
/// assert_eq!(kernel.parameter_sizes(), Some(&[][..]));
/// // SAFETY: the kernel does nothing.
/// unsafe { kernel.launch(&LaunchConfig::linear(1000, 256), &[], None)? };
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Kernel {
    module: Module,
    function: Arc<Function>,
}

impl Module {
    /// Loads PTX onto a device, where the driver compiles it.
    ///
    /// # Errors
    /// The text holds a zero byte, the driver refuses it (with its log), or the driver's error.
    pub fn from_ptx(runtime: &Runtime, device: DeviceIndex, text: &str) -> Result<Self> {
        let ended = CString::new(text).map_err(|_| ModuleError::ZeroByte)?;
        Self::load(runtime, device, (Some(text), None), |ready| ready.api.module_from_ptx(device, &ended))
    }

    /// Loads an image onto a device: machine code (a cubin or a bundle of them), or PTX that ends with a zero byte.
    ///
    /// # Safety
    /// - The image is whole: how long it is, the driver reads in the image itself.
    ///
    /// # Errors
    /// The image is empty or not for this device, the driver refuses it (with its log), or the driver's error.
    pub unsafe fn from_image(runtime: &Runtime, device: DeviceIndex, image: &[u8]) -> Result<Self> {
        if image.is_empty() {
            return Err(ModuleError::Empty.into());
        }
        let text = image.split_last().and_then(|(_, text)| std::str::from_utf8(text).ok());
        // SAFETY: the caller's promise.
        Self::load(runtime, device, (text, None), |ready| unsafe { ready.api.module_from_image(device, image) })
    }

    /// Loads a module. `text` is given unless the image is machine code; `later` where better code comes later.
    fn load(
        runtime: &Runtime,
        device: DeviceIndex,
        (text, later): (Option<&str>, Option<Later>),
        load: impl FnOnce(&Started) -> Result<ModuleHandle>,
    ) -> Result<Self> {
        let ready = runtime.check_device(device)?;
        let _relaxed = ready.relaxed()?;
        let handle = load(ready)?;
        ready.modules.add(handle, device);
        let text = text.filter(|_| !ready.api.tells_parameters());
        let declared = text.map(ptx::parameters).unwrap_or_default();
        let (functions, told) = (Mutex::default(), Told::default());
        let loaded = Loaded { device, handle, home: runtime.downgrade(), declared, functions, told, later };
        Ok(Self { runtime: runtime.clone(), loaded: Arc::new(loaded) })
    }

    /// The device that the code is on.
    #[must_use]
    pub fn device_index(&self) -> DeviceIndex {
        self.loaded.device
    }

    /// A kernel of the module.
    ///
    /// # Errors
    /// There is none of that name, or the driver's error.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let ready = self.runtime.ready()?;
        let mut functions = self.loaded.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let function = match functions.get(name) {
            Some(known) => Arc::clone(known),
            None => {
                let found = Arc::new(Function::find(ready, &self.loaded, name)?);
                self.loaded.later.iter().for_each(|later| later.improve(&found));
                functions.insert(name.to_owned(), Arc::clone(&found));
                found
            }
        };
        Ok(Kernel { module: self.clone(), function })
    }
}

impl Function {
    fn find(ready: &Started, loaded: &Loaded, name: &str) -> Result<Self> {
        let none = || Error::from(ModuleError::NoKernel { name: name.to_owned() });
        let text = CString::new(name).map_err(|_| none())?;
        let _relaxed = ready.relaxed()?;
        let handle = ready.api.module_function(loaded.device, loaded.handle, &text)?.ok_or_else(none)?;
        let told = |attribute| ready.api.function_attribute(handle, attribute).map(count);
        let limit = |attribute| ready.api.attribute(loaded.device, attribute).map(count);
        let block_factor = loaded.later.as_ref().map_or(1, Later::block_factor);
        Ok(Self {
            name: name.to_owned(),
            noted: ready.launches.name(name),
            reported: lasting_name(name),
            handle,
            block_factor,
            better: OnceLock::new(),
            attributes: KernelAttributes {
                max_threads_per_block: told(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)? / block_factor,
                shared_bytes: told(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
                const_bytes: told(Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
                local_bytes: told(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
                registers: told(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
                ptx_version: told(Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
                binary_version: told(Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
            },
            parameters: ready.api.function_parameters(handle)?.or_else(|| loaded.declared.get(name).cloned()),
            grid_limits: [
                limit(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                limit(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                limit(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            block_limits: [
                limit(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                limit(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                limit(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            dynamic_shared: AtomicU32::new(told(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?),
        })
    }
}

impl Function {
    /// What a launch of this shape runs, and in which shape.
    #[inline]
    fn best(&self, shape: &Shape) -> (FunctionHandle, Shape) {
        if let Some(&better) = self.better.get() {
            return (better, *shape);
        }
        let [x, y, z] = shape.block;
        (self.handle, Shape { block: [x * self.block_factor, y, z], ..*shape })
    }

    fn refuse(&self, kind: LaunchErrorKind) -> Error {
        LaunchError { kernel: self.name.clone(), kind }.into()
    }

    fn check_device(&self, what: &'static str, expected: DeviceIndex, found: DeviceIndex) -> Result<()> {
        if found == expected { Ok(()) } else { Err(self.refuse(LaunchErrorKind::Device { what, expected, found })) }
    }

    /// Whether a buffer is of the device, or of another whose memory the device was let reach ([`DeviceBuffer::let_reach`]).
    #[inline]
    fn check_reach(&self, runtime: &Runtime, device: DeviceIndex, buffer: &DeviceBuffer) -> Result<()> {
        if buffer.device_index() == device || buffer.is_reached(runtime.ready()?, device) {
            return Ok(());
        }
        self.check_device("buffer", device, buffer.device_index())
    }

    fn check_shape(&self, config: &LaunchConfig) -> Result<()> {
        let parts = [("grid", config.grid, self.grid_limits), ("block", config.block, self.block_limits)];
        for (what, sizes, limits) in parts {
            if sizes.iter().zip(limits).any(|(&size, limit)| size == 0 || size > limit) {
                return Err(self.refuse(LaunchErrorKind::Dimensions { what, sizes, limits }));
            }
        }
        let threads = config.block.iter().fold(1_u64, |threads, &size| threads.saturating_mul(size.into()));
        let limit = self.attributes.max_threads_per_block;
        if threads > u64::from(limit) {
            return Err(self.refuse(LaunchErrorKind::Threads { threads, limit }));
        }
        let (asked, limit) = (config.shared_bytes, self.dynamic_shared.load(Ordering::Acquire));
        if asked > limit {
            return Err(self.refuse(LaunchErrorKind::SharedMemory { asked, limit }));
        }
        Ok(())
    }

    /// Compares the sizes of arguments with those of the parameters, as far as these are known.
    fn check_sizes(&self, found: impl ExactSizeIterator<Item = usize>) -> Result<()> {
        let Some(sizes) = &self.parameters else { return Ok(()) };
        if sizes.len() != found.len() {
            return Err(self.refuse(LaunchErrorKind::ArgumentCount { expected: sizes.len(), found: found.len() }));
        }
        for (index, (&expected, found)) in sizes.iter().zip(found).enumerate() {
            if expected != found {
                return Err(self.refuse(LaunchErrorKind::ArgumentSize { index, expected, found }));
            }
        }
        Ok(())
    }
}

/// When the blocks of a launch may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// After the work before it on the stream.
    InOrder,
    /// Before that is done.
    Early,
}

/// A launch whose shape and arguments were checked.
#[derive(Clone, Copy)]
struct Launch<'a> {
    runtime: &'a Runtime,
    loaded: &'a Arc<Loaded>,
    function: &'a Function,
}

impl Launch<'_> {
    /// Calls `queue`, after the buffers were noted as used on the stream, and notes the launch. `queue` is told whether the
    /// stream is captured. `uses` is what of the buffers is declared to be used.
    #[inline]
    fn run<'b>(
        self,
        shape: &Shape,
        stream: StreamRef,
        buffers: impl Iterator<Item = &'b DeviceBuffer>,
        uses: impl FnOnce() -> Vec<MemoryUse>,
        queue: impl FnOnce(&Api, (FunctionHandle, Shape), bool) -> Result<()>,
    ) -> Result<()> {
        let Self { runtime, loaded, function } = self;
        let ready = runtime.ready()?;
        let capture = ready.captures.of(&ready.api, stream)?;
        for buffer in buffers {
            runtime.check_same(buffer.runtime(), "buffer")?;
            buffer.use_in(ready, stream, capture)?;
        }
        if let Some(capture) = capture {
            loaded.later.iter().for_each(Later::wait);
            loaded.told.once(capture, || ready.captures.keep(capture.id, KeptId::of(loaded), || loaded.clone()));
        }
        let queued = queue(&ready.api, function.best(shape), capture.is_some());
        if capture.is_some() {
            queued?;
        } else if queued.is_err() || ready.launches.blocking {
            self.settle(ready, shape, stream, queued)?;
        } else {
            ready.launches.note(function.noted, shape, stream);
        }
        ready.api.trace.report_accesses(Some(stream), function.reported, uses)
    }

    /// A launch that failed, or that is waited for because `CUDA_LAUNCH_BLOCKING` says so.
    #[cold]
    fn settle(self, ready: &Started, shape: &Shape, stream: StreamRef, queued: Result<()>) -> Result<()> {
        let name = self.function.noted;
        if !ready.launches.blocking {
            return queued.map_err(|error| ready.launches.explain(stream.device, error));
        }
        let done = queued.and_then(|()| ready.api.stream_wait_after_launch(stream));
        done.map_err(|error| ready.launches.blame(error, name, shape, stream))?;
        ready.launches.note(name, shape, stream);
        self.runtime.waited(ready, stream.device, Ok(()))
    }
}

/// A count of the driver, which is never negative.
fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

impl Kernel {
    /// The kernel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// The module that the kernel is of.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// What the driver says of the kernel.
    #[must_use]
    pub fn attributes(&self) -> KernelAttributes {
        self.function.attributes
    }

    /// Sizes of the parameters in bytes. Drivers before CUDA 12.4 cannot tell them. There they are read in the module's
    /// PTX; kernels of machine code have `None`, and nobody can check their launches.
    #[must_use]
    pub fn parameter_sizes(&self) -> Option<&[usize]> {
        self.function.parameters.as_deref()
    }

    /// The most bytes of shared memory that a launch may ask for.
    #[must_use]
    pub fn max_dynamic_shared_memory(&self) -> u32 {
        self.function.dynamic_shared.load(Ordering::Acquire)
    }

    /// Sets the most bytes of shared memory that launches may ask for. More than 48 KiB has to be set before a launch
    /// asks for it.
    ///
    /// # Errors
    /// The device has not as much for a block, or the driver's error.
    pub fn set_max_dynamic_shared_memory(&self, bytes: u32) -> Result<()> {
        let (ready, loaded) = (self.module.runtime.ready()?, &self.module.loaded);
        let most = DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let limit = count(ready.api.attribute(loaded.device, most)?).saturating_sub(self.attributes().shared_bytes);
        if bytes > limit {
            return Err(self.refuse(LaunchErrorKind::SharedMemory { asked: bytes, limit }));
        }
        self.module.wait_for_code();
        for handle in self.function.better.get().into_iter().chain([&self.function.handle]) {
            ready.api.function_set_dynamic_shared(loaded.device, *handle, bytes)?;
        }
        self.function.dynamic_shared.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Queues a launch of the kernel. Returns before the launch is done. The launch is ordered on `stream`, or on the
    /// current stream of the kernel's device for `None`. [`Self::launch_builder`] does the same in steps. During a
    /// capture the launch becomes a node of the graph, which keeps the kernel and the buffers alive.
    ///
    /// # Safety
    /// - The arguments fit the meaning of the kernel's parameters, in their order. Their number and sizes are checked
    ///   where the parameters are known ([`Self::parameter_sizes`]), which is not so for machine code on drivers before
    ///   CUDA 12.4. Their meaning cannot be checked.
    /// - The kernel, run with these arguments, stays inside the buffers' ranges that it was given, whatever it computes
    ///   from numbers, and inside memory that is otherwise valid until it is done.
    /// - Other work on the same memory that conflicts with the launch is ordered against it by streams and events.
    ///
    /// # Errors
    /// The stream or a buffer is of another device or runtime, a size is zero or too large, the arguments do not match
    /// the parameters, or the driver's error. With a number other than 0 in the environment variable
    /// `CUDA_LAUNCH_BLOCKING`, which is read when the runtime starts, the call waits until the launch is done, unless the
    /// stream captures, and returns its error ([`Error::DeviceFault`], [`Error::DeviceAssertion`]).
    pub unsafe fn launch(&self, config: &LaunchConfig, arguments: &[Arg<'_>], stream: impl StreamArg) -> Result<()> {
        // SAFETY: the caller's promise.
        stream.with_stream(|stream| unsafe { self.launch_on(config, (arguments, &[]), stream, Begin::InOrder) })
    }

    /// As [`Self::launch`], for a kernel that waits itself until the work before it on the stream is done
    /// (`griddepcontrol.wait`): its blocks may begin before that, so that what they do first takes no time of its own. Where
    /// the driver has no such launches, and in a capture, the launch is a usual one.
    ///
    /// # Safety
    /// - The duties of [`Self::launch`].
    /// - The kernel touches no memory but that of its own blocks before it has waited.
    ///
    /// # Errors
    /// As for [`Self::launch`].
    pub unsafe fn launch_early(
        &self,
        config: &LaunchConfig,
        arguments: &[Arg<'_>],
        stream: impl StreamArg,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        stream.with_stream(|stream| unsafe { self.launch_on(config, (arguments, &[]), stream, Begin::Early) })
    }

    /// As [`Self::launch`] or [`Self::launch_early`].
    ///
    /// # Safety
    /// - The duties of that function.
    unsafe fn launch_on(
        &self,
        config: &LaunchConfig,
        (arguments, declared): (&[Arg<'_>], &[Arg<'_>]),
        stream: Option<&Stream>,
        begin: Begin,
    ) -> Result<()> {
        PuttingOff::settle("a kernel is launched");
        let (runtime, device) = (&self.module.runtime, self.module.loaded.device);
        let stream = match stream {
            Some(stream) => {
                runtime.check_same(stream.runtime(), "stream")?;
                self.check_device("stream", stream.device_index())?;
                stream.reference()
            }
            None => runtime.streams().current_ref(device),
        };
        self.function.check_shape(config)?;
        with_array(arguments.len(), Value::Word(0), |values| {
            self.check_arguments(arguments, values)?;
            self.check_declared(declared)?;
            // SAFETY: the caller's promise; there are as many values as parameters, where that is known.
            unsafe { self.launch_checked(config, (arguments, declared), values, stream, begin) }
        })
    }

    /// Queues a launch after everything that can be checked was checked.
    ///
    /// # Safety
    /// - The duties of [`Self::launch`] or [`Self::launch_early`]; the values are those of the arguments.
    unsafe fn launch_checked(
        &self,
        config: &LaunchConfig,
        (arguments, declared): (&[Arg<'_>], &[Arg<'_>]),
        values: &[Value<'_>],
        stream: StreamRef,
        begin: Begin,
    ) -> Result<()> {
        let shape = Shape { grid: config.grid, block: config.block, shared_bytes: config.shared_bytes };
        let launch = Launch { runtime: &self.module.runtime, loaded: &self.module.loaded, function: &self.function };
        let queue = |api: &Api, (handle, shape), is_captured: bool| {
            // SAFETY: as many values as parameters and of their sizes, where those are known; the rest is the caller's
            // promise.
            if begin == Begin::Early && !is_captured && unsafe { api.launch_early(handle, shape, values, stream)? } {
                return Ok(());
            }
            // SAFETY: the same.
            unsafe { api.launch(handle, shape, values, stream) }
        };
        let named = || arguments.iter().chain(declared);
        let uses = || named().filter_map(Arg::memory_use).collect();
        launch.run(&shape, stream, named().filter_map(Arg::buffer), uses, queue)
    }

    /// Checks what is declared besides the arguments.
    fn check_declared(&self, declared: &[Arg<'_>]) -> Result<()> {
        for argument in declared {
            argument.value()?;
            if let Some(buffer) = argument.buffer() {
                self.function.check_reach(&self.module.runtime, self.module.loaded.device, buffer)?;
            }
        }
        Ok(())
    }

    fn refuse(&self, kind: LaunchErrorKind) -> Error {
        self.function.refuse(kind)
    }

    fn check_device(&self, what: &'static str, found: DeviceIndex) -> Result<()> {
        self.function.check_device(what, self.module.loaded.device, found)
    }

    /// Compares the arguments with the parameters, as far as those are known, and writes their values.
    fn check_arguments<'a>(&self, arguments: &[Arg<'a>], values: &mut [Value<'a>]) -> Result<()> {
        self.function.check_sizes(arguments.iter().map(Arg::size))?;
        for buffer in arguments.iter().filter_map(Arg::buffer) {
            self.function.check_reach(&self.module.runtime, self.module.loaded.device, buffer)?;
        }
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = argument.value()?;
        }
        Ok(())
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module {{ device: {} }}", Device::cuda(self.loaded.device))
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel {{ name: {}, device: {} }}", self.name(), Device::cuda(self.module.loaded.device))
    }
}
