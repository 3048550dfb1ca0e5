//! Codes that come with what a function needs: asked of every function of simulated machines in every such state.
//!
//! Real drivers answer alike where they survive the question; to lose a context takes the process with it, so these are
//! not cases of the suite.
//!
//! # Safety
//! Calls C functions of simulated machines, which look handles up; pointers lead to variables that outlive the work.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

use cuda_sim::{Config, EXPORTS, Export, Machine, ReportKind};
use cuda_sys::driver::types::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};
use cuda_sys::{CUresult, Driver, DriverError};

use crate::{Handles, call_rightly};

/// How often each function answered with each code.
pub type Calls = BTreeMap<(String, u32), u64>;

/// Smallest mapping.
const GRANULE: usize = 2 << 20;

/// Asks every function for every one of its common codes. Gives what was answered, and what was answered wrongly.
///
/// # Panics
/// A simulated machine does not come into the state that is asked about.
#[must_use]
pub fn ask_all() -> (Calls, Vec<String>) {
    let (mut calls, mut wrong) = (Calls::new(), Vec::new());
    for export in EXPORTS {
        for &code in export.common_codes() {
            match ask(export, code) {
                Ok(()) => *calls.entry((export.symbol.to_owned(), code.0)).or_default() += 1,
                Err(text) => wrong.push(text),
            }
        }
    }
    (calls, wrong)
}

fn ask(export: &Export, code: CUresult) -> Result<(), String> {
    let machine = Machine::new(Config::default().kernel_steps(100).keeps_prints(true));
    let _bound = machine.bind();
    let driver = cuda_sim::driver().map_err(|error| error.to_string())?;
    let mut host = vec![0_u8; 4096];
    let handles = into_state(&driver, code, host.as_mut_ptr().cast()).expect("a simulated machine comes there");
    let got = call_rightly(&driver, export.symbol, &handles);
    if machine.reports().iter().any(|report| report.kind == ReportKind::UndeclaredCode) {
        return Err(format!("{}: {:?}", export.symbol, machine.reports()));
    }
    if got == Some(code) { Ok(()) } else { Err(format!("{}: {got:?} instead of {code:?}", export.symbol)) }
}

/// Brings a machine into the state in which functions answer so.
fn into_state(driver: &Driver, code: CUresult, host: *mut c_void) -> Result<Handles, DriverError> {
    let garbage = 0x1000;
    let mut handles = Handles::default();
    if code == CUresult::CUDA_ERROR_NOT_INITIALIZED {
        handles.stream = ptr::without_provenance_mut(garbage);
        handles.event = ptr::without_provenance_mut(garbage);
        handles.graph = ptr::without_provenance_mut(garbage);
        handles.green = ptr::without_provenance_mut(garbage);
        return Ok(handles);
    }
    // SAFETY: no pointers.
    unsafe { driver.cuInit(0) }?;
    // SAFETY: a live out pointer.
    unsafe { driver.cuGraphCreate(&mut handles.graph, 0) }?;
    if code == CUresult::CUDA_ERROR_INVALID_CONTEXT {
        return Ok(handles);
    }
    let mut context = ptr::null_mut();
    // SAFETY: a live out pointer.
    unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, 0) }?;
    // SAFETY: the context was retained.
    unsafe { driver.cuCtxSetCurrent(context) }?;
    if code == CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED {
        // SAFETY: no pointers.
        unsafe { driver.cuDevicePrimaryCtxReset_v2(0) }?;
        return Ok(handles);
    }
    make_things(driver, &mut handles, host)?;
    match code {
        CUresult::CUDA_ERROR_LAUNCH_TIMEOUT => lose_by_kernel(driver, &handles, "", "again: bra again;")?,
        CUresult::CUDA_ERROR_MISALIGNED_ADDRESS => lose_by_kernel(driver, &handles, "", "st.global.u32 [%d+2], 0;")?,
        CUresult::CUDA_ERROR_ASSERT => lose_by_kernel(driver, &handles, ASSERTION, FAILS)?,
        CUresult::CUDA_ERROR_INVALID_PC => lose_by_kernel(driver, &handles, "", CALLS_NOTHING)?,
        _ => lose_context(driver, &handles, code == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)?,
    }
    Ok(handles)
}

