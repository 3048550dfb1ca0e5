//! What queued work does when its time has come.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use cuda_sys::CUresult;
use cuda_sys::driver::types::CUstream;

use super::State;
use super::engine::{Due, OpId, Timing};
use super::graph::{self, Conditional, ConditionalKind};
use super::library_work::LibraryWork;
use super::memory::{BadAddress, Endpoint, Fill, Location, Look, Source, Stretch, Traffic, Transfer};
use super::modules::{Launch, Ran, kind_of};
use super::shared::SharedEvent;
use crate::codes::{ILLEGAL_ADDRESS, LAUNCH_FAILED, LAUNCH_TIMEOUT, NVLINK_UNCORRECTABLE};
use crate::report::ReportKind;

/// How often a wait for a value in memory looks again, in simulated nanoseconds.
const WAIT_VALUE_INTERVAL_NS: u64 = 2_000;

/// How often a wait for another process looks again, in simulated nanoseconds.
pub(super) const WAIT_ELSEWHERE_INTERVAL_NS: u64 = 20_000;

/// How often a body runs at most in one launch; more is taken for a loop without an end.
const TURNS_MAX: u64 = 1 << 16;

/// From how many bytes on a set that finds no memory loses its context with another code.
const LARGE_SET_BYTES: u64 = 64 << 10;

/// A function of the program that a stream runs on the host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostWork {
    /// Of `cuLaunchHostFunc` and of host nodes.
    Function {
        /// The function.
        function: unsafe extern "C" fn(*mut c_void),
        /// What it is called with.
        data: u64,
    },
    /// Of `cuStreamAddCallback`.
    Callback {
        /// The function.
        function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
        /// The stream as the program named it.
        stream: u64,
        /// What it is called with.
        data: u64,
    },
}

/// A function of the program whose time has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueHostWork {
    pub(crate) op: OpId,
    pub(crate) context: u64,
    pub(crate) work: HostWork,
}

/// A block that was handed out.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// What its stream had before: that still has the memory as it was.
    pub(crate) after: Vec<OpId>,
}

/// The effect of queued work.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// None: it only orders other work.
    Nothing,
    /// Copies bytes.
    Copy(Transfer),
    /// Sets bytes.
    Fill(Fill),
    /// Marks an event as reached, unless it was recorded again since.
    Record {
        /// The event.
        event: u64,
        /// Which recording of it.
        serial: u64,
    },
    /// Runs a function of the program.
    Host(HostWork),
    /// Writes a value of 4 or 8 bytes.
    WriteValue {
        /// Where.
        address: u64,
        /// The value's bytes.
        value: Vec<u8>,
    },
    /// Waits until a value in memory compares as wanted.
    WaitValue {
        /// Where.
        address: u64,
        /// What it is compared with.
        value: u64,
        /// Size of the value in bytes.
        width: u64,
        /// How it is compared: 0 cyclic not less, 1 equal, 2 any common bit, 3 any bit not set in both.
        condition: u32,
    },
    /// Waits until a recording that another process queued was reached.
    WaitElsewhere {
        /// The event.
        event: Arc<SharedEvent>,
        /// Number of the recording.
        number: u64,
    },
    /// The memory that a graph allocates is there from now on.
    Allocate {
        /// Which allocation.
        id: u64,
    },
    /// Moves pages of managed memory.
    MovePages {
        /// The pages.
        stretch: Stretch,
        /// Which allocation, as the address may be used again by then.
        id: u64,
        /// Where to.
        to: Location,
    },
    /// Runs a kernel.
    Launch(Launch),
    /// Sets conditions, as a launch of their graph does first.
    SetConditions(Vec<(u64, u32)>),
    /// Runs a body depending on a condition.
    Conditional(Arc<Conditional<Vec<graph::Step>>>),
    /// A body has run.
    EndBody {
        /// The conditional node, which is done when its bodies are.
        node: OpId,
        /// What to go on with.
        again: Option<Arc<Conditional<Vec<graph::Step>>>>,
        /// How often a body has run.
        turns: u64,
    },
    /// Gives an allocation back.
    FreeInOrder {
        /// Where it begins.
        base: u64,
        /// Which one, as the address may be used again by then.
        id: u64,
    },
}

impl Effect {
    /// Whether `CUDA_LAUNCH_BLOCKING` makes the call that queues it wait; what only orders other work, waits for a value
    /// or runs on the host is no launch.
    pub(crate) fn is_launch(&self) -> bool {
        match self {
            Self::Copy(_) | Self::Fill(_) | Self::Launch(_) => true,
            Self::Nothing
            | Self::Record { .. }
            | Self::Host(_)
            | Self::WriteValue { .. }
            | Self::WaitValue { .. }
            | Self::WaitElsewhere { .. }
            | Self::Allocate { .. }
            | Self::MovePages { .. }
            | Self::SetConditions(_)
            | Self::Conditional(_)
            | Self::EndBody { .. }
            | Self::FreeInOrder { .. } => false,
        }
    }

