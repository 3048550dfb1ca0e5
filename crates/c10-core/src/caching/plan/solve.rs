//! Where the requests of a period are placed so that they need few bytes: dynamic storage allocation on a circle.
//!
//! A request holds its place from its own turn until the turn at which it has been given back, which may be in the next
//! period. Two that hold places at the same turn must not overlap. The most bytes held at one turn, the *load*, is a bound
//! from below. First fit by several orders, then a search that puts what sticks out first: on recorded training steps
//! that reaches the load, or comes within a percent of it.
//!
//! **Invariants:** pure, and the same for the same problem; what it costs is bounded by [`EFFORT`].

/// Pairs of requests that may be compared, about a second of one core.
const EFFORT: u64 = 400_000_000;
/// A layout this close to the load is good enough: a 500th more.
const CLOSE: u64 = 500;
/// Orders in a row that lead to nothing better before a search is given up.
const PATIENCE: u32 = 4000;
/// Orders after which a search goes back to the best one.
const STRAY: u32 = 40;

/// A request of a period, at the turn that its position says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lifetime {
    pub(crate) size: u64,
    /// Turns that it holds its place for, at most the period; 0 if it gets none.
    pub(crate) turns: u32,
}

/// A place for each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// By turn; meaningless for requests that get none.
    pub(crate) offsets: Vec<u64>,
    /// Bytes of all places together, without those in holes.
    pub(crate) bytes: u64,
    /// The order in which first fit finds these places.
    order: Vec<usize>,
}

#[cfg(test)]
impl Layout {
    /// Places at these offsets.
    pub(crate) fn at(offsets: Vec<u64>) -> Self {
        Self { offsets, bytes: 0, order: Vec::new() }
    }
}

/// Bytes that exist in any case, and where they begin in the layouts that use them: one hole follows the other, and then
/// comes what is to be taken new.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Holes {
    /// First offset and end of each.
    spans: Vec<(u64, u64)>,
    /// Smaller requests get no place in them.
    least: u64,
}

impl Holes {
    pub(crate) fn new(sizes: &[u64], least: u64) -> Self {
        let spans = sizes.iter().scan(0, |end, size| {
            let begin = *end;
            *end += size;
            Some((begin, *end))
        });
        Self { spans: spans.collect(), least }
    }

    /// The offset of what is to be taken new.
    pub(crate) fn end(&self) -> u64 {
        self.spans.last().map_or(0, |(_, end)| *end)
    }

    /// The hole that a place is in, and its offset there; `None` for what is taken new.
    pub(crate) fn find(&self, offset: u64) -> Option<(usize, u64)> {
        let at = self.spans.partition_point(|(_, end)| *end <= offset);
        self.spans.get(at).map(|(begin, _)| (at, offset - begin))
    }

    /// The first offset from one on at which so many bytes do not lie across an end.
    fn settle(&self, offset: u64, size: u64) -> u64 {
        if offset >= self.end() || size < self.least {
            return offset.max(self.end());
        }
        let from = self.spans.partition_point(|(_, end)| *end <= offset);
        let fits = |(begin, end): &&(u64, u64)| offset.max(*begin) + size <= *end;
        self.spans[from..].iter().find(fits).map_or(self.end(), |(begin, _)| offset.max(*begin))
    }
}

/// The bytes held at each turn.
pub(crate) fn loads(period: &[Lifetime]) -> Vec<u64> {
    let count = period.len();
    let mut steps = vec![0_i64; count + 1];
    for (turn, lifetime) in period.iter().enumerate() {
        let (size, end) = (lifetime.size.cast_signed(), turn + lifetime.turns as usize);
        steps[turn] += size;
        steps[end.min(count)] -= size;
        if end > count {
            steps[0] += size;
            steps[end - count] -= size;
        }
    }
    let sums = steps[..count].iter().scan(0, |sum, step| {
        *sum += step;
        Some(sum.cast_unsigned())
    });
    sums.collect()
}

