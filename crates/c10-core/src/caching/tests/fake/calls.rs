//! What may happen to a call before it is answered: it fails, or waits for another thread.
//!
//! **Invariant:** a call that fails changes nothing else.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use cuda_sys::CUresult;

use super::{failure, lock};
use crate::base::error::Result;

/// Counts calls, and lets one of them fail.
#[derive(Default)]
pub(crate) struct Calls {
    made: u64,
    /// The call that fails, counted from 1.
    fails: Option<u64>,
    /// Functions that have failed so.
    failed: BTreeSet<&'static str>,
}

impl Calls {
    /// How many calls were made so far.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Lets a call to come fail, and no other: 1 is the next.
    pub(crate) fn fail(&mut self, number: u64) {
        self.fails = Some(self.made + number);
    }

    /// Lets no call fail.
    pub(crate) fn fail_none(&mut self) {
        self.fails = None;
    }

    /// The functions that have failed since the last call.
    pub(crate) fn take_failed(&mut self) -> BTreeSet<&'static str> {
        std::mem::take(&mut self.failed)
    }

    pub(super) fn count(&mut self, name: &'static str) -> Result<()> {
        self.made += 1;
        if self.fails != Some(self.made) {
            return Ok(());
        }
        self.failed.insert(name);
        Err(failure(name, CUresult::CUDA_ERROR_LAUNCH_FAILED))
    }
}

/// Two threads that have to be in the driver at the same time.
#[derive(Default)]
pub(super) struct Pairs {
    arrived: Mutex<usize>,
    met: Condvar,
}

impl Pairs {
    /// Waits until two threads were here; an error if the second does not come.
    pub(super) fn meet(&self) -> Result<()> {
        let mut arrived = lock(&self.arrived);
        *arrived += 1;
        self.met.notify_all();
        let alone = |arrived: &mut usize| *arrived < 2;
        let (_arrived, timeout) = self.met.wait_timeout_while(arrived, Duration::from_secs(60), alone).unwrap();
        if timeout.timed_out() { Err(failure("mem_alloc", CUresult::CUDA_ERROR_LAUNCH_TIMEOUT)) } else { Ok(()) }
    }
}
