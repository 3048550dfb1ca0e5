//! Memory snapshot files, what they say, and a page that shows it.
//!
//! A [`Snapshot`] is what `torch.cuda.memory._snapshot()` returns: the segments and blocks of the caching allocator,
//! and what happened to them. [`mod@file`] reads and writes it in PyTorch's format and as JSON; [`analysis`] answers
//! questions about it as text; [`page`] makes one HTML file that shows it in any browser without a network.
//!
//! ```
//! use memory_viz::{Block, BlockState, Frame, Segment, Snapshot, analysis, file};
//!
//! let mut snapshot = Snapshot::default();
//! let frame = Frame { name: snapshot.names.text("train"), filename: snapshot.names.text("/src/train.rs"), line: 42 };
//! let frame = snapshot.names.frame(frame);
//! let stack = snapshot.names.stack(&[frame]);
//! let block = Block { address: 4096, size: 1024, requested_size: 1000, state: BlockState::ActiveAllocated, stack,
//!     ..Block::default() };
//! let segment = Segment { address: 4096, total_size: 1024, blocks: vec![block], ..Segment::default() };
//! snapshot.segments.push(segment);
//!
//! let mut bytes = Vec::new();
//! file::pickle_to(&snapshot, &mut bytes)?;
//! let again = file::parse(&bytes)?;
//! assert_eq!(again.segments, snapshot.segments);
//! assert_eq!(analysis::holders(&again)[0].bytes, 1024);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//! From the lowest up; each imports only those before it:
//!
//! - `error`: what can go wrong
//! - `limits`: how much of a file is accepted
//! - `tree`: what a file says, before anybody asks whether it is a snapshot
//! - `model`: what a snapshot holds
//! - `schema`: which key is which field
//! - `pickle`: Python's format
//! - `json`: the same as JSON
//! - `file`: files, and whole files only
//! - `analysis`: answers as text and tables
//! - `page`: the page
//!
//! # Invariants
//! The crate knows no allocator and no driver. No file, however made, runs code, panics, or takes more memory than
//! [`Limits`] says.

#![forbid(unsafe_code)]
#![expect(clippy::wildcard_enum_match_arm, reason = "a file may hold any value where a few make sense")]

/// The example of the README, which is tested with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

pub mod analysis;
mod error;
pub mod file;
mod json;
mod limits;
mod model;
pub mod page;
mod pickle;
mod schema;
mod tree;

pub use error::{Error, PickleFault, Result};
pub use limits::Limits;
pub use model::{
    Action, Annotation, Block, BlockState, Frame, FrameId, Names, Segment, SegmentKind, Setting, Snapshot, StackId,
    TextId, TraceEntry, Unknown,
};
