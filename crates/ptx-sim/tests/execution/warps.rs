//! What the lanes of a warp, the warps of a block and the blocks of a grid do together.

use crate::support::{Setup, run_body, run_text, text};
use ptx_sim::{Fault, FindingKind};

/// The address of the thread's word in `%rd2`, its index in `%r4`, its lane in `%r5`.
const INDEX: &str = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;\
                     mul.wide.u32 %rd1, %r4, 4; add.s64 %rd2, %rd0, %rd1; mov.u32 %r5, %laneid;";

fn of_warp(body: &str, seed: u64) -> Vec<u32> {
    let body = format!("{INDEX}\n{body}\nst.global.u32 [%rd2], %r6;");
    run_body(&body, Setup { threads: 32, seed, ..Setup::default() }).words(32)
}

/// What every seed must give.
fn always(body: &str, expected: impl Fn(u32) -> u32) {
    for seed in 0..40 {
        assert_eq!(of_warp(body, seed), (0..32).map(&expected).collect::<Vec<_>>(), "seed {seed}: {body}");
    }
}

#[test]
fn shuffles() {
    always("shfl.sync.bfly.b32 %r6, %r5, 5, 31, -1;", |lane| lane ^ 5);
    always("shfl.sync.down.b32 %r6, %r5, 4, 31, -1;", |lane| if lane + 4 < 32 { lane + 4 } else { lane });
    always("shfl.sync.up.b32 %r6, %r5, 4, 0, -1;", |lane| if lane >= 4 { lane - 4 } else { lane });
    always("shfl.sync.idx.b32 %r6, %r5, 3, 31, -1;", |_| 3);
    // Segments of eight lanes.
    always("shfl.sync.idx.b32 %r6, %r5, 3, 0x181f, -1;", |lane| lane & !7 | 3);
    always(
        "shfl.sync.down.b32 %r6|%p1, %r5, 2, 0x181f, -1; selp.b32 %r7, 100, 0, %p1; add.u32 %r6, %r6, %r7;",
        |lane| {
            if lane % 8 + 2 < 8 { lane + 2 + 100 } else { lane }
        },
    );
}

#[test]
fn votes_and_matches() {
    always("and.b32 %r7, %r5, 1; setp.eq.u32 %p1, %r7, 0; vote.sync.ballot.b32 %r6, %p1, -1;", |_| 0x5555_5555);
    always("setp.lt.u32 %p1, %r5, 40; vote.sync.all.pred %p2, %p1, -1; selp.b32 %r6, 1, 0, %p2;", |_| 1);
    always("setp.lt.u32 %p1, %r5, 4; vote.sync.any.pred %p2, !%p1, -1; selp.b32 %r6, 1, 0, %p2;", |_| 1);
    always("and.b32 %r7, %r5, 3; match.any.sync.b32 %r6, %r7, -1;", |lane| 0x1111_1111 << (lane & 3));
    always("match.all.sync.b32 %r6|%p1, %r0, -1; selp.b32 %r6, %r6, 7, %p1;", |_| u32::MAX);
    always("redux.sync.add.s32 %r6, %r5, -1;", |_| 496);
    always("redux.sync.max.u32 %r6, %r5, -1;", |_| 31);
}

#[test]
fn lanes_that_part_meet_again() {
    // Both ways of a branch end at one place, where a shuffle needs all lanes.
    let body = "setp.lt.u32 %p1, %r5, 11; @%p1 bra LESS; mul.lo.u32 %r7, %r5, 3; bra JOIN;\n\
                LESS: add.u32 %r7, %r5, 50;\nJOIN: shfl.sync.bfly.b32 %r6, %r7, 1, 31, -1;";
    always(body, |lane| if lane ^ 1 < 11 { (lane ^ 1) + 50 } else { (lane ^ 1) * 3 });
    // Loops of different lengths.
    let body = "mov.u32 %r6, 0; mov.u32 %r7, 0;\nLOOP: add.u32 %r6, %r6, %r7; add.u32 %r7, %r7, 1;\
                setp.le.u32 %p1, %r7, %r5; @%p1 bra LOOP; bar.warp.sync -1;";
    always(body, |lane| lane * (lane + 1) / 2);
}

