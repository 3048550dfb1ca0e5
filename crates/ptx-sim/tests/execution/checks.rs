//! What is found in kernels that are wrong, and that nothing is found in kernels that are right.

use crate::support::{Setup, run_body, run_text, text};
use ptx_sim::{Checks, Fault, Finding, FindingKind};

/// The address of the thread's word in `%rd2`, its index in `%r4`, its place in the block in `%r3`; its word of shared memory
/// in `%r9`, that of its neighbour in `%r10` and that of the same lane of the next warp in `%r11`.
const INDEX: &str = ".shared .align 16 .b8 tile[1024]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\
                     mad.lo.s32 %r4, %r1, %r2, %r3; mul.wide.u32 %rd1, %r4, 4; add.s64 %rd2, %rd0, %rd1; mov.u32 %r7, tile;\
                     shl.b32 %r8, %r3, 2; add.u32 %r9, %r7, %r8; xor.b32 %r10, %r8, 4; add.u32 %r10, %r7, %r10;\
                     xor.b32 %r11, %r8, 128; add.u32 %r11, %r7, %r11;";

fn findings(body: &str, blocks: u32, threads: u32, seed: u64) -> Vec<Finding> {
    let setup = Setup { blocks, threads, seed, checks: Checks::ALL, ..Setup::default() };
    let ran = run_body(&format!("{INDEX}\n{body}"), setup);
    assert_eq!(ran.fault, None, "{body}");
    ran.outcome.findings
}

/// The kind is found under every seed.
fn always(body: &str, blocks: u32, threads: u32, kind: FindingKind) {
    for seed in 0..10 {
        let found = findings(body, blocks, threads, seed);
        assert!(found.iter().any(|finding| finding.kind == kind), "seed {seed}: {found:?} in {body}");
    }
}

fn never(body: &str, blocks: u32, threads: u32) {
    for seed in 0..10 {
        assert_eq!(findings(body, blocks, threads, seed), [], "seed {seed}: {body}");
    }
}

#[test]
fn a_missing_barrier_is_a_race() {
    let body =
        |sync: &str| format!("st.shared.u32 [%r9], %r3; {sync} ld.shared.u32 %r6, [%r11]; st.global.u32 [%rd2], %r6;");
    always(&body(""), 1, 64, FindingKind::SharedRace);
    never(&body("bar.sync 0;"), 3, 64);
    always(&body("bar.warp.sync -1;"), 1, 64, FindingKind::SharedRace);
}

#[test]
fn a_missing_sync_of_a_warp_is_a_race() {
    let body =
        |sync: &str| format!("st.shared.u32 [%r9], %r3; {sync} ld.shared.u32 %r6, [%r10]; st.global.u32 [%rd2], %r6;");
    always(&body(""), 1, 32, FindingKind::SharedRace);
    never(&body("bar.warp.sync -1;"), 1, 32);
    never(&body("shfl.sync.bfly.b32 %r12, %r3, 1, 31, -1;"), 1, 32);
}

#[test]
fn bytes_of_a_word_are_not_each_others() {
    let body = |mask: u32| {
        format!("and.b32 %r12, %r3, {mask}; shl.b32 %r12, %r12, 1; add.u32 %r12, %r12, %r7; st.shared.u16 [%r12], %r3;")
    };
    never(&body(63), 1, 64);
    always(&body(62), 1, 64, FindingKind::SharedRace);
}

#[test]
fn a_finding_names_both_sides() {
    let found = findings("st.shared.u32 [%r9], %r3;\nbar.warp.sync -1;\nld.shared.u32 %r6, [%r11];", 1, 64, 0);
    let race = found.iter().find(|finding| finding.kind == FindingKind::SharedRace).expect("there is a race");
    let text = format!("{} at line {}", race.text, race.at.source.place.line);
    let reads =
        text.contains("reads what thread") && text.contains("wrote at line 10,") && text.ends_with("at line 12");
    let writes =
        text.contains("writes what thread") && text.contains("read at line 12,") && text.ends_with("at line 10");
    assert!(reads || writes, "{text}");
}

