//! Ranks in several processes of one host.
//!
//! The process that makes an identity listens on a Unix socket without a file, whose name is in the identity. Ranks of that
//! process meet at an exchange; ranks of others send what they bring there and ask what became of it, one question and one
//! answer at a time. A process that ends is noticed by its socket, and its rank has gone then.
//!
//! **Invariants:** nothing here takes a machine's lock. What comes over a socket is bounded before it is read, and what is no
//! message ends the connection.

use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use cuda_sys::ncclResult_t;

use super::exchange::{Exchange, Failure, Outcome};
use super::message::{self, Question};

/// A unique identity, as ranks name it.
pub(super) type Identity = [u8; 128];

/// Where ranks meet, once it is known.
pub(super) type Shared = Arc<Mutex<Exchange>>;

/// What ranks of other processes wait for under an identity.
#[derive(Debug)]
struct Gathering {
    ranks: usize,
    came: Vec<usize>,
    /// There, once all have come.
    exchange: Option<Shared>,
}

static GATHERINGS: Mutex<BTreeMap<Identity, Gathering>> = Mutex::new(BTreeMap::new());

/// The name of the socket of this process.
static NAME: OnceLock<Option<String>> = OnceLock::new();

fn gatherings() -> MutexGuard<'static, BTreeMap<Identity, Gathering>> {
    GATHERINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the socket on which this process listens; it begins to when it is first asked. `None` where the system has no
/// socket.
pub(super) fn name() -> Option<&'static str> {
    let begin = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let name = format!("cuda-sim-nccl-{}-{now:x}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).ok()?).ok()?;
        let named = std::thread::Builder::new().name("cuda-sim nccl".to_owned());
        named.spawn(move || listener.incoming().flatten().for_each(serve_apart)).ok()?;
        Some(name)
    };
    NAME.get_or_init(begin).as_deref()
}

fn serve_apart(stream: UnixStream) {
    let named = std::thread::Builder::new().name("cuda-sim nccl rank".to_owned());
    // Without a thread the rank sees its connection end.
    let _ = named.spawn(move || serve(stream));
}

/// How many ranks of other processes have come under an identity, and what is wrong with them beside so many ranks.
pub(super) fn others(identity: &Identity, ranks: usize, own: &[usize]) -> Result<usize, String> {
    let all = gatherings();
    let Some(found) = all.get(identity) else { return Ok(0) };
    if found.ranks != ranks {
        return Err(format!("ranks of this process say that there are {ranks} ranks, others say {}", found.ranks));
    }
    match found.came.iter().find(|rank| own.contains(rank)) {
        Some(rank) => Err(format!("there are two ranks {rank}")),
        None => Ok(found.came.len()),
    }
}

/// All ranks have come: those of other processes are let in.
pub(super) fn begin(identity: &Identity, exchange: &Shared) {
    if let Some(found) = gatherings().get_mut(identity) {
        found.exchange = Some(Arc::clone(exchange));
    }
}

/// Answers the questions of one rank of another process.
fn serve(mut stream: UnixStream) {
    let Ok((identity, ranks, rank)) = message::read_hello(&mut stream) else { return };
    if let Err(text) = enter(&identity, ranks, rank) {
        // The rank reads the reason, or sees the connection end.
        let _ = message::write_frame(&mut stream, text.as_bytes());
        return;
    }
    let mut exchange: Option<Shared> = None;
    let ended = converse(&mut stream, &identity, rank, &mut exchange);
    let mut all = gatherings();
    if let Some(found) = all.get_mut(&identity) {
        found.came.retain(|other| *other != rank);
    }
    all.retain(|_, found| !found.came.is_empty());
    drop(all);
    if let Some(exchange) = exchange {
        let how = if ended.is_ok() { "has left" } else { "has gone with its process" };
        exchange.lock().unwrap_or_else(PoisonError::into_inner).leave(rank, how);
    }
}

fn enter(identity: &Identity, ranks: usize, rank: usize) -> Result<(), String> {
    let mut all = gatherings();
    let found = all.entry(*identity).or_insert(Gathering { ranks, came: Vec::new(), exchange: None });
    if found.ranks != ranks {
        return Err(format!("rank {rank} says that there are {ranks} ranks, others say {}", found.ranks));
    }
    if found.came.contains(&rank) {
        return Err(format!("there are two ranks {rank}"));
    }
    found.came.push(rank);
    if found.came.len() == ranks {
        // None is of this process.
        found.exchange = Some(Arc::new(Mutex::new(Exchange::new(ranks))));
    }
    Ok(())
}

