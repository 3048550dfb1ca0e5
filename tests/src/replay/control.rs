//! What the driver answers during a replay: the recorded addresses, no memory where the recorder had none, and events
//! that are complete when the script says so.
//!
//! **Invariants:** a call for memory succeeds only if the script lists it and every call listed before it was made. An
//! event that was not recorded, or was found complete, is in no queue; completing an event completes all that were
//! recorded on its stream before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::script::{CallKind, DriverCall};

/// A block that was freed while a scope was open: its events are recorded later, in the order of the frees.
#[derive(Debug)]
struct Deferred {
    address: u64,
    /// Streams an event is still to be recorded on.
    streams: BTreeSet<usize>,
}

/// A block that was given back while other streams may still have used it.
#[derive(Debug)]
struct Pending {
    /// Other streams it was used on.
    streams: BTreeSet<usize>,
    /// Whether that was with a scope open.
    deferred: bool,
}

/// An address range that was reserved.
#[derive(Debug)]
struct Range {
    ours: u64,
    bytes: u64,
    /// Where the recorder's range began, known from its first mapping on.
    recorded: Option<u64>,
}

/// A call that the script lists and that is not wholly made yet.
#[derive(Debug)]
struct Listed {
    call: DriverCall,
    /// Bytes of it for which memory was made.
    created: u64,
    /// Bytes of it that were done.
    done: u64,
}

impl Listed {
    fn covers(&self, kind: CallKind, address: u64) -> bool {
        self.call.kind == kind && (self.call.address..self.call.address + self.call.bytes).contains(&address)
    }
}

/// The recorder's machine, as far as a script tells of it.
#[derive(Debug, Default)]
pub(super) struct Control {
    listed: VecDeque<Listed>,
    /// What was given back or unmapped before the script lists it: the recorded address and the bytes.
    early: Vec<(CallKind, u64, u64)>,
    ranges: Vec<Range>,
    /// Events that are not complete, by stream, in the order they were recorded in.
    queues: BTreeMap<usize, VecDeque<usize>>,
    /// The block whose use an event stands for.
    owners: BTreeMap<usize, u64>,
    /// The stream an event was recorded on last.
    streams: BTreeMap<usize, usize>,
    deferred: Vec<Deferred>,
    /// The block being freed.
    freeing: Option<u64>,
    /// Blocks whose events are complete as soon as they are recorded.
    completing: BTreeSet<u64>,
    /// Blocks that wait for other streams, by address.
    pending: BTreeMap<u64, Pending>,
    /// Streams of the events and of the blocks found complete by the present operation.
    found: BTreeSet<usize>,
    /// How many blocks of those were deferred.
    deferred_found: usize,
    /// Whether one operation ever completed blocks in an order that PyTorch takes from a hash map.
    mixed: bool,
    wrong: Option<String>,
}

impl Control {
    /// A driver call of the next operations, or of those since the last memory was asked for.
    pub(super) fn list(&mut self, call: DriverCall) {
        let mut listed = Listed { call, created: 0, done: 0 };
        self.early.retain(|(kind, address, bytes)| {
            let is_part = listed.covers(*kind, *address) && listed.done < call.bytes;
            listed.done += if is_part { *bytes } else { 0 };
            !is_part
        });
        if listed.done < call.bytes {
            self.listed.push_back(listed);
        }
    }

    /// Within the next operation the block is found complete.
    pub(super) fn complete_block(&mut self, address: u64) {
        self.completing.insert(address);
        if let Some(pending) = self.pending.remove(&address) {
            self.found.extend(pending.streams);
            self.deferred_found += usize::from(pending.deferred);
        }
        let owned = self.owners.iter().filter(|(_, owner)| **owner == address).map(|(event, _)| *event);
        for event in owned.collect::<Vec<_>>() {
            self.complete(event);
        }
    }

    /// All events recorded so far are complete.
    pub(super) fn complete_all(&mut self) {
        self.queues.clear();
    }

    /// A block is about to be freed that was used on other streams; `events` are those of them that will get an event,
    /// now or, with a scope open, later.
    pub(super) fn begin_free(&mut self, address: u64, streams: BTreeSet<usize>, events: BTreeSet<usize>, scope: bool) {
        if !scope {
            self.freeing = Some(address);
        } else if !events.is_empty() {
            self.deferred.push(Deferred { address, streams: events });
        }
        if !streams.is_empty() {
            self.pending.insert(address, Pending { streams, deferred: scope });
        }
    }

