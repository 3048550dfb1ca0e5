//! Calls.

use super::{function, module, refusals};
use crate::program::Module;
use crate::program::action::{Action, Builtin, Call, CallTarget, Slot};
use crate::program::types::Special;

const SLOT_4: Slot = Slot { offset: 0, size: 4 };

fn calls<'m>(module: &'m Module, name: &str) -> Vec<&'m Call> {
    let calls = function(module, name).code.iter().filter_map(|instruction| match &instruction.action {
        Action::Call(call) => Some(call),
        _ => None,
    });
    calls.collect()
}

#[test]
fn arguments_and_results_are_slots_of_the_caller() {
    let module = module(
        ".func (.param .b32 r) f(.param .b64 a, .param .align 4 .b8 b[8]) { ret; }\n\
         .entry k() { .reg .pred %p;\n{ .param .b64 x; .param .align 4 .b8 y[8]; .param .b32 z;\n\
         @!%p call.uni (z),\nf,\n(x, y); }\ncall (_), f, (7, 8);\nret; }",
    );
    let expected = [Slot { offset: 0, size: 8 }, Slot { offset: 8, size: 8 }];
    let found = calls(&module, "k");
    assert_eq!((found[0].target, found[0].arguments.as_slice()), (CallTarget::Function(0), expected.as_slice()));
    assert_eq!(found[0].results, [Slot { offset: 16, size: 4 }]);
    assert!(function(&module, "k").code[0].guard.is_some_and(|(_, is_true)| !is_true));
    assert_eq!(found.len(), 2);
}

