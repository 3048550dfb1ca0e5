// Mathematical functions of both widths, and arithmetic in every rounding.

constexpr int FUNCTIONS = 24;

extern "C" __global__ void float_functions(float *to, const float *x, const float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i], b = y[i], *out = to + i * FUNCTIONS, positive = fabsf(a);
    out[0] = sinf(a), out[1] = cosf(a), out[2] = tanf(a), out[3] = expf(a), out[4] = logf(positive);
    out[5] = powf(positive, b), out[6] = erff(a), out[7] = tanhf(a), out[8] = sqrtf(positive), out[9] = rsqrtf(positive);
    out[10] = exp2f(a), out[11] = log2f(positive), out[12] = expm1f(a), out[13] = log1pf(positive), out[14] = cbrtf(a);
    out[15] = atan2f(a, b), out[16] = asinf(a / (positive + 1)), out[17] = sinhf(a), out[18] = hypotf(a, b);
    out[19] = atanf(a), out[20] = acosf(a / (positive + 1)), out[21] = log10f(positive), out[22] = erfcf(a), out[23] = a / b;
}

extern "C" __global__ void double_functions(double *to, const double *x, const double *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double a = x[i], b = y[i], *out = to + i * FUNCTIONS, positive = fabs(a);
    out[0] = sin(a), out[1] = cos(a), out[2] = tan(a), out[3] = exp(a), out[4] = log(positive);
    out[5] = pow(positive, b), out[6] = erf(a), out[7] = tanh(a), out[8] = sqrt(positive), out[9] = rsqrt(positive);
    out[10] = exp2(a), out[11] = log2(positive), out[12] = expm1(a), out[13] = log1p(positive), out[14] = cbrt(a);
    out[15] = atan2(a, b), out[16] = asin(a / (positive + 1)), out[17] = sinh(a), out[18] = hypot(a, b);
    out[19] = atan(a), out[20] = acos(a / (positive + 1)), out[21] = log10(positive), out[22] = erfc(a), out[23] = a / b;
}

// The functions that the hardware approximates.
extern "C" __global__ void fast_functions(float *to, const float *x, const float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i], b = y[i], *out = to + i * 8, positive = fabsf(a);
    out[0] = __sinf(a), out[1] = __cosf(a), out[2] = __expf(a), out[3] = __logf(positive), out[4] = __fdividef(a, b);
    out[5] = __powf(positive, b), out[6] = __log2f(positive), out[7] = __exp10f(a);
}

#define FLOATS(place, mode)                                                                         \
    out[place] = __fadd_##mode(a, b), out[place + 1] = __fsub_##mode(a, b);                         \
    out[place + 2] = __fmul_##mode(a, b), out[place + 3] = __fmaf_##mode(a, b, c);                  \
    out[place + 4] = __fdiv_##mode(a, b), out[place + 5] = __fsqrt_##mode(fabsf(a));                \
    out[place + 6] = __frcp_##mode(a), out[place + 7] = __double2float_##mode((double)a * b);

extern "C" __global__ void float_roundings(float *to, const float *x, const float *y, const float *z, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i], b = y[i], c = z[i], *out = to + i * 32;
    FLOATS(0, rn) FLOATS(8, rz) FLOATS(16, ru) FLOATS(24, rd)
}

#define DOUBLES(place, mode)                                                                        \
    out[place] = __dadd_##mode(a, b), out[place + 1] = __dsub_##mode(a, b);                         \
    out[place + 2] = __dmul_##mode(a, b), out[place + 3] = __fma_##mode(a, b, c);                   \
    out[place + 4] = __ddiv_##mode(a, b), out[place + 5] = __dsqrt_##mode(fabs(a));

extern "C" __global__ void double_roundings(double *to, const double *x, const double *y, const double *z, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double a = x[i], b = y[i], c = z[i], *out = to + i * 24;
    DOUBLES(0, rn) DOUBLES(6, rz) DOUBLES(12, ru) DOUBLES(18, rd)
}

extern "C" __global__ void whole_parts(float *to, int *whole, long long *large, const float *x, const float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i], b = y[i], *out = to + i * 12;
    int exponent;
    out[0] = floorf(a), out[1] = ceilf(a), out[2] = truncf(a), out[3] = rintf(a), out[4] = roundf(a);
    out[5] = fmodf(a, b), out[6] = copysignf(a, b), out[7] = fminf(a, b), out[8] = fmaxf(a, b);
    out[9] = frexpf(a, &exponent), out[10] = ldexpf(b, exponent), out[11] = remainderf(a, b);
    whole[i * 6] = __float2int_rn(a), whole[i * 6 + 1] = __float2int_rz(a), whole[i * 6 + 2] = __float2int_ru(a);
    whole[i * 6 + 3] = __float2int_rd(a), whole[i * 6 + 4] = (int)__float2uint_rn(a), whole[i * 6 + 5] = exponent;
    large[i * 2] = __float2ll_rn(a), large[i * 2 + 1] = __double2ll_rd((double)a * b);
}
