//! One call under way: the lock on its machine, and waiting for queued work.
//!
//! Functions of the program run on threads of their own, with the machine unlocked.

use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuda_sys::driver::types::{CUfunc_st, CUoccupancyB2DSize};

use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_CONTEXT, INVALID_HANDLE, NOT_INITIALIZED};
use crate::host_threads;
use crate::host_work;
use crate::machine::{Shared, thread_number};
use crate::model::engine::OpId;
use crate::model::event::Event;
use crate::model::modules::Described;
use crate::model::{DueHostWork, State, Step};

/// How long to wait in real time when other threads must do something first.
const PATIENCE: Duration = Duration::from_micros(200);

/// What asking for the state of work costs, in simulated nanoseconds.
const POLL_NS: u64 = 2_000;

/// `CU_STREAM_LEGACY`.
const STREAM_LEGACY: u64 = 1;

/// `CU_STREAM_PER_THREAD`.
const STREAM_PER_THREAD: u64 = 2;

/// A call, holding its machine's lock.
pub(crate) struct Call<'m> {
    shared: &'m Shared,
    /// `None` only while a function of the program runs or the thread waits.
    guard: Option<MutexGuard<'m, State>>,
    pub(crate) thread: u64,
    /// Whether the call was made by the program.
    is_of_program: bool,
}

impl Deref for Call<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.guard.as_ref().expect("the lock is held except inside `unlocked`")
    }
}

impl DerefMut for Call<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.guard.as_mut().expect("the lock is held except inside `unlocked`")
    }
}

impl<'m> Call<'m> {
    pub(crate) fn new(shared: &'m Shared, calling: &'static str) -> Self {
        shared.note_call();
        Self { is_of_program: true, ..Self::without_program(shared, calling) }
    }

    /// Begins a call that was not made by the program: simulated time passes during it.
    pub(crate) fn without_program(shared: &'m Shared, calling: &'static str) -> Self {
        let mut guard = shared.lock();
        let thread = thread_number();
        (guard.calling, guard.journal.caller) = (calling, thread);
        Self { shared, guard: Some(guard), thread, is_of_program: false }
    }

    /// Answers `NOT_INITIALIZED` before `cuInit` and in a process forked since.
    pub(crate) fn need_init(&self) -> Answer {
        if self.initialized_by == Some(std::process::id()) { Ok(()) } else { Err(NOT_INITIALIZED) }
    }

    /// The current context, which must be usable, for things that belong to a context: memory, events and modules of a
    /// green context are its primary context's.
    pub(crate) fn need_context(&self) -> Answer<u64> {
        Ok(self.home_of(self.need_current()?))
    }

    /// The current context itself, which must be usable, for streams and for waiting.
    pub(crate) fn need_current(&self) -> Answer<u64> {
        self.need_init()?;
        let context = self.current_context(self.thread).ok_or(INVALID_CONTEXT)?;
        self.usable_context(context)?;
        Ok(context)
    }

    /// The device of the current context.
    pub(crate) fn current_device(&self) -> Answer<u32> {
        let context = self.need_context()?;
        Ok(self.usable_context(context)?.device)
    }

    /// The stream that a handle names. The default streams are those of the current context.
    pub(crate) fn named_stream<T>(&mut self, handle: Ptr<T>) -> Answer<u64> {
        self.stream_named(handle.address())
    }

    /// Checks that the stream that a handle names belongs to a context: the default streams do if one is current.
    pub(crate) fn need_context_of<T>(&mut self, handle: Ptr<T>) -> Answer {
        self.need_init()?;
        let is_default = matches!(handle.address(), 0 | STREAM_LEGACY | STREAM_PER_THREAD);
        if is_default { self.need_current().map(drop) } else { Ok(()) }
    }

    /// As [`Call::named_stream`], for a handle out of a parameter structure.
    pub(crate) fn stream_named(&mut self, handle: u64) -> Answer<u64> {
        self.need_init()?;
        let thread = self.thread;
        let key = match handle {
            0 | STREAM_LEGACY => {
                let context = self.need_current()?;
                self.default_streams(context).ok_or(INVALID_CONTEXT)?.legacy
            }
            STREAM_PER_THREAD => {
                let context = self.need_current()?;
                self.per_thread_stream(context, thread).ok_or(INVALID_HANDLE)?
            }
            key => key,
        };
        let context = self.stream(key)?.context;
        self.usable_context(context)?;
        Ok(key)
    }

    /// The event that a handle names.
    pub(crate) fn named_event<T>(&self, handle: Ptr<T>) -> Answer<u64> {
        if handle.is_null() {
            return Err(INVALID_HANDLE);
        }
        self.need_init()?;
        let key = handle.address();
        let context = self.event(key)?.context;
        self.usable_context(context)?;
        Ok(key)
    }

    /// Runs work until `done` says so. Never returns while that does not happen, like the driver.
    pub(crate) fn wait_until(&mut self, mut done: impl FnMut(&State) -> bool) {
        while !done(self) {
            let before = self.clock_ns;
            match self.step(u64::MAX) {
                Step::Applied => {}
                Step::Host(due) => self.run_host_work(due),
                Step::Waiting => {
                    // Only the host or another thread can change what the stream waits for.
                    self.clock_ns = before;
                    self.grids.look_in_vain();
                    self.be_patient();
                }
                Step::Idle => self.be_patient(),
            }
        }
    }