/// Whether two requests hold their places at the same turn of a period of so many.
fn meet(period: &[Lifetime], a: usize, b: usize) -> bool {
    let from_a = if b >= a { b - a } else { b + period.len() - a };
    from_a < period[a].turns as usize || period.len() - from_a < period[b].turns as usize
}

/// A layout of few bytes.
pub(crate) fn solve(period: &[Lifetime]) -> Layout {
    let load = loads(period).into_iter().max().unwrap_or(0);
    let mut search = Search { period, holes: Holes::default(), effort: 0, target: load + load / CLOSE };
    let orders = search.orders();
    search.best_of(orders).unwrap_or_else(|| Layout { offsets: Vec::new(), bytes: 0, order: Vec::new() })
}

/// The same with holes that exist in any case, from a layout without them.
pub(crate) fn solve_with_holes(period: &[Lifetime], known: &Layout, holes: &Holes) -> Layout {
    let load = loads(period).into_iter().max().unwrap_or(0);
    let target = (load + load / CLOSE).saturating_sub(holes.end());
    let mut search = Search { period, holes: holes.clone(), effort: 0, target };
    let mut orders = vec![known.order.clone()];
    orders.append(&mut search.orders());
    search.best_of(orders).unwrap_or_else(|| known.clone())
}

/// A layout with holes, at little cost.
pub(crate) fn fill(period: &[Lifetime], known: &Layout, holes: &Holes) -> Layout {
    let mut search = Search { period, holes: holes.clone(), effort: 0, target: 0 };
    search.first_fit(known.order.clone())
}

/// A search that is under way.
struct Search<'a> {
    period: &'a [Lifetime],
    holes: Holes,
    /// Pairs compared so far.
    effort: u64,
    /// A layout of so many bytes ends it.
    target: u64,
}

