//! What moves values between ranks.
//!
//! Invariant: a backend decides nothing about time: the group's watch-dog does, and ends what is under way by `abort`.

pub(crate) mod store;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use aten_cuda::Tensor;

use crate::call::Call;
use crate::error::Result;

/// The tensors of a collective: what a rank gives and what it gets. In place they are the same.
#[derive(Debug, Clone)]
pub(crate) struct Operands {
    pub(crate) input: Tensor,
    pub(crate) output: Tensor,
}

/// Something that moves values between ranks. Collectives are begun in the order of their calls.
pub(crate) trait Backend: Send + Sync + Debug {
    /// Its name, as in `init_process_group`.
    fn name(&self) -> &'static str;

    /// Begins a collective, and comes back before it is done.
    fn begin(&self, call: &Call, operands: Option<Operands>) -> Result<Arc<dyn Pending>>;

    /// Ends whatever is under way, and never blocks for long.
    fn abort(&self);
}

/// A collective that is under way.
pub(crate) trait Pending: Send + Sync + Debug {
    /// Waits for its end, for at most so long; `None` where it has not come.
    fn outcome(&self, timeout: Duration) -> Option<Result<()>>;
}
