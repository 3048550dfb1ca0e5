//! Modules and their functions: loaded text, found by handle, and the launches made of them.
//!
//! Invariants: a function's module is loaded; a module's context is active. What was queued or captured keeps the kernel
//! it runs, so that unloading a module under it is found out and reported rather than followed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cuda_sys::CUresult;

use ptx_sim::{Failure, Fault, Finding, FindingKind, Limits, Outcome, Program, Progress, Site};

use super::engine::Due;
use super::grids::{self, Paused};
use super::kernel::Kernel;
use super::library_work::LibraryWork;
use super::memory::bytes::{self, Bytes};
use super::memory::{DeviceView, GRANULE, Noticed, RegionKind, Traffic};
use super::occupancy::{Demand, MULTIPROCESSORS};
use super::{Effect, State};
use crate::codes::{
    ASSERT, Answer, COOPERATIVE_LAUNCH_TOO_LARGE, ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_PC, INVALID_VALUE,
    LAUNCH_FAILED, LAUNCH_TIMEOUT, MISALIGNED_ADDRESS, NOT_SUPPORTED,
};
use crate::report::ReportKind;

/// The most bytes of shared memory that a block has without asking for more.
pub(crate) const SHARED_BYTES: u32 = 48 << 10;

/// The most bytes of shared memory that a block can ask for.
pub(crate) const SHARED_BYTES_MAX: u32 = 232_448;

/// The most blocks of a grid and threads of a block, by axis.
const GRID_MAX: [u32; 3] = [2_147_483_647, 65535, 65535];
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];

/// Up to this time a kernel is over when it was run; longer ones go on for the rest of it.
const SHORT_NS: u64 = 2_000;

/// What a turn of a kernel came to.
#[derive(Debug)]
pub(super) enum Ran {
    /// It has ended, and takes so many nanoseconds more, and what it moved between devices.
    Over(u64, Traffic),
    /// It waits for memory to change.
    Waits(Box<Paused>),
}

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    /// Handles of its functions.
    pub(crate) functions: Vec<u64>,
    pub(crate) program: Arc<Program>,
    /// Where its variables lie; 0 where it has none.
    pub(crate) variables: u64,
}

impl Module {
    /// Whether a kernel has a name.
    pub(crate) fn has_kernel(&self, name: &str) -> bool {
        self.program.module().entry(name).is_some()
    }

    /// Address and size of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<(u64, u64)> {
        let found = self.program.module().variables().iter().find(|variable| variable.name == name)?;
        Some((self.variables + found.offset, found.size))
    }
}

/// A function of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) module: u64,
    pub(crate) context: u64,
    pub(crate) kernel: Arc<Kernel>,
    /// The most bytes of shared memory that a launch may ask for.
    pub(crate) dynamic_shared_max: u32,
    /// Whether it was used, or all functions are loaded with their module.
    pub(crate) loaded: bool,
}

/// What can be asked of a function without loading it.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) kernel: Arc<Kernel>,
    /// The most bytes of shared memory that a launch may ask for.
    pub(crate) dynamic_shared_max: u32,
}

impl Described {
    /// What blocks of so many threads ask for.
    pub(crate) fn demand(&self, threads: u32, dynamic_shared: u64) -> Demand<'_> {
        Demand { kernel: &self.kernel, dynamic_shared_max: self.dynamic_shared_max, threads, dynamic_shared }
    }
}

/// The values of a launch's parameters, with an array of pointers to them, as the driver gives them out.
pub(crate) struct Parameters {
    bytes: Box<[u8]>,
    pointers: Box<[usize]>,
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

impl Parameters {
    /// Takes the values of a kernel's parameters, which lie behind one another as in the kernel.
    pub(crate) fn new(kernel: &Kernel, bytes: Vec<u8>) -> Self {
        let bytes = bytes.into_boxed_slice();
        let start = bytes.as_ptr().expose_provenance();
        let pointers = kernel.parameters.iter().map(|parameter| start + parameter.offset).collect();
        Self { bytes, pointers }
    }

