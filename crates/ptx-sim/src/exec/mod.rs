//! A grid of threads is executed, warp by warp.
//!
//! Reading order: `op` (compact instructions), `rows` and `row` (a value for each lane, and the frequent operations),
//! `memory` and `reach` (what an access touches), `poll` (warps that wait for memory), `fragment` (lanes that part and meet), `step` (the loop), `quick`,
//! `access`, `control`, `exchange`, `together`, `matrix` and `wmma` (the other instructions), `barrier`, `block`, `grid`;
//! `watch` and `written` (what hardware does not tell).
//!
//! **Invariants:** what a launch does follows from its memory, its parameters and its seed. Everything that could be
//! endless is counted. Nothing here knows a driver: memory is behind [`Memory`].

mod access;
mod barrier;
mod block;
mod control;
mod core;
mod exchange;
mod flat;
mod fragment;
mod grid;
mod matrix;
mod memory;
mod op;
mod poll;
mod print;
mod quick;
mod reach;
mod row;
mod rows;
mod step;
mod together;
mod watch;
mod wide;
mod wmma;
mod written;

#[cfg(test)]
mod tests;

pub use self::core::{Finding, FindingKind, Launch};
pub use flat::FlatMemory;
pub use grid::{Grid, Outcome, Progress, Wait, run};
pub use memory::{Failure, Fault, Memory, Notice, Site, Window};
pub use op::Program;
pub use watch::Checks;
