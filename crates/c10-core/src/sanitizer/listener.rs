//! Who is told what a runtime reports, for a checker, and what becomes of races.
//!
//! **Invariants:** stacks are taken before the books are locked, and functions are named after that; nobody waits for either.
//! A report that cannot be written is dropped.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::{CUDASanitizerErrors, Error, UnsynchronizedAccessError};
use crate::sync::Mutex;
use crate::sync::lock;
use crate::trace::{self, Stacks, SubscriptionId, Trace, TraceEvent};

use super::{Checker, HostThread, Knowledge, Race, SanitizerMode};

/// The most races that are kept.
const KEPT: usize = 10_000;

/// What becomes of a race that is found.
///
/// ```
/// use c10_core::{SanitizerAction, SanitizerOptions};
///
/// assert_eq!(SanitizerOptions::default().action, SanitizerAction::Raise);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SanitizerAction {
    /// It is written to the error output, and the call that queued the work returns [`Error::Sanitizer`], although the
    /// work was queued. Torch does the same.
    Raise,
    /// It is kept for [`crate::Sanitizer::take_errors`], up to 10,000 of them.
    Collect,
    /// It is counted, and no stacks are taken.
    Count,
}

/// How the stream sanitizer works; the default is torch's way.
///
/// ```
/// use c10_core::{SanitizerAction, SanitizerMode, SanitizerOptions};
///
/// let options = SanitizerOptions { action: SanitizerAction::Collect, ..SanitizerOptions::ranges() };
/// assert_eq!((options.mode, options.stacks), (SanitizerMode::Ranges, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SanitizerOptions {
    /// Which accesses conflict.
    pub mode: SanitizerMode,
    /// What becomes of a race.
    pub action: SanitizerAction,
    /// Whether reports say where work was queued and memory was handed out. They leave out functions of the runtime and of
    /// the standard library unless `TORCH_SHOW_CPP_STACKTRACES` is 1.
    pub stacks: bool,
    /// Whether threads of the host are told apart: what one has waited for counts for the work of another only where
    /// [`crate::Sanitizer::hand_over`] says that they met. Otherwise it always counts. By torch's rules threads are never told apart.
    pub separate_threads: bool,
}

impl Default for SanitizerOptions {
    fn default() -> Self {
        Self { mode: SanitizerMode::Tensors, action: SanitizerAction::Raise, stacks: true, separate_threads: false }
    }
}

impl SanitizerOptions {
    /// Torch's way, but with ranges of bytes ([`SanitizerMode::Ranges`]).
    ///
    /// ```
    /// use c10_core::{SanitizerMode, SanitizerOptions};
    ///
    /// assert_eq!(SanitizerOptions::ranges().mode, SanitizerMode::Ranges);
    /// ```
    #[must_use]
    pub fn ranges() -> Self {
        Self { mode: SanitizerMode::Ranges, ..Self::default() }
    }
}

/// A sanitizer that is on.
#[derive(Debug)]
pub(crate) struct Listener {
    options: SanitizerOptions,
    checker: Mutex<Checker>,
    stacks: Stacks,
    count: AtomicU64,
    kept: Mutex<Vec<UnsynchronizedAccessError>>,
}

/// Lets a new sanitizer listen to what is traced.
pub(crate) fn listen(trace: &Trace, options: SanitizerOptions) -> (SubscriptionId, Arc<Listener>) {
    let listener = Arc::new(Listener {
        options,
        checker: Mutex::new(Checker::new(options.mode)),
        stacks: Stacks::default(),
        count: AtomicU64::new(0),
        kept: Mutex::default(),
    });
    let told = Arc::clone(&listener);
    (trace.subscribe(options.mode.kinds(), None, Arc::new(move |event| told.observe(event))), listener)
}

/// Lets a sanitizer with torch's rules listen if the environment has `TORCH_CUDA_SANITIZER`, with any value.
pub(crate) fn listen_if_asked(trace: &Trace) {
    if std::env::var_os("TORCH_CUDA_SANITIZER").is_some() {
        listen(trace, SanitizerOptions::default());
    }
}

impl Listener {
    pub(crate) fn options(&self) -> SanitizerOptions {
        self.options
    }

    /// Races so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Races that were kept since this was asked last.
    pub(crate) fn take_errors(&self) -> Vec<UnsynchronizedAccessError> {
        std::mem::take(&mut *lock(&self.kept))
    }

    /// What the calling thread knows to be done.
    pub(crate) fn known(&self) -> Knowledge {
        lock(&self.checker).known(self.thread())
    }

    /// The calling thread learns what another one knew.
    pub(crate) fn learn(&self, knowledge: &Knowledge) {
        lock(&self.checker).learn(self.thread(), knowledge);
    }

    fn thread(&self) -> HostThread {
        if self.options.separate_threads { HostThread(thread_number()) } else { HostThread(0) }
    }

    fn observe(&self, event: &TraceEvent) {
        let takes_stacks = self.options.stacks && self.options.action != SanitizerAction::Count;
        let stack = (takes_stacks && Checker::uses_stack(event)).then(|| self.stacks.capture());
        let mut races = Vec::new();
        lock(&self.checker).observe(event, self.thread(), stack.as_ref(), &mut races);
        if !races.is_empty() {
            self.tell(&races);
        }
    }

    #[cold]
    fn tell(&self, races: &[Race]) {
        self.count.fetch_add(races.len() as u64, Ordering::Relaxed);
        let described = || races.iter().map(Race::described);
        match self.options.action {
            SanitizerAction::Count => {}
            SanitizerAction::Collect => {
                let mut kept = lock(&self.kept);
                let room = KEPT.saturating_sub(kept.len());
                kept.extend(described().take(room));
            }
            SanitizerAction::Raise => {
                let errors: Vec<_> = described().collect();
                let mut output = std::io::stderr().lock();
                // A program that closed its error output does not want reports.
                let _ = errors.iter().try_for_each(|error| writeln!(output, "{error}"));
                drop(output);
                trace::refuse(Error::Sanitizer(Box::new(CUDASanitizerErrors { errors })));
            }
        }
    }
}

/// A number for the calling thread.
fn thread_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    }
    // A thread that ends has lost its number; nobody shares 0 but such threads.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}
