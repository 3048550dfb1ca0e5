//! Which devices can run code that was compiled for an architecture.
//!
//! Pure data. A compute capability is written as torch writes it: 10 * major + minor, so 9.0 is 90. An architecture is
//! `sm_90` for machine code, which devices of the same major number run with few exceptions, or `compute_90` for PTX,
//! which the driver compiles for every newer device.
//!
//! **Invariant:** a rule never accepts a device whose capability is below that of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::base::device::DeviceIndex;
use crate::base::error::DeviceError;
use crate::base::error::{Error, Result};

/// The architectures of the kernels that this library carries, all of them PTX; torch's `get_arch_list`.
pub const ARCH_LIST: &[&str] = &["compute_75"];

/// What stands before the number in the name of PTX's architectures.
const PTX: &str = "compute_";

/// What stands before the number in the name of machine code's architectures.
const BINARY: &str = "sm_";

/// The compute capability in an architecture's name, 90 for `sm_90`, `sm_90a` and `compute_90`; torch's
/// `_extract_arch_version`.
///
/// ```
/// assert_eq!(c10_core::extract_arch_version("sm_90a")?, 90);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// [`crate::DeviceError::InvalidArch`] for a text that is no kind, a `_` and a number.
pub fn extract_arch_version(arch: &str) -> Result<u32> {
    let number = arch.split_once('_').map(|(_, number)| number.strip_suffix(['a', 'f']).unwrap_or(number));
    let digits = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| Error::Device(DeviceError::InvalidArch { text: arch.to_owned() }))
}

/// The compiler flags that name these architectures; torch's `get_gencode_flags`. Empty for an empty list.
///
/// ```
/// assert_eq!(c10_core::gencode_flags(&["sm_90"])?, "-gencode compute=compute_90,code=sm_90");
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// [`crate::DeviceError::InvalidArch`] for the first name that is none.
pub fn gencode_flags(arch_list: &[impl AsRef<str>]) -> Result<String> {
    let flag = |arch: &str| match arch.split_once('_') {
        Some((kind, number)) => Ok(format!("-gencode compute=compute_{number},code={kind}_{number}")),
        None => Err(Error::Device(DeviceError::InvalidArch { text: arch.to_owned() })),
    };
    let flags: Vec<String> = arch_list.iter().map(|arch| flag(arch.as_ref())).collect::<Result<_>>()?;
    Ok(flags.join(" "))
}

/// Devices of one major number from a capability on, but for some; torch's `_CompatInterval`.
///
/// `Display` writes it as torch does: `>=8.0,<9.0 except {8.7}`.
///
/// ```
/// use c10_core::CompatInterval;
///
/// let devices = CompatInterval::new(80, [87]);
/// assert!(devices.contains(86) && !devices.contains(87) && !devices.contains(90));
/// assert_eq!(devices.to_string(), ">=8.0,<9.0 except {8.7}");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompatInterval {
    /// The lowest capability.
    pub start: u32,
    /// Capabilities that are left out.
    pub exclude: BTreeSet<u32>,
}

impl CompatInterval {
    /// Devices from `start` to the next major number, but for `exclude`.
    pub fn new(start: u32, exclude: impl IntoIterator<Item = u32>) -> Self {
        Self { start, exclude: exclude.into_iter().collect() }
    }

    /// Whether a device of this capability is one of them.
    #[must_use]
    pub fn contains(&self, device_cc: u32) -> bool {
        let same_major = device_cc / 10 == self.start / 10;
        same_major && device_cc >= self.start && !self.exclude.contains(&device_cc)
    }
}

impl fmt::Display for CompatInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ">={},<{}", Dotted(self.start), Dotted((self.start / 10 + 1) * 10))?;
        if self.exclude.is_empty() { Ok(()) } else { write!(f, " except {}", Braced(&self.exclude)) }
    }
}

