//! A function's body: declarations, blocks and instructions in their order.
//!
//! **Invariants:** an instruction that is refused leaves no code behind, and the next one is read; all refusals of a
//! function are kept. A function whose registers cannot be declared is given up, since all that uses them would be
//! refused too.

#![expect(clippy::wildcard_enum_match_arm, reason = "operands of any other form are refused or left alone")]

use std::collections::BTreeMap;

use super::call::Signature;
use super::instruction;
use super::label::Labels;
use super::link::{LinkedFunction, Meaning};
use super::locals::Locals;
use super::module::Context;
use super::names::{Names, Symbol};
use super::shape::Shape;
use super::usage::{Usage, is_call};
use crate::program::action::{Action, Builtin, CallTarget, Instruction, Slot};
use crate::program::types::{Register, Type};
use crate::program::{Function, Source};
use crate::refusal::Refusal;
use crate::text::Place;
use crate::text::syntax::{FunctionText, InstructionText, Linkage, Operand, Statement, VariableText};

/// The most bytes of a launch's parameters.
const MAX_PARAMETER_BYTES: u64 = 32764;

/// The most registers that one name may stand for.
const MAX_REGISTERS: u32 = 1 << 16;

/// Decodes a function of the module by its index.
pub(super) fn decode<'t>(context: &Context<'t>, index: usize, usage: &Usage<'t>) -> Function {
    let LinkedFunction { text, function, builtin } = context.linked.functions[index];
    let (name, is_entry) = (function.name.to_owned(), function.is_entry);
    let Some(statements) = &function.body else {
        let why = match builtin {
            Some(_) => format!("a call of '{name}' by its address"),
            None => format!("no text defines '{name}'"),
        };
        let refusals = vec![Refusal::not_supported(function.at, why).in_function(&name)];
        return Function { name, is_entry, refusals, ..Function::default() };
    };
    let mut body = Body::new(context, index, text, usage);
    let declared = body.parameters(function);
    match declared {
        Ok(()) => body.block(statements),
        Err(refusal) => body.refuse(refusal),
    }
    if function.tuning.clusters {
        body.refuse(Refusal::not_supported(function.at, "clusters of blocks"));
    }
    body.finish(function)
}

/// A function while it is being decoded.
pub(super) struct Body<'b, 't> {
    pub(super) context: &'b Context<'t>,
    text: usize,
    function: &'t FunctionText<'t>,
    usage: &'b Usage<'t>,
    pub(super) names: Names<'t>,
    pub(super) locals: Locals,
    labels: Labels<'t>,
    /// By block, from the outermost to the innermost.
    declared: Vec<Declared<'t>>,
    parameters: Vec<Slot>,
    results: Vec<Slot>,
    /// Results that are registers, which `ret` stores.
    result_registers: Vec<(Register, Slot)>,
    /// Offsets of the shared variables that are still to come.
    shared: std::slice::Iter<'b, u64>,
    code: Vec<Instruction>,
    places: Vec<Source>,
    origin: Option<(u32, u32)>,
    refusals: Vec<Refusal>,
    is_given_up: bool,
}

/// What a block declares besides registers, variables and labels.
#[derive(Debug, Default)]
struct Declared<'t> {
    prototypes: BTreeMap<&'t str, Signature<'t>>,
    targets: BTreeMap<&'t str, &'t [&'t str]>,
    /// Components of vector registers.
    vectors: BTreeMap<String, Vec<String>>,
}

