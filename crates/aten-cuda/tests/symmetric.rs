//! Sums, barriers and copies of devices that reach each other's memory, against the host: on 1 to 16 simulated devices whose
//! kernels wait for each other, in every dtype, with calls that fail and devices that do not come. Races and reads of memory
//! that nobody wrote are looked for.
#![expect(clippy::unwrap_used, reason = "what a test sets up is there")]

mod common;
mod faults;

use std::thread;
use std::time::Duration;

use aten_cuda::symmetric::Symmetric;
use aten_cuda::{CommError, DType, Error, Result, Tensor};
use c10_core::{CUDAGraph, CaptureMode, DeviceIndex, MemoryError, Runtime, Stream};
use common::random;
use testkit::{CUresult, Config, Fault, KernelChecks, ReportKind, SimulatedRuntime, Simulation};

fn machine(devices: u32, seed: u64) -> SimulatedRuntime {
    SimulatedRuntime::new(Config::default().devices(devices).seed(seed))
}

/// One that looks for races, and for reads of memory that nobody wrote.
fn checked(devices: u32, seed: u64) -> SimulatedRuntime {
    let checks = KernelChecks { races: true, uninitialized: true, ..KernelChecks::default() };
    SimulatedRuntime::new(Config::default().devices(devices).seed(seed).checks(checks))
}

fn ranks(devices: u32) -> Vec<i32> {
    (0..devices.cast_signed()).collect()
}

#[track_caller]
fn close(rig: SimulatedRuntime) {
    let mut reports = rig.machine().reports();
    // Machine code is not simulated, and PTX is loaded instead.
    reports.retain(|report| report.kind != ReportKind::NotSupported || report.call != "cuModuleLoadDataEx");
    assert!(reports.is_empty(), "{reports:?}");
    rig.close_clean();
}

/// A tensor of numbers on the host for each rank.
fn numbers(ranks: u32, sizes: &[i64], dtype: DType, from: &mut impl Iterator<Item = u64>) -> Result<Vec<Tensor>> {
    let count = usize::try_from(sizes.iter().product::<i64>()).unwrap();
    let whole = !dtype.is_floating_point() && !dtype.is_complex();
    let mut one = || {
        let values: Vec<f64> = from
            .by_ref()
            .take(count)
            .map(|number| {
                let number = i32::try_from(number % 4001).unwrap() - 2000;
                f64::from(if whole { number % 100 } else { number }) / if whole { 1.0 } else { 64.0 }
            })
            .collect();
        let values = Tensor::from_slice(&values, sizes)?;
        if dtype == DType::Bool { values.gt(0)?.to_dtype(dtype) } else { values.to_dtype(dtype) }
    };
    (0..ranks).map(|_| one()).collect()
}

/// The sum on the host, in the order of the ranks; floats of 16 bits are rounded once.
fn expected(inputs: &[Tensor]) -> Result<Tensor> {
    let dtype = inputs[0].dtype();
    let wide = match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::C32 => DType::C64,
        DType::U8
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::F32
        | DType::F64
        | DType::C64
        | DType::C128
        | DType::Bool
        | DType::F8E4M3FN
        | DType::F8E5M2 => dtype,
    };
    let mut sum = inputs[0].to_dtype(wide)?;
    for input in &inputs[1..] {
        sum = sum.add(&input.to_dtype(wide)?)?;
    }
    sum.to_dtype(dtype)
}

fn there(inputs: &[Tensor], symmetric: &Symmetric) -> Result<Vec<Tensor>> {
    let to = |(input, device): (&Tensor, &DeviceIndex)| input.to_device(format!("cuda:{device}").as_str());
    inputs.iter().zip(symmetric.devices()).map(to).collect()
}

#[track_caller]
fn assert_all(tensors: &[Tensor], expected: &Tensor, what: &str) {
    for (rank, tensor) in tensors.iter().enumerate() {
        assert_eq!((tensor.dtype(), tensor.sizes()), (expected.dtype(), expected.sizes()), "{what}");
        assert_eq!(
            tensor.contiguous().unwrap().to_bytes().unwrap(),
            expected.to_bytes().unwrap(),
            "{what}, rank {rank}"
        );
    }
}

