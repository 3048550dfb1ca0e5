//! Messages: what two ranks of a group call, and not all.
//!
//! Invariant: messages are counted apart from collectives, so that ranks that send none stay in step.

use std::sync::{Arc, PoisonError};

use aten_cuda::Tensor;

use super::{ProcessGroup, Work};
use crate::backend::{Message, Operands};
use crate::call::{Call, Operation};
use crate::error::{Error, Result};

/// A message that begins together with others: torch's `P2POp`.
///
/// ```
/// use aten_cuda::{DType, Tensor};
/// use cuda_dist::P2POp;
///
/// let tensor = Tensor::zeros(&[3], DType::F32, "cpu")?;
/// let messages = [P2POp::isend(&tensor, 1).with_tag(7), P2POp::irecv(&tensor, 1).with_tag(7)];
/// assert!(messages[0].is_send() && !messages[1].is_send());
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct P2POp {
    operation: Operation,
    tensor: Tensor,
    peer: Option<usize>,
    tag: u64,
}

impl P2POp {
    /// Sends a tensor to a rank of the group.
    #[must_use]
    pub fn isend(tensor: &Tensor, to: usize) -> Self {
        Self { operation: Operation::Send, tensor: tensor.clone(), peer: Some(to), tag: 0 }
    }

    /// Receives a tensor from a rank of the group.
    #[must_use]
    pub fn irecv(tensor: &Tensor, from: usize) -> Self {
        Self { operation: Operation::Recv, tensor: tensor.clone(), peer: Some(from), tag: 0 }
    }

    /// The same with a tag.
    #[must_use]
    pub fn with_tag(self, tag: u64) -> Self {
        Self { tag, ..self }
    }

    /// Whether it sends.
    #[must_use]
    pub fn is_send(&self) -> bool {
        self.operation == Operation::Send
    }
}

impl ProcessGroup {
    /// Sends a tensor to a rank, which receives one of as many elements and the same dtype, and waits as [`Work::wait`] does.
    /// Messages between two ranks that have the same tag come in their order; only the backend `store` has tags.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use std::sync::Arc;
    ///
    /// use aten_cuda::{DType, Tensor};
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
    ///
    /// let store = HashStore::new();
    /// let group = |rank, store: HashStore| {
    ///     ProcessGroup::with_store(Arc::new(store), rank, 2, &InitOptions::default())
    /// };
    /// let other = std::thread::spawn({
    ///     let store = store.clone();
    ///     move || group(1, store)?.send(&Tensor::from_slice(&[1.0_f32, 2.0], &[2])?, 0, 7)
    /// });
    /// let tensor = Tensor::zeros(&[2], DType::F32, "cpu")?;
    /// assert_eq!(group(0, store)?.recv(&tensor, None, 7)?, 1);
    /// assert_eq!(tensor.to_vec::<f32>()?, [1.0, 2.0]);
    /// other.join().unwrap()?;
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no such rank, or it is this one; the backend does not take the tensor or the tag; the group was given up;
    /// the message failed or was not received in time.
    pub fn send(&self, tensor: &Tensor, to: usize, tag: u64) -> Result<()> {
        self.isend(tensor, to, tag)?.wait()
    }

    /// Receives a tensor from a rank, or with `None` from any (not by NCCL), and waits as [`Work::wait`] does; from which it
    /// came.
    ///
    /// # Errors
    /// As [`Self::send`]; the message has another dtype or length.
    pub fn recv(&self, tensor: &Tensor, from: Option<usize>, tag: u64) -> Result<usize> {
        let work = self.irecv(tensor, from, tag)?;
        work.wait()?;
        Ok(work.source_rank().or(from).unwrap_or_default())
    }

