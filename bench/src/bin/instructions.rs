//! Instructions of the caching allocator's routes, counted by callgrind: `instructions KIND`.
//!
//! Each route is a function of its own that makes [`CALLS`] calls, so that callgrind can be told to count only inside it:
//!
//! ```sh
//! valgrind --tool=callgrind --toggle-collect='*::KIND' instructions KIND
//! ```
//!
//! The total divided by [`CALLS`] is repeatable to a fraction of an instruction, which no clock is.
#![deny(unsafe_code)]

#[path = "../../../crates/aten-cuda/tests/common/programs.rs"]
#[expect(dead_code, reason = "one of them is counted")]
mod programs;

use std::collections::VecDeque;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::mpsc;

use aten_cuda::compile::{CompileMode, CompileOptions, Compiled, compile_with};
use aten_cuda::{DType, Tensor};
use c10_core::{DeviceIndex, HistoryContext, HistoryOptions, Runtime, Stream};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Calls that each route makes.
const CALLS: usize = 10_000;
/// Bytes of each request of one size.
const BYTES: u64 = 4096;

#[inline(always)]
#[expect(clippy::inline_always, reason = "only what the allocator does is to be counted")]
fn alloc(bytes: u64, stream: &Stream) -> Outcome<u64> {
    Ok(Runtime::default_runtime().memory().alloc(bytes, stream)?)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "only what the allocator does is to be counted")]
fn free(address: u64) -> Outcome {
    Ok(Runtime::default_runtime().memory().free(address)?)
}

/// Sizes that no two neighbours share.
fn size(number: usize) -> u64 {
    512 * (1 + number as u64 * 7 % 61)
}

/// The same, uncounted.
fn take_all(stream: &Stream, addresses: &mut Vec<u64>) -> Outcome {
    for number in 0..CALLS {
        addresses.push(alloc(size(number), stream)?);
    }
    Ok(())
}

/// The addresses in another order than they lie in, so that neighbours are sometimes free.
fn mixed(addresses: &mut Vec<u64>) -> Vec<u64> {
    let taken = std::mem::take(addresses);
    (0..CALLS).map(|number| taken[number * 7919 % CALLS]).collect()
}

/// Gives back what was just handed out, and asks for as much again.
#[inline(never)]
fn pair(stream: &Stream) -> Outcome {
    for _ in 0..CALLS {
        free(black_box(alloc(BYTES, stream)?))?;
    }
    Ok(())
}

/// The same while the history is recorded without stacks: three events each.
#[inline(never)]
fn recorded(stream: &Stream) -> Outcome {
    pair(stream)
}

/// Takes blocks that were not given back last.
#[inline(never)]
fn fresh_hit(stream: &Stream, addresses: &mut Vec<u64>) -> Outcome {
    for number in 0..CALLS {
        addresses.push(alloc(size(number), stream)?);
    }
    Ok(())
}

/// Gives blocks back that were not handed out last.
#[inline(never)]
fn free_any(addresses: &[u64]) -> Outcome {
    for address in addresses {
        free(black_box(*address))?;
    }
    Ok(())
}

/// Gives blocks back on a thread that did not allocate them.
#[inline(never)]
fn remote_free(addresses: &[u64]) -> Outcome {
    addresses.iter().try_for_each(|address| free(*address))
}

/// Hands out a block that another stream uses then, and gives it back.
#[inline(never)]
fn record_stream(stream: &Stream, other: &Stream) -> Outcome {
    for _ in 0..CALLS {
        let address = alloc(BYTES, stream)?;
        Runtime::default_runtime().memory().record_stream(address, other)?;
        free(address)?;
    }
    Ok(())
}

/// Takes a block of the driver's own pools and gives it back.
#[inline(never)]
fn async_pair(stream: &Stream) -> Outcome {
    // Otherwise the compiler makes one function of the two.
    black_box("async");
    for _ in 0..CALLS {
        let memory = stream.runtime().memory();
        memory.free(black_box(memory.alloc(BYTES, stream)?))?;
    }
    Ok(())
}

