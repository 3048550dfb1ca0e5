//! What the allocator's bench prints: lines while it runs, one JSON object at the end.

use crate::alloc::host_memory::{HostMemory, LIMIT};

/// One figure of ours beside the peer's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: String,
    /// Nanoseconds.
    pub(crate) ours_ns: f64,
    /// The peer's nanoseconds, where there is a peer that does the same.
    pub(crate) peer_ns: Option<f64>,
}

impl Row {
    /// How many times our time the peer takes.
    #[must_use]
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.peer_ns.map(|peer_ns| peer_ns / self.ours_ns)
    }

    /// The row as a line of the table.
    #[must_use]
    pub(crate) fn line(&self) -> String {
        let number = |number: Option<f64>, digits| number.map_or("-".to_owned(), |number| format!("{number:.digits$}"));
        let Self { name, ours_ns, peer_ns } = self;
        format!("{name:<32} {ours_ns:>12.1} {:>12} {:>7}", number(*peer_ns, 1), number(self.ratio(), 2))
    }

    fn json(&self) -> String {
        let Self { name, ours_ns, peer_ns } = self;
        let (ours_ns, peer_ns, ratio) = (number(*ours_ns), peer_ns.map_or_else(null, number), self.ratio());
        let ratio = ratio.map_or_else(null, number);
        format!(r#"{{"name":"{name}","ours_ns":{ours_ns},"peer_ns":{peer_ns},"ratio":{ratio}}}"#)
    }
}

/// The head of the table.
#[must_use]
pub(crate) fn head(peer: &str) -> String {
    format!("{:<32} {:>12} {:>12} {:>7}", "", "ours ns", format!("{peer} ns"), "ratio")
}

/// The pair beside as much work of a thread's own: what threads cost each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Control {
    /// One pass of a loop with nothing in it.
    pub(crate) null_ns: f64,
    /// The pair, with one thread and with the most.
    pub(crate) pair_ns: (f64, f64),
    /// As many instructions on the thread's own data, likewise.
    pub(crate) private_ns: (f64, f64),
}

impl Control {
    /// The lines of the table.
    #[must_use]
    pub(crate) fn lines(&self, threads: usize) -> String {
        let Self { null_ns, pair_ns, private_ns } = self;
        format!(
            "{:<32} {null_ns:>12.2}\n{:<32} {:>12.1}\n{:<32} {:>12.1}  {:.2} times 1 thread\n{:<32} {:>12.1}\n{:<32} {:>12.1}  {:.2} times 1 thread",
            "control null body",
            "control private data, 1 thread",
            private_ns.0,
            format!("control private data, {threads} threads"),
            private_ns.1,
            private_ns.1 / private_ns.0,
            "control pair, 1 thread",
            pair_ns.0,
            format!("control pair, {threads} threads"),
            pair_ns.1,
            pair_ns.1 / pair_ns.0,
        )
    }

    fn json(&self, threads: usize) -> String {
        let Self { null_ns, pair_ns, private_ns } = self;
        let slow_down = |ns: (f64, f64)| number(ns.1 / ns.0);
        format!(
            r#"{{"threads":{threads},"null_ns":{},"private_one_ns":{},"private_all_ns":{},"private_slow_down":{},"pair_one_ns":{},"pair_all_ns":{},"pair_slow_down":{}}}"#,
            number(*null_ns),
            number(private_ns.0),
            number(private_ns.1),
            slow_down(*private_ns),
            number(pair_ns.0),
            number(pair_ns.1),
            slow_down(*pair_ns),
        )
    }
}

/// Calls of the raw driver that another stream's use of a block costs at least.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Floor {
    /// Recording an event.
    pub(crate) record_ns: f64,
    /// Asking for one that has happened.
    pub(crate) query_ns: f64,
    /// Having the stream write a pinned word and looking at that word; or why the driver cannot.
    pub(crate) word_ns: Result<(f64, f64), String>,
}

/// What a record and a query may be exceeded by.
const ALLOWANCE_NS: f64 = 60.0;

impl Floor {
    fn limit(&self) -> f64 {
        self.record_ns + self.query_ns + ALLOWANCE_NS
    }

    /// The lines of the table.
    #[must_use]
    pub(crate) fn lines(&self) -> String {
        let Self { record_ns, query_ns, word_ns } = self;
        let word = match word_ns {
            Ok((write_ns, poll_ns)) => {
                format!(
                    "{:<32} {write_ns:>12.1}\n{:<32} {poll_ns:>12.1}",
                    "  raw cuStreamWriteValue64", "  raw poll of a pinned word"
                )
            }
            Err(reason) => format!("{:<32} {:>12}  {reason}", "  raw cuStreamWriteValue64", "-"),
        };
        format!(
            "{:<32} {record_ns:>12.1}\n{:<32} {query_ns:>12.1}\n{word}\n{:<32} {:>12.1}",
            "  raw cuEventRecord",
            "  raw cuEventQuery, idle",
            "  limit: record + query + 60",
            self.limit(),
        )
    }

