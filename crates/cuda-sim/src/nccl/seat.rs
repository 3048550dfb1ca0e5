//! A rank's seat where the ranks of a communicator meet: in this process, or in that which made the identity.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuda_sys::ncclResult_t;

use super::exchange::{Asked, Exchange, Failure, Outcome};
use super::hub::{Connection, Shared};

/// A rank's seat.
#[derive(Debug)]
pub(super) enum Seat {
    /// The exchange is in this process.
    Here {
        exchange: Shared,
        rank: usize,
        /// Whether ranks of other processes come there, who do not wake this one.
        has_others: bool,
    },
    /// It is in another process.
    There(Connection),
}

fn locked(exchange: &Mutex<Exchange>) -> MutexGuard<'_, Exchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    /// Whether the rank has to ask again and again whether others have come.
    pub(super) fn asks(&self) -> bool {
        matches!(self, Self::There(_) | Self::Here { has_others: true, .. })
    }

    /// Whether all ranks have come.
    pub(super) fn is_ready(&self) -> Result<bool, Failure> {
        match self {
            Self::Here { .. } => Ok(true),
            Self::There(connection) => connection.is_ready(),
        }
    }

    /// Brings a batch; its number.
    pub(super) fn bring(&self, parts: Vec<(Asked, Vec<u8>)>) -> u64 {
        match self {
            Self::Here { exchange, rank, .. } => locked(exchange).bring(*rank, parts),
            Self::There(connection) => connection.bring(parts),
        }
    }

    /// What became of a batch. One that asks gives up after `patience`.
    pub(super) fn outcome(&self, batch: u64, patience: Duration) -> Outcome {
        match self {
            Self::Here { exchange, has_others, .. } => {
                let mut exchange = locked(exchange);
                if *has_others {
                    exchange.expire(patience);
                }
                exchange.outcome(batch)
            }
            Self::There(connection) => connection.outcome(batch, patience),
        }
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Here { exchange, .. } => locked(exchange).failure().cloned(),
            Self::There(connection) => connection.failure(),
        }
    }

    pub(super) fn fail(&self, status: ncclResult_t, text: &str) {
        match self {
            Self::Here { exchange, .. } => locked(exchange).fail(status, text.to_owned()),
            Self::There(connection) => connection.fail(status, text),
        }
    }

    pub(super) fn leave(&self, how: &'static str) {
        match self {
            Self::Here { exchange, rank, .. } => locked(exchange).leave(*rank, how),
            Self::There(connection) => connection.leave(),
        }
    }

    /// Fails where work has waited for so long; whether it did. Who asks does that when it asks.
    pub(super) fn expire(&self, patience: Duration) -> bool {
        match self {
            Self::Here { exchange, .. } => locked(exchange).expire(patience),
            Self::There(_) => false,
        }
    }
}
