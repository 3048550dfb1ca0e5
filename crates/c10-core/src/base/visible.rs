//! `CUDA_VISIBLE_DEVICES`: which devices of the machine a process uses, and in which order, as torch reads it.
//!
//! Pure data. NVML always shows every device; this file matches its numbers with those of CUDA.

use std::fmt;

/// How many devices there may be when nothing is said.
const DEVICES_MAX: i64 = 64;

/// What `CUDA_VISIBLE_DEVICES` says: the machine's devices that this process uses, in its own order. `Display` writes the
/// list as Python does.
///
/// ```
/// use c10_core::VisibleDevices;
/// assert_eq!(VisibleDevices::parse(Some("2, 0, -4, 1")), VisibleDevices::Ordinals(vec![2, 0]));
/// assert_eq!(VisibleDevices::parse(Some("GPU-ab,1")), VisibleDevices::Gpus(vec!["GPU-ab".to_owned()]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleDevices {
    /// Numbers of devices.
    Ordinals(Vec<i64>),
    /// Beginnings of the texts that identify devices.
    Gpus(Vec<String>),
    /// Instances of devices in multi-instance mode.
    Instances(Vec<String>),
}

impl VisibleDevices {
    /// Reads the variable of the environment, at each call anew; torch's `_parse_visible_devices`.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::parse(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
    }

    /// Reads a value of the variable, `None` if it is not set. The list ends where something is no device, and is empty
    /// where a device is named twice.
    #[must_use]
    pub fn parse(value: Option<&str>) -> Self {
        let Some(value) = value else { return Self::Ordinals((0..DEVICES_MAX).collect()) };
        if value.starts_with("GPU-") {
            return Self::Gpus(with_prefix(value, "GPU-"));
        }
        if value.starts_with("MIG-") {
            return Self::Instances(with_prefix(value, "MIG-"));
        }
        let mut ordinals = Vec::new();
        for element in value.split(',') {
            let ordinal = leading_number(element.trim());
            if ordinals.contains(&ordinal) {
                return Self::Ordinals(Vec::new());
            }
            if ordinal < 0 {
                break;
            }
            ordinals.push(ordinal);
        }
        Self::Ordinals(ordinals)
    }

    /// How many devices CUDA will show of `machine` many, where that follows from the variable.
    pub(crate) fn count(&self, machine: usize) -> usize {
        let is_there = |ordinal: &&i64| usize::try_from(**ordinal).is_ok_and(|ordinal| ordinal < machine);
        match self {
            Self::Ordinals(list) => list.iter().take_while(is_there).count(),
            Self::Gpus(list) | Self::Instances(list) => list.len(),
        }
    }

    /// The same with the devices' numbers for their identities, of which `uuids` is the list.
    pub(crate) fn with_ordinals(self, uuids: &[String]) -> Self {
        match self {
            Self::Gpus(names) | Self::Instances(names) => Self::Ordinals(transform_uuid_to_ordinals(&names, uuids)),
            Self::Ordinals(list) => Self::Ordinals(list),
        }
    }

    /// The machine's number of one of CUDA's devices.
    pub(crate) fn ordinal(&self, device: usize) -> Option<u32> {
        let Self::Ordinals(list) = self else { return None };
        u32::try_from(*list.get(device)?).ok()
    }
}

/// The places in `uuids` of the identities that the `candidates` begin; torch's `_transform_uuid_to_ordinals`. The list
/// ends at a candidate that begins none of them or several, and is empty where two mean the same one.
///
/// ```
/// let uuids = ["GPU-aa11", "GPU-aa22", "GPU-bb33"];
/// assert_eq!(c10_core::transform_uuid_to_ordinals(&["GPU-bb", "GPU-aa1", "GPU-aa"], &uuids), [2, 0]);
/// ```
#[must_use]
pub fn transform_uuid_to_ordinals(candidates: &[impl AsRef<str>], uuids: &[impl AsRef<str>]) -> Vec<i64> {
    let mut ordinals = Vec::new();
    for candidate in candidates.iter().map(AsRef::as_ref) {
        let mut fitting = (0..).zip(uuids).filter(|(_, uuid)| uuid.as_ref().starts_with(candidate));
        let (Some((ordinal, _)), None) = (fitting.next(), fitting.next()) else { break };
        if ordinals.contains(&ordinal) {
            return Vec::new();
        }
        ordinals.push(ordinal);
    }
    ordinals
}

