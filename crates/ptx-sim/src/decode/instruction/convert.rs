//! `cvt` and `cvt.pack`.

#![expect(clippy::wildcard_enum_match_arm, reason = "what has any other form is refused")]

use super::reader::{Reader, rounding};
use crate::program::scalar::{Modes, Rounding, ScalarOp, SmallFloat};
use crate::program::types::{Kind, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

/// What stands between `cvt` and the types.
#[derive(Clone, Copy)]
struct Head {
    /// How is rounded, and whether to a whole number.
    rounding: Option<(Rounding, bool)>,
    modes: Modes,
}

pub(super) fn cvt(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    if reader.takes("pack") {
        return pack(reader);
    }
    let found = reader.take(any_rounding);
    let modes = Modes {
        rounding: found.map_or(Rounding::Nearest, |(rounding, _)| rounding),
        flush: reader.takes("ftz"),
        saturate: reader.takes("sat"),
        relu: reader.takes("relu"),
        finite: reader.takes("satfinite"),
        ..Modes::PLAIN
    };
    let head = Head { rounding: found, modes };
    let small = reader.take(small_float);
    let to = match small {
        // The type before or behind the small one.
        Some(small) => return with_small(reader, head, small),
        None => reader.ty()?,
    };
    let from = reader.ty()?;
    if to.packed {
        return pair(reader, head, to, from);
    }
    plain(reader, head, to, from)
}

/// A rounding, and whether it is to a whole number.
fn any_rounding(word: &str) -> Option<(Rounding, bool)> {
    match word {
        "rna" => Some((Rounding::NearestAway, false)),
        "rni" => Some((Rounding::Nearest, true)),
        "rzi" => Some((Rounding::Zero, true)),
        "rmi" => Some((Rounding::Down, true)),
        "rpi" => Some((Rounding::Up, true)),
        word => rounding(word).map(|rounding| (rounding, false)),
    }
}

fn small_float(word: &str) -> Option<SmallFloat> {
    match word {
        "e4m3x2" => Some(SmallFloat::E4M3),
        "e5m2x2" => Some(SmallFloat::E5M2),
        _ => None,
    }
}

/// Whether a conversion needs a rounding, to a whole number (true) or not (false), and whether one may stand there.
fn needed(to: Type, from: Type) -> (Option<bool>, Option<bool>) {
    let only = |rounding| (rounding, rounding);
    match (to.is_float(), from.is_float()) {
        (true, true) if to.kind == Kind::Tf32 || to.bits < from.bits => only(Some(false)),
        // Of bf16 a rounding may always stand there, and need not where nothing is cut off.
        (true, true) if to.kind != from.kind => (None, Some(false)),
        // Between equal types a rounding to whole numbers may stand there, and need not.
        (true, true) if to == from => (None, Some(true)),
        (true, true) | (false, false) => only(None),
        (true, false) => only(Some(false)),
        (false, true) => only(Some(true)),
    }
}

fn plain(reader: &mut Reader<'_, '_, '_>, head: Head, to: Type, from: Type) -> Result<(), Refusal> {
    let Head { rounding, modes } = head;
    let given = rounding.map(|(_, to_integer)| to_integer);
    let (least, most) = needed(to, from);
    let is_number = |ty: Type| !matches!(ty.kind, Kind::Bits | Kind::Predicate) && !ty.packed;
    if !is_number(to) || !is_number(from) || from.kind == Kind::Tf32 || given != least && given != most {
        return Err(reader.invalid("wrong types or rounding"));
    }
    let fits = fits_modes(to, from, modes);
    if !fits {
        return Err(reader.invalid("a modifier does not fit the types"));
    }
    let [result, value] = reader.operands()?;
    let result = reader.to_wide(result, to.bits)?;
    let value = match value {
        Operand::Name(name) if name.starts_with('%') => reader.any(value, from)?,
        value => reader.value_wide(value, from)?,
    };
    // Between bf16 and integers no register may be wider than its type.
    let is_exact = to.is_integer() && from.kind == Kind::Brain || from.is_integer() && to.kind == Kind::Brain;
    if is_exact && (result.bits != to.bits || value.bits != from.bits) {
        return Err(reader.invalid("wrong size of an operand"));
    }
    let op = ScalarOp::Convert { to, to_integer: given == Some(true) };
    reader.scalar(op, from, modes, result, &[value]);
    Ok(())
}

/// Whether modes may stand with a conversion.
fn fits_modes(to: Type, from: Type, modes: Modes) -> bool {
    let is_small = to.is_float() && to.bits == 16 && from == Type::F32;
    let away = modes.rounding == Rounding::NearestAway;
    let directed = matches!(modes.rounding, Rounding::Up | Rounding::Down);
    if to.kind == Kind::Tf32 {
        return from == Type::F32 && !modes.flush && !modes.saturate && !directed && (!away || !modes.relu);
    }
    // Between integers only where a value may not fit.
    let may_saturate = match (to.is_integer(), from.is_integer()) {
        (true, true) => {
            to.bits < from.bits || to.is_signed() != from.is_signed() && (to.bits == from.bits || from.is_signed())
        }
        (true, false) => from.kind != Kind::Brain,
        (false, _) => to.kind != Kind::Brain && from.kind != Kind::Brain,
    };
    !away
        && (!(modes.relu || modes.finite) || is_small && !directed && !modes.flush)
        && (!modes.flush || to == Type::F32 || from == Type::F32)
        && (!modes.saturate || may_saturate && !modes.relu && !modes.finite)
}

/// Two f32 to a packed pair, the first operand in the upper half.
fn pair(reader: &mut Reader<'_, '_, '_>, head: Head, to: Type, from: Type) -> Result<(), Refusal> {
    let fits = matches!(head.rounding, Some((Rounding::Nearest | Rounding::Zero, false)));
    if !fits || !to.is_float() || from != Type::F32 || head.modes.flush || head.modes.saturate {
        return Err(reader.invalid("wrong types or rounding"));
    }
    let [result, a, b] = reader.operands()?;
    let (result, a, b) = (reader.to(result, 32)?, reader.value(a, from)?, reader.value(b, from)?);
    reader.scalar(ScalarOp::ConvertPair { to }, from, head.modes, result, &[a, b]);
    Ok(())
}

/// Pairs of floating numbers of eight bits, from f32 or f16 or to f16.
fn with_small(reader: &mut Reader<'_, '_, '_>, head: Head, small: SmallFloat) -> Result<(), Refusal> {
    let half = Type { kind: Kind::Float, bits: 16, packed: true };
    let ty = reader.ty_of(|ty| ty == Type::F32 || ty == half)?;
    let is_to_small = reader.text.word.ends_with(if ty == half { ".f16x2" } else { ".f32" });
    let Head { rounding, modes } = head;
    let nearest = rounding == Some((Rounding::Nearest, false));
    if !nearest || modes.flush || modes.saturate || modes.finite != is_to_small {
        return Err(reader.invalid("wrong types or rounding"));
    }
    let bytes = Type::new(Kind::Bits, 16);
    match (is_to_small, ty == half) {
        (true, true) => {
            let [to, a] = reader.operands()?;
            let (to, a) = (reader.to(to, 16)?, reader.value(a, Type::B32)?);
            reader.scalar(ScalarOp::ConvertToSmall(small), half, modes, to, &[a]);
        }
        (true, false) => {
            let [to, a, b] = reader.operands()?;
            let (to, a, b) = (reader.to(to, 16)?, reader.value(a, ty)?, reader.value(b, ty)?);
            reader.scalar(ScalarOp::ConvertToSmall(small), ty, modes, to, &[a, b]);
        }
        (false, true) => {
            let [to, a] = reader.operands()?;
            let (to, a) = (reader.to(to, 32)?, reader.value(a, bytes)?);
            reader.scalar(ScalarOp::ConvertFromSmall(small), half, modes, to, &[a]);
        }
        (false, false) => return Err(reader.invalid("wrong types")),
    }
    Ok(())
}

/// `cvt.pack`: two s32 saturated and put side by side, before what the last operand holds.
fn pack(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("sat")?;
    let to = reader.take(|word| {
        let (kind, bits) = match word {
            "u16" => (Kind::Unsigned, 16),
            "s16" => (Kind::Signed, 16),
            "u8" => (Kind::Unsigned, 8),
            "s8" => (Kind::Signed, 8),
            "u4" => (Kind::Unsigned, 4),
            "s4" => (Kind::Signed, 4),
            "u2" => (Kind::Unsigned, 2),
            "s2" => (Kind::Signed, 2),
            _ => return None,
        };
        Some(Type::new(kind, bits))
    });
    let to = to.ok_or_else(|| reader.invalid("the type is missing"))?;
    let from = reader.ty_of(|ty| ty == Type::S32)?;
    let has_rest = to.bits < 16;
    if has_rest {
        reader.needs("b32")?;
    }
    let rest = match (reader.text.operands.as_slice(), has_rest) {
        ([_, _, _, rest], true) => reader.value(rest, Type::B32)?,
        ([_, _, _], false) => reader.names.constant(32, 0, reader.text.at)?,
        _ => return Err(reader.invalid("wrong number of operands")),
    };
    let (a, b) = (&reader.text.operands[1], &reader.text.operands[2]);
    let result = reader.to(&reader.text.operands[0], 32)?;
    let (a, b) = (reader.value(a, from)?, reader.value(b, from)?);
    reader.scalar(ScalarOp::ConvertPack { to }, from, Modes::PLAIN, result, &[a, b, rest]);
    Ok(())
}
