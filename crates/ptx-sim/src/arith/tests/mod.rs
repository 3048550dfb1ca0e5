//! Arithmetic against plain computations that share nothing with it: exact integers, tables of all numbers of a format,
//! and the definitions of PTX bit by bit.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests cut and extend values as a processor does"
)]

mod bits;
mod convert;
mod halves;
mod matrix;
mod rounding;

use super::evaluate;
use crate::program::scalar::{Modes, Rounding, Scalar, ScalarOp};
use crate::program::types::{Kind, Register, Type};

const F16: Type = Type::new(Kind::Float, 16);
const BF16: Type = Type::new(Kind::Brain, 16);

/// What an operation makes of values.
fn done(op: ScalarOp, ty: Type, modes: Modes, values: &[u64]) -> u64 {
    let mut arguments = [0; 4];
    arguments[..values.len()].copy_from_slice(values);
    let scalar = Scalar { op, ty, modes, to: Register::NONE, arguments: [Register::NONE; 4] };
    evaluate(&scalar, arguments)
}

/// Modes that only round.
fn rounded(rounding: Rounding) -> Modes {
    Modes { rounding, ..Modes::PLAIN }
}

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
