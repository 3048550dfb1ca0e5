//! Tests of the whole allocator, on one fake driver.

mod differential;
mod figures;
mod golden;
mod naive;
mod restore;
pub(crate) mod scripts;
mod unseen;

// What every file here uses.
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::config::AllocatorConfig;
use crate::base::error::Result;
use crate::caching::*;
use crate::thread;

/// Most scripts are about memory that the program owns.
impl CachingAllocator {
    pub(crate) fn alloc<D: Driver>(&self, driver: &D, stream: StreamRef, bytes: u64) -> Result<u64> {
        self.alloc_for(driver, stream, bytes, Owner::Program)
    }

    pub(crate) fn free<D: Driver>(&self, driver: &D, address: u64) -> Result<()> {
        self.free_by(driver, address, Owner::Program)
    }
}
