//! Driver calls that fail, and functions that a driver lacks.

use std::fmt;

use cuda_sys::{CUresult, CallError, CudaVersion, DriverError};

use crate::base::error::Error;

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

/// A driver call that was answered with an error.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::Runtime;
///
/// let error = Runtime::current().set_device(9).unwrap_err();
/// let failed = error.accelerator().expect("the driver refused the device");
/// assert_eq!((failed.call(), failed.error_code()), ("cuDeviceGet", 101));
/// assert_eq!((failed.name(), failed.context_is_lost()), (Some("CUDA_ERROR_INVALID_DEVICE"), false));
/// ```
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

/// Codes that do not tell whether the call itself is the cause.
const UNEXPLAINED: &[CUresult] = &[CUresult::CUDA_ERROR_UNKNOWN];

/// Codes after which every call in the context fails with the same code.
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

/// Whether `CUDA_LAUNCH_BLOCKING` makes launches wait. Advising it makes no sense then.
pub(crate) fn launch_blocking() -> bool {
    std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| is_switched_on(&value))
}

/// Reads a variable as C's `atoi` does: `1x` is a 1, `yes` is a 0.
fn is_switched_on(value: &str) -> bool {
    let value = value.trim_start();
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    digits.chars().take_while(char::is_ascii_digit).any(|digit| digit != '0')
}

/// The driver lacks a function.
///
/// ```
/// # testkit::make_default(testkit::Config::default().driver_version(testkit::CudaVersion(12000))).unwrap();
/// use c10_core::{CUDAGraph, CaptureMode, Error, Stream};
///
/// let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
/// let refused = graph.record(&stream, None, CaptureMode::Global, |scope| scope.condition(0).map(drop));
/// let Err(Error::Unavailable(missing)) = refused else { panic!("the driver is too old for conditions") };
/// assert_eq!((missing.needs, missing.found), (12030, 12000));
/// # Ok::<(), c10_core::Error>(())
/// ```
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
    use crate::base::error::StartError;

    #[test]
    fn debug_is_the_message_and_the_call() {
        assert_eq!(format!("{:?}", Error::Start(StartError::NoDevices)), "No CUDA GPUs are available");
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
