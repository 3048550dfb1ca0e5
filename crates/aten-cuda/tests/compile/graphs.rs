//! Compiled functions as CUDA graphs.

use std::sync::{Mutex, mpsc};
use std::thread::{Scope, ScopedJoinHandle};

use aten_cuda::compile::{CompileMode, CompileOptions, Compiled, compile, compile_with};
use aten_cuda::{DType, Result, Tensor};
use c10_core::Runtime;
use testkit::{CUresult, Config, Fault, SimulatedRuntime, Simulation};

use super::{Function, bits, numbers};

/// How often the driver was asked for something.
fn count(simulated: &SimulatedRuntime, call: &str) -> u64 {
    let all = simulated.machine().calls();
    all.iter().filter(|(name, ..)| *name == call).map(|(.., count)| count).sum()
}

#[test]
fn a_cuda_graph_gives_what_the_kernels_give() {
    let _simulated = testkit::simulated_runtime();
    let mut options = CompileOptions::default();
    options.mode = CompileMode::ReduceOverhead;
    let function: Function = |x| Ok(vec![x[0].mul(&x[1])?.mm(&x[1].t()?)?.softmax(-1, None)?.sum([0], false, None)?]);
    let compiled = compile_with(function, options);
    for seed in 0..5 {
        let (x, y) = (numbers(&[12, 20], seed), numbers(&[12, 20], seed + 7));
        let expected = function(&[x.clone(), y.clone()]).unwrap();
        let found = compiled.call(&[&x, &y]).unwrap();
        assert_eq!(bits(&expected[0]), bits(&found[0]), "call {seed}");
    }
    let report = compiled.report();
    assert_eq!((report.programs.len(), report.programs[0].not_graphed), (1, None), "{report}");
    let sharing = compile_with(|x: &[Tensor]| Ok(vec![x[0].add(&x[1])?]), options);
    let both = numbers(&[2, 6], 5);
    let (first, second) = (both.select(0, 0).unwrap(), both.select(0, 1).unwrap());
    for _ in 0..4 {
        let expected = first.add(&second).unwrap();
        assert_eq!(bits(&sharing.call(&[&first, &second]).unwrap()[0]), bits(&expected));
    }
    assert_eq!(sharing.report().programs[0].not_graphed, Some("its arguments share memory"));
}

pub(super) fn reduced_overhead(
    function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
) -> Compiled {
    let mut options = CompileOptions::default();
    options.mode = CompileMode::ReduceOverhead;
    compile_with(function, options)
}

#[test]
fn a_cuda_graph_reads_arguments_where_they_stay_and_follows_those_that_move() {
    let simulated = testkit::simulated_runtime();
    let function: Function = |x| Ok(vec![x[0].mul(&x[1])?.add(&x[2])?.relu()?]);
    let compiled = reduced_overhead(function);
    let (weight, bias) = (numbers(&[12, 20], 1), numbers(&[20], 2));
    let check = |x: &Tensor, bias: &Tensor| {
        let expected = function(&[x.clone(), weight.clone(), bias.clone()]).unwrap();
        assert_eq!(bits(&compiled.call(&[x, &weight, bias]).unwrap()[0]), bits(&expected[0]), "{}", compiled.report());
    };
    let x = numbers(&[12, 20], 3);
    let count = |call: &str| count(&simulated, call);
    for _ in 0..4 {
        check(&x, &bias);
    }
    // Everything stays: values that are written meanwhile are read, and nothing is copied.
    weight.mul_(2).unwrap();
    check(&x, &bias);
    let before = (count("cuGraphLaunch"), count("cuLaunchKernel"), count("cuMemcpyAsync"));
    compiled.call(&[&x, &weight, &bias]).unwrap();
    let after = (count("cuGraphLaunch"), count("cuLaunchKernel"), count("cuMemcpyAsync"));
    assert_eq!(after, (before.0 + 1, before.1, before.2));
    // One moves, then another, then both come back.
    let others: Vec<Tensor> = (5..9).map(|seed| numbers(&[12, 20], seed)).collect();
    others.iter().for_each(|other| check(other, &bias));
    let far = numbers(&[20], 11);
    others.iter().for_each(|other| check(other, &far));
    check(&x, &bias);
    assert_eq!(count("cuStreamBeginCapture_v2"), 3, "one for each argument that has moved, and the first");
    assert_eq!(compiled.report().programs[0].not_graphed, None);
}

