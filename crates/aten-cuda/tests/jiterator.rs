//! Elementwise functions as CUDA C++ that NVRTC compiles, on the simulated device: torch's rules one by one, against plain
//! Rust. Those that are translated are in `jiterator_translated.rs`.
#![expect(unsafe_code, reason = "functions whose text stands here")]
#![expect(clippy::print_stdout, reason = "tests that are skipped say so")]

mod compiler;

use aten_cuda::jiterator::{JittedFunction, create_jit_fn, create_multi_output_jit_fn};
use aten_cuda::{Complex64, DType, Error, JitError, Operand, Result, Scalar, Tensor, bf16, f16, promote_types};
use testkit::{Config, SimulatedRuntime, Simulation};

/// A simulated machine with NVRTC; `None` where that is not there.
fn fixture() -> Option<SimulatedRuntime> {
    let simulated = Simulation::new(Config::default()).here();
    compiler::compiler().map(|()| simulated)
}

fn single(code: &str, numbers: &[(&str, Scalar)]) -> Result<JittedFunction> {
    // SAFETY: the functions here touch nothing but their arguments.
    unsafe { create_jit_fn(code, numbers) }.map(|function| function.compiled_by_nvrtc())
}

fn several(code: &str, outputs: usize, numbers: &[(&str, Scalar)]) -> Result<JittedFunction> {
    // SAFETY: the functions here touch nothing but their arguments.
    unsafe { create_multi_output_jit_fn(code, outputs, numbers) }.map(|function| function.compiled_by_nvrtc())
}

fn jit(error: Error) -> JitError {
    let Error::Jit(cause) = error else { panic!("{error}") };
    *cause
}

const SCALED: &str = "template <typename T> T scaled(T x, T y, T alpha) { return x + alpha * y; }";

fn floats(count: i64) -> Result<Tensor> {
    Tensor::arange(0, count, 1, Some(DType::F32), "cuda")
}

#[test]
fn a_function_is_called_for_each_element_with_numbers_by_name() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let scaled = single(SCALED, &[("alpha", 2.0.into())])?;
    for count in [1_i64, 511, 512, 513, 5000] {
        let (x, y) = (floats(count)?, floats(count)?.add(1)?);
        let of = |alpha: f32| (0..count).map(|at| at as f32 + alpha * (at + 1) as f32).collect::<Vec<_>>();
        assert_eq!(scaled.call([&x, &y], &[])?.to_vec::<f32>()?, of(2.0));
        assert_eq!(scaled.call([&x, &y], &[("alpha", 0.5.into())])?.to_vec::<f32>()?, of(0.5));
        assert_eq!(scaled.call([&x, &y], &[("alpha", 3.into())])?.to_vec::<f32>()?, of(3.0));
    }
    Ok(())
}

#[test]
fn strides_and_broadcasting_are_followed() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let scaled = single(SCALED, &[("alpha", 10.into())])?;
    let base = floats(24)?.view(&[4, 6])?;
    let (column, turned) = (floats(6)?.view(&[6, 1])?, base.t()?);
    let made = scaled.call([&column, &turned], &[])?;
    assert_eq!(made.sizes(), [6, 4]);
    let expected: Vec<f32> = (0..24).map(|at| (at / 4 + 10 * (at % 4 * 6 + at / 4)) as f32).collect();
    assert_eq!(made.to_vec::<f32>()?, expected);
    let gaps = floats(40)?.slice(0, None, None, 4)?;
    let doubled = scaled.call([&gaps, &gaps], &[("alpha", 1.into())])?;
    assert_eq!(doubled.to_vec::<f32>()?, (0..10).map(|at| (8 * at) as f32).collect::<Vec<_>>());
    let zero_dim = floats(3)?.select(0, 2)?;
    assert_eq!(scaled.call([&zero_dim, &zero_dim], &[])?.to_vec::<f32>()?, [22.0]);
    Ok(())
}

