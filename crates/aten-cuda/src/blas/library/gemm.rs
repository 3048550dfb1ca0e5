//! Products by cuBLAS.
//!
//! # Safety
//! The library reads and writes matrices of the sizes that it is given. [`Gemm::new`] makes them of views, which lie inside
//! their storage, and the storages are handed to the runtime, which orders their use.
#![expect(unsafe_code, reason = "calls of cuBLAS")]

use std::ffi::{c_int, c_longlong, c_void};
use std::fmt;
use std::ptr;

use c10_core::{Arg, DeviceIndex, MemoryAccess, Runtime};
use cuda_sys::CublasError;
use cuda_sys::cublas::types::{
    cuComplex, cuDoubleComplex, cublasComputeType_t, cublasGemmAlgo_t, cublasMath_t, cublasOperation_t, cudaDataType_t,
};

use super::handle::{Blas, Handle, failed};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::blas::operand::{Matrices, Operand, Reading, Transpose};
use crate::blas::settings;
use crate::tensor::Tensor;

/// The most matrices of a batch in one call for 16-bit floats.
const MOST_BATCHES: c_int = 65_535;

/// The numbers of a product in the library's terms, and how it reads the factors: what can be told without their memory.
#[derive(Clone, Copy)]
pub(in crate::blas) struct Outline {
    pub(in crate::blas) m: c_int,
    pub(in crate::blas) n: c_int,
    pub(in crate::blas) k: c_int,
    pub(in crate::blas) batches: c_int,
    pub(in crate::blas) lda: c_int,
    pub(in crate::blas) ldb: c_int,
    pub(in crate::blas) ldc: c_int,
    pub(in crate::blas) a: Reading,
    pub(in crate::blas) b: Reading,
}

impl Outline {
    /// Those of `out = a @ b`, of two or three dimensions all of them. `None` where a size is beyond the library's.
    #[inline]
    pub(in crate::blas) fn of(out: &Tensor, a: &Tensor, b: &Tensor) -> Option<Self> {
        let (left, right, made) = (Matrices::of(a), Matrices::of(b), Matrices::of(out));
        let (first, second) = (Reading::of(&right), Reading::of(&left));
        let int = |size: i64| c_int::try_from(size).ok();
        Some(Self {
            m: int(made.columns)?,
            n: int(made.rows)?,
            k: int(left.columns)?,
            batches: int(made.batches)?,
            lda: int(first.ld)?,
            ldb: int(second.ld)?,
            ldc: int(made.columns.max(1))?,
            a: first,
            b: second,
        })
    }
}

/// A product in the library's terms: everything by columns, so the factors stand in the other order.
pub(in crate::blas) struct Gemm<'a> {
    pub(in crate::blas) device: DeviceIndex,
    pub(in crate::blas) dtype: DType,
    pub(in crate::blas) m: c_int,
    pub(in crate::blas) n: c_int,
    pub(in crate::blas) k: c_int,
    pub(in crate::blas) batches: c_int,
    pub(in crate::blas) a: Operand<'a>,
    pub(in crate::blas) b: Operand<'a>,
    pub(in crate::blas) lda: c_int,
    pub(in crate::blas) ldb: c_int,
    pub(in crate::blas) ldc: c_int,
    pub(in crate::blas) out: &'a Tensor,
    pub(in crate::blas) alpha: Scalar,
    pub(in crate::blas) beta: Scalar,
}

impl<'a> Gemm<'a> {
    /// `out = alpha * a @ b + beta * out`, for contiguous `out`, of two or three dimensions all of them. `None` where a
    /// size is beyond the library's.
    pub(in crate::blas) fn new(
        out: &'a Tensor,
        a: &'a Tensor,
        b: &'a Tensor,
        alpha: Scalar,
        beta: Scalar,
    ) -> Result<Option<Self>> {
        let Some(outline) = Outline::of(out, a, b) else { return Ok(None) };
        let Outline { m, n, k, batches, lda, ldb, ldc, .. } = outline;
        let first = Operand::new(&Matrices::of(b), &outline.a)?;
        let second = Operand::new(&Matrices::of(a), &outline.b)?;
        let device = out.device().cuda_index()?.unwrap_or(DeviceIndex(0));
        let dtype = out.dtype();
        Ok(Some(Self { device, dtype, m, n, k, batches, a: first, b: second, lda, ldb, ldc, out, alpha, beta }))
    }

    /// Elements between matrices of the result.
    fn out_stride(&self) -> c_longlong {
        c_longlong::from(self.m) * c_longlong::from(self.n)
    }

