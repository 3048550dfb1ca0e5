//! Products of matrices by cuBLAS: one, a batch at equal distances, a batch by an array of addresses.
//!
//! All of them come down to one [`Request`]. What is checked, and in which order, is the library's: sizes, operations and
//! leading dimensions first (`INVALID_VALUE`), then whether the types go together (`NOT_SUPPORTED`).

use std::ffi::c_void;

use cuda_sys::cublas::types::{
    cuComplex, cuDoubleComplex, cublasComputeType_t, cublasContext, cublasGemmAlgo_t, cublasMath_t, cublasOperation_t,
    cublasPointerMode_t, cudaDataType_t,
};

use cublasComputeType_t as Compute;
use cudaDataType_t as Type;

use super::handles::Handle;
use super::product::{Arithmetic, Factor, Product, Scalar, is_transposed};
use super::queue::{check_op, size, stride_bytes};
use super::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::call::Call;
use crate::claim::Ptr;
use crate::toolkit::matrix::{Base, Matrix};
use crate::toolkit::numbers::{Rounding, bytes_of, decode, is_complex};

/// A type of numbers that a function has in its name.
pub(crate) trait Named: Copy {
    const TYPE: Type;
    const COMPUTE: Compute;
}

impl Named for f32 {
    const TYPE: Type = Type::CUDA_R_32F;
    const COMPUTE: Compute = Compute::CUBLAS_COMPUTE_32F;
}

impl Named for f64 {
    const TYPE: Type = Type::CUDA_R_64F;
    const COMPUTE: Compute = Compute::CUBLAS_COMPUTE_64F;
}

impl Named for cuComplex {
    const TYPE: Type = Type::CUDA_C_32F;
    const COMPUTE: Compute = Compute::CUBLAS_COMPUTE_32F;
}

impl Named for cuDoubleComplex {
    const TYPE: Type = Type::CUDA_C_64F;
    const COMPUTE: Compute = Compute::CUBLAS_COMPUTE_64F;
}

/// A matrix as a call names it.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) address: u64,
    pub(super) ty: Type,
    pub(super) leading: i32,
    pub(super) stride: i64,
}

/// What a call asks for.
pub(super) struct Request {
    pub(super) name: &'static str,
    pub(super) ops: [cublasOperation_t; 2],
    pub(super) sizes: [i32; 3],
    pub(super) scalars: [Ptr<c_void>; 2],
    pub(super) a: Given,
    pub(super) b: Given,
    pub(super) c: Given,
    pub(super) compute: Compute,
    pub(super) batch: i32,
    /// Whether the addresses are those of arrays of addresses.
    pub(super) is_array: bool,
}

/// How numbers of some types are computed with; none where the library does not do that.
pub(super) fn arithmetic(compute: Compute, types: [Type; 3]) -> Option<(Arithmetic, Rounding)> {
    let [a, b, c] = types;
    if a != b {
        return None;
    }
    let is = |from: Type, to: Type| a == from && c == to;
    let plain = is(Type::CUDA_R_32F, Type::CUDA_R_32F);
    let complex = is(Type::CUDA_C_32F, Type::CUDA_C_32F);
    let single = |rounding| match (plain, complex) {
        (true, _) => Some((Arithmetic::F32, rounding)),
        (_, true) => Some((Arithmetic::C32, rounding)),
        _ => None,
    };
    match compute {
        Compute::CUBLAS_COMPUTE_16F | Compute::CUBLAS_COMPUTE_16F_PEDANTIC => {
            is(Type::CUDA_R_16F, Type::CUDA_R_16F).then_some((Arithmetic::F16, Rounding::Exact))
        }
        Compute::CUBLAS_COMPUTE_32I | Compute::CUBLAS_COMPUTE_32I_PEDANTIC => {
            is(Type::CUDA_R_8I, Type::CUDA_R_32I).then_some((Arithmetic::I32, Rounding::Exact))
        }
        Compute::CUBLAS_COMPUTE_32F | Compute::CUBLAS_COMPUTE_32F_PEDANTIC => {
            let narrow = is(Type::CUDA_R_16F, Type::CUDA_R_16F)
                || is(Type::CUDA_R_16BF, Type::CUDA_R_16BF)
                || is(Type::CUDA_R_16F, Type::CUDA_R_32F)
                || is(Type::CUDA_R_16BF, Type::CUDA_R_32F)
                || is(Type::CUDA_R_8I, Type::CUDA_R_32F);
            if narrow { Some((Arithmetic::F32, Rounding::Exact)) } else { single(Rounding::Exact) }
        }
        Compute::CUBLAS_COMPUTE_32F_EMULATED_16BFX9 => single(Rounding::Exact),
        Compute::CUBLAS_COMPUTE_32F_FAST_TF32 => single(Rounding::Tf32),
        Compute::CUBLAS_COMPUTE_32F_FAST_16F => single(Rounding::F16),
        Compute::CUBLAS_COMPUTE_32F_FAST_16BF => single(Rounding::Bf16),
        Compute::CUBLAS_COMPUTE_64F
        | Compute::CUBLAS_COMPUTE_64F_PEDANTIC
        | Compute::CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT => match (a, c) {
            (Type::CUDA_R_64F, Type::CUDA_R_64F) => Some((Arithmetic::F64, Rounding::Exact)),
            (Type::CUDA_C_64F, Type::CUDA_C_64F) => Some((Arithmetic::C64, Rounding::Exact)),
            _ => None,
        },
        _ => None,
    }
}

