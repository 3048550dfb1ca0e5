//! Sums over devices by memory at the same offset on all of them, and by NCCL: `symmetric [--driver real] [--small]`.
//!
//! For each size from 8 bytes on: microseconds of a sum of one tensor of each device in place, beside those of a barrier,
//! once with calls one after another in a burst and once each until all devices are done. A figure is the median of bursts.
//! Where NCCL is found, the same sums by `aten_cuda::nccl` follow: by communicators whose calls are direct, which is what
//! `nccl::all_reduce` keeps for devices, and by those that are polled.
//! Each size is summed once before and compared with what it must be, to the bit and on every device. `symmetric.py`, beside
//! this file, prints the same lines of NCCL through PyTorch. The driver is the one that the runtime finds, or that
//! `CUDA_SYS_LIBCUDA` names; `--small` takes few calls and sizes, for a look on simulated devices (`CUDA_SIM_DEVICES=2`).

use std::process::ExitCode;

use aten_cuda::nccl::{self, Calls, Communicator, Options, Using};
use aten_cuda::symmetric::Symmetric;
use aten_cuda::{DType, Result, Tensor};
use c10_core::Runtime;

/// Bursts of which the median counts.
const ROUNDS: usize = 9;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    bench::ended(run(words.iter().any(|word| word == "--small")))
}

/// Prints all lines; whether all sums were right.
#[expect(clippy::print_stdout, reason = "the output of a program")]
fn run(small: bool) -> Result<bool> {
    let count = Runtime::with_current(|runtime| i32::try_from(runtime.device_count()).unwrap_or(0)).min(16);
    println!("ours | {count} devices");
    if count < 2 {
        println!("two devices are needed");
        return Ok(true);
    }
    let devices: Vec<i32> = (0..count).collect();
    let symmetric = Symmetric::new(0, &devices)?;
    let calls = if small { 3 } else { 200 };
    println!("barrier | {:.2} us", 1e6 * seconds(&devices, calls, &|| symmetric.barrier())?);
    let sizes: &[i64] = if small {
        &[8, 4096, 1 << 17]
    } else {
        &[8, 64, 512, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17, 1 << 18, 1 << 20, 1 << 24, 1 << 26, 1 << 30]
    };
    let symmetric = |tensors: &[&Tensor]| symmetric.all_reduce_(tensors);
    let mut all_right = rows("all_reduce", &devices, sizes, calls, &symmetric)?;
    let Ok((version, origin)) = nccl::loaded_library() else {
        println!("nccl | not found");
        return Ok(all_right);
    };
    println!("nccl | {version} from {origin}");
    let direct = |tensors: &[&Tensor]| nccl::all_reduce(tensors, None, nccl::SUM, &Using::default());
    all_right &= rows("nccl direct", &devices, sizes, calls, &direct)?;
    let comms = Communicator::init_all_with(&devices, &Options::default().with_calls(Calls::Polled))?;
    let polled =
        |tensors: &[&Tensor]| nccl::all_reduce(tensors, None, nccl::SUM, &Using { comms: &comms, ..Using::default() });
    let few = &sizes[..sizes.len().min(7)];
    all_right &= rows("nccl polled", &devices, few, calls, &polled)?;
    Ok(all_right)
}

/// Prints a line for each size of sums by `sum`; whether all were right.
#[expect(clippy::print_stdout, reason = "the output of a program")]
fn rows(
    name: &str,
    devices: &[i32],
    sizes: &[i64],
    calls: u32,
    sum: &dyn Fn(&[&Tensor]) -> Result<()>,
) -> Result<bool> {
    let mut all_right = true;
    for &bytes in sizes {
        let right = is_right(sum, devices, bytes)?;
        all_right &= right;
        let zeros = |device: &i32| Tensor::zeros(&[bytes / 4], DType::F32, on(*device).as_str());
        let tensors = devices.iter().map(zeros).collect::<Result<Vec<Tensor>>>()?;
        let tensors: Vec<&Tensor> = tensors.iter().collect();
        let run = || sum(&tensors);
        let calls = if bytes > 1 << 24 { calls.div_ceil(20) } else { calls };
        let (burst, alone) = (seconds(devices, calls, &run)?, seconds(devices, 1, &run)?);
        #[expect(clippy::cast_precision_loss, reason = "a figure to be read")]
        let gibps = bytes as f64 / burst / f64::from(1 << 30);
        let verdict = if right { "right" } else { "WRONG" };
        println!(
            "{name} | {bytes} B | {:.2} us | alone {:.2} us | {gibps:.2} GiB/s | {verdict}",
            1e6 * burst,
            1e6 * alone
        );
    }
    Ok(all_right)
}

fn on(device: i32) -> String {
    format!("cuda:{device}")
}

/// Whether a sum is what it must be on every device: numbers that differ by place and device, small enough to be exact.
fn is_right(sum: &dyn Fn(&[&Tensor]) -> Result<()>, devices: &[i32], bytes: i64) -> Result<bool> {
    let count = bytes / 4;
    let of = |device: &i32| {
        let numbers = Tensor::arange(0, count, 1, Some(DType::I64), on(*device).as_str())?.remainder(1021)?;
        numbers.add(&Tensor::full(&[1], i64::from(*device), DType::I64, on(*device).as_str())?)?.to_dtype(DType::F32)
    };
    let inputs = devices.iter().map(of).collect::<Result<Vec<Tensor>>>()?;
    let mut expected = inputs[0].to_device(on(devices[0]).as_str())?;
    for input in &inputs[1..] {
        expected = expected.add(&input.to_device(on(devices[0]).as_str())?)?;
    }
    sum(&inputs.iter().collect::<Vec<_>>())?;
    for input in &inputs {
        let differs = input.to_device(on(devices[0]).as_str())?.ne(&expected)?.any((), false)?;
        if differs.to_bytes()? != [0] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Seconds of a call in bursts of so many until all devices are done; the median.
fn seconds(devices: &[i32], calls: u32, call: &dyn Fn() -> Result<()>) -> Result<f64> {
    bench::seconds_until_done(devices, (ROUNDS, calls), call)
}
