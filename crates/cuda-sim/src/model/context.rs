//! Contexts: one primary context for each device, kept while it is retained, and those that a program makes.
//!
//! Green contexts (`green`) stand in for their primary context wherever a context is asked for.
//!
//! Invariants: a primary context's handle never changes; a context that is not active has no streams, events or
//! memory; an error that hardware cannot recover from stays in `lost`, and the device does not come back.

use std::collections::{BTreeMap, BTreeSet};

use cuda_sys::CUresult;

use super::engine::OpId;
use super::stream::{Kind, Stream};
use super::{State, profile};
use crate::codes::{Answer, CONTEXT_IS_DESTROYED, INVALID_CONTEXT};

/// The primary context's books for one device.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// Its handle, once anybody has retained it.
    pub(crate) handle: Option<u64>,
    pub(crate) retained: u64,
    pub(crate) flags: u32,
    /// The error that lost a context of the device.
    pub(crate) lost: Option<CUresult>,
}

/// The streams that a context has without being asked, and what remains of others.
#[derive(Debug)]
pub(crate) struct DefaultStreams {
    pub(crate) legacy: u64,
    /// The per-thread default streams, by thread.
    pub(crate) per_thread: BTreeMap<u64, u64>,
    /// Last work of blocking streams that were destroyed before it was done.
    pub(crate) orphans: Vec<OpId>,
}

/// A context that is active.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: u32,
    pub(crate) id: u64,
    /// The error that made it unusable.
    pub(crate) lost: Option<CUresult>,
    pub(crate) defaults: DefaultStreams,
    pub(crate) limits: BTreeMap<u32, usize>,
    /// Contexts whose memory this one may touch.
    pub(crate) peers: BTreeSet<u64>,
    pub(crate) cache_config: u32,
    /// Flags it was made with; those of a primary context are its device's.
    pub(crate) made_with: Option<u32>,
}

impl State {
    /// Retains a device's primary context and makes it active if need be.
    ///
    /// A device whose context was lost does not come back in this process.
    pub(crate) fn retain_primary(&mut self, device: u32) -> Answer<u64> {
        if let Some(code) = self.primary(device).lost {
            return Err(code);
        }
        let handle = self.primary(device).handle.unwrap_or_else(|| self.new_handle());
        let primary = self.primary(device);
        primary.handle = Some(handle);
        primary.retained += 1;
        if !self.contexts.contains_key(&handle) {
            self.activate(handle, device, None);
        }
        Ok(handle)
    }

    /// The books of a device that exists.
    pub(crate) fn primary(&mut self, device: u32) -> &mut Primary {
        let index = usize::try_from(device).unwrap_or(usize::MAX);
        &mut self.primaries[index]
    }

    /// Makes a context of the program's own.
    pub(crate) fn create_context(&mut self, device: u32, flags: u32) -> Answer<u64> {
        if let Some(code) = self.primary(device).lost {
            return Err(code);
        }
        let handle = self.new_handle();
        self.activate(handle, device, Some(flags));
        Ok(handle)
    }

    /// Whether a handle is that of a context, active, primary or green.
    pub(crate) fn is_context(&self, handle: u64) -> bool {
        let is_primary = |primary: &Primary| primary.handle == Some(handle);
        self.contexts.contains_key(&handle)
            || self.greens.contains_key(&handle)
            || self.primaries.iter().any(is_primary)
    }

    /// The flags of an active context.
    pub(crate) fn context_flags(&mut self, handle: u64) -> Answer<&mut u32> {
        let home = self.home_of(handle);
        let context = self.contexts.get_mut(&home).ok_or(INVALID_CONTEXT)?;
        let index = usize::try_from(context.device).unwrap_or(usize::MAX);
        match &mut context.made_with {
            Some(flags) => Ok(flags),
            None => Ok(&mut self.primaries[index].flags),
        }
    }

    fn activate(&mut self, handle: u64, device: u32, made_with: Option<u32>) {
        let legacy = self.new_handle();
        let id = self.new_id();
        let defaults = self.make_default_streams(handle, legacy);
        let context = Context {
            device,
            id,
            lost: None,
            defaults,
            limits: BTreeMap::new(),
            peers: BTreeSet::new(),
            cache_config: 0,
            made_with,
        };
        self.contexts.insert(handle, context);
        // A device too full for a context does not exist: nothing can be allocated without one.
        let _ = self.memory.take_physical(device, self.context_bytes());
        self.tell_others();
    }

