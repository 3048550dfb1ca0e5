//! Elementwise functions as CUDA C++ that need no NVRTC: what is translated gives the bits that NVRTC's code gives, and what
//! is not says why.
#![expect(unsafe_code, reason = "functions whose text stands here")]
#![expect(clippy::print_stdout, reason = "tests that are skipped say so")]

mod compiler;

use aten_cuda::compile::compile;
use aten_cuda::jiterator::{JittedFunction, create_jit_fn, create_multi_output_jit_fn};
use aten_cuda::{DType, Result, Scalar, Tensor};
use testkit::{Config, Simulation};

fn single(code: &str, numbers: &[(&str, Scalar)]) -> JittedFunction {
    // SAFETY: the functions here touch nothing but their arguments.
    unsafe { create_jit_fn(code, numbers) }.expect("a text of the grammar")
}

fn several(code: &str, outputs: usize) -> JittedFunction {
    // SAFETY: as above.
    unsafe { create_multi_output_jit_fn(code, outputs, &[]) }.expect("a text of the grammar")
}

fn of_x(body: &str) -> String {
    format!("template <typename T> T f(T x) {{ {body} }}")
}

fn of_xy(body: &str) -> String {
    format!("template <typename T> T f(T x, T y) {{ {body} }}")
}

/// Why a function of floats is not translated.
fn reason(code: &str, inputs: usize) -> String {
    let dtypes = vec![DType::F32; inputs];
    let found = single(code, &[]).untranslated(&dtypes, &[]).expect("dtypes with one in common");
    found.map_or_else(|| format!("`{code}` is translated"), |reason| reason.to_string())
}

/// Numbers of a dtype that show rounding, signs and wrapping.
fn values(dtype: DType, count: i64, factor: f64) -> Result<Tensor> {
    let numbers = Tensor::arange(0, count, 1, Some(DType::F64), "cpu")?.sub(count / 3)?.mul(factor)?;
    let numbers = if dtype == DType::U8 { numbers.abs()? } else { numbers };
    numbers.to_dtype(dtype)?.cuda(None)
}

/// The bodies of functions of `x` and `y`: for every dtype, and for floats alone.
const OF_ALL: [&str; 22] = [
    "return x;",
    "return x + y;",
    "return x * y - x;",
    "return x - y * x;",
    "return x * y + y * x;",
    "return -x;",
    "return +x - -y;",
    "return !x;",
    "return x > y ? x : y;",
    "return x && y || !(x == y);",
    "return (x < y) + (x <= y) * 2 + (x != y) * 4;",
    "return y != T(0) ? x / y : x;",
    "return x + 1;",
    "return x * 0.5 + 1e-3;",
    "return x * 2.5f - 1.f;",
    "return static_cast<T>(int(x) % 7 + (y > x)) + (T)(int)x * (T)2;",
    "return T((int64_t(x) << 3) ^ (int64_t(y) >> 1) | 5 & ~7);",
    "T a = x; T b = a * a; a += b; b -= y; a *= T(2); { T a = b; b = a + y; } return a - b;",
    "if (x > y) return x; if (x == T(0)) { return y; } else if (y > T(3)) { T z = y - x; return z * z; } return x + y;",
    "T z; if (x > T(1)) { z = x; } else { z = y; } z = z + T(1); return z;",
    "const double half = 0.5, more = half + x; auto z = more * y; return z > 3 ? z : 0x10;",
    "unsigned n = 3000000000u; return x + (n > 2147483647) + (-1 < 1u) + (2147483648 > 0);",
];

const OF_FLOATS: [&str; 16] = [
    "return exp(x / T(50)) + log(abs(y) + T(1));",
    "return sqrt(fabs(x)) + rsqrt(fabs(y) + T(1));",
    "return pow(fabs(x) + T(1), y / T(30));",
    "return atan2(x, y) - hypot(x, y);",
    "return fmod(x, y) + floor(x) - ceil(y) + trunc(x * T(0.3)) + rint(y);",
    "return min(x, y) * max(x, y) + fmin(x, T(2)) - fmax(y, T(1));",
    "return isnan(x / y) ? T(1) : isinf(x / y) ? T(2) : isfinite(y) ? x / y : y;",
    "return fma(x, y, x) - x * y;",
    "return expf(x * 0.01f) + sinf(y);",
    "return erf(x) - erfc(y) + lgamma(fabs(x) + T(0.5));",
    "return x * T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));",
    "return x / (T(1) + exp(-x));",
    "return int(x) / 3 + int(y) % 5;",
    "return x - y * 0.1;",
    "return x * x * x + y * y - x * y;",
    "return asin(x / T(100)) + acos(y / T(100)) + atan(x) + sinh(x / T(30)) + cosh(y / T(30)) + tan(x);",
];

