//! Products by cuBLASLt: descriptors put together, checked, and queued.
//!
//! What the library demands of 8-bit types is demanded here: the left factor is transposed and the right one is not, sizes
//! and addresses are multiples of 16 bytes for floats and of 4 for integers, and of floats at most one factor is of the
//! kind with two bits behind the point.

use std::ffi::c_void;

use cuda_sys::cublas::types::{
    CUstream_st, cublasComputeType_t, cublasOperation_t, cublasPointerMode_t, cudaDataType_t,
};
use cuda_sys::cublaslt::types::{
    cublasLtContext, cublasLtEpilogue_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulDescOpaque_t, cublasLtMatmulMatrixScale_t, cublasLtMatrixLayoutAttribute_t,
    cublasLtMatrixLayoutOpaque_t,
};

use cublasLtEpilogue_t as Epilogue;
use cublasLtMatmulDescAttributes_t as Matmul;
use cublasLtMatmulMatrixScale_t as ScaleMode;
use cublasLtMatrixLayoutAttribute_t as Layout;
use cudaDataType_t as Type;

use super::algorithms::{Algorithm, Described, chosen};
use super::descriptors::{Descriptor, Kind};
use super::gemm::{arithmetic, scalar};
use super::product::{Activation, Arithmetic, Bias, Factor, Product, Scalar, Scale, is_transposed};
use super::queue::{check_op, stride_bytes};
use super::{ALLOC_FAILED, Answer, EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED, word};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::report::ReportKind;
use crate::toolkit::matrix::{Base, Matrix};
use crate::toolkit::numbers::{Rounding, bytes_of};

/// Epilogues that are simulated: a bit for each.
pub(super) const EPILOGUES: u32 = Epilogue::CUBLASLT_EPILOGUE_DEFAULT.0
    | Epilogue::CUBLASLT_EPILOGUE_RELU.0
    | Epilogue::CUBLASLT_EPILOGUE_BIAS.0
    | Epilogue::CUBLASLT_EPILOGUE_GELU.0;

/// What the start of a workspace must be a multiple of.
const WORKSPACE_ALIGNMENT: u64 = 16;

/// Multiprocessors that work on tiles at once, and numbers of a tile.
const TILES_AT_ONCE: f32 = 132.0;
const TILE_NUMBERS: u64 = 128 * 128;

/// Whether numbers are floats of 8 bits.
pub(super) fn is_eight_bits(ty: Type) -> bool {
    ty == Type::CUDA_R_8F_E4M3 || ty == Type::CUDA_R_8F_E5M2
}

/// A checked product, without addresses of its matrices.
pub(super) struct Plan {
    product: Product,
    /// Type of the factors of the whole product, and where they are.
    scale_type: Type,
    pointers: u64,
}

impl Plan {
    pub(super) fn inner(&self) -> u64 {
        self.product.inner
    }

    pub(super) fn has_small_floats(&self) -> bool {
        is_eight_bits(self.product.a.matrix.ty)
    }

    /// Bytes of all sums.
    pub(super) fn sum_bytes(&self) -> u64 {
        let size = match self.product.arithmetic {
            Arithmetic::F16 => 2,
            Arithmetic::F32 | Arithmetic::I32 => 4,
            Arithmetic::F64 | Arithmetic::C32 => 8,
            Arithmetic::C64 => 16,
        };
        self.product.rows * self.product.columns * self.product.batch * size
    }

    /// How often the whole device has work to do.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn waves(&self) -> f32 {
        (self.product.rows * self.product.columns * self.product.batch).div_ceil(TILE_NUMBERS) as f32 / TILES_AT_ONCE
    }
}

pub(super) fn create(call: &mut Call<'_>, made: Ptr<cublasLtHandle_t>) -> Answer {
    if made.is_null() {
        return Err(INVALID_VALUE);
    }
    let context = call.need_context().map_err(|_| NOT_INITIALIZED)?;
    let key = call.new_handle();
    call.blas.lt_handles.insert(key, context);
    made.write(handle(key)).map_err(|_| ALLOC_FAILED)
}

