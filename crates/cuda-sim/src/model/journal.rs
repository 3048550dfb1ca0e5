//! What was queued and after what: the truth about the order of work.
//!
//! **Invariant:** an entry names every piece of work that it comes after directly, finished ones included. What follows from
//! that is left to the reader.

use std::mem;

use super::engine::OpId;
use super::memory::Source;
use super::{Effect, State};
use crate::journal::{JournalEntry, QueuedWork, WorkKind};

/// The entries so far, of a machine that keeps them.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Vec<JournalEntry>,
    /// Whether there are entries at all.
    pub(crate) is_kept: bool,
    /// The thread whose call is answered.
    pub(crate) caller: u64,
}

impl Journal {
    /// The entries since this was asked last.
    pub(crate) fn take(&mut self) -> Vec<JournalEntry> {
        mem::take(&mut self.entries)
    }
}

impl State {
    /// Notes work that was queued on a stream, or that a graph brought with it (`part_of`).
    pub(super) fn note_queued(
        &mut self,
        op: OpId,
        (stream, part_of): (Option<u64>, Option<OpId>),
        after: &[OpId],
        effect: &Effect,
    ) {
        if !self.journal.is_kept {
            return;
        }
        let (reads, writes) = accesses(effect);
        self.journal.entries.push(JournalEntry::Queued(QueuedWork {
            id: op.0,
            thread: self.journal.caller,
            stream,
            part_of: part_of.map(|op| op.0),
            after: after.iter().map(|op| op.0).collect(),
            kind: kind(effect),
            reads,
            writes,
        }));
    }

    /// Notes that the calling thread knows work to be done.
    pub(crate) fn note_seen(&mut self, work: impl IntoIterator<Item = OpId>) {
        if self.journal.is_kept {
            let (thread, work) = (self.journal.caller, work.into_iter().map(|op| op.0).collect());
            self.journal.entries.push(JournalEntry::Seen { thread, work });
        }
    }

    /// Notes that the calling thread knows the work of a stream to be done.
    pub(crate) fn note_stream_seen(&mut self, key: u64) {
        if self.journal.is_kept {
            let before = self.all_predecessors(key).unwrap_or_default();
            self.note_seen(before);
        }
    }

    /// Notes that the calling thread knows the work of a context to be done.
    pub(crate) fn note_context_seen(&mut self, context: u64) {
        if self.journal.is_kept {
            let of = self.streams.values().filter(|stream| stream.context == context);
            let last: Vec<OpId> = of.filter_map(|stream| stream.last).collect();
            self.note_seen(last);
        }
    }
}

fn kind(effect: &Effect) -> WorkKind {
    match effect {
        Effect::Copy(_) => WorkKind::Copy,
        Effect::Fill(_) => WorkKind::Fill,
        Effect::Launch(_) => WorkKind::Launch,
        Effect::Nothing
        | Effect::Record { .. }
        | Effect::Host(_)
        | Effect::WriteValue { .. }
        | Effect::WaitValue { .. }
        | Effect::WaitElsewhere { .. }
        | Effect::Allocate { .. }
        | Effect::MovePages { .. }
        | Effect::SetConditions(_)
        | Effect::Conditional(_)
        | Effect::EndBody { .. }
        | Effect::FreeInOrder { .. } => WorkKind::Other,
    }
}

type Places = Vec<(u64, u64)>;

/// What copies and fills read and write.
fn accesses(effect: &Effect) -> (Places, Places) {
    if let Effect::Copy(transfer) = effect {
        let bytes = (transfer.width, transfer.height, transfer.depth);
        let place = |side: &super::memory::Endpoint| (side.address, side.span(bytes.0, bytes.1, bytes.2).unwrap_or(0));
        let from = if let Source::Memory(side) = &transfer.from { vec![place(side)] } else { Vec::new() };
        return (from, vec![place(&transfer.to)]);
    }
    if let Effect::Fill(fill) = effect {
        return (Vec::new(), vec![(fill.to.address, fill.to.span(fill.width, fill.height, 1).unwrap_or(0))]);
    }
    (Vec::new(), Vec::new())
}
