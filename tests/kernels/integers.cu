// Whole numbers: division, carries, bits, packed bytes.

extern "C" __global__ void divisions(long long *to, const long long *x, const long long *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long a = x[i], b = y[i], *out = to + i * 10;
    unsigned long long ua = a, ub = b;
    out[0] = a / b, out[1] = a % b;
    out[2] = ua / ub, out[3] = ua % ub;
    int c = (int)a, d = (int)b | 1;
    out[4] = d == -1 ? -(long long)c : c / d, out[5] = d == -1 ? 0 : c % d;
    out[6] = (unsigned)c / (unsigned)d, out[7] = (unsigned)c % (unsigned)d;
    out[8] = a / 1000003, out[9] = ua % 10;
}

// Sum and product of numbers of 256 bits, least words first, without any wider type.
extern "C" __global__ void wide_numbers(unsigned *sum, unsigned *product, const unsigned *x, const unsigned *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned *a = x + i * 8, *b = y + i * 8;
    unsigned *s = sum + i * 9, *p = product + i * 16;
    asm volatile("add.cc.u32 %0, %9, %17;\n\taddc.cc.u32 %1, %10, %18;\n\taddc.cc.u32 %2, %11, %19;\n\t"
                 "addc.cc.u32 %3, %12, %20;\n\taddc.cc.u32 %4, %13, %21;\n\taddc.cc.u32 %5, %14, %22;\n\t"
                 "addc.cc.u32 %6, %15, %23;\n\taddc.cc.u32 %7, %16, %24;\n\taddc.u32 %8, 0, 0;"
                 : "=&r"(s[0]), "=&r"(s[1]), "=&r"(s[2]), "=&r"(s[3]), "=&r"(s[4]), "=&r"(s[5]), "=&r"(s[6]),
                   "=&r"(s[7]), "=&r"(s[8])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(b[0]),
                   "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]));
    unsigned whole[16];
    for (int j = 0; j < 16; ++j) whole[j] = 0;
    for (int j = 0; j < 8; ++j) {
        unsigned carry = 0;
        for (int k = 0; k < 8; ++k) {
            unsigned low = a[j] * b[k], high = __umulhi(a[j], b[k]);
            asm("add.cc.u32 %0, %0, %2;\n\taddc.u32 %1, %1, 0;" : "+r"(low), "+r"(high) : "r"(carry));
            asm("add.cc.u32 %0, %0, %2;\n\taddc.u32 %1, %1, 0;" : "+r"(low), "+r"(high) : "r"(whole[j + k]));
            whole[j + k] = low, carry = high;
        }
        whole[j + 8] = carry;
    }
    for (int j = 0; j < 16; ++j) p[j] = whole[j];
}

// The difference of two numbers of 128 bits and the middle of a product by mad.cc.
extern "C" __global__ void borrows(unsigned long long *to, const unsigned long long *x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned long long *a = x + i * 4;
    unsigned long long low, high, *out = to + i * 5;
    asm("sub.cc.u64 %0, %2, %4;\n\tsubc.u64 %1, %3, %5;" : "=&l"(low), "=l"(high) : "l"(a[0]), "l"(a[1]), "l"(a[2]), "l"(a[3]));
    out[0] = low, out[1] = high;
    asm("mad.lo.cc.u64 %0, %2, %3, %4;\n\tmadc.hi.u64 %1, %2, %3, %5;" : "=&l"(low), "=l"(high) : "l"(a[0]), "l"(a[1]), "l"(a[2]), "l"(a[3]));
    out[2] = low, out[3] = high;
    out[4] = __umul64hi(a[0], a[1]) ^ (unsigned long long)__mul64hi((long long)a[2], (long long)a[3]);
}

extern "C" __global__ void bit_tricks(unsigned *to, const unsigned *x, const unsigned *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned a = x[i], b = y[i], *out = to + i * 24;
    unsigned long long d = (unsigned long long)a << 32 | b;
    out[0] = __clz(a), out[1] = __brev(a), out[2] = __ffs(a), out[3] = __popc(a);
    out[4] = __funnelshift_l(a, b, b), out[5] = __funnelshift_r(a, b, b);
    out[6] = __funnelshift_lc(a, b, b % 50), out[7] = __funnelshift_rc(a, b, b % 50);
    out[8] = __clzll(d), out[9] = (unsigned)__brevll(d), out[10] = __ffsll(d), out[11] = __popcll(d);
    out[12] = __byte_perm(a, b, 0x7531), out[13] = __byte_perm(a, b, a % 0x8000);
    out[14] = __hadd((int)a, (int)b), out[15] = __rhadd((int)a, (int)b), out[16] = __uhadd(a, b);
    out[17] = __mulhi((int)a, (int)b), out[18] = __umul24(a, b), out[19] = __mul24((int)a, (int)b);
    out[20] = __sad((int)a, (int)b, 5u), out[21] = __usad(a, b, 5u);
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(out[22]) : "r"(a), "r"(b % 40), "r"(b / 64 % 40));
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(out[23]) : "r"(a), "r"(b), "r"(a % 40), "r"(b % 40));
}

extern "C" __global__ void packed_bytes(int *to, const unsigned *x, const unsigned *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned a = x[i], b = y[i];
    int *out = to + i * 12;
    out[0] = __dp4a((int)a, (int)b, 1000), out[1] = (int)__dp4a(a, b, 1000u);
    out[2] = __dp2a_lo((int)a, (int)b, -9), out[3] = __dp2a_hi((int)a, (int)b, -9);
    out[4] = (int)__vadd4(a, b), out[5] = (int)__vsub2(a, b), out[6] = (int)__vabsdiffu4(a, b);
    out[7] = (int)__vmaxs4(a, b), out[8] = (int)__vcmpgtu4(a, b), out[9] = (int)__vavgu4(a, b);
    out[10] = (int)__vaddss2(a, b), out[11] = (int)__vsads4(a, b);
}
