//! The order of what happens to a device's memory: the lock of its history.
//!
//! Whoever changes the memory of a device while somebody listens holds the device's [`Order`] meanwhile, and makes entries
//! with it, which takes no further lock. What is reported deeper down, without the order at hand, waits in its thread with
//! the time at which it happened, and is entered before the next entry.
//!
//! **Invariants:** a thread holds one order at most; a second one is a part of the first. Entries are made in the order of
//! their times. A thread that holds other locks of the allocator and not this one does not wait for it: what it reports is
//! left for whoever has the order next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::device::DeviceIndex;
use crate::sync::Mutex;
use crate::sync::hybrid_lock::HybridLock;
use crate::sync::lock;
use crate::sync::spin_lock::SpinGuard;
use crate::trace::clock;
use crate::trace::event::{TraceBlock, TraceEvent};
use crate::trace::history::{BriefBlock, Circumstances, DeviceHistory, Names, Notes, Settings, TraceEntry};
use crate::trace::stack::{Stack, TraceFrame};
use crate::trace::{OPERATION, Operation, Trace};

/// Why a device's memory is about to change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Memory is handed out.
    Alloc,
    /// Memory is given back, to the allocator or to the driver.
    Free,
}

/// The right to change the memory of a device while somebody listens; subscribers are told when it is dropped.
pub(crate) struct Order<'a> {
    pub(super) trace: &'a Trace,
    /// None if the thread had an order before.
    pub(super) held: Option<Held<'a>>,
}

/// The history of a device, whose lock is held.
pub(super) struct Held<'a> {
    device: &'a PerDevice,
    pub(super) history: SpinGuard<'a, DeviceHistory>,
    /// Of the call that took the order, if it is recorded.
    stack: Option<Arc<Stack>>,
}

#[derive(Debug)]
pub(super) struct PerDevice {
    /// Held as long as an [`Order`].
    pub(super) history: HybridLock<DeviceHistory>,
    /// What threads reported that hold other locks and not this one. Whoever has it next enters that.
    pub(super) late: Mutex<Late>,
    /// Whether there is any.
    pub(super) has_late: AtomicBool,
}

#[derive(Default, Debug)]
pub(super) struct Late {
    /// Events of threads that began when nobody listened.
    pub(super) events: Vec<TraceEvent>,
    /// Where segments came or went while nobody listened.
    pub(super) segments: BTreeSet<u64>,
}

impl PerDevice {
    pub(super) fn new(device: DeviceIndex, settings: Settings) -> Self {
        let history = HybridLock::new(DeviceHistory::new(device, settings));
        Self { history, late: Mutex::default(), has_late: AtomicBool::new(false) }
    }

    /// What a thread knows the device by whose order it holds.
    pub(super) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Keeps an event for whoever has the order next.
    #[cold]
    pub(super) fn enter_later(&self, event: &TraceEvent) {
        lock(&self.late).events.push(*event);
        self.has_late.store(true, Ordering::Release);
    }
}

impl<'a> Held<'a> {
    /// Waits for the lock; `None` for a thread that holds one of a device, or is torn down.
    #[inline]
    pub(super) fn new(device: &'a PerDevice, stack: Option<Arc<Stack>>) -> Option<Self> {
        let lock = |operation: &Operation| {
            if operation.ordered.get() != 0 {
                return None;
            }
            let history = device.history.lock();
            operation.ordered.set(device.key());
            operation.completed.set(0);
            Some(history)
        };
        let history = OPERATION.try_with(lock).ok()??;
        let mut held = Self { device, history, stack };
        if device.has_late.load(Ordering::Acquire) {
            held.enter_late();
        }
        Some(held)
    }

    /// Enters what other threads left here.
    #[cold]
    fn enter_late(&mut self) {
        self.device.has_late.store(false, Ordering::Relaxed);
        let Late { events, segments } = std::mem::take(&mut *lock(&self.device.late));
        segments.into_iter().for_each(|address| self.history.forget_segment(address));
        for event in &events {
            self.history.note(event, &Circumstances { time: clock::now(), stack: None, notes: &Notes::default() });
        }
    }

    /// Enters what was reported deeper down.
    #[inline]
    fn enter_noted(&mut self, operation: &Operation) {
        if !operation.noted.borrow().is_empty() {
            self.enter_all(operation);
        }
    }

    #[cold]
    fn enter_all(&mut self, operation: &Operation) {
        let mut noted = operation.noted.take();
        let notes = operation.notes.borrow();
        for (time, event) in noted.drain(..) {
            self.history.note(&event, &Circumstances { time, stack: self.stack.as_ref(), notes: &notes });
        }
        operation.noted.replace(noted);
    }

