//! Initialisation, version, errors' names, and functions found by name.

use std::ffi::{c_char, c_void};

use cuda_sys::driver::types::CUdriverProcAddressQueryResult;
use cuda_sys::{CUresult, CudaVersion};

use crate::abi::{self, Found};
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE, NO_DEVICE, NOT_FOUND, NOT_INITIALIZED};

pub(crate) fn init(call: &mut Call<'_>, flags: u32) -> Answer {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let process = std::process::id();
    if call.initialized_by.is_some_and(|by| by != process) {
        return Err(NOT_INITIALIZED);
    }
    if call.config.devices == 0 {
        return Err(NO_DEVICE);
    }
    call.initialized_by = Some(process);
    Ok(())
}

pub(crate) fn driver_version(call: &mut Call<'_>, version: Ptr<i32>) -> Answer {
    version.write(i32::try_from(call.config.driver_version.0).unwrap_or(i32::MAX))
}

/// No profiler looks on.
pub(crate) fn profiler(_: &mut Call<'_>) -> Answer {
    Ok(())
}

pub(crate) fn error_name(_: &mut Call<'_>, error: CUresult, text: Ptr<*const c_char>) -> Answer {
    write_static(text, error.name().map(static_c_string))
}

pub(crate) fn error_string(_: &mut Call<'_>, error: CUresult, text: Ptr<*const c_char>) -> Answer {
    write_static(text, error.text().map(static_c_string))
}

fn write_static(to: Ptr<*const c_char>, text: Option<*const c_char>) -> Answer {
    to.write(text.unwrap_or(std::ptr::null()))?;
    if text.is_some() { Ok(()) } else { Err(INVALID_VALUE) }
}

/// A C string that lives as long as the process; there are as many as there are codes.
fn static_c_string(text: &'static str) -> *const c_char {
    use std::collections::BTreeMap;
    use std::ffi::{CStr, CString};
    use std::sync::{Mutex, PoisonError};
    static STRINGS: Mutex<BTreeMap<&'static str, &'static CStr>> = Mutex::new(BTreeMap::new());
    let mut strings = STRINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let made =
        strings.entry(text).or_insert_with(|| Box::leak(CString::new(text).unwrap_or_default().into_boxed_c_str()));
    made.as_ptr()
}

pub(crate) fn proc_address_v2(
    call: &mut Call<'_>,
    symbol: Ptr<c_char>,
    function: Ptr<*mut c_void>,
    version: i32,
    flags: u64,
    status: Ptr<CUdriverProcAddressQueryResult>,
) -> Answer {
    let found = look_up(call, symbol, function, version, flags)?;
    status.write_if_wanted(match found {
        Found::Address(_) => CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS,
        Found::TooNew => CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        Found::Unknown => CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    });
    Ok(())
}

pub(crate) fn proc_address(
    call: &mut Call<'_>,
    symbol: Ptr<c_char>,
    function: Ptr<*mut c_void>,
    version: i32,
    flags: u64,
) -> Answer {
    match look_up(call, symbol, function, version, flags)? {
        Found::Address(_) => Ok(()),
        Found::TooNew | Found::Unknown => Err(NOT_FOUND),
    }
}

/// Flags: 0 default, 1 legacy default stream, 2 per-thread default stream.
fn look_up(
    call: &Call<'_>,
    symbol: Ptr<c_char>,
    function: Ptr<*mut c_void>,
    version: i32,
    flags: u64,
) -> Answer<Found> {
    let name = symbol.read_string()?;
    function.required()?;
    let driver = call.config.driver_version;
    let wanted = CudaVersion(u32::try_from(version).map_err(|_| INVALID_VALUE)?);
    if flags > 2 || wanted > driver {
        return Err(INVALID_VALUE);
    }
    let found = abi::find(&name, wanted, driver);
    function.write(match found {
        Found::Address(address) => address,
        Found::TooNew | Found::Unknown => std::ptr::null_mut(),
    })?;
    Ok(found)
}
