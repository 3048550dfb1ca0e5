//! Operations on rows, with the results that the PTX of the same node has.

use std::ops::{Add, Div, Mul, Neg, Sub};

use half::{bf16, f16};

use super::Row;
use crate::float8;
use crate::graph::{Binary, Compare, Unary};
use crate::math::{self, Math};
use crate::types::Type;

/// The integer that a type holds after an operation: the low bits, extended.
pub(super) fn wrap(ty: Type, value: i64) -> i64 {
    match ty {
        Type::Bool => value & 1,
        Type::U8 => value & 0xff,
        Type::I8 => value << 56 >> 56,
        Type::I16 => value << 48 >> 48,
        Type::I32 => value << 32 >> 32,
        Type::U32 => value & 0xffff_ffff,
        _ => value,
    }
}

fn map<T: Copy, R>(a: &[T], f: impl Fn(T) -> R) -> Vec<R> {
    a.iter().map(|&a| f(a)).collect()
}

fn zip<T: Copy, R>(a: &[T], b: &[T], f: impl Fn(T, T) -> R) -> Vec<R> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

pub(super) fn unary(op: Unary, ty: Type, a: &Row) -> Row {
    match a {
        Row::Int(a) => Row::Int(map(a, |a| match op {
            Unary::Neg => wrap(ty, a.wrapping_neg()),
            Unary::Abs if ty == Type::U64 => a,
            Unary::Abs => wrap(ty, a.wrapping_abs()),
            Unary::Not if ty == Type::Bool => a ^ 1,
            Unary::Not => wrap(ty, !a),
            Unary::Sqrt | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Round => a,
        })),
        Row::F32(a) => Row::F32(map(a, |a| unary_float(op, a))),
        Row::F64(a) => Row::F64(map(a, |a| unary_float(op, a))),
    }
}

pub(super) fn binary(op: Binary, ty: Type, a: &Row, b: &Row) -> Row {
    match (a, b) {
        (Row::F32(a), Row::F32(b)) => Row::F32(zip(a, b, |a, b| binary_float(op, a, b))),
        (Row::F64(a), Row::F64(b)) => Row::F64(zip(a, b, |a, b| binary_float(op, a, b))),
        (Row::Int(a), Row::Int(b)) => Row::Int(zip(a, b, |a, b| wrap(ty, integer(op, ty, a, b)))),
        // A program is well typed, so this does not happen.
        _ => a.clone(),
    }
}

/// What operations ask of a float.
trait Float:
    Copy
    + PartialOrd
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
    fn round(self) -> Self;
    fn fma(self, b: Self, c: Self) -> Self;
    fn has_sign(self) -> bool;
    fn is_number(self) -> bool;
}

macro_rules! floats {
    ($($ty:ident)*) => {$(
        impl Float for $ty {
            fn abs(self) -> Self {
                $ty::abs(self)
            }

            fn sqrt(self) -> Self {
                $ty::sqrt(self)
            }

            fn floor(self) -> Self {
                $ty::floor(self)
            }

            fn ceil(self) -> Self {
                $ty::ceil(self)
            }

            fn trunc(self) -> Self {
                $ty::trunc(self)
            }

            fn round(self) -> Self {
                self.round_ties_even()
            }

            fn fma(self, b: Self, c: Self) -> Self {
                self.mul_add(b, c)
            }

            fn has_sign(self) -> bool {
                self.is_sign_negative()
            }

            fn is_number(self) -> bool {
                !self.is_nan()
            }
        }
    )*};
}

floats!(f32 f64);

fn unary_float<T: Float>(op: Unary, a: T) -> T {
    match op {
        Unary::Neg => -a,
        Unary::Abs => a.abs(),
        Unary::Sqrt => a.sqrt(),
        Unary::Floor => a.floor(),
        Unary::Ceil => a.ceil(),
        Unary::Trunc => a.trunc(),
        Unary::Round => a.round(),
        Unary::Not => a,
    }
}

fn binary_float<T: Float>(op: Binary, a: T, b: T) -> T {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min => smaller(a, b),
        Binary::Max => -smaller(-a, -b),
        _ => a,
    }
}

