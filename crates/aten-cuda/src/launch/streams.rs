//! Streams that use memory besides the one that it was asked for on.
//!
//! **Invariant:** what a stream was told to use is not reused before the stream has come past the call.

use super::record;
use crate::base::error::Result;
use crate::tensor::Tensor;

impl Tensor {
    /// Marks the memory as used by a stream: it is not given to anybody else before the work that is queued there at
    /// the time of freeing is done (`record_stream`). Operations do this themselves.
    ///
    /// # Errors
    /// The stream is of another device or runtime, or the driver's error.
    pub fn record_stream(&self, stream: &c10_core::Stream) -> Result<()> {
        if self.is_cuda() && record::is_on() {
            let detail = vec![stream.stream_id().0.cast_unsigned(), u64::from(stream.device_index().unsigned_abs())];
            let own = stream.clone();
            let again = move |_: &[Self], inputs: &[Self]| inputs.iter().try_for_each(|used| used.record_stream(&own));
            return record::stream_call("record_stream", (&[], &[self]), detail, again).map(drop);
        }
        match (self.storage().buffer(), self.storage().pinned()) {
            (Some(buffer), _) => buffer.record_stream(stream)?,
            (_, Some(pinned)) => pinned.record_stream(stream)?,
            _ => {}
        }
        Ok(())
    }
}
