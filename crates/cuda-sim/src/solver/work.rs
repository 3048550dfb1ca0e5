//! Factorisations as pieces of work.

use cuda_sys::cublas::types::{cublasOperation_t, cudaDataType_t};
use dense_factors::{self as dense, Complex64, Table, Triangle};

use crate::model::library_work::{LibraryWork, Touch, Use};
use crate::model::memory::{BadAddress, Endpoint, Memory};
use crate::toolkit::matrix::{Base, Matrix};

/// Multiplications that the simulated device does in a nanosecond.
const WORK_A_NS: u64 = 1_000;

/// Which factorisation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Of a positive matrix into triangles.
    Cholesky { lower: bool },
    /// A system whose matrix was factorised so.
    SolveCholesky { lower: bool },
    /// Into triangles with rows swapped.
    Lu,
    /// A system whose matrix was factorised so.
    SolveLu { op: cublasOperation_t },
    /// Into a unitary matrix and a triangle.
    Qr,
    /// The unitary matrix of that.
    Unitary,
    /// Into singular values and vectors.
    Svd { adjoint: bool },
}

/// Whole numbers in memory: where they begin, and bytes of one; at address 0 there are none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indices {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// A factorisation.
#[derive(Clone, Debug)]
pub(super) struct Dense {
    pub(super) name: &'static str,
    pub(super) task: Task,
    /// The matrix; the factors of it after that.
    pub(super) a: Matrix,
    /// A right side, or the left singular vectors.
    pub(super) b: Option<Matrix>,
    /// The right singular vectors.
    pub(super) c: Option<Matrix>,
    /// Factors of reflectors, or singular values: a column.
    pub(super) values: Option<Matrix>,
    pub(super) pivots: Indices,
    /// Where the number goes that says what failed.
    pub(super) info: u64,
    pub(super) workspace: (u64, u64),
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn address(matrix: &Matrix) -> u64 {
    matrix.base.known(0).unwrap_or(0)
}

fn read(matrix: &Matrix, memory: &Memory) -> Result<Table, BadAddress> {
    let numbers = matrix.read(address(matrix), memory)?;
    let numbers = numbers.into_iter().map(|[re, im]| Complex64 { re, im }).collect();
    Ok(Table::new(index(matrix.rows), index(matrix.columns), numbers))
}

/// Maps a failed allocation on the host to the error of unreadable device memory.
fn on_host<T>(made: dense::Result<T>) -> Result<T, BadAddress> {
    made.map_err(|_| BadAddress(0))
}

fn write(matrix: &Matrix, numbers: &[Complex64], memory: &Memory) -> Result<(), BadAddress> {
    let pairs: Vec<[f64; 2]> = numbers.iter().map(|value| [value.re, value.im]).collect();
    matrix.write(address(matrix), &pairs, memory)
}

impl Dense {
    fn count_of_pivots(&self) -> u64 {
        self.a.rows.min(self.a.columns)
    }

    fn write_pivots(&self, swapped: &[usize], memory: &Memory) -> Result<(), BadAddress> {
        if self.pivots.address == 0 {
            return Ok(());
        }
        let bytes =
            swapped.iter().flat_map(|&row| (row as u64).to_le_bytes().into_iter().take(index(self.pivots.bytes)));
        memory.write_run(self.pivots.address, &bytes.collect::<Vec<u8>>())
    }

