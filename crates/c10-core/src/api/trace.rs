//! Listening to what a runtime does: subscribers, torch's ten hooks, and the history of device memory.
//!
//! **Invariants:** everything here can be called before the runtime starts and does not start it. In a forked child of a
//! process that had started, it is refused: a lock might be held for ever by a thread that the child does not have.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::api::memory::Memory;
use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result, StartError};
use crate::base::ids::PoolId;
use crate::base::process;
use crate::caching::SegmentInfo;
use crate::runtime::Runtime;
use crate::thread::pending::PuttingOff;
use crate::trace::{
    self, HistoryOptions, Look, SubscriptionId, TraceAnnotation, TraceBlock, TraceEntry, TraceEvent, TraceFrame,
    TraceKind, TraceKinds,
};

impl Runtime {
    /// Calls `subscriber` with every event of some sorts from now on, on the thread that did what is reported, with no
    /// lock held: it may use the runtime, of which it is told nothing meanwhile. One that panics does not keep others from
    /// being called. While anybody wants [`TraceKind::Memory`], requests for device memory take longer, since those of one
    /// device are put in order.
    ///
    /// A subscriber that holds a [`Runtime`] keeps it alive until the subscription ends.
    pub fn subscribe(
        &self,
        kinds: TraceKinds,
        subscriber: impl Fn(&TraceEvent) + Send + Sync + 'static,
    ) -> SubscriptionId {
        self.subscribe_as(None, kinds, subscriber)
    }

    fn subscribe_as(
        &self,
        name: Option<&'static str>,
        kinds: TraceKinds,
        subscriber: impl Fn(&TraceEvent) + Send + Sync + 'static,
    ) -> SubscriptionId {
        let id = self.trace().subscribe(kinds, name, Arc::new(subscriber));
        self.follow_trace();
        id
    }

    /// Ends a subscription; `false` if it had ended already. Calls under way go on.
    pub fn unsubscribe(&self, id: SubscriptionId) -> bool {
        let was_there = self.trace().unsubscribe(id);
        self.follow_trace();
        was_there
    }

    /// The name of the kernel, or of the library's function, that an event is about.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceIndex, Error, Runtime, TraceEvent, TraceKind};
    ///
    /// let runtime = Runtime::current();
    /// let (tell, told) = std::sync::mpsc::channel();
    /// runtime.subscribe(TraceKind::Launch.into(), move |event| drop(tell.send(*event)));
    /// let function = runtime.library_function("cublasSgemm")?;
    /// runtime.queue_by_library(function, DeviceIndex(0), [], |_| Ok::<_, Error>(()))?;
    /// let event = told.recv().expect("the work is reported");
    /// assert_eq!(runtime.traced_name(&event).as_deref(), Some("cublasSgemm"));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "most events are about nothing with a name")]
    pub fn traced_name(&self, event: &TraceEvent) -> Option<Arc<str>> {
        match *event {
            TraceEvent::Launched { function, .. } | TraceEvent::Begun { function, .. } => {
                self.trace().kernel_name(function)
            }
            TraceEvent::LibraryQueued { function, .. } => self.started()?.launches.name_of(function),
            _ => None,
        }
    }

    /// Lets the allocators report what is wanted now.
    pub(crate) fn follow_trace(&self) {
        if let Some(ready) = self.started().filter(|_| !process::in_bad_fork()) {
            ready.follow_trace();
        }
    }
}

