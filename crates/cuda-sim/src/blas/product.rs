//! A product of matrices as a piece of work: `D = epilogue(alpha * op(A) * op(B) + beta * C)`, for each of a batch.
//!
//! Matrices lie by columns. Products of vectors are products of matrices with one row or column. What a factor of zero
//! makes needless is not read, as in BLAS: `C` when `beta` is zero, `A` and `B` when `alpha` is.

use cuda_sys::cublas::types::{cublasOperation_t, cudaDataType_t};

use crate::model::library_work::{LibraryWork, Touch, Use};
use crate::model::memory::{BadAddress, Endpoint, Memory};
use crate::toolkit::matrix::{Base, Matrix};
use crate::toolkit::numbers::{Complex, Half, Number, Rounding, bytes_of, decode, encode};

/// Multiplications and additions that the simulated device does in a nanosecond.
const WORK_A_NS: u64 = 250_000;

/// Bytes at the start of a workspace that are written, so that whoever else uses them sees it.
const SCRIBBLED_BYTES: u64 = 64;

/// A factor and what is done to it first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    pub(super) matrix: Matrix,
    pub(super) op: cublasOperation_t,
}

impl Factor {
    /// The numbers of the factor itself, by columns.
    fn read<T: Number>(&self, address: u64, rounding: Rounding, memory: &Memory) -> Result<Vec<T>, BadAddress> {
        let (rows, columns) = (index(self.matrix.rows), index(self.matrix.columns));
        let sign = if is_conjugated(self.op) { -1.0 } else { 1.0 };
        let number = |[real, imaginary]: [f64; 2]| T::of([rounding.round(real), rounding.round(sign * imaginary)]);
        let numbers: Vec<T> = self.matrix.read(address, memory)?.into_iter().map(number).collect();
        if !is_transposed(self.op) {
            return Ok(numbers);
        }
        Ok((0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(row, column)| numbers[column * rows + row])
            .collect())
    }
}

/// Whether rows of a factor are columns of its matrix.
pub(super) fn is_transposed(op: cublasOperation_t) -> bool {
    op == cublasOperation_t::CUBLAS_OP_T || op == cublasOperation_t::CUBLAS_OP_C
}

fn is_conjugated(op: cublasOperation_t) -> bool {
    op == cublasOperation_t::CUBLAS_OP_C || op == cublasOperation_t::CUBLAS_OP_CONJG
}

/// A factor of a whole product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    /// Known when the product is queued.
    Known([f64; 2]),
    /// In memory when it runs.
    At(u64, cudaDataType_t),
}

impl Scalar {
    fn read(self, memory: &Memory) -> Result<[f64; 2], BadAddress> {
        match self {
            Self::Known(value) => Ok(value),
            Self::At(address, ty) => one(address, ty, memory),
        }
    }

    fn touch(self) -> Option<Touch> {
        let Self::At(address, ty) = self else { return None };
        Some(Touch { address, length: bytes_of(ty).unwrap_or(1), how: Use::Reads })
    }
}

fn one(address: u64, ty: cudaDataType_t, memory: &Memory) -> Result<[f64; 2], BadAddress> {
    let bytes = memory.stage(&Endpoint::linear(address), bytes_of(ty).unwrap_or(1), 1, 1)?;
    Ok(decode(ty, &bytes).first().copied().unwrap_or_default())
}

/// What sums are made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    F16,
    F32,
    F64,
    I32,
    C32,
    C64,
}

/// What is done to each number of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    None,
    Relu,
    Gelu,
}

impl Activation {
    fn apply(self, value: f64) -> f64 {
        match self {
            Self::None => value,
            // A NaN stays one.
            Self::Relu => {
                if value < 0.0 {
                    0.0
                } else {
                    value
                }
            }
            Self::Gelu => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044_715 * value * value * value);
                0.5 * value * (1.0 + inner.tanh())
            }
        }
    }
}

/// A number for each row of the result, which is added to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bias {
    pub(super) address: u64,
    pub(super) ty: cudaDataType_t,
    pub(super) stride_bytes: i64,
}

/// Scales of a matrix of 8-bit floats: `f32` in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    None,
    /// One for all.
    One(u64),
    /// One for each row of the left factor, or for each column of the right one.
    Each(u64),
    /// One for each 128 numbers of a row or a column; those of all rows or columns lie together.
    Parts(u64),
    /// One for each square of 128 numbers; those of the same rows or columns lie together, in lines of a multiple of 16
    /// bytes.
    Blocks(u64),
}

