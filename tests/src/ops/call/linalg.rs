//! Products of matrices and vectors, and Fourier transforms.

use aten_cuda::{Tensor, blas, fft};

use super::{Answer, Failure, Given};

/// The answer, if the operation is of the family.
pub(super) fn call(op: &str, given: &Given<'_>) -> Answer {
    let number = |name: &str| given.number(name).unwrap_or(1.into());
    Ok(vec![match op {
        "mm" => given.tensor(0)?.mm(given.tensor(1)?)?,
        "bmm" => given.tensor(0)?.bmm(given.tensor(1)?)?,
        "mv" => given.tensor(0)?.mv(given.tensor(1)?)?,
        "dot" => given.tensor(0)?.dot(given.tensor(1)?)?,
        "matmul" => given.tensor(0)?.matmul(given.tensor(1)?)?,
        "addmm" => given.tensor(0)?.addmm(given.tensor(1)?, given.tensor(2)?, number("beta"), number("alpha"))?,
        "addmv" => given.tensor(0)?.addmv(given.tensor(1)?, given.tensor(2)?, number("beta"), number("alpha"))?,
        "addbmm" => given.tensor(0)?.addbmm(given.tensor(1)?, given.tensor(2)?, number("beta"), number("alpha"))?,
        "baddbmm" => given.tensor(0)?.baddbmm(given.tensor(1)?, given.tensor(2)?, number("beta"), number("alpha"))?,
        "einsum" => blas::einsum(given.text("equation"), &given.tensors()?)?,
        _ => return transformed(op, given),
    }])
}

/// Fourier transforms along one dimension.
fn transformed(op: &str, given: &Given<'_>) -> Answer {
    let transform: fn(&Tensor, Option<i64>, i64, Option<&str>) -> aten_cuda::Result<Tensor> = match op {
        "fft" => fft::fft,
        "ifft" => fft::ifft,
        "rfft" => fft::rfft,
        "irfft" => fft::irfft,
        _ => return Err(Failure::Absent),
    };
    let norm = given.has("norm").then(|| given.text("norm"));
    Ok(vec![transform(given.tensor(0)?, given.integer("n"), given.integer("dim").unwrap_or(-1), norm)?])
}
