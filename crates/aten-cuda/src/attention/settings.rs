//! Which ways to compute attention are allowed.
//!
//! **Invariant:** the switches are kept by the runtime ([`c10_core::Runtime::current`]), and all threads that use it see
//! the same; each switch is read and written as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use c10_core::Runtime;

/// The switches, with torch's defaults.
#[derive(Debug)]
struct Switches {
    flash: AtomicBool,
    mem_efficient: AtomicBool,
    math: AtomicBool,
    cudnn: AtomicBool,
    half_sums: AtomicBool,
}

impl Default for Switches {
    fn default() -> Self {
        let [flash, mem_efficient, math, cudnn] = [true; 4].map(AtomicBool::new);
        Self { flash, mem_efficient, math, cudnn, half_sums: AtomicBool::new(false) }
    }
}

/// Whether a switch of any runtime was ever set. Until then all of them are as at first, and nobody has to look.
static CHANGED: AtomicBool = AtomicBool::new(false);

fn switches() -> Arc<Switches> {
    Runtime::with_current(Runtime::extension::<Switches>)
}

macro_rules! switches {
    ($($(#[$set_doc:meta])* $set:ident, $(#[$get_doc:meta])* $get:ident: $field:ident;)*) => {
        $(
            $(#[$set_doc])*
            pub fn $set(enabled: bool) {
                switches().$field.store(enabled, Ordering::Relaxed);
                CHANGED.store(true, Ordering::Relaxed);
            }

            $(#[$get_doc])*
            #[must_use]
            pub fn $get() -> bool {
                switches().$field.load(Ordering::Relaxed)
            }
        )*
    };
}

switches! {
    /// Allows the fused kernel, or forbids it (`torch.backends.cuda.enable_flash_sdp`).
    enable_flash_sdp,
    /// Whether the fused kernel is allowed (`torch.backends.cuda.flash_sdp_enabled`); `true` at first.
    flash_sdp_enabled: flash;

    /// Allows the memory-efficient kernel, or forbids it (`torch.backends.cuda.enable_mem_efficient_sdp`). There is no
    /// such kernel here, so that nothing but [`mem_efficient_sdp_enabled`] changes.
    enable_mem_efficient_sdp,
    /// Whether the memory-efficient kernel is allowed (`torch.backends.cuda.mem_efficient_sdp_enabled`); `true` at first.
    mem_efficient_sdp_enabled: mem_efficient;

    /// Allows attention made of tensor operations, or forbids it (`torch.backends.cuda.enable_math_sdp`).
    enable_math_sdp,
    /// Whether attention made of tensor operations is allowed (`torch.backends.cuda.math_sdp_enabled`); `true` at first.
    math_sdp_enabled: math;

    /// Allows cuDNN's kernel, or forbids it (`torch.backends.cuda.enable_cudnn_sdp`). cuDNN is not used here, so that
    /// nothing but [`cudnn_sdp_enabled`] changes.
    enable_cudnn_sdp,
    /// Whether cuDNN's kernel is allowed (`torch.backends.cuda.cudnn_sdp_enabled`); `true` at first.
    cudnn_sdp_enabled: cudnn;

    /// Lets attention made of tensor operations compute 16-bit floats in their own dtype, or has it compute them in
    /// `f32` (`torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp`).
    allow_fp16_bf16_reduction_math_sdp,
    /// Whether attention made of tensor operations computes 16-bit floats in their own dtype
    /// (`torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed`); `false` at first.
    fp16_bf16_reduction_math_sdp_allowed: half_sums;
}

/// Which kernels [`sdp_kernel`] allows; all by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpKernels {
    /// The fused kernel ([`enable_flash_sdp`]).
    pub enable_flash: bool,
    /// Tensor operations ([`enable_math_sdp`]).
    pub enable_math: bool,
    /// The memory-efficient kernel ([`enable_mem_efficient_sdp`]).
    pub enable_mem_efficient: bool,
    /// cuDNN's kernel ([`enable_cudnn_sdp`]).
    pub enable_cudnn: bool,
}

impl Default for SdpKernels {
    fn default() -> Self {
        Self { enable_flash: true, enable_math: true, enable_mem_efficient: true, enable_cudnn: true }
    }
}

impl SdpKernels {
    /// Those that are allowed now.
    #[must_use]
    pub fn current() -> Self {
        Runtime::with_current(Self::of)
    }

    /// Those that a runtime allows now.
    fn of(runtime: &Runtime) -> Self {
        AttentionSettings::of(runtime).kernels
    }

    fn set(self) {
        enable_flash_sdp(self.enable_flash);
        enable_math_sdp(self.enable_math);
        enable_mem_efficient_sdp(self.enable_mem_efficient);
        enable_cudnn_sdp(self.enable_cudnn);
    }
}

/// All that attention depends on besides its operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttentionSettings {
    pub(crate) kernels: SdpKernels,
    /// Whether tensor operations compute 16-bit floats in their own dtype.
    pub(crate) half_sums: bool,
}

impl AttentionSettings {
    /// Those of a runtime now.
    #[inline]
    pub(crate) fn of(runtime: &Runtime) -> Self {
        if CHANGED.load(Ordering::Relaxed) { Self::read(runtime) } else { Self::default() }
    }

    #[cold]
    fn read(runtime: &Runtime) -> Self {
        let switches = runtime.extension::<Switches>();
        let is_on = |switch: &AtomicBool| switch.load(Ordering::Relaxed);
        let kernels = SdpKernels {
            enable_flash: is_on(&switches.flash),
            enable_math: is_on(&switches.math),
            enable_mem_efficient: is_on(&switches.mem_efficient),
            enable_cudnn: is_on(&switches.cudnn),
        };
        Self { kernels, half_sums: is_on(&switches.half_sums) }
    }
}

/// Sets the four switches, and back when the guard is dropped (`torch.backends.cuda.sdp_kernel`). The switches are of the
/// whole runtime, so that other threads see them too, as in torch.
///
/// ```
/// use aten_cuda::attention::{SdpKernels, flash_sdp_enabled, sdp_kernel};
///
/// {
///     let _math = sdp_kernel(SdpKernels { enable_flash: false, ..SdpKernels::default() });
///     assert!(!flash_sdp_enabled());
/// }
/// assert!(flash_sdp_enabled());
/// ```
#[must_use = "the switches are set back when the guard is dropped"]
pub fn sdp_kernel(kernels: SdpKernels) -> SdpKernelGuard {
    let before = SdpKernels::current();
    kernels.set();
    SdpKernelGuard { runtime: Runtime::current(), before }
}

/// Calls `body` while the four switches are set ([`sdp_kernel`]).
pub fn with_sdp_kernel<T>(kernels: SdpKernels, body: impl FnOnce() -> T) -> T {
    let _set = sdp_kernel(kernels);
    body()
}

/// Sets the switches of [`sdp_kernel`] back when it is dropped.
#[derive(Debug)]
pub struct SdpKernelGuard {
    runtime: Runtime,
    before: SdpKernels,
}

impl Drop for SdpKernelGuard {
    fn drop(&mut self) {
        let _bound = self.runtime.bind();
        self.before.set();
    }
}
