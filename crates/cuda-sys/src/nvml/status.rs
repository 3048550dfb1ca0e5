//! Names and texts of `nvmlReturn_t`, without asking the library.

use std::fmt;

use super::codes::NAMES;
use super::types::nvmlReturn_t;
use crate::Status;

/// What NVML says of each code from 0 on, recorded from one of driver 580.
const TEXTS: &[&str] = &[
    "Success",
    "Uninitialized",
    "Invalid Argument",
    "Not Supported",
    "Insufficient Permissions",
    "Already Initialized",
    "Not Found",
    "Insufficient Size",
    "Insufficient External Power",
    "Driver Not Loaded",
    "Timeout",
    "Interrupt Request Issue",
    "NVML Shared Library Not Found",
    "Function Not Found",
    "Corrupted infoROM",
    "GPU is lost",
    "GPU requires reset",
    "GPU access blocked by the operating system",
    "Driver/library version mismatch",
    "In use by another client",
    "Insufficient Memory",
    "No data",
    "vGPU ECC not supported",
    "Insufficient Resources",
    "Invalid Frequency",
    "Argument version mismatch",
    "Requested functionality has been deprecated",
    "System is not in ready state",
    "No supported GPUs were found",
    "Resource not in correct state to perform requested operation",
    "Reset type is not supported for given device",
];

impl nvmlReturn_t {
    /// The code's C name, for example `NVML_ERROR_NOT_SUPPORTED`; `None` for a code newer than this crate.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let index = NAMES.binary_search_by_key(&self.0, |&(code, _)| code).ok()?;
        Some(NAMES[index].1)
    }

    /// NVML's words for the code; `None` for a code newer than this crate.
    #[must_use]
    pub fn text(self) -> Option<&'static str> {
        if self == Self::NVML_ERROR_UNKNOWN {
            return Some("Unknown Error");
        }
        TEXTS.get(usize::try_from(self.0).ok()?).copied()
    }
}

impl Status for nvmlReturn_t {
    fn is_success(self) -> bool {
        self == Self::NVML_SUCCESS
    }
}

impl fmt::Display for nvmlReturn_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.text()) {
            (Some(name), Some(text)) => write!(f, "{text} ({name}, {})", self.0),
            _ => write!(f, "unrecognized error code {}", self.0),
        }
    }
}

impl fmt::Debug for nvmlReturn_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "nvmlReturn_t({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_have_texts() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0), "codes must rise for the binary search");
        assert!(NAMES.iter().all(|&(code, name)| nvmlReturn_t(code).text().is_some() && name.starts_with("NVML_")));
        assert_eq!(TEXTS.len() + 1, NAMES.len());
    }

    #[test]
    fn codes_say_what_they_are() {
        let code = nvmlReturn_t::NVML_ERROR_DRIVER_NOT_LOADED;
        assert_eq!(code.to_string(), "Driver Not Loaded (NVML_ERROR_DRIVER_NOT_LOADED, 9)");
        assert_eq!(nvmlReturn_t::NVML_ERROR_UNKNOWN.to_string(), "Unknown Error (NVML_ERROR_UNKNOWN, 999)");
        assert_eq!(nvmlReturn_t(4242).to_string(), "unrecognized error code 4242");
        assert_eq!(format!("{:?}", nvmlReturn_t::NVML_ERROR_NO_DATA), "NVML_ERROR_NO_DATA");
        assert_eq!(nvmlReturn_t::NVML_ERROR_GPU_NOT_FOUND.text(), Some("No supported GPUs were found"));
    }
}
