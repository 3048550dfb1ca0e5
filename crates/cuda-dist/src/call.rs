//! What a rank called: operation, place in the order of calls, dtype and sizes. As words for people and as a line for stores.
//!
//! Invariant: a line reads back as the call it was written from; any other line is refused.

use std::fmt;

use aten_cuda::DType;

/// How the values of ranks become one: torch's `ReduceOp`.
///
/// ```
/// assert_eq!(cuda_dist::ReduceOp::Sum.to_string(), "sum");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The sum, divided by the number of ranks.
    Avg,
}

const REDUCE_OPS: [(ReduceOp, &str); 5] = [
    (ReduceOp::Sum, "sum"),
    (ReduceOp::Product, "product"),
    (ReduceOp::Min, "min"),
    (ReduceOp::Max, "max"),
    (ReduceOp::Avg, "avg"),
];

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = REDUCE_OPS.iter().find(|(op, _)| op == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// A collective.
///
/// ```
/// assert_eq!(cuda_dist::Operation::AllReduce.to_string(), "all_reduce");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Every rank gets the values of all, made one.
    AllReduce,
    /// One rank gets the values of all, made one.
    Reduce,
    /// Every rank gets the values of one.
    Broadcast,
    /// Every rank gets the values of all, one after another.
    AllGather,
    /// Every rank gets its part of the values of all, made one.
    ReduceScatter,
    /// Every rank waits for all.
    Barrier,
}

const OPERATIONS: [(Operation, &str); 6] = [
    (Operation::AllReduce, "all_reduce"),
    (Operation::Reduce, "reduce"),
    (Operation::Broadcast, "broadcast"),
    (Operation::AllGather, "all_gather_into_tensor"),
    (Operation::ReduceScatter, "reduce_scatter_tensor"),
    (Operation::Barrier, "barrier"),
];

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = OPERATIONS.iter().find(|(operation, _)| operation == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// What a rank called.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
///
/// let group = ProcessGroup::with_store(std::sync::Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
/// let work = group.barrier()?;
/// assert_eq!(work.call().to_string(), "barrier #1");
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The how manieth collective of the rank in this group it is, from 1 on.
    pub sequence: u64,
    /// What was called.
    pub operation: Operation,
    /// The name of the dtype, where there are tensors.
    pub dtype: Option<String>,
    /// The sizes of the tensor.
    pub sizes: Vec<i64>,
    /// How values become one, where they do.
    pub reduce: Option<ReduceOp>,
    /// The rank that gives or gets, where there is one.
    pub root: Option<usize>,
}

impl Call {
    pub(crate) fn new(operation: Operation) -> Self {
        Self { sequence: 0, operation, dtype: None, sizes: Vec::new(), reduce: None, root: None }
    }

    pub(crate) fn of(mut self, dtype: DType, sizes: &[i64]) -> Self {
        self.dtype = Some(dtype.torch_name().trim_start_matches("torch.").to_owned());
        self.sizes = sizes.to_vec();
        self
    }

    pub(crate) fn reduced(mut self, reduce: ReduceOp) -> Self {
        self.reduce = Some(reduce);
        self
    }

    pub(crate) fn rooted(mut self, root: usize) -> Self {
        self.root = Some(root);
        self
    }

    /// In what another rank's call differs, where it must not.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let text = |what: &Option<String>| what.clone().unwrap_or_else(|| "none".to_owned());
        if self.operation != other.operation {
            return Some(format!("{} is not {}", self.operation, other.operation));
        }
        if self.dtype != other.dtype {
            return Some(format!("the dtypes are {} and {}", text(&self.dtype), text(&other.dtype)));
        }
        if self.sizes != other.sizes {
            return Some(format!("the sizes are {:?} and {:?}", self.sizes, other.sizes));
        }
        let words = |what: Option<ReduceOp>| what.map_or_else(|| "none".to_owned(), |what| what.to_string());
        if self.reduce != other.reduce {
            return Some(format!("the reductions are {} and {}", words(self.reduce), words(other.reduce)));
        }
        let rank = |root: Option<usize>| root.map_or_else(|| "none".to_owned(), |root| root.to_string());
        (self.root != other.root).then(|| format!("the roots are {} and {}", rank(self.root), rank(other.root)))
    }

    /// The call as a line of six fields.
    pub(crate) fn to_line(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let dtype = self.dtype.as_deref().unwrap_or("-");
        let reduce = self.reduce.map_or_else(|| "-".to_owned(), |reduce| reduce.to_string());
        let root = self.root.map_or_else(|| "-".to_owned(), |root| root.to_string());
        format!("{} {} {dtype} {} {reduce} {root}", self.sequence, self.operation, sizes.join(","))
    }

    /// Reads a line.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[sequence, operation, dtype, sizes, reduce, root] = fields.as_slice() else { return None };
        let named = |text: &str| Some(text).filter(|text| *text != "-").map(str::to_owned);
        Some(Self {
            sequence: sequence.parse().ok()?,
            operation: OPERATIONS.iter().find(|(_, name)| *name == operation)?.0,
            dtype: named(dtype),
            sizes: sizes
                .split(',')
                .filter(|size| !size.is_empty())
                .map(|size| size.parse().ok())
                .collect::<Option<_>>()?,
            reduce: match named(reduce) {
                Some(reduce) => Some(REDUCE_OPS.iter().find(|(_, name)| *name == reduce)?.0),
                None => None,
            },
            root: match named(root) {
                Some(root) => Some(root.parse().ok()?),
                None => None,
            },
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.operation, self.sequence)?;
        if let Some(dtype) = &self.dtype {
            write!(f, " of {dtype} {:?}", self.sizes)?;
        }
        match (self.reduce, self.root) {
            (Some(reduce), Some(root)) => write!(f, " ({reduce}, root {root})"),
            (Some(reduce), None) => write!(f, " ({reduce})"),
            (None, Some(root)) => write!(f, " (root {root})"),
            (None, None) => Ok(()),
        }
    }
}

/// Ranks in words: `1, 3 and 5`.
pub(crate) struct Ranks<'a>(pub(crate) &'a [usize]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, rank) in self.0.iter().enumerate() {
            let before = if place == 0 {
                ""
            } else if place + 1 == self.0.len() {
                " and "
            } else {
                ", "
            };
            write!(f, "{before}{rank}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Operation, ReduceOp};

    #[test]
    fn a_line_reads_back_as_the_call() {
        let plain = Call::new(Operation::Barrier);
        let full = Call {
            sequence: 7,
            dtype: Some("float32".to_owned()),
            sizes: vec![3, 0, 5],
            ..Call::new(Operation::Reduce).reduced(ReduceOp::Max).rooted(2)
        };
        for call in [plain, full] {
            assert_eq!(Call::from_line(&call.to_line()), Some(call));
        }
        for line in
            ["", "1 barrier - -", "x barrier -  - -", "1 what -  - -", "1 barrier - 1,x - -", "1 barrier -  - - -"]
        {
            assert_eq!(Call::from_line(line), None, "{line}");
        }
    }

    #[test]
    fn differences_are_named() {
        let call = Call { sizes: vec![4], ..Call::new(Operation::AllReduce).reduced(ReduceOp::Sum) };
        assert_eq!(call.difference(&call), None);
        let other = Call { sizes: vec![5], ..call.clone() };
        assert_eq!(call.difference(&other).unwrap(), "the sizes are [4] and [5]");
        assert_eq!(call.difference(&Call::new(Operation::Barrier)).unwrap(), "all_reduce is not barrier");
    }
}