    /// The memory that the library uses. The second factor comes first, as rows are columns to it.
    pub(in crate::blas) fn buffers(&self) -> impl Iterator<Item = Arg<'_>> + Clone {
        let factors = [self.a.used(MemoryAccess::Reads("mat2")), self.b.used(MemoryAccess::Reads("self"))];
        [self.out.used(MemoryAccess::Output)].into_iter().chain(factors).flatten()
    }
}

/// The values that shape a product, for errors.
impl fmt::Display for Gemm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, batches, lda, ldb, ldc, dtype, .. } = self;
        let [a, b] = [&self.a, &self.b].map(|operand| match operand.transpose {
            Transpose::No => 'n',
            Transpose::Yes => 't',
            Transpose::Conjugated => 'c',
        });
        write!(
            f,
            "opa {a}, opb {b}, m {m}, n {n}, k {k}, lda {lda}, ldb {ldb}, ldc {ldc}, {batches} batches of {dtype}"
        )
    }
}

/// Queues a product on the current stream.
pub(in crate::blas) fn run(runtime: &Runtime, blas: &Blas, handle: &Handle, gemm: &Gemm<'_>) -> Result<()> {
    let call = Call::of(gemm);
    let function = handle.function(runtime, call.name)?;
    runtime.queue_by_library(function, gemm.device, gemm.buffers(), |stream| {
        let _kept = handle.bind(blas, stream)?;
        handle.set_math(math(gemm.dtype))?;
        // SAFETY: the handle is bound to the stream that orders the use of the memory; the rest is the module's.
        let queued = unsafe { (call.queue)(handle, gemm) };
        queued.map_err(|cause| failed(cause, call.arguments, gemm.to_string()))
    })
}

/// How the library may compute products of a dtype.
fn math(dtype: DType) -> cublasMath_t {
    let plain = cublasMath_t::CUBLAS_DEFAULT_MATH;
    let exact = cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    match dtype {
        DType::F16 if !settings::fp16_reduction().is_reduced => exact,
        DType::BF16 if !settings::bf16_reduction().is_reduced => exact,
        DType::F16 | DType::BF16 => plain,
        _ if settings::uses_tf32() => cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH,
        _ => plain,
    }
}

/// Which function of the library computes a product.
struct Call {
    name: &'static str,
    /// The arguments as torch names them.
    arguments: &'static str,
    queue: unsafe fn(&Handle, &Gemm<'_>) -> std::result::Result<(), CublasError>,
}

impl Call {
    fn of(gemm: &Gemm<'_>) -> Self {
        const PLAIN: &str = "handle, opa, opb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc";
        const BATCHED: &str =
            "handle, opa, opb, m, n, k, &alpha, a, lda, stridea, b, ldb, strideb, &beta, c, ldc, stridec, num_batches";
        let is_batched = gemm.batches != 1;
        let arguments = if is_batched { BATCHED } else { PLAIN };
        let (name, queue): (_, unsafe fn(&Handle, &Gemm<'_>) -> _) = match (gemm.dtype, is_batched) {
            (DType::F32, false) => ("cublasSgemm", f32::queue),
            (DType::F32, true) => ("cublasSgemmStridedBatched", f32::queue_batched),
            (DType::F64, false) => ("cublasDgemm", f64::queue),
            (DType::F64, true) => ("cublasDgemmStridedBatched", f64::queue_batched),
            (DType::C64, false) => ("cublasCgemm", cuComplex::queue),
            (DType::C64, true) => ("cublasCgemmStridedBatched", cuComplex::queue_batched),
            (DType::C128, false) => ("cublasZgemm", cuDoubleComplex::queue),
            (DType::C128, true) => ("cublasZgemmStridedBatched", cuDoubleComplex::queue_batched),
            (_, false) => return Self { name: "cublasGemmEx", arguments: half::PLAIN, queue: half::queue },
            (_, true) => {
                return Self {
                    name: "cublasGemmStridedBatchedEx",
                    arguments: half::BATCHED,
                    queue: half::queue_batched,
                };
            }
        };
        Self { name, arguments, queue }
    }
}

/// The operation that reads a factor.
pub(super) fn operation(transpose: Transpose) -> cublasOperation_t {
    match transpose {
        Transpose::No => cublasOperation_t::CUBLAS_OP_N,
        Transpose::Yes => cublasOperation_t::CUBLAS_OP_T,
        Transpose::Conjugated => cublasOperation_t::CUBLAS_OP_C,
    }
}

/// The first element of a view, for the library.
pub(super) fn place<T>(tensor: &Tensor) -> *mut T {
    ptr::with_exposed_provenance_mut(usize::try_from(tensor.data_ptr()).unwrap_or(0))
}

/// A number type that has functions of its own.
trait Number: Sized {
    fn number(scalar: Scalar) -> Self;

