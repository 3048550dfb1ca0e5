//! Which instructions are read, which are no PTX, which are not supported; and that an instruction whose result is one of
//! its operands reads it first.

use crate::support::{refusals, word};
use ptx_sim::RefusalKind;

/// Checks how each line is refused, where it is, as an instruction of a kernel of its own.
fn check(lines: &str, expected: Option<RefusalKind>) {
    let declared = ".shared .align 16 .b8 sv[64]; .local .align 16 .b8 lv[64];";
    for line in lines.lines().map(str::trim) {
        let found = refusals(&format!("{declared}\n{line}"));
        let kinds: Vec<RefusalKind> = found.iter().map(|refusal| refusal.kind).collect();
        assert_eq!(kinds, Vec::from_iter(expected), "{line}: {found:?}");
    }
}

#[test]
fn forms_of_ordinary_kernels_are_read() {
    check(
        "mov.b64 {%r1, %r2}, %rd1;
         mov.b64 %rd1, {%r1, %r2};
         mov.b32 {%h1, %h2}, %r1;
         mov.b32 %r1, {%h1, 0};
         mov.b64 {_, %r2}, %rd1;
         ld.param.u64 %rd1, [out];
         ld.param.b32 %r1, [%rd1+4];
         mov.u64 %rd1, sv;
         mov.u64 %rd1, lv+8;
         mov.u64 %rd1, out;
         mov.pred %p1, !%p2;
         cvta.local.u64 %rd1, %rd2;
         cvta.to.global.u64 %rd1, %rd2;
         shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;
         shfl.sync.idx.b32 %r1, %r2, %r3, %r4, %r5;
         vote.sync.ballot.b32 %r1, %p1, -1;
         vote.sync.all.pred %p1, !%p2, %r1;
         bar.warp.sync -1;
         match.all.sync.b64 %r1|%p1, %rd1, -1;
         activemask.b32 %r1;
         mov.u32 %r1, %lanemask_lt;
         mov.u32 %r1, %smid;
         mov.u64 %rd1, %clock64;
         cvt.rn.f16.f32 %h1, %f1;
         cvt.f32.bf16 %f1, %h1;
         cvt.rn.bf16.f32 %h1, %f1;
         cvt.rn.bf16x2.f32 %r1, %f1, %f2;
         cvt.rna.tf32.f32 %r1, %f1;
         cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;
         fma.rn.f16x2 %r1, %r2, %r3, %r4;
         fma.rn.relu.bf16x2 %r1, %r2, %r3, %r4;
         max.NaN.xorsign.abs.f16 %h1, %h2, %h3;
         atom.global.add.noftz.f16x2 %r1, [%rd1], %r2;
         ld.local.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+16];
         st.local.u8 [%rd1], %h1;
         ld.const.f32 %f1, [%rd1];
         trap;
         fma.rm.f32 %f1, %f2, %f3, %f4;
         copysign.f64 %fd1, %fd2, %fd3;
         mad.lo.cc.u32 %r1, %r2, %r3, %r4;
         madc.hi.cc.u32 %r1, %r2, %r3, %r4;
         subc.u32 %r1, %r2, 0;
         bfind.shiftamt.u32 %r1, %r2;
         bfi.b32 %r1, %r2, %r3, 4, 8;
         bfe.s64 %rd1, %rd2, 4, 8;
         prmt.b32 %r1, %r2, %r3, 0x5410;
         lop3.b32 %r1, %r2, %r3, %r4, 0xE8;
         lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 1, %p2;
         shf.l.wrap.b32 %r1, %r2, %r3, 7;
         dp4a.s32.u32 %r1, %r2, %r3, %r4;
         membar.gl;
         fence.acq_rel.gpu;
         fence.proxy.async.shared::cta;
         mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
         mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.u4.s32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2,%r3,%r4};
         ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1,%r2,%r3,%r4}, [%rd1];
         cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16, %r2;
         cp.async.ca.shared.global [%r1], [%rd1], 4, !%p1;
         cp.async.wait_group 2;
         barrier.cta.red.popc.aligned.u32 %r1, 1, 64, !%p1;
         ld.global.nc.L1::no_allocate.L2::256B.v2.f64 {%fd1, %fd2}, [%rd1];
         ld.relaxed.cluster.global.u32 %r1, [%rd1];
         ld.global.L2::cache_hint.b32 %r1, [%rd1], %rd2;
         st.mmio.relaxed.sys.global.u32 [%rd1], 5;
         red.release.gpu.global.add.v4.f32 [%rd1], {%f1,%f2,%f3,%f4};
         createpolicy.fractional.L2::evict_last.b64 %rd1, 1.0;
         prefetch.global.L2::evict_last [%rd1];
         setp.eq.ftz.f16x2 %p1|%p2, %r1, %r2;
         setp.eq.bf16x2 %p1, %r1, %r2;
         mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
         mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16 {%r1,%r2}, {%r1,%r2}, {%r5}, {%r1,%r2};
         setp.lt.and.s32 %p1|_, %r1, %r2, 1;
         set.leu.u32.bf16x2 %r1, %r2, %r3;
         elect.sync _|%p1, -1;
         redux.sync.xor.b32 %r1, %r2, -1;
         alloca.u64 %rd1, 32, 16;
         nanosleep.u32 %r1;
         sub.u32 %r1, WARP_SZ, %r2;",
        None,
    );
}

