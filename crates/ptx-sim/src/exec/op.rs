//! The compact form of instructions that a warp executes, and a module in that form.
//!
//! Frequent operations of a lane have forms of their own, whose loops over the lanes become vector instructions (`row`).
//! Every other instruction is looked up in the module where it stands: [`Op::Lane`] and the like have no operands here.
//!
//! **Invariants:** the instructions of all functions stand one after the other; a function ends with a return of its own,
//! so that a program counter never leaves it. `code`, `actions` and `sources` have the same length.

#![expect(clippy::wildcard_enum_match_arm, reason = "what has no compact form is left as it is")]

use crate::program::action::{Action, Instruction, Load, Order, Store};
use crate::program::scalar::{Comparison, Half, Logic, Modes, PermuteMode, Rounding, Scalar, ScalarOp};
use crate::program::types::{Address, Kind, Register, Space, Type};
use crate::program::{Frame, Module, Source};

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub(crate) op: Op,
    /// The predicate that says in which lanes it acts; [`UNGUARDED`] without one.
    pub(crate) guard: u16,
    /// Whether it acts where the predicate is false.
    pub(crate) negated: bool,
}

/// The guard of an instruction that acts in all lanes.
pub(crate) const UNGUARDED: u16 = u16::MAX;

/// Rows of a result and of up to three operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub(crate) to: u16,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
}

/// An access of a word: of shared memory by an address of 32 bits, or of any memory by one of 64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordAccess {
    pub(crate) shared: bool,
    /// The row that is loaded or stored.
    pub(crate) row: u16,
    /// The row of addresses.
    pub(crate) base: u16,
    pub(crate) offset: i32,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Word1(Word1, Operands),
    Word2(Word2, Operands),
    Word3(Word3, Operands),
    Lookup3(u8, Operands),
    Long1(Long1, Operands),
    Long2(Long2, Operands),
    /// `a * b + c` of 64 bits.
    LongMultiplyAdd(Operands),
    /// A product of words in 64 bits, plus `c` where it is there.
    Wide {
        signed: bool,
        add: bool,
        operands: Operands,
    },
    Single1(Float1, Operands),
    Single2(Float2, Operands),
    SingleFma(Operands),
    Double1(Float1, Operands),
    Double2(Float2, Operands),
    DoubleFma(Operands),
    CompareWord {
        signed: bool,
        comparison: Comparison,
        operands: Operands,
    },
    CompareLong {
        signed: bool,
        comparison: Comparison,
        operands: Operands,
    },
    CompareSingle {
        or_unordered: bool,
        comparison: Comparison,
        operands: Operands,
    },
    CompareDouble {
        or_unordered: bool,
        comparison: Comparison,
        operands: Operands,
    },
    Predicates(Logic, Operands),
    NotPredicate(Operands),
    MovePredicate(Operands),
    SelectWord(Operands),
    SelectLong(Operands),
    Convert(Conversion, Operands),
    /// A load of 4 or 8 bytes of the launch's parameters, from an offset that is known.
    LoadParameter {
        to: u16,
        long: bool,
        offset: u16,
    },
    /// A load or store of a word by each lane, which `quick` can do.
    LoadWord(WordAccess),
    StoreWord(WordAccess),
    /// Any other operation of a lane.
    Lane,
    Load,
    Store,
    Atomic,
    Branch(u32),
    Call,
    Return,
    Exit,
    Barrier,
    Warp,
    /// Anything else.
    Rare,
    /// Has no effect.
    Nothing,
}

/// Operations of one word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word1 {
    Move,
    Not,
    Negate,
    CountBits,
    LeadingZeros,
    Reverse,
}

/// Operations of two words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word2 {
    Add,
    Subtract,
    Multiply,
    MultiplyHigh,
    MultiplyHighSigned,
    Minimum,
    MinimumSigned,
    Maximum,
    MaximumSigned,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
}

