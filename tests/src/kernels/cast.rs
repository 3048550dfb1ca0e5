//! What `cast.cu` must leave behind: each pair of types on values at the edges of both.

use super::Case;
use super::device::{Answer, Device};
use super::numbers::{BRAIN, HALF};

pub(super) const CASES: &[Case] = &[Case::new("cast", "all pairs", all_pairs)];

/// A number type of the kernels.
#[derive(Clone, Copy)]
enum Kind {
    /// Bits, and whether there is a sign.
    Whole(u32, bool),
    Half,
    Brain,
    Single,
    Double,
}

const KINDS: [(&str, Kind); 12] = [
    ("i8", Kind::Whole(8, true)),
    ("u8", Kind::Whole(8, false)),
    ("i16", Kind::Whole(16, true)),
    ("u16", Kind::Whole(16, false)),
    ("i32", Kind::Whole(32, true)),
    ("u32", Kind::Whole(32, false)),
    ("i64", Kind::Whole(64, true)),
    ("u64", Kind::Whole(64, false)),
    ("f16", Kind::Half),
    ("bf16", Kind::Brain),
    ("f32", Kind::Single),
    ("f64", Kind::Double),
];

/// A value of either kind, exact.
#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(i128),
    Real(f64),
}

const WHOLE: [i128; 34] = [
    0,
    1,
    2,
    3,
    -1,
    -2,
    99,
    -99,
    127,
    -128,
    128,
    255,
    256,
    257,
    259,
    1000,
    2049,
    2051,
    -2053,
    32767,
    -32768,
    65504,
    65519,
    65520,
    65535,
    16_777_217,
    16_777_219,
    0x7FFF_FFFF,
    -0x8000_0000,
    0xFFFF_FF7F,
    0x0020_0000_0000_0001,
    0x7FFF_FFFF_FFFF_FFFF,
    -0x8000_0000_0000_0000,
    0xFFFF_FF7F_FFFF_FFFF,
];

const REAL: [f64; 32] = [
    0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    0.1,
    -0.3333333333333333,
    100.7,
    -100.7,
    126.9,
    255.9,
    1e-3,
    1e-5,
    6e-8,
    2.9e-8,
    1e-10,
    65504.0,
    65519.99,
    65520.0,
    1e10,
    3e38,
    1e-40,
    1e300,
    1.00048828125,
    1.0004882812500002,
    1.00146484375,
    1.00390625,
    1.003906250000001,
    -2147483648.0,
    f64::INFINITY,
];

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Self::Whole(bits, _) => bits as usize / 8,
            Self::Half | Self::Brain => 2,
            Self::Single => 4,
            Self::Double => 8,
        }
    }

    fn holds(self, value: i128) -> bool {
        let Self::Whole(bits, signed) = self else { return true };
        let bits = if signed { bits - 1 } else { bits };
        let least = if signed { -(1_i128 << bits) } else { 0 };
        (least..1_i128 << bits).contains(&value)
    }

    /// The bits of a value, rounded to the nearest or, of a whole type, cut.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cuts and rounds as conversions do")]
    fn bits(self, value: Value) -> u64 {
        match (self, value) {
            (Self::Whole(bits, _), Value::Whole(value)) => value as u64 & (u64::MAX >> (64 - bits)),
            (Self::Whole(bits, _), Value::Real(value)) => value as i128 as u64 & (u64::MAX >> (64 - bits)),
            (Self::Half, value) => u64::from(HALF.bits(value.odd())),
            (Self::Brain, value) => u64::from(BRAIN.bits(value.odd())),
            (Self::Single, Value::Whole(value)) => u64::from((value as f32).to_bits()),
            (Self::Single, Value::Real(value)) => u64::from((value as f32).to_bits()),
            (Self::Double, Value::Whole(value)) => (value as f64).to_bits(),
            (Self::Double, Value::Real(value)) => value.to_bits(),
        }
    }

    /// The value of bits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "the bits are of this type")]
    fn value(self, bits: u64) -> Value {
        match self {
            Self::Whole(size, true) => Value::Whole(i128::from((bits << (64 - size)) as i64 >> (64 - size))),
            Self::Whole(_, false) => Value::Whole(i128::from(bits)),
            Self::Half => Value::Real(HALF.wide(bits as u16)),
            Self::Brain => Value::Real(BRAIN.wide(bits as u16)),
            Self::Single => Value::Real(f64::from(f32::from_bits(bits as u32))),
            Self::Double => Value::Real(f64::from_bits(bits)),
        }
    }

    /// Its values on which conversions are tried.
    fn samples(self) -> Vec<u64> {
        match self {
            Self::Whole(..) => WHOLE
                .into_iter()
                .filter(|&value| self.holds(value))
                .map(|value| self.bits(Value::Whole(value)))
                .collect(),
            Self::Half | Self::Brain | Self::Single | Self::Double => {
                REAL.into_iter().map(|value| self.bits(Value::Real(value))).collect()
            }
        }
    }
}

impl Value {
    /// As a double whose last bit is set where something is lost, so that rounding it once more gives what rounding once
    /// would.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "what is lost is looked at")]
    fn odd(self) -> f64 {
        match self {
            Self::Real(value) => value,
            Self::Whole(value) => {
                let nearest = value as f64;
                let lack = value - nearest as i128;
                let toward_zero =
                    if lack != 0 && (lack > 0) != (value > 0) { nearest.to_bits() - 1 } else { nearest.to_bits() };
                f64::from_bits(toward_zero | u64::from(lack != 0))
            }
        }
    }

    /// Whether C++ says what a conversion to the type gives.
    #[expect(clippy::cast_possible_truncation, reason = "cuts off the fraction")]
    fn is_defined(self, to: Kind) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Real(value) => !matches!(to, Kind::Whole(..)) || value.is_finite() && to.holds(value as i128),
        }
    }
}

fn all_pairs(device: &Device<'_>) -> Answer {
    for (from_name, from) in KINDS {
        let samples = from.samples();
        let bytes: Vec<u8> = samples.iter().flat_map(|bits| bits.to_le_bytes()[..from.bytes()].to_vec()).collect();
        let source = device.put(&bytes)?;
        for (to_name, to) in KINDS {
            let target = device.zeros::<u8>(samples.len() * to.bytes())?;
            let count = u32::try_from(samples.len())?;
            let kernel = format!("cast_{from_name}_{to_name}");
            device.run(&kernel, 2, 32, &[(&target).into(), (&source).into(), count.into()])?;
            let found = target.to_vec()?;
            for (&sample, found) in samples.iter().zip(found.chunks_exact(to.bytes())) {
                let value = from.value(sample);
                let mut bits = [0; 8];
                bits[..to.bytes()].copy_from_slice(found);
                let (found, wanted) = (u64::from_le_bytes(bits), to.bits(value));
                if value.is_defined(to) && found != wanted {
                    return Err(format!("{kernel} of {value:?} is {found:#x}, not {wanted:#x}").into());
                }
            }
        }
    }
    Ok(())
}