#[test]
fn what_a_cuda_graph_gave_can_be_its_argument() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| Ok(vec![x[0].mul(0.5)?.add(1)?]);
    let compiled = reduced_overhead(function);
    let (mut expected, mut found) = (numbers(&[30], 1), numbers(&[30], 1));
    for call in 0..12 {
        expected = function(std::slice::from_ref(&expected)).unwrap().remove(0);
        found = compiled.call(&[&found]).unwrap().remove(0);
        assert_eq!(bits(&found), bits(&expected), "call {call}");
    }
}

#[test]
fn what_a_compiled_function_gave_can_be_captured_by_another() {
    let _simulated = testkit::simulated_runtime();
    let x = numbers(&[30], 1);
    let doubled = compile(|x: &[Tensor]| Ok(vec![x[0].mul(2)?]));
    for calls in 1..4 {
        // The first two calls trace the function, and the third runs its plan.
        let weight = (0..calls).map(|_| doubled.call(&[&x]).unwrap().remove(0)).last().unwrap();
        let other = {
            let weight = weight.clone();
            compile(move |x: &[Tensor]| Ok(vec![x[0].add(&weight)?.relu()?]))
        };
        let expected = bits(&x.add(&weight).unwrap().relu().unwrap());
        for call in 0..4 {
            assert_eq!(bits(&other.call(&[&x]).unwrap()[0]), expected, "call {call} after {calls}");
        }
    }
}

/// Takes one of two ways, by what the first part of it gives.
fn with_a_break(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let first = x[0].mul(2)?.add(&x[1])?;
    match first.sum((), false, None)?.item()?.to_f64() > 0.0 {
        true => Ok(vec![first.relu()?.add(1)?, first]),
        false => Ok(vec![first.neg()?.exp()?, first]),
    }
}

#[test]
fn parts_of_a_function_with_a_break_are_graphs_beneath_each_other() {
    let simulated = testkit::simulated_runtime();
    let compiled = reduced_overhead(with_a_break);
    let y = numbers(&[40], 2);
    let [up, down] = [5, -5].map(|shift| numbers(&[40], 1).add(shift).unwrap());
    let mut places = [0, 0];
    let mut check = |way: usize| {
        let x = [&up, &down][way];
        let expected: Vec<_> = with_a_break(&[x.clone(), y.clone()]).unwrap().iter().map(bits).collect();
        let found = compiled.call(&[x, &y]).unwrap();
        assert_eq!(found.iter().map(bits).collect::<Vec<_>>(), expected, "{}", compiled.report());
        places[way] = found[0].data_ptr();
    };
    for call in 0..20 {
        check(usize::from(call % 5 > 2));
    }
    let report = compiled.report();
    let called = report.programs[0].called;
    assert_eq!(
        (report.graphs, report.programs[0].not_graphed, called),
        (3, None, Some("its graph breaks")),
        "{report}"
    );
    // Results of the two ways lie in the same memory, since a call takes one of them.
    assert_eq!(places[0], places[1]);
    let before = ["cuGraphLaunch", "cuLaunchKernel", "cuStreamBeginCapture_v2"].map(|call| count(&simulated, call));
    compiled.call(&[&up, &y]).unwrap();
    compiled.call(&[&down, &y]).unwrap();
    let after = ["cuGraphLaunch", "cuLaunchKernel", "cuStreamBeginCapture_v2"].map(|call| count(&simulated, call));
    assert_eq!(after, [before[0] + 4, before[1], before[2]]);
}

