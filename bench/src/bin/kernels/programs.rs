//! The kernels that are measured, as PTX, and how each is launched.

/// A kernel with its launch.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Declarations and instructions behind the common head.
    pub(crate) body: &'static str,
    /// Bytes of shared memory that the body declares as `tile`.
    pub(crate) shared: u32,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// What `n` is.
    pub(crate) n: u32,
    /// Floating operations of a thread; 0 where they are not told.
    pub(crate) flops: u64,
}

/// The whole text of a workload: parameters `x`, `y`, `z` and `n`, and the thread's index in `%i`.
pub(crate) fn text(workload: &Workload) -> String {
    let shared = match workload.shared {
        0 => String::new(),
        bytes => format!(".shared .align 16 .b8 tile[{bytes}];"),
    };
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n\
         .visible .entry measured(.param .u64 px, .param .u64 py, .param .u64 pz, .param .u32 pn)\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %d<20>; .reg .f32 %f<40>; .reg .b32 %i, %n, %t; .reg .b64 %x, %y, %z;\n\
         {shared}\n\
         ld.param.u64 %x, [px]; ld.param.u64 %y, [py]; ld.param.u64 %z, [pz]; ld.param.u32 %n, [pn];\n\
         mov.u32 %r30, %ctaid.x; mov.u32 %r31, %ntid.x; mov.u32 %t, %tid.x; mad.lo.s32 %i, %r30, %r31, %t;\n{}\nret;\n}}\n",
        workload.body
    )
}

