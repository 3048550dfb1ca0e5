//! Scripts of driver calls on the simulated machine, with live, stale and null handles.
//!
//! What must hold: no call crashes or answers with a code that its export does not list, and the same script on a
//! machine of the same seed has the same history.
//!
//! # Safety
//! The driver's functions are foreign functions. Every pointer to host memory given to them points into buffers that
//! outlive the machine, and every size is at most that of the buffer. Handles may be stale on purpose: the simulated
//! driver looks each one up before use, which is part of what is tested.
#![expect(unsafe_code, reason = "calls the driver's C interface")]

use core::ffi::c_void;
use std::ptr;

use cuda_sim::{Config, Machine, ReportKind};
use cuda_sys::driver::types::{CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUstream, CUstreamCaptureMode};
use cuda_sys::{CUresult, Driver, DriverError};

use crate::input::Input;

/// Size of the host buffer that copies read and write.
const HOST_BYTES: usize = 4096;

/// Longest script: more calls say no more.
const CALLS_MAX: usize = 200;

/// Runs one input.
///
/// # Errors
/// The histories of two equal machines differ, or the machine reports an answer it did not announce.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    let first = history(bytes)?;
    let second = history(bytes)?;
    if first == second { Ok(()) } else { Err(format!("two machines of one seed differ: {first:?} and {second:?}")) }
}

/// What each call answered.
fn history(bytes: &[u8]) -> Result<Vec<u32>, String> {
    let mut input = Input::new(bytes);
    let mut host = vec![0_u8; HOST_BYTES];
    let seed = u64::from(input.byte());
    let options = input.byte();
    let config = Config::default().seed(seed).devices(2).capacity(1 << 30);
    let machine = Machine::new(config.strict(options & 1 != 0).late_events(options & 2 != 0));
    let bound = machine.bind();
    let driver = cuda_sim::driver().map_err(|error| error.to_string())?;
    let mut script = Script::new(&driver, host.as_mut_ptr());
    for _ in 0..CALLS_MAX {
        if input.is_empty() {
            break;
        }
        script.step(&mut input);
    }
    let history = script.history;
    let reports = machine.take_reports();
    drop(bound);
    drop(machine);
    drop(host);
    match reports.iter().find(|report| report.kind == ReportKind::UndeclaredCode) {
        Some(report) => Err(report.to_string()),
        None => Ok(history),
    }
}

struct Script<'driver> {
    driver: &'driver Driver,
    host: *mut u8,
    memory: Vec<CUdeviceptr>,
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    graphs: Vec<CUgraph>,
    execs: Vec<CUgraphExec>,
    history: Vec<u32>,
}