/// Makes a hook: `what it is` name, what is said when it panics, the sort of event, and what of an event it gets.
macro_rules! hooks {
    ($($(#[$doc:meta])* $name:ident($($argument:ident),*), $title:literal, $kind:ident, $pattern:pat => $call:expr;)*) => {
        impl Runtime {
            $(
                $(#[$doc])*
                ///
                /// Called after it happened, for as long as the subscription lasts. Of several callbacks each is called, in the
                /// order in which they were registered; one that panics is logged and does not stop the others.
                pub fn $name(&self, callback: impl Fn($(hooks!(@type $argument)),*) + Send + Sync + 'static) -> SubscriptionId {
                    self.subscribe_as(Some($title), TraceKind::$kind.into(), move |event| {
                        if let $pattern = *event {
                            let call: &dyn Fn(&dyn Fn($(hooks!(@type $argument)),*)) = &$call;
                            call(&callback);
                        }
                    })
                }
            )*
        }
    };
    (@type $argument:ident) => { u64 };
}

hooks! {
    /// Calls `callback` with the handle of each event that is made.
    register_callback_for_event_creation(event), "GPU event creation", Event,
        TraceEvent::EventCreated { event, .. } => |call| call(event);
    /// Calls `callback` with the handle of each event that is given up.
    register_callback_for_event_deletion(event), "GPU event deletion", Event,
        TraceEvent::EventDeleted { event, .. } => |call| call(event);
    /// Calls `callback` with the handles of each event that is recorded, and of the stream.
    register_callback_for_event_record(event, stream), "GPU event record", Event,
        TraceEvent::EventRecorded { event, stream } => |call| call(event, stream.handle);
    /// Calls `callback` with the handles of each event that a stream waits for, and of the stream.
    register_callback_for_event_wait(event, stream), "GPU event wait", Event,
        TraceEvent::EventWaited { event, stream } => |call| call(event, stream.handle);
    /// Calls `callback` with the address of device memory that is handed out.
    register_callback_for_memory_allocation(address), "GPU memory allocation", Memory,
        TraceEvent::Allocated(TraceBlock { address, .. }) | TraceEvent::UncachedAllocated { address, .. }
            => |call| call(address);
    /// Calls `callback` with the address of device memory that is given back.
    register_callback_for_memory_deallocation(address), "GPU memory deallocation", Memory,
        TraceEvent::FreeRequested(TraceBlock { address, .. }) | TraceEvent::UncachedFreed { address }
            => |call| call(address);
    /// Calls `callback` with the handle of each stream that is made. The 32 streams of a pool are made together.
    register_callback_for_stream_creation(stream), "GPU stream creation", Stream,
        TraceEvent::StreamCreated(stream) => |call| call(stream.handle);
    /// Calls `callback` when the host has waited for a device.
    register_callback_for_device_synchronization(), "GPU device synchronization", Synchronize,
        TraceEvent::DeviceSynchronized(_) => |call| call();
    /// Calls `callback` with the handle of each stream that the host has waited for; copies that block count.
    register_callback_for_stream_synchronization(stream), "GPU stream synchronization", Synchronize,
        TraceEvent::StreamSynchronized(stream) => |call| call(stream.handle);
    /// Calls `callback` with the handle of each event that the host has waited for.
    register_callback_for_event_synchronization(event), "GPU event synchronization", Synchronize,
        TraceEvent::EventSynchronized { event, .. } => |call| call(event);
}

/// Call stacks by the address of what they made.
type StackOf = HashMap<u64, Arc<[TraceFrame]>>;

/// What a runtime holds, and what it did to come to that; [`Memory::take_snapshot`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, HistoryOptions, Runtime};
///
/// let memory = Runtime::current();
/// memory.memory().record_history(Some(&HistoryOptions::default()))?;
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let snapshot = memory.memory().take_snapshot(None, true)?;
/// let names = snapshot.device_traces[0].iter().map(|entry| entry.action.name());
/// assert!(names.eq(["segment_alloc", "alloc"]));
/// assert!(!snapshot.frames_of_block(buffer.address()).is_empty());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemorySnapshot {
    /// Memory held from the driver, by device and address.
    pub segments: Vec<SegmentInfo>,
    /// The history of each device by time; empty lists where none is recorded.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The allocator's options.
    pub settings: Arc<AllocatorConfig>,
    /// What was annotated, by time.
    pub external_annotations: Vec<TraceAnnotation>,
    blocks: StackOf,
    made_segments: StackOf,
}

impl MemorySnapshot {
    /// The call that was handed out the block at an address, innermost function first; empty where that was not recorded.
    #[must_use]
    pub fn frames_of_block(&self, address: u64) -> &[TraceFrame] {
        self.blocks.get(&address).map_or(&[], |frames| frames)
    }

    /// The call that took the segment at an address from the driver; empty where that was not recorded.
    #[must_use]
    pub fn frames_of_segment(&self, address: u64) -> &[TraceFrame] {
        self.made_segments.get(&address).map_or(&[], |frames| frames)
    }
}

/// A stretch of the program with a name, until dropped; made by [`Memory::annotate`] and [`Memory::compile_context`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{HistoryOptions, Runtime};
///
/// let runtime = Runtime::current();
/// runtime.init()?;
/// let options = HistoryOptions { global_record_annotations: true, ..HistoryOptions::default() };
/// runtime.memory().record_history(Some(&options))?;
/// drop(runtime.memory().annotate("forward")?);
/// let marked = runtime.memory().take_snapshot(None, false)?.external_annotations;
/// assert!(marked.iter().map(|mark| (&*mark.name, mark.is_end)).eq([("forward", false), ("forward", true)]));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the stretch ends when this is dropped"]
pub struct HistoryScope(Scope);

#[derive(Debug)]
enum Scope {
    Annotation { runtime: Runtime, name: Arc<str>, device: DeviceIndex },
    Compile,
}

impl Drop for HistoryScope {
    fn drop(&mut self) {
        match &self.0 {
            Scope::Annotation { runtime, name, device } => {
                if !process::in_bad_fork() {
                    runtime.trace().annotate(name, true, *device);
                }
            }
            Scope::Compile => trace::pop_compile_context(),
        }
    }
}

impl Memory<'_> {
    /// Records what happens to device memory, or stops and forgets it for `None`; torch's `_record_memory_history`. Goes
    /// for all devices. Can be called before the runtime starts, and again with other options; what was recorded stays
    /// unless they say otherwise. Blocks and segments that live keep the stacks of the calls that made them in any case.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, HistoryOptions, Runtime, TraceAction};
    ///
    /// let runtime = Runtime::current();
    /// runtime.memory().record_history(Some(&HistoryOptions::default()))?;
    /// drop(DeviceBuffer::new(1000, 0)?);
    /// let snapshot = runtime.memory().take_snapshot(None, true)?;
    /// let actions: Vec<_> = snapshot.device_traces[0].iter().map(|entry| entry.action.name()).collect();
    /// assert_eq!(actions, ["segment_alloc", "alloc", "free_requested", "free_completed"]);
    /// runtime.memory().record_history(None)?;
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// This process was forked from one in which a runtime had started; the allocator itself called what asks for this; the
    /// backend is not the caching allocator ([`crate::BackendError::Unsupported`]).
    pub fn record_history(self, options: Option<&HistoryOptions>) -> Result<()> {
        refuse_fork()?;
        let runtime = self.runtime();
        runtime.only_native("recordHistory")?;
        let live = |device, begins| match runtime.started() {
            Some(ready) if begins => ready.allocator.still_live(device),
            Some(ready) => ready.allocator.mark_live(device),
            None => BTreeSet::new(),
        };
        let recorded = runtime.trace().record(options, live);
        runtime.follow_trace();
        recorded
    }

    /// Whether the history is recorded.
    #[must_use]
    pub fn records_history(self) -> bool {
        self.runtime().trace().is_recording()
    }

    /// What is held from the driver, or what one private pool holds of it, and how it came to that; torch's `_snapshot`.
    /// With `include_traces` false the history is left out. Empty before the runtime has started. An entry
    /// [`crate::TraceAction::Snapshot`] is added to the history of each device afterwards.
    ///
    /// # Errors
    /// This process was forked from one in which a runtime had started; the allocator itself called what asks for this; the
    /// backend does not know blocks ([`crate::BackendError::NoSnapshot`]).
    pub fn take_snapshot(self, mempool_id: Option<PoolId>, include_traces: bool) -> Result<MemorySnapshot> {
        PuttingOff::settle("the state of memory is asked for");
        refuse_fork()?;
        self.collect(mempool_id, Contents { traces: include_traces, is_noted: true })
    }

    /// What is held from the driver, without the history, to which nothing is added.
    ///
    /// # Errors
    /// As for [`Self::take_snapshot`].
    pub fn state(self) -> Result<MemorySnapshot> {
        PuttingOff::settle("the state of memory is asked for");
        refuse_fork()?;
        self.collect(None, Contents { traces: false, is_noted: false })
    }

    fn collect(self, mempool_id: Option<PoolId>, contents: Contents) -> Result<MemorySnapshot> {
        let _span = tracing::debug_span!("snapshot").entered();
        let runtime = self.runtime();
        runtime.started().map_or(Ok(()), |ready| ready.allocator.check_snapshot())?;
        let mut snapshot = MemorySnapshot {
            segments: Vec::new(),
            device_traces: Vec::new(),
            settings: runtime.config(),
            external_annotations: runtime.trace().annotations(),
            blocks: StackOf::new(),
            made_segments: StackOf::new(),
        };
        let devices = runtime.started().map_or(0, |ready| ready.api.device_count());
        for device in (0..).map(DeviceIndex).take(devices) {
            let add = |look: &mut Look<'_>| snapshot.add_device(runtime, look, device, mempool_id, contents);
            runtime.trace().look_at(device, add)?;
        }
        Ok(snapshot)
    }

    /// Sets the text that goes with what this thread does to device memory from now on, empty for none; torch's
    /// `_set_memory_metadata`.
    pub fn set_metadata(self, text: &str) {
        trace::set_metadata((!text.is_empty()).then(|| Arc::from(text)));
    }

    /// The text that goes with what this thread does; torch's `_get_memory_metadata`.
    #[must_use]
    pub fn metadata(self) -> String {
        trace::metadata().map_or_else(String::new, |text| text.to_string())
    }

    /// Names what this thread compiles until the scope is dropped, for entries of a history that is recorded with
    /// [`HistoryOptions::compile_context`]. Scopes of one thread end in reverse order.
    pub fn compile_context(self, text: &str) -> HistoryScope {
        trace::push_compile_context(Arc::from(text));
        HistoryScope(Scope::Compile)
    }

    /// Names a stretch of the program, on the current device, until the scope is dropped, where the history is recorded
    /// with [`HistoryOptions::global_record_annotations`].
    ///
    /// # Errors
    /// The runtime cannot be started, which finding the current device needs.
    pub fn annotate(self, name: &str) -> Result<HistoryScope> {
        let (runtime, name) = (self.runtime().clone(), Arc::<str>::from(name));
        let device = runtime.current_device()?;
        runtime.trace().annotate(&name, false, device);
        Ok(HistoryScope(Scope::Annotation { runtime, name, device }))
    }
}

/// What goes into a snapshot, and what becomes of it.
#[derive(Clone, Copy)]
struct Contents {
    /// The history.
    traces: bool,
    /// The history tells that the snapshot was taken.
    is_noted: bool,
}

impl MemorySnapshot {
    /// Adds what a device holds. Its memory does not change meanwhile, if anybody listens.
    fn add_device(
        &mut self,
        runtime: &Runtime,
        look: &mut Look<'_>,
        device: DeviceIndex,
        pool: Option<PoolId>,
        contents: Contents,
    ) {
        let Some(ready) = runtime.started() else { return };
        self.device_traces.push(if contents.traces { look.entries() } else { Vec::new() });
        let segments = ready.allocator.snapshot_of(device, pool);
        let [blocks, made] = look.live(|| ready.allocator.still_live(device));
        self.blocks.extend(blocks);
        self.made_segments.extend(made);
        let active = segments.iter().map(|segment| segment.active_size).sum();
        self.segments.extend(segments);
        if contents.is_noted {
            look.note_snapshot(active);
        }
    }
}

/// Locks may be held for ever in a forked child.
fn refuse_fork() -> Result<()> {
    if process::in_bad_fork() { Err(Error::Start(StartError::BadFork)) } else { Ok(()) }
}
