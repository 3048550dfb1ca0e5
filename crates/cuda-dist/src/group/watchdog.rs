//! The thread that sees that collectives end: it writes this rank's state into the store, looks at what is under way, and
//! gives the group up where something failed, took too long, or another rank gave up.
//!
//! Invariant: it has a connection to the store of its own, so that nobody's waiting holds it up.

use std::io::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Inner;
use super::work::Shared;
use crate::error::{Error, Result};
use crate::report::{Life, RankState, Report, to_line};
use crate::settings::ErrorHandling;
use crate::store::Store;

/// How often works are looked at.
const TICK: Duration = Duration::from_millis(20);

/// Where the first rank that gives up says so: `rank reason`.
const ABORT: &str = "cuda_dist/abort";

/// What has a failed collective end the process.
const HANDLING: &str = "TORCH_NCCL_ASYNC_ERROR_HANDLING; 2 has the error go to the caller instead";

pub(super) fn state_key(rank: usize) -> String {
    format!("cuda_dist/state/{rank}")
}

pub(super) struct Watchdog {
    pub(super) inner: Arc<Inner>,
    pub(super) store: Arc<dyn Store>,
    pub(super) beat: u64,
}

impl Watchdog {
    /// Watches until the group is destroyed.
    pub(super) fn watch(mut self) {
        let mut last_beat: Option<Instant> = None;
        loop {
            let is_over = self.inner.is_destroyed();
            self.look_at_works();
            let is_due = last_beat.is_none_or(|last| last.elapsed() >= self.inner.settings.beat);
            if is_due || is_over {
                let outcome = self.write_state(is_over).and_then(|()| self.look_at_others());
                if let Err(error) = outcome {
                    self.store_is_lost(error);
                }
                last_beat = Some(Instant::now());
            }
            if is_over {
                return;
            }
            self.inner.rest(TICK.min(self.inner.settings.beat));
        }
    }

    pub(super) fn write_state(&mut self, has_left: bool) -> Result<()> {
        self.beat += 1;
        let line = {
            let state = self.inner.state();
            let beginning = state.beginning.as_ref().map(|work| &work.call);
            let last = beginning.filter(|call| !call.operation.is_message()).or(state.last.as_ref());
            let message = state.messages.first().map(|work| &work.call);
            let message = message.or(beginning.filter(|call| call.operation.is_message()));
            to_line(self.beat, has_left, state.completed, last, message)
        };
        self.store.set(&state_key(self.inner.rank), line.as_bytes())
    }

    /// Without the store nothing under way can end well; with nothing under way it is no matter.
    fn store_is_lost(&self, error: Error) {
        let is_waited_for = {
            let state = self.inner.state();
            !state.under_way.is_empty() || !state.messages.is_empty() || state.beginning.is_some()
        };
        if is_waited_for {
            self.inner.give_up(&error);
        }
    }

    /// Gives up where another rank did.
    fn look_at_others(&mut self) -> Result<()> {
        if self.inner.given_up.get().is_some() || !self.store.check(&[ABORT])? {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&self.store.get(ABORT, Duration::from_secs(1))?).into_owned();
        let (by, reason) = said.split_once(' ').unwrap_or(("", &said));
        let rank = self.inner.rank;
        let Some(by) = by.parse().ok().filter(|by| *by != rank) else { return Ok(()) };
        // What failed there fails here too, and this rank may know better why.
        thread::sleep(TICK * 5);
        self.look_at_works();
        self.inner.give_up(&Error::Aborted { rank, by, reason: reason.to_owned() });
        Ok(())
    }

    /// Counts what has ended, and gives up where it failed or takes too long.
    fn look_at_works(&mut self) {
        let (failed, late) = self.count_ended();
        if self.inner.given_up.get().is_some() || self.inner.is_destroyed() {
            return;
        }
        if let Some(error) = failed {
            self.say_and_give_up(&error);
        } else if let Some(late) = late {
            let report = self.report(&late);
            // It may have ended while the others were asked.
            if late.outcome(Duration::ZERO).is_none() {
                self.say_and_give_up(&Error::Timeout(Arc::new(report)));
            }
        }
    }