/// Numbers along a dimension that share a scale of a part or a square.
pub(super) const SHARED: u64 = 128;

impl Scale {
    /// Where the scales of so many rows or columns of a length lie, and how many numbers that is.
    fn span(self, [lines, inner]: [u64; 2]) -> Option<(u64, u64)> {
        let parts = inner.div_ceil(SHARED);
        Some(match self {
            Self::None => return None,
            Self::One(address) => (address, 1),
            Self::Each(address) => (address, lines),
            Self::Parts(address) => (address, lines * parts),
            Self::Blocks(address) => (address, lines.div_ceil(SHARED) * parts.next_multiple_of(4)),
        })
    }

    fn touch(self, shape: [u64; 2]) -> Option<Touch> {
        let (address, count) = self.span(shape)?;
        Some(Touch { address, length: 4 * count, how: Use::Reads })
    }

    fn read(self, shape: [u64; 2], memory: &Memory) -> Result<Scales, BadAddress> {
        let numbers = match self.span(shape) {
            None => vec![1.0],
            Some((address, count)) => {
                let bytes = memory.stage(&Endpoint::linear(address), 4 * count, 1, 1)?;
                decode(cudaDataType_t::CUDA_R_32F, &bytes).into_iter().map(|[value, _]| value).collect()
            }
        };
        let [lines, inner] = shape;
        let line = index(inner.div_ceil(SHARED).next_multiple_of(4));
        let (shared, steps) = match self {
            Self::None | Self::One(_) => (1, [0, 0]),
            Self::Each(_) => (1, [1, 0]),
            Self::Parts(_) => (1, [1, index(lines)]),
            Self::Blocks(_) => (index(SHARED), [line, 1]),
        };
        Ok(Scales { numbers, shared, steps })
    }

    /// Whether there are several along the inner dimension.
    pub(super) fn is_divided(self) -> bool {
        matches!(self, Self::Parts(_) | Self::Blocks(_))
    }
}

/// The scales of a factor.
struct Scales {
    numbers: Vec<f64>,
    /// Rows or columns that share one.
    shared: usize,
    /// Numbers from one row or column to the next one that has another, and from one part to the next.
    steps: [usize; 2],
}

impl Scales {
    fn of(&self, line: usize, part: usize) -> f64 {
        self.numbers[line / self.shared * self.steps[0] + part * self.steps[1]]
    }
}

/// A product.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub(super) name: &'static str,
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) inner: u64,
    pub(super) batch: u64,
    pub(super) a: Factor,
    pub(super) b: Factor,
    pub(super) c: Matrix,
    pub(super) d: Matrix,
    pub(super) alpha: Scalar,
    pub(super) beta: Scalar,
    pub(super) arithmetic: Arithmetic,
    pub(super) rounding: Rounding,
    pub(super) activation: Activation,
    pub(super) bias: Option<Bias>,
    /// Of the left and the right factor, of `C` and of `D`.
    pub(super) scales: [Scale; 4],
    /// Where the largest size of a number of the result goes.
    pub(super) largest: u64,
    /// Where it starts and how many bytes it has.
    pub(super) workspace: (u64, u64),
    /// Whether the result goes to memory of the host that the call waits for.
    pub(super) answers: bool,
}

impl Product {
    /// A product without all that cuBLASLt adds.
    pub(super) fn plain(
        name: &'static str,
        (rows, columns, inner): (u64, u64, u64),
        a: Factor,
        b: Factor,
        c: Matrix,
    ) -> Self {
        Self {
            name,
            rows,
            columns,
            inner,
            batch: 1,
            a,
            b,
            c,
            d: c,
            alpha: Scalar::Known([1.0, 0.0]),
            beta: Scalar::Known([0.0, 0.0]),
            arithmetic: Arithmetic::F32,
            rounding: Rounding::Exact,
            activation: Activation::None,
            bias: None,
            scales: [Scale::None; 4],
            largest: 0,
            workspace: (0, 0),
            answers: false,
        }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0 || self.batch == 0
    }

    fn needs_factors(&self) -> bool {
        self.inner > 0 && self.alpha != Scalar::Known([0.0, 0.0])
    }

