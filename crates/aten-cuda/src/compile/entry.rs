//! What a function is compiled to for calls that are alike.
//!
//! **Invariants:** an entry runs without its function only once two traces, or the traces of two other shapes of its family,
//! have shown that the function does the same each time. What was decided about that stays.

use std::hash::{Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use c10_core::Runtime;
use smallvec::SmallVec;

use super::graph::{self, View};
use super::guard::{Guards, Key};
use super::layout::Made;
use super::plan::Plan;
use super::trace::{GraphBreak, Traced};
use super::tree::{self, Trees};
use crate::base::error::{Result, TensorError};
use crate::storage::Storage;
use crate::tensor::Tensor;

/// The program of calls that are alike.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) guards: Guards,
    signature: u128,
    /// What the function does, whatever the sizes.
    pub(super) structure: u64,
    /// The numbers of its graph, until its family has taken note of them.
    numbers: Mutex<Vec<u64>>,
    pub(super) plan: Arc<Plan>,
    pub(super) breaks: Vec<GraphBreak>,
    pub(super) earlier: Vec<Arc<Plan>>,
    /// What a call returns, where it need not call the function.
    results: std::result::Result<Vec<Given>, &'static str>,
    /// What other compiled functions gave and the plan has as arguments behind those of the call.
    further: Vec<Storage>,
    /// How its calls run, once that is known. Until then the function is called, to see that it does the same.
    decided: OnceLock<Calls>,
    /// Whether it is for another shape than the first one of its program.
    pub(super) is_resized: AtomicBool,
    /// When it was called last, counted in calls of its function.
    pub(super) last_call: AtomicU64,
}

/// How calls of an entry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// The plan runs; the function is not called.
    Plan,
    /// The function has to be called each time, for this reason.
    Function(&'static str),
}

/// A result of a call.
#[derive(Clone, Debug)]
enum Given {
    /// Memory that the plan gives. The last result in it takes it over.
    Made { wanted: usize, view: View, is_last: bool },
    /// An argument, or a view of its memory.
    Argument { argument: usize, view: View },
    /// A tensor that the function has kept.
    Captured(Tensor),
}

impl Entry {
    /// The entry of a call that was traced, and what the call returns.
    pub(super) fn new(key: Key, guards: Guards, traced: Traced, inputs: &[Tensor]) -> (Self, Vec<Tensor>) {
        let results = given(&traced, inputs);
        let structure = structure(&traced, &results);
        let Traced { outputs, breaks, last, earlier, .. } = traced;
        let decided = OnceLock::new();
        if let Err(why) = &results {
            decided.get_or_init(|| Calls::Function(why));
        }
        let (signature, plan, numbers, further) = (last.signature, last.plan, Mutex::new(last.numbers), last.further);
        let (is_resized, last_call) = (AtomicBool::new(false), AtomicU64::new(0));
        let entry = Self {
            key,
            guards,
            signature,
            structure,
            numbers,
            plan,
            breaks,
            earlier,
            results,
            further,
            decided,
            is_resized,
            last_call,
        };
        (entry, outputs)
    }

    /// How its calls run, where that is known.
    pub(super) fn decided(&self) -> Option<Calls> {
        self.decided.get().copied()
    }

    /// The numbers of its graph.
    pub(super) fn numbers(&self) -> MutexGuard<'_, Vec<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the plan run from now on, unless something else was decided.
    pub(super) fn trust(&self) {
        self.decided.get_or_init(|| Calls::Plan);
    }

    /// Decides by a second trace how calls run.
    pub(super) fn compare(&self, traced: &Traced) {
        let last = &traced.last;
        let has_same = self.further.iter().zip(&last.further).all(|(own, other)| own.is_same(other));
        let is_same = traced.breaks.is_empty() && last.signature == self.signature && has_same;
        let other = Calls::Function("it did something else the second time");
        self.decided.get_or_init(|| if is_same { Calls::Plan } else { other });
    }

    /// Runs the plan.
    pub(super) fn run(&self, runtime: &Runtime, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let further = |at: usize| self.further.get(at - inputs.len());
        let made =
            self.plan.run(runtime, |at| inputs.get(at).map(|tensor| tensor.storage()).or_else(|| further(at)))?;
        self.results(inputs, made)
    }

