//! Products of matrices against plain sums, and that each place of a matrix is held once.

use super::super::matrix::{Row, multiply, multiply_doubles, place_of_a, place_of_b, place_of_c, places};
use super::{BF16, F16, Numbers};
use crate::program::action::MatrixMultiply;
use crate::program::scalar::Rounding;
use crate::program::types::{Kind, Type};

const TF32: Type = Type::new(Kind::Tf32, 32);
const E4M3: Type = Type::new(Kind::E4M3, 8);
const E5M2: Type = Type::new(Kind::E5M2, 8);
const S8: Type = Type::new(Kind::Signed, 8);
const U8: Type = Type::new(Kind::Unsigned, 8);
const S4: Type = Type::new(Kind::Signed, 4);
const U4: Type = Type::new(Kind::Unsigned, 4);

fn product(shape: [u8; 3], [a_type, b_type, c_type]: [Type; 3], saturate: bool) -> MatrixMultiply {
    let none = Vec::new();
    let [d, a, b, c] = [none.clone(), none.clone(), none.clone(), none];
    MatrixMultiply { shape, a_type, b_type, c_type, d_type: c_type, saturate, rounding: Rounding::Nearest, d, a, b, c }
}

fn refs(rows: &[Row]) -> Vec<&Row> {
    rows.iter().collect()
}

/// An element as a small whole number, and its bits.
fn element(numbers: &mut Numbers, ty: Type) -> (i64, u32) {
    let raw = numbers.next();
    if ty.is_integer() {
        let bits = raw as u32 & ((1 << ty.bits) - 1);
        let value = if ty.is_signed() { i64::from(bits) << (64 - ty.bits) >> (64 - ty.bits) } else { bits.into() };
        return (value, bits);
    }
    let value = (raw % 17) as i64 - 8;
    let bits = (value as f32).to_bits();
    match (ty.kind, ty.bits) {
        (Kind::Brain, _) => (value, bits >> 16),
        (Kind::Float, 16) => (value, half::f16::from_f32(value as f32).to_bits().into()),
        (Kind::E5M2, _) => (value & !1, u32::from(half::f16::from_f32((value & !1) as f32).to_bits()) >> 8),
        (Kind::E4M3, _) => {
            // Of the exponent of f16, which is greater by 8, the lowest four bits.
            let half = u32::from(half::f16::from_f32(value as f32 / 256.0).to_bits());
            (value, half >> 8 & 0x80 | half >> 7 & 0x7F)
        }
        _ => (value, bits),
    }
}

type Place = fn(usize, usize, usize, usize) -> (usize, usize);

/// A matrix of so many rows and columns, and registers that hold it.
fn filled(numbers: &mut Numbers, ty: Type, [rows, columns]: [usize; 2], place: Place) -> (Vec<Vec<i64>>, Vec<Row>) {
    let elements = usize::from(32 / ty.bits);
    let count = rows * columns / 32 / elements;
    let (mut values, mut registers) = (vec![vec![i64::MAX; columns]; rows], vec![[0; 32]; count]);
    for (register, row) in registers.iter_mut().enumerate() {
        for (lane, bits) in row.iter_mut().enumerate() {
            for index in 0..elements {
                let (i, j) = place(lane, register, index, elements);
                assert_eq!(values[i][j], i64::MAX, "a place is held twice");
                let (value, part) = element(numbers, ty);
                values[i][j] = value;
                *bits |= part << (index * usize::from(ty.bits));
            }
        }
    }
    (values, registers)
}

/// What a lane's register holds of `c` and `d`.
fn place_of_sum(lane: usize, register: usize, index: usize, elements: usize) -> (usize, usize) {
    place_of_c(lane, register * elements + index)
}

fn check(shape: [u8; 3], types: [Type; 3]) {
    let mut numbers = Numbers(10);
    let [m, n, k] = shape.map(usize::from);
    let (a, a_rows) = filled(&mut numbers, types[0], [m, k], place_of_a);
    let (b, b_rows) = filled(&mut numbers, types[1], [k, n], place_of_b);
    let sum_type = if types[2] == Type::S32 { S8 } else { types[2] };
    let (c, c_rows) = match types[2] {
        Type::S32 => {
            let (values, _) = filled(&mut numbers, TF32, [m, n], place_of_sum);
            let rows = (0..m * n / 32).map(|register| {
                std::array::from_fn(|lane| {
                    let (i, j) = place_of_c(lane, register);
                    values[i][j] as u32
                })
            });
            let rows = rows.collect();
            (values, rows)
        }
        _ => filled(&mut numbers, sum_type, [m, n], place_of_sum),
    };
    let mut d = vec![[0; 32]; c_rows.len()];
    multiply(&product(shape, types, false), &refs(&a_rows), &refs(&b_rows), &refs(&c_rows), &mut d);
    let elements = usize::from(32 / types[2].bits);
    for (register, row) in d.iter().enumerate() {
        for (lane, &bits) in row.iter().enumerate() {
            for index in 0..elements {
                let (i, j) = place_of_sum(lane, register, index, elements);
                let expected = c[i][j] + (0..k).map(|l| a[i][l] * b[l][j]).sum::<i64>();
                let part = bits >> (16 * index);
                let found = match types[2] {
                    Type::S32 => i64::from(part as i32),
                    Type::F32 => f32::from_bits(part) as i64,
                    _ => half::f16::from_bits(part as u16).to_f32() as i64,
                };
                assert_eq!(found, expected, "{shape:?} {types:?} {i} {j}");
            }
        }
    }
}

