//! From what a kernel computes to the program or the reduction that `launch` runs.
//!
//! **Invariant:** what is written here gives each result the bits that the operations would have given one after another,
//! but for the order in which a row is summed up: every rounding in between stays.

use std::sync::Arc;

use kernel_ir::reduce::{Last, Pass, Reduction};
use kernel_ir::{Graph as Writer, GraphError, Program, Type, Value};
use smallvec::SmallVec;

use super::expression::{Expr, ExprId, Expression, Reduced, Written, inline};
use super::graph::View;
use crate::base::shape::Dims;

/// What a kernel runs.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Elements { program: Arc<Program> },
    Rows { reduction: Arc<Reduction>, dims: Vec<usize> },
}

/// A kernel with what it reads and writes, over its elements.
#[derive(Clone, Debug)]
pub(super) struct Lowered {
    pub(super) body: Body,
    pub(super) sizes: Dims,
    pub(super) outputs: Vec<View>,
    pub(super) inputs: Vec<View>,
}

/// Writes an expression as a kernel; `None` where no kernel has this form.
pub(super) fn lower(expression: &Expression<'_>) -> Option<Lowered> {
    let body = match &expression.frame {
        None => Body::Elements { program: Arc::new(elements(expression)?) },
        Some(frame) => Body::Rows { reduction: Arc::new(rows(expression)?.ok()?), dims: frame.dims.clone() },
    };
    let inputs = expression.leaves.iter().map(|leaf| View {
        slot: leaf.slot,
        dtype: leaf.dtype,
        sizes: expression.domain.clone(),
        strides: leaf.strides.clone(),
        offset: leaf.offset,
        signs: crate::tensor::Signs::PLAIN,
    });
    let inputs: Vec<View> = inputs.collect();
    if matches!(body, Body::Rows { .. }) && (inputs.is_empty() || inputs.len() > 32) {
        return None;
    }
    let outputs = expression.results.iter().map(|(_, view)| view.clone()).collect();
    Some(Lowered { body, sizes: expression.domain.clone(), outputs, inputs })
}

fn leaf_types(expression: &Expression<'_>) -> Vec<Type> {
    expression.leaves.iter().map(|leaf| leaf.dtype.part()).collect()
}

fn elements(expression: &Expression<'_>) -> Option<Program> {
    let mut writer = expression.writer();
    let leaves: Vec<Value> = leaf_types(expression).into_iter().map(|ty| writer.input(ty)).collect();
    let mut written = Written::default();
    place_leaves(expression, &leaves, &mut written);
    for &(result, _) in &expression.results {
        let value = expression.write(&mut writer, &mut written, result)?;
        writer.output(value);
    }
    writer.finish().ok()
}

fn place_leaves(expression: &Expression<'_>, leaves: &[Value], written: &mut Written) {
    for (at, expr) in expression.exprs.iter().enumerate() {
        if let Expr::Leaf(leaf) = expr {
            written.exprs.insert(at, leaves[*leaf]);
        }
    }
}

/// A reduction's passes with what later programs make of its rows.
struct Ended<'a> {
    reduced: &'a Reduced,
    /// Expressions that are made of the rows alone, which the last pass computes once for a row.
    ends: Vec<ExprId>,
    /// The types of what its passes have given before: the number of row values of earlier reductions.
    before: usize,
    /// Row values of each pass.
    counts: Vec<usize>,
}

/// All reductions of an expression, one after another, and then what comes out.
fn rows(expression: &Expression<'_>) -> Option<Result<Reduction, GraphError>> {
    let per_row = expression.is_per_row;
    let ended = ended(expression);
    let mut types: Vec<Type> = Vec::new();
    let mut passes = Vec::new();
    for (at, end) in ended.iter().enumerate() {
        let is_last = at + 1 == ended.len();
        let own = end.reduced.reduction.passes();
        for (number, pass) in own.iter().enumerate() {
            let closing = number + 1 == own.len();
            let accumulate = accumulate(expression, &ended[..=at], (number, pass), &types)?;
            let finish = match closing {
                true => finish(expression, end, pass, per_row && is_last)?,
                false => plain(&pass.finish, &end.reduced.scalars)?,
            };
            let combine = plain(&pass.combine, &end.reduced.scalars)?;
            types.extend(finish.output_types());
            passes.push(Pass { identity: pass.identity.clone(), accumulate, combine, finish });
        }
    }
    let last = if per_row { Last::Row } else { Last::Each(each(expression, &ended, &types)?) };
    Some(Reduction::new(leaf_types(expression), Vec::new(), passes, last))
}

fn ended<'a>(expression: &'a Expression<'_>) -> Vec<Ended<'a>> {
    let (mut before, count) = (0, expression.reductions.len());
    let mut made: Vec<Ended<'a>> = Vec::new();
    for (at, reduced) in expression.reductions.iter().enumerate() {
        let ends = |expr: &ExprId| match &expression.exprs[*expr] {
            Expr::Of { call, .. } => expression.calls[*call].of_rows == Some(at),
            _ => false,
        };
        let ends: Vec<ExprId> = (0..expression.exprs.len()).filter(ends).collect();
        let mut counts: Vec<usize> =
            reduced.reduction.passes().iter().map(|pass| pass.finish.outputs().len()).collect();
        if let Some(last) = counts.last_mut()
            && !(expression.is_per_row && at + 1 == count)
        {
            *last += ends.len();
        }
        let total: usize = counts.iter().sum();
        made.push(Ended { reduced, ends, before, counts });
        before += total;
    }
    made
}