pub(super) fn destroy(call: &mut Call<'_>, given: Ptr<cublasLtContext>) -> Answer {
    if call.blas.lt_handles.remove(&given.address()).is_some() {
        return Ok(());
    }
    call.lt_context(given).map(|_| ())
}

impl Call<'_> {
    /// The context of a handle of cuBLASLt. A handle of cuBLAS serves as one.
    pub(super) fn lt_context(&mut self, given: Ptr<cublasLtContext>) -> Answer<u64> {
        if let Some(&context) = self.blas.lt_handles.get(&given.address()) {
            return Ok(context);
        }
        self.blas_handle(given.cast()).map(|found| found.context)
    }

    fn layout(&mut self, key: u64) -> Answer<Matrix> {
        let found = self.descriptor(key, Kind::Layout)?;
        let get = |attribute: Layout| found.get(attribute.0);
        if get(Layout::CUBLASLT_MATRIX_LAYOUT_ORDER) != 0 {
            return Err(self.not_simulated("a layout that is not by columns"));
        }
        let ty = cudaDataType_t(word(get(Layout::CUBLASLT_MATRIX_LAYOUT_TYPE)));
        let rows = get(Layout::CUBLASLT_MATRIX_LAYOUT_ROWS);
        let leading = get(Layout::CUBLASLT_MATRIX_LAYOUT_LD);
        if leading < rows.max(1) || i64::try_from(leading).is_err() {
            return Err(INVALID_VALUE);
        }
        let stride = get(Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET).cast_signed();
        let base = Base::Strided { address: 0, stride_bytes: stride_bytes(stride, ty)? };
        Ok(Matrix { base, ty, rows, columns: get(Layout::CUBLASLT_MATRIX_LAYOUT_COLS), leading })
    }

    fn batch_of(&mut self, key: u64) -> Answer<u64> {
        Ok(self.descriptor(key, Kind::Layout)?.get(Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT.0))
    }

    /// Puts a product together and checks it.
    pub(super) fn plan(&mut self, described: &Described) -> Answer<Plan> {
        let desc = self.descriptor(described.desc, Kind::Matmul)?;
        let [a, b, c, d] = described.layouts;
        let matrices = [self.layout(a)?, self.layout(b)?, self.layout(c)?, self.layout(d)?];
        let batch = self.batch_of(d)?;
        if [a, b, c].into_iter().any(|key| self.batch_of(key) != Ok(batch)) {
            return Err(INVALID_VALUE);
        }
        let ops = [Matmul::CUBLASLT_MATMUL_DESC_TRANSA, Matmul::CUBLASLT_MATMUL_DESC_TRANSB];
        let ops = ops.map(|attribute| cublasOperation_t(word(desc.get(attribute.0))));
        ops.into_iter().try_for_each(check_op)?;
        let mut product = shaped(self.calling, ops, matrices)?;
        product.batch = batch;
        let compute = cublasComputeType_t(word(desc.get(Matmul::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE.0)));
        let scale_type = cudaDataType_t(word(desc.get(Matmul::CUBLASLT_MATMUL_DESC_SCALE_TYPE.0)));
        (product.arithmetic, product.rounding) = computed(compute, scale_type, &product, batch)?;
        self.add_epilogue(&desc, &mut product)?;
        self.add_scales(&desc, &mut product)?;
        Ok(Plan { product, scale_type, pointers: desc.get(Matmul::CUBLASLT_MATMUL_DESC_POINTER_MODE.0) })
    }

    fn add_epilogue(&mut self, desc: &Descriptor, product: &mut Product) -> Answer {
        let epilogue = word(desc.get(Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE.0));
        let has = |bit: Epilogue| epilogue & bit.0 != 0;
        if epilogue == 0 || epilogue & !EPILOGUES != 0 {
            return Err(self.not_simulated("this epilogue"));
        }
        product.activation = match (has(Epilogue::CUBLASLT_EPILOGUE_RELU), has(Epilogue::CUBLASLT_EPILOGUE_GELU)) {
            (true, true) => return Err(INVALID_VALUE),
            (true, false) => Activation::Relu,
            (false, true) => Activation::Gelu,
            (false, false) => Activation::None,
        };
        if !has(Epilogue::CUBLASLT_EPILOGUE_BIAS) {
            return Ok(());
        }
        let given = word(desc.get(Matmul::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE.0));
        let ty = if given == u32::MAX { bias_type(product) } else { cudaDataType_t(given) };
        let narrow = matches!(ty, Type::CUDA_R_16F | Type::CUDA_R_16BF);
        let allowed = ty == product.d.ty || (narrow && is_eight_bits(product.a.matrix.ty));
        if bytes_of(ty).is_none() || !(allowed || ty == bias_type(product)) {
            return Err(NOT_SUPPORTED);
        }
        let stride = desc.get(Matmul::CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE.0).cast_signed();
        let address = desc.get(Matmul::CUBLASLT_MATMUL_DESC_BIAS_POINTER.0);
        product.bias = Some(Bias { address, ty, stride_bytes: stride_bytes(stride, ty)? });
        Ok(())
    }

    fn add_scales(&mut self, desc: &Descriptor, product: &mut Product) -> Answer {
        let sides = [
            (Matmul::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, Matmul::CUBLASLT_MATMUL_DESC_A_SCALE_MODE),
            (Matmul::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, Matmul::CUBLASLT_MATMUL_DESC_B_SCALE_MODE),
            (Matmul::CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, Matmul::CUBLASLT_MATMUL_DESC_C_SCALE_MODE),
            (Matmul::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, Matmul::CUBLASLT_MATMUL_DESC_D_SCALE_MODE),
        ];
        let types = [product.a.matrix.ty, product.b.matrix.ty, product.c.ty, product.d.ty];
        for (side, ((pointer, mode), ty)) in sides.into_iter().zip(types).enumerate() {
            let (address, mode) = (desc.get(pointer.0), ScaleMode(word(desc.get(mode.0))));
            if address != 0 && !is_eight_bits(ty) {
                return Err(NOT_SUPPORTED);
            }
            product.scales[side] = match mode {
                _ if address == 0 => Scale::None,
                ScaleMode::CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F => Scale::One(address),
                ScaleMode::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F if side < 2 => Scale::Each(address),
                ScaleMode::CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F if side < 2 => Scale::Parts(address),
                ScaleMode::CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F if side < 2 => Scale::Blocks(address),
                _ => return Err(self.not_simulated("this mode of scales")),
            };
        }
        let each = |side: usize| matches!(product.scales[side], Scale::Each(_));
        if each(0) != each(1) || !supports_parts(desc, product) {
            return Err(NOT_SUPPORTED);
        }
        product.largest = desc.get(Matmul::CUBLASLT_MATMUL_DESC_AMAX_D_POINTER.0);
        Ok(())
    }
}