    /// Makes a context's legacy stream.
    pub(super) fn make_default_streams(&mut self, context: u64, legacy: u64) -> DefaultStreams {
        let stream = Stream::new(context, Kind::Legacy, 0, 0, self.new_id());
        self.streams.insert(legacy, stream);
        DefaultStreams { legacy, per_thread: BTreeMap::new(), orphans: Vec::new() }
    }

    /// The default streams of an active context.
    pub(crate) fn default_streams(&self, context: u64) -> Option<&DefaultStreams> {
        match self.greens.get(&context) {
            Some(green) => green.defaults.as_ref(),
            None => self.contexts.get(&context).map(|context| &context.defaults),
        }
    }

    /// As [`State::default_streams`], to change them.
    pub(crate) fn default_streams_mut(&mut self, context: u64) -> Option<&mut DefaultStreams> {
        match self.greens.get_mut(&context) {
            Some(green) => green.defaults.as_mut(),
            None => self.contexts.get_mut(&context).map(|context| &mut context.defaults),
        }
    }

    /// Memory that a context takes.
    fn context_bytes(&self) -> u64 {
        let default = self.config.capacity_bytes == profile::TOTAL_MEMORY_BYTES;
        if default { profile::CONTEXT_BYTES } else { 0 }
    }

    /// An id for things that programs compare but never hand back.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.new_handle() >> 8
    }

    /// Releases a device's primary context once; the last release ends it.
    pub(crate) fn release_primary(&mut self, device: u32) -> Answer {
        let primary = self.primary(device);
        primary.retained = primary.retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if primary.retained == 0
            && let Some(handle) = primary.handle
        {
            self.end_context(handle);
        }
        Ok(())
    }

    /// Ends a device's primary context however often it is retained. What was retained is still to be released.
    pub(crate) fn reset_primary(&mut self, device: u32) {
        if let Some(handle) = self.primary(device).handle {
            self.end_context(handle);
        }
    }

    /// Whether a device's primary context is there.
    pub(crate) fn primary_is_active(&mut self, device: u32) -> bool {
        let handle = self.primary(device).handle;
        handle.is_some_and(|handle| self.contexts.contains_key(&handle))
    }

    /// Takes away everything that belongs to a context. Work that is still queued ends without effect.
    pub(crate) fn end_context(&mut self, handle: u64) {
        let Some(ended) = self.contexts.remove(&handle) else { return };
        self.memory.give_back_physical(ended.device, self.context_bytes());
        for green in self.greens_in(handle) {
            self.end_green(green);
        }
        self.discard_work(handle);
        self.streams.retain(|_, stream| stream.context != handle);
        self.events.retain(|_, event| event.context != handle);
        self.memory.free_context(handle);
        let memory = &self.memory;
        self.imports.retain(|import| memory.is_imported(import.base));
        self.remove_modules_of(handle);
        for context in self.contexts.values_mut() {
            context.peers.remove(&handle);
        }
        self.tell_others();
    }

    pub(super) fn discard_work(&mut self, context: u64) {
        for effect in self.engine.effects_mut(context) {
            // Memory that is being freed belongs to a pool, which outlives the context.
            if let super::Effect::EndBody { again, .. } = effect {
                // The node that waits for its body must see it end.
                *again = None;
            } else if !matches!(effect, super::Effect::FreeInOrder { .. }) {
                *effect = super::Effect::Nothing;
            }
        }
    }

    /// The error from which a context does not recover.
    pub(crate) fn lose_context(&mut self, handle: u64, code: CUresult) {
        let home = self.home_of(handle);
        if let Some(context) = self.contexts.get_mut(&home) {
            context.lost.get_or_insert(code);
            let device = context.device;
            self.primary(device).lost.get_or_insert(code);
        }
        // What waits for other work ends now.
        self.wake_waiting();
    }

    /// The context that a thread has made current.
    pub(crate) fn current_context(&self, thread: u64) -> Option<u64> {
        self.threads.get(&thread)?.current.last().copied()
    }

    /// An active context, which may be lost; for a green context that has not ended, its primary context.
    pub(crate) fn active_context(&self, handle: u64) -> Answer<&Context> {
        let has_ended = self.greens.get(&handle).is_some_and(|green| green.defaults.is_none());
        if has_ended {
            return Err(CONTEXT_IS_DESTROYED);
        }
        self.contexts.get(&self.home_of(handle)).ok_or(CONTEXT_IS_DESTROYED)
    }

    /// An active context that works.
    pub(crate) fn usable_context(&self, handle: u64) -> Answer<&Context> {
        let context = self.active_context(handle)?;
        context.lost.map_or(Ok(context), Err)
    }
}
