//! What was compiled, what was fused, and why not.

use std::fmt;
use std::sync::Arc;

use super::copies::CopyReport;
use super::entry::Calls;
use super::epilogue::EpilogueReport;
use super::fuse::Kept;
use super::graph::View;
use super::guard::GuardFailure;
use super::plan::{Plan, Step, StepWork};
use super::programs::{Family, Programs};
use super::trace::GraphBreak;
use super::tree::{ThreadTrees, Tree, Trees};
use crate::blas::followed::Declined;

/// What a compiled function has become.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Its programs, in the order in which they were compiled.
    pub programs: Vec<ProgramReport>,
    /// Calls that ran the function as it is, since it had as many programs as it may have.
    pub uncompiled: usize,
    /// Number of CUDA graphs of all threads that call the function: one for each part of a function whose graph breaks.
    /// The graphs of a thread that is inside such a call are not counted.
    pub graphs: usize,
}

/// A program: what calls that do the same but for sizes were compiled to. Its figures are those of the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramReport {
    /// Operations that were traced.
    pub operations: usize,
    /// The kernels and calls, in the order in which they run.
    pub kernels: Vec<KernelReport>,
    /// Bytes that the operations that are needed would move one after another.
    pub unfused: i64,
    /// Where the graph broke.
    pub breaks: Vec<GraphBreak>,
    /// How the call differed from each program before it.
    pub recompiled: Vec<GuardFailure>,
    /// How many shapes of arguments were traced for it; each has a plan of its own, and all of them share kernels.
    pub shapes: usize,
    /// How the calls of other shapes differed from the first one, for those that are kept.
    pub resized: Vec<GuardFailure>,
    /// Operations whose results were written to memory, with the reason.
    pub kept: Vec<(&'static str, Kept)>,
    /// Of each copy that products read, whether they read what was copied instead.
    pub copies: Vec<CopyReport>,
    /// Of each product that an elementwise operation follows, whether it does that along with itself, or why not.
    pub epilogues: Vec<EpilogueReport>,
    /// Bytes of the block of what lives between kernels, on all devices.
    pub arena_bytes: usize,
    /// The shortest that such a block can be.
    pub arena_bound: usize,
    /// The most bytes that a call has taken at once, results among them; what kernels and calls take for themselves does not
    /// count. Of a function whose graph breaks, those of the graph that takes most.
    pub peak_bytes: usize,
    /// The least that any order of taking and giving back could do with: what is there at the worst moment.
    pub peak_bound: usize,
    /// Why it is no CUDA graph, where one was asked for.
    pub not_graphed: Option<&'static str>,
    /// Why the function is called each time, where it is.
    pub called: Option<&'static str>,
}

/// A kernel, or a call of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelReport {
    /// The operations that it does.
    pub operations: Vec<&'static str>,
    /// Bytes that it reads.
    pub read: i64,
    /// Bytes that it writes.
    pub written: i64,
    /// Bytes that its operations would move one after another. An operation that several kernels do counts in each.
    pub unfused: i64,
    /// The memory that it reads, by numbers that are the same where the memory is. They count within a program.
    pub inputs: Vec<usize>,
    /// The memory that it writes.
    pub outputs: Vec<usize>,
    /// Whether it is a call of something that was not generated.
    pub is_call: bool,
    /// How many launches of it are kept ready from call to call: two where few long rows are split up. 0 for what is worked
    /// out in each call, as calls are, and before the first call.
    pub launches: usize,
}

pub(super) fn report(programs: &Programs, trees: &ThreadTrees) -> Report {
    let trees = trees.all();
    let of = |family| program(family, &trees);
    Report {
        programs: programs.families.iter().map(of).collect(),
        uncompiled: programs.uncompiled,
        graphs: trees.iter().map(|tree| tree.lock().as_ref().map_or(0, Tree::len)).sum(),
    }
}

fn program(family: &Family, trees: &[Arc<Trees>]) -> ProgramReport {
    let entry = family.first();
    let plans = || entry.earlier.iter().chain([&entry.plan]).map(Arc::as_ref);
    let kept = |plan: &Plan| plan.kept.iter().filter_map(|&(name, kept)| Some((name, kept?))).collect::<Vec<_>>();
    ProgramReport {
        operations: plans().map(|plan| plan.nodes).sum(),
        kernels: kernels(plans()),
        unfused: plans().map(|plan| plan.unfused).sum(),
        breaks: entry.breaks.clone(),
        recompiled: family.recompiled.clone(),
        shapes: family.traced,
        resized: family.resized(),
        kept: plans().flat_map(kept).collect(),
        copies: plans().flat_map(|plan| plan.copies.clone()).collect(),
        epilogues: plans().flat_map(|plan| plan.epilogues.clone()).collect(),
        arena_bytes: plans().flat_map(|plan| &plan.layout.arenas).map(|(_, arena)| arena.bytes).sum(),
        arena_bound: plans().flat_map(|plan| &plan.layout.arenas).map(|(_, arena)| arena.bound).sum(),
        peak_bytes: plans().map(|plan| plan.layout.peak).max().unwrap_or(0),
        peak_bound: plans().map(|plan| plan.layout.peak_bound).max().unwrap_or(0),
        not_graphed: trees.iter().find_map(|tree| {
            let tree = tree.lock();
            entry.earlier.iter().chain([&entry.plan]).find_map(|plan| tree.as_ref()?.refused(plan))
        }),
        called: match entry.decided() {
            Some(Calls::Function(why)) => Some(why),
            Some(Calls::Plan) | None => None,
        },
    }
}

