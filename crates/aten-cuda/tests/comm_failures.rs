//! Collectives of several simulated devices against plain loops, and with driver calls and links that fail.
//!
//! A program is drawn from a seed: tensors of random sizes, dtypes and layouts on random devices, and one call after another
//! on what there is. What each call gives is computed beside it by operations on the host. A call that fails leaves nothing
//! behind, and the same call works afterwards. A link that goes down takes a device with it: calls say so, and the books of the
//! others balance.
#![expect(clippy::unwrap_used, reason = "what a test sets up is there")]

mod common;
mod faults;

use aten_cuda::comm::{self, Pattern};
use aten_cuda::{DType, Result, Tensor};
use common::random;
use testkit::{CUresult, Config, Fault, LinkChange, LinkFault, LinkMoment, SimulatedRuntime, Topology};

/// Numbers of a program.
struct Draw<I>(I);

impl<I: Iterator<Item = u64>> Draw<I> {
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.0.next().unwrap()).unwrap() % limit.max(1)
    }

    fn size(&mut self, limit: usize) -> i64 {
        i64::try_from(self.below(limit)).unwrap()
    }

    /// A device of so many.
    fn device(&mut self, devices: usize) -> i32 {
        i32::try_from(self.below(devices)).unwrap()
    }

    fn dtype(&mut self) -> DType {
        [DType::F32, DType::I64, DType::BF16, DType::U8][self.below(4)]
    }

    /// A host tensor of these sizes, whose layout may be any.
    fn tensor(&mut self, sizes: &[i64], dtype: DType) -> Result<Tensor> {
        let numbers: Vec<i64> = (0..sizes.iter().product::<i64>()).map(|_| self.size(9)).collect();
        let turned = sizes.len() == 2 && self.below(2) == 0;
        let made: Vec<i64> = if turned { sizes.iter().rev().copied().collect() } else { sizes.to_vec() };
        let tensor = Tensor::from_slice(&numbers, &made)?.to_dtype(dtype)?;
        if turned { tensor.t() } else { Ok(tensor) }
    }
}

/// Host tensors with copies of them on devices.
type Pair = (Tensor, Tensor);

fn on(tensor: Tensor, device: i32) -> Result<Pair> {
    let there = tensor.to_device(format!("cuda:{device}").as_str())?;
    Ok((tensor, there))
}

#[track_caller]
fn check(what: &str, found: &Tensor, expected: &Tensor) -> Result<()> {
    assert_eq!((found.dtype(), found.sizes()), (expected.dtype(), expected.sizes()), "{what}");
    assert_eq!(found.to_bytes()?, expected.to_bytes()?, "{what}");
    Ok(())
}

fn broadcast(draw: &mut Draw<impl Iterator<Item = u64>>, devices: usize) -> Result<()> {
    let (sizes, dtype) = ([draw.size(6), draw.size(20)], draw.dtype());
    let (host, there) = on(draw.tensor(&sizes, dtype)?, draw.device(devices))?;
    let count = draw.below(devices + 1);
    let to: Vec<i32> = (0..count).map(|_| draw.device(devices)).collect();
    for (copy, device) in comm::broadcast(&there, &to)?.iter().zip(to) {
        check("broadcast", copy, &host)?;
        assert_eq!(copy.device().index, Some(device));
    }
    Ok(())
}

fn reduce(draw: &mut Draw<impl Iterator<Item = u64>>, devices: usize) -> Result<()> {
    let (sizes, dtype) = ([draw.size(6), draw.size(20)], draw.dtype());
    let count = 1 + draw.below(2 * devices);
    let inputs =
        (0..count).map(|_| on(draw.tensor(&sizes, dtype)?, draw.device(devices))).collect::<Result<Vec<Pair>>>()?;
    let destination = inputs[draw.below(count)].1.device().index.unwrap();
    let root = inputs.iter().rposition(|(_, there)| there.device().index == Some(destination)).unwrap();
    let mut expected = inputs[root].0.clone();
    for (at, (host, _)) in inputs.iter().enumerate() {
        if at != root {
            expected = expected.add(host)?;
        }
    }
    let there: Vec<&Tensor> = inputs.iter().map(|(_, there)| there).collect();
    check("reduce_add", &comm::reduce_add(&there, destination)?, &expected)
}

