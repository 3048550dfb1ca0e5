//! Conversions at their edges, and small floating formats against tables of all their numbers.

use super::{BF16, F16, Numbers, done, rounded};
use crate::program::scalar::{Modes, Rounding, ScalarOp, SmallFloat};
use crate::program::types::{Kind, Type, mask};

fn convert(from: Type, to: Type, modes: Modes, value: u64) -> u64 {
    done(ScalarOp::Convert { to, to_integer: false }, from, modes, &[value])
}

const S8: Type = Type::new(Kind::Signed, 8);
const U8: Type = Type::new(Kind::Unsigned, 8);
const U16: Type = Type::new(Kind::Unsigned, 16);
const TF32: Type = Type::new(Kind::Tf32, 32);

#[test]
fn integers_are_extended_cut_and_saturated() {
    let saturating = Modes { saturate: true, ..Modes::PLAIN };
    for (from, to, modes, value, expected) in [
        (S8, Type::S32, Modes::PLAIN, 0x80, u64::MAX - 0x7F),
        (U8, Type::S32, Modes::PLAIN, 0x80, 0x80),
        (Type::U32, S8, Modes::PLAIN, 0x1FF, u64::MAX),
        (Type::U32, U8, Modes::PLAIN, 0x1FF, 0xFF),
        (Type::S32, U8, saturating, mask(32), 0),
        (Type::S32, S8, saturating, 200, 127),
        (Type::U64, Type::S32, saturating, u64::MAX, 0x7FFF_FFFF),
        (Type::S64, U16, saturating, 70_000, 0xFFFF),
    ] {
        assert_eq!(convert(from, to, modes, value), expected, "{from:?} {to:?} {value:x}");
    }
}

#[test]
fn integers_are_rounded_to_floats_in_every_direction() {
    let roundings = [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up];
    let all = |from, to, value| roundings.map(|rounding| convert(from, to, rounded(rounding), value));
    assert_eq!(all(Type::U32, Type::F32, 0x0100_0001), [0x4B80_0000, 0x4B80_0000, 0x4B80_0000, 0x4B80_0001]);
    assert_eq!(all(Type::S32, Type::F32, 0xFEFF_FFFF), [0xCB80_0000, 0xCB80_0000, 0xCB80_0001, 0xCB80_0000]);
    assert_eq!(
        all(Type::U64, Type::F64, u64::MAX),
        [0x43F0 << 48, 0x43EF_FFFF_FFFF_FFFF, 0x43EF_FFFF_FFFF_FFFF, 0x43F0 << 48]
    );
    assert_eq!(all(Type::U32, F16, 65_520), [0x7C00, 0x7BFF, 0x7BFF, 0x7C00]);
    assert_eq!(all(Type::S32, BF16, 257), [0x4380, 0x4380, 0x4380, 0x4381]);
    let mut numbers = Numbers(8);
    for _ in 0..20_000 {
        let value = numbers.next() >> (numbers.next() % 64);
        assert_eq!(convert(Type::U64, Type::F32, Modes::PLAIN, value), u64::from((value as f32).to_bits()));
        assert_eq!(convert(Type::S64, Type::F64, Modes::PLAIN, value), (value as i64 as f64).to_bits());
    }
}

#[test]
fn floats_become_integers_at_their_edges() {
    let nan = 0x7FC0_0000;
    let whole = |to, rounding, value: f32| convert(Type::F32, to, rounded(rounding), value.to_bits().into());
    assert_eq!(convert(Type::F32, Type::S32, Modes::PLAIN, nan), 0);
    assert_eq!(convert(Type::F32, Type::U64, Modes::PLAIN, nan), 1 << 63);
    assert_eq!(convert(Type::F64, Type::U32, Modes::PLAIN, 0x7FF8 << 48), 1 << 31);
    assert_eq!(convert(F16, Type::S32, Modes::PLAIN, 0x7E00), 0);
    assert_eq!(whole(Type::S32, Rounding::Zero, 3e9), 0x7FFF_FFFF);
    assert_eq!(whole(Type::U32, Rounding::Zero, -1.0), 0);
    assert_eq!(whole(S8, Rounding::Zero, -1e9), u64::MAX - 0x7F);
    for (rounding, expected) in
        [(Rounding::Nearest, -2), (Rounding::Zero, -2), (Rounding::Down, -3), (Rounding::Up, -2)]
    {
        assert_eq!(whole(Type::S32, rounding, -2.5) as i64, expected);
    }
    let round = |rounding, value: f32| {
        let op = ScalarOp::Convert { to: Type::F32, to_integer: true };
        f32::from_bits(done(op, Type::F32, rounded(rounding), &[value.to_bits().into()]) as u32)
    };
    assert_eq!(
        (round(Rounding::Nearest, 2.5), round(Rounding::Up, 2.1), round(Rounding::Down, -2.1)),
        (2.0, 3.0, -3.0)
    );
}

