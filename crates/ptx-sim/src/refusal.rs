//! Why text was refused.

use std::fmt;

use crate::text::Place;

/// Why text was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// How it is answered.
    pub kind: RefusalKind,
    /// Where it stands.
    pub place: Place,
    /// The kernel or function it stands in; empty outside of all.
    pub function: String,
    /// What is wrong, with the instruction where it is one.
    pub text: String,
}

/// How a refusal is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// It is not PTX.
    Invalid,
    /// It is PTX, but of a part that is not supported.
    NotSupported,
    /// It is of a newer version of PTX than the driver reads.
    NewerVersion,
}

impl Refusal {
    pub(crate) fn invalid(place: Place, text: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Invalid, place, function: String::new(), text: text.into() }
    }

    pub(crate) fn not_supported(place: Place, text: impl Into<String>) -> Self {
        Self { kind: RefusalKind::NotSupported, place, function: String::new(), text: text.into() }
    }

    /// The same, in a function.
    pub(crate) fn in_function(mut self, name: &str) -> Self {
        name.clone_into(&mut self.function);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            RefusalKind::Invalid => "error",
            RefusalKind::NotSupported => "not supported",
            RefusalKind::NewerVersion => "unsupported version",
        };
        write!(f, "ptx input, line {}, column {}; ", self.place.line, self.place.column)?;
        if !self.function.is_empty() {
            write!(f, "in '{}'; ", self.function)?;
        }
        write!(f, "{what}: {}", self.text)
    }
}

impl std::error::Error for Refusal {}
