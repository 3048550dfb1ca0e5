//! Kernels that come with the crate: CUDA C++ in `kernels/*.cu`, compiled to the PTX beside it.
//!
//! Each file here belongs to one source and has a safe function for each of its kernels: it checks what the kernel
//! relies on and says why the launch is sound. A module is loaded when one of its kernels is first needed, and kept by
//! the runtime.
//!
//! # Safety
//! What a kernel does to memory is in its source; the function that launches it gives it whole views of tensors and
//! their sizes, which the source keeps to.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

pub(crate) mod matmul;

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use c10_core::{Arg, DetachedKernel, DeviceIndex, LaunchConfig, Module, Runtime};

use crate::base::error::Result;

/// The text of one source.
#[derive(Debug)]
pub(crate) struct Text {
    /// The source's name without its ending.
    pub(crate) name: &'static str,
    /// Its PTX.
    pub(crate) ptx: &'static str,
}

/// The modules and kernels that a runtime has loaded.
#[derive(Default)]
struct Loaded {
    kernels: RwLock<HashMap<(DeviceIndex, &'static str, &'static str), DetachedKernel>>,
}

/// Queues a launch of a kernel of a source on the current stream of the device.
///
/// # Safety
/// - The duties of [`c10_core::Kernel::launch`].
///
/// # Errors
/// The driver refuses the module or the launch.
pub(super) unsafe fn launch(
    text: &'static Text,
    kernel: &'static str,
    device: DeviceIndex,
    config: &LaunchConfig,
    arguments: &[Arg<'_>],
) -> Result<()> {
    Runtime::with_current(|runtime| {
        let kernel = runtime.extension::<Loaded>().kernel(runtime, text, kernel, device)?;
        // SAFETY: the caller's promise.
        unsafe { kernel.launch(config, arguments, None)? };
        Ok(())
    })
}

impl Loaded {
    fn kernel(
        &self,
        runtime: &Runtime,
        text: &'static Text,
        name: &'static str,
        device: DeviceIndex,
    ) -> Result<c10_core::Kernel> {
        let key = (device, text.name, name);
        if let Some(known) = self.kernels.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known.attach(runtime)?);
        }
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        // Another kernel of the same source has the module already.
        let sibling = kernels.iter().find(|((on, of, _), _)| *on == device && *of == text.name);
        let module = match sibling {
            Some((_, sibling)) => sibling.attach(runtime)?.module().clone(),
            None => Module::from_ptx(runtime, device, text.ptx)?,
        };
        let found = module.kernel(name)?;
        kernels.insert(key, found.detach());
        Ok(found)
    }
}
