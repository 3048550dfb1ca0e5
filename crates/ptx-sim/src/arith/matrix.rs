//! Matrices that a warp holds in its registers: which lane holds what, and products.
//!
//! **Layouts.** Lane `4 g + t` holds of `a` the rows `g` and `g + 8`, of `b` the column `g`, and of `c` and `d` in rows `g`
//! and `g + 8` the columns `2 t` and `2 t + 1`. A register holds as many elements as fit: `e` of them are next to each
//! other along `k`, beginning at `e t`. The second register of `a` is 8 rows below the first, and each further pair, as
//! each further register of `b`, is `4 e` along `k`.
//!
//! **Sums** of floating numbers are f32 and go up along `k`. Products of f16 and of tf32 that are not subnormal are
//! exact there, as those of bf16 are; f16 results are rounded once in the end.

#![expect(
    clippy::inline_always,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "elements are cut from registers and put back, in loops that become vector instructions where they are inlined"
)]

use super::double;
use super::exact::{Format, narrowed};
use super::narrow::half_to_single;
use crate::program::action::MatrixMultiply;
use crate::program::scalar::{Half, Modes, Rounding, ScalarOp};
use crate::program::types::{Kind, Type};

/// A register of all lanes.
pub(crate) type Row = [u32; 32];

/// The most that `m` and `k` are.
const ROWS: usize = 16;
const COLUMNS: usize = 8;
const DEPTH: usize = 64;

/// Row and column, of a matrix of 8 by 8 values of 16 bits, of the lower and the upper half of a lane's register.
pub(crate) fn places(lane: usize, transpose: bool) -> [(usize, usize); 2] {
    let (row, column) = (lane / 4, lane % 4 * 2);
    let places = [(row, column), (row, column + 1)];
    if transpose { places.map(|(row, column)| (column, row)) } else { places }
}

/// Row and column in `a` of an element of a register.
pub(crate) fn place_of_a(lane: usize, register: usize, element: usize, elements: usize) -> (usize, usize) {
    (lane / 4 + register % 2 * 8, lane % 4 * elements + register / 2 * 4 * elements + element)
}

/// Row and column in `b` of an element of a register.
pub(crate) fn place_of_b(lane: usize, register: usize, element: usize, elements: usize) -> (usize, usize) {
    (lane % 4 * elements + register * 4 * elements + element, lane / 4)
}

/// Row and column in `c` or `d` of a lane's n-th element.
pub(crate) fn place_of_c(lane: usize, index: usize) -> (usize, usize) {
    (lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2)
}

/// `d = a * b + c` of the registers of a warp.
#[inline(always)]
pub(crate) fn multiply(what: &MatrixMultiply, a: &[Row], b: &[Row], c: &[Row], d: &mut [Row]) {
    if what.a_type.is_integer() {
        integers(what, a, b, c, d);
    } else {
        floats(what, a, b, c, d);
    }
}

/// An element of every lane's register as f32.
#[inline(always)]
fn singles(row: &Row, element: usize, ty: Type) -> [f32; 32] {
    let mut values = [0.0; 32];
    let shift = 16 * element as u32;
    match (ty.kind, ty.bits) {
        (Kind::Brain, _) => each(&mut values, row, |bits| f32::from_bits(bits >> shift << 16)),
        (Kind::Float, 16) => each(&mut values, row, |bits| half_to_single(bits >> shift & 0xFFFF)),
        // Hardware does not read the lower bits.
        (Kind::Tf32, _) => each(&mut values, row, |bits| f32::from_bits(bits & !0x1FFF)),
        _ => each(&mut values, row, f32::from_bits),
    }
    values
}

#[inline(always)]
fn each(values: &mut [f32; 32], row: &Row, value: impl Fn(u32) -> f32) {
    for (to, &bits) in values.iter_mut().zip(row) {
        *to = value(bits);
    }
}

#[inline(always)]
fn floats(what: &MatrixMultiply, a: &[Row], b: &[Row], c: &[Row], d: &mut [Row]) {
    let elements = usize::from(32 / what.a_type.bits);
    let depth = usize::from(what.shape[2]).min(16);
    let (mut left, mut right, mut sums) = ([[0.0; 16]; ROWS], [[0.0; COLUMNS]; 16], [[0.0; COLUMNS]; ROWS]);
    for element in 0..elements {
        for (register, row) in a.iter().enumerate() {
            for (lane, value) in singles(row, element, what.a_type).into_iter().enumerate() {
                let (i, k) = place_of_a(lane, register, element, elements);
                left[i][k] = value;
            }
        }
        for (register, row) in b.iter().enumerate() {
            for (lane, value) in singles(row, element, what.b_type).into_iter().enumerate() {
                let (k, j) = place_of_b(lane, register, element, elements);
                right[k][j] = value;
            }
        }
    }
    let packed = usize::from(32 / what.c_type.bits);
    for (register, row) in c.iter().enumerate() {
        for element in 0..packed {
            for (lane, value) in singles(row, element, what.c_type).into_iter().enumerate() {
                let (i, j) = place_of_c(lane, register * packed + element);
                sums[i][j] = value;
            }
        }
    }
    accumulate(&left, &right, &mut sums, depth);
    let packed = usize::from(32 / what.d_type.bits);
    for (register, row) in d.iter_mut().enumerate() {
        for (lane, value) in row.iter_mut().enumerate() {
            let sum = |element| {
                let (i, j) = place_of_c(lane, register * packed + element);
                sums[i][j]
            };
            *value = if packed == 2 { half_bits(sum(0)) | half_bits(sum(1)) << 16 } else { single_bits(sum(0)) };
        }
    }
}