    /// The operation is over. After one that asked for memory, tells what the driver should have been called for and was
    /// not, or was and should not have been: calls of other operations may be listed before or after theirs.
    pub(super) fn end_operation(&mut self, asked: bool) -> Result<(), String> {
        self.freeing = None;
        self.completing.clear();
        self.mixed = self.is_mixed();
        self.found.clear();
        self.deferred_found = 0;
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        match (self.listed.front(), self.early.first()) {
            (Some(Listed { call: DriverCall { kind, address, bytes }, .. }), _) if asked => {
                Err(format!("no {kind:?} {address:#x} {bytes}"))
            }
            (_, Some((kind, address, bytes))) if asked => Err(format!("{kind:?} {address:#x} {bytes} beside them")),
            _ => Ok(()),
        }
    }

    /// Whether counts may depend on an order that PyTorch takes from a hash map: that of the streams whose events are
    /// looked at, or that of the blocks that were deferred.
    pub(super) fn is_mixed(&self) -> bool {
        self.mixed || self.found.len() > 1 || self.deferred_found > 1
    }

    /// The recorder's address of one of ours.
    pub(super) fn recorded(&self, ours: u64) -> u64 {
        let range = self.ranges.iter().find(|range| (range.ours..range.ours + range.bytes).contains(&ours));
        range.and_then(|range| Some(range.recorded? + (ours - range.ours))).unwrap_or(ours)
    }

    /// The address for a segment of `bytes`; none where the recorder got none.
    pub(super) fn alloc(&mut self, bytes: u64) -> Option<u64> {
        let call = self.listed.front().map(|listed| listed.call)?;
        if call.kind != CallKind::Alloc {
            return None;
        }
        if call.bytes != bytes {
            self.wrong(format!("a segment of {bytes} bytes where {} were recorded", call.bytes));
            return None;
        }
        self.listed.pop_front();
        Some(call.address)
    }

    /// A segment was given back.
    pub(super) fn free(&mut self, address: u64) {
        let is_it = |listed: &Listed| listed.call.kind == CallKind::Free && listed.call.address == address;
        match self.listed.iter().position(is_it) {
            Some(at) => {
                self.listed.remove(at);
            }
            None => self.early.push((CallKind::Free, address, u64::MAX)),
        }
    }

    /// Where a range to be reserved should begin, if the script tells: where the next mapping begins, unless that is
    /// in a range that is reserved already.
    pub(super) fn reserve(&self) -> Option<u64> {
        let next = self.listed.iter().find(|listed| listed.call.kind == CallKind::Map)?.call.address;
        let is_known = self.ranges.iter().any(|range| (range.ours..range.ours + range.bytes).contains(&next));
        (!is_known).then_some(next)
    }

    /// A range was reserved.
    pub(super) fn reserved(&mut self, ours: u64, bytes: u64) {
        self.ranges.push(Range { ours, bytes, recorded: None });
    }

    /// A range was given back.
    pub(super) fn unreserved(&mut self, ours: u64) {
        self.ranges.retain(|range| range.ours != ours);
    }

