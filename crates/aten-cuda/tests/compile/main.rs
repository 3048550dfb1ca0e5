//! Compiled functions against the same functions called as they are.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod graphs;
mod passes;
mod streams;
mod updates;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use aten_cuda::compile::{CompileMode, CompileOptions, compile, compile_with};
use aten_cuda::{DType, Result, Tensor};
use c10_core::{CUDAGraph, CaptureMode, Runtime, Stream};
use testkit::{CUresult, Config, Fault, SimulatedRuntime};

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
fn what_nobody_needs_is_left_out_and_what_is_equal_is_done_once() {
    let _simulated = testkit::simulated_runtime();
    let x = numbers(&[64], 1);
    let report = same(
        |x| {
            x[0].exp()?.sin()?;
            Ok(vec![x[0].mul(2)?.add(&x[0].mul(2)?)?])
        },
        &[&x],
    );
    let names: Vec<&str> = report.kernels.iter().flat_map(|kernel| kernel.operations.iter().copied()).collect();
    assert!(report.kernels.len() == 1 && !names.contains(&"exp") && !names.contains(&"sin"), "{report:?}");
    let twice = |x: &[Tensor]| Ok(vec![x[0].mul(3)?.exp2()?.add(&x[0].mul(3)?)?]);
    let texts = aten_cuda::kernel_texts(|| compile(twice).call(&[&x]).map(drop)).unwrap();
    let [text] = texts.as_slice() else { panic!("{texts:?}") };
    let count = |part: &str| text.text.matches(part).count();
    // Once for each element that stands in the text.
    assert_eq!(count("mul.rn.f32"), count("add.rn.f32"), "{}", text.text);
    assert!(["// mul\n", "// exp2\n", "// add\n"].iter().all(|note| count(note) > 0), "{}", text.text);
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
    // Sums of whole numbers are exact in any order, and these may be added up in another one than the function's.
    let [x, y] = [1, 9].map(|seed| numbers(&[600, 40], seed).mul(4).unwrap().floor().unwrap());
    let report = same(|x| Ok(vec![x[0].sub(&x[1])?.pow(2)?.sum((), false, None)?]), &[&x, &y]);
    assert_eq!(report.kernels.len(), 1, "{report:?}");
}

/// Rows that are written out, in several types, with one and with two lanes for a thread.
#[test]
fn rows_that_fill_their_lanes_have_the_bits_of_the_functions() {
    let _simulated = testkit::simulated_runtime();
    let chained: Function = |x| Ok(vec![x[0].mul(1.7)?.add(&x[1])?.softmax(-1, None)?]);
    let logarithm: Function = |x| Ok(vec![x[0].sub(&x[1])?.log_softmax(-1, None)?, x[0].sub(&x[1])?]);
    let scaled: Function = |x| Ok(vec![x[0].mul(&x[2])?.softmax(-1, None)?.add(&x[0])?.mul(&x[2])?]);
    let norm: Function = |x| Ok(vec![x[0].mul(2)?.layer_norm(x[1].sizes(), Some(&x[1]), None, 1e-5)?.gelu()?]);
    let cases = [
        (chained, DType::BF16, 4096, 256),
        (logarithm, DType::F16, 4096, 256),
        (scaled, DType::F32, 2048, 128),
        (norm, DType::F32, 5120, 256),
        (norm, DType::F64, 1024, 128),
    ];
    for (function, dtype, columns, threads) in cases {
        let made =
            [vec![2, columns], vec![columns], vec![2, 1]].map(|sizes| numbers(&sizes, 5).to_dtype(dtype).unwrap());
        let inputs: Vec<&Tensor> = made.iter().collect();
        let texts = aten_cuda::kernel_texts(|| {
            same(function, &inputs);
            Ok(())
        });
        let texts: Vec<String> = texts.unwrap().into_iter().map(|text| text.text).collect();
        let bound = format!(".maxntid {threads}, 1, 1");
        let is_whole = |text: &&String| !text.contains("nounroll") && text.contains(&bound);
        let found = texts.iter().filter(|text| text.contains("entry compiled_rows")).filter(is_whole).count();
        assert_eq!(found, 1, "{dtype:?} {texts:?}");
    }
}

