//! Kernels of functions that a program makes at run time: a bounded number stays loaded, the least recently used goes.

use aten_cuda::compile::compile;
use aten_cuda::expression::JitFunction;
use aten_cuda::{DType, Result, Tensor};
use c10_core::{CUDAGraph, CaptureMode, Stream};

/// Functions whose kernels a runtime keeps.
const LIMIT: usize = 1024;

/// A function that no other number gives.
fn function(number: usize) -> JitFunction {
    JitFunction::parse(&format!("shifted(x) = x * 2 + {number}")).expect("the text is right")
}

#[test]
fn kernels_of_dropped_functions_make_room() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let runtime = rig.runtime().clone();
    let x = Tensor::full(&[4], 1.0, DType::F32, "cuda")?;
    let shifted = |number: usize| -> Result<f32> { Ok(function(number).call(&[&x], &[])?[0].to_vec::<f32>()?[3]) };
    assert_eq!(shifted(0)?, 2.0);
    let before = rig.machine().live().modules;

    // A graph and a function that is held keep their kernels, however long ago they were used.
    let held = function(1);
    assert_eq!(held.call(&[&x], &[])?[0].to_vec::<f32>()?[0], 3.0);
    let mut graph = CUDAGraph::new();
    let stream = Stream::new(0, 0)?;
    let output = graph.capture(&stream, None, CaptureMode::Global, || function(2).call(&[&x], &[]))?;

    for number in 3..LIMIT + 200 {
        assert_eq!(shifted(number)?, number as f32 + 2.0);
    }
    runtime.synchronize(0)?;
    let kept = rig.machine().live().modules - before;
    assert!(kept <= LIMIT + 2, "{kept} modules");
    assert!(kept >= LIMIT - 1, "{kept} modules: kernels are kept up to the limit");

    graph.replay()?;
    runtime.synchronize(0)?;
    assert_eq!(output[0].to_vec::<f32>()?, [4.0; 4]);
    assert_eq!(held.call(&[&x], &[])?[0].to_vec::<f32>()?[0], 3.0);
    // A forgotten function is compiled again.
    assert_eq!(shifted(0)?, 2.0);
    Ok(())
}

#[test]
fn compiled_functions_make_room_too() -> Result<()> {
    let rig = testkit::simulated_runtime();
    let x = Tensor::full(&[4], 1.0, DType::F32, "cuda")?;
    for number in 0..LIMIT + 100 {
        let factor = number as f64;
        let compiled = compile(move |inputs: &[Tensor]| Ok(vec![inputs[0].mul(factor)?.add(1.0)?.sin()?]));
        let found = compiled.call(&[&x])?[0].to_vec::<f32>()?[0];
        assert!((f64::from(found) - (factor + 1.0).sin()).abs() < 1e-3, "{number}: {found}");
    }
    rig.runtime().synchronize(0)?;
    let kept = rig.machine().live().modules;
    assert!(kept <= LIMIT + 40, "{kept} modules");
    Ok(())
}
