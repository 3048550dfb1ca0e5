//! What was compiled, what was fused, and why not.

use std::fmt;
use std::sync::{Arc, PoisonError};

use super::fuse::Kept;
use super::guard::GuardFailure;
use super::plan::{Plan, StepWork};
use super::trace::GraphBreak;
use super::{Entry, State};

/// What a compiled function has become.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Its programs, in the order in which they were compiled.
    pub programs: Vec<ProgramReport>,
    /// Calls that ran the function as it is, since it had as many programs as it may have.
    pub uncompiled: usize,
}

/// A program: what one call was compiled to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramReport {
    /// Operations that were traced.
    pub operations: usize,
    /// The kernels and calls, in the order in which they run.
    pub kernels: Vec<KernelReport>,
    /// Where the graph broke.
    pub breaks: Vec<GraphBreak>,
    /// How the call differed from each program before it.
    pub recompiled: Vec<GuardFailure>,
    /// Operations whose results were written to memory, with the reason.
    pub kept: Vec<(&'static str, Kept)>,
    /// Bytes of the block of what lives between kernels, on all devices.
    pub arena_bytes: usize,
    /// The shortest that such a block can be.
    pub arena_bound: usize,
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
    /// Whether it is a call of something that was not generated.
    pub is_call: bool,
}

pub(super) fn report(entries: &[Arc<Entry>], recompiles: &[Vec<GuardFailure>], uncompiled: usize) -> Report {
    let programs = entries.iter().zip(recompiles).map(|(entry, failures)| program(entry, failures)).collect();
    Report { programs, uncompiled }
}

fn program(entry: &Entry, recompiled: &[GuardFailure]) -> ProgramReport {
    let plans = || entry.earlier.iter().chain([&entry.plan]).map(Arc::as_ref);
    let kept = |plan: &Plan| plan.kept.iter().filter_map(|&(name, kept)| Some((name, kept?))).collect::<Vec<_>>();
    ProgramReport {
        operations: plans().map(|plan| plan.nodes).sum(),
        kernels: plans().flat_map(kernels).collect(),
        breaks: entry.breaks.clone(),
        recompiled: recompiled.to_vec(),
        kept: plans().flat_map(kept).collect(),
        arena_bytes: plans().flat_map(|plan| &plan.arenas).map(|(_, arena)| arena.bytes).sum(),
        arena_bound: plans().flat_map(|plan| &plan.arenas).map(|(_, arena)| arena.bound).sum(),
        called: match *entry.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Called(why) => Some(why),
            State::Seen | State::Proven => None,
        },
    }
}

fn kernels(plan: &Plan) -> Vec<KernelReport> {
    let steps = plan.steps.iter();
    steps
        .map(|step| KernelReport {
            operations: step.names.clone(),
            read: step.inputs.iter().map(super::graph::View::bytes_in_memory).sum(),
            written: step.outputs.iter().map(super::graph::View::bytes_in_memory).sum(),
            is_call: matches!(step.work, StepWork::Call { .. }),
        })
        .collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, program) in self.programs.iter().enumerate() {
            writeln!(f, "program {number}: {} operations, {} kernels", program.operations, program.kernels.len())?;
            for failure in &program.recompiled {
                writeln!(f, "  compiled anew: {failure}")?;
            }
            for kernel in &program.kernels {
                let kind = if kernel.is_call { "call" } else { "kernel" };
                let names = kernel.operations.join(" + ");
                writeln!(f, "  {kind} {names}: reads {} bytes, writes {}", kernel.read, kernel.written)?;
            }
            for (name, kept) in &program.kept {
                writeln!(f, "  {name} is written to memory: {kept}")?;
            }
            for graph_break in &program.breaks {
                writeln!(f, "  break: {graph_break}")?;
            }
            if let Some(why) = program.called {
                writeln!(f, "  called each time: {why}")?;
            }
        }
        Ok(())
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
            Self::Stream => "its reader runs on another stream",
        })
    }
}
