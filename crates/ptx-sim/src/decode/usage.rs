//! Which names a function uses, before it is decoded: what of the module it needs, and what it may call.

use std::collections::BTreeSet;

use crate::text::syntax::{InstructionText, Operand, Statement};

/// The names in a body, whatever they stand for.
#[derive(Debug, Default)]
pub(super) struct Usage<'t> {
    /// Operands of instructions, but for those in `called`.
    pub(super) named: BTreeSet<&'t str>,
    /// What calls name, and the names behind `.calltargets`.
    pub(super) called: BTreeSet<&'t str>,
    /// What calls name without `.calltargets`: where it is a register, any function may be called.
    pub(super) called_freely: BTreeSet<&'t str>,
}

impl<'t> Usage<'t> {
    pub(super) fn of(body: &'t [Statement<'t>]) -> Self {
        let mut usage = Self::default();
        let mut targets = BTreeSet::new();
        usage.block(body, &mut targets);
        usage
    }

    fn block(&mut self, body: &'t [Statement<'t>], targets: &mut BTreeSet<&'t str>) {
        for statement in body {
            if let Statement::Targets { name, targets: functions, .. } = statement {
                targets.insert(name);
                self.called.extend(functions);
            }
        }
        for statement in body {
            match statement {
                Statement::Block(inside) => self.block(inside, targets),
                Statement::Instruction(instruction) => self.instruction(instruction, targets),
                Statement::Registers { .. }
                | Statement::Variable(_)
                | Statement::Label { .. }
                | Statement::Location { .. }
                | Statement::Prototype { .. }
                | Statement::Targets { .. } => {}
            }
        }
    }

    fn instruction(&mut self, instruction: &'t InstructionText<'t>, targets: &BTreeSet<&'t str>) {
        if let Some((name, _)) = instruction.guard {
            self.named.insert(name);
        }
        if !is_call(instruction.word) {
            instruction.operands.iter().for_each(|operand| self.operand(operand));
            return;
        }
        let mut callee = None;
        for operand in &instruction.operands {
            if let (Operand::Name(name), None) = (operand, callee) {
                callee = Some(*name);
            } else {
                self.operand(operand);
            }
        }
        let has_targets = matches!(instruction.operands.last(), Some(Operand::Name(name)) if targets.contains(name));
        if let Some(callee) = callee {
            self.called.insert(callee);
            if !has_targets {
                self.called_freely.insert(callee);
            }
        }
    }

    fn operand(&mut self, operand: &'t Operand<'t>) {
        match operand {
            Operand::Name(name) | Operand::Not(name) | Operand::Minus(name) | Operand::Sum(name, _) => {
                self.named.insert(name);
            }
            Operand::Address(inside, _) => self.operand(inside),
            Operand::List(parts) | Operand::Group(parts) => parts.iter().for_each(|part| self.operand(part)),
            Operand::Pair(a, b) => {
                self.operand(a);
                self.operand(b);
            }
            Operand::Integer(_) | Operand::Float(..) | Operand::Sink => {}
        }
    }
}

/// Whether an instruction's word is that of a call.
pub(super) fn is_call(word: &str) -> bool {
    matches!(word, "call" | "call.uni")
}
