//! Bytes that move over links, byte by byte: what goes over a link at once shares its bandwidth.
//!
//! A [`Flow`] takes all links of its way at once and is as fast as the scarcest of them lets it: each link gives its flows equal
//! shares, and what one cannot use, because another link of its way is scarcer, goes to the others (max-min fairness). Rates
//! change only when a flow begins or ends or a link changes, so that a history is a list of such moments.
//!
//! **Invariants:** numbers are whole, so that the same flows have the same history everywhere. Nothing here happens before
//! `at_ns`, up to which all flows have moved.

use std::collections::{BTreeMap, BTreeSet};

use super::engine::OpId;
use crate::topology::{Link, LinkChange, LinkFault, LinkMoment, Topology, Way};

/// In how many parts bytes are counted. A byte a microsecond moves a thousand of them in a nanosecond.
const PARTS: u64 = 1_000_000;
const PARTS_OF_RATE: u64 = PARTS / 1_000;

/// Bytes that are to go a way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) way: Way,
    pub(crate) bytes: u64,
}

/// A flow under way.
#[derive(Debug)]
struct Moving {
    op: OpId,
    way: Way,
    /// Parts of bytes until something happens to it: it arrives, or its link changes.
    left: u64,
    /// Parts of bytes a nanosecond.
    rate: u64,
    /// What happens to the link when these have moved, and the parts that are left then.
    then: Option<(LinkFault, u64)>,
}

/// What has become of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) op: OpId,
    /// Whether its link has gone down.
    pub(crate) is_broken: bool,
}

/// The links of a machine and all that moves over them.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    topology: Option<Topology>,
    faults: Vec<LinkFault>,
    /// Flows that have not begun, by when they do and in the order in which they were told.
    coming: BTreeMap<(u64, u64), (OpId, Flow)>,
    told: u64,
    moving: Vec<Moving>,
    at_ns: u64,
    /// When the next of those that move comes to an end.
    end_ns: Option<u64>,
}

impl Flows {
    pub(crate) fn new(topology: Option<Topology>, faults: Vec<LinkFault>) -> Self {
        Self { topology, faults, ..Self::default() }
    }

    pub(crate) fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// Adds a change of a link that is to come.
    pub(crate) fn inject(&mut self, fault: LinkFault) {
        self.faults.push(fault);
    }

    /// Forgets the changes that are to come.
    pub(crate) fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Lets a flow begin at a time to come.
    pub(crate) fn begin(&mut self, op: OpId, flow: Flow, begin_ns: u64) {
        self.told += 1;
        self.coming.insert((begin_ns.max(self.at_ns), self.told), (op, flow));
    }

    /// The work that flows belong to.
    pub(crate) fn ops(&self) -> impl Iterator<Item = OpId> {
        self.moving.iter().map(|moving| moving.op).chain(self.coming.values().map(|(op, _)| *op))
    }

