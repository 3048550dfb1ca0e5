//! What ranks bring to collectives and messages, and what they get: bookkeeping without a device.
//!
//! A rank brings a batch: what one group of calls asks of a communicator. Collectives are matched by their order, which is
//! one count for each rank; messages by sender, receiver and order. A batch is done when all of its parts were matched.
//!
//! **Invariants:** a batch that was brought is waiting, done or forgotten. Once something failed, everything fails alike.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use cuda_sys::ncclResult_t;

use super::arithmetic::{self, Kind, Op};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    AllReduce,
    Reduce { root: usize },
    Broadcast { root: usize },
    AllGather,
    ReduceScatter,
    Send { peer: usize },
    Recv { peer: usize },
}

/// A call, as far as others have to agree with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) what: What,
    /// Elements, as the function counts them.
    pub(super) count: u64,
    pub(super) kind: Kind,
    pub(super) op: Op,
}

impl Asked {
    fn agrees(&self, other: &Self) -> bool {
        // Only sums have an operation, and factors are each rank's own.
        let reduces = matches!(self.what, What::AllReduce | What::Reduce { .. } | What::ReduceScatter);
        let same_op = std::mem::discriminant(&self.op) == std::mem::discriminant(&other.op);
        self.what == other.what && self.count == other.count && self.kind == other.kind && (!reduces || same_op)
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, count, kind, op } = self;
        match what {
            What::AllReduce => write!(f, "AllReduce({count} {kind}, {op})"),
            What::Reduce { root } => write!(f, "Reduce({count} {kind}, {op}, root {root})"),
            What::Broadcast { root } => write!(f, "Broadcast({count} {kind}, root {root})"),
            What::AllGather => write!(f, "AllGather({count} {kind})"),
            What::ReduceScatter => write!(f, "ReduceScatter({count} {kind}, {op})"),
            What::Send { peer } => write!(f, "Send({count} {kind}, to rank {peer})"),
            What::Recv { peer } => write!(f, "Recv({count} {kind}, from rank {peer})"),
        }
    }
}

/// Why nothing goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: ncclResult_t,
    pub(super) text: String,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Others have not come yet.
    Waiting,
    /// What each part is given; nothing for those that only send.
    Done(Vec<Vec<u8>>),
    Failed(Failure),
}

