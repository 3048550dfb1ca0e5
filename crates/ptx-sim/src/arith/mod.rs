//! What an operation makes of the values of one lane.
use crate::program::action::AtomicOp;
use crate::program::scalar::Scalar;
use crate::program::types::Type;
pub(crate) fn evaluate(_: &Scalar, a: [u64; 4]) -> u64 {
    a[0]
}
pub(crate) fn atomic(_: AtomicOp, _: Type, old: u64, value: u64, _: u64) -> u64 {
    old.wrapping_add(value)
}
