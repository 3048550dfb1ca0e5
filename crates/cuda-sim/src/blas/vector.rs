//! Products with vectors: a matrix by a vector, and two vectors by each other.
//!
//! A vector is a matrix of one row, whose columns are as far apart as its increment says; so `y = op(A) x` is computed as
//! `y' = x' op(A)'`. Increments that count backward are not simulated.

use std::ffi::c_void;

use cuda_sys::cublas::types::{cublasContext, cublasOperation_t, cublasPointerMode_t, cudaDataType_t};

use cublasOperation_t as Op;
use cudaDataType_t as Type;

use super::gemm::{Named, scalar};
use super::handles::Handle;
use super::product::{Arithmetic, Factor, Product, Scalar};
use super::queue::{check_op, size};
use super::{Answer, EXECUTION_FAILED, INVALID_VALUE, NOT_SUPPORTED};
use crate::call::Call;
use crate::claim::Ptr;
use crate::toolkit::matrix::{Base, Matrix};
use crate::toolkit::numbers::{Rounding, bytes_of, is_complex};

fn arithmetic(ty: Type) -> Answer<Arithmetic> {
    Ok(match ty {
        Type::CUDA_R_32F => Arithmetic::F32,
        Type::CUDA_R_64F => Arithmetic::F64,
        Type::CUDA_C_32F => Arithmetic::C32,
        Type::CUDA_C_64F => Arithmetic::C64,
        _ => return Err(NOT_SUPPORTED),
    })
}

