//! Options of the compiler behind modules, libraries and links, of which only the logs mean something here.

use std::ffi::{c_char, c_void};

use cuda_sys::driver::types::CUjit_option;

use crate::claim::{Ptr, handle};
use crate::codes::Answer;
use crate::model::links::{Log, Logs};

impl Logs {
    /// Finds the logs among the options.
    pub(super) fn find(count: u32, options: Ptr<CUjit_option>, values: Ptr<*mut c_void>) -> Answer<Self> {
        let mut logs = Self::default();
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let value = values.pointer_at(index)?;
            let bytes = || usize::try_from(value.address() & u64::from(u32::MAX)).unwrap_or(0);
            match options.read_at(index)? {
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER => logs.errors.buffer = value.expose(),
                CUjit_option::CU_JIT_INFO_LOG_BUFFER => logs.information.buffer = value.expose(),
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (logs.errors.bytes, logs.errors.written) = (bytes(), values.expose_at(index));
                }
                CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    (logs.information.bytes, logs.information.written) = (bytes(), values.expose_at(index));
                }
                _ => {}
            }
        }
        Ok(logs)
    }

    /// Writes what was wrong; nothing where nothing was.
    pub(super) fn write(&self, errors: &str) -> Answer {
        self.errors.write(errors)?;
        self.information.write("")
    }
}

impl Log {
    fn write(&self, text: &str) -> Answer {
        let fits = self.buffer != 0 && self.bytes > 0;
        if fits {
            Ptr::<c_char>::from_exposed(self.buffer).write_string(text, self.bytes)?;
        }
        let length = if fits && !text.is_empty() { (text.len() + 1).min(self.bytes) } else { 0 };
        if self.written != 0 {
            Ptr::<*mut c_void>::from_exposed(self.written).write(handle(length as u64))?;
        }
        Ok(())
    }
}
