//! What operations make of values. A value is 64 bits, of which the type says how many count and how they are read.
//!
//! Floating results are those of IEEE 754 rounded to the nearest; the functions that PTX calls approximate are computed
//! as well as the host does.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "the arithmetic of a processor: values are cut, extended and compared as it does"
)]

use super::program::{Atomic, Binary, Comparison, Half, Kind, Modes, Rounding, Type, Unary};

/// A value as a signed number of its type.
fn signed(value: u64, bits: u8) -> i64 {
    let unused = 64 - u32::from(bits);
    (value << unused) as i64 >> unused
}

/// A value as a number of its integer type.
fn integer(value: u64, ty: Type) -> i128 {
    if ty.is_signed() { i128::from(signed(value, ty.bits)) } else { i128::from(value & ty.mask()) }
}

/// A value as it stands in a register of so many bits: signed ones are extended.
pub(super) fn widen(value: u64, ty: Type, register_bits: u8) -> u64 {
    let wide = if ty.is_signed() { signed(value, ty.bits) as u64 } else { value & ty.mask() };
    wide & super::program::mask(register_bits)
}

fn single(value: u64, modes: Modes) -> f32 {
    let value = f32::from_bits(value as u32);
    if modes.flush && value.is_subnormal() { 0.0_f32.copysign(value) } else { value }
}

fn from_single(value: f32, modes: Modes) -> u64 {
    let value = if modes.flush && value.is_subnormal() { 0.0_f32.copysign(value) } else { value };
    let value = match modes.saturate {
        true if value.is_nan() => 0.0,
        true => value.clamp(0.0, 1.0) + 0.0,
        false => value,
    };
    // All that is not a number is one value.
    u64::from(if value.is_nan() { 0x7FFF_FFFF } else { value.to_bits() })
}

fn from_double(value: f64, modes: Modes) -> u64 {
    match modes.saturate {
        true if value.is_nan() => 0,
        true => (value.clamp(0.0, 1.0) + 0.0).to_bits(),
        false => value.to_bits(),
    }
}

macro_rules! float_binary {
    ($op:expr, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        match $op {
            Binary::Add => a + b,
            Binary::Subtract => a - b,
            Binary::Multiply(_) => a * b,
            Binary::Divide => a / b,
            Binary::Least | Binary::Greatest if a.is_nan() => b,
            Binary::Least | Binary::Greatest if b.is_nan() => a,
            // Of two zeros the negative one is the smaller.
            Binary::Least if a < b || a == b && a.is_sign_negative() => a,
            Binary::Least => b,
            Binary::Greatest if a > b || a == b && a.is_sign_positive() => a,
            Binary::Greatest => b,
            Binary::Remainder | Binary::And | Binary::Or | Binary::Xor | Binary::ShiftLeft | Binary::ShiftRight => a,
        }
    }};
}

pub(super) fn binary(op: Binary, ty: Type, modes: Modes, a: u64, b: u64) -> u64 {
    match (ty.kind, ty.bits) {
        (Kind::Float, 32) => from_single(float_binary!(op, single(a, modes), single(b, modes)), modes),
        (Kind::Float, _) => from_double(float_binary!(op, f64::from_bits(a), f64::from_bits(b)), modes),
        _ => integer_binary(op, ty, a & ty.mask(), b),
    }
}

fn integer_binary(op: Binary, ty: Type, a: u64, b: u64) -> u64 {
    let bits = u64::from(ty.bits);
    let value = match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply(half) => return product(half, ty, a, b),
        // What hardware gives for a division by zero.
        Binary::Divide | Binary::Remainder if b & ty.mask() == 0 => u64::MAX,
        Binary::Divide => (integer(a, ty) / integer(b, ty)) as u64,
        Binary::Remainder => (integer(a, ty) % integer(b, ty)) as u64,
        Binary::Least => integer(a, ty).min(integer(b, ty)) as u64,
        Binary::Greatest => integer(a, ty).max(integer(b, ty)) as u64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft if b >= bits => 0,
        Binary::ShiftLeft => a << b,
        Binary::ShiftRight if ty.is_signed() => (signed(a, ty.bits) >> b.min(bits - 1)) as u64,
        Binary::ShiftRight if b >= bits => 0,
        Binary::ShiftRight => a >> b,
    };
    value & ty.mask()
}

fn product(half: Half, ty: Type, a: u64, b: u64) -> u64 {
    // 64 by 64 bits fit into 128 either way.
    let full = if ty.is_signed() {
        integer(a, ty).wrapping_mul(integer(b, ty)) as u128
    } else {
        u128::from(a & ty.mask()).wrapping_mul(u128::from(b & ty.mask()))
    };
    match half {
        Half::Low => full as u64 & ty.mask(),
        Half::High => (full >> ty.bits) as u64 & ty.mask(),
        Half::Wide => full as u64 & super::program::mask(ty.bits.saturating_mul(2)),
    }
}

pub(super) fn multiply_add(half: Half, ty: Type, modes: Modes, [a, b, c]: [u64; 3]) -> u64 {
    match (ty.kind, ty.bits) {
        (Kind::Float, 32) => from_single(single(a, modes).mul_add(single(b, modes), single(c, modes)), modes),
        (Kind::Float, _) => from_double(f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)), modes),
        _ => {
            let bits = if half == Half::Wide { ty.bits.saturating_mul(2) } else { ty.bits };
            product(half, ty, a, b).wrapping_add(c) & super::program::mask(bits)
        }
    }
}