/// Whether the library has an algorithm for scales that differ along the inner dimension, where there are any: with sums
/// that are as exact as can be, for results of 16 or 32 bits.
fn supports_parts(desc: &Descriptor, product: &Product) -> bool {
    let [left, right, ..] = product.scales;
    if !left.is_divided() && !right.is_divided() {
        return true;
    }
    let both = left.is_divided() && right.is_divided();
    let squares = [left, right].iter().filter(|scale| matches!(scale, Scale::Blocks(_))).count();
    let fast = desc.get(Matmul::CUBLASLT_MATMUL_DESC_FAST_ACCUM.0) != 0;
    // Scales are copied by 16 bytes.
    let lines = [(left, product.rows), (right, product.columns)];
    let fits = lines.iter().all(|&(scale, lines)| match scale {
        Scale::Parts(address) => address.is_multiple_of(16) && lines.is_multiple_of(4),
        Scale::Blocks(address) => address.is_multiple_of(16),
        Scale::None | Scale::One(_) | Scale::Each(_) => true,
    });
    both && squares < 2 && !fast && fits && !is_eight_bits(product.d.ty)
}

/// A product of matrices whose sizes go together.
fn shaped(name: &'static str, ops: [cublasOperation_t; 2], [a, b, c, d]: [Matrix; 4]) -> Answer<Product> {
    let turned = |matrix: Matrix, op| {
        if is_transposed(op) { (matrix.columns, matrix.rows) } else { (matrix.rows, matrix.columns) }
    };
    let (left, right) = (turned(a, ops[0]), turned(b, ops[1]));
    let fits =
        left.1 == right.0 && (d.rows, d.columns) == (left.0, right.1) && (c.rows, c.columns) == (d.rows, d.columns);
    if !fits {
        return Err(INVALID_VALUE);
    }
    let factors = [Factor { matrix: a, op: ops[0] }, Factor { matrix: b, op: ops[1] }];
    let plain = Product::plain(name, (d.rows, d.columns, left.1), factors[0], factors[1], c);
    Ok(Product { d, ..plain })
}

