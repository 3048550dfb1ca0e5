//! Functions of tensors that are compiled: traced once, fused into few kernels, and run as those from then on
//! (`torch.compile`).
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use aten_cuda::compile::compile;
//! use aten_cuda::{DType, Tensor};
//!
//! let f = compile(|x: &[Tensor]| Ok(vec![x[0].mul(2)?.add(&x[1])?.relu()?]));
//! let (a, b) = (Tensor::full(&[4], 3.0, DType::F32, "cuda")?, Tensor::full(&[4], -7.0, DType::F32, "cuda")?);
//! assert_eq!(f.call(&[&a, &b])?[0].to_vec::<f32>()?, [0.0; 4]);
//! assert_eq!(f.call(&[&b, &a])?[0].to_vec::<f32>()?, [0.0; 4]);
//! assert_eq!(f.report().programs[0].kernels.len(), 1);
//! # Ok::<(), aten_cuda::Error>(())
//! ```
//!
//! # How it works
//! While a function is traced, operations on CUDA tensors are written down beneath the level of views, as programs over
//! elements, reductions over rows and calls of everything else. When the function returns, what it has done is a graph
//! without control flow. Operations are put together into kernels, what lives between kernels gets one block of memory,
//! and the whole is run. Where the function needs a value before it returns, what came before is compiled and run at that
//! point: the graph breaks there, and the function goes on.
//!
//! Later calls whose arguments and settings are those of a program run it without calling the function, once a second
//! trace has shown the same graph. A function that breaks, looks at host memory, keeps traced tensors or does something
//! else the second time is called each time, and its graphs are found by what they do.
//!
//! # Layers
//! From the lowest up: `graph` (records as nodes and slots), `map` (index maps), `fuse` (what becomes one kernel),
//! `expression` (what a kernel computes), `lower` (as a program), `memory` (one block), `plan` (ready to run), `graphed`
//! (as a CUDA graph), `foldability` (what ends a graph), `guard` (what a program takes for granted), `trace` (from a
//! function to plans), `report` (what came of it), `picture` (the same as DOT and HTML), this file (functions and their
//! programs).

mod expression;
mod foldability;
mod fuse;
mod graph;
mod graphed;
mod guard;
mod lower;
mod map;
mod memory;
mod picture;
mod plan;
mod report;
mod trace;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use c10_core::{PoolId, Runtime};

use crate::base::error::{Result, invalid};
use crate::storage::{Storage, deferred};
use crate::tensor::Tensor;
use graph::View;
use graphed::Graphed;
use guard::Guards;
use plan::Plan;
use trace::{Plans, Traced};

pub use foldability::{Foldability, break_causes, foldabilities, foldability};
pub use fuse::Kept;
pub use guard::GuardFailure;
pub use report::{KernelReport, ProgramReport, Report};
pub use trace::GraphBreak;

/// How functions are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompileOptions {
    /// A function that cannot be traced as one graph fails (`fullgraph=True`).
    pub fullgraph: bool,
    /// Programs that a function may have; calls that need one more run the function as it is (`recompile_limit`).
    pub recompile_limit: usize,
    /// What a call runs.
    pub mode: CompileMode,
    /// Whether 16-bit floats that go from one operation to the next within a kernel stay floats of 32 bits. Results are then
    /// nearer to the exact ones, and kernels shorter, but not bit for bit what the operations give one after another.
    /// `torch.compile` does this always (`emulate_precision_casts=False`).
    pub wide_intermediates: bool,
}

/// What calls of a compiled function run (`mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileMode {
    /// Its kernels, one launch after another.
    #[default]
    Default,
    /// A CUDA graph of them: the host does one launch, and one copy for each argument. What a call gives lies in memory that
    /// the next call writes again. A function that writes to its arguments, uses other streams or has to be called each
    /// time runs as by default; [`ProgramReport::not_graphed`] says why.
    ReduceOverhead,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self { fullgraph: false, recompile_limit: 8, mode: CompileMode::Default, wide_intermediates: false }
    }
}

type Function = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

/// A compiled function. Calls give what the function gives.
pub struct Compiled {
    function: Box<Function>,
    options: CompileOptions,
    plans: Arc<Plans>,
    programs: Mutex<Programs>,
    /// The pool of its CUDA graphs.
    pool: OnceLock<PoolId>,
}

#[derive(Debug, Default)]
struct Programs {
    entries: Vec<Arc<Entry>>,
    recompiles: Vec<Vec<GuardFailure>>,
    uncompiled: usize,
}

