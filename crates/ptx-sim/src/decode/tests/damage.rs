//! Texts that are damaged at random: whatever is left of them, reading it ends without a panic, and a function without
//! refusals keeps the invariants of the program.

use proptest::prelude::*;

use super::{LIMITS, refusals};
use crate::Module;
use crate::program::Function;
use crate::program::action::Action;

const SAMPLE: &str = include_str!("sample.ptx");

/// What damage puts in.
const PIECES: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ";",
    ",",
    "-",
    "<",
    "=",
    "|",
    "!",
    "\"",
    "/*",
    "//",
    "é",
    "_",
    "0",
    "1<<63",
    "18446744073709551615",
    "0f00000000",
    "%r1",
    "%p1",
    "%rd1",
    "$L__BB1_2",
    "ret;",
    "call",
    "bra",
    ".v4",
    ".f64",
    ".param .b8 x[18446744073709551615];",
    ".reg .b32 %q<65535>;",
    ".reg .v4 .f32 %v;",
    ".shared .b8 t[4294967296];",
    ".extern",
    ".weak",
    ".entry",
    ".func",
    "generic(rows)",
];

/// One change of a text: where, how many words of it, and what for.
#[derive(Clone, Debug)]
enum Damage {
    Remove(usize, usize),
    Replace(usize, usize),
    Copy(usize, usize, usize),
    /// A character.
    Drop(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<usize>(), 1..4_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        (any::<usize>(), 0..PIECES.len()).prop_map(|(at, piece)| Damage::Replace(at, piece)),
        (any::<usize>(), 1..30_usize, any::<usize>()).prop_map(|(from, count, to)| Damage::Copy(from, count, to)),
        any::<usize>().prop_map(Damage::Drop),
    ]
}

/// A text as its words and what stands between them.
fn words(text: &str) -> Vec<String> {
    text.split_inclusive(|character: char| !character.is_alphanumeric() && !"_%$.".contains(character))
        .map(str::to_owned)
        .collect()
}

fn damaged(changes: &[Damage]) -> String {
    let mut words = words(SAMPLE);
    for change in changes {
        let length = words.len().max(1);
        match *change {
            Damage::Remove(at, count) => {
                let at = at % length;
                words.drain(at..words.len().min(at + count));
            }
            Damage::Replace(at, piece) => words[at % length] = format!(" {} ", PIECES[piece]),
            Damage::Copy(from, count, to) => {
                let from = from % length;
                let part = words[from..length.min(from + count)].to_vec();
                words.splice(to % length..to % length, part);
            }
            Damage::Drop(at) => drop(words[at % length].pop()),
        }
    }
    words.concat()
}

fn check(function: &Function) {
    assert_eq!(function.code.len(), function.places.len());
    let exists = |target: &u32| usize::try_from(*target).is_ok_and(|target| target < function.code.len());
    for instruction in &function.code {
        match &instruction.action {
            Action::Branch { target } => assert!(exists(target)),
            Action::BranchIndexed { targets, .. } => assert!(targets.iter().all(exists)),
            Action::Call(call) => {
                let ends = call.arguments.iter().chain(&call.results).map(|slot| slot.offset + slot.size);
                assert!(ends.max().unwrap_or(0) <= function.frame.local_bytes);
            }
            _ => {}
        }
    }
}

#[test]
fn the_sample_is_read_whole() {
    let module = Module::read(SAMPLE, LIMITS).expect("it is well formed");
    assert_eq!(refusals(&module, "walk"), []);
    let walk = module.entry("walk").expect("it is there");
    assert_eq!(walk.parameters().collect::<Vec<_>>(), [(0, 8), (8, 16), (24, 4)]);
    assert_eq!((walk.shared_bytes(), module.addressed.len()), (512, 1));
    module.functions.iter().filter(|function| function.refusals.is_empty()).for_each(check);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_texts_are_read_or_refused(changes in prop::collection::vec(damage(), 1..6), twice in any::<bool>()) {
        let text = damaged(&changes);
        let module = if twice { Module::link(&[&text, SAMPLE], LIMITS) } else { Module::read(&text, LIMITS) };
        if let Ok(module) = module {
            prop_assert_eq!(module.image(1).len(), module.image.len());
            module.entries().for_each(|entry| drop(entry.refusals()));
            module.functions.iter().filter(|function| function.refusals.is_empty()).for_each(check);
        }
    }
}