    /// Runs it as a CUDA graph, where it can be one.
    pub(super) fn launch(&self, runtime: &Runtime, inputs: &[&Tensor], trees: &Trees) -> Result<Vec<Tensor>> {
        if let Some(tree) = &mut *trees.lock() {
            tree.begin();
            let further: Vec<Tensor> = self.further.iter().map(tree::bytes_of).collect::<Result<_>>()?;
            let arguments: SmallVec<[&Tensor; 8]> = inputs.iter().copied().chain(&further).collect();
            if tree.run(runtime, &self.plan, &arguments, || self.guards.has_aliases())? {
                return self.results(inputs, tree.results()?);
            }
        }
        self.run(runtime, inputs)
    }

    /// What a call returns, of the memory that it has made.
    fn results(&self, inputs: &[&Tensor], mut made: Made) -> Result<Vec<Tensor>> {
        let given = self.results.as_deref().unwrap_or_default();
        let mut results = Vec::with_capacity(given.len());
        for given in given {
            results.push(match given {
                Given::Made { wanted, view, is_last } => {
                    let memory = if *is_last { made[*wanted].take() } else { made[*wanted].clone() };
                    view.over(memory.ok_or(TensorError::Abandoned)?)?
                }
                Given::Argument { argument, view } => view.over(inputs[*argument].storage().clone())?,
                Given::Captured(tensor) => tensor.clone(),
            });
        }
        Ok(results)
    }

    /// Notes a call.
    pub(super) fn note_call(&self, number: u64) {
        self.last_call.store(number, Ordering::Relaxed);
    }
}

/// What a call returns without its function, or why it has to be called.
fn given(traced: &Traced, inputs: &[Tensor]) -> std::result::Result<Vec<Given>, &'static str> {
    if !traced.breaks.is_empty() {
        return Err("its graph breaks");
    }
    if traced.host_values {
        return Err("it looks at values in host memory");
    }
    if traced.keeps_events {
        return Err("it keeps events that it has made");
    }
    if traced.last.plan.devices > 1 {
        return Err("it uses several devices");
    }
    let wanted = &traced.last.wanted;
    let mut is_used = vec![false; wanted.len()];
    let mut given = Vec::with_capacity(traced.outputs.len());
    for tensor in &traced.outputs {
        let storage = tensor.storage();
        let argument = inputs.iter().position(|input| input.storage().is_same(storage));
        let made = storage.deferred().and_then(|own| wanted.iter().position(|other| Arc::ptr_eq(own, other)));
        let next = match (argument, made) {
            (Some(argument), _) => Given::Argument { argument, view: graph::view(argument, tensor) },
            (None, Some(wanted)) => {
                if std::mem::replace(&mut is_used[wanted], true) {
                    one_more(&mut given, wanted);
                }
                Given::Made { wanted, view: graph::view(wanted, tensor), is_last: true }
            }
            (None, None) if storage.present().is_some() => Given::Captured(tensor.clone()),
            (None, None) => return Err("it returns memory that no operation has written"),
        };
        given.push(next);
    }
    if is_used.contains(&false) {
        return Err("it keeps tensors that it has made");
    }
    Ok(given)
}

/// Another result follows these in the same memory.
fn one_more(given: &mut [Given], wanted: usize) {
    for earlier in given {
        if let Given::Made { wanted: other, is_last, .. } = earlier {
            *is_last &= *other != wanted;
        }
    }
}

/// What a function does, whatever the sizes: its graphs, where they break, and what is returned.
fn structure(traced: &Traced, results: &std::result::Result<Vec<Given>, &'static str>) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    traced.structures.hash(&mut hasher);
    for GraphBreak { cause, operations, after } in &traced.breaks {
        (cause, operations, after).hash(&mut hasher);
    }
    match results {
        Err(why) => why.hash(&mut hasher),
        Ok(results) => results.iter().for_each(|given| match given {
            Given::Made { view, .. } => view.hash_structure(&mut hasher),
            Given::Argument { view, .. } => {
                1_u8.hash(&mut hasher);
                view.hash_structure(&mut hasher);
            }
            Given::Captured(_) => 2_u8.hash(&mut hasher),
        }),
    }
    hasher.finish()
}
