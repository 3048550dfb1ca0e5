//! Matrices that the lanes of a warp hold together: loads, stores, transposition and products.

#![expect(clippy::cast_possible_truncation, reason = "values of 16 bits are cut from words")]

use super::access;
use super::core::{Common, Core};
use super::fragment::Warp;
use super::memory::Memory;
use super::reach::Stop;
use super::rows::{Base, Long, Word};
use super::watch::{self, Accesses, Does};
use super::wide;
use super::wmma::{self, Lines};
use crate::arith::matrix;
use crate::program::action::{MatrixMultiply, WarpOp};
use crate::program::types::{Address, Register, Space, Type};

/// Values of 16 bits, 8 by 8.
type Matrix = [[u16; 8]; 8];

/// Bytes of a row.
const ROW_BYTES: u64 = 16;

/// Does an instruction on matrices. All lanes that have not ended take part; the others hold what they held last.
pub(super) fn execute<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    op: &WarpOp,
    (at, active): (u32, u32),
) -> Result<(), Stop> {
    match op {
        WarpOp::LoadMatrices { to, transpose, space, from } => {
            let rows = row_addresses(warp, base, *from, active)?;
            look(core, common, warp, (*space, &rows, to.len()), Does::Read, at);
            for (matrix, &to) in to.iter().enumerate() {
                let loaded = load(core, common, warp, *space, &rows, matrix)?;
                warp.rows.put(base, to, active, &hand_out(&loaded, *transpose));
            }
        }
        WarpOp::StoreMatrices { from, transpose, space, to } => {
            let rows = row_addresses(warp, base, *to, active)?;
            look(core, common, warp, (*space, &rows, from.len()), Does::Write, at);
            for (matrix, &from) in from.iter().enumerate() {
                let collected = collect(&warp.rows.word(base, from), *transpose);
                store(core, common, warp, *space, &rows, (matrix, &collected))?;
            }
        }
        WarpOp::TransposeMatrix { to, from } => {
            let collected = collect(&warp.rows.word(base, *from), false);
            warp.rows.put(base, *to, active, &hand_out(&collected, true));
        }
        WarpOp::Multiply(products) => multiply(core.launch.wide, warp, base, products, active),
        WarpOp::LoadMatrix { matrix, by_rows, space, to, from, stride } => {
            let lines = Lines { space: *space, start: *from, stride: *stride, by_rows: *by_rows };
            wmma::load(core, common, warp, base, (*matrix, &lines, to), (at, active))?;
        }
        WarpOp::StoreMatrix { matrix, by_rows, space, from, to, stride } => {
            let lines = Lines { space: *space, start: *to, stride: *stride, by_rows: *by_rows };
            wmma::store(core, common, warp, base, (*matrix, &lines, from), (at, active))?;
        }
        WarpOp::Sync { .. }
        | WarpOp::Shuffle { .. }
        | WarpOp::Vote { .. }
        | WarpOp::Match { .. }
        | WarpOp::Reduce { .. }
        | WarpOp::Elect { .. } => {}
    }
    Ok(())
}

/// Tells the watch of the rows of some matrices; eight lanes give the addresses of each.
fn look<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &Common,
    warp: &Warp,
    (space, addresses, matrices): (Space, &Long, usize),
    does: Does,
    pc: u32,
) {
    if core.watch.is_on() {
        let active = u32::MAX >> (32 - 8 * matrices.clamp(1, 4));
        let what = Accesses { space, addresses, bytes: ROW_BYTES, does, weak: true, active, pc };
        watch::look(core, common, warp, &what);
    }
}

/// The addresses of rows: those of a matrix come from eight lanes next to each other.
fn row_addresses(warp: &Warp, base: Base, address: Address, active: u32) -> Result<Long, Stop> {
    let addresses = access::addresses(&warp.rows, base, address, active);
    access::check_alignment(&addresses, ROW_BYTES, active)?;
    Ok(addresses)
}

