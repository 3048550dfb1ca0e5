//! f16 and bf16 against tables of all their numbers: a result is looked for among them by exact integers.

use super::{BF16, F16, Numbers, done, rounded};
use crate::program::scalar::{Half, Modes, Rounding, ScalarOp};
use crate::program::types::Type;

const ROUNDINGS: [Rounding; 4] = [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up];

/// A finite number as a whole multiple of a power of two.
fn whole(bits: u64, ty: Type, unit: i32) -> i128 {
    let fraction_bits = if ty == F16 { 10 } else { 7 };
    let least = if ty == F16 { -24 } else { -133 };
    let (field, fraction) =
        ((bits >> fraction_bits & (0x7FFF >> fraction_bits)) as i32, bits & ((1 << fraction_bits) - 1));
    let significand = i128::from(fraction | u64::from(field != 0) << fraction_bits);
    // Numbers far away need only be on their side.
    let magnitude = match field.max(1) - 1 + least - unit {
        shift @ 0..100 => significand << shift,
        shift if shift < 0 => significand >> -shift,
        _ => i128::MAX / 4,
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// The bits of an exact multiple of a power of two, found between its neighbours. Zero is positive.
fn nearest(exact: i128, ty: Type, unit: i32, rounding: Rounding) -> u64 {
    let sign = u64::from(exact < 0) << 15;
    let infinity = if ty == F16 { 0x7C00 } else { 0x7F80 };
    // The greatest number that is not above it; what follows the greatest one counts as if there were one more.
    let magnitude = exact.abs();
    let (mut below, mut end) = (0, infinity);
    while end - below > 1 {
        let middle = (below + end) / 2;
        if whole(middle, ty, unit) <= magnitude { below = middle } else { end = middle }
    }
    let low = whole(below, ty, unit);
    if low == magnitude {
        return if exact == 0 { 0 } else { sign | below };
    }
    let step = if end == infinity { low - whole(below - 1, ty, unit) } else { whole(end, ty, unit) - low };
    let twice = 2 * (magnitude - low);
    let up = match rounding {
        Rounding::Nearest => twice > step || twice == step && below & 1 == 1,
        Rounding::NearestAway => twice >= step,
        Rounding::Zero => false,
        Rounding::Down => exact < 0,
        Rounding::Up => exact > 0,
    };
    // Beyond the greatest number only half a step is rounded down.
    sign | (below + u64::from(up))
}

fn finite(numbers: &mut Numbers, ty: Type) -> u64 {
    loop {
        let bits = numbers.next() & 0xFFFF;
        // Of bf16 only exponents whose exact sums fit into 128 bits.
        let exponent = bits >> 7 & 0xFF;
        let fits = if ty == F16 { bits & 0x7C00 != 0x7C00 } else { (117..137).contains(&exponent) };
        if fits {
            return bits;
        }
    }
}

#[test]
fn sums_and_products_of_halves_are_rounded_once() {
    for (ty, unit) in [(F16, -48), (BF16, -40)] {
        let mut numbers = Numbers(1);
        for round in 0..40_000 {
            let [a, b, c] = [0; 3].map(|_| finite(&mut numbers, ty));
            let rounding = ROUNDINGS[round % 4];
            let [x, y, z] = [a, b, c].map(|bits| whole(bits, ty, unit / 2));
            let cases = [
                (ScalarOp::Add, (x + y) << (-unit / 2)),
                (ScalarOp::Subtract, (x - y) << (-unit / 2)),
                (ScalarOp::Multiply(Half::Low), x * y),
                (ScalarOp::MultiplyAdd(Half::Low), x * y + (z << (-unit / 2))),
            ];
            for (op, exact) in cases {
                let found = done(op, ty, rounded(rounding), &[a, b, c]);
                // The sign of zero is looked at elsewhere.
                // Numbers near the least sum are multiples of a finer unit.
                let expected = nearest(exact << 10, ty, unit - 10, rounding);
                assert!(
                    found == expected || exact == 0 && found & 0x7FFF == 0,
                    "{op:?} {ty:?} {rounding:?} {a:x} {b:x} {c:x}"
                );
            }
        }
    }
}

#[test]
fn a_sum_far_below_the_last_bit_still_rounds() {
    let fma = |a, b, c| done(ScalarOp::MultiplyAdd(Half::Low), F16, Modes::PLAIN, &[a, b, c]);
    // 2049 is in the middle of 2048 and 2050, of which the first is even.
    assert_eq!(fma(0x6800, 0x3C00, 0x3C00), 0x6800);
    assert_eq!(fma(0x6800, 0x3C00, 0x3C01), 0x6801);
    let brain = |a, b, c| done(ScalarOp::MultiplyAdd(Half::Low), BF16, Modes::PLAIN, &[a, b, c]);
    // 1.0078125 * 1.5 is in the middle of two numbers too; what is added is 133 bits below and decides.
    assert_eq!(brain(0x3F81, 0x3FC0, 0x0000), 0x3FC2);
    assert_eq!(brain(0x3F81, 0x3FC0, 0x0001), 0x3FC2);
    assert_eq!(brain(0x3F81, 0x3FC0, 0x8001), 0x3FC1);
}

#[test]
fn modes_of_halves() {
    let fma = ScalarOp::MultiplyAdd(Half::Low);
    let (one, minus_one, nan, infinity) = (0x3C00, 0xBC00, 0x7E01, 0x7C00);
    let modes = |relu, saturate, flush| Modes { relu, saturate, flush, ..Modes::PLAIN };
    let cases = [
        (fma, modes(true, false, false), [minus_one, one, 0], 0),
        (fma, modes(true, false, false), [minus_one, 0, 0x8000], 0),
        (fma, modes(true, false, false), [nan, one, 0], 0x7FFF),
        (fma, modes(false, true, false), [one, one, one], one),
        (fma, modes(false, true, false), [nan, one, one], 0),
        (fma, modes(false, true, false), [minus_one, one, 0], 0),
        (fma, Modes::PLAIN, [infinity, 0, one], 0x7FFF),
        (ScalarOp::Add, modes(false, false, true), [0x0001, 0x0001, 0], 0),
        (ScalarOp::Add, modes(false, false, true), [0x8001, 0x8000, 0], 0x8000),
        (ScalarOp::Add, Modes::PLAIN, [0x0001, 0x0001, 0], 2),
        (ScalarOp::Add, Modes::PLAIN, [0x7BFF, 0x7BFF, 0], infinity),
        (ScalarOp::Add, rounded(Rounding::Zero), [0x7BFF, 0x7BFF, 0], 0x7BFF),
        (ScalarOp::Add, rounded(Rounding::Down), [one, minus_one, 0], 0x8000),
        (ScalarOp::Minimum, Modes::PLAIN, [0, 0x8000, 0], 0x8000),
        (ScalarOp::Maximum, Modes::PLAIN, [0x8000, 0, 0], 0),
        (ScalarOp::Minimum, Modes::PLAIN, [nan, one, 0], one),
        (ScalarOp::Minimum, Modes { propagate_nan: true, ..Modes::PLAIN }, [nan, one, 0], 0x7FFF),
        (ScalarOp::Maximum, Modes { xor_sign: true, ..Modes::PLAIN }, [minus_one, 0x4000, 0], 0xC000),
        (ScalarOp::Minimum, Modes { xor_sign: true, ..Modes::PLAIN }, [minus_one, 0xC000, 0], one),
    ];
    for (op, modes, values, expected) in cases {
        assert_eq!(done(op, F16, modes, &values), expected, "{op:?} {modes:?} {values:x?}");
    }
}

#[test]
fn packed_halves_are_two_of_them() {
    let (pair, brains) = (Type { packed: true, ..F16 }, Type { packed: true, ..BF16 });
    assert_eq!(done(ScalarOp::Add, pair, Modes::PLAIN, &[0x3C00_4000, 0x3C00_3C00]), 0x4000_4200);
    assert_eq!(done(ScalarOp::Negate, brains, Modes::PLAIN, &[0x3F80_BF80]), 0xBF80_3F80);
    let short = |kind| Type { kind, bits: 16, packed: true };
    let add = |kind, a, b| done(ScalarOp::Add, short(kind), Modes::PLAIN, &[a, b]);
    assert_eq!(add(crate::program::types::Kind::Unsigned, 0xFFFF_0001, 0x0001_FFFF), 0);
    let least =
        done(ScalarOp::Minimum, short(crate::program::types::Kind::Signed), Modes::PLAIN, &[0xFFFF_0001, 0x0001_FFFF]);
    assert_eq!(least, 0xFFFF_FFFF);
}