impl fmt::Display for VisibleDevices {
    /// As Python writes the list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = match self {
            Self::Ordinals(list) => list.iter().map(i64::to_string).collect(),
            Self::Gpus(list) | Self::Instances(list) => list.iter().map(|name| format!("'{name}'")).collect(),
        };
        write!(f, "[{}]", texts.join(", "))
    }
}

fn with_prefix(value: &str, prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for element in value.split(',') {
        if names.iter().any(|known| known == element) {
            return Vec::new();
        }
        if !element.starts_with(prefix) {
            break;
        }
        names.push(element.to_owned());
    }
    names
}

/// The number that a text begins with, which may have a sign; -1 without one.
fn leading_number(text: &str) -> i64 {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    match &digits[..end] {
        "" => -1,
        // Only numbers that are too large for any machine do not fit.
        digits => sign * digits.parse::<i64>().unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinals(value: &str) -> Vec<i64> {
        match VisibleDevices::parse(Some(value)) {
            VisibleDevices::Ordinals(list) => list,
            other @ (VisibleDevices::Gpus(_) | VisibleDevices::Instances(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_are_read_up_to_what_is_none() {
        let cases: [(&str, &[i64]); 12] = [
            ("", &[]),
            ("3abc,1x", &[3, 1]),
            ("2, 0, -4, 1", &[2, 0]),
            ("1, 3, 1", &[]),
            ("0, +1, -0", &[]),
            ("zero,1", &[]),
            ("5,4,none,3", &[5, 4]),
            ("+", &[]),
            ("0", &[0]),
            (" 7 ,6", &[7, 6]),
            ("99999999999999999999", &[i64::MAX]),
            ("1,GPU-a", &[1]),
        ];
        for (value, expected) in cases {
            assert_eq!(ordinals(value), expected, "{value:?}");
        }
        assert_eq!(VisibleDevices::parse(None), VisibleDevices::Ordinals((0..64).collect()));
    }

    #[test]
    fn identities_are_read_without_trimming() {
        let gpus = |names: &[&str]| VisibleDevices::Gpus(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(VisibleDevices::parse(Some("GPU-ab,1")), gpus(&["GPU-ab"]));
        assert_eq!(VisibleDevices::parse(Some("GPU-ab,GPU-cd, GPU-ef")), gpus(&["GPU-ab", "GPU-cd"]));
        assert_eq!(VisibleDevices::parse(Some("GPU-ab,GPU-cd,GPU-ab")), gpus(&[]));
        assert_eq!(VisibleDevices::parse(Some("MIG-77aa")), VisibleDevices::Instances(vec!["MIG-77aa".to_owned()]));
    }

    #[test]
    fn the_count_ends_at_a_device_that_is_not_there() {
        for (value, expected) in [("2, 1", 2), ("0, 2, 7, 1", 2), ("", 0), ("3", 0)] {
            assert_eq!(VisibleDevices::parse(Some(value)).count(3), expected, "{value:?}");
        }
        assert_eq!((VisibleDevices::parse(None).count(3), VisibleDevices::parse(None).count(0)), (3, 0));
    }

    #[test]
    fn identities_become_numbers_if_they_mean_one_device() {
        let uuids = ["GPU-aa11", "GPU-aa22", "GPU-bb33"].map(str::to_owned);
        let cases: [(&str, &[i64]); 5] = [
            ("GPU-bb,GPU-aa1", &[2, 0]),
            ("GPU-aa", &[]),
            ("GPU-bb,GPU-aa,GPU-aa1", &[2]),
            ("GPU-bb,GPU-bb33", &[]),
            ("GPU-aa2,GPU-cc,GPU-bb", &[1]),
        ];
        for (value, expected) in cases {
            let visible = VisibleDevices::parse(Some(value)).with_ordinals(&uuids);
            assert_eq!(visible, VisibleDevices::Ordinals(expected.to_vec()), "{value:?}");
        }
        let swapped = VisibleDevices::parse(Some("1,0"));
        assert_eq!((swapped.ordinal(0), swapped.ordinal(1), swapped.ordinal(2)), (Some(1), Some(0), None));
        assert_eq!(
            (swapped.to_string(), VisibleDevices::parse(Some("GPU-a")).to_string()),
            ("[1, 0]".into(), "['GPU-a']".into())
        );
    }
}