    /// Begins to send a tensor, which stays as it is until the work is done. On the backend `store` that is when the message
    /// lies in the store, where 1 MiB of a rank or one message may lie unread.
    ///
    /// By NCCL, messages are done one after the other: two ranks that send to each other do so by
    /// [`Self::batch_isend_irecv`].
    ///
    /// # Errors
    /// As [`Self::send`], but for what happens later, which is in the work.
    pub fn isend(&self, tensor: &Tensor, to: usize, tag: u64) -> Result<Work> {
        self.begin_message(P2POp::isend(tensor, to).with_tag(tag))
    }

    /// Begins to receive a tensor from a rank, or with `None` from any (not by NCCL).
    ///
    /// # Errors
    /// As [`Self::isend`].
    pub fn irecv(&self, tensor: &Tensor, from: Option<usize>, tag: u64) -> Result<Work> {
        self.begin_message(P2POp { peer: from, ..P2POp::irecv(tensor, 0).with_tag(tag) })
    }

    fn begin_message(&self, message: P2POp) -> Result<Work> {
        let works = self.batch_isend_irecv(&[message])?;
        works.into_iter().next().ok_or(Error::Destroyed)
    }

    /// Begins several messages together, so that none of them waits for another.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use std::sync::Arc;
    ///
    /// use aten_cuda::{DType, Tensor};
    /// use cuda_dist::{HashStore, InitOptions, P2POp, ProcessGroup};
    ///
    /// // Each of two ranks gives the other its number.
    /// let store = HashStore::new();
    /// let rank = |rank: usize, store: HashStore| {
    ///     let group = ProcessGroup::with_store(Arc::new(store), rank, 2, &InitOptions::default())?;
    ///     let (own, other) = (Tensor::from_slice(&[rank as i64], &[1])?, Tensor::zeros(&[1], DType::I64, "cpu")?);
    ///     let works = group.batch_isend_irecv(&[P2POp::isend(&own, 1 - rank), P2POp::irecv(&other, 1 - rank)])?;
    ///     works.iter().try_for_each(|work| work.wait())?;
    ///     Ok::<_, cuda_dist::Error>(other.to_vec::<i64>()?)
    /// };
    /// let other = std::thread::spawn({ let store = store.clone(); move || rank(1, store) });
    /// assert_eq!(rank(0, store)?, [1]);
    /// assert_eq!(other.join().unwrap()?, [0]);
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::isend`]; none of them has begun then.
    pub fn batch_isend_irecv(&self, messages: &[P2POp]) -> Result<Vec<Work>> {
        self.check_given_up()?;
        let mut begun = messages.iter().map(|message| self.message(message)).collect::<Result<Vec<_>>>()?;
        if begun.is_empty() {
            return Ok(Vec::new());
        }
        let _turn = self.inner.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let first = self.inner.state().messages_called + 1;
        for (message, number) in begun.iter_mut().zip(first..) {
            message.call.sequence = number;
        }
        let pending = self.watched(&begun[0].call, || self.inner.backend.exchange(begun.clone()));
        let mut state = self.inner.state();
        state.beginning = None;
        let pending = pending?;
        let mut works = Vec::with_capacity(begun.len());
        for (Message { call, tensor }, pending) in begun.into_iter().zip(pending) {
            state.messages_called += 1;
            let operands = Operands { inputs: vec![tensor.clone()], outputs: vec![tensor] };
            let number = self.record(&state, &call, &operands);
            let shared = Arc::new(self.shared(call, number, pending));
            state.messages.push(Arc::clone(&shared));
            works.push(shared);
        }
        drop(state);
        Ok(works.into_iter().map(|shared| self.hand_out(shared)).collect())
    }

    fn message(&self, message: &P2POp) -> Result<Message> {
        if let Some(peer) = message.peer {
            self.check_rank(peer)?;
            if peer == self.rank() {
                return Err(Error::Argument(format!("rank {peer} cannot exchange a message with itself")));
            }
        }
        let tensor = message.tensor.clone();
        let call = Call::new(message.operation).of(tensor.dtype(), tensor.sizes()).between(message.peer, message.tag);
        if message.is_send() {
            self.check_numbers(&call, std::slice::from_ref(&tensor))?;
        }
        Ok(Message { call, tensor })
    }
}