fn scatter_and_gather(draw: &mut Draw<impl Iterator<Item = u64>>, devices: usize) -> Result<()> {
    let (sizes, dtype, dim) = ([1 + draw.size(9), 1 + draw.size(9)], draw.dtype(), draw.below(2));
    let (host, there) = on(draw.tensor(&sizes, dtype)?, draw.device(devices))?;
    let count = 1 + draw.below(devices);
    let to: Vec<i32> = (0..count).map(|_| draw.device(devices)).collect();
    let at = i64::try_from(dim).unwrap();
    // Every other program tells the sizes of the chunks.
    let mut left = sizes[dim];
    let mut told = Vec::new();
    for _ in 1..count {
        let size = draw.size(usize::try_from(left).unwrap() + 1);
        left -= size;
        told.push(size);
    }
    told.push(left);
    let told = (draw.below(2) == 0).then_some(told);
    let chunks = comm::scatter(&there, &to, told.as_deref(), at, &[])?;
    let expected = match &told {
        Some(told) => host.split_with_sizes(told, at)?,
        None => host.chunk(i64::try_from(count).unwrap(), at)?,
    };
    assert_eq!(chunks.len(), expected.len());
    for (chunk, expected) in chunks.iter().zip(&expected) {
        check("scatter", chunk, expected)?;
    }
    let list: Vec<&Tensor> = chunks.iter().collect();
    match draw.below(3) {
        0 => check("gather to the host", &comm::gather(&list, at, "cpu")?, &host),
        1 => {
            let out = Tensor::zeros(&sizes, dtype, "cuda:0")?;
            comm::gather_out(&list, &out, at)?;
            check("gather into an output", &out, &host)
        }
        _ => check("gather", &comm::gather(&list, at, draw.device(devices))?, &host),
    }
}

fn coalesced(draw: &mut Draw<impl Iterator<Item = u64>>, devices: usize) -> Result<()> {
    let count = 1 + draw.below(8);
    let shapes: Vec<([i64; 2], DType)> = (0..count).map(|_| ([draw.size(5), draw.size(9)], draw.dtype())).collect();
    let limit = [0, 40, 200, comm::BUFFER_SIZE][draw.below(4)];
    let lists = (0..devices).map(|device| {
        let device = i32::try_from(device).unwrap();
        shapes.iter().map(|(sizes, dtype)| on(draw.tensor(sizes, *dtype)?, device)).collect::<Result<Vec<Pair>>>()
    });
    let lists = lists.collect::<Result<Vec<_>>>()?;
    let there: Vec<Vec<&Tensor>> = lists.iter().map(|list| list.iter().map(|(_, there)| there).collect()).collect();
    let all: Vec<i32> = (0..i32::try_from(devices).unwrap()).collect();
    for copies in comm::broadcast_coalesced(&there[0], &all, limit)? {
        for (copy, (host, _)) in copies.iter().zip(&lists[0]) {
            check("broadcast_coalesced", copy, host)?;
        }
    }
    let (inputs, destination) = (there.iter().map(Vec::as_slice).collect::<Vec<_>>(), draw.device(devices));
    for (at, sum) in comm::reduce_add_coalesced(&inputs, destination, limit)?.iter().enumerate() {
        let mut expected = lists[usize::try_from(destination).unwrap()][at].0.clone();
        for (device, list) in lists.iter().enumerate() {
            if i32::try_from(device).unwrap() != destination {
                expected = expected.add(&list[at].0)?;
            }
        }
        check("reduce_add_coalesced", sum, &expected)?;
    }
    Ok(())
}

