//! Modules, their functions, launches.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers are locals that outlive the call. Module and
//! function handles come from the functions here; a module is unloaded once, by the registry of modules, when nothing
//! can use its functions any more. The caller that launches a kernel promises what it does to memory.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use cuda_sys::driver::types::{
    CUfunction, CUfunction_attribute, CUjit_option, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchConfig, CUmodule, CUmoduleLoadingMode,
};
use cuda_sys::{CUresult, CallError};

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, ModuleError, Result};
use crate::base::handles::StreamRef;
use crate::base::loading::ModuleLoading;
use crate::driver::Api;
use crate::driver::memory::raw;
use crate::trace::{TraceEvent, TraceKind};

/// A `CUmodule`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ModuleHandle(usize);

/// A `CUfunction`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FunctionHandle(usize);

/// Bytes of the log in which the driver says why it refuses text.
const LOG_BYTES: usize = 16 << 10;

/// Blocks, threads and shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

/// The bytes of one parameter of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// At most 8 bytes, the first ones in memory.
    Word(u64),
    /// Any number of bytes.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Where the bytes begin.
    fn place(&self) -> *const c_void {
        match self {
            Self::Word(word) => ptr::from_ref(word).cast(),
            Self::Bytes(bytes) => bytes.as_ptr().cast(),
        }
    }
}

impl Api {
    /// When the driver loads the functions of a module.
    pub(crate) fn loading_mode(&self) -> Result<ModuleLoading> {
        let mut mode = CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING;
        // SAFETY: `mode` outlives the call.
        unsafe { self.table.cuModuleGetLoadingMode(&mut mode) }?;
        let eager = mode == CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING;
        Ok(if eager { ModuleLoading::Eager } else { ModuleLoading::Lazy })
    }

    /// Loads PTX, which the driver compiles for the device.
    pub(crate) fn module_from_ptx(&self, device: DeviceIndex, text: &CStr) -> Result<ModuleHandle> {
        // SAFETY: text that ends with a zero byte is a whole image.
        unsafe { self.load_module(device, text.to_bytes_with_nul(), None) }
    }

    /// Loads PTX, which the driver compiles for the device without optimising it.
    pub(crate) fn module_from_ptx_quickly(&self, device: DeviceIndex, text: &CStr) -> Result<ModuleHandle> {
        // SAFETY: text that ends with a zero byte is a whole image.
        unsafe { self.load_module(device, text.to_bytes_with_nul(), Some(0)) }
    }

    /// Loads PTX that ends with a zero byte, or machine code.
    ///
    /// # Safety
    /// - The image is whole: how long it is, the driver reads in it.
    pub(crate) unsafe fn module_from_image(&self, device: DeviceIndex, image: &[u8]) -> Result<ModuleHandle> {
        // SAFETY: the caller's promise.
        unsafe { self.load_module(device, image, None) }
    }