    /// Address of the array of pointers; 0 where there is no parameter.
    pub(crate) fn pointers(&self) -> u64 {
        if self.pointers.is_empty() { 0 } else { self.pointers.as_ptr().expose_provenance() as u64 }
    }
}

/// The most bytes of shared memory that a launch of a kernel may ask for, where nothing else was set.
pub(crate) fn dynamic_shared_of(kernel: &Kernel) -> u32 {
    SHARED_BYTES.saturating_sub(u32::try_from(kernel.shared_bytes).unwrap_or(SHARED_BYTES))
}

/// Attributes of a launch that change nothing here; a node keeps them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaunchAttributes {
    pub(crate) priority: i32,
    /// Values of the others that were set, by their numbers.
    pub(crate) others: BTreeMap<u32, [u8; 64]>,
}

/// A launch of a kernel, as queued work and as a node.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The function, as a handle.
    pub(crate) function: u64,
    pub(crate) kernel: Arc<Kernel>,
    /// Whether all blocks must run at once.
    pub(crate) cooperative: bool,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) parameters: Arc<Parameters>,
    pub(crate) attributes: LaunchAttributes,
    /// What is done in place of the kernel, which is empty then.
    pub(crate) library: Option<Arc<dyn LibraryWork>>,
}

impl Launch {
    /// Whether a parameter is an address inside a range: what a launch touches is not known before it runs.
    pub(crate) fn names(&self, base: u64, length: u64) -> bool {
        self.words().any(|word| word.checked_sub(base).is_some_and(|inside| inside < length))
    }

    /// The parameters as words, any of which may be an address.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        let words = self.parameters.bytes.chunks_exact(8);
        words.map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}

impl State {
    /// What text may be of a driver of this version.
    pub(crate) fn ptx_limits(&self) -> Limits {
        let version = match self.config.driver_version.0 {
            ..12000 => 78,
            version @ 12000..12060 => 80 + (version - 12000) / 10,
            version @ 12060..13000 => 80 + (version - 12010) / 10,
            _ => 90,
        };
        Limits { version, target: 90 }
    }

    /// Adds a module: its variables get memory of the context's device.
    pub(crate) fn add_module(&mut self, context: u64, program: Arc<Program>) -> Answer<u64> {
        let device = self.active_context(context)?.device;
        let bytes = program.module().image_bytes();
        let mut variables = 0;
        if bytes > 0 {
            let length = bytes.next_multiple_of(GRANULE);
            variables = self.memory.new_region(device, length, RegionKind::Module)?;
            let image = program.module().image(variables);
            let region = self.memory.region_at(variables).ok_or(ILLEGAL_ADDRESS)?.1;
            bytes::write(&Bytes::inside(&region.backing, region.offset), &image);
        }
        let module = self.new_handle();
        let mut functions = Vec::new();
        for kernel in Kernel::all_of(&program) {
            let dynamic_shared_max = dynamic_shared_of(&kernel);
            let handle = self.new_handle();
            let loaded = self.config.eager_loading;
            self.functions.insert(handle, Function { module, context, kernel, dynamic_shared_max, loaded });
            functions.push(handle);
        }
        self.modules.insert(module, Module { context, functions, program, variables });
        Ok(module)
    }

    /// Takes a module away.
    pub(crate) fn remove_module(&mut self, module: u64) -> Answer {
        let removed = self.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        for function in removed.functions {
            self.functions.remove(&function);
        }
        if removed.variables != 0 {
            self.memory.drop_region(removed.variables);
        }
        Ok(())
    }

    /// Takes the modules of a context away, and the heap of its kernels.
    pub(crate) fn remove_modules_of(&mut self, context: u64) {
        let lost: Vec<u64> =
            self.modules.iter().filter(|(_, module)| module.context == context).map(|(&handle, _)| handle).collect();
        for module in lost {
            let _ = self.remove_module(module);
        }
        self.forget_library_modules(context);
        self.forget_library_functions(context);
        self.drop_heap(context);
    }

    /// The function of a handle.
    pub(crate) fn function(&self, handle: u64) -> Answer<&Function> {
        self.functions.get(&handle).ok_or(INVALID_HANDLE)
    }

    /// Loads a function for its first use; one that uses what is not supported is refused.
    pub(crate) fn load_function(&mut self, handle: u64) -> Answer {
        let kernel = Arc::clone(&self.function(handle)?.kernel);
        self.refuse_unsupported(&kernel)?;
        if let Some(function) = self.functions.get_mut(&handle) {
            function.loaded = true;
        }
        Ok(())
    }

