//! Kernels: what they compute, what a launch is refused for, order, and kernels in graphs.

use super::capture::GLOBAL;
use super::graph::{kind, launch, run};
use super::prelude::*;
use super::ptx::{INDEX, ONE, idle, kernel, pointers_to, with_directives};

cases!("kernel", CASES, Needs::CONTEXT;
    every_thread_runs, scale_floats, three_axes, loops_and_branches, predicates, integers, wide_integers, floats,
    roundings, saturations, not_numbers, bytes_and_halves, vectors, atomics, barrier, dynamic_shared_memory,
    pinned_memory, parameters_in_a_buffer, clock_goes_on,
    dimensions_are_checked, shared_memory_is_checked, threads_are_checked, parameters_are_needed, launch_ex,
    follows_a_copy, waits_for_the_gate, capture_is_replayed, exec_parameters, exec_update, node_parameters,
    node_made_by_hand, node_disabled, clone_and_child, first_interface,
);

cases!("kernel", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    nodes_of_no_function, launch_attributes, buffers_of_another_size,
);

fn floats_as_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn every_thread_runs(cu: &Cuda<'_>) -> CaseResult {
    let body = format!("{INDEX}add.u32 %r4, %r0, 7;\nst.global.u32 [%d1], %r4;\nend:");
    let found = cu.compute(&body, [10, 128], &[], 1000, 1100)?;
    let wanted: Vec<u32> = (0..1100).map(|index| if index < 1000 { index + 7 } else { 0 }).collect();
    same!(cu, found, wanted);
    Ok(())
}

fn scale_floats(cu: &Cuda<'_>) -> CaseResult {
    let body = format!(
        "{INDEX}ld.global.f32 %f0, [%d2];\nfma.rn.f32 %f1, %f0, 0f40200000, 0f3F800000;\nst.global.f32 [%d1], %f1;\nend:"
    );
    let input: Vec<f32> = (0_u16..300).map(f32::from).collect();
    let wanted: Vec<f32> = input.iter().map(|value| value * 2.5 + 1.0).collect();
    same!(cu, cu.compute(&body, [3, 128], &floats_as_bits(&input), 300, 300)?, floats_as_bits(&wanted));
    Ok(())
}

/// A grid of 2 by 3 by 2 blocks of 4 by 2 by 3 threads; each thread writes its coordinates to its own place.
fn three_axes(cu: &Cuda<'_>) -> CaseResult {
    let mut body = String::from("mov.u32 %r0, 0;\nmov.u32 %r9, 0;\n");
    for axis in ["z", "y", "x"] {
        body += &format!(
            "mov.u32 %r1, %ctaid.{axis};\nmov.u32 %r2, %ntid.{axis};\nmov.u32 %r3, %tid.{axis};\nmov.u32 %r4, %nctaid.{axis};\n\
             mad.lo.u32 %r5, %r1, %r2, %r3;\nmul.lo.u32 %r6, %r2, %r4;\nmad.lo.u32 %r0, %r0, %r6, %r5;\n\
             shl.b32 %r9, %r9, 8;\nor.b32 %r9, %r9, %r5;\n"
        );
    }
    body += "mul.wide.u32 %d0, %r0, 4;\nadd.s64 %d1, %o, %d0;\nst.global.u32 [%d1], %r9;";
    let (function, out, stream) = (cu.function(&kernel(&body))?, cu.filled(4 * 8 * 6 * 6, 0xFF)?, cu.stream()?);
    cu.launch(function, [[2, 3, 2], [4, 2, 3]], 0, stream, &[out, out, 0])?;
    let mut wanted = Vec::new();
    for z in 0..6 {
        for y in 0..6 {
            wanted.extend((0..8).map(|x| z << 16 | y << 8 | x));
        }
    }
    same!(cu, cu.read_words(out, 8 * 6 * 6)?, wanted);
    Ok(())
}

/// Steps of the Collatz sequence.
fn loops_and_branches(cu: &Cuda<'_>) -> CaseResult {
    let body = format!(
        "{INDEX}add.u32 %r4, %r0, 1;\nmov.u32 %r5, 0;\n\
         again:\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra done;\nand.b32 %r6, %r4, 1;\nsetp.eq.u32 %p2, %r6, 0;\n\
         @%p2 bra half;\nmad.lo.u32 %r4, %r4, 3, 1;\nbra.uni next;\n\
         half:\nshr.u32 %r4, %r4, 1;\nnext:\nadd.u32 %r5, %r5, 1;\nbra again;\n\
         done:\nst.global.u32 [%d1], %r5;\nend:"
    );
    let steps = |mut number: u32| {
        let mut steps = 0;
        while number != 1 {
            number = if number.is_multiple_of(2) { number / 2 } else { 3 * number + 1 };
            steps += 1;
        }
        steps
    };
    same!(cu, cu.compute(&body, [2, 32], &[], 50, 50)?, (1..=50).map(steps).collect::<Vec<u32>>());
    Ok(())
}