    fn json(&self) -> String {
        let (write_ns, poll_ns) =
            self.word_ns.as_ref().map_or_else(|_| (null(), null()), |ns| (number(ns.0), number(ns.1)));
        format!(
            r#"{{"event_record_ns":{},"event_query_ns":{},"write_value_ns":{write_ns},"poll_word_ns":{poll_ns},"record_stream_limit_ns":{}}}"#,
            number(self.record_ns),
            number(self.query_ns),
            number(self.limit()),
        )
    }
}

/// The line of the table for the books' host memory.
#[must_use]
pub(crate) fn host_memory_line(counted: &HostMemory) -> String {
    let HostMemory { heap_bytes, reserved_bytes, driver_bytes } = counted;
    let spoilt = if *driver_bytes == 0 { "" } else { "; NOT VALID: the driver uses the same heap" };
    let name = "host memory, B a live block";
    let (bytes, less) = (counted.per_block(), counted.per_block_less_share());
    format!(
        "{name:<32} {bytes:>12.1}  {less:.1} less {reserved_bytes}/2048 for what is held (limit {LIMIT}); {heap_bytes} B in all{spoilt}"
    )
}

/// Everything as one JSON object.
#[must_use]
pub(crate) fn json(rows: &[Row], floor: &Floor, control: &Control, threads: usize, memory: &HostMemory) -> String {
    let rows = rows.iter().map(Row::json).collect::<Vec<_>>().join(",");
    let HostMemory { heap_bytes, reserved_bytes, driver_bytes } = memory;
    let (per_block, less) = (number(memory.per_block()), number(memory.per_block_less_share()));
    let memory = format!(
        r#"{{"bytes_per_live_block":{per_block},"bytes_per_live_block_less_reserved":{less},"limit":{LIMIT},"heap_bytes":{heap_bytes},"reserved_bytes":{reserved_bytes},"driver_bytes":{driver_bytes}}}"#
    );
    let (floor, control) = (floor.json(), control.json(threads));
    format!(r#"{{"rows":[{rows}],"raw":{floor},"control":{control},"host_memory":{memory}}}"#)
}

/// JSON knows no infinities.
fn number(number: f64) -> String {
    if number.is_finite() { format!("{number:.3}") } else { null() }
}

fn null() -> String {
    "null".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(peer_ns: Option<f64>) -> Row {
        Row { name: "pair 65536 B, 1 thread".to_owned(), ours_ns: 50.0, peer_ns }
    }

    #[test]
    fn the_ratio_is_the_peers_time_over_ours() {
        assert_eq!(row(Some(75.0)).ratio(), Some(1.5));
        assert_eq!(row(None).ratio(), None);
        assert_eq!(row(Some(75.0)).line().split_whitespace().last(), Some("1.50"));
        assert_eq!(row(None).line().split_whitespace().last(), Some("-"));
    }

    #[test]
    fn the_json_object_has_its_shape() {
        let floor = Floor { record_ns: 100.0, query_ns: 40.0, word_ns: Err("missing \"it\"".to_owned()) };
        let control = Control { null_ns: 0.5, pair_ns: (50.0, 500.0), private_ns: (50.0, 400.0) };
        let memory = HostMemory { heap_bytes: 10_240_000, reserved_bytes: 20_480_000, driver_bytes: 0 };
        let text = json(&[row(Some(75.0)), row(None)], &floor, &control, 16, &memory);
        let expected = concat!(
            r#"{"rows":[{"name":"pair 65536 B, 1 thread","ours_ns":50.000,"peer_ns":75.000,"ratio":1.500},"#,
            r#"{"name":"pair 65536 B, 1 thread","ours_ns":50.000,"peer_ns":null,"ratio":null}],"#,
            r#""raw":{"event_record_ns":100.000,"event_query_ns":40.000,"write_value_ns":null,"poll_word_ns":null,"#,
            r#""record_stream_limit_ns":200.000},"control":{"threads":16,"null_ns":0.500,"private_one_ns":50.000,"#,
            r#""private_all_ns":400.000,"private_slow_down":8.000,"pair_one_ns":50.000,"pair_all_ns":500.000,"#,
            r#""pair_slow_down":10.000},"host_memory":{"bytes_per_live_block":1024.000,"bytes_per_live_block_less_reserved":1023.000,"limit":128,"#,
            r#""heap_bytes":10240000,"reserved_bytes":20480000,"driver_bytes":0}}"#,
        );
        assert_eq!(text, expected);
        assert!(!text.contains('\n'), "one line");
    }

    #[test]
    fn what_json_cannot_say_is_null() {
        assert_eq!(number(f64::INFINITY), "null");
        assert_eq!(number(f64::NAN), "null");
    }

    #[test]
    fn a_driver_on_the_same_heap_is_said() {
        let counted = HostMemory { heap_bytes: 5, reserved_bytes: 6, driver_bytes: 64 };
        assert!(host_memory_line(&counted).contains("NOT VALID"));
        assert!(!host_memory_line(&HostMemory { driver_bytes: 0, ..counted }).contains("NOT VALID"));
    }
}
