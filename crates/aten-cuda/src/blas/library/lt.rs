//! Products by cuBLASLt, with what follows a product in the same kernel: a bias, an activation.
//!
//! What a product needs besides its memory is a plan: descriptions of the operation and the matrices, and the algorithm that
//! the library proposes for them. Each thread keeps its plans by the shape of the product, since making one costs more
//! than queuing the product.
//!
//! # Safety
//! As for `gemm`: matrices are made of views, and their storages are handed to the runtime. Descriptions are made by the
//! library that they are given to, are used by one thread, and live as long as their plan.
#![expect(unsafe_code, reason = "calls of cuBLASLt")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use c10_core::{Arg, DeviceIndex, MemoryAccess, Runtime};
use cuda_sys::cublas::types::{cublasComputeType_t, cudaDataType_t};
use cuda_sys::cublaslt::types::{
    cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t as Config, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayout_t,
    cublasLtMatrixLayoutAttribute_t as LayoutAttribute,
};
use cuda_sys::{CublasError, CublasLt};

use super::gemm::{Gemm, operation, place};
use super::handle::{Blas, Handle, LtWorkspace, failed};
use super::workspace;
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::blas::operand::Transpose;
use crate::blas::settings;
use crate::blas::{Activation, ReducedPrecision};
use crate::tensor::Tensor;

/// Plans that a thread keeps.
const MOST_PLANS: usize = 512;

/// The library's numbers of what follows a product.
pub(super) const EPILOGUE_DEFAULT: u32 = 1;
const EPILOGUE_RELU: u32 = 2;
pub(super) const EPILOGUE_BIAS: u32 = 4;
const EPILOGUE_GELU: u32 = 32;

/// The library's numbers of the ways in which parts of a sum are added: in the precision of the sum, and any.
const REDUCTION_COMPUTE_TYPE: u32 = 2;
pub(super) const REDUCTION_ANY: u32 = 7;

pub(super) const MATMUL: &str = "ltHandle, computeDesc.descriptor(), &alpha_val, mat1_ptr, Adesc.descriptor(), mat2_ptr, \
                      Bdesc.descriptor(), &beta_val, result_ptr, Cdesc.descriptor(), result_ptr, Cdesc.descriptor(), \
                      &heuristicResult.algo, ltworkspace.ptr, ltworkspace.size, at::cuda::getCurrentCUDAStream()";

/// What follows a product.
#[derive(Clone, Copy)]
pub(in crate::blas) struct Epilogue<'a> {
    /// A vector that is added to each row of the result.
    pub(in crate::blas) bias: Option<&'a Tensor>,
    pub(in crate::blas) activation: Activation,
    /// What is added, in place of what is in the result: contiguous, of its sizes and dtype.
    pub(in crate::blas) c: Option<&'a Tensor>,
}

impl Epilogue<'_> {
    fn number(&self) -> u32 {
        let activation = match self.activation {
            Activation::None => 0,
            Activation::Relu => EPILOGUE_RELU,
            Activation::Gelu => EPILOGUE_GELU,
        };
        let bias = if self.bias.is_some() { EPILOGUE_BIAS } else { 0 };
        match activation | bias {
            0 => EPILOGUE_DEFAULT,
            number => number,
        }
    }
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    library: usize,
    device: DeviceIndex,
    dtype: DType,
    transposes: [Transpose; 2],
    sizes: [c_int; 7],
    batch_strides: [i64; 2],
    epilogue: u32,
    /// What the matrices and the bias begin at a multiple of.
    alignments: [u32; 4],
    compute: u32,
    reduction: u32,
    /// The algorithm, where it is not the library's choice.
    chosen: Option<[u64; 8]>,
}

impl Key {
    fn wishes(&self) -> Wishes {
        let [a, b, c, _] = self.alignments;
        Wishes { alignments: [a, b, c], reduction: self.reduction, sizes: self.sizes }
    }
}

/// An algorithm that the library offers for a product.
#[derive(Clone, Debug)]
pub(in crate::blas) struct Algorithm {
    /// Its configuration: the same name means the same algorithm in any process with the same version of the library.
    pub(in crate::blas) name: String,
    pub(super) data: [u64; 8],
}

