//! Products of matrices and vectors.

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
        _ => return Err(Failure::Absent),
    }])
}