fn predicates(cu: &Cuda<'_>) -> CaseResult {
    let body = format!(
        "{INDEX}setp.lt.u32 %p1, %r0, 8;\nsetp.ge.and.u32 %p2, %r0, 4, %p1;\nsetp.eq.or.u32 %p3, %r0, 12, %p2;\n\
         selp.u32 %r4, 1, 0, %p3;\n@!%p1 add.u32 %r4, %r4, 10;\nnot.pred %p1, %p1;\nxor.pred %p2, %p1, %p3;\n\
         @%p2 add.u32 %r4, %r4, 100;\nst.global.u32 [%d1], %r4;\nend:"
    );
    let wanted = (0..16).map(|index: u32| {
        let (below, third) = (index < 8, index == 12 || (4..8).contains(&index));
        u32::from(third) + if below { 0 } else { 10 } + if below == third { 100 } else { 0 }
    });
    same!(cu, cu.compute(&body, [1, 16], &[], 16, 16)?, wanted.collect::<Vec<_>>());
    Ok(())
}

/// What one thread makes of two words, by instruction.
fn of_two(cu: &Cuda<'_>, instruction: &str, a: u32, b: u32) -> CaseResult<u32> {
    let body = format!("ld.global.u32 %r0, [%i];\nld.global.u32 %r1, [%i+4];\n{instruction}\nst.global.u32 [%o], %r2;");
    Ok(cu.compute(&body, [1, 1], &[a, b], 0, 1)?[0])
}

fn integers(cu: &Cuda<'_>) -> CaseResult {
    let minus = |value: u32| value.wrapping_neg();
    for (instruction, a, b, wanted) in [
        ("add.u32 %r2, %r0, %r1;", u32::MAX, 2, 1),
        ("sub.s32 %r2, %r0, %r1;", 3, 5, minus(2)),
        ("mul.lo.u32 %r2, %r0, %r1;", 0x1_0001, 0x1_0001, 0x2_0001),
        ("mul.hi.u32 %r2, %r0, %r1;", u32::MAX, u32::MAX, u32::MAX - 1),
        ("mul.hi.s32 %r2, %r0, %r1;", minus(1), 5, minus(1)),
        ("div.s32 %r2, %r0, %r1;", minus(7), 2, minus(3)),
        ("div.u32 %r2, %r0, %r1;", minus(7), 2, (u32::MAX - 6) / 2),
        ("rem.s32 %r2, %r0, %r1;", minus(7), 4, minus(3)),
        ("rem.u32 %r2, %r0, %r1;", 17, 5, 2),
        ("min.s32 %r2, %r0, %r1;", minus(1), 1, minus(1)),
        ("max.u32 %r2, %r0, %r1;", minus(1), 1, minus(1)),
        ("abs.s32 %r2, %r0;", minus(9), 0, 9),
        ("neg.s32 %r2, %r0;", 9, 0, minus(9)),
        ("not.b32 %r2, %r0;", 0xF0F0_0000, 0, 0x0F0F_FFFF),
        ("xor.b32 %r2, %r0, %r1;", 0xFF00, 0x0FF0, 0xF0F0),
        ("shl.b32 %r2, %r0, %r1;", 1, 31, 1 << 31),
        ("shl.b32 %r2, %r0, %r1;", 1, 32, 0),
        ("shr.u32 %r2, %r0, %r1;", 1 << 31, 40, 0),
        ("shr.s32 %r2, %r0, %r1;", 1 << 31, 40, u32::MAX),
        ("mad.lo.s32 %r2, %r0, %r1, %r1;", minus(3), 5, minus(10)),
        ("popc.b32 %r2, %r0;", 0xF00F, 0, 8),
        ("clz.b32 %r2, %r0;", 0xFF, 0, 24),
    ] {
        let found = of_two(cu, instruction, a, b)?;
        same!(cu, (instruction, found), (instruction, wanted));
    }
    Ok(())
}

fn wide_integers(cu: &Cuda<'_>) -> CaseResult {
    let body = "ld.global.u32 %r0, [%i];\nmul.wide.s32 %d0, %r0, -3;\nst.global.u64 [%o], %d0;\n\
                mul.wide.u32 %d1, %r0, %r0;\nadd.u64 %d1, %d1, 1;\nst.global.u64 [%o+8], %d1;\n\
                mul.hi.u64 %d2, %d1, %d1;\nst.global.u64 [%o+16], %d2;\nmad.wide.s32 %d3, %r0, %r0, %d0;\n\
                st.global.u64 [%o+24], %d3;";
    let found = cu.compute(body, [1, 1], &[0xFFFF_FFFE], 0, 8)?;
    let whole: Vec<u64> = found.chunks_exact(2).map(|pair| u64::from(pair[1]) << 32 | u64::from(pair[0])).collect();
    let square = 0xFFFF_FFFE_u64 * 0xFFFF_FFFE + 1;
    let high = ((u128::from(square) * u128::from(square)) >> 64).try_into().unwrap_or(0);
    same!(cu, whole, [6, square, high, 10]);
    Ok(())
}

