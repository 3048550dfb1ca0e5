//! Writing PTX: registers, instructions of nodes, loads and stores of elements.
//!
//! Reading order: this file ([`Writer`]: registers and lines), `node` (what each node becomes), `convert` (conversions),
//! `access` (elements in memory, one or several at a time).
//!
//! **Invariants:** a value of an integer type narrower than 32 bits is in a register of 32 bits, always extended by its
//! sign or by zeros. So is a float of 8 bits, by zeros. A boolean is a predicate. Rounding is always written out, so that the assembler does not contract
//! a product and a sum.

mod access;
mod convert;
mod node;

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Write as _};

pub(crate) use access::Space;
use node::Made;

use crate::math::{self, Math};
use crate::types::Type;

/// The language version of the texts: that of CUDA 11.8, the oldest driver that is supported.
pub(crate) const VERSION: &str = "7.8";

/// A class of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Predicate,
    Bits16,
    Bits32,
    Bits64,
    Float32,
    Float64,
}

impl Class {
    const ALL: [Self; 6] = [Self::Predicate, Self::Bits16, Self::Bits32, Self::Bits64, Self::Float32, Self::Float64];

    /// The class that holds values of a type.
    pub(crate) const fn of(ty: Type) -> Self {
        match ty {
            Type::Bool => Self::Predicate,
            Type::F16 | Type::BF16 => Self::Bits16,
            Type::U8 | Type::I8 | Type::I16 | Type::I32 | Type::U32 | Type::F8E4M3 | Type::F8E5M2 => Self::Bits32,
            Type::I64 | Type::U64 => Self::Bits64,
            Type::F32 => Self::Float32,
            Type::F64 => Self::Float64,
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Predicate => "%p",
            Self::Bits16 => "%h",
            Self::Bits32 => "%r",
            Self::Bits64 => "%rd",
            Self::Float32 => "%f",
            Self::Float64 => "%d",
        }
    }

    /// How a register of the class is copied.
    pub(crate) const fn copying(self) -> &'static str {
        match self {
            Self::Predicate => "mov.pred",
            Self::Bits16 => "mov.b16",
            Self::Bits32 => "mov.b32",
            Self::Bits64 => "mov.b64",
            Self::Float32 => "mov.f32",
            Self::Float64 => "mov.f64",
        }
    }

    const fn directive(self) -> &'static str {
        match self {
            Self::Predicate => ".pred",
            Self::Bits16 => ".b16",
            Self::Bits32 => ".b32",
            Self::Bits64 => ".b64",
            Self::Float32 => ".f32",
            Self::Float64 => ".f64",
        }
    }
}

/// Which values are recalled ([`Writer::recall`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recall {
    Nothing,
    /// Those that come of a conversion: they take the place of what was converted.
    Conversions,
    /// All that operations give: more registers for fewer instructions.
    Everything,
}

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reg {
    class: Class,
    number: u32,
}

impl Reg {
    /// The class that it is of.
    pub(crate) const fn class(self) -> Class {
        self.class
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.class.prefix(), self.number)
    }
}

/// Lines of a text that is long ([`is_long`]).
const LONG: usize = 1000;

/// Whether a text is so long that the driver's compiler takes some 70 ms and more for it.
///
/// ```
/// assert!(kernel_ir::is_long(&"ret;\n".repeat(1001)) && !kernel_ir::is_long(&"ret;\n".repeat(1000)));
/// ```
#[must_use]
pub fn is_long(text: &str) -> bool {
    text.lines().nth(LONG).is_some()
}

/// The body of a kernel while it is written.
#[derive(Debug)]
pub(crate) struct Writer {
    body: String,
    counts: [u32; 6],
    labels: u32,
    calls: BTreeSet<(Math, Type)>,
    /// Bytes of shared memory, which has the name `shared`.
    pub(crate) shared: usize,
    /// Threads that are to be on a multiprocessor at once, at the cost of registers, where the text is long.
    pub(crate) crowd: Option<u32>,
    /// Whether the target has instructions for `bf16`.
    has_bf16: bool,
    target: u32,
    /// Whether the text is of a fused program, see [`Self::fused`].
    is_fused: bool,
    /// Constants that are in registers already, while they are shared.
    constants: Option<HashMap<(Type, u64), Reg>>,
    /// Words of which elements of 16 bits are halves, and whether they are the high ones, while constants are shared.
    halves: HashMap<Reg, (Reg, bool)>,
    /// What nodes have become, while that is recalled.
    made: HashMap<Made, Rounded>,
    recalls: Recall,
}

/// The register of a value, and of the same value in 32 bits where both come of one instruction.
type Rounded = (Reg, Option<Reg>);

/// Adds a line to a writer's body.
macro_rules! line {
    ($writer:expr, $($text:tt)*) => {
        $writer.line(format_args!($($text)*))
    };
}
pub(crate) use line;

