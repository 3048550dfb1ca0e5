//! Functions of cuSOLVER that have the type of numbers in their names.

use cuda_sys::cusolver::types::{cusolverDnContext, cusolverEigMode_t, gesvdjInfo};

use super::calls::{given, real_of, size, workspace_numbers};
use super::work::{Dense, Task};
use super::{Answer, INVALID_VALUE};
use crate::blas::Named;
use crate::call::Call;
use crate::claim::Ptr;

/// Tells how many numbers of workspace a matrix needs.
fn tell(rows: i32, columns: i32, count: Ptr<i32>) -> Answer {
    let numbers = workspace_numbers(rows.into(), columns.into())?;
    count.write(i32::try_from(numbers).map_err(|_| INVALID_VALUE)?).map_err(|_| INVALID_VALUE)
}

/// Refuses a workspace that has fewer numbers than were told.
fn workspace<T: Named>(rows: i32, columns: i32, (buffer, count): (Ptr<T>, i32)) -> Answer<(u64, u64)> {
    let count = size(count.into())?;
    if count < workspace_numbers(rows.into(), columns.into())? || buffer.is_null() {
        return Err(INVALID_VALUE);
    }
    Ok((buffer.address(), count * size_of::<T>() as u64))
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn unitary_count<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    m: i32,
    n: i32,
    k: i32,
    _a: Ptr<T>,
    _leading: i32,
    _tau: Ptr<T>,
    count: Ptr<i32>,
) -> Answer {
    call.solver_handle(handle)?;
    if n > m || k > n {
        return Err(INVALID_VALUE);
    }
    tell(m, n, count)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn unitary<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    m: i32,
    n: i32,
    k: i32,
    a: Ptr<T>,
    leading: i32,
    tau: Ptr<T>,
    buffer: Ptr<T>,
    count: i32,
    info: Ptr<i32>,
) -> Answer {
    let handle = call.working_solver(handle)?;
    if n > m || k > n {
        return Err(INVALID_VALUE);
    }
    let a = given(a.address(), T::TYPE, (m.into(), n.into()), leading.into())?;
    let tau = given(tau.address(), T::TYPE, (k.into(), 1), i64::from(k).max(1))?;
    let workspace = workspace(m, n, (buffer, count))?;
    let work = Dense { values: Some(tau), workspace, ..Dense::plain(call.calling, Task::Unitary, a, info.address()) };
    call.queue_dense(handle, work)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gesvdj_count<T: Named, S>(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    _mode: cusolverEigMode_t,
    _few: i32,
    m: i32,
    n: i32,
    _a: Ptr<T>,
    _leading: i32,
    _s: Ptr<S>,
    _u: Ptr<T>,
    _leading_u: i32,
    _v: Ptr<T>,
    _leading_v: i32,
    count: Ptr<i32>,
    params: Ptr<gesvdjInfo>,
) -> Answer {
    call.solver_handle(handle)?;
    call.check_params(params.address(), true)?;
    tell(m, n, count)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gesvdj<T: Named, S>(
    call: &mut Call<'_>,
    handle: Ptr<cusolverDnContext>,
    mode: cusolverEigMode_t,
    few: i32,
    m: i32,
    n: i32,
    a: Ptr<T>,
    leading: i32,
    s: Ptr<S>,
    u: Ptr<T>,
    leading_u: i32,
    v: Ptr<T>,
    leading_v: i32,
    buffer: Ptr<T>,
    count: i32,
    info: Ptr<i32>,
    params: Ptr<gesvdjInfo>,
) -> Answer {
    let handle = call.working_solver(handle)?;
    call.check_params(params.address(), true)?;
    let (rows, columns) = (i64::from(m), i64::from(n));
    let least = rows.min(columns);
    let a = given(a.address(), T::TYPE, (rows, columns), leading.into())?;
    let values = given(s.address(), real_of(T::TYPE), (least, 1), least.max(1))?;
    let vectors = mode == cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR;
    let part = |all: i64| if few == 0 { all } else { least };
    let side = |address: u64, all: i64, leading: i32| given(address, T::TYPE, (all, part(all)), leading.into());
    let left = vectors.then(|| side(u.address(), rows, leading_u)).transpose()?;
    let right = vectors.then(|| side(v.address(), columns, leading_v)).transpose()?;
    let workspace = workspace(m, n, (buffer, count))?;
    let plain = Dense::plain(call.calling, Task::Svd { adjoint: false }, a, info.address());
    call.queue_dense(handle, Dense { b: left, c: right, values: Some(values), workspace, ..plain })
}
