//! Tensors between the devices of one process: `comm [--driver real] [--small]`.
//!
//! For each size: what copies, broadcasts, sums, scattering and gathering move in a second over all devices of the machine,
//! and for 300 small tensors what the coalesced forms take. A figure is the median of five bursts of calls, each burst until
//! all devices are done. Where there is NCCL, its sums and broadcasts follow, and its sums of few bytes. `raw copy` is the driver's copy on one stream of either device, without anything around it. `comm.py`, beside this
//! file, prints the same lines for PyTorch, and NCCL's all-reduce. The driver is the one that the runtime finds, or that
//! `CUDA_SYS_LIBCUDA` names; `--small` takes small tensors, for a look on simulated devices (`CUDA_SIM_DEVICES=2`).

use std::process::ExitCode;

use aten_cuda::comm::{self, BUFFER_SIZE};
use aten_cuda::{DType, Result, Tensor, nccl};
use c10_core::{Runtime, Stream};

/// Bursts of which the median counts.
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    bench::ended(run(words.iter().any(|word| word == "--small")).map(|()| true))
}

/// A call that is measured.
type Call<'a> = &'a dyn Fn() -> Result<()>;

/// The devices, and how many calls make a burst.
struct Machine {
    devices: Vec<i32>,
    calls: u32,
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn run(small: bool) -> Result<()> {
    let count = Runtime::with_current(|runtime| i32::try_from(runtime.device_count()).unwrap_or(0));
    let machine = Machine { devices: (0..count).collect(), calls: if small { 2 } else { 10 } };
    println!("ours | {count} devices");
    if count < 2 {
        println!("two devices are needed");
        return Ok(());
    }
    let sizes: &[i64] = if small { &[1] } else { &[1, 64, 1024] };
    for &mib in sizes {
        for (name, gibps) in machine.large(mib)?.into_iter().chain(machine.by_nccl(mib)?) {
            println!("{name} | {mib} MiB | {gibps:.2} GiB/s");
        }
    }
    for (bytes, us) in machine.small_by_nccl()? {
        println!("nccl all_reduce | {bytes} B | {us:.1} us");
    }
    for (name, us) in machine.coalesced(if small { 20 } else { 300 })? {
        println!("{name} | {us:.1} us");
    }
    Ok(())
}

impl Machine {
    /// Seconds of a call, the median of bursts.
    fn seconds(&self, call: Call<'_>) -> Result<f64> {
        bench::seconds_until_done(&self.devices, (ROUNDS, self.calls), call)
    }

    /// Gibibytes a second of each call on tensors of so many mebibytes.
    fn large(&self, mib: i64) -> Result<Vec<(&'static str, f64)>> {
        let on = |device: &i32| Tensor::full(&[mib << 18], 1.5, DType::F32, format!("cuda:{device}").as_str());
        let tensors = self.devices.iter().map(on).collect::<Result<Vec<Tensor>>>()?;
        let inputs: Vec<&Tensor> = tensors.iter().collect();
        let (first, out) = (&tensors[0], on(&1)?);
        let sides = [Stream::new(0, 0)?, Stream::new(1, 0)?];
        let raw = |side: usize| -> Result<()> {
            if let (Some(from), Some(to)) = (first.storage().buffer(), out.storage().buffer()) {
                to.copy_from_buffer_on(0, from, .., &sides[side])?;
            }
            Ok(())
        };
        let calls: [(&'static str, Call<'_>); 7] = [
            ("raw copy by the source", &|| raw(0)),
            ("raw copy by the target", &|| raw(1)),
            ("copy", &|| out.copy_non_blocking_(first).map(drop)),
            ("broadcast", &|| comm::broadcast(first, &self.devices).map(drop)),
            ("reduce_add", &|| comm::reduce_add(&inputs, 0).map(drop)),
            ("scatter", &|| comm::scatter(first, &self.devices, None, 0, &[]).map(drop)),
            ("gather", &|| comm::gather(&inputs, 0, 0).map(drop)),
        ];
        let mut rows = Vec::new();
        for (name, call) in calls {
            #[expect(clippy::cast_precision_loss, reason = "a figure to be read")]
            let gib =
                (if name == "gather" { mib * self.devices.len().cast_signed() as i64 } else { mib }) as f64 / 1024.0;
            rows.push((name, gib / self.seconds(call)?));
        }
        Ok(rows)
    }

