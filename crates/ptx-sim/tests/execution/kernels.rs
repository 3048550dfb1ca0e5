//! What kernels compute, and how launches end.

use crate::support::{Ran, Setup, refusals, run_body, run_text, text, word, words};
use ptx_sim::{Fault, RefusalKind};

fn outcome(body: &str, n: u32, blocks: u32, threads: u32, seed: u64) -> Result<Vec<u8>, Fault> {
    let Ran { bytes, fault, .. } = run_body(body, Setup { n, blocks, threads, seed, ..Setup::default() });
    fault.map_or(Ok(bytes), Err)
}

const INDEX: &str = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;\
                     mul.wide.u32 %rd1, %r4, 4; add.s64 %rd2, %rd0, %rd1;";

#[test]
fn every_thread_of_every_block_runs_once_in_any_order() {
    let body = format!("{INDEX} atom.global.add.u32 %r5, [%rd2], 1; red.global.add.u32 [%rd0+512], 1; ret;");
    for seed in 0..20 {
        let memory = outcome(&body, 0, 3, 40, seed).expect("it runs");
        assert_eq!(words(&memory, 121), [vec![1; 120], vec![0]].concat());
        assert_eq!(words(&memory[512..], 1), [120]);
    }
    let claim = format!("{INDEX} atom.global.add.u32 %r5, [%rd0+512], 1; st.global.u32 [%rd2], %r5;");
    let orders: std::collections::BTreeSet<_> =
        (0..20).map(|seed| outcome(&claim, 0, 2, 8, seed)).map(|memory| words(&memory.expect("it runs"), 16)).collect();
    assert!(orders.len() > 3, "one order of threads for all seeds");
}

#[test]
fn loops_predicates_and_branches() {
    let sum = "mov.u32 %r1, 0; mov.u32 %r2, 0;\nagain: setp.ge.u32 %p1, %r2, %r0; @%p1 bra done;\n\
               add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1; bra.uni again;\ndone: st.global.u32 [%rd0], %r1;";
    assert_eq!(word(sum, 10), 45);
    let parity = "and.b32 %r1, %r0, 1; setp.eq.s32 %p1, %r1, 0; mov.u32 %r2, 7; @!%p1 mov.u32 %r2, 9;\
                  setp.lt.and.u32 %p2, %r0, 5, !%p1; selp.b32 %r3, 100, 0, %p2; add.u32 %r2, %r2, %r3;\
                  st.global.u32 [%rd0], %r2;";
    assert_eq!([0, 1, 6, 7].map(|n| word(parity, n)), [7, 109, 7, 9]);
}

#[test]
fn barriers_and_shared_memory() {
    let body = ".shared .align 4 .b8 tile[64]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, tile;\
                add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1; bar.sync 0; xor.b32 %r5, %r2, 4; add.u32 %r6, %r3, %r5;\
                ld.shared.u32 %r7, [%r6]; cvt.u64.u32 %rd1, %r2; add.s64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r7;";
    for seed in 0..5 {
        let memory = outcome(body, 0, 2, 8, seed).expect("it runs");
        assert_eq!(words(&memory, 8), [1, 0, 3, 2, 5, 4, 7, 6]);
    }
    let outside = "mov.u32 %r1, 4096; ld.shared.u32 %r2, [%r1];";
    assert_eq!(outcome(outside, 0, 1, 1, 0), Err(Fault::Address));
}

#[test]
fn conversions_round_and_clamp() {
    let to_s32 = |rounding: &str, bits: u32| {
        let body = format!("mov.b32 %f1, %r0; cvt.{rounding}.s32.f32 %r1, %f1; st.global.u32 [%rd0], %r1;");
        word(&body, bits).cast_signed()
    };
    let rounded = |value: f32| ["rni", "rzi", "rmi", "rpi"].map(|rounding| to_s32(rounding, value.to_bits()));
    assert_eq!(rounded(2.5), [2, 2, 2, 3]);
    assert_eq!(rounded(-2.5), [-2, -2, -3, -2]);
    assert_eq!(rounded(1e20), [i32::MAX; 4]);
    assert_eq!(rounded(f32::NAN), [0; 4]);
    let saturated = "cvt.sat.s8.s32 %r1, %r0; st.global.u32 [%rd0], %r1;";
    assert_eq!(word(saturated, 300), 127);
    assert_eq!(word(saturated, (-300_i32).cast_unsigned()).cast_signed(), -128);
    let single = |rounding: &str| {
        let body = format!("cvt.{rounding}.f32.u32 %f1, %r0; st.global.f32 [%rd0], %f1;");
        f32::from_bits(word(&body, 16_777_217))
    };
    assert_eq!([single("rn"), single("rz"), single("rp")], [16_777_216.0, 16_777_216.0, 16_777_218.0]);
}