fn floats(cu: &Cuda<'_>) -> CaseResult {
    for (instruction, a, b, wanted) in [
        ("add.f32 %f2, %f0, %f1;", 0.1_f32, 0.2_f32, 0.1_f32 + 0.2),
        ("sub.rn.f32 %f2, %f0, %f1;", 1.0, 1e-8, 1.0),
        ("mul.f32 %f2, %f0, %f1;", 1e20, 1e20, f32::INFINITY),
        ("div.rn.f32 %f2, %f0, %f1;", 1.0, 3.0, 1.0 / 3.0),
        ("sqrt.rn.f32 %f2, %f0;", 2.0, 0.0, 2.0_f32.sqrt()),
        ("fma.rn.f32 %f2, %f0, %f1, 0fBF800000;", 1.000_000_1, 1.000_000_1, 1.000_000_1_f32.mul_add(1.000_000_1, -1.0)),
        ("min.f32 %f2, %f0, %f1;", -0.0, 0.0, -0.0),
        ("max.f32 %f2, %f0, %f1;", f32::NAN, -5.0, -5.0),
        ("abs.f32 %f2, %f0;", -5.5, 0.0, 5.5),
        ("neg.f32 %f2, %f0;", 5.5, 0.0, -5.5),
        ("mul.ftz.f32 %f2, %f0, %f1;", 1e-30, 1e-10, 0.0),
        ("mul.f32 %f2, %f0, %f1;", 1e-30, 1e-10, 1e-30_f32 * 1e-10),
        ("add.sat.f32 %f2, %f0, %f1;", 0.7, 0.7, 1.0),
    ] {
        let whole = format!("mov.b32 %f0, %r0;\nmov.b32 %f1, %r1;\n{instruction}\nmov.b32 %r2, %f2;");
        let found = of_two(cu, &whole, a.to_bits(), b.to_bits())?;
        same!(cu, (instruction, found), (instruction, wanted.to_bits()));
    }
    let body = "ld.global.f64 %g0, [%i];\ndiv.rn.f64 %g1, %g0, 0d4008000000000000;\nst.global.f64 [%o], %g1;";
    let bits = 1.0_f64.to_bits();
    let halves = |bits: u64| [bits & 0xFFFF_FFFF, bits >> 32].map(|half| u32::try_from(half).unwrap_or(0));
    same!(cu, cu.compute(body, [1, 1], &halves(bits), 0, 2)?, halves((1.0_f64 / 3.0).to_bits()));
    Ok(())
}

fn converted(cu: &Cuda<'_>, instruction: &str, a: u32) -> CaseResult<u32> {
    of_two(cu, &format!("mov.b32 %f0, %r0;\n{instruction}"), a, 0)
}

fn roundings(cu: &Cuda<'_>) -> CaseResult {
    for (value, wanted) in [(2.5_f32, [2, 2, 2, 3]), (-2.5, [-2, -2, -3, -2]), (3.5, [4, 3, 3, 4]), (0.3, [0, 0, 0, 1])]
    {
        for (rounding, wanted) in ["rni", "rzi", "rmi", "rpi"].into_iter().zip(wanted) {
            let found = converted(cu, &format!("cvt.{rounding}.s32.f32 %r2, %f0;"), value.to_bits())?;
            same!(cu, (rounding, value.to_bits(), found.cast_signed()), (rounding, value.to_bits(), wanted));
        }
    }
    for (rounding, wanted) in [("rn", 16_777_216.0_f32), ("rz", 16_777_216.0), ("rp", 16_777_218.0)] {
        let found = of_two(cu, &format!("cvt.{rounding}.f32.u32 %f2, %r0;\nmov.b32 %r2, %f2;"), 16_777_217, 0)?;
        same!(cu, (rounding, found), (rounding, wanted.to_bits()));
    }
    let whole = converted(cu, "cvt.rni.f32.f32 %f2, %f0;\nmov.b32 %r2, %f2;", (-2.5_f32).to_bits())?;
    same!(cu, whole, (-2.0_f32).to_bits());
    let narrowed =
        "cvt.f64.f32 %g0, %f0;\nadd.f64 %g1, %g0, 0d3E30000000000000;\ncvt.rp.f32.f64 %f2, %g1;\nmov.b32 %r2, %f2;";
    same!(cu, converted(cu, narrowed, 1.0_f32.to_bits())?, 1.0_f32.next_up().to_bits());
    Ok(())
}