#[test]
fn members_at_several_places_do_one_instruction() {
    let body = "setp.lt.u32 %p1, %r5, 16; @%p1 bra LESS; add.u32 %r8, %r5, 100; shfl.sync.bfly.b32 %r6, %r8, 16, 31, -1; bra END;\n\
                LESS: add.u32 %r8, %r5, 200; shfl.sync.bfly.b32 %r6, %r8, 16, 31, -1;\nEND:";
    always(body, |lane| if lane < 16 { lane + 16 + 100 } else { lane - 16 + 200 });
    // Each half by itself.
    let body = "mov.u32 %r9, 0xffff; setp.lt.u32 %p1, %r5, 16; @%p1 bra LESS; shl.b32 %r9, %r9, 16;\n\
                LESS: redux.sync.add.u32 %r6, %r5, %r9;";
    always(body, |lane| if lane < 16 { 120 } else { 376 });
}

#[test]
fn a_missing_sync_shows_under_some_seed() {
    let body = |sync: &str| {
        format!(
            "{INDEX} .shared .align 4 .b8 tile[128]; mov.u32 %r7, tile; shl.b32 %r8, %r5, 2; add.u32 %r9, %r7, %r8;\
             st.shared.u32 [%r9], %r5; {sync} xor.b32 %r10, %r8, 4; add.u32 %r10, %r7, %r10; ld.shared.u32 %r6, [%r10];\
             st.global.u32 [%rd2], %r6;"
        )
    };
    let run = |sync: &str, seed| run_body(&body(sync), Setup { threads: 32, seed, ..Setup::default() }).words(32);
    let right: Vec<u32> = (0..32).map(|lane| lane ^ 1).collect();
    assert!((0..200).all(|seed| run("bar.warp.sync -1;", seed) == right));
    assert!((0..200).any(|seed| run("", seed) != right), "lanes always ran in step");
}

#[test]
fn spins_go_on() {
    // A lock that each lane of each warp takes.
    let lock = "LOCK: atom.global.cas.b32 %r6, [%rd0], 0, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra LOCK;\
                ld.volatile.global.u32 %r7, [%rd0+4]; add.u32 %r7, %r7, 1; st.volatile.global.u32 [%rd0+4], %r7;\
                membar.gl; atom.global.exch.b32 %r8, [%rd0], 0;";
    // Warp 0 waits for warp 1.
    let warps = "mov.u32 %r3, %tid.x; setp.lt.u32 %p1, %r3, 32; @%p1 bra WAIT; st.volatile.global.u32 [%rd0], 5; bra END;\n\
                 WAIT: ld.volatile.global.u32 %r6, [%rd0]; setp.ne.u32 %p2, %r6, 5; @%p2 bra WAIT;\nEND: red.global.add.u32 [%rd0+4], 1;";
    // Each block waits for the one before it.
    let blocks = "mov.u32 %r1, %ctaid.x;\nWAIT: ld.acquire.gpu.global.u32 %r6, [%rd0]; setp.ne.u32 %p2, %r6, %r1; @%p2 bra WAIT;\
                  add.u32 %r6, %r6, 1; st.release.gpu.global.u32 [%rd0], %r6;";
    for seed in 0..8 {
        let run =
            |body: &str, blocks, threads| run_body(body, Setup { blocks, threads, seed, ..Setup::default() }).words(2);
        assert_eq!(run(lock, 3, 64), [0, 192]);
        assert_eq!(run(warps, 1, 64), [5, 64]);
        assert_eq!(run(blocks, 100, 1)[0], 100);
    }
}

#[test]
fn all_blocks_of_a_cooperative_launch_meet() {
    let body = "red.global.add.u32 [%rd0], 1;\nWAIT: ld.acquire.gpu.global.u32 %r6, [%rd0]; setp.lt.u32 %p1, %r6, 60; @%p1 bra WAIT;\
                red.global.add.u32 [%rd0+4], 1;";
    let ran = run_body(body, Setup { blocks: 60, threads: 1, cooperative: true, ..Setup::default() });
    assert_eq!(ran.words(2), [60, 60]);
    let alone = run_body(body, Setup { blocks: 60, threads: 1, ..Setup::default() });
    assert_eq!(alone.fault, Some(Fault::Steps), "not all blocks run at once otherwise");
}

