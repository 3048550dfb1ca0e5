//! The reader of pickles: a machine that builds lists, dictionaries, numbers and texts, and nothing else.
//!
//! Invariants: no name is resolved and nothing is called, whatever the file says; memory is charged to the tree's
//! budget before it is allocated; every error names the offset of its instruction.

use std::collections::HashMap;

use super::opcode::{self as op};
use crate::error::{Error, PickleFault, Result};
use crate::limits::{Budget, Limits};
use crate::tree::{Node, Packed, Range, Tree, Value};

/// Whether bytes begin as a pickle does that has a chance to be read, or that deserves a word on its protocol.
pub(crate) fn is_pickle(bytes: &[u8]) -> bool {
    bytes.first() == Some(&op::PROTO)
}

/// Reads a pickle of protocol 2 to 5. What follows its end is not looked at: PyTorch's pages pad with zeros.
pub(crate) fn read<'file>(bytes: &'file [u8], limits: &Limits) -> Result<Tree<'file>> {
    let tree = Tree::new(bytes, limits);
    let machine = Machine { bytes, at: 0, begin: 0, stack: Vec::new(), marks: Vec::new(), memo: Memo::default(), tree };
    machine.run(limits.depth_max)
}

/// Values that are kept to be recalled. The numbers of a writer follow each other, except where one was left out.
#[derive(Debug, Default)]
struct Memo {
    dense: Vec<Packed>,
    sparse: HashMap<u32, Packed>,
}

impl Memo {
    fn keep(&mut self, number: u32, value: Packed, budget: &mut Budget) -> Result<()> {
        let length = self.dense.len();
        match self.dense.get_mut(number as usize) {
            Some(slot) => *slot = value,
            None if length == number as usize => budget.push(&mut self.dense, value)?,
            None => {
                budget.entry::<u32, Packed>()?;
                self.sparse.insert(number, value);
            }
        }
        Ok(())
    }

    fn recall(&self, number: u32) -> Option<Packed> {
        self.dense.get(number as usize).or_else(|| self.sparse.get(&number)).copied()
    }

    /// The number that Python gives to the next value without a number.
    fn next(&self) -> u32 {
        u32::try_from(self.dense.len() + self.sparse.len()).unwrap_or(u32::MAX)
    }
}

struct Machine<'file> {
    bytes: &'file [u8],
    /// The next byte to read.
    at: usize,
    /// The first byte of the instruction that runs.
    begin: usize,
    stack: Vec<Packed>,
    /// Positions in the stack, each at most the next.
    marks: Vec<usize>,
    memo: Memo,
    tree: Tree<'file>,
}

