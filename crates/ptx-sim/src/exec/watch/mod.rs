//! What hardware does not tell: accesses of two threads that nothing orders, and reads of shared memory that nobody wrote.
//!
//! For each word of memory the last write and the last read are kept, and for each thread when it last let others see what
//! it did (a release) and when it last looked at what others did (an acquire): by a barrier of its block, by an instruction
//! of its warp, or by a fence, an atomic or another access that is not weak. Two accesses are ordered if the first thread
//! has released and the second acquired since the first access, by something that both take part in, or by way of threads of
//! their blocks.
//!
//! Most accesses are looked at as a whole: a row of words that one warp accesses, against what is true of all lanes of a
//! warp. Only what cannot be said of all is looked at lane by lane, thread by thread.
//!
//! Reading order: `order` (releases and acquires), `shadow` (what is remembered of memory), this file.
//!
//! **Invariants:** what is noted is a race in this launch's order of steps; a race may stay unnoticed where a thread
//! released for another reason, or where bytes of a word are accessed one by one. Accesses that are not weak race with weak ones only.

mod order;
mod shadow;

use std::collections::HashMap;

pub(super) use order::Scope;

use self::order::Order;
use self::shadow::{Access, LINE, Line, Lines, WHOLE, Word};
use super::core::{Common, Core, FindingKind};
use super::fragment::Warp;
use super::memory::Memory;
use super::rows::{LANES, Long, lanes};
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

/// A block that runs.
#[derive(Debug, Default)]
struct Running {
    /// Its place in the grid.
    number: u64,
    /// In which place it began.
    started: u32,
    order: Order,
}

/// The shared memory of a block.
#[derive(Debug, Default)]
struct Shared {
    words: Vec<Word>,
    /// The bytes of each word that somebody wrote.
    written: Vec<u8>,
}

/// A block that began.
#[derive(Debug)]
struct Begun {
    number: u64,
    /// When its threads released last for the whole device, once it has ended; nothing where none did.
    released: Option<Box<[u64]>>,
}

/// What a launch remembers.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    checks: Checks,
    time: u64,
    /// All blocks, as they began.
    begun: Vec<Begun>,
    /// The block that was looked at last; the other ones that run, by their numbers.
    current: Running,
    shared: Shared,
    others: HashMap<u64, (Running, Shared)>,
    global: Lines,
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Read,
    Write,
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

/// What is wrong with the access of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong {
    pub(super) lane: usize,
    address: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Nothing orders it and another access, which wrote or read.
    Race { is_shared: bool, other: Access, wrote: bool },
    /// It reads shared memory that nobody wrote.
    Unwritten,
}

impl Wrong {
    /// Whether it is a race; no race are writes of what is there already.
    pub(super) fn is_race(&self) -> bool {
        matches!(self.what, What::Race { .. })
    }
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

    /// A thread was given this memory of the heap: what others did there before has nothing to do with it.
    pub(super) fn forget(&mut self, address: u64, bytes: u64) {
        if self.is_on() && address != 0 {
            (0..bytes.div_ceil(4)).for_each(|word| *self.global.word(address + 4 * word) = Word::default());
        }
    }

    /// A block begins.
    pub(super) fn begin(&mut self, block: u64, threads: u32, shared_bytes: usize) {
        if self.is_on() {
            let (started, words) = (u32::try_from(self.begun.len()).unwrap_or(u32::MAX), shared_bytes.div_ceil(4));
            self.turn_to(block);
            self.begun.push(Begun { number: block, released: None });
            self.current = Running { number: block, started, order: Order::new(threads) };
            let Shared { words: all, written } = &mut self.shared;
            all.clear();
            all.resize(words, Word::default());
            written.clear();
            written.resize(words, 0);
        }
    }

    /// A block has ended.
    pub(super) fn end(&mut self, block: u64) {
        if self.is_on() {
            self.turn_to(block);
            let released = self.current.order.all_released();
            if let Some(begun) = self.begun.get_mut(self.current.started as usize) {
                begun.released = Some(released);
            }
        }
    }