fn saturations(cu: &Cuda<'_>) -> CaseResult {
    for (instruction, value, wanted) in [
        ("cvt.rzi.s32.f32 %r2, %f0;", 1e20_f32.to_bits(), i32::MAX.cast_unsigned()),
        ("cvt.rzi.s32.f32 %r2, %f0;", (-1e20_f32).to_bits(), i32::MIN.cast_unsigned()),
        ("cvt.rzi.u32.f32 %r2, %f0;", (-1.0_f32).to_bits(), 0),
        ("cvt.rzi.u32.f32 %r2, %f0;", f32::INFINITY.to_bits(), u32::MAX),
        ("cvt.sat.s8.s32 %r2, %r0;", 300, 127),
        ("cvt.sat.u8.s32 %r2, %r0;", (-3_i32).cast_unsigned(), 0),
        ("cvt.u8.u32 %r2, %r0;", 300, 44),
        ("cvt.s16.s32 %r2, %r0;", 0x8001, 0xFFFF_8001),
        ("cvt.sat.f32.f32 %f2, %f0;\nmov.b32 %r2, %f2;", 7.0_f32.to_bits(), 1.0_f32.to_bits()),
    ] {
        same!(cu, (instruction, converted(cu, instruction, value)?), (instruction, wanted));
    }
    Ok(())
}

fn not_numbers(cu: &Cuda<'_>) -> CaseResult {
    for (comparison, ordered, with_nan) in [
        ("eq", 0, 0),
        ("ne", 1, 0),
        ("lt", 1, 0),
        ("equ", 0, 1),
        ("neu", 1, 1),
        ("ltu", 1, 1),
        ("num", 1, 0),
        ("nan", 0, 1),
    ] {
        let body = format!(
            "mov.b32 %f0, %r0;\nmov.b32 %f1, %r1;\nsetp.{comparison}.f32 %p1, %f0, %f1;\nselp.u32 %r2, 1, 0, %p1;"
        );
        let found = [1.0, f32::NAN].map(|first: f32| of_two(cu, &body, first.to_bits(), 2.0_f32.to_bits()));
        let [first, second] = found;
        same!(cu, (comparison, first?, second?), (comparison, ordered, with_nan));
    }
    same!(cu, converted(cu, "cvt.rzi.s32.f32 %r2, %f0;", f32::NAN.to_bits())?, 0);
    let sum = of_two(cu, "mov.b32 %f0, %r0;\nadd.f32 %f2, %f0, %f0;\nmov.b32 %r2, %f2;", 0x7FC0_1234, 0)?;
    same!(cu, sum, 0x7FFF_FFFF);
    Ok(())
}

fn bytes_and_halves(cu: &Cuda<'_>) -> CaseResult {
    let body = "ld.global.s8 %r0, [%i];\nst.global.u32 [%o], %r0;\nld.global.u8 %r1, [%i+1];\nst.global.u32 [%o+4], %r1;\n\
                ld.global.s16 %r2, [%i+2];\nst.global.u32 [%o+8], %r2;\nld.global.u16 %h0, [%i+2];\n\
                cvt.u32.u16 %r3, %h0;\nst.global.u8 [%o+12], %r3;\nst.global.u16 [%o+14], %h0;";
    let found = cu.compute(body, [1, 1], &[0x8001_F0FE], 0, 4)?;
    same!(cu, found, [0xFFFF_FFFE, 0xF0, 0xFFFF_8001, 0x8001_0001]);
    Ok(())
}

fn vectors(cu: &Cuda<'_>) -> CaseResult {
    let body = "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%i];\nst.global.v2.u32 [%o], {%r3, %r2};\n\
                st.global.v2.u32 [%o+8], {%r1, %r0};";
    same!(cu, cu.compute(body, [1, 1], &[1, 2, 3, 4], 0, 4)?, [4, 3, 2, 1]);
    Ok(())
}

fn atomics(cu: &Cuda<'_>) -> CaseResult {
    let body = format!(
        "{INDEX}red.global.add.u32 [%o], 1;\natom.global.add.u32 %r4, [%o+4], %r0;\nred.global.max.u32 [%o+8], %r0;\n\
         red.global.or.b32 [%o+12], %r0;\natom.global.inc.u32 %r5, [%o+16], 9;\nadd.u64 %d3, %o, 20;\n\
         again:\nld.global.u32 %r6, [%d3];\nadd.u32 %r7, %r6, 2;\natom.global.cas.b32 %r8, [%d3], %r6, %r7;\n\
         setp.ne.u32 %p1, %r8, %r6;\n@%p1 bra again;\nred.global.add.f32 [%o+24], 0f3F000000;\nend:"
    );
    let found = cu.compute(&body, [8, 64], &[], 500, 7)?;
    same!(cu, found, [500, 499 * 500 / 2, 499, 511, 0, 1000, 250.0_f32.to_bits()]);
    Ok(())
}