#[test]
fn memory_that_nobody_wrote_is_noted() {
    always("ld.shared.u32 %r6, [%r9]; st.global.u32 [%rd2], %r6;", 1, 32, FindingKind::UninitializedRead);
    let half = "mov.u16 %h1, 1; st.shared.u16 [%r9], %h1; bar.sync 0; ld.shared.u32 %r6, [%r9];";
    always(half, 1, 32, FindingKind::UninitializedRead);
    never("st.shared.u32 [%r9], %r3; ld.shared.u16 %h1, [%r9+2];", 1, 32);
}

#[test]
fn global_memory_that_nobody_wrote_is_noted() {
    let found = |body: &str, written: u8| {
        let setup =
            Setup { threads: 64, checks: Checks { uninitialized: true, ..Checks::default() }, ..Setup::default() };
        let ran = crate::support::run_tracked(&text("", &format!("{INDEX}\n{body}")), setup, written);
        assert_eq!(ran.fault, None, "{body}");
        ran.outcome.findings
    };
    for (body, wrong) in [
        ("ld.global.u32 %r6, [%rd2];", Some(0)),
        ("ld.u32 %r6, [%rd2];", Some(0)),
        ("st.global.u32 [%rd2], %r3; ld.global.u32 %r6, [%rd2];", None),
        ("st.global.u32 [%rd2], %r3; ld.global.u16 %h1, [%rd2+2];", None),
        ("setp.ne.u32 %p1, %r3, 5; @%p1 st.global.u32 [%rd2], %r3; ld.global.u32 %r6, [%rd2];", Some(5)),
        ("mov.u16 %h1, 1; st.global.u16 [%rd2], %h1; ld.global.u16 %h2, [%rd2]; ld.global.u8 %h2, [%rd2+1];", None),
        ("mov.u16 %h1, 1; st.global.u16 [%rd2], %h1; ld.global.u16 %h2, [%rd2+2];", Some(0)),
        ("red.global.add.u32 [%rd0], 1;", Some(0)),
        ("cp.async.ca.shared.global [%r9], [%rd2], 4; cp.async.wait_all;", Some(0)),
        ("cp.async.ca.shared.global [%r9], [%rd2], 4, 0; cp.async.wait_all;", None),
    ] {
        let threads: Vec<_> = found(body, 0).iter().map(|finding| (finding.kind, finding.at.thread)).collect();
        match wrong {
            None => assert_eq!(threads, [], "{body}"),
            Some(thread) => {
                assert!(threads[0].0 == FindingKind::UninitializedRead && threads.len() == 1, "{body}: {threads:?}");
                // Warps take turns in an order of their own.
                assert_eq!(threads[0].1 % 32, thread % 32, "{body}");
            }
        }
        assert_eq!(found(body, u8::MAX), [], "{body}");
    }
}

#[test]
fn blocks_race_in_global_memory() {
    always("st.global.u32 [%rd0], %r4;", 4, 1, FindingKind::GlobalRace);
    never("mov.u32 %r6, 0; st.global.u32 [%rd0], %r6;", 4, 32);
    never("red.global.add.u32 [%rd0], 1;", 4, 32);
    // A barrier of each block orders nothing between them.
    let barriers = "st.global.u32 [%rd2], %r4; bar.sync 0; xor.b32 %r6, %r1, 1; mul.wide.u32 %rd3, %r6, 128;\
                    add.s64 %rd4, %rd0, %rd3; ld.global.u32 %r12, [%rd4];";
    always(barriers, 2, 32, FindingKind::GlobalRace);
}

#[test]
fn what_is_handed_over_is_ordered() {
    // By a flag and fences between blocks.
    let flag = "setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT; st.global.u32 [%rd0+512], %r3; membar.gl;\
                atom.global.exch.b32 %r6, [%rd0+1024], 1; bra END;\nWAIT: ld.volatile.global.u32 %r6, [%rd0+1024];\
                setp.ne.u32 %p2, %r6, 1; @%p2 bra WAIT; membar.gl; ld.global.u32 %r12, [%rd0+512];\nEND:";
    never(flag, 2, 1);
    // By a lock.
    let lock = "LOCK: atom.global.cas.b32 %r6, [%rd0], 0, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra LOCK; membar.gl;\
                ld.global.u32 %r12, [%rd0+4]; add.u32 %r12, %r12, 1; st.global.u32 [%rd0+4], %r12; membar.gl;\
                atom.global.exch.b32 %r6, [%rd0], 0;";
    never(lock, 3, 40);
    // By a barrier of two warps.
    let named = "setp.lt.u32 %p1, %r3, 32; @%p1 bra PRODUCE; bar.sync 3, 64; ld.shared.u32 %r6, [%r11]; bra END;\n\
                 PRODUCE: st.shared.u32 [%r9], %r3; bar.arrive 3, 64;\nEND:";
    never(named, 2, 64);
    // By waiting for a copy.
    let copy = "cp.async.ca.shared.global [%r9], [%rd2], 4; cp.async.wait_all; bar.sync 0; ld.shared.u32 %r6, [%r11];";
    never(copy, 2, 64);
}