    /// Makes a block the one that is looked at.
    #[inline]
    fn turn_to(&mut self, block: u64) {
        if self.current.number != block {
            self.exchange(block);
        }
    }

    #[cold]
    fn exchange(&mut self, block: u64) {
        let has_ended = self.begun.get(self.current.started as usize).is_none_or(|begun| begun.released.is_some());
        let (next, shared) = match self.others.remove(&block) {
            Some(next) => next,
            // The memory of a block that has ended serves the next.
            None if has_ended => return,
            None => (Running { number: block, ..Running::default() }, Shared::default()),
        };
        let (before, memory) =
            (std::mem::replace(&mut self.current, next), std::mem::replace(&mut self.shared, shared));
        if !has_ended {
            self.others.insert(before.number, (before, memory));
        }
    }

    /// Lanes release, acquire, or both.
    pub(super) fn sync(&mut self, block: u64, warp: u32, active: u32, scope: Scope, both: (bool, bool)) {
        if self.is_on() {
            self.time += 1;
            self.turn_to(block);
            self.current.order.sync(warp, active, scope, both, self.time);
        }
    }

    /// The time, which passes with each access and each release.
    pub(super) fn now(&self) -> u64 {
        self.time
    }

    /// Lanes acquire what was released in their block up to a time.
    pub(super) fn acquire_at(&mut self, block: u64, warp: u32, active: u32, time: u64) {
        if self.is_on() {
            self.turn_to(block);
            self.current.order.sync(warp, active, Scope::Block, (false, true), time);
        }
    }
}

/// An access of a warp, compared with earlier ones.
struct Look<'w> {
    /// By the first thread of the warp.
    access: Access,
    /// What all of the warp's lanes have acquired, of other warps and of their own.
    acquired: [u64; 2],
    does: Does,
    order: &'w Order,
    begun: &'w [Begun],
    others: &'w HashMap<u64, (Running, Shared)>,
}

impl Look<'_> {
    /// Whether an earlier access of one thread, or of a whole line, cannot race with what the warp does, as far as can be
    /// said of all its lanes.
    #[inline]
    fn is_clear(&self, earlier: Access) -> bool {
        if earlier.is_none() || !(self.access.is_weak() || earlier.is_weak()) {
            return true;
        }
        if earlier.block != self.access.block {
            return false;
        }
        let same_warp = earlier.thread() / 32 == self.access.thread() / 32;
        self.acquired[usize::from(same_warp)] > earlier.time() && self.order.all_released_since(earlier, same_warp)
    }

    /// Whether an earlier access of one thread and that of another race.
    #[inline]
    fn races(&self, earlier: Access, thread: u32) -> bool {
        let is_own = (earlier.block, earlier.thread()) == (self.access.block, thread);
        !is_own && !self.is_clear(earlier) && !self.is_ordered(earlier, thread)
    }

    /// Whether something orders an access of one thread before what another does now.
    #[cold]
    fn is_ordered(&self, earlier: Access, thread: u32) -> bool {
        if earlier.block == self.access.block {
            return self.order.is_ordered(earlier, thread);
        }
        let Some(begun) = self.begun.get(earlier.block as usize) else { return true };
        let then = earlier.thread();
        let released = match &begun.released {
            Some(released) => released.get(then as usize).copied().unwrap_or(0),
            None => self.others.get(&begun.number).map_or(u64::MAX, |(running, _)| running.order.released(then)),
        };
        released > earlier.time() && self.order.acquired(thread) > earlier.time()
    }

    /// Looks at a line that the lanes of the warp access in their order; false, and nothing is remembered, if it has to be
    /// looked at word by word.
    #[inline]
    fn at_line(&self, line: &mut Line, by: Access) -> bool {
        let is_same =
            |earlier: Access| (earlier.block, earlier.thread(), earlier.words()) == (by.block, by.thread(), by.words());
        let is_clear = |earlier: Access| is_same(earlier) || self.is_clear(earlier);
        let reads = self.does == Does::Read;
        if line.words.is_some() || !is_clear(line.write) || !(reads || is_clear(line.read)) {
            return false;
        }
        *(if reads { &mut line.read } else { &mut line.write }) = by;
        true
    }

    /// Looks at a word that a lane accesses; the other access, and whether that wrote, if the two race.
    #[inline]
    fn at_word(&self, word: &mut Word, lane: usize, bytes: u8) -> Option<(Access, bool)> {
        let by = self.access.of_lane(lane).of_bytes(bytes);
        let writes = self.does != Does::Read;
        let wrong = if word.write.meets(by) && self.races(word.write, by.thread()) {
            Some((word.write, true))
        } else if writes && word.read.meets(by) && self.races(word.read, by.thread()) {
            Some((word.read, false))
        } else {
            None
        };
        *(if writes { &mut word.write } else { &mut word.read }) = by;
        wrong
    }
}