fn barrier(cu: &Cuda<'_>) -> CaseResult {
    // Each block turns its part round by way of shared memory.
    let body = format!(
        ".shared .align 4 .b8 tile[256];\n{INDEX}ld.global.u32 %r4, [%d2];\nmov.u32 %r5, tile;\nshl.b32 %r6, %r3, 2;\n\
         add.u32 %r7, %r5, %r6;\nst.shared.u32 [%r7], %r4;\nbar.sync 0;\nsub.u32 %r8, 252, %r6;\nadd.u32 %r9, %r5, %r8;\n\
         ld.shared.u32 %r10, [%r9];\nst.global.u32 [%d1], %r10;\nend:"
    );
    let input: Vec<u32> = (0..192).collect();
    let wanted: Vec<u32> = input.chunks(64).flat_map(|part| part.iter().rev().copied()).collect();
    same!(cu, cu.compute(&body, [3, 64], &input, 192, 192)?, wanted);
    Ok(())
}

fn dynamic_shared_memory(cu: &Cuda<'_>) -> CaseResult {
    let text = kernel(
        "mov.u32 %r0, %tid.x;\nshl.b32 %r1, %r0, 2;\nmov.u32 %r2, room;\nadd.u32 %r3, %r2, %r1;\nst.shared.u32 [%r3], %r0;\n\
         bar.sync 0;\nxor.b32 %r4, %r1, 4;\nadd.u32 %r5, %r2, %r4;\nld.shared.u32 %r6, [%r5];\ncvt.u64.u32 %d0, %r1;\n\
         add.s64 %d1, %o, %d0;\nst.global.u32 [%d1], %r6;",
    );
    let text = text.replace(".visible", ".extern .shared .align 16 .b8 room[];\n.visible");
    let (function, out, stream) = (cu.function(&text)?, cu.filled(32, 0)?, cu.stream()?);
    cu.launch(function, [ONE, [8, 1, 1]], 32, stream, &[out, out, 0])?;
    same!(cu, cu.read_words(out, 8)?, [1, 0, 3, 2, 5, 4, 7, 6]);
    Ok(())
}

fn pinned_memory(cu: &Cuda<'_>) -> CaseResult {
    let body = "ld.global.u32 %r0, [%i];\nadd.u32 %r1, %r0, %n;\nst.global.u32 [%o], %r1;";
    let (function, pinned, stream) = (cu.function(&kernel(body))?, cu.pinned(64)?, cu.stream()?);
    pinned.fill(1);
    cu.launch(function, [ONE, ONE], 0, stream, &[pinned.device() + 32, pinned.device(), 1])?;
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, pinned.read()[28..40].to_vec(), [1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1]);
    Ok(())
}

/// Bytes of the parameters of [`kernel`], which end with the last of them: what would fill up a structure does not count.
const PARAMETER_BYTES: usize = 20;

/// The `extra` array of a launch: a buffer of parameters, and its size.
fn in_buffer(buffer: &mut [u64; 3], size: &mut usize) -> [*mut c_void; 5] {
    let word = |value| ptr::without_provenance_mut(value);
    [word(1), ptr::from_mut(buffer).cast(), word(2), ptr::from_mut(size).cast(), word(0)]
}

fn parameters_in_a_buffer(cu: &Cuda<'_>) -> CaseResult {
    let (function, out, stream) = (cu.function(&kernel("st.global.u32 [%o], %n;"))?, cu.filled(8, 0)?, cu.stream()?);
    let (mut buffer, mut size, none) = ([out, 0, 77], PARAMETER_BYTES, ptr::null_mut());
    let mut extra = in_buffer(&mut buffer, &mut size);
    ok!(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, extra.as_mut_ptr()));
    same!(cu, cu.read_words(out, 1)?, [77]);
    // What `sizeof` says of a structure of these parameters.
    let (mut buffer, mut size) = ([out, 0, 78], PARAMETER_BYTES + 4);
    let mut extra = in_buffer(&mut buffer, &mut size);
    want!(LAUNCH_OUT_OF_RESOURCES, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, extra.as_mut_ptr()));
    same!(cu, cu.read_words(out, 1)?, [77]);
    Ok(())
}

fn clock_goes_on(cu: &Cuda<'_>) -> CaseResult {
    let body = "mov.u64 %d0, %clock64;\nagain:\nmov.u64 %d1, %clock64;\nsub.u64 %d2, %d1, %d0;\n\
                setp.lt.u64 %p0, %d2, 1000000;\n@%p0 bra again;\nst.global.u64 [%o], %d2;";
    let found = cu.compute(body, [1, 1], &[], 0, 2)?;
    that!(cu, found[1] == 0 && found[0] >= 1_000_000);
    Ok(())
}

