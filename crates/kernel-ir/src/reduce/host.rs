//! Reductions on the host.
//!
//! **Invariants:** the result of a row does not depend on the other rows. Short rows are taken in rising order, many
//! rows at a time. A long row is taken [`ROW`] elements at a time into as many sets of accumulators, which are then
//! combined in halves, so that errors grow little with the length.

use super::{Last, Pass, Reduction};
use crate::eval::{self, ROW, Row};
use crate::types::Type;

/// Where an element is: the number of its row, and its place there.
pub type Place = (usize, usize);

/// Rows up to this length are taken in rising order.
const SHORT: usize = 32;

/// Computes the rows. `load` gives the elements of an input at these places; `store` takes those of an output, whose
/// place in the row is zero where there is one for each row.
pub fn run(
    reduction: &Reduction,
    scalars: &[u64],
    (rows, extent): (usize, usize),
    load: &dyn Fn(usize, &[Place]) -> Row,
    store: &mut dyn FnMut(usize, &[Place], &Row),
) {
    let mut work = Work { reduction, scalars, extent, load, store };
    if extent <= SHORT || *reduction.last() == Last::Running {
        for first in (0..rows).step_by(ROW) {
            work.side_by_side(first, ROW.min(rows - first));
        }
    } else {
        for row in 0..rows {
            work.one_row(row);
        }
    }
}

struct Work<'a> {
    reduction: &'a Reduction,
    scalars: &'a [u64],
    extent: usize,
    load: &'a dyn Fn(usize, &[Place]) -> Row,
    store: &'a mut dyn FnMut(usize, &[Place], &Row),
}

impl Work<'_> {
    /// Several rows at once, each in rising order.
    fn side_by_side(&mut self, first: usize, count: usize) {
        let reduction = self.reduction;
        let at = |element: usize| -> Vec<Place> { (first..first + count).map(|row| (row, element)).collect() };
        let mut values: Vec<Row> = Vec::new();
        for pass in reduction.passes() {
            let mut set = identity(pass, count);
            for element in 0..self.extent {
                let places = at(element);
                self.accumulate(pass, &mut set, &places, &values);
                if *reduction.last() == Last::Running {
                    let found = eval::run(&pass.finish, &set, self.scalars, 0, count);
                    self.store_all(&places, &found);
                }
            }
            values.extend(eval::run(&pass.finish, &set, self.scalars, 0, count));
        }
        match reduction.last() {
            Last::Running => {}
            Last::Row => self.store_last(&at(0), &values),
            Last::Each(_) => (0..self.extent).for_each(|element| self.store_each(&at(element), &values)),
        }
    }

    /// One row, many elements at once.
    fn one_row(&mut self, row: usize) {
        let reduction = self.reduction;
        let extent = self.extent;
        // The iterator is rebuilt for each pass: storing all places of a row would take more memory than its elements.
        let chunks = || {
            let chunk =
                move |first| -> Vec<Place> { (first..extent.min(first + ROW)).map(|element| (row, element)).collect() };
            (0..extent).step_by(ROW).map(chunk)
        };
        // Row values, one element each.
        let mut values: Vec<Row> = Vec::new();
        let repeat = |values: &[Row], types: &[Type], count: usize| -> Vec<Row> {
            values.iter().zip(types).map(|(value, &ty)| Row::splat(ty, value.bits(ty, 0), count)).collect()
        };
        let mut types: Vec<Type> = Vec::new();
        for pass in reduction.passes() {
            let mut set = identity(pass, ROW.min(self.extent));
            for places in chunks() {
                let values = repeat(&values, &types, places.len());
                let mut own: Vec<Row> = set.iter().map(|lanes| lanes.part(0, places.len())).collect();
                self.accumulate(pass, &mut own, &places, &values);
                for (lanes, own) in set.iter_mut().zip(&own) {
                    lanes.overwrite(own);
                }
            }
            let set = self.halve(pass, set);
            values.extend(eval::run(&pass.finish, &set, self.scalars, 0, 1));
            types.extend(pass.finish.output_types());
        }
        match reduction.last() {
            Last::Each(_) => {
                for places in chunks() {
                    let values = repeat(&values, &types, places.len());
                    self.store_each(&places, &values);
                }
            }
            Last::Row | Last::Running => self.store_last(&[(row, 0)], &values),
        }
    }

    fn inputs(&self, places: &[Place]) -> Vec<Row> {
        (0..self.reduction.inputs().len()).map(|input| (self.load)(input, places)).collect()
    }

    fn accumulate(&self, pass: &Pass, set: &mut Vec<Row>, places: &[Place], values: &[Row]) {
        let mut taken = std::mem::take(set);
        taken.extend(self.inputs(places));
        taken.extend_from_slice(values);
        if pass.accumulate.inputs().len() > taken.len() {
            let place = |&(_, element): &Place| i64::try_from(element).unwrap_or(i64::MAX);
            taken.push(Row::Int(places.iter().map(place).collect()));
        }
        *set = eval::run(&pass.accumulate, &taken, self.scalars, 0, places.len());
    }

    /// The sets side by side combined in halves, to one.
    fn halve(&self, pass: &Pass, mut set: Vec<Row>) -> Vec<Row> {
        let mut count = set.first().map_or(1, Row::len);
        while count > 1 {
            let (high, low) = (count / 2, count - count / 2);
            let pairs =
                set.iter().map(|lanes| lanes.part(0, high)).chain(set.iter().map(|lanes| lanes.part(low, high)));
            let pairs: Vec<Row> = pairs.collect();
            let joined = eval::run(&pass.combine, &pairs, self.scalars, 0, high);
            set = set.iter().map(|lanes| lanes.part(0, low)).collect();
            for (lanes, joined) in set.iter_mut().zip(&joined) {
                lanes.overwrite(joined);
            }
            count = low;
        }
        set
    }

    fn store_all(&mut self, places: &[Place], found: &[Row]) {
        for (output, row) in found.iter().enumerate() {
            (self.store)(output, places, row);
        }
    }

    /// The values of the last pass.
    fn store_last(&mut self, places: &[Place], values: &[Row]) {
        let outputs = self.reduction.output_types().len();
        let found = values[values.len() - outputs..].to_vec();
        self.store_all(places, &found);
    }

    fn store_each(&mut self, places: &[Place], values: &[Row]) {
        let Last::Each(program) = self.reduction.last() else { return };
        let mut taken = self.inputs(places);
        taken.extend_from_slice(values);
        let found = eval::run(program, &taken, self.scalars, 0, places.len());
        self.store_all(places, &found);
    }
}

fn identity(pass: &Pass, count: usize) -> Vec<Row> {
    pass.identity.iter().map(|&(ty, bits)| Row::splat(ty, bits, count)).collect()
}

impl Row {
    /// Some values, from a place on.
    fn part(&self, first: usize, count: usize) -> Self {
        let range = first..first + count;
        match self {
            Self::Int(values) => Self::Int(values[range].to_vec()),
            Self::F32(values) => Self::F32(values[range].to_vec()),
            Self::F64(values) => Self::F64(values[range].to_vec()),
        }
    }

    /// Puts other values of the same type over the first ones.
    fn overwrite(&mut self, with: &Self) {
        match (self, with) {
            (Self::Int(values), Self::Int(with)) => values[..with.len()].copy_from_slice(with),
            (Self::F32(values), Self::F32(with)) => values[..with.len()].copy_from_slice(with),
            (Self::F64(values), Self::F64(with)) => values[..with.len()].copy_from_slice(with),
            // A program is well typed, so this does not happen.
            _ => {}
        }
    }
}
