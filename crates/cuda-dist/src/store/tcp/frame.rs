//! Finds the end of a request while its bytes arrive in pieces.
//!
//! Invariants: each byte of a request is scanned once, however small the pieces are; a length above the limits ends the
//! connection before the announced bytes arrive.

use super::engine::Limits;
use super::wire::{Refusal, length_within};

/// Progress of scanning one request.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// Layout of the arguments, once the first byte has arrived.
    layout: Option<Layout>,
    /// Number of scanned bytes, including announced bytes of strings that may not have arrived yet.
    scanned: usize,
    /// Total number of bytes of strings.
    text_bytes: usize,
    /// Number of scanned strings.
    texts: usize,
}

/// Arguments of a request: a count of strings unless it is fixed, the strings, and fixed-size bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    kind: u8,
    /// Number of strings; `None` until the count has been scanned.
    texts: Option<usize>,
    plain: usize,
}

impl Layout {
    fn of(kind: u8) -> Result<Self, Refusal> {
        let (texts, plain) = match kind {
            0 | 13 => (Some(0), 4),
            7 | 12 | 17 => (Some(0), 0),
            3 | 8 | 15 | 16 | 200 => (Some(1), 0),
            4 => (Some(1), 8),
            1 | 9 | 14 => (Some(2), 0),
            2 => (Some(3), 0),
            5 | 6 | 10 | 11 => (None, 0),
            other => return Err(Refusal::Garbage(format!("there is no request {other}"))),
        };
        Ok(Self { kind, texts, plain })
    }

    /// Whether string number `text` is a key rather than a value.
    fn is_key(self, text: usize) -> bool {
        match self.kind {
            1 | 2 | 9 | 14 => text == 0,
            11 => text.is_multiple_of(2),
            _ => true,
        }
    }
}

impl Frame {
    /// Returns the length of the request that `bytes` begin with, or `None` if it is incomplete.
    ///
    /// # Errors
    /// There is no such request, or a length exceeds the limits.
    pub(super) fn scan(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Refusal> {
        let mut layout = match (self.layout, bytes.first()) {
            (Some(layout), _) => layout,
            (None, Some(kind)) => {
                self.scanned = 1;
                Layout::of(*kind)?
            }
            (None, None) => return Ok(None),
        };
        if layout.texts.is_none()
            && let Some(count) = self.number(bytes)
        {
            let count = length_within(count, limits.keys, "a number of keys")?;
            layout.texts = Some(if layout.kind == 11 { 2 * count } else { count });
        }
        self.layout = Some(layout);
        let Some(texts) = layout.texts else { return Ok(None) };
        while self.texts < texts {
            let Some(length) = self.number(bytes) else { return Ok(None) };
            let (limit, noun) =
                if layout.is_key(self.texts) { (limits.key_bytes, "a key") } else { (limits.value_bytes, "a value") };
            let length = length_within(length, limit.min(limits.request_bytes - self.text_bytes), noun)?;
            self.text_bytes += length;
            self.scanned += length;
            self.texts += 1;
        }
        let end = self.scanned + layout.plain;
        Ok((bytes.len() >= end).then_some(end))
    }

    /// Scans an eight-byte number if it has arrived.
    fn number(&mut self, bytes: &[u8]) -> Option<u64> {
        let number = u64::from_le_bytes(*bytes.get(self.scanned..)?.first_chunk()?);
        self.scanned += size_of::<u64>();
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Frame;
    use crate::store::tcp::engine::Limits;
    use crate::store::tcp::wire::{MAGIC, Request};

    fn requests() -> Vec<Request> {
        let (key, value) = (b"key".to_vec(), b"a value".to_vec());
        let keys = vec![key.clone(), Vec::new(), b"other".to_vec()];
        vec![
            Request::Validate(MAGIC),
            Request::Set(key.clone(), value.clone()),
            Request::CompareSet { key: key.clone(), expected: Vec::new(), desired: value.clone() },
            Request::Get(key.clone()),
            Request::Add(key.clone(), -5),
            Request::Check(keys.clone()),
            Request::Wait(keys.clone()),
            Request::NumKeys,
            Request::Delete(key.clone()),
            Request::Append(key.clone(), value.clone()),
            Request::MultiGet(keys),
            Request::MultiSet(vec![(key.clone(), value.clone()), (value.clone(), Vec::new())]),
            Request::CancelWait,
            Request::Ping(7),
            Request::QueuePush(key.clone(), value),
            Request::QueuePop(key.clone()),
            Request::QueueLen(key.clone()),
            Request::ListKeys,
            Request::Token(key),
        ]
    }

    #[test]
    fn each_request_ends_where_its_last_byte_is() {
        for request in requests() {
            let whole = request.to_bytes();
            let behind = [whole.as_slice(), &[0xaa; 9]].concat();
            let mut frame = Frame::default();
            for end in 0..whole.len() {
                assert_eq!(frame.scan(&whole[..end], &Limits::default()).unwrap(), None, "{request:?} at {end}");
            }
            assert_eq!(frame.scan(&behind, &Limits::default()).unwrap(), Some(whole.len()), "{request:?}");
            assert_eq!(Frame::default().scan(&behind, &Limits::default()).unwrap(), Some(whole.len()));
        }
    }

    proptest! {
        /// Random bytes: the scanner and the reader find the same end, or both refuse.
        #[test]
        fn the_scanner_agrees_with_the_reader(
            kind in prop_oneof![0_u8..20, Just(200), any::<u8>()],
            rest in proptest::collection::vec(prop_oneof![Just(0_u8), 0_u8..6, any::<u8>()], 0..80),
            cuts in proptest::collection::vec(0_usize..80, 0..6),
        ) {
            let limits = Limits { key_bytes: 5, value_bytes: 7, keys: 4, request_bytes: 20, ..Limits::default() };
            let bytes = [&[kind], rest.as_slice()].concat();
            let mut from = bytes.as_slice();
            let read = Request::read(&mut from, &limits).map(|_| bytes.len() - from.len());
            let mut frame = Frame::default();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
            cuts.sort_unstable();
            let pieces = cuts.iter().map(|cut| &bytes[..*cut]).chain([bytes.as_slice()]);
            let found = pieces.map(|piece| frame.scan(piece, &limits)).find(|found| !matches!(found, Ok(None)));
            match (read, found) {
                (Ok(end), Some(Ok(Some(found)))) => prop_assert_eq!(end, found),
                (Err(_), None | Some(Err(_))) => {}
                (read, found) => prop_assert!(false, "{:?} {:?}", read, found),
            }
        }
    }
}