/// Everything that is measured. `x`, `y` and `z` have 4 MiB each.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "saxpy",
        body: "setp.ge.s32 %p0, %i, %n; @%p0 ret; mul.wide.s32 %d0, %i, 4; add.s64 %d1, %x, %d0; add.s64 %d2, %y, %d0;\
               ld.global.f32 %f0, [%d1]; ld.global.f32 %f1, [%d2]; fma.rn.f32 %f2, %f0, 0f40200000, %f1;\
               st.global.f32 [%d2], %f2;",
        shared: 0,
        blocks: 4096,
        threads: 256,
        n: 1 << 20,
        flops: 2,
    },
    Workload {
        name: "integer loop",
        body: "mov.u32 %r0, %i; mov.u32 %r1, 0;\nLOOP: mad.lo.s32 %r0, %r0, 1664525, 1013904223; xor.b32 %r2, %r0, %r1;\
               shr.u32 %r3, %r2, 7; add.s32 %r0, %r0, %r3; add.s32 %r1, %r1, 1; setp.lt.s32 %p0, %r1, %n; @%p0 bra LOOP;\
               mul.wide.s32 %d0, %i, 4; add.s64 %d1, %x, %d0; st.global.u32 [%d1], %r0;",
        shared: 0,
        blocks: 64,
        threads: 256,
        n: 1000,
        flops: 0,
    },
    Workload {
        name: "fma loop",
        body: "cvt.rn.f32.s32 %f0, %i; mov.f32 %f1, 0f3F800000; mov.u32 %r1, 0;\nLOOP: fma.rn.f32 %f1, %f1, 0f3F7FBE77, %f0;\
               fma.rn.f32 %f2, %f1, 0f3A83126F, %f1; fma.rn.f32 %f1, %f2, 0f3F000000, 0f3DCCCCCD; add.s32 %r1, %r1, 1;\
               setp.lt.s32 %p0, %r1, %n; @%p0 bra LOOP; mul.wide.s32 %d0, %i, 4; add.s64 %d1, %x, %d0;\
               st.global.f32 [%d1], %f1;",
        shared: 0,
        blocks: 64,
        threads: 256,
        n: 1000,
        flops: 6000,
    },
    Workload {
        name: "shared tree",
        body: "mov.u32 %r0, tile; shl.b32 %r1, %t, 2; add.s32 %r2, %r0, %r1; mul.wide.s32 %d0, %i, 4; add.s64 %d1, %x, %d0;\
               ld.global.f32 %f0, [%d1]; st.shared.f32 [%r2], %f0; bar.sync 0; mov.u32 %r3, 128;\n\
               LOOP: setp.ge.s32 %p0, %t, %r3; @%p0 bra NEXT; shl.b32 %r4, %r3, 2; add.s32 %r5, %r2, %r4;\
               ld.shared.f32 %f1, [%r2]; ld.shared.f32 %f2, [%r5]; add.f32 %f3, %f1, %f2; st.shared.f32 [%r2], %f3;\n\
               NEXT: bar.sync 0; shr.u32 %r3, %r3, 1; setp.ne.s32 %p1, %r3, 0; @%p1 bra LOOP; setp.ne.s32 %p2, %t, 0;\
               @%p2 ret; ld.shared.f32 %f4, [%r0]; mul.wide.u32 %d2, %r30, 4; add.s64 %d3, %y, %d2; st.global.f32 [%d3], %f4;",
        shared: 1024,
        blocks: 4096,
        threads: 256,
        n: 0,
        flops: 0,
    },
    Workload {
        name: "histogram",
        body: "mov.u32 %r1, 0;\nLOOP: mad.lo.s32 %r2, %r1, 131072, %i; and.b32 %r2, %r2, 1048575; mul.wide.u32 %d0, %r2, 4;\
               add.s64 %d1, %x, %d0; ld.global.u32 %r3, [%d1]; shr.u32 %r4, %r3, 13; and.b32 %r4, %r4, 255;\
               mul.wide.u32 %d2, %r4, 4; add.s64 %d3, %y, %d2; red.global.add.u32 [%d3], 1; add.s32 %r1, %r1, 1;\
               setp.lt.s32 %p0, %r1, %n; @%p0 bra LOOP;",
        shared: 0,
        blocks: 128,
        threads: 256,
        n: 32,
        flops: 0,
    },
    Workload {
        name: "f32 matmul",
        // A block makes 16 by 16 of the result of two matrices of 256 columns, through tiles of 16 by 16.
        body: "and.b32 %r0, %t, 15; shr.u32 %r1, %t, 4; and.b32 %r2, %r30, 15; shr.u32 %r3, %r30, 4; shl.b32 %r4, %r3, 4;\
               add.s32 %r4, %r4, %r1; shl.b32 %r5, %r2, 4; add.s32 %r5, %r5, %r0; mov.u32 %r6, tile; shl.b32 %r7, %t, 2;\
               add.s32 %r8, %r6, %r7; mov.f32 %f0, 0f00000000; mov.u32 %r9, 0; shl.b32 %r10, %r4, 8; shl.b32 %r15, %r1, 6;\
               add.s32 %r16, %r6, %r15; shl.b32 %r17, %r0, 2; add.s32 %r18, %r6, %r17;\n\
               TILE: add.s32 %r11, %r10, %r9; add.s32 %r11, %r11, %r0; mul.wide.u32 %d0, %r11, 4; add.s64 %d1, %x, %d0;\
               ld.global.f32 %f1, [%d1]; st.shared.f32 [%r8], %f1; add.s32 %r12, %r9, %r1; shl.b32 %r12, %r12, 8;\
               add.s32 %r12, %r12, %r5; mul.wide.u32 %d2, %r12, 4; add.s64 %d3, %y, %d2; ld.global.f32 %f2, [%d3];\
               st.shared.f32 [%r8+1024], %f2; bar.sync 0;\
               ld.shared.f32 %f3, [%r16]; ld.shared.f32 %f4, [%r18+1024]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+4]; ld.shared.f32 %f4, [%r18+1088]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+8]; ld.shared.f32 %f4, [%r18+1152]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+12]; ld.shared.f32 %f4, [%r18+1216]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+16]; ld.shared.f32 %f4, [%r18+1280]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+20]; ld.shared.f32 %f4, [%r18+1344]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+24]; ld.shared.f32 %f4, [%r18+1408]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+28]; ld.shared.f32 %f4, [%r18+1472]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+32]; ld.shared.f32 %f4, [%r18+1536]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+36]; ld.shared.f32 %f4, [%r18+1600]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+40]; ld.shared.f32 %f4, [%r18+1664]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+44]; ld.shared.f32 %f4, [%r18+1728]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+48]; ld.shared.f32 %f4, [%r18+1792]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+52]; ld.shared.f32 %f4, [%r18+1856]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+56]; ld.shared.f32 %f4, [%r18+1920]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               ld.shared.f32 %f3, [%r16+60]; ld.shared.f32 %f4, [%r18+1984]; fma.rn.f32 %f0, %f3, %f4, %f0;\
               bar.sync 0; add.s32 %r9, %r9, 16; setp.lt.s32 %p0, %r9, 256; @%p0 bra TILE;\
               shl.b32 %r13, %r4, 8; add.s32 %r13, %r13, %r5; mul.wide.u32 %d4, %r13, 4; add.s64 %d5, %z, %d4;\
               st.global.f32 [%d5], %f0;",
        shared: 2048,
        blocks: 256,
        threads: 256,
        n: 0,
        flops: 512,
    },
    Workload {
        name: "divergent branches",
        // The two highest bits of a random number choose one of three ways.
        body: "mov.u32 %r0, %i; mov.u32 %r1, 0;\nLOOP: mad.lo.s32 %r0, %r0, 1664525, 1013904223; shr.u32 %r2, %r0, 30;\
               setp.eq.s32 %p0, %r2, 0; @%p0 bra A; setp.eq.s32 %p1, %r2, 1; @%p1 bra B; add.s32 %r0, %r0, 7;\
               xor.b32 %r0, %r0, 3; bra JOIN;\nA: shr.u32 %r3, %r0, 1; add.s32 %r0, %r3, %r1; bra JOIN;\n\
               B: mad.lo.s32 %r0, %r0, 3, 1;\nJOIN: add.s32 %r1, %r1, 1; setp.lt.s32 %p2, %r1, %n; @%p2 bra LOOP;\
               mul.wide.s32 %d0, %i, 4; add.s64 %d1, %x, %d0; st.global.u32 [%d1], %r0;",
        shared: 0,
        blocks: 32,
        threads: 256,
        n: 500,
        flops: 0,
    },
    Workload {
        name: "mma.sync",
        body: "mov.b32 %r0, 0x3C003C00; mov.b32 %r1, 0x40003C00; mov.u32 %r9, 0; mov.f32 %f0, 0f00000000;\
               mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;\n\
               LOOP: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r0, %r1},\
               {%r1, %r0}, {%f0, %f1, %f2, %f3}; add.s32 %r9, %r9, 1; setp.lt.s32 %p0, %r9, %n; @%p0 bra LOOP;\
               mul.wide.s32 %d0, %i, 4; add.s64 %d1, %x, %d0; add.f32 %f4, %f0, %f3; st.global.f32 [%d1], %f4;",
        shared: 0,
        blocks: 16,
        threads: 128,
        n: 500,
        // 4096 of a warp.
        flops: 64_000,
    },
];