#[test]
fn what_is_no_ptx_is_invalid() {
    check(
        "foo.u32 %r1, %r2;
         add.u33 %r1, %r2, %r3;
         add.u32 %r1, %r2;
         add.u32 %r1, %r2, %rd3;
         add.u32 5, %r2, %r3;
         add.u32.u32 %r1, %r2, %r3;
         add.rn.rz.f32 %f1, %f2, %f3;
         add.ftz.f64 %fd1, %fd2, %fd3;
         add.f32 %f1, %f2, 1;
         add.u32 %r1, %r2, %tid.x;
         add.u64 %rd1, %rd2, sv;
         add.u32 %r1, %r2, -%r3;
         add.volatile.u32 %r1, %r2, %r3;
         and.u32 %r1, %r2, %r3;
         mul.u32 %r1, %r2, %r3;
         mul.wide.u64 %rd1, %rd2, %rd3;
         mad.lo.sat.s32 %r1, %r2, %r3, %r4;
         div.f32 %f1, %f2, %f3;
         sqrt.approx.f64 %fd1, %fd2;
         fma.f32 %f1, %f2, %f3, %f4;
         mov.u64 %rd1, %tid.x;
         mov.f32 %f1, %tid.x;
         mov.b64 {_, _}, %rd1;
         mov.b64 {%r1, %r2, %r3}, %rd1;
         mov.u32 %r1, %nosuch;
         setp.lt.b32 %p1, %r1, %r2;
         setp.ltu.s32 %p1, %r1, %r2;
         setp.lo.s32 %p1, %r1, %r2;
         setp.eq.u32 %r1, %r1, %r2;
         setp.eq.f16 %p1|%p2, %h1, %h2;
         cvt.f32.f64 %f1, %fd1;
         cvt.rn.s32.f32 %r1, %f1;
         cvt.rzi.f32.s32 %f1, %r1;
         cvt.sat.u32.u16 %r1, %h1;
         cvt.rn.relu.f32.f64 %f1, %fd1;
         ld.global.v3.u32 {%r1, %r2, %r3}, [%rd1];
         ld.global.u32 %r1, [%r2];
         ld.global.u32 %h1, [%rd1];
         ld.global.f16 %h1, [%rd1];
         ld.relaxed.global.u32 %r1, [%rd1];
         ld.acquire.gpu.local.u32 %r1, [%rd1];
         ld.volatile.ca.global.u32 %r1, [%rd1];
         ld.shared.L1::no_allocate.u32 %r1, [%rd1];
         ld.global.u32 %r1, [sv];
         ld.global.u32 %r1, [64];
         st.const.u32 [%rd1], %r1;
         atom.global.add.s64 %rd1, [%rd2], %rd3;
         atom.global.add.f16 %h1, [%rd2], %h3;
         atom.param.add.u32 %r1, [%rd2], %r3;
         red.exch.b32 [%rd1], %r1;
         fence;
         fence.sc;
         membar.gpu;
         bar.sync 16;
         bar.sync 0, 33;
         bar.arrive 0;
         shfl.bfly.b32 %r1, %r2, 1, 31;
         vote.all.pred %p1, %p2;
         match.any.sync.b32 %r1|%p1, %r2, -1;
         ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%rd1];
         mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
         mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
         cp.async.cg.shared.global [%r1], [%rd1], 8;
         nanosleep.u64 %rd1;
         @%r1 add.u32 %r1, %r2, %r3;",
        Some(RefusalKind::Invalid),
    );
}

