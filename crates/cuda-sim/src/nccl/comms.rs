//! Communicators: how they are made by ranks that meet, what they tell, and how they end.
//!
//! Invariants: a communicator that was joined has a seat; one that is gone has left where its ranks meet. The handle of a
//! communicator is never given out again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cuda_sys::nccl::types::{ncclComm, ncclComm_t, ncclConfig_t, ncclUniqueId};
use cuda_sys::ncclResult_t;

use super::exchange::{Exchange, Failure};
use super::hub::{self, Connection, Identity};
use super::seat::Seat;
use super::split::Making;
use super::{Answer, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, SYSTEM, UNHANDLED};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::model::State;
use crate::model::engine::OpId;
use crate::report::ReportKind;

/// Stands for the socket in identities that never leave their machine.
const LOCAL: &str = "local";

/// How often a rank that waits for others looks whether they have come from other processes.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(1);

/// What marks a configuration as one.
const MAGIC: u32 = 0xcafe_beef;

/// Where ranks that have the same unique identity come together.
#[derive(Debug)]
pub(crate) struct Meeting {
    ranks: usize,
    /// Communicators that have come, by rank.
    came: BTreeMap<usize, u64>,
}

/// How far a communicator is.
#[derive(Clone, Debug)]
enum Stage {
    /// It waits for other ranks at a meeting.
    Joining(Identity),
    /// It has a seat; one in another process may wait for other ranks.
    Ready(Arc<Seat>),
    /// The ranks could not come together.
    Refused(Failure),
    /// It was finalized: its work goes on to the end, and nothing is added.
    Final(Arc<Seat>),
}

/// A communicator.
#[derive(Clone, Debug)]
pub(crate) struct Comm {
    stage: Stage,
    pub(super) ranks: usize,
    pub(super) rank: usize,
    pub(super) device: u32,
    pub(super) context: u64,
    /// Whether it retains the primary context of its device.
    retains: bool,
    pub(super) is_blocking: bool,
    pub(super) identity: Identity,
    /// Communicators that are being made from this one, how many were, and what failed of that.
    pub(super) making: Vec<Making>,
    pub(super) made: u64,
    pub(super) failed_making: Option<Failure>,
    /// Whether communicators that are split off share its means.
    gives_share: bool,
    /// The communicator whose means it shares.
    pub(super) shares: Option<u64>,
    /// A call that waits is to return.
    pub(super) is_interrupted: bool,
    /// Its work that is not known to be done.
    pub(super) pending: Vec<OpId>,
    /// The stream that its last work is on.
    pub(super) stream: Option<u64>,
    /// Factors of its own sums, by number.
    pub(super) factors: BTreeMap<u32, f64>,
    /// Buffers that were registered: address and bytes, by handle.
    pub(super) registered: BTreeMap<u64, (u64, u64)>,
}

/// What a configuration says, as far as it is simulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    is_blocking: bool,
    gives_share: bool,
    shares: Option<u64>,
}

/// Who comes to a meeting.
pub(super) struct Newcomer {
    ranks: i32,
    rank: i32,
    identity: Identity,
    context: u64,
    retains: bool,
    setting: Setting,
}

impl Newcomer {
    /// A rank of several in a context.
    pub(super) fn of((rank, ranks): (usize, usize), identity: Identity, context: u64, setting: Setting) -> Self {
        let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        Self { ranks: number(ranks), rank: number(rank), identity, context, retains: false, setting }
    }
}

impl Comm {
    /// Where its ranks meet, if it has come so far.
    pub(super) fn any_seat(&self) -> Option<Arc<Seat>> {
        match &self.stage {
            Stage::Ready(seat) | Stage::Final(seat) => Some(Arc::clone(seat)),
            Stage::Joining(_) | Stage::Refused(_) => None,
        }
    }
}

pub(super) fn unique_id(call: &mut Call<'_>, id: Ptr<ncclUniqueId>) -> Answer {
    id.required().map_err(|_| INVALID_ARGUMENT)?;
    let Some(name) = hub::name() else {
        return Err(call.refuse(SYSTEM, "no socket can be made for ranks of other processes"));
    };
    let internal = call.new_identity(name).map(u8::cast_signed);
    id.write(ncclUniqueId { internal }).map_err(|_| INVALID_ARGUMENT)
}

