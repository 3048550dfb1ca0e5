//! What is said of a collective that did not end: who called it, who did not, and who gives no sign of life.
//!
//! Ranks write a line of their state into the store now and then (`RankState`); a report is made of the lines of all.
//!
//! Invariant: a line that cannot be read is a rank of which nothing is known, never a failure.

use std::fmt;
use std::time::Duration;

use crate::call::{Call, Operation, Ranks};

/// Whether a rank is there.
///
/// ```
/// assert_ne!(cuda_dist::Life::Alive, cuda_dist::Life::Left);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Life {
    /// It wrote its state while the report was made.
    Alive,
    /// It did not, for at least this long.
    Silent(Duration),
    /// It destroyed the group.
    Left,
    /// It never wrote its state.
    NeverSeen,
    /// Nobody asked, since `TORCH_NCCL_DESYNC_DEBUG` is 0 or the store is lost.
    NotAsked,
}

/// What a rank said of itself.
///
/// ```
/// use cuda_dist::{Life, RankState};
///
/// let state = RankState { rank: 1, last: None, message: None, completed: 0, life: Life::NeverSeen };
/// assert_eq!(state.to_string(), "rank 1 was never seen");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RankState {
    /// Who.
    pub rank: usize,
    /// The last collective it called.
    pub last: Option<Call>,
    /// The message that it has waited for longest.
    pub message: Option<Call>,
    /// How many of its collectives are done.
    pub completed: u64,
    /// Whether it is there.
    pub life: Life,
}

/// A rank's state as a line of a store, which changes with each beat.
pub(crate) fn to_line(
    beat: u64,
    has_left: bool,
    completed: u64,
    last: Option<&Call>,
    message: Option<&Call>,
) -> String {
    let [last, message] = [last, message].map(|call| call.map(Call::to_line).unwrap_or_default());
    format!("{beat};{};{completed};{last};{message}", u8::from(has_left))
}

impl RankState {
    pub(crate) fn unknown(rank: usize, life: Life) -> Self {
        Self { rank, last: None, message: None, completed: 0, life }
    }

    /// Reads the lines of a rank from before and now.
    pub(crate) fn from_lines(rank: usize, before: Option<&[u8]>, now: Option<&[u8]>, between: Duration) -> Self {
        let Some(line) = now else { return Self::unknown(rank, Life::NeverSeen) };
        let is_silent = before == now;
        let line = String::from_utf8_lossy(line);
        let fields: Vec<&str> = line.split(';').collect();
        let &[_, left, completed, last, message] = fields.as_slice() else {
            return Self::unknown(rank, Life::NeverSeen);
        };
        let life = match (left, is_silent) {
            ("1", _) => Life::Left,
            (_, true) => Life::Silent(between),
            (_, false) => Life::Alive,
        };
        let (last, message) = (Call::from_line(last), Call::from_line(message));
        Self { rank, last, message, completed: completed.parse().unwrap_or(0), life }
    }
}

impl fmt::Display for RankState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ", self.rank)?;
        match self.life {
            Life::NeverSeen => return f.write_str("was never seen"),
            Life::NotAsked => return f.write_str("was not asked"),
            Life::Alive | Life::Silent(_) | Life::Left => {}
        }
        match &self.last {
            None if matches!(self.life, Life::Silent(_)) => f.write_str("had called nothing when it last wrote")?,
            None => f.write_str("called nothing yet")?,
            Some(last) if last.sequence <= self.completed => write!(f, "last called {last}, which is done there")?,
            Some(last) if matches!(self.life, Life::Silent(_)) => write!(f, "was in {last} when it last wrote")?,
            Some(last) => write!(f, "waits in {last}")?,
        }
        if let Some(message) = &self.message {
            write!(f, ", with {message} under way")?;
        }
        match self.life {
            Life::Silent(time) => write!(f, ", and gives no sign of life ({time:.1?} or longer)"),
            Life::Left => f.write_str(", and has left the group"),
            Life::Alive | Life::NeverSeen | Life::NotAsked => Ok(()),
        }
    }
}

