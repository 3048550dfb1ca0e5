//! Figures and layouts side by side: what differs first, and whether that may be.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::script::Segment;

/// One thing that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What it is.
    pub key: String,
    /// What was recorded.
    pub expected: String,
    /// What came out.
    pub got: String,
}

impl Difference {
    pub(super) fn new(key: impl Into<String>, expected: impl ToString, got: impl ToString) -> Self {
        Self { key: key.into(), expected: expected.to_string(), got: got.to_string() }
    }

    /// Whether the order in which blocks are found complete, which PyTorch takes from hash maps, can explain it: merging
    /// freed blocks in another order gives other intermediate counts of pieces, and the same ones in the end.
    pub(super) fn is_order_of_completion(&self) -> bool {
        let parts: Vec<&str> = self.key.split('.').collect();
        matches!(parts[..], ["inactive_split" | "inactive_split_bytes", _, "peak" | "allocated" | "freed"])
    }
}

/// All figures that differ, by name; a figure that is absent is 0.
pub(super) fn figures(expected: &BTreeMap<String, i64>, got: &BTreeMap<String, i64>) -> Vec<Difference> {
    let of = |figures: &BTreeMap<String, i64>, key: &str| figures.get(key).copied().unwrap_or(0);
    let keys: BTreeSet<&String> = expected.keys().chain(got.keys()).collect();
    let sides = keys.into_iter().map(|key| (key, of(expected, key), of(got, key)));
    sides
        .filter(|(_, expected, got)| expected != got)
        .map(|(key, expected, got)| Difference::new(key, expected, got))
        .collect()
}

/// The first place where two layouts differ. A stream of -1 in the recorded one is any stream.
pub(super) fn segments(expected: &[Segment], got: &[Segment]) -> Option<Difference> {
    for (index, (expected, got)) in expected.iter().zip(got).enumerate() {
        let key = |what: &str| format!("snapshot segment {index} {what}");
        if expected.address != got.address {
            return Some(Difference::new(key("address"), hex(expected.address), hex(got.address)));
        }
        if expected.total_size != got.total_size {
            return Some(Difference::new(key("total_size"), expected.total_size, got.total_size));
        }
        if expected.stream != got.stream && expected.stream != -1 {
            return Some(Difference::new(key("stream"), expected.stream, got.stream));
        }
        if expected.class != got.class {
            return Some(Difference::new(key("type"), &expected.class, &got.class));
        }
        if expected.blocks != got.blocks {
            let first = expected.blocks.iter().zip(&got.blocks).position(|(expected, got)| expected != got);
            let at = first.unwrap_or_else(|| expected.blocks.len().min(got.blocks.len()));
            let shown = |blocks: &[_]| format!("{:?}", blocks.get(at));
            return Some(Difference::new(key(&format!("block {at}")), shown(&expected.blocks), shown(&got.blocks)));
        }
    }
    (expected.len() != got.len()).then(|| Difference::new("snapshot segments", expected.len(), got.len()))
}

pub(super) fn hex(address: u64) -> String {
    format!("{address:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Block;

    fn map(figures: &[(&str, i64)]) -> BTreeMap<String, i64> {
        figures.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
    }

    #[test]
    fn absent_figures_are_zero() {
        assert_eq!(figures(&map(&[("a", 1), ("b", 0)]), &map(&[("a", 1)])), []);
        let differences = figures(&map(&[("a", 1)]), &map(&[("b", 2)]));
        assert_eq!(differences, [Difference::new("a", 1, 0), Difference::new("b", 0, 2)]);
    }

    #[test]
    fn only_counts_of_pieces_over_time_may_depend_on_the_order() {
        for (key, may) in [
            ("inactive_split.all.peak", true),
            ("inactive_split_bytes.small_pool.freed", true),
            ("inactive_split.all.current", false),
            ("active.all.peak", false),
        ] {
            assert_eq!(Difference::new(key, 0, 1).is_order_of_completion(), may, "{key}");
        }
    }

    #[test]
    fn the_first_difference_of_layouts_is_named() {
        let block = |size| Block { size, state: "inactive".to_owned(), requested_size: 0 };
        let segment = |stream, size| Segment {
            address: 16,
            total_size: 1024,
            stream,
            class: "small".to_owned(),
            blocks: vec![block(512), block(size)],
        };
        let key = |expected: &[Segment], got: &[Segment]| segments(expected, got).map(|difference| difference.key);
        assert_eq!(key(&[segment(-1, 512)], &[segment(3, 512)]), None);
        assert_eq!(key(&[segment(0, 512)], &[segment(3, 512)]).unwrap(), "snapshot segment 0 stream");
        assert_eq!(key(&[segment(0, 512)], &[segment(0, 511)]).unwrap(), "snapshot segment 0 block 1");
        assert_eq!(key(&[segment(0, 512)], &[]).unwrap(), "snapshot segments");
    }
}