/// Looks at an access of a warp before it is done, and notes what is wrong with it.
#[inline]
pub(super) fn look<'m, M: Memory<'m>>(core: &mut Core<'_, 'm, M>, common: &Common, warp: &Warp, what: &Accesses<'_>) {
    let wrong = find(core, common, warp, what);
    if !wrong.is_empty() {
        tell(core, common, warp, what, &wrong);
    }
}

/// Looks at an access of a warp before it is done: what is wrong with it.
pub(super) fn find<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &Common,
    warp: &Warp,
    what: &Accesses<'_>,
) -> Vec<Wrong> {
    if core.watch.checks.uninitialized {
        written::look(core, common, warp, what);
    }
    let watch = &mut core.watch;
    watch.turn_to(common.block);
    watch.time += 1;
    let mut wrong = Vec::new();
    let Watch { checks, time, begun, current, shared, others, global } = watch;
    let look = Look {
        access: Access::new(*time, warp.number * 32, what.weak, current.started, what.pc),
        acquired: current.order.least_acquired(warp.number),
        does: what.does,
        order: &current.order,
        begun,
        others,
    };
    let is_done = if what.space == Space::Shared && what.bytes == 4 {
        look.at_shared_words(shared, what, *checks, &mut wrong);
        true
    } else {
        checks.races && is_row(what) && look.at_row(global, what)
    };
    if !is_done {
        for lane in lanes(what.active) {
            let Some((is_shared, address)) = place(what.space, what.addresses[lane]) else { continue };
            // An access that passes the end of all addresses fails when it is done.
            let Some(end) = address.checked_add(what.bytes) else { continue };
            if !is_shared && !checks.races {
                continue;
            }
            for at in (address / 4..end.div_ceil(4)).map(|word| word * 4) {
                let bytes = (1_u8 << (end - at).min(4)).wrapping_sub(1 << (address.max(at) - at));
                let (found, unwritten) = if is_shared {
                    let Ok(index) = usize::try_from(at / 4) else { continue };
                    let Some((word, written)) = shared.words.get_mut(index).zip(shared.written.get_mut(index)) else {
                        continue;
                    };
                    let unwritten = checks.uninitialized && what.does != Does::Write && bytes & !*written != 0;
                    if what.does != Does::Read {
                        *written |= bytes;
                    }
                    (look.at_word(word, lane, bytes).filter(|_| checks.races), unwritten)
                } else {
                    (look.at_word(global.word(at), lane, bytes), false)
                };
                let found = found.map(|(other, wrote)| What::Race { is_shared, other, wrote });
                let found = found.or_else(|| unwritten.then_some(What::Unwritten));
                wrong.extend(found.map(|what| Wrong { lane, address, what }));
            }
        }
    }
    let (releases, acquires) = match what.does {
        _ if what.weak => (false, false),
        Does::Read => (false, true),
        Does::Write => (true, false),
        Does::Change => (true, true),
    };
    if releases || acquires {
        core.watch.sync(common.block, warp.number, what.active, Scope::Device, (releases, acquires));
    }
    wrong
}

