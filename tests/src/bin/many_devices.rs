//! What several GPUs of this machine do together, against the host: `many_devices [--small | --has-nccl]`.
//!
//! Prints how the devices are connected; then copies and sums by `comm` on every way, sums and barriers by symmetric memory,
//! and NCCL: communicators whose calls are polled and direct, of one thread and of several, parts of them, factors, messages,
//! and one that is aborted; captured and replayed too. A line for each says `ok` or `WRONG`, or why it is left out; the exit
//! code is 1 where something is wrong. `--small` takes small tensors, for simulated devices. `--has-nccl` says by its exit code alone whether there are two devices and NCCL.

use std::process::ExitCode;
use std::time::Duration;

use aten_cuda::comm::{self, Pattern, Route, Topology};
use aten_cuda::nccl::{self, Calls, Communicator, Options, ReduceOp, Using};
use aten_cuda::symmetric::Symmetric;
use aten_cuda::{DType, Result, Tensor};
use c10_core::{CUDAGraph, CaptureMode, Device, Runtime, Stream};
use tests::program::{ended, say};

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--has-nccl") {
        let has = device_count() > 1 && nccl::loaded_library().is_ok();
        return if has { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    ended(all())
}

/// So many elements, or few where the devices are simulated.
fn large(count: i64) -> i64 {
    if std::env::args().any(|word| word == "--small") { count.min(20_000) } else { count }
}

fn device_count() -> i32 {
    Runtime::with_current(|runtime| i32::try_from(runtime.device_count()).unwrap_or(0))
}

fn all() -> Result<bool> {
    let count = device_count().min(16);
    if count < 2 {
        say(&format!("left out: two devices are needed, and there are {count}"));
        return Ok(true);
    }
    let devices: Vec<i32> = (0..count).collect();
    let topology = Topology::of(&devices)?;
    for (one, other) in (0..devices.len()).flat_map(|one| (0..one).map(move |other| (other, one))) {
        let (class, link, path) = (topology.class(one, other), topology.link(one, other), topology.path(one, other));
        say(&format!("link {one} - {other} | {class:?} | {link:?} | {path:?}"));
    }
    let mut right = report("comm", copies_and_sums(&devices)?);
    if devices.iter().all(|&one| devices.iter().all(|&other| reaches(one, other))) {
        right &= report("symmetric memory", symmetric(&devices)?);
    } else {
        say("symmetric memory: left out, since some devices do not reach others' memory");
    }
    match nccl::loaded_library() {
        Ok((version, origin)) => {
            say(&format!("NCCL {version} from {origin}"));
            for calls in [Calls::Polled, Calls::Direct] {
                right &= report(&format!("nccl, {calls:?}"), collectives(&devices, calls)?);
                right &= report(&format!("nccl, {calls:?}, a thread for each rank"), threads(&devices, calls));
            }
        }
        Err(reason) => say(&format!("nccl: left out, {reason}")),
    }
    Ok(right)
}

fn report(name: &str, right: bool) -> bool {
    say(&format!("{name}: {}", if right { "ok" } else { "WRONG" }));
    right
}

fn reaches(one: i32, other: i32) -> bool {
    let link = Runtime::with_current(|runtime| runtime.devices().peer_link(one, other));
    link.is_ok_and(|link| link.access)
}

/// Numbers that differ by device and place, small enough to be exact in sums.
fn numbers(device: i32, count: i64) -> Result<Tensor> {
    let numbers = Tensor::arange(0, count, 1, Some(DType::I64), Device::cuda(device))?.remainder(509)?;
    numbers.mul(i64::from(device) + 1)?.to_dtype(DType::F32)
}

fn is(tensor: &Tensor, expected: &[f32]) -> Result<bool> {
    Ok(tensor.to_vec::<f32>()? == expected)
}

/// The sum of all devices' numbers.
fn sum(devices: &[i32], count: i64) -> Vec<f32> {
    let factor: i32 = devices.iter().map(|device| device + 1).sum();
    (0..count).map(|at| f32::from(i16::try_from(at % 509).unwrap_or(0)) * factor as f32).collect()
}

fn copies_and_sums(devices: &[i32]) -> Result<bool> {
    let mut right = true;
    // Large enough for several parts of a chain.
    for count in [1000_i64, large(9 << 20)] {
        let inputs = devices.iter().map(|&device| numbers(device, count)).collect::<Result<Vec<Tensor>>>()?;
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let (first, expected) = (inputs[0].to_vec::<f32>()?, sum(devices, count));
        for route in [Route::Auto, Route::Direct, Route::Tree, Route::Chain, Route::Nccl] {
            comm::set_route(route);
            for copy in comm::broadcast(inputs[0], devices)? {
                right &= is(&copy, &first)?;
            }
            right &= is(&comm::reduce_add(&inputs, devices[1])?, &expected)?;
        }
        comm::set_route(Route::Auto);
        let chunks = comm::scatter(inputs[0], devices, None, 0, &[])?;
        right &= is(&comm::gather(&chunks.iter().collect::<Vec<_>>(), 0, devices[1])?, &first)?;
        for pattern in [Pattern::Auto, Pattern::Ring, Pattern::Tree, Pattern::Nccl] {
            let copies = inputs.iter().map(|input| input.contiguous()?.add(0)).collect::<Result<Vec<Tensor>>>()?;
            comm::all_reduce_(&copies.iter().collect::<Vec<_>>(), pattern)?;
            for copy in &copies {
                right &= is(copy, &expected)?;
            }
        }
    }
    Ok(right)
}

