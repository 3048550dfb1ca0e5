//! Where elements are: from the number of a row and the place in it to addresses.
//!
//! **Invariants:** row numbers and places are unsigned, of 32 bits in narrow kernels and of 64 in wide ones. Addresses
//! have 64 bits; a narrow kernel multiplies 32 by 32 bits into 64, so only strides and places are bounded there.

use super::schedule::{Meta, Schedule};
use crate::ptx::{Class, Reg, Writer};

/// Numbers of rows and places in the width of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arithmetic {
    pub(super) wide: bool,
    meta: Meta,
    kept: usize,
    reduced: usize,
}

impl Arithmetic {
    pub(super) fn new(schedule: &Schedule, meta: Meta) -> Self {
        let (kept, reduced) = (usize::from(schedule.kept), usize::from(schedule.reduced));
        Self { wide: schedule.wide, meta, kept, reduced }
    }

    pub(super) fn class(self) -> Class {
        if self.wide { Class::Bits64 } else { Class::Bits32 }
    }

    /// The letters of an unsigned type of the width.
    pub(super) fn unsigned(self) -> &'static str {
        if self.wide { "u64" } else { "u32" }
    }

    /// A number of the launch.
    pub(super) fn number(self, writer: &mut Writer, place: usize) -> Reg {
        writer.make(self.class(), &format!("ld.param.{}", self.unsigned()), format_args!("[meta+{place}]"))
    }

    /// A number of 32 bits in the width.
    pub(super) fn widen(self, writer: &mut Writer, word: Reg) -> Reg {
        if self.wide { writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{word}")) } else { word }
    }

    /// A number of the width as 64 bits.
    pub(super) fn to_64(self, writer: &mut Writer, number: Reg) -> Reg {
        if self.wide { number } else { writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{number}")) }
    }

    /// `a * word + b`, of which `a` and `b` are of the width and the factor is written out.
    pub(super) fn scale(self, writer: &mut Writer, a: Reg, factor: u64, b: Reg) -> Reg {
        writer.make(self.class(), &format!("mad.lo.{}", self.unsigned()), format_args!("{a}, {factor}, {b}"))
    }

    pub(super) fn add(self, writer: &mut Writer, a: Reg, more: u64) -> Reg {
        match more {
            0 => a,
            _ => writer.make(self.class(), &format!("add.{}", self.unsigned()), format_args!("{a}, {more}")),
        }
    }

    /// The address of the first element of a row, for an operand.
    pub(super) fn row(self, writer: &mut Writer, base: Reg, operand: usize, places: &[Reg]) -> Reg {
        places
            .iter()
            .enumerate()
            .fold(base, |address, (dim, &place)| self.advance(writer, address, operand, dim, place))
    }

    /// The address of the element at a place of the row.
    pub(super) fn element(self, writer: &mut Writer, row: Reg, operand: usize, places: &[Reg]) -> Reg {
        let dims = self.kept..;
        dims.zip(places).fold(row, |address, (dim, &place)| self.advance(writer, address, operand, dim, place))
    }

    /// An address, as many strides of a dimension further.
    pub(super) fn advance(self, writer: &mut Writer, address: Reg, operand: usize, dim: usize, place: Reg) -> Reg {
        let at = self.meta.stride(operand, dim);
        if self.wide {
            let stride = writer.make(Class::Bits64, "ld.param.s64", format_args!("[meta+{at}]"));
            return writer.make(Class::Bits64, "mad.lo.s64", format_args!("{place}, {stride}, {address}"));
        }
        let stride = writer.make(Class::Bits32, "ld.param.s32", format_args!("[meta+{at}]"));
        writer.make(Class::Bits64, "mad.wide.s32", format_args!("{place}, {stride}, {address}"))
    }

    /// The stride over the parts of a row, which may be long in any kernel.
    pub(super) fn part(self, writer: &mut Writer, address: Reg, operand: usize, part: Reg) -> Reg {
        let at = self.meta.stride(operand, self.kept + self.reduced);
        let stride = writer.make(Class::Bits64, "ld.param.s64", format_args!("[meta+{at}]"));
        writer.make(Class::Bits64, "mad.lo.s64", format_args!("{part}, {stride}, {address}"))
    }

    /// The place in each dimension that tells the row.
    pub(super) fn kept_places(self, writer: &mut Writer, row: Reg) -> Vec<Reg> {
        self.places(writer, row, 0, self.kept)
    }

    /// The place in each dimension that tells the element.
    pub(super) fn reduced_places(self, writer: &mut Writer, at: Reg) -> Vec<Reg> {
        self.places(writer, at, self.kept, self.reduced)
    }

    fn places(self, writer: &mut Writer, at: Reg, first: usize, count: usize) -> Vec<Reg> {
        let mut rest = at;
        let mut places = Vec::with_capacity(count);
        for dim in first..first + count - 1 {
            let (quotient, size) = self.divide(writer, rest, self.meta.size(dim));
            let name = self.unsigned();
            let back = writer.make(self.class(), &format!("mul.lo.{name}"), format_args!("{quotient}, {size}"));
            places.push(writer.make(self.class(), &format!("sub.{name}"), format_args!("{rest}, {back}")));
            rest = quotient;
        }
        places.push(rest);
        places
    }

    /// The quotient by the size at a place of the parameter, and that size.
    fn divide(self, writer: &mut Writer, number: Reg, at: usize) -> (Reg, Reg) {
        let size = self.number(writer, at);
        if self.wide {
            return (writer.make(Class::Bits64, "div.u64", format_args!("{number}, {size}")), size);
        }
        let magic = writer.make(Class::Bits32, "ld.param.u32", format_args!("[meta+{}]", at + 8));
        let shift = writer.make(Class::Bits32, "ld.param.u32", format_args!("[meta+{}]", at + 12));
        let high = writer.make(Class::Bits32, "mul.hi.u32", format_args!("{number}, {magic}"));
        let sum = writer.make(Class::Bits32, "add.u32", format_args!("{high}, {number}"));
        (writer.make(Class::Bits32, "shr.u32", format_args!("{sum}, {shift}")), size)
    }
}
