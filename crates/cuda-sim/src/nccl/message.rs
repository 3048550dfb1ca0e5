//! What goes over the sockets between ranks of several processes: frames of a length and bytes.
//!
//! **Invariant:** reading never takes more memory than a frame may have, and fails for bytes that are no message.

use std::io::{self, Read, Write};
use std::time::Duration;

use cuda_sys::ncclResult_t;

use super::arithmetic::{Kind, Op};
use super::exchange::{Asked, Failure, Outcome, What};
use super::hub::Identity;

/// What every connection begins with.
const MAGIC: &[u8; 8] = b"simnccl1";

/// Bytes of a frame at most.
const FRAME_MAX: u64 = 1 << 32;

/// A call, and what it sends.
pub(super) type Brought = (Asked, Vec<u8>);

/// What a rank asks.
#[derive(Debug, PartialEq)]
pub(super) enum Question {
    /// Whether all ranks have come.
    IsReady,
    /// Takes a batch; the answer has its number.
    Bring(Vec<Brought>),
    /// What became of a batch, which may wait for so long.
    Outcome(u64, Duration),
    /// What has failed.
    Failure,
    /// Everything is to fail.
    Fail(Failure),
    /// The rank leaves; there is no answer.
    Leave,
}

fn wrong() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

pub(super) fn write_frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)
}

pub(super) fn read_frame(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > FRAME_MAX {
        return Err(wrong());
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Bytes that are read from their begin.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take(&mut self, count: u64) -> io::Result<&'b [u8]> {
        let count = usize::try_from(count).map_err(|_| wrong())?;
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(wrong)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| wrong())?))
    }

    fn small(&mut self) -> io::Result<usize> {
        usize::try_from(self.number()?).map_err(|_| wrong())
    }

    fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let length = self.number()?;
        Ok(self.take(length)?.to_vec())
    }

    fn failure(&mut self) -> io::Result<Failure> {
        let status = ncclResult_t(u32::try_from(self.number()?).map_err(|_| wrong())?);
        Ok(Failure { status, text: String::from_utf8(self.bytes()?).map_err(|_| wrong())? })
    }

    fn asked(&mut self) -> io::Result<Asked> {
        let (function, other) = (self.number()?, self.small()?);
        let what = match function {
            0 => What::AllReduce,
            1 => What::Reduce { root: other },
            2 => What::Broadcast { root: other },
            3 => What::AllGather,
            4 => What::ReduceScatter,
            5 => What::Send { peer: other },
            6 => What::Recv { peer: other },
            _ => return Err(wrong()),
        };
        let count = self.number()?;
        let number = |number: u64| u32::try_from(number).map_err(|_| wrong());
        let kind = Kind::of(number(self.number()?)?).ok_or_else(wrong)?;
        let (op, factor) = (number(self.number()?)?, f64::from_bits(self.number()?));
        let op = if op == SCALED { Op::Scaled(factor) } else { Op::of(op).ok_or_else(wrong)? };
        Ok(Asked { what, count, kind, op })
    }
}

/// Stands for sums with a factor among the numbers of operations.
const SCALED: u32 = 5;

fn put(to: &mut Vec<u8>, number: u64) {
    to.extend(number.to_le_bytes());
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put(to, bytes.len() as u64);
    to.extend(bytes);
}

fn put_failure(to: &mut Vec<u8>, failure: &Failure) {
    put(to, u64::from(failure.status.0));
    put_bytes(to, failure.text.as_bytes());
}

fn put_asked(to: &mut Vec<u8>, asked: &Asked) {
    let (function, other) = match asked.what {
        What::AllReduce => (0, 0),
        What::Reduce { root } => (1, root),
        What::Broadcast { root } => (2, root),
        What::AllGather => (3, 0),
        What::ReduceScatter => (4, 0),
        What::Send { peer } => (5, peer),
        What::Recv { peer } => (6, peer),
    };
    let (op, factor) = match asked.op {
        Op::Sum => (0, 0.0),
        Op::Product => (1, 0.0),
        Op::Max => (2, 0.0),
        Op::Min => (3, 0.0),
        Op::Average => (4, 0.0),
        Op::Scaled(factor) => (u64::from(SCALED), factor),
    };
    let kind = u64::from(asked.kind.number());
    for number in [function, other as u64, asked.count, kind, op, factor.to_bits()] {
        put(to, number);
    }
}

pub(super) fn write_hello(to: &mut impl Write, identity: &Identity, ranks: usize, rank: usize) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(identity);
    put(&mut bytes, ranks as u64);
    put(&mut bytes, rank as u64);
    write_frame(to, &bytes)
}