    /// Whether it reads or writes a range of addresses. Of a conditional node this is not known before its body begins.
    pub(crate) fn touches(&self, base: u64, length: u64) -> bool {
        let overlaps = |address: u64, span: u64| address < base + length && base < address.saturating_add(span);
        match self {
            Self::Nothing
            | Self::Record { .. }
            | Self::Host(_)
            | Self::WaitElsewhere { .. }
            | Self::Allocate { .. }
            | Self::SetConditions(_)
            | Self::Conditional(_)
            | Self::EndBody { .. }
            | Self::FreeInOrder { .. } => false,
            Self::Launch(launch) => launch.names(base, length),
            Self::Copy(transfer) => transfer.touches(base, length),
            Self::Fill(fill) => overlaps(fill.to.address, fill.to.span(fill.width, fill.height, 1).unwrap_or(u64::MAX)),
            Self::WriteValue { address, value } => overlaps(*address, value.len() as u64),
            Self::WaitValue { address, width, .. } => overlaps(*address, *width),
            Self::MovePages { stretch, .. } => overlaps(stretch.base, 1),
        }
    }
}

impl Effect {
    /// Whether it is known to write a range of addresses; what a kernel does is not.
    pub(crate) fn writes(&self, base: u64, length: u64) -> bool {
        match self {
            Self::Copy(transfer) => {
                let to = &transfer.to;
                let span = to.span(transfer.width, transfer.height, transfer.depth).unwrap_or(u64::MAX);
                to.address < base + length && base < to.address.saturating_add(span)
            }
            Self::Fill(_) | Self::WriteValue { .. } => self.touches(base, length),
            Self::Nothing
            | Self::Record { .. }
            | Self::Host(_)
            | Self::WaitValue { .. }
            | Self::WaitElsewhere { .. }
            | Self::Allocate { .. }
            | Self::MovePages { .. }
            | Self::Launch(_)
            | Self::SetConditions(_)
            | Self::Conditional(_)
            | Self::EndBody { .. }
            | Self::FreeInOrder { .. } => false,
        }
    }

    /// The work of a library that it launches.
    pub(crate) fn library_work(&self) -> Option<&Arc<dyn LibraryWork>> {
        if let Self::Launch(launch) = self { launch.library.as_ref() } else { None }
    }
}

/// What driving the machine one step did.
#[derive(Debug)]
pub(crate) enum Step {
    /// Something finished.
    Applied,
    /// A function of the program is to be run, with the machine unlocked; then [`State::finish_host_work`].
    Host(DueHostWork),
    /// Work looked for a value in memory that is not there yet.
    Waiting,
    /// Nothing finishes within the limit.
    Idle,
}

impl State {
    /// Lets the next piece of work finish, if that is not after `limit_ns`.
    pub(crate) fn step(&mut self, limit_ns: u64) -> Step {
        let Some(due) = self.engine.pop_due(limit_ns) else {
            return if self.wake_overdue() { Step::Applied } else { Step::Idle };
        };
        self.clock_ns = self.clock_ns.max(due.at_ns);
        self.bear_blocks();
        if self.usable_context(due.context).is_err() {
            self.abandon(&due);
            return Step::Applied;
        }
        if due.is_broken {
            self.lose_context(due.context, NVLINK_UNCORRECTABLE);
            self.abandon(&due);
            return Step::Applied;
        }
        if let Effect::Host(work) = due.effect {
            return Step::Host(DueHostWork { op: due.id, context: due.context, work });
        }
        if let Effect::WaitValue { address, value, width, condition } = due.effect
            && !self.value_arrived(address, value, width, condition).unwrap_or(true)
        {
            let again_ns = due.at_ns + WAIT_VALUE_INTERVAL_NS;
            self.engine.postpone(due, again_ns);
            return Step::Waiting;
        }
        if let Effect::WaitElsewhere { event, number } = &due.effect
            && !event.has_reached(*number)
        {
            let again_ns = due.at_ns + WAIT_ELSEWHERE_INTERVAL_NS;
            self.engine.postpone(due, again_ns);
            return Step::Waiting;
        }
        if !matches!(due.effect, Effect::Launch(_)) {
            self.grids.stir();
        }
        if let Effect::Conditional(node) = &due.effect {
            self.begin_body(due.id, due.context, Arc::clone(node), 0);
            return Step::Applied;
        }
        if let Effect::EndBody { node, again, turns } = &due.effect {
            match again {
                Some(again) => self.begin_body(*node, due.context, Arc::clone(again), *turns),
                None => self.engine.complete(*node, due.at_ns),
            }
            self.engine.complete(due.id, due.at_ns);
            return Step::Applied;
        }
        let due = match self.take_turn(due) {
            Ok(due) => due,
            Err(waits) => return waits,
        };
        if let Effect::Launch(launch) = &due.effect {
            match self.run_kernel(launch, &due) {
                Ok(Ran::Waits(paused)) => return self.pause_kernel(due, *paused),
                Ok(Ran::Over(0, traffic)) if traffic.is_empty() => {}
                Ok(Ran::Over(rest_ns, traffic)) => {
                    self.grids.stir();
                    return self.end_kernel_later(due, rest_ns, &traffic);
                }
                Err(code) => self.lose_context(due.context, code),
            }
        } else if let Err(code) = self.apply(&due) {
            self.lose_context(due.context, code);
        }
        self.grids.stir();
        self.engine.complete(due.id, due.at_ns);
        Step::Applied
    }

