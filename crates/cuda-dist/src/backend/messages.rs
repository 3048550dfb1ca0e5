//! Messages of host tensors by way of a store.
//!
//! The sender writes the values and then what it called under a key that both ends know: from, to, tag, and the number of
//! the message among those. The receiver reads both and removes them. A thread, which begins with the first message, does so
//! for all that are under way, so that a message that does not come holds up no other.
//!
//! Invariants:
//! - Between two ranks, messages of one tag are received in the order in which they were sent.
//! - What a rank has sent and nobody has read is at most [`UNREAD_MAX`] and one message; then its messages wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use aten_cuda::Tensor;

use super::store::Progress;
use super::{Message, Pending};
use crate::call::{Call, Operation};
use crate::error::{Error, Result};
use crate::store::Store;

/// How long one waits for the next message that should come before looking at the others.
const PAUSE: Duration = Duration::from_millis(5);

/// How many bytes of a rank may lie in the store unread.
const UNREAD_MAX: usize = 1 << 20;

/// The end of a rank, from which its messages come and to which they go.
#[derive(Debug)]
pub(super) struct Messages {
    store: Arc<dyn Store>,
    rank: usize,
    size: usize,
    is_aborted: Arc<AtomicBool>,
    jobs: Mutex<Option<Sender<Job>>>,
}

#[derive(Debug)]
struct Job {
    message: Message,
    progress: Arc<Progress>,
}

impl Messages {
    /// An end that takes a connection of its own with its first message.
    pub(super) fn new(store: Arc<dyn Store>, rank: usize, size: usize, is_aborted: Arc<AtomicBool>) -> Self {
        Self { store, rank, size, is_aborted, jobs: Mutex::default() }
    }

    /// Begins messages.
    pub(super) fn begin(&self, messages: Vec<Message>) -> Result<Vec<Arc<dyn Pending>>> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.is_none() {
            *jobs = Some(self.start()?);
        }
        let Some(jobs) = jobs.as_ref() else { return Err(Error::Destroyed) };
        let begin = |message: Message| -> Result<Arc<dyn Pending>> {
            let progress = Arc::new(Progress::new());
            let job = Job { message, progress: Arc::clone(&progress) };
            jobs.send(job).map_err(|_| Error::Destroyed)?;
            Ok(progress)
        };
        messages.into_iter().map(begin).collect()
    }

    fn start(&self) -> Result<Sender<Job>> {
        let (jobs, queue) = channel();
        let post = Post {
            store: self.store.duplicate()?,
            rank: self.rank,
            size: self.size,
            is_aborted: Arc::clone(&self.is_aborted),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            unread: VecDeque::new(),
            waiting: Vec::new(),
        };
        let spawned = thread::Builder::new().name("dist-messages".to_owned()).spawn(move || post.work(&queue));
        spawned.map_err(|cause| Error::Argument(format!("no thread for messages: {cause}")))?;
        Ok(jobs)
    }
}

/// A rank at the other end, and a tag.
type Line = (usize, u64);

/// What the thread knows.
struct Post {
    store: Arc<dyn Store>,
    rank: usize,
    size: usize,
    is_aborted: Arc<AtomicBool>,
    /// How many messages went to a rank, or came from it.
    sent: BTreeMap<Line, u64>,
    received: BTreeMap<Line, u64>,
    /// What was sent and may not have been read yet.
    unread: VecDeque<(String, usize)>,
    waiting: Vec<Job>,
}

/// What may not be looked at any more in one look over what waits: an earlier message goes first.
#[derive(Default)]
struct Behind {
    sending: bool,
    receiving: BTreeSet<Line>,
}

impl Post {
    fn work(mut self, queue: &Receiver<Job>) {
        loop {
            if self.waiting.is_empty() {
                let Ok(job) = queue.recv() else { return };
                self.waiting.push(job);
            }
            self.waiting.extend(queue.try_iter());
            if self.is_aborted.load(Ordering::Acquire) {
                self.waiting.drain(..).for_each(|job| job.progress.end(Err(Error::Destroyed), None));
            } else if !self.look() {
                self.pause();
            }
        }
    }