#[test]
fn registers_are_stored_and_loaded_around_a_call() {
    let module = module(
        ".func (.reg .b32 %r, .reg .b16 %h) f(.reg .b32 %a, .reg .f32 %b) { @%p ret; mov.b32 %r, %a; ret; \
         .reg .pred %p; }\n\
         .entry k() { .reg .b32 %x; .reg .b16 %y; .reg .pred %p;\n@%p call (%x, %y), f, (%x, 1.5); ret; }",
    );
    let names = |name: &str| {
        let name_of = |action: &Action| match action {
            Action::Load(load) => format!("load {}", load.to[0].expect("it has one").bits),
            Action::Store(store) => format!("store {}", store.from[0].bits),
            Action::Call(_) => "call".to_owned(),
            Action::Return => "return".to_owned(),
            _ => "other".to_owned(),
        };
        let guarded = |guard: bool| if guard { "?" } else { "" };
        let code = &function(&module, name).code;
        code.iter().map(|found| name_of(&found.action) + guarded(found.guard.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(names("k"), ["store 32?", "store 32?", "call?", "load 32?", "load 16?", "return"]);
    let f = function(&module, "f");
    assert_eq!((f.results.as_slice(), f.parameters.len()), ([SLOT_4, Slot { offset: 4, size: 2 }].as_slice(), 2));
    assert_eq!(f.refusals[0].text, "'%p' is not a predicate: '@%p ret;'", "it is declared behind its use");
    assert_eq!(names("f"), ["load 32", "load 32", "other", "store 32", "store 16", "return"]);
    let k = function(&module, "k");
    let locals: Vec<_> = k.frame.specials.iter().map(|(_, special)| *special).collect();
    assert_eq!(locals, [0, 4, 8, 12].map(Special::Local));
    assert!(k.frame.constants.iter().any(|(_, value)| *value == u64::from(1.5_f32.to_bits())));
}

#[test]
fn addresses_are_called_by_prototypes_or_targets() {
    let module = module(
        ".func (.param .b32 r) f(.param .b32 a) { ret; }\n.entry k() { .reg .b64 %f; .param .b32 x; .param .b32 y;\n\
         mov.b64 %f, f;\ncall (y), %f, (x), P;\nP: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
         T: .calltargets f;\ncall (y), %f, (x), T;\nret; }",
    );
    assert_eq!(refusals(&module, "k"), []);
    let found = calls(&module, "k");
    assert!(found.iter().all(|call| matches!(call.target, CallTarget::Address(register) if register.is_long())));
    assert_eq!((found.len(), found[0].arguments.as_slice()), (2, [SLOT_4].as_slice()));
    let k = function(&module, "k");
    assert_eq!(
        (k.calls.as_slice(), k.calls_by_address, module.addressed.as_slice()),
        ([0].as_slice(), true, [0].as_slice())
    );
}

#[test]
fn functions_of_the_driver_are_called_unless_the_text_has_its_own() {
    let declared = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
                    .extern .func (.param .b64 r) malloc(.param .b64 a);\n.extern .func free(.param .b64 a);\n\
                    .extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, \
                    .param .b64 e);\n\
                    .extern .func cudaGraphSetConditional(.param .b64 a, .param .b32 b);\n";
    let kernel = ".entry k() { .param .b64 a; .param .b32 b;\ncall (b), vprintf, (a, a);\ncall (a), malloc, (a);\n\
                  call free, (a);\ncall __assertfail, (a, a, b, a, a);\ncall cudaGraphSetConditional, (a, b); ret; }";
    let module = module(&format!("{declared}{kernel}"));
    assert_eq!(refusals(&module, "k"), []);
    let found: Vec<_> = calls(&module, "k").iter().map(|call| call.target).collect();
    let expected = [Builtin::Printf, Builtin::Malloc, Builtin::Free, Builtin::AssertFail, Builtin::SetConditional];
    assert_eq!(found, expected.map(CallTarget::Builtin));
    assert!(function(&module, "k").calls.is_empty());
    let own = super::module(".func free(.param .b64 a) { ret; }\n.entry k() { .param .b64 a; call free, (a); ret; }");
    assert_eq!(calls(&own, "k")[0].target, CallTarget::Function(0));
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let declared = ".func (.param .b32 r) f(.param .b32 a) { ret; }\n.func g(.param .align 8 .b8 a[16]) { ret; }\n\
                    .extern .func free(.param .b32 a);\n.extern .func (.param .b64 r) malloc(.param .b64 a);\n\
                    .global .u32 v;\n.entry other() { ret; }\n";
    let cases = [
        ("call f;", "wrong number of arguments or results: 'call f;'"),
        ("call (x), f, (y, y);", "wrong number of arguments or results: 'call (x), f, (y, y);'"),
        ("call (h), f, (x);", "wrong result h: 'call (h), f, (x);'"),
        ("call (x), f, (h);", "wrong argument h: 'call (x), f, (h);'"),
        ("call (x), f, (%d);", "wrong argument %d: 'call (x), f, (%d);'"),
        ("call (x), f, ([x]);", "wrong argument [x]: 'call (x), f, ([x]);'"),
        ("call g, (%d);", "wrong argument %d: 'call g, (%d);'"),
        ("call nothing;", "'nothing' is not a function: 'call nothing;'"),
        ("call v;", "'v' is not a function: 'call v;'"),
        ("call other;", "'other' is a kernel: 'call other;'"),
        ("call 5;", "wrong form of a call: 'call 5;'"),
        ("call f, (x), P, P;", "wrong form of a call: 'call f, (x), P, P;'"),
        ("call %d;", "a call of an address needs a prototype: 'call %d;'"),
        ("call %r;", "a call needs an address of 64 bits: 'call %r;'"),
        ("call free, (x);", "wrong parameters of 'free': 'call free, (x);'"),
        ("mov.u64 %d, malloc;", "'malloc', the address of a function of the driver: 'mov.u64 %d, malloc;'"),
        ("@%d call g, (x);", "'%d' is not a predicate: '@%d call g, (x);'"),
    ];
    for (text, what) in cases {
        let body = ".reg .b64 %d; .reg .b32 %r; .param .b32 x; .param .b32 y; .param .b8 h;";
        let module = module(&format!("{declared}.entry k() {{ {body} {text} ret; }}"));
        assert_eq!(refusals(&module, "k").first().map(|found| found.3.as_str()), Some(what));
    }
}
