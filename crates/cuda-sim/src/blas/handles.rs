//! Handles of cuBLAS: what they are set to.
//!
//! As in the library, setting the stream takes the workspace away that the program gave, and destroying a handle waits for
//! its device. A handle belongs to the context that was current when it was made.

use cuda_sys::cublas::types::{
    CUstream_st, cublasAtomicsMode_t, cublasContext, cublasMath_t, cublasPointerMode_t, cudaStream_t,
    libraryPropertyType_t,
};
use std::ffi::c_void;

use super::{ALLOC_FAILED, Answer, CUBLAS_VERSION, EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, version_number};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::model::State;
use crate::report::ReportKind;

/// The workspace that a program gives must start at a multiple of this.
const WORKSPACE_ALIGNMENT: u64 = 256;

/// The bits of a math mode beside its number.
const DISALLOW_REDUCED: u32 = cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION.0;

/// A handle of cuBLAS.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) context: u64,
    /// The stream as the program named it.
    pub(super) stream: u64,
    /// The thread that set the stream, or made the handle.
    pub(super) thread: u64,
    /// Address and bytes of the workspace that the program gave.
    pub(super) workspace: Option<(u64, u64)>,
    pub(super) math: cublasMath_t,
    pub(super) pointers: cublasPointerMode_t,
    atomics: cublasAtomicsMode_t,
    multiprocessors: i32,
}

impl State {
    /// The handle that a call is made with.
    pub(super) fn blas_handle(&mut self, given: Ptr<cublasContext>) -> Answer<Handle> {
        if let Some(found) = self.blas.handles.get(&given.address()) {
            return Ok(found.clone());
        }
        if !given.is_null() {
            let text = format!("{:#x} is no handle, or was destroyed", given.address());
            self.report(ReportKind::LibraryHandle, text);
        }
        Err(NOT_INITIALIZED)
    }

    fn blas_handle_mut(&mut self, given: Ptr<cublasContext>) -> Answer<&mut Handle> {
        self.blas_handle(given)?;
        self.blas.handles.get_mut(&given.address()).ok_or(NOT_INITIALIZED)
    }
}

pub(super) fn create(call: &mut Call<'_>, given: Ptr<*mut cublasContext>) -> Answer {
    if given.is_null() {
        return Err(INVALID_VALUE);
    }
    let context = call.need_context().map_err(|_| NOT_INITIALIZED)?;
    // The library allocates memory of the device for its handle.
    call.refuse_if_unsafe().map_err(|_| ALLOC_FAILED)?;
    let made = call.new_handle();
    let new = Handle {
        context,
        stream: 0,
        thread: call.thread,
        workspace: None,
        math: cublasMath_t::CUBLAS_DEFAULT_MATH,
        pointers: cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST,
        atomics: cublasAtomicsMode_t::CUBLAS_ATOMICS_NOT_ALLOWED,
        multiprocessors: 0,
    };
    call.blas.handles.insert(made, new);
    given.write(handle(made)).map_err(|_| INVALID_VALUE)
}

pub(super) fn destroy(call: &mut Call<'_>, given: Ptr<cublasContext>) -> Answer {
    let context = call.blas_handle(given)?.context;
    call.blas.handles.remove(&given.address());
    if call.active_context(context).is_err() {
        return Ok(());
    }
    call.refuse_while_capturing_anywhere(context).map_err(|_| EXECUTION_FAILED)?;
    call.finish_context(context).map_err(|_| EXECUTION_FAILED)
}

pub(super) fn set_stream(call: &mut Call<'_>, given: Ptr<cublasContext>, stream: Ptr<CUstream_st>) -> Answer {
    call.blas_handle(given)?;
    let thread = call.thread;
    if call.stream_named(stream.address()).is_err() {
        let text = format!("{:#x} is no stream, or was destroyed", stream.address());
        call.report(ReportKind::WrongStream, text);
        if call.config.strict {
            return Err(INVALID_VALUE);
        }
    }
    let found = call.blas_handle_mut(given)?;
    found.stream = stream.address();
    found.thread = thread;
    // The library goes back to a workspace of its own.
    found.workspace = None;
    Ok(())
}