/// What a product needs besides its memory.
pub(super) struct Plan {
    pub(super) library: Arc<CublasLt>,
    pub(super) operation: cublasLtMatmulDesc_t,
    /// Of the factors, of what is added and of the result, where that differs.
    pub(super) layouts: [cublasLtMatrixLayout_t; 4],
    pub(super) algo: cublasLtMatmulAlgo_t,
}

/// What decides about the algorithms that the library proposes.
pub(super) struct Wishes {
    /// What the matrices begin at a multiple of.
    pub(super) alignments: [u32; 3],
    /// How parts of a sum may be added.
    pub(super) reduction: u32,
    /// The sizes, for errors.
    pub(super) sizes: [c_int; 7],
}

impl Plan {
    /// The descriptions of the factors, of what is added and of the result.
    pub(super) fn layouts(&self) -> [cublasLtMatrixLayout_t; 4] {
        let [a, b, c, d] = self.layouts;
        [a, b, c, if d.is_null() { c } else { d }]
    }
}

/// Where a planned product finds its numbers, and where it puts the result.
pub(super) struct Places {
    pub(super) alpha: *const c_void,
    pub(super) a: *const c_void,
    pub(super) b: *const c_void,
    pub(super) beta: *const c_void,
    /// What is added.
    pub(super) c: *const c_void,
    pub(super) out: *mut c_void,
}

impl Plan {
    /// Queues the product on a stream.
    ///
    /// # Safety
    /// - The places must be those of matrices that the plan was made for, and the factors outlive the call. What is added
    ///   may be null only if its factor is zero.
    /// - The workspace must be kept until the work is queued.
    pub(super) unsafe fn queue(
        &self,
        lt: cublasLtHandle_t,
        places: &Places,
        workspace: &LtWorkspace,
        stream: usize,
    ) -> std::result::Result<(), CublasError> {
        let &Places { alpha, a, b, beta, c, out } = places;
        let [layout_a, layout_b, layout_c, layout_d] = self.layouts();
        let memory = ptr::with_exposed_provenance_mut(usize::try_from(workspace.address).unwrap_or(0));
        let stream = ptr::with_exposed_provenance_mut(stream);
        let (operation, bytes) = (self.operation, workspace.bytes);
        // SAFETY: the caller's promises.
        unsafe {
            self.library.cublasLtMatmul(
                lt, operation, alpha, a, layout_a, b, layout_b, beta, c, layout_c, out, layout_d, &self.algo, memory,
                bytes, stream,
            )
        }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // Neither call can fail for what the library has made.
        // SAFETY: made by this library, and not used after this.
        let _ = unsafe { self.library.cublasLtMatmulDescDestroy(self.operation) };
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: as above.
            let _ = unsafe { self.library.cublasLtMatrixLayoutDestroy(layout) };
        }
    }
}

