//! Kernels that come with the crate: CUDA C++ in `kernels/*.cu`, compiled to the PTX beside it.
//!
//! Each file here belongs to one source and has a safe function for each of its kernels: it checks what the kernel
//! relies on and says why the launch is sound. A kernel is loaded when it is first needed, as a module of its own, and
//! kept by the runtime.
//!
//! # Safety
//! What a kernel does to memory is in its source; the function that launches it gives it whole views of tensors and
//! their sizes, which the source keeps to.
#![expect(unsafe_code, reason = "launches of kernels that are written in CUDA C++")]

pub(crate) mod amp;
pub(crate) mod attention;
mod attention_hopper;
pub(crate) mod comm;
pub(crate) mod index;
pub(crate) mod ordered;
pub mod product;
pub(crate) mod random;
pub(crate) mod scan;
pub(crate) mod select;
pub(crate) mod sort;
pub(crate) mod symmetric;
pub(crate) mod transpose;

use std::collections::HashMap;
use std::sync::PoisonError;

use c10_core::locks::RwLock;
use c10_core::{Arg, DetachedKernel, DeviceIndex, LaunchConfig, PreparedLaunch, Runtime, TensorMap};

use smallvec::SmallVec;

use crate::base::error::{Result, TensorError};
use crate::launch::module::{self, KernelText};
use crate::launch::writes::{self, Written};

/// The text of one source.
#[derive(Debug)]
pub(crate) struct Text {
    /// The source's name without its ending.
    pub(crate) name: &'static str,
    /// Its PTX.
    pub(crate) ptx: &'static str,
}

/// What names the texts of the kernels for products: another one when any of them changes.
pub(crate) fn products_fingerprint() -> u128 {
    let texts = product::texts().map(|text| crate::raw::fingerprint(text.ptx.as_bytes()));
    texts.into_iter().fold(0, |all, one| all.rotate_left(1) ^ one)
}

/// The modules and kernels that a runtime has loaded.
#[derive(Default)]
struct Loaded {
    kernels: RwLock<HashMap<(DeviceIndex, &'static str, &'static str), DetachedKernel>>,
    traits: RwLock<HashMap<DeviceIndex, Traits>>,
    /// Which parameters kernels write through, as far as somebody wanted to know.
    written: RwLock<HashMap<(&'static str, &'static str), Written>>,
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
    let ready = ready(text, kernel, device, config)?;
    let declared = declared_if_heard(text, kernel, arguments)?;
    // SAFETY: the caller's promise.
    unsafe { ready.launch(config, declared.as_deref().unwrap_or(arguments), None) }
}

/// As [`launch`], for a kernel whose blocks wait themselves for the work before it.
///
/// # Safety
/// - The duties of [`c10_core::Kernel::launch_early`].
///
/// # Errors
/// As there.
unsafe fn launch_early(
    text: &'static Text,
    kernel: &'static str,
    device: DeviceIndex,
    config: &LaunchConfig,
    arguments: &[Arg<'_>],
) -> c10_core::Result<()> {
    let ready = ready(text, kernel, device, config)?;
    let declared = declared_if_heard(text, kernel, arguments)?;
    // SAFETY: the caller's promise.
    unsafe { ready.launch_early(config, declared.as_deref().unwrap_or(arguments), None) }
}

/// Arguments with what the kernel does to each, if anybody wants to know.
#[inline]
fn declared_if_heard<'a>(
    text: &'static Text,
    kernel: &'static str,
    arguments: &[Arg<'a>],
) -> c10_core::Result<Option<SmallVec<[Arg<'a>; 8]>>> {
    Runtime::with_current(|runtime| {
        let is_heard = runtime.reports_accesses();
        Ok(is_heard.then(|| writes::declared(arguments, runtime.extension::<Loaded>().written(text, kernel))))
    })
}

/// A kernel of a source that may be launched with a configuration.
fn ready(
    text: &'static Text,
    kernel: &'static str,
    device: DeviceIndex,
    config: &LaunchConfig,
) -> c10_core::Result<c10_core::Kernel> {
    Runtime::with_current(|runtime| {
        let kernel = runtime.extension::<Loaded>().kernel(runtime, text, kernel, device)?;
        if config.shared_bytes > kernel.max_dynamic_shared_memory() {
            kernel.set_max_dynamic_shared_memory(config.shared_bytes)?;
        }
        Ok(kernel)
    })
}

/// Prepares launches of a kernel of a source: its parameters are so many buffers and then so many words of 64 bits.
fn prepare(
    text: &'static Text,
    kernel: &'static str,
    device: DeviceIndex,
    threads: u32,
    (buffers, words): (usize, usize),
) -> c10_core::Result<PreparedLaunch> {
    Runtime::with_current(|runtime| {
        let kernel = runtime.extension::<Loaded>().kernel(runtime, text, kernel, device)?;
        kernel.prepare([threads, 1, 1], buffers, words)
    })
}

impl Loaded {
    /// The parameters that a kernel writes through.
    fn written(&self, text: &'static Text, kernel: &'static str) -> Written {
        let key = (text.name, kernel);
        if let Some(&known) = self.written.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known;
        }
        let written = writes::written(text.ptx, kernel);
        self.written.write().unwrap_or_else(PoisonError::into_inner).insert(key, written);
        written
    }

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
        let found = module::load(runtime, device, name, &only(text.ptx, name))?.kernel(name)?;
        self.kernels.write().unwrap_or_else(PoisonError::into_inner).insert(key, found.detach());
        Ok(found)
    }
}

