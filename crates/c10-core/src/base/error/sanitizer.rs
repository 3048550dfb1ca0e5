//! Accesses to memory that nothing puts in order, as the stream sanitizer reports them.
//!
//! The texts are torch's. What torch does not have, such as ranges of bytes, comes in lines of its own or in the place of
//! torch's words, and never where torch's rules are asked for.

use std::fmt;

/// What work does to memory; torch's `AccessType`.
///
/// ```
/// use c10_core::AccessType;
///
/// assert_eq!([AccessType::READ, AccessType::WRITE].map(|kind| kind.to_string()), ["reading from", "writing to"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessType {
    /// It reads.
    READ,
    /// It writes, and may read.
    WRITE,
}

impl fmt::Display for AccessType {
    /// As in a report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::READ => "reading from",
            Self::WRITE => "writing to",
        })
    }
}

/// One access of two that are not in order; torch's `Access`.
///
/// ```
/// use c10_core::{AccessType, SanitizedAccess};
///
/// let access = SanitizedAccess {
///     access_type: AccessType::WRITE,
///     seq_num: 1,
///     stream: Some(0),
///     operator: "add".to_owned(),
///     aliases: vec!["self".to_owned()],
///     is_output: true,
///     stack_trace: String::new(),
/// };
/// assert_eq!(access.to_string(), "add\nwriting to argument(s) self, and to the output\nWith stack trace:\n\n");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanitizedAccess {
    /// Whether it reads or writes.
    pub access_type: AccessType,
    /// Number of the work, which rises.
    pub seq_num: u64,
    /// Handle of the stream, 0 for the default stream; `None` for the host.
    pub stream: Option<u64>,
    /// The work.
    pub operator: String,
    /// The arguments of the work that name the memory.
    pub aliases: Vec<String>,
    /// Whether the memory is a result of the work.
    pub is_output: bool,
    /// Where the work was queued, a line for each function, the outermost first; empty where that is not recorded.
    pub stack_trace: String,
}

impl fmt::Display for SanitizedAccess {
    /// The part of a report that tells of the access.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.operator, self.access_type)?;
        if !self.aliases.is_empty() {
            write!(f, " argument(s) {}", self.aliases.join(", "))?;
        }
        f.write_str(match (self.is_output, self.aliases.is_empty()) {
            (true, true) => " the output",
            (true, false) => ", and to the output",
            (false, _) => "",
        })?;
        write!(f, "\nWith stack trace:\n{}\n", self.stack_trace)
    }
}

/// Two accesses to the same memory of which at least one writes, and which nothing puts in order; torch's
/// `UnsynchronizedAccessError`.
///
/// ```
/// use c10_core::{AccessType, SanitizedAccess, UnsynchronizedAccessError};
///
/// let access = |stream, access_type| SanitizedAccess {
///     access_type,
///     seq_num: 1,
///     stream: Some(stream),
///     operator: "schema".to_owned(),
///     aliases: vec!["a".to_owned()],
///     is_output: false,
///     stack_trace: String::new(),
/// };
/// let error = UnsynchronizedAccessError {
///     data_ptr: 1001,
///     bytes: None,
///     is_reused: false,
///     allocation_stack_trace: None,
///     current_access: access(1, AccessType::READ),
///     previous_access: access(0, AccessType::WRITE),
/// };
/// assert!(error.to_string().contains("CSAN detected a possible data race on tensor with data pointer 1001\n"));
/// assert!(error.to_string().ends_with("Trace for tensor allocation not found."));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsynchronizedAccessError {
    /// Address of the tensor's first byte; of the first byte that both use, where ranges of bytes are compared.
    pub data_ptr: u64,
    /// How many bytes from there on both use; `None` by torch's rules, which compare addresses of tensors.
    pub bytes: Option<u64>,
    /// Whether the allocator handed the memory out anew between the accesses.
    pub is_reused: bool,
    /// Where the memory was handed out, if that was recorded.
    pub allocation_stack_trace: Option<String>,
    /// The later access.
    pub current_access: SanitizedAccess,
    /// The earlier access.
    pub previous_access: SanitizedAccess,
}

impl fmt::Display for UnsynchronizedAccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("============================\nCSAN detected a possible data race on ")?;
        match self.bytes {
            None => writeln!(f, "tensor with data pointer {}", self.data_ptr)?,
            Some(1) => writeln!(f, "1 byte at address {:#x}", self.data_ptr)?,
            Some(bytes) => writeln!(f, "{bytes} bytes at address {:#x}", self.data_ptr)?,
        }
        write!(f, "Access by {} during kernel:\n{}", Agent(&self.current_access), self.current_access)?;
        write!(f, "Previous access by {} during kernel:\n{}", Agent(&self.previous_access), self.previous_access)?;
        if self.is_reused {
            f.write_str(
                "The memory was freed and handed out again between the accesses. If a stream used it that is not the one \
                 it was allocated on, record_stream keeps it until that stream is done.\n",
            )?;
        }
        match &self.allocation_stack_trace {
            Some(trace) => write!(f, "Tensor was allocated with stack trace:\n{trace}"),
            None => f.write_str("Trace for tensor allocation not found."),
        }
    }
}

impl std::error::Error for UnsynchronizedAccessError {}

/// Who accesses memory.
struct Agent<'a>(&'a SanitizedAccess);

impl fmt::Display for Agent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.stream {
            Some(stream) => write!(f, "stream {stream}"),
            None => f.write_str("the host"),
        }
    }
}

/// The races that a piece of work takes part in; torch's `CUDASanitizerErrors`.
///
/// ```
/// use c10_core::CUDASanitizerErrors;
///
/// assert_eq!(CUDASanitizerErrors { errors: Vec::new() }.to_string(), "detected 0 errors");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CUDASanitizerErrors {
    /// One for each earlier access.
    pub errors: Vec<UnsynchronizedAccessError>,
}

impl fmt::Display for CUDASanitizerErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "detected {} errors", self.errors.len())
    }
}

impl std::error::Error for CUDASanitizerErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_that_of_torch() {
        let access = |access_type, seq_num, stream, alias: &str, is_output, line: &str| SanitizedAccess {
            access_type,
            seq_num,
            stream: Some(stream),
            operator: "schema".to_owned(),
            aliases: vec![alias.to_owned()],
            is_output,
            stack_trace: format!("  File \"file\", line 0, in name\n    {line}\n"),
        };
        let error = UnsynchronizedAccessError {
            data_ptr: 1001,
            bytes: None,
            is_reused: false,
            allocation_stack_trace: Some("  File \"file\", line 0, in name\n    alloc\n".to_owned()),
            current_access: access(AccessType::WRITE, 1, 1001, "b", true, "trace a"),
            previous_access: access(AccessType::READ, 2, 1000, "a", false, "trace b"),
        };
        let expected = "============================\n\
            CSAN detected a possible data race on tensor with data pointer 1001\n\
            Access by stream 1001 during kernel:\n\
            schema\n\
            writing to argument(s) b, and to the output\n\
            With stack trace:\n  \
              File \"file\", line 0, in name\n    \
                trace a\n\
            \n\
            Previous access by stream 1000 during kernel:\n\
            schema\n\
            reading from argument(s) a\n\
            With stack trace:\n  \
              File \"file\", line 0, in name\n    \
                trace b\n\
            \n\
            Tensor was allocated with stack trace:\n  \
              File \"file\", line 0, in name\n    \
                alloc\n";
        assert_eq!(error.to_string(), expected);
    }
}