/// A part that a rank has brought.
#[derive(Debug)]
struct Came {
    rank: usize,
    batch: u64,
    part: usize,
    asked: Asked,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Line {
    sent: VecDeque<Came>,
    awaited: VecDeque<Came>,
}

#[derive(Debug)]
struct Batch {
    rank: usize,
    open: usize,
    results: Vec<Vec<u8>>,
    since: Instant,
}

/// Where the ranks of a communicator meet.
#[derive(Debug)]
pub(super) struct Exchange {
    ranks: usize,
    /// Collectives that each rank has come to.
    counts: Vec<u64>,
    /// What each rank has asked for last.
    last: Vec<Option<Asked>>,
    collectives: BTreeMap<u64, Vec<Came>>,
    lines: BTreeMap<(usize, usize), Line>,
    batches: BTreeMap<u64, Batch>,
    next: u64,
    /// Ranks that will not come any more, and why.
    gone: BTreeMap<usize, &'static str>,
    failure: Option<Failure>,
}

impl Exchange {
    pub(super) fn new(ranks: usize) -> Self {
        Self {
            ranks,
            counts: vec![0; ranks],
            last: vec![None; ranks],
            collectives: BTreeMap::new(),
            lines: BTreeMap::new(),
            batches: BTreeMap::new(),
            next: 0,
            gone: BTreeMap::new(),
            failure: None,
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Ends everything that waits, and all that comes.
    pub(super) fn fail(&mut self, status: ncclResult_t, text: String) {
        self.failure.get_or_insert(Failure { status, text });
    }

    /// Takes what a rank brings; the batch's number.
    pub(super) fn bring(&mut self, rank: usize, parts: Vec<(Asked, Vec<u8>)>) -> u64 {
        let batch = self.next;
        self.next += 1;
        let open = parts.len();
        if self.gone.contains_key(&rank) {
            return batch;
        }
        self.batches.insert(batch, Batch { rank, open, results: vec![Vec::new(); open], since: Instant::now() });
        if self.failure.is_some() {
            return batch;
        }
        for (part, (asked, bytes)) in parts.into_iter().enumerate() {
            self.last[rank] = Some(asked);
            let came = Came { rank, batch, part, asked, bytes };
            match asked.what {
                What::Send { peer } => self.line(rank, peer).sent.push_back(came),
                What::Recv { peer } => self.line(peer, rank).awaited.push_back(came),
                _ => {
                    let number = self.counts[rank];
                    self.counts[rank] += 1;
                    self.collectives.entry(number).or_default().push(came);
                    self.finish_collective(number);
                }
            }
        }
        self.finish_messages();
        self.look_for_gone();
        batch
    }

    fn line(&mut self, from: usize, to: usize) -> &mut Line {
        self.lines.entry((from, to)).or_default()
    }

    fn finish_collective(&mut self, number: u64) {
        let Some(came) = self.collectives.get(&number) else { return };
        let first = &came[0];
        if let Some(other) = came.iter().find(|other| !other.asked.agrees(&first.asked)) {
            let text = format!(
                "ranks called different collectives, each its number {number}: rank {} called {}, rank {} called {}",
                first.rank, first.asked, other.rank, other.asked
            );
            self.fail(ncclResult_t::ncclInvalidUsage, text);
            return;
        }
        if came.len() < self.ranks {
            return;
        }
        let mut came = self.collectives.remove(&number).unwrap_or_default();
        came.sort_by_key(|came| came.rank);
        let brought: Vec<(Asked, &[u8])> = came.iter().map(|came| (came.asked, &came.bytes[..])).collect();
        let results = arithmetic::results(&brought);
        for (came, result) in came.iter().zip(results) {
            self.give(came.batch, came.part, result);
        }
    }

    fn give(&mut self, batch: u64, part: usize, result: Vec<u8>) {
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.results[part] = result;
            batch.open -= 1;
        }
    }

    fn finish_messages(&mut self) {
        let mut matched = Vec::new();
        for line in self.lines.values_mut() {
            while !line.sent.is_empty() && !line.awaited.is_empty() {
                matched.extend(line.sent.pop_front().zip(line.awaited.pop_front()));
            }
        }
        self.lines.retain(|_, line| !line.sent.is_empty() || !line.awaited.is_empty());
        for (sent, awaited) in matched {
            if (sent.asked.count, sent.asked.kind) != (awaited.asked.count, awaited.asked.kind) {
                let text = format!(
                    "a message is sent as one and awaited as another: rank {} called {}, rank {} called {}",
                    sent.rank, sent.asked, awaited.rank, awaited.asked
                );
                self.fail(ncclResult_t::ncclInvalidUsage, text);
                return;
            }
            self.give(sent.batch, sent.part, Vec::new());
            self.give(awaited.batch, awaited.part, sent.bytes);
        }
    }

    /// What became of a batch; when it is done, it is forgotten.
    pub(super) fn outcome(&mut self, batch: u64) -> Outcome {
        match self.batches.get(&batch) {
            Some(found) if found.open == 0 => {
                Outcome::Done(self.batches.remove(&batch).map(|batch| batch.results).unwrap_or_default())
            }
            found => {
                if let Some(failure) = &self.failure {
                    return Outcome::Failed(failure.clone());
                }
                let lost = || Failure {
                    status: ncclResult_t::ncclInvalidUsage,
                    text: "the communicator was aborted".to_owned(),
                };
                if found.is_some() { Outcome::Waiting } else { Outcome::Failed(lost()) }
            }
        }
    }

    /// A rank will not come any more. What others wait for it in fails.
    pub(super) fn leave(&mut self, rank: usize, how: &'static str) {
        self.gone.insert(rank, how);
        self.batches.retain(|_, batch| batch.rank != rank || batch.open == 0);
        let left: Vec<u64> = self.batches.keys().copied().collect();
        // What it has sent may still be taken; what it waited for, nobody takes.
        for line in self.lines.values_mut() {
            line.awaited.retain(|came| left.contains(&came.batch));
        }
        self.look_for_gone();
    }

    /// Fails where somebody waits for a rank that has gone.
    fn look_for_gone(&mut self) {
        let waits = |came: &Came| self.batches.contains_key(&came.batch);
        let mut found = None;
        for (&rank, &how) in &self.gone {
            let lacks = |came: &&Vec<Came>| came.iter().all(|came| came.rank != rank);
            let collective = self.collectives.values().filter(lacks).flatten().find(|came| waits(came));
            let sent = self.lines.iter().filter(|((_, to), _)| *to == rank).flat_map(|(_, line)| &line.sent);
            let awaited = self.lines.iter().filter(|((from, _), _)| *from == rank).flat_map(|(_, line)| &line.awaited);
            let waiting = collective.or_else(|| sent.chain(awaited).find(|came| waits(came)));
            if let Some(came) = waiting {
                found = Some(format!("rank {rank} {how} while rank {} waits for it in {}", came.rank, came.asked));
                break;
            }
        }
        if let Some(text) = found {
            self.fail(ncclResult_t::ncclRemoteError, text);
        }
    }

    /// Fails where a batch has waited for so long; whether it did.
    pub(super) fn expire(&mut self, patience: Duration) -> bool {
        if self.failure.is_some() {
            return false;
        }
        let late = self.batches.values().find(|batch| batch.open > 0 && batch.since.elapsed() > patience);
        let Some(rank) = late.map(|batch| batch.rank) else { return false };
        let text = format!("nothing came for {} ms: {}", patience.as_millis(), self.told(rank));
        self.fail(ncclResult_t::ncclInvalidUsage, text);
        true
    }

    /// Who waits in what, and where the others are.
    fn told(&self, rank: usize) -> String {
        let at = |rank: usize| match &self.last[rank] {
            Some(asked) => format!("{asked} (collectives so far: {})", self.counts[rank]),
            None => "nothing yet".to_owned(),
        };
        let others = (0..self.ranks).filter(|other| *other != rank && !self.waits(*other));
        let others: Vec<String> = others.map(|other| format!("rank {other} has called {} last", at(other))).collect();
        let waiting: Vec<String> = (0..self.ranks)
            .filter(|other| self.waits(*other))
            .map(|other| format!("rank {other} waits in {}", at(other)))
            .collect();
        waiting.into_iter().chain(others).collect::<Vec<_>>().join("; ")
    }

    fn waits(&self, rank: usize) -> bool {
        self.batches.values().any(|batch| batch.rank == rank && batch.open > 0)
    }
}
