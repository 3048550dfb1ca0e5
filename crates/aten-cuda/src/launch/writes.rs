//! Which parameters a kernel writes through, as its text says.
//!
//! The stream sanitizer has to know what a launch does to each tensor. The text of a kernel tells: an address that something
//! is stored at was computed from parameters. Addresses that come out of memory tell nothing; launches of such kernels
//! declare themselves what they use.
//!
//! **Invariants:** a parameter that the kernel stores through is found, unless the address comes out of memory or a tensor
//! map. A parameter that takes part in such an address otherwise, such as an offset, is found too, which does no harm: it
//! is no memory.

use std::collections::HashMap;

use c10_core::{Arg, MemoryAccess};
use smallvec::SmallVec;

/// Parameters of a kernel, a bit for each.
pub(super) type Written = u64;

/// Names of parameters by their position.
const POSITIONS: [&str; 12] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];

/// The parameters that a kernel of a text writes through; those behind the 64th are left out.
pub(super) fn written(text: &str, kernel: &str) -> Written {
    let Some((parameters, body)) = entry(text, kernel) else { return 0 };
    let names = parameters.split(',').filter_map(|parameter| parameter.split_whitespace().last());
    let name = |parameter: &'_ str| parameter.split('[').next().unwrap_or_default().to_owned();
    let positions: HashMap<String, u32> = names.map(name).zip(0..64).collect();
    let statements: Vec<Statement<'_>> = body.split([';', '{', '}']).filter_map(Statement::read).collect();
    let mut from: HashMap<&str, Written> = HashMap::new();
    // What a loop carries round is known in the second turn, or a later one.
    loop {
        let before: u64 = from.values().map(|bits| u64::from(bits.count_ones())).sum();
        statements.iter().for_each(|statement| statement.carry(&positions, &mut from));
        if from.values().map(|bits| u64::from(bits.count_ones())).sum::<u64>() == before {
            break;
        }
    }
    statements.iter().fold(0, |all, statement| all | statement.stores(&from))
}

/// The parameters and the body of a kernel.
fn entry<'a>(text: &'a str, kernel: &str) -> Option<(&'a str, &'a str)> {
    text.match_indices(".entry ").find_map(|(at, start)| {
        let rest = text[at + start.len()..].strip_prefix(kernel)?.trim_start().strip_prefix('(')?;
        let (parameters, rest) = rest.split_once(')')?;
        let end = rest.find("\n}").unwrap_or(rest.len());
        Some((parameters, &rest[..end]))
    })
}

/// An instruction.
struct Statement<'a> {
    operation: &'a str,
    operands: &'a str,
}

impl<'a> Statement<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut text = text.trim();
        // A label, and the predicate of an instruction.
        while let Some((label, rest)) = text.split_once(':').filter(|(label, _)| !label.contains([' ', '[', '%'])) {
            debug_assert!(!label.is_empty(), "a label has a name");
            text = rest.trim_start();
        }
        if text.starts_with('@') {
            text = text.split_once(char::is_whitespace)?.1.trim_start();
        }
        let (operation, operands) = text.split_once(char::is_whitespace)?;
        (!operation.starts_with('.') && !operation.starts_with("//")).then_some(Self { operation, operands })
    }

    /// Notes which parameters the result depends on.
    fn carry(&self, positions: &HashMap<String, u32>, from: &mut HashMap<&'a str, Written>) {
        let (operation, operands) = (self.operation, self.operands);
        let is_parameter = operation.starts_with("ld.param");
        let reads_memory = operation.starts_with("ld") || operation.starts_with("atom");
        if (reads_memory && !is_parameter) || operation.starts_with("st") || operation.starts_with("setp") {
            return;
        }
        let (result, rest) = operands.split_once(',').unwrap_or((operands, ""));
        let Some(result) = registers(result).next() else { return };
        let bits = if is_parameter {
            let name = rest.trim().trim_start_matches('[').split([']', '+']).next().unwrap_or_default();
            positions.get(name.trim()).map_or(0, |position| 1 << position)
        } else {
            registers(rest).fold(0, |bits, register| bits | from.get(register).copied().unwrap_or(0))
        };
        if bits != 0 {
            *from.entry(result).or_default() |= bits;
        }
    }

    /// The parameters that the address of a store depends on.
    fn stores(&self, from: &HashMap<&str, Written>) -> Written {
        let starts = ["st.", "red.", "atom.", "cp.async.bulk.global", "cp.reduce.async.bulk.global"];
        let elsewhere = [".shared", ".local", ".param"];
        let stores = starts.iter().any(|start| self.operation.starts_with(start));
        let is_copy = self.operation.starts_with("cp.");
        if !stores || (!is_copy && elsewhere.iter().any(|space| self.operation.contains(space))) {
            return 0;
        }
        let address = self.operands.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(at, _)| at);
        registers(address).fold(0, |bits, register| bits | from.get(register).copied().unwrap_or(0))
    }
}

/// The registers that a text names.
fn registers(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$';
    text.match_indices('%').map(move |(at, _)| {
        let rest = &text[at + 1..];
        &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())]
    })
}

/// Arguments with what the kernel does to each: results for those it writes through, and the rest is read.
pub(super) fn declared<'a>(arguments: &[Arg<'a>], written: Written) -> SmallVec<[Arg<'a>; 8]> {
    let declared = |(position, argument): (usize, &Arg<'a>)| {
        let is_written = position < 64 && written >> position & 1 == 1;
        let name = POSITIONS.get(position).copied().unwrap_or_default();
        let access = if is_written { MemoryAccess::Output } else { MemoryAccess::Reads(name) };
        argument.clone().accessed(if argument.access() == MemoryAccess::Undeclared {
            access
        } else {
            argument.access()
        })
    };
    arguments.iter().enumerate().map(declared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.visible .entry other(.param .u64 a) { .reg .b64 %d; ld.param.u64 %d, [a]; st.global.u32 [%d], 0; ret; }
.visible .entry walk(
 .param .u64 walk_param_0,
 .param .u64 .ptr .align 4 walk_param_1,
 .param .align 8 .b8 walk_param_2[16],
 .param .u64 walk_param_3
)
{
 ld.param.u64  %rd1, [walk_param_0];
 ld.param.u64  %rd2, [walk_param_1];
 ld.param.u64  %rd9, [walk_param_2+8];
 ld.param.u64  %rd20, [walk_param_3];
 mov.u64 %rd5, %rd7;
$L__BB0_1:
 ld.global.u64  %rd3, [%rd1];
 add.s64  %rd4, %rd5, %rd3;
 st.shared.u32  [%rd20], 1;
 @%p1 st.global.v2.u32  [%rd4+8], {%r1, %r2};
 cvta.to.global.u64  %rd7, %rd2;
 @%p2 bra  $L__BB0_1;
 ret;
}
";

    #[test]
    fn what_is_stored_through_is_written() {
        assert_eq!(
            written(TEXT, "walk"),
            0b10,
            "an address that goes round the loop, not one that is read from memory"
        );
        assert_eq!((written(TEXT, "other"), written(TEXT, "wal"), written(TEXT, "none")), (1, 0, 0));
    }
}
