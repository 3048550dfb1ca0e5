//! What requests do to the values, and who is told: the server without input or output.
//!
//! Invariants:
//! - A waiting client is notified once, when the last of its keys is set; a disconnected client is not notified.
//! - Keys that clients wait for count against the store's limit, and against a limit for each client.
//! - Unauthenticated clients have a separate, small limit and take no place of authenticated ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::wire::{ADMITTED, MAGIC, NOT_READY, READY, Refusal, Request, STOP_WAITING, WAIT_CANCELED, Writer};
use crate::store::table::{ENTRY_BYTES, Table};

/// What a server takes from its clients. The values are those of `Default`.
///
/// ```
/// let limits = cuda_dist::Limits { connections: 64, ..Default::default() };
/// assert_eq!(limits.value_bytes, 8 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a key: 64 KiB.
    pub key_bytes: usize,
    /// Bytes of a value in a request: 8 MiB, as in torch.
    pub value_bytes: usize,
    /// Keys of one request: 128 Ki, as in torch.
    pub keys: usize,
    /// Bytes of the keys and values of one request or one answer together: 64 MiB.
    pub request_bytes: usize,
    /// Bytes of all keys, values and awaited keys, plus 64 for each entry: 256 MiB.
    pub store_bytes: usize,
    /// Bytes of the keys that one client waits for, plus 64 for each key: 32 MiB.
    pub waiting_bytes: usize,
    /// Largest number of clients: 4096, or fewer if the process may not open that many files. A quarter of the open
    /// files (`RLIMIT_NOFILE`; at least 64 and at most 1024) is reserved for the rest of the process. A rank has three
    /// connections for each group, and a fourth if it sends messages by the store.
    pub connections: usize,
    /// Largest number of unauthenticated connections, which have not yet sent the protocol's first request and the
    /// token if there is one: 64, or an eighth of the usable open files if that is fewer. A further connection disconnects
    /// the oldest of them.
    pub strangers: usize,
    /// Seconds from the beginning of a connection until it has proved that it speaks the protocol, and from the first byte
    /// of a request to the last: 10.
    pub seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes: 64 << 10,
            value_bytes: 8 << 20,
            keys: 128 << 10,
            request_bytes: 64 << 20,
            store_bytes: 256 << 20,
            waiting_bytes: 32 << 20,
            connections: 4096,
            strangers: 64,
            seconds: 10,
        }
    }
}

/// A client of a server.
pub(super) type ClientId = u64;

/// How far a client has proved itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unknown,
    SpeaksProtocol,
    Admitted,
}

/// The values and the clients.
#[derive(Debug)]
pub(super) struct Engine {
    table: Table,
    limits: Limits,
    token: Option<Vec<u8>>,
    clients: BTreeMap<ClientId, Stage>,
    /// Clients that are not yet admitted. Ids increase, so the first is the oldest.
    strangers: BTreeSet<ClientId>,
    /// Keys that each waiting client still needs.
    awaited: BTreeMap<ClientId, BTreeSet<Key>>,
    /// Clients that wait for each key.
    waiting: BTreeMap<Key, BTreeSet<ClientId>>,
}

/// Key that clients wait for.
type Key = Arc<[u8]>;

/// Returns the bytes charged to a client for a key that it waits for.
fn cost(key: &[u8]) -> usize {
    key.len() + ENTRY_BYTES
}

/// What is to be sent to whom, in this order.
pub(super) type Answers = Vec<(ClientId, Vec<u8>)>;