fn dimensions_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let (function, none, extra) = (cu.function(&idle())?, ptr::null_mut(), ptr::null_mut());
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, DEFAULT, none, extra));
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 1, 1, 1, 1, 0, 1, 0, DEFAULT, none, extra));
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, DEFAULT, none, extra));
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 1, 1, 1, 64, 64, 1, 0, DEFAULT, none, extra));
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 1, 70_000, 1, 1, 1, 1, 0, DEFAULT, none, extra));
    want!(SUCCESS, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none, extra));
    Ok(())
}

fn shared_memory_is_checked(cu: &Cuda<'_>) -> CaseResult {
    let (function, none, extra) = (cu.function(&idle())?, ptr::null_mut(), ptr::null_mut());
    let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    want!(SUCCESS, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 49_152, DEFAULT, none, extra));
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 60_000, DEFAULT, none, extra));
    ok!(cu.cuFuncSetAttribute(function, limit, 60_000));
    want!(SUCCESS, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 60_000, DEFAULT, none, extra));
    Ok(())
}

fn threads_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let function = cu.function(&with_directives(".maxntid 32, 1, 1\n", ""))?;
    let mut values = pointers_to(&[0, 0, 0]);
    let (values, extra) = (values.as_mut_ptr(), ptr::null_mut());
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, DEFAULT, values, extra));
    want!(SUCCESS, cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, DEFAULT, values, extra));
    Ok(())
}

fn parameters_are_needed(cu: &Cuda<'_>) -> CaseResult {
    let (function, none, extra) = (cu.function(&kernel(""))?, ptr::null_mut(), ptr::null_mut());
    want!(INVALID_VALUE, cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none, extra));
    Ok(())
}

fn launch_ex(cu: &Cuda<'_>) -> CaseResult {
    let (function, out, stream) = (cu.function(&kernel("st.global.u32 [%o], %n;"))?, cu.filled(8, 0)?, cu.stream()?);
    let (config, values) = (launch_config(stream), [out, 0, 5]);
    let mut pointers = pointers_to(&values);
    ok!(cu.cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), ptr::null_mut()));
    same!(cu, cu.read_words(out, 1)?, [5]);
    Ok(())
}

/// Adds `n` to a word.
const ADD: &str = "ld.global.u32 %r0, [%o];\nadd.u32 %r1, %r0, %n;\nst.global.u32 [%o], %r1;";

fn follows_a_copy(cu: &Cuda<'_>) -> CaseResult {
    let (function, device, pinned) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?, cu.pinned(8)?);
    let stream = cu.stream()?;
    pinned.fill(1);
    ok!(cu.cuMemcpyHtoDAsync_v2(device, pinned.host(), 4, stream));
    cu.launch(function, [ONE, ONE], 0, stream, &[device, 0, 2])?;
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned.host(), device, 4, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, pinned.read(), [3, 1, 1, 1, 1, 1, 1, 1]);
    Ok(())
}

fn waits_for_the_gate(cu: &Cuda<'_>) -> CaseResult {
    let (function, device, stream) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?, cu.stream()?);
    let gate = cu.hold(stream)?;
    cu.launch(function, [ONE, ONE], 0, stream, &[device, 0, 2])?;
    want!(NOT_READY, cu.cuStreamQuery(stream));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read_words(device, 1)?, [2]);
    Ok(())
}

/// A captured launch of [`ADD`]: its graph and node.
fn captured(cu: &Cuda<'_>, function: CUfunction, device: CUdeviceptr, n: u64) -> CaseResult<(CUgraph, CUgraphNode)> {
    let stream = cu.stream()?;
    cu.begin(stream, GLOBAL)?;
    cu.launch(function, [ONE, ONE], 0, stream, &[device, 0, n])?;
    let graph = cu.end(stream)?;
    Ok((graph, cu.nodes(graph)?[0]))
}

fn capture_is_replayed(cu: &Cuda<'_>) -> CaseResult {
    let (function, device) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?);
    let (graph, node) = captured(cu, function, device, 3)?;
    same!(cu, kind(cu, node)?, 0);
    same!(cu, cu.read_words(device, 1)?, [0]);
    let (exec, stream) = (cu.instantiate(graph)?, cu.stream()?);
    for _ in 0..100 {
        ok!(cu.cuGraphLaunch(exec, stream));
    }
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read_words(device, 1)?, [300]);
    Ok(())
}

/// Parameters of a node with one thread.
fn params(function: CUfunction, pointers: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: pointers.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS::zeroed()
    }
}