fn all_reduce(draw: &mut Draw<impl Iterator<Item = u64>>, devices: usize) -> Result<()> {
    let (sizes, dtype) = ([draw.size(6), draw.size(20)], draw.dtype());
    let pattern = [Pattern::Auto, Pattern::Ring, Pattern::Tree][draw.below(3)];
    let (first, count) = (draw.below(devices), 1 + draw.below(devices));
    let members = (first..first + count).map(|member| {
        let device = i32::try_from(member % devices).unwrap();
        on(draw.tensor(&sizes, dtype)?, device)
    });
    let members = members.collect::<Result<Vec<Pair>>>()?;
    comm::all_reduce_(&members.iter().map(|(_, there)| there).collect::<Vec<_>>(), pattern)?;
    let rest = members[1..].iter();
    let expected = rest.map(|(host, _)| host).try_fold(members[0].0.copy()?, |sum, host| sum.add(host))?;
    members.iter().try_for_each(|(_, there)| check("all_reduce_", there, &expected))
}

/// One to three calls.
fn program(seed: usize, devices: usize) -> Result<()> {
    let mut draw = Draw(random(1 << 40).skip(97 * seed));
    for _ in 0..=draw.below(3) {
        match draw.below(5) {
            0 => broadcast(&mut draw, devices)?,
            1 => reduce(&mut draw, devices)?,
            2 => scatter_and_gather(&mut draw, devices)?,
            3 => all_reduce(&mut draw, devices)?,
            _ => coalesced(&mut draw, devices)?,
        }
    }
    Ok(())
}

#[test]
fn a_thousand_programs_give_what_plain_loops_give() -> Result<()> {
    let mut done = 0;
    for devices in 2..=8_usize {
        // Some machines have no peer access, and some have links, of which one has failed.
        let config = Config::default().devices(u32::try_from(devices).unwrap()).peer_access(devices % 4 != 1);
        let config = match devices {
            3 => config.topology(Topology::pairs(100, 1_000, &[(0, 1)])),
            6 => config.topology(Topology::pcie(64, 1_000, 3).failed(1, 2)),
            8 => config.topology(Topology::nvlink(450, 1_000).failed(0, 5).degraded(1, 2, 10)),
            _ => config,
        };
        let rig = SimulatedRuntime::new(config.seed(devices as u64).late_events(devices % 2 == 0));
        for seed in 0..144 {
            program(1000 * devices + seed, devices)
                .unwrap_or_else(|error| panic!("{devices} devices, seed {seed}: {error}"));
            done += 1;
        }
        assert_eq!(rig.runtime().inconsistency(), None);
        rig.close_clean();
    }
    assert!(done >= 1000);
    Ok(())
}

/// A call of each kind on three devices.
fn every_kind() -> Result<Vec<u8>> {
    let on = |device: &str| Tensor::arange(0, 300, 1, Some(DType::F32), device)?.view(&[3, 100]);
    let (one, two, three) = (on("cuda:0")?, on("cuda:1")?, on("cuda:2")?);
    let copies = comm::broadcast(&one, &[0, 1, 2])?;
    let sum = comm::reduce_add(&[&one, &two, &three, &copies[1]], 1)?;
    let chunks = comm::scatter(&sum, &[0, 1, 2], None, 1, &[])?;
    let all = comm::gather(&chunks.iter().collect::<Vec<_>>(), 1, 2)?;
    let small = comm::broadcast_coalesced(&[&one, &copies[0]], &[0, 1, 2], comm::BUFFER_SIZE)?;
    let inputs: Vec<Vec<&Tensor>> = small.iter().map(|list| list.iter().collect()).collect();
    let inputs: Vec<&[&Tensor]> = inputs.iter().map(Vec::as_slice).collect();
    let sums = comm::reduce_add_coalesced(&inputs, 0, comm::BUFFER_SIZE)?;
    let out = [Tensor::zeros(&[3, 100], DType::F32, "cuda:0")?, Tensor::zeros(&[3, 100], DType::F32, "cuda:2")?];
    comm::broadcast_out(&sums[1], &[&out[0], &out[1]])?;
    Ok([all.to_bytes()?, sums[0].to_bytes()?, out[1].to_bytes()?].concat())
}