/// Devices of just these capabilities; torch's `_CompatSet`.
///
/// `Display` writes it as torch does: `{10.1, 11.0}`.
///
/// ```
/// use c10_core::CompatSet;
///
/// let devices = CompatSet::new([101, 110]);
/// assert!(devices.contains(110) && !devices.contains(100));
/// assert_eq!(devices.to_string(), "{10.1, 11.0}");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompatSet {
    /// The capabilities.
    pub values: BTreeSet<u32>,
}

impl CompatSet {
    /// Devices of these capabilities.
    pub fn new(values: impl IntoIterator<Item = u32>) -> Self {
        Self { values: values.into_iter().collect() }
    }

    /// Whether a device of this capability is one of them.
    #[must_use]
    pub fn contains(&self, device_cc: u32) -> bool {
        self.values.contains(&device_cc)
    }
}

impl fmt::Display for CompatSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Braced(&self.values).fmt(f)
    }
}

/// The devices that run machine code of one architecture.
///
/// ```
/// use c10_core::{Compat, CompatTable};
///
/// let devices = CompatTable::default().devices_for(72);
/// assert!(matches!(devices, Compat::Set(_)));
/// assert!(devices.contains(72) && !devices.contains(75));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compat {
    /// Those of its major number, from its own capability on.
    Interval(CompatInterval),
    /// Those that are listed.
    Set(CompatSet),
}

impl Compat {
    /// Whether a device of this capability is one of them.
    #[must_use]
    pub fn contains(&self, device_cc: u32) -> bool {
        match self {
            Self::Interval(interval) => interval.contains(device_cc),
            Self::Set(set) => set.contains(device_cc),
        }
    }
}

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval(interval) => interval.fmt(f),
            Self::Set(set) => set.fmt(f),
        }
    }
}

/// Which devices run machine code of which architectures, and which CUDA releases compile for them.
///
/// [`CompatTable::default`] is torch's table. A program that was compiled otherwise fills one of its own.
///
/// ```
/// use c10_core::CompatTable;
/// let table = CompatTable::default();
/// assert!(table.code_compatible_with_device(86, 80));
/// assert!(!table.code_compatible_with_device(87, 80), "the integrated device of that family has code of its own");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompatTable {
    /// By the code's compute capability.
    pub rules: BTreeMap<u32, Compat>,
    /// A release's name, and the compute capabilities it has code for.
    pub releases: Vec<(String, BTreeSet<u32>)>,
}

impl CompatTable {
    /// Whether machine code for `code_cc` runs on a device of `device_cc`; torch's `_code_compatible_with_device`. Of code
    /// that the table does not name only the major number is compared.
    #[must_use]
    pub fn code_compatible_with_device(&self, device_cc: u32, code_cc: u32) -> bool {
        self.devices_for(code_cc).contains(device_cc)
    }

    /// Whether the table has a rule for this code.
    #[must_use]
    pub fn knows(&self, code_cc: u32) -> bool {
        self.rules.contains_key(&code_cc)
    }

    /// The devices that run machine code for `code_cc`.
    #[must_use]
    pub fn devices_for(&self, code_cc: u32) -> Compat {
        let plain = || Compat::Interval(CompatInterval::new(code_cc, []));
        self.rules.get(&code_cc).cloned().unwrap_or_else(plain)
    }

    /// The releases that have code for a device.
    #[must_use]
    pub fn releases_for(&self, device_cc: u32) -> Vec<&str> {
        let runs =
            |code: &BTreeSet<u32>| code.iter().any(|code_cc| self.code_compatible_with_device(device_cc, *code_cc));
        self.releases.iter().filter(|(_, code)| runs(code)).map(|(name, _)| name.as_str()).collect()
    }

