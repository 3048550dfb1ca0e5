//! Which way a broadcast takes to several devices.
//!
//! The link of a device carries so many bytes a second in each direction. Directly, the source sends everything to each
//! device, which takes as many times as long as there are devices. In a tree each device that has it all sends it on. In a
//! chain each device hands parts on while later ones still come. The model counts what a part costs to begin with, and
//! the bytes; it is as simple as the choice needs.
//!
//! **Invariant:** whatever the way, every device has the source's bytes in the end.

use std::sync::atomic::{AtomicU8, Ordering};

use super::pattern::LinkModel;

/// The way of a broadcast from one device to others, and of a sum of several on one; a sum by a tree goes directly, since it
/// would be added in another order.
///
/// ```
/// use aten_cuda::comm::{self, Route};
///
/// assert_eq!(comm::route(), Route::Auto);
/// comm::set_route(Route::Tree);
/// assert_eq!(comm::route(), Route::Tree);
/// # comm::set_route(Route::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Route {
    /// The one that a model of the links finds quickest.
    #[default]
    Auto,
    /// The source sends to each device.
    Direct,
    /// Each device that has the tensor sends it to one that has not.
    Tree,
    /// Each device hands parts on to the next while others still come.
    Chain,
    /// By NCCL, where it is there and takes the tensors.
    Nccl,
}

static ROUTE: AtomicU8 = AtomicU8::new(0);

/// The way that broadcasts and sums of the process take.
#[must_use]
pub fn route() -> Route {
    match ROUTE.load(Ordering::Relaxed) {
        1 => Route::Direct,
        2 => Route::Tree,
        3 => Route::Chain,
        4 => Route::Nccl,
        _ => Route::Auto,
    }
}

/// Sets the way that broadcasts and sums of the process take from now on.
pub fn set_route(route: Route) {
    ROUTE.store(route as u8, Ordering::Relaxed);
}

/// A copy of a part between two members of a broadcast; the source is member 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The part's number.
    pub(super) part: usize,
}

/// The copies of a broadcast, in an order in which each member has a part before it sends that on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) hops: Vec<Hop>,
    /// Bytes of a part; the last one may have fewer.
    pub(super) part: usize,
    pub(super) is_chain: bool,
}

/// Bytes of a part of a chain: large enough for the whole rate, and small enough to be on the way several at once.
pub(super) const PART: usize = 16 << 20;

/// Nanoseconds that the model gives a way of so many bytes to so many devices.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn cost_ns(route: Route, link: LinkModel, bytes: usize, devices: usize) -> f64 {
    let of = |bytes: usize| link.latency_ns + bytes as f64 / link.bytes_per_ns;
    match route {
        Route::Direct | Route::Auto | Route::Nccl => devices as f64 * of(bytes),
        Route::Tree => f64::from((devices + 1).next_power_of_two().ilog2()) * of(bytes),
        // Each part begins when the one before has left, and the last one goes on to the end.
        Route::Chain => (bytes.div_ceil(PART) + devices - 1) as f64 * of(bytes.min(PART)),
    }
}

/// The copies for so many bytes to so many devices besides the source, over links of a kind.
pub(super) fn plan(route: Route, link: LinkModel, bytes: usize, devices: usize) -> Plan {
    let ways = [Route::Direct, Route::Tree, Route::Chain];
    let cost = |way: &Route| cost_ns(*way, link, bytes, devices);
    let quickest = || ways.into_iter().min_by(|one, other| cost(one).total_cmp(&cost(other)));
    let is_open = matches!(route, Route::Auto | Route::Nccl);
    let way = if is_open { quickest().unwrap_or(Route::Direct) } else { route };
    let (whole, is_chain) = (bytes.max(1), way == Route::Chain);
    match way {
        Route::Direct | Route::Auto | Route::Nccl => {
            let hops = (1..=devices).map(|to| Hop { from: 0, to, part: 0 }).collect();
            Plan { hops, part: whole, is_chain }
        }
        // In each round every member that has it sends to the one that many places further on.
        Route::Tree => {
            let hop = |to: usize| Hop { from: to - (1 << to.ilog2()), to, part: 0 };
            Plan { hops: (1..=devices).map(hop).collect(), part: whole, is_chain }
        }
        Route::Chain => {
            let hops = |part| (1..=devices).map(move |to| Hop { from: to - 1, to, part });
            Plan { hops: (0..bytes.div_ceil(PART)).flat_map(hops).collect(), part: PART, is_chain }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::topology::LinkClass;

    fn link() -> LinkModel {
        LinkModel::of(LinkClass::NvLink)
    }

    #[test]
    fn every_member_has_a_part_before_it_sends_it_and_all_have_all_in_the_end() {
        for route in [Route::Auto, Route::Direct, Route::Tree, Route::Chain] {
            for devices in 0..12 {
                for bytes in [1, 1000, PART, PART + 1, 5 * PART + 7] {
                    let Plan { hops, part, .. } = plan(route, link(), bytes, devices);
                    let parts = bytes.div_ceil(part);
                    let mut has = vec![vec![false; parts]; devices + 1];
                    has[0] = vec![true; parts];
                    for hop in hops {
                        assert!(has[hop.from][hop.part] && !has[hop.to][hop.part], "{route:?} {devices} {hop:?}");
                        has[hop.to][hop.part] = true;
                    }
                    assert!(has.iter().flatten().all(|has| *has), "{route:?} {devices} {bytes}");
                }
            }
        }
    }

    #[test]
    fn few_bytes_go_by_a_tree_and_many_by_a_chain() {
        let plan = |route, bytes, devices| plan(route, link(), bytes, devices);
        assert_eq!(plan(Route::Auto, 1 << 10, 7), plan(Route::Tree, 1 << 10, 7));
        assert_eq!(plan(Route::Auto, 1 << 30, 7), plan(Route::Chain, 1 << 30, 7));
        assert_eq!(plan(Route::Auto, 1 << 30, 1), plan(Route::Direct, 1 << 30, 1));
        assert_eq!(
            plan(Route::Tree, 8, 3).hops.iter().map(|hop| (hop.from, hop.to)).collect::<Vec<_>>(),
            [(0, 1), (0, 2), (1, 3)]
        );
    }
}