/// Sums of these sizes, one after another, with nothing between.
fn check_sums(devices: u32, dtype: DType, sizes: &[&[i64]], seed: u64) -> Result<()> {
    check_sums_on(machine(devices, seed), devices, dtype, sizes)
}

fn check_sums_on(rig: SimulatedRuntime, devices: u32, dtype: DType, sizes: &[&[i64]]) -> Result<()> {
    let symmetric = Symmetric::new(0, &ranks(devices))?;
    let mut from = random(i64::MAX);
    let mut sums = Vec::new();
    for sizes in sizes {
        let inputs = numbers(devices, sizes, dtype, &mut from)?;
        let tensors = there(&inputs, &symmetric)?;
        symmetric.all_reduce_(&tensors.iter().collect::<Vec<_>>())?;
        sums.push((tensors, expected(&inputs)?));
    }
    for (tensors, expected) in &sums {
        assert_all(tensors, expected, &format!("{devices} devices, {dtype}, {:?}", expected.sizes()));
    }
    drop((sums, symmetric));
    close(rig);
    Ok(())
}

const SUMMED: [DType; 13] = [
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::C32,
    DType::C64,
    DType::C128,
    DType::Bool,
];

#[test]
fn every_dtype_is_added_to_the_same_bits_on_all_devices() -> Result<()> {
    for dtype in SUMMED {
        check_sums(2, dtype, &[&[1], &[3], &[], &[7, 11], &[0], &[1025]], 1)?;
        check_sums(4, dtype, &[&[5], &[300]], 2)?;
    }
    Ok(())
}

#[test]
fn every_dtype_is_added_in_parts() -> Result<()> {
    for (seed, dtype) in (0..).zip(SUMMED) {
        let count = i64::try_from((64 << 10) / dtype.itemsize()).unwrap() + 3;
        check_sums(2, dtype, &[&[count], &[1], &[count + 1]], seed)?;
    }
    check_sums(8, DType::F32, &[&[17_001]], 3)?;
    // Several rounds of all blocks.
    check_sums(2, DType::C128, &[&[140_001]], 4)?;
    check_sums(3, DType::BF16, &[&[40_001]], 5)
}

#[test]
fn nothing_races_and_only_what_was_written_is_read() -> Result<()> {
    for seed in 0..3 {
        check_sums_on(checked(2, seed), 2, DType::F32, &[&[1], &[700], &[17_001], &[5]])?;
    }
    check_sums_on(checked(4, 1), 4, DType::BF16, &[&[33_001], &[3000]])
}

#[test]
fn any_number_of_devices_takes_part() -> Result<()> {
    for devices in [1, 2, 3, 5, 8, 16] {
        check_sums(devices, DType::F32, &[&[1], &[130], &[1100]], devices.into())?;
    }
    check_sums(16, DType::F64, &[&[8200]], 9)
}

#[test]
fn sums_of_changing_sizes_follow_each_other_without_waiting() -> Result<()> {
    for seed in 0..4 {
        let mut draw = random(1000).skip(usize::try_from(seed * 40).unwrap());
        let mut below = |limit: u64| draw.next().unwrap() % limit;
        let sizes: Vec<[i64; 1]> = (0..12)
            .map(|_| {
                let most = [5, 200, 3000, 18_000][usize::try_from(below(4)).unwrap()];
                [i64::try_from(below(most)).unwrap() + 1]
            })
            .collect();
        let sizes: Vec<&[i64]> = sizes.iter().map(<[i64; 1]>::as_slice).collect();
        check_sums(2 + u32::try_from(seed % 3).unwrap(), DType::F32, &sizes, seed)?;
    }
    Ok(())
}