impl State {
    /// An identity that no other machine gives out: the name of the socket behind which ranks meet, the machine, a number.
    fn new_identity(&mut self, name: &str) -> Identity {
        self.nccl.identities += 1;
        let text = format!("{name} {:x} {}", self.address(), self.nccl.identities);
        let mut identity = [0; 128];
        identity[..text.len()].copy_from_slice(text.as_bytes());
        identity
    }

    /// What tells this machine from others of its process.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The name of the socket behind which ranks of an identity meet that another machine has made.
    fn elsewhere(&self, identity: &Identity) -> Option<String> {
        let text = std::str::from_utf8(identity).ok()?.trim_end_matches('\0');
        let (name, rest) = text.split_once(' ')?;
        let (machine, _) = rest.split_once(' ')?;
        let is_own = machine == format!("{:x}", self.address()) && (name == LOCAL || Some(name) == hub::name());
        (!is_own).then(|| name.to_owned())
    }

    /// The communicator of a handle.
    pub(super) fn comm(&mut self, given: Ptr<ncclComm>) -> Answer<&mut Comm> {
        let key = given.address();
        if !self.nccl.comms.contains_key(&key) {
            if !given.is_null() {
                let text = format!("{key:#x} is no communicator, or is gone");
                self.report(ReportKind::LibraryHandle, text);
            }
            self.nccl.last_error = format!("{key:#x} is no communicator");
            return Err(INVALID_ARGUMENT);
        }
        self.nccl.comms.get_mut(&key).ok_or(INVALID_ARGUMENT)
    }

    /// Lets a rank come to the meeting of its identity; all have come when it is the last.
    pub(super) fn join(&mut self, new: &Newcomer) -> Answer<u64> {
        let ranks = usize::try_from(new.ranks).ok().filter(|ranks| *ranks > 0);
        let rank = usize::try_from(new.rank).ok().filter(|rank| ranks.is_some_and(|ranks| *rank < ranks));
        let (Some(ranks), Some(rank)) = (ranks, rank) else {
            self.nccl.last_error = format!("rank {} of {} ranks is out of range", new.rank, new.ranks);
            return Err(INVALID_ARGUMENT);
        };
        let device = self.usable_context(new.context).map_err(|_| UNHANDLED)?.device;
        let elsewhere = self.elsewhere(&new.identity);
        let stage = match &elsewhere {
            Some(name) => Stage::Ready(Arc::new(self.reach(name, &new.identity, ranks, rank)?)),
            None => {
                self.check_meeting(new, ranks, rank, device)?;
                Stage::Joining(new.identity)
            }
        };
        let key = self.new_handle();
        let comm = Comm {
            stage,
            ranks,
            rank,
            device,
            context: new.context,
            retains: new.retains,
            is_blocking: new.setting.is_blocking,
            identity: new.identity,
            making: Vec::new(),
            made: 0,
            failed_making: None,
            gives_share: new.setting.gives_share,
            shares: new.setting.shares,
            is_interrupted: false,
            pending: Vec::new(),
            stream: None,
            factors: BTreeMap::new(),
            registered: BTreeMap::new(),
        };
        self.nccl.comms.insert(key, comm);
        if elsewhere.is_none() {
            let new_meeting = || Meeting { ranks, came: BTreeMap::new() };
            let meeting = self.nccl.meetings.entry(new.identity).or_insert_with(new_meeting);
            meeting.came.insert(rank, key);
            self.try_to_begin(key);
        }
        Ok(key)
    }

    /// A seat in the process that made an identity.
    fn reach(&mut self, name: &str, identity: &Identity, ranks: usize, rank: usize) -> Answer<Seat> {
        let reached = Connection::new(name, identity, ranks, rank);
        reached.map(Seat::There).map_err(|failure| {
            self.nccl.last_error = failure.text;
            failure.status
        })
    }

