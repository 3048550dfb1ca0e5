//! Modules of small texts: what they hold, and what is refused where.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of action")]

mod body;
mod call;
mod damage;
mod image;
mod link;
mod shared;

use crate::program::Function;
use crate::{Limits, Module, Refusal};

const LIMITS: Limits = Limits { version: 90, target: 90 };

/// A head of one line, so that what follows begins in line 2.
const HEAD: &str = ".version 8.7 .target sm_80 .address_size 64\n";

fn read(text: &str) -> Result<Module, Refusal> {
    Module::read(&format!("{HEAD}{text}"), LIMITS)
}

fn module(text: &str) -> Module {
    read(text).unwrap_or_else(|refusal| panic!("{refusal}: {text}"))
}

fn link(texts: &[&str]) -> Result<Module, Refusal> {
    let texts: Vec<String> = texts.iter().map(|text| format!("{HEAD}{text}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Module::link(&texts, LIMITS)
}

fn function<'m>(module: &'m Module, name: &str) -> &'m Function {
    module.functions.iter().find(|function| function.name == name).expect("there is such a function")
}

/// The refusals of a kernel, as line, column, function and text.
fn refusals(module: &Module, kernel: &str) -> Vec<(u32, u32, String, String)> {
    let entry = module.entry(kernel).expect("there is such a kernel");
    let parts =
        |refusal: &Refusal| (refusal.place.line, refusal.place.column, refusal.function.clone(), refusal.text.clone());
    entry.refusals().into_iter().map(parts).collect()
}

#[test]
fn kernels_tell_what_a_launch_needs() {
    let module = module(
        ".visible .entry k(.param .u32 a, .param .u64 .ptr .global .align 4 b, .param .align 8 .b8 c[12], \
         .param .u8 d)\n\
         .maxntid 64, 2\n.maxnreg 32\n{ ret; }\n.entry other() { .local .b8 l[20]; ret; }",
    );
    let names: Vec<_> = module.entries().map(|entry| entry.name().to_owned()).collect();
    assert_eq!((names, module.version(), module.target()), (vec!["k".to_owned(), "other".to_owned()], 87, 80));
    let k = module.entry("k").expect("there is a kernel");
    assert_eq!(k.parameters().collect::<Vec<_>>(), [(0, 4), (8, 8), (16, 12), (28, 1)]);
    let tuning = k.tuning();
    assert_eq!((tuning.max_threads, tuning.required_threads, tuning.max_registers), (Some([64, 2, 1]), None, Some(32)));
    assert_eq!((k.shared_bytes(), k.local_bytes(), k.refusals()), (0, 0, vec![]));
    assert_eq!(module.entry("other").expect("there is one").local_bytes(), 32);
    assert!(module.entry("third").is_none());
}
