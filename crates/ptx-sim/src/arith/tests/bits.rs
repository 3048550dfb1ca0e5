//! Integers against their definitions, bit by bit.

use super::{Numbers, done};
use crate::program::scalar::{Half, Modes, PermuteMode, ScalarOp};
use crate::program::types::{Kind, Type, mask};

fn plain(op: ScalarOp, ty: Type, values: &[u64]) -> u64 {
    done(op, ty, Modes::PLAIN, values)
}

/// Values with many edges, as a register of so many bits holds them.
fn value(numbers: &mut Numbers, bits: u8) -> u64 {
    let raw = match numbers.next() % 4 {
        0 => numbers.next() % 72,
        1 => !(numbers.next() % 72),
        2 => 1 << (numbers.next() % 64),
        _ => numbers.next(),
    };
    raw & mask(bits)
}

const TYPES: [Type; 4] = [Type::U32, Type::S32, Type::U64, Type::S64];

#[test]
fn fields_are_taken_and_put_bit_by_bit() {
    let mut numbers = Numbers(5);
    for _ in 0..20_000 {
        for ty in TYPES {
            let (a, b) = (value(&mut numbers, ty.bits), value(&mut numbers, ty.bits));
            let (from, count) = (numbers.next() % 80, numbers.next() % 80);
            let highest = u64::from(ty.bits) - 1;
            let bit = |value: u64, place: u64| value >> place & 1;
            let sign = if ty.is_signed() && count > 0 { bit(a, (from + count - 1).min(highest)) } else { 0 };
            let taken = (0..=highest).fold(0, |taken, place| {
                let inside = place < count && from + place <= highest;
                taken | (if inside { bit(a, from + place) } else { sign }) << place
            });
            assert_eq!(plain(ScalarOp::ExtractBits, ty, &[a, from, count]), taken, "{ty:?} {a:x} {from} {count}");
            let put = (0..=highest).fold(0, |put, place| {
                let inside = place >= from && place - from < count;
                put | (if inside { bit(a, place - from) } else { bit(b, place) }) << place
            });
            let bits = Type::new(Kind::Bits, ty.bits);
            assert_eq!(
                plain(ScalarOp::InsertBits, bits, &[a, b, from, count]),
                put,
                "{ty:?} {a:x} {b:x} {from} {count}"
            );
        }
    }
    // Of 32 bits only eight of the place count.
    assert_eq!(plain(ScalarOp::ExtractBits, Type::U32, &[0xABCD, 0x104, 0x208]), 0xBC);
    assert_eq!(plain(ScalarOp::ExtractBits, Type::U64, &[0xABCD, 0x104, 0x208]), 0);
}

#[test]
fn shifts_clamp_and_wrap() {
    let mut numbers = Numbers(6);
    for _ in 0..20_000 {
        let (low, high, by) = (value(&mut numbers, 32), value(&mut numbers, 32), value(&mut numbers, 32));
        for wrap in [false, true] {
            let count = if wrap { by & 31 } else { by.min(32) };
            let wide = u128::from(low) | u128::from(high) << 32;
            let left = (wide << count >> 32) as u64 & mask(32);
            let right = (wide >> count) as u64 & mask(32);
            assert_eq!(plain(ScalarOp::FunnelShift { left: true, wrap }, Type::B32, &[low, high, by]), left);
            assert_eq!(plain(ScalarOp::FunnelShift { left: false, wrap }, Type::B32, &[low, high, by]), right);
        }
        for ty in TYPES {
            let a = value(&mut numbers, ty.bits);
            let exact = if ty.is_signed() { super::super::integer::integer(a, ty) } else { a.into() };
            let count = by.min(100) as u32;
            assert_eq!(
                plain(ScalarOp::ShiftLeft, ty, &[a, by]),
                (u128::from(a) << count.min(64)) as u64 & mask(ty.bits)
            );
            assert_eq!(plain(ScalarOp::ShiftRight, ty, &[a, by]), (exact >> count) as u64 & mask(ty.bits));
        }
    }
}

#[test]
fn masks_and_extensions() {
    let mask_of = |from, count, wrap| plain(ScalarOp::BitMask { wrap }, Type::B32, &[from, count]);
    for (from, count, clamped, wrapped) in [
        (0, 0, 0, 0),
        (3, 5, 0xF8, 0xF8),
        (28, 8, 0xF000_0000, 0xF000_0000),
        (0, 32, mask(32), 0),
        (32, 4, 0, 0xF),
        (33, 33, 0, 2),
        (31, 1, 1 << 31, 1 << 31),
    ] {
        assert_eq!((mask_of(from, count, false), mask_of(from, count, true)), (clamped, wrapped), "{from} {count}");
    }
    let extend = |ty, value, from, wrap| plain(ScalarOp::ExtendFrom { wrap }, ty, &[value, from]);
    for (value, from, clamped, wrapped) in [
        (0xFF, 4, 0xFFFF_FFFF, 0xFFFF_FFFF),
        (0x17, 4, 7, 7),
        (0xFF, 0, 0, 0),
        (0x8000_00FF, 32, 0x8000_00FF, 0),
        (0xFF, 36, 0xFF, 0xFFFF_FFFF),
    ] {
        let found = (extend(Type::S32, value, from, false), extend(Type::S32, value, from, true));
        assert_eq!(found, (clamped, wrapped), "{value:x} {from}");
    }
    assert_eq!(extend(Type::U32, 0xFF, 4, false), 0xF);
}

