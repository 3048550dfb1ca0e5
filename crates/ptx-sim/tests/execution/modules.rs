//! What functions, variables and texts make of each other when they run.

use crate::support::{LIMITS, Setup, run_module, run_text, text};
use ptx_sim::Module;

/// One thread's words of a kernel behind other items.
fn found(items: &str, body: &str, n: u32, count: usize) -> Vec<u32> {
    run_text(&text(items, body), Setup { n, ..Setup::default() }).words(count)
}

#[test]
fn texts_that_are_linked_call_each_other() {
    let kernel = text(
        ".extern .func (.param .b32 r) twice(.param .b32 a);\n.extern .global .align 4 .b8 words[];\n\
         .func (.param .b32 r) own(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.s32 %x, %x, 1;\n\
         st.param.b32 [r], %x; ret; }\n.visible .global .u32 offset = 100;",
        "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r0; call (r), twice, (a); ld.param.b32 %r1, [r]; }\n\
         { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call (r), own, (a); ld.param.b32 %r2, [r]; }\n\
         ld.global.u32 %r3, [words+4]; st.global.v2.u32 [%rd0], {%r2, %r3}; ret;",
    );
    let library = ".version 7.8\n.target sm_75\n.address_size 64\n.extern .global .align 4 .u32 offset;\n\
         .visible .global .align 4 .b8 words[8] = {1, 0, 0, 0, 9};\n\
         .func (.param .b32 r) own(.param .b32 a) { .reg .b32 %x; .reg .b32 %y; ld.param.b32 %x, [a];\n\
         shl.b32 %x, %x, 1; ld.global.u32 %y, [offset]; add.s32 %x, %x, %y; st.param.b32 [r], %x; ret; }\n\
         .visible .func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a];\n\
         { .param .b32 p; .param .b32 q; st.param.b32 [p], %x; call (q), own, (p); ld.param.b32 %x, [q]; }\n\
         st.param.b32 [r], %x; ret; }";
    for texts in [[kernel.as_str(), library], [library, kernel.as_str()]] {
        let module = Module::link(&texts, LIMITS).expect("it links");
        assert_eq!((module.version(), module.target()), (80, 80));
        assert_eq!(run_module(module, Setup { n: 5, ..Setup::default() }).words(2), [111, 9]);
    }
}

#[test]
fn registers_are_parameters_and_results() {
    let items = ".func (.reg .b32 %s, .reg .b64 %w) f(.reg .b32 %a, .param .b32 b) { .reg .b32 %b; .reg .pred %q;\n\
         ld.param.b32 %b, [b]; add.s32 %s, %a, %b; mul.wide.u32 %w, %a, %b; setp.gt.u32 %q, %a, 9; @%q ret;\n\
         add.s32 %s, %s, 1000; }";
    let body = "call (%r1, %rd1), f, (%r0, 3); st.global.u32 [%rd0], %r1; st.global.u64 [%rd0+8], %rd1; ret;";
    assert_eq!(found(items, body, 7, 3), [1010, 0, 21]);
    assert_eq!(found(items, body, 70, 3), [73, 0, 210]);
}

#[test]
fn tables_of_functions_are_called_by_each_lane() {
    let items = ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.s32 %x, %x, 5;\n\
         st.param.b32 [r], %x; ret; }\n.func (.param .b32 r) g(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a];\n\
         mul.lo.s32 %x, %x, 5; st.param.b32 [r], %x; ret; }\n.global .align 8 .u64 table[2] = {f, g};";
    let body = "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; mul.wide.u32 %rd1, %r2, 8; mov.u64 %rd2, table;\n\
         add.s64 %rd2, %rd2, %rd1; ld.global.u64 %rd3, [%rd2];\n\
         { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; P: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
         call (r), %rd3, (a), P; ld.param.b32 %r3, [r]; }\n\
         mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd0, %rd4; st.global.u32 [%rd4], %r3; ret;";
    let ran = run_text(&text(items, body), Setup { threads: 6, ..Setup::default() });
    assert_eq!(ran.words(6), [5, 5, 7, 15, 9, 25]);
}

