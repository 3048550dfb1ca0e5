//! Trees of well-formed texts, and refusals of others with their places.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of statement")]

use super::super::syntax::{Initial, InstructionText, Item, Linkage, Operand, Statement, Tuning, VariableText};
use super::*;

const LIMITS: Limits = Limits { version: 90, target: 90 };
const HEAD: &str = ".version 8.7\n.target sm_80\n.address_size 64\n";

/// The tree of a text behind a head of three lines.
fn tree(text: &str) -> Vec<Item<'static>> {
    let whole = format!("{HEAD}{text}").leak();
    parse(whole, LIMITS).unwrap_or_else(|refusal| panic!("{refusal}: {text}")).items
}

fn variable(text: &str) -> VariableText<'static> {
    match tree(text).remove(0) {
        Item::Variable(variable) => variable,
        other => panic!("{other:?}"),
    }
}

fn function(text: &str) -> super::super::syntax::FunctionText<'static> {
    match tree(text).remove(0) {
        Item::Function(function) => function,
        other => panic!("{other:?}"),
    }
}

fn body(text: &str) -> Vec<Statement<'static>> {
    function(&format!(".entry k() {{\n{text}\n}}")).body.expect("it has a body")
}

fn instruction(text: &str) -> InstructionText<'static> {
    match body(text).remove(0) {
        Statement::Instruction(instruction) => instruction,
        other => panic!("{other:?}"),
    }
}