#[test]
fn arithmetic_by_type() {
    let of = |instruction: &str, n: u32| word(&format!("{instruction} st.global.u32 [%rd0], %r1;"), n);
    assert_eq!(of("mul.hi.u32 %r1, %r0, 65536;", 0x1_0000 * 3), 3);
    assert_eq!(of("div.s32 %r1, %r0, 2;", (-7_i32).cast_unsigned()).cast_signed(), -3);
    assert_eq!(of("rem.s32 %r1, %r0, 2;", (-7_i32).cast_unsigned()).cast_signed(), -1);
    assert_eq!(of("shr.s32 %r1, %r0, 40;", 1 << 31), u32::MAX);
    assert_eq!(of("shr.u32 %r1, %r0, 40;", 1 << 31), 0);
    assert_eq!(of("min.s32 %r1, %r0, 1;", u32::MAX), u32::MAX);
    assert_eq!(of("min.u32 %r1, %r0, 1;", u32::MAX), 1);
    assert_eq!(of("popc.b32 %r1, %r0;", 0xF0F0), 8);
    assert_eq!(of("clz.b32 %r1, %r0;", 1), 31);
    let fused = "mov.b32 %f1, %r0; fma.rn.f32 %f2, %f1, 0f40000000, 0f3F800000; st.global.f32 [%rd0], %f2;";
    assert_eq!(f32::from_bits(word(fused, 1.5_f32.to_bits())), 4.0);
}

#[test]
fn sums_of_f32_in_global_memory_flush_what_is_subnormal() {
    // Half of the least normal number, and nearly that number.
    let (half, nearly) = (0x0040_0000, 0x007F_FFFF);
    let sum = |space: &str, address: &str, start: u32, added: u32| {
        let body = format!(
            ".shared .b32 tile; mov.u32 %r5, tile; cvt.u64.u32 %rd5, %r5; cvta.shared.u64 %rd4, %rd5;\n\
             mov.b32 %r1, {start}; st{space}.b32 [{address}], %r1; mov.b32 %f1, {added};\n\
             atom{space}.add.f32 %f2, [{address}], %f1; ld{space}.b32 %r2, [{address}]; st.global.b32 [%rd0], %r2;"
        );
        word(&body, 0)
    };
    for (space, address) in [(".global", "%rd0"), ("", "%rd0")] {
        assert_eq!(sum(space, address, 0, half), 0, "{space}");
        assert_eq!(sum(space, address, 0x8000_0000 | half, 0x8000_0000), 0x8000_0000, "{space}");
        assert_eq!(sum(space, address, 0x0080_0000, half), 0x0080_0000, "{space}");
        assert_eq!(sum(space, address, 0x00C0_0000, 0x8080_0000), 0, "{space}");
    }
    for (space, address) in [(".shared", "tile"), ("", "%rd4")] {
        assert_eq!(sum(space, address, 0, half), half, "{space}");
        assert_eq!(sum(space, address, 1, nearly), 0x0080_0000, "{space}");
    }
}

#[test]
fn one_result_of_a_packed_comparison_is_of_the_lower_half() {
    let lower = |ty: &str, n: u32| {
        let body = format!(
            "mov.b32 %r1, 0x3F803F80; setp.lt.{ty} %p1, %r0, %r1; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd0], %r2;"
        );
        word(&body, n)
    };
    for ty in ["f16x2", "bf16x2"] {
        assert_eq!([lower(ty, 0x3F00), lower(ty, 0x3F00_0000), lower(ty, 0x3F00_3F80)], [1, 1, 0], "{ty}");
        assert_eq!(lower(ty, 0x4000_3F00), 1, "{ty}");
    }
}

#[test]
fn addresses_of_constant_variables_are_constant_and_not_global() {
    let items = ".global .u32 g;\n.const .align 4 .b8 first[12];\n.const .u32 last;\n";
    let is_of = |address: &str, space: &str| {
        let body = format!(
            ".shared .b32 tile; mov.u32 %r5, tile; cvt.u64.u32 %rd5, %r5; cvta.shared.u64 %rd4, %rd5;\n{address}\n\
             isspacep.{space} %p1, %rd1; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd0], %r2;"
        );
        run_text(&text(items, &body), Setup::default()).words(1)[0]
    };
    for (address, wanted) in [
        ("cvta.const.u64 %rd1, first;", "const"),
        ("cvta.const.u64 %rd1, last+3;", "const"),
        ("cvta.const.u64 %rd1, last+4;", "global"),
        ("cvta.global.u64 %rd1, g;", "global"),
        ("mov.u64 %rd1, %rd0;", "global"),
        ("mov.u64 %rd1, %rd4;", "shared"),
    ] {
        for space in ["const", "global", "shared", "local"] {
            assert_eq!(is_of(address, space), u32::from(space == wanted), "{address} {space}");
        }
    }
    // Without constant variables nothing is.
    assert_eq!(word("isspacep.const %p1, %rd0; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd0], %r2;", 0), 0);
}

