//! Views, conversions and factories.

use super::{Answer, Failure, Given};

/// The answer, if the operation is of the family.
pub(super) fn call(op: &str, given: &Given<'_>) -> Answer {
    Ok(vec![match op {
        "to" => given.tensor(0)?.to_dtype(given.dtype("dtype")?)?,
        "expand" => given.tensor(0)?.expand(&given.integers("size"))?,
        "view" => given.tensor(0)?.view(&given.integers("shape"))?,
        "reshape" => given.tensor(0)?.reshape(&given.integers("shape"))?,
        _ => return Err(Failure::Absent),
    }])
}