/// A program whose scalars are constants.
fn plain(program: &Program, scalars: &[u64]) -> Option<Program> {
    let mut writer = Writer::new();
    let inputs: Vec<Value> = program.inputs().iter().map(|&ty| writer.input(ty)).collect();
    let outputs = inline(&mut writer, program, &inputs, scalars);
    outputs.into_iter().for_each(|value| writer.output(value));
    writer.finish().ok()
}

/// From accumulators, elements and the rows' values so far to accumulators, for a pass of the last of these reductions.
fn accumulate(
    expression: &Expression<'_>,
    ended: &[Ended<'_>],
    (number, pass): (usize, &Pass),
    types: &[Type],
) -> Option<Program> {
    let own = ended.last()?;
    let mut writer = expression.writer();
    let accumulators: Vec<Value> = pass.identity.iter().map(|&(ty, _)| writer.input(ty)).collect();
    let leaves: Vec<Value> = leaf_types(expression).into_iter().map(|ty| writer.input(ty)).collect();
    let rows: Vec<Value> = types.iter().map(|&ty| writer.input(ty)).collect();
    let mut written = Written::default();
    place_leaves(expression, &leaves, &mut written);
    place_rows(expression, &ended[..ended.len() - 1], &rows, (&mut writer, &mut written))?;
    let mut taken: SmallVec<[Value; 8]> = accumulators.into();
    for &argument in &own.reduced.arguments {
        taken.push(expression.write(&mut writer, &mut written, argument)?);
    }
    let passed: usize = own.counts[..number].iter().sum();
    taken.extend(rows[own.before..own.before + passed].iter().copied());
    writer.note(expression.name_of(own.reduced.node));
    let outputs = inline(&mut writer, &pass.accumulate, &taken, &own.reduced.scalars);
    outputs.into_iter().for_each(|value| writer.output(value));
    writer.finish().ok()
}

/// Gives the expressions that are values of rows, or of what a row operation makes of each element, their values.
fn place_rows(
    expression: &Expression<'_>,
    ended: &[Ended<'_>],
    rows: &[Value],
    (writer, written): (&mut Writer, &mut Written),
) -> Option<()> {
    for (at, expr) in expression.exprs.iter().enumerate() {
        match expr {
            Expr::Row { reduction, output } if *reduction < ended.len() => {
                let end = &ended[*reduction];
                let last: usize = end.counts[..end.counts.len() - 1].iter().sum();
                written.exprs.insert(at, rows[end.before + last + output]);
            }
            Expr::Of { .. } => {
                for end in ended {
                    if let Some(place) = end.ends.iter().position(|&ends| ends == at) {
                        let total: usize = end.counts.iter().sum();
                        written.exprs.insert(at, rows[end.before + total - end.ends.len() + place]);
                    }
                }
            }
            Expr::Each { reduction, output } if *reduction < ended.len() => {
                let end = &ended[*reduction];
                let Last::Each(program) = end.reduced.reduction.last() else { return None };
                let mut taken: Vec<Value> = Vec::new();
                for &argument in &end.reduced.arguments {
                    taken.push(expression.write(writer, written, argument)?);
                }
                let total: usize = end.counts.iter().sum();
                taken.extend(rows[end.before..end.before + total - end.ends.len()].iter().copied());
                writer.note(expression.name_of(end.reduced.node));
                let outputs = inline(writer, program, &taken, &end.reduced.scalars);
                written.exprs.insert(at, *outputs.get(*output)?);
            }
            Expr::Leaf(_) | Expr::Row { .. } | Expr::Each { .. } => {}
        }
    }
    Some(())
}

/// From accumulators to a pass's row values, and what is made of those alone.
fn finish(expression: &Expression<'_>, end: &Ended<'_>, pass: &Pass, is_result: bool) -> Option<Program> {
    let mut writer = expression.writer();
    let accumulators: Vec<Value> = pass.identity.iter().map(|&(ty, _)| writer.input(ty)).collect();
    writer.note(expression.name_of(end.reduced.node));
    let own = inline(&mut writer, &pass.finish, &accumulators, &end.reduced.scalars);
    let mut written = Written::default();
    for (at, expr) in expression.exprs.iter().enumerate() {
        if let Expr::Row { reduction, output } = expr
            && std::ptr::eq(&expression.reductions[*reduction], end.reduced)
        {
            written.exprs.insert(at, *own.get(*output)?);
        }
    }
    if is_result {
        for &(result, _) in &expression.results {
            let value = expression.write(&mut writer, &mut written, result)?;
            writer.output(value);
        }
        return writer.finish().ok();
    }
    own.iter().for_each(|&value| writer.output(value));
    for &at in &end.ends {
        let value = expression.write(&mut writer, &mut written, at)?;
        writer.output(value);
    }
    writer.finish().ok()
}

/// From elements and the rows' values to the results.
fn each(expression: &Expression<'_>, ended: &[Ended<'_>], types: &[Type]) -> Option<Program> {
    let mut writer = expression.writer();
    let leaves: Vec<Value> = leaf_types(expression).into_iter().map(|ty| writer.input(ty)).collect();
    let rows: Vec<Value> = types.iter().map(|&ty| writer.input(ty)).collect();
    let mut written = Written::default();
    place_leaves(expression, &leaves, &mut written);
    place_rows(expression, ended, &rows, (&mut writer, &mut written))?;
    for &(result, _) in &expression.results {
        let value = expression.write(&mut writer, &mut written, result)?;
        writer.output(value);
    }
    writer.finish().ok()
}