#[test]
fn functions_call_themselves_with_memory_of_their_own() {
    let items = ".func (.param .b32 r) f(.param .b32 n) { .local .align 4 .b8 keep[4]; .reg .b32 %x<4>; .reg .pred %p;\n\
         ld.param.b32 %x0, [n]; st.local.u32 [keep], %x0; setp.lt.u32 %p, %x0, 2; mov.b32 %x1, 1; @%p bra DONE;\n\
         sub.s32 %x2, %x0, 1;\n{ .param .b32 a; .param .b32 q; st.param.b32 [a], %x2; call (q), f, (a); ld.param.b32 %x1, [q]; }\n\
         ld.local.u32 %x3, [keep]; mul.lo.s32 %x1, %x1, %x3;\nDONE: st.param.b32 [r], %x1; ret; }";
    let body = "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r0; call (r), f, (a); ld.param.b32 %r1, [r]; }\n\
         st.global.u32 [%rd0], %r1; ret;";
    assert_eq!([0, 5, 8].map(|n| found(items, body, n, 1)[0]), [1, 120, 40320]);
}

#[test]
fn indexed_branches_and_hidden_names() {
    let body = "T: .branchtargets A, B, C;\nbrx.idx %r0, T;\nA: mov.u32 %r1, 10; bra END;\nB: mov.u32 %r1, 20; bra END;\n\
         C: { .reg .b32 %r1; mov.u32 %r1, 7; END: add.u32 %r1, %r1, 1; bra OUT; }\nEND: bra.uni LAST;\n\
         OUT: mov.u32 %r1, 30;\nLAST: st.global.u32 [%rd0], %r1; ret;";
    assert_eq!([0, 1, 2].map(|n| found("", body, n, 1)[0]), [10, 20, 30]);
}

#[test]
fn constants_and_addresses_in_values_are_read() {
    let items = ".const .align 8 .f64 steps[2][2] = {{1.0, -2.5E+1}, {0d4000000000000000}};\n\
         .global .align 4 .b8 bytes[8] = {1, 2, 3, 4, 5};\n.global .u64 into = generic(bytes)+1;\n\
         .global .align 1 .u8 parts[8] = {0xFF(bytes), 0xFF00(bytes), 0xFF0000(bytes), 0xFF000000(bytes),\n\
         0xFF00000000(bytes), 0xFF0000000000(bytes), 0xFF000000000000(bytes), 0xFF00000000000000(bytes)};";
    let body = "ld.const.f64 %fd0, [steps+8]; cvt.rni.s32.f64 %r1, %fd0; ld.global.u64 %rd1, [into]; ld.u8 %r2, [%rd1+1];\n\
         mov.u64 %rd2, parts; mov.u64 %rd5, bytes; mov.u64 %rd3, 0; mov.u32 %r5, 0;\n\
         L: ld.global.u8 %rd4, [%rd2]; shl.b64 %rd4, %rd4, %r5; or.b64 %rd3, %rd3, %rd4; add.s64 %rd2, %rd2, 1;\n\
         add.u32 %r5, %r5, 8; setp.lt.u32 %p1, %r5, 64; @%p1 bra L; setp.eq.u64 %p2, %rd3, %rd5; selp.u32 %r3, 1, 0, %p2;\n\
         st.global.v2.u32 [%rd0], {%r1, %r2}; st.global.u32 [%rd0+8], %r3; ret;";
    assert_eq!(found(items, body, 0, 3), [25_u32.wrapping_neg(), 3, 1]);
}

#[test]
fn shared_memory_of_a_callee_is_apart_from_its_callers() {
    let items = ".shared .align 4 .u32 common;\n.func f() { .shared .align 4 .u32 mine; .reg .b32 %x;\n\
         mov.u32 %x, 50; st.shared.u32 [mine], %x; mov.u32 %x, 60; st.shared.u32 [common], %x; ret; }\n\
         .entry other() { .shared .b8 tile[40000]; .reg .b32 %x; mov.u32 %x, tile; ret; }";
    let body = ".shared .align 4 .u32 mine; mov.u32 %r1, 7; st.shared.u32 [mine], %r1; call f; ld.shared.u32 %r2, [mine];\n\
         ld.shared.u32 %r3, [common]; st.global.v2.u32 [%rd0], {%r2, %r3}; ret;";
    let text = text(items, body);
    let module = Module::read(&text, LIMITS).expect("it is well formed");
    assert_eq!(module.entry("k").map(|entry| entry.shared_bytes()), Some(12));
    assert_eq!(run_module(module, Setup::default()).words(2), [7, 60]);
}
