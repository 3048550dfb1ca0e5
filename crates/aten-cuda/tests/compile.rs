//! Compiled functions against the same functions called as they are.

use aten_cuda::compile::{CompileOptions, compile, compile_with};
use aten_cuda::{DType, Result, Tensor};
use c10_core::Runtime;

fn numbers(sizes: &[i64], seed: i64) -> Tensor {
    let count: i64 = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|at| ((at * 37 + seed * 11) % 101) as f32 / 25.0 - 2.0).collect();
    Tensor::from_slice(&values, sizes).unwrap().cuda(None).unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap().iter().map(|value| value.to_bits()).collect()
}

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// Three calls give what the function gives, bit by bit.
fn same(function: Function, inputs: &[&Tensor]) -> aten_cuda::compile::ProgramReport {
    let owned: Vec<Tensor> = inputs.iter().map(|&tensor| tensor.clone()).collect();
    let expected: Vec<Vec<u32>> = function(&owned).unwrap().iter().map(bits).collect();
    let compiled = compile(function);
    for call in 0..3 {
        let found: Vec<Vec<u32>> = compiled.call(inputs).unwrap().iter().map(bits).collect();
        assert_eq!(found, expected, "call {call}\n{}", compiled.report());
    }
    compiled.report().programs.remove(0)
}

#[test]
fn a_chain_is_one_kernel() {
    let _simulated = testkit::simulated_runtime();
    let (x, y) = (numbers(&[64, 33], 1), numbers(&[64, 33], 2));
    let report = same(|x| Ok(vec![x[0].mul(1.5)?.add(&x[1])?.gelu()?.mul(&x[1].sigmoid()?)?.sub(&x[0])?]), &[&x, &y]);
    assert_eq!((report.operations, report.kernels.len(), report.called), (6, 1, None), "{report:?}");
}

#[test]
fn rows_are_fused_with_what_stands_before_and_after() {
    let _simulated = testkit::simulated_runtime();
    let x = numbers(&[600, 40], 1);
    let (weight, bias) = (numbers(&[40], 3), numbers(&[40], 4));
    let report = same(
        |x| Ok(vec![x[0].mul(2)?.layer_norm(&[40], Some(&x[1]), Some(&x[2]), 1e-5)?.gelu()?.add(&x[0])?]),
        &[&x, &weight, &bias],
    );
    assert_eq!((report.kernels.len(), report.called), (1, None), "{report:?}");
    let report = same(|x| Ok(vec![x[0].mul(0.125)?.add(&x[1])?.softmax(-1, None)?]), &[&x, &bias]);
    assert_eq!(report.kernels.len(), 1, "{report:?}");
    let report = same(
        |x| {
            let mean = x[0].pow(2)?.mean([-1], true, None)?;
            Ok(vec![x[0].mul(&mean.add(1e-6)?.rsqrt()?)?.mul(&x[1])?])
        },
        &[&x, &weight],
    );
    assert_eq!(report.kernels.len(), 1, "{report:?}");
    let report = same(|x| Ok(vec![x[0].sub(&x[1])?.pow(2)?.sum((), false, None)?]), &[&x, &numbers(&[600, 40], 9)]);
    assert_eq!(report.kernels.len(), 1, "{report:?}");
}

#[test]
fn values_that_are_read_break_the_graph() {
    let _simulated = testkit::simulated_runtime();
    let x = numbers(&[8], 1);
    let report = same(
        |x| {
            let most = x[0].abs()?.max()?.item()?;
            Ok(vec![x[0].div(most)?.add(1)?])
        },
        &[&x],
    );
    assert_eq!((report.breaks.len(), report.called), (1, Some("its graph breaks")), "{report:?}");
}

#[test]
fn what_is_written_in_place_is_seen_afterwards() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| {
        let made = x[0].mul(2)?;
        made.add_(1)?;
        made.relu_()?;
        x[1].add_(&made)?;
        Ok(vec![made.mul(3)?])
    };
    let (x, eager, compiled_to) = (numbers(&[40], 1), numbers(&[40], 2), numbers(&[40], 2));
    let compiled = compile(function);
    for _ in 0..3 {
        let expected = function(&[x.clone(), eager.clone()]).unwrap();
        let found = compiled.call(&[&x, &compiled_to]).unwrap();
        assert_eq!(bits(&expected[0]), bits(&found[0]));
        assert_eq!(bits(&eager), bits(&compiled_to));
    }
    assert_eq!(compiled.report().programs[0].kernels.len(), 1, "{}", compiled.report());
}

#[test]
fn products_stand_between_kernels() {
    let _simulated = testkit::simulated_runtime();
    let (x, w) = (numbers(&[32, 16], 1), numbers(&[16, 24], 2));
    let report = same(|x| Ok(vec![x[0].mul(0.5)?.mm(&x[1])?.add(1)?.relu()?]), &[&x, &w]);
    assert_eq!((report.kernels.len(), report.kernels.iter().filter(|kernel| kernel.is_call).count()), (3, 1));
}

#[test]
fn another_shape_is_another_program_and_is_explained() {
    let _simulated = testkit::simulated_runtime();
    let compiled = compile(|x: &[Tensor]| Ok(vec![x[0].add(1)?]));
    for size in [4, 5, 4] {
        compiled.call(&[&numbers(&[size], 1)]).unwrap();
    }
    let report = compiled.report();
    assert_eq!(report.programs.len(), 2);
    assert_eq!(report.programs[1].recompiled[0].to_string(), "size of argument 0 was [4] and is [5]");
    let mut options = CompileOptions::default();
    options.recompile_limit = 1;
    let compiled = compile_with(|x: &[Tensor]| Ok(vec![x[0].add(1)?]), options);
    for size in [4, 5, 6] {
        assert_eq!(compiled.call(&[&numbers(&[size], 1)]).unwrap()[0].sizes(), [size]);
    }
    assert_eq!((compiled.report().programs.len(), compiled.report().uncompiled), (1, 2));
}

#[test]
fn nothing_of_a_trace_is_left_allocated() {
    let _simulated = testkit::simulated_runtime();
    let (x, y) = (numbers(&[1000], 1), numbers(&[1000], 2));
    let before = Runtime::current().memory().stats(0).unwrap().allocated_bytes.all.current;
    {
        let compiled = compile(|x: &[Tensor]| Ok(vec![x[0].mul(&x[1])?.sum((), false, None)?.add(&x[0])?]));
        for _ in 0..4 {
            compiled.call(&[&x, &y]).unwrap();
        }
    }
    assert_eq!(Runtime::current().memory().stats(0).unwrap().allocated_bytes.all.current, before);
}