/// The same with blocks held, of which the oldest is given back.
#[inline(never)]
fn async_replace(stream: &Stream, held: &mut VecDeque<u64>) -> Outcome {
    for _ in 0..CALLS {
        let memory = stream.runtime().memory();
        held.push_back(memory.alloc(BYTES, stream)?);
        held.pop_front().map_or(Ok(()), |oldest| memory.free(black_box(oldest)))?;
    }
    Ok(())
}

/// Runs one of these on a runtime of its own.
fn run_async(kind: &str) -> Outcome {
    let runtime = Runtime::new(cuda_sys::Driver::load()?);
    runtime.memory().set_settings("backend:cudaMallocAsync")?;
    let stream = runtime.streams().pooled(DeviceIndex(0), 0)?;
    let memory = runtime.memory();
    let mut held = VecDeque::new();
    for _ in 0..64 {
        held.push_back(memory.alloc(BYTES, &stream)?);
    }
    if kind == "async_replace" {
        async_replace(&stream, &mut held)?;
    }
    held.into_iter().try_for_each(|address| memory.free(address))?;
    if kind == "async_pair" {
        async_pair(&stream)?;
    }
    Ok(())
}

/// Requests of a step.
const STEP: usize = 100;

/// What a training step does in small: requests that live for different times, all of them given back at the end.
#[inline(always)]
#[expect(clippy::inline_always, reason = "only what the allocator does is to be counted")]
fn step(stream: &Stream, held: &mut [u64; STEP]) -> Outcome {
    Runtime::default_runtime().memory().mark_step(DeviceIndex(0))?;
    for (number, address) in held.iter_mut().enumerate() {
        *address = alloc(size(number) << (number % 4 * 4), stream)?;
        // Every second one is short-lived.
        if number % 2 == 1 {
            free(black_box(*address))?;
        }
    }
    held.iter().step_by(2).rev().try_for_each(|address| free(black_box(*address)))
}

/// The same step again and again, served by the cache.
#[inline(never)]
fn cached_step(stream: &Stream, held: &mut [u64; STEP]) -> Outcome {
    (0..CALLS / STEP).try_for_each(|_| step(stream, held))
}

/// The same, served by a plan.
#[inline(never)]
fn planned_step(stream: &Stream, held: &mut [u64; STEP]) -> Outcome {
    // Otherwise the compiler makes one function of the two.
    black_box("planned");
    (0..CALLS / STEP).try_for_each(|_| step(stream, held))
}

/// Uncounted steps, with plans until one serves whole steps.
fn warm_up(stream: &Stream, held: &mut [u64; STEP], planned: bool) -> Outcome {
    let runtime = Runtime::default_runtime();
    let memory = runtime.memory();
    if planned {
        memory.set_settings("learn_plans:True")?;
    }
    let is_warm = || Ok::<_, c10_core::Error>(memory.plan_stats(DeviceIndex(0))?.planned_requests >= 10 * STEP as u64);
    for _ in 0..5 {
        step(stream, held)?;
    }
    while planned && !is_warm()? {
        step(stream, held)?;
    }
    Ok(())
}

/// Adds two small tensors, and lets the result go.
#[inline(never)]
fn small_add(a: &Tensor, b: &Tensor) -> Outcome {
    for _ in 0..CALLS / 10 {
        black_box(a.add(b)?);
    }
    Ok(())
}

/// Multiplies two small matrices, and lets the result go.
#[inline(never)]
fn small_mm(a: &Tensor, b: &Tensor) -> Outcome {
    for _ in 0..CALLS / 10 {
        black_box(a.mm(b)?);
    }
    Ok(())
}

/// Calls a compiled function, and lets the result go.
#[inline(never)]
fn compiled_call(function: &Compiled, arguments: &[&Tensor]) -> Outcome {
    for _ in 0..CALLS / 10 {
        black_box(function.call(arguments)?);
    }
    Ok(())
}