#[test]
fn launches_of_split_rows_are_kept_ready() {
    let _simulated = testkit::simulated_runtime();
    // Sums of small whole numbers are exact in any order.
    let [x, y] = [1, 9].map(|seed| numbers(&[90_000], seed).mul(4).unwrap().floor().unwrap());
    let [few_x, few_y] = [&x, &y].map(|tensor| tensor.reshape(&[3, 30_000]).unwrap());
    let whole: Function = |x| Ok(vec![x[0].sub(&x[1])?.pow(2)?.sum((), false, None)?]);
    let rows: Function = |x| Ok(vec![x[0].sub(&x[1])?.abs()?.sum([-1], false, None)?]);
    // Both have several accumulators, of several widths.
    let places: Function = |x| Ok(vec![x[0].sub(&x[1])?.argmax(Some(1), false)?]);
    let spread: Function = |x| Ok(vec![x[0].sub(&x[1])?.var([-1], 1, false)?.gt(1)?]);
    let (long, few) = ([&x, &y], [&few_x, &few_y]);
    for (function, inputs) in [(whole, long), (rows, few), (places, few), (spread, few)] {
        let report = same(function, &inputs);
        let launches: Vec<usize> = report.kernels.iter().map(|kernel| kernel.launches).collect();
        assert_eq!((launches.last(), report.called), (Some(&2), None), "{report:?}");
    }
    // What lies between two launches is asked for in each call: calls that are under way on two streams share nothing.
    let compiled = compile(whole);
    let expected = bits(&whole(&[x.clone(), y.clone()]).unwrap()[0]);
    let side = Stream::new(None, 0).unwrap();
    side.wait_stream(&Runtime::current().streams().current(0).unwrap()).unwrap();
    let mut found = Vec::new();
    for _ in 0..4 {
        found.extend(compiled.call(&[&x, &y]).unwrap());
        let _on = side.guard();
        found.extend(compiled.call(&[&x, &y]).unwrap());
    }
    aten_cuda::synchronize(None).unwrap();
    assert!(found.iter().all(|sum| bits(sum) == expected));
}

#[test]
fn launches_of_many_operands_are_kept_ready() {
    let _simulated = testkit::simulated_runtime();
    let all: Vec<Tensor> = (0..14).map(|at| numbers(&[6, 50], at)).collect();
    let report = same(
        |x| x.iter().skip(1).try_fold(x[0].clone(), |sum, next| sum.add(&next.mul(2)?)).map(|sum| vec![sum]),
        &all.iter().collect::<Vec<_>>(),
    );
    let kernels: Vec<(usize, usize)> =
        report.kernels.iter().map(|kernel| (kernel.inputs.len(), kernel.launches)).collect();
    assert_eq!(kernels, [(14, 1)], "{report:?}");
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
fn values_that_are_read_before_the_first_operation_are_read_in_each_call() {
    let _simulated = testkit::simulated_runtime();
    let compiled = compile(|x: &[Tensor]| Ok(vec![x[1].mul(x[0].item()?)?]));
    let (factor, x) = (numbers(&[1], 1), numbers(&[9], 2));
    for call in 0..4 {
        let expected = x.mul(factor.item().unwrap()).unwrap();
        assert_eq!(bits(&compiled.call(&[&factor, &x]).unwrap()[0]), bits(&expected), "call {call}");
        if call > 1 {
            factor.add_(1).unwrap();
        }
    }
    let report = compiled.report();
    assert_eq!(report.programs[0].breaks[0].to_string(), "values are read, before the first operation", "{report}");
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

/// A function that counts its calls, and how often it was called.
fn counted(function: Function) -> (Arc<AtomicI64>, impl Fn(&[Tensor]) -> Result<Vec<Tensor>>) {
    let calls = Arc::new(AtomicI64::new(0));
    let count = Arc::clone(&calls);
    (calls, move |x: &[Tensor]| {
        count.fetch_add(1, Ordering::Relaxed);
        function(x)
    })
}

#[test]
fn another_shape_is_one_more_of_the_program_and_is_explained() {
    let _simulated = testkit::simulated_runtime();
    let mut options = CompileOptions::default();
    options.recompile_limit = 1;
    let (calls, function) = counted(|x| Ok(vec![x[0].add(1)?]));
    let compiled = compile_with(function, options);
    for size in [4, 5, 4, 5, 4, 5] {
        compiled.call(&[&numbers(&[size], 1)]).unwrap();
    }
    // Each of the first two was traced twice.
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    for size in [6, 7, 8, 6, 7, 8] {
        let x = numbers(&[size], 1);
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), bits(&x.add(1).unwrap()));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 7);
    let report = compiled.report();
    assert_eq!((report.programs.len(), report.programs[0].shapes, report.uncompiled), (1, 5, 0), "{report}");
    assert_eq!(report.programs[0].resized[0].to_string(), "size of argument 0 was [4] and is [5]");
    assert!(report.to_string().contains("for 5 shapes"), "{report}");
}