impl Engine {
    pub(super) fn new(token: Option<&str>, limits: Limits) -> Self {
        Self {
            table: Table::new(limits.store_bytes),
            limits,
            token: token.map(|token| token.as_bytes().to_vec()),
            clients: BTreeMap::new(),
            strangers: BTreeSet::new(),
            awaited: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Registers a connection, whose id is greater than all earlier ones. Returns the unauthenticated client that must
    /// be disconnected to make room, if any.
    pub(super) fn begin(&mut self, client: ClientId) -> Option<ClientId> {
        let has_room = self.strangers.len() < self.limits.strangers.max(1);
        let oldest = if has_room { None } else { self.strangers.first().copied() };
        oldest.into_iter().for_each(|oldest| self.leave(oldest));
        self.clients.insert(client, Stage::Unknown);
        self.strangers.insert(client);
        oldest
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.strangers.remove(&client);
        self.stop_waiting(client);
    }

    /// Whether a client may send what it likes.
    pub(super) fn is_admitted(&self, client: ClientId) -> bool {
        self.clients.get(&client) == Some(&Stage::Admitted)
    }

    /// Does what a client asks for.
    pub(super) fn apply(&mut self, client: ClientId, request: Request) -> Result<Answers, Refusal> {
        match self.clients.get(&client) {
            Some(Stage::Admitted) => self.serve(client, request),
            Some(Stage::SpeaksProtocol) => self.check_token(client, &request),
            Some(Stage::Unknown) => self.check_magic(client, &request),
            None => Err(Refusal::Garbage("the connection is not known".to_owned())),
        }
    }

    fn check_magic(&mut self, client: ClientId, request: &Request) -> Result<Answers, Refusal> {
        if *request != Request::Validate(MAGIC) {
            return Err(Refusal::Garbage("the first request is not that of a store's client".to_owned()));
        }
        if self.token.is_some() {
            self.clients.insert(client, Stage::SpeaksProtocol);
        } else {
            self.admit(client)?;
        }
        Ok(Vec::new())
    }

    /// Admits an authenticated client.
    fn admit(&mut self, client: ClientId) -> Result<(), Refusal> {
        let admitted = self.clients.len() - self.strangers.len();
        if admitted >= self.limits.connections {
            return Err(Refusal::Garbage(format!("there are {admitted} clients already, which is the limit")));
        }
        self.strangers.remove(&client);
        self.clients.insert(client, Stage::Admitted);
        Ok(())
    }

    fn check_token(&mut self, client: ClientId, request: &Request) -> Result<Answers, Refusal> {
        let wanted = self.token.as_deref().unwrap_or_default();
        let given = if let Request::Token(given) = request { given.as_slice() } else { &[] };
        // Every byte is looked at, so that the time does not tell how many are right.
        let differences = wanted.iter().zip(given).fold(0, |differences, (one, other)| differences | (one ^ other));
        if wanted.len() != given.len() || differences != 0 {
            return Err(Refusal::Garbage("the token is missing or not the right one".to_owned()));
        }
        self.admit(client)?;
        Ok(vec![(client, vec![ADMITTED])])
    }

    fn serve(&mut self, client: ClientId, request: Request) -> Result<Answers, Refusal> {
        let full = |error: crate::Error| Refusal::Garbage(error.to_string());
        let table = &mut self.table;
        let (answer, changed) = match request {
            Request::Set(key, value) => (None, self.set_all(vec![(key, value)])?),
            Request::MultiSet(pairs) => (None, self.set_all(pairs)?),
            Request::Append(key, value) => {
                table.append(&key, &value).map_err(full)?;
                (None, vec![key])
            }
            Request::CompareSet { key, expected, desired } => {
                let (value, is_set) = table.compare_set(&key, &expected, desired).map_err(full)?;
                (Some(Writer::answer().text(&value).0), if is_set { vec![key] } else { Vec::new() })
            }
            Request::Add(key, amount) => {
                let sum = table.add(&key, amount).map_err(full)?;
                (Some(sum.to_le_bytes().to_vec()), vec![key])
            }
            Request::Wait(keys) => (self.wait(client, keys)?, Vec::new()),
            Request::CancelWait => {
                self.stop_waiting(client);
                (Some(vec![WAIT_CANCELED]), Vec::new())
            }
            Request::QueuePush(key, value) => {
                table.push(&key, value).map_err(full)?;
                return Ok(self.tell_one(&key).into_iter().collect());
            }
            Request::QueuePop(key) => {
                let answer = table.pop(&key).map_or_else(
                    || Writer::answer().raw(&0_u64.to_le_bytes()),
                    |(count, value)| Writer::answer().raw(&(count as u64).to_le_bytes()).text(&value),
                );
                (Some(answer.0), Vec::new())
            }
            Request::Delete(key) => (Some(i64::from(table.delete(&key)).to_le_bytes().to_vec()), Vec::new()),
            request @ (Request::Get(_)
            | Request::MultiGet(_)
            | Request::Check(_)
            | Request::NumKeys
            | Request::Ping(_)
            | Request::QueueLen(_)
            | Request::ListKeys
            | Request::Validate(_)
            | Request::Token(_)) => (Some(self.read(&request)?), Vec::new()),
        };
        let mut answers: Answers = answer.into_iter().map(|answer| (client, answer)).collect();
        changed.iter().for_each(|key| self.tell_waiting(key, &mut answers));
        Ok(answers)
    }

    /// Requests that change nothing.
    fn read(&self, request: &Request) -> Result<Vec<u8>, Refusal> {
        let table = &self.table;
        let count = |count: usize| (count as u64).to_le_bytes();
        Ok(match request {
            Request::Get(key) => Writer::answer().text(table.get(key).unwrap_or_default()).0,
            Request::MultiGet(keys) => {
                self.fits(keys.iter().map(|key| table.get(key).unwrap_or_default().len()))?;
                let answer = Writer::answer();
                keys.iter().fold(answer, |answer, key| answer.text(table.get(key).unwrap_or_default())).0
            }
            Request::Check(keys) => vec![if keys.iter().all(|key| table.has(key)) { READY } else { NOT_READY }],
            Request::NumKeys => count(table.len()).to_vec(),
            Request::Ping(nonce) => nonce.to_le_bytes().to_vec(),
            Request::QueueLen(key) => count(table.queue_len(key)).to_vec(),
            Request::ListKeys => {
                self.fits(table.keys().map(<[u8]>::len))?;
                table.keys().fold(Writer::answer().raw(&count(table.len())), |answer, key| answer.text(key)).0
            }
            Request::Validate(_)
            | Request::Token(_)
            | Request::Set(..)
            | Request::CompareSet { .. }
            | Request::Add(..)
            | Request::Wait(_)
            | Request::Delete(_)
            | Request::Append(..)
            | Request::MultiSet(_)
            | Request::QueuePush(..)
            | Request::QueuePop(_)
            | Request::CancelWait => return Err(Refusal::Garbage("a request out of place".to_owned())),
        })
    }

    /// Whether an answer of such parts is not too long.
    fn fits(&self, lengths: impl Iterator<Item = usize>) -> Result<(), Refusal> {
        let bytes: usize = lengths.map(|length| length + size_of::<u64>()).sum();
        if bytes > self.limits.request_bytes {
            return Err(Refusal::Garbage(format!(
                "an answer of {bytes} bytes, the limit is {}",
                self.limits.request_bytes
            )));
        }
        Ok(())
    }

    fn set_all(&mut self, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Vec<Vec<u8>>, Refusal> {
        let set = |(key, value): (Vec<u8>, _)| {
            self.table.set(&key, value).map(|()| key).map_err(|error| Refusal::Garbage(error.to_string()))
        };
        pairs.into_iter().map(set).collect()
    }

    /// The answer where all is there, and otherwise none until it is.
    fn wait(&mut self, client: ClientId, keys: Vec<Vec<u8>>) -> Result<Option<Vec<u8>>, Refusal> {
        self.stop_waiting(client);
        let missing: BTreeSet<Key> = keys.into_iter().filter(|key| !self.table.has(key)).map(Key::from).collect();
        if missing.is_empty() {
            return Ok(Some(vec![STOP_WAITING]));
        }
        let (bytes, limit) = (missing.iter().map(|key| cost(key)).sum(), self.limits.waiting_bytes);
        if bytes > limit {
            return Err(Refusal::Garbage(format!("a client waits for keys of {bytes} bytes, the limit is {limit}")));
        }
        self.table.reserve(bytes).map_err(|error| Refusal::Garbage(error.to_string()))?;
        for key in &missing {
            self.waiting.entry(Arc::clone(key)).or_default().insert(client);
        }
        self.awaited.insert(client, missing);
        Ok(None)
    }

    fn stop_waiting(&mut self, client: ClientId) {
        for key in self.awaited.remove(&client).unwrap_or_default() {
            self.table.release(cost(&key));
            if let Some(clients) = self.waiting.get_mut(&key) {
                clients.remove(&client);
                if clients.is_empty() {
                    self.waiting.remove(&key);
                }
            }
        }
    }

    /// Something came into a queue: the first that waits for it alone is told, since what came is for one, as in torch. Those
    /// that wait for more than it wait for the rest.
    fn tell_one(&mut self, key: &[u8]) -> Option<(ClientId, Vec<u8>)> {
        let mut first = None;
        for client in self.waiting.get(key).into_iter().flatten() {
            match self.awaited.get_mut(client) {
                Some(missing) if missing.len() > 1 => {
                    let was_missing = missing.remove(key);
                    self.table.release(if was_missing { cost(key) } else { 0 });
                }
                Some(_) => first = first.or(Some(*client)),
                None => {}
            }
        }
        let awaited = &self.awaited;
        if let Some(clients) = self.waiting.get_mut(key) {
            clients.retain(|client| awaited.get(client).is_some_and(|missing| missing.contains(key)));
            if clients.is_empty() {
                self.waiting.remove(key);
            }
        }
        let client = first?;
        self.stop_waiting(client);
        Some((client, vec![STOP_WAITING]))
    }

    fn tell_waiting(&mut self, key: &[u8], answers: &mut Answers) {
        for client in self.waiting.remove(key).unwrap_or_default() {
            let Some(missing) = self.awaited.get_mut(&client) else { continue };
            if missing.remove(key) {
                self.table.release(cost(key));
            }
            if missing.is_empty() {
                self.awaited.remove(&client);
                answers.push((client, vec![STOP_WAITING]));
            }
        }
    }
}

/// Serves bytes as those of one connection.
pub(super) fn serve_bytes(mut bytes: &[u8], token: Option<&str>, limits: Limits) -> (usize, Vec<u8>) {
    let mut engine = Engine::new(token, limits);
    let (mut count, mut answered) = (0, Vec::new());
    engine.begin(0);
    while let Ok(request) = Request::read(&mut bytes, &limits) {
        let Ok(answers) = engine.apply(0, request) else { break };
        count += 1;
        answers.into_iter().for_each(|(_, answer)| answered.extend(answer));
    }
    (count, answered)
}

#[cfg(test)]
mod tests {
    use super::{ENTRY_BYTES, Engine, Limits, Request, serve_bytes};
    use crate::store::tcp::wire::{ADMITTED, MAGIC, STOP_WAITING, WAIT_CANCELED};

    fn engine() -> Engine {
        let mut engine = Engine::new(None, Limits::default());
        for client in 0..3 {
            assert_eq!(engine.begin(client), None);
            engine.apply(client, Request::Validate(MAGIC)).unwrap();
        }
        engine
    }

    fn keys(keys: &[&str]) -> Vec<Vec<u8>> {
        keys.iter().map(|key| key.as_bytes().to_vec()).collect()
    }

    #[test]
    fn whoever_waits_is_told_with_the_last_key() {
        let mut engine = engine();
        assert!(engine.apply(0, Request::Wait(keys(&["a", "b"]))).unwrap().is_empty());
        assert!(engine.apply(1, Request::Set(b"a".to_vec(), Vec::new())).unwrap().is_empty());
        let told = engine.apply(1, Request::Append(b"b".to_vec(), b"x".to_vec())).unwrap();
        assert_eq!(told, [(0, vec![STOP_WAITING])]);
        assert!(engine.apply(1, Request::Set(b"b".to_vec(), Vec::new())).unwrap().is_empty());
    }

    #[test]
    fn whoever_has_given_up_or_gone_is_not_told() {
        let mut engine = engine();
        engine.apply(0, Request::Wait(keys(&["a"]))).unwrap();
        engine.apply(1, Request::Wait(keys(&["a"]))).unwrap();
        engine.leave(1);
        assert_eq!(engine.apply(0, Request::CancelWait).unwrap(), [(0, vec![WAIT_CANCELED])]);
        assert!(engine.apply(2, Request::Set(b"a".to_vec(), Vec::new())).unwrap().is_empty());
        assert!(engine.waiting.is_empty() && engine.awaited.is_empty());
    }

    #[test]
    fn what_is_pushed_wakes_one() {
        let mut engine = engine();
        let pop = || Request::QueuePop(b"q".to_vec());
        assert_eq!(engine.apply(2, pop()).unwrap(), [(2, 0_u64.to_le_bytes().to_vec())]);
        engine.apply(0, Request::Wait(keys(&["q"]))).unwrap();
        engine.apply(1, Request::Wait(keys(&["q"]))).unwrap();
        let push = || Request::QueuePush(b"q".to_vec(), b"x".to_vec());
        assert_eq!(engine.apply(2, push()).unwrap(), [(0, vec![STOP_WAITING])]);
        assert_eq!(engine.apply(2, push()).unwrap(), [(1, vec![STOP_WAITING])]);
        assert_eq!(engine.apply(2, Request::QueueLen(b"q".to_vec())).unwrap(), [(2, 2_u64.to_le_bytes().to_vec())]);
        let first = [&2_u64.to_le_bytes()[..], &1_u64.to_le_bytes(), b"x"].concat();
        assert_eq!(engine.apply(0, pop()).unwrap(), [(0, first)]);
        assert!(engine.waiting.is_empty() && engine.awaited.is_empty());
        // Whoever waits for more is told with the last.
        assert!(engine.apply(0, Request::Wait(keys(&["r", "s"]))).unwrap().is_empty());
        assert!(engine.apply(1, Request::QueuePush(b"r".to_vec(), b"x".to_vec())).unwrap().is_empty());
        assert_eq!(engine.apply(1, Request::Set(b"s".to_vec(), Vec::new())).unwrap(), [(0, vec![STOP_WAITING])]);
        assert!(engine.waiting.is_empty() && engine.awaited.is_empty());
    }

    #[test]
    fn a_comparison_that_fails_wakes_nobody() {
        let mut engine = engine();
        engine.apply(0, Request::Wait(keys(&["a"]))).unwrap();
        let compare = |expected: &[u8]| Request::CompareSet {
            key: b"a".to_vec(),
            expected: expected.to_vec(),
            desired: b"x".to_vec(),
        };
        assert_eq!(engine.apply(1, compare(b"y")).unwrap().len(), 1);
        assert_eq!(engine.apply(1, compare(b"")).unwrap().len(), 2);
    }

    #[test]
    fn nothing_is_done_before_the_magic_number_and_the_token() {
        let request = |requests: &[Request]| requests.iter().flat_map(Request::to_bytes).collect::<Vec<u8>>();
        let limits = Limits::default();
        let ping = Request::Ping(7);
        assert_eq!(serve_bytes(&request(std::slice::from_ref(&ping)), None, limits).0, 0);
        let validate = Request::Validate(MAGIC);
        assert_eq!(serve_bytes(&request(&[validate.clone(), ping.clone()]), Some("secret"), limits).0, 1);
        assert_eq!(
            serve_bytes(&request(&[validate.clone(), token("secret"), ping.clone()]), Some("secret"), limits).0,
            3
        );
        for wrong in ["", "secre", "secrex", "secret "] {
            assert_eq!(
                serve_bytes(&request(&[validate.clone(), token(wrong), ping.clone()]), Some("secret"), limits).0,
                1
            );
        }
    }

    fn token(text: &str) -> Request {
        Request::Token(text.as_bytes().to_vec())
    }

    #[test]
    fn strangers_push_each_other_out_and_no_client() {
        let limits = Limits { connections: 2, strangers: 3, ..Limits::default() };
        let mut engine = Engine::new(Some("secret"), limits);
        let enter = |engine: &mut Engine, client| {
            assert!(engine.apply(client, Request::Validate(MAGIC)).unwrap().is_empty());
            engine.apply(client, token("secret"))
        };
        engine.begin(0);
        assert_eq!(enter(&mut engine, 0).unwrap(), [(0, vec![ADMITTED])]);
        // The magic number alone does not admit a client without the token.
        let gone: Vec<Option<u64>> = (1..600)
            .map(|stranger| {
                let gone = engine.begin(stranger);
                assert!(engine.apply(stranger, Request::Validate(MAGIC)).unwrap().is_empty());
                gone
            })
            .collect();
        assert_eq!(gone[..5], [None, None, None, Some(1), Some(2)]);
        assert_eq!(engine.clients.len(), 4);
        assert!(engine.is_admitted(0) && engine.apply(1, Request::Ping(1)).is_err());
        assert_eq!(engine.begin(600), Some(597));
        assert_eq!(enter(&mut engine, 600).unwrap(), [(600, vec![ADMITTED])]);
        // All places are taken until a client leaves.
        engine.begin(601);
        assert!(enter(&mut engine, 601).is_err());
        engine.leave(601);
        engine.leave(0);
        engine.begin(602);
        assert_eq!(enter(&mut engine, 602).unwrap(), [(602, vec![ADMITTED])]);
    }

    #[test]
    fn keys_that_are_waited_for_are_counted_and_given_back() {
        let limits = Limits { store_bytes: 1000, waiting_bytes: 3 * (ENTRY_BYTES + 4), ..Limits::default() };
        let mut engine = Engine::new(None, limits);
        for client in 0..9 {
            engine.begin(client);
            engine.apply(client, Request::Validate(MAGIC)).unwrap();
        }
        let wait = |engine: &mut Engine, client: u64, count: u64| {
            let keys = (0..count).map(|key| format!("{client}{key:03}").into_bytes()).collect();
            engine.apply(client, Request::Wait(keys))
        };
        assert!(wait(&mut engine, 0, 4).is_err(), "more than a client may wait for");
        // Three keys each: the fifth client would exceed the store's limit.
        (0..4).for_each(|client| assert!(wait(&mut engine, client, 3).unwrap().is_empty()));
        assert!(wait(&mut engine, 5, 3).is_err());
        assert!(engine.apply(6, Request::Set(vec![0; 4], vec![0; 200])).is_err(), "values share the limit");
        // A new wait replaces the previous one; disconnecting, cancelling and being notified release the charged bytes.
        (0..50).for_each(|_| assert!(wait(&mut engine, 0, 3).unwrap().is_empty()));
        engine.leave(1);
        engine.apply(2, Request::CancelWait).unwrap();
        assert!(engine.apply(6, Request::Set(b"0000".to_vec(), Vec::new())).unwrap().is_empty());
        assert!(engine.apply(6, Request::QueuePush(b"0001".to_vec(), Vec::new())).unwrap().is_empty());
        assert_eq!(engine.apply(6, Request::Append(b"0002".to_vec(), Vec::new())).unwrap().len(), 1);
        engine.leave(3);
        assert!(engine.waiting.is_empty() && engine.awaited.is_empty());
        assert!(engine.apply(7, Request::Delete(b"0000".to_vec())).is_ok());
        assert!(engine.apply(7, Request::Delete(b"0002".to_vec())).is_ok());
        engine.apply(7, Request::QueuePop(b"0001".to_vec())).unwrap();
        assert_eq!(engine.table.bytes(), 0);
    }

    #[test]
    fn lengths_above_the_limits_are_refused() {
        let limits = Limits { key_bytes: 4, value_bytes: 4, keys: 2, request_bytes: 6, ..Limits::default() };
        let start = Request::Validate(MAGIC).to_bytes();
        let served = |request: Request| serve_bytes(&[start.clone(), request.to_bytes()].concat(), None, limits).0 == 2;
        assert!(served(Request::Set(vec![0; 4], vec![0; 2])));
        assert!(!served(Request::Set(vec![0; 5], vec![])));
        assert!(!served(Request::Set(vec![0; 4], vec![0; 3])));
        assert!(!served(Request::Check(keys(&["a", "b", "c"]))));
    }
}