/// How a product is computed; `NOT_SUPPORTED` where the library has no algorithm for its types.
fn computed(
    compute: cublasComputeType_t,
    scale: Type,
    product: &Product,
    batch: u64,
) -> Answer<(Arithmetic, Rounding)> {
    let (a, b, c, d) = (product.a.matrix, product.b.matrix, product.c, product.d);
    if is_eight_bits(a.ty) || is_eight_bits(b.ty) {
        let factors = is_eight_bits(a.ty) && is_eight_bits(b.ty);
        let both_coarse = a.ty == Type::CUDA_R_8F_E5M2 && b.ty == Type::CUDA_R_8F_E5M2;
        let wide = matches!(d.ty, Type::CUDA_R_16F | Type::CUDA_R_16BF | Type::CUDA_R_32F) && c.ty == d.ty;
        let small = is_eight_bits(d.ty) && matches!(c.ty, Type::CUDA_R_16F | Type::CUDA_R_16BF);
        let sizes = [product.inner, a.leading, b.leading].iter().all(|size| size.is_multiple_of(16));
        let result = (product.rows * bytes_of(d.ty).unwrap_or(1)).is_multiple_of(16);
        let known = factors && !both_coarse && (wide || small) && is_plain(product) && sizes && result;
        let computes = compute == cublasComputeType_t::CUBLAS_COMPUTE_32F && scale == Type::CUDA_R_32F;
        let answer = (Arithmetic::F32, Rounding::Exact);
        return if known && computes { Ok(answer) } else { Err(NOT_SUPPORTED) };
    }
    let found = arithmetic(compute, [a.ty, b.ty, d.ty]).filter(|_| a.ty == b.ty && c.ty == d.ty);
    let wanted = super::gemm::scale_type(compute, d.ty);
    if wanted != scale || batch > u64::from(u32::MAX) {
        return Err(NOT_SUPPORTED);
    }
    if a.ty == Type::CUDA_R_8I {
        let sizes = [product.rows, product.inner, a.leading, b.leading].iter().all(|size| size.is_multiple_of(4));
        return found.filter(|_| sizes && is_plain(product)).ok_or(NOT_SUPPORTED);
    }
    found.ok_or(NOT_SUPPORTED)
}

/// Whether factors lie as the matrix units of 8 bits want them.
fn is_plain(product: &Product) -> bool {
    is_transposed(product.a.op) && product.b.op == cublasOperation_t::CUBLAS_OP_N
}

/// The type of a bias for which no other was set.
fn bias_type(product: &Product) -> Type {
    match product.d.ty {
        _ if !is_eight_bits(product.a.matrix.ty) => product.d.ty,
        Type::CUDA_R_16F => Type::CUDA_R_16F,
        _ => Type::CUDA_R_16BF,
    }
}