    /// What a program with code for these architectures has to be told of a device, if it cannot run on it. PTX of an
    /// architecture serves every device that is not older.
    ///
    /// # Errors
    /// [`crate::DeviceError::InvalidArch`] for a name that is no architecture.
    pub fn check(&self, device: &CheckedDevice, arch_list: &[impl AsRef<str>]) -> Result<Option<UnsupportedCode>> {
        let mut code_ccs = Vec::new();
        for arch in arch_list {
            let code_cc = extract_arch_version(arch.as_ref())?;
            if arch.as_ref().starts_with(PTX) && code_cc <= device.capability {
                return Ok(None);
            }
            code_ccs.push(code_cc);
        }
        let runs = code_ccs.iter().any(|code_cc| self.code_compatible_with_device(device.capability, *code_cc));
        Ok((!runs).then(|| self.unsupported(device, &code_ccs)))
    }

    /// What is to be said of a device that code for these capabilities does not run on.
    #[must_use]
    pub fn unsupported(&self, device: &CheckedDevice, code_ccs: &[u32]) -> UnsupportedCode {
        UnsupportedCode {
            device: device.clone(),
            code: code_ccs.iter().map(|code_cc| (*code_cc, self.devices_for(*code_cc))).collect(),
            releases: self.releases_for(device.capability).into_iter().map(str::to_owned).collect(),
        }
    }
}

impl Default for CompatTable {
    fn default() -> Self {
        let alone = [53, 62, 72, 87].map(|code| (code, Compat::Set(CompatSet::new([code]))));
        let other = [(101, Compat::Set(CompatSet::new([101, 110])))];
        let without =
            |code, exclude: &[u32]| (code, Compat::Interval(CompatInterval::new(code, exclude.iter().copied())));
        let but_integrated = [(50, 53), (52, 53), (60, 62), (61, 62), (70, 72), (80, 87), (86, 87), (100, 101)];
        let but_integrated = but_integrated.map(|(code, integrated)| without(code, &[integrated]));
        let plain = [75, 89, 90, 103, 110, 120, 121].map(|code| without(code, &[]));
        let rules = alone.into_iter().chain(other).chain(but_integrated).chain(plain).collect();
        let releases: [(&str, &[u32]); 3] = [
            ("12.6", &[50, 60, 70, 80, 86, 90]),
            ("12.8", &[70, 80, 86, 90, 100, 120]),
            ("13.0", &[75, 80, 86, 90, 100, 110, 120]),
        ];
        let releases = releases.map(|(name, code)| (name.to_owned(), code.iter().copied().collect()));
        Self { rules, releases: releases.into() }
    }
}

/// A device as the checks of this file need it.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CheckedDevice, CompatTable, Runtime};
///
/// let device = CheckedDevice::of(&Runtime::current(), 0)?;
/// assert_eq!(CompatTable::default().check(&device, &["compute_50"])?, None, "the driver compiles PTX for it");
/// let old = CheckedDevice { index: 1, name: "Old GPU".to_owned(), capability: 61 };
/// assert_eq!(old.to_string(), "GPU1 Old GPU (6.1)");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedDevice {
    /// Its number.
    pub index: DeviceIndex,
    /// Its name.
    pub name: String,
    /// Its compute capability: 10 * major + minor.
    pub capability: u32,
}

impl fmt::Display for CheckedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU{} {} ({})", self.index, self.name, Dotted(self.capability))
    }
}

/// A device that the program's code does not run on. `Display` writes torch's warning.
///
/// ```
/// use c10_core::{CheckedDevice, CompatTable};
///
/// let device = CheckedDevice { index: 0, name: "Old GPU".to_owned(), capability: 61 };
/// let unsupported = CompatTable::default().check(&device, &["sm_90"])?.expect("the device is older than the code");
/// assert_eq!(unsupported.releases, ["12.6"]);
/// assert!(unsupported.to_string().starts_with("Found GPU0 Old GPU which is of compute capability (CC) 6.1."));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UnsupportedCode {
    /// The device.
    pub device: CheckedDevice,
    /// The capabilities of the program's code, each with the devices that run it.
    pub code: Vec<(u32, Compat)>,
    /// CUDA releases that have code for the device.
    pub releases: Vec<String>,
}

