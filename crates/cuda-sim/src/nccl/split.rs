//! Communicators made from others: parts of the ranks by colours, and all ranks but some.
//!
//! Ranks that split meet twice: all of them, where each tells its colour and key, and then those of each colour. Both
//! meetings have identities that follow from the parent's, so that ranks of several processes find each other.
//!
//! **Invariant:** where a new communicator is to be written nothing is written before it is made.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use cuda_sys::nccl::types::{
    NCCL_REVOKE_DEFAULT, NCCL_SHRINK_ABORT, NCCL_SPLIT_NOCOLOR, ncclComm, ncclComm_t, ncclConfig_t,
};
use cuda_sys::ncclResult_t;

use super::arithmetic::{Kind, Op};
use super::comms::{Comm, Newcomer, Setting};
use super::exchange::{Asked, Failure, Outcome, What};
use super::hub::Identity;
use super::{Answer, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, SYSTEM};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::model::State;

/// What one rank tells the others: its colour and its key.
const TOLD: Asked = Asked { what: What::AllGather, count: 2, kind: Kind::I32, op: Op::Sum };

/// A communicator that is being made from another.
#[derive(Clone, Debug)]
pub(super) struct Making {
    /// Where the program wants it.
    slot: u64,
    color: i32,
    key: i32,
    /// The identity of the first meeting, from which that of the second follows.
    identity: Identity,
    setting: Setting,
    step: Step,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// All ranks come to the first meeting, by this communicator.
    Meeting(u64),
    /// They tell each other by this batch.
    Telling(u64, u64),
    /// Those of one colour come to the second, by the communicator that is to be given out.
    Joining(u64),
}

/// An identity that follows from another, for the machine that has made that.
fn derived(from: &Identity, what: impl Hash) -> Identity {
    let mut hasher = DefaultHasher::new();
    (from, what).hash(&mut hasher);
    let text = String::from_utf8_lossy(from);
    let mut words = text.trim_end_matches('\0').split(' ');
    let (name, machine) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let text = format!("{name} {machine} {:x}", hasher.finish());
    let mut identity = [0; 128];
    identity[..text.len()].copy_from_slice(text.as_bytes());
    identity
}

/// The place of a rank among those of its colour, and how many they are.
fn place(told: &[u8], rank: usize) -> (usize, usize) {
    let number = |at: usize| told.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_le_bytes);
    let of = |rank: usize| (number(rank * 8), number(rank * 8 + 4));
    let (color, key) = of(rank);
    let others = (0..told.len() / 8).filter(|&other| of(other).0 == color);
    let before = others.clone().filter(|&other| (of(other).1, other) < (key, rank)).count();
    (before, others.count())
}

pub(super) fn split(
    call: &mut Call<'_>,
    given: Ptr<ncclComm>,
    color: i32,
    key: i32,
    slot: Ptr<ncclComm_t>,
    config: Ptr<ncclConfig_t>,
) -> Answer {
    call.seat(given)?;
    slot.write(handle(0)).map_err(|_| INVALID_ARGUMENT)?;
    if color < 0 && color != NCCL_SPLIT_NOCOLOR {
        return Err(call.refuse(INVALID_ARGUMENT, format!("{color} is no colour")));
    }
    let setting = call.setting(config, Some(given))?;
    let parent = call.comm(given)?;
    parent.made += 1;
    let identity = derived(&parent.identity, parent.made);
    let (rank, ranks, context) = (parent.rank, parent.ranks, parent.context);
    let new = Newcomer::of((rank, ranks), identity, context, setting);
    let meeting = call.join(&new)?;
    let making = Making { slot: slot.expose(), color, key, identity, setting, step: Step::Meeting(meeting) };
    call.make(given, making)
}

