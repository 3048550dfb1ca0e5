/* The kernels of the programs here, as text that every driver since CUDA 11.8 reads. */

/* `scale(y, x, n, a)`: y[i] = a * x[i] + y[i] for i below n, in single precision. `write(to)`: writes 4 bytes to `to`. */
static const char KERNELS[] =
    ".version 7.8\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry scale(.param .u64 to, .param .u64 from, .param .u32 count, .param .f32 factor)\n"
    "{\n"
    "    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<6>; .reg .f32 %f<4>;\n"
    "    ld.param.u64 %d0, [to]; ld.param.u64 %d1, [from]; ld.param.u32 %r0, [count]; ld.param.f32 %f0, [factor];\n"
    "    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "    setp.ge.u32 %p, %r4, %r0;\n"
    "    @%p ret;\n"
    "    mul.wide.u32 %d2, %r4, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;\n"
    "    ld.global.f32 %f1, [%d4]; ld.global.f32 %f2, [%d3]; fma.rn.f32 %f3, %f0, %f1, %f2; st.global.f32 [%d3], %f3;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry write(.param .u64 to)\n"
    "{\n"
    "    .reg .b64 %d; ld.param.u64 %d, [to]; st.global.u32 [%d], 1; ret;\n"
    "}\n";