/// The type of the factors of a whole product.
pub(super) fn scale_type(compute: Compute, result: Type) -> Type {
    match compute {
        Compute::CUBLAS_COMPUTE_16F | Compute::CUBLAS_COMPUTE_16F_PEDANTIC => Type::CUDA_R_16F,
        Compute::CUBLAS_COMPUTE_32I | Compute::CUBLAS_COMPUTE_32I_PEDANTIC => Type::CUDA_R_32I,
        Compute::CUBLAS_COMPUTE_64F
        | Compute::CUBLAS_COMPUTE_64F_PEDANTIC
        | Compute::CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT
            if !is_complex(result) =>
        {
            Type::CUDA_R_64F
        }
        _ if is_complex(result) => result,
        _ => Type::CUDA_R_32F,
    }
}

/// What the math mode of a handle adds: single precision may be computed with fewer bits.
fn mode_rounding(math: cublasMath_t, compute: Compute) -> Rounding {
    let mode = cublasMath_t(math.0 & !cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION.0);
    let may = mode == cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH && compute == Compute::CUBLAS_COMPUTE_32F;
    if may { Rounding::Tf32 } else { Rounding::Exact }
}

/// Reads a factor of a whole product: in the program's memory now, in the device's when the work runs.
pub(super) fn scalar(given: Ptr<c_void>, ty: Type, mode: cublasPointerMode_t) -> Answer<Scalar> {
    if given.is_null() {
        return Err(INVALID_VALUE);
    }
    if mode == cublasPointerMode_t::CUBLAS_POINTER_MODE_DEVICE {
        return Ok(Scalar::At(given.address(), ty));
    }
    let count = usize::try_from(bytes_of(ty).unwrap_or(0)).unwrap_or(0);
    let bytes = given.cast::<u8>().read_array(count).map_err(|_| INVALID_VALUE)?;
    Ok(Scalar::Known(decode(ty, &bytes).first().copied().unwrap_or_default()))
}

impl Given {
    fn matrix(self, (rows, columns): (u64, u64), is_array: bool) -> Answer<Matrix> {
        let leading = size(self.leading)?;
        if leading < rows.max(1) {
            return Err(INVALID_VALUE);
        }
        let stride_bytes = stride_bytes(self.stride, self.ty)?;
        let base =
            if is_array { Base::Array(self.address) } else { Base::Strided { address: self.address, stride_bytes } };
        Ok(Matrix { base, ty: self.ty, rows, columns, leading })
    }

    fn is_aligned(self) -> bool {
        self.ty != Type::CUDA_R_8I || (self.leading % 4 == 0 && self.address.is_multiple_of(4))
    }
}