    /// Loads an image; `level` says how much the driver optimises, where that is not as much as usual.
    ///
    /// # Safety
    /// - As for [`Self::module_from_image`].
    unsafe fn load_module(&self, device: DeviceIndex, image: &[u8], level: Option<usize>) -> Result<ModuleHandle> {
        // The driver compiles PTX here.
        let _span = tracing::debug_span!("load_module", device = device, bytes = image.len()).entered();
        self.bind(device)?;
        let mut module: CUmodule = ptr::null_mut();
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CUjit_option::CU_JIT_OPTIMIZATION_LEVEL,
        ];
        let mut values = [
            log.as_mut_ptr().cast::<c_void>(),
            ptr::without_provenance_mut(log.len()),
            ptr::without_provenance_mut(level.unwrap_or(0)),
        ];
        let count = 2 + u32::from(level.is_some());
        let (image, options, values) = (image.as_ptr().cast(), options.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: the image is whole; there are as many options with their values; the log is as long as is said.
        let loaded = unsafe { self.table.cuModuleLoadDataEx(&mut module, image, count, options, values) };
        match loaded.map_err(Error::from) {
            Ok(()) => Ok(ModuleHandle(module.expose_provenance())),
            Err(Error::Accelerator(error)) => {
                let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                let log = String::from_utf8_lossy(&log[..end]).trim_end().to_owned();
                Err(ModuleError::Refused { error, log }.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Unloads a module. The driver may wait for the device.
    pub(crate) fn module_unload(&self, device: DeviceIndex, module: ModuleHandle) -> Result<()> {
        self.bind(device)?;
        // SAFETY: nothing uses the module's functions any more.
        Ok(unsafe { self.table.cuModuleUnload(raw_module(module)) }?)
    }

    /// A function of a module; `None` when it has none of that name.
    pub(crate) fn module_function(
        &self,
        device: DeviceIndex,
        module: ModuleHandle,
        name: &CStr,
    ) -> Result<Option<FunctionHandle>> {
        self.bind(device)?;
        let mut function: CUfunction = ptr::null_mut();
        // SAFETY: the module is loaded; `function` outlives the call; the name ends with a zero byte.
        match unsafe { self.table.cuModuleGetFunction(&mut function, raw_module(module), name.as_ptr()) } {
            Ok(()) => {
                let handle = FunctionHandle(function.expose_provenance());
                self.trace.name_kernel(handle.0 as u64, &name.to_string_lossy());
                Ok(Some(handle))
            }
            Err(CallError::Failed { status: CUresult::CUDA_ERROR_NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// One attribute of a function.
    pub(crate) fn function_attribute(&self, function: FunctionHandle, attribute: CUfunction_attribute) -> Result<i32> {
        let mut value: c_int = 0;
        // SAFETY: the function's module is loaded; `value` outlives the call.
        unsafe { self.table.cuFuncGetAttribute(&mut value, attribute, raw_function(function)) }?;
        Ok(value)
    }

    /// Sets the most bytes of shared memory that launches may ask for.
    pub(crate) fn function_set_dynamic_shared(
        &self,
        device: DeviceIndex,
        function: FunctionHandle,
        bytes: u32,
    ) -> Result<()> {
        self.bind(device)?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the function's module is loaded.
        Ok(unsafe { self.table.cuFuncSetAttribute(raw_function(function), attribute, value) }?)
    }

    /// Whether the driver tells the sizes of functions' parameters.
    pub(crate) fn tells_parameters(&self) -> bool {
        self.table.functions().cuFuncGetParamInfo.is_some()
    }

    /// Sizes of a function's parameters; `None` where the driver cannot tell (before CUDA 12.4).
    pub(crate) fn function_parameters(&self, function: FunctionHandle) -> Result<Option<Vec<usize>>> {
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            let function = raw_function(function);
            // SAFETY: the function's module is loaded; both numbers outlive the call.
            match unsafe { self.table.cuFuncGetParamInfo(function, sizes.len(), &mut offset, &mut size) } {
                Ok(()) => sizes.push(size),
                Err(CallError::Failed { status: CUresult::CUDA_ERROR_INVALID_VALUE, .. }) => return Ok(Some(sizes)),
                Err(CallError::Missing(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Queues a launch. Each value is a parameter.
    ///
    /// # Safety
    /// - There are as many values as the kernel has parameters, none of fewer bytes than its parameter.
    /// - The kernel may be run with them: the memory that it reads and writes is valid until it is done.
    pub(crate) unsafe fn launch(
        &self,
        function: FunctionHandle,
        shape: Shape,
        values: &[Value<'_>],
        stream: StreamRef,
    ) -> Result<()> {
        self.bind(stream.device)?;
        with_array(values.len(), ptr::null_mut(), |pointers: &mut [*mut c_void]| {
            let addresses = values.iter().map(|value| value.place().cast_mut());
            pointers.iter_mut().zip(addresses).for_each(|(pointer, address)| *pointer = address);
            // SAFETY: the caller's promise; each pointer is that of a value.
            unsafe { self.launch_at(function, shape, pointers, stream) }
        })
    }

    /// Queues a launch as [`Self::launch`] does, which may begin before the work before it on the stream is done. `false`
    /// where the driver has no such launches, and nothing was queued.
    ///
    /// # Safety
    /// - The duties of [`Self::launch`].
    /// - The kernel waits for that work itself before it touches any memory (`griddepcontrol.wait`).
    pub(crate) unsafe fn launch_early(
        &self,
        function: FunctionHandle,
        shape: Shape,
        values: &[Value<'_>],
        stream: StreamRef,
    ) -> Result<bool> {
        self.bind(stream.device)?;
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes } = shape;
        let config = CUlaunchConfig {
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: shared_bytes,
            hStream: raw(stream),
            attrs: &raw mut attribute,
            numAttrs: 1,
        };
        with_array(values.len(), ptr::null_mut(), |pointers: &mut [*mut c_void]| {
            let addresses = values.iter().map(|value| value.place().cast_mut());
            pointers.iter_mut().zip(addresses).for_each(|(pointer, address)| *pointer = address);
            self.trace.begin_launch(function.0 as u64, stream);
            let (raw, pointers) = (raw_function(function), pointers.as_mut_ptr());
            // SAFETY: the caller's promise; each pointer is that of a value, and the attribute outlives the call.
            match unsafe { self.table.cuLaunchKernelEx(&config, raw, pointers, ptr::null_mut()) } {
                Ok(()) => {
                    self.report_launch(function, stream);
                    Ok(true)
                }
                Err(CallError::Missing(_) | CallError::Failed { status: CUresult::CUDA_ERROR_NOT_SUPPORTED, .. }) => {
                    Ok(false)
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Queues a launch whose parameters are addresses and then one block of words.
    ///
    /// # Safety
    /// - There is an address for each parameter but the last, which has as many bytes as the words.
    /// - The kernel may be run with them, as for [`Self::launch`].
    pub(crate) unsafe fn launch_words(
        &self,
        function: FunctionHandle,
        shape: Shape,
        addresses: &[u64],
        words: &[u64],
        stream: StreamRef,
    ) -> Result<()> {
        self.bind(stream.device)?;
        let mut few = [ptr::null_mut::<c_void>(); 8];
        let places = addresses.iter().map(ptr::from_ref).chain([words.as_ptr()]);
        let mut many = Vec::new();
        let pointers = if addresses.len() < few.len() {
            few.iter_mut().zip(places).for_each(|(pointer, place)| *pointer = place.cast_mut().cast());
            few.as_mut_slice()
        } else {
            many.extend(places.map(|place| place.cast_mut().cast()));
            many.as_mut_slice()
        };
        // SAFETY: the caller's promise; each pointer is that of an address or of the words.
        unsafe { self.launch_at(function, shape, pointers, stream) }
    }

    /// Queues a launch with the parameters that lie at these places; the device's context is current.
    ///
    /// # Safety
    /// - The duties of [`Self::launch`]; each place can be read until the call returns.
    unsafe fn launch_at(
        &self,
        function: FunctionHandle,
        shape: Shape,
        pointers: &mut [*mut c_void],
        stream: StreamRef,
    ) -> Result<()> {
        let Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes } = shape;
        self.trace.begin_launch(function.0 as u64, stream);
        // SAFETY: the function's module is loaded and the stream alive; the values are copied before the call returns.
        let launched = unsafe {
            self.table.cuLaunchKernel(
                raw_function(function),
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                shared_bytes,
                raw(stream),
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        launched?;
        self.report_launch(function, stream);
        Ok(())
    }

    /// Reports that a kernel was queued.
    #[inline]
    fn report_launch(&self, function: FunctionHandle, stream: StreamRef) {
        let event = || TraceEvent::Launched { function: function.0 as u64, stream: stream.into() };
        self.trace.report_now(TraceKind::Launch, event);
    }
}

/// Calls `with` with an array of `len` values. A short array is kept on the stack.
pub(crate) fn with_array<T: Copy, R>(len: usize, each: T, with: impl FnOnce(&mut [T]) -> R) -> R {
    let mut few = [each; 12];
    match few.get_mut(..len) {
        Some(few) => with(few),
        None => with(&mut vec![each; len]),
    }
}

fn raw_module(module: ModuleHandle) -> CUmodule {
    ptr::with_exposed_provenance_mut(module.0)
}

fn raw_function(function: FunctionHandle) -> CUfunction {
    ptr::with_exposed_provenance_mut(function.0)
}