pub(super) fn shrink(
    call: &mut Call<'_>,
    given: Ptr<ncclComm>,
    without: Ptr<i32>,
    count: i32,
    slot: Ptr<ncclComm_t>,
    config: Ptr<ncclConfig_t>,
    flags: i32,
) -> Answer {
    let aborts = flags.cast_unsigned() & NCCL_SHRINK_ABORT != 0;
    if aborts {
        call.end_work(given)?;
    } else {
        call.seat(given)?;
    }
    slot.write(handle(0)).map_err(|_| INVALID_ARGUMENT)?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0);
    let Some(count) = count else { return Err(call.refuse(INVALID_ARGUMENT, "no rank is left out")) };
    let without = without.read_array(count).map_err(|_| INVALID_ARGUMENT)?;
    let setting = call.setting(config, Some(given))?;
    let parent = call.comm(given)?;
    let is_left = |rank: usize| !without.iter().any(|&other| usize::try_from(other) == Ok(rank));
    let left: Vec<usize> = (0..parent.ranks).filter(|&rank| is_left(rank)).collect();
    let (own, context) = (parent.rank, parent.context);
    let Some(rank) = left.iter().position(|&rank| rank == own) else {
        return Err(call.refuse(INVALID_ARGUMENT, format!("rank {own} leaves itself out")));
    };
    let identity = derived(&parent.identity, ("without", &left));
    let new = Newcomer::of((rank, left.len()), identity, context, setting);
    let step = Step::Joining(call.join(&new)?);
    call.make(given, Making { slot: slot.expose(), color: 0, key: 0, identity, setting, step })
}

/// Lets go of the work of a communicator, and of calls that wait for its ranks. Nothing is given back.
pub(super) fn revoke(call: &mut Call<'_>, given: Ptr<ncclComm>, flags: i32) -> Answer {
    if flags.cast_unsigned() != NCCL_REVOKE_DEFAULT {
        return Err(call.refuse(INVALID_ARGUMENT, format!("there are no flags {flags}")));
    }
    call.interrupt(given.address());
    call.end_work(given)
}

impl State {
    /// Has calls that wait with a communicator, or with those that share its means, return.
    pub(super) fn interrupt(&mut self, key: u64) {
        for (&other, comm) in &mut self.nccl.comms {
            if other == key || comm.shares == Some(key) {
                comm.is_interrupted = true;
            }
        }
        self.wake_waiting();
    }

    /// Takes what is being made further, as far as it comes; whether all of a communicator's is done. Ranks of one thread
    /// depend on each other's steps.
    pub(super) fn advance(&mut self, key: u64) -> bool {
        let makes = |comm: &Comm| !comm.making.is_empty();
        let all: Vec<u64> = self.nccl.comms.iter().filter(|(_, comm)| makes(comm)).map(|(key, _)| *key).collect();
        all.into_iter().for_each(|key| self.advance_those_of(key));
        self.nccl.comms.get(&key).is_none_or(|comm| !makes(comm))
    }

    fn advance_those_of(&mut self, key: u64) {
        let Some(comm) = self.nccl.comms.get_mut(&key) else { return };
        let mut open = std::mem::take(&mut comm.making);
        let mut failure = comm.is_interrupted.then(|| Failure {
            status: ncclResult_t::ncclInternalError,
            text: "the call was interrupted by another thread".to_owned(),
        });
        let rank = comm.rank;
        let mut left = Vec::new();
        for mut making in open.drain(..) {
            match failure.clone().map_or_else(|| self.advance_one(rank, &mut making), Err) {
                Ok(true) => {}
                Ok(false) => left.push(making),
                Err(found) => {
                    self.forget(&making);
                    failure.get_or_insert(found);
                }
            }
        }
        let Some(comm) = self.nccl.comms.get_mut(&key) else { return };
        comm.making = left;
        comm.failed_making = comm.failed_making.take().or(failure);
    }