/// Turns a request into a product.
fn product_of(handle: &Handle, request: &Request) -> Answer<Product> {
    let Request { name, ops, sizes, scalars, a, b, c, compute, batch, is_array } = *request;
    let [m, n, k] = [size(sizes[0])?, size(sizes[1])?, size(sizes[2])?];
    let batch = size(batch)?;
    ops.into_iter().try_for_each(check_op)?;
    let stored = |op, (rows, columns)| if is_transposed(op) { (columns, rows) } else { (rows, columns) };
    let known = [a, b, c].iter().all(|matrix| bytes_of(matrix.ty).is_some());
    let found = arithmetic(compute, [a.ty, b.ty, c.ty]).filter(|_| known);
    let factor = |given: Given, op, shape| Ok(Factor { matrix: given.matrix(stored(op, shape), is_array)?, op });
    let (arithmetic, rounding) = match found {
        Some((arithmetic, Rounding::Exact))
            if matches!(arithmetic, Arithmetic::F32 | Arithmetic::C32) && !is_narrow(a.ty) =>
        {
            (arithmetic, mode_rounding(handle.math, compute))
        }
        Some(found) => found,
        None => return Err(NOT_SUPPORTED),
    };
    let (left, right) = (factor(a, ops[0], (m, k))?, factor(b, ops[1], (k, n))?);
    let result = c.matrix((m, n), is_array)?;
    if m == 0 || n == 0 || batch == 0 {
        return Ok(Product { batch: 0, ..Product::plain(name, (m, n, k), left, right, result) });
    }
    let ty = scale_type(compute, c.ty);
    let alpha = scalar(scalars[0], ty, handle.pointers)?;
    let beta = scalar(scalars[1], ty, handle.pointers)?;
    if c.address == 0 {
        return Err(INVALID_VALUE);
    }
    if ![a, b].into_iter().all(Given::is_aligned) {
        return Err(NOT_SUPPORTED);
    }
    let plain = Product::plain(name, (m, n, k), left, right, result);
    Ok(Product { batch, alpha, beta, arithmetic, rounding, ..plain })
}

fn is_narrow(ty: Type) -> bool {
    !matches!(ty, Type::CUDA_R_32F | Type::CUDA_C_32F)
}

/// Answers a request.
fn run(call: &mut Call<'_>, handle: Ptr<cublasContext>, request: &Request) -> Answer {
    let handle = call.working_handle(handle)?;
    let product = product_of(&handle, request)?;
    call.queue_product(&handle, product)
}

