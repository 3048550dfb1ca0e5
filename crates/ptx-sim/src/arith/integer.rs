//! Arithmetic of integers of 8 to 64 bits, signed and unsigned.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the arithmetic of a processor: values are cut and extended as it does"
)]

use super::bits;
use crate::program::scalar::{Half, Modes, ScalarOp};
use crate::program::types::{Type, mask};

/// A value as a number of its type.
pub(super) fn integer(value: u64, ty: Type) -> i128 {
    if ty.is_signed() { i128::from(signed(value, ty.bits)) } else { i128::from(value & mask(ty.bits)) }
}

/// The lowest bits of a value as a signed number.
pub(super) fn signed(value: u64, bits: u8) -> i64 {
    let unused = 64 - u32::from(bits);
    (value << unused).cast_signed() >> unused
}

/// The least and the greatest number of a type.
pub(super) fn limits(ty: Type) -> [i128; 2] {
    match ty.is_signed() {
        true => [-(1_i128 << (ty.bits - 1)), (1_i128 << (ty.bits - 1)) - 1],
        false => [0, (1_i128 << ty.bits) - 1],
    }
}

/// The nearest number that a type has.
pub(super) fn clamp(number: i128, ty: Type) -> i128 {
    let [least, greatest] = limits(ty);
    number.clamp(least, greatest)
}

/// Part of a product. 64 by 64 bits fit into 128 either way.
fn product(half: Half, ty: Type, a: u64, b: u64) -> i128 {
    let full = integer(a, ty).wrapping_mul(integer(b, ty));
    match half {
        Half::Low | Half::Wide => full,
        Half::High if ty.is_signed() => full >> ty.bits,
        Half::High => (full.cast_unsigned() >> ty.bits).cast_signed(),
    }
}

/// The lower 32 bits of a product of 24 bits, or the upper ones of its 48.
fn product_24(half: Half, ty: Type, a: u64, b: u64) -> i128 {
    let narrow = Type { bits: 24, ..ty };
    let full = integer(a, narrow) * integer(b, narrow);
    if half == Half::High { full >> 16 } else { full }
}

fn bounded(number: i128, ty: Type, modes: Modes) -> i128 {
    if modes.saturate {
        clamp(number, ty)
    } else if modes.relu {
        number.max(0)
    } else {
        number
    }
}

/// The parts of a sum with a carry, unsigned: what stays in the bits of a type, and what is carried out of them.
fn carried(sum: u128, ty: Type) -> (u64, u64) {
    (sum as u64 & mask(ty.bits), u64::from(sum >> ty.bits != 0))
}

/// A part of a product as bits, to be added to.
fn product_bits(half: Half, ty: Type, a: u64, b: u64) -> u128 {
    u128::from(product(half, ty, a, b) as u64 & mask(ty.bits))
}

/// An operation of integers.
#[expect(clippy::wildcard_enum_match_arm, reason = "operations of single bits are in another file")]
pub(super) fn evaluate(op: ScalarOp, ty: Type, modes: Modes, arguments: [u64; 4]) -> u64 {
    let [a, b, c, d] = arguments;
    let (x, y, z) = (integer(a, ty), integer(b, ty), integer(c, ty));
    let bare = arguments.map(|value| u128::from(value & mask(ty.bits)));
    let number = match op {
        ScalarOp::Add => bounded(x + y, ty, modes),
        ScalarOp::Subtract => bounded(x - y, ty, modes),
        ScalarOp::Multiply(Half::Wide) => return product(Half::Wide, ty, a, b) as u64 & mask(ty.bits * 2),
        ScalarOp::Multiply(half) => product(half, ty, a, b),
        ScalarOp::MultiplyAdd(Half::Wide) => {
            return (product(Half::Wide, ty, a, b) as u64).wrapping_add(c) & mask(ty.bits * 2);
        }
        ScalarOp::MultiplyAdd(half) => bounded(product(half, ty, a, b).wrapping_add(z), ty, modes),
        ScalarOp::Multiply24(half) => product_24(half, ty, a, b),
        ScalarOp::MultiplyAdd24(half) => bounded(product_24(half, ty, a, b) + z, ty, modes),
        // What hardware gives for a division by zero.
        ScalarOp::Divide | ScalarOp::Remainder if y == 0 => -1,
        ScalarOp::Divide => x / y,
        ScalarOp::Remainder => x % y,
        ScalarOp::Minimum => bounded(x.min(y), ty, modes),
        ScalarOp::Maximum => bounded(x.max(y), ty, modes),
        ScalarOp::Negate => -x,
        ScalarOp::Absolute => x.abs(),
        ScalarOp::AbsoluteDifference => z + (x - y).abs(),
        ScalarOp::CarryOfAdd => return carried(bare[0] + bare[1] + u128::from(c), ty).1,
        ScalarOp::AddWithCarry => return carried(bare[0] + bare[1] + u128::from(c), ty).0,
        ScalarOp::BorrowOfSubtract => return u64::from(bare[0] < bare[1] + u128::from(c)),
        ScalarOp::SubtractWithBorrow => return a.wrapping_sub(b).wrapping_sub(c) & mask(ty.bits),
        ScalarOp::CarryOfMultiplyAdd(half) => {
            return carried(product_bits(half, ty, a, b) + bare[2] + u128::from(d), ty).1;
        }
        ScalarOp::MultiplyAddWithCarry(half) => {
            return carried(product_bits(half, ty, a, b) + bare[2] + u128::from(d), ty).0;
        }
        _ => return bits::evaluate(op, ty, modes, arguments) & mask(ty.bits.max(32)),
    };
    number as u64 & mask(ty.bits)
}