/// A program of a function.
#[derive(Debug)]
struct Entry {
    guards: Guards,
    signature: u128,
    plan: Arc<Plan>,
    breaks: Vec<GraphBreak>,
    earlier: Vec<Arc<Plan>>,
    /// What a call returns, where it need not call the function.
    results: std::result::Result<Vec<Given>, &'static str>,
    state: Mutex<State>,
    graphed: Mutex<AsGraph>,
}

/// A program as a CUDA graph.
#[derive(Debug, Default)]
enum AsGraph {
    /// Nobody has asked for it.
    #[default]
    Not,
    /// It cannot be one.
    Never(&'static str),
    Is(Box<Graphed>),
}

/// Whether an entry runs without its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Once more the function is called, to see that it does the same.
    Seen,
    /// It need not be called.
    Proven,
    /// It has to be called each time, for this reason.
    Called(&'static str),
}

/// A result of a call.
#[derive(Clone, Debug)]
enum Given {
    /// Memory that the plan gives.
    Made { wanted: usize, view: View },
    /// An argument, or a view of its memory.
    Argument { argument: usize, view: View },
    /// A tensor that the function has kept.
    Captured(Tensor),
}

/// Compiles a function with the usual options (`torch.compile`). Nothing is done before the first call.
///
/// The function gets the tensors of a call and returns its results. Operations on CUDA tensors are fused; the results have
/// the bits that the operations would give one after another, but for sums over rows, which may be added up in another
/// order. Tensors that the function has captured are read anew in each call; numbers that it computes outside of tensors
/// become part of the program. Work is queued on the current stream of the call, and on the streams that the function makes
/// current.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::compile::compile;
/// use aten_cuda::{DType, Tensor};
///
/// let weight = Tensor::full(&[4], 0.5, DType::F32, "cuda")?;
/// let f = compile(move |x: &[Tensor]| Ok(vec![x[0].mul(&weight)?.add(1)?]));
/// assert_eq!(f.call(&[&Tensor::full(&[4], 6, DType::F32, "cuda")?])?[0].to_vec::<f32>()?, [4.0; 4]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub fn compile(function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static) -> Compiled {
    compile_with(function, CompileOptions::default())
}

/// Compiles a function ([`compile`]) with options.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::compile::{CompileOptions, compile_with};
/// use aten_cuda::{DType, Tensor};
///
/// let mut options = CompileOptions::default();
/// options.fullgraph = true;
/// let f = compile_with(|x: &[Tensor]| Ok(vec![x[0].mul(x[0].max()?.item()?)?]), options);
/// let error = f.call(&[&Tensor::ones(&[4], DType::F32, "cuda")?]).unwrap_err();
/// assert!(error.to_string().contains("values are read"));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub fn compile_with(
    function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    options: CompileOptions,
) -> Compiled {
    Compiled {
        function: Box::new(function),
        options,
        plans: Arc::new(Plans::new(options.wide_intermediates)),
        programs: Mutex::default(),
        pool: OnceLock::new(),
    }
}

impl Compiled {
    /// Calls the function, or runs the program that it was compiled to.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::compile::compile;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let f = compile(|x: &[Tensor]| Ok(vec![x[0].mul(&x[0])?.sum((), false, None)?]));
    /// let x = Tensor::full(&[10], 2, DType::F32, "cuda")?;
    /// for _ in 0..3 {
    ///     assert_eq!(f.call(&[&x])?[0].to_vec::<f32>()?, [40.0]);
    /// }
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the function gives, what its operations give, or with [`CompileOptions::fullgraph`] that it is no one graph.
    pub fn call(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        // Within another trace it is a part of that.
        if deferred::is_tracing() {
            return (self.function)(&owned(inputs));
        }
        match self.find(inputs)? {
            Some(entry) => self.again(&entry, inputs),
            None => self.first(inputs),
        }
    }

    /// What was compiled so far, and why.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::compile::compile;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let f = compile(|x: &[Tensor]| Ok(vec![x[0].add(1)?]));
    /// for size in [4, 5] {
    ///     f.call(&[&Tensor::ones(&[size], DType::F32, "cuda")?])?;
    /// }
    /// let why = f.report().programs[1].recompiled[0].to_string();
    /// assert_eq!(why, "size of argument 0 was [4] and is [5]");
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    pub fn report(&self) -> Report {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        report::report(&programs.entries, &programs.recompiles, programs.uncompiled)
    }

    fn find(&self, inputs: &[&Tensor]) -> Result<Option<Arc<Entry>>> {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in &programs.entries {
            if entry.guards.hold(inputs)? {
                return Ok(Some(Arc::clone(entry)));
            }
        }
        Ok(None)
    }

