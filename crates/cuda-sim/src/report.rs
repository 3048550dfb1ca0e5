//! What the model noticed and hardware would not have.

use std::fmt;

/// Kind of misuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ReportKind {
    /// An access past the end of an allocation, or beside a block of the program's allocator, to memory that is mapped.
    OutOfBounds,
    /// An access to memory that was freed, or a block that was given back, and is still mapped.
    UseAfterFree,
    /// An access to memory of a graph before the node that allocates it has run.
    UseBeforeAllocation,
    /// Pinned host memory was freed while queued work still uses it.
    PinnedFreedWhilePending,
    /// A mapping was taken away while queued work may still use it.
    UnmappedWhilePending,
    /// Two pieces of work use the same physical memory at two addresses, one of them writes, and nothing orders the two.
    UnorderedMappings,
    /// A kernel ended early: where, and why. The program gets an error beside it.
    KernelFailure,
    /// Kernels wait for memory to change, nothing else is to be done, and the program waits for them. Their contexts are lost
    /// as by a kernel that runs for too long.
    Deadlock,
    /// Code is of a kind that the simulator does not run: a kernel that uses what is not supported, or machine code. The
    /// program gets an error when it asks for it.
    NotSupported,
    /// Lanes of a warp came to a barrier of all threads apart.
    BarrierDivergence,
    /// An instruction of a warp names lanes that have ended or do not come.
    AbsentLane,
    /// Two threads of a kernel touch the same memory, one of them writes, and nothing orders the two.
    Race,
    /// A kernel reads memory that nobody wrote.
    UninitializedRead,
    /// A library was called with a handle or a descriptor that it never gave out or that was destroyed.
    LibraryHandle,
    /// Two threads use one handle of a library at once: a thread works with it after another has set its stream, or both
    /// are inside of a call.
    SharedHandle,
    /// A library's work goes to a stream that is gone, or of another device than the handle is.
    WrongStream,
    /// Work of a library and other work touch the same memory, one of them writes, and nothing orders the two.
    Unordered,
    /// A library would allocate a workspace of its own for work that is captured.
    WorkspaceInCapture,
    /// A call answered with a code that its export does not list: a mistake of the model itself.
    UndeclaredCode,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What kind of misuse it is.
    pub kind: ReportKind,
    /// The call during which it was found; for queued work, the call that made it run.
    pub call: &'static str,
    /// What exactly was found.
    pub message: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}: {}", self.kind, self.call, self.message)
    }
}

/// Things that exist on a machine; all zero when a program has cleaned up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveHandles {
    /// Allocations of device memory, stream-ordered ones included.
    pub allocations: usize,
    /// Ranges of pinned host memory, allocated and registered.
    pub pinned: usize,
    /// Allocations of managed memory.
    pub managed: usize,
    /// Streams that the program made.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Graphs that the program owns.
    pub graphs: usize,
    /// Executable graphs.
    pub graph_execs: usize,
    /// User objects that were not destroyed.
    pub user_objects: usize,
    /// Modules, those of libraries included.
    pub modules: usize,
    /// Libraries.
    pub libraries: usize,
    /// Links of code that were not destroyed.
    pub links: usize,
    /// Active contexts, without green ones.
    pub contexts: usize,
    /// Green contexts.
    pub green_contexts: usize,
    /// Physical memory handles of the virtual memory functions.
    pub memory_handles: usize,
    /// Reserved address ranges.
    pub reservations: usize,
    /// Memory pools that the program made.
    pub pools: usize,
    /// Handles and plans of cuBLAS, cuBLASLt, cuSOLVER and cuFFT.
    pub library_handles: usize,
    /// Queued operations that have not finished.
    pub pending: usize,
}
