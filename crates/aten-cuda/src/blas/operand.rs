//! Factors and results as cuBLAS takes them: matrices by columns, with a leading dimension.
//!
//! A product of row-major matrices is that of their transposes in the other order: rows of the result are columns of what
//! the library writes. A factor that lies neither by rows nor by columns is copied. The choices are torch's, so that the
//! library takes the same way and gives the same bits.
//!
//! The library conjugates a factor along with exchanging rows and columns, which fits conjugates that lie by columns.
//! Others are copied, or the conjugate of the whole product is computed instead ([`is_better_conjugated`]).

use c10_core::{Arg, MemoryAccess};

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

/// How the library reads a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Transpose {
    /// As it lies.
    No,
    /// With rows and columns exchanged.
    Yes,
    /// With rows and columns exchanged, and conjugated.
    Conjugated,
}

/// A tensor of two or three dimensions as a batch of matrices.
#[derive(Clone, Copy)]
pub(super) struct Matrices<'a> {
    pub(super) tensor: &'a Tensor,
    pub(super) batches: i64,
    pub(super) rows: i64,
    pub(super) columns: i64,
    batch_stride: i64,
    strides: [i64; 2],
}

impl<'a> Matrices<'a> {
    pub(super) fn of(tensor: &'a Tensor) -> Self {
        let (sizes, strides) = (tensor.sizes(), tensor.strides());
        let last = tensor.dim() - 2;
        let (batches, batch_stride) = if last == 0 { (1, 0) } else { (sizes[0], strides[0]) };
        Self {
            tensor,
            batches,
            rows: sizes[last],
            columns: sizes[last + 1],
            batch_stride,
            strides: [strides[last], strides[last + 1]],
        }
    }

    /// The distance between columns, if the matrices lie by columns. That of a single column does not matter.
    fn by_columns(&self) -> Option<i64> {
        let [row, column] = self.strides;
        let lines = self.rows.max(1);
        let lies_so = (row == 1 || self.rows == 1) && (column >= lines || self.columns == 1);
        lies_so.then_some(column.max(lines))
    }

    /// Whether one matrix stands for the whole batch.
    fn is_repeated(&self) -> bool {
        self.batches > 1 && self.batch_stride == 0
    }

    /// The matrices by rows, one after another.
    fn copied(&self) -> Result<Tensor> {
        let source = if self.is_repeated() { self.tensor.narrow(0, 0, 1)? } else { self.tensor.clone() };
        source.packed()
    }

    /// Elements that are copied to read the matrices as conjugates.
    fn cost_of_conjugate(&self) -> i64 {
        let batches = if self.batch_stride == 0 { 1 } else { self.batches };
        if self.by_columns().is_some() { 0 } else { batches * self.rows * self.columns }
    }

    /// How the matrices lie, if the library can read them so: by rows or by columns, and the distance between lines.
    fn lying(&self) -> Option<(Lying, i64)> {
        let [row, column] = self.strides;
        let by_rows = (column == 1 || self.columns == 1) && row >= self.columns.max(1);
        let by_columns = (row == 1 || self.rows == 1) && column >= self.rows.max(1);
        if self.tensor.dim() == 2 && self.tensor.is_contiguous() {
            // A single row has any stride.
            return Some((Lying::ByRows, row.max(self.columns).max(1)));
        }
        // Of batches the rows are asked first, of single matrices the columns.
        let asked =
            if self.tensor.dim() == 3 { [Lying::ByRows, Lying::ByColumns] } else { [Lying::ByColumns, Lying::ByRows] };
        asked.into_iter().find_map(|lying| match lying {
            Lying::ByRows => by_rows.then_some((lying, row)),
            Lying::ByColumns => by_columns.then_some((lying, column)),
        })
    }
}