#[test]
fn what_is_left_out_is_not_supported() {
    check(
        "wgmma.fence.sync.aligned;
         wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r1,%r2}, {%r1}, {%r2}, {%r1,%r2};
         tcgen05.fence::before_thread_sync;
         cp.async.bulk.commit_group;
         cp.async.mbarrier.arrive.shared.b64 [%rd1];
         mbarrier.init.shared.b64 [%rd1], 1;
         mapa.u64 %rd1, %rd2, %r1;
         barrier.cluster.arrive;
         mov.u32 %r1, %cluster_ctarank;
         tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [tt, {%f1,%f2}];
         vadd.u32.u32.u32 %r1, %r2, %r3;
         multimem.red.global.add.u32 [%rd1], %r1;
         ld.global.b128 %rd1, [%rd2];
         ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1];
         ld.shared::cluster.u32 %r1, [%rd1];
         atom.global.cas.b128 %rd1, [%rd2], %rd3, %rd4;
         mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r3,%r4}, {%r1,%r2,%r3,%r4};
         mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
         min.f32 %f1, %f2, %f3, %f4;
         add.rn.f32.f16 %f1, %h1, %f2;
         add.rn.f32x2 %rd1, %rd2, %rd3;
         fma.rn.oob.f16 %h1, %h2, %h3, %h4;
         cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2;
         redux.sync.min.f32 %f1, %f2, -1;
         setmaxnreg.inc.sync.aligned.u32 40;",
        Some(RefusalKind::NotSupported),
    );
}

#[test]
fn a_refusal_shows_the_instruction() {
    let found = refusals("@!%p1 ld.global.v8.b32 {%r1, _}, [%rd1+-4];");
    assert_eq!(found[0].text, "'@!%p1 ld.global.v8.b32 {%r1, _}, [%rd1-4];' ('.v8')");
    let found = refusals("add.f32 %f1, 0f3F800000, 7;");
    assert_eq!(found[0].text, "an integer as an operand: 'add.f32 %f1, 0f3F800000, 7;'");
}

/// One thread's word after a body that leaves it in `%r1`.
fn left(body: &str) -> u32 {
    word(&format!("{body}\nst.global.u32 [%rd0], %r1; ret;"), 0)
}

#[test]
fn results_that_are_operands_are_read_first() {
    // Both results are made of the old predicate, which is also the first of them.
    let both = "setp.eq.u32 %p1, %r0, 0;\nsetp.lt.and.u32 %p1|%p2, 5, 3, %p1;\n\
                selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2; or.b32 %r1, %r1, %r2;";
    assert_eq!(left(both), 2);
    // The guard is the first result of what it guards.
    let guarded = "setp.eq.u32 %p1, %r0, 0;\n@%p1 setp.ne.u32 %p1|%p2, %r0, 0;\nselp.u32 %r1, 1, 0, %p2;";
    assert_eq!(left(guarded), 1);
    // A sum that overwrites its operand still carries by the old one.
    let carried = "mov.u32 %r1, -1; mov.u32 %r2, 5;\nadd.cc.u32 %r1, %r1, %r1;\naddc.u32 %r1, %r2, 0;";
    assert_eq!(left(carried), 6);
    let carried = "mov.u32 %r1, -1; add.cc.u32 %r2, %r1, 1;\naddc.cc.u32 %r1, %r1, 0; addc.u32 %r1, %r1, 0;";
    assert_eq!(left(carried), 1);
    let guarded = "setp.ne.u32 %p1, %r0, 0; mov.u32 %r1, 7; mov.u64 %rd1, 5;\n@%p1 mov.b64 {%r1, %r2}, %rd1;";
    assert_eq!(left(guarded), 7);
}

#[test]
fn lookups_with_a_predicate_combine_it() {
    for (mask, old, expected) in [(0xFF, 0, 0), (0xFF, 1, 1), (0x00, 1, 0)] {
        let body = format!(
            "mov.u32 %r2, {mask}; mov.u32 %r3, {old}; setp.ne.u32 %p2, %r3, 0;\n\
             lop3.and.b32 _|%p2, %r2, %r2, %r2, 0xF0, %p2;\nselp.u32 %r1, 1, 0, %p2;"
        );
        assert_eq!(left(&body), expected);
    }
}
