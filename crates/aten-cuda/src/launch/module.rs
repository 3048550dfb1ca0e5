//! From the text of a kernel to its module: machine code where the crate brings some along, else the driver compiles.
//!
//! Compiling takes the driver ten milliseconds and more for each text. The crate has machine code of the
//! commonest kernels, made ahead of time for two architectures (`kernels/machine`). It is found by the
//! fingerprint of the text, so it is used for exactly that text or not at all. What the driver makes of fused programs is
//! kept on disk for later processes, by the driver or else here.
//!
//! **Invariants:** a pack is a header, entries sorted by fingerprint, and the images one after another; all of it is
//! made by `cargo xtask kernels --write`.
//!
//! # Safety
//! The images are whole: the assembler made them, and the pack tells their lengths; or the driver made them, and those of
//! disk were compared with their length and hash.
#![expect(unsafe_code, reason = "loads machine code that the crate brings along, and what the driver made")]

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use c10_core::{DeviceIndex, Error, Module, Runtime, TextSteps};
use kernel_ir::is_long;

use crate::base::error::Result;
use crate::raw::{self, FileKey, Stored, fingerprint};

/// The text of a kernel that was compiled.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{DType, Tensor, kernel_texts};
///
/// let texts = kernel_texts(|| Tensor::ones(&[8], DType::F32, "cuda").map(drop))?;
/// assert!(texts[0].text.contains(".visible .entry"));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelText {
    /// The kernel's name.
    pub name: String,
    /// The PTX.
    pub text: String,
}

impl KernelText {
    /// What names the text among the machine code that the crate brings along.
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        fingerprint(self.text.as_bytes())
    }

    /// Whether the crate brings machine code along for this text and devices of this major compute capability.
    #[must_use]
    pub fn has_machine_code(&self, major: u32) -> bool {
        image(&self.text, major).is_some()
    }
}

/// The text of a kernel as it is written.
#[derive(Debug)]
pub(super) struct Written {
    /// The PTX.
    pub(super) text: String,
    /// Where that is long: one that does the same and is compiled sooner, and how many times as many threads its blocks have.
    pub(super) sooner: Option<(String, u32)>,
}

impl From<String> for Written {
    fn from(text: String) -> Self {
        let sooner = is_long(&text).then(|| (text.clone(), 1));
        Self { text, sooner }
    }
}

impl Written {
    fn steps(&self) -> Option<TextSteps<'_>> {
        let (first, block_factor) = self.sooner.as_ref()?;
        Some(TextSteps { first, block_factor: *block_factor, last: &self.text })
    }
}

thread_local! {
    static TEXTS: RefCell<Option<Vec<KernelText>>> = const { RefCell::new(None) };
}

/// The texts that are compiled for the calling thread while `f` runs. A kernel that the runtime has already is not
/// compiled again.
///
/// # Errors
/// That of `f`.
pub fn kernel_texts(f: impl FnOnce() -> Result<()>) -> Result<Vec<KernelText>> {
    let outer = TEXTS.replace(Some(Vec::new()));
    let done = f();
    let texts = TEXTS.replace(outer).unwrap_or_default();
    done.map(|()| texts)
}

/// Whether the driver of a runtime has said that machine code is not for its devices, as one that simulates them does. It
/// is not asked again.
#[derive(Debug, Default)]
struct Refusals {
    has_refused: AtomicBool,
}

/// [`kernel_texts`] as they are written for compute capability `target`, as 10 * major + minor, whatever the current device
/// has. For a runtime that has compiled nothing yet and is for this alone: its kernels stay those of that capability.
///
/// # Errors
/// That of `f`, or the runtime cannot start.
pub fn kernel_texts_for(target: u32, f: impl FnOnce() -> Result<()>) -> Result<Vec<KernelText>> {
    Runtime::with_current(|runtime| {
        super::device::write_for(runtime, runtime.current_device()?, target);
        Ok::<_, Error>(())
    })?;
    kernel_texts(f)
}