#[inline(always)]
fn accumulate(left: &[[f32; 16]; ROWS], right: &[[f32; COLUMNS]; 16], sums: &mut [[f32; COLUMNS]; ROWS], depth: usize) {
    for (sums, left) in sums.iter_mut().zip(left) {
        for (factor, right) in left.iter().zip(right).take(depth) {
            for (sum, other) in sums.iter_mut().zip(right) {
                *sum += factor * other;
            }
        }
    }
}

/// `d = a * b + c` of f64: each product is added and rounded at once, up along `k`.
pub(crate) fn multiply_doubles(
    what: &MatrixMultiply,
    a: &[[u64; 32]],
    b: &[[u64; 32]],
    c: &[[u64; 32]],
) -> Vec<[u64; 32]> {
    let depth = usize::from(what.shape[2]).min(16);
    let (mut left, mut right) = ([[0; 16]; ROWS], [[0; COLUMNS]; 16]);
    for lane in 0..32 {
        for (register, row) in a.iter().enumerate() {
            let (i, k) = place_of_a(lane, register, 0, 1);
            left[i][k] = row[lane];
        }
        for (register, row) in b.iter().enumerate() {
            let (k, j) = place_of_b(lane, register, 0, 1);
            right[k][j] = row[lane];
        }
    }
    let modes = Modes { rounding: what.rounding, ..Modes::PLAIN };
    let mut d = c.to_vec();
    for (index, row) in d.iter_mut().enumerate() {
        for (lane, sum) in row.iter_mut().enumerate() {
            let (i, j) = place_of_c(lane, index);
            for (factor, others) in left[i].iter().zip(&right).take(depth) {
                *sum = double::evaluate(ScalarOp::MultiplyAdd(Half::Low), modes, [*factor, others[j], *sum]);
            }
        }
    }
    d
}

fn single_bits(value: f32) -> u32 {
    if value.is_nan() { 0x7FFF_FFFF } else { value.to_bits() }
}

fn half_bits(value: f32) -> u32 {
    narrowed(value.into(), Format::F16, Rounding::Nearest, false) as u32
}

/// An element of a register as a number.
#[inline]
fn number(register: u32, index: usize, ty: Type) -> i32 {
    let bits = u32::from(ty.bits);
    let at_top = register >> (index as u32 * bits) << (32 - bits);
    if ty.is_signed() { at_top.cast_signed() >> (32 - bits) } else { (at_top >> (32 - bits)).cast_signed() }
}

fn integers(what: &MatrixMultiply, a: &[Row], b: &[Row], c: &[Row], d: &mut [Row]) {
    let elements = usize::from(32 / what.a_type.bits);
    let depth = usize::from(what.shape[2]).min(DEPTH);
    let (mut left, mut right, mut sums) = ([[0; DEPTH]; ROWS], [[0; COLUMNS]; DEPTH], [[0_i32; COLUMNS]; ROWS]);
    for (register, row) in a.iter().enumerate() {
        for (lane, &value) in row.iter().enumerate() {
            for element in 0..elements {
                let (i, k) = place_of_a(lane, register, element, elements);
                left[i][k] = number(value, element, what.a_type);
            }
        }
    }
    for (register, row) in b.iter().enumerate() {
        for (lane, &value) in row.iter().enumerate() {
            for element in 0..elements {
                let (k, j) = place_of_b(lane, register, element, elements);
                right[k][j] = number(value, element, what.b_type);
            }
        }
    }
    // Products of 64 numbers of 8 bits fit into 32 bits.
    for (sums, left) in sums.iter_mut().zip(&left) {
        for (factor, right) in left.iter().zip(&right).take(depth) {
            for (sum, other) in sums.iter_mut().zip(right) {
                *sum += factor * other;
            }
        }
    }
    for (register, (row, from)) in d.iter_mut().zip(c).enumerate() {
        for (lane, (value, from)) in row.iter_mut().zip(from).enumerate() {
            let (i, j) = place_of_c(lane, register);
            let (before, sum) = (from.cast_signed(), sums[i][j]);
            let after = if what.saturate { before.saturating_add(sum) } else { before.wrapping_add(sum) };
            *value = after as u32;
        }
    }
}