impl<'b, 't> Body<'b, 't> {
    fn new(context: &'b Context<'t>, index: usize, text: usize, usage: &'b Usage<'t>) -> Self {
        let scope = &context.linked.scopes[text];
        let used = usage.named.iter().filter_map(|&name| Some((name, context.symbol(*scope.get(name)?)?)));
        let mut names = Names::new(used.collect());
        names.in_entry = context.linked.functions[index].function.is_entry;
        names.constant_bytes = context.image.constant_bytes;
        Self {
            context,
            text,
            function: context.linked.functions[index].function,
            usage,
            names,
            locals: Locals::default(),
            labels: Labels::new(),
            declared: Vec::new(),
            parameters: Vec::new(),
            results: Vec::new(),
            result_registers: Vec::new(),
            shared: context.shared.of_bodies[index].iter(),
            code: Vec::new(),
            places: Vec::new(),
            origin: None,
            refusals: Vec::new(),
            is_given_up: false,
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.refusals.push(refusal.in_function(self.function.name));
    }

    /// What a name outside of all bodies means.
    pub(super) fn meaning(&self, name: &str) -> Option<Meaning> {
        self.context.linked.scopes[self.text].get(name).copied()
    }

    /// What functions take and give that a prototype or call targets describe.
    pub(super) fn signature(&self, name: &str) -> Option<Signature<'t>> {
        for block in self.declared.iter().rev() {
            if let Some(&signature) = block.prototypes.get(name) {
                return Some(signature);
            }
            if let Some(&targets) = block.targets.get(name) {
                let Some(Meaning::Function(index)) = self.meaning(targets.first()?) else { return None };
                let function = self.context.linked.functions[index as usize].function;
                return Some(Signature { results: &function.returns, parameters: &function.parameters });
            }
        }
        None
    }

    /// The variable of local memory that an operand of a call names.
    pub(super) fn local_slot(&self, operand: &Operand<'_>) -> Option<Slot> {
        let Operand::Name(name) = operand else { return None };
        match self.names.symbol(name)? {
            Symbol::Local(offset) if self.names.register(name).is_none() => Some(self.locals.slot(offset)),
            _ => None,
        }
    }

    /// The predicate that an instruction depends on.
    pub(super) fn guard(&self, text: &InstructionText<'_>) -> Result<Option<(Register, bool)>, Refusal> {
        let Some((name, negate)) = text.guard else { return Ok(None) };
        match self.names.register(name).filter(|register| register.is_predicate()) {
            Some(register) => Ok(Some((register, !negate))),
            None => Err(Refusal::invalid(text.at, format!("'{name}' is not a predicate: '{text}'"))),
        }
    }

    pub(super) fn push(&mut self, guard: Option<(Register, bool)>, action: Action) {
        self.code.push(Instruction { guard, action });
    }

    /// Results and parameters, of which those of an entry are the launch's.
    fn parameters(&mut self, function: &'t FunctionText<'t>) -> Result<(), Refusal> {
        let mut end = 0;
        for parameter in &function.returns {
            let slot = self.parameter(parameter, &mut end)?;
            if parameter.space == "reg" {
                let register = self.names.register(parameter.name).expect("it was declared");
                self.result_registers.push((register, slot));
            }
            self.results.push(slot);
        }
        for parameter in &function.parameters {
            let slot = self.parameter(parameter, &mut end)?;
            if parameter.space == "reg" {
                let register = self.names.register(parameter.name).expect("it was declared");
                let load = self.load_slot(register, slot, parameter.at)?;
                self.push(None, load);
            }
            self.parameters.push(slot);
        }
        self.note_places(function.at);
        Ok(())
    }

