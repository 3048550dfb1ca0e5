//! Short ways to make what cases work with; all of it is destroyed when the case ends.

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_sys::driver::types::*;

use super::cuda::{CaseResult, Cleanup, Cuda, Stop};

/// The legacy default stream, by its special handle.
pub(super) const LEGACY: CUstream = ptr::without_provenance_mut(1);
/// The calling thread's default stream, by its special handle.
pub(super) const PER_THREAD: CUstream = ptr::without_provenance_mut(2);
/// The default stream, as most programs name it.
pub(super) const DEFAULT: CUstream = ptr::null_mut();

/// `CU_STREAM_NON_BLOCKING`
pub(super) const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`
pub(super) const NO_TIMING: u32 = 2;

/// A structure for which all-zero bytes are a value.
///
/// # Safety
/// - All-zero bytes are a valid value of the type.
pub(super) unsafe trait Plain: Sized {
    /// The value of all-zero bytes.
    fn zeroed() -> Self {
        // SAFETY: the trait's promise.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! plain {
    ($($type:ty),* $(,)?) => {
        // SAFETY: C structures of integers, nullable pointers and unions of such.
        $(unsafe impl Plain for $type {})*
    };
}
plain!(
    CUDA_MEMCPY2D,
    CUDA_MEMCPY3D,
    CUDA_MEMCPY3D_PEER,
    CUDA_MEMSET_NODE_PARAMS,
    CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_GRAPH_INSTANTIATE_PARAMS,
    CUgraphNodeParams,
    CUgraphExecUpdateResultInfo,
    CUgraphEdgeData,
    CUmemAllocationProp,
    CUmemPoolProps,
    CUuuid,
    CUdevprop,
    CUlaunchAttributeValue,
    CUctxCreateParams,
    CUdevResource,
    CUipcEventHandle,
    CUipcMemHandle,
    u8,
    u32,
    u64,
);

/// Pinned host memory that the device sees at the same address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pinned {
    pub(super) pointer: *mut u8,
    pub(super) bytes: usize,
}

impl Pinned {
    /// The address as the device sees it.
    pub(super) fn device(self) -> CUdeviceptr {
        self.pointer.expose_provenance() as CUdeviceptr
    }

    /// The address as `void *`.
    pub(super) fn host(self) -> *mut c_void {
        self.pointer.cast()
    }

    /// Writes one value to every byte.
    pub(super) fn fill(self, value: u8) {
        for index in 0..self.bytes {
            // SAFETY: within the allocation, which lives until the case ends.
            let byte = unsafe { self.pointer.add(index) };
            // SAFETY: as above; volatile, since the device may read at any time.
            unsafe { byte.write_volatile(value) };
        }
    }

    /// Reads every byte.
    pub(super) fn read(self) -> Vec<u8> {
        (0..self.bytes)
            .map(|index| {
                // SAFETY: within the allocation, which lives until the case ends.
                let byte = unsafe { self.pointer.add(index) };
                // SAFETY: as above; volatile, since the device may write at any time.
                unsafe { byte.read_volatile() }
            })
            .collect()
    }
}

/// A word of pinned memory on which streams wait until the host opens it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    word: Pinned,
}

impl Gate {
    /// Lets every stream held at this gate go on.
    pub(super) fn open(self) {
        // SAFETY: four bytes of pinned memory, aligned by the allocator, alive until the case ends.
        let word = unsafe { AtomicU32::from_ptr(self.word.pointer.cast()) };
        word.store(1, Ordering::SeqCst);
    }
}

/// A counter that host functions raise; lives as long as the process, since a function may run late.
pub(super) fn counter() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

/// The counter as user data of [`raise`].
pub(super) fn data(counter: &'static AtomicU32) -> *mut c_void {
    ptr::from_ref(counter).cast_mut().cast()
}

/// A host function that raises the counter it is given.
pub(super) unsafe extern "C" fn raise(data: *mut c_void) {
    // SAFETY: `data` is the address of a counter that is never freed (`counter`).
    let counter = unsafe { &*data.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

/// The address of ordinary memory, as the driver takes it in places meant for device memory.
pub(super) fn address<T: ?Sized>(place: *const T) -> CUdeviceptr {
    place.cast::<u8>().expose_provenance() as CUdeviceptr
}

impl Cuda<'_> {
    /// Device memory.
    pub(super) fn alloc(&self, bytes: usize) -> CaseResult<CUdeviceptr> {
        let cu = self;
        let mut pointer = 0;
        ok!(cu.cuMemAlloc_v2(&mut pointer, bytes));
        self.later(Cleanup::Memory(pointer));
        Ok(pointer)
    }

    /// Device memory with one value in every byte.
    pub(super) fn filled(&self, bytes: usize, value: u8) -> CaseResult<CUdeviceptr> {
        let cu = self;
        let pointer = self.alloc(bytes)?;
        ok!(cu.cuMemsetD8_v2(pointer, value, bytes));
        ok!(cu.cuCtxSynchronize());
        Ok(pointer)
    }

    /// Device memory with the bytes 0, 1, 2, ...
    pub(super) fn counted(&self, bytes: usize) -> CaseResult<CUdeviceptr> {
        let cu = self;
        let pointer = self.alloc(bytes)?;
        let host = count_up(bytes);
        ok!(cu.cuMemcpyHtoD_v2(pointer, host.as_ptr().cast(), bytes));
        Ok(pointer)
    }

    /// What device memory holds, once all work on the device is done.
    pub(super) fn read(&self, pointer: CUdeviceptr, bytes: usize) -> CaseResult<Vec<u8>> {
        let cu = self;
        let mut host = vec![0xEE; bytes];
        ok!(cu.cuCtxSynchronize());
        ok!(cu.cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), pointer, bytes));
        Ok(host)
    }

    /// Pinned host memory, zeroed.
    pub(super) fn pinned(&self, bytes: usize) -> CaseResult<Pinned> {
        let cu = self;
        let mut pointer = ptr::null_mut();
        ok!(cu.cuMemHostAlloc(&mut pointer, bytes, 0));
        self.later(Cleanup::Host(pointer));
        let pinned = Pinned { pointer: pointer.cast(), bytes };
        pinned.fill(0);
        Ok(pinned)
    }

    /// A stream that does not synchronise with the legacy default stream.
    pub(super) fn stream(&self) -> CaseResult<CUstream> {
        self.stream_with(NON_BLOCKING)
    }

    /// A stream with the given flags.
    pub(super) fn stream_with(&self, flags: u32) -> CaseResult<CUstream> {
        let cu = self;
        let mut stream = ptr::null_mut();
        ok!(cu.cuStreamCreate(&mut stream, flags));
        self.later(Cleanup::Stream(stream));
        Ok(stream)
    }

    /// An event without timing.
    pub(super) fn event(&self) -> CaseResult<CUevent> {
        self.event_with(NO_TIMING)
    }

    /// An event with the given flags.
    pub(super) fn event_with(&self, flags: u32) -> CaseResult<CUevent> {
        let cu = self;
        let mut event = ptr::null_mut();
        ok!(cu.cuEventCreate(&mut event, flags));
        self.later(Cleanup::Event(event));
        Ok(event)
    }

    /// Holds a stream until the gate is opened, at the latest when the case ends.
    pub(super) fn hold(&self, stream: CUstream) -> CaseResult<Gate> {
        let cu = self;
        let gate = Gate { word: self.pinned(64)? };
        self.later_open(gate);
        ok!(cu.cuStreamWaitValue32_v2(stream, gate.word.device(), 1, 0));
        Ok(gate)
    }

    /// An empty graph.
    pub(super) fn graph(&self) -> CaseResult<CUgraph> {
        let cu = self;
        let mut graph = ptr::null_mut();
        ok!(cu.cuGraphCreate(&mut graph, 0));
        self.later(Cleanup::Graph(graph));
        Ok(graph)
    }

    /// An executable graph.
    pub(super) fn instantiate(&self, graph: CUgraph) -> CaseResult<CUgraphExec> {
        let cu = self;
        let mut exec = ptr::null_mut();
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        self.later(Cleanup::Exec(exec));
        Ok(exec)
    }

    /// Begins a capture.
    pub(super) fn begin(&self, stream: CUstream, mode: CUstreamCaptureMode) -> CaseResult {
        let cu = self;
        ok!(cu.cuStreamBeginCapture_v2(stream, mode));
        Ok(())
    }

    /// Ends a capture that must succeed.
    pub(super) fn end(&self, stream: CUstream) -> CaseResult<CUgraph> {
        let cu = self;
        let mut graph = ptr::null_mut();
        ok!(cu.cuStreamEndCapture(stream, &mut graph));
        if graph.is_null() {
            return Err(Stop::Failed("a capture ended with success and no graph".to_owned()));
        }
        self.later(Cleanup::Graph(graph));
        Ok(graph)
    }

    /// An empty node behind others.
    pub(super) fn empty_node(&self, graph: CUgraph, after: &[CUgraphNode]) -> CaseResult<CUgraphNode> {
        let cu = self;
        let mut node = ptr::null_mut();
        ok!(cu.cuGraphAddEmptyNode(&mut node, graph, after.as_ptr(), after.len()));
        Ok(node)
    }

    /// A node that sets bytes, behind others.
    pub(super) fn set_node(
        &self,
        graph: CUgraph,
        after: &[CUgraphNode],
        params: &CUDA_MEMSET_NODE_PARAMS,
    ) -> CaseResult<CUgraphNode> {
        let cu = self;
        let mut node = ptr::null_mut();
        let context = self.current()?;
        ok!(cu.cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), params, context));
        Ok(node)
    }

    /// A node that copies between device pointers, behind others.
    pub(super) fn copy_node(
        &self,
        graph: CUgraph,
        after: &[CUgraphNode],
        params: &CUDA_MEMCPY3D,
    ) -> CaseResult<CUgraphNode> {
        let cu = self;
        let mut node = ptr::null_mut();
        let context = self.current()?;
        ok!(cu.cuGraphAddMemcpyNode(&mut node, graph, after.as_ptr(), after.len(), params, context));
        Ok(node)
    }

    /// A node that raises a counter, behind others.
    pub(super) fn host_node(
        &self,
        graph: CUgraph,
        after: &[CUgraphNode],
        counter: &'static AtomicU32,
    ) -> CaseResult<CUgraphNode> {
        let cu = self;
        let mut node = ptr::null_mut();
        let params = CUDA_HOST_NODE_PARAMS { fn_: Some(raise), userData: data(counter) };
        ok!(cu.cuGraphAddHostNode(&mut node, graph, after.as_ptr(), after.len(), &params));
        Ok(node)
    }

    /// The calling thread's current context.
    pub(super) fn current(&self) -> CaseResult<CUcontext> {
        let cu = self;
        let mut context = ptr::null_mut();
        ok!(cu.cuCtxGetCurrent(&mut context));
        Ok(context)
    }

    /// A graph's nodes, in the driver's order.
    pub(super) fn nodes(&self, graph: CUgraph) -> CaseResult<Vec<CUgraphNode>> {
        let cu = self;
        let mut count = 0;
        ok!(cu.cuGraphGetNodes(graph, ptr::null_mut(), &mut count));
        let mut nodes = vec![ptr::null_mut(); count];
        if count == 0 {
            return Ok(nodes);
        }
        ok!(cu.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
        Ok(nodes)
    }

    /// A graph's edges.
    pub(super) fn edges(&self, graph: CUgraph) -> CaseResult<Vec<(CUgraphNode, CUgraphNode)>> {
        let cu = self;
        let mut count = 0;
        ok!(cu.cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut count));
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut from = vec![ptr::null_mut(); count];
        let mut to = vec![ptr::null_mut(); count];
        ok!(cu.cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count));
        Ok(from.into_iter().zip(to).collect())
    }

    /// A graph as text: its nodes by kind and value, then its edges, both sorted.
    ///
    /// Sets are named `set` and their value, copies `copy` and their width, so that cases can tell nodes apart.
    pub(super) fn shape(&self, graph: CUgraph) -> CaseResult<String> {
        let nodes = self.nodes(graph)?;
        let mut names = nodes.iter().map(|&node| self.label(node)).collect::<CaseResult<Vec<_>>>()?;
        let name = |node: &CUgraphNode| nodes.iter().position(|other| other == node).map_or("?", |index| &names[index]);
        let mut edges: Vec<String> =
            self.edges(graph)?.iter().map(|(from, to)| format!("{}->{}", name(from), name(to))).collect();
        edges.sort();
        names.sort();
        Ok(format!("{} | {}", names.join(" "), edges.join(" ")).trim().to_owned())
    }

    fn label(&self, node: CUgraphNode) -> CaseResult<String> {
        let cu = self;
        let mut kind = CUgraphNodeType(0);
        ok!(cu.cuGraphNodeGetType(node, &mut kind));
        Ok(match kind {
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET => {
                let mut params = CUDA_MEMSET_NODE_PARAMS::zeroed();
                ok!(cu.cuGraphMemsetNodeGetParams(node, &mut params));
                format!("set{}", params.value)
            }
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY => {
                let mut params = CUDA_MEMCPY3D::zeroed();
                ok!(cu.cuGraphMemcpyNodeGetParams(node, &mut params));
                format!("copy{}", params.WidthInBytes)
            }
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => "kernel".to_owned(),
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST => "host".to_owned(),
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY => "empty".to_owned(),
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH => "graph".to_owned(),
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT => "wait".to_owned(),
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD => "record".to_owned(),
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC => "alloc".to_owned(),
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE => "free".to_owned(),
            other => format!("kind{}", other.0),
        })
    }
}

/// The C string behind a pointer that the driver gave out.
pub(super) fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the driver's strings end with a zero byte and live as long as what they name.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The bytes 0, 1, 2, ...
pub(super) fn count_up(bytes: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(bytes).collect()
}

/// A copy of `bytes` contiguous bytes between device pointers, as graph nodes want it.
pub(super) fn line_copy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::zeroed()
    }
}

/// A set of `bytes` contiguous bytes, as graph nodes want it.
pub(super) fn line_set(to: CUdeviceptr, value: u8, bytes: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: to,
        value: value.into(),
        elementSize: 1,
        width: bytes,
        height: 1,
        ..CUDA_MEMSET_NODE_PARAMS::zeroed()
    }
}

/// One thread on a stream.
pub(super) fn launch_config(stream: CUstream) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: ptr::null_mut(),
        numAttrs: 0,
    }
}

/// A descriptor that a driver gave out, which is closed with the value.
pub(super) fn owned(file: i32) -> OwnedFd {
    // SAFETY: the driver has just made it for this program, which is its one owner.
    unsafe { OwnedFd::from_raw_fd(file) }
}

/// A descriptor as drivers take it: in the place of a pointer.
pub(super) fn as_pointer(file: &OwnedFd) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(file.as_raw_fd()).unwrap_or(usize::MAX))
}

/// The system failed, not the driver.
pub(super) fn failed(error: &std::io::Error) -> Stop {
    Stop::Failed(error.to_string())
}