#[test]
fn products_are_sums_of_products() {
    for k in [8, 16] {
        check([16, 8, k], [F16, F16, F16]);
        check([16, 8, k], [F16, F16, Type::F32]);
        check([16, 8, k], [BF16, BF16, Type::F32]);
    }
    for [a, b] in [[E4M3, E4M3], [E4M3, E5M2], [E5M2, E4M3], [E5M2, E5M2]] {
        for k in [16, 32] {
            check([16, 8, k], [a, b, F16]);
            check([16, 8, k], [a, b, Type::F32]);
        }
    }
    check([16, 8, 4], [TF32, TF32, Type::F32]);
    check([16, 8, 8], [TF32, TF32, Type::F32]);
    for [a, b] in [[S8, S8], [S8, U8], [U8, S8], [U8, U8]] {
        check([8, 8, 16], [a, b, Type::S32]);
        check([16, 8, 16], [a, b, Type::S32]);
        check([16, 8, 32], [a, b, Type::S32]);
    }
    for [a, b] in [[S4, S4], [S4, U4], [U4, S4], [U4, U4]] {
        check([8, 8, 32], [a, b, Type::S32]);
        check([16, 8, 32], [a, b, Type::S32]);
        check([16, 8, 64], [a, b, Type::S32]);
    }
}

/// The n-th element of a register as f32, and as tf32 is read.
fn single(register: u32, index: usize, ty: Type) -> f32 {
    let bits = register >> (index * usize::from(ty.bits));
    let small = |exponent: u32, bits: u32| {
        let fraction_bits = 7 - exponent;
        let (sign, magnitude) = (if bits & 0x80 == 0 { 1.0 } else { -1.0 }, bits & 0x7F);
        let (power, fraction) = ((magnitude >> fraction_bits) as i32, magnitude & ((1 << fraction_bits) - 1));
        let bias = (1 << (exponent - 1)) - 1;
        let part = fraction as f32 / (1 << fraction_bits) as f32;
        sign * if power == 0 { part * 2_f32.powi(1 - bias) } else { (1.0 + part) * 2_f32.powi(power - bias) }
    };
    match (ty.kind, ty.bits) {
        (Kind::Brain, _) => f32::from_bits(bits << 16),
        (Kind::Float, 16) => half::f16::from_bits(bits as u16).to_f32(),
        (Kind::E4M3, _) if bits & 0x7F == 0x7F => f32::NAN,
        (Kind::E4M3, _) => small(4, bits & 0xFF),
        (Kind::E5M2, _) if bits & 0x7F > 0x7C => f32::NAN,
        (Kind::E5M2, _) if bits & 0x7F == 0x7C => {
            if bits & 0x80 == 0 {
                f32::INFINITY
            } else {
                f32::NEG_INFINITY
            }
        }
        (Kind::E5M2, _) => small(5, bits & 0xFF),
        (Kind::Tf32, _) => f32::from_bits(bits & !0x1FFF),
        _ => f32::from_bits(bits),
    }
}

/// A lane's sum: place by place, one product after the other.
fn sum_of_place(what: &MatrixMultiply, [a, b, c]: [&[Row]; 3], [i, j]: [usize; 2]) -> f32 {
    let elements = usize::from(32 / what.a_type.bits);
    let find = |rows: &[Row], ty: Type, place: Place, at: (usize, usize), elements: usize| {
        let all = (0..rows.len()).flat_map(|register| (0..32).map(move |lane| (register, lane)));
        let mut all = all.flat_map(|(register, lane)| (0..elements).map(move |index| (register, lane, index)));
        let (register, lane, index) =
            all.find(|&(register, lane, index)| place(lane, register, index, elements) == at).expect("it is held");
        single(rows[register][lane], index, ty)
    };
    let mut sum = find(c, what.c_type, place_of_sum, (i, j), usize::from(32 / what.c_type.bits));
    for l in 0..usize::from(what.shape[2]) {
        sum += find(a, what.a_type, place_of_a, (i, l), elements) * find(b, what.b_type, place_of_b, (l, j), elements);
    }
    sum
}

