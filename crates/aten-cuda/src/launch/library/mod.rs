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

pub(crate) mod index;
pub(crate) mod matmul;
pub(crate) mod random;
pub(crate) mod select;
pub(crate) mod sort;

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use c10_core::{Arg, DetachedKernel, DeviceIndex, LaunchConfig, Runtime};

use crate::base::error::{Result, TensorError};
use crate::launch::module;

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
) -> c10_core::Result<()> {
    Runtime::with_current(|runtime| {
        let kernel = runtime.extension::<Loaded>().kernel(runtime, text, kernel, device)?;
        // SAFETY: the caller's promise.
        unsafe { kernel.launch(config, arguments, None) }
    })
}

impl Loaded {
    fn kernel(
        &self,
        runtime: &Runtime,
        text: &'static Text,
        name: &'static str,
        device: DeviceIndex,
    ) -> c10_core::Result<c10_core::Kernel> {
        let key = (device, text.name, name);
        if let Some(known) = self.kernels.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.attach(runtime);
        }
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        // Another kernel of the same source has the module already.
        let sibling = kernels.iter().find(|((on, of, _), _)| *on == device && *of == text.name);
        let module = match sibling {
            Some((_, sibling)) => sibling.attach(runtime)?.module().clone(),
            None => module::load(runtime, device, text.name, text.ptx)?,
        };
        let found = module.kernel(name)?;
        kernels.insert(key, found.detach());
        Ok(found)
    }
}

/// A row of blocks with a thread for each of `elements`.
fn row(elements: u64, threads: u32) -> Result<LaunchConfig> {
    let blocks = elements.div_ceil(u64::from(threads)).max(1);
    let too_many = |_| TensorError::TooLarge { sizes: vec![i64::try_from(elements).unwrap_or(i64::MAX)] };
    let grid = i32::try_from(blocks).map(i32::unsigned_abs).map_err(too_many)?;
    Ok(LaunchConfig { grid: [grid, 1, 1], block: [threads, 1, 1], shared_bytes: 0 })
}

/// The bytes of a struct that a kernel takes.
#[derive(Debug, Default)]
struct Packed(Vec<u8>);

impl Packed {
    /// A number of 32 bits.
    fn half(&mut self, number: i32) {
        self.0.extend_from_slice(&number.to_ne_bytes());
    }

    /// A number of 64 bits.
    fn word(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_ne_bytes());
    }

    /// Numbers of 64 bits, with zeros up to `count`.
    fn words(&mut self, numbers: &[i64], count: usize) {
        numbers.iter().for_each(|&number| self.word(number));
        (numbers.len()..count).for_each(|_| self.word(0));
    }

    fn argument(&self) -> Arg<'_> {
        Arg::Plain(&self.0)
    }
}

/// The memory of a contiguous tensor.
fn memory(tensor: &crate::tensor::Tensor) -> Arg<'_> {
    match tensor.storage().buffer() {
        Some(buffer) => Arg::range(buffer, tensor.byte_offset()..tensor.byte_offset() + tensor.nbytes()),
        None => Arg::U64(0),
    }
}
