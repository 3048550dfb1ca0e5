//! The process-wide runtime on a simulated machine, for programs that are tested as a whole.

use cuda_sim::{Config, Machine};

use crate::Simulation;

/// Makes a runtime on a new simulated machine the process-wide one, for every thread that enters nothing else.
///
/// This is for doctests, programs that spawn threads of their own and other code that must find the simulated runtime
/// without being told. Call it once, before anything uses the runtime; a test program in which several tests need a machine each
/// should use [`SimulatedRuntime`](crate::SimulatedRuntime). The process-wide runtime is never dropped.
///
/// ```
/// use testkit::Config;
///
/// let machine = testkit::make_default(Config::default().devices(2))?;
/// let counted = std::thread::spawn(|| testkit::c10_core::Runtime::current().device_count());
/// assert_eq!(counted.join().unwrap(), 2);
/// assert_eq!(machine.reports(), []);
/// # Ok::<(), testkit::AlreadyChosen>(())
/// ```
///
/// # Errors
/// The process has a process-wide runtime already. Machine and runtime stay as they were.
///
/// # Panics
/// As [`Simulation::new`].
pub fn make_default(config: Config) -> Result<Machine, AlreadyChosen> {
    chosen(Simulation::new(config))
}

/// Like [`make_default`], but ignores `TESTKIT_SEED` and `TESTKIT_SANITIZER` ([`Simulation::new`]): for programs that
/// race on purpose, or that show the history of one seed.
///
/// ```
/// use testkit::Config;
///
/// let machine = testkit::make_default_exactly(Config::default().seed(7))?;
/// assert_eq!(machine.seed(), 7);
/// # Ok::<(), testkit::AlreadyChosen>(())
/// ```
///
/// # Errors
/// Those of [`make_default`].
///
/// # Panics
/// See [`Simulation::new`].
pub fn make_default_exactly(config: Config) -> Result<Machine, AlreadyChosen> {
    chosen(Simulation::exactly(config))
}

fn chosen(simulation: Simulation) -> Result<Machine, AlreadyChosen> {
    let machine = simulation.machine().clone();
    match simulation.runtime().clone().make_default() {
        Ok(()) => {
            machine.make_default();
            Ok(machine)
        }
        Err(_) => Err(AlreadyChosen),
    }
}

/// The process-wide runtime was used or chosen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyChosen;

impl std::fmt::Display for AlreadyChosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the process has a process-wide runtime already; make the simulated one before anything uses it")
    }
}

impl std::error::Error for AlreadyChosen {}