/// Where NVRTC makes other products and sums one instruction: inside of functions, and of products that are used twice.
const ROUNDED: [&str; 4] = [
    "return sin(x) * cos(y) + tanh(x * y);",
    "T s = x * y; T t = s + x; return t * s - s;",
    "return expm1(x / T(40)) * log1p(fabs(y)) + log2(fabs(x) + T(1)) + exp2(y / T(40)) + log10(fabs(y) + T(1));",
    "return asinh(x) + acosh(fabs(y) + T(1)) + atanh(x / T(100)) + erfinv(y / T(100));",
];

#[test]
fn translated_texts_give_the_bits_of_nvrtc() -> Result<()> {
    let _simulated = Simulation::new(Config::default()).here();
    let Some(()) = compiler::compiler() else { return Ok(()) };
    let floats = [DType::F16, DType::BF16, DType::F32, DType::F64];
    let others = [DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::Bool];
    let mut cases: Vec<(&str, DType)> = Vec::new();
    cases.extend(OF_ALL.iter().flat_map(|body| floats.iter().chain(&others).map(|dtype| (*body, *dtype))));
    cases.extend(OF_FLOATS.iter().flat_map(|body| [DType::BF16, DType::F32, DType::F64].map(|dtype| (*body, dtype))));
    let mut wrong = Vec::new();
    for (body, dtype) in cases {
        wrong.extend(difference(body, dtype)?);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn what_is_contracted_elsewhere_differs_in_the_last_place() -> Result<()> {
    let _simulated = Simulation::new(Config::default()).here();
    let Some(()) = compiler::compiler() else { return Ok(()) };
    for (body, (dtype, unit)) in ROUNDED.iter().flat_map(|body| {
        [(DType::F32, f64::from(f32::EPSILON)), (DType::F64, f64::EPSILON)].map(|dtype| (*body, dtype))
    }) {
        let [ours, theirs] = both(body, dtype)?.map(|made| made.to_dtype(DType::F64)?.to_vec::<f64>());
        for (one, other) in ours?.into_iter().zip(theirs?) {
            assert!((one - other).abs() <= 2.0 * unit * one.abs().max(1.0), "{dtype} {body}: {one} and {other}");
        }
    }
    Ok(())
}

/// Random numbers below a limit, from a state.
fn draw(state: &mut u64, limit: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 33).unwrap_or(0) % limit
}

/// A random expression of small numbers, so that nothing overflows and floats are exact. With `depth` 0 a leaf.
fn random_expression(state: &mut u64, depth: usize) -> String {
    const TYPES: [&str; 9] = ["T", "int", "int64_t", "unsigned", "uint8_t", "int16_t", "double", "float", "bool"];
    const LEAVES: [&str; 10] = ["x", "y", "z", "1", "3u", "0x5", "2.0f", "0.5", "7ll", "true"];
    if depth == 0 {
        return LEAVES[draw(state, LEAVES.len())].to_owned();
    }
    let mut inner = || random_expression(state, depth - 1);
    let (a, b, c) = (inner(), inner(), inner());
    let ty = TYPES[draw(state, TYPES.len())];
    match draw(state, 13) {
        0 => format!("({a} + {b})"),
        1 => format!("({a} - {b})"),
        2 => format!("({a} * {b})"),
        3 => format!("({a} < {b})"),
        4 => format!("({a} == {b} || {c} != {a})"),
        5 => format!("({a} > {b} ? {c} : {b})"),
        6 => format!("-({a})"),
        7 => format!("(!{a} && {b})"),
        8 => format!("static_cast<{ty}>(int64_t({a}) & 15)"),
        9 => format!("((int64_t({a}) & 7) << (int({b}) & 3))"),
        10 => format!("(int({a}) / (int({b}) | 1) % 5)"),
        11 => format!("(~int({a}) ^ (int)({b}))"),
        _ => format!("max({a} * T(1), T({b} >= {c}))"),
    }
}

#[test]
fn random_functions_give_the_bits_of_nvrtc() -> Result<()> {
    let _simulated = Simulation::new(Config::default()).here();
    let Some(()) = compiler::compiler() else { return Ok(()) };
    let dtypes = [DType::I32, DType::I64, DType::F32, DType::F64, DType::I16, DType::U8, DType::Bool];
    let (mut state, mut translated) = (11, 0);
    for seed in 0..70 {
        let mut next = |depth| random_expression(&mut state, depth);
        let (first, condition, one, two, last) = (next(1), next(2), next(1), next(2), next(2));
        let code = of_xy(&format!(
            "auto z = {}; if ({condition}) {{ z = {one}; }} else if ({two}) return T(int64_t({last}) & 15); return T(int64_t(z) & 15);",
            first.replace('z', "y")
        ));
        let dtype = dtypes[seed % dtypes.len()];
        let numbers = |factor: i64| Tensor::arange(0, 60, 1, Some(DType::I64), "cpu")?.mul(factor)?.remainder(13);
        let (x, y) = (numbers(5)?.to_dtype(dtype)?.cuda(None)?, numbers(7)?.to_dtype(dtype)?.cuda(None)?);
        let function = single(&code, &[]);
        let Some(reason) = function.untranslated(&[dtype, dtype], &[])? else {
            translated += 1;
            let (ours, theirs) = (function.call([&x, &y], &[])?, function.compiled_by_nvrtc().call([&x, &y], &[])?);
            assert_eq!(ours.to_bytes()?, theirs.to_bytes()?, "{dtype} {code}");
            continue;
        };
        assert!(reason.to_string().contains("max"), "{reason} {dtype} {code}");
    }
    assert!(translated > 50, "{translated} of 70");
    Ok(())
}

/// The results of a function, translated and by NVRTC.
fn both(body: &str, dtype: DType) -> Result<[Tensor; 2]> {
    let function = single(&of_xy(body), &[]);
    let (x, y) = (values(dtype, 100, 0.75)?, values(dtype, 100, -0.375)?);
    assert_eq!(function.untranslated(&[dtype, dtype], &[])?, None, "{dtype} {body}");
    Ok([function.call([&x, &y], &[])?, function.compiled_by_nvrtc().call([&x, &y], &[])?])
}

/// Where a function gives other bits by NVRTC than translated, where those are not two that stand for no number.
fn difference(body: &str, dtype: DType) -> Result<Option<String>> {
    let [ours, theirs] = both(body, dtype)?;
    let is_nan = ours.ne(&ours)?.to_bools()?;
    let width = dtype.itemsize();
    let (bytes, wanted) = (ours.to_bytes()?, theirs.to_bytes()?);
    let pairs = bytes.chunks(width).zip(wanted.chunks(width)).zip(&is_nan);
    let differ = pairs.enumerate().filter(|(_, ((one, other), is_nan))| one != other && !**is_nan);
    let places: Vec<usize> = differ.map(|(at, _)| at).collect();
    assert_eq!(is_nan, theirs.ne(&theirs)?.to_bools()?, "{dtype} {body}");
    Ok((!places.is_empty()).then(|| format!("{dtype} {body}: {places:?}\n{}\n{}", ours, theirs)))
}

#[test]
fn numbers_casts_and_layouts_are_those_of_nvrtc() -> Result<()> {
    let _simulated = Simulation::new(Config::default()).here();
    let Some(()) = compiler::compiler() else { return Ok(()) };
    let code = "template <typename T> T f(T x, T y, bool negate, int64_t shift, float scale, T alpha) {
        T z = x * T(scale) + T(shift) - alpha * y;
        return negate ? -z : z;
    }";
    let declared = [("negate", false.into()), ("shift", 3.into()), ("scale", 0.1.into()), ("alpha", 2.5.into())];
    let function = single(code, &declared);
    let given: [&[(&str, Scalar)]; 4] = [
        &[],
        &[("negate", true.into()), ("scale", 7.into())],
        &[("shift", 2.75.into()), ("negate", 0.5.into())],
        &[("alpha", true.into()), ("scale", 1e-3.into())],
    ];
    for (one, other) in
        [(DType::F32, DType::F32), (DType::F16, DType::I64), (DType::F64, DType::BF16), (DType::U8, DType::I16)]
    {
        let (x, y) = (values(one, 96, 0.75)?.view(&[8, 12])?, values(other, 12, 1.5)?);
        let turned = values(one, 96, 0.5)?.view(&[12, 8])?.t()?;
        for numbers in given {
            for x in [&x, &turned] {
                assert_eq!(function.untranslated(&[one, other], numbers)?, None);
                let ours = function.call([x, &y], numbers)?;
                let theirs = function.compiled_by_nvrtc().call([x, &y], numbers)?;
                assert_eq!((ours.dtype(), ours.strides()), (theirs.dtype(), theirs.strides()));
                assert_eq!(ours.to_bytes()?, theirs.to_bytes()?, "{one} {other} {numbers:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn functions_are_translated_without_any_compiler() -> Result<()> {
    let _simulated = Simulation::new(Config::default()).here();
    let x = Tensor::arange(0, 6, 1, Some(DType::F32), "cuda")?;
    let helpers = "
        inline float three() { return 3; }
        template <class T> __device__ T square(T x) { return x * x; }
        template <typename T> T larger(T x, T y) { if (x > y) { return square(x); } return square<T>(y); }
        template <typename T> T last(const T x, const T& y) { return larger(x, y) + T(three()); }";
    let helpers = format!("template <typename T> T first(T x) {{ return x; }} {helpers}");
    let y = Tensor::full(&[], 1.5, DType::F32, "cuda")?;
    assert_eq!(single(&helpers, &[]).call([&x, &y], &[])?.to_vec::<f32>()?, [5.25, 5.25, 7.0, 12.0, 19.0, 28.0]);
    let parts = several(
        "template <typename T> void f(T x, T& whole, T& rest) { whole = floor(x * T(0.5)); rest = x - whole; if (x > T(4)) return; rest += T(1); }",
        2,
    );
    let made = parts.call_multi([&x], &[])?;
    assert_eq!(made[0].to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    assert_eq!(made[1].to_vec::<f32>()?, [1.0, 2.0, 2.0, 3.0, 3.0, 3.0]);
    // Into tensors that are there, also where that is an operand.
    let next = single(&of_x("return x + T(1);"), &[]);
    next.call_into([&x], &[], &[&x])?;
    assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    Ok(())
}

#[test]
fn what_is_not_translated_says_where_and_why() {
    let _simulated = Simulation::new(Config::default()).here();
    let texts = [
        ("for (int i = 0; i < 3; i += 1) { x = x + 1; } return x;", "line 1: `for`"),
        ("while (x > T(1)) x = x / T(2); return x;", "line 1: `while`"),
        ("T a[2]; return x;", "line 1: `[`"),
        ("T* p = &x; return *p;", "line 1: `*`"),
        ("return cbrt(x);", "line 1: the call of `cbrt`"),
        ("return exp(1);", "line 1: the call of `exp`"),
        ("return pow(x, 2);", "line 1: the call of `pow`"),
        ("return x + threadIdx.x;", "line 1: `.`"),
        ("return y;", "line 1: the value of `y`"),
        ("T y; return y;", "line 1: the value of `y`"),
        ("T y; if (x > 0) { y = x; } return y;", "line 1: the value of `y`"),
        ("T x = x; return x;", "line 1: `x` is declared twice"),
        ("const T y = x; y = x; return y;", "line 1: the assignment to `y`"),
        ("if (x > 0) { return x; }", "line 1: `if` of which one branch alone comes to a `return`"),
        ("x = x + 1;", "line 1: `f` may end without a result"),
        ("return x % x;", "line 1: an operator of other types"),
        ("return x; return x;", "line 1: a statement after `return`"),
        ("x++; return x;", "line 1: `++`"),
        ("return std::exp(x);", "line 1: `::`"),
        ("unsigned short s = 1; return x + s;", "line 1: the type `unsigned short`"),
        ("T int = x; return x;", "line 1: `int`"),
        ("return f(x);", "line 1: the call of `f`"),
        ("T exp = x; return exp(x);", "line 1: the call of `exp`"),
        ("return T{x};", "line 1: `{`"),
        ("return 1.0 ? x;", "line 1: `;`"),
        ("return x, x;", "line 1: `,`"),
        ("return 09 + x;", "line 1: the number `09`"),
        ("throw x; return x;", "line 1: `throw`"),
    ];
    for (body, expected) in texts {
        assert_eq!(reason(&of_x(body), 1), expected, "{body}");
    }
    let wholes = [
        ("#define ONE 1\n".to_owned() + &of_x("return x + ONE;"), ""),
        (of_x("\n\n  return x +\n y;"), "line 4: the value of `y`"),
        ("template <typename T> T f(T x) { return x; } /* open".to_owned(), "line 1: a comment without an end"),
        ("template <typename T, int N> T f(T x) { return x; }".to_owned(), "line 1: `,`"),
        ("template <typename T> T exp(T x) { return x; }".to_owned(), "line 1: `exp`"),
        (of_x("return x;") + "\n template <typename T> T f(T x, T y) { return x; }", "line 2: several functions `f`"),
        (of_x("return x;") + "\n float g(float x) { return x; }", "line 2: `g` does not fit the tensors and numbers"),
        (of_xy("return x;"), "line 1: `f` does not fit the tensors and numbers"),
        ("template <typename T> void f(T x) { x = x; }".to_owned(), "line 1: `f`"),
        ("template <typename T> T f(T& x) { return x; }".to_owned(), "line 1: the parameter `x`"),
        (
            "template <typename T> T f(T x) { return g(x); } \n template <typename T> T g(T x) { return f(x); }"
                .to_owned(),
            "line 1: the call of `g`",
        ),
    ];
    for (code, expected) in wholes.iter().filter(|(_, expected)| !expected.is_empty()) {
        assert_eq!(reason(code, 1), *expected, "{code}");
    }
    // A line of the preprocessor is not even of the grammar at the beginning, and nothing that is translated behind it.
    assert_eq!(reason(&(of_x("return x;") + "\n#define ONE 1\n" + &of_x("return x + ONE;")), 1), "line 2: `#`");
}

#[test]
fn deep_and_long_texts_end_well() {
    let _simulated = Simulation::new(Config::default()).here();
    let parentheses = |depth: usize| of_x(&format!("return {}x{};", "(".repeat(depth), ")".repeat(depth)));
    assert!(reason(&parentheses(20), 1).ends_with("is translated"));
    assert!(reason(&parentheses(10_000), 1).contains("levels"));
    let chain = |length: usize| of_x(&format!("return x{};", " + x".repeat(length)));
    assert!(reason(&chain(30), 1).ends_with("is translated"));
    assert!(reason(&chain(10_000), 1).contains("levels"));
    let signs = of_x(&format!("return {}x;", "- ".repeat(10_000)));
    assert!(reason(&signs, 1).contains("levels"));
    let blocks = of_x(&format!("{}return x;{}", "{".repeat(10_000), "}".repeat(10_000)));
    assert!(reason(&blocks, 1).contains("levels"));
    let one_after_the_other = of_x(&format!("{}return x;", "if (x > T(1)) return x; ".repeat(1000)));
    assert!(reason(&one_after_the_other, 1).contains("levels"));
    let doubling = of_x(&format!("{}return x;", "if (x > T(1)) { if (x > T(2)) return x; } ".repeat(60)));
    assert!(reason(&doubling, 1).contains("more than"));
    let calls: String =
        (0..300).map(|at| format!("template <typename T> T g{}(T x) {{ return g{at}(x); }}\n", at + 1)).collect();
    let calls = format!("template <typename T> T g0(T x) {{ return x; }}\n{calls}");
    assert!(reason(&calls, 1).contains("levels"));
    let long = of_x(&format!("{}return x;", "x = x * T(3) + T(1); ".repeat(300)));
    assert!(reason(&long, 1).ends_with("is translated"));
    assert!(reason(&of_x(&format!("{}return x;", " ".repeat(70_000))), 1).contains("64 KiB"));
}

#[test]
fn arbitrary_texts_are_translated_or_left_and_never_panic() {
    let _simulated = Simulation::new(Config::default()).here();
    let words = [
        "x",
        "y",
        "T",
        "return",
        "if",
        "else",
        "(",
        ")",
        "{",
        "}",
        "+",
        "-",
        "*",
        "/",
        "%",
        "<",
        ">",
        "=",
        "==",
        "&&",
        "?",
        ":",
        ";",
        ",",
        "1",
        "2.5f",
        "0x7fu",
        "int",
        "const",
        "exp",
        "static_cast<T>",
        "!",
        "~",
        "<<",
        "+=",
        "auto",
        "double",
    ];
    let mut state = 7;
    let mut next = |limit| draw(&mut state, limit);
    let mut translated = 0;
    for _ in 0..20_000 {
        let count = next(12);
        let expression: Vec<&str> = (0..count).map(|_| words[next(words.len())]).collect();
        let body = match next(3) {
            0 => expression.join(" "),
            1 => format!("return x {} ;", expression.join(" ")),
            _ => format!("T z = x ; {} return z ;", expression.join(" ")),
        };
        translated += usize::from(reason(&of_x(&body), 1).ends_with("is translated"));
    }
    assert!(translated > 100, "{translated} of 20,000");
}

#[test]
fn a_translated_function_is_a_part_of_what_it_is_traced_in() -> Result<()> {
    let _simulated = Simulation::new(Config::default()).here();
    let function = single(&of_xy("return x * y + T(1);"), &[]);
    let inner = function.clone();
    let compiled = compile(move |inputs: &[Tensor]| Ok(vec![inner.call([&inputs[0], &inputs[1]], &[])?.exp()?]));
    let (x, y) = (values(DType::F32, 300, 0.01)?, values(DType::F32, 300, 0.02)?);
    let made = compiled.call(&[&x, &y])?;
    assert_eq!(made[0].to_bytes()?, function.call([&x, &y], &[])?.exp()?.to_bytes()?);
    let report = compiled.report();
    assert_eq!(report.programs[0].kernels.len(), 1, "{report}");
    Ok(())
}