#[test]
fn tensors_of_any_layout_are_added_and_outputs_are_written() -> Result<()> {
    let rig = machine(2, 1);
    let symmetric = Symmetric::new(0, &[1, 0])?;
    let inputs = numbers(2, &[6, 8], DType::F32, &mut random(1000))?;
    let sum = expected(&inputs)?;
    let tensors = there(&inputs, &symmetric)?;
    // Transposed on both; on one alone; with gaps.
    let turned: Vec<Tensor> = tensors.iter().map(|tensor| tensor.t()).collect::<Result<_>>()?;
    let outs: Vec<Tensor> =
        tensors.iter().map(|tensor| Tensor::zeros(&[8, 6], DType::F32, tensor.device())).collect::<Result<_>>()?;
    symmetric.all_reduce_out(&[&turned[0], &turned[1]], &[&outs[0], &outs[1]])?;
    assert_all(&outs, &sum.t()?.contiguous()?, "turned");
    let mixed = [tensors[0].t()?.contiguous()?.t()?, tensors[1].clone()];
    symmetric.all_reduce_(&[&mixed[0], &mixed[1]])?;
    assert_all(&mixed, &sum, "mixed");
    let wide = there(&numbers(2, &[6, 16], DType::F32, &mut random(1000))?, &symmetric)?;
    let gaps: Vec<Tensor> = wide.iter().map(|tensor| tensor.narrow(1, 3, 8)).collect::<Result<_>>()?;
    gaps.iter().zip(&inputs).try_for_each(|(to, from)| to.copy_(from).map(drop))?;
    symmetric.all_reduce_(&[&gaps[0], &gaps[1]])?;
    assert_all(&gaps, &sum, "gaps");
    // Elements that begin at any byte.
    let bytes = numbers(2, &[100], DType::U8, &mut random(1000))?;
    let parts = there(&bytes, &symmetric)?.iter().map(|tensor| tensor.narrow(0, 3, 91)).collect::<Result<Vec<_>>>()?;
    symmetric.all_reduce_(&[&parts[0], &parts[1]])?;
    assert_all(&parts, &expected(&bytes)?.narrow(0, 3, 91)?.contiguous()?, "odd bytes");
    drop((tensors, turned, outs, mixed, wide, gaps, parts, symmetric));
    close(rig);
    Ok(())
}

#[test]
fn a_barrier_lets_others_read_what_was_put() -> Result<()> {
    for seed in 0..6 {
        let rig = if seed < 2 { checked(3, seed) } else { machine(3, seed) };
        let symmetric = Symmetric::new(4096, &ranks(3))?;
        let own: Vec<Tensor> =
            (0..3).map(|rank| symmetric.tensor(rank, &[3, 5], DType::I32, 64)).collect::<Result<_>>()?;
        for round in 0..4_i32 {
            // Each rank puts its row into all memories, and reads the rows of the next rank.
            let mut rows = Vec::new();
            for from in 0..3_usize {
                let row = Tensor::full(
                    &[5],
                    round * 10 + i32::try_from(from).unwrap(),
                    DType::I32,
                    format!("cuda:{from}").as_str(),
                )?;
                (0..3).try_for_each(|to| symmetric.put(from, &row, to, 64 + 20 * from))?;
                rows.push(row);
            }
            symmetric.barrier()?;
            for (rank, own) in own.iter().enumerate() {
                let found = Tensor::zeros(&[3, 5], DType::I32, format!("cuda:{rank}").as_str())?;
                symmetric.get(rank, &found, (rank + 1) % 3, 64)?;
                let wanted: Vec<i32> = (0..3).flat_map(|from| [round * 10 + from; 5]).collect();
                assert_eq!(found.to_vec::<i32>()?, wanted, "seed {seed}");
                assert_eq!(own.to_vec::<i32>()?, wanted, "seed {seed}");
            }
            symmetric.barrier()?;
        }
        drop((own, symmetric));
        close(rig);
    }
    Ok(())
}

#[test]
fn tables_name_the_memory_of_all_ranks() -> Result<()> {
    let rig = machine(2, 0);
    let symmetric = Symmetric::new(100, &[1, 0])?;
    let tensors = [symmetric.tensor(0, &[100], DType::U8, 0)?, symmetric.tensor(1, &[100], DType::U8, 0)?];
    assert_eq!(tensors.each_ref().map(|tensor| tensor.device().index), [Some(1), Some(0)]);
    for rank in [0, 1] {
        let table = symmetric.table(rank)?;
        assert_eq!(table.device(), tensors[rank].device());
        let wanted = tensors.each_ref().map(|tensor| tensor.data_ptr().cast_signed());
        assert_eq!(table.to_vec::<i64>()?, wanted);
    }
    assert!(
        matches!(symmetric.table(2), Err(Error::Comm(cause)) if *cause == CommError::NoSuchRank { rank: 2, ranks: 2 })
    );
    drop((tensors, symmetric));
    close(rig);
    Ok(())
}

