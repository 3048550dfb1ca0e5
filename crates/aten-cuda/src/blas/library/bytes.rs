//! Products of matrices of bytes by cuBLASLt: of 8-bit integers into 32-bit ones, and of 8-bit floats with scales.
//!
//! The library wants the inner dimension of both factors one after another in memory. As for other products its factors
//! stand in the other order, since it takes matrices by columns. Plans are kept as those of `lt`.
//!
//! # Safety
//! As for `lt`: matrices are views that lie inside their storages, which are handed to the runtime. Descriptions are made
//! by the library that they are given to, are used by one thread, and live as long as their plan.
#![expect(unsafe_code, reason = "calls of cuBLASLt")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use c10_core::{Arg, DeviceIndex, MemoryAccess, Runtime};
use cuda_sys::CublasLt;
use cuda_sys::cublas::types::{cublasComputeType_t, cublasOperation_t, cudaDataType_t};
use cuda_sys::cublaslt::types::{
    cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulMatrixScale_t as ScaleMode,
};

use super::gemm::place;
use super::handle::{Blas, Handle, failed};
use super::lt::{
    EPILOGUE_BIAS, EPILOGUE_DEFAULT, MATMUL, Places, Plan, REDUCTION_ANY, Wishes, alignment, lt_handle, propose, set,
};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::launch::byte_products::Scales;
use crate::tensor::Tensor;

/// Plans that a thread keeps.
const MOST_PLANS: usize = 256;

const DESCRIBE: &str = "descriptor(), attr, &value, sizeof(value)";

/// A product `out = a @ b`, with scales and a bias where the factors are floats.
pub(in crate::blas) struct Bytes<'a> {
    pub(in crate::blas) out: &'a Tensor,
    pub(in crate::blas) a: &'a Tensor,
    pub(in crate::blas) b: &'a Tensor,
    pub(in crate::blas) scales: Option<Scales<'a>>,
    /// Whether sums of floats may be less exact.
    pub(in crate::blas) fast: bool,
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    library: usize,
    device: DeviceIndex,
    dtypes: [DType; 3],
    bias: Option<DType>,
    has_row_scales: bool,
    fast: bool,
    /// m, n and k of the library, then leading dimensions.
    sizes: [c_int; 6],
    alignments: [u32; 3],
}

/// A plan, or that the library has none.
type Known = Option<Rc<Plan>>;

thread_local! {
    static PLANS: RefCell<HashMap<Key, Known>> = RefCell::new(HashMap::new());
}

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (out, a, b) = (self.out, self.a, self.b);
        let (m, n, k) = (out.sizes()[1], out.sizes()[0], a.sizes()[1]);
        write!(f, "opa t, opb n, m {m}, n {n}, k {k}, of {} and {} into {}", b.dtype(), a.dtype(), out.dtype())
    }
}

impl Bytes<'_> {
    fn key(&self, library: &Arc<CublasLt>, device: DeviceIndex) -> Option<Key> {
        let (out, a, b) = (self.out, self.a, self.b);
        let lines = [b.strides()[1], a.strides()[0], out.strides()[0]];
        let sizes = [out.sizes()[1], out.sizes()[0], a.sizes()[1], lines[0], lines[1], lines[2]];
        let mut all = [0; 6];
        for (to, size) in all.iter_mut().zip(sizes) {
            *to = c_int::try_from(size).ok()?;
        }
        Some(Key {
            library: Arc::as_ptr(library).addr(),
            device,
            dtypes: [b, a, out].map(Tensor::dtype),
            bias: self.scales.and_then(|scales| scales.bias).map(Tensor::dtype),
            has_row_scales: self.scales.is_some_and(|scales| scales.a.numel() != 1 || scales.b.numel() != 1),
            fast: self.fast,
            sizes: all,
            alignments: [b, a, out].map(|tensor| alignment(tensor.data_ptr())),
        })
    }

    fn buffers(&self) -> impl Iterator<Item = Arg<'_>> {
        let scales = self.scales.map(|scales| [Some(scales.a), Some(scales.b), scales.bias]);
        let beside = scales.into_iter().flatten().flatten();
        let read = [self.a, self.b].into_iter().chain(beside).zip(["self", "mat2", "scale_a", "scale_b", "bias"]);
        let read = read.filter_map(|(tensor, name)| tensor.used(MemoryAccess::Reads(name)));
        self.out.used(MemoryAccess::Output).into_iter().chain(read)
    }
}

