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
    Algorithm, EPILOGUE_BIAS, EPILOGUE_DEFAULT, MATMUL, Places, Plan, REDUCTION_ANY, Wishes, alignment, lt_handle,
    propose, set,
};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::launch::byte_products::{Problem, Scales, Scaling};
use crate::tensor::Tensor;

/// Plans that a thread keeps.
const MOST_PLANS: usize = 256;

const DESCRIBE: &str = "descriptor(), attr, &value, sizeof(value)";

/// Everything that a plan depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    library: usize,
    device: DeviceIndex,
    dtypes: [DType; 3],
    bias: Option<DType>,
    /// What scales are for, of the library's first factor and of its second one.
    scaling: Option<[Scaling; 2]>,
    fast: bool,
    /// m, n and k of the library, then leading dimensions.
    sizes: [c_int; 6],
    alignments: [u32; 3],
    /// The algorithm, where it is not the library's choice.
    chosen: Option<[u64; 8]>,
}

impl Key {
    fn wishes(&self) -> Wishes {
        let [m, n, k, lda, ldb, ldc] = self.sizes;
        Wishes { alignments: self.alignments, reduction: REDUCTION_ANY, sizes: [m, n, k, 1, lda, ldb, ldc] }
    }
}

/// A plan, or that the library has none.
type Known = Option<Rc<Plan>>;

thread_local! {
    static PLANS: RefCell<HashMap<Key, Known>> = RefCell::new(HashMap::new());
}

/// A product in words, for errors.
fn told(product: &Problem<'_>) -> String {
    let Problem { out, a, b, .. } = product;
    let [n, m, k] = product.sizes();
    format!("opa t, opb n, m {m}, n {n}, k {k}, of {} and {} into {}", b.dtype(), a.dtype(), out.dtype())
}

fn key(library: &Arc<CublasLt>, device: DeviceIndex, product: &Problem<'_>, chosen: Option<&Algorithm>) -> Option<Key> {
    let Problem { out, a, b, scales, fast } = *product;
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
        bias: scales.and_then(|scales| scales.bias).map(Tensor::dtype),
        scaling: scales.map(|Scales { kinds: [a, b], .. }| [b, a]),
        fast,
        sizes: all,
        alignments: [b, a, out].map(|tensor| alignment(tensor.data_ptr())),
        chosen: chosen.map(|algorithm| algorithm.data),
    })
}

fn buffers<'a>(product: &Problem<'a>) -> impl Iterator<Item = Arg<'a>> {
    let scales = product.scales.map(|scales| [Some(scales.a), Some(scales.b), scales.bias]);
    let beside = scales.into_iter().flatten().flatten();
    let read = [product.a, product.b].into_iter().chain(beside);
    let read = read.zip(["self", "mat2", "scale_a", "scale_b", "bias"]);
    let read = read.filter_map(|(tensor, name)| tensor.used(MemoryAccess::Reads(name)));
    product.out.used(MemoryAccess::Output).into_iter().chain(read)
}

