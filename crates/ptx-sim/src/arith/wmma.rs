//! Matrices of `wmma`: how many registers a lane holds of one, and which element is where.
//!
//! PTX leaves open which lane holds what. Here a product of `wmma` is made of products of `mma`, so that its matrices are
//! held as theirs are: those of 16 rows are one or two pieces next to each other, and a matrix of the shape `m8n32` is
//! held as the transposed one of `m32n8`.

use super::matrix::{place_of_a, place_of_b, place_of_c};
use crate::program::action::{Part, WarpMatrix};
use crate::program::types::{Kind, Type};

impl WarpMatrix {
    /// Rows and columns.
    pub(crate) fn size(self) -> [usize; 2] {
        let [m, n, k] = self.shape.map(usize::from);
        match self.part {
            Part::A => [m, k],
            Part::B => [k, n],
            Part::C => [m, n],
        }
    }

    /// Elements that a lane holds, each counted once.
    pub(crate) fn held(self) -> usize {
        let [rows, columns] = self.size();
        rows * columns / 32
    }

    /// Elements that share a register.
    pub(crate) fn packed(self) -> usize {
        (32 / usize::from(self.ty.bits)).max(1)
    }

    /// Registers of a lane that hold each element once.
    pub(crate) fn distinct(self) -> usize {
        self.held() / self.packed()
    }

    /// Registers of a lane. Factors of f16 have eight whatever the shape; those that are not needed repeat the first.
    pub(crate) fn registers(self) -> usize {
        let is_half_factor = self.part != Part::C && self.ty == Type::new(Kind::Float, 16);
        if is_half_factor { 8 } else { self.distinct() }
    }

    /// Whether it is held as the transposed matrix of the turned shape.
    pub(crate) fn is_turned(self) -> bool {
        self.shape[1] == 32
    }

    /// Row and column of a lane's n-th element.
    pub(crate) fn place(self, lane: usize, index: usize) -> (usize, usize) {
        if self.is_turned() {
            let [m, n, k] = self.shape;
            let part = match self.part {
                Part::A => Part::B,
                Part::B => Part::A,
                Part::C => Part::C,
            };
            let (column, row) = Self { part, shape: [n, m, k], ..self }.place(lane, index);
            return (row, column);
        }
        let [m, n, k] = self.shape.map(usize::from);
        let (rows, packed) = (m.min(16), self.packed());
        match self.part {
            Part::A => {
                let of_piece = rows * k / 32;
                let (piece, index) = (index / of_piece, index % of_piece);
                let (row, column) = place_of_a(lane, index / packed, index % packed, packed);
                (row + 16 * piece, column)
            }
            Part::B => {
                let of_piece = k / 4;
                let (piece, index) = (index / of_piece, index % of_piece);
                let (row, column) = place_of_b(lane, index / packed, index % packed, packed);
                (row, column + 8 * piece)
            }
            Part::C => {
                let of_piece = rows / 4;
                let (piece, index) = (index / of_piece, index % of_piece);
                let (row, column) = place_of_c(lane, index);
                if n == 16 { (row, column + 8 * piece) } else { (row + 16 * piece, column) }
            }
        }
    }
}