impl fmt::Display for UnsupportedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckedDevice { index, name, capability } = &self.device;
        writeln!(f, "Found GPU{index} {name} which is of compute capability (CC) {}.", Dotted(*capability))?;
        f.write_str("The code was compiled for these CCs:")?;
        for (code_cc, devices) in &self.code {
            write!(f, "\n- {} which supports hardware CC {devices}", Dotted(*code_cc))?;
        }
        if self.releases.is_empty() {
            return Ok(());
        }
        let releases = self.releases.join(", ");
        write!(f, "\nTo use this GPU, install a PyTorch release that supports one of these CUDA versions: {releases}")
    }
}

/// A device for which there is no machine code of its major number. `Display` writes torch's warning.
///
/// ```
/// use c10_core::{CheckedDevice, UnsupportedCubins};
///
/// let device = CheckedDevice { index: 0, name: "Old GPU".to_owned(), capability: 61 };
/// let unsupported = UnsupportedCubins::check(&device, &["sm_75", "sm_90"])?.expect("none is for 6.x");
/// assert!(unsupported.to_string().ends_with("It has code for sm_75 sm_90."));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UnsupportedCubins {
    /// The device.
    pub device: CheckedDevice,
    /// The architectures that there is code for.
    pub arch_list: Vec<String>,
}

impl UnsupportedCubins {
    /// What has to be said of a device if there is machine code, but none of the device's major number, and no PTX that
    /// the driver could compile for it.
    ///
    /// # Errors
    /// [`crate::DeviceError::InvalidArch`] for a name that is no architecture.
    pub fn check(device: &CheckedDevice, arch_list: &[impl AsRef<str>]) -> Result<Option<Self>> {
        let mut serves = arch_list.is_empty();
        for arch in arch_list.iter().map(AsRef::as_ref) {
            let code_cc = extract_arch_version(arch)?;
            serves |= arch.starts_with(BINARY) && code_cc / 10 == device.capability / 10;
            serves |= arch.starts_with(PTX) && code_cc <= device.capability;
        }
        let arch_list = || arch_list.iter().map(|arch| arch.as_ref().to_owned()).collect();
        Ok((!serves).then(|| Self { device: device.clone(), arch_list: arch_list() }))
    }
}

impl fmt::Display for UnsupportedCubins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckedDevice { name, capability, .. } = &self.device;
        writeln!(
            f,
            "{name} with CUDA capability sm_{capability} is not compatible with the current PyTorch installation."
        )?;
        write!(f, "It has code for {}.", self.arch_list.join(" "))
    }
}

/// A capability as people write it: 8.6 for 86.
struct Dotted(u32);

impl fmt::Display for Dotted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

/// Capabilities in braces.
struct Braced<'a>(&'a BTreeSet<u32>);

