//! Views, conversions and factories.

use aten_cuda::Tensor;

use super::{Answer, Failure, Given};

/// The answer, if the operation is of the family.
pub(super) fn call(op: &str, given: &Given<'_>) -> Answer {
    match op {
        "split" => {
            return Ok(given
                .tensor(0)?
                .split(given.integer("size").unwrap_or(1), given.integer("dim").unwrap_or(0))?);
        }
        "chunk" => {
            return Ok(given
                .tensor(0)?
                .chunk(given.integer("chunks").unwrap_or(1), given.integer("dim").unwrap_or(0))?);
        }
        _ => {}
    }
    let made = match made(op, given) {
        Err(Failure::Absent) => viewed(op, given)?,
        answer => answer?,
    };
    Ok(vec![made])
}

/// Operations without tensors.
fn made(op: &str, given: &Given<'_>) -> Result<Tensor, Failure> {
    let number = |name: &str| given.number(name).ok_or_else(|| Failure::Refused(format!("{name} is missing")));
    let integer = |name: &str| given.integer(name).unwrap_or(0);
    Ok(match op {
        "arange" => {
            let dtype = Some(given.dtype("dtype")?);
            Tensor::arange(number("start")?, number("end")?, number("step")?, dtype, given.device())?
        }
        "linspace" => {
            let dtype = Some(given.dtype("dtype")?);
            Tensor::linspace(number("start")?, number("end")?, integer("steps"), dtype, given.device())?
        }
        "eye" => Tensor::eye(integer("n"), integer("m"), given.dtype("dtype")?, given.device())?,
        "full" => Tensor::full(&given.integers("size"), number("fill")?, given.dtype("dtype")?, given.device())?,
        _ => return Err(Failure::Absent),
    })
}

/// Operations on one tensor.
fn viewed(op: &str, given: &Given<'_>) -> Result<Tensor, Failure> {
    let integer = |name: &str| given.integer(name).unwrap_or(0);
    Ok(match op {
        "to" => given.tensor(0)?.to_dtype(given.dtype("dtype")?)?,
        "expand" => given.tensor(0)?.expand(&given.integers("size"))?,
        "view" => given.tensor(0)?.view(&given.integers("shape"))?,
        "reshape" => given.tensor(0)?.reshape(&given.integers("shape"))?,
        "select" => given.tensor(0)?.select(integer("dim"), integer("index"))?,
        "narrow" => given.tensor(0)?.narrow(integer("dim"), integer("start"), integer("length"))?,
        "squeeze" => given.tensor(0)?.squeeze(given.integer("dim"))?,
        "unsqueeze" => given.tensor(0)?.unsqueeze(integer("dim"))?,
        "transpose" => given.tensor(0)?.transpose(integer("dim0"), integer("dim1"))?,
        "permute" => given.tensor(0)?.permute(&given.integers("dims"))?,
        "tril" => given.tensor(0)?.tril(given.integer("diagonal").unwrap_or(0))?,
        "triu" => given.tensor(0)?.triu(given.integer("diagonal").unwrap_or(0))?,
        _ => return Err(Failure::Absent),
    })
}