#[test]
fn heads_name_version_and_target() {
    let read = |text: &str| parse(text, LIMITS).map(|text| (text.version, text.target)).map_err(|refusal| refusal.kind);
    let cases = [
        (".version 7.8 .target sm_75", Ok((78, 75))),
        (".version 9.0 .target sm_90a, debug .address_size 64", Ok((90, 90))),
        (".version 6.0 .target compute_50, texmode_independent", Ok((60, 50))),
        (".version 9.1 .target sm_75", Err(RefusalKind::NewerVersion)),
        (".version 10.0 .target sm_75", Err(RefusalKind::NewerVersion)),
        (".version 8.0 .target sm_100", Err(RefusalKind::Invalid)),
        (".version 8.0 .target sm_80a", Err(RefusalKind::Invalid)),
        (".version 8.0 .target sm_86f", Err(RefusalKind::Invalid)),
        (".version 8.0 .target gpu", Err(RefusalKind::Invalid)),
        (".version 8.0 .target debug", Err(RefusalKind::Invalid)),
        (".version 8 .target sm_75", Err(RefusalKind::Invalid)),
        (".version 8.0 .target sm_75 .address_size 32", Err(RefusalKind::NotSupported)),
        (".target sm_75", Err(RefusalKind::Invalid)),
        ("", Err(RefusalKind::Invalid)),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn variables_have_types_sizes_and_alignments() {
    let found = variable(".visible .global .align 16 .v4 .f32 tile[4][2];");
    assert_eq!((found.linkage, found.space, found.ty, found.vector), (Linkage::Visible, "global", "f32", 4));
    assert_eq!((found.align, found.name, found.dimensions), (Some(16), "tile", vec![4, 2]));
    assert_eq!(variable(".extern .shared .align 4 .b8 dyn[];").dimensions, [0]);
    assert_eq!(variable(".const .b8 c[(1<<3)*2+4-1];").dimensions, [19]);
    assert_eq!(variable(".global .attribute(.managed) .align 4 .u32 m = 7;").name, "m");
    let names: Vec<_> = tree(".global .u32 a, b[2], c;").into_iter().collect();
    assert_eq!(names.len(), 3);
    assert_eq!(variable(".global .samplerref s = { addr_mode_0 = clamp, {1} };").initial, None);
}

#[test]
fn initial_values_of_every_form() {
    let symbol = |name, offset: i64, mask| Initial::Symbol { name, offset: offset.cast_unsigned(), mask };
    let cases = [
        ("= 5", vec![Initial::Integer(5)]),
        ("= -(2+3)*2", vec![Initial::Integer(10_u64.wrapping_neg())]),
        ("= ~0 & 0xF | 1 << 4", vec![Initial::Integer(0x1F)]),
        ("= -1.5", vec![Initial::Float(f64::to_bits(-1.5), 64)]),
        ("= {0f3F800000, -0f3F800000}", vec![Initial::Float(0x3F80_0000, 32), Initial::Float(0xBF80_0000, 32)]),
        ("= generic(x)+4", vec![symbol("x", 4, None)]),
        (
            "= {x, x-8, (x+4), generic(x+4)-8}",
            vec![symbol("x", 0, None), symbol("x", -8, None), symbol("x", 4, None), symbol("x", -4, None)],
        ),
        ("= {0xFF(x), 0xFF00(generic(x)+2)}", vec![symbol("x", 0, Some(0xFF)), symbol("x", 2, Some(0xFF00))]),
        ("= {}", vec![]),
        ("= {1, 2,}", vec![Initial::Integer(1), Initial::Integer(2)]),
    ];
    for (text, expected) in cases {
        assert_eq!(variable(&format!(".global .u64 v[9] {text};")).initial, Some(expected), "{text}");
    }
}

#[test]
fn rows_of_initial_values_are_filled_with_zeros() {
    let found = variable(".global .u32 v[2][3] = {{1, 2}, {3}};").initial.expect("it has one");
    let expected =
        [Initial::Integer(1), Initial::Integer(2), Initial::Zeros(1), Initial::Integer(3), Initial::Zeros(2)];
    assert_eq!(found, expected);
    assert_eq!(variable(".global .u32 v[] = {1, 2, 3};").dimensions, [3]);
    assert_eq!(variable(".global .u32 v[][2] = {{1}, {2}, {3, 4}};").dimensions, [3, 2]);
    assert_eq!(variable(".global .v2 .f32 v[2] = {{1.0}, {2.0}};").initial.expect("it has one").len(), 4);
}

#[test]
fn functions_have_parameters_and_tuning() {
    let found = function(
        ".visible .entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 b[20])\n\
         .maxntid 128, 2\n.minnctapersm 3\n.maxnreg 40 .reqntid 7 .explicitcluster .reqnctapercluster 2, 1, 1\n\
         { ret; }",
    );
    assert!(found.is_entry && found.body.is_some());
    let [a, b] = found.parameters.as_slice() else { panic!("{:?}", found.parameters) };
    assert_eq!((a.name, a.pointer, a.align, b.align), ("a", true, None, Some(8)));
    let expected = Tuning {
        max_threads: Some([128, 2, 1]),
        required_threads: Some([7, 1, 1]),
        min_blocks: Some(3),
        max_registers: Some(40),
        clusters: true,
    };
    assert_eq!(found.tuning, expected);
    let declared = function(".extern .func (.param .b32 r) f\n(.param .b64 f_0, .reg .u32 %a)\n.noreturn;");
    assert_eq!((declared.linkage, declared.name, declared.returns.len()), (Linkage::Extern, "f", 1));
    assert_eq!((declared.parameters[1].space, declared.body), ("reg", None));
}

#[test]
fn operands_of_every_form() {
    let address = |base, distance: i64| Operand::Address(Box::new(base), distance.cast_unsigned());
    let pair = |a, b| Operand::Pair(Box::new(a), Box::new(b));
    let x = Operand::Name("%x");
    let cases = [
        ("%v.x", Operand::Name("%v.x")),
        ("!%x", Operand::Not("%x")),
        ("-%x", Operand::Minus("%x")),
        ("a+-4", Operand::Sum("a", 4_u64.wrapping_neg())),
        ("-3", Operand::Integer(3_u64.wrapping_neg())),
        ("1<<3", Operand::Integer(8)),
        ("(1+2)*3", Operand::Integer(9)),
        ("-2*3+1", Operand::Integer(5_u64.wrapping_neg())),
        ("WARP_SZ-1", Operand::Integer(31)),
        ("-0d3FF0000000000000", Operand::Float(f64::to_bits(-1.0), 64)),
        ("1.0E+1", Operand::Float(f64::to_bits(10.0), 64)),
        ("[%x]", address(x.clone(), 0)),
        ("[%x+4]", address(x.clone(), 4)),
        ("[%x+-4]", address(x.clone(), -4)),
        ("[%x-(2*4)]", address(x.clone(), -8)),
        ("[4096]", address(Operand::Integer(4096), 0)),
        (
            "[m, {%x, _}]",
            address(Operand::List(vec![Operand::Name("m"), Operand::List(vec![x.clone(), Operand::Sink])]), 0),
        ),
        ("{%x, 1}", Operand::List(vec![x.clone(), Operand::Integer(1)])),
        ("%x|_", pair(x.clone(), Operand::Sink)),
        ("_", Operand::Sink),
    ];
    for (text, expected) in cases {
        assert_eq!(instruction(&format!("mov {text};")).operands, [expected], "{text}");
    }
}

#[test]
fn instructions_are_written_as_they_were_read() {
    for text in [
        "ret;",
        "@!%p1 bra.uni $L__BB0_1;",
        "ld.param.v2.u32 {%r1, _}, [k_param_0+8];",
        "setp.lt.s32 %p1|%p2, -4, %r1, !%p3;",
        "tex.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [t, {%r1, %r2}];",
        "call.uni (retval0), f, (param0, param1), prototype_0;",
        "mov.f32 %f1, 0f3F800000;",
        "mov.u64 %rd1, table+4;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];",
    ] {
        assert_eq!(instruction(text).to_string(), text);
    }
}

#[test]
fn statements_of_every_form() {
    let found = body(
        ".reg .v4 .f32 %v, %w<3>;\n.loc 1 7 3, function_name $L__info+5, inlined_at 1 2 3\n.pragma \"nounroll\";\n\
         { .param .b32 p; .local .align 8 .b8 d[16]; }\n\
         $L: .branchtargets $A, $B;\np: .callprototype (.param .b32 _) _ (.param .align 4 .b8 _[12], .param .b64 _);\n\
         q: .callprototype _ ();\n.extern .shared .b8 s[];\n$A:\nret;",
    );
    assert!(matches!(&found[0], Statement::Registers { ty: "f32", vector: 4, names, .. }
        if *names == [("%v", None), ("%w", Some(3))]));
    assert!(matches!(found[1], Statement::Location { file: 1, line: 7 }));
    assert!(matches!(&found[2], Statement::Block(inside) if inside.len() == 2));
    assert!(matches!(&found[3], Statement::Targets { name: "$L", targets, .. } if *targets == ["$A", "$B"]));
    assert!(matches!(&found[4], Statement::Prototype { returns, parameters, .. }
        if returns.len() == 1 && parameters[0].dimensions == [12]));
    assert!(matches!(&found[5], Statement::Prototype { returns, .. } if returns.is_empty()));
    assert!(matches!(&found[6], Statement::Variable(variable) if variable.linkage == Linkage::Extern));
    assert!(matches!(found[7], Statement::Label { name: "$A", at: Place { line: 13, column: 1 } }));
}

#[test]
fn debug_data_is_skipped() {
    let text = ".file 1 \"a.cu\", 12, 34\n.section .debug_str\n{\n$L: .b8 1,2\n.b32 .debug_abbrev+4\n{ } }\n\
                .section .note.x, \"a\" { .b64 $a-$b }\n.pragma \"x\", \"y\";\n.alias f, g;";
    let whole = format!("{HEAD}{text}");
    let found = parse(&whole, LIMITS).expect("it is well formed");
    assert_eq!(found.files, [(1, "a.cu")]);
    assert!(matches!(found.items.as_slice(), [Item::Alias { name: "f", of: "g", .. }]));
}

#[test]
fn malformed_text_is_refused_at_its_place() {
    let deep = |open: &str| open.repeat(100_000);
    let (blocks, sums, rows) = (deep("{"), deep("("), deep("{"));
    let (minus, lists, pairs) = (deep("-"), deep("{"), deep("a|"));
    let cases: Vec<(String, u32, u32, &str)> = vec![
        ("what".to_owned(), 4, 1, "unexpected 'what'"),
        (".entry k( {".to_owned(), 4, 11, "unexpected '{'"),
        (
            ".entry k() {\n  mov.u32 %r1 %r2;\n}".to_owned(),
            5,
            15,
            "';' is missing before '%r2'".replace(';', ",").leak(),
        ),
        (".entry k() {\n  mov.u32 %r1,".to_owned(), 5, 15, "the text ends too early"),
        (".entry k() {\n\tadd ;\n@ %p .x;}".to_owned(), 6, 6, "unexpected '.x'"),
        (".entry k() { ret;; }".to_owned(), 4, 18, "unexpected ';'"),
        (".entry k() { { ret; }; }".to_owned(), 4, 22, "unexpected ';'"),
        (".entry k() { ; ret; }".to_owned(), 4, 14, "unexpected ';'"),
        (".entry k() { .reg .b32 %r;; }".to_owned(), 4, 27, "unexpected ';'"),
        (".entry k() { .loc 1 2 3; ret; }".to_owned(), 4, 24, "unexpected ';'"),
        (".entry k() { ret; };".to_owned(), 4, 20, "unexpected ';'"),
        (".entry k() { .what; }".to_owned(), 4, 14, "unexpected '.what'"),
        (".entry k() { .reg .b32 %r<4294967296>; }".to_owned(), 4, 27, "4294967296 is too large"),
        (".entry k() .what { }".to_owned(), 4, 12, "unexpected '.what'"),
        (".global .align 3 .u32 a;".to_owned(), 4, 16, "3 is not an alignment"),
        (".global a;".to_owned(), 4, 9, "a type is missing"),
        (".global .u32 a[2][1] = {{1, 2}};".to_owned(), 4, 25, "a row has too many values"),
        (".global .u32 a = {1".to_owned(), 4, 20, "',' is missing before the end"),
        (".global .u32 a = 1 << ;".to_owned(), 4, 23, "unexpected ';'"),
        (".section .debug {".to_owned(), 4, 18, "the text ends too early"),
        (format!(".entry k() {{ {blocks}"), 4, 63, "more than 48 levels inside each other"),
        (format!(".global .u32 a = {sums}"), 4, 67, "more than 48 levels inside each other"),
        (format!(".global .u32 a = {rows}"), 4, 68, "more than 48 levels inside each other"),
        (format!(".global .u32 a[{minus}"), 4, 64, "more than 48 levels inside each other"),
        (format!(".entry k() {{ mov {lists}"), 4, 66, "more than 48 levels inside each other"),
        (format!(".entry k() {{ mov {pairs}"), 4, 114, "more than 48 levels inside each other"),
    ];
    for (text, line, column, what) in cases {
        let whole = format!("{HEAD}{text}");
        let refusal = parse(&whole, LIMITS).expect_err(&text[..text.len().min(60)]);
        let found = (refusal.place.line, refusal.place.column, refusal.text.as_str());
        assert_eq!(found, (line, column, what), "{}", &text[..text.len().min(60)]);
        assert_eq!(refusal.kind, RefusalKind::Invalid);
    }
}

#[test]
fn refusals_name_the_function_they_stand_in() {
    let whole = format!("{HEAD}.func f() {{ bar }}");
    assert_eq!(parse(&whole, LIMITS).expect_err("no semicolon").function, "f");
}
