//! Which functions each function may call, and what of shared memory each kernel needs.
//!
//! Shared variables have one offset each, since a function's code has one address of them, whichever kernel it runs in.
//! **Invariant:** two variables that one kernel may use do not overlap; two that no kernel uses together may. So every
//! kernel's own variables begin right behind those that it has from functions and from the module.

use std::collections::{BTreeMap, BTreeSet};

use super::link::{Linked, Meaning};
use super::shape::Shape;
use super::usage::Usage;
use crate::refusal::Refusal;
use crate::text::syntax::{FunctionText, Linkage, Statement, VariableText};

/// What each function may call, by index.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Functions with a body that it calls by name.
    pub(super) calls: Vec<Vec<u32>>,
    /// Whether it calls an address without `.calltargets`.
    pub(super) calls_by_address: Vec<bool>,
    /// Functions with a body whose address something takes.
    pub(super) addressed: Vec<u32>,
}

impl Reach {
    /// `initial` are functions that the initial values of variables name.
    pub(super) fn of(linked: &Linked<'_>, usages: &[Usage<'_>], initial: &BTreeSet<u32>) -> Self {
        let mut reach = Self::default();
        let mut addressed = initial.clone();
        let has_body = |index: u32| linked.functions[index as usize].function.body.is_some();
        for (function, usage) in linked.functions.iter().zip(usages) {
            let scope = &linked.scopes[function.text];
            let index = |name: &&str| match scope.get(name) {
                Some(&Meaning::Function(index)) => Some(index),
                _ => None,
            };
            let calls = usage.called.iter().filter_map(index).filter(|&index| has_body(index));
            reach.calls.push(calls.collect());
            reach.calls_by_address.push(usage.called_freely.iter().any(|name| index(name).is_none()));
            addressed.extend(usage.named.iter().filter_map(index));
        }
        reach.addressed = addressed.into_iter().filter(|&index| has_body(index)).collect();
        reach
    }

    /// A function and all that it may call.
    fn from(&self, start: u32) -> BTreeSet<u32> {
        reachable(start, &self.addressed, |index| {
            (self.calls[index as usize].as_slice(), self.calls_by_address[index as usize])
        })
    }
}

/// A function and all that it may call; `addressed` are those that a call of an address may mean.
pub(crate) fn reachable<'r>(
    start: u32,
    addressed: &'r [u32],
    calls: impl Fn(u32) -> (&'r [u32], bool),
) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([start]);
    let mut open = vec![start];
    let mut by_address = false;
    while let Some(index) = open.pop() {
        let (named, any) = calls(index);
        open.extend(named.iter().copied().filter(|&callee| found.insert(callee)));
        if any && !by_address {
            by_address = true;
            open.extend(addressed.iter().copied().filter(|&callee| found.insert(callee)));
        }
    }
    found
}

/// Where shared variables lie.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Of variables of the module, by index.
    pub(super) of_module: BTreeMap<usize, u64>,
    /// Of variables in bodies, by function, in the order in which they stand.
    pub(super) of_bodies: Vec<Vec<u64>>,
    /// Bytes that each kernel needs; 0 of other functions.
    pub(super) bytes: Vec<u64>,
}

impl Shared {
    pub(super) fn of(linked: &Linked<'_>, usages: &[Usage<'_>], reach: &Reach) -> Self {
        let count = linked.functions.len();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); count];
        for kernel in (0..count).filter(|&index| linked.functions[index].function.is_entry) {
            let start = u32::try_from(kernel).unwrap_or(u32::MAX);
            reach.from(start).into_iter().for_each(|callee| users[callee as usize].push(kernel));
        }
        let mut shared = Self { bytes: vec![0; count], of_bodies: vec![Vec::new(); count], ..Self::default() };
        for (index, variable) in linked.variables.iter().enumerate() {
            if variable.variable.space == "shared" {
                let uses = |function: usize| names_variable(linked, usages, function, index);
                let kernels: BTreeSet<usize> = (0..count)
                    .filter(|&function| uses(function))
                    .flat_map(|function| users[function].clone())
                    .collect();
                let offset = shared.place(variable.variable, kernels.iter().copied());
                shared.of_module.insert(index, offset);
            }
        }
        // Those of kernels come last, since nothing but the kernel itself uses them.
        for is_entry in [false, true] {
            for index in (0..count).filter(|&index| linked.functions[index].function.is_entry == is_entry) {
                let mut variables = Vec::new();
                in_body(linked.functions[index].function.body.as_deref().unwrap_or_default(), &mut variables);
                let offsets = variables.iter().map(|variable| shared.place(variable, users[index].iter().copied()));
                shared.of_bodies[index] = offsets.collect();
            }
        }
        shared
    }

    /// Places a variable behind all that its kernels have so far.
    fn place(&mut self, variable: &VariableText<'_>, kernels: impl Iterator<Item = usize> + Clone) -> u64 {
        // What has no shape is refused where the body is decoded.
        let Ok(shape) = Shape::of(variable) else { return 0 };
        let mut end = kernels.clone().map(|kernel| self.bytes[kernel]).max().unwrap_or(0);
        let offset = shape.behind(&mut end, u64::MAX).unwrap_or(u64::MAX);
        let end = offset.saturating_add(shape.size);
        kernels.for_each(|kernel| self.bytes[kernel] = end);
        offset
    }
}

/// Whether a function names a variable of the module.
fn names_variable(linked: &Linked<'_>, usages: &[Usage<'_>], function: usize, variable: usize) -> bool {
    let text = linked.functions[function].text;
    let name = linked.variables[variable].variable.name;
    usages[function].named.contains(name) && linked.scopes[text].get(name) == Some(&Meaning::Variable(variable))
}

/// The shared variables of a body in the order in which they stand, but for the memory that the launch asks for.
fn in_body<'t>(body: &'t [Statement<'t>], found: &mut Vec<&'t VariableText<'t>>) {
    for statement in body {
        match statement {
            Statement::Block(inside) => in_body(inside, found),
            Statement::Variable(variable) if variable.space == "shared" && variable.linkage != Linkage::Extern => {
                found.push(variable);
            }
            Statement::Variable(_)
            | Statement::Registers { .. }
            | Statement::Label { .. }
            | Statement::Instruction(_)
            | Statement::Location { .. }
            | Statement::Prototype { .. }
            | Statement::Targets { .. } => {}
        }
    }
}

/// The most bytes of shared memory that a kernel may name itself.
pub(super) const MAX_SHARED_BYTES: u64 = 48 << 10;

/// Refuses a kernel that names more.
pub(super) fn check_bytes(bytes: u64, function: &FunctionText<'_>) -> Result<(), Refusal> {
    if bytes <= MAX_SHARED_BYTES {
        return Ok(());
    }
    let text = format!("{bytes} bytes of shared memory are more than {MAX_SHARED_BYTES}");
    Err(Refusal::invalid(function.at, text).in_function(function.name))
}
