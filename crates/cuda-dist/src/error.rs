//! What can go wrong between processes. Each error says who or what is missing, and what to do where that is known.
//!
//! Invariant: an error can be cloned, since all who wait for one collective get the same one.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, Ranks};
use crate::report::Report;

/// The result of what needs other processes.
pub type Result<T> = std::result::Result<T, Error>;

/// Why processes did not come together, or did not finish what they had begun.
///
/// ```
/// use cuda_dist::{Error, Launch};
///
/// let error = Launch::from_variables(&|_| None).unwrap_err();
/// assert!(matches!(error, Error::Variable { ref name, .. } if name == "RANK"), "{error}");
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable is missing or is not what it should be.
    #[error("the environment variable {name} {problem}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong with it, and what else was looked for.
        problem: String,
    },
    /// An address of a rendezvous cannot be used.
    #[error("'{url}' is no rendezvous: {problem}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An argument cannot be.
    #[error("{0}")]
    Argument(String),
    /// Another program listens where the store was to listen.
    #[error("{address} is in use by another program: choose another MASTER_PORT for all ranks")]
    PortInUse {
        /// Where the store was to listen.
        address: SocketAddr,
    },
    /// The store cannot listen where it was told to.
    #[error("the store cannot listen on {address}: {cause}{hint}")]
    Listen {
        /// Where it was to listen.
        address: String,
        /// What the system says.
        cause: Arc<io::Error>,
        /// What may help.
        hint: &'static str,
    },
    /// No store answered in time.
    #[error(
        "no store answered at {address} within {waited:.1?}: {cause}; rank 0, or the launcher, has to listen there"
    )]
    Connect {
        /// Where the store was looked for.
        address: String,
        /// How long.
        waited: Duration,
        /// What the last attempt ended with.
        cause: Arc<io::Error>,
    },
    /// The store was there and went away, or answers no more.
    #[error(
        "the store {store} was lost while a value was {verb}: {cause}; the process that holds it has probably ended"
    )]
    StoreLost {
        /// Which store.
        store: String,
        /// What was done, as in "was read".
        verb: &'static str,
        /// What the system says.
        cause: Arc<io::Error>,
    },
    /// The process of the store is alive but has closed the connection: it refused a request.
    #[error(
        "the store {store} closed the connection while a value was {verb}, and still serves: it refused this request or one \
         before it that has no answer, such as set; its limits or its log tell why"
    )]
    StoreRefused {
        /// Address of the store.
        store: String,
        /// Operation on the value, as in "was read".
        verb: &'static str,
    },
    /// The other side does not speak the protocol, or refuses the token.
    #[error("{peer} does not speak the store's protocol: {problem}")]
    Protocol {
        /// The other side.
        peer: String,
        /// What came instead.
        problem: String,
    },
    /// Values did not appear in time.
    #[error("waited {waited:.1?} for {}: nobody set {}", keys.join(", "), if keys.len() == 1 { "it" } else { "them" })]
    StoreTimeout {
        /// The keys that have no value yet.
        keys: Vec<String>,
        /// How long.
        waited: Duration,
    },
    /// A value of a store is not what was to be there.
    #[error("the value of '{key}' {problem}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong with the value.
        problem: String,
    },
    /// A store takes no more, by its limits.
    #[error("the store takes no more: {0}")]
    StoreFull(String),
    /// The file of a store is from an earlier run, or is no store.
    #[error("{} is not a fresh store: {problem}; remove it, or take another file for each run", path.display())]
    StaleFile {
        /// The file.
        path: PathBuf,
        /// How this is known.
        problem: String,
    },
    /// Some ranks did not come to the rendezvous.
    #[error("{}", missing_text(*rank, *world_size, missing, *joined, *waited))]
    RanksMissing {
        /// Who says so.
        rank: usize,
        /// How many ranks there are to be.
        world_size: usize,
        /// Those who did not say that they are there. A rank of PyTorch never says so, and is counted alone.
        missing: Vec<usize>,
        /// How many came.
        joined: usize,
        /// How long they were waited for.
        waited: Duration,
    },
    /// Ranks called different collectives.
    #[error("rank {rank} called {own}, but rank {other_rank} called {other}: {difference}")]
    Mismatch {
        /// Who says so.
        rank: usize,
        /// What that rank called.
        own: Box<Call>,
        /// Who called something else.
        other_rank: usize,
        /// What was called there.
        other: Box<Call>,
        /// In what the two differ.
        difference: String,
    },
    /// A collective did not end in time.
    #[error("{0}")]
    Timeout(Arc<Report>),
    /// A work is not done yet; it goes on.
    #[error("{call} of rank {rank} is not done after {waited:.1?}; it goes on")]
    NotDone {
        /// Who waits.
        rank: usize,
        /// For what.
        call: Box<Call>,
        /// How long.
        waited: Duration,
    },
    /// Another rank gave up, and this one with it.
    #[error("rank {by} gave up, and so does rank {rank}: {reason}")]
    Aborted {
        /// Who says so.
        rank: usize,
        /// Who gave up first.
        by: usize,
        /// What it said.
        reason: String,
    },
    /// The group was destroyed.
    #[error("the process group is destroyed")]
    Destroyed,
    /// A rank is none of those of a group.
    #[error("rank {rank} is not in the group of rank {}", Ranks(ranks))]
    NotInGroup {
        /// Who.
        rank: usize,
        /// Who is.
        ranks: Vec<usize>,
    },
    /// A rank was to give values of which some are NaN (`TORCH_NCCL_NAN_CHECK`).
    #[error("rank {rank} called {call}, and some of its values are NaN")]
    NotANumber {
        /// Who.
        rank: usize,
        /// What was called, and did not begin.
        call: Box<Call>,
    },
    /// What a backend cannot do.
    #[error("backend '{backend}' cannot do this: {problem}")]
    Unsupported {
        /// Which.
        backend: &'static str,
        /// What, and what can.
        problem: String,
    },
    /// A tensor's operation failed.
    #[error("{0}")]
    Tensor(Arc<aten_cuda::Error>),
}

impl From<aten_cuda::Error> for Error {
    fn from(error: aten_cuda::Error) -> Self {
        Self::Tensor(Arc::new(error))
    }
}

/// Converts a failed tensor operation to its own error, and any other error to an external one.
impl From<Error> for aten_cuda::Error {
    fn from(error: Error) -> Self {
        if let Error::Tensor(error) = error { Arc::unwrap_or_clone(error) } else { Self::external(error) }
    }
}

fn missing_text(rank: usize, world_size: usize, missing: &[usize], joined: usize, waited: Duration) -> String {
    let (noun, verb) = if missing.len() == 1 { ("rank", "is") } else { ("ranks", "are") };
    format!(
        "rank {rank} waited {waited:.1?} for {world_size} ranks, {joined} came: {noun} {} {verb} missing",
        Ranks(missing)
    )
}
