//! Replays on the simulated driver: golden scripts, checked answer by answer, and recorded traces, measured.
//!
//! Reading order: `run` (one script), `compare` (figures and layouts), `control` (what the driver answers), `interpose`
//! (how it is made to), `trace` (measuring), `command` (the program's arguments and what it prints).

mod command;
mod compare;
mod control;
mod interpose;
mod run;
mod trace;

pub use command::main;
pub use run::{Difference, Outcome, replay};
pub use trace::{Pass, TraceReport, measure};
