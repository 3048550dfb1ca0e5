//! Launches of kernels with tensors as arguments.
//!
//! # Safety
//! A launch passes the caller's promise on: nobody but whoever wrote a kernel knows what it does to memory.
#![expect(unsafe_code, reason = "launches of kernels that are the user's own")]

use std::fmt;

use c10_core::{Arg, Dim3, Kernel, LaunchConfig, LaunchErrorKind, Stream};
use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::base::jit_error::JitError;
use crate::raw::argument::KernelArg;

/// A kernel that is launched with tensors as arguments; made by [`crate::raw::compile_kernel`], or of any [`Kernel`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::raw::RawKernel;
/// use aten_cuda::{DType, Tensor};
/// use c10_core::{Module, Runtime};
///
/// let text = ".version 7.8 .target sm_75 .address_size 64
///     .visible .entry set(.param .u64 to, .param .f64 value)
///     {
///         .reg .b64 %to;
///         .reg .f64 %value;
///         ld.param.u64 %to, [to];
///         ld.param.f64 %value, [value];
///         st.global.f64 [%to], %value;
///         ret;
///     }";
/// let kernel = RawKernel::new(Module::from_ptx(&Runtime::current(), 0, text)?.kernel("set")?);
/// let x = Tensor::zeros(&[2], DType::F64, "cuda")?;
/// // SAFETY: the kernel writes the first element.
/// unsafe { kernel.launch(1, 1, &[(&x).into(), 2.5.into()], 0, None) }?;
/// assert_eq!(x.to_vec::<f64>()?, [2.5, 0.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "_CudaKernel")]
pub struct RawKernel(Kernel);

impl RawKernel {
    /// A kernel of a module, however that was made.
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        Self(kernel)
    }

    /// The kernel as the runtime has it, with its attributes and launches of other kinds.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.0
    }

    /// Allows launches to ask for so many bytes of shared memory (`set_shared_memory_config`). It is needed for more than
    /// 48 KiB, before such a launch.
    ///
    /// # Errors
    /// [`JitError::SharedMemory`] beyond what a block of the device can have besides what the kernel declares itself; the
    /// driver's error.
    pub fn set_shared_memory_config(&self, bytes: u32) -> Result<()> {
        self.0.set_max_dynamic_shared_memory(bytes).map_err(|error| match error {
            c10_core::Error::Launch(refused) => match refused.kind {
                LaunchErrorKind::SharedMemory { asked, limit } => JitError::SharedMemory { asked, limit }.into(),
                _ => Error::Runtime(c10_core::Error::Launch(refused)),
            },
            error => error.into(),
        })
    }

    /// Queues a launch and returns before it is done. It is ordered on `stream`, or on the current stream of the kernel's
    /// device for `None`. Tensors are noted as used on the stream. During a capture the launch becomes a node of the graph.
    ///
    /// # Safety
    /// - The duties of [`Kernel::launch`]: the arguments fit the kernel's parameters in their meaning, and the kernel, run
    ///   with them, stays inside the tensors' elements and other memory that is valid until it is done.
    ///
    /// # Errors
    /// [`JitError::NotOnDevice`] for a tensor on the host that is not pinned, [`JitError::Argument`] for a number that has no
    /// type in C; a tensor is on another device, the number or the sizes of the arguments are not those of the parameters, a
    /// size is zero or too large, more shared memory than allowed; the driver's error.
    #[doc(alias = "__call__")]
    pub unsafe fn launch(
        &self,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        args: &[KernelArg<'_>],
        shared_mem: u32,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let lowered: SmallVec<[Arg<'_>; 8]> = args.iter().map(KernelArg::lower).collect::<Result<_>>()?;
        let config = LaunchConfig { grid: grid.into().0, block: block.into().0, shared_bytes: shared_mem };
        // SAFETY: the caller's promise.
        unsafe { self.0.launch(&config, &lowered, stream) }?;
        self.record_pinned(args, stream)
    }

    /// Notes pinned tensors as used on the stream; a launch notes those on the device itself.
    fn record_pinned(&self, args: &[KernelArg<'_>], stream: Option<&Stream>) -> Result<()> {
        let tensors = args.iter().filter_map(|argument| match argument {
            KernelArg::Tensor(tensor) if tensor.is_pinned() => Some(*tensor),
            _ => None,
        });
        for tensor in tensors {
            match stream {
                Some(stream) => tensor.record_stream(stream)?,
                None => {
                    let device = self.0.module().device_index();
                    let current = c10_core::Runtime::with_current(|runtime| runtime.streams().current(device))?;
                    tensor.record_stream(&current)?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RawKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
