//! Whether the devices of a runtime run the code of a program, and the warnings if they do not.

use crate::base::arch::{CheckedDevice, CompatTable, UnsupportedCode, UnsupportedCubins};
use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::loading::ModuleLoading;
use crate::runtime::Runtime;

impl CheckedDevice {
    /// A device of a runtime. Starts the runtime.
    ///
    /// # Errors
    /// [`crate::DeviceError::InvalidId`] for a device that does not exist, or the driver's error.
    pub fn of(runtime: &Runtime, index: DeviceIndex) -> Result<Self> {
        let (major, minor) = runtime.devices().capability(index)?;
        let capability = u32::try_from(major * 10 + minor).unwrap_or(0);
        Ok(Self { index, name: runtime.devices().name(index)?, capability })
    }

    /// Every device of a runtime. Starts the runtime.
    ///
    /// # Errors
    /// The runtime cannot start, or the driver's error.
    pub fn all(runtime: &Runtime) -> Result<Vec<Self>> {
        let devices = (0..).map(DeviceIndex).take(runtime.ready()?.api.device_count());
        devices.map(|index| Self::of(runtime, index)).collect()
    }
}

impl ModuleLoading {
    /// Asks the driver when it loads the functions of a module. The environment variable `CUDA_MODULE_LOADING` decides
    /// (`LAZY` or `EAGER`), which the driver reads when it starts. Torch sets it to `LAZY` up to its version 2.8; drivers do
    /// so by themselves from CUDA 12.2 on, and this library leaves the environment alone. Starts the runtime.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{ModuleLoading, Runtime};
    /// assert_eq!(ModuleLoading::of(&Runtime::current())?, ModuleLoading::Lazy);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The runtime cannot start, or the driver's error.
    pub fn of(runtime: &Runtime) -> Result<Self> {
        runtime.ready()?.api.loading_mode()
    }
}

impl CompatTable {
    /// Compares a program's code with every device of a runtime, and warns of each device that runs none of it; torch's
    /// `_check_capability`. The warnings are also returned.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{CompatTable, Runtime};
    ///
    /// let table = CompatTable::default();
    /// assert_eq!(table.check_devices(&Runtime::current(), &["sm_80", "sm_90"])?, []);
    /// let old = table.check_devices(&Runtime::current(), &["sm_80"])?;
    /// assert!(old[0].to_string().contains("- 8.0 which supports hardware CC >=8.0,<9.0 except {8.7}"));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::DeviceError::InvalidArch`] for a name that is no architecture; the runtime cannot start; the driver's error.
    pub fn check_devices(&self, runtime: &Runtime, arch_list: &[impl AsRef<str>]) -> Result<Vec<UnsupportedCode>> {
        let devices = CheckedDevice::all(runtime)?;
        let found = devices.iter().filter_map(|device| self.check(device, arch_list).transpose());
        let found: Vec<UnsupportedCode> = found.collect::<Result<_>>()?;
        found.iter().for_each(|unsupported| tracing::warn!("{unsupported}"));
        Ok(found)
    }
}

impl UnsupportedCubins {
    /// Compares machine code with every device of a runtime by major number, and warns of each device without any;
    /// torch's `_check_cubins`. The warnings are also returned.
    ///
    /// # Errors
    /// As for [`CompatTable::check_devices`].
    pub fn check_devices(runtime: &Runtime, arch_list: &[impl AsRef<str>]) -> Result<Vec<Self>> {
        let devices = CheckedDevice::all(runtime)?;
        let found = devices.iter().filter_map(|device| Self::check(device, arch_list).transpose());
        let found: Vec<Self> = found.collect::<Result<_>>()?;
        found.iter().for_each(|unsupported| tracing::warn!("{unsupported}"));
        Ok(found)
    }
}

/// Warns that a device runs none of the code for these compute capabilities; torch's `_warn_unsupported_code`. The
/// warning is also returned.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CompatTable, Runtime, warn_unsupported_code};
///
/// let warned = warn_unsupported_code(&Runtime::current(), 0, 61, &[90], &CompatTable::default())?;
/// assert!(warned.to_string().contains("- 9.0 which supports hardware CC >=9.0,<10.0"));
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// The device does not exist; the runtime cannot start; the driver's error.
pub fn warn_unsupported_code(
    runtime: &Runtime,
    device: DeviceIndex,
    device_cc: u32,
    code_ccs: &[u32],
    table: &CompatTable,
) -> Result<UnsupportedCode> {
    let device = CheckedDevice { capability: device_cc, ..CheckedDevice::of(runtime, device)? };
    let unsupported = table.unsupported(&device, code_ccs);
    tracing::warn!("{unsupported}");
    Ok(unsupported)
}

/// Warns if a table has no rule for code of this compute capability. Returns whether it warned.
///
/// ```
/// use c10_core::{CompatTable, warn_unknown_code};
///
/// let table = CompatTable::default();
/// assert!(warn_unknown_code(99, &table) && !warn_unknown_code(90, &table));
/// ```
pub fn warn_unknown_code(code_cc: u32, table: &CompatTable) -> bool {
    let unknown = !table.knows(code_cc);
    if unknown {
        tracing::warn!(
            "this program was compiled with an unknown compute capability {}.{}",
            code_cc / 10,
            code_cc % 10
        );
    }
    unknown
}

#[cfg(test)]
mod tests {
    use crate::base::arch::{ARCH_LIST, extract_arch_version};

    #[test]
    fn our_own_kernels_are_of_the_architecture_that_is_listed() {
        assert_eq!(ARCH_LIST.len(), 1);
        let target = format!(".target sm_{}\n", extract_arch_version(ARCH_LIST[0]).unwrap());
        for text in [include_str!("launch/sleep.rs"), include_str!("launch/condition.rs")] {
            assert!(text.contains(&target));
        }
    }
}
