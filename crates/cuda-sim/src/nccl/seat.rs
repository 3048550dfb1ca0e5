//! A rank's seat where the ranks of a communicator meet: in this process, or behind a socket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuda_sys::ncclResult_t;

use super::exchange::{Asked, Exchange, Failure, Outcome};

/// A rank's seat.
#[derive(Debug)]
pub(super) enum Seat {
    /// All ranks are in this process.
    Here { exchange: Arc<Mutex<Exchange>>, rank: usize },
}

impl Seat {
    pub(super) fn here(exchange: &Arc<Mutex<Exchange>>, rank: usize) -> Self {
        Self::Here { exchange: Arc::clone(exchange), rank }
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        let Self::Here { exchange, .. } = self;
        exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings a batch; its number.
    pub(super) fn bring(&self, parts: Vec<(Asked, Vec<u8>)>) -> u64 {
        let Self::Here { rank, .. } = self;
        self.exchange().bring(*rank, parts)
    }

    pub(super) fn outcome(&self, batch: u64) -> Outcome {
        self.exchange().outcome(batch)
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.exchange().failure().cloned()
    }

    pub(super) fn fail(&self, status: ncclResult_t, text: &str) {
        self.exchange().fail(status, text.to_owned());
    }

    pub(super) fn leave(&self, how: &'static str) {
        let Self::Here { rank, .. } = self;
        self.exchange().leave(*rank, how);
    }

    pub(super) fn expire(&self, patience: Duration) -> bool {
        self.exchange().expire(patience)
    }
}
