//! Plans of cuFFT: made empty, set up, then filled with what is to be transformed.
//!
//! As in the library, a plan that allocates for itself has its work area when it was made; one that does not must be given
//! one before it transforms.

use std::collections::BTreeMap;
use std::ffi::c_void;

use cuda_sys::cublas::types::{CUstream_st, cudaDataType_t, libraryPropertyType_t};
use cuda_sys::cufft::types::{cufftHandle, cufftType_t};

use cudaDataType_t as Type;

use super::work::Side;
use super::{
    ALLOC_FAILED, Answer, CUFFT_VERSION, INVALID_PLAN, INVALID_SIZE, INVALID_TYPE, INVALID_VALUE, SETUP_FAILED,
};
use crate::call::Call;
use crate::claim::Ptr;
use crate::report::ReportKind;
use crate::toolkit::numbers::bytes_of;

/// The most dimensions of a transform.
const DIMENSIONS_MAX: usize = 3;

/// The most numbers of a transform.
const NUMBERS_MAX: u64 = 1 << 40;

/// What a plan transforms.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) sizes: Vec<u64>,
    pub(super) batch: u64,
    pub(super) from: Side,
    pub(super) to: Side,
    /// Whether numbers lie without gaps because nothing else was said.
    pub(super) is_basic: bool,
    pub(super) workspace_bytes: u64,
}

/// A plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) context: u64,
    /// The stream as the program named it.
    pub(super) stream: u64,
    /// The thread that set the stream, or made the plan.
    pub(super) thread: u64,
    pub(super) allocates: bool,
    pub(super) area: u64,
    pub(super) made: Option<Made>,
}

/// Plans of a machine.
#[derive(Debug, Default)]
pub(crate) struct Fft {
    plans: BTreeMap<i32, Plan>,
    last: i32,
}

impl Fft {
    pub(crate) fn plan_count(&self) -> usize {
        self.plans.len()
    }
}

impl Call<'_> {
    /// The plan that a call names.
    pub(super) fn fft_plan(&mut self, plan: cufftHandle) -> Answer<&mut Plan> {
        if !self.fft.plans.contains_key(&plan) {
            self.report(ReportKind::LibraryHandle, format!("{plan} is no plan, or was destroyed"));
        }
        self.fft.plans.get_mut(&plan).ok_or(INVALID_PLAN)
    }
}

pub(super) fn create(call: &mut Call<'_>, given: Ptr<cufftHandle>) -> Answer {
    if given.is_null() {
        return Err(INVALID_VALUE);
    }
    let context = call.need_context().map_err(|_| SETUP_FAILED)?;
    let thread = call.thread;
    call.fft.last += 1;
    let number = call.fft.last;
    call.fft.plans.insert(number, Plan { context, stream: 0, thread, allocates: true, area: 0, made: None });
    given.write(number).map_err(|_| INVALID_VALUE)
}

pub(super) fn destroy(call: &mut Call<'_>, plan: cufftHandle) -> Answer {
    call.fft_plan(plan)?;
    call.fft.plans.remove(&plan);
    Ok(())
}

pub(super) fn set_stream(call: &mut Call<'_>, plan: cufftHandle, stream: Ptr<CUstream_st>) -> Answer {
    call.fft_plan(plan)?;
    let thread = call.thread;
    if call.stream_named(stream.address()).is_err() {
        let text = format!("{:#x} is no stream, or was destroyed", stream.address());
        call.report(ReportKind::WrongStream, text);
        if call.config.strict {
            return Err(INVALID_VALUE);
        }
    }
    let found = call.fft_plan(plan)?;
    (found.stream, found.thread) = (stream.address(), thread);
    Ok(())
}

pub(super) fn set_auto_allocation(call: &mut Call<'_>, plan: cufftHandle, allocates: i32) -> Answer {
    let found = call.fft_plan(plan)?;
    if found.made.is_some() {
        return Err(INVALID_PLAN);
    }
    found.allocates = allocates != 0;
    Ok(())
}

pub(super) fn set_work_area(call: &mut Call<'_>, plan: cufftHandle, area: Ptr<c_void>) -> Answer {
    let found = call.fft_plan(plan)?;
    found.area = area.address();
    found.allocates = false;
    Ok(())
}

