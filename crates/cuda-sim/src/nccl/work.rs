//! A batch of collectives and messages as a piece of work of a stream.
//!
//! When its time comes, it reads what it sends and brings that to the others; it runs once they have come. What it reads
//! is what was there when it began, as the hardware's order has it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuda_sys::ncclResult_t;

use super::exchange::{Asked, Outcome, What};
use super::seat::Seat;
use crate::model::engine::OpId;
use crate::model::library_work::{LibraryWork, Touch, Turn, Use};
use crate::model::memory::{BadAddress, Endpoint, Memory};

/// Picoseconds that a link takes for a byte, and nanoseconds that a message takes besides.
const BYTE_PS: u64 = 3;
const MESSAGE_NS: u64 = 2_000;

/// What is injected as a fault of this name fails while work is under way, as it does on links and devices.
pub(crate) const ASYNC: &str = "ncclAsync";

/// One call of a batch.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) asked: Asked,
    /// Where what is sent lies: an address and bytes.
    pub(super) input: (u64, u64),
    /// Where what comes goes.
    pub(super) output: (u64, u64),
}

/// A batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) name: &'static str,
    pub(super) seat: Arc<Seat>,
    pub(super) ranks: usize,
    pub(super) parts: Vec<Part>,
    state: Mutex<Progress>,
}

/// How far a batch is: it runs again with each launch of a graph.
#[derive(Debug, Default)]
struct Progress {
    /// Numbers of batches that were brought and are not done.
    brought: BTreeMap<OpId, u64>,
    /// What is to be written now; none where it failed.
    ready: Option<Vec<Vec<u8>>>,
    /// An address at which nothing can be read.
    unread: Option<u64>,
}

impl Batch {
    pub(super) fn new(name: &'static str, seat: Arc<Seat>, ranks: usize, parts: Vec<Part>) -> Self {
        Self { name, seat, ranks, parts, state: Mutex::default() }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, memory: &Memory) -> Result<Vec<(Asked, Vec<u8>)>, BadAddress> {
        let read = |part: &Part| Ok((part.asked, memory.stage(&Endpoint::linear(part.input.0), part.input.1, 1, 1)?));
        self.parts.iter().map(read).collect()
    }
}

impl LibraryWork for Batch {
    fn name(&self) -> &'static str {
        self.name
    }

    fn known_touches(&self) -> Vec<Touch> {
        let touch = |(address, length): (u64, u64), how| (length > 0).then_some(Touch { address, length, how });
        let both = |part: &Part| [touch(part.output, Use::Writes), touch(part.input, Use::Reads)];
        self.parts.iter().flat_map(both).flatten().collect()
    }

    fn touches(&self, _: &Memory) -> Result<Vec<Touch>, BadAddress> {
        Ok(self.known_touches())
    }

    fn turn(&self, op: OpId, memory: &Memory, fault: Option<u32>, patience: Duration) -> Turn {
        if let Some(code) = fault {
            self.seat.fail(ncclResult_t(code), &format!("{} failed on its device: a fault was injected", self.name));
        }
        let mut progress = self.progress();
        let (batch, came) = match progress.brought.get(&op) {
            Some(&batch) => (batch, false),
            None => {
                let parts = match self.read(memory) {
                    Ok(parts) => parts,
                    Err(BadAddress(at)) => {
                        progress.unread = Some(at);
                        return Turn::Run;
                    }
                };
                let batch = self.seat.bring(parts);
                progress.brought.insert(op, batch);
                (batch, true)
            }
        };
        progress.ready = match self.seat.outcome(batch, patience) {
            Outcome::Waiting if self.seat.asks() => return Turn::Ask,
            Outcome::Waiting => return Turn::Wait { came },
            Outcome::Done(results) => Some(results),
            Outcome::Failed(_) => None,
        };
        progress.brought.remove(&op);
        Turn::Run
    }

    fn fault_name(&self) -> Option<&'static str> {
        Some(ASYNC)
    }

    fn abandon(&self, op: OpId) {
        self.progress().brought.remove(&op);
        self.seat.leave("has lost its device");
    }

    fn is_overdue(&self, patience: Duration) -> bool {
        self.seat.expire(patience)
    }

    fn run(&self, memory: &Memory) -> Result<(), BadAddress> {
        let mut progress = self.progress();
        if let Some(at) = progress.unread.take() {
            return Err(BadAddress(at));
        }
        let results = progress.ready.take().unwrap_or_default();
        for (part, bytes) in self.parts.iter().zip(results) {
            if !bytes.is_empty() {
                memory.write_run(part.output.0, &bytes)?;
            }
        }
        Ok(())
    }

    fn duration_ns(&self) -> u64 {
        self.parts.iter().map(|part| part_ns(part, self.ranks as u64)).max().unwrap_or(0)
    }
}

/// How long a part takes by rings over links that carry both directions at once.
fn part_ns(part: &Part, ranks: u64) -> u64 {
    let bytes = part.input.1.max(part.output.1);
    let around = ranks.saturating_sub(1);
    let (steps, moved) = match part.asked.what {
        What::AllReduce => (2 * around, 2 * bytes / ranks * around),
        What::AllGather | What::ReduceScatter => (around, bytes / ranks * around),
        What::Reduce { .. } | What::Broadcast { .. } => (around, bytes),
        What::Send { .. } | What::Recv { .. } => (1, bytes),
    };
    steps * MESSAGE_NS + moved * BYTE_PS / 1000
}
