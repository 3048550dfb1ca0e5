//! What moves values between ranks.
//!
//! Invariant: a backend decides nothing about time: the group's watch-dog does, and ends what is under way by `abort`.

mod messages;
pub(crate) mod nccl;
pub(crate) mod store;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use aten_cuda::{Device, Tensor};

use crate::call::Call;
use crate::error::Result;

/// The tensors of a collective: what a rank gives and what it gets. In place they are the same; a barrier has none.
///
/// Where ranks give or get a tensor for each rank, there are as many as ranks, in their order; a rank that gives or gets
/// nothing has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operands {
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) outputs: Vec<Tensor>,
}

impl Operands {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs.iter().chain(&self.outputs)
    }
}

/// A message: what it is, from or to which rank, and its tensor.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) call: Call,
    pub(crate) tensor: Tensor,
}

/// Something that moves values between ranks. Collectives are begun in the order of their calls.
pub(crate) trait Backend: Send + Sync + Debug {
    /// Its name, as in `init_process_group`.
    fn name(&self) -> &'static str;

    /// Where tensors must be, where that is one device.
    fn device(&self) -> Option<Device>;

    /// Begins a collective, and comes back before it is done.
    fn begin(&self, call: &Call, operands: Operands) -> Result<Arc<dyn Pending>>;

    /// Begins messages together, so that none of them waits for another.
    fn exchange(&self, messages: Vec<Message>) -> Result<Vec<Arc<dyn Pending>>>;

    /// Ends whatever is under way, and never blocks for long.
    fn abort(&self);
}

/// A collective or a message that is under way.
pub(crate) trait Pending: Send + Sync + Debug {
    /// Waits for its end, for at most so long; `None` where it has not come.
    fn outcome(&self, timeout: Duration) -> Option<Result<()>>;

    /// Has the caller's current stream wait for it; false where only the host can.
    fn order(&self) -> Result<bool> {
        Ok(false)
    }

    /// Which rank a message came from, once it has.
    fn source(&self) -> Option<usize> {
        None
    }

    /// How long it took, once it is done and where that is measured.
    fn took(&self) -> Result<Option<Duration>> {
        Ok(None)
    }
}