pub(super) fn size(call: &mut Call<'_>, plan: cufftHandle, bytes: Ptr<usize>) -> Answer {
    let found = call.fft_plan(plan)?.made.as_ref().ok_or(INVALID_PLAN)?.workspace_bytes;
    bytes.write(usize::try_from(found).map_err(|_| INVALID_SIZE)?).map_err(|_| INVALID_VALUE)
}

pub(super) fn version(_: &mut Call<'_>, version: Ptr<i32>) -> Answer {
    let cuda_sys::LibraryVersion { major, minor, patch } = CUFFT_VERSION;
    version.write(i32::try_from(major * 1000 + minor * 100 + patch).unwrap_or(0)).map_err(|_| INVALID_VALUE)
}

pub(super) fn property(_: &mut Call<'_>, part: libraryPropertyType_t, value: Ptr<i32>) -> Answer {
    let found = match part {
        libraryPropertyType_t::MAJOR_VERSION => CUFFT_VERSION.major,
        libraryPropertyType_t::MINOR_VERSION => CUFFT_VERSION.minor,
        libraryPropertyType_t::PATCH_LEVEL => CUFFT_VERSION.patch,
        _ => return Err(INVALID_VALUE),
    };
    value.write(i32::try_from(found).unwrap_or(0)).map_err(|_| INVALID_VALUE)
}

/// How one side lies as a call says it: the numbers of dimensions with gaps, if any, the stride and the distance.
struct Given {
    embedded: Option<Vec<u64>>,
    stride: i64,
    distance: i64,
    ty: Type,
}

/// Types of the two sides.
fn types_of(kind: cufftType_t) -> Answer<[Type; 2]> {
    Ok(match kind {
        cufftType_t::CUFFT_C2C => [Type::CUDA_C_32F; 2],
        cufftType_t::CUFFT_R2C => [Type::CUDA_R_32F, Type::CUDA_C_32F],
        cufftType_t::CUFFT_C2R => [Type::CUDA_C_32F, Type::CUDA_R_32F],
        cufftType_t::CUFFT_Z2Z => [Type::CUDA_C_64F; 2],
        cufftType_t::CUFFT_D2Z => [Type::CUDA_R_64F, Type::CUDA_C_64F],
        cufftType_t::CUFFT_Z2D => [Type::CUDA_C_64F, Type::CUDA_R_64F],
        _ => return Err(INVALID_TYPE),
    })
}

/// Whether numbers of two types are those of one transform.
fn go_together(from: Type, to: Type) -> bool {
    use Type as T;
    [[T::CUDA_C_32F, T::CUDA_C_32F], [T::CUDA_R_32F, T::CUDA_C_32F], [T::CUDA_C_32F, T::CUDA_R_32F]]
        .contains(&[from, to])
        || [[T::CUDA_C_64F, T::CUDA_C_64F], [T::CUDA_R_64F, T::CUDA_C_64F], [T::CUDA_C_64F, T::CUDA_R_64F]]
            .contains(&[from, to])
}

fn positive(value: i64) -> Answer<u64> {
    u64::try_from(value).ok().filter(|&value| value > 0).ok_or(INVALID_SIZE)
}

/// One side of a transform.
fn side(given: Given, sizes: &[u64], halved: bool) -> Answer<Side> {
    let mut own = sizes.to_vec();
    if let Some(last) = own.last_mut().filter(|_| halved) {
        *last = *last / 2 + 1;
    }
    let Some(embedded) = given.embedded else {
        let distance = own.iter().product();
        return Ok(Side { ty: given.ty, embedded: own.clone(), sizes: own, stride: 1, distance });
    };
    let (stride, distance) = (positive(given.stride)?, u64::try_from(given.distance).map_err(|_| INVALID_VALUE)?);
    Ok(Side { ty: given.ty, sizes: own, embedded, stride, distance })
}