#[test]
fn a_shape_with_which_a_function_does_something_else_is_another_program() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| match x[0].sizes()[0] {
        size if size < 10 => Ok(vec![x[0].add(1)?]),
        size if size < 20 => Ok(vec![x[0].mul(2)?.relu()?]),
        _ => Ok(vec![x[0].mul(x[0].sizes()[0])?.exp()?]),
    };
    let mut options = CompileOptions::default();
    options.recompile_limit = 2;
    let (calls, counting) = counted(function);
    let compiled = compile_with(counting, options);
    for size in [4, 14, 24, 5, 15, 25, 24, 26, 4, 14, 24, 4, 14] {
        let x = numbers(&[size], 1);
        let expected = function(std::slice::from_ref(&x)).unwrap();
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), bits(&expected[0]), "{size}");
    }
    let report = compiled.report();
    assert_eq!((report.programs.len(), report.uncompiled), (2, 5), "{report}");
    assert_eq!((report.programs[0].shapes, report.programs[1].shapes), (2, 2), "{report}");
    assert_eq!(report.programs[1].recompiled[0].to_string(), "size of argument 0 was [4] and is [14]");
    // Twice for 4 and 14, once more for 5 and 15, and for each of the five that are no program's.
    assert_eq!(calls.load(Ordering::Relaxed), 2 + 2 + 1 + 1 + 5);
}

#[test]
fn numbers_that_a_function_makes_of_sizes_are_those_of_each_shape() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| {
        let rows = x[0].sizes()[0];
        Ok(vec![x[0].mul(rows)?.sum([0], false, None)?.div(rows + 1)?, x[0].narrow(0, rows / 2, 1)?.neg()?])
    };
    let compiled = compile(function);
    for size in (1..40).chain(1..40) {
        let x = numbers(&[size, 3], size);
        let expected = function(std::slice::from_ref(&x)).unwrap();
        let found = compiled.call(&[&x]).unwrap();
        assert_eq!(found.iter().map(bits).collect::<Vec<_>>(), expected.iter().map(bits).collect::<Vec<_>>(), "{size}");
    }
    assert_eq!(compiled.report().uncompiled, 0, "{}", compiled.report());
}

#[test]
fn a_number_that_changes_with_a_further_shape_and_not_by_it_is_found_out() {
    let _simulated = testkit::simulated_runtime();
    // What the function does changes when the third shape comes, from call to call.
    let (calls, function) = (Arc::new(AtomicI64::new(0)), |calls: i64| if calls < 4 { 1 } else { calls });
    let count = Arc::clone(&calls);
    let compiled = compile(move |x: &[Tensor]| {
        let factor = function(count.fetch_add(1, Ordering::Relaxed));
        Ok(vec![x[0].mul(factor)?.add(x[0].sizes()[0])?])
    });
    let check = |size: i64| {
        // The first two shapes have a factor of 1 for good.
        let factor = if size < 6 { 1 } else { function(calls.load(Ordering::Relaxed)) };
        let x = numbers(&[size], size);
        let expected = x.mul(factor).unwrap().add(size).unwrap();
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), bits(&expected), "{size}");
    };
    for size in [4, 4, 5, 5, 4, 5] {
        check(size);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    for size in [6, 6, 6, 7, 7, 6] {
        check(size);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4 + 6);
    check(4);
    assert_eq!(calls.load(Ordering::Relaxed), 4 + 6);
}

