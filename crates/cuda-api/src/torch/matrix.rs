//! Products of matrices and vectors: `torch.matmul` and the like.

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
