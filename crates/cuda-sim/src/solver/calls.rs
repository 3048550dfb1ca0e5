//! Functions of cuSOLVER that take any type of numbers, and what all of them share.
//!
//! Sizes and leading dimensions are checked first (`INVALID_VALUE`), then types (`NOT_SUPPORTED`), then that the workspace
//! is as large as the function for it said.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_sys::cublas::types::{cublasFillMode_t, cublasOperation_t, cudaDataType_t};
use cuda_sys::cusolver::types::{cusolverDnContext, cusolverDnParams};

use cudaDataType_t as Type;

use super::handles::Handle;
use super::work::{Dense, Indices, Task, matrix};
use super::{Answer, INVALID_VALUE};
use crate::call::Call;
use crate::claim::Ptr;
use crate::toolkit::LibraryStatus as _;
use crate::toolkit::matrix::Matrix;
use crate::toolkit::numbers::{bytes_of, is_complex};

/// The kernel that factorisations are launched as.
const KERNEL: &str = "library_factorisation";

/// Numbers of workspace beside those of the matrix.
const WORKSPACE_BESIDE: u64 = 64;

/// No pivots.
pub(super) const NO_PIVOTS: Indices = Indices { address: 0, bytes: 8 };

pub(super) fn size(value: i64) -> Answer<u64> {
    u64::try_from(value).map_err(|_| INVALID_VALUE)
}

pub(super) fn check_type(ty: Type) -> Answer {
    let known = matches!(ty, Type::CUDA_R_32F | Type::CUDA_R_64F | Type::CUDA_C_32F | Type::CUDA_C_64F);
    if known { Ok(()) } else { Err(super::cusolverStatus_t::NOT_SUPPORTED) }
}

/// The type of singular values of a matrix.
pub(super) fn real_of(ty: Type) -> Type {
    match ty {
        Type::CUDA_C_32F => Type::CUDA_R_32F,
        Type::CUDA_C_64F => Type::CUDA_R_64F,
        other => other,
    }
}

/// A matrix that a call names.
pub(super) fn given(address: u64, ty: Type, (rows, columns): (i64, i64), leading: i64) -> Answer<Matrix> {
    let (rows, columns, leading) = (size(rows)?, size(columns)?, size(leading)?);
    check_type(ty)?;
    if leading < rows.max(1) || (address == 0 && rows > 0 && columns > 0) {
        return Err(INVALID_VALUE);
    }
    Ok(matrix(address, ty, (rows, columns), leading))
}

/// Numbers of workspace for a matrix.
pub(super) fn workspace_numbers(rows: i64, columns: i64) -> Answer<u64> {
    Ok(size(rows)? * size(columns)? + WORKSPACE_BESIDE)
}

/// Whether a triangle is the lower one.
pub(super) fn is_lower(uplo: cublasFillMode_t) -> Answer<bool> {
    match uplo {
        cublasFillMode_t::CUBLAS_FILL_MODE_LOWER => Ok(true),
        cublasFillMode_t::CUBLAS_FILL_MODE_UPPER => Ok(false),
        _ => Err(INVALID_VALUE),
    }
}

impl Dense {
    /// A factorisation of a matrix alone.
    pub(super) fn plain(name: &'static str, task: Task, a: Matrix, info: u64) -> Self {
        Self { name, task, a, b: None, c: None, values: None, pivots: NO_PIVOTS, info, workspace: (0, 0) }
    }
}

impl Call<'_> {
    /// Queues a factorisation on the stream of a handle.
    pub(super) fn queue_dense(&mut self, handle: Handle, work: Dense) -> Answer {
        if work.info == 0 {
            return Err(INVALID_VALUE);
        }
        self.queue_work(handle.context, handle.stream, KERNEL, Arc::new(work))
    }
}

/// Tells how much workspace a matrix needs: none of the host's.
fn tell(rows: i64, columns: i64, ty: Type, device: Ptr<usize>, host: Ptr<usize>) -> Answer {
    check_type(ty)?;
    let bytes = workspace_numbers(rows, columns)? * bytes_of(ty).unwrap_or(0);
    device.write(usize::try_from(bytes).map_err(|_| INVALID_VALUE)?).map_err(|_| INVALID_VALUE)?;
    host.write(0).map_err(|_| INVALID_VALUE)
}