/// Loads the module of a text.
pub(super) fn load(runtime: &Runtime, device: DeviceIndex, name: &str, text: &str) -> c10_core::Result<Module> {
    note(name, text);
    let (major, _) = runtime.devices().capability(device)?;
    let refusals = runtime.extension::<Refusals>();
    if !refusals.has_refused.load(Ordering::Relaxed)
        // A simulated driver would report each attempt as misuse.
        && !runtime.is_simulated()
        && let Some(image) = image(text, u32::try_from(major).unwrap_or(0))
    {
        // SAFETY: the image is whole, see above.
        match unsafe { Module::from_image(runtime, device, image) } {
            Err(Error::Module(error)) if error.accelerator().is_some_and(|error| error.error_code() == NO_BINARY) => {
                refusals.has_refused.store(true, Ordering::Relaxed);
            }
            loaded => return loaded,
        }
    }
    Module::from_ptx(runtime, device, text)
}

/// As [`load`], for texts of fused programs, which are of one user alone. Where the driver keeps nothing of what it has
/// compiled, that is kept in the folder of compiled kernels ([`raw::cache_folder`]), and found there by later processes.
/// The driver's own cache is better: machine code can only be had of its linker, which gives some kernels more registers.
/// What cannot be kept or read, or is refused, is compiled as if there were no folder.
///
/// A long text is compiled in steps ([`Module::from_ptx_in_steps`]), whose outcome the folder keeps in any case.
pub(super) fn load_kept(
    runtime: &Runtime,
    device: DeviceIndex,
    name: &str,
    written: &Written,
) -> c10_core::Result<Module> {
    let text = written.text.as_str();
    note(name, text);
    let refusals = runtime.extension::<Refusals>();
    let has_folder = !refusals.has_refused.load(Ordering::Relaxed) && raw::cache_folder().is_some();
    if !has_folder || (driver_keeps_code() && written.sooner.is_none()) {
        return compiled(runtime, device, written, |_| {});
    }
    let place = KeptPlace::of(runtime, device, name, text)?;
    // SAFETY: the code is what the driver has made, as its length and hash say.
    let loaded = |code: &[u8]| unsafe { Module::from_image(runtime, device, code) };
    if let Some(stored) = raw::read_kept(&place.key())
        && let Ok(module) = loaded(&stored.code)
    {
        return Ok(module);
    }
    if written.sooner.is_some() {
        return compiled(runtime, device, written, move |code| place.keep(code));
    }
    let Ok(code) = Module::compile_ptx(runtime, device, text) else { return Module::from_ptx(runtime, device, text) };
    let Ok(module) = loaded(&code) else { return Module::from_ptx(runtime, device, text) };
    place.keep(&code);
    Ok(module)
}

/// Where the code of a text is kept on disk.
struct KeptPlace {
    name: String,
    text: String,
    architecture: String,
    compiler: String,
}

impl KeptPlace {
    fn of(runtime: &Runtime, device: DeviceIndex, name: &str, text: &str) -> c10_core::Result<Self> {
        let (major, minor) = runtime.devices().capability(device)?;
        let version = runtime.driver_version()?.0;
        let architecture = format!("{major}.{minor}");
        let compiler = format!("driver{}.{}", version / 1000, version % 1000 / 10);
        Ok(Self { name: name.to_owned(), text: text.to_owned(), architecture, compiler })
    }

    fn key(&self) -> FileKey<'_> {
        let (architecture, compiler) = (self.architecture.clone(), self.compiler.clone());
        FileKey { name: &self.name, architecture, compiler, is_machine: true, text: &self.text }
    }

    fn keep(&self, code: &[u8]) {
        raw::keep(&self.key(), &Stored { code: code.to_vec(), names: vec![self.name.clone()] });
    }
}