    /// Whether memory for mappings can be made.
    pub(super) fn create(&mut self, bytes: u64) -> bool {
        let first_open = self
            .listed
            .iter_mut()
            .find(|listed| listed.call.kind != CallKind::Map || listed.created < listed.call.bytes);
        match first_open {
            Some(listed) if listed.call.kind == CallKind::Map => {
                listed.created += bytes;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Pages were mapped.
    pub(super) fn map(&mut self, ours: u64, bytes: u64) {
        let Some(listed) = self.listed.iter_mut().find(|listed| listed.call.kind == CallKind::Map) else {
            return self.wrong(format!("{bytes} bytes were mapped where nothing was recorded"));
        };
        let recorded = listed.call.address + listed.done;
        listed.done += bytes;
        let call = (listed.done == listed.call.bytes).then_some(CallKind::Map);
        if let Some(kind) = call {
            let at = self.listed.iter().position(|listed| listed.call.kind == kind);
            at.and_then(|at| self.listed.remove(at));
        }
        let holds = |range: &&mut Range| (range.ours..range.ours + range.bytes).contains(&ours);
        if let Some(range) = self.ranges.iter_mut().find(holds) {
            range.recorded.get_or_insert(recorded.wrapping_sub(ours - range.ours));
        }
        let got = self.recorded(ours);
        if got != recorded {
            self.wrong(format!("pages were mapped at {got:#x} where {recorded:#x} was recorded"));
        }
    }

    /// Pages were unmapped.
    pub(super) fn unmap(&mut self, ours: u64, bytes: u64) {
        let address = self.recorded(ours);
        match self.listed.iter().position(|listed| listed.covers(CallKind::Unmap, address)) {
            Some(at) => {
                self.listed[at].done += bytes;
                if self.listed[at].done >= self.listed[at].call.bytes {
                    self.listed.remove(at);
                }
            }
            None => self.early.push((CallKind::Unmap, address, bytes)),
        }
    }

    /// An event was recorded on a stream.
    pub(super) fn record(&mut self, event: usize, stream: usize) {
        self.queues.values_mut().for_each(|queue| queue.retain(|queued| *queued != event));
        self.owners.remove(&event);
        let owner = self.freeing.or_else(|| self.deferred_on(stream));
        owner.map(|owner| self.owners.insert(event, owner));
        self.streams.insert(event, stream);
        self.queues.entry(stream).or_default().push_back(event);
        if owner.is_some_and(|owner| self.completing.contains(&owner)) {
            self.complete(event);
        }
    }

    /// The first deferred block that still lacks its event on the stream.
    fn deferred_on(&mut self, stream: usize) -> Option<u64> {
        let at = self.deferred.iter().position(|block| block.streams.contains(&stream))?;
        let block = &mut self.deferred[at];
        block.streams.remove(&stream);
        let address = block.address;
        if block.streams.is_empty() {
            self.deferred.remove(at);
        }
        Some(address)
    }

    /// Whether an event is complete.
    pub(super) fn query(&mut self, event: usize) -> bool {
        let is_waiting = self.queues.values().any(|queue| queue.contains(&event));
        if !is_waiting {
            self.found.extend(self.streams.get(&event));
        }
        !is_waiting
    }

    /// The host waited for an event.
    pub(super) fn synchronize(&mut self, event: usize) {
        self.complete(event);
        self.found.extend(self.streams.get(&event));
    }

    fn complete(&mut self, event: usize) {
        for queue in self.queues.values_mut() {
            if let Some(at) = queue.iter().position(|queued| *queued == event) {
                queue.drain(..=at);
            }
        }
    }

    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: DriverCall = DriverCall { kind: CallKind::Alloc, address: 0x1000, bytes: 512 };

    fn freed(control: &mut Control, address: u64, streams: &[usize], scope: bool) {
        let streams: BTreeSet<usize> = streams.iter().copied().collect();
        control.begin_free(address, streams.clone(), streams, scope);
    }

    #[test]
    fn memory_is_there_when_it_was_recorded() {
        let mut control = Control::default();
        assert_eq!(control.alloc(512), None);
        control.list(DriverCall { kind: CallKind::Free, address: 0x2000, ..CALL });
        control.list(CALL);
        assert_eq!(control.alloc(512), None, "something is to be given back before");
        control.free(0x2000);
        assert_eq!(control.alloc(512), Some(0x1000));
        assert_eq!(control.end_operation(true), Ok(()));
    }

    #[test]
    fn calls_may_be_listed_late_but_not_never() {
        let mut control = Control::default();
        control.free(0x1000);
        assert_eq!(control.end_operation(false), Ok(()));
        control.list(DriverCall { kind: CallKind::Free, ..CALL });
        assert_eq!(control.end_operation(true), Ok(()));
        control.list(CALL);
        assert_eq!(control.end_operation(false), Ok(()));
        assert!(control.end_operation(true).is_err());
        control.free(0x3000);
        assert!(control.end_operation(true).is_err());
    }

    #[test]
    fn addresses_of_ranges_are_relative_to_their_first_mapping() {
        let mut control = Control::default();
        let call = DriverCall { kind: CallKind::Map, address: 0x40_0000, bytes: 0x20_0000 };
        assert!(!control.create(0x20_0000));
        control.list(call);
        assert_eq!(control.reserve(), Some(0x40_0000));
        control.reserved(0x100_0000, 0x80_0000);
        assert!(control.create(0x20_0000) && !control.create(0x20_0000));
        control.map(0x100_0000, 0x20_0000);
        assert_eq!(control.end_operation(true), Ok(()));
        assert_eq!(control.recorded(0x100_0200), 0x40_0200);
        control.unmap(0x100_0000, 0x20_0000);
        control.list(DriverCall { kind: CallKind::Unmap, ..call });
        assert_eq!(control.end_operation(true), Ok(()));
    }

    #[test]
    fn events_complete_in_the_order_of_their_stream() {
        let mut control = Control::default();
        for (event, address) in [(1, 0x10), (2, 0x20), (3, 0x30)] {
            freed(&mut control, address, &[7], false);
            control.record(event, 7);
            assert_eq!(control.end_operation(false), Ok(()));
        }
        control.complete_block(0x20);
        assert!(control.query(1) && control.query(2) && !control.query(3));
        control.complete_all();
        assert!(control.query(3) && !control.is_mixed());
    }

    #[test]
    fn deferred_blocks_get_their_events_later() {
        let mut control = Control::default();
        freed(&mut control, 0x10, &[7, 8], true);
        freed(&mut control, 0x20, &[7], true);
        control.complete_block(0x10);
        control.record(1, 7);
        control.record(2, 8);
        control.record(3, 7);
        assert!(control.query(1) && control.query(2) && !control.query(3));
        assert!(control.is_mixed(), "two streams were found complete at once");
    }
}
