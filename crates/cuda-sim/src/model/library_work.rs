//! Work of libraries of the toolkit, such as a product of matrices: launched like a kernel, computed on the host.
//!
//! A piece of [`LibraryWork`] says what it touches before it runs. All of that is looked at first: hardware would find
//! the same, only later, and misuse that it would not find is reported. Of work that nothing orders, of which one writes
//! what the other touches, one is misplaced: that is reported when the later of the two is queued.
//!
//! Invariant: a library's functions are no module's; they go when their context goes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cuda_sys::CUresult;
use ptx_sim::{Limits, Module, Program};

use super::engine::{Due, OpId};
use super::kernel::Kernel;
use super::memory::{BadAddress, Memory};
use super::modules::{Function, Launch, LaunchAttributes, Parameters, dynamic_shared_of};
use super::work::{Step, WAIT_ELSEWHERE_INTERVAL_NS};
use super::{Effect, State};
use crate::codes::{Answer, ILLEGAL_ADDRESS, INVALID_VALUE};
use crate::report::ReportKind;

/// What work does with a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    Reads,
    Writes,
    /// Writes and reads what it wrote.
    Scratch,
    /// Writes memory of the host that the program waits for.
    Answers,
}

impl Use {
    fn verb(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes | Self::Answers => "writes",
            Self::Scratch => "uses as workspace",
        }
    }

    pub(crate) fn writes(self) -> bool {
        self != Self::Reads
    }
}

/// A range that work touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Touch {
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) how: Use,
}

impl Touch {
    fn overlaps(&self, other: &Self) -> bool {
        self.address < other.address.saturating_add(other.length)
            && other.address < self.address.saturating_add(self.length)
    }
}

/// Whether work that is due runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Run,
    /// It waits until other work comes to it.
    Wait {
        /// Whether it has just come to others that wait.
        came: bool,
    },
    /// It waits for another process, and looks again.
    Ask,
}

/// Work of a library.
pub(crate) trait LibraryWork: fmt::Debug + Send + Sync {
    /// Name for reports.
    fn name(&self) -> &'static str;
    /// What it touches, as far as that is known without looking at memory.
    fn known_touches(&self) -> Vec<Touch>;
    /// All that it touches: addresses may lie in memory.
    fn touches(&self, memory: &Memory) -> Result<Vec<Touch>, BadAddress>;
    /// Whether it runs, now that it is due; asked again when other work has come. A fault is its own that was injected.
    fn turn(&self, _op: OpId, _memory: &Memory, _fault: Option<u32>, _patience: Duration) -> Turn {
        Turn::Run
    }
    /// The name under which faults of work under way are injected.
    fn fault_name(&self) -> Option<&'static str> {
        None
    }
    /// It will not run, since its context is lost.
    fn abandon(&self, _op: OpId) {}
    /// Whether work that waits has waited for so long in real time that it goes on without what it waits for.
    fn is_overdue(&self, _patience: Duration) -> bool {
        false
    }
    /// Does it.
    fn run(&self, memory: &Memory) -> Result<(), BadAddress>;
    /// How long that takes a device, in simulated nanoseconds.
    fn duration_ns(&self) -> u64;
}

/// Text of the functions: kernels of these names, whose parameters are the addresses that they touch.
const TEXT: &str = include_str!("library_work.ptx");

/// Functions of libraries by context and name.
#[derive(Debug, Default)]
pub(crate) struct LibraryFunctions {
    kernels: Vec<Arc<Kernel>>,
    handles: BTreeMap<(u64, &'static str), u64>,
}

impl LibraryFunctions {
    fn kernel(&mut self, name: &str, limits: Limits) -> Option<Arc<Kernel>> {
        if self.kernels.is_empty() {
            self.kernels = Kernel::all_of(&Arc::new(Program::new(Module::link(&[TEXT], limits).ok()?)));
        }
        self.kernels.iter().find(|kernel| kernel.name == name).cloned()
    }
}

impl State {
    /// The launch of a piece of work in a context.
    pub(crate) fn library_launch(
        &mut self,
        context: u64,
        kernel: &'static str,
        work: Arc<dyn LibraryWork>,
    ) -> Answer<Launch> {
        let limits = self.ptx_limits();
        let code = self.library_functions.kernel(kernel, limits).ok_or(INVALID_VALUE)?;
        let function = match self.library_functions.handles.get(&(context, kernel)) {
            Some(&handle) => handle,
            None => {
                let handle = self.new_handle();
                let kernel_of = Arc::clone(&code);
                let dynamic_shared_max = dynamic_shared_of(&code);
                let made = Function { module: 0, context, kernel: kernel_of, dynamic_shared_max, loaded: true };
                self.functions.insert(handle, made);
                self.library_functions.handles.insert((context, kernel), handle);
                handle
            }
        };
        let room = code.parameters.len();
        let mut words: Vec<u64> = work.known_touches().iter().map(|touch| touch.address).collect();
        words.resize(room, 0);
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(Launch {
            function,
            parameters: Arc::new(Parameters::new(&code, bytes)),
            kernel: code,
            cooperative: false,
            grid: [1; 3],
            block: [128, 1, 1],
            shared_bytes: 0,
            attributes: LaunchAttributes::default(),
            library: Some(work),
        })
    }

    /// Forgets the functions of a context that goes.
    pub(crate) fn forget_library_functions(&mut self, context: u64) {
        let gone: Vec<u64> = self
            .library_functions
            .handles
            .extract_if(.., |&(of, _), _| of == context)
            .map(|(_, handle)| handle)
            .collect();
        for handle in gone {
            self.functions.remove(&handle);
        }
    }

