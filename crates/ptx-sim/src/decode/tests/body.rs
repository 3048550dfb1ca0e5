//! Bodies: scopes, labels, places and refusals.

use super::{function, module, refusals};
use crate::program::action::{Action, Slot};
use crate::program::types::Register;
use crate::program::{Function, Module};

/// A kernel of these statements, of which the first begins in line 3.
fn kernel(statements: &str) -> Module {
    module(&format!(".entry k() {{\n{statements}\n}}"))
}

/// Where a function's scalar instructions write, in their order.
fn written(function: &Function) -> Vec<Register> {
    let writes = function.code.iter().filter_map(|instruction| match &instruction.action {
        Action::Scalar(scalar) => Some(scalar.to),
        _ => None,
    });
    writes.collect()
}

fn actions(module: &Module) -> Vec<&Action> {
    function(module, "k").code.iter().map(|instruction| &instruction.action).collect()
}

#[test]
fn blocks_hide_outer_names() {
    let module = kernel(
        ".reg .b32 %a, %b<2>;\nadd.s32 %a, %b0, %b1;\n{ .reg .b32 %a; add.s32 %a, 1, 2; { .reg .b64 %a; \
         add.s64 %a, 1, 2; }\n\
         add.s32 %a, 3, 4; }\nadd.s32 %a, 5, 6;\n{ .reg .b32 %a; add.s32 %a, 7, 8; }",
    );
    assert_eq!(refusals(&module, "k"), []);
    let found = written(function(&module, "k"));
    let [outer, inner, innermost, inner_again, outer_again, beside] = found[..] else { panic!("{found:?}") };
    assert_eq!((outer, inner, innermost.bits), (outer_again, inner_again, 64));
    assert!(outer != inner && beside != outer && beside != inner);
}

#[test]
fn registers_that_nothing_uses_in_a_block_need_no_row() {
    let module = kernel(".reg .b32 %a;\n{ .reg .b32 temp_param_reg; add.s32 %a, %a, %a; }");
    assert_eq!(function(&module, "k").frame.words, 1);
}

#[test]
fn vectors_are_their_components() {
    let module = kernel(
        ".reg .b64 %d; .reg .v4 .b32 %v; .reg .v2 .b32 %w<2>;\nadd.s32 %v.z, %v.x, %w1.y;\nld.global.v4.u32 %v, [%d];",
    );
    assert_eq!(refusals(&module, "k"), []);
    let found = actions(&module);
    let Action::Scalar(sum) = found[0] else { panic!("{found:?}") };
    let Action::Load(load) = found[1] else { panic!("{found:?}") };
    assert_eq!((load.to[2], load.to[0]), (Some(sum.to), Some(sum.arguments[0])));
}

#[test]
fn local_memory_of_blocks_beside_each_other_overlaps() {
    let module = kernel(
        ".local .b8 a[8];\n{ .param .b64 b; .param .align 16 .b8 c[4]; }\n{ .local .b8 d[12]; { .local .u64 e; \
         } }\n.local .u8 f;",
    );
    assert_eq!(refusals(&module, "k"), []);
    assert_eq!(function(&module, "k").frame.local_bytes, 32);
}

#[test]
fn branches_go_to_the_innermost_label() {
    let module =
        kernel("bra L;\n{ .reg .pred %p; @!%p bra.uni L; L: exit; bra out; }\n{ bra L; { L: } }\nL: exit;\nout: exit;");
    assert_eq!(refusals(&module, "k"), []);
    let targets: Vec<_> = actions(&module)
        .iter()
        .map(|action| if let Action::Branch { target } = action { Some(*target) } else { None })
        .collect();
    assert_eq!(targets, [Some(5), Some(2), None, Some(6), Some(5), None, None]);
    assert_eq!(function(&module, "k").code[1].guard.map(|(_, is_true)| is_true), Some(false));
}

#[test]
fn indexed_branches_have_their_targets() {
    let module = kernel(".reg .b32 %i;\nbrx.idx %i, T;\nT: .branchtargets A, B, A;\nA: exit;\nB: ret;");
    assert_eq!(refusals(&module, "k"), []);
    let Action::BranchIndexed { targets, .. } = actions(&module)[0] else { panic!("{:?}", actions(&module)) };
    assert_eq!(*targets, [1, 2, 1]);
}

#[test]
fn functions_return_at_their_end() {
    for (statements, count) in [("", 1), ("ret;", 1), ("exit;", 1), ("ret; L:", 2), (".reg .pred %p; @%p ret;", 2)] {
        let module = kernel(statements);
        assert_eq!(function(&module, "k").code.len(), count, "{statements}");
        assert_eq!(function(&module, "k").places.len(), count, "{statements}");
    }
}

