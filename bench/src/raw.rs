//! The raw driver: what the runtime is measured against.
//!
//! # Safety
//! Every pointer given to the driver points to a local variable that outlives the call. Handles are used while the
//! struct that holds them lives, and are destroyed with it.
#![expect(unsafe_code, reason = "calls the driver's C interface")]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;

use cuda_sys::driver::types::{
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream, CUstreamCaptureMode,
};
use cuda_sys::{Driver, DriverError};

use crate::flow::kernel;

/// Why the raw side cannot be measured.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// A word of pinned host memory that the device writes to and the host reads.
#[derive(Debug)]
pub(crate) struct HostWord {
    host: *mut u64,
    device: CUdeviceptr,
}

impl HostWord {
    /// Looks at the word, as a program that waits for it does.
    pub(crate) fn poll(&self) -> u64 {
        // SAFETY: `host` is a pinned word that is kept for the rest of the process; the device may write to it at any
        // time, hence volatile.
        unsafe { self.host.read_volatile() }
    }
}

/// Pinned memory.
#[derive(Debug)]
pub(crate) struct HostMemory(*mut c_void);

/// A driver with a current primary context, a stream and an event without timing.
#[derive(Debug)]
pub(crate) struct Raw {
    driver: Driver,
    stream: CUstream,
    event: CUevent,
}

impl Raw {
    /// Loads and initialises the driver.
    ///
    /// # Errors
    /// There is none, or one of its calls fails.
    pub(crate) fn new() -> Result<Self, Failure> {
        let driver = Driver::load()?;
        let (mut context, mut stream, mut event): (CUcontext, CUstream, CUevent) = Default::default();
        // SAFETY: takes no pointer.
        unsafe { driver.cuInit(0) }?;
        // SAFETY: `context` outlives the call; device 0 exists or the call says so.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, 0) }?;
        // SAFETY: the context was just retained.
        unsafe { driver.cuCtxSetCurrent(context) }?;
        // SAFETY: `stream` outlives the call; 1 is a stream that does not wait for the default one.
        unsafe { driver.cuStreamCreate(&mut stream, 1) }?;
        // SAFETY: `event` outlives the call; 2 is an event without timing.
        unsafe { driver.cuEventCreate(&mut event, 2) }?;
        Ok(Self { driver, stream, event })
    }

