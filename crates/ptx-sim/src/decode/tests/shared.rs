//! Shared memory: what overlaps, and what each kernel needs.

use super::{function, module, refusals};
use crate::program::action::Action;
use crate::program::types::Register;

/// The shared addresses that a function stores to, in their order.
fn addresses(module: &crate::Module, name: &str) -> Vec<u64> {
    let function = function(module, name);
    let constant =
        |row: Register| function.frame.constants.iter().find(|(known, _)| *known == row).map(|(_, value)| *value);
    let stores = function.code.iter().filter_map(|instruction| match &instruction.action {
        Action::Store(store) => Some(store.to),
        _ => None,
    });
    stores.map(|to| constant(to.base).unwrap_or(0).wrapping_add(to.offset.cast_unsigned())).collect()
}

const TEXT: &str = ".shared .u32 all;\n.shared .align 16 .b8 some[16];\n.extern .shared .b8 dynamic[];\n\
     .func f() { .shared .u64 own; st.shared.u64 [own], 0; st.shared.u32 [all], 0; ret; }\n\
     .entry none() { st.shared.u8 [dynamic], 0; ret; }\n\
     .entry one() { .shared .u8 t; st.shared.u8 [t], 0; ret; }\n\
     .entry calls() { .shared .u8 t; st.shared.u8 [t], 0; st.shared.u8 [some], 0; call f; ret; }\n\
     .entry blocks() { { .shared .u32 t; st.shared.u32 [t], 0; } { .shared .u32 t; st.shared.u32 [t], 0; } ret; }";

#[test]
fn kernels_have_only_what_they_and_their_callees_use() {
    let module = module(TEXT);
    let bytes = |name: &str| module.entry(name).expect("there is one").shared_bytes();
    assert_eq!(["none", "one", "calls", "blocks"].map(bytes), [0, 1, 41, 8]);
    assert_eq!(addresses(&module, "f"), [32, 0]);
    assert_eq!(addresses(&module, "calls"), [40, 16]);
    assert_eq!(addresses(&module, "one"), [0]);
    assert_eq!(addresses(&module, "blocks"), [0, 4]);
}

#[test]
fn calls_by_address_may_reach_all_whose_address_is_taken() {
    let text = ".func f() { .shared .b8 t[64]; st.shared.u8 [t], 0; ret; }\n.func g() { .shared .b8 t[999]; ret; }\n\
         .global .u64 table = f;\n.entry k() { .reg .b64 %a; p: .callprototype _ (); ld.global.u64 %a, [table];\n\
         call %a, p; ret; }\n.entry l() { .reg .b64 %a; t: .calltargets g; call %a, t; ret; }";
    let module = module(text);
    let bytes = |name: &str| module.entry(name).expect("there is one").shared_bytes();
    assert_eq!([bytes("k"), bytes("l")], [64, 999]);
    assert!(function(&module, "k").calls_by_address && !function(&module, "l").calls_by_address);
}

#[test]
fn too_much_shared_memory_refuses_its_kernel() {
    let module = module(
        ".entry k() { .shared .b8 t[49153]; ret; }\n.entry l() { .shared .b8 t[49152]; ret; }\n\
                         .entry m() { .shared .b64 t[18446744073709551615][8]; ret; }",
    );
    assert_eq!(refusals(&module, "k")[0].3, "49153 bytes of shared memory are more than 49152");
    assert_eq!(refusals(&module, "l"), []);
    assert_eq!(refusals(&module, "m").len(), 1);
}