fn load<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    space: Space,
    rows: &Long,
    matrix: usize,
) -> Result<Matrix, Stop> {
    let mut loaded = Matrix::default();
    let mut reach = core.reach(common, &mut warp.local);
    for (row, values) in loaded.iter_mut().enumerate() {
        let lane = matrix * 8 + row;
        for half in 0..2 {
            let word = reach.load_lane(space, rows[lane] + half * 8, 8, lane)?;
            for (column, bytes) in word.to_le_bytes().chunks_exact(2).enumerate() {
                values[half as usize * 4 + column] = u16::from_le_bytes([bytes[0], bytes[1]]);
            }
        }
    }
    Ok(loaded)
}

fn store<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    space: Space,
    rows: &Long,
    (matrix, values): (usize, &Matrix),
) -> Result<(), Stop> {
    let mut reach = core.reach(common, &mut warp.local);
    for (row, values) in values.iter().enumerate() {
        let lane = matrix * 8 + row;
        for (column, &value) in (0..).zip(values) {
            reach.store_lane(space, rows[lane] + column * 2, 2, lane, u64::from(value))?;
        }
    }
    Ok(())
}

/// Each lane's two values of a matrix.
fn hand_out(matrix: &Matrix, transpose: bool) -> Long {
    std::array::from_fn(|lane| {
        let [low, high] = matrix::places(lane, transpose).map(|(row, column)| u64::from(matrix[row][column]));
        low | high << 16
    })
}

/// The matrix that the lanes hold.
fn collect(values: &Word, transpose: bool) -> Matrix {
    let mut matrix = Matrix::default();
    for (lane, value) in values.iter().enumerate() {
        let [low, high] = matrix::places(lane, transpose);
        matrix[low.0][low.1] = (value & 0xFFFF) as u16;
        matrix[high.0][high.1] = (value >> 16) as u16;
    }
    matrix
}

/// Does products, all of which read before any is written.
fn multiply(may_be_wide: bool, warp: &mut Warp, base: Base, products: &[MatrixMultiply], active: u32) {
    if let [what] = products
        && what.a_type == Type::F64
    {
        return multiply_doubles(warp, base, what, active);
    }
    let product = |warp: &Warp, what: &MatrixMultiply| {
        let none = [0; 32];
        let rows = |registers: &[Register]| -> [&Word; 4] {
            std::array::from_fn(|index| {
                registers.get(index).map_or(&none, |&register| warp.rows.word_row(base, register))
            })
        };
        let (a, b, c) = (rows(&what.a), rows(&what.b), rows(&what.c));
        let mut d = [[0; 32]; 4];
        let operands = [&a[..what.a.len()], &b[..what.b.len()], &c[..what.c.len()]];
        wide::multiply(may_be_wide, what, operands, &mut d[..what.d.len()]);
        d
    };
    let put = |warp: &mut Warp, what: &MatrixMultiply, d: &[Word; 4]| {
        for (row, &to) in d.iter().zip(&what.d) {
            warp.rows.put_words(base, to, active, *row);
        }
    };
    if let [what] = products {
        let d = product(warp, what);
        return put(warp, what, &d);
    }
    let results: Vec<[Word; 4]> = products.iter().map(|what| product(warp, what)).collect();
    for (what, d) in products.iter().zip(&results) {
        put(warp, what, d);
    }
}

fn multiply_doubles(warp: &mut Warp, base: Base, what: &MatrixMultiply, active: u32) {
    let rows = |registers: &[Register]| -> Vec<Long> {
        registers.iter().map(|&register| warp.rows.row(base, register)).collect()
    };
    let d = matrix::multiply_doubles(what, &rows(&what.a), &rows(&what.b), &rows(&what.c));
    for (row, &to) in d.iter().zip(&what.d) {
        warp.rows.put(base, to, active, row);
    }
}
