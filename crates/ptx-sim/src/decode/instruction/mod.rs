//! One instruction: its word and operands become actions, types checked.
//!
//! `table` says which instructions there are and which family reads each; `reader` and `operands` are what the families
//! read with. **Invariants:** a modifier that no family asked for is refused, never ignored; an instruction that is
//! refused leaves nothing behind in the code; several actions of one instruction act as if all read before any wrote.

mod arithmetic;
mod atomic;
mod bits;
mod carry;
mod compare;
mod control;
mod convert;
mod fence;
mod float;
mod matrix;
mod memory;
mod moves;
mod operands;
mod reader;
mod special;
mod table;
mod warp;

use std::fmt::Write;

use self::reader::Reader;
use self::table::{Row, Status};
use super::names::Names;
use crate::program::action::Instruction;
use crate::refusal::Refusal;
use crate::text::syntax::{InstructionText, Operand};

pub use self::table::{FormStatus, forms};

/// Pushes what an instruction does. Branches and calls are not read here.
pub(crate) fn decode(
    text: &InstructionText<'_>,
    names: &mut Names<'_>,
    out: &mut Vec<Instruction>,
) -> Result<(), Refusal> {
    let start = out.len();
    let decoded = read(text, names, out);
    if decoded.is_err() {
        out.truncate(start);
    }
    decoded
}

fn read(text: &InstructionText<'_>, names: &mut Names<'_>, out: &mut Vec<Instruction>) -> Result<(), Refusal> {
    let mut parts = text.word.split('.');
    let name = parts.next().unwrap_or_default();
    let row = table::row(name)
        .ok_or_else(|| Refusal::invalid(text.at, format!("there is no instruction '{name}': '{}'", written(text))))?;
    let modifiers: Vec<&str> = parts.collect();
    let decode = match row.status {
        Status::Supported(decode) => decode,
        Status::Elsewhere | Status::Refused => return Err(not_supported(text, row.note)),
    };
    if let Some(word) = unsupported_modifier(row, &modifiers) {
        return Err(not_supported(text, &format!("'.{word}'")));
    }
    let mut reader = Reader::new(text, modifiers, names, out)?;
    decode(&mut reader)?;
    reader.finish()
}

fn unsupported_modifier<'m>(row: &Row, modifiers: &[&'m str]) -> Option<&'m str> {
    modifiers.iter().copied().find(|word| row.refused.contains(word))
}

fn not_supported(text: &InstructionText<'_>, why: &str) -> Refusal {
    Refusal::not_supported(text.at, format!("'{}' ({why})", written(text)))
}

/// An instruction as text.
pub(crate) fn written(text: &InstructionText<'_>) -> String {
    let mut line = match text.guard {
        Some((name, true)) => format!("@!{name} "),
        Some((name, false)) => format!("@{name} "),
        None => String::new(),
    };
    line.push_str(text.word);
    for (index, operand) in text.operands.iter().enumerate() {
        line.push_str(if index == 0 { " " } else { ", " });
        write_operand(&mut line, operand);
    }
    line.push(';');
    line
}

fn write_operand(line: &mut String, operand: &Operand<'_>) {
    // Writing to a string cannot fail.
    let _ = match operand {
        Operand::Name(name) => write!(line, "{name}"),
        Operand::Not(name) => write!(line, "!{name}"),
        Operand::Minus(name) => write!(line, "-{name}"),
        Operand::Sum(name, offset) => write!(line, "{name}{:+}", offset.cast_signed()),
        Operand::Integer(number) => write!(line, "{}", number.cast_signed()),
        Operand::Float(bits, 64) => write!(line, "0d{bits:016X}"),
        Operand::Float(bits, _) => write!(line, "0f{bits:08X}"),
        Operand::Address(base, offset) => {
            line.push('[');
            write_operand(line, base);
            match offset.cast_signed() {
                0 => write!(line, "]"),
                offset => write!(line, "{offset:+}]"),
            }
        }
        Operand::List(list) => write_list(line, list, ["{", "}"]),
        Operand::Group(list) => write_list(line, list, ["(", ")"]),
        Operand::Pair(first, second) => {
            write_operand(line, first);
            line.push('|');
            write_operand(line, second);
            Ok(())
        }
        Operand::Sink => write!(line, "_"),
    };
}

fn write_list(line: &mut String, list: &[Operand<'_>], [open, close]: [&str; 2]) -> std::fmt::Result {
    line.push_str(open);
    for (index, operand) in list.iter().enumerate() {
        line.push_str(if index == 0 { "" } else { ", " });
        write_operand(line, operand);
    }
    line.push_str(close);
    Ok(())
}
