//! Rows on the host.

use kernel_ir::eval::Row;
use kernel_ir::reduce::{self, Place};

use super::{Frame, Part, RowWork};
use crate::iterate::Iteration;

/// Computes the rows one after another.
pub(super) fn run(work: &RowWork<'_>, frame: &Frame, parts: &[Part<'_>]) {
    let outputs = work.reduction.output_types().len();
    let (rows, extent) = frame.counts();
    let counts = (usize::try_from(rows).unwrap_or(0), usize::try_from(extent).unwrap_or(0));
    let load = |input: usize, places: &[Place]| gather(&parts[outputs + input], frame, places);
    let mut store = |output: usize, places: &[Place], row: &Row| scatter(&parts[output], frame, places, row);
    reduce::run(&work.reduction, work.scalars, counts, &load, &mut store);
}

/// The bytes of the storage at which elements are.
fn offsets<'a>(part: &'a Part<'_>, frame: &'a Frame, places: &'a [Place]) -> impl Iterator<Item = usize> + 'a {
    places.iter().map(|&(row, element)| {
        let place = offset(&frame.kept, part.operand, row) + offset(&frame.reduced, part.operand, element);
        part.offset.wrapping_add_signed(place)
    })
}

/// Bytes from the first element on to that of a number.
fn offset(iteration: &Iteration, operand: usize, number: usize) -> isize {
    let mut rest = i64::try_from(number).unwrap_or(i64::MAX);
    let mut sum = 0;
    for (&size, &stride) in iteration.sizes.iter().zip(&iteration.strides[operand]) {
        sum += rest % size.max(1) * stride;
        rest /= size.max(1);
    }
    isize::try_from(sum).unwrap_or(0)
}

fn gather(part: &Part<'_>, frame: &Frame, places: &[Place]) -> Row {
    // Only pinned memory can fail here, and it was copied before.
    let Ok(bytes) = part.tensor.storage().host() else { return Row::Int(Vec::new()) };
    let width = part.ty.bytes();
    Row::gather(part.ty, offsets(part, frame, places).map(|at| &bytes[at..at + width]))
}

fn scatter(part: &Part<'_>, frame: &Frame, places: &[Place], row: &Row) {
    let Ok(mut bytes) = part.tensor.storage().host_mut() else { return };
    let width = part.ty.bytes();
    for (element, at) in offsets(part, frame, places).enumerate() {
        bytes[at..at + width].copy_from_slice(&row.bits(part.ty, element).to_le_bytes()[..width]);
    }
}
