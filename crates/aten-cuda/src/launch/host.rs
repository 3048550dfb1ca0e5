//! Programs on the host: rows of elements, gathered from the inputs, computed and scattered to the outputs.

use std::ops::Range;

use kernel_ir::eval::{self, ROW, Row};

use super::{Part, Work};
use crate::base::error::Result;
use crate::iterate::Iteration;

/// Computes the elements row by row.
pub(super) fn run(work: &Work<'_>, iteration: &Iteration, parts: &[Part<'_>]) -> Result<()> {
    let numel = usize::try_from(iteration.numel).unwrap_or(0);
    let rows = numel.div_ceil(ROW);
    let run_row = |row: usize| run_row(work, iteration, parts, row * ROW..numel.min((row + 1) * ROW));
    #[cfg(feature = "rayon")]
    if rows >= ENOUGH_ROWS {
        use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
        // Each element is read and written by one row alone, so that the order of rows does not matter.
        return (0..rows).into_par_iter().try_for_each(run_row);
    }
    (0..rows).try_for_each(run_row)
}

/// From so many rows on they are shared among threads.
#[cfg(feature = "rayon")]
const ENOUGH_ROWS: usize = 8;

/// Computes some elements in a row.
fn run_row(work: &Work<'_>, iteration: &Iteration, parts: &[Part<'_>], elements: Range<usize>) -> Result<()> {
    let (outputs, count) = (work.program.outputs().len(), elements.len());
    let places = RowPlaces::new(iteration, elements.start, count);
    let inputs: Vec<Row> = parts[outputs..].iter().map(|part| gather(part, &places)).collect::<Result<_>>()?;
    let index = i64::try_from(elements.start).unwrap_or(i64::MAX);
    let rows = eval::run(&work.program, &inputs, work.scalars, index, count);
    parts[..outputs].iter().zip(&rows).try_for_each(|(part, row)| scatter(part, &places, row))
}

/// Where the elements of a row are, for each operand of the iteration: bytes from the operand's first element on.
struct RowPlaces(Vec<Vec<i64>>);

impl RowPlaces {
    fn new(iteration: &Iteration, start: usize, count: usize) -> Self {
        let mut at = Vec::with_capacity(iteration.sizes.len());
        let mut rest = i64::try_from(start).unwrap_or(i64::MAX);
        for &size in &iteration.sizes {
            at.push(rest % size);
            rest /= size;
        }
        let mut places: Vec<Vec<i64>> = iteration.strides.iter().map(|_| Vec::with_capacity(count)).collect();
        for _ in 0..count {
            for (places, strides) in places.iter_mut().zip(&iteration.strides) {
                places.push(at.iter().zip(strides).map(|(at, stride)| at * stride).sum());
            }
            for (at, &size) in at.iter_mut().zip(&iteration.sizes) {
                *at += 1;
                if *at < size {
                    break;
                }
                *at = 0;
            }
        }
        Self(places)
    }

    fn of<'a>(&'a self, part: &'a Part<'_>) -> impl Iterator<Item = usize> + 'a {
        self.0[part.operand].iter().map(|&place| part.offset.wrapping_add_signed(isize::try_from(place).unwrap_or(0)))
    }
}

fn gather(part: &Part<'_>, places: &RowPlaces) -> Result<Row> {
    let bytes = part.tensor.storage().host()?;
    let width = part.ty.bytes();
    Ok(Row::gather(part.ty, places.of(part).map(|at| &bytes[at..at + width])))
}

fn scatter(part: &Part<'_>, places: &RowPlaces, row: &Row) -> Result<()> {
    let mut bytes = part.tensor.storage().host_mut()?;
    let width = part.ty.bytes();
    for (element, at) in places.of(part).enumerate() {
        bytes[at..at + width].copy_from_slice(&row.bits(part.ty, element).to_le_bytes()[..width]);
    }
    Ok(())
}
