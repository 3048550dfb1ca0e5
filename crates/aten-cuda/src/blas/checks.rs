//! What products refuse, in torch's words.

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid, refuse_float8};
use crate::base::scalar::Scalar;
use crate::base::shape::contiguous_strides;
use crate::launch;
use crate::tensor::{Tensor, check_overlap, is_host, resize_output};

/// Refuses operands of `mm` that do not fit each other.
pub(super) fn matrices(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    for (name, matrix) in [(name, a), ("mat2", b)] {
        if matrix.dim() != 2 {
            return Err(invalid(format!("{name} must be a matrix")));
        }
    }
    multiply(a, b)?;
    if a.dtype() == b.dtype() {
        return Ok(());
    }
    let (first, second) = (a.dtype().meta_name(), b.dtype().meta_name());
    let names = if is_host(a.device()) { "m1 and m2" } else { "mat1 and mat2" };
    Err(invalid(format!("expected {names} to have the same dtype, but got: {first} != {second}")))
}

fn multiply(a: &Tensor, b: &Tensor) -> Result<()> {
    if a.sizes()[1] == b.sizes()[0] {
        return Ok(());
    }
    let (m, k, other, n) = (a.sizes()[0], a.sizes()[1], b.sizes()[0], b.sizes()[1]);
    Err(invalid(format!("mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {other}x{n})")))
}

/// Refuses operands of `addmm`.
pub(super) fn addmm(added: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    for (name, tensor) in [("self", added), ("mat1", a)] {
        if tensor.dtype() != b.dtype() {
            let (first, second) = (tensor.dtype().scalar_type_name(), b.dtype().scalar_type_name());
            return Err(invalid(format!("{name} and mat2 must have the same dtype, but got {first} and {second}")));
        }
    }
    for (name, matrix) in [("mat1", a), ("mat2", b)] {
        if matrix.dim() != 2 {
            return Err(invalid(format!("{name} must be a matrix, got {}-D tensor", matrix.dim())));
        }
    }
    matrices("mat1", a, b)?;
    expands(added, &[a.sizes()[0], b.sizes()[1]])
}

/// Refuses batches that do not fit each other.
pub(super) fn batches(a: &Tensor, b: &Tensor) -> Result<()> {
    for (name, tensor) in [("batch1", a), ("batch2", b)] {
        if tensor.dim() != 3 {
            return Err(invalid(format!("{name} must be a 3D tensor")));
        }
    }
    let (batches, k) = (a.sizes()[0], a.sizes()[2]);
    if b.sizes()[0] != batches || b.sizes()[1] != k {
        let (other, inner) = (b.sizes()[0], b.sizes()[1]);
        return Err(invalid(format!(
            "Expected size for first two dimensions of batch2 tensor to be: [{batches}, {k}] but got: [{other}, {inner}]."
        )));
    }
    if is_of_nothing(a, b) { Ok(()) } else { same_type(a, b) }
}

/// Refuses operands of `baddbmm`.
pub(super) fn baddbmm(added: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    if added.dtype() != a.dtype() || a.dtype() != b.dtype() {
        let [added, a, b] = [added, a, b].map(|tensor| tensor.dtype().cpp_name());
        return Err(invalid(format!("Input dtypes must be the same, got: input {added}, batch1: {a}, batch2: {b}")));
    }
    batches(a, b)?;
    expands(added, &[a.sizes()[0], a.sizes()[1], b.sizes()[2]])
}

/// Refuses operands of `addbmm`.
pub(super) fn addbmm(added: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    for (name, tensor) in [("batch1", a), ("batch2", b)] {
        if tensor.dim() != 3 {
            return Err(invalid(format!("{name} must be a 3D tensor")));
        }
    }
    expands(added, &[a.sizes()[1], b.sizes()[2]])?;
    if a.sizes()[0] != b.sizes()[0] {
        let (first, second) = (a.sizes()[0], b.sizes()[0]);
        return Err(invalid(format!("batch1 and batch2 must have same number of batches, got {first} and {second}")));
    }
    if a.sizes()[2] != b.sizes()[1] {
        let [_, rows, columns] = [0, 1, 2].map(|dim| a.sizes()[dim]);
        let [_, other_rows, other_columns] = [0, 1, 2].map(|dim| b.sizes()[dim]);
        return Err(invalid(format!(
            "Incompatible matrix sizes for bmm ({rows}x{columns} and {other_rows}x{other_columns})"
        )));
    }
    for (first, second) in [(added, b), (a, b)] {
        if first.dtype() != second.dtype() {
            let (first, second) = (first.dtype().scalar_type_name(), second.dtype().scalar_type_name());
            return Err(invalid(format!("self and mat2 must have the same dtype, but got {first} and {second}")));
        }
    }
    Ok(())
}