fn allocated(rig: &SimulatedRuntime) -> i64 {
    (0..3)
        .map(|device| rig.runtime().memory().stats(device).map_or(-1, |stats| stats.allocated_bytes.all.current))
        .sum()
}

/// Runs with a call that fails; what is wrong with what happened, or that memory is left.
fn wrong(rig: &SimulatedRuntime, expected: &[u8], fault: Fault) -> Option<String> {
    faults::wrong(rig, every_kind, expected, fault).or_else(|| {
        let left = allocated(rig);
        (left != 0).then(|| format!("{left} bytes stay allocated"))
    })
}

#[test]
fn any_driver_call_may_fail_and_nothing_is_left() {
    let (mut wrongs, mut tried) = (Vec::new(), 0);
    for peers in [true, false] {
        let rig = SimulatedRuntime::new(Config::default().devices(3).peer_access(peers).seed(1));
        let expected = every_kind().unwrap();
        let before = faults::calls(&rig);
        assert_eq!(every_kind().unwrap(), expected);
        for (call, all) in faults::calls(&rig) {
            let count = all - before.iter().find(|(name, _)| *name == call).map_or(0, |(_, count)| *count);
            for occurrence in 1..=count {
                let fault = Fault { call, occurrence, code: CUresult::CUDA_ERROR_NOT_PERMITTED };
                tried += 1;
                wrongs.extend(wrong(&rig, &expected, fault).map(|wrong| format!("{peers}: {fault:?}: {wrong}")));
            }
        }
        rig.close_clean();
    }
    assert!(wrongs.is_empty(), "{} of {tried} are wrong:\n{}", wrongs.len(), wrongs.join("\n"));
    assert!(tried > 200, "only {tried} places");
}

#[test]
fn any_driver_call_of_a_first_use_may_fail() {
    let rig = || SimulatedRuntime::new(Config::default().devices(3).seed(1));
    let (wrongs, _) = faults::of_first_use(rig, every_kind, wrong);
    assert!(wrongs.is_empty(), "{} are wrong:\n{}", wrongs.len(), wrongs.join("\n"));
}

#[test]
fn a_link_that_goes_down_is_told_and_nothing_is_left() {
    let (mut told, mut done) = (0, 0);
    for seed in 0..42 {
        let devices = 2 + seed % 3;
        let links = if seed % 2 == 0 { Topology::nvlink(450, 1_000) } else { Topology::pcie(64, 1_000, 2) };
        let rig = SimulatedRuntime::new(Config::default().devices(3).topology(links).seed(seed as u64));
        let before = program(seed, 3.min(devices));
        assert!(before.is_ok(), "seed {seed}: {before:?}");
        let after = LinkMoment::After(100 * (seed as u64 % 7));
        rig.machine().inject_link(LinkFault { devices: (0, 1), change: LinkChange::Down, when: after });
        for turn in 0..3 {
            match program(seed + 1000 * turn, 3.min(devices)) {
                Ok(()) => done += 1,
                Err(error) => {
                    let code = error.runtime().and_then(|error| error.accelerator()).map(|error| error.error_code());
                    assert_eq!(code, Some(CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE.0), "seed {seed}: {error}");
                    told += 1;
                }
            }
        }
        assert_eq!(rig.runtime().inconsistency(), None, "seed {seed}");
        assert_eq!(allocated(&rig), 0, "seed {seed}");
    }
    assert!(told > 20 && done > 5, "{told} failed, {done} did not");
}