#[test]
fn a_hundred_shapes_in_turn_are_compiled_and_few_are_kept() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| Ok(vec![x[0].mul(2)?.softmax(-1, None)?.add(&x[1])?]);
    let compiled = compile(function);
    let live = || Runtime::current().memory().stats(0).unwrap().allocated_bytes.all.current;
    let before = live();
    for round in 0..3 {
        for size in 1..=100 {
            let (x, y) = (numbers(&[3, size], round), numbers(&[size], round + 5));
            let expected = function(&[x.clone(), y.clone()]).unwrap();
            assert_eq!(bits(&compiled.call(&[&x, &y]).unwrap()[0]), bits(&expected[0]), "{size}");
        }
    }
    let report = compiled.report();
    assert_eq!((report.programs.len(), report.uncompiled, report.programs[0].called), (1, 0, None), "{report}");
    assert!(report.programs[0].shapes >= 100 && report.programs[0].resized.len() < 64, "{report}");
    assert_eq!(live(), before);
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

#[test]
fn wide_intermediates_are_nearer_to_exact_ones() {
    let _simulated = testkit::simulated_runtime();
    let mut options = CompileOptions::default();
    options.wide_intermediates = true;
    let function: Function =
        |x| Ok(vec![x[0].mul(1.7)?.add(&x[1])?.mul(0.37)?.sigmoid()?.mul(&x[1])?.softmax(-1, None)?]);
    let exact = [numbers(&[64, 24], 1), numbers(&[64, 24], 2)].map(|x| x.to_dtype(DType::BF16).unwrap());
    let wide = function(&exact.clone().map(|x| x.to_dtype(DType::F64).unwrap())).unwrap().remove(0);
    let error = |made: &Tensor| {
        let made = made.to_dtype(DType::F64).unwrap();
        made.sub(&wide).unwrap().abs().unwrap().mean((), false, None).unwrap().item().unwrap().to_f64()
    };
    let eager = error(&function(&exact).unwrap()[0]);
    let compiled = compile_with(function, options);
    for _ in 0..3 {
        let found = error(&compiled.call(&[&exact[0], &exact[1]]).unwrap()[0]);
        assert!(found < eager, "{found} and {eager}");
    }
}