    fn needs_c(&self) -> bool {
        self.beta != Scalar::Known([0.0, 0.0])
    }

    /// The matrices that are read and written, with whether they are.
    fn matrices(&self) -> [(Matrix, bool, Use); 4] {
        let written = if self.answers { Use::Answers } else { Use::Writes };
        [
            (self.a.matrix, self.needs_factors(), Use::Reads),
            (self.b.matrix, self.needs_factors(), Use::Reads),
            (self.c, self.needs_c(), Use::Reads),
            (self.d, true, written),
        ]
    }

    /// What is touched beside the matrices.
    fn touches_beside(&self) -> Vec<Touch> {
        let mut touches: Vec<Touch> = [self.alpha.touch(), self.beta.touch()].into_iter().flatten().collect();
        let [a, b, c, d] = self.scales;
        let (one, inner) = ([1, 1], self.inner);
        let scales = [a.touch([self.rows, inner]), b.touch([self.columns, inner]), c.touch(one), d.touch(one)];
        touches.extend(scales.into_iter().flatten());
        if let Some(bias) = self.bias {
            let base = Base::Strided { address: bias.address, stride_bytes: bias.stride_bytes };
            let length = self.rows * bytes_of(bias.ty).unwrap_or(1);
            let addresses = (0..self.batch).filter_map(|index| base.known(index));
            touches.extend(addresses.map(|address| Touch { address, length, how: Use::Reads }));
        }
        if self.largest != 0 {
            touches.push(Touch { address: self.largest, length: 4, how: Use::Writes });
        }
        if self.workspace.1 > 0 {
            touches.push(Touch { address: self.workspace.0, length: self.workspace.1, how: Use::Scratch });
        }
        touches
    }

    fn run_in<T: Number>(&self, memory: &Memory) -> Result<(), BadAddress> {
        let (alpha, beta) = (self.alpha.read(memory)?, self.beta.read(memory)?);
        let scales = [
            self.scales[0].read([self.rows, self.inner], memory)?,
            self.scales[1].read([self.columns, self.inner], memory)?,
        ];
        let mut largest = 0.0_f64;
        for index in 0..self.batch {
            let sums = self.sums::<T>(index, alpha, &scales, memory)?;
            let result = self.finish(index, &sums, (alpha, beta), memory)?;
            largest = result.iter().fold(largest, |largest, [value, _]| largest.max(value.abs()));
            let scale = self.scales[3].read([1, 1], memory)?.of(0, 0);
            let scaled: Vec<[f64; 2]> = result.into_iter().map(|[real, imaginary]| [real * scale, imaginary]).collect();
            self.d.write(self.d.base.at(index, memory)?, &scaled, memory)?;
        }
        if self.largest != 0 {
            memory.write_run(self.largest, &encode(cudaDataType_t::CUDA_R_32F, &[[largest, 0.0]]))?;
        }
        Ok(())
    }

    /// The scaled sums of products of one matrix of the batch, by columns.
    fn sums<T: Number>(
        &self,
        index_in_batch: u64,
        alpha: [f64; 2],
        scales: &[Scales; 2],
        memory: &Memory,
    ) -> Result<Vec<T>, BadAddress> {
        let (rows, columns, inner) = (index(self.rows), index(self.columns), index(self.inner));
        let mut all = vec![T::of([0.0; 2]); rows * columns];
        if inner == 0 || alpha == [0.0; 2] {
            return Ok(all);
        }
        let left: Vec<T> = self.a.read(self.a.matrix.base.at(index_in_batch, memory)?, self.rounding, memory)?;
        let right: Vec<T> = self.b.read(self.b.matrix.base.at(index_in_batch, memory)?, self.rounding, memory)?;
        let is_scaled = self.scales[..2].iter().any(|scale| *scale != Scale::None);
        let is_divided = self.scales.iter().any(|scale| scale.is_divided());
        let length = if is_divided { index(SHARED) } else { inner };
        for (column, all) in all.chunks_exact_mut(rows).enumerate() {
            for (part, factors) in right[column * inner..(column + 1) * inner].chunks(length).enumerate() {
                let mut sums = vec![T::of([0.0; 2]); rows];
                for (step, &factor) in factors.iter().enumerate() {
                    let first = (part * length + step) * rows;
                    for (sum, &number) in sums.iter_mut().zip(&left[first..first + rows]) {
                        *sum = sum.plus(number, factor);
                    }
                }
                if !is_scaled {
                    all.copy_from_slice(&sums);
                    continue;
                }
                for (row, (all, sum)) in all.iter_mut().zip(sums).enumerate() {
                    let scale = scales[0].of(row, part) * scales[1].of(column, part);
                    let [real, imaginary] = sum.parts();
                    *all = all.plus(T::of([1.0, 0.0]), T::of([real * scale, imaginary * scale]));
                }
            }
        }
        Ok(all)
    }