    /// Takes memory from the driver for the rest of the process.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_alloc(&self, bytes: usize) -> Result<(), DriverError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.driver.cuMemAlloc_v2(&mut address, bytes) }
    }

    /// Takes memory from the driver and gives it back at once.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_alloc_and_free(&self, bytes: usize) -> Result<(), DriverError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.driver.cuMemAlloc_v2(&mut address, bytes) }?;
        // SAFETY: allocated in the line before.
        unsafe { self.driver.cuMemFree_v2(address) }
    }

    /// The same in the order of a stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_alloc_and_free_async(&self, bytes: usize) -> Result<(), DriverError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.driver.cuMemAllocAsync(&mut address, bytes, self.stream) }?;
        // SAFETY: allocated in the line before, on the same stream.
        unsafe { self.driver.cuMemFreeAsync(address, self.stream) }
    }

    /// Takes memory in the order of a stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_alloc_async(&self, bytes: usize) -> Result<CUdeviceptr, DriverError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.driver.cuMemAllocAsync(&mut address, bytes, self.stream) }?;
        Ok(address)
    }

    /// Gives back what [`Self::mem_alloc_async`] gave, which nobody uses any more.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_free_async(&self, address: CUdeviceptr) -> Result<(), DriverError> {
        // SAFETY: allocated on the same stream, and given up by the caller.
        unsafe { self.driver.cuMemFreeAsync(address, self.stream) }
    }

    /// Takes memory in the order of a stream, and gives the oldest of what is held back.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_replace_async(&self, bytes: usize, held: &mut VecDeque<CUdeviceptr>) -> Result<(), DriverError> {
        held.push_back(self.mem_alloc_async(bytes)?);
        held.pop_front().map_or(Ok(()), |oldest| self.mem_free_async(oldest))
    }

    /// Records the event on the stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn event_record(&self) -> Result<(), DriverError> {
        // SAFETY: both live as long as this value.
        unsafe { self.driver.cuEventRecord(self.event, self.stream) }
    }

    /// Lets the stream wait for the event.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn stream_wait_event(&self) -> Result<(), DriverError> {
        // SAFETY: both live as long as this value.
        unsafe { self.driver.cuStreamWaitEvent(self.stream, self.event, 0) }
    }

    /// Asks whether the event has happened, which it has after [`Raw::synchronize`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn event_query(&self) -> Result<(), DriverError> {
        // SAFETY: the event lives as long as this value.
        unsafe { self.driver.cuEventQuery(self.event) }
    }

    /// Asks whether the stream is idle, which it is after [`Raw::synchronize`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn stream_query(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as this value.
        unsafe { self.driver.cuStreamQuery(self.stream) }
    }

    /// Creates an event without timing, records it and destroys it.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn event_create_and_destroy(&self) -> Result<(), DriverError> {
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: `event` outlives the call.
        unsafe { self.driver.cuEventCreate(&mut event, 2) }?;
        // SAFETY: created in the line before.
        unsafe { self.driver.cuEventRecord(event, self.stream) }?;
        // SAFETY: created above and used nowhere else.
        unsafe { self.driver.cuEventDestroy_v2(event) }
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn stream_synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as this value.
        unsafe { self.driver.cuStreamSynchronize(self.stream) }
    }

    /// Takes pinned memory.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn host_alloc(&self, bytes: usize) -> Result<HostMemory, DriverError> {
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` outlives the call.
        unsafe { self.driver.cuMemHostAlloc(&mut memory, bytes, 0) }?;
        Ok(HostMemory(memory))
    }

    /// Gives pinned memory back.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn host_free(&self, memory: HostMemory) -> Result<(), DriverError> {
        // SAFETY: made by `host_alloc`, given up here, and never looked at.
        unsafe { self.driver.cuMemFreeHost(memory.0) }
    }

    /// Takes a pinned word for the rest of the process.
    ///
    /// # Errors
    /// The driver's, also that it lacks the function.
    pub(crate) fn host_word(&self) -> Result<HostWord, DriverError> {
        let (mut host, mut device) = (ptr::null_mut(), 0);
        // SAFETY: `host` outlives the call; 2 makes the word visible to the device.
        unsafe { self.driver.cuMemHostAlloc(&mut host, size_of::<u64>(), 2) }?;
        // SAFETY: `device` outlives the call, `host` was allocated in the line before.
        unsafe { self.driver.cuMemHostGetDevicePointer_v2(&mut device, host, 0) }?;
        Ok(HostWord { host: host.cast(), device })
    }

    /// Lets the stream write a number to the word.
    ///
    /// # Errors
    /// The driver's, also that it lacks the function.
    pub(crate) fn stream_write_value(&self, word: &HostWord, number: u64) -> Result<(), DriverError> {
        // SAFETY: the word is never given back, the stream lives as long as this value.
        unsafe { self.driver.cuStreamWriteValue64_v2(self.stream, word.device, number, 0) }
    }

    /// Waits until nothing is queued.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: takes nothing.
        unsafe { self.driver.cuCtxSynchronize() }
    }
}

/// The raw side of the graphs' rows: a kernel and its argument.
#[derive(Debug)]
pub(crate) struct Graphs<'a> {
    raw: &'a Raw,
    module: CUmodule,
    function: CUfunction,
    data: CUdeviceptr,
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec(CUgraphExec);

impl Raw {
    /// Loads the kernel of the graphs' rows.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn graphs(&self) -> Result<Graphs<'_>, DriverError> {
        let text = format!("{}\0", kernel::TEXT);
        let (mut module, mut function, mut data) = (ptr::null_mut(), ptr::null_mut(), 0);
        // SAFETY: `module` and the text, which ends with a zero, outlive the call.
        unsafe { self.driver.cuModuleLoadData(&mut module, text.as_ptr().cast()) }?;
        // SAFETY: the module was just loaded; `function` and the name outlive the call.
        unsafe { self.driver.cuModuleGetFunction(&mut function, module, kernel::NAME.as_ptr()) }?;
        // SAFETY: `data` outlives the call.
        unsafe { self.driver.cuMemAlloc_v2(&mut data, kernel::BYTES) }?;
        // SAFETY: as many bytes were allocated in the line before.
        unsafe { self.driver.cuMemsetD8_v2(data, 0, kernel::BYTES) }?;
        Ok(Graphs { raw: self, module, function, data })
    }

    /// Queues an executable graph on a stream, both of the runtime's.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn graph_launch(&self, exec: usize, stream: usize) -> Result<(), DriverError> {
        let (exec, stream) = (ptr::with_exposed_provenance_mut(exec), ptr::with_exposed_provenance_mut(stream));
        // SAFETY: the caller holds the graph and the stream that these are the handles of.
        unsafe { self.driver.cuGraphLaunch(exec, stream) }
    }
}

impl Graphs<'_> {
    /// Captures so many launches and makes them executable.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn capture(&self, nodes: u32) -> Result<Exec, DriverError> {
        let (driver, stream) = (&self.raw.driver, self.raw.stream);
        let (mut graph, mut exec): (CUgraph, CUgraphExec) = (ptr::null_mut(), ptr::null_mut());
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive and captures nothing.
        unsafe { driver.cuStreamBeginCapture_v2(stream, mode) }?;
        for _ in 0..nodes {
            self.launch()?;
        }
        // SAFETY: the capture was begun above; `graph` outlives the call.
        unsafe { driver.cuStreamEndCapture(stream, &mut graph) }?;
        // SAFETY: the graph was just made; `exec` outlives the call.
        unsafe { driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0) }?;
        // SAFETY: the graph is used no more.
        unsafe { driver.cuGraphDestroy(graph) }?;
        Ok(Exec(exec))
    }

    fn launch(&self) -> Result<(), DriverError> {
        let mut data = self.data;
        let mut arguments = [ptr::from_mut(&mut data).cast::<c_void>()];
        let (function, stream, arguments) = (self.function, self.raw.stream, arguments.as_mut_ptr());
        // SAFETY: the kernel has one parameter of 8 bytes, which is copied during the call.
        unsafe {
            self.raw.driver.cuLaunchKernel(
                function,
                1,
                1,
                1,
                kernel::THREADS,
                1,
                1,
                0,
                stream,
                arguments,
                ptr::null_mut(),
            )
        }
    }

    /// Destroys an executable graph.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn destroy(&self, exec: Exec) -> Result<(), DriverError> {
        // SAFETY: made by `capture` and given up here.
        unsafe { self.raw.driver.cuGraphExecDestroy(exec.0) }
    }
}

impl Drop for Graphs<'_> {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the process is about to end.
        // SAFETY: allocated in `graphs`; whoever measures has waited for the work that used it.
        let _ = unsafe { self.raw.driver.cuMemFree_v2(self.data) };
        // SAFETY: loaded in `graphs` and used no more.
        let _ = unsafe { self.raw.driver.cuModuleUnload(self.module) };
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the process is about to end.
        // SAFETY: created in `new` and used nowhere else.
        let _ = unsafe { self.driver.cuEventDestroy_v2(self.event) };
        // SAFETY: as the event.
        let _ = unsafe { self.driver.cuStreamDestroy_v2(self.stream) };
    }
}
