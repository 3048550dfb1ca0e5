//! What a runtime reports, and to whom.
//!
//! The allocators, streams, events, graphs, copies and launches report what happens as a [`TraceEvent`]. The history of
//! device memory is one listener, and any number of subscribers are others. A sort of events that nobody wants costs the
//! load of one word.
//!
//! **Invariants:**
//! - Events of one device's memory reach the history in the order in which they happened: whoever changes that memory
//!   holds the device's [`Order`] meanwhile, if anybody listens. The order is the lock of the history, so an entry takes no
//!   lock of its own. What is reported deeper down, without the order at hand, waits with its time until the next entry.
//! - Subscribers are called with no lock held, each thread's events in order. One that panics keeps neither the others from
//!   being called nor the runtime from going on. While a thread calls subscribers, it tells them nothing of what they do.
//! - Reporting never fails, and never waits for anything but another report.

mod clock;
mod event;
mod history;
mod order;
mod stack;
mod walk;

pub use event::{TraceAccess, TraceBlock, TraceCopy, TraceEvent, TraceKind, TraceKinds, TraceSegment, TraceStream};
pub use history::{HistoryContext, HistoryOptions, HistoryStacks, TraceAction, TraceAnnotation, TraceEntry};
pub use stack::TraceFrame;
pub(crate) use stack::{Stack, Stacks, WordHasher};

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::handles::StreamRef;
use crate::base::panics::caught;
use crate::sync::Mutex;
use crate::sync::lock;
use clock::Ticks;
pub(crate) use history::BriefBlock;
use history::{Annotations, Notes, Settings};
use order::{Held, PerDevice};
pub(crate) use order::{Look, Order, Purpose};

/// A function that is called with each event.
type Subscriber = dyn Fn(&TraceEvent) + Send + Sync;

/// The number of a subscriber, for ending the subscription.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Runtime, TraceKinds};
///
/// let runtime = Runtime::current();
/// let id = runtime.subscribe(TraceKinds::ALL, |event| drop(*event));
/// assert!(runtime.unsubscribe(id));
/// assert!(!runtime.unsubscribe(id), "it has ended");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubscriptionId(u64);

#[derive(Clone)]
struct Subscription {
    id: SubscriptionId,
    kinds: TraceKinds,
    /// What is said when it panics.
    name: Option<&'static str>,
    call: Arc<Subscriber>,
}

/// What a runtime reports, and to whom.
#[derive(Default)]
pub(crate) struct Trace {
    /// A bit for each sort of events that somebody wants.
    wanted: AtomicU32,
    /// A bit for each sort that subscribers want.
    told: AtomicU32,
    subscribers: Mutex<(u64, Arc<[Subscription]>)>,
    /// Whether the history is recorded.
    records: AtomicBool,
    /// Where its stacks go, as a number.
    context: AtomicU8,
    /// The history has ended, and what still lives has the stacks that were recorded.
    keeps_stacks: AtomicBool,
    settings: Mutex<Settings>,
    /// From the start of the runtime on.
    devices: OnceLock<Box<[CachePadded<PerDevice>]>>,
    annotations: Mutex<Annotations>,
    stacks: Stacks,
    /// Number of the last work whose accesses were told.
    work: AtomicU64,
    /// Names of kernels by their handles. The driver may give a handle again, to a kernel that is named then.
    kernels: Mutex<HashMap<u64, Arc<str>>>,
}

/// What a thread is about while it changes the memory of a device.
struct Operation {
    /// The device whose [`Order`] it holds; 0 for none.
    ordered: Cell<usize>,
    /// Whether it calls subscribers.
    is_telling: Cell<bool>,
    /// The block that was last noted as free again.
    completed: Cell<u64>,
    /// Events of that device that its history does not have yet, and when they happened.
    noted: RefCell<Vec<(Ticks, TraceEvent)>>,
    /// Events that subscribers are told of when the lock is free.
    deferred: RefCell<Vec<TraceEvent>>,
    /// What a subscriber refused of what the thread reported last.
    refused: RefCell<Option<Error>>,
    notes: RefCell<Notes>,
    compiled: RefCell<Vec<Arc<str>>>,
}