#[test]
fn floats_become_narrower_in_one_step() {
    // In f32 this is in the middle of two numbers of f16; in f64 it is not.
    let just_above = 1.0 + 2_f64.powi(-11) + 2_f64.powi(-40);
    assert_eq!(convert(Type::F64, F16, Modes::PLAIN, just_above.to_bits()), 0x3C01);
    assert_eq!(convert(Type::F64, BF16, Modes::PLAIN, (1.0 + 2_f64.powi(-8) + 2_f64.powi(-50)).to_bits()), 0x3F81);
    for (modes, value, expected) in [
        (rounded(Rounding::NearestAway), 0x3F80_1000, 0x3F80_2000),
        (rounded(Rounding::Nearest), 0x3F80_1000, 0x3F80_0000),
        (rounded(Rounding::Zero), 0x3F80_1FFF, 0x3F80_0000),
        (rounded(Rounding::Nearest), 0x7F80_0001, 0x7FFF_FFFF),
        (Modes { finite: true, ..Modes::PLAIN }, 0x7F7F_FFFF, 0x7F7F_E000),
    ] {
        assert_eq!(convert(Type::F32, TF32, modes, value), expected, "{value:x}");
    }
    for bits in 0..=0xFFFF_u64 {
        let single = convert(F16, Type::F32, Modes::PLAIN, bits);
        let same = half::f16::from_bits(bits as u16).to_f32();
        assert!(f32::from_bits(single as u32) == same || same.is_nan() && single == 0x7FFF_FFFF);
        let back = convert(Type::F32, F16, Modes::PLAIN, single);
        assert_eq!(back, if bits & 0x7FFF > 0x7C00 { 0x7FFF } else { bits });
    }
    let mut numbers = Numbers(9);
    for _ in 0..100_000 {
        let single = numbers.next() as u32;
        let value = f32::from_bits(single);
        if !value.is_nan() {
            let found = convert(Type::F32, F16, Modes::PLAIN, single.into());
            assert_eq!(found, u64::from(half::f16::from_f32(value).to_bits()), "{value:e}");
            let found = convert(Type::F32, BF16, Modes::PLAIN, single.into());
            assert_eq!(found, u64::from(half::bf16::from_f32(value).to_bits()), "{value:e}");
        }
    }
}

#[test]
fn pairs_have_their_first_value_above() {
    let pair = Type { packed: true, ..F16 };
    let two = |modes, a: f32, b: f32| {
        done(ScalarOp::ConvertPair { to: pair }, Type::F32, modes, &[a.to_bits().into(), b.to_bits().into()])
    };
    assert_eq!(two(Modes::PLAIN, 1.0, 2.0), 0x3C00_4000);
    assert_eq!(two(Modes { relu: true, ..Modes::PLAIN }, -1.0, 2.0), 0x0000_4000);
    assert_eq!(two(Modes { finite: true, ..Modes::PLAIN }, 1e9, f32::NEG_INFINITY), 0x7BFF_FBFF);
    let pack = |to, values: &[u64]| done(ScalarOp::ConvertPack { to }, Type::S32, Modes::PLAIN, values);
    assert_eq!(pack(U16, &[70_000, mask(32), 0]), 0xFFFF_0000);
    assert_eq!(pack(U8, &[300, 5, 0xAAAA_BBBB]), 0xBBBB_FF05);
    assert_eq!(pack(Type::new(Kind::Signed, 4), &[mask(32), 100, 0x12]), 0x12F7);
}

/// A finite number of eight bits.
fn small(byte: u64, exponent_bits: u32) -> f32 {
    let fraction_bits = 7 - exponent_bits;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let (field, fraction) = ((byte & 0x7F) >> fraction_bits, byte & ((1 << fraction_bits) - 1));
    let scale = 2_f32.powi(field.max(1) as i32 - bias - fraction_bits as i32);
    let magnitude = (fraction | u64::from(field != 0) << fraction_bits) as f32 * scale;
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

#[test]
fn bytes_are_the_nearest_of_all_of_their_format() {
    let finite = Modes { finite: true, ..Modes::PLAIN };
    for (format, exponent_bits, end) in [(SmallFloat::E4M3, 4, 0x7F), (SmallFloat::E5M2, 5, 0x7C)] {
        let to = |value: f32| done(ScalarOp::ConvertToSmall(format), Type::F32, finite, &[0, value.to_bits().into()]);
        let pair = Type { packed: true, ..F16 };
        for byte in 0..end {
            let value = small(byte, exponent_bits);
            assert_eq!((to(value), to(-value)), (byte, byte | 0x80));
            let wide = done(ScalarOp::ConvertFromSmall(format), pair, Modes::PLAIN, &[byte << 8]);
            assert_eq!(half::f16::from_bits((wide >> 16) as u16).to_f32(), value);
            if byte + 1 < end {
                let next = small(byte + 1, exponent_bits);
                let middle = f32::midpoint(value, next);
                assert_eq!(to(middle), byte + (byte & 1), "ties go to even ones");
                assert_eq!((to(middle.next_down()), to(middle.next_up())), (byte, byte + 1));
            }
        }
        assert_eq!((to(1e9), to(f32::NEG_INFINITY), to(f32::NAN)), (end - 1, 0x80 | (end - 1), 0x7F));
        let from_pair = done(ScalarOp::ConvertToSmall(format), pair, finite, &[0x3C00_C000]);
        assert_eq!((small(from_pair >> 8, exponent_bits), small(from_pair & 0xFF, exponent_bits)), (1.0, -2.0));
    }
    let nan = done(ScalarOp::ConvertFromSmall(SmallFloat::E4M3), Type { packed: true, ..F16 }, Modes::PLAIN, &[0x7F]);
    assert_eq!(nan, 0x7FFF);
}