#[test]
fn barriers() {
    let counts = format!(
        "{INDEX} and.b32 %r7, %r3, 3; setp.eq.u32 %p1, %r7, 0; barrier.cta.red.popc.aligned.u32 %r6, 0, %p1;\
         st.global.u32 [%rd2], %r6;"
    );
    let any = format!(
        "{INDEX} setp.eq.u32 %p1, %r3, 70; bar.red.or.pred %p2, 1, %p1; bar.red.and.pred %p3, 2, !%p1; selp.b32 %r6, 1, 0, %p2;\
         selp.b32 %r7, 2, 0, %p3; add.u32 %r6, %r6, %r7; st.global.u32 [%rd2], %r6;"
    );
    // One warp produces for another, by a barrier of 64 threads that a third does not know.
    let named = format!(
        "{INDEX} shr.u32 %r7, %r3, 5; setp.eq.u32 %p1, %r7, 0; @%p1 bra PRODUCE; setp.eq.u32 %p2, %r7, 1; @%p2 bra CONSUME; ret;\n\
         PRODUCE: st.global.u32 [%rd2+512], %r3; bar.arrive 3, 64; ret;\n\
         CONSUME: bar.sync 3, 64; ld.global.u32 %r6, [%rd2+384]; st.global.u32 [%rd2], %r6;"
    );
    for seed in 0..10 {
        let run = |body: &str| run_body(body, Setup { threads: 96, seed, ..Setup::default() }).words(96);
        assert_eq!(run(&counts), [24; 96]);
        assert_eq!(run(&any), [1; 96]);
        assert_eq!(run(&named)[32..64], (0..32).collect::<Vec<_>>());
    }
}

#[test]
fn a_barrier_that_some_lanes_miss_is_noted() {
    let body = "mov.u32 %r3, %tid.x; setp.lt.u32 %p1, %r3, 16; @%p1 bra A; bar.sync 0; bra END;\nA: bar.sync 0;\nEND:";
    for seed in 0..5 {
        let ran = run_body(body, Setup { threads: 32, seed, ..Setup::default() });
        assert_eq!(ran.outcome.findings[0].kind, FindingKind::BarrierDivergence);
        assert_eq!(ran.fault, None, "hardware goes on");
    }
    let right =
        "mov.u32 %r3, %tid.x; setp.lt.u32 %p1, %r3, 16; @%p1 bra A; add.u32 %r3, %r3, 1;\nA: bar.sync 0; bar.sync 0;";
    for seed in 0..50 {
        let ran = run_body(right, Setup { threads: 70, seed, ..Setup::default() });
        assert!(ran.outcome.findings.is_empty() && ran.fault.is_none(), "seed {seed}: {ran:?}");
    }
    let hang =
        "mov.u32 %r3, %tid.x; setp.lt.u32 %p1, %r3, 32; @%p1 bra A; bar.sync 1, 64; bra END;\nA: bar.sync 2, 64;\nEND:";
    assert_eq!(run_body(hang, Setup { threads: 64, ..Setup::default() }).fault, Some(Fault::Hang));
}

const FUNCTIONS: &str = ".func (.param .b32 result) twice(.param .b32 a)\n{ .reg .b32 %r<4>; ld.param.b32 %r1, [a]; add.u32 %r2, %r1, %r1;\
     st.param.b32 [result], %r2; ret; }\n\
     .func (.param .b32 result) sum(.param .b32 n)\n{ .reg .b32 %r<6>; .reg .pred %p; ld.param.b32 %r1, [n]; setp.eq.u32 %p, %r1, 0;\
     mov.u32 %r3, 0; @%p bra END; sub.u32 %r2, %r1, 1; { .param .b32 a0; st.param.b32 [a0], %r2; .param .b32 r0;\
     call (r0), sum, (a0); ld.param.b32 %r4, [r0]; } add.u32 %r3, %r4, %r1;\nEND: st.param.b32 [result], %r3; ret; }\n\
     .global .align 8 .u64 table[2] = { twice, sum };";

