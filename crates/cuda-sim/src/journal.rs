//! The order of work as a machine knows it, for tools that claim to know it.

/// A line of a machine's journal ([`crate::Machine::keep_journal`]).
///
/// ```
/// use cuda_sim::{Config, JournalEntry, Machine};
///
/// let machine = Machine::new(Config::default());
/// machine.keep_journal();
/// let _bound = machine.bind();
/// let driver = cuda_sim::driver()?;
/// // SAFETY: the call takes no pointer that could be wrong.
/// unsafe { driver.cuInit(0) }?;
/// assert!(machine.take_journal().is_empty(), "nothing was queued");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// Work was queued.
    Queued(QueuedWork),
    /// A thread of the host was told that work is done. Whatever it queues later comes after that.
    Seen {
        /// The thread.
        thread: u64,
        /// The last pieces of that work.
        work: Vec<u64>,
    },
}

/// Work that was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedWork {
    /// Its number, which rises.
    pub id: u64,
    /// The thread that queued it.
    pub thread: u64,
    /// The stream, by a number of the machine; `None` for parts of a graph.
    pub stream: Option<u64>,
    /// The work that begins the launch of the graph that it is a part of.
    pub part_of: Option<u64>,
    /// The work that it comes directly after, be it done or not.
    pub after: Vec<u64>,
    /// What it is.
    pub kind: WorkKind,
    /// Addresses and numbers of bytes that a copy reads, from the first byte to the last; what a copy has read when it was
    /// queued is left out.
    pub reads: Vec<(u64, u64)>,
    /// Addresses and numbers of bytes that a copy or a fill writes, from the first byte to the last.
    pub writes: Vec<(u64, u64)>,
}

/// What work does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// It copies bytes.
    Copy,
    /// It sets bytes.
    Fill,
    /// It runs a kernel. What that reads and writes is seen when it runs.
    Launch,
    /// It orders other work, or is none of these.
    Other,
}
