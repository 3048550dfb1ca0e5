//! What is read, what is refused, and what kernels compute.

use super::machine::{Fault, Grid, Memory, run};
use super::parse::Limits;
use super::{Kernel, Refusal, RefusalKind, parse};
use std::sync::Arc;

const LIMITS: Limits = Limits { version: 90, target: 90 };

fn read(body: &str) -> Result<Arc<Kernel>, Refusal> {
    let text = format!(
        ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u32 n)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .b16 %h<4>;\n\
         ld.param.u64 %rd0, [out]; ld.param.u32 %r0, [n];\n{body}\n}}\n"
    );
    Ok(parse(&text, LIMITS)?.remove(0))
}

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn set_condition(&mut self, handle: u64, value: u64) -> Result<(), Fault> {
        self.store(handle, 4, value)
    }

    fn load(&mut self, address: u64, bytes: u64) -> Result<u64, Fault> {
        let (start, count) = (usize::try_from(address).unwrap_or(usize::MAX), usize::try_from(bytes).expect("small"));
        let found = start.checked_add(count).and_then(|end| self.0.get(start..end)).ok_or(Fault::Address)?;
        Ok(found.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn store(&mut self, address: u64, bytes: u64, value: u64) -> Result<(), Fault> {
        let (start, count) = (usize::try_from(address).unwrap_or(usize::MAX), usize::try_from(bytes).expect("small"));
        let found = start.checked_add(count).and_then(|end| self.0.get_mut(start..end)).ok_or(Fault::Address)?;
        found.copy_from_slice(&value.to_le_bytes()[..count]);
        Ok(())
    }
}

/// Runs a body with its output at address 0.
fn outcome(body: &str, n: u32, blocks: u32, threads: u32, seed: u64) -> Result<Vec<u8>, Fault> {
    let kernel = read(body).expect("it is read");
    let mut parameters = vec![0; 8];
    parameters.extend(n.to_le_bytes());
    let mut memory = Bytes(vec![0; 1 << 12]);
    let grid = Grid {
        kernel: &kernel,
        blocks: [blocks, 1, 1],
        threads: [threads, 1, 1],
        dynamic_shared: 64,
        parameters: &parameters,
        thread_steps: 10_000,
        all_steps: 1 << 30,
        start_ns: 5,
        seed,
    };
    run(grid, &mut memory)?;
    Ok(memory.0)
}

fn words(bytes: &[u8], count: usize) -> Vec<u32> {
    bytes.chunks_exact(4).take(count).map(|word| u32::from_le_bytes(word.try_into().expect("four"))).collect()
}

/// One thread's word.
fn word(body: &str, n: u32) -> u32 {
    words(&outcome(body, n, 1, 1, 0).expect("it runs"), 1)[0]
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
fn what_goes_wrong_in_a_launch() {
    assert_eq!(outcome("again: bra again;", 0, 1, 1, 0), Err(Fault::Steps));
    assert_eq!(outcome("st.global.u32 [%rd0+2], %r0;", 0, 1, 1, 0), Err(Fault::Misaligned));
    assert_eq!(outcome("st.global.u32 [%rd0+65536], %r0;", 0, 1, 1, 0), Err(Fault::Address));
    let spin = "mov.u64 %rd1, %clock64;\nagain: mov.u64 %rd2, %clock64; sub.u64 %rd3, %rd2, %rd1; setp.lt.u64 %p1, %rd3, 100000000;\
                @%p1 bra again;";
    assert!(outcome(spin, 0, 1, 1, 0).is_ok(), "waiting for the clock takes few steps");
}

#[test]
fn what_is_refused_names_its_line() {
    let refused = |body: &str| read(body).map(|_| ()).expect_err("it is refused");
    let unknown = refused("add.u32 %r1, %r0, 1;\nfrobnicate.u32 %r1, %r0;");
    assert_eq!((unknown.kind, unknown.line), (RefusalKind::Invalid, 9));
    assert!(unknown.to_string().contains("'frobnicate'"), "{unknown}");
    for (body, text) in [
        ("add.u32 %r1, %r0, 1", "missing"),
        ("add.u32 %r1, %rd0, 1;", "wrong size"),
        ("add.u32 %r1, %x, 1;", "'%x' is unknown"),
        ("bra nowhere;", "'nowhere' is unknown"),
        ("setp.lt.b32 %p1, %r0, 1;", "wrong type"),
        ("cvt.s32.f32 %r1, %f1;", "rounding"),
        ("ld.param.u32 %r1, [m];", "no parameter"),
        ("add.u32 %r1, %r0;", "number of operands"),
    ] {
        let refusal = refused(body);
        assert!(refusal.kind == RefusalKind::Invalid && refusal.text.contains(text), "{body}: {refusal}");
    }
    for body in [
        "shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;",
        "bar.sync 1;",
        "add.rz.f32 %f1, %f1, %f1;",
        "call f, (%r0);",
        "{ .reg .b32 %r0; }",
        "{ .reg .b32 %x; { .reg .b32 %x; } }",
    ] {
        assert_eq!(refused(body).kind, RefusalKind::NotSimulated, "{body}");
    }
    let twice = format!(".version 7.8\n.target sm_75\n{}", ".visible .entry k() { ret; }\n".repeat(2));
    let twice = parse(&twice, LIMITS).expect_err("one name");
    assert_eq!((twice.kind, twice.line), (RefusalKind::Invalid, 4));
    let newer = parse(".version 99.0\n.target sm_75", LIMITS).expect_err("too new");
    assert_eq!(newer.kind, RefusalKind::NewerVersion);
    assert!(parse("", LIMITS).is_err() && parse(".version 7.8\n.target sm_999\n", LIMITS).is_err());
}

#[test]
fn conditions_are_set_by_a_call() {
    let head = ".version 7.8\n.target sm_75\n.address_size 64\n";
    let declared = ".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v)";
    let kernel = |body: &str| format!(".visible .entry k(.param .u64 out, .param .u32 n) {{ {body} }}");
    let nvcc = kernel(
        "{ .reg .b32 temp; .param .b64 p0; st.param.b64 [p0+0], 8; .param .b32 p1; st.param.b32 [p1], 7;\n\
         call.uni cudaGraphSetConditional, (p0, p1); }\n\
         { .param .b64 p0; st.param.b64 [p0], 16; .param .b32 p1; st.param.b32 [p1], 9;\n\
         call cudaGraphSetConditional, (p0, p1); } ret;",
    );
    let kernels = parse(&format!("{head}{declared}\n{nvcc}"), LIMITS).expect("as compilers write it");
    let mut memory = Bytes(vec![0; 32]);
    run(plain_grid(&kernels[0]), &mut memory).expect("it comes to an end");
    assert_eq!((memory.0[8], memory.0[16]), (7, 9));
    let refused = |declared: &str, body: &str| {
        parse(&format!("{head}{declared};\n{}", kernel(body)), LIMITS).map(|_| ()).expect_err("it is refused").kind
    };
    let call = "call cudaGraphSetConditional, (8, 1); ret;";
    assert_eq!(refused(".extern .shared .align 4 .b8 room[]", call), RefusalKind::Invalid, "not declared");
    assert_eq!(refused(&declared.replace("b32", "b64"), call), RefusalKind::Invalid, "declared otherwise");
    assert_eq!(refused(declared, "call cudaGraphSetConditional, (8);"), RefusalKind::Invalid);
    assert_eq!(refused(declared, ".reg .b32 %r; call cudaGraphSetConditional, (%r, 1);"), RefusalKind::Invalid);
    assert_eq!(refused(declared, ".param .b64 p; st.param.b32 [p], 1;"), RefusalKind::Invalid);
    assert_eq!(refused(declared, ".param .b64 p; st.param.b64 [p+8], 1;"), RefusalKind::Invalid);
    let deep = format!("{}ret;{}", "{".repeat(100_000), "}".repeat(100_000));
    assert_eq!(refused(declared, &deep), RefusalKind::NotSimulated);
}

fn plain_grid(kernel: &Kernel) -> Grid<'_> {
    Grid {
        kernel,
        blocks: [1; 3],
        threads: [1; 3],
        dynamic_shared: 0,
        parameters: &[0; 12],
        thread_steps: 100,
        all_steps: 100,
        start_ns: 0,
        seed: 0,
    }
}

#[test]
fn parameters_are_aligned() {
    let text = ".version 7.8\n.target sm_75\n.address_size 64\n.entry k(.param .u8 a, .param .u64 .ptr .global .align 16 b, .param .f32 c, .param .align 8 .b8 d[12]) { ret; }";
    let kernel = parse(text, LIMITS).expect("it is read").remove(0);
    let found: Vec<_> = kernel.parameters.iter().map(|parameter| (parameter.offset, parameter.size)).collect();
    assert_eq!(found, [(0, 1), (8, 8), (16, 4), (24, 12)]);
    assert_eq!(kernel.parameter_bytes(), 36);
}

/// Text with a few bytes changed, left out or doubled is read or refused, and runs to an end or a fault.
#[test]
fn damaged_text_does_no_harm() {
    let text = format!(
        ".version 7.8\n.target sm_75\n.address_size 64\n.extern .shared .align 16 .b8 room[];\n\
         .visible .entry k(.param .u64 out, .param .u32 n) .maxntid 8, 1, 1\n{{ .reg .pred %p<4>; .reg .b32 %r<9>;\n\
         .reg .b64 %rd<9>; .reg .f32 %f<4>; .shared .align 4 .b8 tile[64];\nld.param.u64 %rd0, [out];\n{INDEX}\n\
         again: setp.lt.and.u32 %p1, %r0, 0x10, !%p2; @%p1 bra again;\ncvt.rn.f32.s32 %f1, %r4; mov.u32 %r5, tile;\n\
         st.shared.v2.f32 [%r5+8], {{%f1, %f1}}; bar.sync 0; atom.global.add.u32 %r6, [%rd2], 1; ret; }}\n"
    );
    assert!(parse(&text, LIMITS).is_ok());
    let (mut random, mut read) = (7_u64, 0);
    let mut draw = |end: usize| {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        usize::try_from(random >> 33).expect("31 bits") % end
    };
    for _ in 0..20_000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=draw(3) {
            let (at, other) = (draw(bytes.len()), draw(bytes.len()));
            match draw(4) {
                0 => bytes[at] = bytes[other],
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, bytes[other]),
                _ => bytes[at] = b"0189<>[]{}.%,;:"[draw(15)],
            }
        }
        let Ok(kernels) = parse(&String::from_utf8_lossy(&bytes), LIMITS) else { continue };
        read += 1;
        for kernel in kernels {
            let grid = Grid {
                kernel: &kernel,
                blocks: [2, 1, 1],
                threads: [4, 1, 1],
                dynamic_shared: 16,
                parameters: &[0; 12],
                thread_steps: 100,
                all_steps: 1000,
                start_ns: 1,
                seed: 3,
            };
            // How it ends is not the question.
            let _ = run(grid, &mut Bytes(vec![0; 64]));
        }
    }
    assert!((100..20_000).contains(&read), "{read} of the texts were read");
}
