//! The tuner of products (`torch.cuda.tunable`): which way to a product is the fastest is measured once and kept.
//!
//! Reading order: `settings` (switches and environment), `signature` (the texts that name a product), `file` (the files
//! of results), `journal` (which candidate was being tried), `log` (what is told while tuning), `search` (how the fastest
//! candidate is found), `table` (results of a device), `context` (what a runtime keeps, and the look-up), `offline`
//! (products from a file), `api` (the names of torch).
//!
//! Whoever multiplies asks [`choose`] with a [`Problem`] and a value of [`Candidates`], and runs what it answers.
//!
//! **Invariants:** while no runtime has the tuner enabled, a product pays for one atomic load. A candidate is chosen only
//! after its result was compared with that of the default.

pub mod api;
mod context;
mod file;
mod journal;
mod log;
mod offline;
mod search;
mod settings;
mod signature;
mod table;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use context::{choose, may_be_enabled};
pub(crate) use search::{Candidates, DEFAULT, Inputs};
pub(crate) use signature::{Element, Kind, Problem};

/// What a lock guards. A thread that panicked while it held one of the tuner's locks leaves what is guarded whole: each
/// holder changes it by one assignment or insertion.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