/// Has the driver compile a text, a long one in steps. Machine code that comes of those is given to `made`.
fn compiled(
    runtime: &Runtime,
    device: DeviceIndex,
    written: &Written,
    made: impl FnOnce(&[u8]) + Send + 'static,
) -> c10_core::Result<Module> {
    match written.steps() {
        Some(steps) => Module::from_ptx_in_steps(runtime, device, steps, made),
        None => Module::from_ptx(runtime, device, &written.text),
    }
}

/// Whether the driver keeps what it compiles on disk, as it does unless it is told otherwise.
fn driver_keeps_code() -> bool {
    std::env::var_os("CUDA_CACHE_DISABLE").is_none_or(|value| value != "1")
}

fn note(name: &str, text: &str) {
    TEXTS.with_borrow_mut(|texts| {
        let texts = texts.iter_mut();
        texts.for_each(|texts| texts.push(KernelText { name: name.to_owned(), text: text.to_owned() }));
    });
}

/// `CUDA_ERROR_NO_BINARY_FOR_GPU`.
const NO_BINARY: u32 = 209;

/// The machine code of a text for devices of this major compute capability.
fn image(text: &str, major: u32) -> Option<&'static [u8]> {
    let pack: &'static [u8] = match major {
        8 => &SM_80.0,
        9 => &SM_90.0,
        _ => return None,
    };
    let entries = entries(pack);
    let wanted = fingerprint(text.as_bytes());
    let at = entries.binary_search_by_key(&wanted, |entry| u128::from_le_bytes(field(entry, 0))).ok()?;
    let place = |from| usize::try_from(u64::from_le_bytes(field(&entries[at], from))).ok();
    let (start, len) = (place(16)?, place(24)?);
    pack.get(start..start.checked_add(len)?)
}

/// Machine code at an address where its words are aligned.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

static SM_80: &Aligned<[u8]> = &Aligned(*include_bytes!("../../kernels/machine/sm_80.bin"));
static SM_90: &Aligned<[u8]> = &Aligned(*include_bytes!("../../kernels/machine/sm_90.bin"));

/// Bytes of an entry: its fingerprint, where its image begins in the pack, and the image's length.
const ENTRY: usize = 32;

/// The entries of a pack; the first 16 bytes are their number.
fn entries(pack: &[u8]) -> &[[u8; ENTRY]] {
    let Some((count, rest)) = pack.split_first_chunk::<16>() else { return &[] };
    let count = usize::try_from(u128::from_le_bytes(*count)).unwrap_or(0);
    rest.as_chunks().0.get(..count).unwrap_or(&[])
}

/// Some bytes of an entry.
fn field<const BYTES: usize>(entry: &[u8; ENTRY], from: usize) -> [u8; BYTES] {
    entry[from..].first_chunk().copied().unwrap_or([0; BYTES])
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, SM_80, SM_90, entries, field, fingerprint};

    #[test]
    fn the_fingerprint_is_fnv_1a() {
        // From the authors' test vectors.
        assert_eq!(fingerprint(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fingerprint(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn a_pack_is_sorted_and_holds_machine_code_alone() {
        for pack in [&SM_80.0, &SM_90.0] {
            let entries = entries(pack);
            assert!(entries.len() > 100, "{}", entries.len());
            let names: Vec<u128> = entries.iter().map(|entry| u128::from_le_bytes(field(entry, 0))).collect();
            assert!(names.is_sorted());
            let mut end = 16 + entries.len() * ENTRY;
            let mut places: Vec<[u64; 2]> =
                entries.iter().map(|entry| [16, 24].map(|from| u64::from_le_bytes(field(entry, from)))).collect();
            places.sort_unstable();
            for place in places {
                let [start, len] = place.map(|number| usize::try_from(number).unwrap());
                assert!(start >= end && start % 16 == 0);
                assert!(pack[start..start + len].starts_with(b"\x7fELF"));
                end = start + len;
            }
            assert_eq!(end, pack.len());
        }
    }
}