macro_rules! float_unary {
    ($op:expr, $a:expr) => {{
        let a = $a;
        match $op {
            Unary::Negate => -a,
            Unary::Absolute => a.abs(),
            Unary::SquareRoot => a.sqrt(),
            Unary::Reciprocal => 1.0 / a,
            Unary::ReciprocalRoot => 1.0 / a.sqrt(),
            Unary::PowerOfTwo => a.exp2(),
            Unary::LogarithmOfTwo => a.log2(),
            Unary::Sine => a.sin(),
            Unary::Cosine => a.cos(),
            Unary::Not | Unary::CountBits | Unary::LeadingZeros | Unary::Reverse => a,
        }
    }};
}

pub(super) fn unary(op: Unary, ty: Type, modes: Modes, a: u64) -> u64 {
    match (ty.kind, ty.bits) {
        (Kind::Float, 32) => from_single(float_unary!(op, single(a, modes)), modes),
        (Kind::Float, _) => from_double(float_unary!(op, f64::from_bits(a)), modes),
        _ => {
            let a = a & ty.mask();
            let unused = 64 - u64::from(ty.bits);
            let value = match op {
                Unary::Not => !a,
                Unary::CountBits => u64::from(a.count_ones()),
                Unary::LeadingZeros => u64::from(a.leading_zeros()) - unused,
                Unary::Reverse => a.reverse_bits() >> unused,
                Unary::Absolute => signed(a, ty.bits).unsigned_abs(),
                Unary::Negate
                | Unary::SquareRoot
                | Unary::Reciprocal
                | Unary::ReciprocalRoot
                | Unary::PowerOfTwo
                | Unary::LogarithmOfTwo
                | Unary::Sine
                | Unary::Cosine => a.wrapping_neg(),
            };
            value & ty.mask()
        }
    }
}

pub(super) fn compare(comparison: Comparison, or_unordered: bool, ty: Type, flush: bool, a: u64, b: u64) -> bool {
    let modes = Modes { flush, saturate: false };
    let order = match (ty.kind, ty.bits) {
        (Kind::Float, 32) => single(a, modes).partial_cmp(&single(b, modes)),
        (Kind::Float, _) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        _ => Some(integer(a, ty).cmp(&integer(b, ty))),
    };
    let Some(order) = order else { return or_unordered || comparison == Comparison::NotNumbers };
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
        Comparison::Numbers => true,
        Comparison::NotNumbers => false,
    }
}

/// How a conversion is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conversion {
    pub(super) to: Type,
    pub(super) from: Type,
    pub(super) rounding: Rounding,
    /// Whether a floating number stays one and becomes whole.
    pub(super) to_integer: bool,
    pub(super) modes: Modes,
}

pub(super) fn convert(conversion: Conversion, value: u64) -> u64 {
    let Conversion { to, from, rounding, to_integer, modes } = conversion;
    match (to.is_float(), from.is_float()) {
        (false, false) => {
            let number = integer(value, from);
            (if modes.saturate { clamp(number, to) } else { number }) as u64 & to.mask()
        }
        (true, false) => {
            let number = integer(value, from);
            if to.bits == 32 {
                from_single(rounded_single(number as f32, rounding, |near| (near as i128).cmp(&number)), modes)
            } else {
                from_double(rounded_double(number as f64, rounding, |near| (near as i128).cmp(&number)), modes)
            }
        }
        (to_float, true) => {
            let wide = if from.bits == 32 { f64::from(single(value, modes)) } else { f64::from_bits(value) };
            if !to_float {
                return to_whole(wide, from, to, rounding);
            }
            let wide = if to_integer { whole(wide, rounding) } else { wide };
            if to.bits == 32 {
                let order = |near: f32| f64::from(near).partial_cmp(&wide).unwrap_or(std::cmp::Ordering::Equal);
                from_single(rounded_single(wide as f32, rounding, order), modes)
            } else {
                from_double(wide, modes)
            }
        }
    }
}

fn clamp(number: i128, to: Type) -> i128 {
    let (least, greatest) = match to.is_signed() {
        true => (-(1_i128 << (to.bits - 1)), (1_i128 << (to.bits - 1)) - 1),
        false => (0, (1_i128 << to.bits) - 1),
    };
    number.clamp(least, greatest)
}

fn whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

fn to_whole(value: f64, from: Type, to: Type, rounding: Rounding) -> u64 {
    if value.is_nan() {
        let zero = from.bits == 32 && to.bits < 64;
        return if zero { 0 } else { 1 << (to.bits - 1) };
    }
    clamp(whole(value, rounding) as i128, to) as u64 & to.mask()
}

macro_rules! rounded {
    ($name:ident, $float:ty) => {
        /// The neighbour of the nearest number that the rounding asks for; `order` compares a number with the exact value.
        fn $name(near: $float, rounding: Rounding, order: impl Fn($float) -> std::cmp::Ordering) -> $float {
            if near.is_nan() {
                return near;
            }
            let order = order(near);
            let down = rounding == Rounding::Down || rounding == Rounding::Zero && near > 0.0;
            let up = rounding == Rounding::Up || rounding == Rounding::Zero && near < 0.0;
            if down && order.is_gt() {
                near.next_down()
            } else if up && order.is_lt() {
                near.next_up()
            } else {
                near
            }
        }
    };
}
rounded!(rounded_single, f32);
rounded!(rounded_double, f64);

/// What an atomic instruction leaves in memory.
pub(super) fn atomic(op: Atomic, ty: Type, old: u64, b: u64, c: u64) -> u64 {
    match op {
        Atomic::Binary(op) => binary(op, ty, Modes::default(), old, b),
        Atomic::Exchange => b,
        Atomic::CompareAndSwap if old == b => c,
        Atomic::CompareAndSwap => old,
        Atomic::Increment if old >= b => 0,
        Atomic::Increment => old + 1,
        Atomic::Decrement if old == 0 || old > b => b,
        Atomic::Decrement => old - 1,
    }
}
