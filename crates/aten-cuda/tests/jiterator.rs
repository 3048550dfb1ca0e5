//! Elementwise functions as CUDA C++ on the simulated device: torch's rules one by one, against plain Rust.
#![expect(unsafe_code, reason = "functions whose text stands here")]
#![expect(clippy::print_stdout, reason = "tests that are skipped say so")]

mod compiler;

use aten_cuda::jiterator::{JittedFunction, create_jit_fn, create_multi_output_jit_fn};
use aten_cuda::{DType, Error, JitError, Result, Scalar, Tensor};
use testkit::{Config, SimulatedRuntime, Simulation};

/// A simulated machine with NVRTC; `None` where that is not there.
fn fixture() -> Option<SimulatedRuntime> {
    let simulated = Simulation::new(Config::default()).here();
    compiler::compiler().map(|()| simulated)
}

fn single(code: &str, numbers: &[(&str, Scalar)]) -> Result<JittedFunction> {
    // SAFETY: the functions here touch nothing but their arguments.
    unsafe { create_jit_fn(code, numbers) }
}

fn several(code: &str, outputs: usize, numbers: &[(&str, Scalar)]) -> Result<JittedFunction> {
    // SAFETY: the functions here touch nothing but their arguments.
    unsafe { create_multi_output_jit_fn(code, outputs, numbers) }
}

fn jit(error: Error) -> JitError {
    match error {
        Error::Jit(cause) => *cause,
        other => panic!("{other}"),
    }
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