    /// Begins if all ranks of the meeting that a communicator waits at have come, here and from other processes.
    fn try_to_begin(&mut self, key: u64) {
        let Some(Stage::Joining(identity)) = self.nccl.comms.get(&key).map(|comm| comm.stage.clone()) else { return };
        let Some(meeting) = self.nccl.meetings.get(&identity) else { return };
        let own: Vec<usize> = meeting.came.keys().copied().collect();
        match hub::others(&identity, meeting.ranks, &own) {
            Ok(others) if own.len() + others == meeting.ranks => self.begin(&identity, others > 0),
            Ok(_) => {}
            Err(text) => self.refuse_meeting(&identity, &Failure { status: INVALID_USAGE, text }),
        }
    }

    /// Refuses who does not fit those that have come.
    fn check_meeting(&mut self, new: &Newcomer, ranks: usize, rank: usize, device: u32) -> Answer {
        let Some(meeting) = self.nccl.meetings.get(&new.identity) else { return Ok(()) };
        let same_device =
            |(_, key): &(&usize, &u64)| self.nccl.comms.get(key).is_some_and(|comm| comm.device == device);
        let wrong = if meeting.ranks != ranks {
            format!("rank {rank} says that there are {ranks} ranks, others say {}", meeting.ranks)
        } else if meeting.came.contains_key(&rank) {
            format!("there are two ranks {rank}")
        } else if let Some((other, _)) = meeting.came.iter().find(same_device) {
            format!("rank {other} and rank {rank} are both on device {device}")
        } else {
            return Ok(());
        };
        self.nccl.last_error = wrong;
        Err(INVALID_USAGE)
    }

    /// All ranks of a meeting have come.
    fn begin(&mut self, identity: &Identity, has_others: bool) {
        let Some(meeting) = self.nccl.meetings.remove(identity) else { return };
        let exchange = Arc::new(Mutex::new(Exchange::new(meeting.ranks)));
        if has_others {
            hub::begin(identity, &exchange);
        }
        for (rank, key) in meeting.came {
            if let Some(comm) = self.nccl.comms.get_mut(&key) {
                let exchange = Arc::clone(&exchange);
                comm.stage = Stage::Ready(Arc::new(Seat::Here { exchange, rank, has_others }));
            }
        }
    }

    /// Ends the waiting of a communicator for other ranks, and of all who wait at the same meeting.
    fn give_up(&mut self, key: u64, after_ms: u128) {
        let Some(comm) = self.nccl.comms.get_mut(&key) else { return };
        let ranks = comm.ranks;
        match comm.stage.clone() {
            Stage::Joining(identity) => {
                let Some(meeting) = self.nccl.meetings.get(&identity) else { return };
                let missing = (0..ranks).filter(|rank| !meeting.came.contains_key(rank)).map(|rank| rank.to_string());
                let missing = missing.collect::<Vec<_>>().join(", ");
                let text = format!("after {after_ms} ms these of {ranks} ranks have not come: {missing}");
                self.refuse_meeting(&identity, &Failure { status: SYSTEM, text });
            }
            Stage::Ready(seat) => {
                seat.leave("has given up");
                let text = format!("after {after_ms} ms not all of {ranks} ranks have come");
                comm.stage = Stage::Refused(Failure { status: SYSTEM, text });
            }
            Stage::Refused(_) | Stage::Final(_) => {}
        }
    }

    /// Refuses all who wait at a meeting.
    fn refuse_meeting(&mut self, identity: &Identity, failure: &Failure) {
        let Some(meeting) = self.nccl.meetings.remove(identity) else { return };
        for key in meeting.came.values() {
            if let Some(comm) = self.nccl.comms.get_mut(key) {
                comm.stage = Stage::Refused(failure.clone());
            }
        }
    }

