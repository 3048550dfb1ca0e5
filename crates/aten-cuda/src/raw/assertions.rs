//! Assertions in kernels of the user's own: `CUDA_KERNEL_ASSERT2(condition)`, torch's macro.
//!
//! With `PYTORCH_USE_CUDA_DSA` set to anything but 0, a thread for which a condition does not hold writes that down in pinned
//! memory and leaves its function. Whatever next waits for the device finds it there and returns it as an error; the device
//! can be used on. Without the variable such a thread stops the kernel, which the driver reports as a fault.
//!
//! **Invariant:** the memory of a device's reports lives as long as its runtime, since its address is part of kernels' texts.
//! These are not kept on disk.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};

use c10_core::locks::{Mutex, MutexGuard};
use c10_core::{DeviceAssertionError, DeviceIndex, PinnedBuffer, Runtime};

use crate::base::error::{Error, Result};
use crate::base::jit_error::{DeviceAssertion, DeviceAssertions, JitError};

/// The macro's name.
const MACRO: &str = "CUDA_KERNEL_ASSERT2";

/// What stands before texts that use the macro.
const REPORTING: &str = include_str!("assertions.cuh");

/// The same where nobody reads reports.
const TRAPPING: &str =
    "#define CUDA_KERNEL_ASSERT2(condition) do { if (!(condition)) asm volatile(\"trap;\"); } while (0)\n";

/// Failures that are kept until somebody reads them.
const MOST: usize = 10;
/// Bytes of the texts of a failure: its condition, its function, its kernel.
const TEXTS: [usize; 3] = [128, 64, 64];
/// Bytes of a failure: 8 words and its texts.
const FAILURE: usize = 32 + TEXTS[0] + TEXTS[1] + TEXTS[2];
/// Bytes of a slot: the number of failures, a word that is not used, and the failures.
const BYTES: usize = 8 + MOST * FAILURE;

/// The slots of a runtime.
#[derive(Default)]
struct Slots(Mutex<HashMap<DeviceIndex, Arc<PinnedBuffer>>>);

/// A text that uses the macro, with what it needs before it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) text: String,
    /// Whether it holds an address of this process.
    pub(super) is_of_process: bool,
}

/// The text with the macro's definition before it, if it uses the macro.
///
/// # Errors
/// There is no pinned memory for reports.
pub(super) fn prepare(runtime: &Runtime, device: DeviceIndex, name: &str, text: &str) -> Result<Option<Prepared>> {
    if !text.contains(MACRO) {
        return Ok(None);
    }
    let is_of_process = std::env::var_os("PYTORCH_USE_CUDA_DSA").is_some_and(|value| value != "0");
    let mut before = String::new();
    if is_of_process {
        let address = slot(runtime, device)?.address();
        let _ = writeln!(before, "#define ATEN_CUDA_ASSERTIONS {address:#x}ull");
        let _ = writeln!(before, "#define ATEN_CUDA_KERNEL {name:?}");
        before.push_str(REPORTING);
    } else {
        before.push_str(TRAPPING);
    }
    Ok(Some(Prepared { text: format!("{before}#line 1 {name:?}\n{text}"), is_of_process }))
}

/// The memory of a device's reports.
fn slot(runtime: &Runtime, device: DeviceIndex) -> Result<Arc<PinnedBuffer>> {
    let slots = runtime.extension::<Slots>();
    if let Some(known) = slots.lock().get(&device) {
        return Ok(Arc::clone(known));
    }
    let made = runtime.pinned().buffer(BYTES)?;
    made.write(0, &[0; BYTES])?;
    let mut known = slots.lock();
    if known.is_empty() {
        let slots = Arc::clone(&slots);
        runtime.check_after_waiting(move |device| slots.found(device));
    }
    Ok(Arc::clone(known.entry(device).or_insert_with(|| Arc::new(made))))
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, HashMap<DeviceIndex, Arc<PinnedBuffer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What kernels of the device have reported since it was last asked.
    fn found(&self, device: DeviceIndex) -> Option<DeviceAssertionError> {
        let slot = self.lock().get(&device).cloned()?;
        let found = taken(&slot, device)?;
        let first = found.failures.first();
        Some(DeviceAssertionError {
            device,
            operation: MACRO,
            element: first.map_or(0, |first| first.line.into()),
            value: first.map_or(String::new(), |first| first.message.clone()),
            found: Arc::new(Error::from(JitError::Assertions(found))),
        })
    }
}

/// Empties a slot that holds failures.
fn taken(slot: &PinnedBuffer, device: DeviceIndex) -> Option<DeviceAssertions> {
    let mut bytes = vec![0; BYTES];
    slot.read(0, &mut bytes).ok()?;
    let count = word(&bytes, 0);
    if count == 0 {
        return None;
    }
    slot.write(0, &[0; BYTES]).ok()?;
    let (failures, _) = bytes[8..].as_chunks::<FAILURE>();
    let failures = failures.iter().take(count as usize).filter(|failure| word(&failure[..], 1) == 1);
    Some(DeviceAssertions { device, count, failures: failures.map(failure_of).collect() })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(4 * at..4 * at + 4).map_or(0, bytemuck::pod_read_unaligned)
}

fn failure_of(bytes: &[u8; FAILURE]) -> DeviceAssertion {
    let words = |from: usize| [from, from + 1, from + 2].map(|at| word(bytes, at));
    let text = |at: usize| {
        let begin = 32 + TEXTS[..at].iter().sum::<usize>();
        let field = &bytes[begin..begin + TEXTS[at]];
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).into_owned()
    };
    DeviceAssertion {
        message: text(0),
        function: text(1),
        kernel: text(2),
        line: word(bytes, 0),
        block: words(2),
        thread: words(5),
    }
}