/// The smaller of two floats as PTX has it: the number if the other is a NaN, and a negative zero before a positive one.
fn smaller<T: Float>(a: T, b: T) -> T {
    match (a.is_number(), b.is_number()) {
        (false, _) => b,
        (_, false) => a,
        _ if a < b || (a == b && a.has_sign()) => a,
        _ => b,
    }
}

fn integer(op: Binary, ty: Type, a: i64, b: i64) -> i64 {
    let unsigned = ty == Type::U64;
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div | Binary::Rem if b == 0 => -1,
        Binary::Div if unsigned => (a.cast_unsigned() / b.cast_unsigned()).cast_signed(),
        Binary::Div => a.wrapping_div(b),
        Binary::Rem if unsigned => (a.cast_unsigned() % b.cast_unsigned()).cast_signed(),
        Binary::Rem => a.wrapping_rem(b),
        Binary::Min if unsigned => a.cast_unsigned().min(b.cast_unsigned()).cast_signed(),
        Binary::Max if unsigned => a.cast_unsigned().max(b.cast_unsigned()).cast_signed(),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl | Binary::Shr => shift(op, ty, a, b),
    }
}

/// A shift whose distance is taken as unsigned: everything is shifted out past the width.
fn shift(op: Binary, ty: Type, a: i64, distance: i64) -> i64 {
    let past = !(0..i64::from(ty.bits())).contains(&distance);
    let distance = u32::try_from(distance).unwrap_or(0);
    match op {
        Binary::Shl if past => 0,
        Binary::Shl => a << distance,
        // What is shifted in is the sign, which the value has above its own bits already.
        _ if past => {
            if ty.is_int() && ty != Type::U64 {
                a >> 63
            } else {
                0
            }
        }
        _ if ty == Type::U64 => (a.cast_unsigned() >> distance).cast_signed(),
        _ => a >> distance,
    }
}

pub(super) fn compare(op: Compare, ty: Type, a: &Row, b: &Row) -> Row {
    let values = match (a, b) {
        (Row::F32(a), Row::F32(b)) => zip(a, b, |a, b| holds(op, &a, &b)),
        (Row::F64(a), Row::F64(b)) => zip(a, b, |a, b| holds(op, &a, &b)),
        (Row::Int(a), Row::Int(b)) if ty == Type::U64 => {
            zip(a, b, |a, b| holds(op, &a.cast_unsigned(), &b.cast_unsigned()))
        }
        (Row::Int(a), Row::Int(b)) => zip(a, b, |a, b| holds(op, &a, &b)),
        // A program is well typed, so this does not happen.
        _ => vec![0; a.len()],
    };
    Row::Int(values)
}

fn holds<T: PartialOrd>(op: Compare, a: &T, b: &T) -> i64 {
    i64::from(match op {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    })
}

pub(super) fn select(condition: &Row, a: &Row, b: &Row) -> Row {
    fn pick<T: Copy>(condition: &[i64], a: &[T], b: &[T]) -> Vec<T> {
        condition.iter().zip(a.iter().zip(b)).map(|(&condition, (&a, &b))| if condition != 0 { a } else { b }).collect()
    }
    match (condition, a, b) {
        (Row::Int(condition), Row::Int(a), Row::Int(b)) => Row::Int(pick(condition, a, b)),
        (Row::Int(condition), Row::F32(a), Row::F32(b)) => Row::F32(pick(condition, a, b)),
        (Row::Int(condition), Row::F64(a), Row::F64(b)) => Row::F64(pick(condition, a, b)),
        // A program is well typed, so this does not happen.
        _ => a.clone(),
    }
}

pub(super) fn fma(a: &Row, b: &Row, c: &Row) -> Row {
    fn all<T: Float>(a: &[T], b: &[T], c: &[T]) -> Vec<T> {
        a.iter().zip(b).zip(c).map(|((&a, &b), &c)| a.fma(b, c)).collect()
    }
    match (a, b, c) {
        (Row::F32(a), Row::F32(b), Row::F32(c)) => Row::F32(all(a, b, c)),
        (Row::F64(a), Row::F64(b), Row::F64(c)) => Row::F64(all(a, b, c)),
        // A program is well typed, so this does not happen.
        _ => a.clone(),
    }
}