/// A collective that did not end in time, and what the other ranks do: torch's desync report.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use cuda_dist::{Error, HashStore, InitOptions, ProcessGroup};
///
/// let options = InitOptions { timeout: Duration::from_millis(200), ..Default::default() };
/// let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 2, &options)?;
/// let Err(Error::Timeout(report)) = group.barrier()?.wait() else { panic!("rank 1 is not there") };
/// assert_eq!(report.missing(), [1]);
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Who says so.
    pub rank: usize,
    /// What did not end.
    pub call: Call,
    /// How long it was waited for.
    pub waited: Duration,
    /// The other ranks.
    pub others: Vec<RankState>,
}

impl Report {
    /// The ranks that have not called the collective, as far as they say; of a message the rank at its other end.
    #[must_use]
    pub fn missing(&self) -> Vec<usize> {
        if self.call.operation.is_message() {
            return self.call.peer.into_iter().collect();
        }
        let is_missing = |state: &&RankState| {
            state.life != Life::NotAsked && state.last.as_ref().is_none_or(|last| last.sequence < self.call.sequence)
        };
        self.others.iter().filter(is_missing).map(|state| state.rank).collect()
    }

    /// The ranks that called the collective, as far as they said, and give no sign of life since.
    #[must_use]
    pub fn silent(&self) -> Vec<usize> {
        if self.call.operation.is_message() {
            return Vec::new();
        }
        let missing = self.missing();
        let is_silent = |state: &&RankState| matches!(state.life, Life::Silent(_)) && !missing.contains(&state.rank);
        self.others.iter().filter(is_silent).map(|state| state.rank).collect()
    }

    /// The ranks that called something else in its place.
    #[must_use]
    pub fn elsewhere(&self) -> Vec<usize> {
        if self.call.operation.is_message() {
            return Vec::new();
        }
        let is_elsewhere = |state: &&RankState| {
            let last = state.last.as_ref().filter(|last| last.sequence == self.call.sequence);
            last.is_some_and(|last| self.call.difference(last).is_some())
        };
        self.others.iter().filter(is_elsewhere).map(|state| state.rank).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}: {} did not end within {:.1?}", self.rank, self.call, self.waited)?;
        let (missing, silent, elsewhere) = (self.missing(), self.silent(), self.elsewhere());
        if !missing.is_empty() {
            let what = if !self.call.operation.is_message() {
                "called"
            } else if self.call.operation == Operation::Send {
                "received"
            } else {
                "sent"
            };
            write!(f, "; it was never {what} by rank {}", Ranks(&missing))?;
        }
        if !silent.is_empty() {
            write!(f, "; no sign of life comes from rank {}", Ranks(&silent))?;
        }
        if !elsewhere.is_empty() {
            write!(f, "; something else was called by rank {}", Ranks(&elsewhere))?;
        }
        self.others.iter().try_for_each(|state| write!(f, "\n  {state}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Life, RankState, Report, to_line};
    use crate::call::{Call, Operation};

    #[test]
    fn a_report_names_who_is_missing_silent_and_elsewhere() {
        let at = |sequence, operation| Call { sequence, ..Call::new(operation) };
        let second = Duration::from_secs(1);
        let line = |beat, completed, call: &Call| to_line(beat, false, completed, Some(call), None).into_bytes();
        let (done, other) = (at(2, Operation::Barrier), at(3, Operation::Broadcast));
        let (dead, dead_within) = (line(5, 2, &done), line(5, 2, &at(3, Operation::AllReduce)));
        let others = vec![
            RankState::from_lines(1, Some(&dead), Some(&dead), second),
            RankState::from_lines(2, Some(&line(5, 2, &other)), Some(&line(6, 2, &other)), second),
            RankState::from_lines(3, None, None, second),
            RankState::from_lines(4, None, Some(b"garbage"), second),
            RankState::from_lines(5, Some(&dead_within), Some(&dead_within), second),
        ];
        let report = Report { rank: 0, call: at(3, Operation::AllReduce), waited: second, others };
        assert_eq!((report.missing(), report.silent(), report.elsewhere()), (vec![1, 3, 4], vec![5], vec![2]));
        let text = report.to_string();
        assert!(
            text.starts_with(
                "rank 0: all_reduce #3 did not end within 1.0s; it was never called by rank 1, 3 and 4; no sign of life \
                 comes from rank 5; something else was called by rank 2\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("rank 1 last called barrier #2, which is done there, and gives no sign of life (1.0s"),
            "{text}"
        );
        assert!(text.contains("rank 2 waits in broadcast #3\n"), "{text}");
        assert_eq!(report.others[3].life, Life::NeverSeen);
    }
}
