//! Running a function while its operations are written down.
//!
//! **Invariants:** whatever ends a trace, nothing stays pending: operations that were written down have run when the call
//! returns, also when the function has failed. Memory that was asked for in a trace has contents after it, unless an
//! operation failed.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use c10_core::{Made, PutOff, PuttingOff, Runtime, Stream};

use super::foldability::SETTING_CHANGED;
use super::graph::Graph;
use super::guard::Switches;
use super::plan::Plan;
use super::tree::{self, Taken};
use crate::base::error::{Error, Result};
use crate::launch::record::{self, Constants, Recorded};
use crate::storage::Storage;
use crate::storage::deferred::{self, Deferred};
use crate::tensor::Tensor;

/// Where a traced function was split in two, since something needed the results of what came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphBreak {
    /// What needed them, in words.
    pub cause: &'static str,
    /// How many operations were written down before, since the last break.
    pub operations: usize,
    /// The last one of them.
    pub after: Option<&'static str>,
}

impl fmt::Display for GraphBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, operations, after } = self;
        match after {
            Some(after) => write!(f, "{cause}, after {operations} operations, the last of which is {after}"),
            None if *operations == 0 => write!(f, "{cause}, before the first operation"),
            None => write!(f, "{cause}, after {operations} operations"),
        }
    }
}

/// The plans of a function's graphs by their signatures.
#[derive(Debug)]
pub(super) struct Plans {
    known: Mutex<HashMap<u128, Arc<Plan>>>,
    constants: Arc<Constants>,
    keeps_wide: bool,
}

/// Plans that a function keeps at most. A function that makes others all the time keeps none for long.
const MOST_PLANS: usize = 256;

impl Plans {
    /// No plans yet. `keeps_wide` says that what goes from one operation to the next within a kernel is not rounded to 16 bits.
    pub(super) fn new(keeps_wide: bool) -> Self {
        Self { known: Mutex::default(), constants: Arc::default(), keeps_wide }
    }

    fn get(&self, signature: u128, make: impl FnOnce() -> Plan) -> Arc<Plan> {
        let mut plans = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = plans.get(&signature) {
            return Arc::clone(known);
        }
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        let made = Arc::new(make());
        plans.insert(signature, Arc::clone(&made));
        made
    }
}

/// What came of a trace.
#[derive(Debug)]
pub(super) struct Traced {
    pub(super) outputs: Vec<Tensor>,
    pub(super) breaks: Vec<GraphBreak>,
    /// Whether values in host memory were looked at.
    pub(super) host_values: bool,
    /// The last graph, and those who waited for its contents.
    pub(super) last: Segment,
    /// The graphs before it.
    pub(super) earlier: Vec<Arc<Plan>>,
    /// What each graph does, whatever the sizes.
    pub(super) structures: Vec<u64>,
    /// Whether the function has kept an event that it has made.
    pub(super) keeps_events: bool,
}

/// A graph of a trace.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) signature: u128,
    structure: u64,
    /// The numbers that it shares with graphs of its structure or not.
    pub(super) numbers: Vec<u64>,
    pub(super) plan: Arc<Plan>,
    pub(super) wanted: Vec<Arc<Deferred>>,
    /// The arguments that it has behind those of the call.
    pub(super) further: Vec<Storage>,
}

/// A trace that is under way.
struct State {
    plans: Arc<Plans>,
    /// The CUDA graphs of the function, where the call may launch some.
    graphs: Option<Taken>,
    inputs: Vec<Tensor>,
    stream: Stream,
    breaks: Vec<GraphBreak>,
    earlier: Vec<Arc<Plan>>,
    structures: Vec<u64>,
    /// What the trace has made and somebody still had when a graph was run: no other trace has the same.
    held: Vec<Made>,
    error: Option<Error>,
}

