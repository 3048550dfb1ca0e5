//! Names and texts of cuFile's codes, without asking the library, and the pair of codes that its functions answer with.
//!
//! **Invariant:** two answers are equal when their codes are; the driver's code counts only where cuFile's says that the
//! driver has failed.

use std::fmt;

use super::codes::NAMES;
use super::texts::TEXTS;
use super::types::{CUfileError, CUfileOpError};
use crate::{CUresult, Status};

impl CUfileOpError {
    /// The code's C name; `None` for a code newer than this crate.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        lookup(NAMES, self.0)
    }

    /// What is said of the code; `None` for one newer than this crate.
    #[must_use]
    pub fn text(self) -> Option<&'static str> {
        lookup(TEXTS, self.0)
    }

    /// The code in a number that `cuFileRead` or `cuFileWrite` answered with; `None` for bytes, and for -1, which leaves
    /// the reason in `errno`.
    #[must_use]
    pub fn of_answer(answer: isize) -> Option<Self> {
        let code = u32::try_from(answer.checked_neg()?).ok()?;
        (code > super::types::CUFILEOP_BASE_ERR).then_some(Self(code))
    }
}

fn lookup(table: &'static [(u32, &'static str)], code: u32) -> Option<&'static str> {
    let index = table.binary_search_by_key(&code, |&(code, _)| code).ok()?;
    Some(table[index].1)
}

impl fmt::Display for CUfileOpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().unwrap_or("unknown cufile error"))
    }
}

impl fmt::Debug for CUfileOpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "CUfileOpError({})", self.0),
        }
    }
}

impl CUfileError {
    /// Nothing failed.
    pub const CU_FILE_SUCCESS: Self = Self { err: CUfileOpError::CU_FILE_SUCCESS, cu_err: CUresult::CUDA_SUCCESS };

    /// The driver's code, where it was the driver that failed.
    #[must_use]
    pub fn driver(self) -> Option<CUresult> {
        (self.err == CUfileOpError::CU_FILE_CUDA_DRIVER_ERROR).then_some(self.cu_err)
    }
}

impl Copy for CUfileError {}

impl Clone for CUfileError {
    fn clone(&self) -> Self {
        *self
    }
}

impl PartialEq for CUfileError {
    fn eq(&self, other: &Self) -> bool {
        self.err == other.err && self.driver() == other.driver()
    }
}

impl Eq for CUfileError {}

impl Status for CUfileError {
    fn is_success(self) -> bool {
        self.err == CUfileOpError::CU_FILE_SUCCESS
    }
}

/// Torch's words: the code's text, and the driver's behind a full stop.
impl fmt::Display for CUfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.driver() {
            Some(driver) => write!(f, "{}.{driver}", self.err),
            None => self.err.fmt(f),
        }
    }
}

impl fmt::Debug for CUfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.driver() {
            Some(driver) => write!(f, "{:?} ({driver:?})", self.err),
            None => write!(f, "{:?}", self.err),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_name_and_a_text() {
        for table in [NAMES, TEXTS] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0), "codes must rise for the binary search");
        }
        assert!(NAMES.iter().map(|row| row.0).eq(TEXTS.iter().map(|row| row.0)));
        assert_eq!(CUfileOpError(4242).to_string(), "unknown cufile error");
        assert_eq!(format!("{:?}", CUfileOpError(4242)), "CUfileOpError(4242)");
    }

    #[test]
    fn an_answer_is_bytes_or_a_code() {
        assert_eq!(CUfileOpError::of_answer(17), None);
        assert_eq!(CUfileOpError::of_answer(-1), None);
        assert_eq!(CUfileOpError::of_answer(isize::MIN), None);
        assert_eq!(CUfileOpError::of_answer(-5008), Some(CUfileOpError::CU_FILE_IO_NOT_SUPPORTED));
    }

    #[test]
    fn the_drivers_code_counts_where_the_driver_failed() {
        let bad = |err, cu_err| CUfileError { err, cu_err };
        let code = CUresult::CUDA_ERROR_INVALID_VALUE;
        assert_eq!(bad(CUfileOpError::CU_FILE_SUCCESS, code), CUfileError::CU_FILE_SUCCESS);
        let driver = bad(CUfileOpError::CU_FILE_CUDA_DRIVER_ERROR, code);
        assert_eq!(driver.to_string(), format!("CUDA Driver API error.{code}"));
        assert_ne!(driver, bad(CUfileOpError::CU_FILE_CUDA_DRIVER_ERROR, CUresult::CUDA_SUCCESS));
    }
}