#[test]
fn bytes_are_permuted_by_every_mode() {
    let (a, b) = (0x8302_0180, 0x0706_8504);
    let permute = |mode, selector| plain(ScalarOp::Permute(mode), Type::B32, &[a, b, selector]);
    let cases = [
        (PermuteMode::Index, 0x3210, 0x8302_0180),
        (PermuteMode::Index, 0x7654, 0x0706_8504),
        (PermuteMode::Index, 0xFDB8, 0x00FF_FFFF),
        (PermuteMode::Forward4, 1, 0x0483_0201),
        (PermuteMode::Forward4, 7, 0x0685_0483),
        (PermuteMode::Backward4, 0, 0x8506_0780),
        (PermuteMode::Backward4, 2, 0x0780_0102),
        (PermuteMode::Replicate8, 3, 0x8383_8383),
        (PermuteMode::EdgeLeft, 1, 0x8302_0101),
        (PermuteMode::EdgeRight, 1, 0x0101_0180),
        (PermuteMode::Replicate16, 1, 0x8302_8302),
        (PermuteMode::Replicate16, 2, 0x0180_0180),
    ];
    for (mode, selector, expected) in cases {
        assert_eq!(permute(mode, selector), expected, "{mode:?} {selector:x}");
    }
}

#[test]
fn every_table_of_three_bits() {
    let (a, b, c) = (0xF0F0_1234, 0xCCCC_5678, 0xAAAA_9ABC);
    for table in 0..=255_u8 {
        let expected = (0..32).fold(0, |found, place| {
            let row = (a >> place & 1) << 2 | (b >> place & 1) << 1 | c >> place & 1;
            found | (u64::from(table) >> row & 1) << place
        });
        assert_eq!(plain(ScalarOp::Lookup3(table), Type::B32, &[a, b, c]), expected);
    }
}

#[test]
fn places_of_bits() {
    let highest = |ty, value, as_shift| plain(ScalarOp::FindHighest { as_shift }, ty, &[value]);
    let none = mask(32);
    for (ty, value, place, shift) in [
        (Type::U32, 0, none, none),
        (Type::U32, 1, 0, 31),
        (Type::U32, 0x8000_0000, 31, 0),
        (Type::S32, 0xFFFF_FFFF, none, none),
        (Type::S32, 0x8000_0000, 30, 1),
        (Type::S32, 0xFFFF_FFFE, 0, 31),
        (Type::U64, 1 << 40, 40, 23),
        (Type::S64, 1 << 63, 62, 1),
    ] {
        assert_eq!((highest(ty, value, false), highest(ty, value, true)), (place, shift), "{ty:?} {value:x}");
    }
    let nth = |value, base, offset: i32| plain(ScalarOp::FindNth, Type::B32, &[value, base, u64::from(offset as u32)]);
    for (value, base, offset, place) in [
        (0b1010, 1, 0, 1),
        (0b1010, 2, 0, none),
        (0b1010, 0, 1, 1),
        (0b1010, 0, 2, 3),
        (0b1010, 3, -2, 1),
        (0b1010, 0, 3, none),
    ] {
        assert_eq!(nth(value, base, offset), place, "{base} {offset}");
    }
    let short = Type::new(Kind::Bits, 16);
    assert_eq!(plain(ScalarOp::LeadingZeros, Type::B64, &[1]), 63);
    assert_eq!(plain(ScalarOp::CountBits, Type::B32, &[0xF0F0]), 8);
    assert_eq!(plain(ScalarOp::ReverseBits, Type::B32, &[1]), 1 << 31);
    assert_eq!(plain(ScalarOp::LogicalNot, short, &[0]), 1);
    assert_eq!(plain(ScalarOp::Not, short, &[0x00FF]), 0xFF00);
}

