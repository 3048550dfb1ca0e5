//! Directed rounding of f32 and f64: a result and its neighbour must hold the exact value between them.

use super::{Numbers, done, rounded};
use crate::program::scalar::{Half, Modes, Rounding, ScalarOp};
use crate::program::types::Type;

const FMA: ScalarOp = ScalarOp::MultiplyAdd(Half::Low);
const MULTIPLY: ScalarOp = ScalarOp::Multiply(Half::Low);

/// A number of f64 times a power of two as a whole number, which it must be.
fn scaled(value: f64, by: i32) -> i128 {
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7FF) as i32;
    let significand = i128::from(bits & ((1 << 52) - 1) | u64::from(field != 0) << 52);
    let shift = field.max(1) - 1075 + by;
    let magnitude = if shift >= 0 {
        assert!(shift < 127 - 53, "{value} is too great");
        significand << shift
    } else {
        assert!(shift > -127 && significand & ((1 << -shift) - 1) == 0, "{value} is too small");
        significand >> -shift
    };
    if value < 0.0 { -magnitude } else { magnitude }
}

/// Checks a result of each rounding by how it compares with the exact value: `order` tells whether a number is above.
fn check(results: [f64; 4], next: impl Fn(f64) -> f64, order: impl Fn(f64) -> std::cmp::Ordering, what: &str) {
    let [nearest, zero, down, up] = results;
    assert!(order(down).is_le() && order(up).is_ge(), "{what}: {down:e} {up:e}");
    if order(down).is_eq() {
        assert!(nearest == down && zero == down && up == down, "{what}");
        return;
    }
    assert!(next(down) == up, "{what}: {down:e} {up:e} are no neighbours");
    assert!(zero == if down < 0.0 { up } else { down }, "{what}");
    assert!(nearest == down || nearest == up, "{what}");
}

const ROUNDINGS: [Rounding; 4] = [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up];

/// A whole number of so many bits, either sign.
fn number(numbers: &mut Numbers, bits: u32) -> f64 {
    let value = (numbers.next() >> (64 - bits)) as f64;
    if numbers.next() & 1 == 0 { value } else { -value }
}

fn doubles(op: ScalarOp, values: &[f64]) -> [f64; 4] {
    let bits: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
    ROUNDINGS.map(|rounding| f64::from_bits(done(op, Type::F64, rounded(rounding), &bits)))
}

fn singles(op: ScalarOp, values: &[f32]) -> [f64; 4] {
    let bits: Vec<u64> = values.iter().map(|value| u64::from(value.to_bits())).collect();
    ROUNDINGS.map(|rounding| f64::from(f32::from_bits(done(op, Type::F32, rounded(rounding), &bits) as u32)))
}

#[test]
fn directed_doubles_are_next_to_the_exact_value() {
    let mut numbers = Numbers(3);
    for _ in 0..20_000 {
        let (a, b) = (number(&mut numbers, 53), number(&mut numbers, 53) / 2_f64.powi((numbers.next() % 60) as i32));
        let c = number(&mut numbers, 53) * 2_f64.powi((numbers.next() % 60) as i32 - 40);
        let sum = scaled(a, 60) + scaled(b, 60);
        check(doubles(ScalarOp::Add, &[a, b]), f64::next_up, |found| scaled(found, 60).cmp(&sum), "add");
        // With exponents of their own, so that a whole product has 106 bits.
        let (x, y) = (number(&mut numbers, 53), number(&mut numbers, 53));
        let product = scaled(x, 0) * scaled(y, 0);
        check(doubles(MULTIPLY, &[x, y]), f64::next_up, |found| scaled_wide(found).cmp(&product), "mul");
        let c = c.trunc();
        let sum = product + scaled(c, 0);
        check(doubles(FMA, &[x, y, c]), f64::next_up, |found| scaled_fraction(found, sum), "fma");
    }
}

/// A whole number of up to 127 bits.
fn scaled_wide(value: f64) -> i128 {
    let bits = value.to_bits();
    let shift = (bits >> 52 & 0x7FF) as i32 - 1075;
    assert!((-52..74).contains(&shift) || value == 0.0);
    value as i128
}

/// How a number, which may have a fraction, compares with a whole number.
fn scaled_fraction(value: f64, whole: i128) -> std::cmp::Ordering {
    let floor = value.floor();
    (floor as i128).cmp(&whole).then(if value > floor {
        std::cmp::Ordering::Greater
    } else {
        std::cmp::Ordering::Equal
    })
}

