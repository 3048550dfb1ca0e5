//! The calls that were made to libraries, for tests to look at.

use std::collections::VecDeque;

/// How many calls are kept; older ones are forgotten.
const CALLS_MAX: usize = 1 << 16;

/// One call of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryCall {
    /// The function, for example `cublasGemmEx`.
    pub symbol: &'static str,
    /// Names and values of its arguments, as the header names them.
    pub arguments: Vec<(&'static str, String)>,
    /// What it answered: 0 for success, else the library's code.
    pub status: u32,
    /// A number of the calling thread, the same for all calls of one thread.
    pub thread: u64,
    /// The stream that the handle had after the call; none where there is no such handle.
    pub stream: Option<u64>,
    /// Address and bytes of the workspace that the program gave the handle.
    pub workspace: Option<(u64, u64)>,
}

impl LibraryCall {
    /// An argument as a number: an integer, the value of an enum, or an address.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        let (_, text) = self.arguments.iter().find(|(argument, _)| *argument == name)?;
        let inside = text.split_once('(').map_or(text.as_str(), |(_, rest)| rest.trim_end_matches(')'));
        match inside.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => inside.parse().ok(),
        }
    }
}

/// The calls of a machine.
#[derive(Debug, Default)]
pub(crate) struct Record(VecDeque<LibraryCall>);

impl Record {
    pub(crate) fn add(&mut self, call: LibraryCall) {
        if self.0.len() == CALLS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(call);
    }

    pub(crate) fn all(&self) -> Vec<LibraryCall> {
        self.0.iter().cloned().collect()
    }

    pub(crate) fn take(&mut self) -> Vec<LibraryCall> {
        std::mem::take(&mut self.0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_numbers() {
        let texts = [("m", "3"), ("computeType", "cublasComputeType_t(68)"), ("A", "0x7f00"), ("strideA", "-4")];
        let arguments = texts.iter().map(|&(name, text)| (name, text.to_owned())).collect();
        let call = LibraryCall { symbol: "f", arguments, status: 0, thread: 1, stream: None, workspace: None };
        let numbers = ["m", "computeType", "A", "strideA", "n"].map(|name| call.number(name));
        assert_eq!(numbers, [Some(3), Some(68), Some(0x7f00), Some(-4), None]);
    }
}