#[test]
fn calls() {
    let body = "mov.u32 %r5, %laneid; mul.wide.u32 %rd1, %r5, 4; add.s64 %rd2, %rd0, %rd1; { .param .b32 a0; st.param.b32 [a0], %r5;\
                .param .b32 r0; call.uni (r0), sum, (a0); ld.param.b32 %r6, [r0]; }\
                { .param .b32 a0; st.param.b32 [a0], %r6; .param .b32 r0; call.uni (r0), twice, (a0); ld.param.b32 %r6, [r0]; }\
                st.global.u32 [%rd2], %r6;";
    for seed in 0..10 {
        let ran = run_text(&text(FUNCTIONS, body), Setup { threads: 32, seed, ..Setup::default() });
        assert_eq!(ran.words(32), (0..32).map(|lane| lane * (lane + 1)).collect::<Vec<_>>());
    }
}

#[test]
fn calls_of_addresses() {
    // Even lanes call one function of the table, odd lanes the other.
    let body = "mov.u32 %r5, %laneid; mul.wide.u32 %rd1, %r5, 4; add.s64 %rd2, %rd0, %rd1; and.b32 %r7, %r5, 1;\
                mul.wide.u32 %rd3, %r7, 8; mov.u64 %rd4, table; add.s64 %rd4, %rd4, %rd3; ld.global.u64 %rd5, [%rd4];\
                { .param .b32 a0; st.param.b32 [a0], %r5; .param .b32 r0; prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);\
                call (r0), %rd5, (a0), prototype_0; ld.param.b32 %r6, [r0]; } bar.warp.sync -1; st.global.u32 [%rd2], %r6;";
    for seed in 0..10 {
        let ran = run_text(&text(FUNCTIONS, body), Setup { threads: 32, seed, ..Setup::default() });
        let expected = |lane: u32| if lane.is_multiple_of(2) { lane * 2 } else { lane * (lane + 1) / 2 };
        assert_eq!(ran.words(32), (0..32).map(expected).collect::<Vec<_>>());
    }
    let nowhere = "mov.u64 %rd5, 77; prototype_0 : .callprototype _ (); call %rd5, prototype_0;";
    assert_eq!(run_text(&text(FUNCTIONS, nowhere), Setup::default()).fault, Some(Fault::Call));
}

#[test]
fn recursion_without_an_end_is_stopped() {
    let endless = ".func deep() { call deep; ret; }";
    let fault = run_text(&text(endless, "call deep;"), Setup::default()).fault;
    assert_eq!(fault, Some(Fault::Stack));
}

#[test]
fn printing() {
    let items = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
                 .global .align 1 .b8 format[16] = {108, 97, 110, 101, 32, 37, 100, 58, 32, 37, 46, 50, 102, 10, 0};";
    let body = ".local .align 8 .b8 depot[16]; .reg .b64 %SP; mov.u64 %SP, depot; cvta.local.u64 %rd6, %SP; mov.u32 %r5, %laneid;\
                st.local.u32 [%SP], %r5; cvt.rn.f64.u32 %fd1, %r5; mul.f64 %fd1, %fd1, 0d3FF8000000000000; st.local.f64 [%SP+8], %fd1;\
                mov.u64 %rd5, format; cvta.global.u64 %rd5, %rd5;\
                { .param .b64 p0; st.param.b64 [p0], %rd5; .param .b64 p1; st.param.b64 [p1], %rd6; .param .b32 r0;\
                call.uni (r0), vprintf, (p0, p1); ld.param.b32 %r6, [r0]; } st.global.u32 [%rd0], %r6;";
    let ran = run_text(&text(items, body), Setup { threads: 2, seed: 3, ..Setup::default() });
    let mut lines: Vec<&str> = ran.printed.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, ran.words(1)), (vec!["lane 0: 0.00", "lane 1: 1.50"], vec![2]));
}

#[test]
fn traps_and_assertions() {
    assert_eq!(run_body("trap;", Setup::default()).fault, Some(Fault::Trap));
    let items = ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n\
                 .global .align 1 .b8 text[4] = {120, 62, 49, 0};";
    let body = "mov.u64 %rd5, text; { .param .b64 p0; st.param.b64 [p0], %rd5; .param .b64 p1; st.param.b64 [p1], %rd5;\
                .param .b32 p2; st.param.b32 [p2], 12; .param .b64 p3; st.param.b64 [p3], %rd5; .param .b64 p4; st.param.b64 [p4], 1;\
                call.uni __assertfail, (p0, p1, p2, p3, p4); }";
    let ran = run_text(&text(items, body), Setup::default());
    assert_eq!(ran.fault, Some(Fault::Assert));
    assert_eq!(ran.printed, "x>1:12: x>1: block: [0,0,0], thread: [0,0,0] Assertion `x>1` failed.\n");
}