/// Refuses a workspace that is smaller than was told.
fn workspace(a: &Matrix, buffer: Ptr<c_void>, bytes: usize) -> Answer<(u64, u64)> {
    let needed = (a.rows * a.columns + WORKSPACE_BESIDE) * bytes_of(a.ty).unwrap_or(0);
    if (bytes as u64) < needed || buffer.is_null() {
        return Err(INVALID_VALUE);
    }
    Ok((buffer.address(), bytes as u64))
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn potrf_bytes(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    uplo: cublasFillMode_t,
    n: i64,
    ty: Type,
    _a: Ptr<c_void>,
    _leading: i64,
    _compute: Type,
    device: Ptr<usize>,
    host: Ptr<usize>,
) -> Answer {
    call.solver_handle(handle)?;
    call.check_params(params.address(), false)?;
    is_lower(uplo)?;
    tell(n, n, ty, device, host)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn potrf(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    uplo: cublasFillMode_t,
    n: i64,
    ty: Type,
    a: Ptr<c_void>,
    leading: i64,
    _compute: Type,
    buffer: Ptr<c_void>,
    bytes: usize,
    _host: Ptr<c_void>,
    _host_bytes: usize,
    info: Ptr<i32>,
) -> Answer {
    let handle = call.working_solver(handle)?;
    call.check_params(params.address(), false)?;
    let task = Task::Cholesky { lower: is_lower(uplo)? };
    let a = given(a.address(), ty, (n, n), leading)?;
    let workspace = workspace(&a, buffer, bytes)?;
    let work = Dense { workspace, ..Dense::plain(call.calling, task, a, info.address()) };
    call.queue_dense(handle, work)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn potrs(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    uplo: cublasFillMode_t,
    n: i64,
    sides: i64,
    ty: Type,
    a: Ptr<c_void>,
    leading: i64,
    type_b: Type,
    b: Ptr<c_void>,
    leading_b: i64,
    info: Ptr<i32>,
) -> Answer {
    let handle = call.working_solver(handle)?;
    call.check_params(params.address(), false)?;
    let task = Task::SolveCholesky { lower: is_lower(uplo)? };
    let a = given(a.address(), ty, (n, n), leading)?;
    let b = same(ty, given(b.address(), type_b, (n, sides), leading_b)?)?;
    let work = Dense { b: Some(b), ..Dense::plain(call.calling, task, a, info.address()) };
    call.queue_dense(handle, work)
}

/// Refuses a matrix of another type.
fn same(ty: Type, matrix: Matrix) -> Answer<Matrix> {
    if matrix.ty == ty { Ok(matrix) } else { Err(super::cusolverStatus_t::NOT_SUPPORTED) }
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn getrf_bytes(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    m: i64,
    n: i64,
    ty: Type,
    _a: Ptr<c_void>,
    _leading: i64,
    _compute: Type,
    device: Ptr<usize>,
    host: Ptr<usize>,
) -> Answer {
    call.solver_handle(handle)?;
    call.check_params(params.address(), false)?;
    tell(m, n, ty, device, host)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn getrf(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    m: i64,
    n: i64,
    ty: Type,
    a: Ptr<c_void>,
    leading: i64,
    pivots: Ptr<i64>,
    _compute: Type,
    buffer: Ptr<c_void>,
    bytes: usize,
    _host: Ptr<c_void>,
    _host_bytes: usize,
    info: Ptr<i32>,
) -> Answer {
    let handle = call.working_solver(handle)?;
    call.check_params(params.address(), false)?;
    let a = given(a.address(), ty, (m, n), leading)?;
    let workspace = workspace(&a, buffer, bytes)?;
    let pivots = Indices { address: pivots.address(), bytes: 8 };
    let work = Dense { workspace, pivots, ..Dense::plain(call.calling, Task::Lu, a, info.address()) };
    call.queue_dense(handle, work)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn getrs(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    op: cublasOperation_t,
    n: i64,
    sides: i64,
    ty: Type,
    a: Ptr<c_void>,
    leading: i64,
    pivots: Ptr<i64>,
    type_b: Type,
    b: Ptr<c_void>,
    leading_b: i64,
    info: Ptr<i32>,
) -> Answer {
    let handle = call.working_solver(handle)?;
    call.check_params(params.address(), false)?;
    if op.0 > cublasOperation_t::CUBLAS_OP_C.0 {
        return Err(INVALID_VALUE);
    }
    let a = given(a.address(), ty, (n, n), leading)?;
    let b = same(ty, given(b.address(), type_b, (n, sides), leading_b)?)?;
    let pivots = Indices { address: pivots.address(), bytes: 8 };
    let work = Dense { b: Some(b), pivots, ..Dense::plain(call.calling, Task::SolveLu { op }, a, info.address()) };
    call.queue_dense(handle, work)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn geqrf_bytes(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    m: i64,
    n: i64,
    ty: Type,
    _a: Ptr<c_void>,
    _leading: i64,
    _type_tau: Type,
    _tau: Ptr<c_void>,
    _compute: Type,
    device: Ptr<usize>,
    host: Ptr<usize>,
) -> Answer {
    call.solver_handle(handle)?;
    call.check_params(params.address(), false)?;
    tell(m, n, ty, device, host)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn geqrf(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    m: i64,
    n: i64,
    ty: Type,
    a: Ptr<c_void>,
    leading: i64,
    type_tau: Type,
    tau: Ptr<c_void>,
    _compute: Type,
    buffer: Ptr<c_void>,
    bytes: usize,
    _host: Ptr<c_void>,
    _host_bytes: usize,
    info: Ptr<i32>,
) -> Answer {
    let handle = call.working_solver(handle)?;
    call.check_params(params.address(), false)?;
    let a = given(a.address(), ty, (m, n), leading)?;
    let count = m.min(n);
    let tau = same(ty, given(tau.address(), type_tau, (count, 1), count.max(1))?)?;
    let workspace = workspace(&a, buffer, bytes)?;
    let work = Dense { workspace, values: Some(tau), ..Dense::plain(call.calling, Task::Qr, a, info.address()) };
    call.queue_dense(handle, work)
}

/// How many singular vectors are wanted, by the letter for it; none where there are none.
fn wanted(job: i8, all: i64, few: i64) -> Answer<Option<i64>> {
    match job.cast_unsigned() {
        b'A' => Ok(Some(all)),
        b'S' => Ok(Some(few)),
        b'N' => Ok(None),
        _ => Err(INVALID_VALUE),
    }
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gesvd_bytes(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    job_u: i8,
    job_v: i8,
    m: i64,
    n: i64,
    ty: Type,
    _a: Ptr<c_void>,
    _leading: i64,
    _type_s: Type,
    _s: Ptr<c_void>,
    _type_u: Type,
    _u: Ptr<c_void>,
    _leading_u: i64,
    _type_v: Type,
    _v: Ptr<c_void>,
    _leading_v: i64,
    _compute: Type,
    device: Ptr<usize>,
    host: Ptr<usize>,
) -> Answer {
    call.solver_handle(handle)?;
    call.check_params(params.address(), false)?;
    wanted(job_u, 0, 0)?;
    wanted(job_v, 0, 0)?;
    if m < n {
        return Err(INVALID_VALUE);
    }
    tell(m, n, ty, device, host)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gesvd(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    params: Ptr<cusolverDnParams>,
    job_u: i8,
    job_v: i8,
    m: i64,
    n: i64,
    ty: Type,
    a: Ptr<c_void>,
    leading: i64,
    type_s: Type,
    s: Ptr<c_void>,
    type_u: Type,
    u: Ptr<c_void>,
    leading_u: i64,
    type_v: Type,
    v: Ptr<c_void>,
    leading_v: i64,
    _compute: Type,
    buffer: Ptr<c_void>,
    bytes: usize,
    _host: Ptr<c_void>,
    _host_bytes: usize,
    info: Ptr<i32>,
) -> Answer {
    let handle = call.working_solver(handle)?;
    call.check_params(params.address(), false)?;
    if m < n {
        return Err(INVALID_VALUE);
    }
    let a = given(a.address(), ty, (m, n), leading)?;
    let values = same(real_of(ty), given(s.address(), type_s, (n, 1), n.max(1))?)?;
    let left = wanted(job_u, m, n)?.map(|columns| same(ty, given(u.address(), type_u, (m, columns), leading_u)?));
    let right = wanted(job_v, n, n)?.map(|rows| same(ty, given(v.address(), type_v, (rows, n), leading_v)?));
    let workspace = workspace(&a, buffer, bytes)?;
    let plain = Dense::plain(call.calling, Task::Svd { adjoint: true }, a, info.address());
    let work = Dense { b: left.transpose()?, c: right.transpose()?, values: Some(values), workspace, ..plain };
    debug_assert!(!is_complex(real_of(ty)), "singular values are real");
    call.queue_dense(handle, work)
}
