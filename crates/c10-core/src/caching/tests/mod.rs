//! Tests of the whole allocator, on one fake driver.
//!
//! Reading order: `fake` (the driver), `scripts` (the runner of short scripts); then, by subject, `figures`, `scopes`,
//! `failures`, `retry` (the last attempt before a request fails), `threads`, `elastic` (pages that move),
//! `elastic_rule` (which requests they serve), `plans` (plans that learn), `unseen` (shards that are never flushed) and
//! `restore` (checkpoints); then whole scripts beside another allocator: `golden` (as PyTorch answered once), `naive`
//! (a simple allocator of our own) and `differential` (PyTorch's own, in another process).
//!
//! **Invariant:** random tests follow from seeds: a seed is one sequence of numbers in every run.

pub(crate) mod fake;
pub(crate) mod scripts;

mod differential;
mod elastic;
mod elastic_rule;
mod failures;
mod figures;
mod golden;
mod naive;
mod plans;
mod restore;
mod retry;
mod scopes;
mod threads;
mod unseen;

// What every file here uses.
use std::sync::Arc;

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg32;

use crate::base::config::AllocatorConfig;
use crate::base::error::Result;
use crate::caching::*;
use crate::thread;
use fake::{Capturing, FakeDriver};

/// Most scripts are about memory that the program owns.
impl CachingAllocator {
    pub(crate) fn alloc<D: Driver>(&self, driver: &D, stream: StreamRef, bytes: u64) -> Result<u64> {
        let planned = || self.alloc_if_planned(driver, stream, bytes, Owner::Program);
        let specially = || planned().unwrap_or_else(|| self.alloc_specially(driver, stream, bytes, Owner::Program));
        self.alloc_for(driver, stream, bytes, Owner::Program, specially)
    }

    pub(crate) fn free<D: Driver>(&self, driver: &D, address: u64) -> Result<()> {
        self.free_by(driver, address, Owner::Program, |claim| {
            self.free_any(driver, claim, || self.free_uncached(driver, claim))
        })
    }
}

/// Random numbers that follow from a seed.
pub(crate) fn random(seed: u64) -> Pcg32 {
    Pcg32::seed_from_u64(seed)
}
