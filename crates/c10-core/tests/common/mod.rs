//! A simulated machine with a runtime on it, for one test on one thread.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test program uses some of it, and a failed set-up is a failed test"
)]

use c10_core::{DeviceIndex, Result, Runtime, Stream};
use testkit::{Bound, CUresult, Config, Fault, LiveHandles, Machine, Simulation};

pub(crate) const DEVICE: DeviceIndex = DeviceIndex(0);

/// The machine is current on the thread, the runtime is not: the tests here say which runtime they mean.
pub(crate) struct Rig {
    pub(crate) runtime: Runtime,
    pub(crate) machine: Machine,
    _bound: Bound,
}

impl Rig {
    pub(crate) fn new(config: Config) -> Self {
        let simulation = Simulation::new(config);
        let machine = simulation.machine().clone();
        Self { runtime: simulation.runtime().clone(), _bound: machine.bind(), machine }
    }

    pub(crate) fn stream(&self) -> Stream {
        self.runtime.streams().pooled(DEVICE, 0).unwrap()
    }

    pub(crate) fn allocated_bytes(&self) -> i64 {
        self.runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current
    }

    pub(crate) fn reserved_bytes(&self) -> i64 {
        self.runtime.memory().stats(DEVICE).unwrap().reserved_bytes.all.current
    }

    /// Drops the runtime and tells what is left on the machine.
    pub(crate) fn left(self) -> LiveHandles {
        let Self { runtime, machine, _bound } = self;
        drop(runtime);
        machine.live()
    }
}

/// Copies bytes to a buffer on one stream and from it on another, with `between` to order them; whether they all arrived.
pub(crate) fn relay(seed: u64, between: impl FnOnce(&Rig, &Stream, &Stream) -> Result<()>) -> Result<bool> {
    const LEN: usize = 1 << 20;
    let rig = Rig::new(config().seed(seed).late_events(true));
    let (first, second) = (rig.stream(), rig.stream());
    let (source, target) = (rig.runtime.pinned().buffer(LEN)?, rig.runtime.pinned().buffer(LEN)?);
    source.write(0, &vec![9; LEN])?;
    target.write(0, &vec![0; LEN])?;
    let buffer = rig.runtime.memory().buffer(LEN, &first)?;
    buffer.fill(0..LEN, 1, &first)?;
    first.synchronize()?;
    buffer.copy_from_pinned(0, &source, 0..LEN, &first)?;
    between(&rig, &first, &second)?;
    buffer.copy_to_pinned(0..LEN, &target, 0, &second)?;
    second.synchronize()?;
    Ok(target.to_vec()?.iter().all(|&byte| byte == 9))
}

/// Lets the driver calls of an earlier run fail one after another, by two codes; `run` runs the program with such a fault
/// and tells whether it was noticed. How many faults there were, and how many were noticed.
pub(crate) fn fail_each_call(calls: &[(&'static str, CUresult, u64)], run: impl Fn(Fault) -> bool) -> (usize, usize) {
    let (mut tried, mut noticed) = (0, 0);
    for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_NOT_PERMITTED] {
        for (call, _, count) in calls.iter().filter(|(_, code, _)| *code == CUresult::CUDA_SUCCESS) {
            if *call == "cuDriverGetVersion" {
                continue; // Asked while the table is made, before there is a runtime.
            }
            // Making 64 streams is 64 times the same; the ends and the middle of such rows are enough.
            let places = (1..=*count).filter(|place| *count < 40 || place % 9 == 1 || *place == *count);
            for occurrence in places {
                tried += 1;
                noticed += usize::from(run(Fault { call, occurrence, code }));
            }
        }
    }
    (tried, noticed)
}

pub(crate) fn rig() -> Rig {
    Rig::new(config())
}

pub(crate) fn config() -> Config {
    Config::default().seed(1)
}

/// Another runtime on the machine bound to this thread.
pub(crate) fn runtime() -> Runtime {
    Runtime::new(cuda_sim::driver().unwrap())
}

/// The driver's error that was expected.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T>) -> u32 {
    result.unwrap_err().error_code().expect("an error of the driver")
}

/// What a test of the running program writes to its output and its error output in a process of its own, with these
/// variables set.
pub(crate) fn in_a_process(test: &str, variables: &[(&str, &str)]) -> (String, String) {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).envs(variables.iter().copied());
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}
