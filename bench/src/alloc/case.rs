//! The rows of the allocator's bench: what each does, what it is called, and what the same is called elsewhere.

use crate::alloc::peer::Request;

/// What is done with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Takes so many bytes and gives them back.
    Pair(u64),
    /// Gives one of so many live blocks back and takes another in its place.
    Replace(usize),
    /// One thread takes so many bytes, its partner gives them back.
    Remote(u64),
    /// Takes so many bytes, notes a second stream's use, gives them back.
    RecordStream(u64),
    /// Reads all statistics.
    Stats,
    /// Reads all statistics of a runtime on which so many streams have allocated once, and nothing changes meanwhile.
    StatsOfStreams(usize),
    /// Reads all statistics under their names.
    Flattened,
    /// Takes so many bytes; quantiles of single calls.
    Latency(u64),
}

/// One row, or three for a latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    /// What is done.
    pub(crate) kind: Kind,
    /// By how many threads, each on a stream of its own.
    pub(crate) threads: usize,
}

/// The quantiles of a latency.
pub(crate) const QUANTILES: [&str; 3] = ["p50", "p99", "p99.9"];

/// The size of rows that have one size only.
pub(crate) const BYTES: u64 = 65536;

/// The most threads of a row.
pub(crate) const THREADS_MAX: usize = 16;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All rows in the order in which they run.
#[must_use]
pub(crate) fn all() -> Vec<Case> {
    let one = |kind| Case { kind, threads: 1 };
    let pairs = [512, 64 * KIB, MIB, 4 * MIB, 64 * MIB].map(|bytes| one(Kind::Pair(bytes)));
    let threads = [2, 4, 8, THREADS_MAX].map(|threads| Case { kind: Kind::Pair(BYTES), threads });
    let replace = [100, 1_000, 10_000].map(|live| one(Kind::Replace(live)));
    let rest = [
        Case { kind: Kind::Remote(BYTES), threads: 2 },
        one(Kind::Stats),
        one(Kind::StatsOfStreams(64)),
        one(Kind::Flattened),
        one(Kind::Latency(BYTES)),
        // Last, since the raw calls that it is compared with come next.
        one(Kind::RecordStream(BYTES)),
    ];
    pairs.into_iter().chain(threads).chain(replace).chain(rest).collect()
}

impl Case {
    /// What the rows are called.
    #[must_use]
    pub(crate) fn names(&self) -> Vec<String> {
        let threads = self.threads;
        match self.kind {
            Kind::Pair(bytes) if threads == 1 => vec![format!("pair {bytes} B, 1 thread")],
            Kind::Pair(bytes) => vec![format!("pair {bytes} B, {threads} threads")],
            Kind::Replace(live) => vec![format!("replace {live} live")],
            Kind::Remote(bytes) => vec![format!("remote free {bytes} B")],
            Kind::RecordStream(bytes) => vec![format!("record_stream {bytes} B")],
            Kind::Stats => vec!["memory_stats raw structure".to_owned()],
            Kind::StatsOfStreams(streams) => vec![format!("memory_stats raw, {streams} streams")],
            Kind::Flattened => vec!["memory_stats flattened".to_owned()],
            Kind::Latency(bytes) => QUANTILES.map(|quantile| format!("latency {bytes} B {quantile}")).to_vec(),
        }
    }

    /// The same as a request to a harness, if harnesses know it.
    #[must_use]
    pub(crate) fn request(&self) -> Option<Request> {
        let (kind, argument) = match self.kind {
            Kind::Pair(bytes) => ("pair", bytes),
            Kind::Replace(live) => ("replace", live as u64),
            Kind::Remote(bytes) => ("remote", bytes),
            Kind::RecordStream(bytes) => ("record", bytes),
            Kind::Stats => ("stats", 0),
            Kind::StatsOfStreams(_) | Kind::Flattened => return None,
            Kind::Latency(bytes) => ("latency", bytes),
        };
        Some(Request { kind, argument, threads: self.threads })
    }

    /// The name of the same figure in the output of PyTorch's own bench, if it is there.
    #[must_use]
    pub(crate) fn figure_name(&self) -> Option<String> {
        match self.kind {
            Kind::Pair(bytes) if self.threads == 1 => Some(format!("alloc_free_pair_{bytes}B")),
            Kind::Pair(_) => Some(format!("threads_{}_pair_per_op", self.threads)),
            Kind::Replace(live) => Some(format!("churn_live_{live}")),
            Kind::RecordStream(_) => Some("record_stream_then_free".to_owned()),
            Kind::Stats => Some("getDeviceStats".to_owned()),
            Kind::Remote(_) | Kind::StatsOfStreams(_) | Kind::Flattened | Kind::Latency(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_begin_with_what_is_done() {
        let names: Vec<String> = all().iter().flat_map(Case::names).collect();
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        let heads = ["pair ", "replace ", "remote free ", "record_stream ", "memory_stats ", "latency "];
        for name in &names {
            assert!(heads.iter().any(|head| name.starts_with(head)), "{name}");
        }
        for name in
            ["pair 65536 B, 1 thread", "pair 65536 B, 16 threads", "replace 10000 live", "latency 65536 B p99.9"]
        {
            assert!(names.iter().any(|found| found == name), "{name}");
        }
    }

    #[test]
    fn threads_differ_only_where_the_size_has_figures_for_them() {
        let threaded = all().into_iter().filter(|case| matches!(case.kind, Kind::Pair(_)) && case.threads > 1);
        assert!(threaded.into_iter().all(|case| case.kind == Kind::Pair(BYTES)));
    }
}
