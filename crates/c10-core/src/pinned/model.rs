//! A driver made of numbers, for tests: hands out addresses and events, remembers them, and fails when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_sys::{CUresult, CallError};

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result};
use crate::base::handles::{CaptureMode, EventHandle, StreamHandle, StreamRef};
use crate::driver::{EventQuery, HostDriver};

pub(crate) const DEVICE: DeviceIndex = DeviceIndex(0);

pub(crate) fn stream(number: usize) -> StreamRef {
    StreamRef { device: DEVICE, handle: StreamHandle(number) }
}

#[derive(Debug, Default)]
pub(crate) struct Model(Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Memory taken: its bytes, and whether it is registered.
    pub(crate) memory: BTreeMap<usize, (usize, bool)>,
    /// Events and the streams they were recorded on.
    pub(crate) events: BTreeMap<usize, Option<StreamRef>>,
    /// Events that have not passed.
    pub(crate) pending: BTreeSet<usize>,
    pub(crate) capturing: BTreeSet<StreamRef>,
    /// Whether a capture forbids unsafe calls to threads that are not relaxed.
    pub(crate) global_capture: bool,
    /// The calling thread's mode; tests with captures use one thread.
    mode: CaptureMode,
    /// Most bytes there are; no limit for `None`.
    pub(crate) capacity: Option<usize>,
    pub(crate) threads: Vec<u32>,
    next: usize,
    pub(crate) calls: u64,
    /// Call that fails, counted from 1.
    pub(crate) fails: u64,
    pub(crate) failed: BTreeSet<&'static str>,
}

pub(crate) fn failure(status: CUresult) -> Error {
    CallError::Failed { call: "model", status }.into()
}

impl Model {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all events of a stream pass.
    pub(crate) fn pass(&self, stream: StreamRef) {
        let state = &mut *self.state();
        state.pending.retain(|event| state.events[event] != Some(stream));
    }
}

impl State {
    fn call(&mut self, name: &'static str) -> Result<()> {
        self.calls += 1;
        if self.calls != self.fails {
            return Ok(());
        }
        self.failed.insert(name);
        Err(failure(CUresult::CUDA_ERROR_LAUNCH_FAILED))
    }

    /// A call that a capture forbids.
    fn unsafe_call(&mut self, name: &'static str) -> Result<()> {
        assert!(!self.global_capture || self.mode == CaptureMode::Relaxed, "{name} spoils a capture");
        self.call(name)
    }

    fn take(&mut self, bytes: usize, registered: bool) -> Result<usize> {
        let used: usize = self.memory.values().map(|(bytes, _)| bytes).sum();
        if self.capacity.is_some_and(|capacity| used + bytes > capacity) {
            return Err(failure(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        self.next += 1 << 12;
        let address = self.next;
        self.next += bytes.next_multiple_of(1 << 12);
        self.memory.insert(address, (bytes, registered));
        Ok(address)
    }

    fn give(&mut self, address: usize, registered: bool) {
        let given = self.memory.remove(&address).expect("only memory that was taken goes back");
        assert_eq!(given.1, registered, "memory goes back the way it came");
    }
}

impl EventQuery for Model {
    fn query(&self, event: EventHandle) -> Result<bool> {
        let mut state = self.state();
        state.unsafe_call("query")?;
        assert!(state.events[&event.0].is_some(), "an event is asked for before it was recorded");
        Ok(!state.pending.contains(&event.0))
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let mut state = self.state();
        // Undoing it is not made to fail, since the next call would be forbidden through no fault of the allocator's.
        if mode == CaptureMode::Relaxed {
            state.call("exchange_mode")?;
        }
        Ok(std::mem::replace(&mut state.mode, mode))
    }
}

impl HostDriver for Model {
    fn host_alloc(&self, _: DeviceIndex, bytes: usize) -> Result<usize> {
        let mut state = self.state();
        state.unsafe_call("host_alloc")?;
        state.take(bytes, false)
    }

    fn host_free(&self, _: DeviceIndex, address: usize) -> Result<()> {
        let mut state = self.state();
        state.unsafe_call("host_free")?;
        state.give(address, false);
        Ok(())
    }

    fn host_register(&self, _: DeviceIndex, bytes: usize, threads: u32) -> Result<usize> {
        let mut state = self.state();
        state.unsafe_call("host_register")?;
        state.threads.push(threads);
        state.take(bytes, true)
    }

    fn host_unregister(&self, _: DeviceIndex, address: usize, bytes: usize) -> Result<()> {
        let mut state = self.state();
        state.unsafe_call("host_unregister")?;
        assert_eq!(state.memory.get(&address), Some(&(bytes, true)), "a mapping goes back as a whole");
        state.give(address, true);
        Ok(())
    }

    fn host_pin(&self, _: DeviceIndex, address: usize, bytes: usize) -> Result<()> {
        let mut state = self.state();
        state.unsafe_call("host_pin")?;
        assert!(state.memory.insert(address, (bytes, true)).is_none(), "memory is pinned once");
        Ok(())
    }

    fn host_unpin(&self, _: DeviceIndex, address: usize) -> Result<()> {
        let mut state = self.state();
        state.unsafe_call("host_unpin")?;
        state.give(address, true);
        Ok(())
    }

    fn create_event(&self, _: DeviceIndex) -> Result<EventHandle> {
        let mut state = self.state();
        state.call("create_event")?;
        state.next += 1;
        let event = state.next;
        state.events.insert(event, None);
        Ok(EventHandle(event))
    }

    fn destroy_event(&self, event: EventHandle) -> Result<()> {
        let mut state = self.state();
        state.call("destroy_event")?;
        state.events.remove(&event.0).expect("only live events are destroyed");
        Ok(())
    }

    fn record_event(&self, event: EventHandle, stream: StreamRef) -> Result<()> {
        let mut state = self.state();
        state.call("record_event")?;
        assert!(!state.capturing.contains(&stream), "an event is recorded into a capture");
        assert!(!state.pending.contains(&event.0), "an event is recorded again before it has passed");
        state.events.insert(event.0, Some(stream));
        state.pending.insert(event.0);
        Ok(())
    }

    fn wait_for_event(&self, event: EventHandle) -> Result<()> {
        let mut state = self.state();
        state.unsafe_call("wait_for_event")?;
        state.pending.remove(&event.0);
        Ok(())
    }

    fn is_capturing(&self, stream: StreamRef) -> Result<bool> {
        let mut state = self.state();
        state.call("is_capturing")?;
        Ok(state.capturing.contains(&stream))
    }
}