    /// When something happens next to what moves or is going to; none where nothing does.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let begin_ns = self.coming.keys().next().map(|&(begin_ns, _)| begin_ns);
        let next_ns = begin_ns.into_iter().chain(self.end_ns).min()?;
        let changes = self.faults.iter().filter_map(|fault| match fault.when {
            LinkMoment::At(at_ns) => Some(at_ns.max(self.at_ns)),
            LinkMoment::After(_) => None,
        });
        changes.chain([next_ns]).min()
    }

    /// Lets time pass until then, which is not behind what happens next; what has ended by that.
    pub(crate) fn pass_until(&mut self, now_ns: u64) -> Vec<Ended> {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        for moving in &mut self.moving {
            moving.left = moving.left.saturating_sub(moving.rate.saturating_mul(passed_ns));
        }
        self.at_ns = self.at_ns.max(now_ns);
        let mut ended = self.change_links(now_ns);
        ended.extend(self.end_arrived());
        while let Some(first) = self.coming.first_entry().filter(|first| first.key().0 <= now_ns) {
            let (op, flow) = first.remove();
            ended.extend(self.start(op, flow));
        }
        self.share();
        ended
    }

    /// Whether a link is to change by then.
    pub(crate) fn is_change_due(&self, now_ns: u64) -> bool {
        self.faults.iter().any(|fault| is_due(fault, now_ns))
    }

    /// Lets links change whose time has come; what was under way on those that went down.
    fn change_links(&mut self, now_ns: u64) -> Vec<Ended> {
        let due: Vec<LinkFault> = self.faults.extract_if(.., |fault| is_due(fault, now_ns)).collect();
        due.iter().flat_map(|fault| self.change(*fault)).collect()
    }

    /// Changes a link now.
    fn change(&mut self, LinkFault { devices: (one, other), change, .. }: LinkFault) -> Vec<Ended> {
        let Some(topology) = &mut self.topology else { return Vec::new() };
        match change {
            LinkChange::Percent(percent) => {
                topology.degrade(one, other, percent);
                // What is under way goes by the narrow place, too.
                let (topology, ways) = (&*topology, self.moving.iter_mut().map(|moving| &mut moving.way));
                for way in ways.chain(self.coming.values_mut().map(|(_, flow)| &mut flow.way)) {
                    if let Some((from, to)) = way.ends.filter(|_| way.joins(one, other)) {
                        *way = topology.way(from.into(), to.into());
                    }
                }
                Vec::new()
            }
            LinkChange::Down => {
                topology.fail(one, other);
                let lost = self.moving.extract_if(.., |moving| moving.way.joins(one, other)).map(|moving| moving.op);
                lost.map(|op| Ended { op, is_broken: true }).collect()
            }
        }
    }

    /// Takes out what has moved all its bytes.
    fn end_arrived(&mut self) -> Vec<Ended> {
        let (mut ended, mut changes) = (Vec::new(), Vec::new());
        let arrived: Vec<Moving> = self.moving.extract_if(.., |moving| moving.left == 0).collect();
        for Moving { op, way, then, .. } in arrived {
            let Some((fault, left)) = then else {
                ended.push(Ended { op, is_broken: false });
                continue;
            };
            // It is on its way when the link changes, so it takes part in that.
            self.moving.push(Moving { op, way, left, rate: 0, then: None });
            changes.push(fault);
        }
        ended.extend(changes.into_iter().flat_map(|fault| self.change(fault)).collect::<Vec<_>>());
        ended
    }

    /// Lets a flow move from now on; what has ended by that, itself or others on a link that went down.
    fn start(&mut self, op: OpId, Flow { way, bytes }: Flow) -> Vec<Ended> {
        let ends = way.ends.map(|(from, to)| (u32::from(from), u32::from(to)));
        if ends.is_some_and(|(from, to)| self.topology().is_some_and(|topology| !topology.reaches(from, to))) {
            return vec![Ended { op, is_broken: true }];
        }
        if bytes == 0 {
            return vec![Ended { op, is_broken: false }];
        }
        let mut moving = Moving { op, way, left: bytes.saturating_mul(PARTS), rate: 0, then: None };
        for fault in 0..self.faults.len() {
            let LinkFault { devices: (one, other), when, .. } = self.faults[fault];
            let LinkMoment::After(left) = when else { continue };
            if !way.joins(one, other) {
                continue;
            }
            if bytes > left {
                let before = left.saturating_mul(PARTS);
                moving.then = Some((self.faults.remove(fault), moving.left - before));
                moving.left = before;
                break;
            }
            self.faults[fault].when = LinkMoment::After(left - bytes);
        }
        self.moving.push(moving);
        // A link may go down before the first byte.
        self.end_arrived()
    }

    /// Gives every flow its share of the links on its way.
    fn share(&mut self) {
        self.end_ns = None;
        if self.moving.is_empty() {
            return;
        }
        // What is left of each link, and how many flows without a rate want some of it.
        let mut links: BTreeMap<Link, (u64, u64)> = BTreeMap::new();
        for moving in &mut self.moving {
            moving.rate = 0;
            for link in moving.way.links() {
                let rate = self.topology.as_ref().map_or(u64::MAX, |topology| topology.rate(link));
                links.entry(link).or_insert((rate.saturating_mul(PARTS_OF_RATE), 0)).1 += 1;
            }
        }
        let share = |&(left, wanting): &(u64, u64)| (wanting > 0).then(|| (left / wanting).max(1));
        while let Some(rate) = links.values().filter_map(share).min() {
            // These links are the scarcest: what goes over one of them gets no more, whatever the others leave.
            let is_scarce = |of: &(u64, u64)| share(of) == Some(rate);
            let scarce: BTreeSet<Link> = links.iter().filter(|(_, of)| is_scarce(of)).map(|(link, _)| *link).collect();
            for moving in self.moving.iter_mut().filter(|moving| moving.rate == 0) {
                if !moving.way.links().any(|link| scarce.contains(&link)) {
                    continue;
                }
                moving.rate = rate;
                for link in moving.way.links() {
                    if let Some((left, wanting)) = links.get_mut(&link) {
                        (*left, *wanting) = (left.saturating_sub(rate), *wanting - 1);
                    }
                }
            }
        }
        let ends = self.moving.iter().map(|moving| self.at_ns.saturating_add(moving.left.div_ceil(moving.rate.max(1))));
        self.end_ns = ends.min();
    }
}

