//! Operations of single bits, fields and bytes of a value.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the arithmetic of a processor: values are cut and extended as it does"
)]

use super::integer::{integer, signed};
use crate::program::scalar::{Modes, PermuteMode, ScalarOp};
use crate::program::types::{Type, mask};

/// An operation of bits.
#[expect(clippy::wildcard_enum_match_arm, reason = "other operations are in other files")]
pub(super) fn evaluate(op: ScalarOp, ty: Type, _modes: Modes, arguments: [u64; 4]) -> u64 {
    let [a, b, c, d] = arguments;
    let bare = a & mask(ty.bits);
    let unused = 64 - u64::from(ty.bits);
    match op {
        ScalarOp::And => a & b,
        ScalarOp::Or => a | b,
        ScalarOp::Xor => a ^ b,
        ScalarOp::Not => !a & mask(ty.bits),
        ScalarOp::LogicalNot => u64::from(bare == 0),
        ScalarOp::ShiftLeft => shift_left(bare, b) & mask(ty.bits),
        ScalarOp::ShiftRight => shift_right(a, ty, b) & mask(ty.bits),
        ScalarOp::CountBits => u64::from(bare.count_ones()),
        ScalarOp::LeadingZeros => u64::from(bare.leading_zeros()) - unused,
        ScalarOp::ReverseBits => bare.reverse_bits() >> unused,
        ScalarOp::FindHighest { as_shift } => highest(a, ty, as_shift),
        ScalarOp::FindNth => nth(a as u32, b as u32, c as u32 as i32),
        // Of 32 bits eight of the place and of the count are read, of 64 bits all, as on hardware.
        ScalarOp::ExtractBits if ty.bits == 32 => extract(a, ty, b & 0xFF, c & 0xFF),
        ScalarOp::ExtractBits => extract(a, ty, b, c),
        ScalarOp::InsertBits if ty.bits == 32 => insert(a, b, ty, c & 0xFF, d & 0xFF),
        ScalarOp::InsertBits => insert(a, b, ty, c, d),
        ScalarOp::BitMask { wrap } => bit_mask(a, b, wrap),
        ScalarOp::ExtendFrom { wrap } => extend(a, b, ty, wrap),
        ScalarOp::Permute(mode) => permute(mode, a | b << 32, c),
        ScalarOp::Lookup3(table) => lookup(table, a, b, c),
        ScalarOp::FunnelShift { left, wrap } => funnel(a | b << 32, c, left, wrap),
        ScalarOp::DistanceBytes { a_signed, b_signed, sum } => distance_bytes([a, b, c], [a_signed, b_signed], sum),
        ScalarOp::DotBytes { a_signed, b_signed } => dot_bytes([a, b, c], a_signed, b_signed),
        ScalarOp::DotHalves { a_signed, b_signed, high } => dot_halves([a, b, c], a_signed, b_signed, high),
        _ => a,
    }
}

fn shift_left(value: u64, by: u64) -> u64 {
    if by < 64 { value << by } else { 0 }
}

fn shift_right(value: u64, ty: Type, by: u64) -> u64 {
    if ty.is_signed() {
        (signed(value, ty.bits) >> by.min(63)).cast_unsigned()
    } else if by < 64 {
        (value & mask(ty.bits)) >> by
    } else {
        0
    }
}

/// The highest bit that differs from the sign, or all ones.
fn highest(value: u64, ty: Type, as_shift: bool) -> u64 {
    let number = integer(value, ty);
    let bits = (if number < 0 { !number } else { number }) as u64;
    match bits.checked_ilog2() {
        None => u64::from(u32::MAX),
        Some(place) if as_shift => u64::from(ty.bits) - 1 - u64::from(place),
        Some(place) => u64::from(place),
    }
}

/// The place of the set bit that is so many from a place, up or down; 0 asks for the place itself.
fn nth(value: u32, base: u32, offset: i32) -> u64 {
    let is_set = |place: i64| value >> place & 1 == 1;
    let nothing = u64::from(u32::MAX);
    if offset == i32::MIN {
        // It has no absolute value; this is what hardware gives.
        return 0;
    }
    if base > 31 {
        return nothing;
    }
    let base = i64::from(base);
    if offset == 0 {
        return if is_set(base) { base as u64 } else { nothing };
    }
    let wanted = offset.unsigned_abs() as usize - 1;
    let up = (base..32).filter(|&place| is_set(place)).nth(wanted);
    let down = || (0..=base).rev().filter(|&place| is_set(place)).nth(wanted);
    (if offset > 0 { up } else { down() }).map_or(nothing, |place| place as u64)
}

