//! Factors and results as cuBLAS takes them: matrices by columns, with a leading dimension.
//!
//! A product of row-major matrices is that of their transposes in the other order: rows of the result are columns of what
//! the library writes. A factor that lies neither by rows nor by columns is copied. The choices are torch's, so that the
//! library takes the same way and gives the same bits.

use c10_core::DeviceBuffer;

use crate::base::error::Result;
use crate::tensor::Tensor;

/// How the library reads a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Transpose {
    /// As it lies.
    No,
    /// With rows and columns exchanged.
    Yes,
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lying {
    ByRows,
    ByColumns,
}

/// A factor ready for the library.
pub(super) struct Operand<'a> {
    tensor: Given<'a>,
    /// How the library reads it.
    pub(super) transpose: Transpose,
    /// The distance between columns in elements.
    pub(super) ld: i64,
    /// The distance between matrices in elements.
    pub(super) batch_stride: i64,
}

/// A tensor of the caller, or a copy of it.
enum Given<'a> {
    Same(&'a Tensor),
    Copy(Tensor),
}

impl<'a> Operand<'a> {
    /// A factor of a product whose result lies by rows, so that the library sees everything transposed.
    pub(super) fn new(matrices: Matrices<'a>) -> Result<Self> {
        if let Some((lying, ld)) = matrices.lying() {
            let transpose = if lying == Lying::ByRows { Transpose::No } else { Transpose::Yes };
            let tensor = Given::Same(matrices.tensor);
            return Ok(Self { tensor, transpose, ld, batch_stride: matrices.batch_stride });
        }
        let is_repeated = matrices.batches > 1 && matrices.batch_stride == 0;
        let source = if is_repeated { matrices.tensor.narrow(0, 0, 1)? } else { matrices.tensor.clone() };
        let copy = source.packed()?;
        let batch_stride = if is_repeated { 0 } else { matrices.rows * matrices.columns };
        let ld = matrices.columns.max(1);
        Ok(Self { tensor: Given::Copy(copy), transpose: Transpose::No, ld, batch_stride })
    }

    pub(super) fn tensor(&self) -> &Tensor {
        match &self.tensor {
            Given::Same(tensor) => tensor,
            Given::Copy(tensor) => tensor,
        }
    }

    /// The memory; nothing for a tensor without any.
    pub(super) fn buffer(&self) -> Option<&DeviceBuffer> {
        self.tensor().storage().buffer()
    }
}