thread_local! {
    static OPERATION: Operation = const {
        Operation {
            ordered: Cell::new(0),
            is_telling: Cell::new(false),
            completed: Cell::new(0),
            noted: RefCell::new(Vec::new()),
            deferred: RefCell::new(Vec::new()),
            refused: RefCell::new(None),
            notes: RefCell::new(Notes { compile_context: None, metadata: None }),
            compiled: RefCell::new(Vec::new()),
        }
    };
}

impl Trace {
    /// Whether anybody wants to know of such events.
    #[inline]
    pub(crate) fn wants(&self, kind: TraceKind) -> bool {
        self.wanted.load(Ordering::Relaxed) & kind.bit() != 0
    }

    /// Whether anybody wants to know of events of any of these sorts.
    #[inline]
    pub(crate) fn wants_any(&self, kinds: TraceKinds) -> bool {
        self.wanted.load(Ordering::Relaxed) & kinds.bits() != 0
    }

    /// Whether subscribers want to know of memory.
    #[inline]
    fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) & TraceKind::Memory.bit() != 0
    }

    /// Notes what has happened, if anybody wants to know. Subscribers are told by [`Self::deliver`].
    #[inline]
    pub(crate) fn report(&self, kind: TraceKind, event: impl FnOnce() -> TraceEvent) {
        if self.wants(kind) {
            self.tell(&event());
        }
    }

    /// The same, and tells subscribers at once, also of what the driver was told before. No lock may be held.
    #[inline]
    pub(crate) fn report_now(&self, kind: TraceKind, event: impl FnOnce() -> TraceEvent) {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted & (kind.bit() | TraceKind::Order.bit()) != 0 {
            if wanted & kind.bit() != 0 {
                self.tell(&event());
            }
            self.deliver_all();
        }
    }

    /// Tells subscribers of what the driver was told and has told. No lock may be held.
    #[inline]
    pub(crate) fn deliver_order(&self) {
        if self.wants(TraceKind::Order) {
            self.deliver_all();
        }
    }

    /// As [`Self::report_now`], and returns what a subscriber refused.
    #[inline]
    pub(crate) fn report_checked(&self, kind: TraceKind, event: impl FnOnce() -> TraceEvent) -> Result<()> {
        if !self.wants(kind) {
            return Ok(());
        }
        self.tell(&event());
        self.deliver_all();
        refused()
    }

    /// Tells what a piece of work on a stream, or the host, does to memory, if anybody wants to know, and returns what a
    /// subscriber refused of it. No lock may be held.
    #[inline]
    pub(crate) fn report_accesses<U: AsRef<[MemoryUse]>>(
        &self,
        stream: Option<StreamRef>,
        operation: &'static str,
        accesses: impl FnOnce() -> U,
    ) -> Result<()> {
        if self.wants(TraceKind::Access) { self.tell_accesses(stream, operation, accesses().as_ref()) } else { Ok(()) }
    }

    #[cold]
    fn tell_accesses(&self, stream: Option<StreamRef>, operation: &'static str, accesses: &[MemoryUse]) -> Result<()> {
        let work = self.work.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = stream.map(TraceStream::from);
        for (position, used) in accesses.iter().enumerate() {
            let rest = u32::try_from(accesses.len() - 1 - position).unwrap_or(u32::MAX);
            let MemoryUse { address, size, argument, is_write, is_output, is_on_host } = *used;
            self.tell(&TraceEvent::Accessed(TraceAccess {
                work,
                rest,
                stream,
                operation,
                argument,
                address,
                size,
                is_write,
                is_output,
                is_on_host,
            }));
        }
        self.deliver_all();
        refused()
    }

    /// Notes that something begins which is reported when it was done, and tells subscribers at once. No lock may be held.
    #[inline]
    pub(crate) fn begin(&self, what: TraceKind, stream: StreamRef) {
        self.report_now(TraceKind::Begin, || TraceEvent::Begun { what, function: 0, stream: stream.into() });
    }

    /// The same of the launch of a kernel.
    #[inline]
    pub(crate) fn begin_launch(&self, function: u64, stream: StreamRef) {
        let what = TraceKind::Launch;
        self.report_now(TraceKind::Begin, || TraceEvent::Begun { what, function, stream: stream.into() });
    }

    /// Keeps the name of a kernel for those who hear of its launches.
    pub(crate) fn name_kernel(&self, function: u64, name: &str) {
        lock(&self.kernels).insert(function, name.into());
    }

    /// The name of a kernel.
    pub(crate) fn kernel_name(&self, function: u64) -> Option<Arc<str>> {
        lock(&self.kernels).get(&function).cloned()
    }

    /// The runtime has started with so many devices.
    pub(crate) fn set_devices(&self, count: usize) {
        let settings = lock(&self.settings);
        let device = |index| CachePadded::new(PerDevice::new(index, *settings));
        let _ = self.devices.set((0..).map(DeviceIndex).take(count).map(device).collect());
    }

    fn device(&self, device: DeviceIndex) -> Option<&PerDevice> {
        let position = usize::try_from(device).ok()?;
        self.devices.get()?.get(position).map(|device| &**device)
    }

    /// Adds a subscriber. What it panics with is reported under that name, if it has one.
    pub(crate) fn subscribe(
        &self,
        kinds: TraceKinds,
        name: Option<&'static str>,
        call: Arc<Subscriber>,
    ) -> SubscriptionId {
        let mut subscribers = lock(&self.subscribers);
        subscribers.0 += 1;
        let id = SubscriptionId(subscribers.0);
        let new = Subscription { id, kinds, name, call };
        subscribers.1 = subscribers.1.iter().cloned().chain([new]).collect();
        self.want(&subscribers.1);
        id
    }

    /// Ends a subscription; whether there was one.
    pub(crate) fn unsubscribe(&self, id: SubscriptionId) -> bool {
        let mut subscribers = lock(&self.subscribers);
        let rest: Arc<[_]> = subscribers.1.iter().filter(|known| known.id != id).cloned().collect();
        let before = std::mem::replace(&mut subscribers.1, rest);
        let was_there = before.len() > subscribers.1.len();
        self.want(&subscribers.1);
        drop(subscribers);
        // The subscriber is dropped with nothing locked: it may hold anything.
        drop(before);
        was_there
    }

    /// Notes what is wanted. The subscribers are locked.
    fn want(&self, subscribers: &[Subscription]) {
        let told = subscribers.iter().fold(0, |bits, known| bits | known.kinds.bits());
        let records = self.records.load(Ordering::Relaxed);
        let wanted = told | if records { TraceKind::Memory.bit() } else { 0 };
        self.told.store(told, Ordering::Relaxed);
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Takes the lock under which the memory of a device changes, if anybody wants to know. A thread that has one gets
    /// another without waiting: what it does is a part of what it is doing.
    #[inline]
    pub(crate) fn order(&self, device: DeviceIndex, purpose: Purpose) -> Option<Order<'_>> {
        if self.wants(TraceKind::Memory) { self.take_order(device, purpose) } else { None }
    }

    fn take_order(&self, device: DeviceIndex, purpose: Purpose) -> Option<Order<'_>> {
        if OPERATION.try_with(|operation| operation.ordered.get()).ok()? != 0 {
            return Some(Order { trace: self, held: None });
        }
        let stack = self.stack_for(purpose);
        Some(Order { trace: self, held: Some(Held::new(self.device(device)?, stack)?) })
    }

    /// The stack of this thread, if such a call records it.
    fn stack_for(&self, purpose: Purpose) -> Option<Arc<Stack>> {
        let least = if purpose == Purpose::Alloc { HistoryContext::State } else { HistoryContext::All };
        (self.context.load(Ordering::Relaxed) >= least as u8).then(|| self.stacks.capture())
    }

    /// Notes an event for the history, and keeps it for subscribers, as each wants. Whoever has the order at hand uses
    /// [`Order::tell`].
    #[inline(never)]
    pub(crate) fn tell(&self, event: &TraceEvent) {
        let _ = OPERATION.try_with(|operation| {
            if let TraceEvent::FreeCompleted(block) = event {
                operation.completed.set(block.address);
            }
            if let Some(device) = event.device_of_memory().filter(|_| self.records.load(Ordering::Relaxed)) {
                self.note(operation, device, event);
            }
            self.keep_for_subscribers(operation, event);
        });
    }

    #[inline]
    fn keep_for_subscribers(&self, operation: &Operation, event: &TraceEvent) {
        if self.told.load(Ordering::Relaxed) & event.kind().bit() != 0 && !operation.is_telling.get() {
            operation.deferred.borrow_mut().push(*event);
        }
    }

    /// Tells subscribers of what this thread has noted since it last did, unless it holds an order. No lock may be held.
    #[inline]
    pub(crate) fn deliver(&self) {
        if self.wanted.load(Ordering::Relaxed) != 0 {
            self.deliver_all();
        }
    }

    #[cold]
    fn deliver_all(&self) {
        let _ = OPERATION.try_with(|operation| {
            if operation.ordered.get() != 0 || operation.is_telling.get() {
                return;
            }
            let mut events = operation.deferred.take();
            if !events.is_empty() {
                self.tell_subscribers(operation, &events);
                events.clear();
                operation.deferred.replace(events);
            }
        });
    }

    /// Keeps an event for the next entry: of this thread, if it holds the order of the device.
    fn note(&self, operation: &Operation, device: DeviceIndex, event: &TraceEvent) {
        let Some(device) = self.device(device) else { return };
        if operation.ordered.get() == device.key() {
            operation.noted.borrow_mut().push((clock::now(), *event));
        } else {
            device.enter_later(event);
        }
    }

    /// Calls the subscribers with no lock held.
    fn tell_subscribers(&self, operation: &Operation, events: &[TraceEvent]) {
        let subscribers = Arc::clone(&lock(&self.subscribers).1);
        operation.is_telling.set(true);
        for event in events {
            for known in subscribers.iter().filter(|known| known.kinds.has(event.kind())) {
                let outcome = caught(|| (known.call)(event));
                if outcome.is_err() {
                    log_panic(known.name);
                }
            }
        }
        operation.is_telling.set(false);
    }

    /// Records the history by these options, or not at all. `live` is called with a device when its history begins or ends,
    /// and whether it begins: it notes the blocks that live when it ends, and tells which of these still live when it begins.
    pub(crate) fn record(
        &self,
        options: Option<&HistoryOptions>,
        live: impl Fn(DeviceIndex, bool) -> BTreeSet<u64>,
    ) -> Result<()> {
        clock::begin();
        let (settings, clear) = match options {
            Some(options) => (Settings::new(options), options.clear_history),
            None => (Settings::default(), true),
        };
        let mut known = lock(&self.settings);
        let turns = known.on != settings.on;
        for device in self.devices.get().into_iter().flatten() {
            let mut held = Held::new(device, None).ok_or_else(in_operation)?;
            if turns {
                let live = live(held.history.device(), settings.on);
                held.history.keep_blocks(&live);
            }
            held.history.set(settings, clear);
        }
        *known = settings;
        if clear {
            lock(&self.annotations).clear();
            self.stacks.clear();
        }
        drop(known);
        let subscribers = lock(&self.subscribers);
        self.context.store(if settings.on { settings.context as u8 } else { 0 }, Ordering::Relaxed);
        self.records.store(settings.on, Ordering::Relaxed);
        if turns && !settings.on {
            self.keeps_stacks.store(true, Ordering::Relaxed);
        }
        self.want(&subscribers.1);
        Ok(())
    }

    /// Whether the history is recorded.
    pub(crate) fn is_recording(&self) -> bool {
        self.records.load(Ordering::Relaxed)
    }

    /// Looks at the memory and the history of a device, which whoever reports leaves alone meanwhile.
    pub(crate) fn look_at<R>(&self, device: DeviceIndex, look: impl FnOnce(&mut Look<'_>) -> R) -> Result<R> {
        let Some(device) = self.device(device) else { return Ok(look(&mut Look(None))) };
        let mut held = Look(Some(Held::new(device, None).ok_or_else(in_operation)?));
        let seen = look(&mut held);
        drop(held);
        self.deliver();
        Ok(seen)
    }

    /// Notes what has happened to a segment, if anybody wants to know. Else whoever looks next at stacks that were recorded
    /// before learns that this segment is another one.
    pub(crate) fn report_segment(&self, event: fn(TraceSegment) -> TraceEvent, segment: TraceSegment) {
        if self.wants(TraceKind::Memory) {
            self.tell(&event(segment));
        } else if self.keeps_stacks.load(Ordering::Relaxed)
            && let Some(device) = self.device(segment.device)
        {
            lock(&device.late).segments.insert(segment.address);
            device.has_late.store(true, Ordering::Release);
        }
    }

    /// The block that this thread last noted as free again since it took the order.
    pub(crate) fn completed() -> u64 {
        OPERATION.try_with(|operation| operation.completed.get()).unwrap_or(0)
    }

    /// Enters that a named stretch of the program begins or ends, if that is recorded.
    pub(crate) fn annotate(&self, name: &Arc<str>, is_end: bool, device: DeviceIndex) {
        if self.is_recording() && lock(&self.settings).annotations {
            lock(&self.annotations).push(Arc::clone(name), is_end, device);
        }
    }

    /// The annotations by time.
    pub(crate) fn annotations(&self) -> Vec<TraceAnnotation> {
        lock(&self.annotations).entries()
    }
}

