//! Windows: where a request is placed under the elastic backend.
//!
//! A *run* is a stretch of neighbouring unused blocks, free ones and such that are addresses only. A window is the part of
//! a run that a request needs. What was left is not unused: it ends a run.
//!
//! **Invariants:** nothing here calls the driver. Of a window all blocks are held, as one; it begins and ends with a whole
//! page where it cuts addresses without memory.

use crate::caching::block::{Block, ELASTIC_PAGE, Index, SizeClass, State};
use crate::caching::shard::{Books, Flushed};
use crate::caching::slow::expandable::Stretch;

/// Neighbouring unused blocks as one held block, and the pages that are missing in it.
pub(crate) struct Window {
    pub(crate) block: Index,
    /// Addresses of the missing pages, ascending.
    pub(crate) missing: Vec<u64>,
}

/// An unused block of a run.
#[derive(Clone, Copy)]
struct Piece {
    index: Index,
    address: u64,
    size: u64,
    is_mapped: bool,
}

impl Piece {
    fn of(index: Index, block: &Block) -> Self {
        Self { index, address: block.address, size: block.size, is_mapped: block.state == State::Free }
    }

    fn end(&self) -> u64 {
        self.address + self.size
    }

    /// The part of it that has to be mapped, or is used, for what lies between two addresses: whole pages, or all.
    fn part(&self, from: u64, to: u64) -> Stretch {
        if self.is_mapped {
            return Stretch { address: self.address, size: self.size };
        }
        let begin = (from.max(self.address) - self.address) / ELASTIC_PAGE * ELASTIC_PAGE;
        let end = (to.min(self.end()) - self.address).next_multiple_of(ELASTIC_PAGE);
        Stretch { address: self.address + begin, size: end - begin }
    }
}

/// A place for a window.
struct Choice {
    /// Missing pages, bytes of the run, and where it begins.
    cost: (u64, u64, u64),
    run: Vec<Piece>,
    from: u64,
}

/// Holds the place where the fewest pages are missing for a request, the lowest in the shortest run of unused blocks.
pub(crate) fn hold_window(state: &mut Flushed<'_>, class: SizeClass, size: u64) -> Option<Window> {
    let mut best: Option<Choice> = None;
    let mut seen = 0;
    for (address, index) in state.unmapped(class) {
        if *address < seen {
            continue;
        }
        let run = run_around(state, *index);
        let (begin, end) = (run[0].address, run[run.len() - 1].end());
        // Unmapped blocks come by address, so those of this run come next.
        seen = end;
        if end - begin < size {
            continue;
        }
        for from in starts(&run, size) {
            let cost = (missing(&run, from, from + size), end - begin, from);
            if best.as_ref().is_none_or(|best| cost < best.cost) {
                best = Some(Choice { cost, run: run.clone(), from });
            }
        }
    }
    let Choice { run, from, .. } = best?;
    Some(hold_run(state, &run, from, from + size))
}

/// The unused neighbours of an unused block, with it.
fn run_around(state: &Books, index: Index) -> Vec<Piece> {
    let unused = |index: &Index| state.blocks.find(*index).is_some_and(Block::is_unused);
    let before = |index: &Index| Some(state.blocks.get(*index).prev).filter(unused);
    let after = |index: &Index| Some(state.blocks.get(*index).next).filter(unused);
    let first = std::iter::successors(Some(index), before).last().unwrap_or(index);
    std::iter::successors(Some(first), after).map(|index| Piece::of(index, state.blocks.get(index))).collect()
}

/// Where a window may begin: so that it begins or ends where a block does.
fn starts(run: &[Piece], size: u64) -> impl Iterator<Item = u64> {
    let (begin, end) = (run[0].address, run[run.len() - 1].end());
    let each = run.iter().flat_map(move |piece| [Some(piece.address), piece.end().checked_sub(size)]);
    each.flatten().filter(move |from| *from >= begin && *from + size <= end)
}

/// How many pages are missing between two addresses.
fn missing(run: &[Piece], from: u64, to: u64) -> u64 {
    let within = run.iter().filter(|piece| !piece.is_mapped && piece.address < to && piece.end() > from);
    within.map(|piece| piece.part(from, to).size / ELASTIC_PAGE).sum()
}

/// Holds what lies between two addresses as one block.
fn hold_run(state: &mut Flushed<'_>, run: &[Piece], from: u64, to: u64) -> Window {
    let mut window = Window { block: run[0].index, missing: Vec::new() };
    let mut is_first = true;
    for piece in run.iter().filter(|piece| piece.address < to && piece.end() > from) {
        if piece.is_mapped {
            state.hold(piece.index);
            leave_outside(state, piece, from, to);
        } else {
            let part = piece.part(from, to);
            state.take_unmapped(piece.index);
            window.missing.extend(each_page(part.address, part.size));
            if part.address > piece.address {
                let front = state.blocks.split_front(piece.index, part.address - piece.address);
                state.put_unmapped(front);
            }
            if part.address + part.size < piece.end() {
                let back = state.blocks.split_back(piece.index, part.size);
                state.put_unmapped(back);
            }
        }
        if is_first {
            (window.block, is_first) = (piece.index, false);
        } else {
            state.blocks.merge(window.block, piece.index);
        }
    }
    window
}

/// Lets the whole pages of a held piece that lie outside of a window go free, so that they can give theirs to it.
fn leave_outside(state: &mut Flushed<'_>, piece: &Piece, from: u64, to: u64) {
    let begin = from - from % ELASTIC_PAGE;
    if begin > piece.address {
        let front = state.blocks.split_front(piece.index, begin - piece.address);
        state.put(front);
    }
    let end = to.next_multiple_of(ELASTIC_PAGE);
    if end < piece.end() {
        let rest = state.blocks.get(piece.index).size - (piece.end() - end);
        let back = state.blocks.split_back(piece.index, rest);
        state.put(back);
    }
}

/// Makes unused blocks of a window again; those where a mapping remains are left, and are returned with their addresses.
pub(crate) fn take_apart(state: &mut Flushed<'_>, window: &Window, remains: &[u64]) -> Vec<(u64, Index)> {
    let mut left = Vec::new();
    let mut rest = Some(window.block);
    for address in &window.missing {
        let Some(block) = rest else { break };
        let before = address - state.blocks.get(block).address;
        if before > 0 {
            let free = state.blocks.split_front(block, before);
            settle(state, free, State::Free);
        }
        let whole = state.blocks.get(block).size == ELASTIC_PAGE;
        let page = if whole { block } else { state.blocks.split_front(block, ELASTIC_PAGE) };
        rest = (!whole).then_some(block);
        if remains.contains(address) {
            state.blocks.get_mut(page).state = State::Left;
            left.push((*address, page));
        } else {
            settle(state, page, State::Unmapped);
        }
    }
    if let Some(block) = rest {
        settle(state, block, State::Free);
    }
    left
}

/// A held block is free or unmapped, and is joined with its neighbours that are.
fn settle(state: &mut Flushed<'_>, block: Index, to: State) {
    state.join_neighbours(block, to);
    if to == State::Free {
        state.put(block);
    } else {
        state.put_unmapped(block);
    }
}

/// The addresses of the pages in a stretch.
pub(crate) fn each_page(address: u64, size: u64) -> impl Iterator<Item = u64> {
    (0..size / ELASTIC_PAGE).map(move |page| address + page * ELASTIC_PAGE)
}