/// A matrix at an address.
fn at(matrix: Matrix, place: u64) -> Matrix {
    let stride_bytes = match matrix.base {
        Base::Strided { stride_bytes, .. } => stride_bytes,
        Base::Array(_) => 0,
    };
    Matrix { base: Base::Strided { address: place, stride_bytes }, ..matrix }
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn matmul(
    call: &mut Call<'_>,
    handle: Ptr<cublasLtContext>,
    desc: Ptr<cublasLtMatmulDescOpaque_t>,
    alpha: Ptr<c_void>,
    a: Ptr<c_void>,
    layout_a: Ptr<cublasLtMatrixLayoutOpaque_t>,
    b: Ptr<c_void>,
    layout_b: Ptr<cublasLtMatrixLayoutOpaque_t>,
    beta: Ptr<c_void>,
    c: Ptr<c_void>,
    layout_c: Ptr<cublasLtMatrixLayoutOpaque_t>,
    d: Ptr<c_void>,
    layout_d: Ptr<cublasLtMatrixLayoutOpaque_t>,
    algorithm: Ptr<cublasLtMatmulAlgo_t>,
    workspace: Ptr<c_void>,
    workspace_bytes: usize,
    stream: Ptr<CUstream_st>,
) -> Answer {
    let context = call.lt_context(handle)?;
    if call.usable_context(context).is_err() {
        call.report(ReportKind::LibraryHandle, "the handle's context is gone or lost".to_owned());
        return Err(EXECUTION_FAILED);
    }
    let layouts = [layout_a, layout_b, layout_c, layout_d].map(Ptr::address);
    let plan = call.plan(&Described { desc: desc.address(), layouts })?;
    let given = (workspace.address(), workspace_bytes as u64);
    let needed =
        if algorithm.is_null() { chosen(&plan, given.1)? } else { Algorithm::read(algorithm)?.workspace(&plan)? };
    if needed > given.1 || (needed > 0 && (given.0 == 0 || !given.0.is_multiple_of(WORKSPACE_ALIGNMENT))) {
        return Err(INVALID_VALUE);
    }
    let Plan { product, scale_type, pointers } = plan;
    if product.is_empty() {
        return Ok(());
    }
    let mode = cublasPointerMode_t(word(pointers));
    if mode.0 > 1 {
        return Err(call.not_simulated("a vector of factors"));
    }
    // What is added may lie where the result goes only if both are described alike.
    let alike = (product.c.ty, product.c.leading) == (product.d.ty, product.d.leading);
    if c.address() == d.address() && !alike {
        return Err(INVALID_VALUE);
    }
    let (alpha, beta) = (scalar(alpha, scale_type, mode)?, scalar(beta, scale_type, mode)?);
    let reads_c = beta != Scalar::Known([0.0, 0.0]);
    check_addresses(&product, [a, b, c, d].map(Ptr::address), reads_c)?;
    let product = Product {
        a: Factor { matrix: at(product.a.matrix, a.address()), ..product.a },
        b: Factor { matrix: at(product.b.matrix, b.address()), ..product.b },
        c: at(product.c, c.address()),
        d: at(product.d, d.address()),
        alpha,
        beta,
        // All of what was given counts as used: another version of the library may.
        workspace: if given.0 == 0 { (0, 0) } else { given },
        ..product
    };
    call.queue_on(context, stream.address(), product)
}

/// Refuses addresses that there is no algorithm for. What is added needs none where its factor is zero.
fn check_addresses(product: &Product, [a, b, c, d]: [u64; 4], reads_c: bool) -> Answer {
    if a == 0 || b == 0 || d == 0 || (c == 0 && reads_c) {
        return Err(INVALID_VALUE);
    }
    if product.bias.is_some_and(|bias| bias.address == 0) {
        return Err(INVALID_VALUE);
    }
    let unit = match product.a.matrix.ty {
        ty if is_eight_bits(ty) => 16,
        Type::CUDA_R_8I => 4,
        _ => 1,
    };
    if [a, b, d].iter().all(|address| address.is_multiple_of(unit)) { Ok(()) } else { Err(NOT_SUPPORTED) }
}
