//! Modules and their functions: loaded text, found by handle, and the launches made of them.
//!
//! Invariants: a function's module is loaded; a module's context is active. What was queued or captured keeps the kernel
//! it runs, so that unloading a module under it is found out and reported rather than followed.

use std::fmt;
use std::sync::Arc;

use cuda_sys::CUresult;

use super::State;
use super::memory::{Access, DeviceView};
use crate::codes::{Answer, ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_VALUE, LAUNCH_TIMEOUT, MISALIGNED_ADDRESS};
use crate::ptx::machine::{self, Fault, Grid};
use crate::ptx::{Kernel, Limits};
use crate::report::ReportKind;

/// The most bytes of shared memory that a block has without asking for more.
pub(crate) const SHARED_BYTES: u32 = 48 << 10;

/// The most bytes of shared memory that a block can ask for.
pub(crate) const SHARED_BYTES_MAX: u32 = 232_448;

/// The most blocks of a grid and threads of a block, by axis.
const GRID_MAX: [u32; 3] = [2_147_483_647, 65535, 65535];
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];

/// The most steps of all threads of a launch together.
const ALL_STEPS: u64 = 1 << 30;

/// Up to this time a kernel is over when it was run; longer ones go on for the rest of it.
const SHORT_NS: u64 = 2_000;

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    /// Handles of its functions.
    pub(crate) functions: Vec<u64>,
}

/// A function of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) module: u64,
    pub(crate) context: u64,
    pub(crate) kernel: Arc<Kernel>,
    /// The most bytes of shared memory that a launch may ask for.
    pub(crate) dynamic_shared_max: u32,
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

/// A launch of a kernel, as queued work and as a node.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The function, as a handle.
    pub(crate) function: u64,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) parameters: Arc<Parameters>,
}

impl Launch {
    /// Whether a parameter is an address inside a range: what a launch touches is not known before it runs.
    pub(crate) fn names(&self, base: u64, length: u64) -> bool {
        self.parameters.bytes.chunks_exact(8).any(|word| {
            let value = word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            value.checked_sub(base).is_some_and(|inside| inside < length)
        })
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

    /// Adds a module of these kernels.
    pub(crate) fn add_module(&mut self, context: u64, kernels: Vec<Arc<Kernel>>) -> u64 {
        let module = self.new_handle();
        let mut functions = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            let named = u32::try_from(kernel.shared_bytes).unwrap_or(SHARED_BYTES);
            let dynamic_shared_max = SHARED_BYTES.saturating_sub(named);
            let handle = self.new_handle();
            self.functions.insert(handle, Function { module, context, kernel, dynamic_shared_max });
            functions.push(handle);
        }
        self.modules.insert(module, Module { context, functions });
        module
    }

    /// Takes a module away.
    pub(crate) fn remove_module(&mut self, module: u64) -> Answer {
        let removed = self.modules.remove(&module).ok_or(INVALID_HANDLE)?;
        for function in removed.functions {
            self.functions.remove(&function);
        }
        Ok(())
    }

    /// Takes the modules of a context away.
    pub(crate) fn remove_modules_of(&mut self, context: u64) {
        self.modules.retain(|_, module| module.context != context);
        self.functions.retain(|_, function| function.context != context);
    }

    /// The function of a handle.
    pub(crate) fn function(&self, handle: u64) -> Answer<&Function> {
        self.functions.get(&handle).ok_or(INVALID_HANDLE)
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
            && launch.shared_bytes <= function.dynamic_shared_max;
        if fits { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// Runs a kernel; how many nanoseconds it goes on after that.
    pub(super) fn run_kernel(&mut self, launch: &Launch, context: u64, at_ns: u64) -> Result<u64, CUresult> {
        let device = self.active_context(context)?.device;
        let peers = &self.active_context(context)?.peers;
        let mut reachable: Vec<u32> =
            peers.iter().filter_map(|peer| self.contexts.get(peer)).map(|peer| peer.device).collect();
        reachable.push(device);
        if !self.functions.contains_key(&launch.function) {
            let text = format!("kernel '{}' runs after its module was unloaded", launch.kernel.name);
            self.report(ReportKind::UseAfterFree, text);
            if self.config.strict {
                return Err(ILLEGAL_ADDRESS);
            }
        }
        let grid = Grid {
            kernel: &launch.kernel,
            blocks: launch.grid,
            threads: launch.block,
            dynamic_shared: launch.shared_bytes,
            parameters: &launch.parameters.bytes,
            thread_steps: self.config.kernel_steps,
            all_steps: ALL_STEPS,
            start_ns: at_ns,
            seed: self.rng.next(),
        };
        let own = self.conditions.iter().filter(|(_, condition)| condition.context == context);
        let conditions = own.map(|(&handle, _)| handle).collect();
        let mut view = DeviceView::new(&self.memory, &reachable, &conditions);
        let ran = machine::run(grid, &mut view);
        let (findings, set) = view.finish();
        for (handle, value) in set {
            if let Some(condition) = self.conditions.get_mut(&handle) {
                condition.value = value;
            }
        }
        let strict = self.config.strict && !findings.is_empty();
        for Access { kind, address, bytes, what } in findings {
            let kernel = &launch.kernel.name;
            self.report(kind, format!("kernel '{kernel}' accesses {bytes} bytes at {address:#x}, {what}"));
        }
        match ran {
            Ok(_) if strict => Err(ILLEGAL_ADDRESS),
            Ok(time_ns) => Ok(if time_ns > SHORT_NS { time_ns } else { 0 }),
            Err(Fault::Address) => Err(ILLEGAL_ADDRESS),
            Err(Fault::Misaligned) => Err(MISALIGNED_ADDRESS),
            Err(Fault::Steps) => Err(LAUNCH_TIMEOUT),
        }
    }
}
