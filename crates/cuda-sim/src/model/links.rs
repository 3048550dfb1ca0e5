//! Links under way: the texts that were added, and the image that they became.

use super::State;
use crate::codes::{Answer, INVALID_HANDLE};

/// A log that the program gave room for, as addresses of its memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log {
    pub(crate) buffer: u64,
    pub(crate) bytes: usize,
    /// Where to say how much was written.
    pub(crate) written: u64,
}

/// The logs that the program wants to read: what was wrong, and what else there is to say, which is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Logs {
    pub(crate) errors: Log,
    pub(crate) information: Log,
}

/// A link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) logs: Logs,
    pub(crate) texts: Vec<String>,
    /// What the program was given; it stays where it is until the link is destroyed.
    pub(crate) image: Option<Box<[u8]>>,
}

impl State {
    /// The link of a handle.
    pub(crate) fn link(&mut self, handle: u64) -> Answer<&mut Link> {
        self.links.get_mut(&handle).ok_or(INVALID_HANDLE)
    }
}