    fn read_pivots(&self, memory: &Memory) -> Result<Vec<usize>, BadAddress> {
        if self.pivots.address == 0 {
            return Ok(Vec::new());
        }
        let length = self.pivots.bytes * self.count_of_pivots();
        let bytes = memory.stage(&Endpoint::linear(self.pivots.address), length, 1, 1)?;
        let one = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte));
        Ok(bytes.chunks_exact(index(self.pivots.bytes)).map(one).collect())
    }

    /// Does it; the number that says what failed.
    fn factorise(&self, memory: &Memory) -> Result<usize, BadAddress> {
        match self.task {
            Task::Cholesky { lower } => self.cholesky(lower, memory),
            Task::SolveCholesky { lower } => self.solve_cholesky(lower, memory),
            Task::Lu => {
                let mut a = read(&self.a, memory)?;
                let (swapped, info) = on_host(dense::lu(&mut a, self.pivots.address != 0))?;
                self.write_pivots(&swapped, memory)?;
                write(&self.a, a.numbers(), memory)?;
                Ok(info)
            }
            Task::SolveLu { op } => self.solve_lu(op, memory),
            Task::Qr => {
                let mut a = read(&self.a, memory)?;
                let factors = on_host(dense::qr(&mut a))?;
                if let Some(values) = &self.values {
                    write(values, &factors, memory)?;
                }
                write(&self.a, a.numbers(), memory)?;
                Ok(0)
            }
            Task::Unitary => {
                let a = read(&self.a, memory)?;
                let factors = self
                    .values
                    .as_ref()
                    .map_or(Ok(Vec::new()), |values| Ok(read(values, memory)?.numbers().to_vec()))?;
                write(&self.a, on_host(dense::unitary(&a, &factors))?.numbers(), memory)?;
                Ok(0)
            }
            Task::Svd { adjoint } => self.svd(adjoint, memory),
        }
    }

    fn cholesky(&self, lower: bool, memory: &Memory) -> Result<usize, BadAddress> {
        let whole = read(&self.a, memory)?;
        // Of the other triangle's adjoint the lower one is what is given.
        let mut a = on_host(if lower { whole.copy() } else { whole.adjoint() })?;
        let info = dense::cholesky(&mut a);
        let factor = if lower { a } else { on_host(a.adjoint())? };
        let size = whole.rows();
        let mut result = whole;
        for column in 0..size {
            let rows = if lower { column..size } else { 0..column + 1 };
            rows.for_each(|row| result.set(row, column, factor.at(row, column)));
        }
        write(&self.a, result.numbers(), memory)?;
        Ok(info)
    }

    fn solve_cholesky(&self, lower: bool, memory: &Memory) -> Result<usize, BadAddress> {
        let Some(right) = &self.b else { return Ok(0) };
        let (a, mut b) = (read(&self.a, memory)?, read(right, memory)?);
        let plain = Triangle { lower, unit: false, transposed: false, conjugated: false };
        let adjoint = Triangle { transposed: true, conjugated: true, ..plain };
        for triangle in if lower { [plain, adjoint] } else { [adjoint, plain] } {
            dense::solve(&a, triangle, &mut b);
        }
        write(right, b.numbers(), memory)?;
        Ok(0)
    }

    fn solve_lu(&self, op: cublasOperation_t, memory: &Memory) -> Result<usize, BadAddress> {
        let Some(right) = &self.b else { return Ok(0) };
        let (a, mut b) = (read(&self.a, memory)?, read(right, memory)?);
        let swapped = self.read_pivots(memory)?;
        let transposed = op != cublasOperation_t::CUBLAS_OP_N;
        let conjugated = op == cublasOperation_t::CUBLAS_OP_C;
        let triangle = |lower| Triangle { lower, unit: lower, transposed, conjugated };
        if !transposed {
            dense::swap_rows(&mut b, &swapped, false);
        }
        dense::solve(&a, triangle(!transposed), &mut b);
        dense::solve(&a, triangle(transposed), &mut b);
        if transposed {
            dense::swap_rows(&mut b, &swapped, true);
        }
        write(right, b.numbers(), memory)?;
        Ok(0)
    }

    fn svd(&self, adjoint: bool, memory: &Memory) -> Result<usize, BadAddress> {
        let (u, singular, v) = on_host(dense::svd(&read(&self.a, memory)?))?;
        if let Some(values) = &self.values {
            write(values, &singular.into_iter().map(Complex64::from).collect::<Vec<_>>(), memory)?;
        }
        if let Some(left) = &self.b {
            write(left, on_host(u.first_columns(index(left.columns)))?.numbers(), memory)?;
        }
        if let Some(right) = &self.c {
            let wanted = if adjoint { right.rows } else { right.columns };
            let part = on_host(v.first_columns(index(wanted)))?;
            let part = if adjoint { on_host(part.adjoint())? } else { part };
            write(right, part.numbers(), memory)?;
        }
        Ok(0)
    }
}

impl LibraryWork for Dense {
    fn name(&self) -> &'static str {
        self.name
    }

    fn known_touches(&self) -> Vec<Touch> {
        let solves = matches!(self.task, Task::SolveCholesky { .. } | Task::SolveLu { .. });
        let of_a = if solves { Use::Reads } else { Use::Writes };
        let of_values = if matches!(self.task, Task::Unitary) { Use::Reads } else { Use::Writes };
        let matrices = [
            (Some(&self.a), of_a),
            (self.b.as_ref(), Use::Writes),
            (self.c.as_ref(), Use::Writes),
            (self.values.as_ref(), of_values),
        ];
        let present =
            matrices.into_iter().filter_map(|(matrix, how)| Some((matrix.filter(|matrix| !matrix.is_empty())?, how)));
        let mut touches: Vec<Touch> = present.map(|(matrix, how)| matrix.touch(address(matrix), how)).collect();
        if self.pivots.address != 0 && self.count_of_pivots() > 0 {
            let length = self.pivots.bytes * self.count_of_pivots();
            touches.push(Touch { address: self.pivots.address, length, how: of_a });
        }
        touches.push(Touch { address: self.info, length: 4, how: Use::Writes });
        if self.workspace.1 > 0 {
            touches.push(Touch { address: self.workspace.0, length: self.workspace.1, how: Use::Scratch });
        }
        touches
    }

    fn touches(&self, _: &Memory) -> Result<Vec<Touch>, BadAddress> {
        Ok(self.known_touches())
    }

    fn run(&self, memory: &Memory) -> Result<(), BadAddress> {
        let info = if self.a.is_empty() { 0 } else { self.factorise(memory)? };
        memory.write_run(self.info, &i32::try_from(info).unwrap_or(i32::MAX).to_le_bytes())
    }

    fn duration_ns(&self) -> u64 {
        self.a.rows.saturating_mul(self.a.columns).saturating_mul(self.count_of_pivots()) / WORK_A_NS
    }
}

/// A matrix at an address.
pub(super) fn matrix(address: u64, ty: cudaDataType_t, (rows, columns): (u64, u64), leading: u64) -> Matrix {
    Matrix { base: Base::Strided { address, stride_bytes: 0 }, ty, rows, columns, leading }
}