impl Writer {
    /// A body for devices of this compute capability, as 10 * major + minor.
    pub(crate) fn new(target: u32) -> Self {
        let (body, calls) = (String::new(), BTreeSet::new());
        let has_bf16 = target >= 80;
        let (is_fused, constants, halves) = (false, None, HashMap::new());
        let (made, recalls) = (HashMap::new(), Recall::Nothing);
        Self {
            body,
            counts: [0; 6],
            labels: 0,
            calls,
            shared: 0,
            crowd: None,
            has_bf16,
            target,
            is_fused,
            constants,
            halves,
            made,
            recalls,
        }
    }

    /// The same body for a program that was fused of several: what one of them rounds to `bf16` and the next one widens
    /// again takes one instruction, and constants are written once for a run of instructions ([`Self::sharing`]).
    pub(crate) fn fused(self, is_fused: bool) -> Self {
        Self { is_fused, ..self }
    }

    /// Writes instructions that are run one after another, without a label among them, so that constants can be shared.
    pub(crate) fn sharing<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        self.share(true);
        let made = write(self);
        self.share(false);
        made
    }

    /// Begins or ends what [`Self::sharing`] is for.
    pub(crate) fn share(&mut self, begins: bool) {
        self.constants = (begins && self.is_fused).then(HashMap::new);
        self.halves.clear();
    }

    /// Takes from now on what was made already for nodes that do the same with the same registers. Instructions run
    /// one after another meanwhile, and none gives another value to a register that a node reads.
    pub(crate) fn recall(&mut self, what: Recall) {
        self.recalls = what;
    }

    /// Copies a register to another one of its class.
    pub(crate) fn copy(&mut self, to: Reg, from: Reg) {
        line!(self, "{} {to}, {from}", to.class.copying());
    }

    /// Gives a register a value that nobody looks at.
    pub(crate) fn clear(&mut self, register: Reg) {
        match register.class {
            Class::Predicate => line!(self, "setp.ne.u32 {register}, 0, 0"),
            Class::Float32 => line!(self, "mov.f32 {register}, 0f00000000"),
            Class::Float64 => line!(self, "mov.f64 {register}, 0d0000000000000000"),
            Class::Bits16 | Class::Bits32 | Class::Bits64 => line!(self, "{} {register}, 0", register.class.copying()),
        }
    }

    /// Puts a comment on a line of its own.
    pub(crate) fn comment(&mut self, text: &str) {
        let _ = writeln!(self.body, "\t// {text}");
    }

    /// Keeps the assembler from writing the loop out whose first label was just placed.
    pub(crate) fn keep_loop(&mut self) {
        line!(self, ".pragma \"nounroll\"");
    }

    /// A register that nothing has used.
    pub(crate) fn register(&mut self, class: Class) -> Reg {
        let count = &mut self.counts[class as usize];
        *count += 1;
        Reg { class, number: *count }
    }

    /// A label that nothing has used.
    pub(crate) fn label(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels)
    }

    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) {
        self.body.push('\t');
        // Writing to a text cannot fail.
        let _ = self.body.write_fmt(text);
        self.body.push_str(";\n");
    }

    /// Begins a scope of declarations.
    pub(crate) fn open_scope(&mut self) {
        self.body.push_str("\t{\n");
    }

    /// Ends a scope. Nothing follows the brace: the driver's assembler refuses an empty statement.
    pub(crate) fn close_scope(&mut self) {
        self.body.push_str("\t}\n");
    }

    /// Puts a label here.
    pub(crate) fn place(&mut self, label: &str) {
        let _ = writeln!(self.body, "{label}:");
    }

    /// A new register with the result of an instruction: `mnemonic register, operands`.
    pub(crate) fn make(&mut self, class: Class, mnemonic: &str, operands: fmt::Arguments<'_>) -> Reg {
        let made = self.register(class);
        line!(self, "{mnemonic} {made}, {operands}");
        made
    }

    /// The whole module: the functions that are called, and the kernel with this name, parameters and bound of threads.
    pub(crate) fn finish(self, name: &str, parameters: &[String], threads: u32) -> String {
        let mut text = format!(".version {VERSION}\n.target sm_{}\n.address_size 64\n\n", self.target);
        math::write_functions(&self.calls, &mut text);
        let _ = writeln!(text, ".visible .entry {name}(\n\t{}\n)", parameters.join(",\n\t"));
        let _ = writeln!(text, ".maxntid {threads}, 1, 1");
        if let Some(crowd) = self.crowd.filter(|_| is_long(&self.body)) {
            let _ = writeln!(text, ".minnctapersm {}", (crowd / threads).max(1));
        }
        text.push_str("{\n");
        for class in Class::ALL {
            let count = self.counts[class as usize];
            if count > 0 {
                let _ = writeln!(text, "\t.reg {} {}<{}>;", class.directive(), class.prefix(), count + 1);
            }
        }
        if self.shared > 0 {
            // Vectors of 16 bytes lie in that of fused programs.
            let align = if self.is_fused { 16 } else { 8 };
            let _ = writeln!(text, "\t.shared .align {align} .b8 shared[{}];", self.shared);
        }
        text.push_str(&self.body);
        text.push_str("}\n");
        text
    }
}