/// Operations of three words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word3 {
    MultiplyAdd,
    FunnelLeft,
    FunnelRight,
    ExtractBits,
    Permute,
}

/// Operations of one row of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Long1 {
    Move,
    Not,
    Negate,
}

/// Operations of two rows of 64 bits; of shifts `b` is a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Long2 {
    Add,
    Subtract,
    Multiply,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
}

/// Operations of one floating number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Float1 {
    Negate,
    Absolute,
    SquareRoot,
    Reciprocal,
}

/// Operations of two floating numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Float2 {
    Add,
    Subtract,
    Multiply,
    Divide,
    Minimum,
    Maximum,
}

/// Conversions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Conversion {
    WordToLong,
    SignedWordToLong,
    LongToWord,
    WordToSingle,
    SignedWordToSingle,
    SingleToSignedWord,
    SingleToDouble,
    DoubleToSingle,
    /// The lower or upper half of a word.
    LowerHalf,
    UpperHalf,
    /// Two halves as a word.
    Halves,
}

/// A module with its instructions in compact form.
#[derive(Debug)]
pub struct Program {
    pub(crate) module: Module,
    pub(crate) code: Vec<Inst>,
    pub(crate) actions: Vec<Action>,
    pub(crate) sources: Vec<Source>,
    /// Where each function begins.
    pub(crate) starts: Vec<u32>,
}

impl Program {
    /// Makes a module executable.
    pub fn new(mut module: Module) -> Self {
        let mut program = Self {
            module: Module::default(),
            code: Vec::new(),
            actions: Vec::new(),
            sources: Vec::new(),
            starts: Vec::with_capacity(module.functions.len()),
        };
        for function in &mut module.functions {
            let start = u32::try_from(program.code.len()).unwrap_or(u32::MAX);
            program.starts.push(start);
            let mut places = std::mem::take(&mut function.places);
            places.resize(function.code.len() + 1, places.last().copied().unwrap_or_default());
            let end = Instruction { guard: None, action: Action::Return };
            for (instruction, source) in std::mem::take(&mut function.code).into_iter().chain([end]).zip(places) {
                program.push(instruction, source, start, &function.frame);
            }
        }
        program.module = module;
        program
    }

    /// The module. Its functions have given their instructions away.
    pub fn module(&self) -> &Module {
        &self.module
    }

    fn push(&mut self, instruction: Instruction, source: Source, start: u32, frame: &Frame) {
        let (guard, negated) = match instruction.guard {
            Some((predicate, wanted)) => (predicate.index, !wanted),
            None => (UNGUARDED, false),
        };
        let mut action = instruction.action;
        if let Action::Branch { target } = &mut action {
            *target += start;
        }
        if let Action::BranchIndexed { targets, .. } = &mut action {
            targets.iter_mut().for_each(|target| *target += start);
        }
        let op = parameter(&action, frame).unwrap_or_else(|| compact(&action));
        self.code.push(Inst { op, guard, negated });
        self.actions.push(action);
        self.sources.push(source);
    }
}

fn compact(action: &Action) -> Op {
    match action {
        Action::Scalar(scalar) => row(scalar).unwrap_or(Op::Lane),
        // What is not weak is looked at for warps that wait.
        Action::Load(Load { order, .. }) if *order != Order::Weak => Op::Load,
        Action::Load(Load { space, ty, to, from, .. }) => {
            let to = if let [Some(to)] = to[..] { Some(to) } else { None };
            word_access(*space, *ty, to, *from).map_or(Op::Load, Op::LoadWord)
        }
        Action::Store(Store { space, ty, to, from, .. }) => {
            let from = if let [from] = from[..] { Some(from) } else { None };
            word_access(*space, *ty, from, *to).map_or(Op::Store, Op::StoreWord)
        }
        Action::Atomic(_) => Op::Atomic,
        Action::Branch { target } => Op::Branch(*target),
        Action::Call(_) => Op::Call,
        Action::Return => Op::Return,
        Action::Exit => Op::Exit,
        Action::Barrier(_) => Op::Barrier,
        Action::Warp(_) => Op::Warp,
        Action::Nothing => Op::Nothing,
        Action::CopyAsync { .. }
        | Action::CommitCopies
        | Action::WaitCopies { .. }
        | Action::ReadClock { .. }
        | Action::ActiveMask { .. }
        | Action::BranchIndexed { .. }
        | Action::Trap
        | Action::Fence
        | Action::Sleep { .. }
        | Action::Allocate { .. }
        | Action::SaveStack { .. }
        | Action::RestoreStack { .. } => Op::Rare,
    }
}

