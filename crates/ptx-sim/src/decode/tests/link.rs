//! Names across texts.

use super::{function, link, module, read, refusals};
use crate::program::action::{Action, CallTarget};

const CALLER: &str = ".extern .func (.param .b32 r) f(.param .b32 a);\n.extern .global .u32 v;\n.visible .entry k() {\n\
     .reg .b32 %r; .param .b32 a; .param .b32 r;\ncall (r), f, (a);\nld.global.u32 %r, [v];\nret; }";

/// The index of the function that a kernel calls.
fn callee(module: &crate::Module, name: &str) -> u32 {
    let calls = function(module, name).code.iter().find_map(|instruction| match &instruction.action {
        Action::Call(call) => Some(call.target),
        _ => None,
    });
    match calls {
        Some(CallTarget::Function(index)) => index,
        other => panic!("{other:?}"),
    }
}

#[test]
fn texts_use_what_others_define() {
    let definer = ".visible .func (.param .b32 r) f(.param .b32 a) { ret; }\n.visible .global .u32 v = 3;";
    for texts in [[CALLER, definer], [definer, CALLER]] {
        let module = link(&texts).expect("it links");
        assert_eq!(refusals(&module, "k"), []);
        assert_eq!(module.functions[callee(&module, "k") as usize].name, "f");
        assert_eq!(function(&module, "k").calls, [callee(&module, "k")]);
    }
}

#[test]
fn names_that_nothing_defines_refuse_what_uses_them() {
    let text = format!("{CALLER}\n.entry other() {{ ret; }}\n.entry takes() {{ .reg .u64 %a; mov.u64 %a, f; ret; }}");
    let module = module(&text);
    let expected = [
        (6, 1, "k".to_owned(), "no text defines 'f': 'call (r), f, (a);'".to_owned()),
        (7, 1, "k".to_owned(), "'v', no text defines it: 'ld.global.u32 %r, [v];'".to_owned()),
    ];
    assert_eq!(refusals(&module, "k"), expected);
    assert_eq!(refusals(&module, "other"), []);
    assert_eq!(refusals(&module, "takes"), [], "its address may be taken");
    assert!(!function(&module, "f").refusals.is_empty());
}

#[test]
fn private_names_of_different_texts_are_apart() {
    let text = |kernel: &str, value: u32| {
        format!(".global .u32 v = {value};\n.func f() {{ ret; }}\n.entry {kernel}() {{ call f; ret; }}")
    };
    let module = link(&[&text("a", 1), &text("b", 2)]).expect("it links");
    assert_ne!(callee(&module, "a"), callee(&module, "b"));
    assert_eq!(module.image(0), [1, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn weak_and_common_names_are_merged() {
    let weak = ".weak .func f() { ret; }\n.weak .global .u32 v = 1;\n.common .global .b8 c[4];";
    let strong = ".visible .func f() { exit; }\n.visible .global .u32 v = 2;\n.common .global .b8 c[8];";
    let kernel = ".extern .func f();\n.entry k() { call f; ret; }";
    let check = |texts: &[&str], code: Action, value: u8, size: u64| {
        let module = link(texts).expect("it links");
        let found = &module.functions[callee(&module, "k") as usize];
        assert_eq!((found.name.as_str(), &found.code[0].action), ("f", &code), "{texts:?}");
        let of = |name: &str| module.variables().iter().filter(|variable| variable.name == name).collect::<Vec<_>>();
        let (v, c) = (of("v"), of("c"));
        let ([v], [c]) = (v.as_slice(), c.as_slice()) else { panic!("{:?}", module.variables()) };
        assert_eq!((module.image(0)[usize::try_from(v.offset).expect("small")], c.size), (value, size));
    };
    check(&[weak, strong, kernel], Action::Exit, 2, 8);
    check(&[kernel, strong, weak], Action::Exit, 2, 8);
    check(&[weak, kernel, weak], Action::Return, 1, 4);
}

#[test]
fn names_that_are_defined_twice_are_refused() {
    let kernel = ".visible .entry k() { ret; }";
    let refused = |texts: &[&str]| link(texts).expect_err("it is refused").text;
    assert_eq!(refused(&[kernel, kernel]), "'k' is defined in two texts");
    assert_eq!(refused(&[".entry k() { ret; }", ".entry k() { ret; }"]), "kernel 'k' is defined in two texts");
    assert_eq!(refused(&[".visible .global .u32 v;", ".visible .global .u32 v;"]), "'v' is defined in two texts");
    let twice = read(".entry k() { ret; }\n.entry k() { ret; }").expect_err("it stands twice");
    assert_eq!((twice.text.as_str(), twice.place.line, twice.place.column), ("kernel 'k' is defined twice", 3, 8));
    assert_eq!(read(".global .u32 v; .global .u32 v;").expect_err("twice").text, "name 'v' is defined twice");
    let weak = ".weak .entry k() { ret; }";
    assert_eq!(link(&[weak, weak]).expect("one is enough").entries().count(), 1);
}

#[test]
fn declarations_may_stand_before_and_behind_definitions() {
    let module = module(
        ".visible .func f();\n.func g();\n.entry k() { call f; call g; ret; }\n.func g() { ret; }\n\
         .visible .func f() { ret; }\n.extern .func f();\n.extern .global .u32 v; .visible .global .u32 v = 1;",
    );
    assert_eq!(refusals(&module, "k"), []);
    assert_eq!(function(&module, "k").calls.len(), 2);
    assert_eq!(module.functions.len(), 3);
}

#[test]
fn aliases_stand_for_functions() {
    let aliased = ".visible .func f() { exit; }\n.visible .func g();\n.alias g, f;\n.visible .func h();\n.alias h, h;";
    let caller = ".extern .func g();\n.entry k() { call g; ret; }";
    let module = link(&[aliased, caller]).expect("it links");
    assert_eq!(module.functions[callee(&module, "k") as usize].name, "f");
    assert_eq!(refusals(&module, "k"), []);
    let text = format!("{aliased}\n.entry k() {{ call h; ret; }}");
    assert_eq!(refusals(&super::module(&text), "k")[0].3, "'h' is not a function: 'call h;'");
}