fn extract(value: u64, ty: Type, from: u64, count: u64) -> u64 {
    let highest = u64::from(ty.bits) - 1;
    let field = shift_right(value, Type { kind: crate::program::types::Kind::Unsigned, ..ty }, from);
    let kept = mask(count.min(64) as u8);
    let is_negative = ty.is_signed() && count > 0 && value >> (from + count - 1).min(highest) & 1 == 1;
    // Bits above the value count as its sign too.
    let known = kept & mask((highest + 1).saturating_sub(from).min(64) as u8);
    (if is_negative { field & known | !known } else { field & known }) & mask(ty.bits)
}

fn insert(field: u64, value: u64, ty: Type, from: u64, count: u64) -> u64 {
    let place = shift_left(mask(count.min(64) as u8), from) & mask(ty.bits);
    value & !place | shift_left(field, from) & place
}

fn bit_mask(from: u64, count: u64, wrap: bool) -> u64 {
    let [first, width] = [from, count].map(|value| value & 31);
    if !wrap && from >= 32 {
        return 0;
    }
    let end = if !wrap && count >= 32 { 32 } else { (first + width).min(32) };
    mask(32) >> (32 - end) & (mask(32) << first)
}

fn extend(value: u64, from: u64, ty: Type, wrap: bool) -> u64 {
    let bits = from & 31;
    if from >= 32 && !wrap {
        return value;
    }
    let kept = mask(bits as u8);
    let is_negative = bits != 0 && ty.is_signed() && value >> (bits - 1) & 1 == 1;
    (if is_negative { value | !kept } else { value & kept }) & mask(32)
}

/// Bytes of 8 by the selectors of a mode, each with a bit that asks for the sign of its byte instead.
fn permute(mode: PermuteMode, bytes: u64, selector: u64) -> u64 {
    let place = selector & 3;
    let selectors: [u64; 4] = match mode {
        PermuteMode::Index => [0, 4, 8, 12].map(|shift| selector >> shift & 15),
        PermuteMode::Forward4 => [0, 1, 2, 3].map(|index| place + index),
        PermuteMode::Backward4 => [0, 1, 2, 3].map(|index| (place + 8 - index) & 7),
        PermuteMode::Replicate8 => [place; 4],
        PermuteMode::EdgeLeft => [0, 1, 2, 3].map(|index: u64| index.max(place)),
        PermuteMode::EdgeRight => [0, 1, 2, 3].map(|index: u64| index.min(place)),
        PermuteMode::Replicate16 => [0, 1, 0, 1].map(|index| (place & 1) * 2 + index),
    };
    let byte = |selector: u64| {
        let byte = bytes >> (8 * (selector & 7)) & 0xFF;
        if selector & 8 == 0 { byte } else { 0xFF * (byte >> 7) }
    };
    selectors.iter().rev().fold(0, |permuted, &selector| permuted << 8 | byte(selector))
}

/// A function of three bits, by the table of its values.
fn lookup(table: u8, a: u64, b: u64, c: u64) -> u64 {
    let mut found = 0;
    for row in 0..8_u8 {
        if table >> row & 1 == 1 {
            let pick = |value: u64, bit: u8| if row >> bit & 1 == 1 { value } else { !value };
            found |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    found & mask(32)
}

fn funnel(value: u64, by: u64, left: bool, wrap: bool) -> u64 {
    let by = if wrap { by & 31 } else { by.min(32) };
    let shifted = if left { value << by >> 32 } else { value >> by };
    shifted & mask(32)
}

fn part(value: u64, index: usize, bits: u8, is_signed: bool) -> i64 {
    let part = value >> (index * usize::from(bits)) & mask(bits);
    if is_signed { signed(part, bits) } else { part.cast_signed() }
}

fn distance_bytes([a, b, c]: [u64; 3], signed: [bool; 2], sum: bool) -> u64 {
    let distances = (0..4).map(|index| part(a, index, 8, signed[0]).abs_diff(part(b, index, 8, signed[1])));
    match sum {
        true => c.wrapping_add(distances.sum()) & mask(32),
        false => distances.zip([0, 8, 16, 24]).fold(0, |all, (distance, shift)| all | (distance & 0xFF) << shift),
    }
}

fn dot_bytes([a, b, c]: [u64; 3], a_signed: bool, b_signed: bool) -> u64 {
    let products = (0..4).map(|index| part(a, index, 8, a_signed) * part(b, index, 8, b_signed));
    c.wrapping_add(products.sum::<i64>().cast_unsigned()) & mask(32)
}

fn dot_halves([a, b, c]: [u64; 3], a_signed: bool, b_signed: bool, high: bool) -> u64 {
    let first = if high { 2 } else { 0 };
    let products = (0..2).map(|index| part(a, index, 16, a_signed) * part(b, index + first, 8, b_signed));
    c.wrapping_add(products.sum::<i64>().cast_unsigned()) & mask(32)
}