#[test]
fn instructions_know_where_they_come_from() {
    let text = ".file 3 \"a.cu\"\n.file 1 \"b.cu\"\n.entry k() {\n.loc 1 7 2\n  exit;\n\
         .loc 3 8 2, function_name f, inlined_at 1 7 2\n\
                exit;\n.loc 9 1 1\nexit; }";
    let module = module(text);
    let places = &function(&module, "k").places;
    let origins: Vec<_> =
        places.iter().map(|source| source.origin.map(|(file, line)| (module.file(file), line))).collect();
    assert_eq!(origins, [Some((Some("b.cu"), 7)), Some((Some("a.cu"), 8)), None]);
    assert_eq!((places[0].place.line, places[0].place.column, places[1].place.line), (6, 3, 8));
}

#[test]
fn every_refused_instruction_is_told_and_the_others_are_kept() {
    let module = kernel(
        ".reg .b32 %r<2>; .reg .b64 %d;\n  what.u32 %r0;\nadd.s32 %r0, %r1, 1;\n{\n@%p exit;\n\tbra nowhere; }\n\
         add.s32 %r0, %x, 1;\n\
         brx.idx %r0, T;\nbra %r0, 1;\nlabel: label:\n.reg .b128 %q;\nadd.s32 %q, %r0, 1;",
    );
    let expected = [
        (4, 3, "there is no instruction 'what': 'what.u32 %r0;'"),
        (7, 1, "'%p' is unknown: '@%p exit;'"),
        (9, 1, "an operand is no register: 'add.s32 %r0, %x, 1;'"),
        (10, 1, "the targets are unknown: 'brx.idx %r0, T;'"),
        (11, 1, "a branch needs one label: 'bra %r0, 1;'"),
        (12, 8, "label 'label' stands twice"),
        (13, 1, "registers of type .b128"),
        (8, 2, "label 'nowhere' is unknown"),
    ];
    let found = refusals(&module, "k");
    let found: Vec<_> = found.iter().map(|(line, column, _, text)| (*line, *column, text.as_str())).collect();
    assert_eq!(found, expected);
    assert!(refusals(&module, "k").iter().all(|(_, _, function, _)| function == "k"));
    assert_eq!(written(function(&module, "k")).len(), 1);
}

#[test]
fn declarations_that_do_not_fit_are_refused() {
    let cases = [
        (".reg .b32 %r, %r;", "'%r' is declared twice"),
        (".reg .b32 %r<65537>;", "more than 65536 registers '%r'"),
        (".reg .b32 %r<65535>, %q;", "more than 65535 registers of one size"),
        (".local .b8 l[524289];", "'l' beyond 524288 bytes of local memory"),
        (".local .b8 l[];", "'l', of unknown size"),
        (".local .b8 l = 1;", "'l' cannot begin with a value"),
        (".global .b8 g;", "'g', a variable of the module in a body"),
        (".param .texref t;", "'t' of type .texref"),
        (".extern .shared .b8 s[4];", "'s', declared in a body but not defined there"),
    ];
    for (statements, what) in cases {
        let module = kernel(statements);
        assert_eq!(refusals(&module, "k")[0].3, what, "{statements}");
    }
}

#[test]
fn heads_that_are_not_supported_refuse_their_function_alone() {
    let cases = [
        (".entry k() .reqnctapercluster 2 { ret; }", "clusters of blocks"),
        (".entry k(.param .b8 p[32765]) { ret; }", "more than 32764 bytes of parameters"),
        (".entry k(.param .b8 p[]) { ret; }", "parameter 'p' of unknown size"),
        (".entry k(.reg .b32 p) { ret; }", "parameter 'p' is a register"),
        (".entry k(.param .samplerref s) { ret; }", "'s' of type .samplerref"),
    ];
    for (text, what) in cases {
        let module = module(&format!("{text} .entry other() {{ ret; }}"));
        assert_eq!(refusals(&module, "k")[0].3, what, "{text}");
        assert_eq!(refusals(&module, "other"), []);
    }
}

#[test]
fn kernels_have_the_refusals_of_what_they_may_call() {
    let text = ".func f() { what; ret; }\n.func g() { call f; ret; }\n.func h() { nothing; ret; }\n\
         .global .u64 t = h;\n\
                .entry k() { call g; ret; }\n.entry l() { .reg .b64 %a; p: .callprototype _ (); call %a, p; ret; \
         }\n.entry m() { ret; }";
    let module = module(text);
    let functions =
        |kernel| refusals(&module, kernel).into_iter().map(|(_, _, function, _)| function).collect::<Vec<_>>();
    assert_eq!(functions("k"), ["f"]);
    assert_eq!(functions("l"), ["h"]);
    assert!(functions("m").is_empty());
}

#[test]
fn parameters_of_functions_are_local_memory() {
    let module = module(".func (.param .b32 r) f(.param .b64 a, .param .align 8 .b8 b[12]) { ret; }");
    let found = function(&module, "f");
    assert_eq!(found.results, [Slot { offset: 0, size: 4 }]);
    assert_eq!(found.parameters, [Slot { offset: 8, size: 8 }, Slot { offset: 16, size: 12 }]);
    assert_eq!(found.frame.local_bytes, 32);
}