impl fmt::Display for Braced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.0.iter().map(|value| Dotted(*value).to_string()).collect();
        write!(f, "{{{}}}", values.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(capability: u32) -> CheckedDevice {
        CheckedDevice { index: DeviceIndex(1), name: "Model".to_owned(), capability }
    }

    #[test]
    fn numbers_are_read_out_of_names() {
        for (arch, version) in [("sm_75", 75), ("sm_90a", 90), ("sm_120f", 120), ("compute_100", 100)] {
            assert_eq!(extract_arch_version(arch), Ok(version));
        }
        for bad in ["", "sm", "sm_", "sm_a", "sm90", "sm_-9", "sm_9 0", "sm_90aa", "sm_99999999999"] {
            assert_eq!(
                extract_arch_version(bad),
                Err(Error::Device(DeviceError::InvalidArch { text: bad.to_owned() }))
            );
        }
    }

    #[test]
    fn flags_are_torchs() {
        let flags = gencode_flags(&["sm_75", "compute_90"]).unwrap();
        assert_eq!(flags, "-gencode compute=compute_75,code=sm_75 -gencode compute=compute_90,code=compute_90");
        assert_eq!(gencode_flags(&[""; 0]).unwrap(), "");
        assert!(gencode_flags(&["sm90"]).is_err());
    }

    /// Every pair of a code and a device that the table knows, against the rules in words.
    #[test]
    fn the_table_is_torchs() {
        let table = CompatTable::default();
        assert_eq!(table.rules.len(), 20);
        let known: Vec<u32> = table.rules.keys().copied().collect();
        for code in &known {
            for device in known.iter().copied().chain([88, 102, 130]) {
                let integrated = [53, 62, 72, 87];
                let expected = match *code {
                    101 => device == 101 || device == 110,
                    code if integrated.contains(&code) => device == code,
                    100 => (100..110).contains(&device) && device != 101,
                    code => {
                        let excluded = code < 89 && integrated.contains(&device);
                        code <= device && code / 10 == device / 10 && !excluded
                    }
                };
                assert_eq!(table.code_compatible_with_device(device, *code), expected, "{code} on {device}");
            }
        }
        assert!(!table.knows(99) && table.code_compatible_with_device(99, 99));
        assert!(!table.code_compatible_with_device(98, 99) && !table.code_compatible_with_device(100, 99));
    }

    #[test]
    fn rules_are_written_as_torch_writes_them() {
        assert_eq!(CompatInterval::new(80, [87]).to_string(), ">=8.0,<9.0 except {8.7}");
        assert_eq!(CompatInterval::new(120, []).to_string(), ">=12.0,<13.0");
        assert_eq!(CompatSet::new([110, 101]).to_string(), "{10.1, 11.0}");
        assert_eq!(CompatTable::default().devices_for(72).to_string(), "{7.2}");
        assert_eq!(CompatTable::default().releases_for(75), ["12.6", "12.8", "13.0"]);
        assert_eq!(CompatTable::default().releases_for(61), ["12.6"]);
        assert_eq!(CompatTable::default().releases_for(37), Vec::<&str>::new());
    }

    #[test]
    fn a_device_that_runs_nothing_is_named() {
        let table = CompatTable::default();
        assert_eq!(table.check(&device(90), &["sm_80", "sm_90"]), Ok(None));
        assert_eq!(table.check(&device(90), &["compute_80"]), Ok(None));
        let found = table.check(&device(87), &["sm_80", "compute_90"]).unwrap().expect("it runs neither");
        assert_eq!(
            found.to_string(),
            "Found GPU1 Model which is of compute capability (CC) 8.7.\nThe code was compiled for these CCs:\n\
             - 8.0 which supports hardware CC >=8.0,<9.0 except {8.7}\n- 9.0 which supports hardware CC >=9.0,<10.0"
        );
        let old = table.check(&device(61), &["sm_90"]).unwrap().expect("it is older");
        assert!(old.to_string().ends_with("supports one of these CUDA versions: 12.6"), "{old}");
        assert!(table.check(&device(61), &["sm90"]).is_err());
    }

    #[test]
    fn an_own_table_decides() {
        let mut table = CompatTable::default();
        table.rules.insert(80, Compat::Set(CompatSet::new([81])));
        table.releases = vec![("99.9".to_owned(), [80].into())];
        assert_eq!(table.check(&device(81), &["sm_80"]), Ok(None));
        let found = table.check(&device(80), &["sm_80"]).unwrap().expect("the rule is ours");
        assert_eq!((found.code, found.releases), (vec![(80, Compat::Set(CompatSet::new([81])))], vec![]));
        assert_eq!(table.releases_for(81), ["99.9"]);
    }

    #[test]
    fn machine_code_is_compared_by_major_number() {
        let check = |arch_list: &[&str]| UnsupportedCubins::check(&device(86), arch_list).unwrap();
        assert_eq!(
            (check(&["sm_80"]), check(&["sm_89"]), check(&["compute_50"]), check(&[])),
            (None, None, None, None)
        );
        let found = check(&["sm_75", "sm_90"]).expect("no such major number");
        assert_eq!(
            found.to_string(),
            "Model with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n\
             It has code for sm_75 sm_90."
        );
    }
}