#[test]
fn every_dtype_is_computed_in_itself_and_halves_in_float() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let function = single("template <typename T> T f(T x, T y) { return x * y + x; }", &[])?;
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float8() && *dtype != DType::Bool) {
        let count = 700;
        let x = Tensor::arange(0, count, 1, Some(DType::I64), "cpu")?.remainder(7)?.to_dtype(dtype)?;
        let y = Tensor::arange(1, count + 1, 1, Some(DType::I64), "cpu")?.remainder(5)?.to_dtype(dtype)?;
        let made = function.call([&x.cuda(None)?, &y.cuda(None)?], &[])?;
        assert_eq!(made.dtype(), dtype);
        assert_eq!(made.cpu()?.to_bytes()?, x.mul(&y)?.add(&x)?.to_bytes()?, "{dtype}");
    }
    let all = single("template <typename T> T both(T x, T y) { return x && y; }", &[])?;
    let (x, y) = (Tensor::from_bools(&[true, true, false], &[3])?, Tensor::from_bools(&[true, false, false], &[3])?);
    assert_eq!(all.call([&x.cuda(None)?, &y.cuda(None)?], &[])?.to_bools()?, [true, false, false]);
    // Each step would be rounded if halves were computed in themselves.
    let sum = single("template <typename T> T g(T x) { return x + T(1) - x; }", &[])?;
    let large = Tensor::full(&[4], 4096.0, DType::F16, "cuda")?;
    assert_eq!(sum.call([&large], &[])?.to_vec::<f16>()?, [f16::ONE; 4]);
    let large = Tensor::full(&[4], 4096.0, DType::BF16, "cuda")?;
    assert_eq!(sum.call([&large], &[])?.to_vec::<bf16>()?, [bf16::ONE; 4]);
    Ok(())
}

#[test]
fn inputs_are_cast_to_the_common_dtype_when_they_are_loaded() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let function = single("template <typename T> T f(T x, T y) { return x + y; }", &[])?;
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|dtype| !dtype.is_float8()).collect();
    let common_ones = [DType::F16, DType::BF16, DType::I16, DType::F64, DType::C64];
    for (&other, common) in dtypes.iter().flat_map(|other| common_ones.map(|common| (other, common))) {
        let x = Tensor::arange(0, 30, 1, Some(DType::I64), "cpu")?.to_dtype(other)?.view(&[5, 6])?;
        let y = Tensor::full(&[6], 1, common, "cpu")?;
        let made = function.call([&x.cuda(None)?, &y.cuda(None)?], &[])?;
        let wanted = promote_types(other, common)?;
        assert_eq!(made.dtype(), wanted, "{other} {common}");
        let expected = x.to_dtype(wanted)?.add(&y.to_dtype(wanted)?)?;
        assert_eq!(made.cpu()?.to_bytes()?, expected.to_bytes()?, "{other} {common}");
    }
    // A number too long for a half is rounded to one before it is computed with.
    let x = Tensor::from_slice(&[4097_i64], &[1])?.cuda(None)?;
    let y = Tensor::full(&[1], 0, DType::F16, "cuda")?;
    let exact = single("template <typename T> T h(T x, T y) { return x == T(4096) ? T(1) : T(0); }", &[])?;
    assert_eq!(exact.call([&x, &y], &[])?.to_vec::<f16>()?, [f16::ONE]);
    // Without dimensions a tensor's dtype counts only where its kind is higher.
    let (wide, zero_dim) = (Tensor::ones(&[2], DType::I16, "cuda")?, Tensor::full(&[], 3, DType::I64, "cuda")?);
    assert_eq!(function.call([&wide, &zero_dim], &[])?.dtype(), DType::I16);
    Ok(())
}

