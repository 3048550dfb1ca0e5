//! Matrices that a warp holds in its registers: which lane holds what, and products.
//!
//! **Layouts.** Lane `4 g + t` holds of `a` the rows `g` and `g + 8`, of `b` the column `g`, and of `c` and `d` in rows `g`
//! and `g + 8` the columns `2 t` and `2 t + 1`. A register holds as many elements as fit: `e` of them are next to each
//! other along `k`, beginning at `e t`. The second register of `a` is 8 rows below the first, and each further pair, as
//! each further register of `b`, is `4 e` along `k`.
//!
//! **Sums** of floating numbers are f32 and go up along `k`. Products of f16, of tf32 and of numbers of eight bits
//! that are not subnormal are exact there, as those of bf16 are; f16 results are rounded once in the end.

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
pub(crate) fn multiply(what: &MatrixMultiply, a: &[&Row], b: &[&Row], c: &[&Row], d: &mut [Row]) {
    if what.a_type.is_integer() {
        integers(what, a, b, c, d);
    } else {
        floats(what, a, b, c, d);
    }
}

/// The elements of a register of all lanes as f32, in the order in which its bytes follow each other: those of lane 0,
/// of lane 1 and so on. So a register of `a`, and of `b` turned, is eight lines.
#[inline(always)]
fn elements<const E: usize>(row: &Row, ty: Type) -> [f32; 128] {
    let mut values = [0.0; 128];
    if E == 1 {
        // Hardware does not read the lower bits.
        let read = if ty.kind == Kind::Tf32 { !0x1FFF } else { !0 };
        for (to, &bits) in values.iter_mut().zip(row) {
            *to = f32::from_bits(bits & read);
        }
        return values;
    }
    if E == 2 {
        let mut halves = [0_u16; 64];
        for (pair, bits) in halves.chunks_exact_mut(2).zip(row) {
            (pair[0], pair[1]) = (*bits as u16, (bits >> 16) as u16);
        }
        for (to, half) in values.iter_mut().zip(halves) {
            let bits = u32::from(half);
            *to = if ty.kind == Kind::Brain { f32::from_bits(bits << 16) } else { half_to_single(bits) };
        }
        return values;
    }
    for (to, byte) in values.iter_mut().zip(row.iter().flat_map(|bits| bits.to_le_bytes())) {
        *to = small_to_single(byte.into(), ty.kind == Kind::E5M2);
    }
    values
}

/// A number of eight bits as the f32 that it is.
fn small_to_single(bits: u32, is_e5m2: bool) -> f32 {
    if is_e5m2 {
        return half_to_single(bits << 8);
    }
    // The exponents of the two formats differ by 8.
    let magnitude = if bits & 0x7F == 0x7F { f32::NAN } else { half_to_single((bits & 0x7F) << 7) * 256.0 };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

#[inline(always)]
fn floats(what: &MatrixMultiply, a: &[&Row], b: &[&Row], c: &[&Row], d: &mut [Row]) {
    match (what.a_type.bits, what.shape[2]) {
        (32, 4) => floats_of::<1, 4>(what, a, b, c, d),
        (32, _) => floats_of::<1, 8>(what, a, b, c, d),
        (16, 8) => floats_of::<2, 8>(what, a, b, c, d),
        (16, _) => floats_of::<2, 16>(what, a, b, c, d),
        (_, 16) => floats_of::<4, 16>(what, a, b, c, d),
        _ => floats_of::<4, 32>(what, a, b, c, d),
    }
}

/// Of `E` elements in a register, and `K` along `k`. Matrices have sixteen rows.
#[inline(always)]
fn floats_of<const E: usize, const K: usize>(what: &MatrixMultiply, a: &[&Row], b: &[&Row], c: &[&Row], d: &mut [Row]) {
    let (mut left, mut right) = ([[0.0; K]; ROWS], [[0.0; COLUMNS]; K]);
    for (register, row) in a.iter().enumerate() {
        let values = elements::<E>(row, what.a_type);
        let (first, along) = (register % 2 * 8, register / 2 * 4 * E);
        for (to, line) in left[first..].iter_mut().zip(values.chunks_exact(4 * E)).take(8) {
            to[along..along + 4 * E].copy_from_slice(line);
        }
    }
    for (register, row) in b.iter().enumerate() {
        let values = elements::<E>(row, what.b_type);
        for (offset, to) in right[register * 4 * E..][..4 * E].iter_mut().enumerate() {
            for (column, to) in to.iter_mut().enumerate() {
                *to = values[column * 4 * E + offset];
            }
        }
    }
    let mut sums = sums(c, what.c_type);
    accumulate(&left, &right, &mut sums);
    put_sums(&sums, d, what.d_type);
}

/// `c` as a matrix: its registers are eight lines each where they hold two elements, and otherwise two by two.
#[inline(always)]
fn sums(c: &[&Row], ty: Type) -> [[f32; COLUMNS]; ROWS] {
    let mut sums = [[0.0; COLUMNS]; ROWS];
    if ty.bits == 16 {
        for (sums, row) in sums.chunks_exact_mut(8).zip(c) {
            for (to, line) in sums.iter_mut().zip(elements::<2>(row, ty).chunks_exact(COLUMNS)) {
                to.copy_from_slice(line);
            }
        }
        return sums;
    }
    for (sums, rows) in sums.chunks_exact_mut(8).zip(c.chunks_exact(2)) {
        for (line, to) in sums.iter_mut().enumerate() {
            for (column, to) in to.iter_mut().enumerate() {
                *to = f32::from_bits(rows[column % 2][line * 4 + column / 2]);
            }
        }
    }
    sums
}

#[inline(always)]
fn put_sums(sums: &[[f32; COLUMNS]; ROWS], d: &mut [Row], ty: Type) {
    if ty.bits == 16 {
        for (sums, row) in sums.chunks_exact(8).zip(d) {
            for (lane, value) in row.iter_mut().enumerate() {
                let pair = &sums[lane / 4][lane % 4 * 2..][..2];
                *value = half_bits(pair[0]) | half_bits(pair[1]) << 16;
            }
        }
        return;
    }
    for (sums, rows) in sums.chunks_exact(8).zip(d.chunks_exact_mut(2)) {
        for (line, from) in sums.iter().enumerate() {
            for (column, &from) in from.iter().enumerate() {
                rows[column % 2][line * 4 + column / 2] = single_bits(from);
            }
        }
    }
}

/// Four rows at a time, whose sums stay in registers of the processor.
#[inline(always)]
fn accumulate<const K: usize>(left: &[[f32; K]; ROWS], right: &[[f32; COLUMNS]; K], sums: &mut [[f32; COLUMNS]; ROWS]) {
    for (sums, left) in sums.as_chunks_mut::<4>().0.iter_mut().zip(left.as_chunks::<4>().0) {
        let mut kept = *sums;
        for (along, right) in right.iter().enumerate() {
            for (sums, left) in kept.iter_mut().zip(left) {
                for (sum, other) in sums.iter_mut().zip(right) {
                    *sum += left[along] * other;
                }
            }
        }
        *sums = kept;
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

fn integers(what: &MatrixMultiply, a: &[&Row], b: &[&Row], c: &[&Row], d: &mut [Row]) {
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
        for (lane, (value, from)) in row.iter_mut().zip(*from).enumerate() {
            let (i, j) = place_of_c(lane, register);
            let (before, sum) = (from.cast_signed(), sums[i][j]);
            let after = if what.saturate { before.saturating_add(sum) } else { before.wrapping_add(sum) };
            *value = after as u32;
        }
    }
}
