//! When threads released and acquired, and whether that orders two accesses.
//!
//! Order is handed on: what a thread has seen of its warp or block when it releases for the device is released with it, and
//! what it has acquired from the device others acquire from it by a barrier.
//!
//! The lanes of a warp mostly do both together, so a warp keeps what is true of all its lanes, and the times of each only
//! where they differ.

use super::shadow::Access;
use crate::exec::rows::{LANES, lanes};

/// Who takes part in what orders accesses.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec) enum Scope {
    Warp,
    Block,
    Device,
}

/// When a thread released and acquired last, by scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    released: [u64; 3],
    acquired: [u64; 3],
}

/// The latest of the scopes that count for threads of other warps, and for those of the same.
fn latest([warp, block, device]: [u64; 3]) -> [u64; 2] {
    let others = block.max(device);
    [others, warp.max(others)]
}

/// The times of a warp.
#[derive(Clone, Debug)]
struct Warp {
    /// Lanes that there are.
    present: u32,
    /// Of every lane, where they do not differ.
    all: Times,
    each: Option<Box<[Times; LANES]>>,
    /// Of the lane that is furthest behind, for other warps and for its own.
    least_released: [u64; 2],
    least_acquired: [u64; 2],
    /// Up to when a lane that released for the device had seen what its warp did.
    covered: u64,
}

impl Warp {
    fn new(present: u32) -> Self {
        Self { present, all: Times::default(), each: None, least_released: [0; 2], least_acquired: [0; 2], covered: 0 }
    }

    fn of(&self, lane: usize) -> &Times {
        self.each.as_ref().map_or(&self.all, |each| &each[lane])
    }

    /// The latest that active lanes acquired, in a scope.
    fn latest_acquired(&self, active: u32, scope: Scope) -> u64 {
        match &self.each {
            None => self.all.acquired[scope as usize],
            Some(each) => lanes(active).map(|lane| each[lane].acquired[scope as usize]).max().unwrap_or(0),
        }
    }

    fn change(&mut self, active: u32, change: impl Fn(&mut Times)) {
        if active & self.present == self.present && self.each.is_none() {
            change(&mut self.all);
        } else {
            let each = self.each.get_or_insert_with(|| Box::new([self.all; LANES]));
            lanes(active).for_each(|lane| change(&mut each[lane]));
            let first = each[self.present.trailing_zeros() as usize % LANES];
            if lanes(self.present).all(|lane| each[lane] == first) {
                (self.all, self.each) = (first, None);
            }
        }
        let least = |of: fn(&Times) -> [u64; 3]| match &self.each {
            None => latest(of(&self.all)),
            Some(each) => lanes(self.present)
                .map(|lane| latest(of(&each[lane])))
                .fold([u64::MAX; 2], |least, next| [least[0].min(next[0]), least[1].min(next[1])]),
        };
        (self.least_released, self.least_acquired) = (least(|times| times.released), least(|times| times.acquired));
    }
}

/// The times of all threads of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    warps: Vec<Warp>,
    /// Up to when a thread that released for the device had seen what the block did.
    covered: u64,
    /// The latest that a thread which came to a barrier had acquired from the device.
    passed_on: u64,
}

impl Order {
    pub(super) fn new(threads: u32) -> Self {
        let present = |warp: u32| u32::MAX >> (32 - (threads - warp * 32).min(32));
        let warps = (0..threads.div_ceil(32)).map(|warp| Warp::new(present(warp))).collect();
        Self { warps, covered: 0, passed_on: 0 }
    }

    /// Lanes release, acquire, or both.
    pub(super) fn sync(&mut self, warp: u32, active: u32, scope: Scope, (releases, acquires): (bool, bool), time: u64) {
        let Some(of) = self.warps.get_mut(warp as usize) else { return };
        let from_device = of.latest_acquired(active, Scope::Device);
        let passed_on = match scope {
            Scope::Warp => from_device,
            Scope::Block if acquires => self.passed_on,
            Scope::Block | Scope::Device => 0,
        };
        match scope {
            Scope::Block if releases => self.passed_on = self.passed_on.max(from_device),
            Scope::Device if releases => {
                of.covered = of.covered.max(of.latest_acquired(active, Scope::Warp));
                self.covered = self.covered.max(of.latest_acquired(active, Scope::Block));
            }
            Scope::Warp | Scope::Block | Scope::Device => {}
        }
        of.change(active, |times| {
            if releases {
                times.released[scope as usize] = time;
            }
            if acquires {
                times.acquired[scope as usize] = time;
                let device = &mut times.acquired[Scope::Device as usize];
                *device = passed_on.max(*device);
            }
        });
    }

    /// When lanes of a warp acquired at least, for what other warps did and for what it did itself.
    #[inline]
    pub(super) fn least_acquired(&self, warp: u32) -> [u64; 2] {
        self.warps.get(warp as usize).map_or([0; 2], |of| of.least_acquired)
    }

    /// Whether all lanes of an access's warp have released since.
    #[inline]
    pub(super) fn all_released_since(&self, earlier: Access, same_warp: bool) -> bool {
        let least =
            self.warps.get((earlier.thread() / 32) as usize).map_or(0, |of| of.least_released[usize::from(same_warp)]);
        least > earlier.time()
    }

    /// Whether something in the block orders an access of it before what a thread does now.
    pub(super) fn is_ordered(&self, earlier: Access, thread: u32) -> bool {
        let same_warp = usize::from(earlier.thread() / 32 == thread / 32);
        let then = latest(self.times(earlier.thread()).released)[same_warp];
        let now = latest(self.times(thread).acquired)[same_warp];
        then.max(self.released(earlier.thread())) > earlier.time() && now > earlier.time()
    }

    /// Up to when what a thread did is released for the whole device, by itself or by one that had seen it.
    pub(super) fn released(&self, thread: u32) -> u64 {
        let Some(warp) = self.warps.get((thread / 32) as usize) else { return 0 };
        let [by_warp, by_block, own] = warp.of(thread as usize % LANES).released;
        own.max(by_warp.min(warp.covered)).max(by_block.min(self.covered))
    }

    /// When a thread acquired last from the whole device.
    pub(super) fn acquired(&self, thread: u32) -> u64 {
        self.times(thread).acquired[Scope::Device as usize]
    }

    /// When each thread released last for the whole device; nothing where none did.
    pub(super) fn all_released(&self) -> Box<[u64]> {
        let threads = u32::try_from(self.warps.len() * LANES).unwrap_or(0);
        let all: Vec<u64> = (0..threads).map(|thread| self.released(thread)).collect();
        if all.iter().all(|&time| time == 0) { Box::default() } else { all.into() }
    }

    fn times(&self, thread: u32) -> Times {
        self.warps.get((thread / 32) as usize).map_or(Times::default(), |warp| *warp.of(thread as usize % LANES))
    }
}
