//! Plans that learn: a stream that asks for the same again and again gets addresses that were computed beforehand.
//!
//! Reading order: `record` (what a stream asked for, and whether it did so twice alike), `solve` (where such requests are
//! placed), `places` (which bytes are in use), `follow` (the plan of a stream, from the first request on). The arena is
//! taken and given up in `caching/slow`; a request meets its plan in `caching/device`.
//!
//! **Invariants:** nothing here knows the driver. A plan says where a request *may* be placed; that the place is free is
//! looked up for each request, so a program that does something else loses the plan and nothing more.

mod follow;
mod places;
mod record;
mod solve;

pub use follow::PlanStats;
pub(crate) use follow::{Answer, Filled, Job, StreamPlan, Turn};
pub(crate) use solve::{Holes, Layout};
