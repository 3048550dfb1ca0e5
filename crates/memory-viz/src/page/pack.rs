//! The history, segments and stacks of a snapshot as one row of bytes, which `viewer/unpack.js` reads.
//!
//! All numbers are whole and of variable length: seven bits a byte, lowest first, the high bit set where more follow.
//! Addresses and times are differences to the previous one, zigzag-encoded so that small negative numbers stay short.
//! The order: frames (name, file, line, whether it is the program's own); stacks (length, frames); devices. For each
//! device: streams; allocations older than the history (address, size, stream, stack); entries (kind, time, then what
//! the kind needs); segments with their blocks.

use std::collections::BTreeMap;

use crate::analysis::{Timeline, is_program, timeline};
use crate::model::{Action, BlockState, Segment, SegmentKind, Snapshot, TraceEntry};

/// Numbers one after the other.
#[derive(Debug, Default)]
pub(super) struct Pack(Vec<u8>);

impl Pack {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    /// A number that may be negative: 0, -1, 1, -2 become 0, 1, 2, 3.
    fn signed(&mut self, number: i64) {
        self.number((number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
    }

    /// The bytes as text of 64 letters.
    pub(super) fn base64(&self) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::with_capacity(self.0.len().div_ceil(3) * 4);
        for three in self.0.chunks(3) {
            let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
            for place in 0..4 {
                let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
                text.push(if place <= three.len() { char::from(letter) } else { '=' });
            }
        }
        text
    }
}

/// A number that is written as the difference to the last of its kind.
#[derive(Debug, Default)]
struct Last(u64);

impl Last {
    fn write(&mut self, pack: &mut Pack, number: u64) {
        pack.signed(number.wrapping_sub(self.0).cast_signed());
        self.0 = number;
    }
}

/// Packs what the page's worker needs.
pub(super) fn pack(snapshot: &Snapshot, devices: usize) -> Pack {
    let mut pack = Pack::default();
    let names = &snapshot.names;
    pack.count(names.frames().len());
    let own = names.frame_ids().map(|frame| is_program(names, frame));
    for (frame, is_own) in names.frames().iter().zip(own) {
        pack.count(frame.name.index());
        pack.count(frame.filename.index());
        pack.number(frame.line);
        pack.number(u64::from(is_own));
    }
    pack.count(names.stacks().len());
    for frames in names.stacks() {
        pack.count(frames.len());
        frames.iter().for_each(|frame| pack.count(frame.index()));
    }
    for device in 0..devices {
        Device::new(snapshot, device).write(&mut pack);
    }
    pack
}

struct Device<'snapshot> {
    trace: &'snapshot [TraceEntry],
    segments: Vec<&'snapshot Segment>,
    timeline: Timeline,
    /// The streams' handles in the order of their appearance; the default stream is the first.
    streams: Vec<i64>,
    stream_numbers: BTreeMap<i64, usize>,
}

impl<'snapshot> Device<'snapshot> {
    fn new(snapshot: &'snapshot Snapshot, device: usize) -> Self {
        let trace = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
        let segments: Vec<_> = snapshot.segments.iter().filter(|segment| segment.device as usize == device).collect();
        let timeline = timeline(snapshot, device);
        let mut device = Self { trace, segments, timeline, streams: vec![0], stream_numbers: BTreeMap::from([(0, 0)]) };
        let before = device.timeline.lives[..device.timeline.before].iter().map(|life| life.stream);
        let entries = device.trace.iter().map(|entry| entry.stream);
        let all: Vec<i64> = before.chain(entries).chain(device.segments.iter().map(|segment| segment.stream)).collect();
        for stream in all {
            let next = device.streams.len();
            let number = *device.stream_numbers.entry(stream).or_insert(next);
            if number == next {
                device.streams.push(stream);
            }
        }
        device
    }

    fn stream(&self, stream: i64) -> usize {
        self.stream_numbers.get(&stream).copied().unwrap_or(0)
    }

