//! The flight recorder: what this rank called last, and how far it came (torch's `TORCH_NCCL_TRACE_BUFFER_SIZE`).
//!
//! Written as JSON with the names that torch's own dump has as JSON, so that what reads those finds its way.
//!
//! Invariant: as many calls are kept as was asked for, the newest.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use crate::call::Call;

/// The last calls of a group.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    limit: usize,
    /// How many calls there were.
    count: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    call: Call,
    created: SystemTime,
    completed: Option<SystemTime>,
    took: Option<Duration>,
    failure: Option<String>,
}

/// Whose calls they are.
pub(super) struct Owner<'a> {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) name: &'a str,
    pub(super) backend: &'a str,
    pub(super) timeout: Duration,
}

impl Recorder {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// A call begins. Its number among all of the group.
    pub(super) fn begin(&mut self, call: &Call) -> u64 {
        self.count += 1;
        if self.limit > 0 {
            if self.entries.len() >= self.limit {
                self.entries.pop_front();
            }
            let (call, created) = (call.clone(), SystemTime::now());
            self.entries.push_back(Entry { call, created, completed: None, took: None, failure: None });
        }
        self.count
    }

    /// A call has ended.
    pub(super) fn end(&mut self, number: u64, took: Option<Duration>, failure: Option<String>) {
        let first = self.count + 1 - self.entries.len() as u64;
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        if let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) {
            entry.took = took;
            match failure {
                Some(failure) => entry.failure = Some(failure),
                None => entry.completed = Some(SystemTime::now()),
            }
        }
    }

    /// All calls that are kept, the oldest first, as JSON.
    pub(super) fn to_json(&self, owner: &Owner<'_>) -> String {
        let Owner { rank, size, name, backend, .. } = owner;
        let first = self.count - self.entries.len() as u64;
        let entries: Vec<String> =
            self.entries.iter().zip(first..).map(|(entry, number)| entry.to_json(number, owner)).collect();
        let last = |is_counted: &dyn Fn(&Entry) -> bool| {
            let found = self.entries.iter().rev().find(|entry| !entry.call.operation.is_message() && is_counted(entry));
            found.map_or(-1, |entry| entry.call.sequence.cast_signed())
        };
        let (begun, ended) = (last(&|_| true), last(&|entry| entry.completed.is_some()));
        format!(
            "{{\"version\":\"2.9\",\"rank\":{rank},\"world_size\":{size},\
             \"pg_config\":{{{name}:{{\"name\":{name},\"backend\":{backend}}}}},\
             \"pg_status\":{{{name}:{{\"last_enqueued_collective\":{begun},\"last_completed_collective\":{ended}}}}},\
             \"entries\":[{}]}}\n",
            entries.join(","),
            name = quoted(name),
            backend = quoted(backend),
        )
    }
}

impl Entry {
    fn to_json(&self, number: u64, owner: &Owner<'_>) -> String {
        let call = &self.call;
        let is_message = call.operation.is_message();
        let state = if self.completed.is_some() { "completed" } else { "scheduled" };
        let (collective, message) = if is_message { (0, call.sequence) } else { (call.sequence, 0) };
        let name = format!("{}:{}", owner.backend, call.operation);
        let dtypes: Vec<String> = call.dtype.iter().map(|dtype| quoted(dtype)).collect();
        let sizes = if call.dtype.is_some() { format!("{:?}", call.sizes) } else { String::new() };
        let mut text = format!(
            "{{\"record_id\":{number},\"collective_seq_id\":{collective},\"p2p_seq_id\":{message},\"op_id\":{},\
             \"process_group\":[{},\"\"],\"profiling_name\":{},\"call\":{},\"is_p2p\":{is_message},\
             \"input_sizes\":[{sizes}],\"input_dtypes\":[{}],\"state\":\"{state}\",\"time_created_ns\":{},\
             \"timeout_ms\":{},\"retired\":{}",
            number + 1,
            quoted(owner.name),
            quoted(&name),
            quoted(&call.to_string()),
            dtypes.join(","),
            nanoseconds(self.created),
            owner.timeout.as_millis(),
            self.completed.is_some() || self.failure.is_some(),
        );
        let mut field = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = write!(text, ",\"{name}\":{value}");
            }
        };
        field("time_discovered_completed_ns", self.completed.map(|time| nanoseconds(time).to_string()));
        field("duration_ms", self.took.map(|took| format!("{:.6}", took.as_secs_f64() * 1e3)));
        field("failure", self.failure.as_deref().map(quoted));
        text.push('}');
        text
    }
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Owner, Recorder, quoted};
    use crate::call::{Call, Operation};

    #[test]
    fn the_newest_calls_are_kept_and_end_where_they_are() {
        let mut recorder = Recorder::new(2);
        let numbers: Vec<u64> =
            (1..=3).map(|sequence| recorder.begin(&Call { sequence, ..Call::new(Operation::Barrier) })).collect();
        assert_eq!(numbers, [1, 2, 3]);
        // The first is forgotten already.
        recorder.end(1, None, None);
        recorder.end(2, Some(Duration::from_millis(3)), None);
        recorder.end(3, None, Some("it \"failed\"\n".to_owned()));
        let owner = Owner { rank: 1, size: 2, name: "0", backend: "store", timeout: Duration::from_secs(1) };
        let text = recorder.to_json(&owner);
        assert_eq!(text.matches("\"record_id\"").count(), 2);
        assert!(text.contains("\"record_id\":1,\"collective_seq_id\":2"), "{text}");
        assert!(text.contains("\"duration_ms\":3.000000"), "{text}");
        assert!(text.contains("\"failure\":\"it \\\"failed\\\"\\u000a\""), "{text}");
        assert!(text.contains("\"last_enqueued_collective\":3,\"last_completed_collective\":2"), "{text}");
        assert_eq!(Recorder::new(0).begin(&Call::new(Operation::Barrier)), 1);
        assert_eq!(quoted("a\\b"), "\"a\\\\b\"");
    }
}
