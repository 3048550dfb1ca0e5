// The functions that generated kernels call, each for two types. `cargo xtask kernels` compiles this file to math.ptx.

// The name in PTX is that of the function and its type: kernel_ir::Math has the list.
#define ONE(name, f32, f64)                                                        \
    extern "C" __device__ float math_##name##_f32(float a) { return f32(a); }      \
    extern "C" __device__ double math_##name##_f64(double a) { return f64(a); }
#define TWO(name, f32, f64)                                                                      \
    extern "C" __device__ float math_##name##_f32(float a, float b) { return f32(a, b); }        \
    extern "C" __device__ double math_##name##_f64(double a, double b) { return f64(a, b); }

// The derivative of lgamma: reflection for negative numbers, recurrence up to 10, then the asymptotic series. Floats are
// computed in the type itself, as PyTorch does, but for the reflection, which needs the digits of double.
template <typename T> __device__ __forceinline__ T digamma_of(T a)
{
    if (a == (T)0) return copysign((T)1 / (T)0, -a);
    T result = (T)0;
    if (a < (T)0) {
        if (trunc(a) == a) return (T)0 / (T)0;
        result = (T)(-3.14159265358979323846 / tan(3.14159265358979323846 * ((double)a - trunc((double)a))));
        a = (T)1 - a;
    }
    while (a < (T)10) {
        result -= (T)1 / a;
        a += (T)1;
    }
    if (a == (T)10) return result + (T)2.25175258906672110764;
    if (isinf(a)) return a;
    T series = (T)0;
    if (a < (T)1e17) {
        const T z = (T)1 / (a * a);
        series = (T)8.33333333333333333333e-2;
        series = series * z + (T)-2.10927960927960927961e-2;
        series = series * z + (T)7.57575757575757575758e-3;
        series = series * z + (T)-4.16666666666666666667e-3;
        series = series * z + (T)3.96825396825396825397e-3;
        series = series * z + (T)-8.33333333333333333333e-3;
        series = series * z + (T)8.33333333333333333333e-2;
        series *= z;
    }
    return result + (log(a) - (T)0.5 / a - series);
}

template <typename T> __device__ __forceinline__ T gcd_of(T a, T b)
{
    while (a != 0) {
        const T rest = b % a;
        b = a;
        a = rest;
    }
    return b;
}

// An integer power by squaring; one over it, cut to an integer, for exponents below zero. U is T without its sign.
template <typename T, typename U> __device__ __forceinline__ T power_of(T base, T exponent)
{
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? 1 - 2 * (exponent & 1) : 0;
    U result = 1, square = (U)base;
    for (U left = (U)exponent; left != 0; left >>= 1) {
        if (left & 1) result *= square;
        square *= square;
    }
    return (T)result;
}

extern "C" __device__ int math_gcd_i32(int a, int b) { return gcd_of(a, b); }
extern "C" __device__ long long math_gcd_i64(long long a, long long b) { return gcd_of(a, b); }
extern "C" __device__ int math_powi_i32(int a, int b) { return power_of<int, unsigned>(a, b); }
extern "C" __device__ long long math_powi_i64(long long a, long long b)
{
    return power_of<long long, unsigned long long>(a, b);
}

ONE(exp, expf, exp)
ONE(exp2, exp2f, exp2)
ONE(expm1, expm1f, expm1)
ONE(log, logf, log)
ONE(log2, log2f, log2)
ONE(log10, log10f, log10)
ONE(log1p, log1pf, log1p)
ONE(rsqrt, rsqrtf, rsqrt)
ONE(sin, sinf, sin)
ONE(cos, cosf, cos)
ONE(tan, tanf, tan)
ONE(asin, asinf, asin)
ONE(acos, acosf, acos)
ONE(atan, atanf, atan)
ONE(sinh, sinhf, sinh)
ONE(cosh, coshf, cosh)
ONE(tanh, tanhf, tanh)
ONE(asinh, asinhf, asinh)
ONE(acosh, acoshf, acosh)
ONE(atanh, atanhf, atanh)
ONE(erf, erff, erf)
ONE(erfc, erfcf, erfc)
ONE(erfinv, erfinvf, erfinv)
ONE(lgamma, lgammaf, lgamma)
ONE(digamma, digamma_of, digamma_of)
TWO(pow, powf, pow)
TWO(atan2, atan2f, atan2)
TWO(hypot, hypotf, hypot)
TWO(fmod, fmodf, fmod)