#[test]
fn random_numbers_are_those_of_the_function() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| {
        let noise = x[0].rand_like(None)?;
        Ok(vec![x[0].add(&noise)?.dropout(0.3, true)?, noise.mul(2)?])
    };
    let x = numbers(&[300], 1);
    let draw = |call: &dyn Fn() -> Vec<Tensor>| {
        aten_cuda::random::manual_seed_all(7).unwrap();
        (0..3).flat_map(|_| call().iter().map(bits).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let compiled = compile(function);
    let expected = draw(&|| function(std::slice::from_ref(&x)).unwrap());
    assert_eq!(draw(&|| compiled.call(&[&x]).unwrap()), expected);
    assert_eq!(draw(&|| compiled.call(&[&x]).unwrap()), expected);
    assert_eq!(compiled.report().programs[0].called, None);
    let mut options = CompileOptions::default();
    options.mode = CompileMode::ReduceOverhead;
    let graphed = compile_with(function, options);
    for _ in 0..2 {
        assert_eq!(draw(&|| graphed.call(&[&x]).unwrap()), expected);
    }
    assert_eq!(graphed.report().programs[0].not_graphed, None);
}

/// Four calls of a compiled function without breaks give what it gives.
fn same_without_breaks(
    function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    x: &Tensor,
) -> aten_cuda::compile::Compiled {
    // Results of other streams are there once all of them are done.
    let done = |made: Vec<Tensor>| {
        aten_cuda::synchronize(None).unwrap();
        made.iter().map(bits).collect::<Vec<_>>()
    };
    let expected = done(function(std::slice::from_ref(x)).unwrap());
    let compiled = compile(function);
    for call in 0..4 {
        let found = done(compiled.call(&[x]).unwrap());
        assert_eq!(found, expected, "call {call}\n{}", compiled.report());
    }
    let report = compiled.report();
    assert_eq!((report.programs[0].breaks.len(), report.programs[0].called), (0, None), "{report}");
    compiled
}

#[test]
fn functions_from_expressions_are_fused() {
    let _simulated = testkit::simulated_runtime();
    let (x, y) = (numbers(&[64, 33], 1), numbers(&[64, 33], 2));
    let own = Arc::new(aten_cuda::jit_fn!(|a, b| a * b + a).unwrap());
    let compiled = {
        let own = Arc::clone(&own);
        compile(move |x: &[Tensor]| Ok(vec![own.call(&[&x[0].mul(2)?, &x[1]], &[])?.remove(0).relu()?]))
    };
    let expected = bits(&own.call(&[&x.mul(2).unwrap(), &y], &[]).unwrap().remove(0).relu().unwrap());
    for _ in 0..3 {
        assert_eq!(bits(&compiled.call(&[&x, &y]).unwrap()[0]), expected);
    }
    let report = compiled.report();
    let program = &report.programs[0];
    assert_eq!((program.operations, program.kernels.len(), program.called), (3, 1, None), "{report}");
}

#[test]
fn values_of_the_host_that_a_function_makes_are_constants() {
    let _simulated = testkit::simulated_runtime();
    for mode in [CompileMode::Default, CompileMode::ReduceOverhead] {
        let mut options = CompileOptions::default();
        options.mode = mode;
        let compiled = compile_with(
            |x: &[Tensor]| {
                let factors = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], &[3])?.add(1)?.cuda(None)?;
                Ok(vec![x[0].mul(&factors)?.relu()?])
            },
            options,
        );
        for call in 0..4 {
            let x = numbers(&[40, 3], call);
            let factors = Tensor::from_slice(&[2.0_f32, 3.0, 4.0], &[3]).unwrap().cuda(None).unwrap();
            assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), bits(&x.mul(&factors).unwrap().relu().unwrap()));
        }
        let report = compiled.report();
        let program = &report.programs[0];
        assert_eq!((program.kernels.len(), program.called, program.not_graphed), (1, None, None), "{report}");
    }
}

#[test]
fn values_of_the_host_that_a_function_has_captured_are_read_in_each_call() {
    let _simulated = testkit::simulated_runtime();
    let host = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], &[3]).unwrap();
    let compiled = {
        let host = host.clone();
        compile(move |x: &[Tensor]| Ok(vec![x[0].mul(&host.add(1)?.cuda(None)?)?]))
    };
    let x = numbers(&[3], 1);
    for call in 0..4 {
        let expected = bits(&x.mul(&host.add(1).unwrap().cuda(None).unwrap()).unwrap());
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), expected, "call {call}");
        host.add_(1).unwrap();
    }
    assert!(compiled.report().programs[0].called.is_some(), "{}", compiled.report());
}

#[test]
fn a_generator_that_a_function_makes_starts_anew_in_each_call() {
    let _simulated = testkit::simulated_runtime();
    let compiled = compile(|x: &[Tensor]| {
        let own = aten_cuda::random::Generator::new("cuda")?;
        Ok(vec![x[0].copy()?.uniform_(0.0, 1.0, Some(&own))?.add(1)?])
    });
    let x = numbers(&[20], 1);
    let first = bits(&compiled.call(&[&x]).unwrap()[0]);
    for call in 1..4 {
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), first, "call {call}");
    }
}

#[test]
fn memory_that_another_stream_uses_is_told_to_the_allocator_by_each_call() {
    let _simulated = testkit::simulated_runtime();
    let side = Stream::new(None, 0).unwrap();
    let function = move |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let main = Runtime::current().streams().current(side.device_index())?;
        let made = x[0].mul(2)?;
        side.wait_stream(&main)?;
        let beside = {
            let _on = side.guard();
            made.add(1)?
        };
        made.record_stream(&side)?;
        main.wait_stream(&side)?;
        Ok(vec![beside.mul(3)?])
    };
    let compiled = same_without_breaks(function, &numbers(&[100], 3));
    assert!(compiled.report().to_string().contains("record_stream"), "{}", compiled.report());
}

