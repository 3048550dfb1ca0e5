//! The machine's state and how time passes in it; no pointer of a program is followed here.
//!
//! Reading order: `engine` (queued work in simulated time), `memory`, `context`, `stream`, `event`, `capture`, `graph`.
//! Everything is plain data behind one lock, ordered by what the calls and the seed say; nothing depends on
//! addresses, hash orders or wall-clock time.

mod aliases;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod engine;
pub(crate) mod event;
mod flows;
pub(crate) mod graph;
pub(crate) mod graph_memory;
pub(crate) mod graphs;
pub(crate) mod green;
mod grids;
pub(crate) mod heaps;
mod journal;
pub(crate) mod kernel;
pub(crate) mod libraries;
pub(crate) mod library_work;
pub(crate) mod links;
mod mapped;
pub(crate) mod memory;
pub(crate) mod modules;
pub(crate) mod occupancy;
mod peers;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod pools;
pub(crate) mod profile;
mod rng;
pub(crate) mod shared;
mod shared_pools;
pub(crate) mod stream;
pub(crate) mod telemetry;
mod user_objects;
pub(crate) mod vmm;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::sync::Arc;

pub(crate) use self::work::{Birth, DueHostWork, Effect, HostWork, Step};

use self::capture::Capture;
use self::context::{Context, Primary};
use self::engine::{Engine, OpId, Timing};
use self::event::Event;
use self::flows::Flows;
use self::graph::Graph;
use self::graph_memory::GraphMemory;
use self::graphs::{Condition, Exec};
use self::green::{Green, Part};
use self::grids::Grids;
use self::journal::Journal;
use self::libraries::{Library, LibraryKernel};
use self::library_work::LibraryFunctions;
use self::links::Link;
use self::memory::bytes::Backing;
use self::memory::{Heap, MachineFile, Memory};
use self::modules::{Function, Module};
use self::pools::DevicePool;
use self::rng::Rng;
use self::shared::SharedHandle;
use self::stream::{Kind, Stream};
use self::user_objects::{Kept, Orphans, UserObject};
use self::vmm::Vmm;
use crate::blas::Blas;
use crate::codes::{Answer, INVALID_DEVICE, INVALID_VALUE};
use crate::config::{Config, Fault};
use crate::fft::Fft;
use crate::nccl::Nccl;
use crate::report::{LiveHandles, Report, ReportKind};
use crate::solver::Solver;
use crate::toolkit::Record;

/// What one call costs on the host, in simulated nanoseconds.
const CALL_COST_NS: u64 = 500;

/// What a thread has chosen.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    /// Contexts made current, the last one on top.
    pub(crate) current: Vec<u64>,
    /// The thread's answer to `cuThreadExchangeStreamCaptureMode`; global (0) at first.
    pub(crate) capture_mode: u32,
}

/// Memory of another process that is mapped here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Import {
    pub(crate) handle: SharedHandle,
    pub(crate) base: u64,
    pub(crate) opened: u64,
}

/// A fault that has not happened yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    fault: Fault,
    calls_left: u64,
}

/// Everything a machine is.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    /// How often NVML was initialised and not shut down.
    pub(crate) nvml_users: u32,
    /// Process that initialised the driver; a forked child must not use it.
    pub(crate) initialized_by: Option<u32>,
    pub(crate) clock_ns: u64,
    pub(crate) engine: Engine<Effect>,
    /// Contexts with a function of the program that takes so long that nobody waits for it any more.
    pub(crate) overdue: BTreeSet<u64>,
    /// What the call under way has queued and must wait for, with its context; only when launches block.
    pub(crate) launched: Option<(u64, OpId)>,
    pub(crate) memory: Memory,
    /// Blocks that were handed out and count as never written once work that was queued before is done.
    pub(crate) births: VecDeque<Birth>,
    pub(crate) primaries: Vec<Primary>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    /// Green contexts, those that have ended included.
    pub(crate) greens: BTreeMap<u64, Green>,
    /// What green contexts are made of, by the handles of descriptors; nothing takes a descriptor back.
    pub(crate) parts: BTreeMap<u64, Part>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) threads: BTreeMap<u64, Thread>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    /// Graphs that a program owns or is capturing; those inside child nodes are inside their parents.
    pub(crate) graphs: BTreeMap<u64, Graph>,
    pub(crate) graph_execs: BTreeMap<u64, Exec>,
    pub(crate) user_objects: BTreeMap<u64, UserObject>,
    /// Objects of executable graphs that are gone or were updated, until a launch is over.
    departing: Vec<(OpId, Vec<Arc<Kept>>)>,
    orphans: Orphans,
    /// Conditions of conditional nodes, by handle.
    pub(crate) conditions: BTreeMap<u64, Condition>,
    pub(crate) modules: BTreeMap<u64, Module>,
    pub(crate) functions: BTreeMap<u64, Function>,
    pub(crate) libraries: BTreeMap<u64, Library>,
    pub(crate) library_kernels: BTreeMap<u64, LibraryKernel>,
    /// Functions behind the work of cuBLAS and its like.
    pub(crate) library_functions: LibraryFunctions,
    /// Handles and descriptors of cuBLAS and cuBLASLt.
    pub(crate) blas: Blas,
    /// Handles of cuSOLVER.
    pub(crate) solver: Solver,
    /// Plans of cuFFT.
    pub(crate) fft: Fft,
    /// Communicators of NCCL.
    pub(crate) nccl: Nccl,
    /// Work of libraries whose time has come and that waits for other work.
    pub(crate) parked: BTreeSet<OpId>,
    /// The calls made to these libraries.
    pub(crate) library_record: Record,
    pub(crate) links: BTreeMap<u64, Link>,
    /// What kernels allocate from, by context.
    pub(crate) heaps: BTreeMap<u64, Heap>,
    /// Kernels that wait for memory to change.
    pub(crate) grids: Grids,
    pub(crate) vmm: Vmm,
    /// Bytes behind the handles of `vmm`.
    pub(crate) backings: BTreeMap<u64, Arc<Backing>>,
    /// Memory of other processes: its handle, where it is, and how often it was opened and not closed.
    pub(crate) imports: Vec<Import>,
    pub(crate) pools: BTreeMap<u64, DevicePool>,
    pub(crate) graph_memory: GraphMemory,
    /// Pools that the program chose for devices.
    pub(crate) current_pools: BTreeMap<u32, u64>,
    rng: Rng,
    next_handle: u64,
    faults: Vec<Waiting>,
    calls: BTreeMap<(&'static str, u32), u64>,
    reports: Vec<Report>,
    /// What kernels printed, where it is kept.
    printed: String,
    /// Launches so far.
    pub(crate) launches: u64,
    /// The call being answered, for reports.
    pub(crate) calling: &'static str,
    /// The order of what was queued.
    pub(crate) journal: Journal,
}