/// Queues a product on the current stream, by an algorithm or by the one that the library chooses; `false` where there is no
/// cuBLASLt or it does not compute this product, and nothing was done. Rows of `a` and `out` and columns of `b` lie one after
/// another, and scales as the library reads them.
pub(in crate::blas) fn run(
    runtime: &Runtime,
    blas: &Blas,
    handle: &Handle,
    product: &Problem<'_>,
    algorithm: Option<&Algorithm>,
) -> Result<bool> {
    let Ok(library) = blas.libraries.lt(runtime) else { return Ok(false) };
    let device = product.out.device().cuda_index()?.unwrap_or_default();
    let Some(key) = key(&library, device, product, algorithm) else { return Ok(false) };
    let lt = lt_handle(runtime, &library, device)?;
    let Some(plan) = plan(handle, &library, lt, &key, product)? else { return Ok(false) };
    let function = handle.function(runtime, "cublasLtMatmul")?;
    let buffers: smallvec::SmallVec<[Arg<'_>; 6]> = buffers(product).collect();
    runtime.queue_by_library(function, device, buffers, |stream| {
        if let Some(scales) = &product.scales {
            point(&library, plan.operation, scales).map_err(|cause| failed(cause, DESCRIBE, told(product)))?;
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
        queued.map_err(|cause| failed(cause, MATMUL, told(product)))
    })?;
    Ok(true)
}

/// The algorithms that the library proposes for a product, the one that it holds for the quickest first. Operands lie as for
/// [`run`].
pub(in crate::blas) fn algorithms(
    runtime: &Runtime,
    blas: &Blas,
    handle: &Handle,
    product: &Problem<'_>,
    most: usize,
) -> Result<Vec<Algorithm>> {
    let Ok(library) = blas.libraries.lt(runtime) else { return Ok(Vec::new()) };
    let device = product.out.device().cuda_index()?.unwrap_or_default();
    let Some(key) = key(&library, device, product, None) else { return Ok(Vec::new()) };
    let lt = lt_handle(runtime, &library, device)?;
    // Dropped with its descriptions when this returns.
    let Some(plan) = described(&library, &key, product)? else { return Ok(Vec::new()) };
    let found = propose(&library, lt, &plan, &key.wishes(), handle, most)?;
    Ok(found.into_iter().map(|result| Algorithm::of(&library, &result)).collect())
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
    product: &Problem<'_>,
) -> Result<Known> {
    if let Some(known) = PLANS.with_borrow(|plans| plans.get(key).cloned()) {
        return Ok(known);
    }
    let mut made = described(library, key, product)?;
    if let Some(plan) = &mut made {
        match key.chosen {
            Some(data) => plan.algo = cublasLtMatmulAlgo_t { data },
            None => match propose(library, lt, plan, &key.wishes(), handle, 1)?.into_iter().next() {
                Some(best) => plan.algo = best.algo,
                None => made = None,
            },
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

/// A plan without an algorithm that knows where the scales are: what the library proposes may depend on it.
fn described(library: &Arc<CublasLt>, key: &Key, product: &Problem<'_>) -> Result<Option<Plan>> {
    let made = describe(library, key, product)?;
    if let (Some(plan), Some(scales)) = (&made, &product.scales) {
        point(library, plan.operation, scales).map_err(|cause| failed(cause, DESCRIBE, told(product)))?;
    }
    Ok(made)
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
fn describe(library: &Arc<CublasLt>, key: &Key, product: &Problem<'_>) -> Result<Option<Plan>> {
    let failed_so = |cause| failed(cause, DESCRIBE, told(product));
    let types = key.dtypes.map(data_type);
    let ([Some(a), Some(b), Some(d)], is_float) = (types, product.scales.is_some()) else { return Ok(None) };
    let (compute, scale) = match is_float {
        true => (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F),
        false => (cublasComputeType_t::CUBLAS_COMPUTE_32I, cudaDataType_t::CUDA_R_32I),
    };
    let mut operation: cublasLtMatmulDesc_t = ptr::null_mut();
    // SAFETY: the place outlives the call.
    unsafe { library.cublasLtMatmulDescCreate(&mut operation, compute, scale) }.map_err(failed_so)?;
    let none = cublasLtMatmulAlgo_t { data: [0; 8] };
    // Destroys what was made if a later call fails.
    let mut made = Plan { library: Arc::clone(library), operation, layouts: [ptr::null_mut(); 4], algo: none };
    let transposed = cublasOperation_t::CUBLAS_OP_T.0;
    // SAFETY: the operation is alive; the attribute is an operation of 32 bits.
    unsafe { set(library, operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed) }.map_err(failed_so)?;
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
            .map_err(failed_so)?;
    }
    Ok(Some(made))
}

/// Describes scales, bias and sums; `false` where the library does not know such scales.
fn describe_floats(
    library: &CublasLt,
    operation: cublasLtMatmulDesc_t,
    key: &Key,
    product: &Problem<'_>,
) -> Result<bool> {
    let failed_so = |cause| failed(cause, DESCRIBE, told(product));
    // SAFETY: the operation is alive; the attribute is a number of 8 bits.
    unsafe { set(library, operation, Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, &u8::from(key.fast)) }
        .map_err(failed_so)?;
    let epilogue = if key.bias.is_some() { EPILOGUE_BIAS } else { EPILOGUE_DEFAULT };
    // SAFETY: as above, a number of 32 bits.
    unsafe { set(library, operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue) }.map_err(failed_so)?;
    if let Some(bias) = key.bias.and_then(data_type) {
        // SAFETY: as above, a type of 32 bits.
        unsafe { set(library, operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias.0) }
            .map_err(failed_so)?;
    }
    let attributes = [Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE];
    for (attribute, kind) in attributes.into_iter().zip(key.scaling.into_iter().flatten()) {
        let mode = match kind {
            // The one that descriptions have at first, and the only one that older versions know.
            Scaling::Whole => continue,
            Scaling::Lines => ScaleMode::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
            Scaling::Parts => ScaleMode::CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
            Scaling::Blocks => ScaleMode::CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
        };
        // SAFETY: as above, a number of 32 bits. Versions that do not have it refuse it.
        if unsafe { set(library, operation, attribute, &mode.0) }.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}