    fn advance_one(&mut self, rank: usize, making: &mut Making) -> Result<bool, Failure> {
        if let Step::Meeting(meeting) = making.step {
            let Some(seat) = self.seat_if_ready(meeting)? else { return Ok(false) };
            let told = [making.color.to_le_bytes(), making.key.to_le_bytes()].concat();
            making.step = Step::Telling(meeting, seat.bring(vec![(TOLD, told)]));
        }
        if let Step::Telling(meeting, batch) = making.step {
            let Some(seat) = self.seat_if_ready(meeting)? else { return Ok(false) };
            let told = match seat.outcome(batch, self.config.nccl_timeout) {
                Outcome::Waiting => return Ok(false),
                Outcome::Failed(failure) => return Err(failure),
                Outcome::Done(told) => told.into_iter().next().unwrap_or_default(),
            };
            let context = self.nccl.comms.get(&meeting).map_or(0, |comm| comm.context);
            self.remove_comm(meeting, "has split");
            if making.color == NCCL_SPLIT_NOCOLOR {
                return Ok(true);
            }
            let identity = derived(&making.identity, making.color);
            let joined = self.join(&Newcomer::of(place(&told, rank), identity, context, making.setting));
            let refused = |status| Failure { status, text: self.nccl.last_error.clone() };
            making.step = Step::Joining(joined.map_err(refused)?);
        }
        let Step::Joining(child) = making.step else { return Ok(false) };
        if self.seat_if_ready(child)?.is_none() {
            return Ok(false);
        }
        let refused = |_| Failure { status: INVALID_USAGE, text: "nothing can be written there".to_owned() };
        Ptr::<ncclComm_t>::from_exposed(making.slot).write(handle(child)).map_err(refused)?;
        Ok(true)
    }

    /// Takes away what was made on the way.
    pub(super) fn forget(&mut self, making: &Making) {
        let (Step::Meeting(key) | Step::Telling(key, _) | Step::Joining(key)) = making.step;
        self.remove_comm(key, "has given up");
    }
}

impl Call<'_> {
    /// Begins to make a communicator, and waits unless the parent is not to wait or the thread is in a group.
    fn make(&mut self, given: Ptr<ncclComm>, making: Making) -> Answer {
        let key = given.address();
        let is_blocking = {
            let parent = self.comm(given)?;
            parent.making.push(making);
            parent.is_blocking
        };
        if let Some(group) = self.open_group() {
            group.making.push(key);
            return Ok(());
        }
        if is_blocking { self.finish_making(key) } else { Err(IN_PROGRESS) }
    }

    /// Waits until all is made that a communicator makes.
    pub(super) fn finish_making(&mut self, key: u64) -> Answer {
        let (begun, patience) = (Instant::now(), self.config.nccl_timeout);
        while !self.advance(key) {
            if begun.elapsed() > patience {
                let left = self.nccl.comms.get_mut(&key).map(|comm| std::mem::take(&mut comm.making));
                left.iter().flatten().for_each(|making| self.forget(making));
                let text = format!("after {} ms not all ranks have come to make a communicator", patience.as_millis());
                return Err(self.refuse(SYSTEM, text));
            }
            // Ranks of other processes do not wake this one.
            let asked = Instant::now();
            self.wait_until(|_| asked.elapsed() > super::comms::ASK_AGAIN);
        }
        let Some(comm) = self.nccl.comms.get_mut(&key) else {
            return Err(self.refuse(ncclResult_t::ncclInternalError, "the communicator was aborted by another thread"));
        };
        let failed = comm.failed_making.take();
        failed.map_or(Ok(()), |failure| Err(self.refuse(failure.status, failure.text)))
    }

    /// Ends the work of a communicator, which others then wait for in vain.
    fn end_work(&mut self, given: Ptr<ncclComm>) -> Answer {
        let pending = self.comm(given)?.pending.clone();
        if let Some(seat) = self.comm(given)?.any_seat() {
            seat.fail(ncclResult_t::ncclRemoteError, "the work was aborted");
        }
        self.wake_waiting();
        self.wait_until(|state| !pending.iter().any(|&op| state.is_parked(op)));
        Ok(())
    }
}
