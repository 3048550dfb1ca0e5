//! Random scripts, operation by operation, on this allocator and on PyTorch's own, which runs in another process.
//!
//! The peer is a program that drives PyTorch's `libc10_cuda.so` on a simulated runtime by commands (`docs/testing.md`
//! says which). After each operation its outcome, the bytes taken of the device and every figure must be the same, and
//! after some of them segments and blocks with their states and sizes.
//!
//! Reading order: `script` (what is done), `peer`, `ours`, `compare` (what may differ). **Invariant:** a difference is excused only by a rule in `compare`, and each use of a rule is counted.

mod compare;
mod ours;
mod peer;
mod script;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use compare::{Difference, Verdict, judge, shrink};
use peer::Peer;
use script::{Script, generate};

const OPERATIONS: usize = 400;

/// Differing scripts that are shortened and printed.
const SHOWN: usize = 3;

/// The sum of all verdicts.
#[derive(Default)]
struct Report {
    operations: usize,
    differing: usize,
    excused: BTreeMap<&'static str, usize>,
    mixes: BTreeMap<&'static str, usize>,
    /// Figures that show how far the scripts reach, added up.
    reach: BTreeMap<String, i64>,
    shown: Vec<(u64, &'static str, Script, Difference)>,
}

impl Report {
    fn add(&mut self, seed: u64, mix: &'static str, script: Script, verdict: Verdict) {
        self.operations += verdict.operations;
        *self.mixes.entry(mix).or_default() += 1;
        for (kind, count) in verdict.excused {
            *self.excused.entry(kind).or_default() += count;
        }
        for (place, figure) in verdict.figures.iter().enumerate() {
            let (name, leaf) = ours::figure_at(place);
            if leaf == ours::Leaf::Count && name.starts_with("num_") {
                *self.reach.entry(name).or_default() += figure;
            }
        }
        if let Some(difference) = verdict.difference {
            self.differing += 1;
            if self.shown.len() < SHOWN {
                self.shown.push((seed, mix, script, difference));
            }
        }
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn listed<K: AsRef<str>, V: std::fmt::Display>(counts: &BTreeMap<K, V>) -> String {
    counts.iter().map(|(name, count)| format!("{}: {count}", name.as_ref())).collect::<Vec<_>>().join(", ")
}

#[test]
#[ignore = "needs the peer's harness, named by C10SIM_HARNESS"]
fn random_scripts_agree_with_the_peer() {
    let harness = std::env::var_os("C10SIM_HARNESS").expect("C10SIM_HARNESS names the peer's program");
    let peer = Peer(harness.into());
    let (sequences, first) = (number("C10SIM_SEQUENCES", 100), number("C10SIM_SEED", 1));
    // Our panics are differences, and shown as such.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let report = compare_all(&peer, first, sequences);
    let shown: Vec<String> = report.shown.iter().map(|shown| describe(&peer, shown)).collect();
    std::panic::set_hook(hook);
    shown.iter().for_each(|text| println!("{text}"));
    println!("scripts: {}", listed(&report.mixes));
    println!("reached: {}", listed(&report.reach));
    let excused: usize = report.excused.values().sum();
    println!(
        "{sequences} sequences, {} operations, {} differences, {excused} excused ({})",
        report.operations,
        report.differing,
        listed(&report.excused)
    );
    assert_eq!(report.differing, 0, "sequences differ");
}

fn compare_all(peer: &Peer, first: u64, sequences: u64) -> Report {
    let (next, report, failed) = (AtomicU64::new(0), Mutex::new(Report::default()), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let position = next.fetch_add(1, Ordering::Relaxed);
                    if position >= sequences || failed.load(Ordering::Relaxed) > 0 {
                        break;
                    }
                    let seed = first + position;
                    let (script, mix) = generate(seed, OPERATIONS);
                    match judge(peer, &script) {
                        Ok(verdict) => report.lock().unwrap().add(seed, mix, script, verdict),
                        Err(error) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("the peer's program cannot be run: {error}");
                        }
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "the peer's program cannot be run");
    report.into_inner().unwrap()
}

fn describe(peer: &Peer, (seed, mix, script, difference): &(u64, &'static str, Script, Difference)) -> String {
    let (short, last) = shrink(peer, script, difference);
    let count = short.ops.len();
    format!("seed {seed} ({mix}): {difference}\n{count} operations are enough:\n{short}{last}\n")
}
