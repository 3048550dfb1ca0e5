//! Every operation that has a loop of its own, with numbers at the edges and random ones, under random masks.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::wildcard_enum_match_arm,
    reason = "random numbers are cut, and most operations are alike"
)]

use crate::arith;
use crate::exec::op;
use crate::exec::row;
use crate::exec::rows::{Base, LANES, Rows};
use crate::program::Frame;
use crate::program::scalar::{Comparison, Half, Modes, PermuteMode, Rounding, Scalar, ScalarOp};
use crate::program::types::{Kind, Register, Type, mask};

/// Numbers at the edges of all types.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    31,
    32,
    33,
    63,
    64,
    255,
    0x7FFF,
    0x8000,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x3F80_0000,
    0xBF80_0000,
    0x7F80_0000,
    0xFF80_0000,
    0x7FC0_0000,
    0x0000_0001,
    0x8000_0001,
    0x007F_FFFF,
    0x4F00_0000,
    0x3FF0_0000_0000_0000,
    0x7FF0_0000_0000_0000,
    0xFFF8_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x7FFF_FFFF_FFFF_FFFF,
    u64::MAX,
];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        self.0 ^ self.0 >> 29
    }

    /// A number at an edge, a random one, or a random floating number of moderate size.
    fn value(&mut self) -> u64 {
        match self.next() >> 61 {
            0..3 => EDGES[usize::try_from(self.next() >> 40).unwrap_or(0) % EDGES.len()],
            3..6 => self.next(),
            6 => u64::from((((self.next() >> 40) as u32 as f32) / 65536.0 - 100.0).to_bits()),
            _ => (((self.next() >> 20) as u32 as f64) / 65536.0 - 100.0).to_bits(),
        }
    }
}

fn operations() -> Vec<ScalarOp> {
    use ScalarOp as Op;
    let mut all = vec![
        Op::Move,
        Op::Add,
        Op::Subtract,
        Op::Divide,
        Op::Minimum,
        Op::Maximum,
        Op::And,
        Op::Or,
        Op::Xor,
        Op::Not,
        Op::ShiftLeft,
        Op::ShiftRight,
        Op::Negate,
        Op::Absolute,
        Op::SquareRoot,
        Op::Reciprocal,
        Op::CountBits,
        Op::LeadingZeros,
        Op::ReverseBits,
        Op::ExtractBits,
        Op::Permute(PermuteMode::Index),
        Op::Select,
        Op::Pack { bits: 16 },
        Op::Extract { from: 0, bits: 16 },
        Op::Extract { from: 16, bits: 16 },
    ];
    for half in [Half::Low, Half::High, Half::Wide] {
        all.extend([Op::Multiply(half), Op::MultiplyAdd(half)]);
    }
    for left in [false, true] {
        all.push(Op::FunnelShift { left, wrap: true });
    }
    all.extend([0x96, 0xE8, 0xCA, 0x01, 0xFE].map(Op::Lookup3));
    use Comparison as Is;
    for comparison in [
        Is::Equal,
        Is::NotEqual,
        Is::Less,
        Is::LessOrEqual,
        Is::Greater,
        Is::GreaterOrEqual,
        Is::Numbers,
        Is::NotNumbers,
    ] {
        for or_unordered in [false, true] {
            let has_both = !matches!(comparison, Is::Numbers | Is::NotNumbers);
            if has_both || !or_unordered {
                all.push(Op::Compare { comparison, or_unordered, combine: None, invert: false });
            }
        }
    }
    for to in types() {
        all.push(Op::Convert { to, to_integer: false });
    }
    all
}

fn types() -> Vec<Type> {
    let kinds = [Kind::Bits, Kind::Unsigned, Kind::Signed, Kind::Float];
    let mut all: Vec<Type> = kinds.iter().flat_map(|&kind| [32, 64].map(|bits| Type::new(kind, bits))).collect();
    all.push(Type::PREDICATE);
    all
}

/// The sizes that a result may have.
fn sizes(op: ScalarOp, ty: Type) -> Vec<u8> {
    match op {
        ScalarOp::Compare { .. } => vec![1],
        ScalarOp::Convert { to, .. } => vec![to.register_bits()],
        ScalarOp::Multiply(Half::Wide) | ScalarOp::MultiplyAdd(Half::Wide) => vec![ty.bits.saturating_mul(2)],
        ScalarOp::CountBits | ScalarOp::LeadingZeros => vec![32],
        ScalarOp::Extract { .. } => vec![16],
        _ => vec![ty.register_bits()],
    }
}