/// Whether products read a factor of these sizes and strides, of two or three dimensions, as it lies: without a copy, and as
/// fast as a copy that lies by rows.
pub(crate) fn reads_as_it_lies(sizes: &[i64], strides: &[i64], offset: i64, dtype: DType) -> bool {
    let (&[.., rows, columns], &[.., row, column]) = (sizes, strides) else { return false };
    let by_rows = column == 1 && row >= columns.max(1);
    let by_columns = row == 1 && column >= rows.max(1);
    let batch = if strides.len() == 3 { strides[0] } else { 0 };
    let bytes = i64::try_from(dtype.itemsize()).unwrap_or(1);
    let is_aligned = |elements: i64| (elements * bytes) % VECTOR_BYTES == 0;
    let line = if by_rows { row } else { column };
    (by_rows || by_columns) && batch >= 0 && [offset, line, batch].into_iter().all(is_aligned)
}

/// What kernels load at once, where lines begin at multiples of it.
const VECTOR_BYTES: i64 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lying {
    ByRows,
    ByColumns,
}

/// How the library reads a factor: as it lies, or as a copy of it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) transpose: Transpose,
    /// The distance between columns in elements.
    pub(super) ld: i64,
    /// The distance between matrices in elements.
    pub(super) batch_stride: i64,
    pub(super) is_copied: bool,
}

impl Reading {
    /// That of a factor of a product whose result lies by rows, so that the library sees everything transposed.
    #[inline]
    pub(super) fn of(matrices: &Matrices<'_>) -> Self {
        let found = if matrices.tensor.is_conj() {
            matrices.by_columns().map(|ld| (Transpose::Conjugated, ld))
        } else {
            let transpose = |lying| if lying == Lying::ByRows { Transpose::No } else { Transpose::Yes };
            matrices.lying().map(|(lying, ld)| (transpose(lying), ld))
        };
        if let Some((transpose, ld)) = found {
            return Self { transpose, ld, batch_stride: matrices.batch_stride, is_copied: false };
        }
        let batch_stride = if matrices.is_repeated() { 0 } else { matrices.rows * matrices.columns };
        Self { transpose: Transpose::No, ld: matrices.columns.max(1), batch_stride, is_copied: true }
    }
}

/// A factor ready for the library.
pub(super) struct Operand<'a> {
    tensor: Given<'a>,
    /// How the library reads it.
    pub(super) transpose: Transpose,
    /// The distance between matrices in elements.
    pub(super) batch_stride: i64,
}

/// A tensor of the caller, or a copy of it.
enum Given<'a> {
    Same(&'a Tensor),
    Copy(Tensor),
}

impl<'a> Operand<'a> {
    /// The factor as it is read.
    pub(super) fn new(matrices: &Matrices<'a>, reading: &Reading) -> Result<Self> {
        let &Reading { transpose, batch_stride, is_copied, .. } = reading;
        let tensor = if is_copied { Given::Copy(matrices.copied()?) } else { Given::Same(matrices.tensor) };
        Ok(Self { tensor, transpose, batch_stride })
    }

    pub(super) fn tensor(&self) -> &Tensor {
        match &self.tensor {
            Given::Same(tensor) => tensor,
            Given::Copy(tensor) => tensor,
        }
    }

    /// The memory as what a library does to it; nothing for a tensor without any.
    pub(super) fn used(&self, access: MemoryAccess) -> Option<Arg<'_>> {
        self.tensor().used(access)
    }
}

/// Whether less is copied for the conjugate of a product, whose elements are conjugated in place then, than for the product
/// itself.
pub(super) fn is_better_conjugated(out: &Tensor, a: &Tensor, b: &Tensor) -> bool {
    let cost = |conjugates: bool| -> i64 {
        let read_so = [a, b].into_iter().filter(|factor| factor.is_conj() == conjugates);
        read_so.map(|factor| Matrices::of(factor).cost_of_conjugate()).sum()
    };
    (a.is_conj() || b.is_conj()) && cost(false).saturating_add(out.numel()) < cost(true)
}