impl Search<'_> {
    /// The orders to begin with.
    fn orders(&self) -> Vec<Vec<usize>> {
        let period = self.period;
        let placed: Vec<usize> = (0..period.len()).filter(|turn| period[*turn].turns > 0).collect();
        let (size, turns) = (|turn: &usize| period[*turn].size, |turn: &usize| u64::from(period[*turn].turns));
        let sorted = |key: &dyn Fn(&usize) -> (u64, u64)| {
            let mut order = placed.clone();
            order.sort_by_key(|turn| {
                let (first, second) = key(turn);
                (u64::MAX - first, u64::MAX - second)
            });
            order
        };
        // From the turn at which the least is held.
        let loads = loads(period);
        let origin = (0..period.len()).min_by_key(|turn| loads[*turn]).unwrap_or(0);
        let mut by_turn = placed.clone();
        by_turn.sort_by_key(|turn| (turn + period.len() - origin) % period.len());
        vec![
            sorted(&|turn| (size(turn), turns(turn))),
            sorted(&|turn| (turns(turn), size(turn))),
            sorted(&|turn| (size(turn).saturating_mul(turns(turn)), size(turn))),
            by_turn,
        ]
    }

    /// The best layout that some orders, and a search from there, lead to.
    fn best_of(&mut self, orders: Vec<Vec<usize>>) -> Option<Layout> {
        let mut best: Option<Layout> = None;
        for order in orders {
            let layout = self.first_fit(order);
            if best.as_ref().is_none_or(|known| layout.bytes < known.bytes) {
                best = Some(layout);
            }
            if self.is_over(best.as_ref()) {
                break;
            }
        }
        let mut layout = best?;
        self.improve(&mut layout);
        Some(layout)
    }

    fn is_over(&self, best: Option<&Layout>) -> bool {
        self.effort > EFFORT || best.is_some_and(|layout| layout.bytes <= self.target)
    }

    /// Each request in turn gets the lowest place that is free while it needs one.
    fn first_fit(&mut self, order: Vec<usize>) -> Layout {
        let mut offsets = vec![0; self.period.len()];
        // By offset.
        let mut placed: Vec<(u64, usize)> = Vec::with_capacity(order.len());
        let mut bytes = 0;
        for &turn in &order {
            let size = self.period[turn].size;
            let mut begin = self.holes.settle(0, size);
            for &(offset, other) in &placed {
                if offset >= begin + size {
                    break;
                }
                self.effort += 1;
                let end = offset + self.period[other].size;
                if end > begin && meet(self.period, turn, other) {
                    begin = self.holes.settle(end, size);
                }
            }
            offsets[turn] = begin;
            bytes = bytes.max((begin + size).saturating_sub(self.holes.end()));
            let at = placed.partition_point(|known| *known < (begin, turn));
            placed.insert(at, (begin, turn));
        }
        Layout { offsets, bytes, order }
    }

    /// Puts what sticks out first, and sometimes what meets it, as long as that may help.
    fn improve(&mut self, layout: &mut Layout) {
        let mut current = layout.clone();
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        let mut fruitless = 0;
        while self.effort < EFFORT && layout.bytes > self.target && fruitless < PATIENCE {
            let limit = self.holes.end() + self.target.max(layout.bytes - layout.bytes / 50);
            let sticks_out = |turn: &usize| current.offsets[*turn] + self.period[*turn].size > limit;
            let (mut next, rest): (Vec<usize>, Vec<usize>) = current.order.iter().copied().partition(sticks_out);
            next.extend(rest);
            // Two neighbours in size change places, so that no order comes twice.
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (first, second) = ((number >> 40) as usize % next.len(), (number >> 16) as usize % next.len());
            let moved = next.remove(first);
            next.insert(second.min(first), moved);
            current = self.first_fit(next);
            fruitless += 1;
            if current.bytes < layout.bytes {
                *layout = current.clone();
                fruitless = 0;
            } else if fruitless % STRAY == 0 {
                current = layout.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;
    use crate::caching::tests::random;

    /// The least bytes, by trying all orders of first fit: some order leads to a best layout.
    fn least(period: &[Lifetime]) -> u64 {
        fn all(search: &mut Search<'_>, order: &mut Vec<usize>, from: usize) -> u64 {
            if from == order.len() {
                return search.first_fit(order.clone()).bytes;
            }
            let tries = (from..order.len()).map(|at| {
                order.swap(from, at);
                let bytes = all(search, order, from + 1);
                order.swap(from, at);
                bytes
            });
            tries.min().unwrap_or(0)
        }
        let mut search = Search { period, holes: Holes::default(), effort: 0, target: 0 };
        let mut order = (0..period.len()).filter(|turn| period[*turn].turns > 0).collect();
        all(&mut search, &mut order, 0)
    }

    /// No two requests that hold places at the same turn overlap, turn by turn; the bytes are those needed.
    fn check_behind(period: &[Lifetime], layout: &Layout, end: u64) {
        let holders = |turn: usize| {
            (0..period.len()).filter(move |of| {
                let since = (turn + period.len() - of) % period.len();
                since < period[*of].turns as usize
            })
        };
        for turn in 0..period.len() {
            let mut places: Vec<_> = holders(turn).map(|of| (layout.offsets[of], period[of].size)).collect();
            places.sort_unstable();
            for pair in places.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "turn {turn}: {pair:?} of {period:?}");
            }
            assert!(places.iter().all(|(offset, size)| offset + size <= end + layout.bytes));
        }
    }

    fn check(period: &[Lifetime], layout: &Layout) {
        check_behind(period, layout, 0);
    }

    fn random_period(seed: u64, count: usize, sizes: u64) -> Vec<Lifetime> {
        let mut random = random(seed);
        let longest = u32::try_from(count).unwrap();
        let one = |_| Lifetime { size: 512 * random.random_range(1..=sizes), turns: random.random_range(0..=longest) };
        (0..count).map(one).collect()
    }

    #[test]
    fn small_problems_are_solved_as_well_as_can_be() {
        let mut exact = 0;
        for (seed, count) in (0..150).zip([3, 4, 5, 6, 7].into_iter().cycle()) {
            let period = random_period(seed, count, 6);
            let layout = solve(&period);
            check(&period, &layout);
            let (least, load) = (least(&period), loads(&period).into_iter().max().unwrap());
            assert!(load <= least && least <= layout.bytes, "{seed}");
            assert!(layout.bytes * 4 <= least * 5, "{seed}: {} bytes, {least} would do", layout.bytes);
            exact += usize::from(layout.bytes == least);
        }
        assert!(exact >= 145, "{exact} of 150 are the best");
    }

    #[test]
    fn no_two_places_overlap() {
        for seed in 0..12 {
            let period = random_period(seed, 120, 4000);
            check(&period, &solve(&period));
        }
        check(&[], &solve(&[]));
        let none = [Lifetime { size: 512, turns: 0 }; 3];
        assert_eq!((solve(&none).bytes, loads(&none)), (0, vec![0; 3]));
    }

    /// Requests of many sizes that end within their period, without any order.
    #[test]
    fn random_periods_come_close_to_their_load() {
        let (mut needed, mut held) = (0, 0);
        for seed in 0..6 {
            let mut period = random_period(seed, 100, 4000);
            let most = |turn: usize| u32::try_from(100 - turn).unwrap();
            period.iter_mut().enumerate().for_each(|(turn, one)| one.turns = one.turns.min(most(turn)));
            let layout = solve(&period);
            check(&period, &layout);
            needed += layout.bytes;
            held += loads(&period).into_iter().max().unwrap();
        }
        assert!(needed * 100 <= held * 102, "{needed} bytes for {held}");
    }

    #[test]
    fn holes_are_filled_first_and_never_left() {
        for seed in 0..20 {
            let period = random_period(seed, 60, 2000);
            let plain = solve(&period);
            let sizes: Vec<u64> = (1..5).map(|number| 512 * 900 * number).collect();
            let holes = Holes::new(&sizes, 512 * 200);
            let layout = solve_with_holes(&period, &plain, &holes);
            check_behind(&period, &layout, holes.end());
            assert!(layout.bytes < plain.bytes, "seed {seed}");
            for (turn, lifetime) in period.iter().enumerate().filter(|(_, lifetime)| lifetime.turns > 0) {
                if let Some((hole, offset)) = holes.find(layout.offsets[turn]) {
                    assert!(offset + lifetime.size <= sizes[hole] && lifetime.size >= 512 * 200);
                } else {
                    assert!(layout.offsets[turn] >= holes.end());
                }
            }
        }
        assert_eq!((Holes::default().find(0), Holes::default().end()), (None, 0));
    }

    /// What a training step does: activations that are given back in the opposite order, with short-lived memory between.
    #[test]
    fn a_training_step_needs_no_more_than_its_load() {
        let mut random = random(5);
        for layers in [6, 40] {
            let size = |random: &mut rand_pcg::Pcg32| 512 * random.random_range(1..=3000_u64);
            let kept: Vec<u64> = (0..layers * 4).map(|_| size(&mut random)).collect();
            let mut events = Vec::new();
            for (number, size) in kept.iter().enumerate() {
                events.push((*size, Some(number)));
                events.push((size / 2 + 512 - (size / 2) % 512, None));
            }
            let forward = events.len();
            events.extend(kept.iter().rev().flat_map(|size| [(*size, None), (512, None), (size * 2, None)]));
            let period: Vec<Lifetime> = events
                .iter()
                .map(|(size, kept)| {
                    let turn = kept.map_or(0, |number| number * 2);
                    let end = kept.map(|number| forward + (layers * 4 - 1 - number) * 3 + 2);
                    let turns = end.map_or(2, |end| end - turn);
                    Lifetime { size: *size, turns: u32::try_from(turns).unwrap() }
                })
                .collect();
            let (layout, load) = (solve(&period), loads(&period).into_iter().max().unwrap());
            check(&period, &layout);
            assert!(layout.bytes * 100 <= load * 102, "{layers} layers: {} bytes for a load of {load}", layout.bytes);
        }
    }
}