/// The sizes of the operands.
fn operand_sizes(op: ScalarOp, ty: Type, to: u8) -> [u8; 3] {
    let own = ty.register_bits();
    match op {
        ScalarOp::ShiftLeft | ScalarOp::ShiftRight => [own, 32, 1],
        ScalarOp::Select => [own, own, 1],
        ScalarOp::MultiplyAdd(_) => [own, own, to],
        ScalarOp::Pack { .. } => [16, 16, 1],
        _ => [own, own, own],
    }
}

fn modes(op: ScalarOp) -> Vec<Modes> {
    match op {
        ScalarOp::Convert { .. } => {
            [Rounding::Nearest, Rounding::Zero].map(|rounding| Modes { rounding, ..Modes::default() }).to_vec()
        }
        _ => vec![Modes::default()],
    }
}

/// Does an operation on random rows both ways.
fn compare_both(scalar: &Scalar, random: &mut Random) {
    let compact = op::row(scalar).expect("it has a loop");
    let frame = Frame { predicates: 8, words: 8, longs: 8, ..Frame::default() };
    let mut rows = Rows::default();
    rows.reserve(Base::default(), &frame);
    for index in 2..8 {
        for bits in [1, 32, 64] {
            for lane in 0..LANES {
                let value = random.value();
                rows.set(Base::default(), Register { index, bits }, lane, value);
            }
        }
    }
    for &register in &scalar.arguments {
        for lane in 0..LANES {
            let value = rows.get(Base::default(), register, lane) & mask(register.bits);
            rows.set(Base::default(), register, lane, value);
        }
    }
    let lanes = if random.next() & 1 == 0 { u32::MAX } else { (random.next() >> 32) as u32 };
    let expected: [u64; LANES] = std::array::from_fn(|lane| {
        let values = scalar.arguments.map(|argument| rows.get(Base::default(), argument, lane));
        let new = arith::evaluate(scalar, values) & mask(scalar.to.bits);
        if lanes & 1 << lane == 0 { rows.get(Base::default(), scalar.to, lane) } else { new }
    });
    let mut other = Rows { words: rows.words.clone(), longs: rows.longs.clone(), predicates: rows.predicates.clone() };
    assert!(row::execute::<false>(&mut rows, Base::default(), compact, lanes));
    assert!(row::execute::<true>(&mut other, Base::default(), compact, lanes));
    for (lane, &expected) in expected.iter().enumerate() {
        let of = |rows: &Rows| rows.get(Base::default(), scalar.to, lane);
        let values = scalar.arguments.map(|argument| of_argument(&other, argument, lane, scalar));
        assert_eq!(of(&rows), expected, "{scalar:?} of {values:x?}, lane {lane}");
        assert_eq!(of(&other), expected, "wide: {scalar:?} of {values:x?}, lane {lane}");
    }
}

/// An argument for a message, unless the result has taken its place.
fn of_argument(rows: &Rows, argument: Register, lane: usize, scalar: &Scalar) -> u64 {
    if argument == scalar.to { 0 } else { rows.get(Base::default(), argument, lane) }
}

#[test]
fn every_loop_does_what_the_lanes_do() {
    let mut random = Random(7);
    let mut done = 0;
    for op in operations() {
        for ty in types() {
            for (to, modes) in
                sizes(op, ty).into_iter().flat_map(|to| modes(op).into_iter().map(move |modes| (to, modes)))
            {
                let [a, b, c] = operand_sizes(op, ty, to);
                let register = |index, bits| Register { index, bits };
                for to in [register(2, to), register(3, to)] {
                    let arguments = [register(3, a), register(4, b), register(5, c), Register::NONE];
                    let scalar = Scalar { op, ty, modes, to, arguments };
                    if op::row(&scalar).is_none() || to.bits > 64 {
                        continue;
                    }
                    done += 1;
                    (0..40).for_each(|_| compare_both(&scalar, &mut random));
                }
            }
        }
    }
    assert!(done > 200, "only {done} operations have loops");
}
