//! What a case is, and how one is run.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cuda_sys::{CUresult, CudaVersion, Driver};

use super::blank::Blank;
use super::cuda::{CaseResult, Cuda, Stop};
use super::usage::{Situation, Usage};

/// How long a case may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a case needs of the driver and the machine; it is skipped, with the reason, where that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Number of devices.
    pub devices: usize,
    /// Whether the case wants a driver that was not initialised yet.
    pub before_init: bool,
    /// Whether the calling thread shall have device 0's primary context current.
    pub context: bool,
    /// Whether only a simulated driver survives the case, or answers so.
    pub simulated: bool,
    /// Oldest driver on which the case makes sense.
    pub min_version: CudaVersion,
}

impl Needs {
    /// One device with its primary context current: what nearly every case needs.
    pub const CONTEXT: Self =
        Self { devices: 1, before_init: false, context: true, simulated: false, min_version: CudaVersion(11080) };
    /// An initialised driver, no context current.
    pub const NO_CONTEXT: Self = Self { context: false, ..Self::CONTEXT };
    /// A driver on which `cuInit` was not called.
    pub const BEFORE_INIT: Self = Self { before_init: true, context: false, ..Self::CONTEXT };
    /// Two devices, the first one's primary context current.
    pub const TWO_DEVICES: Self = Self { devices: 2, ..Self::CONTEXT };

    /// The same, on drivers from `version` on.
    #[must_use]
    pub const fn since(self, version: u32) -> Self {
        Self { min_version: CudaVersion(version), ..self }
    }
}

/// One case of the suite.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Part of the interface it belongs to.
    pub area: &'static str,
    /// Its name, unique within the area.
    pub name: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// What it does.
    pub body: Body,
}

/// What a case does.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// A program of calls.
    Program(fn(&Cuda<'_>) -> CaseResult),
    /// One function, called with every argument zero, and the code it must answer.
    Blank(&'static Blank, CUresult),
    /// One function, called rightly in a situation in which it must refuse.
    Usage(&'static Usage, Situation),
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every expectation held.
    Passed,
    /// Not run, and why.
    Skipped(String),
    /// The expectations that did not hold, one line each.
    Failed(String),
    /// Did not come to an end; the driver must not be used any more.
    Hung,
}

/// Lists the functions of an area as its cases.
macro_rules! cases {
    ($area:literal, $name:ident, $needs:expr; $($case:ident),* $(,)?) => {
        pub(super) const $name: &[crate::Case] = &[$(crate::Case {
            area: $area,
            name: stringify!($case),
            needs: $needs,
            body: crate::case::Body::Program($case),
        }),*];
    };
}
pub(super) use cases;

/// Called first on each thread a case runs on; what it returns is kept until the thread is done with the driver.
pub type Enter = dyn Fn() -> Box<dyn Any> + Send + Sync;

/// Runs one case on a thread of its own.
///
/// `simulated` says what kind of driver it is; what only simulated drivers survive is skipped on others.
/// The thread starts without a current context and gets device 0's primary context when the case needs it; what the
/// case made is destroyed afterwards.
pub fn run_case(case: &Case, driver: &Arc<Driver>, simulated: bool, enter: &Arc<Enter>) -> Outcome {
    let (send, receive) = mpsc::channel();
    let case = *case;
    let (driver, enter) = (Arc::clone(driver), Arc::clone(enter));
    let body = move || {
        let guard = enter();
        let outcome = run_here(&case, &driver, simulated, &*enter);
        drop(guard);
        // Nobody listens any more when the case was given up as hanging.
        let _ = send.send(outcome);
    };
    let Ok(thread) = thread::Builder::new().name(case.name.to_owned()).spawn(body) else {
        return Outcome::Failed("no thread could be started".to_owned());
    };
    match receive.recv_timeout(PATIENCE) {
        Ok(outcome) => {
            let _ = thread.join();
            outcome
        }
        Err(mpsc::RecvTimeoutError::Timeout) => Outcome::Hung,
        Err(mpsc::RecvTimeoutError::Disconnected) => Outcome::Failed("the case panicked".to_owned()),
    }
}

fn run_here(case: &Case, driver: &Driver, simulated: bool, enter: &Enter) -> Outcome {
    if driver.version() < case.needs.min_version {
        return Outcome::Skipped(format!("needs CUDA {}, the driver has {}", case.needs.min_version, driver.version()));
    }
    if case.needs.simulated && !simulated {
        return Outcome::Skipped("only simulated drivers survive it, or answer so".to_owned());
    }
    let cuda = Cuda::new(driver, enter);
    match cuda.prepare(&case.needs) {
        Ok(()) => {}
        Err(Stop::Skip(reason)) => return Outcome::Skipped(reason),
        Err(Stop::Failed(text)) => return Outcome::Failed(format!("beforehand: {text}")),
    }
    let result = match case.body {
        Body::Program(run) => run(&cuda),
        Body::Blank(blank, code) => blank.run(&cuda, code),
        Body::Usage(usage, situation) => usage.run(&cuda, situation),
    };
    let mut failures = cuda.finish(&case.needs);
    match result {
        Err(Stop::Skip(reason)) if failures.is_empty() => return Outcome::Skipped(reason),
        Err(Stop::Failed(text) | Stop::Skip(text)) => failures.push(text),
        Ok(()) => {}
    }
    if failures.is_empty() { Outcome::Passed } else { Outcome::Failed(failures.join("\n")) }
}