/// Answers until the rank leaves; an error where its connection ends without a word.
fn converse(
    stream: &mut UnixStream,
    identity: &Identity,
    rank: usize,
    exchange: &mut Option<Shared>,
) -> io::Result<()> {
    message::write_frame(stream, b"")?;
    loop {
        let question = message::read_question(stream)?;
        if exchange.is_none() {
            *exchange = gatherings().get(identity).and_then(|found| found.exchange.clone());
        }
        let Some(shared) = exchange.as_ref() else {
            match question {
                Question::Leave => return Ok(()),
                _ => message::write_answer(stream, &Outcome::Waiting)?,
            }
            continue;
        };
        let mut found = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match question {
            Question::IsReady => Outcome::Done(Vec::new()),
            Question::Bring(parts) => {
                let batch = found.bring(rank, parts);
                Outcome::Done(vec![batch.to_le_bytes().to_vec()])
            }
            Question::Outcome(batch, patience) => {
                found.expire(patience);
                found.outcome(batch)
            }
            Question::Failure => found.failure().cloned().map_or(Outcome::Done(Vec::new()), Outcome::Failed),
            Question::Fail(Failure { status, text }) => {
                found.fail(status, text);
                Outcome::Done(Vec::new())
            }
            Question::Leave => return Ok(()),
        };
        drop(found);
        message::write_answer(stream, &answer)?;
    }
}

/// A rank's way to the exchange of another process.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Mutex<UnixStream>,
    /// All ranks have come.
    is_ready: AtomicBool,
}

/// What a rank is told when the process that made its identity does not answer.
fn gone() -> Failure {
    let text = "the process that made the identity has gone".to_owned();
    Failure { status: ncclResult_t::ncclRemoteError, text }
}

impl Connection {
    /// Comes to the exchange of the process that listens under a name.
    pub(super) fn new(name: &str, identity: &Identity, ranks: usize, rank: usize) -> Result<Self, Failure> {
        let open = || -> io::Result<(UnixStream, Vec<u8>)> {
            let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            stream.set_read_timeout(Some(ANSWER))?;
            stream.set_write_timeout(Some(ANSWER))?;
            message::write_hello(&mut stream, identity, ranks, rank)?;
            let refusal = message::read_frame(&mut stream)?;
            Ok((stream, refusal))
        };
        let (stream, refusal) = open().map_err(|error| Failure {
            status: ncclResult_t::ncclSystemError,
            text: format!("cannot reach the process that made the identity: {error}"),
        })?;
        if refusal.is_empty() {
            return Ok(Self { stream: Mutex::new(stream), is_ready: AtomicBool::new(false) });
        }
        let text = String::from_utf8_lossy(&refusal).into_owned();
        Err(Failure { status: ncclResult_t::ncclInvalidUsage, text })
    }

    /// Asks, and waits for the answer, which comes at once.
    fn ask(&self, question: &Question) -> Outcome {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let answered =
            message::write_question(&mut *stream, question).and_then(|()| message::read_answer(&mut *stream));
        answered.unwrap_or_else(|_| Outcome::Failed(gone()))
    }

    /// Whether all ranks have come.
    pub(super) fn is_ready(&self) -> Result<bool, Failure> {
        if self.is_ready.load(Ordering::Relaxed) {
            return Ok(true);
        }
        match self.ask(&Question::IsReady) {
            Outcome::Waiting => Ok(false),
            Outcome::Done(_) => {
                self.is_ready.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Outcome::Failed(failure) => Err(failure),
        }
    }

    /// Brings a batch; its number, or none that is known where nobody answers.
    pub(super) fn bring(&self, parts: Vec<message::Brought>) -> u64 {
        match self.ask(&Question::Bring(parts)) {
            Outcome::Done(bytes) => {
                bytes.first().and_then(|bytes| bytes[..].try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
            }
            Outcome::Waiting | Outcome::Failed(_) => u64::MAX,
        }
    }

    pub(super) fn outcome(&self, batch: u64, patience: Duration) -> Outcome {
        self.ask(&Question::Outcome(batch, patience))
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        match self.ask(&Question::Failure) {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Waiting | Outcome::Done(_) => None,
        }
    }

    pub(super) fn fail(&self, status: ncclResult_t, text: &str) {
        self.ask(&Question::Fail(Failure { status, text: text.to_owned() }));
    }

    pub(super) fn leave(&self) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // There is no answer, and a process that has gone needs none.
        let _ = message::write_question(&mut *stream, &Question::Leave);
    }
}

/// How long an answer may take that comes at once.
const ANSWER: Duration = Duration::from_secs(30);
