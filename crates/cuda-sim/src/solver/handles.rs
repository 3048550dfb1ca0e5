//! Handles of cuSOLVER, and its sets of parameters.

use std::collections::BTreeMap;

use cuda_sys::cublas::types::{CUstream_st, cudaStream_t, libraryPropertyType_t};
use cuda_sys::cusolver::types::{
    cusolverDeterministicMode_t, cusolverDnContext, cusolverDnHandle_t, cusolverDnParams, cusolverDnParams_t,
    gesvdjInfo, gesvdjInfo_t,
};

use super::{ALLOC_FAILED, Answer, CUSOLVER_VERSION, INVALID_VALUE, NOT_INITIALIZED};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::report::ReportKind;
use crate::toolkit::LibraryStatus as _;

/// A handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) context: u64,
    /// The stream as the program named it.
    pub(super) stream: u64,
    /// The thread that set the stream, or made the handle.
    thread: u64,
    mode: cusolverDeterministicMode_t,
}

/// Handles and sets of parameters of a machine.
#[derive(Debug, Default)]
pub(crate) struct Solver {
    handles: BTreeMap<u64, Handle>,
    /// Sets of parameters, with whether they are those of the Jacobi method.
    params: BTreeMap<u64, bool>,
}

impl Solver {
    pub(crate) fn handle_count(&self) -> usize {
        self.handles.len()
    }

    /// Stream of a handle, and that it has no workspace.
    pub(crate) fn set_to(&self, handle: u64) -> Option<(u64, Option<(u64, u64)>)> {
        self.handles.get(&handle).map(|found| (found.stream, None))
    }
}

impl Call<'_> {
    /// The handle that a call is made with.
    pub(super) fn solver_handle(&mut self, given: Ptr<cusolverDnContext>) -> Answer<Handle> {
        if let Some(found) = self.solver.handles.get(&given.address()) {
            return Ok(*found);
        }
        if !given.is_null() {
            let text = format!("{:#x} is no handle, or was destroyed", given.address());
            self.report(ReportKind::LibraryHandle, text);
        }
        Err(NOT_INITIALIZED)
    }

    /// The handle that a call works with: it must be the thread's, and usable.
    pub(super) fn working_solver(&mut self, given: Ptr<cusolverDnContext>) -> Answer<Handle> {
        let found = self.solver_handle(given)?;
        self.check_handle(found.context, found.thread)?;
        Ok(found)
    }

    /// Refuses a set of parameters that there is not; null is the usual ones.
    pub(super) fn check_params(&mut self, given: u64, jacobi: bool) -> Answer {
        if given == 0 || self.solver.params.get(&given) == Some(&jacobi) {
            return Ok(());
        }
        self.report(ReportKind::LibraryHandle, format!("{given:#x} are no parameters, or were destroyed"));
        Err(INVALID_VALUE)
    }
}

pub(super) fn create(call: &mut Call<'_>, given: Ptr<cusolverDnHandle_t>) -> Answer {
    if given.is_null() {
        return Err(INVALID_VALUE);
    }
    let context = call.need_context().map_err(|_| NOT_INITIALIZED)?;
    // The library allocates memory of the device for its handle.
    call.refuse_if_unsafe().map_err(|_| ALLOC_FAILED)?;
    let made = call.new_handle();
    let mode = cusolverDeterministicMode_t(1);
    let thread = call.thread;
    call.solver.handles.insert(made, Handle { context, stream: 0, thread, mode });
    given.write(handle(made)).map_err(|_| INVALID_VALUE)
}

pub(super) fn destroy(call: &mut Call<'_>, given: Ptr<cusolverDnContext>) -> Answer {
    let context = call.solver_handle(given)?.context;
    call.solver.handles.remove(&given.address());
    if call.active_context(context).is_err() {
        return Ok(());
    }
    let failed = super::cusolverStatus_t::EXECUTION_FAILED;
    call.refuse_while_capturing_anywhere(context).map_err(|_| failed)?;
    call.finish_context(context).map_err(|_| failed)
}

pub(super) fn set_stream(call: &mut Call<'_>, given: Ptr<cusolverDnContext>, stream: Ptr<CUstream_st>) -> Answer {
    call.solver_handle(given)?;
    let thread = call.thread;
    if call.stream_named(stream.address()).is_err() {
        let text = format!("{:#x} is no stream, or was destroyed", stream.address());
        call.report(ReportKind::WrongStream, text);
        if call.config.strict {
            return Err(INVALID_VALUE);
        }
    }
    let found = call.solver.handles.get_mut(&given.address()).ok_or(NOT_INITIALIZED)?;
    (found.stream, found.thread) = (stream.address(), thread);
    Ok(())
}

