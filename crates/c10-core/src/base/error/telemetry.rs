//! Why NVML did not tell what a device does.

use cuda_sys::{CallError, LoadError, NvmlError, nvmlReturn_t};

use crate::base::error::Error;

/// Why NVML did not tell what a device does.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, Runtime, TelemetryError};
///
/// let refused = Runtime::current().telemetry().temperature(0).unwrap_err();
/// assert!(matches!(refused, Error::Telemetry(TelemetryError::Missing { .. })));
/// assert!(refused.to_string().ends_with("this runtime was made without NVML"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// NVML, which tells what devices do, could not be loaded.
    #[error("NVML, which tells what devices do, cannot be loaded. It comes with the NVIDIA driver.\n{reason}")]
    Missing {
        /// What was tried.
        #[source]
        reason: Box<NvmlMissing>,
    },
    /// NVML found no driver at work.
    #[error("cuda driver can't be loaded, is cuda enabled?")]
    DriverNotLoaded,
    /// A call to NVML failed; torch passes pynvml's `NVMLError` on.
    #[error("{} ({call}: {:?})", nvml_text(*.code), nvmlReturn_t(*.code))]
    Failed {
        /// The C function.
        call: &'static str,
        /// NVML's code.
        code: u32,
    },
    /// `CUDA_VISIBLE_DEVICES` names identities of devices, and NVML does not tell them.
    #[error("Can't get device UUIDs")]
    NoUuids,
}

/// Why there is no NVML.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, NvmlMissing, Runtime, TelemetryError};
///
/// let refused = Runtime::current().telemetry().raw_device_count();
/// let Err(Error::Telemetry(TelemetryError::Missing { reason })) = refused else { panic!("no NVML was given") };
/// assert_eq!(*reason, NvmlMissing::NotGiven);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmlMissing {
    /// The runtime is on a driver that was given to it, and no NVML was.
    #[error("this runtime was made without NVML")]
    NotGiven,
    /// It could not be loaded.
    #[error(transparent)]
    Load(LoadError),
}

impl From<NvmlMissing> for Error {
    fn from(missing: NvmlMissing) -> Self {
        Self::Telemetry(TelemetryError::Missing { reason: Box::new(missing) })
    }
}

impl From<NvmlError> for Error {
    fn from(error: NvmlError) -> Self {
        match error {
            CallError::Failed { status: nvmlReturn_t::NVML_ERROR_DRIVER_NOT_LOADED, .. } => {
                Self::Telemetry(TelemetryError::DriverNotLoaded)
            }
            CallError::Failed { call, status } => Self::Telemetry(TelemetryError::Failed { call, code: status.0 }),
            CallError::Missing(missing) => Self::Telemetry(TelemetryError::Failed {
                call: missing.function.symbol,
                code: nvmlReturn_t::NVML_ERROR_FUNCTION_NOT_FOUND.0,
            }),
        }
    }
}

fn nvml_text(code: u32) -> &'static str {
    nvmlReturn_t(code).text().unwrap_or("Unknown Error")
}