/// Memory that a piece of work uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryUse {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The argument that names it; empty for none.
    pub(crate) argument: &'static str,
    pub(crate) is_write: bool,
    pub(crate) is_output: bool,
    pub(crate) is_on_host: bool,
}

impl MemoryUse {
    /// What a copy or a fill writes, or a copy reads.
    pub(crate) fn of_copy(address: u64, size: u64, is_write: bool, is_on_host: bool) -> Self {
        let argument = if is_write { "" } else { "src" };
        Self { address, size, argument, is_write, is_output: is_write, is_on_host }
    }
}

/// Lets the work whose accesses this thread is reporting return an error. Called by subscribers.
pub(crate) fn refuse(error: Error) {
    let _ = OPERATION.try_with(|operation| operation.refused.replace(Some(error)));
}

/// Why a thread cannot look at a history: it holds the lock of one.
fn in_operation() -> Error {
    Error::Memory(MemoryError::Reentered)
}

/// What subscribers refused of what this thread reported last.
fn refused() -> Result<()> {
    OPERATION.try_with(|operation| operation.refused.take()).ok().flatten().map_or(Ok(()), Err)
}

/// A name that lives as long as the program. There are as many as there are kernels with names.
pub(crate) fn lasting_name(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = lock(&NAMES);
    match names.get(name) {
        Some(known) => known,
        None => {
            let name: &'static str = Box::leak(name.into());
            names.insert(name);
            name
        }
    }
}

