//! Transforms that are asked for: a plan on some memory, in a direction.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_sys::cublas::types::cudaDataType_t;
use cuda_sys::cufft::types::cufftHandle;

use super::plans::Made;
use super::work::{Side, Transform};
use super::{Answer, INVALID_PLAN, INVALID_TYPE, INVALID_VALUE, NO_WORKSPACE};
use crate::blas::Named;
use crate::call::Call;
use crate::claim::Ptr;
use crate::report::ReportKind;

/// The kernel that transforms are launched as.
const KERNEL: &str = "library_transform";

/// `CUFFT_FORWARD` and `CUFFT_INVERSE`.
const DIRECTIONS: [i32; 2] = [-1, 1];

fn is_real(ty: cudaDataType_t) -> bool {
    matches!(ty, cudaDataType_t::CUDA_R_32F | cudaDataType_t::CUDA_R_64F)
}

/// Real numbers that lie where the complex ones do: rows are padded to these.
fn padded(side: Side) -> Side {
    let mut embedded = side.sizes.clone();
    if let Some(last) = embedded.last_mut() {
        *last = (*last / 2 + 1) * 2;
    }
    Side { distance: embedded.iter().product(), embedded, ..side }
}

fn run(call: &mut Call<'_>, plan: cufftHandle, input: u64, output: u64, sign: i32) -> Answer {
    let found = call.fft_plan(plan)?.clone();
    let Made { sizes, batch, from, to, is_basic, workspace_bytes } = found.made.ok_or(INVALID_PLAN)?;
    call.check_handle(found.context, found.thread)?;
    if input == 0 || output == 0 || !DIRECTIONS.contains(&sign) {
        return Err(INVALID_VALUE);
    }
    if !found.allocates && found.area == 0 && workspace_bytes > 0 {
        call.report(ReportKind::NotSupported, "the plan has no work area".to_owned());
        return Err(NO_WORKSPACE);
    }
    let in_place = is_basic && input == output;
    let side = |side: Side| if in_place && is_real(side.ty) { padded(side) } else { side };
    // The direction follows from the types where one side is real.
    let sign = match (is_real(from.ty), is_real(to.ty)) {
        (true, _) => -1,
        (_, true) => 1,
        _ => sign,
    };
    let workspace = if found.allocates { (0, 0) } else { (found.area, workspace_bytes) };
    let (from, to) = (side(from), side(to));
    let name = call.calling;
    let work = Transform { name, sizes, batch, from, to, input, output, sign: f64::from(sign), workspace };
    call.queue_work(found.context, found.stream, KERNEL, Arc::new(work))
}

/// Refuses a plan of other types.
fn check_types(call: &mut Call<'_>, plan: cufftHandle, from: cudaDataType_t, to: cudaDataType_t) -> Answer {
    let made = call.fft_plan(plan)?.made.as_ref().ok_or(INVALID_PLAN)?;
    if (made.from.ty, made.to.ty) == (from, to) { Ok(()) } else { Err(INVALID_TYPE) }
}

pub(super) fn any(
    call: &mut Call<'_>,
    plan: cufftHandle,
    input: Ptr<c_void>,
    output: Ptr<c_void>,
    direction: i32,
) -> Answer {
    run(call, plan, input.address(), output.address(), direction)
}

pub(super) fn both_ways<T: Named>(
    call: &mut Call<'_>,
    plan: cufftHandle,
    input: Ptr<T>,
    output: Ptr<T>,
    direction: i32,
) -> Answer {
    check_types(call, plan, T::TYPE, T::TYPE)?;
    run(call, plan, input.address(), output.address(), direction)
}

pub(super) fn forward<R: Named, C: Named>(
    call: &mut Call<'_>,
    plan: cufftHandle,
    input: Ptr<R>,
    output: Ptr<C>,
) -> Answer {
    check_types(call, plan, R::TYPE, C::TYPE)?;
    run(call, plan, input.address(), output.address(), -1)
}

pub(super) fn inverse<C: Named, R: Named>(
    call: &mut Call<'_>,
    plan: cufftHandle,
    input: Ptr<C>,
    output: Ptr<R>,
) -> Answer {
    check_types(call, plan, C::TYPE, R::TYPE)?;
    run(call, plan, input.address(), output.address(), 1)
}
