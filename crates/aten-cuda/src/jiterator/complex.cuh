// Complex numbers, for functions on them; NVRTC brings none. Functions of real numbers are called by `::`, because names
// of this namespace would hide them.
namespace std {

template <typename T>
struct alignas(2 * sizeof(T)) complex {
    typedef T value_type;
    T re, im;

    __device__ complex(T real = T(), T imag = T()) : re(real), im(imag) {}
    template <typename U>
    __device__ complex(const complex<U>& other) : re(T(other.re)), im(T(other.im)) {}

    __device__ T real() const { return re; }
    __device__ T imag() const { return im; }
    __device__ void real(T value) { re = value; }
    __device__ void imag(T value) { im = value; }

    __device__ complex& operator+=(const complex& b) { return *this = *this + b; }
    __device__ complex& operator-=(const complex& b) { return *this = *this - b; }
    __device__ complex& operator*=(const complex& b) { return *this = *this * b; }
    __device__ complex& operator/=(const complex& b) { return *this = *this / b; }

    // Inside, so that one side may be a plain number.
    friend __device__ complex operator+(const complex& a) { return a; }
    friend __device__ complex operator-(const complex& a) { return complex(-a.re, -a.im); }
    friend __device__ complex operator+(const complex& a, const complex& b) {
        return complex(a.re + b.re, a.im + b.im);
    }
    friend __device__ complex operator-(const complex& a, const complex& b) {
        return complex(a.re - b.re, a.im - b.im);
    }
    friend __device__ complex operator*(const complex& a, const complex& b) {
        return complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
    }
    friend __device__ complex operator/(const complex& a, const complex& b) {
        // Scaled by the larger part, so that squares do not overflow.
        if (::fabs(b.re) >= ::fabs(b.im)) {
            if (b.re == T() && b.im == T()) return complex(a.re / ::fabs(b.re), a.im / ::fabs(b.im));
            T ratio = b.im / b.re, whole = b.re + b.im * ratio;
            return complex((a.re + a.im * ratio) / whole, (a.im - a.re * ratio) / whole);
        }
        T ratio = b.re / b.im, whole = b.re * ratio + b.im;
        return complex((a.re * ratio + a.im) / whole, (a.im * ratio - a.re) / whole);
    }
    friend __device__ bool operator==(const complex& a, const complex& b) { return a.re == b.re && a.im == b.im; }
    friend __device__ bool operator!=(const complex& a, const complex& b) { return !(a == b); }
};

template <typename T> __device__ T real(const complex<T>& z) { return z.re; }
template <typename T> __device__ T imag(const complex<T>& z) { return z.im; }
template <typename T> __device__ T abs(const complex<T>& z) { return ::hypot(z.re, z.im); }
template <typename T> __device__ T arg(const complex<T>& z) { return ::atan2(z.im, z.re); }
template <typename T> __device__ T norm(const complex<T>& z) { return z.re * z.re + z.im * z.im; }
template <typename T> __device__ complex<T> conj(const complex<T>& z) { return complex<T>(z.re, -z.im); }
template <typename T> __device__ complex<T> polar(T r, T angle) { return complex<T>(r * ::cos(angle), r * ::sin(angle)); }
template <typename T> __device__ complex<T> exp(const complex<T>& z) {
    T size = ::exp(z.re);
    return z.im == T() ? complex<T>(size, z.im) : complex<T>(size * ::cos(z.im), size * ::sin(z.im));
}
template <typename T> __device__ complex<T> log(const complex<T>& z) { return complex<T>(::log(abs(z)), arg(z)); }
template <typename T> __device__ complex<T> log10(const complex<T>& z) { return log(z) / complex<T>(::log(T(10))); }
template <typename T> __device__ complex<T> log2(const complex<T>& z) { return log(z) / complex<T>(::log(T(2))); }
template <typename T> __device__ complex<T> sqrt(const complex<T>& z) {
    if (z.re == T() && z.im == T()) return complex<T>(T(), z.im);
    T half = ::sqrt((::fabs(z.re) + abs(z)) / T(2)), other = ::fabs(z.im) / (T(2) * half);
    return z.re >= T() ? complex<T>(half, ::copysign(other, z.im)) : complex<T>(other, ::copysign(half, z.im));
}
template <typename T> __device__ complex<T> pow(const complex<T>& z, const complex<T>& w) {
    return z == complex<T>() ? (w == complex<T>() ? complex<T>(T(1)) : complex<T>()) : exp(w * log(z));
}
template <typename T> __device__ complex<T> pow(const complex<T>& z, const T& w) { return pow(z, complex<T>(w)); }
template <typename T> __device__ complex<T> pow(const T& z, const complex<T>& w) { return pow(complex<T>(z), w); }
template <typename T> __device__ complex<T> sin(const complex<T>& z) {
    return complex<T>(::sin(z.re) * ::cosh(z.im), ::cos(z.re) * ::sinh(z.im));
}
template <typename T> __device__ complex<T> cos(const complex<T>& z) {
    return complex<T>(::cos(z.re) * ::cosh(z.im), -::sin(z.re) * ::sinh(z.im));
}
template <typename T> __device__ complex<T> tan(const complex<T>& z) { return sin(z) / cos(z); }
template <typename T> __device__ complex<T> sinh(const complex<T>& z) {
    return complex<T>(::sinh(z.re) * ::cos(z.im), ::cosh(z.re) * ::sin(z.im));
}
template <typename T> __device__ complex<T> cosh(const complex<T>& z) {
    return complex<T>(::cosh(z.re) * ::cos(z.im), ::sinh(z.re) * ::sin(z.im));
}
template <typename T> __device__ complex<T> tanh(const complex<T>& z) { return sinh(z) / cosh(z); }

}  // namespace std

namespace jiterator {

struct alignas(4) ComplexHalf {
    Half re, im;
};

template <>
struct Stored<ComplexHalf> {
    typedef std::complex<float> Value;
    static __device__ Value up(ComplexHalf stored) {
        return Value(Stored<Half>::up(stored.re), Stored<Half>::up(stored.im));
    }
    static __device__ ComplexHalf down(Value value) {
        return ComplexHalf{Stored<Half>::down(value.re), Stored<Half>::down(value.im)};
    }
};

template <typename To, typename From>
struct Convert<std::complex<To>, From> {
    static __device__ std::complex<To> of(From value) { return std::complex<To>(To(value)); }
};
template <typename To, typename From>
struct Convert<std::complex<To>, std::complex<From>> {
    static __device__ std::complex<To> of(std::complex<From> value) { return std::complex<To>(value); }
};

}  // namespace jiterator