fn make_things(driver: &Driver, handles: &mut Handles, host: *mut c_void) -> Result<(), DriverError> {
    // SAFETY: live out pointers; as those below.
    unsafe { driver.cuStreamCreate(&mut handles.stream, 1) }?;
    // SAFETY: as above.
    unsafe { driver.cuEventCreate(&mut handles.event, 0) }?;
    // SAFETY: as above; without a descriptor it is of the whole device.
    unsafe { driver.cuGreenCtxCreate(&mut handles.green, ptr::null_mut(), 0, 1) }?;
    // SAFETY: as above.
    unsafe { driver.cuMemAlloc_v2(&mut handles.memory, 4096) }?;
    // SAFETY: as above.
    unsafe { driver.cuMemAllocHost_v2(&mut handles.pinned, 4096) }?;
    handles.registered = host;
    // SAFETY: 4096 bytes that the caller keeps.
    unsafe { driver.cuMemHostRegister_v2(host, 4096, 0) }
}

/// Takes memory away from under queued work: under a copy, or under a small set.
fn lose_context(driver: &Driver, handles: &Handles, by_copy: bool) -> Result<(), DriverError> {
    let base = mapped(driver)?;
    if by_copy {
        // SAFETY: device addresses only.
        unsafe { driver.cuMemcpyDtoDAsync_v2(handles.memory, base, 64, handles.stream) }?;
    } else {
        // SAFETY: as above.
        unsafe { driver.cuMemsetD8Async(base, 1, 64, handles.stream) }?;
    }
    // SAFETY: the simulated driver finds out that the memory is gone.
    unsafe { driver.cuMemUnmap(base, GRANULE) }?;
    // SAFETY: the stream exists. This call is the first one to answer with the code.
    let lost = unsafe { driver.cuStreamSynchronize(handles.stream) };
    assert!(lost.is_err(), "the context was not lost");
    Ok(())
}

/// The function that a failed assertion calls, as compilers declare it, and a text for it.
const ASSERTION: &str = ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n\
                         .global .align 1 .b8 words[4] = {120, 62, 49, 0};\n";

/// Calls it.
const FAILS: &str = "mov.u64 %d, words;\n{ .param .b64 m; st.param.b64 [m], %d; .param .b64 f; st.param.b64 [f], %d;\n\
                     .param .b32 l; st.param.b32 [l], 1; .param .b64 n; st.param.b64 [n], %d; .param .b64 s;\n\
                     st.param.b64 [s], 1; call.uni __assertfail, (m, f, l, n, s); }";

/// Calls an address where no function is.
const CALLS_NOTHING: &str = "mov.u64 %d, 77;\nplain: .callprototype _ ();\ncall %d, plain;";

/// Runs a kernel that fails; `%d` is the address of memory.
fn lose_by_kernel(driver: &Driver, handles: &Handles, items: &str, body: &str) -> Result<(), DriverError> {
    let text = format!(
        ".version 7.8\n.target sm_75\n.address_size 64\n{items}.entry k(.param .u64 m) {{\n.reg .b64 %d;\nld.param.u64 %d, [m];\n{body}\n}}\0"
    );
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live out pointer and text that ends with a zero byte.
    unsafe { driver.cuModuleLoadData(&mut module, text.as_ptr().cast()) }?;
    // SAFETY: a live out pointer, a module, a name that ends with a zero byte.
    unsafe { driver.cuModuleGetFunction(&mut function, module, c"k".as_ptr()) }?;
    let mut parameters = [(&raw const handles.memory).cast_mut().cast::<c_void>()];
    let (stream, none) = (handles.stream, ptr::null_mut());
    // SAFETY: one parameter, read before the call returns.
    unsafe { driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), none) }?;
    // SAFETY: the stream exists. This call is the first one to answer with the code.
    let lost = unsafe { driver.cuStreamSynchronize(stream) };
    assert!(lost.is_err(), "the context was not lost");
    Ok(())
}

/// Maps memory that can be unmapped while work uses it.
fn mapped(driver: &Driver) -> Result<u64, DriverError> {
    let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    // SAFETY: a plain structure for which zeros are a value.
    let mut wanted: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    wanted.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = location;
    let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    let (mut base, mut memory) = (0, 0);
    // SAFETY: live pointers; as those below.
    unsafe { driver.cuMemAddressReserve(&mut base, GRANULE, 0, 0, 0) }?;
    // SAFETY: as above.
    unsafe { driver.cuMemCreate(&mut memory, GRANULE, &wanted, 0) }?;
    // SAFETY: as above.
    unsafe { driver.cuMemMap(base, GRANULE, 0, memory, 0) }?;
    // SAFETY: as above.
    unsafe { driver.cuMemSetAccess(base, GRANULE, &access, 1) }?;
    Ok(base)
}