/// Sets the text that goes with what this thread does from now on; `None` for none.
pub(crate) fn set_metadata(text: Option<Arc<str>>) {
    let _ = OPERATION.try_with(|operation| operation.notes.borrow_mut().metadata = text);
}

/// The text that goes with what this thread does.
pub(crate) fn metadata() -> Option<Arc<str>> {
    OPERATION.try_with(|operation| operation.notes.borrow().metadata.clone()).ok().flatten()
}

/// This thread compiles something from now on.
pub(crate) fn push_compile_context(text: Arc<str>) {
    let _ = OPERATION.try_with(|operation| {
        operation.compiled.borrow_mut().push(Arc::clone(&text));
        operation.notes.borrow_mut().compile_context = Some(text);
    });
}

/// This thread compiles what it did before again, or nothing.
pub(crate) fn pop_compile_context() {
    let _ = OPERATION.try_with(|operation| {
        let mut compiled = operation.compiled.borrow_mut();
        compiled.pop();
        operation.notes.borrow_mut().compile_context = compiled.last().cloned();
    });
}

/// The panic itself was shown by the program's hook.
fn log_panic(name: Option<&'static str>) {
    match name {
        Some(name) => tracing::error!("Exception in callback for {name} registered with gpu trace"),
        None => tracing::error!("a subscriber of a runtime's events panicked"),
    }
}

impl TraceEvent {
    /// The device whose history an event belongs to.
    fn device_of_memory(&self) -> Option<DeviceIndex> {
        if let Self::Allocated(block) | Self::FreeRequested(block) | Self::FreeCompleted(block) = self {
            return Some(block.device);
        }
        if let Self::SegmentAllocated(of)
        | Self::SegmentFreed(of)
        | Self::SegmentMapped(of)
        | Self::SegmentUnmapped(of) = self
        {
            return Some(of.device);
        }
        if let Self::OutOfMemory { device, .. } = self { Some(*device) } else { None }
    }
}

impl From<StreamRef> for TraceStream {
    fn from(stream: StreamRef) -> Self {
        Self { device: stream.device, handle: stream.handle.0 as u64 }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace {{ wanted: {:#x}, records: {} }}", self.wanted.load(Ordering::Relaxed), self.is_recording())
    }
}
