//! The flight recorder: what this rank called last, in all its groups, and how far it came (torch's
//! `TORCH_NCCL_TRACE_BUFFER_SIZE`).
//!
//! Written as torch writes it, by names that its analyser (`torchfrtrace`) knows: as a pickle, and as JSON. A call has two
//! names more, `call` in words and `failure` where it failed. There are no stacks.
//!
//! Invariants: as many calls are kept as was asked for, the newest. No other lock is taken while the recorder's is held.

mod written;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, SystemTime};

use aten_cuda::{DType, Tensor};

use crate::call::{Call, Operation};

/// A group that a rank is in.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// The ranks of the members in the first group.
    pub(super) ranks: Vec<usize>,
    /// The rank in this group.
    pub(super) rank: usize,
    pub(super) backend: &'static str,
    pub(super) timeout: Duration,
}

/// What a call does it with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensors<'a> {
    pub(super) inputs: &'a [Tensor],
    pub(super) outputs: &'a [Tensor],
}

/// The last calls of a rank.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    limit: usize,
    log: Mutex<Log>,
    /// Held while a file is written.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Log {
    members: Vec<Member>,
    /// How many calls there were.
    count: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Which of the groups.
    member: usize,
    call: Call,
    /// How many collectives and messages of the group there were then, with this one.
    counts: [u64; 2],
    inputs: Shapes,
    outputs: Shapes,
    thread: Thread,
    created: SystemTime,
    completed: Option<SystemTime>,
    took: Option<Duration>,
    failure: Option<String>,
}

/// Sizes and dtypes of tensors.
type Shapes = Vec<(Vec<i64>, DType)>;

impl Recorder {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more group; its number here.
    pub(super) fn join(&self, member: Member) -> usize {
        let mut log = self.log();
        log.members.push(member);
        log.members.len() - 1
    }

    /// A call of a group begins, which has called so many collectives and messages with it. Its number among all.
    pub(super) fn begin(&self, member: usize, call: &Call, counts: [u64; 2], tensors: Tensors<'_>) -> u64 {
        let mut log = self.log();
        log.count += 1;
        if self.limit > 0 {
            if log.entries.len() >= self.limit {
                log.entries.pop_front();
            }
            log.entries.push_back(Entry {
                member,
                call: call.clone(),
                counts,
                inputs: shapes_of(tensors.inputs, call.operation == Operation::ReduceScatterList),
                outputs: shapes_of(tensors.outputs, call.operation == Operation::AllGatherList),
                thread: thread::current(),
                created: SystemTime::now(),
                completed: None,
                took: None,
                failure: None,
            });
        }
        log.count
    }

    /// A call has ended.
    pub(super) fn end(&self, number: u64, took: Option<Duration>, failure: Option<String>) {
        let mut log = self.log();
        let first = log.count + 1 - log.entries.len() as u64;
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        if let Some(entry) = place.and_then(|place| log.entries.get_mut(place)) {
            entry.took = took;
            match failure {
                Some(failure) => entry.failure = Some(failure),
                None => entry.completed = Some(SystemTime::now()),
            }
        }
    }

    /// All calls that are kept, the oldest first, as JSON.
    pub(super) fn to_json(&self) -> String {
        written::json(&self.log())
    }

    /// The same as a pickle.
    pub(super) fn to_pickle(&self) -> Vec<u8> {
        written::pickle(&self.log())
    }

    /// Writes the pickle into a file. Groups that are given up at the same time write one after another.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        // The name is predictable and the folder may be `/tmp`: a symbolic link with this name is replaced, not
        // followed.
        Ok(regular_files::replace(path, |file| file.write_all(&self.to_pickle()))?)
    }
}

