//! The protocol of torch's `TCPStore` as bytes: requests are read and written here and nowhere else.
//!
//! Invariant: no length that is read is believed before the bytes are there, and none above the limits is read at all.

use std::io::{self, Read};

use super::engine::Limits;

/// What the first request of a connection says.
pub(super) const MAGIC: u32 = 0x3C85_F7CE;

/// First bytes of the requests by which a client authenticates.
pub(super) const VALIDATE: u8 = 0;
pub(super) const TOKEN: u8 = 200;

/// Answers to `Check` and `Wait`.
pub(super) const READY: u8 = 0;
pub(super) const NOT_READY: u8 = 1;
pub(super) const STOP_WAITING: u8 = 0;
pub(super) const WAIT_CANCELED: u8 = 1;
/// The answer to a token that is right.
pub(super) const ADMITTED: u8 = 0;

type Bytes = Vec<u8>;

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Validate(u32),
    Set(Bytes, Bytes),
    CompareSet {
        key: Bytes,
        expected: Bytes,
        desired: Bytes,
    },
    Get(Bytes),
    Add(Bytes, i64),
    Check(Vec<Bytes>),
    Wait(Vec<Bytes>),
    NumKeys,
    Delete(Bytes),
    Append(Bytes, Bytes),
    MultiGet(Vec<Bytes>),
    MultiSet(Vec<(Bytes, Bytes)>),
    CancelWait,
    Ping(u32),
    QueuePush(Bytes, Bytes),
    QueuePop(Bytes),
    QueueLen(Bytes),
    ListKeys,
    /// Not one of torch's: the token of a server that wants one.
    Token(Bytes),
}

/// Why bytes are no request.
#[derive(Debug)]
pub(super) enum Refusal {
    /// They end, or the other side is too slow.
    Io(io::Error),
    /// They cannot be a request.
    Garbage(String),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Request {
    /// The request as bytes.
    pub(super) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Validate(magic) => Writer::new(VALIDATE).raw(&magic.to_le_bytes()),
            Self::Set(key, value) => Writer::new(1).text(key).text(value),
            Self::CompareSet { key, expected, desired } => Writer::new(2).text(key).text(expected).text(desired),
            Self::Get(key) => Writer::new(3).text(key),
            Self::Add(key, amount) => Writer::new(4).text(key).raw(&amount.to_le_bytes()),
            Self::Check(keys) => Writer::new(5).texts(keys),
            Self::Wait(keys) => Writer::new(6).texts(keys),
            Self::NumKeys => Writer::new(7),
            Self::Delete(key) => Writer::new(8).text(key),
            Self::Append(key, value) => Writer::new(9).text(key).text(value),
            Self::MultiGet(keys) => Writer::new(10).texts(keys),
            Self::MultiSet(pairs) => {
                let writer = Writer::new(11).raw(&(pairs.len() as u64).to_le_bytes());
                pairs.iter().fold(writer, |writer, (key, value)| writer.text(key).text(value))
            }
            Self::CancelWait => Writer::new(12),
            Self::Ping(nonce) => Writer::new(13).raw(&nonce.to_le_bytes()),
            Self::QueuePush(key, value) => Writer::new(14).text(key).text(value),
            Self::QueuePop(key) => Writer::new(15).text(key),
            Self::QueueLen(key) => Writer::new(16).text(key),
            Self::ListKeys => Writer::new(17),
            Self::Token(token) => Writer::new(TOKEN).text(token),
        }
        .0
    }

    /// Reads one request.
    pub(super) fn read(from: &mut dyn Read, limits: &Limits) -> Result<Self, Refusal> {
        let mut reader = Reader { from, limits, left: limits.request_bytes };
        let [kind] = reader.raw()?;
        Ok(match kind {
            VALIDATE => Self::Validate(u32::from_le_bytes(reader.raw()?)),
            1 => Self::Set(reader.key()?, reader.value()?),
            2 => Self::CompareSet { key: reader.key()?, expected: reader.value()?, desired: reader.value()? },
            3 => Self::Get(reader.key()?),
            4 => Self::Add(reader.key()?, i64::from_le_bytes(reader.raw()?)),
            5 => Self::Check(reader.keys()?),
            6 => Self::Wait(reader.keys()?),
            7 => Self::NumKeys,
            8 => Self::Delete(reader.key()?),
            9 => Self::Append(reader.key()?, reader.value()?),
            10 => Self::MultiGet(reader.keys()?),
            11 => Self::MultiSet(reader.pairs()?),
            12 => Self::CancelWait,
            13 => Self::Ping(u32::from_le_bytes(reader.raw()?)),
            14 => Self::QueuePush(reader.key()?, reader.value()?),
            15 => Self::QueuePop(reader.key()?),
            16 => Self::QueueLen(reader.key()?),
            17 => Self::ListKeys,
            TOKEN => Self::Token(reader.key()?),
            other => return Err(Refusal::Garbage(format!("there is no request {other}"))),
        })
    }
}

/// Returns a length that was read, if it is within the limit.
pub(super) fn length_within(length: u64, limit: usize, noun: &str) -> Result<usize, Refusal> {
    let fits = usize::try_from(length).ok().filter(|length| *length <= limit);
    fits.ok_or_else(|| Refusal::Garbage(format!("{noun} of {length}, the limit is {limit}")))
}

/// Bytes that are written one after another.
pub(super) struct Writer(pub(super) Bytes);

impl Writer {
    fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    /// An answer, which has no kind.
    pub(super) fn answer() -> Self {
        Self(Vec::new())
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn text(self, text: &[u8]) -> Self {
        self.raw(&(text.len() as u64).to_le_bytes()).raw(text)
    }

    fn texts(self, texts: &[Bytes]) -> Self {
        texts.iter().fold(self.raw(&(texts.len() as u64).to_le_bytes()), |writer, text| writer.text(text))
    }
}

/// Reads the arguments of one request, or of one answer.
pub(super) struct Reader<'a> {
    from: &'a mut dyn Read,
    limits: &'a Limits,
    /// Bytes that this request may still have.
    left: usize,
}

impl<'a> Reader<'a> {
    /// Reads answers, which may be as long as a request.
    pub(super) fn of_answer(from: &'a mut dyn Read, limits: &'a Limits) -> Self {
        Self { from, limits, left: limits.request_bytes }
    }

    pub(super) fn raw<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// A length that must be within a limit.
    fn length(&mut self, limit: usize, what: &str) -> Result<usize, Refusal> {
        length_within(u64::from_le_bytes(self.raw()?), limit, what)
    }

    /// A text of at most so many bytes. Memory grows with what arrives, not with what was announced.
    fn text(&mut self, limit: usize, what: &str) -> Result<Bytes, Refusal> {
        let length = self.length(limit.min(self.left), what)?;
        self.left -= length;
        let mut bytes = Vec::new();
        let got = (&mut *self.from).take(length as u64).read_to_end(&mut bytes)?;
        if got < length {
            return Err(Refusal::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes)
    }

    fn key(&mut self) -> Result<Bytes, Refusal> {
        self.text(self.limits.key_bytes, "a key")
    }

    pub(super) fn value(&mut self) -> Result<Bytes, Refusal> {
        self.text(self.limits.value_bytes, "a value")
    }

    fn keys(&mut self) -> Result<Vec<Bytes>, Refusal> {
        let count = self.length(self.limits.keys, "a number of keys")?;
        (0..count).map(|_| self.key()).collect()
    }

    fn pairs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Refusal> {
        let count = self.length(self.limits.keys, "a number of keys")?;
        (0..count).map(|_| Ok((self.key()?, self.value()?))).collect()
    }
}