    /// Declares a parameter or result; `end` is that of the launch's parameters so far.
    fn parameter(&mut self, parameter: &'t VariableText<'t>, end: &mut u64) -> Result<Slot, Refusal> {
        let (shape, name, at) = (Shape::of(parameter)?, parameter.name, parameter.at);
        if Shape::is_open(parameter) {
            return Err(Refusal::not_supported(at, format!("parameter '{name}' of unknown size")));
        }
        if parameter.space == "reg" {
            if self.function.is_entry || parameter.vector > 1 {
                return Err(Refusal::invalid(at, format!("parameter '{name}' is a register")));
            }
            self.names.declare(name.to_owned(), shape.ty.register_bits(), at)?;
            return self.locals.allocate(shape, name, at);
        }
        let (slot, symbol) = if self.function.is_entry {
            let too_many = || Refusal::invalid(at, format!("more than {MAX_PARAMETER_BYTES} bytes of parameters"));
            let offset = shape.behind(end, MAX_PARAMETER_BYTES).ok_or_else(too_many)?;
            let small = |bytes| u32::try_from(bytes).map_err(|_| too_many());
            (Slot { offset: small(offset)?, size: small(shape.size)? }, Symbol::Parameter(offset))
        } else {
            let slot = self.locals.allocate(shape, name, at)?;
            (slot, Symbol::Local(slot.offset))
        };
        if !matches!(name, "" | "_") {
            self.names.declare_symbol(name, symbol, at)?;
        }
        Ok(slot)
    }

