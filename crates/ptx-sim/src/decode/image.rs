//! Global and constant variables in one stretch of memory: where they lie, and the bytes they begin with.
//!
//! **Invariants:** variables do not overlap, and those of constant memory come first; every value and every address lies
//! inside of its variable.

use std::collections::{BTreeMap, BTreeSet};

use super::link::{Linked, LinkedVariable, Meaning};
use super::shape::Shape;
use crate::program::types::{FUNCTION_WINDOW, Kind, Type, mask};
use crate::program::{Relocation, RelocationTarget, Variable};
use crate::refusal::Refusal;
use crate::text::syntax::{Initial, VariableText};

/// The most bytes of all variables.
const MAX_BYTES: u64 = 1 << 30;

/// The stretch of memory.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// Of variables of the module, by index.
    pub(super) offsets: BTreeMap<usize, u64>,
    /// Bytes of the constant variables, which come first.
    pub(super) constant_bytes: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) relocations: Vec<Relocation>,
    /// Functions whose addresses stand in it.
    pub(super) functions: BTreeSet<u32>,
}

/// Whether a variable lies in the stretch, and not in memory of another kind.
fn is_in_image(variable: &VariableText<'_>) -> bool {
    matches!(variable.space, "global" | "const") && Type::of(variable.ty).is_some()
}

impl Image {
    pub(super) fn of(linked: &Linked<'_>) -> Result<Self, Refusal> {
        let mut image = Self::default();
        let mut end = 0;
        let variables = || linked.variables.iter().enumerate().filter(|(_, found)| is_in_image(found.variable));
        for LinkedVariable { variable, .. } in &linked.variables {
            if variable.initial.is_some() && !is_in_image(variable) {
                return Err(Refusal::invalid(variable.at, format!("'{}' cannot begin with a value", variable.name)));
            }
        }
        for space in ["const", "global"] {
            for (index, LinkedVariable { variable, .. }) in
                variables().filter(|(_, found)| found.variable.space == space)
            {
                let too_large =
                    || Refusal::not_supported(variable.at, format!("more than {MAX_BYTES} bytes of variables"));
                let offset = Shape::of(variable)?.behind(&mut end, MAX_BYTES).ok_or_else(too_large)?;
                image.offsets.insert(index, offset);
            }
            if space == "const" {
                image.constant_bytes = end;
            }
        }
        image.bytes = vec![0; usize::try_from(end).unwrap_or(usize::MAX)];
        for (index, found) in variables() {
            let offset = image.offsets[&index];
            image.fill(linked, found, offset)?;
        }
        Ok(image)
    }