    /// Lets a kernel that has run end when its time is over and what it reached on other devices has come.
    fn end_kernel_later(&mut self, due: Due<Effect>, rest_ns: u64, traffic: &Traffic) -> Step {
        let until_ns = due.at_ns + rest_ns;
        let over = Due { effect: Effect::Nothing, ..due };
        match self.flows_of(traffic, until_ns) {
            Some(flows) if flows.is_empty() => self.engine.postpone(over, until_ns),
            Some(flows) => self.engine.send(over, flows),
            None => {
                self.lose_context(over.context, NVLINK_UNCORRECTABLE);
                self.engine.complete(over.id, over.at_ns);
            }
        }
        Step::Applied
    }

    /// Blocks count as never written from now on for whom the work before is done.
    fn bear_blocks(&mut self) {
        if self.births.is_empty() {
            return;
        }
        let (engine, memory) = (&self.engine, &self.memory);
        self.births.retain(|birth| {
            let waits = birth.after.iter().any(|&op| engine.is_pending(op));
            if !waits {
                memory.forget_written(birth.address, birth.length);
            }
            waits
        });
    }

    /// Runs the body of a conditional node that its condition chooses, or ends the node.
    fn begin_body(&mut self, node: OpId, context: u64, conditional: Arc<Conditional<Vec<graph::Step>>>, turns: u64) {
        let value = self.conditions.get(&conditional.condition).map_or(0, |condition| condition.value);
        let Some(body) = conditional.chosen(value).cloned() else {
            self.engine.complete(node, self.clock_ns);
            return;
        };
        let queued = if turns < TURNS_MAX.min(self.config.kernel_steps) {
            self.submit_steps(body, context, None, &BTreeMap::new())
        } else {
            Err(LAUNCH_TIMEOUT)
        };
        match queued {
            Ok(ops) => {
                self.engine.make_parts(&ops, node);
                let again = (conditional.kind == ConditionalKind::While).then_some(conditional);
                let end = Effect::EndBody { node, again, turns: turns + 1 };
                self.engine.submit(self.clock_ns, context, &ops, Timing::default(), end);
            }
            Err(code) => {
                self.lose_context(context, code);
                self.engine.complete(node, self.clock_ns);
            }
        }
    }

    /// Work of a lost context ends without effect, but what waits for it must see it end.
    fn abandon(&mut self, due: &Due<Effect>) {
        self.grids.take(due.id);
        self.grids.stir();
        if let Effect::Record { event, serial } = due.effect {
            self.reach_event(event, serial, due.at_ns);
        }
        if let Effect::FreeInOrder { base, id } = due.effect {
            self.finish_freeing(base, id);
        }
        if let Effect::EndBody { node, .. } = due.effect {
            self.engine.complete(node, due.at_ns);
        }
        if let Some(work) = due.effect.library_work() {
            work.abandon(due.id);
            self.wake_waiting();
        }
        self.engine.complete(due.id, due.at_ns);
    }

    /// A function of the program has returned.
    pub(crate) fn finish_host_work(&mut self, done: &DueHostWork) {
        self.engine.complete(done.op, self.clock_ns);
        self.grids.stir();
        self.overdue.remove(&done.context);
    }