impl State {
    pub(crate) fn new(config: Config, file: Option<MachineFile>) -> Self {
        let devices = config.devices;
        let mut state = Self {
            nvml_users: 0,
            initialized_by: None,
            clock_ns: 0,
            engine: Engine::new(Flows::new(config.topology.clone(), config.link_faults.clone())),
            overdue: BTreeSet::new(),
            launched: None,
            memory: Memory::new(devices, config.capacity_bytes).tracking(config.checks.uninitialized).shared_by(file),
            births: VecDeque::new(),
            primaries: (0..devices).map(|_| Primary::default()).collect(),
            contexts: BTreeMap::new(),
            greens: BTreeMap::new(),
            parts: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            threads: BTreeMap::new(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            graph_execs: BTreeMap::new(),
            user_objects: BTreeMap::new(),
            departing: Vec::new(),
            orphans: Orphans::default(),
            conditions: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            libraries: BTreeMap::new(),
            library_kernels: BTreeMap::new(),
            library_functions: LibraryFunctions::default(),
            blas: Blas::default(),
            solver: Solver::default(),
            fft: Fft::default(),
            nccl: Nccl::default(),
            parked: BTreeSet::new(),
            library_record: Record::default(),
            links: BTreeMap::new(),
            heaps: BTreeMap::new(),
            grids: Grids::default(),
            vmm: Vmm::default(),
            backings: BTreeMap::new(),
            imports: Vec::new(),
            pools: BTreeMap::new(),
            graph_memory: GraphMemory::default(),
            current_pools: BTreeMap::new(),
            rng: Rng::new(config.seed),
            next_handle: 0x10_0000,
            faults: Vec::new(),
            calls: BTreeMap::new(),
            reports: Vec::new(),
            printed: String::new(),
            launches: 0,
            calling: "",
            journal: Journal::default(),
            config,
        };
        for fault in state.config.faults.clone() {
            state.inject(fault);
        }
        for &(_, bytes) in &state.config.other_processes {
            state.memory.occupy(bytes);
        }
        state
    }

    /// A handle that was never given out before.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.next_handle += 0x100;
        self.next_handle
    }

    /// The index of a device that exists.
    pub(crate) fn device(&self, device: i32) -> Answer<u32> {
        u32::try_from(device).ok().filter(|&index| index < self.config.devices).ok_or(INVALID_DEVICE)
    }

    pub(crate) fn thread(&mut self, thread: u64) -> &mut Thread {
        self.threads.entry(thread).or_default()
    }

    /// Time passes because the program made a call.
    pub(crate) fn pass_call_time(&mut self) {
        self.clock_ns += CALL_COST_NS;
    }

    /// A time for a piece of work of `bytes` bytes at `picoseconds` each, with a latency that only the seed knows.
    ///
    /// Most latencies are short and some are long, so that work nobody ordered runs in either order.
    pub(crate) fn draw_timing(&mut self, bytes: u64, picoseconds: u64) -> Timing {
        if !self.config.stalls {
            return Timing { duration_ns: bytes.saturating_mul(picoseconds) / 1000, ..Timing::default() };
        }
        let base_ns = 1_000 + self.rng.below(4_000);
        let stall_ns = if self.rng.below(4) == 0 { self.rng.below(100_000) } else { 0 };
        let moving_ns = bytes.saturating_mul(picoseconds) / 1000;
        let duration_ns = moving_ns + self.rng.below(moving_ns / 8 + 500);
        Timing { latency_ns: base_ns + stall_ns, duration_ns, ..Timing::default() }
    }

