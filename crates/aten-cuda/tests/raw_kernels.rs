//! Kernels of CUDA C++ that NVRTC compiles, on the simulated device: arguments, templates, headers, shared memory, links, and
//! texts that are wrong.
#![expect(unsafe_code, reason = "launches of the kernels whose text stands here")]
#![expect(clippy::print_stdout, reason = "tests that are skipped say so")]

mod compiler;

use std::collections::BTreeMap;

use aten_cuda::raw::{CompileOptions, KernelArg, RawKernel, compile_kernel};
use aten_cuda::{DType, Error, JitError, Result, Scalar, Tensor};
use testkit::{Config, SimulatedRuntime, Simulation};

/// A simulated machine with NVRTC; `None` where that is not there.
fn fixture() -> Option<SimulatedRuntime> {
    let simulated = Simulation::new(Config::default()).here();
    compiler::compiler().map(|()| simulated)
}

const SCALE: &str = "__global__ void scale(float* x, int count, double by) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) x[at] *= by;
}";

fn plain(source: &str, name: &str) -> Result<RawKernel> {
    compile_kernel(source, name, &CompileOptions::default())
}

fn jit(error: Error) -> JitError {
    match error {
        Error::Jit(cause) => *cause,
        other => panic!("{other}"),
    }
}

#[test]
fn a_kernel_of_text_works_on_a_tensor() -> Result<()> {
    let Some(_simulated) = fixture() else { return Ok(()) };
    let kernel = plain(SCALE, "scale")?;
    let x = Tensor::arange(0, 1000, 1, Some(DType::F32), "cuda")?;
    let tail = x.narrow(0, 500, 500)?;
    // SAFETY: the kernel writes the first 500 elements of the tail.
    unsafe { kernel.launch(2, 256, &[(&tail).into(), 500.into(), 2.5.into()], 0, None) }?;
    let expected: Vec<f32> = (0..1000).map(|at| if at < 500 { at as f32 } else { at as f32 * 2.5 }).collect();
    assert_eq!(x.to_vec::<f32>()?, expected);
    Ok(())
}
