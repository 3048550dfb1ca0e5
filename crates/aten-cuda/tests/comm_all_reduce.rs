//! Sums on all devices in a ring and in a tree: against the host on 1 to 16 simulated devices, with late devices, with calls
//! that fail, and in simulated time against the closed formulas.
#![expect(clippy::unwrap_used, reason = "what a test sets up is there")]

mod common;

use aten_cuda::comm::{self, Pattern};
use aten_cuda::{DType, Result, Tensor};
use common::random;
use testkit::{CUresult, Config, Fault, SimulatedRuntime, Topology};

fn machine(devices: u32, seed: u64) -> SimulatedRuntime {
    SimulatedRuntime::new(Config::default().devices(devices).seed(seed))
}

/// Whole numbers, so that no order of a sum rounds.
fn numbers(devices: u32, sizes: &[i64], dtype: DType, from: &mut impl Iterator<Item = u64>) -> Result<Vec<Tensor>> {
    let count = usize::try_from(sizes.iter().product::<i64>()).unwrap();
    let mut one = || {
        let values: Vec<i64> = from.by_ref().take(count).map(|number| i64::try_from(number % 7).unwrap()).collect();
        Tensor::from_slice(&values, sizes)?.to_dtype(dtype)
    };
    (0..devices).map(|_| one()).collect()
}

fn sum(inputs: &[Tensor]) -> Result<Tensor> {
    inputs[1..].iter().try_fold(inputs[0].copy()?, |sum, input| sum.add(input))
}

fn there(inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    inputs.iter().enumerate().map(|(device, input)| input.to_device(format!("cuda:{device}").as_str())).collect()
}

fn check(pattern: Pattern, devices: u32, sizes: &[i64], dtype: DType, seed: u64) -> Result<()> {
    let inputs = numbers(devices, sizes, dtype, &mut random(100_000).skip(usize::try_from(seed).unwrap()))?;
    let tensors = there(&inputs)?;
    comm::all_reduce_(&tensors.iter().collect::<Vec<_>>(), pattern)?;
    // Written again at once: nobody may still be reading.
    let found = tensors.iter().map(Tensor::copy).collect::<Result<Vec<Tensor>>>()?;
    tensors.iter().try_for_each(|tensor| tensor.zero_().map(drop))?;
    let expected = sum(&inputs)?;
    for found in &found {
        assert_eq!(found.to_bytes()?, expected.to_bytes()?, "{pattern:?}, {devices} devices, {sizes:?}, {dtype}");
    }
    Ok(())
}

#[test]
fn all_devices_have_the_sum() -> Result<()> {
    for devices in [1, 2, 3, 4, 7, 8, 16] {
        for pattern in [Pattern::Auto, Pattern::Ring, Pattern::Tree] {
            let rig = machine(devices, u64::from(devices));
            check(pattern, devices, &[37, 5], DType::F32, 1)?;
            check(pattern, devices, &[2], DType::I64, 2)?;
            check(pattern, devices, &[0], DType::F32, 3)?;
            let mut reports = rig.machine().reports();
            // Machine code is not simulated, and PTX is loaded instead.
            reports.retain(|report| report.call != "cuModuleLoadDataEx");
            assert!(reports.is_empty(), "{reports:?}");
            rig.close_clean();
        }
    }
    Ok(())
}

#[test]
fn devices_may_come_in_any_order() -> Result<()> {
    for seed in 0..30 {
        let rig = machine(4, seed);
        let pattern = if seed % 2 == 0 { Pattern::Ring } else { Pattern::Tree };
        for round in 0..3 {
            check(pattern, 4, &[101 + round], DType::F32, seed + 7)?;
        }
        rig.close_clean();
    }
    Ok(())
}

#[test]
fn layouts_and_devices_without_access_are_no_obstacle() -> Result<()> {
    for peers in [true, false] {
        let rig = SimulatedRuntime::new(Config::default().devices(3).peer_access(peers));
        let inputs = numbers(3, &[6, 5], DType::F64, &mut random(1000))?;
        let tensors = there(&inputs)?;
        let turned = tensors.iter().map(Tensor::t).collect::<Result<Vec<Tensor>>>()?;
        comm::all_reduce_(&[&turned[0], &turned[1], &turned[2]], Pattern::Ring)?;
        let expected = sum(&inputs)?.to_bytes()?;
        for tensor in &tensors {
            assert_eq!(tensor.to_bytes()?, expected);
        }
        drop((tensors, turned));
        rig.close_clean();
    }
    Ok(())
}