/// Compiles a program and calls it: one kernel of two arguments, 20 small operations, or a sum that is two kernels.
fn run_compiled(kind: &str) -> Outcome {
    let mut options = CompileOptions::default();
    if kind == "compiled_graph" {
        options.mode = CompileMode::ReduceOverhead;
    }
    let function = if kind == "compiled_twenty" {
        compile_with(programs::twenty, options)
    } else if kind == "compiled_sum" {
        compile_with(|x: &[Tensor]| Ok(vec![x[0].sub(&x[1])?.pow(2)?.sum((), false, None)?]), options)
    } else {
        compile_with(|x: &[Tensor]| Ok(vec![x[0].mul(2)?.add(&x[1])?.relu()?]), options)
    };
    // As many elements as a row is split up for.
    let sizes = [if kind == "compiled_sum" { 1 << 16 } else { 1024 }];
    let (x, y) = (Tensor::ones(&sizes, DType::F32, "cuda")?, Tensor::ones(&sizes, DType::F32, "cuda")?);
    let arguments: &[&Tensor] = if kind == "compiled_twenty" { &[&x] } else { &[&x, &y] };
    for _ in 0..6 {
        function.call(arguments)?;
    }
    compiled_call(&function, arguments)
}

fn run(kind: &str) -> Outcome {
    if kind.starts_with("compiled") {
        return run_compiled(kind);
    }
    if kind.starts_with("async") {
        return run_async(kind);
    }
    let runtime = Runtime::default_runtime();
    let stream = runtime.streams().pooled(DeviceIndex(0), 0)?;
    let other = runtime.streams().pooled(DeviceIndex(0), 0)?;
    let mut addresses = Vec::with_capacity(CALLS);
    // Once uncounted, so that all memory is there, every table has its size, and no peak rises later.
    take_all(&stream, &mut addresses)?;
    mixed(&mut addresses).into_iter().try_for_each(free)?;
    free(alloc(BYTES, &stream)?)?;
    match kind {
        "pair" => pair(&stream)?,
        "recorded" => {
            let options =
                HistoryOptions { context: HistoryContext::Never, max_entries: 10_000, ..HistoryOptions::default() };
            runtime.memory().record_history(Some(&options))?;
            pair(&stream)?;
            recorded(&stream)?;
            runtime.memory().record_history(None)?;
        }
        "fresh_hit" => fresh_hit(&stream, &mut addresses)?,
        "free_any" | "remote_free" => {
            take_all(&stream, &mut addresses)?;
            let mixed = mixed(&mut addresses);
            if kind == "free_any" {
                free_any(&mixed)?;
            } else {
                let (send, receive) = mpsc::channel();
                std::thread::spawn(move || send.send(remote_free(&mixed).map_err(|error| error.to_string())));
                receive.recv()??;
            }
        }
        "record_stream" => record_stream(&stream, &other)?,
        "cached_step" | "planned_step" => {
            let (mut held, planned) = ([0; STEP], kind == "planned_step");
            warm_up(&stream, &mut held, planned)?;
            if planned { planned_step(&stream, &mut held)? } else { cached_step(&stream, &mut held)? }
        }
        "small_add" => {
            let a = Tensor::ones(&[16], DType::F32, "cuda")?;
            a.add(&a)?;
            small_add(&a, &a)?;
        }
        "small_mm" => {
            let a = Tensor::ones(&[16, 16], DType::F32, "cuda")?;
            a.mm(&a)?;
            small_mm(&a, &a)?;
        }
        _ => {
            let usage = "usage: instructions pair|recorded|fresh_hit|free_any|remote_free|record_stream|cached_step|planned_step|\
                         async_pair|async_replace|small_add|small_mm|compiled_one|compiled_twenty|compiled_sum|compiled_graph";
            return Err(usage.into());
        }
    }
    addresses.drain(..).try_for_each(free)
}

fn main() -> ExitCode {
    let kind = std::env::args().nth(1).unwrap_or_default();
    bench::ended(run(&kind).map(|()| true))
}
