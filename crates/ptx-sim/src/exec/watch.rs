//! What hardware does not tell: accesses of two threads that nothing orders, and reads of shared memory that nobody wrote.
//!
//! For each word of memory the last write and the last read are kept, and for each thread when it last let others see what
//! it did (a release) and when it last looked at what others did (an acquire): by a barrier of its block, by an instruction
//! of its warp, or by a fence, an atomic or another access that is not weak. Two accesses are ordered if the first thread
//! has released and the second acquired since the first access, by something that both take part in.
//!
//! **Invariants:** what is noted is a race in this launch's order of steps; a race may stay unnoticed where a thread
//! released for another reason. Accesses that are not weak race with weak ones only.

use std::collections::HashMap;

use super::core::{Common, Core, FindingKind};
use super::fragment::Warp;
use super::memory::Memory;
use super::rows::{Long, lanes};
use super::written;
use crate::program::types::{SHARED_WINDOW, Space, WINDOW_BYTES};

/// What is looked for beside what the program computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Accesses of several threads to the same memory that nothing orders.
    pub races: bool,
    /// Reads of shared memory that nobody has written, and of global memory where [`Memory`] knows what is written.
    pub uninitialized: bool,
}

impl Checks {
    /// Everything.
    pub const ALL: Self = Self { races: true, uninitialized: true };

    /// Whether anything is looked for.
    pub fn any(self) -> bool {
        self.races || self.uninitialized
    }
}

/// Bytes of a page of global memory that is watched.
const PAGE: u64 = 4096;

/// Who takes part in what orders accesses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    Warp,
    Block,
    Device,
}

/// When a thread released and acquired last, by scope.
#[derive(Clone, Copy, Debug, Default)]
struct Syncs {
    released: [u64; 3],
    acquired: [u64; 3],
}

/// An access that is remembered.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    /// 0 for none.
    time: u64,
    block: u64,
    thread: u32,
    pc: u32,
    weak: bool,
}

/// A word of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    write: Access,
    read: Access,
    /// Bytes that were written.
    written: u8,
}

/// What a launch remembers.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    checks: Checks,
    time: u64,
    /// Of the blocks that run, by thread.
    syncs: HashMap<u64, Vec<Syncs>>,
    /// Of the blocks that have ended: the last release for the device.
    ended: HashMap<u64, Vec<u64>>,
    shared: HashMap<u64, Vec<Word>>,
    global: HashMap<u64, Vec<Word>>,
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Read,
    /// In these lanes it writes what is there already.
    Write {
        same: u32,
    },
    /// Reads and writes at once.
    Change,
}

/// An access of a warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accesses<'a> {
    pub(super) space: Space,
    pub(super) addresses: &'a Long,
    pub(super) bytes: u64,
    pub(super) does: Does,
    pub(super) weak: bool,
    pub(super) active: u32,
    pub(super) pc: u32,
}

impl Watch {
    pub(crate) fn new(checks: Checks) -> Self {
        Self { checks, ..Self::default() }
    }

    /// Whether accesses have to be told.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.checks.any()
    }

    /// A block begins.
    pub(super) fn begin(&mut self, block: u64, threads: u32, shared_bytes: usize) {
        if self.is_on() {
            self.syncs.insert(block, vec![Syncs::default(); threads as usize]);
            self.shared.insert(block, vec![Word::default(); shared_bytes.div_ceil(4)]);
        }
    }

    /// A block has ended.
    pub(super) fn end(&mut self, block: u64) {
        self.shared.remove(&block);
        if let Some(syncs) = self.syncs.remove(&block) {
            self.ended.insert(block, syncs.iter().map(|syncs| syncs.released[Scope::Device as usize]).collect());
        }
    }

    /// Lanes release, acquire, or both.
    pub(super) fn sync(
        &mut self,
        block: u64,
        warp: u32,
        active: u32,
        scope: Scope,
        (releases, acquires): (bool, bool),
    ) {
        if !self.is_on() {
            return;
        }
        self.time += 1;
        let Some(syncs) = self.syncs.get_mut(&block) else { return };
        for lane in lanes(active) {
            let Some(of) = syncs.get_mut(warp as usize * 32 + lane) else { continue };
            if releases {
                of.released[scope as usize] = self.time;
            }
            if acquires {
                of.acquired[scope as usize] = self.time;
            }
        }
    }

    /// The time, which passes with each access and each release.
    pub(super) fn now(&self) -> u64 {
        self.time
    }

    /// Lanes acquire what was released in their block up to a time.
    pub(super) fn acquire_at(&mut self, block: u64, warp: u32, active: u32, time: u64) {
        let Some(syncs) = self.syncs.get_mut(&block) else { return };
        for lane in lanes(active) {
            if let Some(of) = syncs.get_mut(warp as usize * 32 + lane) {
                of.acquired[Scope::Block as usize] = time;
            }
        }
    }

    /// Whether something orders an access before what a thread does now.
    fn is_ordered(&self, earlier: Access, block: u64, thread: u32) -> bool {
        if earlier.time == 0 || (earlier.block, earlier.thread) == (block, thread) {
            return true;
        }
        let Some(now) = self.syncs.get(&block).and_then(|syncs| syncs.get(thread as usize)) else { return true };
        let device = Scope::Device as usize;
        if earlier.block != block {
            let running = self.syncs.get(&earlier.block).map(|syncs| syncs[earlier.thread as usize].released[device]);
            let ended = || self.ended.get(&earlier.block).map(|released| released[earlier.thread as usize]);
            let released = running.or_else(ended).unwrap_or(u64::MAX);
            return released > earlier.time && now.acquired[device] > earlier.time;
        }
        let then = self.syncs[&block][earlier.thread as usize];
        let of_warp = usize::from(earlier.thread / 32 != thread / 32);
        // The scope of the warp counts for its own threads only.
        let latest = |times: [u64; 3]| times[of_warp..].iter().copied().max().unwrap_or(0);
        latest(then.released) > earlier.time && latest(now.acquired) > earlier.time
    }
}