#[test]
fn complex_numbers_have_functions_and_mix_with_real_ones() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let code = "template <typename T> T f(T z, T w, T alpha) { return exp(z) * conj(w) / (z + T(2)) + alpha; }";
    let function = single(code, &[("alpha", Complex64::new(0.5, -1.0).into())])?;
    let z: Vec<Complex64> = (0..20).map(|at| Complex64::new(f64::from(at) / 8.0, 1.0 - f64::from(at) / 16.0)).collect();
    let w: Vec<f64> = (0..20).map(|at| f64::from(at) - 3.0).collect();
    let (zs, ws) = (Tensor::from_slice(&z, &[20])?.cuda(None)?, Tensor::from_slice(&w, &[20])?.cuda(None)?);
    let made = function.call([&zs, &ws], &[])?.to_vec::<Complex64>()?;
    for ((made, z), w) in made.iter().zip(&z).zip(&w) {
        let wanted = z.exp() * w / (z + 2.0) + Complex64::new(0.5, -1.0);
        assert!((made - wanted).norm() <= 1e-12 * wanted.norm(), "{made} {wanted}");
    }
    type Function = fn(Complex64) -> Complex64;
    let functions: [(&str, Function); 6] = [
        ("sqrt", Complex64::sqrt),
        ("log", Complex64::ln),
        ("sin", Complex64::sin),
        ("cos", Complex64::cos),
        ("tanh", Complex64::tanh),
        ("sinh", Complex64::sinh),
    ];
    for (name, wanted) in functions {
        let code = format!("template <typename T> T f(T z) {{ return {name}(z); }}");
        let made = single(&code, &[])?.call([&zs], &[])?.to_vec::<Complex64>()?;
        for (made, z) in made.iter().zip(&z) {
            let wanted = wanted(*z);
            assert!((made - wanted).norm() <= 1e-12 * (1.0 + wanted.norm()), "{name} {z}: {made} {wanted}");
        }
    }
    let conjugated = zs.conj();
    let same = single("template <typename T> T same(T z) { return z; }", &[])?;
    let expected: Vec<Complex64> = z.iter().map(Complex64::conj).collect();
    assert_eq!(same.call([&conjugated], &[])?.to_vec::<Complex64>()?, expected);
    Ok(())
}

#[test]
fn several_results_are_written_to_references() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let code =
        "template <typename T> void f(T x, T y, T alpha, T& sum, T& product) { sum = x + y; product = alpha * x * y; }";
    let function = several(code, 2, &[("alpha", 3.into())])?;
    let (x, y) = (floats(1000)?.view(&[10, 100])?, floats(100)?);
    let made = function.call_multi([&x, &y], &[])?;
    let (a, b) = (|at: i64| at as f32, |at: i64| (at % 100) as f32);
    assert_eq!(made[0].to_vec::<f32>()?, (0..1000).map(|at| a(at) + b(at)).collect::<Vec<_>>());
    assert_eq!(made[1].to_vec::<f32>()?, (0..1000).map(|at| 3.0 * a(at) * b(at)).collect::<Vec<_>>());
    // One output is a bare tensor.
    let one = several("template <typename T> void g(T x, T& out) { out = -x; }", 1, &[])?;
    assert_eq!(one.call([&y], &[])?.to_vec::<f32>()?[99], -99.0);
    Ok(())
}

#[test]
fn eight_inputs_and_eight_outputs_are_the_most() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let names: Vec<String> = (0..8).map(|at| format!("T x{at}")).collect();
    let outputs: Vec<String> = (0..8).map(|at| format!("T& y{at}")).collect();
    let body: Vec<String> = (0..8).map(|at| format!("y{at} = x{} + T({at});", 7 - at)).collect();
    let code =
        format!("template <typename T> void f({}, {}) {{ {} }}", names.join(", "), outputs.join(", "), body.join(" "));
    let function = several(&code, 8, &[])?;
    let inputs: Vec<Tensor> =
        (0..8).map(|at| Tensor::full(&[600], 10 * at, DType::I32, "cuda")).collect::<Result<_>>()?;
    let made = function.call_multi(&inputs, &[])?;
    for (at, made) in (0_i32..).zip(&made) {
        assert_eq!(made.to_vec::<i32>()?, [10 * (7 - at) + at; 600]);
    }
    let nine: Vec<&Tensor> = inputs.iter().chain(&inputs[..1]).collect();
    let error = jit(function.call_multi(nine, &[]).unwrap_err());
    assert_eq!(error.to_string(), "jiterator only supports up to 8 tensor inputs.");
    assert!(matches!(jit(several(&code, 9, &[]).unwrap_err()), JitError::Outputs { outputs: 9, most: 8 }));
    assert!(matches!(jit(several(&code, 0, &[]).unwrap_err()), JitError::Outputs { outputs: 0, .. }));
    Ok(())
}