fn exec_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (function, device, other) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?, cu.filled(4, 0)?);
    let (graph, node) = captured(cu, function, device, 3)?;
    let exec = cu.instantiate(graph)?;
    let values = [other, 0, 10];
    let mut pointers = pointers_to(&values);
    let changed = params(function, &mut pointers);
    ok!(cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &changed));
    launch(cu, exec)?;
    same!(cu, (cu.read_words(device, 1)?, cu.read_words(other, 1)?), (vec![0], vec![10]));
    let wrong = CUDA_KERNEL_NODE_PARAMS { gridDimX: 0, ..changed };
    want!(INVALID_VALUE, cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &wrong));
    let twice = CUDA_KERNEL_NODE_PARAMS { gridDimX: 2, ..changed };
    let stop =
        with_directives("", "mov.u32 %r2, %ctaid.x;\nsetp.ne.u32 %p1, %r2, 1;\n@%p1 ret;\nst.global.u32 [%o], %n;");
    let last = CUDA_KERNEL_NODE_PARAMS { func: cu.function(&stop)?, ..twice };
    ok!(cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &last));
    launch(cu, exec)?;
    same!(cu, cu.read_words(other, 1)?, [10]);
    Ok(())
}

fn exec_update(cu: &Cuda<'_>) -> CaseResult {
    let (function, device) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?);
    let (graph, _) = captured(cu, function, device, 3)?;
    let exec = cu.instantiate(graph)?;
    let (other, _) = captured(cu, function, device, 20)?;
    let mut result = CUgraphExecUpdateResultInfo::zeroed();
    ok!(cu.cuGraphExecUpdate_v2(exec, other, &mut result));
    launch(cu, exec)?;
    same!(cu, cu.read_words(device, 1)?, [20]);
    Ok(())
}

fn node_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (function, device, stream) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?, cu.stream()?);
    cu.begin(stream, GLOBAL)?;
    cu.launch(function, [[2, 3, 4], [5, 6, 7]], 64, stream, &[device, 0, 3])?;
    let graph = cu.end(stream)?;
    let (node, mut found) = (cu.nodes(graph)?[0], CUDA_KERNEL_NODE_PARAMS::zeroed());
    ok!(cu.cuGraphKernelNodeGetParams_v2(node, &mut found));
    same!(cu, [found.gridDimX, found.gridDimY, found.gridDimZ], [2, 3, 4]);
    same!(cu, [found.blockDimX, found.blockDimY, found.blockDimZ, found.sharedMemBytes], [5, 6, 7, 64]);
    same!(cu, found.func, function);
    // What was read can be given back as it is.
    found.gridDimX = 1;
    ok!(cu.cuGraphKernelNodeSetParams_v2(node, &found));
    ok!(cu.cuGraphKernelNodeGetParams_v2(node, &mut found));
    same!(cu, found.gridDimX, 1);
    want!(INVALID_VALUE, cu.cuGraphKernelNodeGetParams_v2(node, ptr::null_mut()));
    let wrong = CUDA_KERNEL_NODE_PARAMS { blockDimX: 0, ..found };
    want!(INVALID_VALUE, cu.cuGraphKernelNodeSetParams_v2(node, &wrong));
    Ok(())
}

fn node_made_by_hand(cu: &Cuda<'_>) -> CaseResult {
    let (function, device, graph) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?, cu.graph()?);
    let set = cu.set_node(graph, &[], &line_set(device, 1, 4))?;
    let values = [device, 0, 4];
    let mut pointers = pointers_to(&values);
    let (wanted, mut node) = (params(function, &mut pointers), ptr::null_mut());
    ok!(cu.cuGraphAddKernelNode_v2(&mut node, graph, &set, 1, &wanted));
    run(cu, graph)?;
    same!(cu, cu.read_words(device, 1)?, [0x0101_0105]);
    let wrong = CUDA_KERNEL_NODE_PARAMS { gridDimY: 0, ..wanted };
    want!(INVALID_VALUE, cu.cuGraphAddKernelNode_v2(&mut node, graph, &set, 1, &wrong));
    Ok(())
}

fn node_disabled(cu: &Cuda<'_>) -> CaseResult {
    let (function, device) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?);
    let (graph, node) = captured(cu, function, device, 3)?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphNodeSetEnabled(exec, node, 0));
    launch(cu, exec)?;
    same!(cu, cu.read_words(device, 1)?, [0]);
    ok!(cu.cuGraphNodeSetEnabled(exec, node, 1));
    launch(cu, exec)?;
    same!(cu, cu.read_words(device, 1)?, [3]);
    Ok(())
}

fn clone_and_child(cu: &Cuda<'_>) -> CaseResult {
    let (function, device) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?);
    let (graph, _) = captured(cu, function, device, 3)?;
    let (mut copy, parent) = (ptr::null_mut(), cu.graph()?);
    ok!(cu.cuGraphClone(&mut copy, graph));
    cu.later(Cleanup::Graph(copy));
    super::graph::child_node(cu, parent, &[], copy)?;
    run(cu, copy)?;
    run(cu, parent)?;
    same!(cu, cu.read_words(device, 1)?, [6]);
    Ok(())
}

