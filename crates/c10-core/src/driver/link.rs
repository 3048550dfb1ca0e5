//! The driver's linker: several inputs become one image.
//!
//! **Invariant:** a link is destroyed whatever becomes of it, after its image was copied.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Logs and option arrays outlive the link, because the driver
//! writes to them until it is destroyed. The caller promises that the inputs are whole.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::{CString, c_void};
use std::ptr;

use cuda_sys::driver::types::{CUjit_option, CUjitInputType, CUlinkState};

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, ModuleError, Result};
use crate::base::linking::{LinkInput, LinkKind};
use crate::driver::Api;

/// Bytes of the log in which the linker says what is wrong.
const LOG_BYTES: usize = 16 << 10;

/// A link under way.
struct Link<'a> {
    api: &'a Api,
    state: CUlinkState,
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if self.state.is_null() {
            return;
        }
        // SAFETY: the link was made by this driver and is destroyed once. An error cannot be returned here.
        let _ = unsafe { self.api.table.cuLinkDestroy(self.state) };
    }
}

impl Api {
    /// Links several inputs for a device; the image is a copy.
    ///
    /// # Safety
    /// - Inputs other than PTX are whole.
    pub(crate) unsafe fn link(&self, device: DeviceIndex, inputs: &[LinkInput<'_>]) -> Result<Vec<u8>> {
        let _span = tracing::debug_span!("link_module", device = device, inputs = inputs.len()).entered();
        self.bind(device)?;
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_BYTES)];
        // SAFETY: the caller's promise; the log and both arrays outlive the link, which ends in this call.
        let linked = unsafe { self.link_with(inputs, &mut options, &mut values) };
        match linked {
            Err(Error::Accelerator(error)) => {
                let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                let log = String::from_utf8_lossy(&log[..end]).trim_end().to_owned();
                Err(ModuleError::Refused { error, log }.into())
            }
            linked => linked,
        }
    }

    /// Links with these options.
    ///
    /// # Safety
    /// - Inputs other than PTX are whole; the options' values are what the options take, and outlive the call.
    unsafe fn link_with(
        &self,
        inputs: &[LinkInput<'_>],
        options: &mut [CUjit_option; 2],
        values: &mut [*mut c_void; 2],
    ) -> Result<Vec<u8>> {
        let mut link = Link { api: self, state: ptr::null_mut() };
        let (state, values) = (&mut link.state, values.as_mut_ptr());
        // SAFETY: there are two options with their values; `state` outlives the call.
        unsafe { self.table.cuLinkCreate_v2(2, options.as_mut_ptr(), values, state) }?;
        for input in inputs {
            // SAFETY: the caller's promise.
            unsafe { link.add(input) }?;
        }
        let (mut image, mut bytes) = (ptr::null_mut::<c_void>(), 0);
        // SAFETY: the link is alive; both places outlive the call.
        unsafe { self.table.cuLinkComplete(link.state, &mut image, &mut bytes) }?;
        // SAFETY: the driver's image has as many bytes as it said, and lives as long as the link.
        let image = unsafe { std::slice::from_raw_parts(image.cast_const().cast::<u8>(), bytes) };
        Ok(image.to_vec())
    }
}

impl Link<'_> {
    /// Adds an input.
    ///
    /// # Safety
    /// - An input other than PTX is whole.
    unsafe fn add(&self, input: &LinkInput<'_>) -> Result<()> {
        let name = CString::new(input.name).map_err(|_| ModuleError::ZeroByte)?;
        let kind = match input.kind {
            LinkKind::Ptx => CUjitInputType::CU_JIT_INPUT_PTX,
            LinkKind::Cubin => CUjitInputType::CU_JIT_INPUT_CUBIN,
            LinkKind::Fatbin => CUjitInputType::CU_JIT_INPUT_FATBINARY,
            LinkKind::Object => CUjitInputType::CU_JIT_INPUT_OBJECT,
            LinkKind::Library => CUjitInputType::CU_JIT_INPUT_LIBRARY,
        };
        let mut data = input.data.to_vec();
        if input.kind == LinkKind::Ptx && data.last() != Some(&0) {
            data.push(0);
        }
        let (place, bytes) = (data.as_mut_ptr().cast::<c_void>(), data.len());
        let none = ptr::null_mut();
        // SAFETY: the link is alive; the input has as many bytes as is said and is copied; the name ends with a zero byte.
        let added = unsafe {
            self.api.table.cuLinkAddData_v2(self.state, kind, place, bytes, name.as_ptr(), 0, none, ptr::null_mut())
        };
        Ok(added?)
    }
}