    /// Looks at each message once; whether one was done.
    fn look(&mut self) -> bool {
        let mut behind = Behind::default();
        let mut still = Vec::new();
        let before = self.waiting.len();
        for job in std::mem::take(&mut self.waiting) {
            let is_send = job.message.call.operation == Operation::Send;
            let done =
                if is_send { self.send(&job.message, &mut behind) } else { self.receive(&job.message, &mut behind) };
            match done {
                Ok(None) => still.push(job),
                Ok(Some(source)) => job.progress.end(Ok(()), Some(source)),
                Err(error) => job.progress.end(Err(error), None),
            }
        }
        self.waiting = still;
        self.waiting.len() < before
    }

    /// Waits for the message that should come first, or a moment.
    fn pause(&self) {
        let next = self.waiting.iter().find(|job| job.message.call.operation == Operation::Recv);
        let key = next.and_then(|job| {
            let call = &job.message.call;
            let from = call.peer?;
            let number = self.received.get(&(from, call.tag)).copied().unwrap_or(0);
            Some(key(from, self.rank, call.tag, number))
        });
        match key {
            // A store that is lost is found by the next look.
            Some(key) => drop(self.store.wait(&[&key], PAUSE)),
            None => thread::sleep(PAUSE / 5),
        }
    }

    /// Sends a message, unless too much is unread.
    fn send(&mut self, message: &Message, behind: &mut Behind) -> Result<Option<usize>> {
        let (to, tag) = (message.call.peer.unwrap_or(0), message.call.tag);
        let bytes = message.tensor.nbytes();
        while !behind.sending && self.unread.iter().map(|(_, bytes)| bytes).sum::<usize>() + bytes > UNREAD_MAX {
            let Some((oldest, _)) = self.unread.front() else { break };
            if self.store.check(&[oldest])? {
                behind.sending = true;
            } else {
                self.unread.pop_front();
            }
        }
        if behind.sending {
            return Ok(None);
        }
        let number = self.sent.entry((to, tag)).or_insert(0);
        let key = key(self.rank, to, tag, *number);
        self.store.set(&values_key(&key), &message.tensor.to_bytes()?)?;
        self.store.set(&key, message.call.to_line().as_bytes())?;
        *number += 1;
        self.unread.push_back((key, bytes));
        Ok(Some(to))
    }

    /// Receives a message where it is there.
    fn receive(&mut self, message: &Message, behind: &mut Behind) -> Result<Option<usize>> {
        let tag = message.call.tag;
        let others = match message.call.peer {
            Some(from) => from..from + 1,
            None => 0..self.size,
        };
        for from in others.filter(|from| *from != self.rank) {
            if behind.receiving.contains(&(from, tag)) {
                continue;
            }
            let number = self.received.get(&(from, tag)).copied().unwrap_or(0);
            let key = key(from, self.rank, tag, number);
            if self.store.check(&[&key])? {
                self.received.insert((from, tag), number + 1);
                self.take(&key, from, message)?;
                return Ok(Some(from));
            }
            behind.receiving.insert((from, tag));
        }
        Ok(None)
    }

    /// Reads a message that is there, and removes it.
    fn take(&self, key: &str, from: usize, message: &Message) -> Result<()> {
        let line = self.store.get(key, PAUSE)?;
        let values = self.store.get(&values_key(key), PAUSE)?;
        self.store.delete_key(&values_key(key))?;
        self.store.delete_key(key)?;
        let line = String::from_utf8_lossy(&line);
        let problem = || format!("is '{}', which is no message", line.escape_debug());
        let other = Call::from_line(&line)
            .filter(|call| call.operation == Operation::Send)
            .ok_or_else(|| Error::Value { key: key.to_owned(), problem: problem() })?;
        let (own, tensor) = (&message.call, &message.tensor);
        if other.dtype != own.dtype || values.len() != tensor.nbytes() {
            let difference = format!("{} bytes came for {}", values.len(), tensor.nbytes());
            let difference = Call { operation: own.operation, ..other.clone() }.difference(own).unwrap_or(difference);
            let (own, other) = (Box::new(own.clone()), Box::new(other));
            return Err(Error::Mismatch { rank: self.rank, own, other_rank: from, other, difference });
        }
        tensor.copy_(&Tensor::from_bytes(&values, tensor.sizes(), tensor.dtype())?)?;
        Ok(())
    }
}

fn key(from: usize, to: usize, tag: u64, number: u64) -> String {
    format!("cuda_dist/message/{from}/{to}/{tag}/{number}")
}

fn values_key(key: &str) -> String {
    format!("{key}/values")
}