/// The functions that drivers had before CUDA 12.
fn first_interface(cu: &Cuda<'_>) -> CaseResult {
    let (function, device, graph) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?, cu.graph()?);
    let values = [device, 0, 4];
    let mut pointers = pointers_to(&values);
    let new = params(function, &mut pointers);
    let wanted = CUDA_KERNEL_NODE_PARAMS_v1 {
        func: new.func,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: new.kernelParams,
        extra: ptr::null_mut(),
    };
    let (mut node, mut found) = (ptr::null_mut(), wanted);
    ok!(cu.cuGraphAddKernelNode(&mut node, graph, ptr::null(), 0, &wanted));
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphKernelNodeGetParams(node, &mut found));
    same!(cu, (found.func, found.gridDimX), (function, 1));
    ok!(cu.cuGraphKernelNodeSetParams(node, &wanted));
    ok!(cu.cuGraphExecKernelNodeSetParams(exec, node, &wanted));
    launch(cu, exec)?;
    same!(cu, cu.read_words(device, 1)?, [4]);
    let wrong = CUDA_KERNEL_NODE_PARAMS_v1 { gridDimX: 0, ..wanted };
    want!(INVALID_VALUE, cu.cuGraphAddKernelNode(&mut node, graph, ptr::null(), 0, &wrong));
    want!(INVALID_VALUE, cu.cuGraphKernelNodeSetParams(node, &wrong));
    want!(INVALID_VALUE, cu.cuGraphExecKernelNodeSetParams(exec, node, &wrong));
    want!(INVALID_VALUE, cu.cuGraphKernelNodeGetParams(node, ptr::null_mut()));
    Ok(())
}

fn nodes_of_no_function(cu: &Cuda<'_>) -> CaseResult {
    let (function, device) = (cu.function(&kernel(ADD))?, cu.filled(4, 0)?);
    let (graph, node) = captured(cu, function, device, 3)?;
    let exec = cu.instantiate(graph)?;
    let new = CUDA_KERNEL_NODE_PARAMS { func: ptr::without_provenance_mut(0xDEAD_BEE8), ..params(function, &mut []) };
    let old = CUDA_KERNEL_NODE_PARAMS_v1 {
        func: new.func,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: ptr::null_mut(),
        extra: ptr::null_mut(),
    };
    let mut made = ptr::null_mut();
    want!(INVALID_HANDLE, cu.cuGraphAddKernelNode(&mut made, graph, ptr::null(), 0, &old));
    want!(INVALID_HANDLE, cu.cuGraphAddKernelNode_v2(&mut made, graph, ptr::null(), 0, &new));
    want!(INVALID_HANDLE, cu.cuGraphKernelNodeSetParams(node, &old));
    want!(INVALID_HANDLE, cu.cuGraphKernelNodeSetParams_v2(node, &new));
    want!(INVALID_HANDLE, cu.cuGraphExecKernelNodeSetParams(exec, node, &old));
    want!(INVALID_HANDLE, cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &new));
    Ok(())
}

/// Hardware has clusters of blocks; the model has not.
fn launch_attributes(cu: &Cuda<'_>) -> CaseResult {
    let function = cu.function(&idle())?;
    let mut attributes = [CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        pad: [0; 4],
        value: CUlaunchAttributeValue::zeroed(),
    }];
    let config = CUlaunchConfig { attrs: attributes.as_mut_ptr(), numAttrs: 1, ..launch_config(DEFAULT) };
    want!(NOT_SUPPORTED, cu.cuLaunchKernelEx(&config, function, ptr::null_mut(), ptr::null_mut()));
    Ok(())
}

/// What hardware was not asked: a size that is too small, the other way to launch, and nodes.
fn buffers_of_another_size(cu: &Cuda<'_>) -> CaseResult {
    let (function, graph, none) = (cu.function(&kernel(""))?, cu.graph()?, ptr::null_mut());
    for wrong in [0, PARAMETER_BYTES - 4, PARAMETER_BYTES + 4] {
        let (mut buffer, mut size) = ([0; 3], wrong);
        let mut extra = in_buffer(&mut buffer, &mut size);
        want!(
            LAUNCH_OUT_OF_RESOURCES,
            cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, DEFAULT, none, extra.as_mut_ptr())
        );
        let config = launch_config(DEFAULT);
        want!(LAUNCH_OUT_OF_RESOURCES, cu.cuLaunchKernelEx(&config, function, none, extra.as_mut_ptr()));
        let node =
            CUDA_KERNEL_NODE_PARAMS { kernelParams: none, extra: extra.as_mut_ptr(), ..params(function, &mut []) };
        want!(INVALID_VALUE, cu.cuGraphAddKernelNode_v2(&mut ptr::null_mut(), graph, ptr::null(), 0, &node));
    }
    Ok(())
}