#[test]
fn order_is_handed_on_within_a_block() {
    // All threads of a block write, one of them lets the other block go on, and all of that read.
    let handed = |fence: &str| {
        format!(
            "setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT; st.global.u32 [%rd2+512], %r3; bar.sync 0; setp.ne.u32 %p2, %r3, 0;\
             @%p2 bra END; {fence} atom.global.exch.b32 %r6, [%rd0], 1; bra END;\nWAIT: setp.ne.u32 %p3, %r3, 0; @%p3 bra GO;\n\
             LOOK: ld.volatile.global.u32 %r6, [%rd0]; setp.ne.u32 %p4, %r6, 1; @%p4 bra LOOK; {fence}\nGO: bar.sync 0;\
             mul.wide.u32 %rd3, %r3, 4; add.s64 %rd4, %rd0, %rd3; ld.global.u32 %r12, [%rd4+512];\nEND:"
        )
    };
    never(&handed("membar.gl;"), 2, 64);
    always(&handed("membar.gl;").replacen("bar.sync 0;", "", 1), 2, 64, FindingKind::GlobalRace);
}

#[test]
fn bytes_of_a_word_are_told_apart() {
    let bytes = "cvt.u64.u32 %rd3, %r4; add.s64 %rd4, %rd0, %rd3; st.global.u8 [%rd4], %r3; ld.global.u8 %h1, [%rd4];";
    never(bytes, 2, 64);
    let halves = "shl.b32 %r6, %r4, 1; cvt.u64.u32 %rd3, %r6; add.s64 %rd4, %rd0, %rd3; mov.u16 %h1, %h0;\
                  add.u32 %r12, %r3, 1; cvt.u16.u32 %h2, %r12; st.global.u16 [%rd4+2], %h2; ld.global.u8 %h1, [%rd4+1];";
    always(halves, 1, 64, FindingKind::GlobalRace);
}

#[test]
fn loops_over_tiles_are_right() {
    let body = "mov.u32 %r12, 0; mov.u32 %r6, 0;\nLOOP: st.shared.u32 [%r9], %r12; bar.sync 0; ld.shared.u32 %r5, [%r11];\
                add.u32 %r6, %r6, %r5; bar.sync 0; add.u32 %r12, %r12, 1; setp.lt.u32 %p1, %r12, 5; @%p1 bra LOOP;\
                st.global.u32 [%rd2], %r6;";
    never(body, 2, 128);
    let wrong = body.replace("bar.sync 0; add.u32 %r12", "add.u32 %r12");
    always(&wrong, 1, 128, FindingKind::SharedRace);
}

#[test]
fn accesses_at_the_end_of_all_addresses_fail() {
    for checks in [Checks::default(), Checks::ALL] {
        let setup = Setup { threads: 32, checks, ..Setup::default() };
        for body in [
            "mov.u64 %rd1, -4; st.global.u32 [%rd1], %r0;",
            "mov.u64 %rd1, -16; ld.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];",
        ] {
            assert_eq!(run_body(body, setup).fault, Some(Fault::Address), "{body}");
        }
        let items = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
                     .global .align 1 .b8 format[4] = {37, 100, 10, 0};";
        let body = "mov.u64 %rd1, format; { .param .b64 f; st.param.b64 [f], %rd1; .param .b64 a; st.param.b64 [a], -1;\
                    .param .b32 r; call.uni (r), vprintf, (f, a); }";
        assert_eq!(run_text(&text(items, body), setup).fault, Some(Fault::Address));
    }
}

#[test]
fn frames_without_an_end_are_stopped_before_memory_is_full() {
    let items = ".func deep() { .reg .b64 %d<30000>; call deep; ret; }";
    assert_eq!(run_text(&text(items, "call deep;"), Setup::default()).fault, Some(Fault::Stack));
}