    /// Traces a call that is like none before.
    fn first(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let guards = Guards::new(inputs)?;
        {
            let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            if programs.entries.len() >= self.options.recompile_limit {
                programs.uncompiled += 1;
                drop(programs);
                return (self.function)(&owned(inputs));
            }
        }
        let inputs = owned(inputs);
        let traced = trace::trace(&*self.function, &inputs, &self.plans)?;
        if self.options.fullgraph
            && let Some(first) = traced.breaks.first()
        {
            return Err(invalid(format!("the function is not one graph: {first}")));
        }
        let (entry, outputs) = Entry::new(guards, traced, &inputs);
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = programs.entries.iter().filter_map(|known| known.guards.failure(&entry.guards)).collect();
        programs.recompiles.push(failures);
        programs.entries.push(Arc::new(entry));
        Ok(outputs)
    }

    /// A call like one that was traced.
    fn again(&self, entry: &Entry, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let state = *entry.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state == State::Proven
            && let Ok(results) = &entry.results
        {
            return match self.options.mode {
                CompileMode::Default => entry.run(results, inputs),
                CompileMode::ReduceOverhead => entry.launch(results, inputs, *self.pool.get_or_init(PoolId::handle)),
            };
        }
        let inputs = owned(inputs);
        let traced = trace::trace(&*self.function, &inputs, &self.plans)?;
        if state == State::Seen {
            let is_same = traced.breaks.is_empty() && traced.last.signature == entry.signature;
            let proven = match &entry.results {
                Err(why) => State::Called(why),
                Ok(_) if is_same => State::Proven,
                Ok(_) => State::Called("it did something else the second time"),
            };
            *entry.state.lock().unwrap_or_else(PoisonError::into_inner) = proven;
        }
        Ok(traced.outputs)
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").field("options", &self.options).finish_non_exhaustive()
    }
}

fn owned(inputs: &[&Tensor]) -> Vec<Tensor> {
    inputs.iter().map(|&tensor| tensor.clone()).collect()
}

impl Entry {
    fn new(guards: Guards, traced: Traced, inputs: &[Tensor]) -> (Self, Vec<Tensor>) {
        let results = given(&traced, inputs);
        let Traced { outputs, breaks, last, earlier, .. } = traced;
        let state = results.as_ref().err().map_or(State::Seen, |why| State::Called(why));
        let entry = Self {
            guards,
            signature: last.signature,
            plan: last.plan,
            breaks,
            earlier,
            results,
            state: Mutex::new(state),
            graphed: Mutex::default(),
        };
        (entry, outputs)
    }

    fn run(&self, results: &[Given], inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let arguments: Vec<Storage> = inputs.iter().map(|tensor| tensor.storage().clone()).collect();
        let made = self.plan.run(&arguments)?;
        Ok(Self::results(results, &made, inputs))
    }

    /// Runs it as a CUDA graph, where it can be one.
    fn launch(&self, results: &[Given], inputs: &[&Tensor], pool: PoolId) -> Result<Vec<Tensor>> {
        // A graph is not launched within another capture: its kernels become a part of that.
        if Runtime::with_current(|runtime| runtime.streams().is_current_capturing())? {
            return self.run(results, inputs);
        }
        let mut graphed = self.graphed.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*graphed, AsGraph::Not) {
            let shared = self.guards.has_aliases().then_some("its arguments share memory");
            *graphed = match shared.or_else(|| self.plan.not_graphed()) {
                Some(why) => AsGraph::Never(why),
                None => AsGraph::Is(Box::new(Graphed::new(&self.plan, inputs, pool)?)),
            };
        }
        match &mut *graphed {
            AsGraph::Is(own) => {
                own.run(inputs)?;
                Ok(Self::results(results, &own.made, inputs))
            }
            AsGraph::Not | AsGraph::Never(_) => {
                drop(graphed);
                self.run(results, inputs)
            }
        }
    }

    fn results(results: &[Given], made: &[Storage], inputs: &[&Tensor]) -> Vec<Tensor> {
        let results = results.iter().map(|given| match given {
            Given::Made { wanted, view } => view.over(made[*wanted].clone()),
            Given::Argument { argument, view } => view.over(inputs[*argument].storage().clone()),
            Given::Captured(tensor) => tensor.clone(),
        });
        results.collect()
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
        given.push(match (argument, made) {
            (Some(argument), _) => Given::Argument { argument, view: graph::view(argument, tensor) },
            (None, Some(wanted)) => {
                is_used[wanted] = true;
                Given::Made { wanted, view: graph::view(wanted, tensor) }
            }
            (None, None) if storage.deferred().is_none() && storage.buffer().is_some() => {
                Given::Captured(tensor.clone())
            }
            (None, None) => return Err("it returns memory that no operation has written"),
        });
    }
    if is_used.contains(&false) {
        return Err("it keeps tensors that it has made");
    }
    Ok(given)
}