    /// How a communicator is: ready, in progress, or what has failed.
    fn standing(&self, key: u64) -> Result<(), Failure> {
        let progress = || Failure { status: IN_PROGRESS, text: "the communicator waits for other ranks".to_owned() };
        let Some(comm) = self.nccl.comms.get(&key) else { return Ok(()) };
        if let Some(failure) = &comm.failed_making {
            return Err(failure.clone());
        }
        match &comm.stage {
            Stage::Ready(_) if !comm.making.is_empty() => Err(progress()),
            Stage::Joining(_) => Err(progress()),
            Stage::Refused(failure) => Err(failure.clone()),
            Stage::Ready(seat) => match seat.is_ready()? {
                true => seat.failure().map_or(Ok(()), Err),
                false => Err(progress()),
            },
            Stage::Final(seat) => match seat.failure() {
                Some(failure) => Err(failure),
                None if comm.pending.iter().any(|&op| self.is_pending(op)) => Err(progress()),
                None => Ok(()),
            },
        }
    }

    /// The seat of a communicator whose ranks have come.
    pub(super) fn seat_if_ready(&mut self, key: u64) -> Result<Option<Arc<Seat>>, Failure> {
        self.try_to_begin(key);
        match self.standing(key) {
            Ok(()) => Ok(self.nccl.comms.get(&key).and_then(Comm::any_seat)),
            Err(failure) if failure.status == IN_PROGRESS => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The seat of a communicator that can be used.
    pub(super) fn seat(&mut self, given: Ptr<ncclComm>) -> Answer<Arc<Seat>> {
        self.comm(given)?;
        self.try_to_begin(given.address());
        let stage = self.comm(given)?.stage.clone();
        if let Err(Failure { status, text }) = self.standing(given.address()) {
            self.nccl.last_error = text;
            return Err(if status == IN_PROGRESS { INVALID_ARGUMENT } else { status });
        }
        match stage {
            Stage::Ready(seat) => Ok(seat),
            Stage::Joining(_) | Stage::Refused(_) | Stage::Final(_) => {
                self.nccl.last_error = "the communicator was finalized".to_owned();
                Err(INVALID_ARGUMENT)
            }
        }
    }

    /// Takes a communicator away.
    pub(super) fn remove_comm(&mut self, key: u64, how: &'static str) {
        let Some(comm) = self.nccl.comms.remove(&key) else { return };
        comm.making.iter().for_each(|making| self.forget(making));
        match &comm.stage {
            Stage::Ready(seat) | Stage::Final(seat) => seat.leave(how),
            Stage::Joining(identity) => {
                if let Some(meeting) = self.nccl.meetings.get_mut(identity) {
                    meeting.came.remove(&comm.rank);
                }
                self.nccl.meetings.retain(|_, meeting| !meeting.came.is_empty());
            }
            Stage::Refused(_) => {}
        }
        if comm.retains {
            // A device that was lost keeps its context.
            let _ = self.release_primary(comm.device);
        }
        self.wake_waiting();
    }
}

impl Call<'_> {
    /// Waits until a communicator is ready or refused; it stays in either case.
    pub(super) fn finish_joining(&mut self, key: u64) -> Answer {
        let (begun, patience) = (Instant::now(), self.config.nccl_timeout);
        let joins = |state: &State| state.standing(key).is_err_and(|failure| failure.status == IN_PROGRESS);
        while joins(self) {
            self.try_to_begin(key);
            if begun.elapsed() > patience {
                self.give_up(key, patience.as_millis());
            }
            // Ranks of other processes do not wake this one.
            let asked = Instant::now();
            self.wait_until(|state| !joins(state) || asked.elapsed() > ASK_AGAIN);
        }
        let standing = self.standing(key);
        standing.map_err(|failure| self.refuse(failure.status, failure.text))
    }

    /// Lets the calling thread's rank come, and waits for the others unless it is in a group or not to wait.
    fn init(&mut self, comm: Ptr<ncclComm_t>, new: &Newcomer) -> Answer {
        let key = self.join(new)?;
        comm.write(handle(key)).map_err(|_| INVALID_ARGUMENT)?;
        if let Some(group) = self.open_group() {
            group.joining.push(key);
            return Ok(());
        }
        if !new.setting.is_blocking {
            return Err(IN_PROGRESS);
        }
        let joined = self.finish_joining(key);
        if joined.is_err() {
            self.remove_comm(key, "was refused");
            comm.write(handle(0)).map_err(|_| INVALID_ARGUMENT)?;
        }
        joined
    }

    fn comm_context(&mut self) -> Answer<u64> {
        match self.need_context() {
            Ok(context) => Ok(context),
            Err(code) => Err(self.refuse(UNHANDLED, format!("no context: {code}"))),
        }
    }
}

pub(super) fn init_rank(call: &mut Call<'_>, comm: Ptr<ncclComm_t>, ranks: i32, id: ncclUniqueId, rank: i32) -> Answer {
    init_with(call, comm, (ranks, rank), id, WAITING)
}

pub(super) fn init_rank_config(
    call: &mut Call<'_>,
    comm: Ptr<ncclComm_t>,
    ranks: i32,
    id: ncclUniqueId,
    rank: i32,
    config: Ptr<ncclConfig_t>,
) -> Answer {
    let setting = call.setting(config, None)?;
    init_with(call, comm, (ranks, rank), id, setting)
}

/// Numbers of a configuration that have bounds: their names and the least and greatest ones.
type Bounded = (&'static str, fn(&ncclConfig_t) -> i32, i32, i32);
const BOUNDED: [Bounded; 6] = [
    ("blocking", |config| config.blocking, 0, 1),
    ("cgaClusterSize", |config| config.cgaClusterSize, 0, 8),
    ("minCTAs", |config| config.minCTAs, 1, 64),
    ("maxCTAs", |config| config.maxCTAs, 1, 64),
    ("splitShare", |config| config.splitShare, 0, 1),
    ("CTAPolicy", |config| config.CTAPolicy, 0, 2),
];

const WAITING: Setting = Setting { is_blocking: true, gives_share: false, shares: None };

impl Call<'_> {
    /// What a configuration says; none is that of the communicator that a new one is made from.
    pub(super) fn setting(&mut self, config: Ptr<ncclConfig_t>, from: Option<Ptr<ncclComm>>) -> Answer<Setting> {
        let mut setting = WAITING;
        if let Some(from) = from {
            let parent = self.comm(from)?;
            let shares = parent.gives_share.then_some(from.address());
            setting = Setting { is_blocking: parent.is_blocking, gives_share: parent.gives_share, shares };
        }
        let Ok(config) = config.read() else { return Ok(setting) };
        if config.magic != MAGIC {
            return Err(self.refuse(INVALID_ARGUMENT, "the configuration was not initialised"));
        }
        for (name, number, least, greatest) in BOUNDED {
            let number = number(&config);
            if number != i32::MIN && !(least..=greatest).contains(&number) {
                return Err(self.refuse(INVALID_ARGUMENT, format!("{name} is {number}")));
            }
        }
        let (fewest, most) = (config.minCTAs, config.maxCTAs);
        if most != i32::MIN && fewest > most {
            return Err(self.refuse(INVALID_ARGUMENT, format!("minCTAs is {fewest}, and maxCTAs {most}")));
        }
        setting.is_blocking = config.blocking != 0;
        setting.gives_share = config.splitShare == 1;
        Ok(setting)
    }
}

fn init_with(
    call: &mut Call<'_>,
    comm: Ptr<ncclComm_t>,
    (ranks, rank): (i32, i32),
    id: ncclUniqueId,
    setting: Setting,
) -> Answer {
    comm.required().map_err(|_| INVALID_ARGUMENT)?;
    comm.write(handle(0)).map_err(|_| INVALID_ARGUMENT)?;
    let identity = id.internal.map(i8::cast_unsigned);
    let context = call.comm_context()?;
    call.init(comm, &Newcomer { ranks, rank, identity, context, retains: false, setting })
}

pub(super) fn init_all(call: &mut Call<'_>, comms: Ptr<ncclComm_t>, count: i32, devices: Ptr<i32>) -> Answer {
    comms.required().map_err(|_| INVALID_ARGUMENT)?;
    let count = usize::try_from(count).map_err(|_| INVALID_ARGUMENT)?;
    call.need_init().map_err(|_| UNHANDLED)?;
    let mut list = Vec::new();
    for index in 0..count {
        let given = if devices.is_null() {
            i32::try_from(index).unwrap_or(i32::MAX)
        } else {
            devices.read_at(index).map_err(|_| INVALID_ARGUMENT)?
        };
        let Ok(device) = call.device(given) else {
            return Err(call.refuse(INVALID_ARGUMENT, format!("there is no device {given}")));
        };
        if list.contains(&device) {
            return Err(call.refuse(INVALID_USAGE, format!("device {device} is named twice")));
        }
        list.push(device);
    }
    let identity = call.new_identity(LOCAL);
    let ranks = i32::try_from(count).unwrap_or(i32::MAX);
    for (index, device) in list.into_iter().enumerate() {
        let context = call.retain_primary(device).map_err(|_| UNHANDLED)?;
        let rank = i32::try_from(index).unwrap_or(i32::MAX);
        let new = Newcomer { ranks, rank, identity, context, retains: true, setting: WAITING };
        let key = call.join(&new)?;
        comms.write_at(index, handle(key)).map_err(|_| INVALID_ARGUMENT)?;
    }
    Ok(())
}

pub(super) fn finalize(call: &mut Call<'_>, given: Ptr<ncclComm>) -> Answer {
    let seat = call.seat(given)?;
    let key = given.address();
    let comm = call.comm(given)?;
    comm.stage = Stage::Final(seat);
    if !comm.is_blocking {
        return Err(IN_PROGRESS);
    }
    call.finish_comm(key);
    call.standing(key).map_err(|failure| call.refuse(failure.status, failure.text))
}

impl Call<'_> {
    /// Waits for the work of a communicator.
    fn finish_comm(&mut self, key: u64) {
        let pending = self.nccl.comms.get(&key).map(|comm| comm.pending.clone()).unwrap_or_default();
        self.wait_until(|state| !pending.iter().any(|&op| state.is_pending(op)));
    }
}

