//! Labels, and the branches to them.
//!
//! A label is known in the block that it stands in and in those inside; an inner one hides an outer one of its name.
//! Branches may come before their label, so that their targets are filled in at the end.

use std::collections::BTreeMap;

use crate::program::action::{Action, Instruction};
use crate::refusal::Refusal;
use crate::text::Place;

/// The labels of a function.
#[derive(Debug)]
pub(super) struct Labels<'t> {
    /// Of each block the one around it; the outermost is its own.
    around: Vec<usize>,
    /// The block that is being read.
    block: usize,
    known: BTreeMap<(usize, &'t str), u32>,
    branches: Vec<Branch<'t>>,
}

/// A target that is still missing.
#[derive(Debug)]
struct Branch<'t> {
    /// Index of the instruction.
    index: usize,
    /// Which of its targets.
    target: usize,
    label: &'t str,
    block: usize,
    at: Place,
}

impl<'t> Labels<'t> {
    pub(super) fn new() -> Self {
        Self { around: vec![0], block: 0, known: BTreeMap::new(), branches: Vec::new() }
    }

    pub(super) fn enter_block(&mut self) {
        self.around.push(self.block);
        self.block = self.around.len() - 1;
    }

    pub(super) fn leave_block(&mut self) {
        self.block = self.around[self.block];
    }

    /// A label before the instruction of an index.
    pub(super) fn define(&mut self, name: &'t str, index: usize, at: Place) -> Result<(), Refusal> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        match self.known.insert((self.block, name), index) {
            None => Ok(()),
            Some(_) => Err(Refusal::invalid(at, format!("label '{name}' stands twice"))),
        }
    }

    /// The instruction of an index goes to these labels.
    pub(super) fn branch(&mut self, index: usize, labels: impl IntoIterator<Item = &'t str>, at: Place) {
        let block = self.block;
        let branches = labels.into_iter().enumerate();
        self.branches.extend(branches.map(|(target, label)| Branch { index, target, label, block, at }));
    }

    /// Whether a label stands behind the last instruction.
    pub(super) fn is_behind(&self, length: usize) -> bool {
        self.known.values().any(|&index| usize::try_from(index) == Ok(length))
    }

    /// Fills in the targets; what is unknown is refused.
    pub(super) fn resolve(self, code: &mut [Instruction], refusals: &mut Vec<Refusal>) {
        for branch in &self.branches {
            let Some(found) = self.find(branch) else {
                refusals.push(Refusal::invalid(branch.at, format!("label '{}' is unknown", branch.label)));
                continue;
            };
            if let Action::BranchIndexed { targets, .. } = &mut code[branch.index].action {
                targets[branch.target] = found;
            } else {
                code[branch.index].action = Action::Branch { target: found };
            }
        }
    }

    fn find(&self, branch: &Branch<'t>) -> Option<u32> {
        let mut block = branch.block;
        loop {
            match self.known.get(&(block, branch.label)) {
                Some(&found) => return Some(found),
                None if block == 0 => return None,
                None => block = self.around[block],
            }
        }
    }
}
