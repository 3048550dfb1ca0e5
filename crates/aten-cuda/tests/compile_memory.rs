//! The memory that whole compiled programs take, by the allocator's figures, beside what no program could do without.
//!
//! Programs are random, with operations between which results have to be written to memory.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};

use aten_cuda::compile::{Compiled, ProgramReport, compile};
use aten_cuda::{DType, Result, Tensor};
use c10_core::Runtime;
use testkit::{CUresult, Config, Fault, SimulatedRuntime};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

fn ones(sizes: &[i64]) -> Tensor {
    Tensor::ones(sizes, DType::F32, "cuda").unwrap()
}

/// A program of so many operations on two matrices, a different one for each seed.
fn program(seed: u64, operations: usize, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut made: Vec<Tensor> = x.to_vec();
    for _ in 0..operations {
        // What was made last is used most.
        let back = random.below(3) * random.below(3);
        let own = made[made.len() - 1 - back.min(made.len() - 1)].clone();
        let other = made[random.below(made.len())].clone();
        made.push(match random.below(8) {
            0 | 1 => own.flip(&[0])?,
            2 if own.sizes() == other.sizes() => own.add(&other.flip(&[1])?)?,
            3 if own.sizes()[0] < 150 => Tensor::cat(&[&own, &own.mul(2)?.flip(&[0])?], 0)?,
            4 if own.sizes()[0] > 2 => own.narrow(0, 1, own.sizes()[0] / 2)?.flip(&[0])?,
            5 => own.softmax(-1, None)?.flip(&[1])?,
            6 => own.cumsum(0, None)?,
            _ => own.mul(3)?.flip(&[0, 1])?,
        });
    }
    let mut results = vec![made[made.len() - 1].flip(&[0])?];
    for _ in 0..random.below(3) {
        results.push(made[random.below(made.len())].flip(&[1])?);
    }
    Ok(results)
}

/// Bytes that a call has at most beside those that were there before it.
fn measured(compiled: &Compiled, inputs: &[&Tensor]) -> usize {
    let runtime = Runtime::current();
    let memory = runtime.memory();
    let now = || memory.stats(0).unwrap()["allocated_bytes.all.current"];
    let before = now();
    memory.reset_peak_stats(0).unwrap();
    let results = compiled.call(inputs).unwrap();
    let peak = memory.stats(0).unwrap()["allocated_bytes.all.peak"];
    let bytes: usize = results.iter().map(|result| result.storage().nbytes().next_multiple_of(512)).sum();
    assert_eq!(usize::try_from(now() - before).unwrap(), bytes, "a call keeps nothing but its results");
    usize::try_from(peak - before).unwrap()
}

/// What is there at the worst moment, as far as the report tells it: memory that a kernel writes as its only result, from
/// there to its last reader, or to the end where nobody reads it.
fn told_bound(report: &ProgramReport) -> usize {
    let steps = report.kernels.len();
    let mut lives: BTreeMap<usize, (usize, usize, usize)> = BTreeMap::new();
    let mut written_twice = BTreeSet::new();
    for (at, kernel) in report.kernels.iter().enumerate() {
        if let &[slot] = kernel.outputs.as_slice()
            && lives.insert(slot, (usize::try_from(kernel.written).unwrap(), at, steps - 1)).is_some()
        {
            written_twice.insert(slot);
        }
    }
    for (slot, life) in &mut lives {
        let reads = |kernel: &aten_cuda::compile::KernelReport| kernel.inputs.contains(slot);
        life.2 = report.kernels.iter().rposition(reads).unwrap_or(steps - 1);
    }
    let once = lives.iter().filter(|(slot, _)| !written_twice.contains(*slot));
    let once: Vec<(usize, usize, usize)> = once.map(|(_, life)| *life).collect();
    let at = |step: usize| once.iter().filter(move |(_, first, last)| (*first..=*last).contains(&step));
    (0..steps).map(|step| at(step).map(|(bytes, ..)| bytes.next_multiple_of(512)).sum()).max().unwrap_or(0)
}