fn is_due(fault: &LinkFault, now_ns: u64) -> bool {
    matches!(fault.when, LinkMoment::At(at_ns) if at_ns <= now_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When flows end that begin at times of their own.
    fn history(topology: Topology, faults: Vec<LinkFault>, flows: &[(u64, (u32, u32), u64)]) -> Vec<(u64, u64, bool)> {
        let mut all = Flows::new(Some(topology.clone()), faults);
        for (number, &(begin_ns, (from, to), bytes)) in (0..).zip(flows) {
            all.begin(OpId(number), Flow { way: topology.way(from, to), bytes }, begin_ns);
        }
        let mut found = Vec::new();
        while let Some(now_ns) = all.next_ns() {
            let ended = all.pass_until(now_ns);
            found.extend(ended.into_iter().map(|Ended { op, is_broken }| (op.0, now_ns, is_broken)));
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn what_goes_over_a_link_at_once_shares_it() {
        let ends_of = |rate, flows: &[_]| -> Vec<u64> {
            history(Topology::nvlink(rate, 0), Vec::new(), flows).into_iter().map(|end| end.1).collect()
        };
        let ends = |flows: &[_]| ends_of(10, flows);
        // Two large ones take as long as one after the other; a small one beside a large one does not wait for it.
        assert_eq!(ends(&[(0, (0, 1), 10_000), (0, (0, 1), 10_000)]), [2_000, 2_000]);
        assert_eq!(ends(&[(0, (0, 1), 10_000), (100, (0, 1), 500)]), [1_050, 200]);
        // Both directions at once, and what one link keeps from a flow goes to the others of another link.
        assert_eq!(ends(&[(0, (0, 1), 10_000), (0, (1, 0), 10_000)]), [1_000, 1_000]);
        let into_one = [(0, (0, 1), 6_000), (0, (0, 2), 6_000), (0, (3, 2), 6_000), (0, (4, 2), 6_000)];
        assert_eq!(ends_of(12, &into_one), [750, 1_500, 1_500, 1_500]);
        assert_eq!(ends(&[(5, (0, 1), 0)]), [5]);
    }

    #[test]
    fn ways_of_several_links_are_as_fast_as_the_scarcest() {
        let links = Topology::pcie(10, 0, 2);
        let ends =
            |flows: &[_]| history(links.clone(), Vec::new(), flows).into_iter().map(|end| end.1).collect::<Vec<_>>();
        assert_eq!(ends(&[(0, (0, 2), 10_000)]), [1_000]);
        assert_eq!(ends(&[(0, (0, 2), 10_000), (0, (1, 3), 10_000), (0, (2, 0), 10_000)]), [2_000, 2_000, 1_000]);
        // A flow inside a switch takes what the one to the bridge leaves.
        assert_eq!(ends(&[(0, (0, 2), 10_000), (0, (1, 3), 10_000), (0, (0, 1), 7_500)]), [2_000, 2_000, 1_500]);
        let slower = links.clone().degraded(0, 2, 20);
        assert_eq!(history(slower, Vec::new(), &[(0, (0, 2), 10_000)]), [(0, 5_000, false)]);
    }

    #[test]
    fn links_change_at_a_time_and_after_bytes() {
        let links = Topology::nvlink(10, 0);
        let fault = |change, when| vec![LinkFault { devices: (1, 0), change, when }];
        let flows = [(0, (0, 1), 10_000), (0, (2, 1), 10_000), (3_000, (0, 1), 10)];
        let down = fault(LinkChange::Down, LinkMoment::At(500));
        // The other gets the bandwidth, and what comes later is lost at once.
        assert_eq!(history(links.clone(), down, &flows), [(0, 500, true), (1, 1_250, false), (2, 3_000, true)]);
        let after = fault(LinkChange::Down, LinkMoment::After(5_000));
        assert_eq!(history(links.clone(), after, &flows[..1]), [(0, 500, true)]);
        let later = fault(LinkChange::Down, LinkMoment::After(10_000));
        assert_eq!(history(links.clone(), later, &[flows[0], flows[2]]), [(0, 1_000, false), (1, 3_000, true)]);
        let at_once = fault(LinkChange::Down, LinkMoment::After(0));
        assert_eq!(history(links.clone(), at_once, &flows[..1]), [(0, 0, true)]);
        // The second finds none of the bytes left, and takes the first with it.
        let second = fault(LinkChange::Down, LinkMoment::After(10_000));
        let both = [flows[0], (100, (1, 0), 10)];
        assert_eq!(history(links.clone(), second, &both), [(0, 100, true), (1, 100, true)]);
        let slow = fault(LinkChange::Percent(50), LinkMoment::After(5_000));
        assert_eq!(history(links.clone(), slow, &flows[..1]), [(0, 1_500, false)]);
        let slow = fault(LinkChange::Percent(10), LinkMoment::At(900));
        assert_eq!(history(links, slow, &flows[..1]), [(0, 1_900, false)]);
    }

    /// When copies of so many bytes from a device to another, of a part each, are all done. One begins when those before it are that
    /// brought the part to its source or to its target, or went out of its source.
    fn taken_ns(links: &Topology, steps: &[(u32, u32, u32)], bytes: u64) -> u64 {
        let (mut all, mut waits, mut followers) = (Flows::new(Some(links.clone()), Vec::new()), Vec::new(), Vec::new());
        let (mut brought, mut sent) = (BTreeMap::new(), BTreeMap::new());
        for (at, &(from, to, part)) in steps.iter().enumerate() {
            let before: BTreeSet<usize> = [brought.get(&(from, part)), brought.get(&(to, part)), sent.get(&from)]
                .into_iter()
                .flatten()
                .copied()
                .collect();
            followers.push(Vec::new());
            before.iter().for_each(|&before| followers[before].push(at));
            waits.push(before.len());
            brought.insert((to, part), at);
            sent.insert(from, at);
        }
        let begin = |all: &mut Flows, at: usize, now_ns: u64| {
            let (from, to, _) = steps[at];
            let flow = Flow { way: links.way(from, to), bytes };
            all.begin(OpId(at as u64), flow, now_ns + links.latency_ns(from, to));
        };
        (0..steps.len()).filter(|&at| waits[at] == 0).for_each(|at| begin(&mut all, at, 0));
        let (mut last_ns, mut done) = (0, 0);
        while let Some(now_ns) = all.next_ns() {
            last_ns = now_ns;
            for Ended { op, .. } in all.pass_until(now_ns) {
                done += 1;
                for &next in &followers[usize::try_from(op.0).expect("few steps")] {
                    waits[next] -= 1;
                    if waits[next] == 0 {
                        begin(&mut all, next, now_ns);
                    }
                }
            }
        }
        assert_eq!(done, steps.len());
        last_ns
    }

    #[test]
    fn sums_on_64_and_512_devices_take_what_the_formulas_say() {
        let (links, latency_ns, bytes) = (Topology::nvlink(100, 2_000), 2_000, 51_200_000);
        for devices in [64_u32, 512] {
            let turns = 2 * (devices - 1);
            let of_turn = |turn: u32, from: u32| (from, (from + 1) % devices, (from + 2 * devices - turn) % devices);
            let ring: Vec<(u32, u32, u32)> =
                (0..turns).flat_map(|turn| (0..devices).map(move |from| of_turn(turn, from))).collect();
            let found = taken_ns(&links, &ring, bytes / u64::from(devices));
            let formula = u64::from(turns) * (latency_ns + bytes / u64::from(devices) / 100);
            assert!(found.abs_diff(formula) * 10 < formula, "a ring of {devices}: {found}, expected {formula}");
            let rounds = devices.ilog2();
            let pairs = |round: u32| (0..devices).step_by(2 << round).map(move |near| (near, near + (1 << round)));
            let up = (0..rounds).flat_map(|round| pairs(round).map(|(near, far)| (far, near, 0)));
            let down = (0..rounds).rev().flat_map(|round| pairs(round).map(|(near, far)| (near, far, 0)));
            let tree: Vec<(u32, u32, u32)> = up.chain(down).collect();
            let found = taken_ns(&links, &tree, bytes);
            let formula = 2 * u64::from(rounds) * (latency_ns + bytes / 100);
            assert!(found.abs_diff(formula) * 10 < formula, "a tree of {devices}: {found}, expected {formula}");
        }
    }
}