/// The steps of plans that run one after another. Each has memory of its own.
fn kernels<'a>(plans: impl Iterator<Item = &'a Plan>) -> Vec<KernelReport> {
    let (mut before, mut kernels) = (0, Vec::new());
    for plan in plans {
        kernels.extend(plan.steps.iter().map(|step| kernel(step, before)));
        before += plan.slots;
    }
    kernels
}

/// A step whose slots count from `before`.
fn kernel(step: &Step, before: usize) -> KernelReport {
    let bytes = |views: &[View]| views.iter().map(View::bytes_in_memory).sum();
    let slots = |views: &[View]| {
        let mut slots: Vec<usize> = views.iter().map(|view| before + view.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    };
    KernelReport {
        operations: step.names.clone(),
        read: bytes(&step.inputs),
        written: bytes(&step.outputs),
        unfused: step.unfused,
        inputs: slots(&step.inputs),
        outputs: slots(&step.outputs),
        is_call: matches!(step.work, StepWork::Call { .. }),
        launches: step.launches(),
    }
}

impl ProgramReport {
    /// Bytes that the kernels and calls read and write.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::compile::compile;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let f = compile(|x: &[Tensor]| Ok(vec![x[0].mul(2)?.add(1)?]));
    /// f.call(&[&Tensor::ones(&[100], DType::F32, "cuda")?])?;
    /// let program = &f.report().programs[0];
    /// assert_eq!((program.unfused, program.moved()), (1600, 800));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn moved(&self) -> i64 {
        self.kernels.iter().map(|kernel| kernel.read + kernel.written).sum()
    }
}

impl KernelReport {
    /// Bytes that are not moved since the operations are one kernel. Negative where computing something in several
    /// kernels reads more.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::compile::compile;
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let f = compile(|x: &[Tensor]| Ok(vec![x[0].mul(2)?.add(1)?]));
    /// f.call(&[&Tensor::ones(&[100], DType::F32, "cuda")?])?;
    /// assert_eq!(f.report().programs[0].kernels[0].saved(), 800);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    #[must_use]
    pub fn saved(&self) -> i64 {
        self.unfused - self.read - self.written
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, program) in self.programs.iter().enumerate() {
            writeln!(f, "program {number}: {} operations, {} kernels", program.operations, program.kernels.len())?;
            writeln!(f, "  moves {} bytes instead of {}", program.moved(), program.unfused)?;
            for failure in &program.recompiled {
                writeln!(f, "  compiled anew: {failure}")?;
            }
            if program.shapes > 1 {
                writeln!(f, "  for {} shapes", program.shapes)?;
            }
            for failure in &program.resized {
                writeln!(f, "  one more shape: {failure}")?;
            }
            for kernel in &program.kernels {
                let kind = if kernel.is_call { "call" } else { "kernel" };
                let names = kernel.operations.join(" + ");
                let (from, to) = (Slots(&kernel.inputs), Slots(&kernel.outputs));
                writeln!(
                    f,
                    "  {kind} {names}: reads {} bytes of {from}, writes {} to {to}",
                    kernel.read, kernel.written
                )?;
            }
            for copy in &program.copies {
                writeln!(f, "  {copy}")?;
            }
            for epilogue in &program.epilogues {
                writeln!(f, "  {epilogue}")?;
            }
            for (name, kept) in &program.kept {
                writeln!(f, "  {name} is written to memory: {kept}")?;
            }
            for graph_break in &program.breaks {
                writeln!(f, "  break: {graph_break}")?;
            }
            if let Some(why) = program.not_graphed {
                writeln!(f, "  no CUDA graph: {why}")?;
            }
            if let Some(why) = program.called {
                writeln!(f, "  called each time: {why}")?;
            }
        }
        Ok(())
    }
}

/// Numbers of memory as text: `m0, m3`.
struct Slots<'a>(&'a [usize]);

impl fmt::Display for Slots<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        self.0.iter().enumerate().try_for_each(|(at, slot)| write!(f, "{}m{slot}", if at == 0 { "" } else { ", " }))
    }
}

impl fmt::Display for CopyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (products, saved) = (self.products, self.saved);
        match self.refused {
            None => write!(f, "a copy for {products} products is left out, which saves {saved} bytes"),
            Some(why) => write!(f, "a copy for {products} products is made: {why}"),
        }
    }
}

impl fmt::Display for EpilogueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (product, operations) = (self.product, self.operations.join(" + "));
        match self.refused {
            None => write!(f, "{product} takes {operations} along, which saves {} bytes", self.saved),
            Some(why) => write!(f, "{product} does not take {operations} along: {why}"),
        }
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bits => "the results would have other bits, which only wide_intermediates allows",
            Self::Operation => "no kernel of a product ends with that",
            Self::Library => "there is cuBLAS without cuBLASLt",
            Self::Shape => "no kernel does that for these sizes, or for operands that lie so",
            Self::Read => "what is between the two is read elsewhere as well",
            Self::Fused => "it is part of a kernel that moves as many bytes all the same",
            Self::Order => "something is overwritten, or streams are ordered, between the two",
        })
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dead => "nothing of it is needed, so that it is left out",
            Self::Opaque => "it, or what reads it, is no program over elements or rows",
            Self::Result => "it is a result",
            Self::Shared => "its memory is written by several operations, or belongs to somebody else",
            Self::Layout => "it is read in an order that no index map tells",
            Self::Long => "the kernel would become too long",
            Self::Rows => "its rows are too long for one block each, or others than those of its reader",
            Self::Bytes => "several kernels read it, and computing it in each would move more bytes",
            Self::Overwritten => "what it reads is overwritten before its reader runs",
            Self::Stream => "its reader runs on another stream, or behind an event or a wait",
        })
    }
}