/// The quick form of a load of a parameter, for one whose place is known.
fn parameter(action: &Action, frame: &Frame) -> Option<Op> {
    let Action::Load(Load { space: Space::Parameters, ty, to, from, .. }) = action else { return None };
    let [Some(to)] = to[..] else { return None };
    let base = frame.constants.iter().find(|(register, _)| *register == from.base)?.1;
    let offset = u16::try_from(base.checked_add_signed(from.offset)?).ok()?;
    let long = to.is_long();
    let bytes = if long { 8 } else { 4 };
    let fits = ty.bytes() == bytes && to.bits >= 32 && u64::from(offset) % bytes == 0;
    fits.then_some(Op::LoadParameter { to: to.index, long, offset })
}

/// The quick form of an access, for one that has it.
fn word_access(space: Space, ty: Type, row: Option<Register>, address: Address) -> Option<WordAccess> {
    let shared = space == Space::Shared && address.base.bits == 32;
    let global = matches!(space, Space::Global | Space::Generic) && address.base.is_long();
    let row = row.filter(|row| row.bits == 32 && ty.bytes() == 4 && (shared || global))?;
    let offset = i32::try_from(address.offset).ok()?;
    Some(WordAccess { shared, row: row.index, base: address.base.index, offset })
}

/// The form with loops of its own, for an operation that has one.
pub(crate) fn row(scalar: &Scalar) -> Option<Op> {
    let Scalar { op, ty, modes, to, arguments: [a, b, c, _] } = *scalar;
    let operands = Operands { to: to.index, a: a.index, b: b.index, c: c.index };
    if to.is_predicate() {
        return of_predicates(op, ty, modes, [a, b], operands);
    }
    match op {
        ScalarOp::Move if a.bits == to.bits && to.is_long() => return Some(Op::Long1(Long1::Move, operands)),
        ScalarOp::Move if a.bits == to.bits => return Some(Op::Word1(Word1::Move, operands)),
        ScalarOp::Select if to.is_long() => return Some(Op::SelectLong(operands)),
        ScalarOp::Select => return Some(Op::SelectWord(operands)),
        ScalarOp::Extract { from: 0, bits: 16 } if a.bits == 32 => {
            return Some(Op::Convert(Conversion::LowerHalf, operands));
        }
        ScalarOp::Extract { from: 16, bits: 16 } if a.bits == 32 => {
            return Some(Op::Convert(Conversion::UpperHalf, operands));
        }
        ScalarOp::Pack { bits: 16 } if to.bits == 32 => return Some(Op::Convert(Conversion::Halves, operands)),
        ScalarOp::Convert { to: target, to_integer: false } => return conversion(ty, target, modes, to, a, operands),
        _ => {}
    }
    match (ty.kind, ty.bits, ty.packed) {
        (_, _, true) => None,
        (Kind::Bits | Kind::Unsigned | Kind::Signed, 32, _) if !modes.saturate && !modes.relu => {
            words(op, ty.is_signed(), operands, to)
        }
        (Kind::Bits | Kind::Unsigned | Kind::Signed, 64, _) if !modes.saturate => {
            longs(op, ty.is_signed(), operands, to)
        }
        (Kind::Float, 32 | 64, _) if modes == Modes::default() => floats(op, ty.bits, operands),
        _ => None,
    }
}