    fn apply(&mut self, due: &Due<Effect>) -> Result<(), CUresult> {
        self.bring_what_is_set(due);
        match &due.effect {
            // What is more than one moment was done by whoever took it out.
            Effect::Nothing
            | Effect::Host(_)
            | Effect::WaitElsewhere { .. }
            | Effect::Launch(_)
            | Effect::Conditional(_)
            | Effect::EndBody { .. } => Ok(()),
            Effect::SetConditions(values) => {
                for (condition, value) in values {
                    if let Some(condition) = self.conditions.get_mut(condition) {
                        condition.value = *value;
                    }
                }
                Ok(())
            }
            &Effect::WaitValue { address, width, .. } => self.look_at_access("waits for", (address, width), due.asked),
            Effect::Copy(transfer) => self.apply_copy(transfer, due.asked),
            Effect::Fill(fill) => self.apply_fill(fill, due.asked),
            &Effect::Record { event, serial } => {
                self.reach_event(event, serial, due.at_ns);
                Ok(())
            }
            &Effect::Allocate { id } => {
                self.reach_graph_allocation(id);
                Ok(())
            }
            &Effect::FreeInOrder { base, id } => {
                self.finish_freeing(base, id);
                Ok(())
            }
            Effect::MovePages { stretch, id, to } => {
                self.memory.move_pages(stretch, *id, *to);
                Ok(())
            }
            Effect::WriteValue { address, value } => {
                self.look_at_access("writes", (*address, value.len() as u64), due.asked)?;
                self.memory.write_run(*address, value).map_err(illegal)
            }
        }
    }

    /// A set is the work of a device, which gets managed memory by that.
    fn bring_what_is_set(&mut self, due: &Due<Effect>) {
        if let Effect::Fill(fill) = &due.effect
            && let Ok(device) = self.active_context(due.context).map(|context| context.device)
        {
            let blocks =
                self.memory.managed_blocks(fill.to.address, fill.to.span(fill.width, fill.height, 1).unwrap_or(0));
            self.memory.touch(&blocks, device);
        }
    }

    fn apply_copy(&mut self, transfer: &Transfer, asked: OpId) -> Result<(), CUresult> {
        let (width, height, depth) = (transfer.width, transfer.height, transfer.depth);
        let span = |side: &Endpoint| (side.address, side.span(width, height, depth).unwrap_or(u64::MAX));
        if let Source::Memory(side) = &transfer.from {
            self.look_at_access("reads", span(side), asked)?;
        }
        self.look_at_access("writes", span(&transfer.to), asked)?;
        self.memory.transfer(transfer).map_err(illegal)
    }

    fn apply_fill(&mut self, fill: &Fill, asked: OpId) -> Result<(), CUresult> {
        let span = fill.to.span(fill.width, fill.height, 1).unwrap_or(u64::MAX);
        self.look_at_access("sets", (fill.to.address, span), asked)?;
        // Hardware says so of small sets, and of large ones what it says of copies.
        let bytes = fill.width.saturating_mul(fill.height);
        let code = if bytes < LARGE_SET_BYTES { LAUNCH_FAILED } else { ILLEGAL_ADDRESS };
        self.memory.fill(fill).map_err(|_| code)
    }

    /// Reports an access that hardware lets pass although the program has no business there; an error in strict mode.
    pub(super) fn look_at_access(
        &mut self,
        verb: &str,
        (address, length): (u64, u64),
        asked: OpId,
    ) -> Result<(), CUresult> {
        if !self.memory.is_device_address(address) || length == 0 {
            return Ok(());
        }
        if let Some(notice) = self.memory.blocks.wrong(verb, address, length, asked) {
            self.report(kind_of(notice.kind), format!("queued work {} (address {address:#x})", notice.text));
            return if self.config.strict { Err(ILLEGAL_ADDRESS) } else { Ok(()) };
        }
        let (kind, what) = match self.memory.look_at(address, length) {
            Look::Fine | Look::Ghost | Look::Unmapped => return Ok(()),
            Look::PastTheEnd => (ReportKind::OutOfBounds, "past the end of the allocation"),
            Look::Early => (ReportKind::UseBeforeAllocation, "which is not allocated yet"),
            Look::NotAllocated => (ReportKind::UseAfterFree, "which is not allocated"),
        };
        self.report(kind, format!("queued work {verb} {length} bytes at {address:#x}, {what}"));
        if self.config.strict { Err(ILLEGAL_ADDRESS) } else { Ok(()) }
    }

    fn value_arrived(&self, address: u64, wanted: u64, width: u64, condition: u32) -> Result<bool, BadAddress> {
        let side = Endpoint::linear(address);
        let bytes = self.memory.stage(&side, width, 1, 1)?;
        let mut wide = [0; 8];
        wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let found = u64::from_le_bytes(wide);
        let sign = 1 << (width * 8 - 1);
        Ok(match condition {
            0 => found.wrapping_sub(wanted) & sign == 0,
            1 => found == wanted,
            2 => found & wanted != 0,
            _ => {
                let mask = if width == 8 { u64::MAX } else { u64::from(u32::MAX) };
                !(found | wanted) & mask != 0
            }
        })
    }
}

fn illegal(_: BadAddress) -> CUresult {
    ILLEGAL_ADDRESS
}