/// A stream beside the current one of each device, after what is queued there.
fn sides(devices: &[i32]) -> Result<Vec<Stream>> {
    let side = |&device: &i32| {
        let side = Stream::new(device, 0)?;
        side.wait_stream(&Runtime::current().streams().current(device)?)?;
        Ok(side)
    };
    devices.iter().map(side).collect()
}

/// Captures a graph for each device, in which `queue` queues on all of them, and replays them; adds three to what is queued.
fn replayed(devices: &[i32], queue: impl Fn() -> Result<()>) -> Result<()> {
    let sides = sides(devices)?;
    let mut graphs: Vec<CUDAGraph> = devices.iter().map(|_| CUDAGraph::new()).collect();
    let mut guards = Vec::new();
    for (graph, side) in graphs.iter_mut().zip(&sides) {
        guards.push(side.guard());
        graph.capture_begin(None, CaptureMode::ThreadLocal)?;
    }
    queue()?;
    for (graph, side) in graphs.iter_mut().zip(&sides) {
        let _current = side.guard();
        graph.capture_end()?;
    }
    while let Some(guard) = guards.pop() {
        drop(guard);
    }
    for _ in 0..3 {
        for (graph, side) in graphs.iter_mut().zip(&sides) {
            let _current = side.guard();
            graph.replay()?;
        }
    }
    Ok(sides.iter().try_for_each(Stream::synchronize)?)
}

fn symmetric(devices: &[i32]) -> Result<bool> {
    let memory = Symmetric::new(1024, devices)?;
    let mut right = true;
    for count in [3_i64, 16_000, large(1 << 20)] {
        let tensors = devices.iter().map(|&device| numbers(device, count)).collect::<Result<Vec<Tensor>>>()?;
        let all: Vec<&Tensor> = tensors.iter().collect();
        memory.all_reduce_(&all)?;
        memory.barrier()?;
        let expected = sum(devices, count);
        for tensor in &tensors {
            right &= is(tensor, &expected)?;
            tensor.fill_(1)?;
        }
        replayed(devices, || memory.all_reduce_(&all))?;
        let cubed = (devices.len() as f32).powi(3);
        for tensor in &tensors {
            right &= is(tensor, &vec![cubed; expected.len()])?;
        }
    }
    Ok(right)
}

fn collectives(devices: &[i32], calls: Calls) -> Result<bool> {
    let options = Options::default().with_calls(calls).with_timeout(Duration::from_secs(60));
    let comms = Communicator::init_all_with(devices, &options)?;
    let using = Using { comms: &comms, ..Using::default() };
    let mut right = true;
    for count in [2_i64, large(1 << 20)] {
        let tensors = devices.iter().map(|&device| numbers(device, count)).collect::<Result<Vec<Tensor>>>()?;
        let all: Vec<&Tensor> = tensors.iter().collect();
        nccl::all_reduce(&all, None, nccl::SUM, &using)?;
        let expected = sum(devices, count);
        for tensor in &tensors {
            right &= is(tensor, &expected)?;
            tensor.fill_(1)?;
        }
        // Half of the sum of two ranks is what each has.
        let op = ReduceOp::premul_sum(0.5);
        replayed(devices, || nccl::all_reduce(&all, None, op, &using))?;
        let grown = (devices.len() as f32 / 2.0).powi(3);
        for tensor in &tensors {
            right &= is(tensor, &vec![grown; expected.len()])?;
        }
    }
    let split = |rank: usize| comms[rank].split((rank < 2).then_some(1), -i32::from(rank > 0), &options);
    let parts = nccl::group(|| (0..devices.len()).map(split).collect::<Result<Vec<_>>>())?;
    let seats: Vec<_> = parts.iter().flatten().map(|part| (part.rank(), part.size())).collect();
    right &= seats == [(1, 2), (0, 2)];
    comms[0].abort()?;
    let after = Tensor::ones(&[1], DType::F32, Device::cuda(devices[0]))?;
    right &= comms[0].all_reduce(&after, &after, nccl::SUM).is_err();
    Ok(right)
}

/// A thread for each rank; whether all were right.
fn threads(devices: &[i32], calls: Calls) -> bool {
    let Ok(id) = nccl::unique_id() else { return false };
    let expected = sum(devices, 1000);
    let one = |rank: usize| -> Result<bool> {
        let options = Options::default().with_calls(calls).with_timeout(Duration::from_secs(60));
        let comm = Communicator::init_rank(devices.len(), &id, rank, devices[rank], &options)?;
        let tensor = numbers(devices[rank], 1000)?;
        comm.all_reduce(&tensor, &tensor, nccl::SUM)?;
        comm.wait(&Runtime::current().streams().current(devices[rank])?, Duration::from_secs(60))?;
        let right = is(&tensor, &expected)?;
        comm.finalize(Duration::from_secs(60))?;
        Ok(right)
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..devices.len()).map(|rank| scope.spawn(move || one(rank))).collect();
        ranks.into_iter().all(|rank| match rank.join() {
            Ok(Ok(right)) => right,
            Ok(Err(error)) => {
                say(&format!("error: {error}"));
                false
            }
            Err(_) => false,
        })
    })
}
