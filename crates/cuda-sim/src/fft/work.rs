//! A transform as a piece of work.
//!
//! `X[k] = sum over j of x[j] exp(sign 2 pi i j k / n)`, in each direction without a factor. Where numbers are real before
//! or after, the complex side holds only the first half of the last dimension, and the rest follows from symmetry.

use cuda_sys::cublas::types::cudaDataType_t;

use crate::model::library_work::{LibraryWork, Touch, Use};
use crate::model::memory::{BadAddress, Endpoint, Memory};
use crate::toolkit::numbers::{bytes_of, decode, encode};

/// Numbers that the simulated device transforms in a nanosecond.
const NUMBERS_A_NS: u64 = 100;

/// Where numbers of one side lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) ty: cudaDataType_t,
    /// Numbers of each dimension.
    pub(super) sizes: Vec<u64>,
    /// Numbers of each dimension with the gaps between them; the first one counts for nothing.
    pub(super) embedded: Vec<u64>,
    pub(super) stride: u64,
    pub(super) distance: u64,
}

impl Side {
    fn count(&self) -> usize {
        usize::try_from(self.sizes.iter().product::<u64>()).unwrap_or(usize::MAX)
    }

    /// Places of all numbers of a transform of the batch, row by row.
    fn places(&self, batch: u64) -> Vec<u64> {
        let mut places = vec![0];
        for (&size, &embedded) in self.sizes.iter().zip(&self.embedded) {
            places = places.iter().flat_map(|place| (0..size).map(move |index| place * embedded + index)).collect();
        }
        places.into_iter().map(|place| place * self.stride + batch * self.distance).collect()
    }

    /// Numbers from the first to behind the last one of all transforms.
    fn extent(&self, batch: u64) -> u64 {
        let last = self.sizes.iter().zip(&self.embedded).fold(0, |place, (size, embedded)| place * embedded + size - 1);
        last * self.stride + (batch - 1) * self.distance + 1
    }

    pub(super) fn bytes(&self, batch: u64) -> u64 {
        self.extent(batch) * bytes_of(self.ty).unwrap_or(1)
    }
}

/// A transform.
#[derive(Clone, Debug)]
pub(super) struct Transform {
    pub(super) name: &'static str,
    pub(super) sizes: Vec<u64>,
    pub(super) batch: u64,
    pub(super) from: Side,
    pub(super) to: Side,
    pub(super) input: u64,
    pub(super) output: u64,
    /// The sign in the exponent.
    pub(super) sign: f64,
    pub(super) workspace: (u64, u64),
}

/// Transforms every line of a dimension.
fn along(numbers: &mut [[f64; 2]], sizes: &[u64], dimension: usize, sign: f64) {
    let length = |sizes: &[u64]| usize::try_from(sizes.iter().product::<u64>()).unwrap_or(usize::MAX);
    let (count, inner) = (length(&sizes[dimension..=dimension]), length(&sizes[dimension + 1..]));
    let angle = |turns: usize| {
        let part = u32::try_from(turns % count).map_or(0.0, f64::from) / u32::try_from(count).map_or(1.0, f64::from);
        (sign * std::f64::consts::TAU * part).sin_cos()
    };
    let turns: Vec<(f64, f64)> = (0..count).map(angle).collect();
    for block in numbers.chunks_exact_mut(count * inner) {
        for offset in 0..inner {
            let line: Vec<[f64; 2]> = (0..count).map(|index| block[index * inner + offset]).collect();
            for frequency in 0..count {
                let sum = line.iter().enumerate().fold([0.0; 2], |[re, im], (index, [x, y])| {
                    let (sine, cosine) = turns[index * frequency % count];
                    [re + x * cosine - y * sine, im + x * sine + y * cosine]
                });
                block[frequency * inner + offset] = sum;
            }
        }
    }
}

impl Transform {
    fn halves(&self) -> u64 {
        self.sizes.last().map_or(1, |last| last / 2 + 1)
    }

    fn is_real(&self, side: &Side) -> bool {
        matches!(side.ty, cudaDataType_t::CUDA_R_32F | cudaDataType_t::CUDA_R_64F)
    }

    /// The whole of what half of is given, by symmetry.
    fn whole(&self, half: &[[f64; 2]]) -> Vec<[f64; 2]> {
        let index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let (last, halves) = (self.sizes.last().copied().unwrap_or(1), self.halves());
        let all: u64 = self.sizes.iter().product();
        let number = |place: u64| {
            let (row, column) = (place / last, place % last);
            if column < halves {
                return half[index(row * halves + column)];
            }
            let [re, im] = half[index(self.mirrored(row) * halves + last - column)];
            [re, -im]
        };
        (0..all).map(number).collect()
    }

    /// The row whose frequencies are those of another one backward.
    fn mirrored(&self, mut row: u64) -> u64 {
        let (mut mirrored, mut unit) = (0, 1);
        for &size in self.sizes.iter().rev().skip(1) {
            let place = row % size;
            mirrored += (size - place) % size * unit;
            unit *= size;
            row /= size;
        }
        mirrored
    }

    /// Transforms one of the batch: from the numbers of the input's side to those of the output's.
    fn transformed(&self, numbers: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
        let mut numbers = if self.is_real(&self.to) { self.whole(&numbers) } else { numbers };
        for dimension in 0..self.sizes.len() {
            along(&mut numbers, &self.sizes, dimension, self.sign);
        }
        if !self.is_real(&self.from) {
            return numbers;
        }
        let (last, halves) = (self.sizes.last().copied().unwrap_or(1), self.halves());
        let kept = numbers.into_iter().zip((0..last).cycle()).filter(|&(_, column)| column < halves);
        kept.map(|(number, _)| number).collect()
    }
}

impl LibraryWork for Transform {
    fn name(&self) -> &'static str {
        self.name
    }

    fn known_touches(&self) -> Vec<Touch> {
        let (read, written) = (self.from.bytes(self.batch), self.to.bytes(self.batch));
        let mut touches = vec![
            Touch { address: self.output, length: written, how: Use::Writes },
            Touch { address: self.input, length: read, how: Use::Reads },
        ];
        if self.workspace.1 > 0 {
            touches.push(Touch { address: self.workspace.0, length: self.workspace.1, how: Use::Scratch });
        }
        touches
    }

    fn touches(&self, _: &Memory) -> Result<Vec<Touch>, BadAddress> {
        Ok(self.known_touches())
    }

    fn run(&self, memory: &Memory) -> Result<(), BadAddress> {
        let bytes = memory.stage(&Endpoint::linear(self.input), self.from.bytes(self.batch), 1, 1)?;
        let all = decode(self.from.ty, &bytes);
        let size = bytes_of(self.to.ty).unwrap_or(1);
        let mut results = Vec::new();
        for batch in 0..self.batch {
            let places = self.from.places(batch);
            let numbers = places.into_iter().map(|place| all[usize::try_from(place).unwrap_or(usize::MAX)]);
            results.push(self.transformed(numbers.collect()));
        }
        for (batch, numbers) in (0..self.batch).zip(results) {
            debug_assert_eq!(numbers.len(), self.to.count(), "a number for each place");
            for (place, number) in self.to.places(batch).into_iter().zip(numbers) {
                memory.write_run(self.output + place * size, &encode(self.to.ty, &[number]))?;
            }
        }
        Ok(())
    }

    fn duration_ns(&self) -> u64 {
        self.sizes.iter().product::<u64>() * self.batch / NUMBERS_A_NS
    }
}