fn of_predicates(op: ScalarOp, ty: Type, modes: Modes, [a, b]: [Register; 2], operands: Operands) -> Option<Op> {
    Some(match op {
        ScalarOp::Move if a.is_predicate() => Op::MovePredicate(operands),
        ScalarOp::Not if a.is_predicate() => Op::NotPredicate(operands),
        ScalarOp::And if b.is_predicate() => Op::Predicates(Logic::And, operands),
        ScalarOp::Or if b.is_predicate() => Op::Predicates(Logic::Or, operands),
        ScalarOp::Xor if b.is_predicate() => Op::Predicates(Logic::Xor, operands),
        ScalarOp::Compare { comparison, or_unordered, combine: None, invert: false } if modes == Modes::default() => {
            let signed = ty.is_signed();
            match (ty.kind, ty.bits, ty.packed) {
                (Kind::Bits | Kind::Unsigned | Kind::Signed, 32, false) => {
                    Op::CompareWord { signed, comparison, operands }
                }
                (Kind::Bits | Kind::Unsigned | Kind::Signed, 64, _) => Op::CompareLong { signed, comparison, operands },
                (Kind::Float, 32, _) => Op::CompareSingle { or_unordered, comparison, operands },
                (Kind::Float, 64, _) => Op::CompareDouble { or_unordered, comparison, operands },
                _ => return None,
            }
        }
        _ => return None,
    })
}

fn words(op: ScalarOp, signed: bool, operands: Operands, to: Register) -> Option<Op> {
    let two = |op| Some(Op::Word2(op, operands));
    let three = |op| Some(Op::Word3(op, operands));
    match op {
        ScalarOp::Multiply(Half::Wide) if to.is_long() => return Some(Op::Wide { signed, add: false, operands }),
        ScalarOp::MultiplyAdd(Half::Wide) if to.is_long() => return Some(Op::Wide { signed, add: true, operands }),
        _ if to.bits != 32 => return None,
        _ => {}
    }
    match op {
        ScalarOp::Not => Some(Op::Word1(Word1::Not, operands)),
        ScalarOp::Negate => Some(Op::Word1(Word1::Negate, operands)),
        ScalarOp::CountBits => Some(Op::Word1(Word1::CountBits, operands)),
        ScalarOp::LeadingZeros => Some(Op::Word1(Word1::LeadingZeros, operands)),
        ScalarOp::ReverseBits => Some(Op::Word1(Word1::Reverse, operands)),
        ScalarOp::Add => two(Word2::Add),
        ScalarOp::Subtract => two(Word2::Subtract),
        ScalarOp::Multiply(Half::Low) => two(Word2::Multiply),
        ScalarOp::Multiply(Half::High) => two(if signed { Word2::MultiplyHighSigned } else { Word2::MultiplyHigh }),
        ScalarOp::Minimum => two(if signed { Word2::MinimumSigned } else { Word2::Minimum }),
        ScalarOp::Maximum => two(if signed { Word2::MaximumSigned } else { Word2::Maximum }),
        ScalarOp::And => two(Word2::And),
        ScalarOp::Or => two(Word2::Or),
        ScalarOp::Xor => two(Word2::Xor),
        ScalarOp::ShiftLeft => two(Word2::ShiftLeft),
        ScalarOp::ShiftRight => two(if signed { Word2::ShiftRightSigned } else { Word2::ShiftRight }),
        ScalarOp::MultiplyAdd(Half::Low) => three(Word3::MultiplyAdd),
        ScalarOp::FunnelShift { left: true, wrap: true } => three(Word3::FunnelLeft),
        ScalarOp::FunnelShift { left: false, wrap: true } => three(Word3::FunnelRight),
        ScalarOp::ExtractBits if !signed => three(Word3::ExtractBits),
        ScalarOp::Permute(PermuteMode::Index) => three(Word3::Permute),
        ScalarOp::Lookup3(table) => Some(Op::Lookup3(table, operands)),
        _ => None,
    }
}