#[test]
fn copies_come_when_they_are_waited_for() {
    let body = |wait: &str| {
        format!(
            "{INDEX} .shared .align 16 .b8 tile[512]; mov.u32 %r7, tile; shl.b32 %r8, %r5, 2; add.u32 %r7, %r7, %r8;\
             add.u32 %r9, %r5, 7; st.global.u32 [%rd2+1024], %r9; cvta.to.global.u64 %rd3, %rd2;\
             cp.async.ca.shared.global [%r7], [%rd3+1024], 4; cp.async.commit_group; {wait} ld.shared.u32 %r6, [%r7];\
             st.global.u32 [%rd2], %r6;"
        )
    };
    let run = |wait: &str| run_body(&body(wait), Setup { threads: 32, ..Setup::default() }).words(32);
    assert_eq!(run("cp.async.wait_group 0;"), (7..39).collect::<Vec<_>>());
    assert_eq!(run("cp.async.wait_all;"), (7..39).collect::<Vec<_>>());
    assert_ne!(run("cp.async.wait_group 1;"), (7..39).collect::<Vec<_>>());
}

#[test]
fn a_launch_follows_from_its_seed() {
    let body = format!("{INDEX} atom.global.add.u32 %r6, [%rd0+4096], 1; st.global.u32 [%rd2], %r6;");
    for seed in 0..4 {
        let run = |wide| run_body(&body, Setup { blocks: 5, threads: 50, seed, wide, ..Setup::default() }).words(250);
        assert_eq!(run(true), run(true));
        assert_eq!(run(true), run(false));
    }
}

#[test]
fn matrices_are_loaded_transposed_and_multiplied() {
    // Shared memory holds 0, 1, 2 ... as f16 bits: row r, column c of matrix m is 64 m + 8 r + c.
    let fill = "shl.b32 %r7, %r5, 4; mov.u32 %r8, tile; add.u32 %r9, %r8, %r7; shl.b32 %r10, %r5, 3; cvt.u16.u32 %h1, %r10;\
                st.shared.u16 [%r9], %h1; add.u16 %h1, %h1, 1; st.shared.u16 [%r9+2], %h1; add.u16 %h1, %h1, 1; st.shared.u16 [%r9+4], %h1;\
                add.u16 %h1, %h1, 1; st.shared.u16 [%r9+6], %h1; add.u16 %h1, %h1, 1; st.shared.u16 [%r9+8], %h1; add.u16 %h1, %h1, 1;\
                st.shared.u16 [%r9+10], %h1; add.u16 %h1, %h1, 1; st.shared.u16 [%r9+12], %h1; add.u16 %h1, %h1, 1;\
                st.shared.u16 [%r9+14], %h1; bar.warp.sync -1;";
    let load = |form: &str| format!(".shared .align 16 .b8 tile[512];\n{fill}\n{form}");
    let pair = |low: u32, high: u32| low | high << 16;
    let plain = load("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r6, %r13}, [%r9];");
    always(&plain, |lane| pair(128 + lane / 4 * 8 + lane % 4 * 2, 129 + lane / 4 * 8 + lane % 4 * 2));
    let transposed = load("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r6}, [%r9];");
    always(&transposed, |lane| pair(lane % 4 * 16 + lane / 4, lane % 4 * 16 + 8 + lane / 4));
    let moved = load(
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r11}, [%r9]; movmatrix.sync.aligned.m8n8.trans.b16 %r6, %r11;",
    );
    always(&moved, |lane| pair(lane % 4 * 16 + lane / 4, lane % 4 * 16 + 8 + lane / 4));
    // All of A is 1 and all of B is 2: each sum is 16 * 2 + 5.
    let product = "mov.b32 %r7, 0x3C003C00; mov.b32 %r8, 0x40004000; mov.f32 %f1, 0f40A00000;\
                   mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r7, %r7, %r7, %r7}, {%r8, %r8},\
                   {%f1, %f1, %f1, %f1}; mov.b32 %r6, %f4;";
    always(product, |_| 37.0_f32.to_bits());
}