    /// The statements of a block.
    fn block(&mut self, statements: &'t [Statement<'t>]) {
        self.declared.push(Declared::default());
        for statement in statements {
            self.declare_targets(statement);
        }
        for statement in statements {
            if self.is_given_up {
                break;
            }
            let length = self.code.len();
            if let Err(refusal) = self.statement(statement) {
                self.code.truncate(length);
                self.refuse(refusal);
            }
        }
        self.declared.pop();
    }

    /// Prototypes and lists of targets are known in all of their block.
    fn declare_targets(&mut self, statement: &'t Statement<'t>) {
        let block = self.declared.last_mut().expect("there is a block");
        match statement {
            Statement::Prototype { name, returns, parameters, .. } => {
                block.prototypes.insert(name, Signature { results: returns, parameters });
            }
            Statement::Targets { name, targets, .. } => {
                block.targets.insert(name, targets);
            }
            Statement::Block(_)
            | Statement::Registers { .. }
            | Statement::Variable(_)
            | Statement::Label { .. }
            | Statement::Instruction(_)
            | Statement::Location { .. } => {}
        }
    }

    fn statement(&mut self, statement: &'t Statement<'t>) -> Result<(), Refusal> {
        match statement {
            Statement::Block(statements) => {
                self.names.enter_block();
                self.labels.enter_block();
                let end = self.locals.enter_block();
                self.block(statements);
                self.locals.leave_block(end);
                self.labels.leave_block();
                self.names.leave_block();
                Ok(())
            }
            Statement::Registers { ty, vector, names, at } => {
                let declared =
                    names.iter().try_for_each(|&(name, count)| self.registers(ty, *vector, name, count, *at));
                self.is_given_up |= declared.is_err();
                declared
            }
            Statement::Variable(variable) => self.variable(variable),
            Statement::Label { name, at } => self.labels.define(name, self.code.len(), *at),
            Statement::Instruction(text) => {
                self.instruction(text)?;
                self.note_places(text.at);
                Ok(())
            }
            Statement::Location { file, line } => {
                self.origin = self.context.files[self.text].get(file).map(|&file| (file, *line));
                Ok(())
            }
            Statement::Prototype { .. } | Statement::Targets { .. } => Ok(()),
        }
    }

    /// The instructions that were added stand here.
    fn note_places(&mut self, place: Place) {
        self.places.resize(self.code.len(), Source { place, origin: self.origin });
    }

    /// One name of `.reg`, or as many as it is numbered.
    fn registers(
        &mut self,
        ty: &str,
        vector: u32,
        name: &'t str,
        count: Option<u32>,
        at: Place,
    ) -> Result<(), Refusal> {
        let bits = Type::of(ty).ok_or_else(|| Refusal::not_supported(at, format!("registers of type .{ty}")))?;
        let bits = bits.register_bits();
        let Some(count) = count else { return self.register(name.to_owned(), vector, bits, at) };
        if count > MAX_REGISTERS {
            return Err(Refusal::not_supported(at, format!("more than {MAX_REGISTERS} registers '{name}'")));
        }
        (0..count).try_for_each(|index| self.register(format!("{name}{index}"), vector, bits, at))
    }

    fn register(&mut self, name: String, vector: u32, bits: u8, at: Place) -> Result<(), Refusal> {
        if vector > 1 {
            let components: Vec<String> =
                "xyzw".chars().take(vector as usize).map(|axis| format!("{name}.{axis}")).collect();
            for component in &components {
                self.names.declare(component.clone(), bits, at)?;
            }
            self.declared.last_mut().expect("there is a block").vectors.insert(name, components);
            return Ok(());
        }
        // Compilers declare a register around each call that nothing uses: it needs no row.
        let is_used = self.usage.named.contains(name.as_str()) || self.usage.called.contains(name.as_str());
        if is_used || self.declared.len() == 1 { self.names.declare(name, bits, at) } else { Ok(()) }
    }

    /// A variable that a body declares.
    fn variable(&mut self, variable: &'t VariableText<'t>) -> Result<(), Refusal> {
        let (name, at) = (variable.name, variable.at);
        let not_supported = |what: &str| Refusal::not_supported(at, format!("'{name}', {what}"));
        if variable.initial.is_some() {
            return Err(Refusal::invalid(at, format!("'{name}' cannot begin with a value")));
        }
        let symbol = match variable.space {
            "shared" if variable.linkage == Linkage::Extern => match Shape::is_open(variable) {
                true => Symbol::DynamicShared,
                false => return Err(not_supported("declared in a body but not defined there")),
            },
            "shared" => {
                let offset = *self.shared.next().expect("every variable of the body has an offset");
                Shape::of(variable)?;
                Symbol::Shared(offset)
            }
            "param" | "local" if Shape::is_open(variable) => return Err(not_supported("of unknown size")),
            "param" | "local" => Symbol::Local(self.locals.allocate(Shape::of(variable)?, name, at)?.offset),
            _ => return Err(not_supported("a variable of the module in a body")),
        };
        self.names.declare_symbol(name, symbol, at)
    }

    fn instruction(&mut self, text: &'t InstructionText<'t>) -> Result<(), Refusal> {
        if is_call(text.word) {
            return self.call(text);
        }
        match text.word {
            "bra" | "bra.uni" => self.branch(text),
            "brx.idx" | "brx.idx.uni" => self.branch_indexed(text),
            "ret" | "ret.uni" => {
                let guard = self.guard(text)?;
                self.store_results(guard, text.at)?;
                self.decode(text)
            }
            _ => self.decode(text),
        }
    }

    fn decode(&mut self, text: &'t InstructionText<'t>) -> Result<(), Refusal> {
        let operands = || text.operands.iter();
        operands().try_for_each(|operand| self.check_defined(operand, text))?;
        let vectors = || self.declared.iter().rev().flat_map(|block| &block.vectors);
        if vectors().next().is_none() {
            return instruction::decode(text, &mut self.names, &mut self.code);
        }
        let with_components = |operand: &Operand<'t>| match operand {
            Operand::Name(name) => match vectors().find(|(vector, _)| vector == name) {
                Some((_, components)) => Operand::List(components.iter().map(|name| Operand::Name(name)).collect()),
                None => operand.clone(),
            },
            other => other.clone(),
        };
        let text = InstructionText { operands: operands().map(with_components).collect(), ..*text };
        instruction::decode(&text, &mut self.names, &mut self.code)
    }

    /// Refuses names outside of all bodies that have no address.
    fn check_defined(&self, operand: &Operand<'_>, text: &InstructionText<'_>) -> Result<(), Refusal> {
        match operand {
            Operand::Name(name) | Operand::Sum(name, _) => {
                if self.names.register(name).is_some() || self.names.symbol(name).is_some() {
                    return Ok(());
                }
                let why = match self.meaning(name) {
                    None => return Ok(()),
                    Some(Meaning::Function(_)) => "the address of a function of the driver",
                    Some(Meaning::Variable(_)) => "a variable that is not memory",
                    Some(Meaning::Undefined | Meaning::DynamicShared) => "no text defines it",
                };
                Err(Refusal::not_supported(text.at, format!("'{name}', {why}: '{text}'")))
            }
            Operand::Address(inside, _) => self.check_defined(inside, text),
            Operand::List(parts) => parts.iter().try_for_each(|part| self.check_defined(part, text)),
            _ => Ok(()),
        }
    }

    fn branch(&mut self, text: &'t InstructionText<'t>) -> Result<(), Refusal> {
        let [Operand::Name(label)] = text.operands.as_slice() else {
            return Err(Refusal::invalid(text.at, format!("a branch needs one label: '{text}'")));
        };
        let guard = self.guard(text)?;
        self.labels.branch(self.code.len(), [*label], text.at);
        self.push(guard, Action::Branch { target: 0 });
        Ok(())
    }

    fn branch_indexed(&mut self, text: &'t InstructionText<'t>) -> Result<(), Refusal> {
        let invalid = |what: &str| Refusal::invalid(text.at, format!("{what}: '{text}'"));
        let [index, Operand::Name(list)] = text.operands.as_slice() else {
            return Err(invalid("a branch needs an index and the name of its targets"));
        };
        let index = match *index {
            Operand::Name(name) => self.names.register(name).filter(|index| index.bits == 32),
            Operand::Integer(number) => Some(self.names.constant(32, number, text.at)?),
            _ => None,
        };
        let index = index.ok_or_else(|| invalid("the index is not a register of 32 bits"))?;
        let labels = self.declared.iter().rev().find_map(|block| block.targets.get(list).copied());
        let labels = labels.ok_or_else(|| invalid("the targets are unknown"))?;
        let guard = self.guard(text)?;
        self.labels.branch(self.code.len(), labels.iter().copied(), text.at);
        self.push(guard, Action::BranchIndexed { index, targets: vec![0; labels.len()] });
        Ok(())
    }

    /// Stores the results that are registers.
    fn store_results(&mut self, guard: Option<(Register, bool)>, at: Place) -> Result<(), Refusal> {
        for (register, slot) in self.result_registers.clone() {
            let store = self.store_slot(register, slot, at)?;
            self.push(guard, store);
        }
        Ok(())
    }

    /// The function, which returns at its end.
    fn finish(mut self, function: &FunctionText<'_>) -> Function {
        let last = self.code.last();
        let ends =
            last.is_some_and(|last| last.guard.is_none() && matches!(last.action, Action::Return | Action::Exit));
        if !ends || self.labels.is_behind(self.code.len()) {
            let stored = self.store_results(None, function.at);
            stored.unwrap_or_else(|refusal| self.refuse(refusal));
            self.push(None, Action::Return);
            self.note_places(function.at);
        }
        let mut refusals = self.refusals;
        let known = refusals.len();
        self.labels.resolve(&mut self.code, &mut refusals);
        refusals[known..].iter_mut().for_each(|refusal| function.name.clone_into(&mut refusal.function));
        let mut frame = self.names.frame;
        frame.local_bytes = self.locals.bytes();
        Function {
            name: function.name.to_owned(),
            is_entry: function.is_entry,
            uses_heap: self.code.iter().any(|instruction| calls_heap(&instruction.action)),
            parameters: self.parameters,
            results: self.results,
            frame,
            code: self.code,
            places: self.places,
            refusals,
            ..Function::default()
        }
    }
}

/// Whether it allocates memory of the device's heap, or gives some back.
fn calls_heap(action: &Action) -> bool {
    let target = if let Action::Call(call) = action { Some(&call.target) } else { None };
    matches!(target, Some(CallTarget::Builtin(Builtin::Malloc | Builtin::Free)))
}
