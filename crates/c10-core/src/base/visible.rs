//! `CUDA_VISIBLE_DEVICES`: which devices of the machine a process uses, and in which order, as torch reads it.
//!
//! Pure data. NVML always shows every device; this is how its numbers and CUDA's are matched.

use std::fmt;

/// How many devices there may be when nothing is said.
const DEVICES_MAX: i64 = 64;

/// What the variable says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Visible {
    /// Numbers of devices.
    Ordinals(Vec<i64>),
    /// Beginnings of the texts that identify devices.
    Gpus(Vec<String>),
    /// Instances of devices in multi-instance mode.
    Instances(Vec<String>),
}

impl Visible {
    /// Reads the variable of the environment.
    pub(crate) fn of_environment() -> Self {
        Self::parse(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
    }

    /// Reads a value of the variable; the list ends where something is no device.
    pub(crate) fn parse(value: Option<&str>) -> Self {
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
        let (Self::Gpus(names) | Self::Instances(names)) = self else { return self };
        let mut ordinals = Vec::new();
        for name in &names {
            let mut fitting = (0..).zip(uuids).filter(|(_, uuid)| uuid.starts_with(name.as_str()));
            let (Some((ordinal, _)), None) = (fitting.next(), fitting.next()) else { break };
            if ordinals.contains(&ordinal) {
                return Self::Ordinals(Vec::new());
            }
            ordinals.push(ordinal);
        }
        Self::Ordinals(ordinals)
    }

    /// The machine's number of one of CUDA's devices.
    pub(crate) fn ordinal(&self, device: usize) -> Option<u32> {
        let Self::Ordinals(list) = self else { return None };
        u32::try_from(*list.get(device)?).ok()
    }
}

impl fmt::Display for Visible {
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
        match Visible::parse(Some(value)) {
            Visible::Ordinals(list) => list,
            other @ (Visible::Gpus(_) | Visible::Instances(_)) => panic!("{other:?}"),
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
        assert_eq!(Visible::parse(None), Visible::Ordinals((0..64).collect()));
    }

    #[test]
    fn identities_are_read_without_trimming() {
        let gpus = |names: &[&str]| Visible::Gpus(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(Visible::parse(Some("GPU-ab,1")), gpus(&["GPU-ab"]));
        assert_eq!(Visible::parse(Some("GPU-ab,GPU-cd, GPU-ef")), gpus(&["GPU-ab", "GPU-cd"]));
        assert_eq!(Visible::parse(Some("GPU-ab,GPU-cd,GPU-ab")), gpus(&[]));
        assert_eq!(Visible::parse(Some("MIG-77aa")), Visible::Instances(vec!["MIG-77aa".to_owned()]));
    }

    #[test]
    fn the_count_ends_at_a_device_that_is_not_there() {
        for (value, expected) in [("2, 1", 2), ("0, 2, 7, 1", 2), ("", 0), ("3", 0)] {
            assert_eq!(Visible::parse(Some(value)).count(3), expected, "{value:?}");
        }
        assert_eq!((Visible::parse(None).count(3), Visible::parse(None).count(0)), (3, 0));
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
            let visible = Visible::parse(Some(value)).with_ordinals(&uuids);
            assert_eq!(visible, Visible::Ordinals(expected.to_vec()), "{value:?}");
        }
        let swapped = Visible::parse(Some("1,0"));
        assert_eq!((swapped.ordinal(0), swapped.ordinal(1), swapped.ordinal(2)), (Some(1), Some(0), None));
        assert_eq!(
            (swapped.to_string(), Visible::parse(Some("GPU-a")).to_string()),
            ("[1, 0]".into(), "['GPU-a']".into())
        );
    }
}
