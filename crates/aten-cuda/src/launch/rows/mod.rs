//! Running reductions, row operations and scans: which elements make up a row, and how a device goes through them.
//!
//! Reading order: this file ([`RowWork`], [`run`], [`Frame`]), `host`, `plan` (the schedule that fits), `device`.

mod device;
mod host;
mod plan;

use std::sync::{Arc, OnceLock};

use kernel_ir::GraphError;
use kernel_ir::reduce::{Last, Reduction};
use smallvec::SmallVec;

use super::kept::Kept;
use super::{Keeps, Part, Prepared, ProgramKey, parts, pinned, record};
use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::iterate::{Iteration, OperandLayout, Placed};
use crate::tensor::{Context, Tensor, is_host};

/// A reduction with the tensors that it works on.
#[derive(Debug)]
pub(crate) struct RowWork<'a> {
    pub(crate) key: ProgramKey,
    pub(crate) reduction: Arc<Reduction>,
    /// With every dimension of the inputs: where there is one result for a row, its dimensions have one element.
    pub(crate) outputs: &'a [&'a Tensor],
    /// All of one size; where an input repeats an element its stride is zero.
    pub(crate) inputs: &'a [&'a Tensor],
    /// The dimensions that a row lies along.
    pub(crate) dims: &'a [usize],
    /// The bits of the scalars.
    pub(crate) scalars: &'a [u64],
}

/// Which elements make up rows. Operands are the outputs, then the inputs.
#[derive(Debug)]
pub(super) struct Frame {
    /// The rows.
    pub(super) kept: Iteration,
    /// The elements of a row. Outputs with one element for a row have strides of zero.
    pub(super) reduced: Iteration,
}

/// The reduction of a key, built once.
pub(crate) fn reduction(
    key: ProgramKey,
    build: impl FnOnce() -> std::result::Result<Reduction, GraphError>,
) -> Result<Arc<Reduction>> {
    static REDUCTIONS: OnceLock<Kept<ProgramKey, Arc<Reduction>>> = OnceLock::new();
    let reductions = REDUCTIONS.get_or_init(Kept::default);
    if let Some(known) = reductions.read(&key, Arc::clone) {
        return Ok(known);
    }
    Ok(reductions.keep(key, Arc::new(build()?)))
}

/// Computes every row. All tensors are on one device.
pub(crate) fn run(work: &RowWork<'_>) -> Result<()> {
    run_keeping(work, Keeps::Nothing).map(drop)
}

/// As [`run`]. Launches that are kept are the answer; `None` where nothing was launched on a device.
pub(crate) fn run_keeping(work: &RowWork<'_>, keeps: Keeps) -> Result<Option<Box<Prepared>>> {
    let Some(first) = work.inputs.first() else { return Ok(None) };
    let frame = Frame::new(work);
    let per_row = *work.reduction.last() == Last::Row;
    if frame.kept.numel == 0 || (!per_row && frame.reduced.numel == 0) {
        return Ok(None);
    }
    let parts = parts(work.outputs, work.inputs);
    if let Some(key) = work.key.turned_for(&parts) {
        let outputs = work.reduction.output_types().len();
        let negating = || Ok(work.reduction.negating(|input| key.turns(outputs + input), |output| key.turns(output)));
        return run_keeping(&RowWork { key, reduction: reduction(key, negating)?, ..*work }, keeps);
    }
    let types = work.reduction.output_types().into_iter().chain(work.reduction.inputs().iter().copied());
    debug_assert!(parts.iter().map(|part| part.ty).eq(types), "the tensors are those that the reduction is for");
    if is_host(first.device()) {
        let operands: SmallVec<[&Tensor; 4]> = work.outputs.iter().chain(work.inputs).copied().collect();
        if pinned::is_any_pinned(&operands) {
            pinned::run(&operands, |operands| {
                let (outputs, inputs) = operands.split_at(work.outputs.len());
                run(&RowWork { reduction: Arc::clone(&work.reduction), outputs, inputs, ..*work })
            })?;
            return Ok(None);
        }
        host::run(work, &frame, &parts);
        return Ok(None);
    }
    if record::is_on() {
        record::rows(work)?;
        return Ok(None);
    }
    device::run(work, &frame, &parts, first.device(), keeps).of(work.key.operation, work.inputs)
}

impl Frame {
    fn new(work: &RowWork<'_>) -> Self {
        let sizes = work.inputs.first().map_or(&[][..], |input| input.sizes());
        let (reduced, kept): (Vec<usize>, Vec<usize>) = (0..sizes.len()).partition(|dim| work.dims.contains(dim));
        // Inputs come first, so that their order in memory decides.
        let operands = || work.inputs.iter().chain(work.outputs);
        let kept = iteration(operands().map(|tensor| lines(tensor, &kept)), &kept, sizes, false);
        let of_rows = operands().map(|tensor| {
            let part = lines(tensor, &reduced);
            let sizes: Dims = reduced.iter().map(|&dim| sizes[dim]).collect();
            if part.sizes() == sizes.as_slice() {
                return part;
            }
            // One result for a row stands at each of its elements.
            let strides = Dims::from_elem(0, sizes.len());
            OperandLayout::of(tensor, sizes, strides)
        });
        // Places are counted, and scans go, in logical order.
        let in_order = work.reduction.is_indexed() || *work.reduction.last() == Last::Running;
        let reduced = iteration(of_rows, &reduced, sizes, in_order);
        let mut frame = Self { kept, reduced };
        frame.kept.strides.rotate_left(work.inputs.len());
        frame.reduced.strides.rotate_left(work.inputs.len());
        frame
    }

    /// Rows and elements of each.
    pub(super) fn counts(&self) -> (u64, u64) {
        (u64::try_from(self.kept.numel).unwrap_or(0), u64::try_from(self.reduced.numel).unwrap_or(0))
    }
}

fn iteration(
    operands: impl Iterator<Item = OperandLayout>,
    dims: &[usize],
    sizes: &[i64],
    in_order: bool,
) -> Iteration {
    let operands: SmallVec<[OperandLayout; 4]> = operands.collect();
    let references: SmallVec<[&OperandLayout; 4]> = operands.iter().collect();
    let sizes: Dims = dims.iter().map(|&dim| sizes[dim]).collect();
    Iteration::new(&sizes, &references, in_order)
}

/// Returns the layout of some dimensions of a tensor. It is not a view: the dimensions chosen from an empty tensor may be
/// non-empty.
fn lines(tensor: &Tensor, dims: &[usize]) -> OperandLayout {
    let pick = |of: &[i64]| -> Dims { dims.iter().map(|&dim| of[dim]).collect() };
    OperandLayout::of(tensor, pick(tensor.sizes()), pick(tensor.strides()))
}