#[test]
fn what_cannot_be_added_is_refused() -> Result<()> {
    let _rig = machine(2, 0);
    let refused = |tensors: &[&Tensor], text: &str| {
        assert_eq!(comm::all_reduce_(tensors, Pattern::Auto).unwrap_err().to_string(), text);
    };
    let (one, two) = (Tensor::ones(&[3], DType::F32, "cuda:0")?, Tensor::ones(&[3], DType::F32, "cuda:0")?);
    refused(&[], "reduce_add expects at least one input");
    refused(&[&one, &two], "each tensor must be on a device of its own, but two are on cuda:0");
    refused(&[&one, &Tensor::ones(&[3], DType::F32, "cpu")?], "reduce_add expects all inputs to be on GPUs");
    refused(
        &[&one, &Tensor::ones(&[3], DType::F64, "cuda:1")?],
        "the tensor of rank 1 has sizes [3] and dtype torch.float64, that of rank 0 [3] and torch.float32",
    );
    Ok(())
}

#[test]
fn any_driver_call_may_fail_and_nothing_is_left() -> Result<()> {
    let run = || -> Result<()> {
        check(Pattern::Ring, 3, &[50], DType::F32, 1)?;
        check(Pattern::Tree, 3, &[50], DType::F32, 1)
    };
    let seen = {
        let rig = machine(3, 1);
        run()?;
        rig.machine().calls()
    };
    let mut tried = 0;
    for (call, code, count) in seen {
        if code != CUresult::CUDA_SUCCESS || ["cuDriverGetVersion", "cuInit", "cuDeviceGetCount"].contains(&call) {
            continue;
        }
        for occurrence in std::collections::BTreeSet::from([1, count / 2 + 1, count]) {
            let rig = machine(3, 1);
            rig.machine().inject(Fault { call, occurrence, code: CUresult::CUDA_ERROR_NOT_PERMITTED });
            let _failed_or_not = run();
            rig.machine().clear_faults();
            run()?;
            assert_eq!(rig.runtime().inconsistency(), None, "{call} {occurrence}");
            rig.close_clean();
            tried += 1;
        }
    }
    assert!(tried > 40, "only {tried} places");
    Ok(())
}

#[test]
fn simulated_time_is_what_the_formulas_say() -> Result<()> {
    const LATENCY_NS: u64 = 80_000;
    for devices in [2_u32, 8, 16] {
        for (pattern, bytes) in [(Pattern::Ring, 3_200_000_u64), (Pattern::Tree, 800_000)] {
            // So slow that what the calls take is no part of it.
            let links = Topology::nvlink(1, LATENCY_NS);
            let rig = SimulatedRuntime::new(Config::default().devices(devices).topology(links).stalls(false));
            let elements = i64::try_from(bytes / 4).unwrap();
            let of = |device: u32| Tensor::zeros(&[elements], DType::F32, format!("cuda:{device}").as_str());
            let tensors = (0..devices).map(of).collect::<Result<Vec<Tensor>>>()?;
            let wait = || (0..devices).try_for_each(|device| aten_cuda::synchronize(device.cast_signed()));
            // Streams are made and kernels loaded by the first call.
            check(pattern, devices, &[64], DType::F32, 1)?;
            wait()?;
            let begin = rig.machine().now_ns();
            comm::all_reduce_(&tensors.iter().collect::<Vec<_>>(), pattern)?;
            wait()?;
            let found = rig.machine().now_ns() - begin;
            let count = u64::from(devices);
            let rounds = u64::from(devices.next_power_of_two().trailing_zeros());
            let expected = if pattern == Pattern::Tree {
                2 * rounds * (LATENCY_NS + bytes)
            } else {
                2 * (count - 1) * (LATENCY_NS + bytes / count)
            };
            assert!(found.abs_diff(expected) * 10 < expected, "{pattern:?} {devices}: {found} ns, expected {expected}");
            drop(tensors);
            rig.close_clean();
        }
    }
    Ok(())
}
