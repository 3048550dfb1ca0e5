//! What an instruction does, with everything resolved.

use super::scalar::{Rounding, Scalar};
use super::types::{Address, Clock, Register, Space, Type};

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instruction {
    /// Only in lanes where this predicate is true, or false where the second says so.
    pub(crate) guard: Option<(Register, bool)>,
    pub(crate) action: Action,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Scalar(Scalar),
    Load(Load),
    Store(Store),
    Atomic(Atomic),
    /// `cp.async`: bytes, of which fewer may be read and the rest are zero.
    CopyAsync {
        to: Address,
        from: Address,
        bytes: u8,
        read: Option<Register>,
        unless: Option<Register>,
    },
    CommitCopies,
    /// Waits until at most so many groups of copies are outstanding; 0 waits for those not committed too.
    WaitCopies {
        outstanding: u32,
        all: bool,
    },
    ReadClock {
        to: Register,
        clock: Clock,
    },
    ActiveMask {
        to: Register,
    },
    /// To an instruction of the same function, by its index there.
    Branch {
        target: u32,
    },
    BranchIndexed {
        index: Register,
        targets: Vec<u32>,
    },
    Call(Call),
    Return,
    Exit,
    Trap,
    Sleep {
        nanoseconds: Register,
    },
    Fence,
    Barrier(Barrier),
    Warp(WarpOp),
    /// Bytes for the thread's own use (`alloca`), and its stack's end kept and brought back.
    Allocate {
        to: Register,
        bytes: Register,
        align: u32,
    },
    SaveStack {
        to: Register,
    },
    RestoreStack {
        from: Register,
    },
    /// Has an effect only on speed.
    Nothing,
}

/// What an access promises about its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Weak,
    /// `.volatile`, `.relaxed`, `.mmio`: not weak, but orders nothing else.
    Relaxed,
    Acquire,
    Release,
    AcquireRelease,
}

/// A load of 1, 2 or 4 values. `None` stands for `_`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) space: Space,
    pub(crate) ty: Type,
    pub(crate) order: Order,
    pub(crate) to: Vec<Option<Register>>,
    pub(crate) from: Address,
}

/// A store of 1, 2 or 4 values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Store {
    pub(crate) space: Space,
    pub(crate) ty: Type,
    pub(crate) order: Order,
    pub(crate) to: Address,
    pub(crate) from: Vec<Register>,
}

/// `atom` and `red`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Atomic {
    pub(crate) space: Space,
    pub(crate) op: AtomicOp,
    pub(crate) ty: Type,
    pub(crate) order: Order,
    /// Where the old values go; empty for `red`.
    pub(crate) to: Vec<Option<Register>>,
    pub(crate) at: Address,
    /// One value, or as many as `.v2` and `.v4` say.
    pub(crate) values: Vec<Register>,
    /// What `cas` stores.
    pub(crate) swap: Option<Register>,
}

/// What an atomic instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AtomicOp {
    Add,
    Minimum,
    Maximum,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
}

/// A call. Arguments and results are bytes of local memory: of the caller's frame here, of the callee's in
/// [`Function`](super::Function).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) target: CallTarget,
    pub(crate) arguments: Vec<Slot>,
    pub(crate) results: Vec<Slot>,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallTarget {
    /// A function of the module, by its index.
    Function(u32),
    /// The function whose address a register holds.
    Address(Register),
    Builtin(Builtin),
}

/// Functions that the driver brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Builtin {
    Printf,
    AssertFail,
    Malloc,
    Free,
    SetConditional,
}

/// Bytes of a frame's local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) offset: u32,
    pub(crate) size: u32,
}

/// `bar` and `barrier`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    pub(crate) id: Register,
    /// Threads that take part; all of the block where missing.
    pub(crate) threads: Option<Register>,
    /// Whether all lanes of a warp must come to it together.
    pub(crate) aligned: bool,
}

/// What a barrier does beside waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Wait,
    /// Does not wait.
    Arrive,
    /// Waits, and tells in how many lanes, in all, or in any the predicate holds; the second negates it.
    Count {
        to: Register,
        predicate: Register,
        negate: bool,
    },
    All {
        to: Register,
        predicate: Register,
        negate: bool,
    },
    Any {
        to: Register,
        predicate: Register,
        negate: bool,
    },
}

/// What the lanes of a warp do together. `members` is the mask of those that take part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WarpOp {
    Sync {
        members: Register,
    },
    Shuffle {
        mode: ShuffleMode,
        to: Register,
        valid: Option<Register>,
        a: Register,
        b: Register,
        c: Register,
        members: Register,
    },
    Vote {
        mode: VoteMode,
        to: Register,
        predicate: Register,
        negate: bool,
        members: Register,
    },
    Match {
        all: bool,
        to: Register,
        agree: Option<Register>,
        a: Register,
        members: Register,
    },
    Reduce {
        op: AtomicOp,
        ty: Type,
        to: Register,
        a: Register,
        members: Register,
    },
    Elect {
        to: Option<Register>,
        elected: Register,
        members: Register,
    },
    /// `ldmatrix` of matrices of 8 by 8 values of 16 bits.
    LoadMatrices {
        to: Vec<Register>,
        transpose: bool,
        space: Space,
        from: Address,
    },
    StoreMatrices {
        from: Vec<Register>,
        transpose: bool,
        space: Space,
        to: Address,
    },
    TransposeMatrix {
        to: Register,
        from: Register,
    },
    /// Products whose operands are all read before any result is written.
    Multiply(Vec<MatrixMultiply>),
    /// `wmma.load`
    LoadMatrix {
        matrix: WarpMatrix,
        by_rows: bool,
        space: Space,
        to: Vec<Register>,
        from: Address,
        stride: Register,
    },
    /// `wmma.store`
    StoreMatrix {
        matrix: WarpMatrix,
        by_rows: bool,
        space: Space,
        from: Vec<Register>,
        to: Address,
        stride: Register,
    },
}

/// Modes of `shfl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

/// Modes of `vote`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// Which operand of a product a matrix is; `C` stands for `d` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    A,
    B,
    C,
}

/// A matrix of `wmma`: an operand of a product of the shape `m` by `n` by `k`, and the type of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WarpMatrix {
    pub(crate) part: Part,
    pub(crate) shape: [u8; 3],
    pub(crate) ty: Type,
}

/// `mma.sync` of the shape `m` by `n` by `k`: `a` by rows, `b` by columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MatrixMultiply {
    pub(crate) shape: [u8; 3],
    pub(crate) a_type: Type,
    pub(crate) b_type: Type,
    pub(crate) c_type: Type,
    pub(crate) d_type: Type,
    pub(crate) saturate: bool,
    pub(crate) rounding: Rounding,
    pub(crate) d: Vec<Register>,
    pub(crate) a: Vec<Register>,
    pub(crate) b: Vec<Register>,
    pub(crate) c: Vec<Register>,
}