#[test]
fn numbers_come_in_the_order_of_their_declaration_with_pythons_types() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let code = "template <typename T> T f(T x, bool negate, int64_t shift, double scale) {
        T y = x * T(scale) + T(shift);
        return negate ? -y : y;
    }";
    let declared = [("negate", false.into()), ("shift", 1.into()), ("scale", 2.0.into())];
    let function = single(code, &declared)?;
    let x = floats(3)?;
    assert_eq!(function.call([&x], &[])?.to_vec::<f32>()?, [1.0, 3.0, 5.0]);
    let given = [("scale", 4.0.into()), ("negate", true.into())];
    assert_eq!(function.call([&x], &given)?.to_vec::<f32>()?, [-1.0, -5.0, -9.0]);
    // A number of another kind than usual is converted to the parameter's type.
    assert_eq!(function.call([&x], &[("shift", 1.75.into()), ("scale", 1.into())])?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    let long =
        single("template <typename T> T g(T x, int64_t n) { return T(n >> 32); }", &[("n", (7_i64 << 32).into())])?;
    assert_eq!(long.call([&x], &[])?.to_vec::<f32>()?, [7.0; 3]);
    let error = function.call([&x], &[("alpha", 1.into())]).unwrap_err();
    assert_eq!(error.to_string(), "alpha is not declared in function definition");
    let twice = single(code, &[("a", 1.into()), ("a", 2.into())]).unwrap_err();
    assert!(matches!(jit(twice), JitError::DeclaredTwice { name } if name == "a"));
    Ok(())
}

#[test]
fn what_is_no_tensor_or_not_on_the_device_is_refused() -> Result<()> {
    let simulated = Simulation::new(Config::default().devices(2)).here();
    let Some(()) = compiler::compiler() else { return Ok(()) };
    let function = single("template <typename T> T f(T x, T y) { return x + y; }", &[])?;
    let (x, host) = (floats(3)?, Tensor::ones(&[], DType::F32, "cpu")?);
    let number = function.call([Operand::from(&x), 2.0.into()], &[]).unwrap_err();
    assert_eq!(number.to_string(), "1 of input tensors tuple is not a Tensor");
    let beside = function.call([&x, &host], &[]).unwrap_err().to_string();
    assert_eq!(
        beside,
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    );
    assert!(matches!(jit(function.call([&host, &host], &[]).unwrap_err()), JitError::OnHost { .. }));
    let elsewhere = Tensor::ones(&[3], DType::F32, "cuda:1")?;
    let error = function.call([&x, &elsewhere], &[]).unwrap_err().to_string();
    assert!(error.ends_with("two devices, cuda:0 and cuda:1!"), "{error}");
    assert_eq!(function.call([&elsewhere, &elsewhere], &[])?.device(), elsewhere.device());
    let none: [&Tensor; 0] = [];
    assert!(matches!(jit(function.call(none, &[]).unwrap_err()), JitError::NoInput));
    let sizes = function.call([&x, &Tensor::ones(&[2], DType::F32, "cuda")?], &[]).unwrap_err();
    assert!(sizes.to_string().contains("must match the size of tensor b (2) at non-singleton dimension 0"), "{sizes}");
    let byte = x.to_dtype(DType::F8E5M2)?;
    assert!(matches!(jit(function.call([&byte, &byte], &[]).unwrap_err()), JitError::DType { dtype: DType::F8E5M2 }));
    drop(simulated);
    Ok(())
}

#[test]
fn whether_there_is_a_device_is_asked_when_the_function_is_made() -> Result<()> {
    let none = Simulation::new(Config::default().devices(0)).here();
    let function = single(SCALED, &[("alpha", 1.into())])?;
    drop(none);
    let _simulated = Simulation::new(Config::default()).here();
    let x = floats(3)?;
    let error = function.call([&x, &x], &[]).unwrap_err().to_string();
    assert_eq!(error, "Jiterator is only supported on CUDA and ROCm GPUs, none are available.");
    Ok(())
}