/// The identity, the number of ranks and the rank of who comes.
pub(super) fn read_hello(from: &mut impl Read) -> io::Result<(Identity, usize, usize)> {
    let frame = read_frame(&mut from.take(8 + 8 + 128 + 16))?;
    let mut rest = Rest(&frame);
    if rest.take(8)? != MAGIC {
        return Err(wrong());
    }
    let identity = rest.take(128)?.try_into().map_err(|_| wrong())?;
    let (ranks, rank) = (rest.small()?, rest.small()?);
    if rank < ranks && ranks <= 1 << 16 { Ok((identity, ranks, rank)) } else { Err(wrong()) }
}

pub(super) fn write_question(to: &mut impl Write, question: &Question) -> io::Result<()> {
    let mut bytes = Vec::new();
    match question {
        Question::IsReady => put(&mut bytes, 0),
        Question::Bring(parts) => {
            put(&mut bytes, 1);
            for (asked, sent) in parts {
                put_asked(&mut bytes, asked);
                put_bytes(&mut bytes, sent);
            }
        }
        Question::Outcome(batch, patience) => {
            put(&mut bytes, 2);
            put(&mut bytes, *batch);
            put(&mut bytes, u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        }
        Question::Failure => put(&mut bytes, 3),
        Question::Fail(failure) => {
            put(&mut bytes, 4);
            put_failure(&mut bytes, failure);
        }
        Question::Leave => put(&mut bytes, 5),
    }
    write_frame(to, &bytes)
}

pub(super) fn read_question(from: &mut impl Read) -> io::Result<Question> {
    let frame = read_frame(from)?;
    let mut rest = Rest(&frame);
    Ok(match rest.number()? {
        0 => Question::IsReady,
        1 => {
            let mut parts = Vec::new();
            while !rest.0.is_empty() {
                parts.push((rest.asked()?, rest.bytes()?));
            }
            Question::Bring(parts)
        }
        2 => Question::Outcome(rest.number()?, Duration::from_millis(rest.number()?)),
        3 => Question::Failure,
        4 => Question::Fail(rest.failure()?),
        5 => Question::Leave,
        _ => return Err(wrong()),
    })
}

pub(super) fn write_answer(to: &mut impl Write, answer: &Outcome) -> io::Result<()> {
    let mut bytes = Vec::new();
    match answer {
        Outcome::Waiting => put(&mut bytes, 0),
        Outcome::Done(results) => {
            put(&mut bytes, 1);
            results.iter().for_each(|result| put_bytes(&mut bytes, result));
        }
        Outcome::Failed(failure) => {
            put(&mut bytes, 2);
            put_failure(&mut bytes, failure);
        }
    }
    write_frame(to, &bytes)
}

pub(super) fn read_answer(from: &mut impl Read) -> io::Result<Outcome> {
    let frame = read_frame(from)?;
    let mut rest = Rest(&frame);
    Ok(match rest.number()? {
        0 => Outcome::Waiting,
        1 => {
            let mut results = Vec::new();
            while !rest.0.is_empty() {
                results.push(rest.bytes()?);
            }
            Outcome::Done(results)
        }
        2 => Outcome::Failed(rest.failure()?),
        _ => return Err(wrong()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        let asked = |what, op| Asked { what, count: 3, kind: Kind::Bf16, op };
        let failure = Failure { status: ncclResult_t::ncclRemoteError, text: "why".to_owned() };
        let questions = [
            Question::IsReady,
            Question::Bring(vec![
                (asked(What::AllReduce, Op::Scaled(0.5)), vec![1, 2]),
                (asked(What::Recv { peer: 3 }, Op::Min), vec![]),
            ]),
            Question::Outcome(7, Duration::from_millis(9)),
            Question::Failure,
            Question::Fail(failure.clone()),
            Question::Leave,
        ];
        for question in questions {
            let mut bytes = Vec::new();
            write_question(&mut bytes, &question).expect("there is room");
            assert_eq!(read_question(&mut &bytes[..]).expect("it was written"), question);
            // Whatever is cut off is no message.
            for length in 0..bytes.len() {
                read_question(&mut &bytes[..length]).expect_err("it is cut off");
            }
        }
        for answer in [Outcome::Waiting, Outcome::Done(vec![vec![], vec![5]]), Outcome::Failed(failure)] {
            let mut bytes = Vec::new();
            write_answer(&mut bytes, &answer).expect("there is room");
            assert_eq!(read_answer(&mut &bytes[..]).expect("it was written"), answer);
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &[9; 40]).expect("there is room");
        read_question(&mut &bytes[..]).expect_err("there is no such question");
        read_hello(&mut &bytes[..]).expect_err("it begins with something else");
        let long = u64::MAX.to_le_bytes();
        assert_eq!(read_frame(&mut &long[..]).expect_err("it is too long").kind(), io::ErrorKind::InvalidData);
        let mut hello = Vec::new();
        write_hello(&mut hello, &[7; 128], 2, 1).expect("there is room");
        assert_eq!(read_hello(&mut &hello[..]).expect("it was written"), ([7; 128], 2, 1));
        write_hello(&mut Vec::new(), &[7; 128], 2, 2).expect("there is room");
    }
}
