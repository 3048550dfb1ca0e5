//! `setp` and `set`, with their combination with another truth value. Of packed numbers the first result is of the lower
//! ones, also where it is the only one.

use super::operands::pair;
use super::reader::{Reader, scalar};
use crate::program::scalar::{Comparison, Logic, Modes, ScalarOp};
use crate::program::types::{Kind, Register, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

/// A comparison, whether it also holds when a number is none, and whether it is one of unsigned numbers alone.
fn comparison(word: &str) -> Option<(Comparison, bool, bool)> {
    Some(match word {
        "eq" => (Comparison::Equal, false, false),
        "ne" => (Comparison::NotEqual, false, false),
        "lt" => (Comparison::Less, false, false),
        "le" => (Comparison::LessOrEqual, false, false),
        "gt" => (Comparison::Greater, false, false),
        "ge" => (Comparison::GreaterOrEqual, false, false),
        "lo" => (Comparison::Less, false, true),
        "ls" => (Comparison::LessOrEqual, false, true),
        "hi" => (Comparison::Greater, false, true),
        "hs" => (Comparison::GreaterOrEqual, false, true),
        "equ" => (Comparison::Equal, true, false),
        "neu" => (Comparison::NotEqual, true, false),
        "ltu" => (Comparison::Less, true, false),
        "leu" => (Comparison::LessOrEqual, true, false),
        "gtu" => (Comparison::Greater, true, false),
        "geu" => (Comparison::GreaterOrEqual, true, false),
        "num" => (Comparison::Numbers, false, false),
        "nan" => (Comparison::NotNumbers, false, false),
        _ => return None,
    })
}

/// Two values and a truth value.
type Values = [Register; 3];

/// How a truth value is combined, and whether it is negated first.
type Combination = Option<(Logic, bool)>;

/// What both instructions say before their operands.
struct Head {
    comparison: Comparison,
    or_unordered: bool,
    of_unsigned: bool,
    logic: Option<Logic>,
    flush: bool,
}

impl Head {
    fn read(reader: &mut Reader<'_, '_, '_>) -> Result<Self, Refusal> {
        let found = reader.take(comparison);
        let (comparison, or_unordered, of_unsigned) =
            found.ok_or_else(|| reader.invalid("the comparison is missing"))?;
        let logic = reader.take(|word| match word {
            "and" => Some(Logic::And),
            "or" => Some(Logic::Or),
            "xor" => Some(Logic::Xor),
            _ => None,
        });
        Ok(Self { comparison, or_unordered, of_unsigned, logic, flush: reader.takes("ftz") })
    }

    /// Whether values of a type can be compared so.
    fn fits(&self, ty: Type) -> bool {
        let is_equality = matches!(self.comparison, Comparison::Equal | Comparison::NotEqual);
        let of_floats = self.or_unordered || matches!(self.comparison, Comparison::Numbers | Comparison::NotNumbers);
        let kind = match ty.kind {
            Kind::Bits => is_equality && !of_floats,
            Kind::Unsigned => !of_floats,
            Kind::Signed => !of_floats && !self.of_unsigned,
            Kind::Float | Kind::Brain => !self.of_unsigned,
            Kind::Tf32 | Kind::E4M3 | Kind::E5M2 | Kind::Predicate => false,
        };
        let flushes = ty == Type::F32 || ty.kind == Kind::Float && ty.bits == 16;
        kind && ty.bits >= 16 && (ty.is_float() || !ty.packed) && (!self.flush || flushes)
    }

    fn modes(&self) -> Modes {
        Modes { flush: self.flush, ..Modes::PLAIN }
    }

    /// The two values and the truth value that is combined with them, and how it is.
    fn values(
        &self,
        reader: &mut Reader<'_, '_, '_>,
        ty: Type,
        operands: &[Operand<'_>],
    ) -> Result<(Values, Combination), Refusal> {
        let (a, b, truth) = match (operands, self.logic) {
            ([a, b], None) => (a, b, None),
            ([a, b, truth], Some(logic)) => (a, b, Some((logic, truth))),
            _ => return Err(reader.invalid("wrong number of operands")),
        };
        let (a, b) = (reader.value(a, ty)?, reader.value(b, ty)?);
        let Some((logic, truth)) = truth else { return Ok(([a, b, Register::NONE], None)) };
        let (truth, negated) = reader.predicate(truth)?;
        Ok(([a, b, truth], Some((logic, negated))))
    }
}

pub(super) fn setp(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let head = Head::read(reader)?;
    let ty = reader.ty_of(|ty| head.fits(ty))?;
    let Some((results, operands)) = reader.text.operands.split_first() else {
        return Err(reader.invalid("wrong number of operands"));
    };
    let (values, combine) = head.values(reader, ty, operands)?;
    let (first, second) = pair(results);
    let half = ty.is_float() && ty.bits == 16;
    if half && !ty.packed && second.is_some() {
        return Err(reader.invalid("one result too many"));
    }
    let Head { comparison, or_unordered, .. } = head;
    let mut scalars = Vec::new();
    for (place, result) in [Some(first), second].into_iter().enumerate() {
        let Some(result) = result else { continue };
        let Some(to) = reader.to_or_sink(result, 1)? else { continue };
        let is_second = place == 1;
        let op = if ty.packed {
            ScalarOp::CompareHalf { comparison, or_unordered, combine, upper: is_second }
        } else {
            ScalarOp::Compare { comparison, or_unordered, combine, invert: is_second }
        };
        scalars.push(scalar(op, ty, head.modes(), to, &values));
    }
    reader.together(scalars)
}

/// Whether `set` may compare values of one type and give a result of another.
fn fits_result(to: Type, ty: Type, flush: bool) -> bool {
    let half = ty.is_float() && ty.bits == 16;
    let is_word = to.is_integer() && to.bits == 32;
    match (to.kind, to.bits) {
        _ if ty.packed => to == ty || is_word,
        _ if to.packed => false,
        (Kind::Unsigned | Kind::Signed, 32) => true,
        (Kind::Unsigned | Kind::Signed, 16) => half,
        (Kind::Float, 32) => !half,
        (Kind::Float, 16) => ty.kind != Kind::Brain,
        (Kind::Brain, _) => !flush,
        _ => false,
    }
}

pub(super) fn set(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let head = Head::read(reader)?;
    let to_type = reader.ty()?;
    let ty = reader.ty_of(|ty| head.fits(ty))?;
    if !fits_result(to_type, ty, head.flush) {
        return Err(reader.invalid("wrong type"));
    }
    let Some((to, operands)) = reader.text.operands.split_first() else {
        return Err(reader.invalid("wrong number of operands"));
    };
    let to = reader.to(to, to_type.register_bits())?;
    let (values, combine) = head.values(reader, ty, operands)?;
    let Head { comparison, or_unordered, .. } = head;
    let op = ScalarOp::Set { comparison, or_unordered, combine, to: to_type };
    reader.scalar(op, ty, head.modes(), to, &values);
    Ok(())
}