#[test]
fn products_of_any_bits_are_those_of_each_place() {
    let mut numbers = Numbers(12);
    for (ty, depths) in [(F16, [8, 16]), (BF16, [8, 16]), (TF32, [4, 8]), (E4M3, [16, 32]), (E5M2, [16, 32])] {
        for (k, sum_type) in depths.into_iter().flat_map(|k| [(k, Type::F32), (k, F16)]) {
            let what = product([16, 8, k], [ty, ty, sum_type], false);
            let mut rows = |count: usize| -> Vec<Row> {
                (0..count).map(|_| std::array::from_fn(|_| numbers.next() as u32)).collect()
            };
            let count = |elements: usize, ty: Type| elements * usize::from(ty.bits) / 1024;
            let k = usize::from(k);
            let (a, b, c) = (rows(count(16 * k, ty)), rows(count(8 * k, ty)), rows(count(128, sum_type)));
            let mut d = vec![[0; 32]; c.len()];
            multiply(&what, &refs(&a), &refs(&b), &refs(&c), &mut d);
            let elements = usize::from(32 / sum_type.bits);
            for (register, row) in d.iter().enumerate() {
                for (lane, &bits) in row.iter().enumerate() {
                    for index in 0..elements {
                        let (i, j) = place_of_sum(lane, register, index, elements);
                        let sum = sum_of_place(&what, [&a, &b, &c], [i, j]);
                        let expected = match (sum_type.bits, sum.is_nan()) {
                            (16, true) => 0x7FFF,
                            (16, false) => half::f16::from_f32(sum).to_bits().into(),
                            (_, true) => 0x7FFF_FFFF,
                            (_, false) => sum.to_bits(),
                        };
                        let found = bits >> (16 * index) & if sum_type.bits == 16 { 0xFFFF } else { u32::MAX };
                        assert_eq!(found, expected, "{ty:?} {k} {sum_type:?} {i} {j}");
                    }
                }
            }
        }
    }
}

#[test]
fn products_of_doubles_are_sums_of_products() {
    for [m, k] in [[8, 4], [16, 4], [16, 8], [16, 16]] {
        let mut numbers = Numbers(11);
        let mut rows = |count: usize| -> Vec<[u64; 32]> {
            (0..count).map(|_| std::array::from_fn(|_| ((numbers.next() % 17) as f64 - 8.0).to_bits())).collect()
        };
        let (a, b, c) = (rows(m * k / 32), rows(k * 8 / 32), rows(m * 8 / 32));
        let what = product([m as u8, 8, k as u8], [Type::F64; 3], false);
        let found = multiply_doubles(&what, &a, &b, &c);
        let (mut left, mut right) = (vec![vec![f64::NAN; k]; m], vec![[f64::NAN; 8]; k]);
        for lane in 0..32 {
            for (register, row) in a.iter().enumerate() {
                let (i, l) = place_of_a(lane, register, 0, 1);
                left[i][l] = f64::from_bits(row[lane]);
            }
            for (register, row) in b.iter().enumerate() {
                let (l, j) = place_of_b(lane, register, 0, 1);
                right[l][j] = f64::from_bits(row[lane]);
            }
        }
        for lane in 0..32 {
            for (index, row) in c.iter().enumerate() {
                let (i, j) = place_of_c(lane, index);
                let expected = f64::from_bits(row[lane]) + (0..k).map(|l| left[i][l] * right[l][j]).sum::<f64>();
                assert_eq!(f64::from_bits(found[index][lane]), expected, "{m} {k} {i} {j}");
            }
        }
    }
}

#[test]
fn sums_of_integers_wrap_or_saturate() {
    let types = [U8, U8, Type::S32];
    let (ones, most) = ([[0x0101_0101; 32]; 2], [[i32::MAX as u32 - 3; 32]; 4]);
    for (saturate, expected) in [(false, (i32::MAX - 3).wrapping_add(16)), (true, i32::MAX)] {
        let mut d = [[0; 32]; 4];
        multiply(&product([16, 8, 16], types, saturate), &refs(&ones), &refs(&ones[..1]), &refs(&most), &mut d);
        assert!(d.iter().flatten().all(|&sum| sum as i32 == expected));
    }
}

#[test]
fn sums_of_floats_go_up_along_k() {
    // 1 is lost beside 2^24 unless it meets another one first.
    let mut a = [[0; 32]; 4];
    let mut b = [[0; 32]; 2];
    for (k, value) in [(0, 16_777_216.0_f32), (1, 1.0), (2, 1.0)] {
        let (lane, register) = (k % 4, k / 4);
        a[2 * register][lane] = value.to_bits();
        b[register][lane] = 1.0_f32.to_bits();
    }
    let mut d = [[0; 32]; 4];
    multiply(&product([16, 8, 8], [TF32, TF32, Type::F32], false), &refs(&a), &refs(&b), &[&[0; 32]; 4], &mut d);
    assert_eq!(f32::from_bits(d[0][0]), 16_777_216.0);
}

#[test]
fn a_transposed_matrix_is_held_by_columns() {
    for lane in 0..32 {
        let [plain, turned] = [false, true].map(|transpose| places(lane, transpose));
        assert_eq!(plain, [(lane / 4, lane % 4 * 2), (lane / 4, lane % 4 * 2 + 1)]);
        assert_eq!(turned, plain.map(|(row, column)| (column, row)));
    }
}
