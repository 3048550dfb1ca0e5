//! Names and texts of `CUresult`, without asking a driver.

use std::fmt;

use super::codes::NAMES;
use super::texts::TEXTS;
use super::types::CUresult;
use crate::Status;

impl CUresult {
    /// The code's C name, for example `CUDA_ERROR_OUT_OF_MEMORY`; `None` for a code newer than this crate.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        look_up(NAMES, self.0)
    }

    /// What the driver's `cuGetErrorString` says of the code; `None` for a code newer than this crate.
    #[must_use]
    pub fn text(self) -> Option<&'static str> {
        look_up(TEXTS, self.0)
    }

    /// Every code this crate has a name for.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|&(code, _)| Self(code))
    }
}

fn look_up(table: &[(u32, &'static str)], code: u32) -> Option<&'static str> {
    let index = table.binary_search_by_key(&code, |&(code, _)| code).ok()?;
    Some(table[index].1)
}

impl Status for CUresult {
    fn is_success(self) -> bool {
        self == Self::CUDA_SUCCESS
    }
}

impl fmt::Display for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.text()) {
            (Some(name), Some(text)) => write!(f, "{text} ({name}, {})", self.0),
            (Some(name), None) => write!(f, "{name} ({})", self.0),
            _ => write!(f, "unrecognized error code {}", self.0),
        }
    }
}

impl fmt::Debug for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "CUresult({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_cover_each_other() {
        for table in [NAMES, TEXTS] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0), "codes must rise for the binary search");
        }
        for code in CUresult::all() {
            assert!(code.text().is_some(), "{code:?} has a name but no text");
        }
        assert_eq!(NAMES.len(), TEXTS.len());
    }

    #[test]
    fn unknown_codes_pass_through() {
        let code = CUresult(4242);
        assert_eq!(code.to_string(), "unrecognized error code 4242");
        assert_eq!(format!("{code:?}"), "CUresult(4242)");
    }

    #[test]
    fn known_codes_have_the_drivers_words() {
        let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        assert_eq!(code.to_string(), "out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)");
        assert_eq!(format!("{code:?}"), "CUDA_ERROR_OUT_OF_MEMORY");
    }
}
