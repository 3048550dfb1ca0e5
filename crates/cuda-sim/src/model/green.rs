//! Green contexts: parts of a device's multiprocessors, each with streams of its own in the device's primary context.
//!
//! Memory, events, modules, limits and errors of a green context are its primary context's; only streams and waiting
//! for them are its own. So `Stream::context` may name a green context, and nothing else does.
//!
//! Invariants: a green context retains its primary context until it is destroyed; one that has ended keeps its handle,
//! and its streams keep theirs, since programs may still ask about them.

use std::num::Wrapping;

use super::State;
use super::context::DefaultStreams;
use super::occupancy::MULTIPROCESSORS;
use crate::codes::{Answer, INVALID_CONTEXT, INVALID_RESOURCE_CONFIGURATION};

/// Multiprocessors that are given out together, so that the blocks of a cluster find room.
const TOGETHER: u32 = 8;

/// The same where no clusters are wanted.
const APART: u32 = 2;

/// The most groups of [`TOGETHER`]: the device has 132 multiprocessors in clusters of 14 to 18, and what is left of each
/// cluster makes no group.
const GROUPS_TOGETHER: u32 = 15;

/// Where a part of a device comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is what a device or a context has.
    Owned = 1,
    /// It was split from such a one, and is not split again.
    Split = 2,
}

/// Some of a device's multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) device: u32,
    pub(crate) multiprocessors: u32,
    pub(crate) origin: Origin,
    /// How many are given out together.
    pub(crate) together: u32,
}

/// What a part was split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// Each of them.
    pub(crate) group: Part,
    pub(crate) count: u32,
    /// What is left, if anything is.
    pub(crate) rest: Option<Part>,
}

impl Part {
    pub(crate) fn whole(device: u32) -> Self {
        Self { device, multiprocessors: MULTIPROCESSORS, origin: Origin::Owned, together: TOGETHER }
    }

    /// A number that follows from the rest, by which a resource that the program changed is found out.
    pub(crate) fn seal(&self) -> u64 {
        let fields = [self.device, self.multiprocessors, self.origin as u32, self.together];
        let mixed = fields.iter().fold(Wrapping(0x9E37_79B9_7F4A_7C15_u64), |sum, &field| {
            (sum ^ Wrapping(u64::from(field))) * Wrapping(0x2545_F491_4F6C_DD1D)
        });
        mixed.0
    }

    /// Splits it into at most `most` groups of at least `least` multiprocessors each.
    pub(crate) fn split(&self, most: u32, least: u32, clusters: bool) -> Answer<Groups> {
        if self.origin == Origin::Split || least > self.multiprocessors {
            return Err(INVALID_RESOURCE_CONFIGURATION);
        }
        let together = if clusters { TOGETHER } else { APART };
        let size = least.max(1).next_multiple_of(together).min(self.multiprocessors);
        let limit = if size == TOGETHER && clusters { GROUPS_TOGETHER } else { u32::MAX };
        let count = (self.multiprocessors / size).min(limit).min(most);
        let part = |multiprocessors| Self { multiprocessors, origin: Origin::Split, together, ..*self };
        let left = self.multiprocessors - count * size;
        Ok(Groups { group: part(size), count, rest: (left > 0).then(|| part(left)) })
    }

    /// Parts of one device together. As on hardware, one that is given twice counts twice.
    pub(crate) fn join(parts: &[Self]) -> Answer<Self> {
        let first = parts.first().ok_or(INVALID_RESOURCE_CONFIGURATION)?;
        let multiprocessors = parts.iter().fold(0_u32, |sum, part| sum.saturating_add(part.multiprocessors));
        let fits = parts.iter().all(|part| part.device == first.device) && multiprocessors <= MULTIPROCESSORS;
        if !fits {
            return Err(INVALID_RESOURCE_CONFIGURATION);
        }
        Ok(Self { multiprocessors, origin: Origin::Owned, ..*first })
    }
}

/// A green context.
#[derive(Debug)]
pub(crate) struct Green {
    /// The primary context that it is a part of.
    pub(crate) home: u64,
    pub(crate) part: Part,
    pub(crate) id: u64,
    /// None once it has ended.
    pub(crate) defaults: Option<DefaultStreams>,
    /// Whether it still retains its primary context.
    retains: bool,
}

impl Green {
    pub(crate) fn has_ended(&self) -> bool {
        self.defaults.is_none()
    }
}

impl State {
    /// Makes a green context of a part of its device.
    pub(crate) fn create_green(&mut self, part: Part) -> Answer<u64> {
        let home = self.retain_primary(part.device)?;
        let handle = self.new_handle();
        let legacy = self.new_handle();
        let id = self.new_id();
        let defaults = Some(self.make_default_streams(handle, legacy));
        self.greens.insert(handle, Green { home, part, id, defaults, retains: true });
        Ok(handle)
    }

