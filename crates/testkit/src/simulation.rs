//! Runtimes on simulated machines of their own.
//!
//! **Invariant:** whichever thread drops the last handle of a simulation, what its runtime gives back then goes to the
//! machine that the runtime is on.

use c10_core::{Runtime, RuntimeGuard, SanitizerOptions};
use cuda_sim::{Bound, Config, LiveHandles, Machine};

use crate::leftovers;

/// Environment variable that overrides the seed of machines.
const SEED: &str = "TESTKIT_SEED";

/// Environment variable that raises races between streams as errors.
const SANITIZER: &str = "TESTKIT_SANITIZER";

/// A runtime on a new simulated machine with one device, both current on this thread: [`SimulatedRuntime::new`] with the
/// default configuration.
///
/// ```
/// let simulated = testkit::simulated_runtime();
/// let stream = simulated.runtime().streams().default(0)?;
/// let buffer = simulated.runtime().memory().buffer(4, &stream)?;
/// buffer.copy_from_slice(0, &[1, 2, 3, 4])?;
/// assert_eq!(buffer.to_vec()?, [1, 2, 3, 4]);
/// # Ok::<(), testkit::c10_core::Error>(())
/// ```
///
/// # Panics
/// Never: a machine of the default configuration tells its driver's version.
#[must_use = "the simulation is current only while the value lives"]
pub fn simulated_runtime() -> SimulatedRuntime {
    SimulatedRuntime::new(Config::default())
}

/// A runtime and the simulated machine it is on, for any number of threads.
///
/// The machine that a driver call goes to is a matter of the thread, so a thread has to [`enter`](Self::enter) the
/// simulation before it uses the runtime or anything made by it.
///
/// ```
/// use testkit::{Config, Simulation};
///
/// let simulation = Simulation::new(Config::default().devices(2));
/// let there = simulation.clone();
/// std::thread::spawn(move || {
///     let _here = there.enter();
///     assert_eq!(there.runtime().device_count(), 2);
/// })
/// .join()
/// .unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Empty only while this is dropped.
    runtime: Option<Runtime>,
    machine: Machine,
}

impl Simulation {
    /// Makes a machine and a runtime on it. Both start when they are first used.
    ///
    /// The environment variable `TESTKIT_SEED` overrides the seed, and `TESTKIT_SANITIZER`, with any value, raises
    /// every race between streams as an error, by torch's rules and by byte ranges. An existing program can thus run
    /// under several seeds without changes.
    ///
    /// # Panics
    /// The configuration lets the first `cuDriverGetVersion` fail, so that there is no driver to make a runtime from;
    /// or `TESTKIT_SEED` is not a number.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let simulation = Self::exactly(match std::env::var(SEED) {
            Ok(seed) => config.seed(seed.parse().expect("TESTKIT_SEED is a number")),
            Err(_) => config,
        });
        if std::env::var_os(SANITIZER).is_some() {
            let _here = simulation.enter();
            for options in [SanitizerOptions::default(), SanitizerOptions::ranges()] {
                simulation.runtime().enable_sanitizer(options);
            }
        }
        simulation
    }

    /// Like [`Self::new`], but ignores the environment.
    pub(crate) fn exactly(config: Config) -> Self {
        // Before anything is told that a listener of another thread could miss.
        crate::listener::have_listeners_asked();
        let machine = Machine::new(config);
        let bound = machine.bind();
        let driver = cuda_sim::driver().expect("the machine tells its driver's version");
        drop(bound);
        Self { runtime: Some(Runtime::new(driver)), machine }
    }

    /// The runtime; clone it to keep it.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "nobody can call it while the simulation is dropped")]
    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the simulation is dropped")
    }

    /// The machine: faults to come, counts of calls, reports of misuse, simulated time.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Lets the runtime see the machine through NVML too, as programs on real machines do.
    #[must_use]
    pub fn with_nvml(self) -> Self {
        self.runtime().telemetry().set_nvml(cuda_sim::nvml());
        self
    }

    /// Makes machine and runtime current on the calling thread until the guard is dropped. Entering nests.
    pub fn enter(&self) -> Entered {
        let bound = self.machine.bind();
        Entered { _current: self.runtime().bind(), _bound: bound }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let _bound = self.machine.bind();
        self.runtime = None;
    }
}

/// A simulation is current on the thread until this is dropped.
#[derive(Debug)]
#[must_use = "the simulation is current only while the guard lives"]
pub struct Entered {
    // Left in this order: the runtime's guard belongs to the machine's.
    _current: RuntimeGuard,
    _bound: Bound,
}

/// A [`Simulation`] that the thread which made it has entered, for the usual test of one thread.
///
/// While it lives, [`Runtime::current`] on this thread is its runtime, so functions that use the current runtime, such as
/// those of `cuda-api`, can be tested as they are. Declare it before what the test makes: values are dropped in the
/// opposite order, and a simulation that goes last sees everything returned.
#[derive(Debug)]
#[must_use = "the simulation is current only while the value lives"]
pub struct SimulatedRuntime {
    _entered: Entered,
    simulation: Simulation,
}

impl SimulatedRuntime {
    /// Makes a machine and a runtime on it, current on this thread.
    ///
    /// ```
    /// use testkit::{CUresult, Config, Fault, SimulatedRuntime};
    ///
    /// let full = Fault { call: "cuMemAlloc_v2", occurrence: 1, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY };
    /// let simulated = SimulatedRuntime::new(Config::default().devices(2).capacity(1 << 30).seed(7).fault(full));
    /// assert_eq!(simulated.runtime().device_count(), 2);
    /// ```
    ///
    /// # Panics
    /// As [`Simulation::new`].
    pub fn new(config: Config) -> Self {
        Simulation::new(config).here()
    }

    /// The runtime; clone it to keep it.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        self.simulation.runtime()
    }

    /// The machine: faults to come, counts of calls, reports of misuse, simulated time.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        self.simulation.machine()
    }

    /// The simulation, to be cloned for other threads.
    #[must_use]
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// Ends the simulation and says what is left on the machine, contexts included.
    ///
    /// All counts are 0 if the program and the runtime gave everything back. A stream, buffer or clone of the runtime that
    /// still lives keeps the runtime alive, and then what the runtime holds is counted.
    #[must_use]
    pub fn close(self) -> LiveHandles {
        let machine = self.machine().clone();
        drop(self);
        machine.live()
    }

    /// As [`Self::close`], for assertions.
    ///
    /// # Panics
    /// Something but a context is left; the message lists it.
    pub fn close_clean(self) {
        let machine = self.machine().clone();
        drop(self);
        let left = leftovers(&machine);
        assert!(left.is_empty(), "left on the simulated machine: {}", left.join(", "));
    }
}

impl Simulation {
    /// Enters the simulation on this thread for as long as the value lives.
    pub fn here(self) -> SimulatedRuntime {
        SimulatedRuntime { _entered: self.enter(), simulation: self }
    }
}
