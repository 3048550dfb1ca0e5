//! Operands: registers, constants, special registers and addresses as rows of the frame.

#![expect(clippy::wildcard_enum_match_arm, reason = "operands of any other form are refused")]

use super::reader::Reader;
use super::special::{Found, special};
use crate::decode::names::Symbol;
use crate::program::action::Action;
use crate::program::scalar::{Modes, ScalarOp};
use crate::program::types::{Address, FUNCTION_WINDOW, Kind, Register, Space, Special, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

/// A state space as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpaceWord {
    Generic,
    Global,
    Const,
    Shared,
    Local,
    Parameter,
}

impl Reader<'_, '_, '_> {
    /// The register of a name, which must be there.
    pub(super) fn register(&self, name: &str) -> Result<Register, Refusal> {
        self.names.register(name).ok_or_else(|| self.invalid(&format!("'{name}' is unknown")))
    }

    fn result(&self, operand: &Operand<'_>) -> Result<Register, Refusal> {
        match operand {
            Operand::Name(name) => self.register(name),
            _ => Err(self.invalid("the result is no register")),
        }
    }

    /// A register for a result of so many bits.
    pub(super) fn to(&self, operand: &Operand<'_>, bits: u8) -> Result<Register, Refusal> {
        let register = self.result(operand)?;
        if register.bits == bits { Ok(register) } else { Err(self.invalid("wrong size of the result")) }
    }

    /// A register for a result of at least so many bits.
    pub(super) fn to_wide(&self, operand: &Operand<'_>, bits: u8) -> Result<Register, Refusal> {
        let register = self.result(operand)?;
        if register.bits >= bits { Ok(register) } else { Err(self.invalid("wrong size of the result")) }
    }

    /// A register for a result, or `_`.
    pub(super) fn to_or_sink(&self, operand: &Operand<'_>, bits: u8) -> Result<Option<Register>, Refusal> {
        match operand {
            Operand::Sink => Ok(None),
            operand => self.to(operand, bits).map(Some),
        }
    }

    /// A value of a type.
    pub(super) fn value(&mut self, operand: &Operand<'_>, ty: Type) -> Result<Register, Refusal> {
        let value = self.value_wide(operand, ty)?;
        if value.bits == ty.register_bits() { Ok(value) } else { Err(self.invalid("wrong size of an operand")) }
    }

    /// A value of a type, which may also be an address, and which has its size.
    pub(super) fn any_exact(&mut self, operand: &Operand<'_>, ty: Type) -> Result<Register, Refusal> {
        let value = self.any(operand, ty)?;
        if value.bits == ty.register_bits() { Ok(value) } else { Err(self.invalid("wrong size of an operand")) }
    }

    /// A count or a place, of 32 bits.
    pub(super) fn word(&mut self, operand: &Operand<'_>) -> Result<Register, Refusal> {
        self.value(operand, Type::B32)
    }

    /// A value of a type, from a register that may be wider.
    pub(super) fn value_wide(&mut self, operand: &Operand<'_>, ty: Type) -> Result<Register, Refusal> {
        match operand {
            Operand::Name("WARP_SZ") => self.names.special(Special::WarpSize, ty.register_bits(), self.text.at),
            Operand::Name(name) if self.names.register(name).is_some() => self.any(operand, ty),
            Operand::Name(_) | Operand::Sum(..) => Err(self.invalid("an operand is no register")),
            operand => self.any(operand, ty),
        }
    }

    /// A value of a type, which may also be an address or a special register.
    pub(super) fn any(&mut self, operand: &Operand<'_>, ty: Type) -> Result<Register, Refusal> {
        let (bits, at) = (ty.register_bits(), self.text.at);
        let register = match operand {
            Operand::Name(name) => self.named(name, bits)?,
            Operand::Not(_) if ty.kind == Kind::Predicate => {
                let (to, from) = (self.names.scratch(1, at)?, self.predicate(operand)?.0);
                self.scalar(ScalarOp::Not, ty, Modes::PLAIN, to, &[from]);
                to
            }
            Operand::Sum(name, offset) => match self.names.symbol(name) {
                Some(symbol) => self.symbol_address(symbol, *offset, bits)?,
                None => return Err(self.invalid(&format!("'{name}' is unknown"))),
            },
            Operand::Integer(_) if ty.is_float() => return Err(self.invalid("an integer as an operand")),
            &Operand::Integer(number) if ty.kind == Kind::Predicate => {
                self.names.constant(1, u64::from(number != 0), at)?
            }
            &Operand::Integer(number) => self.names.constant(bits, number, at)?,
            &Operand::Float(value, size) => {
                let value = self.float(value, size, ty)?;
                self.names.constant(bits, value, at)?
            }
            _ => return Err(self.invalid("wrong form of an operand")),
        };
        let is_truth = ty.kind == Kind::Predicate;
        if register.is_predicate() != is_truth {
            return Err(self.invalid(if is_truth {
                "no predicate as an operand"
            } else {
                "a predicate as an operand"
            }));
        }
        if register.bits < bits { Err(self.invalid("wrong size of an operand")) } else { Ok(register) }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a constant of fewer bits is rounded")]
    fn float(&self, bits: u64, size: u8, ty: Type) -> Result<u64, Refusal> {
        let narrow = |bits: u64| u64::from((f64::from_bits(bits) as f32).to_bits());
        match (ty.kind, ty.register_bits(), size) {
            (Kind::Float, 32, 64) if !ty.packed => Ok(narrow(bits)),
            // The assembler takes the bits as they are.
            (Kind::Float, 64, 32) => Ok(bits),
            (Kind::Float | Kind::Bits, wanted, _) if wanted == size && !ty.packed => Ok(bits),
            _ => Err(self.invalid("a floating constant as an operand")),
        }
    }

    fn named(&mut self, name: &str, bits: u8) -> Result<Register, Refusal> {
        if let Some(register) = self.names.register(name) {
            return Ok(register);
        }
        if let Some(symbol) = self.names.symbol(name) {
            return self.symbol_address(symbol, 0, bits);
        }
        match special(name) {
            Some(Found::Row(special, bits)) => self.names.special(special, bits, self.text.at),
            Some(Found::Clock(clock, bits)) => {
                let to = self.names.scratch(bits, self.text.at)?;
                self.push(Action::ReadClock { to, clock });
                Ok(to)
            }
            Some(Found::Refused) => Err(self.unsupported(&format!("'{name}'"))),
            None => Err(self.invalid(&format!("'{name}' is unknown"))),
        }
    }

    /// The address that a name stands for, in its own space.
    fn symbol_address(&mut self, symbol: Symbol, offset: u64, bits: u8) -> Result<Register, Refusal> {
        let fits = match symbol {
            Symbol::Variable(_) | Symbol::Function(_) => bits == 64,
            Symbol::Shared(_) | Symbol::DynamicShared | Symbol::Local(_) | Symbol::Parameter(_) => {
                matches!(bits, 32 | 64)
            }
        };
        if !fits {
            return Err(self.invalid("wrong size of an address"));
        }
        let at = self.text.at;
        let row = match symbol {
            Symbol::Variable(start) => self.names.special(Special::Variable(start.wrapping_add(offset)), bits, at)?,
            Symbol::Local(start) => {
                let place =
                    i64::from(start).checked_add(offset.cast_signed()).and_then(|place| u32::try_from(place).ok());
                let place = place.ok_or_else(|| self.invalid("an address outside of the variable"))?;
                self.names.special(Special::Local(place), bits, at)?
            }
            Symbol::Shared(start) | Symbol::Parameter(start) => {
                self.names.constant(bits, start.wrapping_add(offset), at)?
            }
            Symbol::Function(index) if offset == 0 => {
                self.names.constant(bits, FUNCTION_WINDOW + u64::from(index), at)?
            }
            Symbol::Function(_) => return Err(self.invalid("an address inside of a function")),
            Symbol::DynamicShared => {
                let start = self.names.special(Special::DynamicShared, bits, at)?;
                if offset == 0 {
                    return Ok(start);
                }
                let (to, distance) = (self.names.scratch(bits, at)?, self.names.constant(bits, offset, at)?);
                let ty = Type::new(Kind::Unsigned, bits);
                self.scalar(ScalarOp::Add, ty, Modes::PLAIN, to, &[start, distance]);
                to
            }
        };
        Ok(row)
    }

    /// A predicate, and whether `!` stands before it.
    pub(super) fn predicate(&mut self, operand: &Operand<'_>) -> Result<(Register, bool), Refusal> {
        let (register, negated) = match operand {
            Operand::Name(name) => (self.register(name)?, false),
            Operand::Not(name) => (self.register(name)?, true),
            &Operand::Integer(number) => (self.names.constant(1, u64::from(number != 0), self.text.at)?, false),
            _ => return Err(self.invalid("no predicate as an operand")),
        };
        if register.is_predicate() { Ok((register, negated)) } else { Err(self.invalid("no predicate as an operand")) }
    }

    /// Takes a state space; none is the generic one.
    pub(super) fn space(&mut self) -> SpaceWord {
        self.take(|word| match word {
            "global" => Some(SpaceWord::Global),
            "const" => Some(SpaceWord::Const),
            "shared" | "shared::cta" => Some(SpaceWord::Shared),
            "local" => Some(SpaceWord::Local),
            "param" | "param::entry" | "param::func" => Some(SpaceWord::Parameter),
            _ => None,
        })
        .unwrap_or(SpaceWord::Generic)
    }

    /// The space of an access through a register.
    pub(super) fn space_of(&self, space: SpaceWord) -> Space {
        match space {
            SpaceWord::Generic => Space::Generic,
            SpaceWord::Global | SpaceWord::Const => Space::Global,
            SpaceWord::Shared => Space::Shared,
            SpaceWord::Local => Space::Local,
            SpaceWord::Parameter if self.names.in_entry => Space::Parameters,
            SpaceWord::Parameter => Space::Local,
        }
    }

    /// An address in brackets, and the space it is of.
    pub(super) fn address(&mut self, operand: &Operand<'_>, word: SpaceWord) -> Result<(Space, Address), Refusal> {
        let Operand::Address(base, offset) = operand else { return Err(self.invalid("no address as an operand")) };
        let (offset, space, at) = (offset.cast_signed(), self.space_of(word), self.text.at);
        let name = match base.as_ref() {
            Operand::Name(name) => *name,
            &Operand::Integer(number) if word == SpaceWord::Local => {
                let base = self.names.constant(64, number, at)?;
                return Ok((space, Address { base, offset }));
            }
            _ => return Err(self.invalid("wrong form of an address")),
        };
        if let Some(base) = self.names.register(name) {
            let narrow = base.bits == 32 && !matches!(word, SpaceWord::Generic | SpaceWord::Global);
            if base.bits == 64 || narrow {
                return Ok((space, Address { base, offset }));
            }
            return Err(self.invalid("wrong size of an address"));
        }
        let symbol = self.names.symbol(name).ok_or_else(|| self.invalid(&format!("'{name}' is unknown")))?;
        let (space, base) = match (symbol, word) {
            (Symbol::Variable(start), SpaceWord::Global | SpaceWord::Const | SpaceWord::Generic) => {
                let place = start.wrapping_add_signed(offset);
                let base = self.names.special(Special::Variable(place), 64, at)?;
                return Ok((Space::Global, Address { base, offset: 0 }));
            }
            (Symbol::Shared(start), SpaceWord::Shared | SpaceWord::Generic) => {
                (Space::Shared, self.names.constant(32, start, at)?)
            }
            (Symbol::DynamicShared, SpaceWord::Shared | SpaceWord::Generic) => {
                (Space::Shared, self.names.special(Special::DynamicShared, 32, at)?)
            }
            (Symbol::Local(start), SpaceWord::Local | SpaceWord::Parameter | SpaceWord::Generic) => {
                (Space::Local, self.names.special(Special::Local(start), 64, at)?)
            }
            (Symbol::Parameter(start), SpaceWord::Parameter) => {
                (Space::Parameters, self.names.constant(64, start, at)?)
            }
            _ => return Err(self.invalid(&format!("'{name}' is not of this space"))),
        };
        Ok((space, Address { base, offset }))
    }
}

/// Results of `a|b`, or of `a` alone.
pub(super) fn pair<'o, 't>(operand: &'o Operand<'t>) -> (&'o Operand<'t>, Option<&'o Operand<'t>>) {
    match operand {
        Operand::Pair(first, second) => (first, Some(second)),
        operand => (operand, None),
    }
}
