//! Matrices as they lie in memory: by columns, one after the other in a batch.

use cuda_sys::cublas::types::cudaDataType_t;

use super::numbers::{bytes_of, decode, encode};
use crate::model::library_work::{Touch, Use};
use crate::model::memory::{BadAddress, Endpoint, Memory, Source, Transfer};

/// Where the matrices of a batch begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    /// One after the other.
    Strided { address: u64, stride_bytes: i64 },
    /// At the addresses in an array in memory.
    Array(u64),
}

impl Base {
    /// Where the matrix of a number begins.
    pub(crate) fn at(self, index: u64, memory: &Memory) -> Result<u64, BadAddress> {
        match self {
            Self::Strided { .. } => Ok(self.known(index).unwrap_or(0)),
            Self::Array(array) => {
                let word = memory.stage(&Endpoint::linear(array.wrapping_add(8 * index)), 8, 1, 1)?;
                Ok(word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
            }
        }
    }

    /// The same, where that is known without looking at memory.
    pub(crate) fn known(self, index: u64) -> Option<u64> {
        let Self::Strided { address, stride_bytes } = self else { return None };
        Some(address.wrapping_add_signed(stride_bytes.wrapping_mul(index.cast_signed())))
    }
}

/// Matrices of a batch as they lie in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) base: Base,
    pub(crate) ty: cudaDataType_t,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Numbers from a column to the next.
    pub(crate) leading: u64,
}

impl Matrix {
    fn size(&self) -> u64 {
        bytes_of(self.ty).unwrap_or(1)
    }

    /// Whether it has no numbers.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    fn side(&self, address: u64) -> Endpoint {
        Endpoint { address, pitch: self.leading * self.size(), slice: 0 }
    }

    /// What work touches that does something with all of it.
    pub(crate) fn touch(&self, address: u64, how: Use) -> Touch {
        let length = ((self.columns - 1) * self.leading + self.rows) * self.size();
        Touch { address, length, how }
    }

    /// All numbers of a matrix, by columns.
    pub(crate) fn read(&self, address: u64, memory: &Memory) -> Result<Vec<[f64; 2]>, BadAddress> {
        let bytes = memory.stage(&self.side(address), self.rows * self.size(), self.columns, 1)?;
        Ok(decode(self.ty, &bytes))
    }

    /// Writes all numbers of a matrix, by columns.
    pub(crate) fn write(&self, address: u64, values: &[[f64; 2]], memory: &Memory) -> Result<(), BadAddress> {
        let from = Source::Staged(encode(self.ty, values));
        let width = self.rows * self.size();
        memory.transfer(&Transfer { from, to: self.side(address), width, height: self.columns, depth: 1 })
    }
}