    /// Refuses a kernel that uses what is not supported, and reports all of that.
    pub(crate) fn refuse_unsupported(&mut self, kernel: &Kernel) -> Answer {
        if kernel.refusals.is_empty() {
            return Ok(());
        }
        let all: Vec<String> = kernel.refusals.iter().map(ToString::to_string).collect();
        self.report(ReportKind::NotSupported, format!("kernel '{}': {}", kernel.name, all.join("; ")));
        Err(NOT_SUPPORTED)
    }

    /// Checks a launch against its function and the device.
    pub(crate) fn check_launch(&self, launch: &Launch) -> Answer {
        let function = self.function(launch.function)?;
        let within =
            |sizes: [u32; 3], most: [u32; 3]| sizes.iter().zip(most).all(|(&size, most)| size > 0 && size <= most);
        let threads: u64 = launch.block.iter().map(|&size| u64::from(size)).product();
        let fits = within(launch.grid, GRID_MAX)
            && within(launch.block, BLOCK_MAX)
            && threads <= u64::from(launch.kernel.max_threads)
            && launch.kernel.required_threads.is_none_or(|required| required == launch.block)
            && launch.shared_bytes <= function.dynamic_shared_max;
        if !fits {
            return Err(INVALID_VALUE);
        }
        self.check_at_once(launch, MULTIPROCESSORS)
    }

    /// Checks that all blocks of a cooperative launch run at once on so many multiprocessors.
    pub(crate) fn check_at_once(&self, launch: &Launch, multiprocessors: u32) -> Answer {
        if !launch.cooperative {
            return Ok(());
        }
        let demand = Demand {
            kernel: &launch.kernel,
            dynamic_shared_max: self.function(launch.function)?.dynamic_shared_max,
            threads: launch.block.iter().product(),
            dynamic_shared: launch.shared_bytes.into(),
        };
        let blocks: u64 = launch.grid.iter().fold(1, |all, &count| all.saturating_mul(count.into()));
        if blocks <= u64::from(demand.blocks() * multiprocessors) { Ok(()) } else { Err(COOPERATIVE_LAUNCH_TOO_LARGE) }
    }

    /// Runs a kernel, from its beginning or from where it waited.
    pub(super) fn run_kernel(&mut self, launch: &Launch, due: &Due<Effect>) -> Result<Ran, CUresult> {
        let context = due.context;
        let device = self.active_context(context)?.device;
        let peers = &self.active_context(context)?.peers;
        let mut reachable: Vec<u32> =
            peers.iter().filter_map(|peer| self.contexts.get(peer)).map(|peer| peer.device).collect();
        reachable.push(device);
        if let Some(work) = &launch.library {
            self.launches += 1;
            return self.run_library(work, &reachable, due).map(|rest_ns| Ran::Over(rest_ns, Traffic::new()));
        }
        if !self.functions.contains_key(&launch.function) {
            let text = format!("kernel '{}' runs after its module was unloaded", launch.kernel.name);
            self.report(ReportKind::UseAfterFree, text);
            if self.config.strict {
                return Err(ILLEGAL_ADDRESS);
            }
        }
        let home = self.home_of(context);
        let heap = self.take_heap(home, launch.kernel.uses_heap);
        let before = self.grids.take(due.id);
        self.launches += u64::from(before.is_none());
        let (start_ns, number) =
            before.as_ref().map_or((due.at_ns, self.launches), |paused| (paused.start_ns, paused.number));
        let seed = if before.is_none() { self.rng.next() } else { 0 };
        let variables = self.functions.get(&launch.function).and_then(|function| self.modules.get(&function.module));
        let grid = ptx_sim::Launch {
            program: &launch.kernel.program,
            entry: launch.kernel.entry,
            blocks: launch.grid,
            threads: launch.block,
            dynamic_shared: launch.shared_bytes,
            parameters: &launch.parameters.bytes,
            variables: variables.map_or(0, |module| module.variables),
            cooperative: launch.cooperative,
            warp_steps: self.config.kernel_steps,
            all_steps: self.config.launch_steps,
            start_ns,
            grid_id: number,
            multiprocessors: self.multiprocessors_of(context),
            seed,
            parts_warps: self.config.parts_warps,
            checks: self.config.checks.of_kernels(),
            wide: true,
        };
        let own = self.conditions.iter().filter(|(_, condition)| condition.context == home);
        let conditions = own.map(|(&handle, _)| handle).collect();
        let view = DeviceView::new(&self.memory, &reachable, &conditions, due.asked).with_heap(heap);
        let mut view = view.counting(self.topology().is_some() && !self.config.checks.uninitialized);
        let (mut running, looks, traffic) = before.map_or_else(
            || (ptx_sim::Grid::new(grid), 0, Traffic::new()),
            |paused| (paused.grid, paused.looks, paused.traffic),
        );
        running.pass_until(due.at_ns - start_ns);
        let ran = running.turn(grid, &mut view);
        let (mut noticed, heap) = view.finish();
        for (way, bytes) in traffic {
            *noticed.traffic.entry(way).or_default() += bytes;
        }
        self.put_heap(home, heap);
        self.memory.touch(&noticed.touched, device);
        let outcome = running.outcome();
        let ran = match ran {
            Ok(Progress::Waits(wait)) => {
                let of = (launch.kernel.name.as_str(), device, context);
                let traffic = std::mem::take(&mut noticed.traffic);
                Ok(Some(grids::paused(running, (start_ns, number, looks), of, wait, traffic)))
            }
            Ok(Progress::Ended) => Ok(None),
            Err(failure) => Err(failure),
        };
        self.conclude_turn(launch, noticed, &outcome, ran, due.at_ns - start_ns)
    }

