//! PTX as it is written: a tree of what the text says, with names still unresolved.
//!
//! The tree borrows from the text. It keeps what the text says and nothing else: whether a name exists, an operand
//! fits or an instruction is supported is decided in `decode`.

use std::fmt;

/// Where something stands in the text, both counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

/// One text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text<'t> {
    /// `.version`, times ten.
    pub(crate) version: u32,
    /// The number of `.target sm_NN`.
    pub(crate) target: u32,
    /// Functions and variables in their order.
    pub(crate) items: Vec<Item<'t>>,
    /// Names of `.file`, by number.
    pub(crate) files: Vec<(u32, &'t str)>,
}

/// What stands outside of functions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item<'t> {
    Function(FunctionText<'t>),
    Variable(VariableText<'t>),
    /// `.alias name, other;`
    Alias {
        name: &'t str,
        of: &'t str,
        at: Place,
    },
}

/// How a name meets the same name in other texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// Of this text alone.
    #[default]
    Private,
    Visible,
    Extern,
    Weak,
    Common,
}

/// `.entry` or `.func`, declared or with a body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FunctionText<'t> {
    pub(crate) linkage: Linkage,
    pub(crate) is_entry: bool,
    pub(crate) name: &'t str,
    pub(crate) at: Place,
    pub(crate) returns: Vec<VariableText<'t>>,
    pub(crate) parameters: Vec<VariableText<'t>>,
    pub(crate) tuning: Tuning,
    pub(crate) body: Option<Vec<Statement<'t>>>,
}

/// Directives between the parameters and the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// `.maxntid`, missing numbers as 1.
    pub(crate) max_threads: Option<[u32; 3]>,
    /// `.reqntid`, likewise.
    pub(crate) required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`.
    pub(crate) min_blocks: Option<u32>,
    /// `.maxnreg`.
    pub(crate) max_registers: Option<u32>,
    /// Whether a directive on clusters stands here.
    pub(crate) clusters: bool,
}

/// A declaration of memory or of a parameter. A parameter in a register has the space `.reg`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VariableText<'t> {
    pub(crate) linkage: Linkage,
    /// The word of the state space without its dot: `global`, `const`, `shared`, `local`, `param`, `reg`, `tex`.
    pub(crate) space: &'t str,
    /// The word of the type without its dot: `u32`, `f16x2`, `texref`.
    pub(crate) ty: &'t str,
    /// Elements of `.v2` and `.v4`; 1 for others.
    pub(crate) vector: u32,
    /// `.align`.
    pub(crate) align: Option<u64>,
    /// Whether `.ptr` stands there, whose `.align` is that of what it points to.
    pub(crate) pointer: bool,
    /// Empty for a parameter of a prototype, or `_`.
    pub(crate) name: &'t str,
    /// Sizes of an array's dimensions, the outermost first; 0 for one that is left open.
    pub(crate) dimensions: Vec<u64>,
    /// The values behind `=`, dimensions flattened, in their order.
    pub(crate) initial: Option<Vec<Initial<'t>>>,
    pub(crate) at: Place,
}

/// A value of an initialiser.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Initial<'t> {
    Integer(u64),
    /// Bits, and how many there are.
    Float(u64, u8),
    /// An address: `name`, `name+4`, `generic(name)+4`, and the part that `0xFF00(name)` takes.
    Symbol {
        name: &'t str,
        offset: u64,
        mask: Option<u64>,
    },
    /// As many zeros as end the row of an inner dimension.
    Zeros(u64),
}

/// What stands in a body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Statement<'t> {
    Block(Vec<Statement<'t>>),
    /// `.reg .b32 %r<5>, %x;` a name, and how many there are of a numbered one.
    Registers {
        ty: &'t str,
        vector: u32,
        names: Vec<(&'t str, Option<u32>)>,
        at: Place,
    },
    Variable(VariableText<'t>),
    Label {
        name: &'t str,
        at: Place,
    },
    Instruction(InstructionText<'t>),
    /// `.loc file line column`.
    Location {
        file: u32,
        line: u32,
    },
    /// `name: .callprototype (...) _ (...);`
    Prototype {
        name: &'t str,
        returns: Vec<VariableText<'t>>,
        parameters: Vec<VariableText<'t>>,
        at: Place,
    },
    /// `name: .branchtargets a, b;` and `.calltargets`.
    Targets {
        name: &'t str,
        targets: Vec<&'t str>,
        at: Place,
    },
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InstructionText<'t> {
    /// The predicate, and whether `!` stands before it.
    pub(crate) guard: Option<(&'t str, bool)>,
    /// The whole word, `ld.global.v4.f32`.
    pub(crate) word: &'t str,
    pub(crate) operands: Vec<Operand<'t>>,
    pub(crate) at: Place,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'t> {
    Name(&'t str),
    /// `!%p1`
    Not(&'t str),
    /// `-%r1`, which only a few instructions know.
    Minus(&'t str),
    /// `name+4` outside of brackets.
    Sum(&'t str, u64),
    Integer(u64),
    /// Bits, and how many there are.
    Float(u64, u8),
    /// What stands in brackets, and the number behind the sign.
    Address(Box<Operand<'t>>, u64),
    /// `{a, b}`
    List(Vec<Operand<'t>>),
    /// `(a, b)` of a call.
    Group(Vec<Operand<'t>>),
    /// `a|b`
    Pair(Box<Operand<'t>>, Box<Operand<'t>>),
    /// `_`
    Sink,
}

impl fmt::Display for InstructionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, negate)) = self.guard {
            write!(f, "@{}{name} ", if negate { "!" } else { "" })?;
        }
        let blank = if self.operands.is_empty() { "" } else { " " };
        write!(f, "{}{blank}{};", self.word, Listed(&self.operands))
    }
}

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Not(name) => write!(f, "!{name}"),
            Self::Minus(name) => write!(f, "-{name}"),
            Self::Sum(name, distance) => write!(f, "{name}{:+}", distance.cast_signed()),
            Self::Integer(number) => write!(f, "{}", number.cast_signed()),
            Self::Float(bits, 64) => write!(f, "0d{bits:016X}"),
            Self::Float(bits, _) => write!(f, "0f{bits:08X}"),
            Self::Address(base, distance) => {
                let inside =
                    if let Self::List(parts) = &**base { Listed(parts) } else { Listed(std::slice::from_ref(base)) };
                match distance {
                    0 => write!(f, "[{inside}]"),
                    _ => write!(f, "[{inside}{:+}]", distance.cast_signed()),
                }
            }
            Self::List(parts) => write!(f, "{{{}}}", Listed(parts)),
            Self::Group(parts) => write!(f, "({})", Listed(parts)),
            Self::Pair(a, b) => write!(f, "{a}|{b}"),
            Self::Sink => f.write_str("_"),
        }
    }
}

/// Operands with commas between them.
struct Listed<'o, 't>(&'o [Operand<'t>]);

impl fmt::Display for Listed<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operand) in self.0.iter().enumerate() {
            write!(f, "{}{operand}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