    /// The result of one matrix of the batch before it is scaled for its type.
    fn finish<T: Number>(
        &self,
        index_in_batch: u64,
        sums: &[T],
        (alpha, beta): ([f64; 2], [f64; 2]),
        memory: &Memory,
    ) -> Result<Vec<[f64; 2]>, BadAddress> {
        let rows = index(self.rows);
        let c =
            if beta == [0.0; 2] { Vec::new() } else { self.c.read(self.c.base.at(index_in_batch, memory)?, memory)? };
        let c_scale = self.scales[2].read([1, 1], memory)?.of(0, 0);
        let bias = self.bias_of(index_in_batch, memory)?;
        let finished = sums.iter().enumerate().map(|(place, sum)| {
            let row = place % rows;
            let mut value = T::of([0.0; 2]).plus(T::of(alpha), *sum);
            if let Some([real, imaginary]) = c.get(place) {
                value = value.plus(T::of(beta), T::of([real * c_scale, *imaginary]));
            }
            if let Some(&bias) = bias.get(row) {
                value = value.plus(T::of([1.0, 0.0]), T::of(bias));
            }
            let [real, imaginary] = value.parts();
            [self.activation.apply(real), imaginary]
        });
        Ok(finished.collect())
    }

    fn bias_of(&self, index_in_batch: u64, memory: &Memory) -> Result<Vec<[f64; 2]>, BadAddress> {
        let Some(bias) = self.bias else { return Ok(Vec::new()) };
        let base = Base::Strided { address: bias.address, stride_bytes: bias.stride_bytes };
        let width = self.rows * bytes_of(bias.ty).unwrap_or(1);
        let bytes = memory.stage(&Endpoint::linear(base.at(index_in_batch, memory)?), width, 1, 1)?;
        Ok(decode(bias.ty, &bytes))
    }
}

impl LibraryWork for Product {
    fn name(&self) -> &'static str {
        self.name
    }

    fn known_touches(&self) -> Vec<Touch> {
        let mut touches = Vec::new();
        for (matrix, is_used, how) in self.matrices().into_iter().rev() {
            if is_used && !matrix.is_empty() {
                let addresses = (0..self.batch).filter_map(|index| matrix.base.known(index));
                touches.extend(addresses.map(|address| matrix.touch(address, how)));
            }
        }
        touches.extend(self.touches_beside());
        touches.dedup();
        touches
    }

    fn touches(&self, memory: &Memory) -> Result<Vec<Touch>, BadAddress> {
        let mut touches = self.touches_beside();
        for (matrix, is_used, how) in self.matrices() {
            for index in (0..self.batch).filter(|_| is_used && !matrix.is_empty()) {
                touches.push(matrix.touch(matrix.base.at(index, memory)?, how));
            }
        }
        touches.sort_unstable();
        touches.dedup();
        Ok(touches)
    }

    fn run(&self, memory: &Memory) -> Result<(), BadAddress> {
        if self.workspace.1 > 0 {
            let scribbled = self.workspace.1.min(SCRIBBLED_BYTES);
            memory.write_run(self.workspace.0, &vec![0x5A; index(scribbled)])?;
        }
        match self.arithmetic {
            Arithmetic::F16 => self.run_in::<Half>(memory),
            Arithmetic::F32 => self.run_in::<f32>(memory),
            Arithmetic::F64 => self.run_in::<f64>(memory),
            Arithmetic::I32 => self.run_in::<i32>(memory),
            Arithmetic::C32 => self.run_in::<Complex<f32>>(memory),
            Arithmetic::C64 => self.run_in::<Complex<f64>>(memory),
        }
    }

    fn duration_ns(&self) -> u64 {
        self.rows.saturating_mul(self.columns).saturating_mul(self.inner).saturating_mul(self.batch) / WORK_A_NS
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
