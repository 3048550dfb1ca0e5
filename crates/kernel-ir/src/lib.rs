//! Kernels as typed expression graphs, and what is made of them.
//!
//! A [`Graph`] says what one element of each output is: a small program over the elements of the inputs, scalars that a
//! launch gives, constants and the element's index. It is built once and finished into a [`Program`], which cannot
//! change any more. A program is used in two ways:
//!
//! - [`pointwise`] writes it as the PTX text of a kernel for one [`pointwise::Schedule`];
//! - [`reduce`] puts several programs together into what becomes of rows of elements: reductions, row operations and
//!   scans;
//! - [`eval`] computes it on rows of elements without a GPU, with the same result wherever PTX defines the result.
//!
//! ```
//! use kernel_ir::{Binary, Graph, Type, pointwise};
//!
//! let mut graph = Graph::new();
//! let (a, b) = (graph.input(Type::F32), graph.input(Type::F32));
//! let alpha = graph.scalar(Type::F32);
//! let sum = graph.fma(alpha, b, a);
//! graph.output(sum);
//! let program = graph.finish()?;
//!
//! let kernel = pointwise::write(&program, &pointwise::Schedule::contiguous(&program), "add_f32")?;
//! assert!(kernel.text.contains(".visible .entry add_f32("));
//! assert!(kernel.text.contains("fma.rn.f32"));
//! # Ok::<(), kernel_ir::GraphError>(())
//! ```
//!
//! # Layers
//! From the lowest up; each imports only those before it:
//!
//! - `types`: the types of values
//! - `float8`: codes of floats of 8 bits
//! - `math`: functions that are more than an instruction
//! - `graph`: typed expressions, checked as they are built
//! - `eval`: programs on the host
//! - `ptx`: the writer of texts
//! - `pointwise`: kernels over elements
//! - `reduce`: kernels over rows
//!
//! # Invariants
//! The crate is pure: it knows no tensor and no driver, keeps no global state, and the same graph and schedule give the
//! same text, byte by byte.

#![forbid(unsafe_code)]
#![expect(clippy::wildcard_enum_match_arm, reason = "an operation treats a few types on their own and the rest alike")]

/// The example of the README, which is tested with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

pub mod eval;
pub mod float8;
mod graph;
pub mod math;
pub mod pointwise;
mod ptx;
pub mod reduce;
mod types;

pub use graph::{Binary, Compare, Graph, GraphError, Node, Program, Unary, Value};
pub use math::Math;
pub use ptx::is_long;
pub use types::{Kind, Type};