    /// # Safety
    /// - The handle is bound to the stream that orders the use of the memory.
    unsafe fn queue(handle: &Handle, gemm: &Gemm<'_>) -> std::result::Result<(), CublasError>;

    /// # Safety
    /// - As for [`Self::queue`].
    unsafe fn queue_batched(handle: &Handle, gemm: &Gemm<'_>) -> std::result::Result<(), CublasError>;
}

macro_rules! numbers {
    ($($type:ty, $plain:ident, $batched:ident, |$scalar:ident| $number:expr;)*) => {$(
        impl Number for $type {
            fn number($scalar: Scalar) -> Self {
                $number
            }

            unsafe fn queue(handle: &Handle, gemm: &Gemm<'_>) -> std::result::Result<(), CublasError> {
                let (alpha, beta) = (Self::number(gemm.alpha), Self::number(gemm.beta));
                let [opa, opb] = [&gemm.a, &gemm.b].map(|operand| operation(operand.transpose));
                let (a, b, c) = (place::<Self>(gemm.a.tensor()), place::<Self>(gemm.b.tensor()), place(gemm.out));
                let Gemm { m, n, k, lda, ldb, ldc, .. } = *gemm;
                // SAFETY: the matrices have these sizes; the factors outlive the call.
                unsafe {
                    handle.library.$plain(
                        handle.raw(), opa, opb, m, n, k, &alpha, a.cast_const(), lda, b.cast_const(), ldb, &beta, c, ldc,
                    )
                }
            }

            unsafe fn queue_batched(handle: &Handle, gemm: &Gemm<'_>) -> std::result::Result<(), CublasError> {
                let (alpha, beta) = (Self::number(gemm.alpha), Self::number(gemm.beta));
                let [opa, opb] = [&gemm.a, &gemm.b].map(|operand| operation(operand.transpose));
                let (a, b, c) = (place::<Self>(gemm.a.tensor()), place::<Self>(gemm.b.tensor()), place(gemm.out));
                let Gemm { m, n, k, lda, ldb, ldc, batches, .. } = *gemm;
                let [stride_a, stride_b] = [&gemm.a, &gemm.b].map(|operand| operand.batch_stride);
                // SAFETY: the matrices have these sizes and distances; the factors outlive the call.
                unsafe {
                    handle.library.$batched(
                        handle.raw(), opa, opb, m, n, k, &alpha, a.cast_const(), lda, stride_a, b.cast_const(), ldb,
                        stride_b, &beta, c, ldc, gemm.out_stride(), batches,
                    )
                }
            }
        }
    )*};
}

#[expect(clippy::cast_possible_truncation, reason = "the dtype's precision")]
fn single(number: f64) -> f32 {
    number as f32
}

numbers! {
    f32, cublasSgemm_v2, cublasSgemmStridedBatched, |scalar| single(scalar.to_f64());
    f64, cublasDgemm_v2, cublasDgemmStridedBatched, |scalar| scalar.to_f64();
    cuComplex, cublasCgemm_v2, cublasCgemmStridedBatched,
        |scalar| Self { x: single(scalar.to_f64()), y: single(scalar.imaginary()) };
    cuDoubleComplex, cublasZgemm_v2, cublasZgemmStridedBatched,
        |scalar| Self { x: scalar.to_f64(), y: scalar.imaginary() };
}

/// Products of 16-bit floats.
mod half {
    use super::*;

    pub(super) const PLAIN: &str = "handle, opa, opb, m, n, k, alpha_ptr, a, Atype, lda, b, Btype, ldb, beta_ptr, c, \
                                    Ctype, ldc, compute_type, CUBLAS_GEMM_DEFAULT_TENSOR_OP";
    pub(super) const BATCHED: &str = "handle, opa, opb, m, n, k, alpha_ptr, a, Atype, lda, stridea, b, Btype, ldb, \
                                      strideb, beta_ptr, c, Ctype, ldc, stridec, num_batches, compute_type, \
                                      CUBLAS_GEMM_DEFAULT_TENSOR_OP";

    /// A factor in the type in which the library computes.
    union Factor {
        single: f32,
        half: [u8; 2],
    }

    /// The types of a product: of its matrices and of its sums.
    fn types(dtype: DType) -> (cudaDataType_t, cublasComputeType_t) {
        match dtype {
            DType::F16 if settings::allow_fp16_accumulation() => {
                (cudaDataType_t::CUDA_R_16F, cublasComputeType_t::CUBLAS_COMPUTE_16F)
            }
            DType::F16 => (cudaDataType_t::CUDA_R_16F, cublasComputeType_t::CUBLAS_COMPUTE_32F),
            _ => (cudaDataType_t::CUDA_R_16BF, cublasComputeType_t::CUBLAS_COMPUTE_32F),
        }
    }

    fn factor(scalar: Scalar, compute: cublasComputeType_t) -> Factor {
        if compute == cublasComputeType_t::CUBLAS_COMPUTE_16F {
            Factor { half: ::half::f16::from_f64(scalar.to_f64()).to_ne_bytes() }
        } else {
            Factor { single: single(scalar.to_f64()) }
        }
    }

    pub(super) unsafe fn queue(handle: &Handle, gemm: &Gemm<'_>) -> std::result::Result<(), CublasError> {
        let (data, compute) = types(gemm.dtype);
        let (alpha, beta) = (factor(gemm.alpha, compute), factor(gemm.beta, compute));
        let (alpha, beta) = (ptr::from_ref(&alpha).cast(), ptr::from_ref(&beta).cast());
        let [opa, opb] = [&gemm.a, &gemm.b].map(|operand| operation(operand.transpose));
        let [a, b] = [&gemm.a, &gemm.b].map(|operand| place::<c_void>(operand.tensor()).cast_const());
        let Gemm { m, n, k, lda, ldb, ldc, .. } = *gemm;
        let algo = cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP;
        let c = place(gemm.out);
        // SAFETY: the matrices have these types and sizes; the factors outlive the call.
        unsafe {
            handle.library.cublasGemmEx(
                handle.raw(),
                opa,
                opb,
                m,
                n,
                k,
                alpha,
                a,
                data,
                lda,
                b,
                data,
                ldb,
                beta,
                c,
                data,
                ldc,
                compute,
                algo,
            )
        }
    }

    pub(super) unsafe fn queue_batched(handle: &Handle, gemm: &Gemm<'_>) -> std::result::Result<(), CublasError> {
        let mut first = 0;
        while first < gemm.batches {
            let count = MOST_BATCHES.min(gemm.batches - first);
            // SAFETY: the caller's promise; the part lies inside the batch.
            unsafe { queue_part(handle, gemm, first, count)? };
            first += count;
        }
        Ok(())
    }

    /// Some matrices of a batch.
    unsafe fn queue_part(
        handle: &Handle,
        gemm: &Gemm<'_>,
        first: c_int,
        count: c_int,
    ) -> std::result::Result<(), CublasError> {
        let (data, compute) = types(gemm.dtype);
        let (alpha, beta) = (factor(gemm.alpha, compute), factor(gemm.beta, compute));
        let (alpha, beta) = (ptr::from_ref(&alpha).cast(), ptr::from_ref(&beta).cast());
        let [opa, opb] = [&gemm.a, &gemm.b].map(|operand| operation(operand.transpose));
        let [stride_a, stride_b] = [&gemm.a, &gemm.b].map(|operand| operand.batch_stride);
        let stride_c = gemm.out_stride();
        let from = |tensor: &Tensor, stride: c_longlong| {
            let bytes = c_longlong::from(first) * stride * 2;
            place::<u8>(tensor).wrapping_offset(isize::try_from(bytes).unwrap_or(0)).cast::<c_void>()
        };
        let (a, b) = (from(gemm.a.tensor(), stride_a).cast_const(), from(gemm.b.tensor(), stride_b).cast_const());
        let c = from(gemm.out, stride_c);
        let Gemm { m, n, k, lda, ldb, ldc, .. } = *gemm;
        let algo = cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP;
        // SAFETY: the matrices have these types, sizes and distances; the factors outlive the call.
        unsafe {
            handle.library.cublasGemmStridedBatchedEx(
                handle.raw(),
                opa,
                opb,
                m,
                n,
                k,
                alpha,
                a,
                data,
                lda,
                stride_a,
                b,
                data,
                ldb,
                stride_b,
                beta,
                c,
                data,
                ldc,
                stride_c,
                count,
                compute,
                algo,
            )
        }
    }
}