fn fill(
    call: &mut Call<'_>,
    plan: cufftHandle,
    sizes: Vec<u64>,
    sides: [Given; 2],
    batch: i64,
    bytes: Ptr<usize>,
) -> Answer {
    if call.fft_plan(plan)?.made.is_some() {
        return Err(INVALID_PLAN);
    }
    let total = sizes.iter().try_fold(1_u64, |all, &size| all.checked_mul(size)).ok_or(INVALID_SIZE)?;
    let batch = positive(batch)?;
    if sizes.is_empty() || total.saturating_mul(batch) > NUMBERS_MAX {
        return Err(INVALID_SIZE);
    }
    let [from, to] = sides;
    if !go_together(from.ty, to.ty) {
        return Err(call.not_simulated("a transform of these types"));
    }
    let is_basic = from.embedded.is_none() || to.embedded.is_none();
    let basic = |given: Given| Given { embedded: given.embedded.filter(|_| !is_basic), ..given };
    let (from, to) = (basic(from), basic(to));
    let halves = [from.ty, to.ty].map(|ty| bytes_of(ty).unwrap_or(0));
    let (from, to) = (side(from, &sizes, halves[0] > halves[1])?, side(to, &sizes, halves[1] > halves[0])?);
    let workspace_bytes = total * batch * halves[0].max(halves[1]);
    if call.fft_plan(plan)?.allocates {
        // The library allocates memory of the device for the plan.
        call.refuse_if_unsafe().map_err(|_| ALLOC_FAILED)?;
    }
    bytes.write_if_wanted(usize::try_from(workspace_bytes).map_err(|_| INVALID_SIZE)?);
    call.fft_plan(plan)?.made = Some(Made { sizes, batch, from, to, is_basic, workspace_bytes });
    Ok(())
}

/// The numbers of each dimension.
fn dimensions<T: Copy + Into<i64>>(rank: i32, numbers: Ptr<T>) -> Answer<Vec<u64>> {
    let rank = usize::try_from(rank).ok().filter(|rank| (1..=DIMENSIONS_MAX).contains(rank)).ok_or(INVALID_VALUE)?;
    let all = numbers.read_array(rank).map_err(|_| INVALID_VALUE)?;
    all.into_iter().map(|number| positive(number.into())).collect()
}

/// The same with gaps; none where the pointer is null.
fn embedded<T: Copy + Into<i64>>(rank: i32, numbers: Ptr<T>) -> Answer<Option<Vec<u64>>> {
    if numbers.is_null() { Ok(None) } else { dimensions(rank, numbers).map(Some) }
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn make(
    call: &mut Call<'_>,
    plan: cufftHandle,
    rank: i32,
    numbers: Ptr<i32>,
    embedded_in: Ptr<i32>,
    stride_in: i32,
    distance_in: i32,
    embedded_out: Ptr<i32>,
    stride_out: i32,
    distance_out: i32,
    kind: cufftType_t,
    batch: i32,
    bytes: Ptr<usize>,
) -> Answer {
    let [from, to] = types_of(kind)?;
    let given = |numbers, stride: i32, distance: i32, ty| {
        Ok(Given { embedded: embedded(rank, numbers)?, stride: stride.into(), distance: distance.into(), ty })
    };
    let sides = [given(embedded_in, stride_in, distance_in, from)?, given(embedded_out, stride_out, distance_out, to)?];
    fill(call, plan, dimensions(rank, numbers)?, sides, batch.into(), bytes)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn make_wide(
    call: &mut Call<'_>,
    plan: cufftHandle,
    rank: i32,
    numbers: Ptr<i64>,
    embedded_in: Ptr<i64>,
    stride_in: i64,
    distance_in: i64,
    embedded_out: Ptr<i64>,
    stride_out: i64,
    distance_out: i64,
    kind: cufftType_t,
    batch: i64,
    bytes: Ptr<usize>,
) -> Answer {
    let [from, to] = types_of(kind)?;
    let given = |numbers, stride, distance, ty| Ok(Given { embedded: embedded(rank, numbers)?, stride, distance, ty });
    let sides = [given(embedded_in, stride_in, distance_in, from)?, given(embedded_out, stride_out, distance_out, to)?];
    fill(call, plan, dimensions(rank, numbers)?, sides, batch, bytes)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn make_any(
    call: &mut Call<'_>,
    plan: cufftHandle,
    rank: i32,
    numbers: Ptr<i64>,
    embedded_in: Ptr<i64>,
    stride_in: i64,
    distance_in: i64,
    from: Type,
    embedded_out: Ptr<i64>,
    stride_out: i64,
    distance_out: i64,
    to: Type,
    batch: i64,
    bytes: Ptr<usize>,
    _execution: Type,
) -> Answer {
    let given = |numbers, stride, distance, ty| Ok(Given { embedded: embedded(rank, numbers)?, stride, distance, ty });
    let sides = [given(embedded_in, stride_in, distance_in, from)?, given(embedded_out, stride_out, distance_out, to)?];
    fill(call, plan, dimensions(rank, numbers)?, sides, batch, bytes)
}