/// Queues a product on the current stream; `false` where there is no cuBLASLt or it does not compute this product, and
/// nothing was done. Rows of `a` and `out` and columns of `b` lie one after another.
pub(in crate::blas) fn run(runtime: &Runtime, blas: &Blas, handle: &Handle, product: &Bytes<'_>) -> Result<bool> {
    let Ok(library) = blas.libraries.lt(runtime) else { return Ok(false) };
    let device = product.out.device().cuda_index()?.unwrap_or_default();
    let Some(key) = product.key(&library, device) else { return Ok(false) };
    let lt = lt_handle(runtime, &library, device)?;
    let Some(plan) = plan(handle, &library, lt, &key, product)? else { return Ok(false) };
    let function = handle.function(runtime, "cublasLtMatmul")?;
    let buffers: smallvec::SmallVec<[Arg<'_>; 6]> = product.buffers().collect();
    runtime.queue_by_library(function, device, buffers, |stream| {
        if let Some(scales) = &product.scales {
            point(&library, plan.operation, scales).map_err(|cause| failed(cause, DESCRIBE, product.to_string()))?;
        }
        let workspace = handle.lt_workspace(blas, stream)?;
        let (alpha, beta) = factors(product.scales.is_some());
        let [a, b] = [product.b, product.a].map(|tensor| place::<c_void>(tensor).cast_const());
        let out = place::<c_void>(product.out);
        // What is added has the result's place only where it has its dtype; it is not read, since its factor is zero.
        let added = if product.out.dtype().is_float8() { ptr::null() } else { out.cast_const() };
        let (alpha, beta) = (ptr::from_ref(&alpha).cast(), ptr::from_ref(&beta).cast());
        let places = Places { alpha, a, b, beta, c: added, out };
        // SAFETY: the plan was made for matrices of these sizes, the factors outlive the call; what is added is not read; and
        // the workspace is kept until the work is queued.
        let queued = unsafe { plan.queue(lt, &places, &workspace, stream.handle) };
        queued.map_err(|cause| failed(cause, MATMUL, product.to_string()))
    })?;
    Ok(true)
}

/// One and zero, as the library takes them for sums of floats or of integers.
fn factors(is_float: bool) -> (u32, u32) {
    (if is_float { 1.0_f32.to_bits() } else { 1 }, 0)
}

/// Tells an operation where scales and bias are.
fn point(
    library: &CublasLt,
    operation: cublasLtMatmulDesc_t,
    scales: &Scales<'_>,
) -> std::result::Result<(), cuda_sys::CublasError> {
    let places = [
        (Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, Some(scales.b)),
        (Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, Some(scales.a)),
        (Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, scales.bias),
    ];
    for (attribute, tensor) in places {
        if let Some(tensor) = tensor {
            let address = tensor.data_ptr();
            // SAFETY: the description is this thread's, and holds an address there.
            unsafe { set(library, operation, attribute, &address) }?;
        }
    }
    Ok(())
}

/// The plan of a product; `None` where the library does not compute it.
fn plan(
    handle: &Handle,
    library: &Arc<CublasLt>,
    lt: cublasLtHandle_t,
    key: &Key,
    product: &Bytes<'_>,
) -> Result<Known> {
    if let Some(known) = PLANS.with_borrow(|plans| plans.get(key).cloned()) {
        return Ok(known);
    }
    let mut made = describe(library, key, product)?;
    if let (Some(plan), Some(scales)) = (&made, &product.scales) {
        // What the library proposes may depend on where these are.
        point(library, plan.operation, scales).map_err(|cause| failed(cause, DESCRIBE, product.to_string()))?;
    }
    let [m, n, k, lda, ldb, ldc] = key.sizes;
    let wishes = Wishes { alignments: key.alignments, reduction: REDUCTION_ANY, sizes: [m, n, k, 1, lda, ldb, ldc] };
    if let Some(plan) = &mut made {
        match propose(library, lt, plan, &wishes, handle, 1)?.into_iter().next() {
            Some(best) => plan.algo = best.algo,
            None => made = None,
        }
    }
    let known = made.map(Rc::new);
    PLANS.with_borrow_mut(|plans| {
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(*key, known.clone());
    });
    Ok(known)
}

fn data_type(dtype: DType) -> Option<cudaDataType_t> {
    Some(match dtype {
        DType::I8 => cudaDataType_t::CUDA_R_8I,
        DType::I32 => cudaDataType_t::CUDA_R_32I,
        DType::F8E4M3FN => cudaDataType_t::CUDA_R_8F_E4M3,
        DType::F8E5M2 => cudaDataType_t::CUDA_R_8F_E5M2,
        DType::F16 => cudaDataType_t::CUDA_R_16F,
        DType::BF16 => cudaDataType_t::CUDA_R_16BF,
        DType::F32 => cudaDataType_t::CUDA_R_32F,
        _ => return None,
    })
}

/// A plan without an algorithm; `None` where this version of the library does not know an attribute that it takes.
fn describe(library: &Arc<CublasLt>, key: &Key, product: &Bytes<'_>) -> Result<Option<Plan>> {
    let told = |cause| failed(cause, DESCRIBE, product.to_string());
    let types = key.dtypes.map(data_type);
    let ([Some(a), Some(b), Some(d)], is_float) = (types, product.scales.is_some()) else { return Ok(None) };
    let (compute, scale) = match is_float {
        true => (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F),
        false => (cublasComputeType_t::CUBLAS_COMPUTE_32I, cudaDataType_t::CUDA_R_32I),
    };
    let mut operation: cublasLtMatmulDesc_t = ptr::null_mut();
    // SAFETY: the place outlives the call.
    unsafe { library.cublasLtMatmulDescCreate(&mut operation, compute, scale) }.map_err(told)?;
    let none = cublasLtMatmulAlgo_t { data: [0; 8] };
    // Destroys what was made if a later call fails.
    let mut made = Plan { library: Arc::clone(library), operation, layouts: [ptr::null_mut(); 4], algo: none };
    let transposed = cublasOperation_t::CUBLAS_OP_T.0;
    // SAFETY: the operation is alive; the attribute is an operation of 32 bits.
    unsafe { set(library, operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed) }.map_err(told)?;
    if is_float && !describe_floats(library, operation, key, product)? {
        return Ok(None);
    }
    // Of a result of 8 bits what is added has 16, as the bias has.
    let c = match d {
        cudaDataType_t::CUDA_R_8F_E4M3 | cudaDataType_t::CUDA_R_8F_E5M2 => {
            key.bias.and_then(data_type).unwrap_or(cudaDataType_t::CUDA_R_16BF)
        }
        same => same,
    };
    let [m, n, k, lda, ldb, ldc] = key.sizes;
    for (at, (ty, rows, columns, ld)) in
        [(a, k, m, lda), (b, k, n, ldb), (c, m, n, ldc), (d, m, n, ldc)].into_iter().enumerate()
    {
        let (rows, columns) = (u64::from(rows.unsigned_abs()), u64::from(columns.unsigned_abs()));
        // SAFETY: the place outlives the call.
        unsafe { library.cublasLtMatrixLayoutCreate(&mut made.layouts[at], ty, rows, columns, i64::from(ld)) }
            .map_err(told)?;
    }
    Ok(Some(made))
}

/// Describes scales, bias and sums; `false` where the library does not know scales for each row.
fn describe_floats(
    library: &CublasLt,
    operation: cublasLtMatmulDesc_t,
    key: &Key,
    product: &Bytes<'_>,
) -> Result<bool> {
    let told = |cause| failed(cause, DESCRIBE, product.to_string());
    // SAFETY: the operation is alive; the attribute is a number of 8 bits.
    unsafe { set(library, operation, Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, &u8::from(key.fast)) }
        .map_err(told)?;
    let epilogue = if key.bias.is_some() { EPILOGUE_BIAS } else { EPILOGUE_DEFAULT };
    // SAFETY: as above, a number of 32 bits.
    unsafe { set(library, operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue) }.map_err(told)?;
    if let Some(bias) = key.bias.and_then(data_type) {
        // SAFETY: as above, a type of 32 bits.
        unsafe { set(library, operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias.0) }.map_err(told)?;
    }
    if key.has_row_scales {
        let mode = ScaleMode::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F.0;
        for attribute in [Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE] {
            // SAFETY: as above, a number of 32 bits. Versions that do not have it refuse it.
            if unsafe { set(library, operation, attribute, &mode) }.is_err() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
