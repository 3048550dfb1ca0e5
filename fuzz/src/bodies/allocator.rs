//! Scripts of allocations, frees, streams, captures and driver failures on the runtime over the simulated machine.
//!
//! What must hold after every step: the allocator's books balance, it counts at least the bytes of the blocks that
//! are live as allocated and as requested, exactly those where nothing waits for a stream, and no two live blocks overlap. What must hold
//! at the end, with failures over: everything can be given back, and the machine then has no allocation left.
//!
//! # Safety
//! One unsafe call hands the simulated driver's table to the loader.
#![expect(unsafe_code, reason = "a driver made from a table")]

use c10_core::{CUDAGraph, CaptureMode, DeviceIndex, Error, Runtime, Stream};
use cuda_sim::{Config, Fault, Machine};
use cuda_sys::{CUresult, Driver};

use crate::input::Input;

/// Longest script: more steps say no more.
const STEPS_MAX: usize = 200;

/// Memory of the device: small, so that it is exhausted often.
const CAPACITY_BYTES: u64 = 256 << 20;

/// The only device.
const DEVICE: DeviceIndex = DeviceIndex(0);

/// Driver calls that may be made to fail, and how.
const FAILURES: [(&str, CUresult); 8] = [
    ("cuMemAlloc_v2", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
    ("cuMemAlloc_v2", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuMemFree_v2", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuEventCreate", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
    ("cuEventRecord", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuEventQuery", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuStreamEndCapture", CUresult::CUDA_ERROR_INVALID_VALUE),
    ("cuGraphInstantiateWithFlags", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
];

/// Runs one input.
///
/// # Errors
/// Books that do not balance, figures that differ, or memory that cannot be given back.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    let mut input = Input::new(bytes);
    let config = Config::default().seed(u64::from(input.byte())).capacity(CAPACITY_BYTES);
    let machine = Machine::new(config.late_events(input.byte() & 1 != 0));
    let _bound = machine.bind();
    // SAFETY: the functions of the simulated driver have the signatures of the table, which they are typed by.
    let driver = unsafe { Driver::from_functions(cuda_sim::functions()) }.map_err(|error| error.to_string())?;
    let runtime = Runtime::new(driver);
    let mut script = Script::new(runtime, machine.clone()).map_err(|error| format!("cannot begin: {error}"))?;
    for step in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        // A refused step is an answer like any other; what matters is the state it leaves behind.
        let _ = script.step(&mut input);
        script.check().map_err(|error| format!("after step {step}: {error}"))?;
    }
    script.finish()
}

struct Script {
    runtime: Runtime,
    machine: Machine,
    streams: Vec<Stream>,
    live: Vec<(u64, u64)>,
    graph: CUDAGraph,
}

impl Script {
    fn new(runtime: Runtime, machine: Machine) -> Result<Self, Error> {
        let mut streams = vec![runtime.default_stream(DEVICE)?];
        for _ in 0..3 {
            streams.push(runtime.new_stream(DEVICE, 0)?);
        }
        let graph = CUDAGraph::on(&runtime, false);
        Ok(Self { runtime, machine, streams, live: Vec::new(), graph })
    }

    fn step(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        match input.byte() % 12 {
            0..=3 => self.alloc(input),
            4 | 5 => self.free(input),
            6 => {
                let (at, stream) = (input.position(self.live.len()), self.stream(input));
                let address = self.live.get(at).map_or(0x3039, |(address, _)| *address);
                self.runtime.record_stream(address, &stream)
            }
            7 => self.stream(input).synchronize(),
            8 => self.runtime.empty_cache(),
            9 => self.capture(input),
            10 => {
                let (call, code) = FAILURES[input.position(FAILURES.len())];
                self.machine.inject(Fault { call, occurrence: u64::from(input.byte() % 4) + 1, code });
                Ok(())
            }
            _ => self.runtime.synchronize(DEVICE),
        }
    }

    fn stream(&self, input: &mut Input<'_>) -> Stream {
        self.streams[input.position(self.streams.len())].clone()
    }

    fn alloc(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let (size, stream) = (input.size() as u64, self.stream(input));
        let address = self.runtime.caching_allocator_alloc(size, &stream)?;
        if address != 0 {
            self.live.push((address, size));
        }
        Ok(())
    }

    fn free(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let at = input.position(self.live.len());
        if at < self.live.len() {
            let (address, _) = self.live.swap_remove(at);
            return self.runtime.caching_allocator_delete(address);
        }
        match self.runtime.caching_allocator_delete(0x3039) {
            Err(Error::InvalidDevicePointer { address: 0x3039 }) => Ok(()),
            other => other,
        }
    }

    fn capture(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let _current = self.runtime.stream_guard(&self.streams[1])?;
        match input.byte() % 4 {
            0 | 1 if !self.graph.is_capturing() => {
                let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
                self.graph.capture_begin(None, modes[input.position(modes.len())])
            }
            2 => self.graph.reset(),
            3 if !self.graph.is_capturing() => self.graph.replay(),
            _ => self.graph.capture_end(),
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(fault) = self.runtime.inconsistency() {
            return Err(fault);
        }
        let stats = self.runtime.memory_stats(DEVICE).map_err(|error| error.to_string())?;
        let live: u64 = self.live.iter().map(|(_, size)| size).sum();
        let live = i64::try_from(live).map_err(|error| error.to_string())?;
        let (requested, allocated) = (stats.requested_bytes.all.current, stats.allocated_bytes.all.current);
        // A block that was freed and waits for a stream is no longer allocated, but still active and requested.
        let waiting = stats.active_bytes.all.current - allocated;
        if allocated < live || requested < live || (waiting == 0 && requested != live) {
            return Err(format!("{requested} bytes count as requested, {allocated} as allocated; {live} are live"));
        }
        let mut addresses: Vec<(u64, u64)> = self.live.clone();
        addresses.sort_unstable();
        match addresses.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            Some(pair) => Err(format!("two live blocks overlap: {pair:x?}")),
            None => Ok(()),
        }
    }

    /// Gives everything back, with no more failures injected.
    fn finish(mut self) -> Result<(), String> {
        self.machine.clear_faults();
        let give_back = |script: &mut Self| -> Result<(), Error> {
            if script.graph.is_capturing() {
                let _current = script.runtime.stream_guard(&script.streams[1])?;
                // The capture may have been spoiled by what was done during it; that it ends is what counts.
                let _ = script.graph.capture_end();
            }
            script.graph.reset()?;
            for (address, _) in std::mem::take(&mut script.live) {
                script.runtime.caching_allocator_delete(address)?;
            }
            script.runtime.synchronize(DEVICE)?;
            script.runtime.empty_cache()
        };
        give_back(&mut self).map_err(|error| format!("cannot give everything back: {error}"))?;
        self.check()?;
        let stats = self.runtime.memory_stats(DEVICE).map_err(|error| error.to_string())?;
        let (reserved, live) = (stats.reserved_bytes.all.current, self.machine.live());
        if reserved == 0 && live.allocations == 0 {
            return Ok(());
        }
        Err(format!("{reserved} bytes stay reserved and {} allocations live on", live.allocations))
    }
}