#[test]
fn a_call_that_changes_memory_finds_what_was_there() {
    let _simulated = testkit::simulated_runtime();
    let index = Tensor::from_slice(&[0_i64, 0, 0], &[1, 3]).unwrap().cuda(None).unwrap();
    let function = move |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let made = x[0].mul(2)?;
        let between = made.add(1)?.softmax(-1, None)?;
        made.scatter_(0, &index, &between)?;
        Ok(vec![made.add(&between)?])
    };
    same_without_breaks(function, &numbers(&[4, 3], 5));
}

#[test]
fn what_a_function_keeps_has_it_called_each_time() {
    let _simulated = testkit::simulated_runtime();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let compiled = {
        let kept = Arc::clone(&kept);
        compile(move |x: &[Tensor]| {
            let made = x[0].add(1)?;
            kept.lock().unwrap().push(made.clone());
            Ok(vec![made.mul(2)?])
        })
    };
    let x = numbers(&[10], 1);
    for _ in 0..3 {
        compiled.call(&[&x]).unwrap();
    }
    let expected = bits(&x.add(1).unwrap());
    assert_eq!(
        kept.lock().unwrap().iter().map(bits).collect::<Vec<_>>(),
        [expected.clone(), expected.clone(), expected]
    );
    assert_eq!(compiled.report().programs[0].called, Some("it keeps tensors that it has made"));
}

#[test]
fn a_function_that_changes_its_mind_is_called_each_time() {
    let _simulated = testkit::simulated_runtime();
    let calls = AtomicI64::new(0);
    let compiled = compile(move |x: &[Tensor]| Ok(vec![x[0].add(calls.fetch_add(1, Ordering::Relaxed))?]));
    let x = numbers(&[10], 1);
    for call in 0..4 {
        assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), bits(&x.add(call).unwrap()), "call {call}");
    }
    assert_eq!(compiled.report().programs[0].called, Some("it did something else the second time"));
}

#[test]
fn a_function_that_fails_or_panics_leaves_the_thread_as_it_was() {
    let _simulated = testkit::simulated_runtime();
    let x = numbers(&[10], 1);
    let failing = compile(|x: &[Tensor]| {
        x[0].add_(1)?;
        x[0].add(&x[0].narrow(0, 0, 3)?).map(|made| vec![made])
    });
    assert!(failing.call(&[&x]).unwrap_err().to_string().contains("must match the size"));
    // What was done before the error is done, as without a trace.
    assert_eq!(bits(&x), bits(&numbers(&[10], 1).add(1).unwrap()));
    let panicking = compile(|x: &[Tensor]| {
        let made = x[0].add(1)?;
        assert!(made.dim() == 7, "as this function likes it");
        Ok(vec![made])
    });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panicking.call(&[&x]))).is_err());
    assert_eq!(bits(&x.mul(2).unwrap()).len(), 10);
}

#[test]
fn a_program_of_ten_thousand_operations_is_compiled() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| {
        let mut made = x[0].clone();
        for step in 0..10_000_i64 {
            made = if step % 3 == 0 { made.add(1)? } else { made.mul(0.5)? };
        }
        Ok(vec![made])
    };
    let report = same(function, &[&numbers(&[16], 1)]);
    assert_eq!((report.operations, report.called), (10_000, None));
    assert!(report.kernels.len() <= 10_000 / 40, "{} kernels", report.kernels.len());
}