#[test]
fn what_goes_wrong_in_a_launch() {
    assert_eq!(outcome("again: bra again;", 0, 1, 1, 0), Err(Fault::Steps));
    assert_eq!(outcome("st.global.u32 [%rd0+2], %r0;", 0, 1, 1, 0), Err(Fault::Misaligned));
    assert_eq!(outcome("st.global.u32 [%rd0+65536], %r0;", 0, 1, 1, 0), Err(Fault::Address));
    let spin = "mov.u64 %rd1, %clock64;\nagain: mov.u64 %rd2, %clock64; sub.u64 %rd3, %rd2, %rd1; setp.lt.u64 %p1, %rd3, 100000000;\
                @%p1 bra again;";
    assert!(outcome(spin, 0, 1, 1, 0).is_ok(), "waiting for the clock takes few steps");
}

#[test]
fn what_is_refused_names_its_place() {
    let refused = |body: &str| refusals(body).into_iter().next().unwrap_or_else(|| panic!("{body} is not refused"));
    let unknown = refused("add.u32 %r1, %r0, 1;\n  frobnicate.u32 %r1, %r0;");
    assert_eq!((unknown.kind, unknown.place.line, unknown.place.column), (RefusalKind::Invalid, 10, 3));
    assert!(unknown.to_string().contains("frobnicate"), "{unknown}");
    for body in [
        "add.u32 %r1, %r0, 1",
        "add.u32 %r1, %rd0, 1;",
        "add.u32 %r1, %x, 1;",
        "bra nowhere;",
        "setp.lt.b32 %p1, %r0, 1;",
        "cvt.s32.f32 %r1, %f1;",
        "ld.param.u32 %r1, [m];",
        "add.u32 %r1, %r0;",
    ] {
        assert_eq!(refused(body).kind, RefusalKind::Invalid, "{body}");
    }
    for body in [
        "wgmma.fence.sync.aligned;",
        "mbarrier.arrive.shared.b64 %rd1, [%r1];",
        "tex.1d.v4.s32.s32 {%r1,%r2,%r3,%r4}, [t, {%r5}];",
    ] {
        let refusal = refused(body);
        assert_eq!(refusal.kind, RefusalKind::NotSupported, "{refusal}");
        assert_eq!(refusal.function, "k");
    }
    assert_eq!(
        refusals("wgmma.fence.sync.aligned; add.u32 %r1, %r0, 1;\n mbarrier.inval.b64 [%rd1];").len(),
        2,
        "all are told"
    );
}

#[test]
fn bytes_are_compared_by_their_distance() {
    let of = |form: &str, a: u32| {
        let body = format!(
            "mov.u32 %r1, 0x0A80FF05; mov.u32 %r2, 1000; vabsdiff4.{form} %r3, %r0, %r1, %r2; st.global.u32 [%rd0], %r3;"
        );
        word(&body, a)
    };
    assert_eq!(of("u32.u32.u32", 0x0B00_01FF), 0x0180_FEFA);
    assert_eq!(of("u32.s32.s32", 0x0B00_01FF), 0x0180_0206);
    assert_eq!(of("u32.u32.u32.add", 0x0B00_01FF), 1000 + 1 + 0x80 + 0xFE + 0xFA);
    assert_eq!(of("u32.s32.u32.add", 0x0B00_01FF), 1000 + 1 + 0x80 + 0xFE + 6);
}

#[test]
fn bfloats_and_bytes_convert_in_exact_registers() {
    let body = "{.reg.b8 b; .reg .b16 h; cvt.u16.u32 h, %r0; cvt.rzi.s8.bf16 b, h; cvt.s32.s8 %r1, b; cvt.rn.bf16.s8 h, b;\
                cvt.u32.u16 %r2, h; shl.b32 %r2, %r2, 8; xor.b32 %r1, %r1, %r2; st.global.u32 [%rd0], %r1;}";
    // -5.5 becomes -5, which is 0xC0A0.
    assert_eq!(word(body, 0xC0B0), (-5_i32).cast_unsigned() ^ 0xC0_A000);
    let wide = refusals("cvt.rzi.s8.bf16 %r1, %h1;");
    assert!(wide.iter().any(|refusal| refusal.kind == RefusalKind::Invalid), "{wide:?}");
}