impl State {
    /// Runs what is pending. The first break is noted where nothing is pending, too: what the function does there is no
    /// part of a graph, so that it has to be called each time.
    fn settle(&mut self, cause: &'static str) {
        let records = record::take();
        if records.is_empty() {
            if self.breaks.is_empty() {
                self.breaks.push(GraphBreak { cause, operations: 0, after: None });
            }
            return;
        }
        let (operations, after) = (records.len(), records.last().map(|record| record.name));
        self.breaks.push(GraphBreak { cause, operations, after });
        let run = || self.run(records);
        match Runtime::with_current(|runtime| runtime.mem_pools().outside(run)).map_err(Error::from).flatten() {
            Ok(segment) => {
                self.structures.push(segment.structure);
                self.earlier.push(segment.plan);
            }
            Err(error) => drop(self.error.get_or_insert(error)),
        }
    }

    fn run(&mut self, mut records: Vec<record::Record>) -> Result<Segment> {
        let mut arguments = self.with_made(&records);
        let is_shared = self.name_made(&mut records);
        let graph = Graph::new(records, &arguments);
        let (signature, structure) = (graph.signature(), graph.structure());
        let (wanted, numbers) = (graph.wanted(), graph.numbers());
        let make = || {
            let _span = tracing::debug_span!("compile_graph", operations = graph.nodes.len()).entered();
            Plan::of(graph, self.plans.keeps_wide, &self.stream)
        };
        let plan = if is_shared { Arc::new(make()) } else { self.plans.get(signature, make) };
        if is_shared || !self.launch(&plan, &arguments, &wanted)? {
            let made = Runtime::with_current(|runtime| plan.run(runtime, |at| arguments.get(at)))?;
            for (deferred, storage) in wanted.iter().zip(made) {
                if let Some(buffer) = storage.as_ref().and_then(Storage::buffer) {
                    deferred.fill(buffer.clone());
                }
            }
        }
        let further = arguments.split_off(self.inputs.len().min(arguments.len()));
        Ok(Segment { signature, structure, numbers, plan, wanted, further })
    }

    /// Launches the plan's graph, where it has one, and gives those who wait for its results their memory.
    fn launch(&mut self, plan: &Arc<Plan>, arguments: &[Storage], wanted: &[Arc<Deferred>]) -> Result<bool> {
        let Some(graphs) = &mut self.graphs else { return Ok(false) };
        let made = arguments.get(self.inputs.len()..).unwrap_or_default().iter().map(tree::bytes_of);
        let tensors: Vec<Tensor> = self.inputs.iter().cloned().map(Ok).chain(made).collect::<Result<_>>()?;
        let tensors: Vec<&Tensor> = tensors.iter().collect();
        let shares = || {
            let mut pairs = self.inputs.iter().enumerate();
            pairs.any(|(at, own)| self.inputs[..at].iter().any(|other| other.storage().is_same(own.storage())))
        };
        let is_graph = Runtime::with_current(|runtime| graphs.tree().run(runtime, plan, &tensors, shares))?;
        if is_graph {
            graphs.tree().fill(wanted);
        }
        Ok(is_graph)
    }

    /// Numbers what the trace has made and nobody else has in the order of its first use, so that another trace that makes
    /// the same has the same graph. Whether the records use something that somebody else has, or had at a break: then
    /// their plan is for this trace alone.
    fn name_made(&mut self, records: &mut [record::Record]) -> bool {
        let mut own: Vec<Made> = Vec::new();
        let mut is_shared = false;
        for record in records {
            let (Some(made), Recorded::Call { detail, .. }) = (&record.made, &mut record.work) else { continue };
            if made.is_held() && !self.held.iter().any(|held| held.is_same(made)) {
                self.held.push(made.clone());
            }
            if self.held.iter().any(|held| held.is_same(made)) {
                is_shared = true;
                continue;
            }
            let number = own.iter().position(|other| other.is_same(made)).unwrap_or_else(|| {
                own.push(made.clone());
                own.len() - 1
            });
            detail[0] = number as u64;
            // Other numbers are addresses of what was there before.
            detail.push(u64::MAX);
        }
        is_shared
    }

