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
    /// Which of the group's calls it is, messages among them.
    pub(super) number: u64,
    pub(super) begun: Instant,
    pub(super) pending: Arc<dyn Pending>,
    /// Waiting is done on the host, also where streams could be ordered.
    pub(super) blocking: bool,
    /// It says how long it took.
    pub(super) is_timed: bool,
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

    pub(super) fn took(&self) -> Result<Option<Duration>> {
        if self.is_timed { self.pending.took() } else { Ok(None) }
    }
}

impl Work {
    /// What was called.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.shared.call
    }

    /// Waits for the end. On the backend `nccl` that is as in torch: the current stream of the device waits, and the host
    /// goes on, but for a barrier or with `TORCH_NCCL_BLOCKING_WAIT`; what fails then is in [`Self::exception`], and in what
    /// is called next. Elsewhere the host waits. The group's time-out bounds it.
    ///
    /// # Errors
    /// Why it failed: ranks that did not call it, that called something else, or that gave up, each named.
    pub fn wait(&self) -> Result<()> {
        if let Some(outcome) = self.shared.outcome(Duration::ZERO) {
            return outcome;
        }
        if !self.shared.blocking && self.shared.pending.order()? {
            return Ok(());
        }
        self.wait_on_host()
    }

    /// Waits on the host also where streams could be ordered.
    pub(super) fn wait_on_host(&self) -> Result<()> {
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

    /// How long it took, where it is done and `TORCH_NCCL_ENABLE_TIMING` asks for that: on the device between the begin and
    /// the end of the work (torch's `Work._get_duration`), on the backend `store` as the host sees it.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use std::sync::Arc;
    ///
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup, Settings};
    ///
    /// let settings = Settings { enable_timing: true, ..Settings::default() };
    /// let options = InitOptions { settings: Some(settings), ..InitOptions::default() };
    /// let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 1, &options)?;
    /// let work = group.barrier()?;
    /// work.wait()?;
    /// assert!(work.duration()?.is_some());
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// The driver's error.
    pub fn duration(&self) -> Result<Option<Duration>> {
        self.shared.took()
    }

    /// Which rank a message came from or went to, once it has (torch's `Work._source_rank`); none for a collective.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
    ///
    /// let group = ProcessGroup::with_store(std::sync::Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
    /// assert_eq!(group.barrier()?.source_rank(), None);
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    #[must_use]
    pub fn source_rank(&self) -> Option<usize> {
        self.shared.pending.source()
    }

    /// Why it failed, where it has.
    #[must_use]
    pub fn exception(&self) -> Option<Error> {
        self.shared.outcome(Duration::ZERO)?.err()
    }
}