#[test]
fn directed_quotients_and_roots_are_next_to_the_exact_value() {
    let mut numbers = Numbers(4);
    for _ in 0..20_000 {
        let (a, b) = (number(&mut numbers, 20).abs() + 1.0, number(&mut numbers, 20).abs() + 1.0);
        let compare = |found: f64| (scaled(found, 73) * b as i128).cmp(&((a as i128) << 73));
        check(doubles(ScalarOp::Divide, &[a, b]), f64::next_up, compare, "div");
        check(
            doubles(ScalarOp::Reciprocal, &[b]),
            f64::next_up,
            |found| (scaled(found, 73) * b as i128).cmp(&(1 << 73)),
            "rcp",
        );
        let compare = |found: f64| {
            let root = scaled(found, 52);
            (root * root).cmp(&((a as i128) << 104))
        };
        check(doubles(ScalarOp::SquareRoot, &[a]), f64::next_up, compare, "sqrt");
        // The same of f32, whose products f64 has exactly.
        let next = |value: f64| f64::from((value as f32).next_up());
        let (x, y) = (number(&mut numbers, 24) as f32, number(&mut numbers, 24).abs() as f32 + 1.0);
        let (wide_x, wide_y) = (f64::from(x), f64::from(y));
        let order = |exact: f64| move |found: f64| found.partial_cmp(&exact).expect("numbers");
        check(singles(MULTIPLY, &[x, y]), next, order(wide_x * wide_y), "mul.f32");
        check(singles(ScalarOp::Subtract, &[x, y]), next, order(wide_x - wide_y), "sub.f32");
        let compare = |found: f64| (found * wide_y).partial_cmp(&wide_x).expect("numbers");
        check(singles(ScalarOp::Divide, &[x, y]), next, compare, "div.f32");
        let compare = |found: f64| (found * found).partial_cmp(&wide_y).expect("numbers");
        check(singles(ScalarOp::SquareRoot, &[y]), next, compare, "sqrt.f32");
        let z = number(&mut numbers, 24) as f32;
        let sum = (x as i64) * (y as i64) + z as i64;
        check(singles(FMA, &[x, y, z]), next, |found| scaled_fraction(found, sum.into()), "fma.f32");
    }
}

#[test]
fn what_is_below_all_numbers_goes_where_it_is_sent() {
    let tiny = f64::from_bits(1);
    assert_eq!(doubles(MULTIPLY, &[tiny, tiny]), [0.0, 0.0, 0.0, tiny]);
    assert_eq!(doubles(MULTIPLY, &[tiny, -tiny]), [0.0, 0.0, -tiny, 0.0]);
    assert_eq!(doubles(FMA, &[tiny, tiny, 1.0]), [1.0, 1.0, 1.0, 1.0_f64.next_up()]);
    assert_eq!(doubles(FMA, &[tiny, -tiny, 1.0]), [1.0, 1.0_f64.next_down(), 1.0_f64.next_down(), 1.0]);
    assert_eq!(doubles(ScalarOp::Add, &[f64::MAX, 1.0]), [f64::MAX, f64::MAX, f64::MAX, f64::INFINITY]);
    assert_eq!(doubles(ScalarOp::Add, &[f64::MAX, f64::MAX]), [f64::INFINITY, f64::MAX, f64::MAX, f64::INFINITY]);
    assert_eq!(doubles(ScalarOp::Divide, &[tiny, 2.0]), [0.0, 0.0, 0.0, tiny]);
    assert_eq!(doubles(ScalarOp::SquareRoot, &[tiny]), [2_f64.powi(-537); 4]);
    let least = f64::from(f32::from_bits(1));
    assert_eq!(singles(MULTIPLY, &[f32::from_bits(1), f32::from_bits(1)]), [0.0, 0.0, 0.0, least]);
    assert_eq!(singles(ScalarOp::Add, &[1.0, -f32::from_bits(1)])[1..3], [f64::from(1.0_f32.next_down()); 2]);
}

#[test]
fn zero_keeps_its_sign_by_the_rounding() {
    let bits =
        |rounding, a: f64, b: f64| done(ScalarOp::Add, Type::F64, rounded(rounding), &[a.to_bits(), b.to_bits()]);
    let minus = 1 << 63;
    assert_eq!(ROUNDINGS.map(|rounding| bits(rounding, 1.0, -1.0)), [0, 0, minus, 0]);
    assert_eq!(ROUNDINGS.map(|rounding| bits(rounding, -0.0, -0.0)), [minus; 4]);
    assert_eq!(ROUNDINGS.map(|rounding| bits(rounding, 0.0, -0.0)), [0, 0, minus, 0]);
    let single = |rounding, a: u64, b: u64| done(ScalarOp::Add, Type::F32, rounded(rounding), &[a, b]);
    assert_eq!(ROUNDINGS.map(|rounding| single(rounding, 0x3F80_0000, 0xBF80_0000)), [0, 0, 0x8000_0000, 0]);
}

#[test]
fn what_is_no_number_has_one_form() {
    let (nan, quiet) = (0x7F80_0001, 0x7FFF_FFFF);
    for op in [ScalarOp::Add, ScalarOp::Negate, ScalarOp::Absolute, ScalarOp::SquareRoot, FMA] {
        assert_eq!(done(op, Type::F32, Modes::PLAIN, &[nan, 0, 0]), quiet, "{op:?}");
    }
    let add = |a, b| done(ScalarOp::Add, Type::F64, Modes::PLAIN, &[a, b]);
    let infinity = f64::INFINITY.to_bits();
    assert_eq!(add(infinity, infinity | 1 << 63), 0xFFF8 << 48);
    assert_eq!(add(infinity | 5, 0), infinity | 1 << 51 | 5);
    assert_eq!(add(infinity | 5, infinity | 6), infinity | 1 << 51 | 6);
    let saturating = Modes { saturate: true, ..Modes::PLAIN };
    assert_eq!(done(ScalarOp::Add, Type::F32, saturating, &[nan, 0]), 0);
}
