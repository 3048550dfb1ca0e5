//! What every family reads an instruction with: its modifiers, and the code it is added to.
//!
//! **Invariants:** every modifier is taken at most once; what is left in the end refuses the instruction. An instruction
//! that becomes several actions guards all of them by the value that its guard had before the first.

use crate::decode::names::Names;
use crate::program::action::{Action, Instruction};
use crate::program::scalar::{Modes, Rounding, Scalar, ScalarOp};
use crate::program::types::{Kind, Register, Type};
use crate::refusal::Refusal;
use crate::text::syntax::{InstructionText, Operand};

/// An instruction being read.
pub(super) struct Reader<'r, 't, 'n> {
    pub(super) text: &'r InstructionText<'t>,
    /// Those that nothing has asked for yet.
    modifiers: Vec<&'r str>,
    pub(super) names: &'r mut Names<'n>,
    out: &'r mut Vec<Instruction>,
    guard: Option<(Register, bool)>,
}

impl<'r, 't, 'n> Reader<'r, 't, 'n> {
    pub(super) fn new(
        text: &'r InstructionText<'t>,
        modifiers: Vec<&'r str>,
        names: &'r mut Names<'n>,
        out: &'r mut Vec<Instruction>,
    ) -> Result<Self, Refusal> {
        let mut reader = Self { text, modifiers, names, out, guard: None };
        if let Some((name, negated)) = text.guard {
            let register = reader.register(name)?;
            if !register.is_predicate() {
                return Err(reader.invalid("the guard is no predicate"));
            }
            reader.guard = Some((register, !negated));
        }
        Ok(reader)
    }

    /// Refuses what nothing asked for.
    pub(super) fn finish(self) -> Result<(), Refusal> {
        match self.modifiers.first() {
            None => Ok(()),
            Some(left) => Err(self.invalid(&format!("'.{left}' does not belong there"))),
        }
    }

    /// It is not PTX.
    pub(super) fn invalid(&self, what: &str) -> Refusal {
        Refusal::invalid(self.text.at, format!("{what}: '{}'", self.text))
    }

    /// It is PTX that is not supported.
    pub(super) fn unsupported(&self, why: &str) -> Refusal {
        super::not_supported(self.text, why)
    }

    /// Takes a modifier if it is there.
    pub(super) fn takes(&mut self, modifier: &str) -> bool {
        let found = self.modifiers.iter().position(|other| *other == modifier);
        found.map(|index| self.modifiers.remove(index)).is_some()
    }

    /// Takes a modifier that must be there.
    pub(super) fn needs(&mut self, modifier: &str) -> Result<(), Refusal> {
        if self.takes(modifier) { Ok(()) } else { Err(self.invalid(&format!("'.{modifier}' is missing"))) }
    }

    /// Takes the first of the modifiers that means something.
    pub(super) fn take<T>(&mut self, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (index, found) =
            self.modifiers.iter().enumerate().find_map(|(index, word)| meaning(word).map(|found| (index, found)))?;
        self.modifiers.remove(index);
        Some(found)
    }

    /// Whether a modifier is left.
    pub(super) fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// All modifiers that are left.
    pub(super) fn take_all(&mut self) -> Vec<&'r str> {
        std::mem::take(&mut self.modifiers)
    }

    /// Takes a type, which must be there.
    pub(super) fn ty(&mut self) -> Result<Type, Refusal> {
        self.take(Type::of).ok_or_else(|| self.invalid("the type is missing"))
    }

    /// Takes a type of these.
    pub(super) fn ty_of(&mut self, fits: impl Fn(Type) -> bool) -> Result<Type, Refusal> {
        let ty = self.ty()?;
        if fits(ty) { Ok(ty) } else { Err(self.invalid("wrong type")) }
    }

    /// Takes how a floating operation rounds, and what else changes its result. Whether a rounding stood there is told
    /// too.
    pub(super) fn float_modes(&mut self, ty: Type) -> Result<(Modes, bool), Refusal> {
        let rounding = self.take(rounding);
        let (flush, saturate) = (self.takes("ftz"), self.takes("sat"));
        let single = ty == Type::F32;
        let half = ty.bits == 16 && ty.kind == Kind::Float;
        let rounds = matches!(rounding, None | Some(Rounding::Nearest)) || ty.bits >= 32;
        if !rounds || (flush || saturate) && !(single || half) {
            return Err(self.invalid("a modifier does not fit the type"));
        }
        let modes = Modes { rounding: rounding.unwrap_or_default(), flush, saturate, ..Modes::PLAIN };
        Ok((modes, rounding.is_some()))
    }

    /// As many operands as there must be.
    pub(super) fn operands<const N: usize>(&self) -> Result<&'r [Operand<'t>; N], Refusal> {
        self.text.operands.as_slice().try_into().map_err(|_| self.invalid("wrong number of operands"))
    }

    /// Adds an action, guarded as the instruction is.
    pub(super) fn push(&mut self, action: Action) {
        self.out.push(Instruction { guard: self.guard, action });
    }

    /// Adds an operation of one lane.
    pub(super) fn scalar(&mut self, op: ScalarOp, ty: Type, modes: Modes, to: Register, from: &[Register]) {
        self.push(Action::Scalar(scalar(op, ty, modes, to, from)));
    }

    /// Adds operations that act as one: each reads what was there before all of them.
    pub(super) fn together(&mut self, scalars: Vec<Scalar>) -> Result<(), Refusal> {
        self.keep_guard(&scalars.iter().map(|scalar| scalar.to).collect::<Vec<_>>())?;
        let mut late = Vec::new();
        for (index, scalar) in scalars.iter().enumerate() {
            let is_read_later = scalars[index + 1..].iter().any(|other| other.arguments.contains(&scalar.to));
            let to = if is_read_later { self.names.scratch(scalar.to.bits, self.text.at)? } else { scalar.to };
            if is_read_later {
                late.push((scalar.to, to));
            }
            self.push(Action::Scalar(Scalar { to, ..*scalar }));
        }
        for (to, from) in late {
            let ty = Type::new(if to.is_predicate() { Kind::Predicate } else { Kind::Bits }, to.bits);
            self.scalar(ScalarOp::Move, ty, Modes::PLAIN, to, &[from]);
        }
        Ok(())
    }

    /// Copies the guard first where one of several results is the guard itself.
    pub(super) fn keep_guard(&mut self, results: &[Register]) -> Result<(), Refusal> {
        if let Some((guard, expected)) = self.guard
            && results.len() > 1
            && results.contains(&guard)
        {
            let copy = self.names.spare_predicate(self.text.at)?;
            let scalar = scalar(ScalarOp::Move, Type::PREDICATE, Modes::PLAIN, copy, &[guard]);
            self.out.push(Instruction { guard: None, action: Action::Scalar(scalar) });
            self.guard = Some((copy, expected));
        }
        Ok(())
    }
}

/// An operation with its operands.
pub(super) fn scalar(op: ScalarOp, ty: Type, modes: Modes, to: Register, from: &[Register]) -> Scalar {
    let mut arguments = [Register::NONE; 4];
    arguments[..from.len()].copy_from_slice(from);
    Scalar { op, ty, modes, to, arguments }
}

/// A rounding to a floating number.
pub(super) fn rounding(word: &str) -> Option<Rounding> {
    Some(match word {
        "rn" => Rounding::Nearest,
        "rz" => Rounding::Zero,
        "rm" => Rounding::Down,
        "rp" => Rounding::Up,
        _ => return None,
    })
}