pub(super) fn call(function: Math, ty: Type, a: &Row, b: Option<&Row>) -> Row {
    match (a, b) {
        (Row::Int(a), Some(Row::Int(b))) => Row::Int(zip(a, b, |a, b| wrap(ty, math::of_int(function, a, b)))),
        (Row::F32(a), Some(Row::F32(b))) => Row::F32(zip(a, b, |a, b| math::of_f32(function, a, b))),
        (Row::F32(a), _) => Row::F32(map(a, |a| math::of_f32(function, a, 0.0))),
        (Row::F64(a), Some(Row::F64(b))) => Row::F64(zip(a, b, |a, b| math::of_f64(function, a, b))),
        (Row::F64(a), _) => Row::F64(map(a, |a| math::of_f64(function, a, 0.0))),
        // A program is well typed, so this does not happen.
        (Row::Int(_), _) => a.clone(),
    }
}

pub(super) fn convert(a: &Row, from: Type, to: Type) -> Row {
    match a {
        Row::Int(_) => from_integers(a, from, to),
        Row::F32(a) => from_floats(map(a, f64::from), a, from, to),
        Row::F64(a) => from_floats(a.clone(), &map(a, nearest), from, to),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the conversion rounds to the nearest float")]
fn from_integers(a: &Row, from: Type, to: Type) -> Row {
    let Row::Int(values) = a else { return a.clone() };
    match to {
        Type::F64 if from == Type::U64 => Row::F64(map(values, |a| a.cast_unsigned() as f64)),
        Type::F32 if from == Type::U64 => Row::F32(map(values, |a| a.cast_unsigned() as f32)),
        Type::F64 => Row::F64(map(values, |a| a as f64)),
        Type::F32 => Row::F32(map(values, |a| a as f32)),
        _ => Row::Int(map(values, |a| wrap(to, a))),
    }
}

/// From floats, given exactly as `f64` and rounded to `f32`.
fn from_floats(exact: Vec<f64>, single: &[f32], from: Type, to: Type) -> Row {
    match to {
        Type::F64 => Row::F64(exact),
        Type::F32 => Row::F32(single.to_vec()),
        Type::F16 => Row::F32(map(single, |a| f16::from_f32(a).to_f32())),
        Type::BF16 => Row::F32(map(single, |a| bf16::from_f32(a).to_f32())),
        Type::F8E4M3 => Row::F32(map(single, |a| float8::E4M3.value(float8::E4M3.round(a)))),
        Type::F8E5M2 => Row::F32(map(single, |a| float8::E5M2.value(float8::E5M2.round(a)))),
        _ => Row::Int(map(&exact, |a| towards_zero(a, from, to))),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the nearest f32 is meant")]
fn nearest(a: f64) -> f32 {
    a as f32
}

/// A float as an integer: towards zero, held to the range of 32 or 64 bits, then the low bits. A NaN is zero, but the
/// highest bit alone where 64 bits are converted from or to, as the instruction has it.
#[expect(clippy::cast_possible_truncation, reason = "the cast holds the number to its range, as the instruction does")]
#[expect(clippy::cast_sign_loss, reason = "negative numbers become zero, as the instruction has it")]
fn towards_zero(a: f64, from: Type, to: Type) -> i64 {
    match to {
        Type::I32 | Type::U32 if from == Type::F64 && a.is_nan() => wrap(to, i64::from(i32::MIN)),
        Type::I8 | Type::I16 | Type::I32 => wrap(to, i64::from(a as i32)),
        Type::U32 => i64::from(a as u32),
        Type::U64 if a.is_nan() => i64::MIN,
        Type::U64 => (a as u64).cast_signed(),
        _ if a.is_nan() => wrap(to, i64::MIN),
        _ => wrap(to, a as i64),
    }
}

/// The bits of the values as another type of the same width.
pub(super) fn bitcast(a: &Row, from: Type, to: Type) -> Row {
    let bytes = to.bytes();
    let all: Vec<[u8; 8]> = (0..a.len()).map(|at| a.bits(from, at).to_le_bytes()).collect();
    Row::gather(to, all.iter().map(|bits| &bits[..bytes]))
}
