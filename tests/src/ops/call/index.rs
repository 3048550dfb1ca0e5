//! Gathering, scattering, sorting and joining.

use aten_cuda::Tensor;

use super::{Answer, Failure, Given};

/// The answer, if the operation is of the family.
pub(super) fn call(op: &str, given: &Given<'_>) -> Answer {
    match indexed(op, given) {
        Err(Failure::Absent) => {}
        answer => return answer,
    }
    match ordered(op, given) {
        Err(Failure::Absent) => joined(op, given),
        answer => answer,
    }
}

/// Operations with places that another tensor tells.
fn indexed(op: &str, given: &Given<'_>) -> Answer {
    let dim = || given.integer("dim").unwrap_or(0);
    let (tensor, index) = match op {
        "nonzero" => return Ok(vec![given.tensor(0)?.nonzero()?]),
        "index" => return Ok(vec![given.tensor(0)?.index(&places(given, 0)?)?]),
        "index_put" => {
            let (tensor, values) = (given.tensor(0)?, given.last()?);
            return Ok(vec![tensor.index_put(&places(given, 1)?, values, given.flag("accumulate"))?]);
        }
        "take_along_dim" => return Ok(vec![given.tensor(0)?.take_along_dim(given.tensor(1)?, given.integer("dim"))?]),
        "gather" | "scatter" | "scatter_add" | "index_select" | "index_add" | "index_copy" | "masked_select" => {
            (given.tensor(0)?, given.tensor(1)?)
        }
        _ => return Err(Failure::Absent),
    };
    Ok(vec![match op {
        "gather" => tensor.gather(dim(), index)?,
        "scatter" => tensor.scatter(dim(), index, given.operand(2)?)?,
        "scatter_add" => tensor.scatter_add(dim(), index, given.tensor(2)?)?,
        "index_select" => tensor.index_select(dim(), index)?,
        "index_add" => {
            let alpha = given.number("alpha").unwrap_or(1.into());
            tensor.index_add(dim(), index, given.tensor(2)?, alpha)?
        }
        "index_copy" => tensor.index_copy(dim(), index, given.tensor(2)?)?,
        _ => tensor.masked_select(index)?,
    }])
}

/// The indices of a call by `at`, the dimensions that have one. The last `after` tensors are no indices.
fn places<'a>(given: &'a Given<'_>, after: usize) -> Result<Vec<Option<&'a Tensor>>, Failure> {
    let tensors = given.tensors()?;
    let mut indices = tensors[1..tensors.len() - after].iter().copied();
    let at = given.integers("at");
    let count = at.iter().max().map_or(0, |last| last + 1);
    Ok((0..count).map(|dim| if at.contains(&dim) { indices.next() } else { None }).collect())
}

/// Operations that compare elements.
fn ordered(op: &str, given: &Given<'_>) -> Answer {
    let dim = given.integer("dim").unwrap_or(-1);
    Ok(match op {
        "sort" => {
            let (values, places) = given.tensor(0)?.sort(dim, given.flag("descending"))?;
            vec![values, places]
        }
        "argsort" => vec![given.tensor(0)?.argsort(dim, given.flag("descending"))?],
        "topk" => {
            let largest = !given.has("largest") || given.flag("largest");
            let (values, places) = given.tensor(0)?.topk(given.integer("k").unwrap_or(0), dim, largest)?;
            if given.flag("values_only") { vec![values] } else { vec![values, places] }
        }
        "unique" => {
            let (values, inverse, counts) = given.tensor(0)?.unique()?;
            vec![values, inverse, counts]
        }
        _ => return Err(Failure::Absent),
    })
}

/// Operations that join, turn round and repeat.
fn joined(op: &str, given: &Given<'_>) -> Answer {
    let lists = |name: &str| given.integer(name).map_or_else(|| given.integers(name), |one| vec![one]);
    Ok(vec![match op {
        "cat" => Tensor::cat(&given.tensors()?, given.integer("dim").unwrap_or(0))?,
        "stack" => Tensor::stack(&given.tensors()?, given.integer("dim").unwrap_or(0))?,
        "flip" => given.tensor(0)?.flip(&given.integers("dims"))?,
        "roll" => given.tensor(0)?.roll(&lists("shifts"), &lists("dims"))?,
        "repeat" => given.tensor(0)?.repeat(&given.integers("repeats"))?,
        _ => return Err(Failure::Absent),
    }])
}
