//! One block for everything that lives between two kernels, and what of it lies in the memory of results instead.
//!
//! **Invariants:** two results that are there at the same time share no byte. The block is at least as long as what is
//! there at the worst moment; how much longer it is, [`Arena`] says. What lies in the memory of a result is not there any
//! more when that is first written.

/// What has to be somewhere from one step to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) bytes: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

/// The memory of a result of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lodging {
    pub(super) bytes: usize,
    /// The first step that uses it. Before that the memory may hold something else.
    pub(super) first: usize,
}

/// Where everything is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arena {
    /// The first byte of each need.
    pub(super) offsets: Vec<usize>,
    /// Bytes of the block.
    pub(super) bytes: usize,
    /// Bytes that are there at the worst moment, which no block can be shorter than.
    pub(super) bound: usize,
}

/// What the first byte of each need lies at a multiple of.
pub(super) const ALIGNMENT: usize = 512;

/// Pairs of needs that are compared in the search for a shorter block: a few milliseconds.
const COMPARISONS: usize = 1_500_000;
/// Orders that are tried at most.
const MOST_TRIES: usize = 1000;
/// The search ends where the block is longer than its bound by no more than this part of it.
const CLOSE_ENOUGH: usize = 200;

impl Arena {
    /// Places needs: the best of several orders, each need at the lowest place that is free as long as it is there.
    pub(super) fn new(needs: &[Need]) -> Self {
        let rounded: Vec<Need> =
            needs.iter().map(|need| Need { bytes: need.bytes.next_multiple_of(ALIGNMENT), ..*need }).collect();
        let bound = bound(&rounded);
        let lasting = |need: &Need| need.bytes.saturating_mul(need.last - need.first + 1);
        let mut orders: Vec<Vec<usize>> = Vec::new();
        let by = |key: &dyn Fn(usize) -> (usize, usize)| {
            let mut order: Vec<usize> = (0..rounded.len()).collect();
            order.sort_by_key(|&at| std::cmp::Reverse(key(at)));
            order
        };
        orders.push(by(&|at| (rounded[at].bytes, usize::MAX - rounded[at].first)));
        orders.push(by(&|at| (lasting(&rounded[at]), rounded[at].bytes)));
        orders.push(by(&|at| (rounded[at].last - rounded[at].first, rounded[at].bytes)));
        orders.push(by(&|at| (usize::MAX - rounded[at].first, rounded[at].bytes)));
        let mut best = (Self::default(), Vec::new());
        for order in orders {
            let made = place(&rounded, &order, bound);
            if best.1.is_empty() || made.bytes < best.0.bytes {
                best = (made, order);
            }
            if best.0.bytes == bound {
                break;
            }
        }
        shortened(&rounded, best.0, best.1)
    }
}

/// Finds needs a place in the memory of results that are not there yet: the largest first, each in the smallest result that
/// has room. The answer has for each need the result and the first byte in it, where there is one.
pub(super) fn lodge(lodgings: &[Lodging], needs: &[Need]) -> Vec<Option<(usize, usize)>> {
    let mut places: Vec<Option<(usize, usize)>> = vec![None; needs.len()];
    if lodgings.len().saturating_mul(needs.len()) > COMPARISONS {
        return places;
    }
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(needs[at].bytes));
    let mut smallest: Vec<usize> = (0..lodgings.len()).collect();
    smallest.sort_by_key(|&at| lodgings[at].bytes);
    let mut guests: Vec<Vec<usize>> = vec![Vec::new(); lodgings.len()];
    for at in order {
        let need = Need { bytes: needs[at].bytes.next_multiple_of(ALIGNMENT), ..needs[at] };
        let fitting = smallest.iter().filter(|&&to| lodgings[to].first > need.last && lodgings[to].bytes >= need.bytes);
        for &to in fitting {
            let beside = guests[to].iter().map(|&guest| {
                let start = places[guest].map_or(0, |(_, start)| start);
                (Need { bytes: needs[guest].bytes.next_multiple_of(ALIGNMENT), ..needs[guest] }, start)
            });
            let start = lowest(&need, beside);
            if start + need.bytes <= lodgings[to].bytes {
                places[at] = Some((to, start));
                guests[to].push(at);
                break;
            }
        }
    }
    places
}

/// The lowest place for a need beside others that have one.
fn lowest(need: &Need, placed: impl Iterator<Item = (Need, usize)>) -> usize {
    let at_once = placed.filter(|(other, _)| other.first <= need.last && need.first <= other.last);
    let mut taken: Vec<(usize, usize)> = at_once.map(|(other, start)| (start, start + other.bytes)).collect();
    taken.sort_unstable();
    let mut start = 0;
    for (from, to) in taken {
        if start + need.bytes <= from {
            break;
        }
        start = start.max(to);
    }
    start
}