    /// A tensor of so many elements on each device, and one for what comes of it.
    fn pairs(&self, elements: i64) -> Result<[Vec<Tensor>; 2]> {
        let on = |device: &i32| Tensor::full(&[elements], 1.5, DType::F32, format!("cuda:{device}").as_str());
        let all = || self.devices.iter().map(on).collect::<Result<Vec<Tensor>>>();
        Ok([all()?, all()?])
    }

    /// As [`Self::large`], by NCCL; nothing where there is none. Its sums are looked at first.
    fn by_nccl(&self, mib: i64) -> Result<Vec<(&'static str, f64)>> {
        let [inputs, outs] = self.pairs(mib << 18)?;
        let (inputs, outs): (Vec<&Tensor>, Vec<&Tensor>) = (inputs.iter().collect(), outs.iter().collect());
        if !nccl::is_available(&inputs) {
            return Ok(Vec::new());
        }
        let using = nccl::Using::default();
        let all_reduce = || nccl::all_reduce(&inputs, Some(&outs), nccl::SUM, &using);
        all_reduce()?;
        #[expect(clippy::cast_precision_loss, reason = "a few devices")]
        let sum = 1.5 * self.devices.len() as f32;
        for out in &outs {
            let ends = [out.narrow(0, 0, 1)?, out.narrow(0, (mib << 18) - 1, 1)?];
            assert!(ends.iter().all(|end| end.to_vec::<f32>().is_ok_and(|found| found == [sum])), "{out}");
        }
        let calls: [(&'static str, Call<'_>); 3] = [
            ("nccl all_reduce", &all_reduce),
            ("nccl broadcast", &|| nccl::broadcast(&inputs, 0, &using)),
            ("nccl reduce", &|| nccl::reduce(&inputs, Some(outs[0]), 0, nccl::SUM, &using)),
        ];
        #[expect(clippy::cast_precision_loss, reason = "a figure to be read")]
        let gib = mib as f64 / 1024.0;
        calls.into_iter().map(|(name, call)| Ok((name, gib / self.seconds(call)?))).collect()
    }

    /// Microseconds of sums of few bytes by NCCL, by bytes; nothing where there is none.
    fn small_by_nccl(&self) -> Result<Vec<(i64, f64)>> {
        let mut rows = Vec::new();
        for bytes in [8, 1 << 10, 8 << 10, 64 << 10] {
            let [inputs, _] = self.pairs(bytes / 4)?;
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            if !nccl::is_available(&inputs) {
                break;
            }
            let all_reduce = || nccl::all_reduce(&inputs, None, nccl::ReduceOp::Max, &nccl::Using::default());
            rows.push((bytes, 1e6 * self.seconds(&all_reduce)?));
        }
        Ok(rows)
    }

    /// Microseconds of the coalesced forms on so many small tensors.
    fn coalesced(&self, count: i64) -> Result<Vec<(&'static str, f64)>> {
        let on = |device: &i32| {
            let device = format!("cuda:{device}");
            (0..count).map(|at| Tensor::full(&[1000 + 37 * at], 0.5, DType::F32, device.as_str())).collect()
        };
        let lists = self.devices.iter().map(on).collect::<Result<Vec<Vec<Tensor>>>>()?;
        let lists: Vec<Vec<&Tensor>> = lists.iter().map(|list| list.iter().collect()).collect();
        let inputs: Vec<&[&Tensor]> = lists.iter().map(Vec::as_slice).collect();
        let broadcast = || comm::broadcast_coalesced(inputs[0], &self.devices, BUFFER_SIZE).map(drop);
        let reduce = || comm::reduce_add_coalesced(&inputs, 0, BUFFER_SIZE).map(drop);
        Ok(vec![
            ("broadcast_coalesced", 1e6 * self.seconds(&broadcast)?),
            ("reduce_add_coalesced", 1e6 * self.seconds(&reduce)?),
        ])
    }
}
