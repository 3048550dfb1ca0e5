//! Kernels that wait for memory to change: they stop, other work goes on, and they look again.
//!
//! A kernel runs to its end at one moment of simulated time, unless all of its threads that run read memory again and
//! again. Then it gives way until a little later. So kernels of several devices that wait for each other's writes make
//! progress, and a kernel may wait for the host or for another process.
//!
//! **Invariants:** a grid is kept from its first pause until its work is completed or abandoned. Kernels count as
//! deadlocked only where nothing else can happen in the machine and the program, which was waiting for them, has had
//! time to change something.

use std::collections::BTreeMap;

use cuda_sys::CUresult;
use ptx_sim::{Grid, Wait};

use super::State;
use super::engine::{Due, OpId};
use super::memory::Traffic;
use super::modules::place_of;
use super::work::{Effect, Step};
use crate::codes::LAUNCH_TIMEOUT;
use crate::report::ReportKind;

/// After how long a kernel that waits looks again, in simulated nanoseconds; doubled each time that it looks in vain, so
/// often.
const LOOK_AGAIN_NS: u64 = 1_000;
const DOUBLINGS: u32 = 4;

/// How often the program may wait in vain for kernels that wait before they count as deadlocked.
const LOOKS_IN_VAIN: u64 = 2_048;

/// A kernel between two of its turns.
#[derive(Debug)]
pub(crate) struct Paused {
    pub(crate) grid: Grid,
    /// When it began.
    pub(crate) start_ns: u64,
    /// Number of the launch.
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) device: u32,
    pub(crate) context: u64,
    pub(crate) wait: Wait,
    /// What it has read from other devices and written to them so far.
    pub(crate) traffic: Traffic,
    /// Whether it has looked in vain since anything else happened.
    in_vain: bool,
    /// How often it has looked since it wrote.
    pub(crate) looks: u32,
}

/// Kernels that wait.
#[derive(Debug, Default)]
pub(crate) struct Grids {
    paused: BTreeMap<OpId, Paused>,
    /// How often the program has waited in vain.
    looks: u64,
}

impl Grids {
    /// Something has happened that a kernel may wait for.
    pub(crate) fn stir(&mut self) {
        self.looks = 0;
        self.paused.values_mut().for_each(|paused| paused.in_vain = false);
    }

    /// The program waits, and nothing happens.
    pub(crate) fn look_in_vain(&mut self) {
        self.looks += 1;
    }

    /// Takes a kernel to go on with, or to forget.
    pub(crate) fn take(&mut self, op: OpId) -> Option<Paused> {
        self.paused.remove(&op)
    }

    fn waits_in_vain(&self, op: OpId) -> bool {
        self.paused.get(&op).is_some_and(|paused| paused.in_vain)
    }
}

/// A kernel that goes on later.
pub(crate) fn paused(
    grid: Grid,
    (start_ns, number, looks): (u64, u64, u32),
    (name, device, context): (&str, u32, u64),
    wait: Wait,
    traffic: Traffic,
) -> Paused {
    Paused {
        grid,
        start_ns,
        number,
        name: name.to_owned(),
        device,
        context,
        wait,
        traffic,
        in_vain: !wait.wrote,
        looks: if wait.wrote { 0 } else { looks + 1 },
    }
}

impl State {
    /// Lets a kernel look again later. Where nothing else can happen, the program may have to do something; where that
    /// has had time enough, the kernels are deadlocked.
    pub(super) fn pause_kernel(&mut self, due: Due<Effect>, paused: Paused) -> Step {
        if paused.wait.wrote {
            self.grids.stir();
        }
        let op = due.id;
        let patience_ns = LOOK_AGAIN_NS << paused.looks.min(DOUBLINGS);
        let again_ns = (due.at_ns + patience_ns).max(paused.start_ns + paused.grid.time_ns());
        self.engine.postpone(due, again_ns);
        self.grids.paused.insert(op, paused);
        if self.something_can_happen() {
            return Step::Applied;
        }
        if self.grids.looks > LOOKS_IN_VAIN.min(self.config.kernel_steps) {
            self.end_deadlock();
        }
        Step::Waiting
    }

    /// Whether anything but kernels that wait in vain is to be done.
    fn something_can_happen(&self) -> bool {
        self.engine.ready().any(|(op, effect)| match effect {
            Effect::Launch(_) => !self.grids.waits_in_vain(op),
            Effect::WaitValue { .. } | Effect::WaitElsewhere { .. } => false,
            Effect::Nothing
            | Effect::Copy(_)
            | Effect::Fill(_)
            | Effect::Record { .. }
            | Effect::Host(_)
            | Effect::WriteValue { .. }
            | Effect::Allocate { .. }
            | Effect::MovePages { .. }
            | Effect::SetConditions(_)
            | Effect::Conditional(_)
            | Effect::EndBody { .. }
            | Effect::FreeInOrder { .. } => true,
        })
    }

    /// Ends the contexts of all kernels that wait, and says what each waited for.
    fn end_deadlock(&mut self) {
        let waiting: Vec<(OpId, u64, String)> =
            self.grids.paused.iter().map(|(&op, paused)| (op, paused.context, paused.said())).collect();
        let all: Vec<String> = waiting.iter().map(|(_, _, text)| text.clone()).collect();
        let text =
            format!("nothing else is queued that could run, and {} for ever: {}", counted(all.len()), all.join("; "));
        self.report(ReportKind::Deadlock, text);
        for (op, context, _) in waiting {
            self.grids.take(op);
            self.lose_context(context, DEADLOCK);
        }
        self.grids.stir();
    }
}

/// What a context is lost with: the driver's answer to a kernel that runs for too long.
const DEADLOCK: CUresult = LAUNCH_TIMEOUT;

fn counted(kernels: usize) -> String {
    if kernels == 1 { "a kernel waits".to_owned() } else { format!("{kernels} kernels wait") }
}

impl Paused {
    /// What it waits for, in words.
    fn said(&self) -> String {
        let Wait { at, found, .. } = &self.wait;
        let (name, device) = (&self.name, self.device);
        format!("kernel '{name}' on device {device}, {}, finds {found:#x} at {:#x}", place_of(at), at.address)
    }
}