/// A vector as a matrix of one row.
fn row(call: &mut Call<'_>, address: u64, ty: Type, length: u64, increment: i32) -> Answer<Matrix> {
    match increment {
        0 => Err(INVALID_VALUE),
        ..0 => Err(call.not_simulated("an increment that counts backward")),
        _ => {
            let base = Base::Strided { address, stride_bytes: 0 };
            Ok(Matrix { base, ty, rows: 1, columns: length, leading: size(increment)? })
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gemv<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    op: cublasOperation_t,
    m: i32,
    n: i32,
    alpha: Ptr<T>,
    a: Ptr<T>,
    leading: i32,
    x: Ptr<T>,
    increment_x: i32,
    beta: Ptr<T>,
    y: Ptr<T>,
    increment_y: i32,
) -> Answer {
    let handle = call.working_handle(handle)?;
    let (rows, columns, leading) = (size(m)?, size(n)?, size(leading)?);
    check_op(op)?;
    if leading < rows.max(1) || increment_x == 0 || increment_y == 0 {
        return Err(INVALID_VALUE);
    }
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let transposed = super::product::is_transposed(op);
    let (length_x, length_y) = if transposed { (rows, columns) } else { (columns, rows) };
    let base = Base::Strided { address: a.address(), stride_bytes: 0 };
    let matrix = Matrix { base, ty: T::TYPE, rows, columns, leading };
    // The transpose of what the call names.
    let other = match op {
        Op::CUBLAS_OP_N => Op::CUBLAS_OP_T,
        Op::CUBLAS_OP_T => Op::CUBLAS_OP_N,
        Op::CUBLAS_OP_C => Op::CUBLAS_OP_CONJG,
        _ => Op::CUBLAS_OP_C,
    };
    let x = row(call, x.address(), T::TYPE, length_x, increment_x)?;
    let y = row(call, y.address(), T::TYPE, length_y, increment_y)?;
    let left = Factor { matrix: x, op: Op::CUBLAS_OP_N };
    let plain = Product::plain(call.calling, (1, length_y, length_x), left, Factor { matrix, op: other }, y);
    let alpha = scalar(alpha.cast(), T::TYPE, handle.pointers)?;
    let beta = scalar(beta.cast(), T::TYPE, handle.pointers)?;
    call.queue_product(&handle, Product { alpha, beta, arithmetic: arithmetic(T::TYPE)?, ..plain })
}

/// Two vectors of numbers of some types, and what comes out.
struct Dot {
    length: i32,
    x: (u64, Type, i32),
    y: (u64, Type, i32),
    result: (Ptr<c_void>, Type),
    arithmetic: Arithmetic,
    op: cublasOperation_t,
}

fn run(call: &mut Call<'_>, handle: &Handle, dot: &Dot) -> Answer {
    let inner = u64::try_from(dot.length).unwrap_or(0);
    let answers = handle.pointers == cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST;
    if dot.result.0.is_null() {
        return Err(INVALID_VALUE);
    }
    let address = if answers { dot.result.0.expose() } else { dot.result.0.address() };
    let base = Base::Strided { address, stride_bytes: 0 };
    let result = Matrix { base, ty: dot.result.1, rows: 1, columns: 1, leading: 1 };
    let left = Factor { matrix: row(call, dot.x.0, dot.x.1, inner, dot.x.2)?, op: dot.op };
    let right = Factor { matrix: row(call, dot.y.0, dot.y.1, inner, dot.y.2)?, op: Op::CUBLAS_OP_T };
    let plain = Product::plain(call.calling, (1, 1, inner), left, right, result);
    let product = Product { arithmetic: dot.arithmetic, rounding: Rounding::Exact, answers, ..plain };
    let product = Product { beta: Scalar::Known([0.0; 2]), ..product };
    if !answers {
        return call.queue_product(handle, product);
    }
    let key = call.stream_named(handle.stream).map_err(|_| EXECUTION_FAILED)?;
    let thread = call.thread;
    // The answer is waited for, which a capture forbids.
    call.refuse_stream_wait(key, thread).map_err(|_| EXECUTION_FAILED)?;
    call.queue_product(handle, product)?;
    call.finish_stream(key).map_err(|_| EXECUTION_FAILED)
}

fn named<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    (length, op): (i32, cublasOperation_t),
    x: (Ptr<T>, i32),
    y: (Ptr<T>, i32),
    result: Ptr<T>,
) -> Answer {
    let handle = call.working_handle(handle)?;
    let vector = |(pointer, increment): (Ptr<T>, i32)| (pointer.address(), T::TYPE, increment);
    let result = (result.cast(), T::TYPE);
    let dot = Dot { length, x: vector(x), y: vector(y), result, arithmetic: arithmetic(T::TYPE)?, op };
    run(call, &handle, &dot)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn dot<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    length: i32,
    x: Ptr<T>,
    increment_x: i32,
    y: Ptr<T>,
    increment_y: i32,
    result: Ptr<T>,
) -> Answer {
    named(call, handle, (length, Op::CUBLAS_OP_N), (x, increment_x), (y, increment_y), result)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn dotc<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    length: i32,
    x: Ptr<T>,
    increment_x: i32,
    y: Ptr<T>,
    increment_y: i32,
    result: Ptr<T>,
) -> Answer {
    named(call, handle, (length, Op::CUBLAS_OP_CONJG), (x, increment_x), (y, increment_y), result)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
fn any(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    length: i32,
    x: (Ptr<c_void>, Type, i32),
    y: (Ptr<c_void>, Type, i32),
    result: (Ptr<c_void>, Type),
    execution: Type,
    op: cublasOperation_t,
) -> Answer {
    let handle = call.working_handle(handle)?;
    let same = x.1 == y.1 && y.1 == result.1 && bytes_of(x.1).is_some();
    let wide = matches!(x.1, Type::CUDA_R_16F | Type::CUDA_R_16BF) && execution == Type::CUDA_R_32F;
    if !same || !(wide || (execution == x.1 && (is_complex(x.1) || arithmetic(x.1).is_ok()))) {
        return Err(NOT_SUPPORTED);
    }
    let arithmetic = arithmetic(execution)?;
    let vector = |(pointer, ty, increment): (Ptr<c_void>, Type, i32)| (pointer.address(), ty, increment);
    run(call, &handle, &Dot { length, x: vector(x), y: vector(y), result, arithmetic, op })
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn dot_ex(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    length: i32,
    x: Ptr<c_void>,
    type_x: Type,
    increment_x: i32,
    y: Ptr<c_void>,
    type_y: Type,
    increment_y: i32,
    result: Ptr<c_void>,
    type_result: Type,
    execution: Type,
) -> Answer {
    let (x, y) = ((x, type_x, increment_x), (y, type_y, increment_y));
    any(call, handle, length, x, y, (result, type_result), execution, Op::CUBLAS_OP_N)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn dotc_ex(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    length: i32,
    x: Ptr<c_void>,
    type_x: Type,
    increment_x: i32,
    y: Ptr<c_void>,
    type_y: Type,
    increment_y: i32,
    result: Ptr<c_void>,
    type_result: Type,
    execution: Type,
) -> Answer {
    let (x, y) = ((x, type_x, increment_x), (y, type_y, increment_y));
    any(call, handle, length, x, y, (result, type_result), execution, Op::CUBLAS_OP_CONJG)
}