pub(super) fn get_stream(call: &mut Call<'_>, given: Ptr<cublasContext>, stream: Ptr<cudaStream_t>) -> Answer {
    let found = call.blas_handle(given)?.stream;
    stream.write(handle(found)).map_err(|_| INVALID_VALUE)
}

pub(super) fn set_workspace(
    call: &mut Call<'_>,
    given: Ptr<cublasContext>,
    workspace: Ptr<c_void>,
    bytes: usize,
) -> Answer {
    let found = call.blas_handle_mut(given)?;
    let address = workspace.address();
    if !address.is_multiple_of(WORKSPACE_ALIGNMENT) || (address == 0 && bytes > 0) {
        return Err(INVALID_VALUE);
    }
    found.workspace = Some((address, bytes as u64));
    Ok(())
}

pub(super) fn set_math_mode(call: &mut Call<'_>, given: Ptr<cublasContext>, mode: cublasMath_t) -> Answer {
    let found = call.blas_handle_mut(given)?;
    if !matches!(mode.0 & !DISALLOW_REDUCED, 0..=4 | 8) {
        return Err(INVALID_VALUE);
    }
    found.math = mode;
    Ok(())
}

pub(super) fn get_math_mode(call: &mut Call<'_>, given: Ptr<cublasContext>, mode: Ptr<cublasMath_t>) -> Answer {
    let found = call.blas_handle(given)?.math;
    mode.write(found).map_err(|_| INVALID_VALUE)
}

pub(super) fn set_pointer_mode(call: &mut Call<'_>, given: Ptr<cublasContext>, mode: cublasPointerMode_t) -> Answer {
    let found = call.blas_handle_mut(given)?;
    if mode.0 > 1 {
        return Err(INVALID_VALUE);
    }
    found.pointers = mode;
    Ok(())
}

pub(super) fn get_pointer_mode(
    call: &mut Call<'_>,
    given: Ptr<cublasContext>,
    mode: Ptr<cublasPointerMode_t>,
) -> Answer {
    let found = call.blas_handle(given)?.pointers;
    mode.write(found).map_err(|_| INVALID_VALUE)
}

pub(super) fn set_atomics_mode(call: &mut Call<'_>, given: Ptr<cublasContext>, mode: cublasAtomicsMode_t) -> Answer {
    let found = call.blas_handle_mut(given)?;
    if mode.0 > 1 {
        return Err(INVALID_VALUE);
    }
    found.atomics = mode;
    Ok(())
}

pub(super) fn get_atomics_mode(
    call: &mut Call<'_>,
    given: Ptr<cublasContext>,
    mode: Ptr<cublasAtomicsMode_t>,
) -> Answer {
    let found = call.blas_handle(given)?.atomics;
    mode.write(found).map_err(|_| INVALID_VALUE)
}

pub(super) fn set_sm_count_target(call: &mut Call<'_>, given: Ptr<cublasContext>, count: i32) -> Answer {
    let found = call.blas_handle_mut(given)?;
    if count < 0 {
        return Err(INVALID_VALUE);
    }
    found.multiprocessors = count;
    Ok(())
}

pub(super) fn get_sm_count_target(call: &mut Call<'_>, given: Ptr<cublasContext>, count: Ptr<i32>) -> Answer {
    let found = call.blas_handle(given)?.multiprocessors;
    count.write(found).map_err(|_| INVALID_VALUE)
}

pub(super) fn version(call: &mut Call<'_>, given: Ptr<cublasContext>, version: Ptr<i32>) -> Answer {
    call.blas_handle(given)?;
    version.write(version_number()).map_err(|_| INVALID_VALUE)
}

pub(super) fn property(_: &mut Call<'_>, part: libraryPropertyType_t, value: Ptr<i32>) -> Answer {
    let found = match part {
        libraryPropertyType_t::MAJOR_VERSION => CUBLAS_VERSION.major,
        libraryPropertyType_t::MINOR_VERSION => CUBLAS_VERSION.minor,
        libraryPropertyType_t::PATCH_LEVEL => CUBLAS_VERSION.patch,
        _ => return Err(INVALID_VALUE),
    };
    value.write(i32::try_from(found).unwrap_or(0)).map_err(|_| INVALID_VALUE)
}