/// The sizes and dtypes of tensors; of a list that is brought together, those of the whole.
fn shapes_of(tensors: &[Tensor], is_whole: bool) -> Shapes {
    let shape = |tensor: &Tensor| (tensor.sizes().to_vec(), tensor.dtype());
    match tensors.first() {
        Some(first) if is_whole => {
            let sizes = [tensors.len().cast_signed() as i64].into_iter().chain(first.sizes().iter().copied());
            vec![(sizes.collect(), first.dtype())]
        }
        _ => tensors.iter().map(shape).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aten_cuda::{DType, Tensor};

    use super::{Member, Recorder, Tensors};
    use crate::call::{Call, Operation};

    const NONE: Tensors<'static> = Tensors { inputs: &[], outputs: &[] };

    fn member(name: &str, backend: &'static str) -> Member {
        Member { name: name.to_owned(), ranks: vec![0, 3], rank: 1, backend, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn the_newest_calls_are_kept_and_end_where_they_are() {
        let recorder = Recorder::new(2);
        assert_eq!([recorder.join(member("0", "store")), recorder.join(member("1", "nccl"))], [0, 1]);
        let barrier = Call::new(Operation::Barrier);
        let numbers: Vec<u64> = (1..=3).map(|sequence| recorder.begin(0, &barrier, [sequence, 0], NONE)).collect();
        assert_eq!(numbers, [1, 2, 3]);
        // The first is forgotten already.
        recorder.end(1, None, None);
        recorder.end(2, Some(Duration::from_millis(3)), None);
        recorder.end(3, None, Some("it \"failed\"\n".to_owned()));
        let text = recorder.to_json();
        assert_eq!(text.matches("\"record_id\"").count(), 2);
        for part in [
            "\"record_id\":1,",
            "\"duration_ms\":3.0",
            "\"failure\":\"it \\\"failed\\\"\\u000a\"",
            "\"pg_status\":{\"0\":{\"last_completed_collective\":\"2\",\"last_enqueued_collective\":\"3\",\"last_started_collective\":\"2\"}",
            "\"1\":{\"last_completed_collective\":\"-1\",\"last_enqueued_collective\":\"-1\",\"last_started_collective\":\"-1\"}",
            "\"pg_config\":{\"0\":{\"desc\":\"default_pg\",\"name\":\"0\",\"ranks\":\"[0, 3]\"},\"1\":{\"desc\":\"undefined\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let silent = Recorder::new(0);
        silent.join(member("0", "store"));
        assert_eq!(silent.begin(0, &barrier, [1, 0], NONE), 1);
        assert!(silent.to_json().contains("\"entries\":[]"));
    }

    #[test]
    fn calls_have_the_names_and_sizes_that_torch_gives_them() {
        let recorder = Recorder::new(9);
        recorder.join(member("0", "nccl"));
        let part = Tensor::zeros(&[2, 5], DType::BF16, "cpu").unwrap();
        let list = [part.clone(), part.clone()];
        let entry = |call: Call, inputs: &[Tensor], outputs: &[Tensor]| {
            recorder.begin(0, &call, [4, 7], Tensors { inputs, outputs });
            let text = recorder.to_json();
            text[text.rfind("{\"call\"").unwrap()..].to_owned()
        };
        let one = std::slice::from_ref(&part);
        let send = entry(Call::new(Operation::Send).between(Some(0), 0), one, one);
        for part in
            ["\"nccl:send 1->0\"", "\"collective_seq_id\":4", "\"p2p_seq_id\":7", "\"op_id\":11", "\"is_p2p\":true"]
        {
            assert!(send.contains(part), "{part}: {send}");
        }
        assert!(entry(Call::new(Operation::Recv).between(Some(0), 0), one, one).contains("\"nccl:recv 1<-0\""));
        let gathered = entry(Call::new(Operation::AllGatherList), one, &list);
        for part in ["\"nccl:all_gather\"", "\"output_sizes\":[[2,2,5]]", "\"input_sizes\":[[2,5]]", "[\"BFloat16\"]"] {
            assert!(gathered.contains(part), "{part}: {gathered}");
        }
        let barrier = entry(Call::new(Operation::Barrier), &[], &[]);
        for part in ["\"nccl:all_reduce_barrier\"", "\"input_sizes\":[[1]]", "\"output_dtypes\":[\"Float\"]"] {
            assert!(barrier.contains(part), "{part}: {barrier}");
        }
        assert!(entry(Call::new(Operation::ReduceScatterList), &list, one).contains("\"input_sizes\":[[2,2,5]]"));
        assert!(entry(Call::new(Operation::AllGather), one, one).contains("\"nccl:_all_gather_base\""));
    }
}
