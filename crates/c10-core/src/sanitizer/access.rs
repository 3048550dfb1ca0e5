//! Accesses that are remembered, and races between them.

use std::sync::Arc;

use crate::base::error::{AccessType, SanitizedAccess, UnsynchronizedAccessError};
use crate::trace::{Stack, TraceAccess, TraceFrame};

use super::clock::Agent;

/// Memory that a piece of work uses, independent of when and where the work runs.
#[derive(Clone, Debug)]
pub(super) struct Use {
    /// Address of the first byte.
    pub(super) start: u64,
    /// Number of bytes.
    pub(super) size: u64,
    pub(super) is_write: bool,
    pub(super) operation: &'static str,
    pub(super) arguments: Arguments,
    pub(super) is_output: bool,
}

/// One execution of a piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Execution<'a> {
    pub(super) agent: Agent,
    /// Sequence number of the work.
    pub(super) work: u64,
    /// Handle of the stream; `None` for the host.
    pub(super) stream: Option<u64>,
    /// Whether the work is part of a graph that was launched.
    pub(super) is_replayed: bool,
    pub(super) stack: Option<&'a Arc<Stack>>,
}

impl From<&TraceAccess> for Use {
    fn from(access: &TraceAccess) -> Self {
        let TraceAccess { address, size, is_write, operation, argument, is_output, .. } = *access;
        Self { start: address, size, is_write, operation, arguments: Arguments::One(argument), is_output }
    }
}

impl Use {
    /// Returns the access that one execution of this use makes.
    pub(super) fn by(&self, execution: &Execution<'_>) -> Arc<Access> {
        Arc::new(Access {
            agent: execution.agent,
            work: execution.work,
            is_write: self.is_write,
            stream: execution.stream,
            operation: self.operation,
            is_replayed: execution.is_replayed,
            arguments: self.arguments.clone(),
            is_output: self.is_output,
            stack: execution.stack.cloned(),
        })
    }
}

/// What a piece of work does to memory.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) agent: Agent,
    /// Number of the work.
    pub(super) work: u64,
    pub(super) is_write: bool,
    /// Handle of the stream; `None` for the host.
    pub(super) stream: Option<u64>,
    pub(super) operation: &'static str,
    /// Whether the work is part of a graph that was launched.
    pub(super) is_replayed: bool,
    pub(super) arguments: Arguments,
    pub(super) is_output: bool,
    pub(super) stack: Option<Arc<Stack>>,
}

/// The arguments that name the memory.
#[derive(Clone, Debug)]
pub(super) enum Arguments {
    /// One, or none if it is empty.
    One(&'static str),
    /// Several.
    Several(Vec<&'static str>),
}

impl Arguments {
    /// One more.
    pub(super) fn add(&mut self, name: &'static str) {
        if name.is_empty() {
            return;
        }
        match self {
            Self::One("") => *self = Self::One(name),
            Self::One(first) => *self = Self::Several(vec![first, name]),
            Self::Several(names) => names.push(name),
        }
    }

    fn to_names(&self) -> Vec<String> {
        match self {
            Self::One("") => Vec::new(),
            Self::One(name) => vec![(*name).to_owned()],
            Self::Several(names) => names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

impl Access {
    /// Who did it, and when.
    #[inline]
    pub(super) fn epoch(&self) -> (Agent, u64) {
        (self.agent, self.work)
    }

    fn described(&self) -> SanitizedAccess {
        let place = if self.is_replayed { " (in a graph)" } else { "" };
        SanitizedAccess {
            access_type: if self.is_write { AccessType::WRITE } else { AccessType::READ },
            seq_num: self.work,
            stream: self.stream,
            operator: format!("{}{place}", self.operation),
            aliases: self.arguments.to_names(),
            is_output: self.is_output,
            stack_trace: self.stack.as_deref().map_or_else(String::new, trace_of),
        }
    }
}

/// Two accesses that nothing puts in order.
#[derive(Debug)]
pub(crate) struct Race {
    pub(super) address: u64,
    /// Bytes that both use; `None` where tensors are compared by their addresses.
    pub(super) bytes: Option<u64>,
    pub(super) is_reused: bool,
    pub(super) allocation: Option<Arc<Stack>>,
    pub(super) current: Arc<Access>,
    pub(super) previous: Arc<Access>,
}

impl Race {
    /// What is told of it. Looks the names of functions up, which takes long the first time.
    pub(crate) fn described(&self) -> UnsynchronizedAccessError {
        UnsynchronizedAccessError {
            data_ptr: self.address,
            bytes: self.bytes,
            is_reused: self.is_reused,
            allocation_stack_trace: self.allocation.as_deref().map(trace_of),
            current_access: self.current.described(),
            previous_access: self.previous.described(),
        }
    }
}

/// A stack as torch writes one: a line for each function, the innermost last. Functions of the runtime and of the standard
/// library are left out unless `TORCH_SHOW_CPP_STACKTRACES` is 1, or there are no others.
fn trace_of(stack: &Stack) -> String {
    let frames = stack.frames();
    let shows_all = std::env::var_os("TORCH_SHOW_CPP_STACKTRACES").is_some_and(|value| value == "1")
        || !frames.iter().any(TraceFrame::is_program);
    let shown = frames.iter().rev().filter(|frame| shows_all || frame.is_program());
    shown.map(|frame| format!("  File \"{}\", line {}, in {}\n", frame.filename, frame.line, frame.name)).collect()
}
