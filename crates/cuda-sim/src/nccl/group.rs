//! Groups of calls: what a thread asks for between `ncclGroupStart` and `ncclGroupEnd` begins at the end, at once.
//!
//! What a group asks of one communicator is one batch. Its calls may be on several streams: then it runs on the first one,
//! after what is on the others, and before what comes there later.

use std::sync::Arc;

use cuda_sys::ncclResult_t;

use super::work::{Batch, Part};
use super::{Answer, IN_PROGRESS, INVALID_USAGE};
use crate::call::Call;
use crate::claim::Ptr;
use crate::model::Effect;
use crate::model::engine::Timing;

/// The kernel that batches are launched as.
const KERNEL: &str = "library_collective";

/// What a thread has asked for in groups that are not at their end.
#[derive(Debug, Default)]
pub(crate) struct Group {
    depth: u32,
    /// Communicators that wait for other ranks.
    pub(super) joining: Vec<u64>,
    /// Communicators that make others.
    pub(super) making: Vec<u64>,
    /// Communicator, stream and part of each call, in order.
    calls: Vec<(u64, u64, &'static str, Part)>,
    /// The first call that was refused: the whole group is then.
    failed: Option<ncclResult_t>,
}

pub(super) fn start(call: &mut Call<'_>) -> Answer {
    let thread = call.thread;
    call.nccl.groups.entry(thread).or_default().depth += 1;
    Ok(())
}

pub(super) fn end(call: &mut Call<'_>) -> Answer {
    let thread = call.thread;
    let Some(group) = call.open_group() else {
        return Err(call.refuse(INVALID_USAGE, "ncclGroupEnd without ncclGroupStart"));
    };
    group.depth -= 1;
    if group.depth > 0 {
        return Ok(());
    }
    let group = call.nccl.groups.remove(&thread).unwrap_or_default();
    call.run_group(group)
}

impl Call<'_> {
    /// The group that the thread is in.
    pub(super) fn open_group(&mut self) -> Option<&mut Group> {
        let thread = self.thread;
        self.nccl.groups.get_mut(&thread)
    }

    /// What a group makes of a call that was refused.
    pub(super) fn note_refusal<T>(&mut self, answer: Answer<T>) -> Answer<T> {
        if let (Err(status), Some(group)) = (&answer, self.open_group()) {
            group.failed.get_or_insert(*status);
        }
        answer
    }

    /// What an injected fault makes of the thread's group: a call that fails refuses the group, and an end that fails ends it.
    pub(crate) fn note_fault_in_group(&mut self, symbol: &'static str, code: u32) {
        let thread = self.thread;
        match symbol {
            "ncclGroupEnd" => drop(self.nccl.groups.remove(&thread)),
            "ncclGroupStart" => {}
            _ if symbol.starts_with("nccl") => drop(self.note_refusal(Err::<(), _>(ncclResult_t(code)))),
            _ => {}
        }
    }

    /// Takes a checked call: into the thread's group, or as a group of its own.
    pub(super) fn take(&mut self, comm: u64, stream: u64, part: Part) -> Answer {
        let entry = (comm, stream, self.calling, part);
        if let Some(group) = self.open_group() {
            group.calls.push(entry);
            return Ok(());
        }
        self.run_group(Group { calls: vec![entry], ..Group::default() })
    }

    fn run_group(&mut self, group: Group) -> Answer {
        if let Some(failed) = group.failed {
            return Err(failed);
        }
        let mut goes_on = false;
        for key in group.joining {
            if self.nccl.comms.get(&key).is_some_and(|comm| comm.is_blocking) {
                self.finish_joining(key)?;
            } else {
                goes_on = true;
            }
        }
        for key in group.making {
            if self.nccl.comms.get(&key).is_some_and(|comm| comm.is_blocking) {
                self.finish_making(key)?;
            } else {
                goes_on = true;
            }
        }
        let mut comms: Vec<u64> = Vec::new();
        for (comm, ..) in &group.calls {
            if !comms.contains(comm) {
                comms.push(*comm);
            }
        }
        for key in comms {
            let mine = || group.calls.iter().filter(|(comm, ..)| *comm == key);
            let mut streams: Vec<u64> = Vec::new();
            for (_, stream, ..) in mine() {
                if !streams.contains(stream) {
                    streams.push(*stream);
                }
            }
            let name = mine().map(|(_, _, name, _)| *name).next().unwrap_or("ncclGroupEnd");
            let parts = mine().map(|(.., part)| part.clone()).collect();
            self.queue_batch(key, &streams, name, parts)?;
            goes_on |= self.nccl.comms.get(&key).is_some_and(|comm| !comm.is_blocking);
        }
        if goes_on { Err(IN_PROGRESS) } else { Ok(()) }
    }

    /// Queues a batch on the first of its streams, after the work that its communicator was given before.
    fn queue_batch(&mut self, key: u64, streams: &[u64], name: &'static str, parts: Vec<Part>) -> Answer {
        let given = Ptr::from_params(crate::claim::handle(key));
        let seat = self.seat(given)?;
        let (context, ranks, before) = {
            let comm = self.comm(given)?;
            (comm.context, comm.ranks, comm.stream)
        };
        let first = streams[0];
        let captures = self.is_capturing(first);
        if !captures {
            self.order(first, before.into_iter().filter(|before| *before != first).chain(streams[1..].iter().copied()));
        }
        let begin = self.engine.next();
        self.queue_work::<ncclResult_t>(context, first, KERNEL, Arc::new(Batch::new(name, seat, ranks, parts)))?;
        if captures {
            return Ok(());
        }
        for &other in &streams[1..] {
            self.order(other, [first]);
        }
        let end = self.engine.next();
        let new: Vec<_> = (begin.0..end.0).map(crate::model::engine::OpId).collect();
        let pending: Vec<_> = self.comm(given)?.pending.drain(..).collect();
        let kept = pending.into_iter().chain(new).filter(|&op| self.is_pending(op)).collect();
        let comm = self.comm(given)?;
        comm.pending = kept;
        comm.stream = Some(first);
        Ok(())
    }

    /// Has what comes on a stream wait for what is on others. A stream that is gone has its work behind it.
    fn order(&mut self, stream: u64, others: impl IntoIterator<Item = u64>) {
        let Ok(key) = self.stream_named(stream) else { return };
        for other in others {
            let before =
                self.stream_named(other).ok().and_then(|other| self.predecessors(other).ok()).unwrap_or_default();
            if !before.is_empty() {
                // It fails for a stream that is gone, which the work itself finds.
                let _ = self.enqueue(key, &before, Timing::default(), Effect::Nothing);
            }
        }
    }
}
