//! What operations on constants come to, worked out while a kernel is written.
//!
//! **Invariant:** the host computes the bits that the device would: operations that are rounded correctly are worked out, and
//! functions that devices approximate are not, nor what comes to no number, whose bits are the device's own.

use kernel_ir::{Graph, Kind, Node, Program, Type, Value, eval};

/// A constant: the bits of an element of a type in memory.
pub(super) type Constant = (Type, u64);

/// The outputs of a program on constants, where all that it is given are such.
pub(super) fn outputs(program: &Program, arguments: &[Constant], scalars: &[u64]) -> Option<Vec<Constant>> {
    if program.nodes().any(|(_, node, _)| matches!(node, Node::Index | Node::Call(..))) {
        return None;
    }
    let rows: Vec<eval::Row> = arguments.iter().map(|&(ty, bits)| eval::Row::splat(ty, bits, 1)).collect();
    let made = eval::run(program, &rows, scalars, 0, 1);
    let types = program.output_types();
    let is_number = |row: &eval::Row| match row {
        eval::Row::Int(_) => true,
        eval::Row::F32(values) => !values[0].is_nan(),
        eval::Row::F64(values) => !values[0].is_nan(),
    };
    let all = made.iter().all(is_number);
    all.then(|| made.iter().zip(types).map(|(row, ty)| (ty, row.bits(ty, 0))).collect())
}

/// Writes a constant of any type.
pub(super) fn write(to: &mut Graph, (ty, bits): Constant) -> Value {
    if ty.kind() != Kind::Short {
        return to.constant(ty, bits);
    }
    // Short floats are only converted, and exact as wider ones.
    let eval::Row::F32(wide) = eval::Row::splat(ty, bits, 1) else { return to.constant(ty, bits) };
    let wide = to.constant(Type::F32, u64::from(wide[0].to_bits()));
    to.convert(wide, ty)
}
