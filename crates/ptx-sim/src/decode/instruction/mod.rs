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
mod wmma;

use self::reader::Reader;
use self::table::{Row, Status};
use super::names::Names;
use crate::program::action::Instruction;
use crate::refusal::Refusal;
use crate::text::syntax::InstructionText;

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
        .ok_or_else(|| Refusal::invalid(text.at, format!("there is no instruction '{name}': '{text}'")))?;
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
    Refusal::not_supported(text.at, format!("'{text}' ({why})"))
}