    /// Counts what has ended: the first error, and what takes too long.
    fn count_ended(&self) -> (Option<Error>, Option<Arc<Shared>>) {
        let mut failed = None;
        let mut guard = self.inner.state();
        let state = &mut *guard;
        let recorder = &self.inner.recorder;
        let mut has_ended = |work: &Shared| {
            let outcome = work.outcome(Duration::ZERO)?;
            let failure = outcome.as_ref().err().map(ToString::to_string);
            recorder.end(work.number, work.took().unwrap_or_default(), failure);
            failed = failed.take().or_else(|| outcome.clone().err());
            Some(outcome)
        };
        while let Some(first) = state.under_way.front()
            && let Some(outcome) = has_ended(first)
        {
            if outcome.is_ok() {
                state.completed = first.call.sequence;
            }
            state.under_way.pop_front();
        }
        state.messages.retain(|work| has_ended(work).is_none());
        let mut candidates = state.under_way.front().into_iter().chain(&state.messages).chain(&state.beginning);
        let late = candidates.find(|work| work.begun.elapsed() >= self.inner.timeout).cloned();
        (failed, late)
    }

    fn say_and_give_up(&self, error: &Error) {
        tracing::error!(rank = self.inner.rank, %error, "a collective failed");
        if self.inner.settings.propagate_error {
            let text = format!("{} {error}", self.inner.rank);
            // The first to give up is the one that is named.
            if let Err(lost) = self.store.compare_set(ABORT, b"", text.as_bytes()) {
                tracing::debug!(%lost, "the others cannot be told");
            }
        }
        self.inner.give_up(error);
        if self.inner.settings.error_handling == ErrorHandling::TearDown {
            // Nobody can ask this process any more, so what it knows goes where people look.
            let rank = self.inner.rank;
            let _ = writeln!(std::io::stderr(), "rank {rank}: {error}\nrank {rank} ends its process ({HANDLING})");
            std::process::abort();
        }
    }

    /// Asks the store twice what the other ranks do, so that it is seen who still writes.
    fn report(&mut self, work: &Shared) -> Report {
        let waited = work.begun.elapsed();
        let between = (self.inner.settings.beat * 2).min(self.inner.settings.report_time);
        let others = if self.inner.settings.desync_debug {
            self.states(between).unwrap_or_else(|_| self.not_asked())
        } else {
            self.not_asked()
        };
        Report { rank: self.inner.rank, call: work.call.clone(), waited, others }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.inner.rank;
        (0..self.inner.size).filter(move |other| *other != rank)
    }

    fn not_asked(&self) -> Vec<RankState> {
        self.others().map(|rank| RankState::unknown(rank, Life::NotAsked)).collect()
    }

    /// The lines that the others wrote last.
    fn lines(&self) -> Result<Vec<Option<Vec<u8>>>> {
        let line = |rank| {
            let key = state_key(rank);
            let is_there = self.store.check(&[&key])?;
            is_there.then(|| self.store.get(&key, Duration::from_secs(1))).transpose()
        };
        self.others().map(line).collect()
    }

    fn states(&mut self, between: Duration) -> Result<Vec<RankState>> {
        let before = self.lines()?;
        let begin = Instant::now();
        // The others want to see that this rank lives, too.
        while begin.elapsed() < between {
            thread::sleep(self.inner.settings.beat.min(between));
            self.write_state(false)?;
        }
        let now = self.lines()?;
        let of_rank = |(place, rank): (usize, usize)| {
            RankState::from_lines(rank, before[place].as_deref(), now[place].as_deref(), between)
        };
        Ok(self.others().enumerate().map(of_rank).collect())
    }
}
