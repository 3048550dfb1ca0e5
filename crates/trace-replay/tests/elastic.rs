//! Recorded workloads under the elastic backend: how much of what is reserved is live, how many pages move, and that a
//! loop comes to rest.

use std::path::Path;

use c10_core::DeviceStats;
use testkit::{Config, Machine, Simulation};
use trace_replay::{Replay, Step, read};

/// Memory of the device that the traces were recorded on.
const CAPACITY: u64 = 150_109_880_320;

/// Names of traces, and of how many of their steps a program that repeats them consists.
const TRACES: [(&str, usize); 8] = [
    ("gpt2_fixed", usize::MAX),
    ("llama_varlen", 40_000),
    ("resnet_multiscale", usize::MAX),
    ("gnn_sampled", usize::MAX),
    ("unet_diffusion", usize::MAX),
    ("llama_ckpt_lora", 30_000),
    ("moe_prefetch", 40_000),
    ("llm_generate", 60_000),
];

/// Calls that take, move or give back memory, or order that.
const COUNTED: [&str; 9] = [
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuEventRecord",
    "cuStreamWaitEvent",
];

/// Passes after which a trace that is repeated has come to rest.
const ROUNDS: usize = 200;

fn steps_of(name: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/data/traces/{name}.trace.gz"));
    read(&path).expect("it is well formed")
}

fn calls(machine: &Machine) -> u64 {
    machine.calls().iter().filter(|(call, ..)| COUNTED.contains(call)).map(|(.., count)| count).sum()
}

fn stats(simulation: &Simulation) -> DeviceStats {
    simulation.runtime().memory().stats(0).expect("the device exists")
}

/// Replays a trace under the elastic backend, in passes which `look` asks for.
fn replay<R>(steps: &[Step], look: impl FnOnce(&Simulation, &Replay<'_>) -> R) -> R {
    let simulation = Simulation::new(Config::default().capacity(CAPACITY));
    let _entered = simulation.enter();
    simulation.runtime().memory().set_settings("backend:elastic").expect("it is known");
    let replay = Replay::new(simulation.runtime(), 0, steps).expect("the machine has a device");
    let answer = look(&simulation, &replay);
    assert_eq!(simulation.runtime().inconsistency(), None);
    answer
}

#[test]
fn nearly_all_that_is_reserved_is_live() {
    let mut all = Vec::new();
    for (name, _) in TRACES {
        let (used, stats) = replay(&steps_of(name), |simulation, replay| {
            let pass = replay.pass(|_| ()).expect("the device has enough memory");
            (pass.utilisation(), stats(simulation))
        });
        println!("{name}: {used:.4} used, {} pages made, {} moved", stats.pages_made, stats.pages_moved);
        assert!(stats.pages_moved <= stats.pages_made * 3 / 2, "{name}");
        all.push(used);
    }
    assert!(all.iter().all(|used| *used >= 0.95), "{all:?}");
    let mean = all.iter().sum::<f64>() / u32::try_from(all.len()).map_or(1.0, f64::from);
    assert!(mean >= 0.98, "{mean}: {all:?}");
}

#[test]
fn a_loop_comes_to_rest() {
    for (name, count) in TRACES {
        let mut steps = steps_of(name);
        steps.truncate(count);
        let (rounds, stats) = replay(&steps, |simulation, replay| {
            let pass = || {
                let before = calls(simulation.machine());
                let used = replay.pass(|_| ()).expect("the device has enough memory").utilisation();
                (used, calls(simulation.machine()) - before)
            };
            let rounds: Vec<(f64, u64)> = (0..ROUNDS).map(|_| pass()).take_while(|(_, calls)| *calls > 0).collect();
            (rounds, stats(simulation))
        });
        let (count, last) = (rounds.len(), rounds.last());
        println!(
            "{name}: at rest after {count} rounds, the last with {last:.4?}; {} made, {} moved",
            stats.pages_made, stats.pages_moved
        );
        assert!(count < ROUNDS, "{name} still asks the driver");
    }
}
