//! Products of matrices and vectors: `torch.matmul` and the like.

pub use aten_cuda::blas::{Float32MatmulPrecision, ScaledMm};
use aten_cuda::{Result, Scalar, Tensor};

/// The product of two tensors (`torch.matmul`); see [`Tensor::matmul`].
///
/// # Errors
/// As for the method.
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.matmul(b)
}

/// The product of two matrices (`torch.mm`); see [`Tensor::mm`].
///
/// # Errors
/// As for the method.
pub fn mm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.mm(b)
}

/// The product of two matrices of 8-bit integers, in 32 bits (`torch._int_mm`); see [`Tensor::int_mm`].
///
/// # Errors
/// As for the method.
#[doc(alias = "_int_mm")]
pub fn int_mm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.int_mm(b)
}

/// The product of two matrices of 8-bit floats with scales (`torch._scaled_mm`); see [`Tensor::scaled_mm`].
///
/// # Errors
/// As for the method.
#[doc(alias = "_scaled_mm")]
pub fn scaled_mm(a: &Tensor, b: &Tensor, scale_a: &Tensor, scale_b: &Tensor, options: &ScaledMm<'_>) -> Result<Tensor> {
    a.scaled_mm(b, scale_a, scale_b, options)
}

/// The products of two batches of matrices (`torch.bmm`); see [`Tensor::bmm`].
///
/// # Errors
/// As for the method.
pub fn bmm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.bmm(b)
}

/// `beta * input + alpha * mat1 @ mat2` (`torch.addmm`); see [`Tensor::addmm`].
///
/// # Errors
/// As for the method.
pub fn addmm(
    input: &Tensor,
    mat1: &Tensor,
    mat2: &Tensor,
    beta: impl Into<Scalar>,
    alpha: impl Into<Scalar>,
) -> Result<Tensor> {
    input.addmm(mat1, mat2, beta, alpha)
}

/// `beta * input + alpha * batch1 @ batch2` for batches (`torch.baddbmm`); see [`Tensor::baddbmm`].
///
/// # Errors
/// As for the method.
pub fn baddbmm(
    input: &Tensor,
    batch1: &Tensor,
    batch2: &Tensor,
    beta: impl Into<Scalar>,
    alpha: impl Into<Scalar>,
) -> Result<Tensor> {
    input.baddbmm(batch1, batch2, beta, alpha)
}

/// The product of a matrix and a vector (`torch.mv`); see [`Tensor::mv`].
///
/// # Errors
/// As for the method.
pub fn mv(input: &Tensor, vec: &Tensor) -> Result<Tensor> {
    input.mv(vec)
}

/// The sum of the products of two rows' elements (`torch.dot`); see [`Tensor::dot`].
///
/// # Errors
/// As for the method.
pub fn dot(input: &Tensor, tensor: &Tensor) -> Result<Tensor> {
    input.dot(tensor)
}

/// The products of each element of a row with each of another one, as a matrix (`torch.outer`); see [`Tensor::outer`].
///
/// # Errors
/// As for the method.
pub fn outer(input: &Tensor, vec2: &Tensor) -> Result<Tensor> {
    input.outer(vec2)
}

/// `beta * input + alpha * matrix @ vector` (`torch.addmv`); see [`Tensor::addmv`].
///
/// # Errors
/// As for the method.
pub fn addmv(
    input: &Tensor,
    matrix: &Tensor,
    vector: &Tensor,
    beta: impl Into<Scalar>,
    alpha: impl Into<Scalar>,
) -> Result<Tensor> {
    input.addmv(matrix, vector, beta, alpha)
}

/// `beta * input` plus `alpha` times the sum of the products of two batches (`torch.addbmm`); see [`Tensor::addbmm`].
///
/// # Errors
/// As for the method.
pub fn addbmm(
    input: &Tensor,
    batch1: &Tensor,
    batch2: &Tensor,
    beta: impl Into<Scalar>,
    alpha: impl Into<Scalar>,
) -> Result<Tensor> {
    input.addbmm(batch1, batch2, beta, alpha)
}

/// The sum of the products of two vectors' elements, the first ones conjugated (`torch.vdot`); see [`Tensor::vdot`].
///
/// # Errors
/// As for the method.
pub fn vdot(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.vdot(b)
}

/// The sum of products that an equation names (`torch.einsum`); see [`aten_cuda::blas::einsum`].
///
/// # Errors
/// As there.
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    aten_cuda::blas::einsum(equation, operands)
}

/// How precisely products of `f32` are computed on CUDA devices (`torch.get_float32_matmul_precision`).
///
/// # Errors
/// The older and the newer settings contradict each other.
pub fn get_float32_matmul_precision() -> Result<Float32MatmulPrecision> {
    aten_cuda::blas::float32_matmul_precision()
}

/// Sets [`get_float32_matmul_precision`]: `"highest"`, `"high"` or `"medium"`
/// (`torch.set_float32_matmul_precision`).
///
/// ```
/// use cuda_api::torch;
///
/// torch::set_float32_matmul_precision("high")?;
/// assert_eq!(torch::get_float32_matmul_precision()?.to_string(), "high");
/// torch::set_float32_matmul_precision("highest")?;
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// A text that names no precision; nothing is changed then. torch warns instead.
pub fn set_float32_matmul_precision<P>(precision: P) -> Result<()>
where
    P: TryInto<Float32MatmulPrecision, Error: Into<aten_cuda::Error>>,
{
    aten_cuda::blas::set_float32_matmul_precision(precision)
}