impl<'file> Machine<'file> {
    fn run(mut self, depth_max: usize) -> Result<Tree<'file>> {
        if self.bytes.first() != Some(&op::PROTO) {
            return Err(self.fault(if self.bytes.is_empty() { PickleFault::CutShort } else { PickleFault::NoPickle }));
        }
        loop {
            self.begin = self.at;
            let code = self.byte()?;
            if code == op::STOP {
                let root = self.pop()?;
                if !self.stack.is_empty() {
                    return Err(self.fault(PickleFault::LeftOver));
                }
                self.tree.root = self.tree.value(root);
                let own = self.stack.capacity() + self.memo.dense.capacity();
                self.tree.budget.give(own * size_of::<Packed>());
                return Ok(self.tree);
            }
            self.step(code, depth_max)?;
        }
    }

    fn step(&mut self, code: u8, depth_max: usize) -> Result<()> {
        match code {
            op::PROTO => self.protocol(),
            op::FRAME => self.take(8).map(drop),
            op::MARK if self.marks.len() >= depth_max => Err(self.fault(PickleFault::TooDeep)),
            op::MARK => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.keep(code),
            op::BINGET | op::LONG_BINGET => self.recall(code),
            op::APPEND | op::APPENDS | op::SETITEM | op::SETITEMS => self.add(code),
            op::EMPTY_LIST | op::EMPTY_DICT | op::EMPTY_TUPLE | op::LIST | op::DICT => self.container(code),
            op::TUPLE | op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => self.container(code),
            _ => {
                let value = self.scalar(code)?;
                self.push(value)
            }
        }
    }

    fn protocol(&mut self) -> Result<()> {
        match self.byte()? {
            2..=5 => Ok(()),
            other => Err(self.fault(PickleFault::Protocol(other))),
        }
    }

    /// Numbers, truth values and texts.
    fn scalar(&mut self, code: u8) -> Result<Value> {
        Ok(match code {
            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::BININT => Value::Int(i64::from(i32::from_le_bytes(self.array()?))),
            op::BININT1 => Value::Int(i64::from(self.byte()?)),
            op::BININT2 => Value::Int(i64::from(u16::from_le_bytes(self.array()?))),
            op::LONG1 => {
                let length = usize::from(self.byte()?);
                self.long(length)?
            }
            op::LONG4 => {
                let length = i32::from_le_bytes(self.array()?);
                self.long(usize::try_from(length).map_err(|_| self.fault(PickleFault::IntegerTooLarge))?)?
            }
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.array()?)),
            op::SHORT_BINUNICODE => Value::Text(self.text(1)?),
            op::BINUNICODE => Value::Text(self.text(4)?),
            op::BINUNICODE8 => Value::Text(self.text(8)?),
            op::SHORT_BINBYTES => Value::Bytes(self.text(1)?),
            op::BINBYTES => Value::Bytes(self.text(4)?),
            op::BINBYTES8 => Value::Bytes(self.text(8)?),
            _ if op::RUN_CODE.contains(&code) => return Err(self.fault(PickleFault::RunsCode(code))),
            _ => return Err(self.fault(PickleFault::Instruction(code))),
        })
    }

    /// A whole number in two's complement, lowest byte first.
    fn long(&mut self, length: usize) -> Result<Value> {
        let bytes = self.take(length)?;
        let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
        let mut whole = [if negative { 0xff } else { 0 }; 16];
        match whole.get_mut(..length) {
            Some(low) => low.copy_from_slice(bytes),
            None => return Err(self.fault(PickleFault::IntegerTooLarge)),
        }
        let number = i128::from_le_bytes(whole);
        match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => Ok(Value::Int(number)),
            (_, Ok(number)) => Ok(Value::Large(number)),
            _ => Err(self.fault(PickleFault::IntegerTooLarge)),
        }
    }

    /// A text whose length stands before it in that many bytes.
    fn text(&mut self, width: usize) -> Result<Range> {
        let mut length = [0; 8];
        length[..width].copy_from_slice(self.take(width)?);
        let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| self.fault(PickleFault::CutShort))?;
        let start = self.at;
        self.take(length)?;
        match (u32::try_from(start), u32::try_from(length)) {
            (Ok(start), Ok(length)) => Ok(Range { start, length }),
            _ => Err(self.fault(PickleFault::CutShort)),
        }
    }

    fn container(&mut self, code: u8) -> Result<()> {
        let first = match code {
            op::EMPTY_LIST | op::EMPTY_DICT | op::EMPTY_TUPLE => self.stack.len(),
            op::TUPLE1 => self.position(1)?,
            op::TUPLE2 => self.position(2)?,
            op::TUPLE3 => self.position(3)?,
            _ => self.mark()?,
        };
        if code == op::DICT && !(self.stack.len() - first).is_multiple_of(2) {
            return Err(self.fault(PickleFault::WrongContainer));
        }
        let node = self.tree.node(&mut self.stack, first)?;
        self.push(match code {
            op::EMPTY_LIST | op::LIST => Value::List(node),
            op::EMPTY_DICT | op::DICT => Value::Dict(node),
            _ => Value::Tuple(node),
        })
    }

    /// Adds values to the list or dictionary beneath them.
    fn add(&mut self, code: u8) -> Result<()> {
        let first = match code {
            op::APPEND => self.position(1)?,
            op::SETITEM => self.position(2)?,
            _ => self.mark()?,
        };
        let beneath = first.checked_sub(1).and_then(|below| self.stack.get(below).copied());
        let beneath = beneath.map(|beneath| self.tree.value(beneath));
        let wrong = self.fault(PickleFault::WrongContainer);
        let is_pairs = (self.stack.len() - first).is_multiple_of(2);
        let node: Node = match (code, beneath) {
            (op::APPEND | op::APPENDS, Some(Value::List(node))) => node,
            (op::SETITEM | op::SETITEMS, Some(Value::Dict(node))) if is_pairs => node,
            (_, None) => return Err(self.fault(PickleFault::StackEmpty)),
            _ => return Err(wrong),
        };
        self.tree.extend(node, &mut self.stack, first)
    }

    fn keep(&mut self, code: u8) -> Result<()> {
        let number = match code {
            op::BINPUT => u32::from(self.byte()?),
            op::LONG_BINPUT => u32::from_le_bytes(self.array()?),
            _ => self.memo.next(),
        };
        let value = self.stack.last().copied().ok_or_else(|| self.fault(PickleFault::StackEmpty))?;
        self.memo.keep(number, value, &mut self.tree.budget)
    }

    fn recall(&mut self, code: u8) -> Result<()> {
        let number = if code == op::BINGET { u32::from(self.byte()?) } else { u32::from_le_bytes(self.array()?) };
        let value = self.memo.recall(number).ok_or_else(|| self.fault(PickleFault::NoMemo(number)))?;
        self.tree.budget.push(&mut self.stack, value)
    }

    fn push(&mut self, value: Value) -> Result<()> {
        let value = self.tree.pack(value)?;
        self.tree.budget.push(&mut self.stack, value)
    }

    fn pop(&mut self) -> Result<Packed> {
        let last = self.position(1)?;
        let value = self.stack.get(last).copied().ok_or_else(|| self.fault(PickleFault::StackEmpty))?;
        self.stack.truncate(last);
        Ok(value)
    }

    /// Takes the last mark away.
    fn mark(&mut self) -> Result<usize> {
        self.marks.pop().ok_or_else(|| self.fault(PickleFault::StackEmpty))
    }

    /// Where the last values of the stack begin; none of them may lie beneath the last mark.
    fn position(&self, count: usize) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let first = self.stack.len().checked_sub(count).filter(|first| *first >= floor);
        first.ok_or_else(|| self.fault(PickleFault::StackEmpty))
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| self.fault(PickleFault::CutShort))
    }

    fn take(&mut self, length: usize) -> Result<&'file [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.fault(PickleFault::CutShort))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn fault(&self, fault: PickleFault) -> Error {
        Error::Pickle { offset: self.begin, fault }
    }
}
