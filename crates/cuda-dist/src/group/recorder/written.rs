//! What the recorder holds, as torch writes it.
//!
//! Invariant: both forms have the same names. As JSON torch has texts for the numbers of groups, 0 for a time that has not
//! come, and no stacks, which here are empty in a pickle.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use aten_cuda::DType;

use super::{Entry, Log, Member, Shapes};
use crate::backend::nccl;
use crate::call::Operation;
use crate::group::FIRST_GROUP;

/// The version of what is written: that of PyTorch 2.11.
const VERSION: &str = "2.10";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Pickle,
    Json,
}

/// What both forms can say.
enum Value {
    None,
    Bool(bool),
    Whole(i64),
    Float(f64),
    Text(String),
    Pair(String, String),
    List(Vec<Value>),
    Dict(BTreeMap<String, Value>),
}

/// A pickle of the second protocol, as torch's.
pub(super) fn pickle(log: &Log) -> Vec<u8> {
    let mut bytes = vec![0x80, 2];
    of_log(log, Form::Pickle).pickle(&mut bytes);
    bytes.push(b'.');
    bytes
}

pub(super) fn json(log: &Log) -> String {
    let mut text = String::new();
    of_log(log, Form::Json).json(&mut text);
    text
}

impl Value {
    /// The operations of Python's pickle machine that leave the value on its stack.
    fn pickle(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::None => bytes.push(b'N'),
            Self::Bool(value) => bytes.extend([0x88 + u8::from(!value)]),
            // Eight bytes, of which the sign is the last.
            Self::Whole(value) => bytes.extend([0x8a, 8].into_iter().chain(value.to_le_bytes())),
            Self::Float(value) => bytes.extend([b'G'].into_iter().chain(value.to_be_bytes())),
            Self::Text(value) => pickle_text(value, bytes),
            Self::Pair(first, second) => {
                pickle_text(first, bytes);
                pickle_text(second, bytes);
                bytes.push(0x86);
            }
            Self::List(values) => {
                bytes.extend(*b"](");
                values.iter().for_each(|value| value.pickle(bytes));
                bytes.push(b'e');
            }
            Self::Dict(fields) => {
                bytes.extend(*b"}(");
                for (name, value) in fields {
                    pickle_text(name, bytes);
                    value.pickle(bytes);
                }
                bytes.push(b'u');
            }
        }
    }

    fn json(&self, text: &mut String) {
        match self {
            Self::None => text.push_str("null"),
            Self::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::Whole(value) => text.push_str(&value.to_string()),
            Self::Float(value) => text.push_str(&format!("{value:?}")),
            Self::Text(value) => quote(value, text),
            Self::Pair(first, second) => {
                text.push('[');
                quote(first, text);
                text.push(',');
                quote(second, text);
                text.push(']');
            }
            Self::List(values) => {
                text.push('[');
                for (at, value) in values.iter().enumerate() {
                    text.push_str(if at > 0 { "," } else { "" });
                    value.json(text);
                }
                text.push(']');
            }
            Self::Dict(fields) => {
                text.push('{');
                for (at, (name, value)) in fields.iter().enumerate() {
                    text.push_str(if at > 0 { "," } else { "" });
                    quote(name, text);
                    text.push(':');
                    value.json(text);
                }
                text.push('}');
            }
        }
    }
}

/// Its length in four bytes, and UTF-8.
fn pickle_text(text: &str, bytes: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    bytes.push(b'X');
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.as_bytes().iter().take(length as usize));
}

/// A text as JSON has it.
fn quote(value: &str, text: &mut String) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            character if character.is_control() => {
                // Writing to a text cannot fail.
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            character => text.push(character),
        }
    }
    text.push('"');
}

fn of_log(log: &Log, form: Form) -> Value {
    let members = || log.members.iter().enumerate();
    let uses_nccl = log.members.iter().any(|member| member.backend == nccl::NAME);
    let version = if uses_nccl { nccl::version_text() } else { String::new() };
    dict([
        ("version", text(VERSION)),
        ("comm_lib_version", text(&version)),
        ("pg_config", dict(members().map(|(_, member)| (member.name.as_str(), config(member))))),
        ("pg_status", Value::Dict(members().map(|(at, _)| (at.to_string(), status(log, at, form))).collect())),
        ("entries", Value::List(entries(log, form))),
    ])
}

fn config(member: &Member) -> Value {
    dict([
        ("name", text(&member.name)),
        ("desc", text(description(member))),
        ("ranks", text(&format!("{:?}", member.ranks))),
    ])
}

/// What torch calls a group that was given no description.
fn description(member: &Member) -> &'static str {
    if member.name == FIRST_GROUP { "default_pg" } else { "undefined" }
}

/// How far a group has come.
fn status(log: &Log, member: usize, form: Form) -> Value {
    let last = |is_counted: &dyn Fn(&Entry) -> bool| {
        let of_group = |entry: &&Entry| entry.member == member && !entry.call.operation.is_message();
        let found = log.entries.iter().rev().filter(of_group).find(|entry| is_counted(entry));
        let number = found.map_or(-1, |entry| entry.counts[0].cast_signed());
        if form == Form::Json { text(&number.to_string()) } else { Value::Whole(number) }
    };
    dict([
        ("last_enqueued_collective", last(&|_| true)),
        ("last_started_collective", last(&|entry| entry.started().is_some())),
        ("last_completed_collective", last(&|entry| entry.completed.is_some())),
    ])
}