/// Tries orders near the best known one while the block is longer than it has to be: something that reaches its end goes
/// before others, and up to two more change places. Ties are taken too, since several moves may be needed to gain anything.
fn shortened(needs: &[Need], first: Arena, mut order: Vec<usize>) -> Arena {
    // The numbers are the same in each process, and so are the plans.
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap_or(0) % below.max(1)
    };
    let (mut best, mut now) = (first.clone(), first);
    let tries = (COMPARISONS / needs.len().pow(2).max(1)).min(MOST_TRIES);
    for _ in 0..tries {
        if best.bytes <= best.bound + best.bound / CLOSE_ENOUGH {
            break;
        }
        let reaches_end = |at: usize| now.offsets[at] + needs[at].bytes == now.bytes;
        let ends: Vec<usize> = (0..order.len()).filter(|&position| reaches_end(order[position])).collect();
        let mut tried = order.clone();
        let from = ends[random(ends.len())];
        let moved = tried.remove(from);
        tried.insert(random(from + 1), moved);
        for _ in 0..random(3) {
            let moved = tried.remove(random(tried.len()));
            tried.insert(random(tried.len() + 1), moved);
        }
        let made = place(needs, &tried, best.bound);
        if made.bytes <= now.bytes {
            (now, order) = (made, tried);
        }
        if now.bytes < best.bytes {
            best = now.clone();
        }
    }
    best
}

/// The most bytes that are there at once: no memory for the needs can be less.
pub(super) fn bound(needs: &[Need]) -> usize {
    let steps = needs.iter().map(|need| need.last + 1).max().unwrap_or(0);
    let mut changes = vec![0_isize; steps + 1];
    for need in needs {
        let bytes = isize::try_from(need.bytes).unwrap_or(isize::MAX);
        changes[need.first] += bytes;
        changes[need.last + 1] -= bytes;
    }
    let mut now = 0;
    changes.iter().fold(0, |most, change| {
        now += change;
        most.max(usize::try_from(now).unwrap_or(0))
    })
}

fn place(needs: &[Need], order: &[usize], bound: usize) -> Arena {
    let mut offsets = vec![0; needs.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(needs.len());
    let mut bytes = 0;
    for &at in order {
        let need = needs[at];
        let start = lowest(&need, placed.iter().map(|&other| (needs[other], offsets[other])));
        offsets[at] = start;
        bytes = bytes.max(start + need.bytes);
        placed.push(at);
    }
    Arena { offsets, bytes, bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_at_the_same_time_shares_nothing() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((seed >> 33) % below).unwrap_or(0)
        };
        let (mut bytes, mut bound) = (0, 0);
        for _ in 0..200 {
            let needs: Vec<Need> = (0..random(40) + 1)
                .map(|_| {
                    let first = random(30);
                    Need { bytes: 1 + random(1 << 20), first, last: first + random(8) }
                })
                .collect();
            let arena = Arena::new(&needs);
            assert!(arena.bytes >= arena.bound);
            (bytes, bound) = (bytes + arena.bytes, bound + arena.bound);
            for (at, need) in needs.iter().enumerate() {
                assert!(arena.offsets[at] + need.bytes <= arena.bytes);
                for (other, beside) in needs.iter().enumerate().skip(at + 1) {
                    let together = need.first <= beside.last && beside.first <= need.last;
                    let (from, to) = (arena.offsets[at], arena.offsets[other]);
                    assert!(!together || from + need.bytes <= to || to + beside.bytes <= from);
                }
            }
        }
        assert!(bytes * 100 <= bound * 102, "{bytes} bytes where {bound} are needed");
    }

    #[test]
    fn guests_of_a_result_are_gone_before_it_is_written() {
        // The second result is long enough for the first two needs, one after another, and written after them.
        let lodgings = [Lodging { bytes: 512, first: 9 }, Lodging { bytes: 4096, first: 3 }];
        let need = |bytes, first, last| Need { bytes, first, last };
        let needs = [need(4096, 0, 1), need(4000, 2, 2), need(4096, 2, 3), need(100, 1, 8), need(600, 1, 2)];
        assert_eq!(lodge(&lodgings, &needs), [Some((1, 0)), Some((1, 0)), None, Some((0, 0)), None]);
    }

    #[test]
    fn a_chain_takes_two_places() {
        let needs: Vec<Need> = (0..10).map(|at| Need { bytes: 4096, first: at, last: at + 1 }).collect();
        let arena = Arena::new(&needs);
        assert_eq!((arena.bytes, arena.bound), (8192, 8192));
    }
}
