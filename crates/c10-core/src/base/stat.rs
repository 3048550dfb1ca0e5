//! A figure over time, and families of figures as a tree.

use std::collections::BTreeMap;
use std::fmt;

/// One figure over time.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let (first, second) = (DeviceBuffer::new(512, None)?, DeviceBuffer::new(512, None)?);
/// drop(first);
/// let bytes = Runtime::current().memory().stats(0)?.allocated_bytes.all;
/// assert_eq!((bytes.current, bytes.peak), (512, 1024));
/// assert_eq!(bytes.to_string(), "512 (peak 1024, allocated 1024, freed 512)");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stat {
    /// Value now.
    pub current: i64,
    /// Highest value since the peaks were last reset.
    pub peak: i64,
    /// Sum of all increases.
    pub allocated: i64,
    /// Sum of all decreases.
    pub freed: i64,
}

impl Stat {
    pub(crate) fn change(&mut self, by: i64) {
        self.current += by;
        self.peak = self.peak.max(self.current);
        if by >= 0 {
            self.allocated += by;
        } else {
            self.freed -= by;
        }
    }

    pub(crate) fn leaves(self) -> [i64; 4] {
        [self.current, self.peak, self.allocated, self.freed]
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.current >= 0 && self.peak >= self.current
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { current, peak, allocated, freed } = self;
        write!(f, "{current} (peak {peak}, allocated {allocated}, freed {freed})")
    }
}

/// A figure, or a family of figures by name.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, NestedStat, Runtime};
///
/// let buffer = DeviceBuffer::new(512, None)?;
/// let stats = Runtime::current().memory().stats_as_nested_dict(0)?;
/// let small = stats["allocated_bytes"].get("small_pool").expect("there is such a pool");
/// assert_eq!(small.get("current").and_then(NestedStat::value), Some(512));
/// assert_eq!(small.to_string(), "{'allocated': 512, 'current': 512, 'freed': 0, 'peak': 512}");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NestedStat {
    /// A figure.
    Value(i64),
    /// Figures, or families of them.
    Nested(BTreeMap<String, NestedStat>),
}

impl NestedStat {
    /// The figure, where it is one.
    #[must_use]
    pub fn value(&self) -> Option<i64> {
        if let Self::Value(value) = self { Some(*value) } else { None }
    }

    /// What a family has under a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        if let Self::Nested(family) = self { family.get(name) } else { None }
    }
}

impl fmt::Display for NestedStat {
    /// As Python writes such a dictionary: `{'all': {'current': 0}}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self {
            Self::Value(value) => return value.fmt(f),
            Self::Nested(family) => family,
        };
        f.write_str("{")?;
        for (position, (name, inner)) in family.iter().enumerate() {
            write!(f, "{}'{name}': {inner}", if position == 0 { "" } else { ", " })?;
        }
        f.write_str("}")
    }
}

/// The tree of figures whose names are paths.
pub(crate) fn tree(flat: Vec<(impl AsRef<str>, i64)>) -> BTreeMap<String, NestedStat> {
    let mut root = BTreeMap::new();
    for (name, value) in flat {
        insert(&mut root, name.as_ref(), value);
    }
    root
}

fn insert(family: &mut BTreeMap<String, NestedStat>, name: &str, value: i64) {
    let Some((first, rest)) = name.split_once('.') else {
        family.insert(name.to_owned(), NestedStat::Value(value));
        return;
    };
    let inner = family.entry(first.to_owned()).or_insert_with(|| NestedStat::Nested(BTreeMap::new()));
    if let NestedStat::Nested(inner) = inner {
        insert(inner, rest, value);
    }
}