fn entries(log: &Log, form: Form) -> Vec<Value> {
    let first = log.count - log.entries.len() as u64;
    log.entries
        .iter()
        .zip(first..)
        .map(|(entry, number)| entry.to_value(number, &log.members[entry.member], form))
        .collect()
}

impl Entry {
    /// When it was seen that it had begun, which is only looked for where times are measured.
    fn started(&self) -> Option<SystemTime> {
        self.completed.filter(|_| self.took.is_some())
    }

    fn to_value(&self, number: u64, member: &Member, form: Form) -> Value {
        let (call, [collectives, messages]) = (&self.call, self.counts);
        let time = |time: Option<SystemTime>| match (time, form) {
            (Some(time), _) => nanoseconds(time),
            (None, Form::Pickle) => Value::None,
            (None, Form::Json) => Value::Whole(0),
        };
        let state = match (self.completed, self.started()) {
            (Some(_), _) => "completed",
            (None, Some(_)) => "started",
            (None, None) => "scheduled",
        };
        let (inputs, outputs) = (self.shapes(&self.inputs, member), self.shapes(&self.outputs, member));
        let thread = format!("{:?}", self.thread.id());
        let group = Value::Pair(member.name.clone(), description(member).to_owned());
        let mut fields = vec![
            ("call", text(&call.to_string())),
            ("record_id", whole(number)),
            ("pg_id", whole(self.member as u64)),
            ("process_group", group),
            ("thread_id", text(thread.trim_start_matches("ThreadId(").trim_end_matches(')'))),
            ("thread_name", text(self.thread.name().unwrap_or_default())),
            ("collective_seq_id", whole(collectives)),
            ("p2p_seq_id", whole(messages)),
            ("op_id", whole(collectives + messages)),
            ("profiling_name", text(&self.name(member))),
            ("time_created_ns", nanoseconds(self.created)),
            ("input_sizes", sizes(&inputs)),
            ("input_dtypes", dtypes(&inputs)),
            ("output_sizes", sizes(&outputs)),
            ("output_dtypes", dtypes(&outputs)),
            ("state", text(state)),
            ("time_discovered_started_ns", time(self.started())),
            ("time_discovered_completed_ns", time(self.completed)),
            ("retired", Value::Bool(self.completed.is_some() || self.failure.is_some())),
            ("timeout_ms", Value::Whole(i64::try_from(member.timeout.as_millis()).unwrap_or(i64::MAX))),
            ("is_p2p", Value::Bool(call.operation.is_message())),
        ];
        fields.extend(self.took.map(|took| ("duration_ms", Value::Float(took.as_secs_f64() * 1e3))));
        fields.extend(self.failure.as_deref().map(|failure| ("failure", text(failure))));
        fields.extend((form == Form::Pickle).then(|| ("frames", Value::List(Vec::new()))));
        dict(fields)
    }

    /// Its name in torch's profiles.
    fn name(&self, member: &Member) -> String {
        let (own, peer) = (member.rank, self.call.peer.map_or_else(|| "any".to_owned(), |peer| peer.to_string()));
        let name = match self.call.operation {
            Operation::AllGather => "_all_gather_base".to_owned(),
            Operation::ReduceScatter => "_reduce_scatter_base".to_owned(),
            Operation::AllToAll | Operation::AllToAllSingle => "all_to_all".to_owned(),
            Operation::Barrier if member.backend == nccl::NAME => "all_reduce_barrier".to_owned(),
            Operation::Send => format!("send {own}->{peer}"),
            Operation::Recv => format!("recv {own}<-{peer}"),
            named @ (Operation::AllReduce
            | Operation::Reduce
            | Operation::Broadcast
            | Operation::Barrier
            | Operation::AllGatherList
            | Operation::ReduceScatterList
            | Operation::Gather
            | Operation::Scatter) => named.to_string(),
        };
        format!("{}:{name}", member.backend)
    }

    /// By NCCL a barrier is the sum of one number.
    fn shapes(&self, shapes: &Shapes, member: &Member) -> Shapes {
        let is_sum = self.call.operation == Operation::Barrier && member.backend == nccl::NAME;
        if is_sum { vec![(vec![1], DType::F32)] } else { shapes.clone() }
    }
}

fn sizes(shapes: &Shapes) -> Value {
    Value::List(
        shapes.iter().map(|(sizes, _)| Value::List(sizes.iter().copied().map(Value::Whole).collect())).collect(),
    )
}

fn dtypes(shapes: &Shapes) -> Value {
    Value::List(shapes.iter().map(|(_, dtype)| text(scalar_type(*dtype))).collect())
}

/// The name of the elements in torch's C++.
fn scalar_type(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "Byte",
        DType::I8 => "Char",
        DType::I16 => "Short",
        DType::I32 => "Int",
        DType::I64 => "Long",
        DType::F16 => "Half",
        DType::BF16 => "BFloat16",
        DType::F32 => "Float",
        DType::F64 => "Double",
        DType::C32 => "ComplexHalf",
        DType::C64 => "ComplexFloat",
        DType::C128 => "ComplexDouble",
        DType::Bool => "Bool",
        DType::F8E4M3FN => "Float8_e4m3fn",
        DType::F8E5M2 => "Float8_e5m2",
    }
}

fn nanoseconds(time: SystemTime) -> Value {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Value::Whole(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

fn whole(number: u64) -> Value {
    Value::Whole(i64::try_from(number).unwrap_or(i64::MAX))
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn dict<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Dict(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
