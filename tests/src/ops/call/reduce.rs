//! Reductions, scans and operations on rows.

use aten_cuda::{DType, Dim, Tensor};

use super::{Answer, Failure, Given};

/// The answer, if the operation is of the family.
pub(super) fn call(op: &str, given: &Given<'_>) -> Answer {
    for family in [along_dimensions, with_numbers, extremes, rows] {
        match family(op, given) {
            Err(Failure::Absent) => {}
            answer => return answer,
        }
    }
    Err(Failure::Absent)
}

/// The dimensions that a call names: one, several or all.
pub(super) fn dim(given: &Given<'_>) -> Dim {
    match given.integer("dim") {
        Some(dim) => dim.into(),
        None => given.integers("dim").as_slice().into(),
    }
}

fn dtype(given: &Given<'_>) -> Result<Option<DType>, Failure> {
    if given.has("dtype") { given.dtype("dtype").map(Some) } else { Ok(None) }
}

/// Operations of dimensions, and perhaps a dtype.
fn along_dimensions(op: &str, given: &Given<'_>) -> Answer {
    let (dim, keepdim) = (dim(given), given.flag("keepdim"));
    let input = || given.tensor(0);
    Ok(vec![match op {
        "sum" => input()?.sum(dim, keepdim, dtype(given)?)?,
        "nansum" => input()?.nansum(dim, keepdim, dtype(given)?)?,
        "mean" => input()?.mean(dim, keepdim, dtype(given)?)?,
        "prod" => input()?.prod(dim, keepdim, dtype(given)?)?,
        "amax" => input()?.amax(dim, keepdim)?,
        "amin" => input()?.amin(dim, keepdim)?,
        "any" => input()?.any(dim, keepdim)?,
        "all" => input()?.all(dim, keepdim)?,
        "logsumexp" => input()?.logsumexp(dim, keepdim)?,
        "count_nonzero" => input()?.count_nonzero(dim)?,
        _ => return Err(Failure::Absent),
    }])
}

/// Operations with numbers of their own.
fn with_numbers(op: &str, given: &Given<'_>) -> Answer {
    let (dim, keepdim) = (dim(given), given.flag("keepdim"));
    let correction = given.number("correction").unwrap_or(1.into());
    Ok(vec![match op {
        "var" => given.tensor(0)?.var(dim, correction, keepdim)?,
        "std" => given.tensor(0)?.std(dim, correction, keepdim)?,
        "norm" => given.tensor(0)?.norm(given.number("p").unwrap_or(2.into()), dim, keepdim, dtype(given)?)?,
        _ => return Err(Failure::Absent),
    }])
}

/// The largest and smallest elements and their places.
fn extremes(op: &str, given: &Given<'_>) -> Answer {
    let (dim, keepdim) = (given.integer("dim"), given.flag("keepdim"));
    let pair = |(values, places): (Tensor, Tensor)| vec![values, places];
    Ok(match (op, dim) {
        ("max", Some(dim)) => pair(given.tensor(0)?.max_dim(dim, keepdim)?),
        ("min", Some(dim)) => pair(given.tensor(0)?.min_dim(dim, keepdim)?),
        ("max", None) => vec![given.tensor(0)?.max()?],
        ("min", None) => vec![given.tensor(0)?.min()?],
        ("argmax", dim) => vec![given.tensor(0)?.argmax(dim, keepdim)?],
        ("argmin", dim) => vec![given.tensor(0)?.argmin(dim, keepdim)?],
        _ => return Err(Failure::Absent),
    })
}

/// Scans and operations on rows.
fn rows(op: &str, given: &Given<'_>) -> Answer {
    let dim = given.integer("dim").unwrap_or(0);
    let pair = |(values, places): (Tensor, Tensor)| vec![values, places];
    Ok(match op {
        "cumsum" => vec![given.tensor(0)?.cumsum(dim, dtype(given)?)?],
        "cumprod" => vec![given.tensor(0)?.cumprod(dim, dtype(given)?)?],
        "cummax" => pair(given.tensor(0)?.cummax(dim)?),
        "cummin" => pair(given.tensor(0)?.cummin(dim)?),
        "softmax" => vec![given.tensor(0)?.softmax(dim, dtype(given)?)?],
        "log_softmax" => vec![given.tensor(0)?.log_softmax(dim, dtype(given)?)?],
        _ => return Err(Failure::Absent),
    })
}
