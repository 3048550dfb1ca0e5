//! Calls: what is called, and how arguments and results get there.
//!
//! Arguments and results are bytes of local memory on both sides. One that is a register or a constant in the text gets
//! a slot of its own: it is stored there before the call, or loaded from there behind it.

#![expect(clippy::wildcard_enum_match_arm, reason = "operands of any other form are refused or left alone")]

use super::function::Body;
use super::link::Meaning;
use super::shape::Shape;
use crate::program::action::{Action, Builtin, Call, CallTarget, Load, Order, Slot, Store};
use crate::program::types::{Address, Kind, Register, Space, Special, Type};
use crate::refusal::Refusal;
use crate::text::Place;
use crate::text::syntax::{InstructionText, Operand, VariableText};

/// The parts of a call as it is written.
#[derive(Clone, Copy, Debug)]
struct Parts<'t> {
    results: &'t [Operand<'t>],
    callee: &'t str,
    arguments: &'t [Operand<'t>],
    /// The name of a prototype or of call targets.
    kind: Option<&'t str>,
}

/// What a callee takes and gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature<'t> {
    pub(super) results: &'t [VariableText<'t>],
    pub(super) parameters: &'t [VariableText<'t>],
}

impl<'t> Parts<'t> {
    fn of(text: &'t InstructionText<'t>) -> Option<Self> {
        let (results, rest) = match text.operands.as_slice() {
            [Operand::Group(results), rest @ ..] => (results.as_slice(), rest),
            rest => (&[][..], rest),
        };
        let (callee, arguments, rest) = match rest {
            [Operand::Name(callee), Operand::Group(arguments), rest @ ..] => (callee, arguments.as_slice(), rest),
            [Operand::Name(callee), rest @ ..] => (callee, &[][..], rest),
            _ => return None,
        };
        match rest {
            [] => Some(Self { results, callee, arguments, kind: None }),
            [Operand::Name(kind)] => Some(Self { results, callee, arguments, kind: Some(kind) }),
            _ => None,
        }
    }
}