    /// The arguments of the call, and behind them memory that was made in this trace before, or by another compiled function:
    /// a graph gets it anew in each call, and keeps none of it.
    fn with_made(&self, records: &[record::Record]) -> Vec<Storage> {
        let mut arguments: Vec<Storage> = self.inputs.iter().map(|tensor| tensor.storage().clone()).collect();
        let mut seen: HashSet<*const Deferred> = HashSet::new();
        for tensor in records.iter().flat_map(|record| record.outputs.iter().chain(&record.inputs)) {
            let storage = tensor.storage();
            if let Some(deferred) = storage.deferred()
                && deferred.filled().is_some()
                && seen.insert(Arc::as_ptr(deferred))
                && !self.inputs.iter().any(|input| input.storage().is_same(storage))
            {
                arguments.push(storage.clone());
            }
        }
        arguments
    }
}

/// The trace as the runtime knows it.
struct Owner(RefCell<State>);

impl PutOff for Owner {
    fn settle(&self, cause: &'static str) {
        // A plan that runs is not traced itself.
        if let Ok(mut state) = self.0.try_borrow_mut() {
            state.settle(cause);
        }
    }

    fn put_off(
        &self,
        name: &'static str,
        key: [u64; 2],
        made: Option<&Made>,
        call: Box<dyn Fn() -> c10_core::Result<()> + Send + Sync>,
    ) -> bool {
        record::fence(name, key, made, call);
        true
    }
}

/// Drops what is pending when a function has panicked.
struct Pending;

impl Drop for Pending {
    fn drop(&mut self) {
        drop(record::take());
        record::set_constants(None);
    }
}

/// Calls the function with its operations written down, and then runs them; as CUDA graphs, where `graphs` has some.
pub(super) fn trace(
    function: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    plans: &Arc<Plans>,
    graphs: Option<Taken>,
) -> Result<Traced> {
    let _span = tracing::debug_span!("trace_function", arguments = inputs.len()).entered();
    let device = inputs.iter().find_map(|tensor| tensor.device().index);
    let stream = Runtime::with_current(|runtime| {
        let device = device.map_or_else(|| runtime.current_device(), Ok)?;
        runtime.streams().current(device)
    })?;
    let (breaks, earlier, structures, plans) = (Vec::new(), Vec::new(), Vec::new(), Arc::clone(plans));
    let (held, error) = (Vec::new(), None);
    let state = State { plans, graphs, inputs: inputs.to_vec(), stream, breaks, earlier, structures, held, error };
    let owner = Rc::new(Owner(RefCell::new(state)));
    let asked: Rc<dyn PutOff> = Rc::<Owner>::clone(&owner);
    let _pending = Pending;
    drop((deferred::take_host_values(), deferred::take_failure()));
    let before = Switches::now()?;
    deferred::begin_trace();
    record::set_constants(Some(Arc::clone(&owner.0.borrow().plans.constants)));
    let tracing = PuttingOff::begin(asked);
    let outputs = function(inputs);
    drop(tracing);
    let host_values = deferred::take_host_values();
    let mut state = owner.0.borrow_mut();
    let is_in_pool = Runtime::with_current(|runtime| runtime.mem_pools().has_entered());
    let last = Runtime::with_current(|runtime| runtime.mem_pools().outside(|| state.run(record::take())));
    let last = last.map_err(Error::from).flatten();
    if let Some(error) = state.error.take().or_else(|| deferred::take_failure().map(Error::from)) {
        return Err(error);
    }
    let (outputs, last) = (outputs?, last?);
    let (mut breaks, earlier) = (std::mem::take(&mut state.breaks), std::mem::take(&mut state.earlier));
    let mut structures = std::mem::take(&mut state.structures);
    structures.push(last.structure);
    if Switches::now()? != before || is_in_pool {
        breaks.push(GraphBreak { cause: SETTING_CHANGED, operations: last.plan.nodes, after: None });
    }
    let keeps_events = state.held.iter().any(Made::is_held);
    if let Some(graphs) = &mut state.graphs {
        let of_outputs = outputs.iter().filter_map(|tensor| tensor.storage().deferred());
        let of_last = last.further.iter().filter_map(Storage::deferred).chain(&last.wanted);
        graphs.tree().stop_if_kept(of_outputs.chain(of_last));
    }
    Ok(Traced { outputs, breaks, host_values, last, earlier, structures, keeps_events })
}
