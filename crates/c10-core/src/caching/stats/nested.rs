//! The allocator's figures as a tree; torch's `memory_stats_as_nested_dict`.
//!
//! **Invariant:** the path to each value, joined with dots, is its name in [`DeviceStats::flatten`], and there are no
//! other values.

use std::collections::BTreeMap;

use crate::base::stat::NestedStat;
use crate::base::stat::tree;
use crate::caching::stats::DeviceStats;

impl DeviceStats {
    /// Every figure in torch's structure: `["allocated_bytes"]["all"]["current"]`, `["num_ooms"]`.
    #[must_use]
    pub fn as_nested_dict(&self) -> BTreeMap<String, NestedStat> {
        tree(self.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stat::Stat;

    /// Names and values of all leaves, as [`DeviceStats::flatten`] gives them.
    fn leaves(prefix: &str, family: &BTreeMap<String, NestedStat>) -> Vec<(String, i64)> {
        let each = family.iter().flat_map(|(name, stat)| match stat {
            NestedStat::Value(value) => vec![(format!("{prefix}{name}"), *value)],
            NestedStat::Nested(inner) => leaves(&format!("{prefix}{name}."), inner),
        });
        each.collect()
    }

    #[test]
    fn the_tree_has_the_flat_figures() {
        let mut stats = DeviceStats::default();
        stats.allocated_bytes.all = Stat { current: 1, peak: 2, allocated: 3, freed: 4 };
        stats.oversize_segments.freed = 5;
        (stats.num_ooms, stats.max_split_size) = (6, -1);
        let tree = stats.as_nested_dict();
        let mut flat = leaves("", &tree);
        flat.sort();
        let expected = stats.flatten().into_iter().map(|(name, value)| (name.to_owned(), value));
        assert_eq!(flat, expected.collect::<Vec<_>>());
        assert_eq!(tree.len(), 9 + 2 + 6);
        let peak = tree["allocated_bytes"].get("all").and_then(|all| all.get("peak")).and_then(NestedStat::value);
        assert_eq!(peak, Some(2));
        assert_eq!(tree["oversize_segments"].get("freed"), Some(&NestedStat::Value(5)));
        assert_eq!((tree["num_ooms"].value(), tree["max_split_size"].value()), (Some(6), Some(-1)));
        assert_eq!((tree["allocation"].value(), tree["num_ooms"].get("all")), (None, None));
    }
}