impl<'t> Body<'_, 't> {
    /// `call`
    pub(super) fn call(&mut self, text: &'t InstructionText<'t>) -> Result<(), Refusal> {
        let written = |what: &str| Refusal::invalid(text.at, format!("{what}: '{text}'"));
        let parts = Parts::of(text).ok_or_else(|| written("wrong form of a call"))?;
        let (target, signature) = self.callee(text, parts)?;
        if signature.parameters.len() != parts.arguments.len() || signature.results.len() != parts.results.len() {
            return Err(written("wrong number of arguments or results"));
        }
        let guard = self.guard(text)?;
        let mut arguments = Vec::new();
        for (formal, actual) in signature.parameters.iter().zip(parts.arguments) {
            let slot = self.argument(text, formal, actual)?;
            arguments.push(slot);
        }
        let (mut results, mut loads) = (Vec::new(), Vec::new());
        for (formal, actual) in signature.results.iter().zip(parts.results) {
            let (slot, register) = self.result(text, formal, actual)?;
            results.push(slot);
            loads.extend(register.map(|register| (register, slot)));
        }
        self.push(guard, Action::Call(Call { target, arguments, results }));
        for (register, slot) in loads {
            let load = self.load_slot(register, slot, text.at)?;
            self.push(guard, load);
        }
        Ok(())
    }

    /// What is called, and what it takes and gives.
    fn callee(
        &mut self,
        text: &'t InstructionText<'t>,
        parts: Parts<'t>,
    ) -> Result<(CallTarget, Signature<'t>), Refusal> {
        let written = |what: String| Refusal::invalid(text.at, format!("{what}: '{text}'"));
        if let Some(register) = self.names.register(parts.callee) {
            if !register.is_long() {
                return Err(written("a call needs an address of 64 bits".to_owned()));
            }
            let signature = parts.kind.and_then(|kind| self.signature(kind));
            let signature = signature.ok_or_else(|| written("a call of an address needs a prototype".to_owned()))?;
            return Ok((CallTarget::Address(register), signature));
        }
        let Some(Meaning::Function(index)) = self.meaning(parts.callee) else {
            return Err(written(format!("'{}' is not a function", parts.callee)));
        };
        let linked = self.context.linked.functions[index as usize];
        let signature = Signature { results: &linked.function.returns, parameters: &linked.function.parameters };
        if let Some(builtin) = linked.builtin {
            check_builtin(builtin, signature)
                .ok_or_else(|| written(format!("wrong parameters of '{}'", parts.callee)))?;
            return Ok((CallTarget::Builtin(builtin), signature));
        }
        if linked.function.body.is_none() {
            return Err(Refusal::not_supported(text.at, format!("no text defines '{}': '{text}'", parts.callee)));
        }
        match linked.function.is_entry {
            true => Err(written(format!("'{}' is a kernel", parts.callee))),
            false => Ok((CallTarget::Function(index), signature)),
        }
    }

    /// The slot of an argument.
    fn argument(
        &mut self,
        text: &InstructionText<'_>,
        formal: &VariableText<'_>,
        actual: &Operand<'_>,
    ) -> Result<Slot, Refusal> {
        let wrong = || Refusal::invalid(text.at, format!("wrong argument {actual}: '{text}'"));
        let shape = Shape::of(formal)?;
        if let Some(slot) = self.local_slot(actual) {
            return fitting(slot, shape).ok_or_else(wrong);
        }
        let bits = u8::try_from(shape.size.saturating_mul(8)).ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64));
        let bits = bits.ok_or_else(wrong)?;
        let value = match *actual {
            Operand::Name(name) => self.names.register(name).filter(|value| value.bits == bits).ok_or_else(wrong)?,
            Operand::Integer(number) if !shape.ty.is_float() => self.names.constant(bits, number, text.at)?,
            Operand::Float(value, size) if size == bits => self.names.constant(bits, value, text.at)?,
            Operand::Float(value, 64) if shape.ty == Type::F32 => self.names.constant(32, narrowed(value), text.at)?,
            _ => return Err(wrong()),
        };
        let slot = self.locals.allocate(shape, "an argument", text.at)?;
        let (guard, store) = (self.guard(text)?, self.store_slot(value, slot, text.at)?);
        self.push(guard, store);
        Ok(slot)
    }

    /// The slot of a result, and the register that it is loaded into.
    fn result(
        &mut self,
        text: &InstructionText<'_>,
        formal: &VariableText<'_>,
        actual: &Operand<'_>,
    ) -> Result<(Slot, Option<Register>), Refusal> {
        let wrong = || Refusal::invalid(text.at, format!("wrong result {actual}: '{text}'"));
        let shape = Shape::of(formal)?;
        if let Some(slot) = self.local_slot(actual) {
            return fitting(slot, shape).map(|slot| (slot, None)).ok_or_else(wrong);
        }
        let register = match actual {
            Operand::Sink => None,
            Operand::Name(name) => {
                let register = self.names.register(name);
                let fits = |register: &Register| u64::from(register.bits) == shape.size.saturating_mul(8);
                Some(register.filter(fits).ok_or_else(wrong)?)
            }
            _ => return Err(wrong()),
        };
        Ok((self.locals.allocate(shape, "a result", text.at)?, register))
    }

    /// An instruction that loads a register from local memory.
    pub(super) fn load_slot(&mut self, to: Register, slot: Slot, at: Place) -> Result<Action, Refusal> {
        let from = self.slot_address(slot, at)?;
        let (space, ty, order) = (Space::Local, Type::new(Kind::Bits, to.bits), Order::Weak);
        Ok(Action::Load(Load { space, ty, order, to: vec![Some(to)], from }))
    }

    /// One that stores it there.
    pub(super) fn store_slot(&mut self, from: Register, slot: Slot, at: Place) -> Result<Action, Refusal> {
        let to = self.slot_address(slot, at)?;
        let (space, ty, order) = (Space::Local, Type::new(Kind::Bits, from.bits), Order::Weak);
        Ok(Action::Store(Store { space, ty, order, to, from: vec![from] }))
    }

    fn slot_address(&mut self, slot: Slot, at: Place) -> Result<Address, Refusal> {
        let base = self.names.special(Special::Local(slot.offset), 64, at)?;
        Ok(Address { base, offset: 0 })
    }
}

/// As many bytes of a variable as the callee takes.
fn fitting(slot: Slot, shape: Shape) -> Option<Slot> {
    let size = u32::try_from(shape.size).ok().filter(|&size| size <= slot.size)?;
    Some(Slot { offset: slot.offset, size })
}

#[expect(clippy::cast_possible_truncation, reason = "the constant is rounded to the parameter's type")]
fn narrowed(bits: u64) -> u64 {
    u64::from((f64::from_bits(bits) as f32).to_bits())
}

/// Whether the text declares a function of the driver as it is.
fn check_builtin(builtin: Builtin, signature: Signature<'_>) -> Option<()> {
    let (parameters, results): (&[u64], &[u64]) = match builtin {
        Builtin::Printf => (&[8, 8], &[4]),
        Builtin::AssertFail => (&[8, 8, 4, 8, 8], &[]),
        Builtin::Malloc => (&[8], &[8]),
        Builtin::Free => (&[8], &[]),
        Builtin::SetConditional => (&[8, 4], &[]),
    };
    let sizes = |variables: &[VariableText<'_>]| {
        variables.iter().map(|variable| Shape::of(variable).ok().map(|shape| shape.size)).collect::<Option<Vec<_>>>()
    };
    (sizes(signature.parameters)? == parameters && sizes(signature.results)? == results).then_some(())
}
