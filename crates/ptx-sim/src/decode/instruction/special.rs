//! Special registers by their names.

use crate::program::types::{Clock, LaneMask, Special};

/// What a name of a special register stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A row, and its bits.
    Row(Special, u8),
    /// What is read when the instruction is done.
    Clock(Clock, u8),
    /// PTX, but not supported.
    Refused,
}

/// The special register of a name.
pub(super) fn special(name: &str) -> Option<Found> {
    let name = name.strip_prefix('%')?;
    if let Some((base, axis)) = name.split_once('.') {
        return by_axis(base, axis);
    }
    let row = |special| Some(Found::Row(special, 32));
    match name {
        "laneid" => row(Special::Lane),
        "warpid" => row(Special::Warp),
        "nwarpid" => row(Special::WarpCount),
        "smid" => row(Special::Multiprocessor),
        "nsmid" => row(Special::MultiprocessorCount),
        "gridid" => Some(Found::Row(Special::GridId, 64)),
        "lanemask_eq" => row(Special::LaneMask(LaneMask::Equal)),
        "lanemask_lt" => row(Special::LaneMask(LaneMask::Less)),
        "lanemask_le" => row(Special::LaneMask(LaneMask::LessOrEqual)),
        "lanemask_gt" => row(Special::LaneMask(LaneMask::Greater)),
        "lanemask_ge" => row(Special::LaneMask(LaneMask::GreaterOrEqual)),
        "total_smem_size" | "aggr_smem_size" => row(Special::SharedBytes),
        "dynamic_smem_size" => row(Special::DynamicSharedBytes),
        "clock" => Some(Found::Clock(Clock::Cycles, 32)),
        "clock_hi" => Some(Found::Clock(Clock::CyclesHigh, 32)),
        "clock64" => Some(Found::Clock(Clock::Cycles, 64)),
        "globaltimer" => Some(Found::Clock(Clock::Nanoseconds, 64)),
        "globaltimer_lo" => Some(Found::Clock(Clock::Nanoseconds, 32)),
        "globaltimer_hi" => Some(Found::Clock(Clock::NanosecondsHigh, 32)),
        "current_graph_exec" => Some(Found::Row(Special::Zero, 64)),
        "tid" | "ntid" | "ctaid" | "nctaid" | "is_explicit_cluster" | "cluster_ctarank" | "cluster_nctarank" => {
            Some(Found::Refused)
        }
        _ if name.starts_with("reserved_smem_offset_") => Some(Found::Refused),
        _ => counter(name),
    }
}

fn by_axis(base: &str, axis: &str) -> Option<Found> {
    let axis = match axis {
        "x" => 0,
        "y" => 1,
        "z" => 2,
        "w" => 3,
        _ => return None,
    };
    let special = match base {
        "tid" | "ntid" | "ctaid" | "nctaid" if axis == 3 => Special::Zero,
        "tid" => Special::Thread(axis),
        "ntid" => Special::BlockSize(axis),
        "ctaid" => Special::Block(axis),
        "nctaid" => Special::GridSize(axis),
        "clusterid" | "nclusterid" | "cluster_ctaid" | "cluster_nctaid" => return Some(Found::Refused),
        _ => return None,
    };
    Some(Found::Row(special, 32))
}

/// Performance counters and environment registers, which nothing sets.
fn counter(name: &str) -> Option<Found> {
    let number = |digits: &str, below: u32| digits.parse::<u32>().is_ok_and(|number| number < below);
    if let Some(digits) = name.strip_prefix("envreg") {
        return number(digits, 32).then_some(Found::Row(Special::Zero, 32));
    }
    let digits = name.strip_prefix("pm")?;
    match digits.strip_suffix("_64") {
        Some(digits) => number(digits, 8).then_some(Found::Row(Special::Zero, 64)),
        None => number(digits, 8).then_some(Found::Row(Special::Zero, 32)),
    }
}
