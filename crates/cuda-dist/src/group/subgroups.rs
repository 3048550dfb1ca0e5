//! Groups of some ranks of another group: torch's `new_group`.
//!
//! Their part of the store stands behind their number, as in torch: the first group that is made from the first one has the
//! keys `default_pg/0//1//...`. Each has a backend and a watch-dog of its own; by NCCL a communicator of its own, whose
//! identity is in its part of the store.
//!
//! Invariant: groups are numbered on every rank of the group they are made from, also on those that are not in them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{BackendKind, FIRST_GROUP, InitOptions, ProcessGroup};
use crate::backend::nccl;
use crate::backend::store::{call_key, part_key, values_key};
use crate::call::Ranks;
use crate::error::{Error, Result};
use crate::store::{PrefixStore, Store as _};

/// How a group of some ranks is made. What is not said is as in the group that it is made from.
///
/// ```
/// use cuda_dist::{BackendKind, GroupOptions};
///
/// let options = GroupOptions { backend: Some(BackendKind::Store), ..GroupOptions::default() };
/// assert_eq!(options.timeout, None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct GroupOptions {
    /// What moves the values.
    pub backend: Option<BackendKind>,
    /// How long a collective may take.
    pub timeout: Option<Duration>,
}

impl ProcessGroup {
    /// A group of some ranks of this one: torch's `new_group`. All ranks of this group call it, those outside too, with the
    /// same ranks and in the same order. In the new group the ranks have the order of their numbers, whatever order they are
    /// given in, as in torch.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use std::sync::Arc;
    ///
    /// use cuda_dist::{Error, GroupOptions, HashStore, InitOptions, ProcessGroup};
    ///
    /// let store = HashStore::new();
    /// let rank = |rank: usize, store: HashStore| {
    ///     let all = ProcessGroup::with_store(Arc::new(store), rank, 2, &InitOptions::default())?;
    ///     match all.new_group(&[1], &GroupOptions::default()) {
    ///         Ok(group) => group.barrier()?.wait().map(|()| group.global_ranks().to_vec()),
    ///         Err(Error::NotInGroup { .. }) => Ok(vec![]),
    ///         Err(error) => Err(error),
    ///     }
    /// };
    /// assert_eq!(rank(0, store.clone())?, [0; 0]);
    /// assert_eq!(rank(1, store)?, [1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInGroup`] on ranks that are not among them. There are no ranks, one is none of this group, or is named
    /// twice; another rank names others; the store is lost; by NCCL, the others did not come in time.
    pub fn new_group(&self, ranks: &[usize], options: &GroupOptions) -> Result<Self> {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        ranks.iter().try_for_each(|rank| self.check_rank(*rank))?;
        if ranks.is_empty() {
            return Err(Error::Argument("a group has at least one rank".to_owned()));
        }
        if let Some(twice) = ranks.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Argument(format!("rank {} is named twice", twice[0])));
        }
        self.check_given_up()?;
        let number = self.groups.fetch_add(1, Ordering::AcqRel) + 1;
        let Ok(own) = ranks.binary_search(&self.rank()) else {
            return Err(Error::NotInGroup { rank: self.rank(), ranks });
        };
        let store = Arc::new(PrefixStore::new(&format!("{number}/"), Arc::clone(&self.store)));
        let list = Ranks(&ranks).to_string();
        let agreed = store.compare_set(RANKS, b"", list.as_bytes())?;
        if agreed != list.as_bytes() {
            return Err(Error::Argument(format!(
                "rank {} makes group {number} of rank {list}, and another rank makes it of rank {}",
                self.rank(),
                String::from_utf8_lossy(&agreed)
            )));
        }
        let inner = &self.inner;
        let name = if inner.name == FIRST_GROUP { number.to_string() } else { format!("{}.{number}", inner.name) };
        let init = InitOptions {
            backend: options.backend.unwrap_or(self.kind),
            device: self.device(),
            timeout: options.timeout.unwrap_or(inner.timeout),
            name,
            ..InitOptions::default()
        };
        let global = ranks.iter().map(|rank| inner.ranks[*rank]).collect();
        Self::build(store, (own, global), &init, inner.settings.clone(), Arc::clone(&inner.recorder))
    }

    /// The ranks that the members have in the first group (`torch.distributed.get_process_group_ranks`).
    #[must_use]
    pub fn global_ranks(&self) -> &[usize] {
        &self.inner.ranks
    }

    /// The rank that a member has in the first group (`torch.distributed.get_global_rank`).
    ///
    /// # Errors
    /// There is no such member.
    pub fn global_rank(&self, rank: usize) -> Result<usize> {
        self.check_rank(rank)?;
        Ok(self.inner.ranks[rank])
    }

    /// The rank that a rank of the first group has in this one (`torch.distributed.get_group_rank`).
    ///
    /// # Errors
    /// [`Error::NotInGroup`].
    pub fn group_rank(&self, global_rank: usize) -> Result<usize> {
        let ranks = self.global_ranks();
        let found = ranks.iter().position(|known| *known == global_rank);
        found.ok_or_else(|| Error::NotInGroup { rank: global_rank, ranks: ranks.to_vec() })
    }

    /// The name of the group, as in torch: `0` for the first, and numbers for those that are made from it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Removes what the group has left in the store, when the last of its ranks leaves.
    pub(super) fn tidy(&self) -> Result<()> {
        let (called, is_personal) = {
            let state = self.inner.state();
            (state.called, state.last.as_ref().is_some_and(|last| last.operation.has_parts()))
        };
        let ranks = 0..self.size();
        let mut keys: Vec<String> = [RANKS, super::LEFT, "cuda//0"].map(str::to_owned).to_vec();
        for rank in ranks.clone() {
            keys.push(format!("cuda//{}", nccl::direct_key(rank)));
            keys.extend([super::watchdog::state_key(rank), call_key(called, rank), values_key(called, rank)]);
            if is_personal {
                keys.extend(ranks.clone().map(|to| part_key(called, rank, to)));
            }
        }
        keys.iter().try_for_each(|key| self.store.delete_key(key).map(drop))
    }
}

/// The ranks of a group, as those who make it say.
const RANKS: &str = "cuda_dist/ranks";