    /// Runs work of a library; how many nanoseconds it goes on after that.
    pub(super) fn run_library(
        &mut self,
        work: &Arc<dyn LibraryWork>,
        reachable: &[u32],
        due: &Due<Effect>,
    ) -> Result<u64, CUresult> {
        let name = work.name();
        let lost = |state: &mut Self, what: String| {
            state.report(ReportKind::KernelFailure, format!("{name} {what}"));
            ILLEGAL_ADDRESS
        };
        let touches = work
            .touches(&self.memory)
            .map_err(|BadAddress(at)| lost(self, format!("looks for addresses at {at:#x}")))?;
        for touch in &touches {
            if !self.may_touch(touch, reachable) {
                let Touch { address, length, how } = touch;
                return Err(lost(self, format!("{} {length} bytes at {address:#x}, which it cannot", how.verb())));
            }
            let verb = format!("of {name} {}", touch.how.verb());
            self.look_at_access(&verb, (touch.address, touch.length), due.asked)?;
        }
        work.run(&self.memory).map_err(|BadAddress(at)| lost(self, format!("ends at {at:#x}")))?;
        if let Some(&device) = reachable.last() {
            for touch in &touches {
                let blocks = self.memory.managed_blocks(touch.address, touch.length);
                self.memory.touch(&blocks, device);
            }
        }
        Ok(work.duration_ns())
    }

    /// Lets work of a library that is due run, or wait for other work.
    pub(super) fn take_turn(&mut self, due: Due<Effect>) -> Result<Due<Effect>, Step> {
        let Some(work) = due.effect.library_work().map(Arc::clone) else { return Ok(due) };
        let fault = work.fault_name().and_then(|name| self.fault_for(name)).map(|code| code.0);
        let turn = work.turn(due.id, &self.memory, fault, self.config.nccl_timeout);
        if turn != (Turn::Wait { came: false }) {
            self.wake_waiting();
        }
        match turn {
            Turn::Run => Ok(due),
            Turn::Wait { .. } => {
                self.parked.insert(due.id);
                self.engine.park(due);
                Err(Step::Applied)
            }
            Turn::Ask => {
                let again_ns = due.at_ns + WAIT_ELSEWHERE_INTERVAL_NS;
                self.engine.postpone(due, again_ns);
                Err(Step::Waiting)
            }
        }
    }

    /// Whether work waits for other work to come.
    pub(crate) fn is_parked(&self, op: OpId) -> bool {
        self.parked.contains(&op)
    }

    /// Lets all work look again that waits for other work.
    pub(crate) fn wake_waiting(&mut self) {
        for op in std::mem::take(&mut self.parked) {
            self.engine.wake(op, self.clock_ns);
        }
    }

    /// Lets work go on that has waited too long; whether there is any.
    pub(super) fn wake_overdue(&mut self) -> bool {
        let patience = self.config.nccl_timeout;
        let waiting = self.parked.iter().filter_map(|&op| self.engine.effect(op)?.library_work());
        let is_any = waiting.map(|work| work.is_overdue(patience)).fold(false, |any, overdue| any | overdue);
        if is_any {
            self.wake_waiting();
        }
        is_any
    }

    /// Whether a device reaches a range.
    fn may_touch(&self, touch: &Touch, reachable: &[u32]) -> bool {
        let &Touch { address, length, how } = touch;
        if how == Use::Answers {
            return true;
        }
        if !self.memory.is_device_address(address) {
            return self.memory.is_pinned(address, length);
        }
        let mut at = address;
        let end = address.saturating_add(length);
        while at < end {
            let Some((base, region)) = self.memory.region_at(at) else { return false };
            let allowed = region.accessible && (region.is_whole() || reachable.contains(&region.device));
            if !allowed || (how.writes() && !region.writable) {
                return false;
            }
            at = base + region.length;
        }
        true
    }

    /// Reports what was just queued if work that nothing orders with it writes what it touches, or touches what it
    /// writes, and one of the two is a library's.
    pub(crate) fn check_order(&mut self, new: OpId) {
        if self.library_functions.handles.is_empty() {
            return;
        }
        let Some(effect) = self.engine.effect(new) else { return };
        let conflicts: Vec<(OpId, String)> = self
            .engine
            .pending()
            .filter(|&(op, _)| op != new)
            .filter_map(|(op, old)| Some((op, conflict(effect, old)?)))
            .collect();
        let unordered = conflicts.into_iter().find(|&(op, _)| !self.engine.precedes(op, new));
        if let Some((_, text)) = unordered {
            self.report(ReportKind::Unordered, text);
        }
    }
}

/// What two pieces of work touch that one of them writes, in words; none where neither is a library's.
fn conflict(new: &Effect, old: &Effect) -> Option<String> {
    if let Some(work) = new.library_work() {
        let found = work.known_touches().into_iter().find(|touch| clashes(touch, old))?;
        return Some(told(work.name(), &found, "which earlier work on another stream"));
    }
    let work = old.library_work()?;
    let found = work.known_touches().into_iter().find(|touch| clashes(touch, new))?;
    Some(told(work.name(), &found, "which later work on another stream"))
}

fn told(name: &str, touch: &Touch, other: &str) -> String {
    let Touch { address, length, how } = touch;
    format!("{name} {} {length} bytes at {address:#x}, {other} uses too; nothing orders the two", how.verb())
}

/// Whether other work writes a range, or touches it and the range is written.
fn clashes(touch: &Touch, other: &Effect) -> bool {
    if let Some(work) = other.library_work() {
        let theirs = work.known_touches();
        return theirs.iter().any(|their| (touch.how.writes() || their.how.writes()) && touch.overlaps(their));
    }
    other.writes(touch.address, touch.length) || (touch.how.writes() && other.touches(touch.address, touch.length))
}
