//! Versions: which functions a driver has, and the names and texts of its status codes.

use std::ffi::{CStr, CString};

use super::prelude::*;

cases!("version", CASES, Needs::NO_CONTEXT;
    names_equal_the_table, texts_equal_the_table, unknown_codes, proc_address_of_known_names, proc_address_by_version,
    proc_address_of_unknown_names, proc_address_too_old, proc_address_flags, proc_address_v1, proc_address_v1_unknown,
    proc_address_suffixed_names, proc_address_future_version, unknown_export_tables,
);
cases!("version", UNINITIALIZED_CASES, Needs::BEFORE_INIT;
    version_before_init, names_before_init, proc_address_before_init, unknown_export_tables,
);

fn text(pointer: *const std::ffi::c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the driver gives texts that end with a zero and live as long as it.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

fn names_equal_the_table(cu: &Cuda<'_>) -> CaseResult {
    for code in CUresult::all() {
        let mut name = ptr::null();
        // A driver does not know the codes that came after it.
        if status!(cu.cuGetErrorName(code, &mut name)) == CUresult::CUDA_SUCCESS {
            same!(cu, text(name).as_deref(), code.name());
        }
    }
    Ok(())
}

fn texts_equal_the_table(cu: &Cuda<'_>) -> CaseResult {
    for code in CUresult::all() {
        let mut found = ptr::null();
        if status!(cu.cuGetErrorString(code, &mut found)) == CUresult::CUDA_SUCCESS {
            same!(cu, text(found).as_deref(), code.text());
        }
    }
    Ok(())
}

fn unknown_codes(cu: &Cuda<'_>) -> CaseResult {
    for code in [9, 12345, u32::MAX] {
        let mut found = ptr::dangling();
        want!(INVALID_VALUE, cu.cuGetErrorName(CUresult(code), &mut found));
        that!(cu, found.is_null());
        found = ptr::dangling();
        want!(INVALID_VALUE, cu.cuGetErrorString(CUresult(code), &mut found));
        that!(cu, found.is_null());
    }
    Ok(())
}

/// Asks for a function; its address, and the driver's remark.
fn look_up(cu: &Cuda<'_>, name: &str, version: u32, flags: u64) -> CaseResult<(bool, u32, CUresult)> {
    let name = CString::new(name).map_err(|_| Stop::Failed("a name with a zero in it".to_owned()))?;
    let (mut address, mut remark) = (ptr::null_mut(), CUdriverProcAddressQueryResult(77));
    let version = i32::try_from(version).unwrap_or(0);
    let status = status!(cu.cuGetProcAddress_v2(name.as_ptr(), &mut address, version, flags, &mut remark));
    Ok((!address.is_null(), remark.0, status))
}

const OK: CUresult = CUresult::CUDA_SUCCESS;

fn proc_address_of_known_names(cu: &Cuda<'_>) -> CaseResult {
    for name in ["cuInit", "cuMemAlloc", "cuMemFree", "cuStreamCreate", "cuGraphLaunch", "cuGetProcAddress"] {
        same!(cu, (name, look_up(cu, name, 12000, 0)?), (name, (true, 0, OK)));
    }
    Ok(())
}

fn proc_address_by_version(cu: &Cuda<'_>) -> CaseResult {
    let version = cu.driver().version();
    for info in cu.driver().functions().available() {
        that!(cu, info.version <= version);
    }
    same!(cu, look_up(cu, "cuEventElapsedTime", 2000, 0)?, (true, 0, OK));
    same!(cu, look_up(cu, "cuEventElapsedTime", version.0, 0)?, (true, 0, OK));
    Ok(())
}

fn proc_address_of_unknown_names(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, look_up(cu, "cuNoSuchFunction", 12000, 0)?, (false, 1, OK));
    same!(cu, look_up(cu, "", 12000, 0)?, (false, 1, OK));
    same!(cu, look_up(cu, "cudaMalloc", 12000, 0)?, (false, 1, OK));
    Ok(())
}

fn proc_address_too_old(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, look_up(cu, "cuGraphLaunch", 9000, 0)?, (false, 2, OK));
    same!(cu, look_up(cu, "cuMemCreate", 2000, 0)?, (false, 2, OK));
    Ok(())
}

fn proc_address_flags(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, look_up(cu, "cuMemcpy", 12000, 1)?, (true, 0, OK));
    same!(cu, look_up(cu, "cuMemcpy", 12000, 2)?, (true, 0, OK));
    same!(cu, look_up(cu, "cuMemcpy", 12000, 4)?.2, CUresult::CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn proc_address_v1(cu: &Cuda<'_>) -> CaseResult {
    let mut address = ptr::null_mut();
    ok!(cu.cuGetProcAddress(c"cuMemAlloc".as_ptr(), &mut address, 11030, 0));
    that!(cu, !address.is_null());
    Ok(())
}

fn proc_address_v1_unknown(cu: &Cuda<'_>) -> CaseResult {
    let mut address = ptr::null_mut();
    want!(NOT_FOUND, cu.cuGetProcAddress(c"cuNoSuchFunction".as_ptr(), &mut address, 11030, 0));
    that!(cu, address.is_null());
    want!(INVALID_VALUE, cu.cuGetProcAddress(c"cuMemcpy".as_ptr(), &mut address, 11030, 4));
    Ok(())
}

fn proc_address_suffixed_names(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, look_up(cu, "cuMemAlloc_v2", 12000, 0)?, (false, 1, OK));
    Ok(())
}

fn proc_address_future_version(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, look_up(cu, "cuMemAlloc", 99000, 0)?, (false, 77, CUresult::CUDA_ERROR_INVALID_VALUE));
    same!(cu, look_up(cu, "cuMemAlloc", 0, 0)?, (false, 2, OK));
    Ok(())
}

/// A table that is not there is no table; without an identity, nothing is written.
fn unknown_export_tables(cu: &Cuda<'_>) -> CaseResult {
    for byte in [0, -1, 0x5A] {
        let (mut table, id) = (ptr::dangling(), CUuuid { bytes: [byte; 16] });
        want!(INVALID_VALUE, cu.cuGetExportTable(&mut table, &id));
        that!(cu, table.is_null());
    }
    let mut table = ptr::dangling();
    want!(INVALID_VALUE, cu.cuGetExportTable(&mut table, ptr::null()));
    same!(cu, table, ptr::dangling());
    Ok(())
}

fn version_before_init(cu: &Cuda<'_>) -> CaseResult {
    let mut version = 0;
    ok!(cu.cuDriverGetVersion(&mut version));
    that!(cu, version >= 11_000);
    Ok(())
}

fn names_before_init(cu: &Cuda<'_>) -> CaseResult {
    let mut name = ptr::null();
    ok!(cu.cuGetErrorName(CUresult::CUDA_ERROR_NOT_INITIALIZED, &mut name));
    same!(cu, text(name).as_deref(), Some("CUDA_ERROR_NOT_INITIALIZED"));
    let mut found = ptr::null();
    ok!(cu.cuGetErrorString(CUresult::CUDA_ERROR_OUT_OF_MEMORY, &mut found));
    same!(cu, text(found).as_deref(), Some("out of memory"));
    Ok(())
}

fn proc_address_before_init(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, look_up(cu, "cuInit", 2000, 0)?, (true, 0, OK));
    Ok(())
}