    /// What a turn of a launch that began `since_ns` nanoseconds ago left behind: conditions, findings, what it printed.
    fn conclude_turn(
        &mut self,
        launch: &Launch,
        noticed: Noticed,
        outcome: &Outcome,
        ran: Result<Option<Paused>, Failure>,
        since_ns: u64,
    ) -> Result<Ran, CUresult> {
        for (handle, value) in noticed.conditions {
            if let Some(condition) = self.conditions.get_mut(&handle) {
                condition.value = value;
            }
        }
        self.print(&noticed.printed, std::io::stdout());
        self.print(&noticed.errors, std::io::stderr());
        let kernel = &launch.kernel.name;
        let strict = self.config.strict && !outcome.findings.is_empty();
        for Finding { kind, at, text } in &outcome.findings {
            let address = if at.address == 0 { String::new() } else { format!(" (address {:#x})", at.address) };
            self.report(kind_of(*kind), format!("kernel '{kernel}', {}: {text}{address}", place_of(at)));
        }
        match ran {
            Ok(_) if strict => Err(ILLEGAL_ADDRESS),
            Ok(Some(paused)) => Ok(Ran::Waits(Box::new(paused))),
            Ok(None) => {
                let rest_ns = outcome.time_ns.saturating_sub(since_ns);
                Ok(Ran::Over(if rest_ns > SHORT_NS { rest_ns } else { 0 }, noticed.traffic))
            }
            Err(failure) => {
                let address = failure.at.address;
                let at = if address == 0 { String::new() } else { format!(" at {address:#x}") };
                let text = format!("kernel '{kernel}', {}: {}{at}", place_of(&failure.at), failure.fault);
                self.report(ReportKind::KernelFailure, text);
                Err(code_of(failure.fault))
            }
        }
    }
}

/// What a finding is reported as.
pub(super) fn kind_of(kind: FindingKind) -> ReportKind {
    match kind {
        FindingKind::BarrierDivergence => ReportKind::BarrierDivergence,
        FindingKind::AbsentLane => ReportKind::AbsentLane,
        FindingKind::SharedRace | FindingKind::GlobalRace => ReportKind::Race,
        FindingKind::UninitializedRead => ReportKind::UninitializedRead,
        FindingKind::OutOfBounds => ReportKind::OutOfBounds,
        FindingKind::UseAfterFree => ReportKind::UseAfterFree,
        FindingKind::UseBeforeAllocation => ReportKind::UseBeforeAllocation,
    }
}

/// A place in words: line, block and thread.
pub(super) fn place_of(at: &Site) -> String {
    let place = at.source.place;
    let origin = at.source.origin.map_or(String::new(), |(_, line)| format!(" (source line {line})"));
    format!("PTX line {}, column {}{origin}, block {}, thread {}", place.line, place.column, at.block, at.thread)
}

/// What a fault loses the context with.
fn code_of(fault: Fault) -> CUresult {
    match fault {
        Fault::Address | Fault::Stack => ILLEGAL_ADDRESS,
        Fault::Misaligned => MISALIGNED_ADDRESS,
        Fault::Steps | Fault::Hang => LAUNCH_TIMEOUT,
        Fault::Assert => ASSERT,
        Fault::Call => INVALID_PC,
        Fault::Trap | Fault::Free => LAUNCH_FAILED,
    }
}