    /// Runs one operation and what it needs.
    pub(crate) fn wait_for(&mut self, op: OpId) {
        self.wait_until(|state| !state.is_pending(op));
    }

    /// Waits for what this call has queued, when launches block; the error if its context is lost by that.
    pub(crate) fn finish_launch(&mut self) -> Answer {
        let Some((context, op)) = self.launched.take() else { return Ok(()) };
        self.wait_for(op);
        self.usable_context(context).map(|_| ())
    }

    /// Runs everything on a stream; the error if its context is lost by that.
    pub(crate) fn finish_stream(&mut self, key: u64) -> Answer {
        let context = self.stream(key)?.context;
        self.wait_until(|state| state.stream_is_idle(key));
        self.note_stream_seen(key);
        self.usable_context(context).map(|_| ())
    }

    /// Runs everything of a context; the error if it is lost by that.
    pub(crate) fn finish_context(&mut self, context: u64) -> Answer {
        self.wait_until(|state| state.load_of(context) == 0);
        self.note_context_seen(context);
        self.usable_context(context).map(|_| ())
    }

    /// Runs work of other contexts that still uses an allocation.
    pub(crate) fn finish_users(&mut self, base: u64) {
        let length = self.memory.allocation_at(base).map_or(0, |allocation| allocation.length);
        self.wait_until(|state| !state.work_touches(base, length));
    }

    /// Refuses calls that a capture forbids to this thread.
    pub(crate) fn refuse_if_unsafe(&mut self) -> Answer {
        let thread = self.thread;
        self.refuse_unsafe(thread)
    }

    /// Time passes because the program asks whether something is done, so that asking again and again ends.
    pub(crate) fn poll(&mut self) {
        self.clock_ns += POLL_NS;
        self.catch_up();
    }

    /// Runs everything that is queued.
    pub(crate) fn run_everything(&mut self) {
        self.wait_until(|state| state.engine.len() == 0);
        let visible_ns = self.events.values().filter_map(Event::visible_ns).max().unwrap_or(0);
        self.clock_ns = self.clock_ns.max(visible_ns);
    }

    /// Lets everything finish that is due by now.
    pub(crate) fn catch_up(&mut self) {
        loop {
            let now_ns = self.clock_ns;
            match self.step(now_ns) {
                Step::Applied => {}
                Step::Host(due) => self.run_host_work(due),
                Step::Waiting => {}
                Step::Idle => return,
            }
        }
    }

    /// Lets simulated time pass as real time does.
    pub(crate) fn let_time_pass(&mut self, time: Duration) {
        self.clock_ns += u64::try_from(time.as_nanos()).unwrap_or(0);
        self.catch_up();
    }

    /// Lets a function of the program run, and waits for it unless it takes too long or stands behind one that does.
    fn run_host_work(&mut self, due: DueHostWork) {
        if let Err(work) = self.shared.hand_over(self, due) {
            self.unlocked(|| host_work::run(work));
            self.finish_host_work(&due);
            self.shared.progress.notify_all();
            return;
        }
        let patient_until = Instant::now() + host_threads::PATIENCE;
        while self.is_pending(due.op) && !self.overdue.contains(&due.context) {
            let left = patient_until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.overdue.insert(due.context);
            } else {
                self.wait_at_most(left);
            }
        }
    }

    /// Destroys the user objects that nobody holds any more.
    pub(crate) fn destroy_orphans(&mut self) {
        for work in self.take_orphans() {
            let machine = self.shared.machine();
            self.unlocked(|| machine.map(|machine| host_threads::run_apart(machine, work)));
        }
    }

    fn unlocked<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let calling = self.calling;
        self.guard = None;
        let answer = work();
        let mut guard = self.shared.lock();
        guard.calling = calling;
        self.guard = Some(guard);
        answer
    }

    /// What a function of the program says of the shared memory of blocks; none where there is no function.
    pub(crate) fn shared_for_block(&mut self, function: CUoccupancyB2DSize, threads: u32) -> Option<usize> {
        let function = function?;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        Some(self.unlocked(|| host_work::shared_for_block(function, threads)))
    }

    /// What can be asked of the function, or of the kernel of a library, that a handle names.
    pub(crate) fn described_function(&self, function: Ptr<CUfunc_st>) -> Answer<Described> {
        self.described(function.address(), self.current_device()?)
    }

    /// Gives other threads time to change something.
    fn be_patient(&mut self) {
        self.wait_at_most(PATIENCE);
    }

    /// Lets other threads have the machine until something has finished.
    fn wait_at_most(&mut self, time: Duration) {
        if self.is_of_program {
            // A thread that waits inside a call drives the simulation.
            self.shared.note_call();
        }
        let calling = self.calling;
        if let Some(guard) = self.guard.take() {
            let (mut guard, _) = self.shared.progress.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
            guard.calling = calling;
            self.guard = Some(guard);
        }
    }
}