/// Sums on streams of a thread's own.
fn sums_of_a_thread(simulation: &Simulation, symmetric: &Symmetric, number: usize) -> Result<()> {
    let _here = simulation.enter();
    let mut from = random(100_000).skip(number * 777);
    for round in 0..10_i64 {
        let streams = [Stream::new(0, 0)?, Stream::new(1, 0)?];
        let inputs = numbers(2, &[1 + round * 300], DType::F32, &mut from)?;
        let _on = [streams[0].guard(), streams[1].guard()];
        let tensors = there(&inputs, symmetric)?;
        symmetric.all_reduce_(&[&tensors[0], &tensors[1]])?;
        assert_all(&tensors, &expected(&inputs)?, &format!("thread {number}, round {round}"));
    }
    Ok(())
}

#[test]
fn threads_share_one_memory_and_streams_change() -> Result<()> {
    let rig = machine(2, 3);
    let symmetric = Symmetric::new(0, &[0, 1])?;
    thread::scope(|scope| {
        let (simulation, symmetric) = (rig.simulation(), &symmetric);
        let start = |number| scope.spawn(move || sums_of_a_thread(simulation, symmetric, number));
        let threads: Vec<_> = (0..3).map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    drop(symmetric);
    close(rig);
    Ok(())
}

#[test]
fn what_cannot_be_done_is_refused() -> Result<()> {
    let rig = machine(3, 0);
    let refused = |result: Result<()>, text: &str| assert_eq!(result.unwrap_err().to_string(), text);
    let cause = |result: Result<Symmetric>| result.unwrap_err().runtime().cloned().unwrap();
    let none: [i32; 0] = [];
    assert!(matches!(cause(Symmetric::new(8, &none)), c10_core::Error::Memory(MemoryError::SymmetricDevices { .. })));
    assert!(matches!(
        cause(Symmetric::new(8, &[0, 1, 0])),
        c10_core::Error::Memory(MemoryError::SymmetricDevices { .. })
    ));
    assert!(Symmetric::new(8, &[0, 7]).is_err());
    assert!(Symmetric::new(usize::MAX, &[0, 1]).is_err());
    let full = cause(Symmetric::new(1 << 40, &[0, 1]));
    assert_eq!(full.error_code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY.0), "{full}");
    let symmetric = Symmetric::new(64, &[0, 2])?;
    let of = |sizes: &[i64], dtype, device: &str| Tensor::zeros(sizes, dtype, device);
    let (one, two) = (of(&[4], DType::F32, "cuda:0")?, of(&[4], DType::F32, "cuda:2")?);
    refused(symmetric.all_reduce_(&[&one]), "1 tensors were given for 2 ranks");
    refused(symmetric.all_reduce_(&[&two, &one]), "the tensor of rank 0 must be on cuda:0, but is on cuda:2");
    refused(
        symmetric.all_reduce_(&[&one, &of(&[4], DType::F32, "cpu")?]),
        "the tensor of rank 1 must be on cuda:2, but is on cpu",
    );
    refused(
        symmetric.all_reduce_(&[&one, &of(&[5], DType::F32, "cuda:2")?]),
        "the tensor of rank 1 has sizes [5] and dtype torch.float32, that of rank 0 [4] and torch.float32",
    );
    assert!(symmetric.all_reduce_(&[&one, &of(&[4], DType::F64, "cuda:2")?]).is_err());
    let eight = [of(&[4], DType::F8E5M2, "cuda:0")?, of(&[4], DType::F8E5M2, "cuda:2")?];
    refused(
        symmetric.all_reduce_(&[&eight[0], &eight[1]]),
        "tensors of dtype torch.float8_e5m2 are not added over devices",
    );
    let outside = "16 bytes at 52 are not a tensor's in memory of 64 bytes at the same offset on several devices";
    refused(symmetric.put(0, &one, 1, 52), outside);
    refused(symmetric.tensor(0, &[4], DType::F32, 52).map(drop), outside);
    assert!(symmetric.tensor(0, &[1], DType::F32, 2).is_err(), "no multiple of the size");
    refused(symmetric.get(0, &one, 2, 0), "there is no rank 2 among 2");
    refused(symmetric.get(1, &one, 0, 0), "the tensor of rank 1 must be on cuda:2, but is on cuda:0");
    drop((one, two, eight, symmetric));
    close(rig);
    let apart = SimulatedRuntime::new(Config::default().devices(2).peer_access(false));
    let alone = Symmetric::new(8, &[0, 1]).unwrap_err();
    assert_eq!(
        alone.to_string(),
        "memory at the same offset on several devices needs virtual memory and access between all of them: device 0 cannot \
         reach device 1"
    );
    close(apart);
    Ok(())
}

#[test]
fn memory_that_the_cache_has_is_given_back_for_it() -> Result<()> {
    let rig = SimulatedRuntime::new(Config::default().devices(2).capacity(64 << 20));
    drop(Tensor::zeros(&[44 << 20], DType::U8, "cuda:1")?);
    let symmetric = Symmetric::new(24 << 20, &[0, 1])?;
    assert_eq!(symmetric.bytes(), 24 << 20);
    drop(symmetric);
    close(rig);
    Ok(())
}

/// Sums, a barrier and copies on two devices.
fn every_kind() -> Result<Vec<u8>> {
    let symmetric = Symmetric::new(256, &[0, 1])?;
    let mut from = random(100_000);
    let mut bytes = Vec::new();
    for count in [3, 17_000] {
        let tensors = there(&numbers(2, &[count], DType::F32, &mut from)?, &symmetric)?;
        symmetric.all_reduce_(&[&tensors[0], &tensors[1]])?;
        bytes.extend(tensors[1].to_bytes()?);
    }
    let row = Tensor::full(&[8], 3, DType::I64, "cuda:0")?;
    symmetric.put(0, &row, 1, 0)?;
    symmetric.barrier()?;
    symmetric.get(0, &row, 1, 0)?;
    bytes.extend(row.to_bytes()?);
    Ok(bytes)
}

#[test]
fn any_driver_call_may_fail_and_nothing_is_left() {
    let judge = |rig: &SimulatedRuntime, expected: &[u8], fault| faults::wrong(rig, every_kind, expected, fault);
    let (wrongs, tried) = faults::of_first_use(|| machine(2, 1), every_kind, judge);
    assert!(wrongs.is_empty(), "{} of {tried} are wrong:\n{}", wrongs.len(), wrongs.join("\n"));
    assert!(tried > 60, "only {tried} places");
}

#[test]
fn a_call_that_fails_on_one_device_ends_the_waits_of_the_others() -> Result<()> {
    let rig = machine(2, 5);
    let symmetric = Symmetric::new(0, &[0, 1])?;
    let tensors = [Tensor::ones(&[10], DType::F32, "cuda:0")?, Tensor::ones(&[10], DType::F32, "cuda:1")?];
    let sum = || symmetric.all_reduce_(&[&tensors[0], &tensors[1]]);
    sum()?;
    rig.machine().inject(Fault { call: "cuLaunchKernel", occurrence: 2, code: CUresult::CUDA_ERROR_NOT_PERMITTED });
    assert_eq!(sum().unwrap_err().runtime().unwrap().error_code(), Some(CUresult::CUDA_ERROR_NOT_PERMITTED.0));
    aten_cuda::synchronize(0)?;
    aten_cuda::synchronize(1)?;
    assert!(matches!(sum(), Err(Error::Operation(_) | Error::Comm(_))));
    assert!(symmetric.barrier().unwrap_err().to_string().contains("make the memory anew"));
    drop((tensors, symmetric));
    close(rig);
    Ok(())
}

#[test]
fn the_program_can_end_waits() -> Result<()> {
    let rig = machine(2, 6);
    let symmetric = Symmetric::new(0, &[0, 1])?;
    let tensors = [Tensor::ones(&[40_000], DType::F32, "cuda:0")?, Tensor::ones(&[40_000], DType::F32, "cuda:1")?];
    symmetric.all_reduce_(&[&tensors[0], &tensors[1]])?;
    symmetric.abort()?;
    aten_cuda::synchronize(0)?;
    aten_cuda::synchronize(1)?;
    assert!(symmetric.all_reduce_(&[&tensors[0], &tensors[1]]).is_err());
    drop((tensors, symmetric));
    close(rig);
    Ok(())
}

#[test]
fn a_wait_that_takes_too_long_ends_the_context() -> Result<()> {
    let rig = SimulatedRuntime::new(Config::default().devices(2).seed(2));
    let symmetric = Symmetric::new(0, &[0, 1])?;
    symmetric.set_timeout(Some(Duration::from_millis(20)));
    symmetric.barrier()?;
    aten_cuda::synchronize(0)?;
    // Device 1 comes a second late.
    let late = Runtime::current().streams().current(DeviceIndex(1))?;
    late.sleep(2_000_000_000)?;
    symmetric.barrier()?;
    let ended = aten_cuda::synchronize(0).unwrap_err();
    assert_eq!(ended.runtime().unwrap().error_code(), Some(CUresult::CUDA_ERROR_LAUNCH_FAILED.0), "{ended}");
    assert!(rig.machine().reports().iter().any(|report| report.message.contains("executes a trap")));
    Ok(())
}

#[test]
fn graphs_replay_sums_barriers_and_copies() -> Result<()> {
    let rig = machine(2, 11);
    let symmetric = Symmetric::new(64, &[0, 1])?;
    // Sums of few bytes and of many are different kernels.
    for count in [3, 40_000] {
        let of = |value: f64, device: &str| Tensor::full(&[count], value, DType::F64, device);
        let tensors = [of(1.0, "cuda:0")?, of(2.0, "cuda:1")?];
        let copied = Tensor::zeros(&[1], DType::F64, "cuda:1")?;
        symmetric.all_reduce_(&[&tensors[0], &tensors[1]])?;
        let sides = [Stream::new(0, 0)?, Stream::new(1, 0)?];
        let mut graphs = [CUDAGraph::new(), CUDAGraph::new()];
        for (device, side) in sides.iter().enumerate() {
            side.wait_stream(&Runtime::current().streams().current(i32::try_from(device).unwrap())?)?;
        }
        {
            // Each device has a graph of its own; both are captured at once, as a call queues on both.
            let _first = sides[0].guard();
            graphs[0].capture_begin(None, CaptureMode::ThreadLocal)?;
            let _second = sides[1].guard();
            graphs[1].capture_begin(None, CaptureMode::ThreadLocal)?;
            symmetric.all_reduce_(&[&tensors[0], &tensors[1]])?;
            symmetric.put(0, &tensors[0].narrow(0, 0, 1)?, 1, 8)?;
            symmetric.barrier()?;
            symmetric.get(1, &copied, 1, 8)?;
            graphs[1].capture_end()?;
            let _first = sides[0].guard();
            graphs[0].capture_end()?;
        }
        let mut expected = 3.0;
        for _ in 0..3 {
            for (graph, side) in graphs.iter_mut().zip(&sides) {
                let _current = side.guard();
                graph.replay()?;
            }
            sides.iter().try_for_each(Stream::synchronize)?;
            expected *= 2.0;
            for tensor in &tensors {
                assert!(tensor.to_vec::<f64>()?.iter().all(|value| *value == expected), "{count}");
            }
            assert_eq!(copied.to_vec::<f64>()?, [expected], "{count}");
            // Calls between replays are in order with them.
            symmetric.all_reduce_(&[&tensors[0], &tensors[1]])?;
            (0..2).try_for_each(aten_cuda::synchronize)?;
            expected *= 2.0;
        }
    }
    drop(symmetric);
    close(rig);
    Ok(())
}