impl<'driver> Script<'driver> {
    /// A script whose machine is initialised and has a current context.
    fn new(driver: &'driver Driver, host: *mut u8) -> Self {
        let streams = vec![ptr::null_mut()];
        let (memory, events, graphs, execs, history) = Default::default();
        let mut script = Self { driver, host, memory, streams, events, graphs, execs, history };
        // SAFETY: takes no pointer.
        let started = unsafe { driver.cuInit(0) };
        script.note(started);
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: `context` outlives the call.
        let retained = unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, 0) };
        script.note(retained);
        // SAFETY: takes a handle only.
        let set = unsafe { driver.cuCtxSetCurrent(context) };
        script.note(set);
        script
    }

    fn note(&mut self, answer: Result<(), DriverError>) -> bool {
        let code = answer.err().map_or(CUresult::CUDA_SUCCESS, |error| {
            error.status().unwrap_or(CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER)
        });
        self.history.push(code.0);
        code == CUresult::CUDA_SUCCESS
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 | 1 => self.memory_call(input),
            2 | 3 => self.copy_call(input),
            4 => self.stream_call(input),
            5 => self.event_call(input),
            6 => self.capture_call(input),
            _ => self.graph_call(input),
        }
    }

    fn stream(&self, input: &mut Input<'_>) -> CUstream {
        self.streams[input.position(self.streams.len())]
    }

    fn event(&self, input: &mut Input<'_>) -> CUevent {
        self.events.get(input.position(self.events.len())).copied().unwrap_or(ptr::null_mut())
    }

    fn address(&self, input: &mut Input<'_>) -> CUdeviceptr {
        let base = self.memory.get(input.position(self.memory.len())).copied().unwrap_or_default();
        let offset = input.byte();
        if offset & 3 == 3 { base.wrapping_add(u64::from(offset)) } else { base }
    }

    fn memory_call(&mut self, input: &mut Input<'_>) {
        let mut address = 0;
        match input.byte() % 4 {
            0 | 1 => {
                // SAFETY: `address` outlives the call.
                let answer = unsafe { self.driver.cuMemAlloc_v2(&mut address, input.size()) };
                if self.note(answer) {
                    self.memory.push(address);
                }
            }
            2 => {
                let address = self.address(input);
                // SAFETY: takes a number, which the simulated driver looks up.
                let answer = unsafe { self.driver.cuMemFree_v2(address) };
                self.note(answer);
            }
            _ => {
                let (mut free, mut total) = (0, 0);
                // SAFETY: both outlive the call.
                let answer = unsafe { self.driver.cuMemGetInfo_v2(&mut free, &mut total) };
                self.note(answer);
            }
        }
    }

    fn copy_call(&mut self, input: &mut Input<'_>) {
        let (kind, size) = (input.byte() % 6, input.size().min(HOST_BYTES));
        let (first, second, stream) = (self.address(input), self.address(input), self.stream(input));
        let host: *mut c_void = self.host.cast();
        let driver = self.driver;
        // The host buffer holds HOST_BYTES, `size` is at most that, and it outlives the machine.
        let answer = match kind {
            // SAFETY: see above.
            0 => unsafe { driver.cuMemcpyHtoDAsync_v2(first, host, size, stream) },
            // SAFETY: see above.
            1 => unsafe { driver.cuMemcpyDtoHAsync_v2(host, first, size, stream) },
            // SAFETY: takes device addresses, which the simulated driver looks up.
            2 => unsafe { driver.cuMemcpyDtoDAsync_v2(first, second, size, stream) },
            // SAFETY: as the one before.
            3 => unsafe { driver.cuMemsetD8Async(first, 7, size, stream) },
            // SAFETY: see above.
            4 => unsafe { driver.cuMemcpyDtoH_v2(host, first, size) },
            // SAFETY: see above.
            _ => unsafe { driver.cuMemcpyHtoD_v2(first, host, size) },
        };
        self.note(answer);
    }

    fn stream_call(&mut self, input: &mut Input<'_>) {
        let (kind, stream) = (input.byte() % 5, self.stream(input));
        let answer = match kind {
            0 => {
                let mut created = ptr::null_mut();
                // SAFETY: `created` outlives the call.
                let answer = unsafe { self.driver.cuStreamCreate(&mut created, u32::from(input.byte() & 1)) };
                if answer.is_ok() {
                    self.streams.push(created);
                }
                answer
            }
            // SAFETY: takes a handle only.
            1 => unsafe { self.driver.cuStreamDestroy_v2(stream) },
            // SAFETY: takes a handle only.
            2 => unsafe { self.driver.cuStreamQuery(stream) },
            // SAFETY: takes a handle only.
            3 => unsafe { self.driver.cuStreamSynchronize(stream) },
            // SAFETY: takes nothing.
            _ => unsafe { self.driver.cuCtxSynchronize() },
        };
        self.note(answer);
    }

    fn event_call(&mut self, input: &mut Input<'_>) {
        let (kind, event, stream) = (input.byte() % 7, self.event(input), self.stream(input));
        let answer = match kind {
            0 => {
                let mut created = ptr::null_mut();
                // SAFETY: `created` outlives the call.
                let answer = unsafe { self.driver.cuEventCreate(&mut created, u32::from(input.byte() & 7)) };
                if answer.is_ok() {
                    self.events.push(created);
                }
                answer
            }
            // SAFETY: takes a handle only.
            1 => unsafe { self.driver.cuEventDestroy_v2(event) },
            // SAFETY: takes handles only.
            2 => unsafe { self.driver.cuEventRecord(event, stream) },
            // SAFETY: takes handles only.
            3 => unsafe { self.driver.cuStreamWaitEvent(stream, event, 0) },
            // SAFETY: takes a handle only.
            4 => unsafe { self.driver.cuEventQuery(event) },
            // SAFETY: takes a handle only.
            5 => unsafe { self.driver.cuEventSynchronize(event) },
            _ => {
                let (mut milliseconds, end) = (0.0, self.event(input));
                // SAFETY: `milliseconds` outlives the call.
                unsafe { self.driver.cuEventElapsedTime(&mut milliseconds, event, end) }
            }
        };
        self.note(answer);
    }

    fn capture_call(&mut self, input: &mut Input<'_>) {
        let (kind, stream) = (input.byte() % 3, self.stream(input));
        let mode = CUstreamCaptureMode(u32::from(input.byte() % 4));
        let mut graph = ptr::null_mut();
        let answer = match kind {
            // SAFETY: takes a handle and a number.
            0 => unsafe { self.driver.cuStreamBeginCapture_v2(stream, mode) },
            // SAFETY: `graph` outlives the call.
            1 => unsafe { self.driver.cuStreamEndCapture(stream, &mut graph) },
            _ => {
                let mut mode = mode;
                // SAFETY: `mode` outlives the call.
                unsafe { self.driver.cuThreadExchangeStreamCaptureMode(&mut mode) }
            }
        };
        if self.note(answer) && !graph.is_null() {
            self.graphs.push(graph);
        }
    }

    fn graph_call(&mut self, input: &mut Input<'_>) {
        let (kind, stream) = (input.byte() % 4, self.stream(input));
        let graph = self.graphs.get(input.position(self.graphs.len())).copied().unwrap_or(ptr::null_mut());
        let exec = self.execs.get(input.position(self.execs.len())).copied().unwrap_or(ptr::null_mut());
        let answer = match kind {
            0 => {
                let mut created = ptr::null_mut();
                // SAFETY: `created` outlives the call.
                let answer = unsafe { self.driver.cuGraphInstantiateWithFlags(&mut created, graph, 0) };
                if answer.is_ok() {
                    self.execs.push(created);
                }
                answer
            }
            // SAFETY: takes handles only.
            1 => unsafe { self.driver.cuGraphLaunch(exec, stream) },
            // SAFETY: takes a handle only.
            2 => unsafe { self.driver.cuGraphDestroy(graph) },
            // SAFETY: takes a handle only.
            _ => unsafe { self.driver.cuGraphExecDestroy(exec) },
        };
        self.note(answer);
    }
}
