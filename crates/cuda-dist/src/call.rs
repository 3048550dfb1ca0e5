//! What a rank called: operation, place in the order of calls, dtype and sizes. As words for people and as a line for stores.
//!
//! Invariant: a line reads back as the call it was written from; any other line is refused.

use std::fmt;

use aten_cuda::DType;

use crate::reduce::ReduceOp;

/// A collective, or a message.
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
    /// Every rank gets the values of all, a tensor for each.
    AllGatherList,
    /// Every rank gets what all have for it, made one.
    ReduceScatterList,
    /// One rank gets the values of all, a tensor for each.
    Gather,
    /// Every rank gets what one has for it.
    Scatter,
    /// Every rank gets what all have for it, as parts of one tensor.
    AllToAllSingle,
    /// Every rank gets what all have for it, a tensor for each.
    AllToAll,
    /// A rank gives another one its values.
    Send,
    /// A rank gets those of another one.
    Recv,
}

const OPERATIONS: [(Operation, &str); 14] = [
    (Operation::AllReduce, "all_reduce"),
    (Operation::Reduce, "reduce"),
    (Operation::Broadcast, "broadcast"),
    (Operation::AllGather, "all_gather_into_tensor"),
    (Operation::ReduceScatter, "reduce_scatter_tensor"),
    (Operation::Barrier, "barrier"),
    (Operation::AllGatherList, "all_gather"),
    (Operation::ReduceScatterList, "reduce_scatter"),
    (Operation::Gather, "gather"),
    (Operation::Scatter, "scatter"),
    (Operation::AllToAllSingle, "all_to_all_single"),
    (Operation::AllToAll, "all_to_all"),
    (Operation::Send, "send"),
    (Operation::Recv, "recv"),
];

impl Operation {
    /// Whether it has two ranks and not all of them.
    ///
    /// ```
    /// use cuda_dist::Operation;
    ///
    /// assert!(Operation::Send.is_message() && !Operation::Barrier.is_message());
    /// ```
    #[must_use]
    pub fn is_message(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }

    /// Whether a rank gives each other one something else.
    pub(crate) fn has_parts(self) -> bool {
        matches!(self, Self::ReduceScatter | Self::ReduceScatterList | Self::Scatter) || self.is_uneven()
    }

    /// Whether ranks may call it with tensors of other sizes: what each pair exchanges is compared instead.
    fn is_uneven(self) -> bool {
        matches!(self, Self::AllToAllSingle | Self::AllToAll)
    }
}

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
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The how manieth collective of the rank in this group it is, from 1 on; messages are counted apart.
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
    /// Of a message, the rank at the other end; none where it may come from any.
    pub peer: Option<usize>,
    /// Of a message, what tells it from others between the same ranks.
    pub tag: u64,
}

impl Call {
    pub(crate) fn new(operation: Operation) -> Self {
        Self { sequence: 0, operation, dtype: None, sizes: Vec::new(), reduce: None, root: None, peer: None, tag: 0 }
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

    pub(crate) fn between(mut self, peer: Option<usize>, tag: u64) -> Self {
        (self.peer, self.tag) = (peer, tag);
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
        if self.sizes != other.sizes && !self.operation.is_uneven() {
            return Some(format!("the sizes are {:?} and {:?}", self.sizes, other.sizes));
        }
        let words = |what: Option<ReduceOp>| what.map_or_else(|| "none".to_owned(), |op| op.to_string());
        if self.reduce != other.reduce {
            return Some(format!("the reductions are {} and {}", words(self.reduce), words(other.reduce)));
        }
        let rank = |root: Option<usize>| root.map_or_else(|| "none".to_owned(), |root| root.to_string());
        (self.root != other.root).then(|| format!("the roots are {} and {}", rank(self.root), rank(other.root)))
    }

    /// The call as a line of eight fields.
    pub(crate) fn to_line(&self) -> String {
        fn named(what: Option<impl fmt::Display>) -> String {
            what.map_or_else(|| "-".to_owned(), |what| what.to_string())
        }
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let (dtype, sizes, reduce) = (named(self.dtype.as_ref()), sizes.join(","), named(self.reduce));
        let (root, peer) = (named(self.root), named(self.peer));
        format!("{} {} {dtype} {sizes} {reduce} {root} {peer} {}", self.sequence, self.operation, self.tag)
    }

    /// Reads a line.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        fn named<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
            if text == "-" { Some(None) } else { read(text).map(Some) }
        }
        let fields: Vec<&str> = line.split(' ').collect();
        let &[sequence, operation, dtype, sizes, reduce, root, peer, tag] = fields.as_slice() else { return None };
        let sizes = sizes.split(',').filter(|size| !size.is_empty());
        Some(Self {
            sequence: sequence.parse().ok()?,
            operation: OPERATIONS.iter().find(|(_, name)| *name == operation)?.0,
            dtype: named(dtype, |text| Some(text.to_owned()))?,
            sizes: sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?,
            reduce: named(reduce, ReduceOp::from_word)?,
            root: named(root, |text| text.parse().ok())?,
            peer: named(peer, |text| text.parse().ok())?,
            tag: tag.parse().ok()?,
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.operation, self.sequence)?;
        if let Some(dtype) = &self.dtype {
            write!(f, " of {dtype} {:?}", self.sizes)?;
        }
        let reduce = self.reduce.map(|op| op.to_string());
        let root = self.root.map(|root| format!("root {root}"));
        let direction = if self.operation == Operation::Send { "to" } else { "from" };
        let peer = self.operation.is_message().then(|| match self.peer {
            Some(peer) => format!("{direction} rank {peer}"),
            None => format!("{direction} any rank"),
        });
        let tag = (self.tag > 0).then(|| format!("tag {}", self.tag));
        let words: Vec<String> = [reduce, root, peer, tag].into_iter().flatten().collect();
        if words.is_empty() { Ok(()) } else { write!(f, " ({})", words.join(", ")) }
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
    use super::{Call, Operation};
    use crate::reduce::ReduceOp;

    #[test]
    fn a_line_reads_back_as_the_call() {
        let plain = Call::new(Operation::Barrier);
        let full = Call {
            sequence: 7,
            dtype: Some("float32".to_owned()),
            sizes: vec![3, 0, 5],
            ..Call::new(Operation::Reduce).reduced(ReduceOp::Max).rooted(2)
        };
        let scaled = Call::new(Operation::AllReduce).reduced(ReduceOp::PremulSum(0.1));
        let message = Call::new(Operation::Recv).between(Some(3), 7);
        assert_eq!(message.to_string(), "recv #0 (from rank 3, tag 7)");
        for call in [plain, full, scaled, message] {
            assert_eq!(Call::from_line(&call.to_line()), Some(call));
        }
        for line in [
            "",
            "1 barrier - -",
            "x barrier -  - - - 0",
            "1 what -  - - - 0",
            "1 barrier - 1,x - - - 0",
            "1 barrier -  - - - x",
            "1 barrier -  x - - 0",
            "1 barrier -  - - - 0 0",
        ] {
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