#[test]
fn carries_make_wide_sums() {
    let mut numbers = Numbers(7);
    for _ in 0..20_000 {
        for ty in [Type::U32, Type::U64] {
            let [a, b, c] = [0; 3].map(|_| value(&mut numbers, ty.bits));
            let carry = numbers.next() & 1;
            let wide = u128::from(a) + u128::from(b) + u128::from(carry);
            assert_eq!(plain(ScalarOp::AddWithCarry, ty, &[a, b, carry]), wide as u64 & mask(ty.bits));
            assert_eq!(u128::from(plain(ScalarOp::CarryOfAdd, ty, &[a, b, carry])), wide >> ty.bits);
            let difference = i128::from(a) - i128::from(b) - i128::from(carry);
            assert_eq!(plain(ScalarOp::SubtractWithBorrow, ty, &[a, b, carry]), difference as u64 & mask(ty.bits));
            assert_eq!(plain(ScalarOp::BorrowOfSubtract, ty, &[a, b, carry]), u64::from(difference < 0));
            let product = u128::from(a) * u128::from(b);
            for (half, part) in [(Half::Low, product & u128::from(mask(ty.bits))), (Half::High, product >> ty.bits)] {
                let wide = part + u128::from(c) + u128::from(carry);
                let found = plain(ScalarOp::MultiplyAddWithCarry(half), ty, &[a, b, c, carry]);
                assert_eq!(found, wide as u64 & mask(ty.bits));
                assert_eq!(
                    u128::from(plain(ScalarOp::CarryOfMultiplyAdd(half), ty, &[a, b, c, carry])),
                    wide >> ty.bits
                );
            }
        }
    }
}

#[test]
fn arithmetic_at_its_edges() {
    let saturating = Modes { saturate: true, ..Modes::PLAIN };
    let (least, greatest) = (0x8000_0000, 0x7FFF_FFFF);
    let short = Type::new(Kind::Signed, 16);
    let cases = [
        (ScalarOp::Add, Type::S32, saturating, [greatest, 1, 0], greatest),
        (ScalarOp::Subtract, Type::S32, saturating, [least, 1, 0], least),
        (ScalarOp::Add, Type::S32, Modes::PLAIN, [greatest, 1, 0], least),
        (ScalarOp::MultiplyAdd(Half::High), Type::S32, saturating, [least, least, greatest], greatest),
        (ScalarOp::Multiply(Half::Wide), Type::S32, Modes::PLAIN, [least, least, 0], 1 << 62),
        (ScalarOp::Multiply(Half::High), Type::U64, Modes::PLAIN, [u64::MAX, u64::MAX, 0], u64::MAX - 1),
        (ScalarOp::Multiply(Half::High), Type::S64, Modes::PLAIN, [u64::MAX, u64::MAX, 0], 0),
        (ScalarOp::Divide, Type::U32, Modes::PLAIN, [7, 0, 0], mask(32)),
        (ScalarOp::Remainder, short, Modes::PLAIN, [7, 0, 0], mask(16)),
        (ScalarOp::Divide, Type::S32, Modes::PLAIN, [least, mask(32), 0], least),
        (ScalarOp::Remainder, Type::S64, Modes::PLAIN, [1 << 63, u64::MAX, 0], 0),
        (ScalarOp::Remainder, Type::S32, Modes::PLAIN, [(-7_i32) as u32 as u64, 4, 0], (-3_i32) as u32 as u64),
        (ScalarOp::Absolute, Type::S32, Modes::PLAIN, [least, 0, 0], least),
        (ScalarOp::Negate, short, Modes::PLAIN, [1, 0, 0], 0xFFFF),
        (ScalarOp::Minimum, Type::S32, Modes { relu: true, ..Modes::PLAIN }, [least, 5, 0], 0),
        (ScalarOp::AbsoluteDifference, Type::U32, Modes::PLAIN, [3, 10, 100], 107),
        (ScalarOp::AbsoluteDifference, Type::S32, Modes::PLAIN, [mask(32), 1, 1], 3),
        (ScalarOp::Multiply24(Half::Low), Type::S32, Modes::PLAIN, [0x00FF_FFFF, 2, 0], 0xFFFF_FFFE),
        (ScalarOp::Multiply24(Half::High), Type::U32, Modes::PLAIN, [0xFFFF_FFFF, 0x0001_0000, 0], 0x00FF_FFFF),
        (
            ScalarOp::DotBytes { a_signed: true, b_signed: false },
            Type::U32,
            Modes::PLAIN,
            [0xFF01_0203, 0x0201_0101, 10],
            14,
        ),
        (
            ScalarOp::DotHalves { a_signed: true, b_signed: true, high: true },
            Type::U32,
            Modes::PLAIN,
            [0xFFFF_0003, 0x02FF_0000, 0],
            0xFFFF_FFFB,
        ),
    ];
    for (op, ty, modes, values, expected) in cases {
        assert_eq!(done(op, ty, modes, &values), expected, "{op:?} {ty:?} {values:x?}");
    }
}

#[test]
fn parts_are_packed_and_taken() {
    assert_eq!(plain(ScalarOp::Pack { bits: 16 }, Type::B64, &[1, 2, 3, 0x1_0004]), 0x0004_0003_0002_0001);
    assert_eq!(plain(ScalarOp::Pack { bits: 32 }, Type::B64, &[5, 6]), 0x6_0000_0005);
    assert_eq!(plain(ScalarOp::Extract { from: 48, bits: 16 }, Type::B64, &[0xABCD << 48]), 0xABCD);
    assert_eq!(plain(ScalarOp::Extract { from: 8, bits: 8 }, Type::B32, &[0x1234]), 0x12);
}