#[test]
fn programs_take_what_is_there_at_the_worst_moment() {
    let _simulated = testkit::simulated_runtime();
    let (x, y) = (ones(&[24, 20]), ones(&[24, 20]));
    let (mut told, mut programs) = (0, 0);
    for seed in 0..80 {
        let operations = 3 + usize::try_from(seed).unwrap() % 40;
        let compiled = compile(move |x: &[Tensor]| program(seed, operations, x));
        for _ in 0..3 {
            compiled.call(&[&x, &y]).unwrap();
        }
        let report = compiled.report();
        let own = &report.programs[0];
        assert!(own.called.is_none(), "{report}");
        let context = || format!("seed {seed}\n{report}");
        assert_eq!(measured(&compiled, &[&x, &y]), own.peak_bytes, "{}", context());
        assert!(100 * own.peak_bytes <= 102 * own.peak_bound, "{} of {}", own.peak_bytes, context());
        // The bound is no more than what can be told from outside, where everything can.
        let bound = told_bound(own);
        assert!(bound <= own.peak_bound, "{bound} and {}: {}", own.peak_bound, context());
        told += usize::from(bound == own.peak_bound);
        programs += 1;
    }
    assert!(2 * told > programs, "the bound could be told of {told} programs");
}

#[test]
fn results_lend_their_memory_until_they_are_written() {
    let _simulated = testkit::simulated_runtime();
    let x = ones(&[64, 64]);
    // Three results, one after another, of which two are there at once: the last one's memory has the first.
    let compiled = compile(|x: &[Tensor]| Ok(vec![x[0].flip(&[0])?.flip(&[1])?.flip(&[0])?]));
    for _ in 0..3 {
        compiled.call(&[&x]).unwrap();
    }
    let report = compiled.report().programs.remove(0);
    assert_eq!((report.kernels.len(), report.arena_bytes), (3, 64 * 64 * 4), "{report:?}");
    assert_eq!((report.peak_bytes, report.peak_bound), (2 * 64 * 64 * 4, 2 * 64 * 64 * 4), "{report:?}");
    assert_eq!(measured(&compiled, &[&x]), report.peak_bytes);
}

/// What is long before several short results are written cannot lie in one of them.
fn long_then_short(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let long = x[0].flip(&[0])?.flip(&[1])?;
    let ends: Vec<Tensor> = (0..4).map(|at| long.narrow(0, 16 * at, 16)?.flip(&[0])).collect::<Result<_>>()?;
    let other = ends[0].flip(&[1])?;
    Ok([ends, vec![other]].concat())
}

#[test]
fn memory_comes_and_goes_with_its_steps_where_no_block_is_short_enough() {
    let _simulated = testkit::simulated_runtime();
    let x = ones(&[64, 64]);
    let compiled = compile(long_then_short);
    for _ in 0..3 {
        compiled.call(&[&x]).unwrap();
    }
    let report = compiled.report().programs.remove(0);
    assert_eq!((report.called, report.arena_bytes), (None, 0), "{report:?}");
    assert_eq!((report.peak_bytes, report.peak_bound), (2 * 64 * 64 * 4, 2 * 64 * 64 * 4), "{report:?}");
    assert_eq!(measured(&compiled, &[&x]), report.peak_bytes);
}

#[test]
fn memory_that_runs_out_between_two_steps_is_given_back() {
    let simulated = SimulatedRuntime::new(Config::default());
    // More than 1 MiB, so that the long tensors lie in the segment of the argument, and the short ones in one of another kind,
    // which the third step is the first to ask for.
    let x = ones(&[64, 4100]);
    let expected: Vec<Vec<f32>> =
        long_then_short(std::slice::from_ref(&x)).unwrap().iter().map(|made| made.to_vec().unwrap()).collect();
    let compiled = compile(long_then_short);
    for _ in 0..2 {
        compiled.call(&[&x]).unwrap();
    }
    let runtime = Runtime::current();
    let live = || runtime.memory().stats(0).unwrap()["allocated_bytes.all.current"];
    let before = live();
    runtime.memory().empty_cache().unwrap();
    // What fails is tried once more by the allocator.
    for occurrence in 1..3 {
        let (call, code) = ("cuMemAlloc_v2", CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        simulated.machine().inject(Fault { call, occurrence, code });
    }
    assert!(compiled.call(&[&x]).is_err());
    assert_eq!(live(), before);
    for (made, expected) in compiled.call(&[&x]).unwrap().iter().zip(&expected) {
        assert!(made.to_vec::<f32>().unwrap() == *expected);
    }
}