#[test]
fn failing_calls_leave_nothing_behind() {
    for occurrence in 1..40 {
        for call in ["cuLaunchKernel", "cuMemAlloc_v2", "cuModuleLoadDataEx"] {
            let fault = Fault { call, occurrence, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY };
            let simulated = SimulatedRuntime::new(Config::default());
            let x = numbers(&[64, 8], 1);
            let function: Function = |x| Ok(vec![x[0].mul(2)?.softmax(-1, None)?.mm(&x[0].t()?)?.add(1)?]);
            let expected = bits(&function(std::slice::from_ref(&x)).unwrap()[0]);
            simulated.machine().inject(fault);
            let compiled = compile(function);
            for _ in 0..3 {
                if let Ok(made) = compiled.call(&[&x]) {
                    assert_eq!(bits(&made[0]), expected, "{call} {occurrence}");
                }
            }
        }
    }
}

#[test]
fn a_function_that_breaks_keeps_no_memory_of_its_calls() {
    let _simulated = testkit::simulated_runtime();
    let compiled = compile(|x: &[Tensor]| {
        let made = x[0].mul(2)?;
        let most = made.max()?.item()?;
        Ok(vec![made.div(most)?])
    });
    let x = numbers(&[1000], 1);
    let live = || Runtime::current().memory().stats(0).unwrap().allocated_bytes.all.current;
    compiled.call(&[&x]).unwrap();
    let before = live();
    for _ in 0..10 {
        compiled.call(&[&x]).unwrap();
    }
    assert_eq!(live(), before);
}

#[test]
fn a_function_of_two_devices_is_called_each_time() {
    let _simulated = SimulatedRuntime::new(Config::default().devices(2));
    let function: Function = |x| Ok(vec![x[0].add(1)?.to("cuda:1")?.mul(&x[1])?]);
    let (x, y) = (numbers(&[30], 1), numbers(&[30], 2).to("cuda:1").unwrap());
    let expected = bits(&function(&[x.clone(), y.clone()]).unwrap()[0]);
    let compiled = compile(function);
    for _ in 0..4 {
        assert_eq!(bits(&compiled.call(&[&x, &y]).unwrap()[0]), expected);
    }
    assert!(compiled.report().programs[0].called.is_some());
}

#[test]
fn a_compiled_function_becomes_part_of_a_capture() {
    let _simulated = testkit::simulated_runtime();
    let mut options = CompileOptions::default();
    options.mode = CompileMode::ReduceOverhead;
    let compiled = compile_with(|x: &[Tensor]| Ok(vec![x[0].mul(2)?.softmax(-1, None)?]), options);
    let x = numbers(&[8, 16], 1);
    for _ in 0..3 {
        compiled.call(&[&x]).unwrap();
    }
    let stream = Stream::new(None, 0).unwrap();
    let mut graph = CUDAGraph::new();
    let made = {
        let _on = stream.guard();
        compiled.call(&[&x]).unwrap();
        compiled.call(&[&x]).unwrap();
        compiled.call(&[&x]).unwrap();
        graph.capture(&stream, None, CaptureMode::ThreadLocal, || compiled.call(&[&x])).unwrap()
    };
    stream.synchronize().unwrap();
    x.mul_(3).unwrap();
    aten_cuda::synchronize(None).unwrap();
    let expected = bits(&x.mul(2).unwrap().softmax(-1, None).unwrap());
    graph.replay().unwrap();
    aten_cuda::synchronize(None).unwrap();
    assert_eq!(bits(&made[0]), expected);
}

#[test]
fn traces_are_spans_and_known_programs_make_none() {
    // In a process of its own: whether anybody listens to a span is decided for all threads.
    testkit::with_environment("traces_are_spans_and_known_programs_make_none", &[], || {
        let _simulated = testkit::simulated_runtime();
        let compiled = compile(|x: &[Tensor]| Ok(vec![x[0].mul(3)?.sub(&x[0])?.relu()?]));
        let x = numbers(&[50], 1);
        let heard = || {
            let listener = testkit::Listener::default();
            listener.during(|| drop(compiled.call(&[&x]).unwrap()));
            listener.take_spans()
        };
        let first = heard();
        assert_eq!(first[..2], ["trace_function", "trace_function > compile_graph"], "{first:?}");
        assert!(first.iter().any(|span| span.contains(" > load_module ")), "{first:?}");
        assert_eq!(heard()[0], "trace_function");
        assert_eq!(heard(), [""; 0]);
    });
}