#[test]
fn what_a_function_with_a_break_gave_can_be_its_argument() {
    let _simulated = testkit::simulated_runtime();
    let compiled = reduced_overhead(with_a_break);
    let y = numbers(&[40], 2);
    let (mut expected, mut found) = (numbers(&[40], 1), numbers(&[40], 1));
    for call in 0..12 {
        expected = with_a_break(&[expected.clone(), y.clone()]).unwrap().remove(0).mul(0.125).unwrap();
        found = compiled.call(&[&found, &y]).unwrap().remove(0);
        // It is written over by the next call, which reads it before.
        found = if call % 3 == 2 { found.mul_(0.125).unwrap().clone() } else { found.mul(0.125).unwrap() };
        assert_eq!(bits(&found), bits(&expected), "call {call}\n{}", compiled.report());
    }
}

#[test]
fn parts_that_are_graphs_draw_the_numbers_that_the_function_draws() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| {
        let noise = x[0].add(&x[0].rand_like(None)?)?;
        let is_low = noise.max()?.item()?.to_f64() < 2.5;
        Ok(vec![if is_low { noise.dropout(0.3, true)? } else { noise.rand_like(None)?.mul(2)? }, noise])
    };
    let compiled = reduced_overhead(function);
    let x = numbers(&[300], 1);
    let draw = |call: &dyn Fn() -> Vec<Tensor>| {
        aten_cuda::random::manual_seed_all(7).unwrap();
        (0..9).flat_map(|_| call().iter().map(bits).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let expected = draw(&|| function(std::slice::from_ref(&x)).unwrap());
    for _ in 0..2 {
        assert_eq!(draw(&|| compiled.call(&[&x]).unwrap()), expected, "{}", compiled.report());
    }
    assert!(compiled.report().graphs > 1, "{}", compiled.report());
}

#[test]
fn results_of_an_earlier_call_have_no_values_any_more() {
    let _simulated = testkit::simulated_runtime();
    let functions: [Function; 2] = [|x| Ok(vec![x[0].mul(2)?, x[0].add(1)?]), with_a_break];
    for function in functions {
        let compiled = reduced_overhead(function);
        let (x, y) = (numbers(&[40], 1).add(5).unwrap(), numbers(&[40], 2));
        for _ in 0..5 {
            compiled.call(&[&x, &y]).unwrap();
        }
        let first = compiled.call(&[&x, &y]).unwrap();
        let kept = first[0].add(0).unwrap();
        let (view, expected) = (first[0].narrow(0, 3, 8).unwrap(), bits(&first[0]));
        let second = compiled.call(&[&y, &x]).unwrap();
        for error in [first[0].to_vec::<f32>().map(drop), first[1].add(1).map(drop), view.add_(1).map(drop)] {
            assert!(
                error.unwrap_err().to_string().contains("a later call of that function has written over its memory")
            );
        }
        let refused = compiled.call(&[&first[1], &y]).unwrap_err();
        assert!(refused.to_string().contains("has written over its memory"), "{refused}");
        assert_eq!(bits(&kept), expected);
        let expected: Vec<_> = function(&[y.clone(), x.clone()]).unwrap().iter().map(bits).collect();
        assert_eq!(second.iter().map(bits).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn graphs_of_all_shapes_lie_in_the_memory_of_the_largest() {
    let _simulated = testkit::simulated_runtime();
    let function: Function = |x| Ok(vec![x[0].mul(2)?.softmax(-1, None)?.mm(&x[0].t()?)?]);
    let compiled = reduced_overhead(function);
    let shapes: Vec<Tensor> = (1..7).map(|rows| numbers(&[rows * 40, 30], rows)).collect();
    let reserved = || Runtime::current().memory().stats(0).unwrap().reserved_bytes.all.current;
    let mut before = 0;
    for (at, x) in shapes.iter().enumerate().rev() {
        for _ in 0..5 {
            let expected = function(std::slice::from_ref(x)).unwrap();
            assert_eq!(bits(&compiled.call(&[x]).unwrap()[0]), bits(&expected[0]), "{}", compiled.report());
        }
        // The first shape is the largest.
        match at {
            5 => before = reserved(),
            _ => assert_eq!(reserved(), before, "shape {at}"),
        }
    }
    assert_eq!((compiled.report().graphs, compiled.report().programs.len()), (6, 1));
}

#[test]
fn shapes_beyond_the_first_can_do_without_graphs() {
    let _simulated = testkit::simulated_runtime();
    let mut options = CompileOptions::default();
    (options.mode, options.skip_dynamic_graphs) = (CompileMode::ReduceOverhead, true);
    let compiled = compile_with(|x: &[Tensor]| Ok(vec![x[0].mul(2)?]), options);
    for size in [10, 20, 30, 10, 20] {
        let x = numbers(&[size], 1);
        for _ in 0..4 {
            assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), bits(&x.mul(2).unwrap()));
        }
    }
    assert_eq!((compiled.report().graphs, compiled.report().programs[0].shapes), (1, 3));
}

#[test]
fn a_graph_writes_to_arguments_that_stay_and_kernels_to_those_that_move() {
    let simulated = testkit::simulated_runtime();
    let compiled = reduced_overhead(|x: &[Tensor]| x[0].add_(&x[1]).map(|x| vec![x.mul(2).unwrap()]));
    let (weight, expected) = (numbers(&[4], 1), numbers(&[4], 1));
    let check = |weight: &Tensor, expected: &Tensor, step: i64| {
        let step = numbers(&[4], step);
        let found = compiled.call(&[weight, &step]).unwrap();
        expected.add_(&step).unwrap();
        assert_eq!((bits(weight), bits(&found[0])), (bits(expected), bits(&expected.mul(2).unwrap())));
    };
    (0..6).for_each(|step| check(&weight, &expected, step));
    assert_eq!((compiled.report().graphs, compiled.report().programs[0].not_graphed), (1, None));
    let before = count(&simulated, "cuGraphLaunch");
    check(&weight, &expected, 7);
    assert_eq!(count(&simulated, "cuGraphLaunch"), before + 1);
    let (other, other_expected) = (numbers(&[4], 3), numbers(&[4], 3));
    (0..3).for_each(|step| check(&other, &other_expected, step));
    assert_eq!(compiled.report().programs[0].not_graphed, Some("it writes to an argument that moves"));
    (0..3).for_each(|step| check(&weight, &expected, step));
}

#[test]
fn a_function_that_keeps_what_it_makes_runs_without_graphs() {
    let _simulated = testkit::simulated_runtime();
    let state: Mutex<Option<Tensor>> = Mutex::new(None);
    let compiled = reduced_overhead(move |x: &[Tensor]| {
        let mut state = state.lock().unwrap();
        let before = state.take().map_or_else(|| x[0].mul(0), Ok)?;
        let now = before.add(&x[0])?;
        let is_large = now.sum((), false, None)?.item()?.to_f64() > 1e9;
        let made = if is_large { now.mul(0)? } else { now.mul(2)? };
        *state = Some(now);
        Ok(vec![made])
    });
    let (x, mut sum) = (numbers(&[30], 1), numbers(&[30], 1).mul(0).unwrap());
    for call in 0..8 {
        sum = sum.add(&x).unwrap();
        let found = compiled.call(&[&x]).unwrap();
        assert_eq!(bits(&found[0]), bits(&sum.mul(2).unwrap()), "call {call}\n{}", compiled.report());
    }
    let report = compiled.report();
    assert_eq!(report.programs[0].not_graphed, Some("the function keeps tensors that it has made"), "{report}");
}

#[test]
fn calls_on_several_streams_wait_for_each_other_graph_by_graph() {
    let simulated = testkit::simulated_runtime();
    let function: Function = |x| Ok(vec![x[0].mul(2)?.add(1)?]);
    let compiled = reduced_overhead(function);
    let x = numbers(&[40], 1);
    let expected = bits(&function(std::slice::from_ref(&x)).unwrap()[0]);
    let streams = [(); 2].map(|()| c10_core::Stream::new(None, 0).unwrap());
    aten_cuda::synchronize(None).unwrap();
    for call in 0..10 {
        let before = count(&simulated, "cuStreamWaitEvent");
        let launches = count(&simulated, "cuGraphLaunch");
        let _on = streams[call % 2].guard();
        let found = compiled.call(&[&x]).unwrap();
        if call > 7 {
            assert_eq!(count(&simulated, "cuGraphLaunch"), launches + 1, "{}", compiled.report());
            assert_eq!(count(&simulated, "cuStreamWaitEvent"), before + 1, "the last call was on the other stream");
        }
        assert_eq!(bits(&found[0]), expected, "call {call}");
    }
}

#[test]
fn a_cuda_graph_that_fails_leaves_a_function_that_works() {
    for call in ["cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuStreamEndCapture", "cuMemAlloc_v2", "cuMemcpyAsync"]
    {
        for occurrence in 1..6 {
            let simulated = SimulatedRuntime::new(Config::default());
            let function: Function = |x| Ok(vec![x[0].mul(2)?.softmax(-1, None)?.mm(&x[1])?]);
            let compiled = reduced_overhead(function);
            let weight = numbers(&[8, 8], 2);
            simulated.machine().inject(Fault { call, occurrence, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY });
            for seed in 0..8 {
                let x = numbers(&[64, 8], seed / 2);
                let Ok(expected) = function(&[x.clone(), weight.clone()]) else { continue };
                if let Ok(made) = compiled.call(&[&x, &weight]) {
                    assert_eq!(bits(&made[0]), bits(&expected[0]), "{call} {occurrence} {seed}");
                }
            }
            let x = numbers(&[64, 8], 9);
            // The failure may be still to come.
            let expected = (0..2).find_map(|_| function(&[x.clone(), weight.clone()]).ok()).unwrap();
            let found = (0..2).find_map(|_| compiled.call(&[&x, &weight]).ok()).unwrap();
            assert_eq!(bits(&found[0]), bits(&expected[0]), "{call} {occurrence}");
        }
    }
}

#[test]
fn graphs_of_parts_that_fail_leave_nothing_allocated() {
    let calls =
        ["cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuStreamEndCapture", "cuMemAlloc_v2", "cuEventRecord"];
    for (call, occurrence) in calls.into_iter().flat_map(|call| (1..6).map(move |occurrence| (call, occurrence))) {
        let simulated = SimulatedRuntime::new(Config::default());
        let [up, down] = [5, -5].map(|shift| numbers(&[400], 1).add(shift).unwrap());
        let y = numbers(&[400], 2);
        let expected = [&up, &down].map(|x| bits(&with_a_break(&[x.clone(), y.clone()]).unwrap()[0]));
        let allocated = || Runtime::current().memory().stats(0).unwrap().allocated_bytes.all.current;
        let before = allocated();
        let compiled = reduced_overhead(with_a_break);
        simulated.machine().inject(Fault { call, occurrence, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY });
        let check = |way: usize| {
            let made = compiled.call(&[[&up, &down][way], &y])?;
            assert_eq!(bits(&made[0]), expected[way], "{call} {occurrence}\n{}", compiled.report());
            Ok::<(), aten_cuda::Error>(())
        };
        let failed = (0..12).filter(|step| check(step % 4 / 2).is_err()).count();
        assert!(failed <= 1, "{call} {occurrence}: {failed} calls failed");
        check(0).unwrap();
        drop(compiled);
        assert_eq!(allocated(), before, "{call} {occurrence}");
    }
}

/// A thread that makes calls and reads results when it is told to.
struct Caller<'scope> {
    steps: mpsc::Sender<Option<f32>>,
    answers: mpsc::Receiver<Result<Vec<f32>>>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Caller<'scope> {
    /// Starts a thread that calls `compiled` for each value and reads the last result for each `None`.
    fn start(scope: &'scope Scope<'scope, '_>, simulation: &Simulation, compiled: &'scope Compiled) -> Self {
        let (steps, to_do) = mpsc::channel::<Option<f32>>();
        let (answer, answers) = mpsc::channel();
        let there = simulation.clone();
        let thread = scope.spawn(move || {
            let _here = there.enter();
            let mut last: Option<Tensor> = None;
            let mut step = |value: Option<f32>| -> Result<Vec<f32>> {
                let Some(value) = value else {
                    return last.as_ref().map_or_else(|| Ok(Vec::new()), Tensor::to_vec::<f32>);
                };
                last = Some(compiled.call(&[&Tensor::full(&[64], value, DType::F32, "cuda")?])?.remove(0));
                Ok(Vec::new())
            };
            to_do.iter().for_each(|value| answer.send(step(value)).unwrap());
        });
        Self { steps, answers, thread }
    }

    fn step(&self, value: Option<f32>) -> Result<Vec<f32>> {
        self.steps.send(value).unwrap();
        self.answers.recv().unwrap()
    }

    fn end(self) {
        drop(self.steps);
        self.thread.join().unwrap();
    }
}

/// Threads that share a function have graphs of their own: a result stays while another thread calls.
#[test]
fn a_call_writes_over_no_result_of_another_thread() {
    let simulation = Simulation::new(Config::default());
    let _here = simulation.enter();
    let compiled = reduced_overhead(|x| Ok(vec![x[0].mul(2)?.add(1)?]));
    std::thread::scope(|scope| {
        let callers = [(), (), ()].map(|()| Caller::start(scope, &simulation, &compiled));
        for round in 0_u8..5 {
            let value = |at: u8| f32::from(10 * round + at);
            for (caller, at) in callers.iter().zip(0..) {
                caller.step(Some(value(at))).unwrap();
            }
            for (caller, at) in callers.iter().zip(0..) {
                assert_eq!(caller.step(None).unwrap(), [value(at) * 2.0 + 1.0; 64], "round {round}, thread {at}");
            }
        }
        assert_eq!(compiled.report().graphs, 3);
        callers.into_iter().for_each(Caller::end);
    });
    // Graphs of threads that have ended are dropped when another thread comes.
    for _ in 0..4 {
        compiled.call(&[&numbers(&[64], 1)]).unwrap();
    }
    assert_eq!(compiled.report().graphs, 1);
}

/// The calls of several threads at once, in any order.
#[test]
fn threads_that_call_at_once_have_their_own_numbers() {
    let simulation = Simulation::new(Config::default());
    let _here = simulation.enter();
    let compiled = reduced_overhead(|x| Ok(vec![x[0].mul(2)?.add(1)?]));
    std::thread::scope(|scope| {
        for thread in 0_u8..3 {
            let (compiled, there) = (&compiled, simulation.clone());
            scope.spawn(move || {
                let _here = there.enter();
                for call in 0_u8..40 {
                    let value = f32::from(thread) * 100.0 + f32::from(call);
                    let x = Tensor::full(&[64], value, DType::F32, "cuda").unwrap();
                    let result = compiled.call(&[&x]).unwrap().remove(0);
                    assert_eq!(
                        result.to_vec::<f32>().unwrap(),
                        [value * 2.0 + 1.0; 64],
                        "thread {thread}, call {call}"
                    );
                }
            });
        }
    });
}