thread_local! {
    static PLANS: RefCell<HashMap<Key, Rc<Plan>>> = RefCell::new(HashMap::new());
    /// By library and device; with the library, so that no other one gets its address.
    static HANDLES: RefCell<Vec<(Arc<CublasLt>, DeviceIndex, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Queues a product on the current stream; `false` where the library has no algorithm for it, and nothing was done.
pub(in crate::blas) fn run(
    runtime: &Runtime,
    blas: &Blas,
    handle: &Handle,
    gemm: &Gemm<'_>,
    epilogue: Epilogue<'_>,
    algorithm: Option<&Algorithm>,
) -> Result<bool> {
    let Ok(library) = blas.libraries.lt(runtime) else { return Ok(false) };
    let lt = lt_handle(runtime, &library, gemm.device)?;
    let Some(plan) = plan(handle, &library, lt, gemm, epilogue, algorithm)? else { return Ok(false) };
    let function = handle.function(runtime, "cublasLtMatmul")?;
    let bias = epilogue.bias.and_then(|bias| bias.used(MemoryAccess::Reads("bias")));
    let c = epilogue.c.and_then(|c| c.used(MemoryAccess::Reads("c")));
    let buffers: smallvec::SmallVec<[Arg<'_>; 5]> = gemm.buffers().chain(bias).chain(c).collect();
    runtime.queue_by_library(function, gemm.device, buffers, |stream| {
        if let Some(bias) = epilogue.bias {
            let address = bias.data_ptr();
            // SAFETY: the description is this thread's, and holds an address there.
            let set = unsafe { set(&library, plan.operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address) };
            set.map_err(|cause| failed(cause, "descriptor(), attr, &value, sizeof(value)", gemm.to_string()))?;
        }
        let workspace = handle.lt_workspace(blas, stream)?;
        let (alpha, beta) = (factor(gemm.dtype, gemm.alpha), factor(gemm.dtype, gemm.beta));
        let (alpha, beta): (*const c_void, *const c_void) = (alpha.as_ptr().cast(), beta.as_ptr().cast());
        let [a, b] = [&gemm.a, &gemm.b].map(|operand| place::<c_void>(operand.tensor()).cast_const());
        let out = place::<c_void>(gemm.out);
        let c = epilogue.c.map_or(out.cast_const(), |c| place::<c_void>(c).cast_const());
        let places = Places { alpha, a, b, beta, c, out };
        // SAFETY: the plan was made for matrices of these sizes, what is added lies as the result does, the factors outlive
        // the call, and the workspace is kept until the work is queued.
        let queued = unsafe { plan.queue(lt, &places, &workspace, stream.handle) };
        queued.map_err(|cause| failed(cause, MATMUL, gemm.to_string()))
    })?;
    Ok(true)
}

/// The algorithms that the library proposes for a product, the one that it holds for the quickest first.
pub(in crate::blas) fn algorithms(
    runtime: &Runtime,
    blas: &Blas,
    handle: &Handle,
    gemm: &Gemm<'_>,
    epilogue: Epilogue<'_>,
    most: usize,
) -> Result<Vec<Algorithm>> {
    let Ok(library) = blas.libraries.lt(runtime) else { return Ok(Vec::new()) };
    let lt = lt_handle(runtime, &library, gemm.device)?;
    let key = key(&library, gemm, epilogue, None);
    // Dropped with its descriptions when this returns.
    let plan = describe(&library, &key, gemm)?;
    let found = propose(&library, lt, &plan, &key.wishes(), handle, most)?;
    Ok(found.into_iter().map(|result| Algorithm::of(&library, &result)).collect())
}

impl Algorithm {
    pub(super) fn of(library: &CublasLt, result: &cublasLtMatmulHeuristicResult_t) -> Self {
        let parts: [(&str, Config); 9] = [
            ("a", Config::CUBLASLT_ALGO_CONFIG_ID),
            ("t", Config::CUBLASLT_ALGO_CONFIG_TILE_ID),
            ("s", Config::CUBLASLT_ALGO_CONFIG_STAGES_ID),
            ("k", Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
            ("r", Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
            ("w", Config::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
            ("o", Config::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
            ("i", Config::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
            ("c", Config::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
        ];
        let mut name = "CublasLt".to_owned();
        for (letter, attribute) in parts {
            let (mut value, mut written) = ([0_u8; 4], 0);
            // SAFETY: the algorithm was given by the library; at most four bytes are written.
            let got = unsafe {
                library.cublasLtMatmulAlgoConfigGetAttribute(
                    &result.algo,
                    attribute,
                    value.as_mut_ptr().cast(),
                    value.len(),
                    &mut written,
                )
            };
            // An attribute that this version does not have is left out.
            if got.is_ok() {
                name.push_str(&format!("_{letter}{}", u32::from_le_bytes(value)));
            } else if Self::is_narrow(attribute)
                // SAFETY: as above, of two bytes.
                && unsafe {
                    library.cublasLtMatmulAlgoConfigGetAttribute(
                        &result.algo, attribute, value.as_mut_ptr().cast(), 2, &mut written,
                    )
                }
                .is_ok()
            {
                name.push_str(&format!("_{letter}{}", u16::from_le_bytes([value[0], value[1]])));
            }
        }
        Self { name, data: result.algo.data }
    }

    /// Whether an attribute has two bytes.
    fn is_narrow(attribute: Config) -> bool {
        attribute == Config::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID
            || attribute == Config::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID
    }
}

/// The calling thread's handle of the library.
pub(super) fn lt_handle(runtime: &Runtime, library: &Arc<CublasLt>, device: DeviceIndex) -> Result<cublasLtHandle_t> {
    let is_own = |known: &&(Arc<CublasLt>, DeviceIndex, usize)| Arc::ptr_eq(&known.0, library) && known.1 == device;
    if let Some(known) = HANDLES.with_borrow(|handles| handles.iter().find(is_own).map(|known| known.2)) {
        return Ok(ptr::with_exposed_provenance_mut(known));
    }
    let made = runtime.with_library(device, || {
        let mut made: cublasLtHandle_t = ptr::null_mut();
        // SAFETY: `made` outlives the call; the device's context is current.
        let created = unsafe { library.cublasLtCreate(&mut made) };
        created.map_err(|cause| failed(cause, "&handle", format!("device {device}")))?;
        Ok::<_, Error>(made)
    })?;
    HANDLES.with_borrow_mut(|handles| handles.push((Arc::clone(library), device, made.expose_provenance())));
    Ok(made)
}

fn key(library: &Arc<CublasLt>, gemm: &Gemm<'_>, epilogue: Epilogue<'_>, chosen: Option<&Algorithm>) -> Key {
    let Gemm { m, n, k, batches, lda, ldb, ldc, dtype, device, .. } = *gemm;
    let bias = epilogue.bias.map_or(0, Tensor::data_ptr);
    // What is added and the result are one matrix to the wishes: the address that is a multiple of less tells.
    let out = gemm.out.data_ptr() | epilogue.c.map_or(0, Tensor::data_ptr);
    let tensors = [gemm.a.tensor().data_ptr(), gemm.b.tensor().data_ptr(), out, bias];
    let reduction = match dtype {
        DType::F16 => settings::fp16_reduction(),
        DType::BF16 => settings::bf16_reduction(),
        _ => ReducedPrecision::from(true),
    };
    let (_, compute, _) = types(dtype);
    Key {
        library: Arc::as_ptr(library).addr(),
        device,
        dtype,
        transposes: [gemm.a.transpose, gemm.b.transpose],
        sizes: [m, n, k, batches, lda, ldb, ldc],
        batch_strides: [gemm.a.batch_stride, gemm.b.batch_stride],
        epilogue: epilogue.number(),
        alignments: tensors.map(alignment),
        compute: compute.0,
        reduction: match (reduction.is_reduced, reduction.may_split) {
            (_, false) => 0,
            (true, true) => REDUCTION_ANY,
            (false, true) => REDUCTION_COMPUTE_TYPE,
        },
        chosen: chosen.map(|algorithm| algorithm.data),
    }
}

/// What an address is a multiple of, up to 256.
pub(super) fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// The types of a product: its matrices, its sums, its factors.
fn types(dtype: DType) -> (cudaDataType_t, cublasComputeType_t, cudaDataType_t) {
    use cublasComputeType_t as Compute;
    use cudaDataType_t as Type;
    match dtype {
        DType::F16 if settings::allow_fp16_accumulation() => {
            (Type::CUDA_R_16F, Compute::CUBLAS_COMPUTE_16F, Type::CUDA_R_16F)
        }
        DType::F16 => (Type::CUDA_R_16F, Compute::CUBLAS_COMPUTE_32F, Type::CUDA_R_32F),
        DType::BF16 => (Type::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F, Type::CUDA_R_32F),
        DType::F64 => (Type::CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F, Type::CUDA_R_64F),
        DType::C64 => (Type::CUDA_C_32F, Compute::CUBLAS_COMPUTE_32F, Type::CUDA_C_32F),
        DType::C128 => (Type::CUDA_C_64F, Compute::CUBLAS_COMPUTE_64F, Type::CUDA_C_64F),
        _ if settings::uses_tf32() => (Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32, Type::CUDA_R_32F),
        _ => (Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F, Type::CUDA_R_32F),
    }
}

/// The bytes of a factor.
fn factor(dtype: DType, scalar: crate::base::scalar::Scalar) -> [u8; 16] {
    let mut bytes = [0; 16];
    let (real, imaginary) = (scalar.to_f64(), scalar.imaginary());
    #[expect(clippy::cast_possible_truncation, reason = "the precision of the sums")]
    match types(dtype).2 {
        cudaDataType_t::CUDA_R_16F => bytes[..2].copy_from_slice(&half::f16::from_f64(real).to_ne_bytes()),
        cudaDataType_t::CUDA_R_64F => bytes[..8].copy_from_slice(&real.to_ne_bytes()),
        cudaDataType_t::CUDA_C_64F => {
            bytes[..8].copy_from_slice(&real.to_ne_bytes());
            bytes[8..].copy_from_slice(&imaginary.to_ne_bytes());
        }
        cudaDataType_t::CUDA_C_32F => {
            bytes[..4].copy_from_slice(&(real as f32).to_ne_bytes());
            bytes[4..8].copy_from_slice(&(imaginary as f32).to_ne_bytes());
        }
        _ => bytes[..4].copy_from_slice(&(real as f32).to_ne_bytes()),
    }
    bytes
}

/// The plan of a product; `None` where the library has no algorithm for it.
fn plan(
    handle: &Handle,
    library: &Arc<CublasLt>,
    lt: cublasLtHandle_t,
    gemm: &Gemm<'_>,
    epilogue: Epilogue<'_>,
    chosen: Option<&Algorithm>,
) -> Result<Option<Rc<Plan>>> {
    let key = key(library, gemm, epilogue, chosen);
    if let Some(known) = PLANS.with_borrow(|plans| plans.get(&key).cloned()) {
        return Ok(Some(known));
    }
    let mut plan = describe(library, &key, gemm)?;
    plan.algo = cublasLtMatmulAlgo_t { data: key.chosen.unwrap_or_default() };
    if key.chosen.is_none() {
        let Some(best) = propose(library, lt, &plan, &key.wishes(), handle, 1)?.into_iter().next() else {
            return Ok(None);
        };
        plan.algo = best.algo;
    }
    let plan = Rc::new(plan);
    PLANS.with_borrow_mut(|plans| {
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(key, Rc::clone(&plan));
    });
    Ok(Some(plan))
}

/// Sets an attribute of an operation.
///
/// # Safety
/// - The operation is alive and this thread's, and the attribute is a `T`.
pub(super) unsafe fn set<T>(
    library: &CublasLt,
    operation: cublasLtMatmulDesc_t,
    attribute: Attribute,
    value: &T,
) -> std::result::Result<(), CublasError> {
    // SAFETY: the caller's promise.
    unsafe { library.cublasLtMatmulDescSetAttribute(operation, attribute, ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A plan without an algorithm: the operation and its matrices are described.
fn describe(library: &Arc<CublasLt>, key: &Key, gemm: &Gemm<'_>) -> Result<Plan> {
    let told = |cause| failed(cause, "descriptor(), attr, &value, sizeof(value)", gemm.to_string());
    let (data, compute, scale) = types(key.dtype);
    let mut operation_desc: cublasLtMatmulDesc_t = ptr::null_mut();
    // SAFETY: the place outlives the call.
    unsafe { library.cublasLtMatmulDescCreate(&mut operation_desc, compute, scale) }.map_err(told)?;
    let none = cublasLtMatmulAlgo_t { data: [0; 8] };
    // Destroys what was made if a later call fails.
    let mut made =
        Plan { library: Arc::clone(library), operation: operation_desc, layouts: [ptr::null_mut(); 4], algo: none };
    let transposes = [Attribute::CUBLASLT_MATMUL_DESC_TRANSA, Attribute::CUBLASLT_MATMUL_DESC_TRANSB];
    for (attribute, transpose) in transposes.into_iter().zip(key.transposes) {
        // SAFETY: the operation is alive; the attribute is an operation of 32 bits.
        unsafe { set(library, operation_desc, attribute, &operation(transpose).0) }.map_err(told)?;
    }
    // SAFETY: as above; the attribute is a number of 32 bits.
    unsafe { set(library, operation_desc, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &key.epilogue) }.map_err(told)?;
    let [m, n, k, batches, lda, ldb, ldc] = key.sizes;
    let turned = |transpose: Transpose, rows: c_int, columns: c_int| match transpose {
        Transpose::No => (rows, columns),
        Transpose::Yes | Transpose::Conjugated => (columns, rows),
    };
    let [a, b] = [turned(key.transposes[0], m, k), turned(key.transposes[1], k, n)];
    let strides = [key.batch_strides[0], key.batch_strides[1], i64::from(m) * i64::from(n)];
    let shapes = [(a, lda), (b, ldb), ((m, n), ldc)];
    for (at, (((rows, columns), ld), stride)) in shapes.into_iter().zip(strides).enumerate() {
        let (rows, columns) = (u64::from(rows.unsigned_abs()), u64::from(columns.unsigned_abs()));
        // SAFETY: the place outlives the call.
        unsafe { library.cublasLtMatrixLayoutCreate(&mut made.layouts[at], data, rows, columns, i64::from(ld)) }
            .map_err(told)?;
        if batches != 1 {
            let count = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
            let offset = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            let layout = made.layouts[at];
            // SAFETY: the layout is alive; the attribute is a number of 32 bits.
            unsafe { library.cublasLtMatrixLayoutSetAttribute(layout, count, ptr::from_ref(&batches).cast(), 4) }
                .map_err(told)?;
            // SAFETY: the layout is alive; the attribute is a number of 64 bits.
            unsafe { library.cublasLtMatrixLayoutSetAttribute(layout, offset, ptr::from_ref(&stride).cast(), 8) }
                .map_err(told)?;
        }
    }
    Ok(made)
}

/// What the library proposes.
pub(super) fn propose(
    library: &CublasLt,
    lt: cublasLtHandle_t,
    plan: &Plan,
    wishes: &Wishes,
    handle: &Handle,
    most: usize,
) -> Result<Vec<cublasLtMatmulHeuristicResult_t>> {
    let told = |cause| failed(cause, "preference, attr, &value, sizeof(value)", format!("{:?}", wishes.sizes));
    let mut preference: cublasLtMatmulPreference_t = ptr::null_mut();
    // SAFETY: the place outlives the call.
    unsafe { library.cublasLtMatmulPreferenceCreate(&mut preference) }.map_err(told)?;
    let asked = prefer(library, preference, wishes, handle).map(|()| {
        // SAFETY: all zeros are a result that says nothing.
        let empty = || unsafe { std::mem::zeroed::<cublasLtMatmulHeuristicResult_t>() };
        let mut results: Vec<_> = std::iter::repeat_with(empty).take(most).collect();
        let mut found: c_int = 0;
        let [a, b, c, d] = plan.layouts();
        let count = c_int::try_from(most).unwrap_or(1);
        // SAFETY: the descriptions are alive, and there is room for as many results.
        let got = unsafe {
            library.cublasLtMatmulAlgoGetHeuristic(
                lt,
                plan.operation,
                a,
                b,
                c,
                d,
                preference,
                count,
                results.as_mut_ptr(),
                &mut found,
            )
        };
        results.truncate(usize::try_from(found).unwrap_or(0));
        // The library says so where it has nothing to propose.
        if got.is_ok() { results } else { Vec::new() }
    });
    // SAFETY: made above, and not used after this; the call cannot fail for what the library has made.
    let _ = unsafe { library.cublasLtMatmulPreferenceDestroy(preference) };
    let is_usable = |result: &cublasLtMatmulHeuristicResult_t| result.state.0 == 0;
    Ok(asked?.into_iter().filter(is_usable).collect())
}

/// Says what an algorithm may use.
fn prefer(library: &CublasLt, preference: cublasLtMatmulPreference_t, wishes: &Wishes, handle: &Handle) -> Result<()> {
    let told = |cause| failed(cause, "preference, attr, &value, sizeof(value)", format!("{:?}", wishes.sizes));
    let bytes = workspace::lt_bytes(handle.major());
    let place = Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    // SAFETY: the preference is alive; the attribute is a size.
    unsafe {
        library.cublasLtMatmulPreferenceSetAttribute(
            preference,
            place,
            ptr::from_ref(&bytes).cast(),
            size_of::<usize>(),
        )
    }
    .map_err(told)?;
    let [a, b, c] = wishes.alignments;
    let numbers = [
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c),
        (Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, wishes.reduction),
    ];
    for (attribute, number) in numbers {
        // SAFETY: the preference is alive; the attribute is a number of 32 bits.
        unsafe {
            library.cublasLtMatmulPreferenceSetAttribute(preference, attribute, ptr::from_ref(&number).cast(), 4)
        }
        .map_err(told)?;
    }
    Ok(())
}