    /// The green context of a handle, which has not ended.
    pub(crate) fn green(&self, handle: u64) -> Answer<&Green> {
        self.greens.get(&handle).filter(|green| !green.has_ended()).ok_or(INVALID_CONTEXT)
    }

    /// Destroys a green context: queued work on its streams ends without effect. One that ended because its primary
    /// context was reset is still to be destroyed.
    pub(crate) fn destroy_green(&mut self, handle: u64) -> Answer {
        let green = self.greens.get_mut(&handle).filter(|green| green.retains).ok_or(INVALID_CONTEXT)?;
        green.retains = false;
        let device = green.part.device;
        self.end_green(handle);
        self.release_primary(device)
    }

    /// Ends a green context, by itself or with its primary context.
    pub(super) fn end_green(&mut self, handle: u64) {
        self.discard_work(handle);
        if let Some(green) = self.greens.get_mut(&handle) {
            green.defaults = None;
        }
    }

    /// The green contexts in a primary context.
    pub(super) fn greens_in(&self, home: u64) -> Vec<u64> {
        let inside = self.greens.iter().filter(|(_, green)| green.home == home && !green.has_ended());
        inside.map(|(&handle, _)| handle).collect()
    }

    /// The primary context that a green context is a part of; any other context itself.
    pub(crate) fn home_of(&self, context: u64) -> u64 {
        self.greens.get(&context).map_or(context, |green| green.home)
    }

    /// Whether waiting for `outer` waits for the streams of `inner`: the same context, or a green one inside it.
    pub(crate) fn is_within(&self, inner: u64, outer: u64) -> bool {
        inner == outer || self.greens.get(&inner).is_some_and(|green| green.home == outer && !green.has_ended())
    }

    /// Queued operations of a context and of green contexts inside it.
    pub(crate) fn load_of(&self, context: u64) -> usize {
        let inside = self.greens_in(context).into_iter();
        inside.chain([context]).map(|context| self.engine.load(context)).sum()
    }

    /// What a context has of its device.
    pub(crate) fn part_of(&self, context: u64) -> Answer<Part> {
        match self.greens.get(&context) {
            Some(green) => Ok(green.part),
            None => Ok(Part::whole(self.active_context(context)?.device)),
        }
    }

    /// Multiprocessors on which kernels of a context run.
    pub(crate) fn multiprocessors_of(&self, context: u64) -> u32 {
        self.greens.get(&context).map_or(MULTIPROCESSORS, |green| green.part.multiprocessors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts, size and rest of a split of the whole device, as an H200 answered.
    #[track_caller]
    fn check(most: u32, least: u32, clusters: bool, want: (u32, u32, u32)) {
        let groups = Part::whole(0).split(most, least, clusters).expect("it can be split so");
        let rest = groups.rest.map_or(0, |rest| rest.multiprocessors);
        assert_eq!((groups.count, groups.group.multiprocessors, rest), want, "{most} of {least}");
    }

    #[test]
    fn splits_are_those_of_hardware() {
        check(1, 0, true, (1, 8, 124));
        check(1, 9, true, (1, 16, 116));
        check(1, 66, true, (1, 72, 60));
        check(1, 130, true, (1, 132, 0));
        check(2, 60, true, (2, 64, 4));
        check(2, 66, true, (1, 72, 60));
        check(3, 44, true, (2, 48, 36));
        check(200, 0, true, (15, 8, 12));
        check(16, 8, false, (16, 8, 4));
        check(16, 1, false, (16, 2, 100));
        check(2, 66, false, (2, 66, 0));
        check(1, 131, false, (1, 132, 0));
    }

    #[test]
    fn too_large_groups_and_groups_of_groups_are_refused() {
        assert_eq!(Part::whole(0).split(1, 133, true), Err(INVALID_RESOURCE_CONFIGURATION));
        let group = Part::whole(0).split(2, 32, true).expect("it can be split so").group;
        assert_eq!(group.split(1, 8, true), Err(INVALID_RESOURCE_CONFIGURATION));
    }

    #[test]
    fn a_part_given_twice_counts_twice() {
        let group = Part::whole(0).split(2, 16, true).expect("it can be split so").group;
        assert_eq!(Part::join(&[group, group]).map(|part| part.multiprocessors), Ok(32));
        assert_eq!(Part::join(&[Part::whole(0), group]), Err(INVALID_RESOURCE_CONFIGURATION));
        assert_eq!(Part::join(&[group, Part { device: 1, ..group }]), Err(INVALID_RESOURCE_CONFIGURATION));
    }

    #[test]
    fn a_seal_tells_parts_apart() {
        let whole = Part::whole(0);
        let others =
            [Part { multiprocessors: 131, ..whole }, Part { device: 1, ..whole }, Part { together: 2, ..whole }];
        assert!(others.iter().all(|other| other.seal() != whole.seal()));
    }
}