#[test]
fn without_elements_nothing_is_compiled_or_launched() -> Result<()> {
    let simulated = Simulation::new(Config::default()).here();
    let function = single("template <typename T> T f(T x) { return no_such_function(x); }", &[])?;
    let made = function.call([&Tensor::ones(&[0, 3], DType::F16, "cuda")?], &[])?;
    assert_eq!((made.sizes(), made.dtype()), (&[0, 3][..], DType::F16));
    assert!(simulated.runtime().last_launches(0)?.is_empty());
    Ok(())
}

#[test]
fn a_text_that_does_not_compile_is_shown_with_its_log() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let code = "template <typename T>\nT f(T x) {\n    T y = x;\n    return y + undeclared;\n}";
    let error = jit(single(code, &[])?.call([&floats(3)?], &[]).unwrap_err());
    let JitError::Compile(refused) = error else { panic!("{error}") };
    let message = refused.messages().into_iter().find(|message| message.is_error).expect("an error");
    assert_eq!((message.line, refused.source.as_str()), (4, code));
    assert!(message.text.contains("undeclared"), "{refused}");
    assert!(refused.marked().contains("> 4 |     return y + undeclared;"), "{}", refused.marked());
    // Another number of parameters than tensors and numbers.
    let arity = single("template <typename T> T f(T x, T y) { return x; }", &[])?.call([&floats(3)?], &[]).unwrap_err();
    assert!(matches!(jit(arity), JitError::Compile(_)));
    Ok(())
}

#[test]
fn results_go_into_tensors_that_are_there_unless_they_overlap() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let both = several("template <typename T> void f(T x, T& a, T& b) { a = x + 1; b = x - 1; }", 2, &[])?;
    let memory = floats(20)?;
    let (low, high) = (memory.narrow(0, 0, 10)?, memory.narrow(0, 10, 10)?);
    both.call_into([&low], &[], &[&low, &high])?;
    let expected: Vec<f32> = (1..11).chain(-1..9).map(|at| at as f32).collect();
    assert_eq!(memory.to_vec::<f32>()?, expected);
    let shifted = memory.narrow(0, 5, 10)?;
    for outputs in [[&shifted, &high], [&low, &low], [&low, &shifted]] {
        assert!(both.call_into([&low], &[], &outputs).is_err());
    }
    let repeated = floats(1)?.expand(&[10])?;
    assert!(both.call_into([&low], &[], &[&repeated, &high]).is_err());
    assert!(both.call_into([&low], &[], &[&low]).is_err(), "two outputs");
    let (long, wrong) = (floats(11)?, low.to_dtype(DType::F64)?);
    assert!(both.call_into([&low], &[], &[&long, &high]).is_err());
    assert!(both.call_into([&low], &[], &[&wrong, &high]).is_err());
    assert_eq!(memory.to_vec::<f32>()?, expected, "refused calls write nothing");
    Ok(())
}

#[test]
fn unaligned_views_are_gone_through_in_narrower_steps() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let function = single("template <typename T> T f(T x) { return x + T(1); }", &[])?;
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
        let memory = Tensor::arange(0, 2100, 1, Some(DType::I64), "cuda")?.remainder(100)?.to_dtype(dtype)?;
        for offset in [0, 1, 2, 4, 8] {
            let view = memory.narrow(0, offset, 2050)?;
            assert_eq!(function.call([&view], &[])?.to_bytes()?, view.add(1)?.to_bytes()?, "{dtype} {offset}");
        }
    }
    Ok(())
}

#[test]
fn helpers_may_stand_before_the_function() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let code = "
        template <typename T> T square(T x) { return x * x; }
        template <typename T> T helper(T x, T y) { if (x > y) { return square(x); } return y; }
        template <typename T>
        T last(T x, T y) { return helper(x, y) + T(1); }
    ";
    let function = single(code, &[])?;
    assert_eq!(function.name(), "last");
    let (x, y) = (floats(4)?, Tensor::full(&[], 1.5, DType::F32, "cuda")?);
    assert_eq!(function.call([&x, &y], &[])?.to_vec::<f32>()?, [2.5, 2.5, 5.0, 10.0]);
    Ok(())
}