    /// A delay after which the completion of an event may be seen, when events are late.
    pub(crate) fn draw_lateness_ns(&mut self) -> u64 {
        if self.config.late_events { 5_000 + self.rng.below(200_000) } else { 0 }
    }

    /// Writes down misuse that hardware would not notice; in strict mode the caller answers with an error.
    pub(crate) fn report(&mut self, kind: ReportKind, message: String) {
        self.reports.push(Report { kind, call: self.calling, message });
    }

    pub(crate) fn reports(&self) -> &[Report] {
        &self.reports
    }

    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// Takes what a kernel printed: keeps it, or writes it where the driver writes it.
    pub(crate) fn print(&mut self, text: &str, mut output: impl Write) {
        if self.config.keeps_prints {
            self.printed.push_str(text);
        } else if !text.is_empty() {
            // Like the driver, nobody is told when the output is closed.
            let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
        }
    }

    pub(crate) fn take_printed(&mut self) -> String {
        std::mem::take(&mut self.printed)
    }

    pub(crate) fn inject(&mut self, fault: Fault) {
        self.faults.push(Waiting { fault, calls_left: fault.occurrence });
    }

    pub(crate) fn clear_faults(&mut self) {
        self.faults.clear();
        self.engine.flows.clear_faults();
    }

    /// Counts a call towards the faults that wait for it; the code to answer with when one's turn has come.
    pub(crate) fn fault_for(&mut self, symbol: &'static str) -> Option<cuda_sys::CUresult> {
        let mut due = None;
        self.faults.retain_mut(|waiting| {
            if waiting.fault.call != symbol {
                return true;
            }
            waiting.calls_left = waiting.calls_left.saturating_sub(1);
            if waiting.calls_left == 0 {
                due = due.or(Some(waiting.fault.code));
            }
            waiting.calls_left > 0
        });
        due
    }

    pub(crate) fn count_call(&mut self, symbol: &'static str, code: u32) {
        *self.calls.entry((symbol, code)).or_default() += 1;
    }

    pub(crate) fn calls(&self) -> &BTreeMap<(&'static str, u32), u64> {
        &self.calls
    }

    /// What exists right now.
    pub(crate) fn live(&self) -> LiveHandles {
        let made = |stream: &&Stream| stream.kind == Kind::Created && self.active_context(stream.context).is_ok();
        LiveHandles {
            allocations: self.memory.allocation_count(),
            pinned: self.memory.pinned_count(),
            managed: self.memory.managed_count(),
            streams: self.streams.values().filter(made).count(),
            events: self.events.len(),
            graphs: self.graphs.len(),
            graph_execs: self.graph_execs.len(),
            user_objects: self.user_objects.len(),
            modules: self.modules.len(),
            libraries: self.libraries.len(),
            links: self.links.len(),
            contexts: self.contexts.len(),
            green_contexts: self.greens.values().filter(|green| green.defaults.is_some()).count(),
            memory_handles: self.vmm.handle_count(),
            reservations: self.vmm.reservation_count(),
            pools: self.made_pools(),
            library_handles: self.blas.handle_count()
                + self.solver.handle_count()
                + self.fft.plan_count()
                + self.nccl.handle_count(),
            pending: self.engine.len(),
        }
    }

    /// Whether queued work reads or writes a range of addresses.
    pub(crate) fn work_touches(&self, address: u64, length: u64) -> bool {
        self.engine.effects().any(|effect| effect.touches(address, length))
    }

    /// The allocation, mapping or pinned range that an address lies in: its start and length.
    pub(crate) fn known_range(&self, address: u64) -> Option<(u64, u64)> {
        if let Some(allocation) = self.memory.allocation_at(address) {
            return Some((allocation.base, allocation.length));
        }
        let mapping = self.memory.region_at(address).filter(|(_, region)| region.is_mapping());
        mapping
            .map(|(base, region)| (base, region.length))
            .or_else(|| self.memory.pinned_at(address).map(|(base, pinned)| (base, pinned.length)))
    }

    /// Frees device memory once nothing uses it any more.
    pub(crate) fn free_memory(&mut self, base: u64) -> Answer {
        let found = self.memory.allocation_at(base).map(|found| (found.pool.is_some(), found.graph));
        match found {
            Some((true, _)) => self.free_pooled_now(base),
            // The memory stays with the graph; only the address is nobody's now.
            Some((_, true)) => self.memory.take_back(base).map(|_| ()).ok_or(INVALID_VALUE),
            Some(_) | None => self.memory.free(base),
        }
    }

    /// Whether queued work is still to be done.
    pub(crate) fn is_pending(&self, op: OpId) -> bool {
        self.engine.is_pending(op)
    }
}