    fn write(&self, pack: &mut Pack) {
        pack.count(self.streams.len());
        self.streams.iter().for_each(|stream| pack.signed(*stream));
        pack.number(self.timeline.reserved_before);
        pack.count(self.timeline.lives.len());
        pack.count(self.timeline.before);
        let mut address = Last::default();
        for life in &self.timeline.lives[..self.timeline.before] {
            address.write(pack, life.address);
            pack.number(life.size);
            pack.count(self.stream(life.stream));
            pack.count(life.stack.index());
        }
        self.write_entries(pack, &mut address);
        self.write_segments(pack);
    }

    fn write_entries(&self, pack: &mut Pack, address: &mut Last) {
        pack.count(self.trace.len());
        let mut time = Last::default();
        let mut begun = self.timeline.before;
        let lives = self.timeline.lives.iter().enumerate();
        let ended_by: BTreeMap<usize, usize> = lives
            .filter_map(|(life, one)| one.end.map(|end| (end, life)))
            .filter(|(end, _)| self.trace[*end].action == Action::Alloc)
            .collect();
        for (index, (entry, life)) in self.trace.iter().zip(&self.timeline.life_of_entry).enumerate() {
            if let Some(ended) = ended_by.get(&index) {
                pack.number(ENDS);
                pack.count(begun.saturating_sub(*ended));
            }
            pack.number(kind(entry.action));
            time.write(pack, entry.time_us.cast_unsigned());
            match entry.action {
                Action::FreeRequested | Action::FreeCompleted => {
                    // A life that was there before may be numbered above those that have begun: never negative, since
                    // all of them come first.
                    pack.count(begun.saturating_sub(life.unwrap_or(0)));
                }
                Action::Snapshot => pack.number(entry.size),
                _ => {
                    begun += usize::from(entry.action == Action::Alloc);
                    let place = if entry.action == Action::OutOfMemory { entry.device_free } else { entry.addr };
                    address.write(pack, place);
                    pack.number(entry.size);
                    pack.count(self.stream(entry.stream));
                    pack.count(entry.stack.index());
                    if let Action::Other(name) = entry.action {
                        pack.count(name.index());
                    }
                }
            }
        }
    }

    fn write_segments(&self, pack: &mut Pack) {
        pack.count(self.segments.len());
        let mut address = Last::default();
        for segment in &self.segments {
            address.write(pack, segment.address);
            pack.number(segment.total_size);
            pack.count(self.stream(segment.stream));
            pack.number(segment.pool_id.0);
            pack.number(segment.pool_id.1);
            let is_small = u64::from(segment.kind == SegmentKind::Small);
            pack.number(is_small | u64::from(segment.is_expandable) << 1);
            pack.count(segment.stack.index());
            pack.count(segment.blocks.len());
            let mut end = Last(segment.address);
            for block in &segment.blocks {
                end.write(pack, block.address);
                end.0 = block.address.wrapping_add(block.size);
                pack.number(block.size);
                pack.number(block.requested_size);
                pack.number(match block.state {
                    BlockState::Inactive => 0,
                    BlockState::ActiveAllocated => 1,
                    BlockState::ActivePendingFree => 2,
                });
                pack.count(block.stack.index());
            }
        }
    }
}

/// Before an allocation where another still lives: that one ended, unseen by the history.
const ENDS: u64 = 9;

/// Code of an unknown action. The index of its name follows the fields that all entries have.
const OTHER: u64 = 10;

/// The number of an action in `viewer/unpack.js`.
fn kind(action: Action) -> u64 {
    match action {
        Action::Alloc => 0,
        Action::FreeRequested => 1,
        Action::FreeCompleted => 2,
        Action::SegmentAlloc => 3,
        Action::SegmentFree => 4,
        Action::SegmentMap => 5,
        Action::SegmentUnmap => 6,
        Action::Snapshot => 7,
        Action::OutOfMemory => 8,
        Action::Other(_) => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_few_bytes_as_they_need() {
        let mut pack = Pack::default();
        pack.number(127);
        pack.number(300);
        pack.signed(-1);
        pack.signed(1);
        pack.signed(i64::MIN);
        assert_eq!(pack.0[..5], [127, 0xac, 2, 1, 2]);
        assert_eq!(pack.0.len(), 15);
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"foobar", "Zm9vYmFy")]
        {
            assert_eq!(Pack(bytes.to_vec()).base64(), text);
        }
    }
}