    /// Writes what a variable begins with.
    fn fill(&mut self, linked: &Linked<'_>, found: &LinkedVariable<'_>, offset: u64) -> Result<(), Refusal> {
        let variable = found.variable;
        let shape = Shape::of(variable)?;
        let (bytes, end) = (shape.ty.bytes(), offset + shape.size);
        let mut at = offset;
        for value in variable.initial.iter().flatten() {
            if let Initial::Zeros(count) = value {
                at = at.saturating_add(bytes.saturating_mul(*count));
                continue;
            }
            if at.saturating_add(bytes) > end {
                return Err(Refusal::invalid(variable.at, format!("'{}' has too many values", variable.name)));
            }
            match *value {
                Initial::Integer(number) => self.write(at, bytes, integer(number, shape.ty)),
                Initial::Float(bits, size) => self.write(at, bytes, float(bits, size, shape.ty, variable)?),
                Initial::Symbol { name, offset, mask } => {
                    let target = self.target(linked, found, name, offset)?;
                    let (bytes, shift) = part(shape.ty, mask, variable)?;
                    self.relocations.push(Relocation { at, bytes, target, shift });
                }
                Initial::Zeros(_) => {}
            }
            at += bytes;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: u64, value: u64) {
        let (at, bytes) = (usize::try_from(at).unwrap_or(usize::MAX), usize::try_from(bytes).unwrap_or(usize::MAX));
        self.bytes[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }

    /// What a name in a variable's value is the address of.
    fn target(
        &mut self,
        linked: &Linked<'_>,
        found: &LinkedVariable<'_>,
        name: &str,
        offset: u64,
    ) -> Result<RelocationTarget, Refusal> {
        let at = found.variable.at;
        match linked.scopes[found.text].get(name) {
            Some(&Meaning::Function(index)) => {
                self.functions.insert(index);
                let address = FUNCTION_WINDOW + u64::from(index);
                Ok(RelocationTarget::Absolute(address.wrapping_add(offset)))
            }
            Some(Meaning::Variable(index)) => {
                let base = self.offsets.get(index).copied();
                let base =
                    base.ok_or_else(|| Refusal::not_supported(at, format!("the address of '{name}' in a value")))?;
                Ok(RelocationTarget::Variable(base.wrapping_add(offset)))
            }
            Some(Meaning::DynamicShared) => {
                Err(Refusal::not_supported(at, format!("the address of '{name}' in a value")))
            }
            Some(Meaning::Undefined) => Err(Refusal::not_supported(at, format!("no text defines '{name}'"))),
            None => Err(Refusal::invalid(at, format!("'{name}' is unknown"))),
        }
    }
}

/// An integer as a value of a type.
#[expect(clippy::cast_precision_loss, reason = "an integer as a floating value is rounded")]
fn integer(number: u64, ty: Type) -> u64 {
    let number = match (ty.kind, ty.register_bits()) {
        (Kind::Float, 64) => (number.cast_signed() as f64).to_bits(),
        (Kind::Float, 32) => u64::from((number.cast_signed() as f32).to_bits()),
        _ => number,
    };
    number & mask(ty.register_bits())
}

/// The bits of a floating constant as a value of a type.
#[expect(clippy::cast_possible_truncation, reason = "a constant is rounded to the type; 32 bits are all there are")]
fn float(bits: u64, size: u8, ty: Type, variable: &VariableText<'_>) -> Result<u64, Refusal> {
    let wide = if size == 64 { f64::from_bits(bits) } else { f64::from(f32::from_bits(bits as u32)) };
    match (ty.kind, ty.register_bits()) {
        (Kind::Float, 64) => Ok(wide.to_bits()),
        (Kind::Float, 32) if size == 32 => Ok(bits),
        (Kind::Float, 32) => Ok(u64::from((wide as f32).to_bits())),
        (Kind::Float, 16) if !ty.packed => Ok(u64::from(half::f16::from_f64(wide).to_bits())),
        (Kind::Bits, wanted) if wanted == size => Ok(bits),
        _ => {
            Err(Refusal::invalid(variable.at, format!("a floating value of '{}', of .{}", variable.name, variable.ty)))
        }
    }
}

/// Bytes of an address that a value takes, and by how much it is shifted first.
fn part(ty: Type, taken: Option<u64>, variable: &VariableText<'_>) -> Result<(u8, u8), Refusal> {
    let refused = || Refusal::invalid(variable.at, format!("an address in '{}', of .{}", variable.name, variable.ty));
    let bits = ty.register_bits();
    let shift = taken.map_or(0, |taken| taken.trailing_zeros().min(63));
    let fits = match taken {
        None => bits == 64,
        Some(taken) => taken >> shift == mask(bits),
    };
    if !fits || ty.packed || ty.is_float() {
        return Err(refused());
    }
    Ok((bits.div_ceil(8), u8::try_from(shift).map_err(|_| refused())?))
}

/// The variables that a program can find, those that a text keeps to itself behind the others.
pub(super) fn variables(linked: &Linked<'_>, image: &Image) -> Vec<Variable> {
    let mut found: Vec<(bool, Variable)> = Vec::new();
    for (&index, &offset) in &image.offsets {
        let LinkedVariable { variable, is_private, .. } = linked.variables[index];
        let size = Shape::of(variable).map_or(0, |shape| shape.size);
        found.push((is_private, Variable { name: variable.name.to_owned(), offset, size }));
    }
    found.sort_by_key(|(is_private, _)| *is_private);
    found.into_iter().map(|(_, variable)| variable).collect()
}
