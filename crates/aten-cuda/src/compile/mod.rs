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
//! From the lowest up: `graph` (records as nodes and slots), `repeats` (what is done again), `map` (index maps), `fuse` (what
//! becomes one kernel), `copies` (what products read where it lay), `epilogue` (what they take along), `folding` (operations on
//! constants), `expression` (what a kernel computes), `lower` (as a program), `memory` (one block), `layout` (which memory
//! when), `plan` (ready to run), `graphed` (as a CUDA graph), `graph_pool` (the memory of such graphs), `tree` (all of a
//! function), `foldability` (what ends a graph), `guard` (what a program takes for granted), `trace` (from a function to
//! plans), `entry` (what calls that are alike run), `programs` (which entry a call has), `report` (what came of it),
//! `picture` (the same as DOT and HTML), this file (compiled functions).

mod copies;
mod entry;
mod epilogue;
mod expression;
mod foldability;
mod folding;
mod fuse;
mod graph;
mod graph_pool;
mod graphed;
mod guard;
mod layout;
mod lower;
mod map;
mod memory;
mod picture;
mod plan;
mod programs;
mod repeats;
mod report;
mod trace;
mod tree;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use c10_core::Runtime;

use crate::base::error::{Result, invalid};
use crate::storage::deferred;
use crate::tensor::Tensor;
use entry::{Calls, Entry};
use guard::{Call, Guards};
use programs::Programs;
use trace::Plans;
use tree::ThreadTrees;

pub use crate::blas::followed::Declined;
pub use copies::CopyReport;
pub use epilogue::EpilogueReport;
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
    /// Programs that a function may have; calls that need one more run the function as it is (`recompile_limit`). Calls
    /// that do the same but for sizes have one program.
    pub recompile_limit: usize,
    /// What a call runs.
    pub mode: CompileMode,
    /// Whether 16-bit floats that go from one operation to the next within a kernel stay floats of 32 bits. Results are then
    /// nearer to the exact ones, and kernels shorter, but not bit for bit what the operations give one after another.
    /// `torch.compile` does this always (`emulate_precision_casts=False`). Products take along what follows them then
    /// ([`ProgramReport::epilogues`]), whatever the dtype.
    pub wide_intermediates: bool,
    /// Whether only the first shape of a program gets a CUDA graph; calls with other shapes run their kernels
    /// (`triton.cudagraph_skip_dynamic_graphs`). A graph for each shape costs memory and time to capture.
    pub skip_dynamic_graphs: bool,
}

/// What calls of a compiled function run (`mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileMode {
    /// Its kernels, one launch after another.
    #[default]
    Default,
    /// A CUDA graph of the kernels: the host does one launch, and one copy for each argument whose address differs from
    /// the previous calls. Memory of arguments whose address stays is kept alive with the graph. A function whose graph
    /// breaks has one graph for each part. Results are in memory that the next call of the function on this thread
    /// overwrites; the old result tensors are then invalid ([`crate::TensorError::Overwritten`]). Each thread that
    /// calls the function has its own graphs in its own memory, which are dropped after the thread has ended. A
    /// function that writes to arguments whose address changes, uses other streams, or keeps tensors that it has made
    /// runs as in the default mode; [`ProgramReport::not_graphed`] gives the reason.
    ReduceOverhead,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            fullgraph: false,
            recompile_limit: 8,
            mode: CompileMode::Default,
            wide_intermediates: false,
            skip_dynamic_graphs: false,
        }
    }
}

type Function = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

/// A compiled function. Calls give what the function gives.
pub struct Compiled {
    function: Box<Function>,
    options: CompileOptions,
    plans: Arc<Plans>,
    programs: Mutex<Programs>,
    trees: ThreadTrees,
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
        trees: ThreadTrees::default(),
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
        Runtime::with_current(|runtime| {
            let call = Call::new(runtime, inputs)?;
            let found = self.programs().find(&call);
            match found {
                Some(entry) => self.again(runtime, &entry, inputs),
                None => self.first(&call, inputs),
            }
        })
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
    /// let report = f.report();
    /// assert_eq!((report.programs.len(), report.programs[0].shapes), (1, 2));
    /// assert_eq!(report.programs[0].resized[0].to_string(), "size of argument 0 was [4] and is [5]");
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    pub fn report(&self) -> Report {
        report::report(&self.programs(), &self.trees)
    }

    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Traces a call that is like none before.
    fn first(&self, call: &Call<'_>, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let (key, guards, limit) = (call.key(), Guards::new(call), self.options.recompile_limit);
        let is_admitted = self.programs().admits(&guards, limit);
        let inputs = owned(inputs);
        if !is_admitted {
            return (self.function)(&inputs);
        }
        let traced = trace::trace(&*self.function, &inputs, &self.plans, None)?;
        if self.options.fullgraph
            && let Some(first) = traced.breaks.first()
        {
            return Err(invalid(format!("the function is not one graph: {first}")));
        }
        let (entry, outputs) = Entry::new(key, guards, traced, &inputs);
        let gone = self.programs().add(Arc::new(entry), limit);
        if let Some(gone) = &gone {
            self.trees.forget(&gone.plan);
        }
        drop(gone);
        Ok(outputs)
    }

    /// A call like one that was traced.
    fn again(&self, runtime: &Runtime, entry: &Entry, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let decided = entry.decided();
        let trees = if decided.is_some() && self.has_graphs(entry) { self.trees.own() } else { None };
        if decided == Some(Calls::Plan) {
            return match &trees {
                Some(trees) => entry.launch(runtime, inputs, trees),
                None => entry.run(runtime, inputs),
            };
        }
        let mut graphs = trees.and_then(|trees| trees.take());
        let inputs = match &mut graphs {
            Some(graphs) => graphs.tree().lasting(owned(inputs))?,
            None => owned(inputs),
        };
        let traced = trace::trace(&*self.function, &inputs, &self.plans, graphs)?;
        if decided.is_none() {
            entry.compare(&traced);
        }
        Ok(traced.outputs)
    }

    /// Whether calls of an entry may launch CUDA graphs.
    fn has_graphs(&self, entry: &Entry) -> bool {
        let is_skipped = || self.options.skip_dynamic_graphs && entry.is_resized.load(Ordering::Relaxed);
        self.options.mode == CompileMode::ReduceOverhead && !is_skipped()
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