/// Refuses operands of `mv`; what is added has this many elements.
pub(super) fn mv(matrix: &Tensor, vector: &Tensor, added: Option<&Tensor>) -> Result<()> {
    if added.is_none() && matrix.dim() == 0 {
        return Err(invalid("Dimension specified as 0 but tensor has no dimensions"));
    }
    let added_dim = added.map_or(1, Tensor::dim);
    if matrix.dim() != 2 || vector.dim() != 1 || added_dim > 1 {
        let (first, second) = (matrix.dim(), vector.dim());
        return Err(invalid(format!("vector + matrix @ vector expected, got {added_dim}, {first}, {second}")));
    }
    let (rows, columns, length) = (matrix.sizes()[0], matrix.sizes()[1], vector.sizes()[0]);
    let added_numel = added.map_or(rows, Tensor::numel);
    if columns != length || (added_numel != rows && added_numel != 1) {
        return Err(invalid(format!(
            "size mismatch, got input ({added_numel}), mat ({rows}x{columns}), vec ({length})"
        )));
    }
    if !is_host(matrix.device()) {
        refuse_float8("addmv_impl_cuda", matrix.dtype())?;
    }
    if is_of_nothing(matrix, vector) { Ok(()) } else { same_type(matrix, vector) }
}

/// Refuses vectors of `dot` and `vdot`.
pub(super) fn dot(a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dim() != 1 || b.dim() != 1 {
        let (first, second) = (a.dim(), b.dim());
        return Err(invalid(format!("1D tensors expected, but got {first}D and {second}D tensors")));
    }
    if a.dtype() != b.dtype() {
        let (first, second) = (a.dtype().scalar_type_name(), b.dtype().scalar_type_name());
        return Err(invalid(format!("dot : expected both vectors to have same dtype, but found {first} and {second}")));
    }
    if a.numel() != b.numel() {
        let (first, second) = (a.numel(), b.numel());
        return Err(invalid(format!(
            "inconsistent tensor size, expected tensor [{first}] and src [{second}] to have the same number of elements, \
             but got {first} and {second} elements respectively"
        )));
    }
    let is_other = match a.dtype() {
        DType::Bool => true,
        whole if whole.is_integral() => !is_host(a.device()),
        other => other.is_float8() && !is_host(a.device()),
    };
    if is_other {
        return Err(TensorError::NotImplemented { kernel: "dot".to_owned(), dtype: a.dtype() }.into());
    }
    Ok(())
}

/// Rejects an output of another dtype, and resizes it to the result.
pub(super) fn output(out: &Tensor, dtype: DType, sizes: &[i64], operands: &[&Tensor]) -> Result<()> {
    if out.dtype() != dtype {
        let (wanted, found) = (dtype.cpp_name(), out.dtype().cpp_name());
        return Err(invalid(format!("Expected out tensor to have dtype {wanted}, but got {found} instead")));
    }
    if out.sizes() != sizes {
        launch::common_device([out].into_iter().chain(operands.iter().copied()))?;
    }
    check_overlap(out, &[])?;
    resize_output(out, operands, sizes, || contiguous_strides(sizes))
}

/// Refuses an operation in place whose result has other sizes.
pub(super) fn in_place(tensor: &Tensor, sizes: &[i64]) -> Result<()> {
    if tensor.sizes() == sizes {
        return Ok(());
    }
    let found = tensor.sizes();
    Err(invalid(format!(
        "Bad in-place call: input tensor size {found:?} and output tensor size {sizes:?} should match"
    )))
}

/// Refuses what does not broadcast to the result.
fn expands(added: &Tensor, sizes: &[i64]) -> Result<()> {
    added.expand(sizes).map(drop)
}

/// Whether a batch of products, or that with a vector, multiplies nothing: torch looks at no dtype then.
pub(super) fn is_of_nothing(a: &Tensor, b: &Tensor) -> bool {
    a.numel() == 0 || b.numel() == 0
}

/// Refuses operands of two dtypes.
pub(super) fn same_type(a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dtype() == b.dtype() {
        return Ok(());
    }
    if a.dtype() == DType::Bool && is_host(a.device()) {
        let kernel = if a.dim() == 3 { "bmm" } else { "addmv_impl_cpu" }.to_owned();
        return Err(TensorError::NotImplemented { kernel, dtype: DType::Bool }.into());
    }
    let (first, second) = (a.dtype().scalar_type_name(), b.dtype().scalar_type_name());
    Err(invalid(format!("expected scalar type {first} but found {second}")))
}

/// Rejects scalar factors that do not fit into the dtype that the product is computed in.
pub(super) fn factors(elements: &Tensor, factors: [Scalar; 2]) -> Result<()> {
    factors_in(elements, elements.dtype().computed(), factors)
}

/// Rejects scalar factors of matrix-vector products that do not fit into the elements' dtype.
pub(super) fn vector_factors(elements: &Tensor, factors: [Scalar; 2]) -> Result<()> {
    factors_in(elements, elements.dtype(), factors)
}

fn factors_in(elements: &Tensor, dtype: DType, factors: [Scalar; 2]) -> Result<()> {
    // Integer products on a device are rejected later, with their own error.
    if elements.dtype().is_integral() && !is_host(elements.device()) {
        return Ok(());
    }
    factors.into_iter().try_for_each(|factor| factor.check_fits(dtype))
}
