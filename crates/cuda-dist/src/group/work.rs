//! Collectives that are under way, as what a caller waits for.
//!
//! Invariant: a work ends once: with what the backend said, or with why the group was given up.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::backend::Pending;
use crate::call::Call;
use crate::error::{Error, Result};

/// How long a wait sleeps before it looks whether the group was given up.
const SLICE: Duration = Duration::from_millis(20);

/// A collective that is under way: torch's `Work`. Dropping it does not end it.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use std::sync::Arc;
///
/// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
///
/// let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
/// let work = group.barrier()?;
/// work.wait()?;
/// assert!(work.is_completed());
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Work {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rank: usize,
    pub(super) call: Call,
    pub(super) begun: Instant,
    pub(super) pending: Arc<dyn Pending>,
    /// Why it ended without the backend.
    pub(super) verdict: OnceLock<Error>,
}

impl Shared {
    pub(super) fn outcome(&self, timeout: Duration) -> Option<Result<()>> {
        let given_up = |outcome: Result<()>| match outcome {
            // A backend that was aborted has nothing to say.
            Err(Error::Destroyed) => Err(self.verdict.get().cloned().unwrap_or(Error::Destroyed)),
            other => other,
        };
        self.pending.outcome(timeout).map(given_up).or_else(|| self.verdict.get().cloned().map(Err))
    }
}

impl Work {
    /// What was called.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.shared.call
    }

    /// Waits for the end. The group's time-out bounds it.
    ///
    /// # Errors
    /// Why it failed: ranks that did not call it, that called something else, or that gave up, each named.
    pub fn wait(&self) -> Result<()> {
        loop {
            if let Some(outcome) = self.shared.outcome(SLICE) {
                return outcome;
            }
        }
    }

    /// Waits for the end, for at most so long.
    ///
    /// # Errors
    /// Those of [`Self::wait`], and [`Error::NotDone`] where it goes on; then it can be waited for again.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            let left = timeout.saturating_sub(begin.elapsed());
            if let Some(outcome) = self.shared.outcome(left.min(SLICE)) {
                return outcome;
            }
            if left.is_zero() {
                let call = Box::new(self.shared.call.clone());
                return Err(Error::NotDone { rank: self.shared.rank, call, waited: timeout });
            }
        }
    }

    /// Whether it has ended, well or not.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.shared.outcome(Duration::ZERO).is_some()
    }

    /// Why it failed, where it has.
    #[must_use]
    pub fn exception(&self) -> Option<Error> {
        self.shared.outcome(Duration::ZERO)?.err()
    }
}