pub(super) fn destroy(call: &mut Call<'_>, given: Ptr<ncclComm>) -> Answer {
    if given.is_null() {
        return Ok(());
    }
    call.comm(given)?;
    call.finish_comm(given.address());
    call.remove_comm(given.address(), "was destroyed");
    Ok(())
}

pub(super) fn abort(call: &mut Call<'_>, given: Ptr<ncclComm>) -> Answer {
    if given.is_null() {
        return Ok(());
    }
    let pending = call.comm(given)?.pending.clone();
    call.interrupt(given.address());
    call.remove_comm(given.address(), "was aborted");
    // What hangs has been let go by that.
    call.wait_until(|state| !pending.iter().any(|&op| state.is_parked(op)));
    Ok(())
}

pub(super) fn async_error(call: &mut Call<'_>, given: Ptr<ncclComm>, error: Ptr<ncclResult_t>) -> Answer {
    call.comm(given)?;
    error.required().map_err(|_| INVALID_ARGUMENT)?;
    call.try_to_begin(given.address());
    call.advance(given.address());
    call.poll();
    let status = match call.standing(given.address()) {
        Ok(()) => ncclResult_t::ncclSuccess,
        Err(failure) if failure.status == IN_PROGRESS => IN_PROGRESS,
        Err(failure) => call.refuse(failure.status, failure.text),
    };
    error.write(status).map_err(|_| INVALID_ARGUMENT)
}

pub(super) fn count(call: &mut Call<'_>, given: Ptr<ncclComm>, count: Ptr<i32>) -> Answer {
    let ranks = call.comm(given)?.ranks;
    count.write(i32::try_from(ranks).unwrap_or(i32::MAX)).map_err(|_| INVALID_ARGUMENT)
}

pub(super) fn device(call: &mut Call<'_>, given: Ptr<ncclComm>, device: Ptr<i32>) -> Answer {
    let found = call.comm(given)?.device;
    device.write(i32::try_from(found).unwrap_or(i32::MAX)).map_err(|_| INVALID_ARGUMENT)
}

pub(super) fn rank(call: &mut Call<'_>, given: Ptr<ncclComm>, rank: Ptr<i32>) -> Answer {
    let found = call.comm(given)?.rank;
    rank.write(i32::try_from(found).unwrap_or(i32::MAX)).map_err(|_| INVALID_ARGUMENT)
}
