//! The functions that CUDA C++ has without any header.
//!
//! Only calls whose meaning does not depend on how overloads are chosen are translated: all arguments of one type, or the
//! functions for `float` alone, such as `expf`.

use kernel_ir::{Binary, Compare, Graph, Math, Type, Unary, Value};

use super::arithmetic::{Typed, convert};

/// What a function is made of.
#[derive(Clone, Copy, Debug)]
enum What {
    Call(Math),
    Unary(Unary),
    Binary(Binary),
    Fma,
    IsNan,
    IsInfinite,
    IsFinite,
}

impl What {
    fn arity(self) -> usize {
        match self {
            Self::Call(function) => function.arity(),
            Self::Unary(_) | Self::IsNan | Self::IsInfinite | Self::IsFinite => 1,
            Self::Binary(_) => 2,
            Self::Fma => 3,
        }
    }
}

/// Functions of floats that have a form for `float` alone, with an `f` at the end.
fn of_floats(name: &str) -> Option<What> {
    Some(match name {
        "sqrt" => What::Unary(Unary::Sqrt),
        "floor" => What::Unary(Unary::Floor),
        "ceil" => What::Unary(Unary::Ceil),
        "trunc" => What::Unary(Unary::Trunc),
        "rint" | "nearbyint" => What::Unary(Unary::Round),
        "fabs" => What::Unary(Unary::Abs),
        "fmin" => What::Binary(Binary::Min),
        "fmax" => What::Binary(Binary::Max),
        "fma" => What::Fma,
        "exp" | "exp2" | "expm1" | "log" | "log2" | "log10" | "log1p" | "rsqrt" | "sin" | "cos" | "tan" | "asin"
        | "acos" | "atan" | "sinh" | "cosh" | "tanh" | "asinh" | "acosh" | "atanh" | "erf" | "erfc" | "erfinv"
        | "lgamma" | "pow" | "atan2" | "hypot" | "fmod" => {
            What::Call(Math::ALL.into_iter().find(|function| function.name() == name)?)
        }
        _ => return None,
    })
}

/// Functions with forms for several types and one name.
fn of_several(name: &str) -> Option<What> {
    Some(match name {
        "min" => What::Binary(Binary::Min),
        "max" => What::Binary(Binary::Max),
        "abs" => What::Unary(Unary::Abs),
        "isnan" => What::IsNan,
        "isinf" => What::IsInfinite,
        "isfinite" => What::IsFinite,
        _ => return None,
    })
}

/// Functions of CUDA C++ that are not translated.
const OTHERS: &str = "cbrt rcbrt sinpi cospi sincos sincospi exp10 erfcx erfcinv normcdf normcdfinv tgamma j0 j1 jn y0 y1 \
    yn ldexp frexp logb ilogb scalbn scalbln modf remainder remquo round lround llround lrint llrint copysign nextafter fdim \
    nan signbit norm norm3d norm4d rhypot rnorm rnorm3d rnorm4d powi cyl_bessel_i0 cyl_bessel_i1 labs llabs umin umax llmin \
    llmax ullmin ullmax mulhi mul24 clock assert printf malloc free memcpy memset saturate fdivide";

/// Whether CUDA C++ has a function of the name; one of the text's own would then be one of several.
pub(super) fn has(name: &str) -> bool {
    let is = |name: &str| {
        of_floats(name).or_else(|| of_several(name)).is_some()
            || OTHERS.split_ascii_whitespace().any(|other| other == name)
    };
    is(name) || name.strip_suffix('f').is_some_and(is)
}

/// A call; none where it is not translated.
pub(super) fn call(graph: &mut Graph, name: &str, arguments: &[Typed]) -> Option<Typed> {
    if let Some(what) = of_floats(name) {
        let ty = one_type(arguments)?;
        return if ty.is_float() { build(graph, what, arguments) } else { None };
    }
    if let Some(what) = of_several(name) {
        let ty = one_type(arguments)?;
        let is_whole = match what {
            What::Unary(_) => matches!(ty, Type::I32 | Type::I64),
            What::Binary(_) => matches!(ty, Type::I32 | Type::U32 | Type::I64 | Type::U64),
            _ => false,
        };
        return if ty.is_float() || is_whole { build(graph, what, arguments) } else { None };
    }
    // The arguments of a function for one type are converted to it.
    let what = of_floats(name.strip_suffix('f')?)?;
    let arguments: Vec<Typed> = arguments.iter().map(|argument| convert(graph, *argument, Type::F32)).collect();
    build(graph, what, &arguments)
}

fn one_type(arguments: &[Typed]) -> Option<Type> {
    let first = arguments.first()?.ty;
    arguments.iter().all(|argument| argument.ty == first).then_some(first)
}

fn build(graph: &mut Graph, what: What, arguments: &[Typed]) -> Option<Typed> {
    if arguments.len() != what.arity() {
        return None;
    }
    let (ty, values): (Type, Vec<Value>) = (arguments[0].ty, arguments.iter().map(|argument| argument.value).collect());
    let value = match what {
        What::Call(function) => graph.call(function, &values),
        What::Unary(op) => graph.unary(op, values[0]),
        What::Binary(op) => graph.binary(op, values[0], values[1]),
        What::Fma => graph.fma(values[0], values[1], values[2]),
        What::IsNan => graph.compare(Compare::Ne, values[0], values[0]),
        What::IsInfinite => compare_size(graph, Compare::Eq, values[0], ty),
        What::IsFinite => compare_size(graph, Compare::Lt, values[0], ty),
    };
    Some(Typed::new(value, graph.type_of(value)))
}

/// Compares a float without its sign with infinity.
fn compare_size(graph: &mut Graph, compare: Compare, value: Value, ty: Type) -> Value {
    let size = graph.unary(Unary::Abs, value);
    let infinity = graph.float(ty, f64::INFINITY);
    graph.compare(compare, size, infinity)
}