/// Looks at an access of a warp before it is done, and notes what is wrong with it.
pub(super) fn look<'m, M: Memory<'m>>(core: &mut Core<'_, 'm, M>, common: &Common, warp: &Warp, what: Accesses<'_>) {
    if core.watch.checks.uninitialized {
        written::look(core, common, warp, &what);
    }
    let (releases, acquires) = match what.does {
        _ if what.weak => (false, false),
        Does::Read => (false, true),
        Does::Write { .. } => (true, false),
        Does::Change => (true, true),
    };
    for lane in lanes(what.active) {
        let Some((is_shared, address)) = place(what.space, what.addresses[lane]) else { continue };
        if !is_shared && !core.watch.checks.races {
            continue;
        }
        let thread = warp.number * 32 + u32::try_from(lane).unwrap_or(0);
        // An access that passes the end of all addresses fails when it is done.
        let Some(end) = address.checked_add(what.bytes) else { continue };
        let same = matches!(what.does, Does::Write { same } if same & 1 << lane != 0);
        for at in (address / 4..end.div_ceil(4)).map(|word| word * 4) {
            let first = address.max(at) - at;
            let bytes = (1_u8 << (end - at).min(4)).wrapping_sub(1 << first);
            if let Some((kind, text)) = touch(&mut core.watch, common.block, thread, (is_shared, at), bytes, same, what)
            {
                let other = core.launch.program.sources[text.1 as usize].place;
                let text = text.0.replace("{line}", &other.line.to_string());
                core.find_of_lane(common, warp, what.pc, (lane, address), kind, text);
            }
        }
    }
    if releases || acquires {
        core.watch.sync(common.block, warp.number, what.active, Scope::Device, (releases, acquires));
    }
}

/// Whether an address is of shared memory, and where in it; or of global memory. Others are a thread's own.
pub(super) fn place(space: Space, address: u64) -> Option<(bool, u64)> {
    match space {
        Space::Shared => Some((true, address & (WINDOW_BYTES - 1))),
        Space::Global => Some((false, address)),
        Space::Generic if address < SHARED_WINDOW => Some((false, address)),
        Space::Generic if address - SHARED_WINDOW < WINDOW_BYTES => Some((true, address - SHARED_WINDOW)),
        Space::Generic | Space::Local | Space::Parameters => None,
    }
}

/// What is wrong with an access to a word, with the instruction of the other access; then the word remembers this one.
fn touch(
    watch: &mut Watch,
    block: u64,
    thread: u32,
    (is_shared, at): (bool, u64),
    bytes: u8,
    same: bool,
    what: Accesses<'_>,
) -> Option<(FindingKind, (String, u32))> {
    watch.time += 1;
    let now = Access { time: watch.time, block, thread, pc: what.pc, weak: what.weak };
    let index = usize::try_from(if is_shared { at / 4 } else { at % PAGE / 4 }).ok()?;
    let words = match is_shared {
        true => watch.shared.get(&block)?,
        false => watch.global.entry(at / PAGE).or_insert_with(|| vec![Word::default(); (PAGE / 4) as usize]),
    };
    let word = *words.get(index)?;
    let (reads, writes) = (!matches!(what.does, Does::Write { .. }), what.does != Does::Read);
    let races = |earlier: Access| (what.weak || earlier.weak) && !watch.is_ordered(earlier, block, thread);
    let looks = watch.checks.races && !same;
    let wrong = if looks && races(word.write) {
        Some((word.write, "wrote"))
    } else if looks && writes && races(word.read) {
        Some((word.read, "read"))
    } else {
        None
    };
    let unwritten = watch.checks.uninitialized && is_shared && reads && bytes & !word.written != 0;
    let words = if is_shared { watch.shared.get_mut(&block) } else { watch.global.get_mut(&(at / PAGE)) };
    let word = words?.get_mut(index)?;
    if writes {
        word.write = now;
        word.written |= bytes;
    } else {
        word.read = now;
    }
    if let Some((other, did)) = wrong {
        let kind = if is_shared { FindingKind::SharedRace } else { FindingKind::GlobalRace };
        let doing = if writes { "writes" } else { "reads" };
        let text = format!(
            "{doing} what thread {} of block {} {did} at line {{line}}, and nothing orders the two",
            other.thread, other.block
        );
        return Some((kind, (text, other.pc)));
    }
    unwritten.then(|| (FindingKind::UninitializedRead, ("reads shared memory that nobody wrote".to_owned(), what.pc)))
}