fn check_algorithm(algo: cublasGemmAlgo_t) -> Answer {
    if matches!(algo.0, -1..=23 | 99..=115 | 999) { Ok(()) } else { Err(INVALID_VALUE) }
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gemm<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    op_a: cublasOperation_t,
    op_b: cublasOperation_t,
    m: i32,
    n: i32,
    k: i32,
    alpha: Ptr<T>,
    a: Ptr<T>,
    leading_a: i32,
    b: Ptr<T>,
    leading_b: i32,
    beta: Ptr<T>,
    c: Ptr<T>,
    leading_c: i32,
) -> Answer {
    gemm_strided(call, handle, op_a, op_b, m, n, k, alpha, a, leading_a, 0, b, leading_b, 0, beta, c, leading_c, 0, 1)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gemm_strided<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    op_a: cublasOperation_t,
    op_b: cublasOperation_t,
    m: i32,
    n: i32,
    k: i32,
    alpha: Ptr<T>,
    a: Ptr<T>,
    leading_a: i32,
    stride_a: i64,
    b: Ptr<T>,
    leading_b: i32,
    stride_b: i64,
    beta: Ptr<T>,
    c: Ptr<T>,
    leading_c: i32,
    stride_c: i64,
    batch: i32,
) -> Answer {
    let given = |address: Ptr<T>, leading, stride| Given { address: address.address(), ty: T::TYPE, leading, stride };
    let request = Request {
        name: call.calling,
        ops: [op_a, op_b],
        sizes: [m, n, k],
        scalars: [alpha.cast(), beta.cast()],
        a: given(a, leading_a, stride_a),
        b: given(b, leading_b, stride_b),
        c: given(c, leading_c, stride_c),
        compute: T::COMPUTE,
        batch,
        is_array: false,
    };
    run(call, handle, &request)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gemm_batched<T: Named>(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    op_a: cublasOperation_t,
    op_b: cublasOperation_t,
    m: i32,
    n: i32,
    k: i32,
    alpha: Ptr<T>,
    a: Ptr<*const T>,
    leading_a: i32,
    b: Ptr<*const T>,
    leading_b: i32,
    beta: Ptr<T>,
    c: Ptr<*mut T>,
    leading_c: i32,
    batch: i32,
) -> Answer {
    let given = |address, leading| Given { address, ty: T::TYPE, leading, stride: 0 };
    let request = Request {
        name: call.calling,
        ops: [op_a, op_b],
        sizes: [m, n, k],
        scalars: [alpha.cast(), beta.cast()],
        a: given(a.address(), leading_a),
        b: given(b.address(), leading_b),
        c: given(c.address(), leading_c),
        compute: T::COMPUTE,
        batch,
        is_array: true,
    };
    run(call, handle, &request)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gemm_ex(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    op_a: cublasOperation_t,
    op_b: cublasOperation_t,
    m: i32,
    n: i32,
    k: i32,
    alpha: Ptr<c_void>,
    a: Ptr<c_void>,
    type_a: Type,
    leading_a: i32,
    b: Ptr<c_void>,
    type_b: Type,
    leading_b: i32,
    beta: Ptr<c_void>,
    c: Ptr<c_void>,
    type_c: Type,
    leading_c: i32,
    compute: Compute,
    algo: cublasGemmAlgo_t,
) -> Answer {
    gemm_strided_ex(
        call, handle, op_a, op_b, m, n, k, alpha, a, type_a, leading_a, 0, b, type_b, leading_b, 0, beta, c, type_c,
        leading_c, 0, 1, compute, algo,
    )
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gemm_strided_ex(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    op_a: cublasOperation_t,
    op_b: cublasOperation_t,
    m: i32,
    n: i32,
    k: i32,
    alpha: Ptr<c_void>,
    a: Ptr<c_void>,
    type_a: Type,
    leading_a: i32,
    stride_a: i64,
    b: Ptr<c_void>,
    type_b: Type,
    leading_b: i32,
    stride_b: i64,
    beta: Ptr<c_void>,
    c: Ptr<c_void>,
    type_c: Type,
    leading_c: i32,
    stride_c: i64,
    batch: i32,
    compute: Compute,
    algo: cublasGemmAlgo_t,
) -> Answer {
    check_algorithm(algo)?;
    let request = Request {
        name: call.calling,
        ops: [op_a, op_b],
        sizes: [m, n, k],
        scalars: [alpha, beta],
        a: Given { address: a.address(), ty: type_a, leading: leading_a, stride: stride_a },
        b: Given { address: b.address(), ty: type_b, leading: leading_b, stride: stride_b },
        c: Given { address: c.address(), ty: type_c, leading: leading_c, stride: stride_c },
        compute,
        batch,
        is_array: false,
    };
    run(call, handle, &request)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn gemm_batched_ex(
    call: &mut Call<'_>,
    handle: Ptr<cublasContext>,
    op_a: cublasOperation_t,
    op_b: cublasOperation_t,
    m: i32,
    n: i32,
    k: i32,
    alpha: Ptr<c_void>,
    a: Ptr<*const c_void>,
    type_a: Type,
    leading_a: i32,
    b: Ptr<*const c_void>,
    type_b: Type,
    leading_b: i32,
    beta: Ptr<c_void>,
    c: Ptr<*mut c_void>,
    type_c: Type,
    leading_c: i32,
    batch: i32,
    compute: Compute,
    algo: cublasGemmAlgo_t,
) -> Answer {
    check_algorithm(algo)?;
    let given = |address, ty, leading| Given { address, ty, leading, stride: 0 };
    let request = Request {
        name: call.calling,
        ops: [op_a, op_b],
        sizes: [m, n, k],
        scalars: [alpha, beta],
        a: given(a.address(), type_a, leading_a),
        b: given(b.address(), type_b, leading_b),
        c: given(c.address(), type_c, leading_c),
        compute,
        batch,
        is_array: true,
    };
    run(call, handle, &request)
}