/// What kernels are chosen by.
#[derive(Clone, Copy, Debug)]
struct Traits {
    /// Compute capability: major and minor.
    capability: (i32, i32),
    multiprocessors: i64,
    /// Whether blocks of a cluster can read each other's shared memory.
    has_clusters: bool,
    /// Whether there are the instructions of `sm_90a`, and maps for the tensor memory accelerator.
    has_wgmma: bool,
}

fn traits(device: DeviceIndex) -> c10_core::Result<Traits> {
    Runtime::with_current(|runtime| {
        let loaded = runtime.extension::<Loaded>();
        if let Some(&known) = loaded.traits.read().unwrap_or_else(PoisonError::into_inner).get(&device) {
            return Ok(known);
        }
        let capability = runtime.devices().capability(device)?;
        // A driver that makes no maps runs no clusters either: it is older, or simulates its devices.
        let has_clusters = TensorMap::is_available(runtime, device)?;
        let found = Traits {
            capability,
            multiprocessors: runtime.devices().properties(device)?.multi_processor_count.into(),
            has_clusters,
            has_wgmma: has_clusters && capability == (9, 0),
        };
        loaded.traits.write().unwrap_or_else(PoisonError::into_inner).insert(device, found);
        Ok(found)
    })
}

/// The commonest kernels of sources for one architecture alone, which no call on another device launches. Machine code of
/// them comes along.
///
/// ```
/// let texts = aten_cuda::kernel_texts_of_one_architecture();
/// assert!(texts.iter().all(|kernel| kernel.text.contains(".target sm_90a")));
/// assert!(texts.iter().any(|kernel| kernel.name == "attend_128_bf16"));
/// ```
#[must_use]
pub fn kernel_texts_of_one_architecture() -> Vec<KernelText> {
    let common = [&attention_hopper::COMMON];
    let texts = common.into_iter().flat_map(|(text, kernels)| kernels.iter().map(move |&name| (text, name)));
    texts.map(|(text, name)| KernelText { name: name.to_owned(), text: only(text.ptx, name) }).collect()
}

/// A text without its other kernels: drivers compile all that they are given, which takes long, and the machine code that
/// comes along is of single kernels.
fn only(text: &str, kernel: &str) -> String {
    const START: &str = "\n.visible .entry ";
    const END: &str = "\n}\n";
    let mut rest = text;
    let mut kept = String::new();
    while let Some(start) = rest.find(START) {
        let (before, entry) = rest.split_at(start);
        // The line's end begins the next kernel.
        let end = entry.find(END).map_or(entry.len(), |end| end + END.len() - 1);
        kept.push_str(before);
        let is_wanted = entry[START.len()..].strip_prefix(kernel).is_some_and(|after| after.starts_with('('));
        kept.push_str(if is_wanted { &entry[..end] } else { "" });
        rest = &entry[end..];
    }
    kept.push_str(rest);
    kept
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
fn memory(tensor: &crate::tensor::Tensor) -> Result<Arg<'_>> {
    Ok(match tensor.plain_storage()?.buffer() {
        Some(buffer) => Arg::range(buffer, tensor.byte_offset()..tensor.byte_offset() + tensor.nbytes()),
        None => Arg::U64(0),
    })
}

/// A view as an argument: from its first element to its end.
fn whole(tensor: &crate::tensor::Tensor) -> Result<Arg<'_>> {
    let on_host = || TensorError::Invalid("the tensor is on the host".to_owned());
    let buffer = tensor.plain_storage()?.buffer().ok_or_else(on_host)?;
    Ok(Arg::range(buffer, tensor.byte_offset()..tensor.byte_offset() + tensor.byte_extent()))
}

#[cfg(test)]
mod tests {
    use super::only;

    #[test]
    fn one_kernel_is_kept_with_what_all_share() {
        let [a, b, c] = ["a", "b", "ab"].map(|name| format!(".visible .entry {name}(\n)\n{{\n\tret;\n}}\n"));
        let shared = ".version 7.8\n.func f()\n{\n}\n";
        for (name, kernel) in [("a", &a), ("b", &b), ("ab", &c)] {
            assert_eq!(only(&format!("{shared}{a}{b}{c}"), name), format!("{shared}{kernel}"));
        }
    }
}