/// Notes what is wrong with an access.
#[cold]
pub(super) fn tell<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &Common,
    warp: &Warp,
    what: &Accesses<'_>,
    wrong: &[Wrong],
) {
    for Wrong { lane, address, what: found } in wrong {
        let (kind, text) = match found {
            What::Unwritten => (FindingKind::UninitializedRead, "reads shared memory that nobody wrote".to_owned()),
            What::Race { is_shared, other, wrote } => {
                let line = core.launch.program.sources[other.pc as usize].place.line;
                let block = core.watch.begun.get(other.block as usize).map_or(0, |begun| begun.number);
                let text = format!(
                    "{} what thread {} of block {block} {} at line {line}, and nothing orders the two",
                    if what.does == Does::Read { "reads" } else { "writes" },
                    other.thread(),
                    if *wrote { "wrote" } else { "read" },
                );
                (if *is_shared { FindingKind::SharedRace } else { FindingKind::GlobalRace }, text)
            }
        };
        core.find_of_lane(common, warp, what.pc, (*lane, *address), kind, text);
    }
}

/// Whether an address is of shared memory, and where in it; or of global memory. Others are a thread's own.
#[inline]
pub(super) fn place(space: Space, address: u64) -> Option<(bool, u64)> {
    match space {
        Space::Shared => Some((true, address & (WINDOW_BYTES - 1))),
        Space::Global => Some((false, address)),
        Space::Generic if address < SHARED_WINDOW => Some((false, address)),
        Space::Generic if address - SHARED_WINDOW < WINDOW_BYTES => Some((true, address - SHARED_WINDOW)),
        Space::Generic | Space::Local | Space::Parameters => None,
    }
}

/// Whether all lanes access words of global memory that lie next to each other and make whole lines.
#[inline]
fn is_row(what: &Accesses<'_>) -> bool {
    let first = what.addresses[0];
    let is_whole = first.is_multiple_of(LINE as u64 * 4) && matches!(what.bytes, 4 | 8 | 16);
    if what.active != u32::MAX || !is_whole || !matches!(place(what.space, first), Some((false, _))) {
        return false;
    }
    let (mut wrong, mut next) = (0, first);
    for address in what.addresses {
        wrong |= address ^ next;
        next = next.wrapping_add(what.bytes);
    }
    wrong == 0
}

impl Look<'_> {
    /// Looks at words of shared memory, which many lanes may read at once.
    fn at_shared_words(&self, shared: &mut Shared, what: &Accesses<'_>, checks: Checks, wrong: &mut Vec<Wrong>) {
        let reads = self.does == Does::Read;
        let mut before = usize::MAX;
        for lane in lanes(what.active) {
            let address = what.addresses[lane] & (WINDOW_BYTES - 1);
            let index = usize::try_from(address / 4).unwrap_or(usize::MAX);
            // What was right for the lane before is right for this one. The last lane is remembered, as the first often
            // writes what all read.
            if reads && index == before {
                shared.words[index].read = self.access.of_lane(lane);
                continue;
            }
            let Some((word, written)) = shared.words.get_mut(index).zip(shared.written.get_mut(index)) else {
                continue;
            };
            let unwritten = checks.uninitialized && self.does != Does::Write && *written != WHOLE;
            if !reads {
                *written = WHOLE;
            }
            let race = if checks.races { self.at_word(word, lane, WHOLE) } else { None };
            before = if race.is_some() || self.is_own(word.write, lane) { usize::MAX } else { index };
            let race = race.map(|(other, wrote)| What::Race { is_shared: true, other, wrote });
            let found = race.or_else(|| unwritten.then_some(What::Unwritten));
            wrong.extend(found.map(|what| Wrong { lane, address, what }));
        }
    }

    /// Whether an access is one of a lane's own.
    #[inline]
    fn is_own(&self, earlier: Access, lane: usize) -> bool {
        let by = self.access.of_lane(lane);
        (earlier.block, earlier.thread()) == (by.block, by.thread())
    }

    /// Looks at such a row; false if a line of it has to be looked at word by word.
    fn at_row(&self, global: &mut Lines, what: &Accesses<'_>) -> bool {
        let words = what.bytes.trailing_zeros() - 2;
        let threads = u32::try_from(LANES).unwrap_or(32) >> words;
        (0..1_u32 << words).all(|number| {
            let by = self.access.by(self.access.thread() + number * threads, words);
            let line = global.at(what.addresses[0] + u64::from(number) * LINE as u64 * 4);
            self.at_line(line, by)
        })
    }
}
