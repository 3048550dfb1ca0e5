//! Progress of machines whose programs have stopped calling the driver.
//!
//! A machine makes progress while its program calls the driver. A program that waits by other means, such as a channel
//! that a host function of a stream sends to, a word of pinned memory that it polls, or another process, would wait for
//! ever. Therefore one thread of the process watches all machines that have no pump: if work is queued and the thread
//! that called last has slept for [`ASLEEP`] or computed for [`AWAKE`] since, simulated time follows real time until
//! the next call.
//!
//! **Invariant:** the history of a program that never pauses for that long depends only on its seed and its calls. Time
//! in which a thread is runnable but not scheduled does not count, so a busy computer does not trigger a pause early.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::machine::{PUMP_INTERVAL, Shared};

/// Time that the last calling thread must sleep before queued work continues without a call.
const ASLEEP: Duration = Duration::from_secs(1);

/// Time that the last calling thread must compute, or poll memory, before queued work continues without a call.
const AWAKE: Duration = Duration::from_secs(3);

/// Interval at which pauses are measured.
const TICK: Duration = Duration::from_millis(50);

/// Counter of the calls of a machine's program.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Number of calls that have begun, and of waits within calls.
    count: AtomicU64,
    /// Thread id of the last caller; 0 if unknown.
    caller: AtomicU64,
}

thread_local! {
    static OWN_NUMBER: u64 = own_number().unwrap_or(0);
}

/// Returns the id of the calling thread.
fn own_number() -> Option<u64> {
    std::fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

impl Calls {
    /// Counts a call of the calling thread.
    pub(crate) fn note(&self) {
        // A thread that is ending has lost its thread-local id.
        self.caller.store(OWN_NUMBER.try_with(|number| *number).unwrap_or(0), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A watched machine. A strong reference is taken only while its program pauses, so that the machine is dropped with
/// the program's own handles.
#[derive(Debug)]
struct Watched {
    machine: Weak<Shared>,
    calls: Arc<Calls>,
    /// Number of calls at the last check.
    seen: u64,
    /// Whether no work was queued at the last check. Only calls queue work.
    is_idle: bool,
    /// Time that the last calling thread has slept since its call.
    asleep: Duration,
    /// CPU time of the last calling thread at the first check after its call, and now.
    awake: Option<(Duration, Duration)>,
}

/// Returns whether a thread sleeps, and its total CPU time; `None` if it has ended.
fn activity(thread: u64) -> Option<(bool, Duration)> {
    let folder = PathBuf::from(format!("/proc/self/task/{thread}"));
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    let is_asleep = !stat.rsplit_once(") ")?.1.starts_with('R');
    let computed = std::fs::read_to_string(folder.join("schedstat")).ok()?;
    Some((is_asleep, Duration::from_nanos(computed.split(' ').next()?.parse().ok()?)))
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());
static ADDED: Condvar = Condvar::new();

/// Watches a machine from now on.
pub(crate) fn watch(machine: &Arc<Shared>) {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    start();
    watched.push(Watched {
        machine: Arc::downgrade(machine),
        calls: machine.calls(),
        seen: 0,
        is_idle: false,
        asleep: Duration::ZERO,
        awake: None,
    });
    ADDED.notify_one();
}

/// Starts the watching thread. If that fails, programs that do not call make no progress.
fn start() {
    static STARTED: std::sync::Once = std::sync::Once::new();
    STARTED.call_once(|| drop(thread::Builder::new().name("cuda-sim standstill".to_owned()).spawn(look_after)));
}

fn look_after() {
    let mut pause = TICK;
    loop {
        let begun = Instant::now();
        thread::sleep(pause);
        let is_late = begun.elapsed() > pause + TICK;
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        while watched.is_empty() {
            watched = ADDED.wait(watched).unwrap_or_else(PoisonError::into_inner);
        }
        let standing = standing(&mut watched, if is_late { Duration::ZERO } else { pause });
        drop(watched);
        pause = if standing.is_empty() { TICK } else { PUMP_INTERVAL };
        // This may drop the last handle of a machine, so no lock is held.
        standing.iter().for_each(|machine| go_on(machine));
    }
}

/// Returns the machines whose programs have paused for long enough, and removes dropped machines.
fn standing(watched: &mut Vec<Watched>, passed: Duration) -> Vec<Arc<Shared>> {
    watched.retain(|of| of.machine.strong_count() > 0);
    watched.iter_mut().filter_map(|of| of.look(passed)).collect()
}

impl Watched {
    /// Returns the machine if its program has paused for long enough.
    fn look(&mut self, passed: Duration) -> Option<Arc<Shared>> {
        let calls = self.calls.count.load(Ordering::Relaxed);
        if calls != self.seen {
            (self.seen, self.is_idle, self.asleep, self.awake) = (calls, false, Duration::ZERO, None);
            return None;
        }
        if self.is_idle || !self.has_paused(passed) {
            return None;
        }
        let machine = self.machine.upgrade()?;
        self.is_idle = !machine.has_queued_work()?;
        (!self.is_idle).then_some(machine)
    }

    /// Adds the time since the last check to the state of the last calling thread, and returns whether the program has
    /// paused.
    fn has_paused(&mut self, passed: Duration) -> bool {
        match activity(self.calls.caller.load(Ordering::Relaxed)) {
            Some((is_asleep, computed)) => {
                if is_asleep {
                    self.asleep += passed;
                }
                let (before, _) = self.awake.unwrap_or((computed, computed));
                self.awake = Some((before, computed));
            }
            // An ended thread makes no more calls; if the system provides no data, every thread counts as sleeping.
            None => self.asleep += passed,
        }
        let awake = self.awake.map_or(Duration::ZERO, |(before, now)| now.saturating_sub(before));
        self.asleep >= ASLEEP || awake >= AWAKE
    }
}

/// Advances a machine by the time between two checks.
fn go_on(machine: &Shared) {
    let mut call = Call::without_program(machine, "standstill");
    call.let_time_pass(PUMP_INTERVAL);
    call.destroy_orphans();
    call.tell_others();
}