    /// Makes entries of what happens now.
    #[inline]
    fn enter(&mut self, operation: &Operation, enter: impl FnOnce(&mut DeviceHistory, &Circumstances<'_>)) {
        self.enter_noted(operation);
        let notes = &operation.notes.borrow();
        enter(&mut self.history, &Circumstances { time: clock::now(), stack: self.stack.as_ref(), notes });
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let _ = OPERATION.try_with(|operation| {
            self.enter_noted(operation);
            operation.ordered.set(0);
        });
    }
}

impl Order<'_> {
    /// Notes that a block was handed out, which `describe` tells more of if subscribers want to know.
    #[inline]
    pub(crate) fn tell_allocated(&mut self, brief: &BriefBlock, describe: impl FnOnce() -> Option<TraceBlock>) {
        let _ = OPERATION.try_with(|operation| {
            if let Some(held) = &mut self.held
                && self.trace.records.load(Ordering::Relaxed)
            {
                held.enter(operation, |history, now| history.note_allocated(brief, now));
            }
            let is_nested = self.held.is_none();
            if (is_nested || self.trace.is_told())
                && let Some(block) = describe()
            {
                let event = TraceEvent::Allocated(block);
                if is_nested { self.trace.tell(&event) } else { self.trace.keep_for_subscribers(operation, &event) }
            }
        });
    }

    /// Notes that a block is given back.
    pub(crate) fn tell_free_requested(&mut self, block: &TraceBlock) {
        let brief = BriefBlock::from(block);
        self.tell_free(|| [TraceEvent::FreeRequested(*block)], |history, now| history.note_free_requested(&brief, now));
    }

    /// Notes that a block is free that was given back.
    pub(crate) fn tell_free_completed(&mut self, block: &TraceBlock) {
        let brief = BriefBlock::from(block);
        self.tell_free(|| [TraceEvent::FreeCompleted(*block)], |history, now| history.note_free_completed(&brief, now));
    }

    /// Notes that a block was given back and was free at once.
    #[inline]
    pub(crate) fn tell_freed(&mut self, block: &TraceBlock) {
        let brief = BriefBlock::from(block);
        let events = || [TraceEvent::FreeRequested(*block), TraceEvent::FreeCompleted(*block)];
        self.tell_free(events, |history, now| history.note_freed(&brief, now));
    }

    #[inline]
    fn tell_free<E: AsRef<[TraceEvent]>>(
        &mut self,
        events: impl FnOnce() -> E,
        enter: impl FnOnce(&mut DeviceHistory, &Circumstances<'_>),
    ) {
        let Some(held) = &mut self.held else {
            return events().as_ref().iter().for_each(|event| self.trace.tell(event));
        };
        let _ = OPERATION.try_with(|operation| {
            if self.trace.records.load(Ordering::Relaxed) {
                held.enter(operation, enter);
            }
            if self.trace.is_told() {
                events().as_ref().iter().for_each(|event| self.trace.keep_for_subscribers(operation, event));
            }
        });
    }
}

impl Drop for Order<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.held.take().is_some() && self.trace.is_told() {
            self.trace.deliver_all();
        }
    }
}

/// A device's history, and nobody changes the device's memory.
pub(crate) struct Look<'a>(pub(super) Option<Held<'a>>);

impl Look<'_> {
    /// The entries by time.
    pub(crate) fn entries(&self) -> Vec<TraceEntry> {
        let history = self.0.as_ref().map(|held| &*held.history);
        history.map_or_else(Vec::new, |history| history.entries(&mut Names::new(history.settings.stacks)))
    }

    /// The stacks of the blocks, and those of the segments, that live. `still` tells which blocks live on whose stacks were
    /// recorded before the history ended.
    pub(crate) fn live(&mut self, still: impl FnOnce() -> BTreeSet<u64>) -> [Vec<(u64, Arc<[TraceFrame]>)>; 2] {
        let Some(Held { history, .. }) = &mut self.0 else { return Default::default() };
        if !history.settings.on && history.has_blocks() {
            history.keep_blocks(&still());
        }
        history.live(&mut Names::new(history.settings.stacks))
    }

    /// Enters that a snapshot was taken while so many bytes were active.
    pub(crate) fn note_snapshot(&mut self, active: u64) {
        let Some(held) = &mut self.0 else { return };
        let _ = OPERATION.try_with(|operation| {
            held.enter(operation, |history, now| history.note_snapshot(active, now));
        });
    }
}