fn longs(op: ScalarOp, signed: bool, operands: Operands, to: Register) -> Option<Op> {
    if !to.is_long() {
        return None;
    }
    let two = |op| Some(Op::Long2(op, operands));
    match op {
        ScalarOp::Not => Some(Op::Long1(Long1::Not, operands)),
        ScalarOp::Negate => Some(Op::Long1(Long1::Negate, operands)),
        ScalarOp::Add => two(Long2::Add),
        ScalarOp::Subtract => two(Long2::Subtract),
        ScalarOp::Multiply(Half::Low) => two(Long2::Multiply),
        ScalarOp::And => two(Long2::And),
        ScalarOp::Or => two(Long2::Or),
        ScalarOp::Xor => two(Long2::Xor),
        ScalarOp::ShiftLeft => two(Long2::ShiftLeft),
        ScalarOp::ShiftRight => two(if signed { Long2::ShiftRightSigned } else { Long2::ShiftRight }),
        ScalarOp::MultiplyAdd(Half::Low) => Some(Op::LongMultiplyAdd(operands)),
        _ => None,
    }
}

fn floats(op: ScalarOp, bits: u8, operands: Operands) -> Option<Op> {
    let one = |op| Some(if bits == 32 { Op::Single1(op, operands) } else { Op::Double1(op, operands) });
    let two = |op| Some(if bits == 32 { Op::Single2(op, operands) } else { Op::Double2(op, operands) });
    match op {
        ScalarOp::Negate => one(Float1::Negate),
        ScalarOp::Absolute => one(Float1::Absolute),
        ScalarOp::SquareRoot => one(Float1::SquareRoot),
        ScalarOp::Reciprocal => one(Float1::Reciprocal),
        ScalarOp::Add => two(Float2::Add),
        ScalarOp::Subtract => two(Float2::Subtract),
        ScalarOp::Multiply(Half::Low) => two(Float2::Multiply),
        ScalarOp::Divide => two(Float2::Divide),
        ScalarOp::Minimum => two(Float2::Minimum),
        ScalarOp::Maximum => two(Float2::Maximum),
        ScalarOp::MultiplyAdd(Half::Low) if bits == 32 => Some(Op::SingleFma(operands)),
        ScalarOp::MultiplyAdd(Half::Low) => Some(Op::DoubleFma(operands)),
        _ => None,
    }
}

fn conversion(from: Type, to: Type, modes: Modes, row: Register, a: Register, operands: Operands) -> Option<Op> {
    if modes.flush || modes.saturate || modes.relu || modes.finite || from.packed || to.packed {
        return None;
    }
    let integers = |ty: Type| ty.is_integer() || ty.kind == Kind::Bits;
    let conversion = match (from.bits, to.bits) {
        (32, 64) if integers(from) && integers(to) && a.bits == 32 && row.is_long() => {
            if from.is_signed() {
                Conversion::SignedWordToLong
            } else {
                Conversion::WordToLong
            }
        }
        (64, 32) if integers(from) && integers(to) && row.bits == 32 => Conversion::LongToWord,
        (32, 32) if integers(from) && to == Type::F32 && modes.rounding == Rounding::Nearest && a.bits == 32 => {
            if from.is_signed() { Conversion::SignedWordToSingle } else { Conversion::WordToSingle }
        }
        (32, 32) if from == Type::F32 && to == Type::S32 && modes.rounding == Rounding::Zero && row.bits == 32 => {
            Conversion::SingleToSignedWord
        }
        (32, 64) if from == Type::F32 && to == Type::F64 => Conversion::SingleToDouble,
        (64, 32) if from == Type::F64 && to == Type::F32 && modes.rounding == Rounding::Nearest => {
            Conversion::DoubleToSingle
        }
        _ => return None,
    };
    Some(Op::Convert(conversion, operands))
}