pub(super) fn get_stream(call: &mut Call<'_>, given: Ptr<cusolverDnContext>, stream: Ptr<cudaStream_t>) -> Answer {
    let found = call.solver_handle(given)?.stream;
    stream.write(handle(found)).map_err(|_| INVALID_VALUE)
}

pub(super) fn set_mode(
    call: &mut Call<'_>,
    given: Ptr<cusolverDnContext>,
    mode: cusolverDeterministicMode_t,
) -> Answer {
    call.solver_handle(given)?;
    if !(1..=2).contains(&mode.0) {
        return Err(INVALID_VALUE);
    }
    let found = call.solver.handles.get_mut(&given.address()).ok_or(NOT_INITIALIZED)?;
    found.mode = mode;
    Ok(())
}

pub(super) fn get_mode(
    call: &mut Call<'_>,
    given: Ptr<cusolverDnContext>,
    mode: Ptr<cusolverDeterministicMode_t>,
) -> Answer {
    let found = call.solver_handle(given)?.mode;
    mode.write(found).map_err(|_| INVALID_VALUE)
}

fn make_params<T>(call: &mut Call<'_>, given: Ptr<*mut T>, jacobi: bool) -> Answer {
    if given.is_null() {
        return Err(INVALID_VALUE);
    }
    let made = call.new_handle();
    call.solver.params.insert(made, jacobi);
    given.write(handle(made)).map_err(|_| INVALID_VALUE)
}

fn drop_params(call: &mut Call<'_>, given: u64, jacobi: bool) -> Answer {
    call.check_params(given, jacobi)?;
    call.solver.params.remove(&given);
    Ok(())
}

pub(super) fn create_params(call: &mut Call<'_>, given: Ptr<cusolverDnParams_t>) -> Answer {
    make_params(call, given, false)
}

pub(super) fn destroy_params(call: &mut Call<'_>, given: Ptr<cusolverDnParams>) -> Answer {
    drop_params(call, given.address(), false)
}

pub(super) fn create_info(call: &mut Call<'_>, given: Ptr<gesvdjInfo_t>) -> Answer {
    make_params(call, given, true)
}

pub(super) fn destroy_info(call: &mut Call<'_>, given: Ptr<gesvdjInfo>) -> Answer {
    drop_params(call, given.address(), true)
}

pub(super) fn set_tolerance(call: &mut Call<'_>, given: Ptr<gesvdjInfo>, tolerance: f64) -> Answer {
    call.check_params(given.address(), true)?;
    if tolerance >= 0.0 { Ok(()) } else { Err(INVALID_VALUE) }
}

pub(super) fn set_sweeps(call: &mut Call<'_>, given: Ptr<gesvdjInfo>, sweeps: i32) -> Answer {
    call.check_params(given.address(), true)?;
    if sweeps > 0 { Ok(()) } else { Err(INVALID_VALUE) }
}

pub(super) fn set_sorted(call: &mut Call<'_>, given: Ptr<gesvdjInfo>, sorted: i32) -> Answer {
    call.check_params(given.address(), true)?;
    // Sorted they are here in any case.
    if (0..=1).contains(&sorted) { Ok(()) } else { Err(INVALID_VALUE) }
}

pub(super) fn property(_: &mut Call<'_>, part: libraryPropertyType_t, value: Ptr<i32>) -> Answer {
    let found = match part {
        libraryPropertyType_t::MAJOR_VERSION => CUSOLVER_VERSION.major,
        libraryPropertyType_t::MINOR_VERSION => CUSOLVER_VERSION.minor,
        libraryPropertyType_t::PATCH_LEVEL => CUSOLVER_VERSION.patch,
        _ => return Err(INVALID_VALUE),
    };
    value.write(i32::try_from(found).unwrap_or(0)).map_err(|_| INVALID_VALUE)
}

pub(super) fn version(_: &mut Call<'_>, value: Ptr<i32>) -> Answer {
    let cuda_sys::LibraryVersion { major, minor, patch } = CUSOLVER_VERSION;
    let found = i32::try_from(major * 1000 + minor * 100 + patch).unwrap_or(0);
    value.write(found).map_err(|_| INVALID_VALUE)
}
