//! The threads on which functions of the program run: one for each context, as in the driver.
//!
//! A function that is due is handed to its context's thread. Whoever drives the simulation waits for it, so simulated
//! time stands still meanwhile and the history follows from the seed alone. A function that takes longer than
//! [`PATIENCE`] may be waiting for the program itself: then everything that does not depend on it goes on, and so does
//! the call that met it.
//!
//! A function that belongs to no context, which destroys a user object, has a thread of its own.
//!
//! A thread ends when its machine is gone, or when a later one finds that its context is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::host_work;
use crate::machine::{Machine, Shared};
use crate::model::{DueHostWork, HostWork};

/// How long a function may hold up everything else.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// A function to be run, and the machine it is of.
struct Job {
    shared: Arc<Shared>,
    due: DueHostWork,
}

/// The threads of a machine, by context.
#[derive(Debug, Default)]
pub(crate) struct HostThreads {
    threads: Mutex<BTreeMap<u64, Sender<Job>>>,
}

impl HostThreads {
    /// Lets the thread of its context run a function, after those that it was given before. Gives the function back
    /// when no thread can be had.
    pub(crate) fn hand_over(
        &self,
        shared: Arc<Shared>,
        due: DueHostWork,
        is_context: impl Fn(u64) -> bool,
    ) -> Result<(), HostWork> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|&context, _| is_context(context) || context == due.context);
        let sender = match threads.entry(due.context) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let (sender, jobs) = channel();
                let named = thread::Builder::new().name("cuda-sim host functions".to_owned());
                named.spawn(move || serve(&jobs)).map_err(|_| due.work)?;
                entry.insert(sender)
            }
        };
        sender.send(Job { shared, due }).map_err(|refused| refused.0.due.work)
    }
}

/// Runs functions until nobody can send any more.
fn serve(jobs: &Receiver<Job>) {
    for Job { shared, due } in jobs {
        let machine = Machine::of_shared(shared);
        let bound = machine.bind();
        host_work::run(due.work);
        machine.shared().host_work_done(&due);
        drop(bound);
    }
}

/// Runs a function of no context on a thread of its own, and waits for it unless it takes too long.
pub(crate) fn run_apart(machine: Machine, work: HostWork) {
    let (done, finished) = channel();
    let named = thread::Builder::new().name("cuda-sim destructors".to_owned());
    let spawned = named.spawn(move || {
        let bound = machine.bind();
        host_work::run(work);
        drop(bound);
        // Nobody listens any more when it took too long.
        let _ = done.send(());
    });
    match spawned {
        Ok(_) => drop(finished.recv_timeout(PATIENCE)),
        Err(_) => host_work::run(work),
    }
}
