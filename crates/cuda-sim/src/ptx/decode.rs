//! One instruction: its word and operands become an action, types checked.

use std::collections::{BTreeMap, BTreeSet};

use super::Refusal;
use super::program::{
    Action, Address, Atomic, Binary, Comparison, Half, Kind, Modes, Register, Rounding, Source, Space, Special, Type,
    Unary,
};

/// An operand as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Name(String),
    /// A predicate that is to be taken the other way round.
    Not(String),
    Integer(u64),
    /// Bits, and how many there are.
    Float(u64, u8),
    /// What stands before the sign in brackets, and the number behind it.
    Address(Box<Operand>, u64),
    List(Vec<Operand>),
}

/// What names mean in a kernel.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) registers: BTreeMap<String, Register>,
    /// Offsets of parameters.
    pub(super) parameters: BTreeMap<String, u64>,
    /// Offsets of shared variables; none for what begins behind all of them.
    pub(super) shared: BTreeMap<String, Option<u64>>,
    /// Arguments for a call, which are registers to the machine.
    pub(super) arguments: BTreeSet<String>,
}

impl Names {
    pub(super) fn declare(&mut self, name: String, ty: Type) {
        let index = self.registers.len();
        self.registers.entry(name).or_insert(Register { index, bits: ty.bits });
    }

    pub(super) fn register(&self, name: &str, line: u32) -> Result<Register, Refusal> {
        let unknown = || Refusal::invalid(line, format!("'{name}' is unknown"));
        self.registers.get(name).copied().ok_or_else(unknown)
    }

    fn shared_address(&self, name: &str) -> Option<Source> {
        let offset = self.shared.get(name)?;
        Some(offset.map_or(Source::Special(Special::DynamicShared), Source::Constant))
    }
}

/// Instructions of PTX that are not simulated; any other unknown word is none of PTX.
const NOT_SIMULATED: &[&str] = &[
    "activemask",
    "addc",
    "alloca",
    "applypriority",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "brev",
    "brkpt",
    "brx",
    "clusterlaunchcontrol",
    "cp",
    "copysign",
    "createpolicy",
    "discard",
    "dp2a",
    "dp4a",
    "elect",
    "fabric",
    "fns",
    "getctarank",
    "griddepcontrol",
    "isspacep",
    "istypep",
    "ld",
    "ldmatrix",
    "ldu",
    "lop3",
    "mad24",
    "madc",
    "mapa",
    "match",
    "mbarrier",
    "mma",
    "movmatrix",
    "mul24",
    "multimem",
    "nanosleep",
    "pmevent",
    "prefetch",
    "prefetchu",
    "prmt",
    "redux",
    "sad",
    "set",
    "setmaxnreg",
    "shf",
    "shfl",
    "slct",
    "stackrestore",
    "stacksave",
    "stmatrix",
    "subc",
    "suld",
    "suq",
    "sured",
    "sust",
    "szext",
    "tanh",
    "tcgen05",
    "tensormap",
    "testp",
    "tex",
    "tld4",
    "trap",
    "txq",
    "vadd",
    "vote",
    "wgmma",
    "wmma",
];

/// An instruction being read.
struct Reader<'a> {
    word: &'a str,
    modifiers: Vec<&'a str>,
    operands: &'a [Operand],
    names: &'a Names,
    line: u32,
}

/// Makes an action of an instruction.
pub(super) fn decode(word: &str, operands: &[Operand], names: &Names, line: u32) -> Result<Action, Refusal> {
    let mut parts = word.split('.');
    let name = parts.next().unwrap_or_default();
    let mut reader = Reader { word, modifiers: parts.collect(), operands, names, line };
    let action = match name {
        "mov" => reader.mov(),
        "add" => reader.binary(Binary::Add),
        "sub" => reader.binary(Binary::Subtract),
        "mul" => reader.multiply(),
        "mad" | "fma" => reader.multiply_add(),
        "div" => reader.binary(Binary::Divide),
        "rem" => reader.binary(Binary::Remainder),
        "min" => reader.binary(Binary::Least),
        "max" => reader.binary(Binary::Greatest),
        "and" => reader.binary(Binary::And),
        "or" => reader.binary(Binary::Or),
        "xor" => reader.binary(Binary::Xor),
        "shl" => reader.shift(Binary::ShiftLeft),
        "shr" => reader.shift(Binary::ShiftRight),
        "neg" => reader.unary(Unary::Negate),
        "abs" => reader.unary(Unary::Absolute),
        "not" => reader.unary(Unary::Not),
        "cnot" => Err(reader.unknown()),
        "sqrt" => reader.unary(Unary::SquareRoot),
        "rcp" => reader.unary(Unary::Reciprocal),
        "rsqrt" => reader.unary(Unary::ReciprocalRoot),
        "ex2" => reader.unary(Unary::PowerOfTwo),
        "lg2" => reader.unary(Unary::LogarithmOfTwo),
        "sin" => reader.unary(Unary::Sine),
        "cos" => reader.unary(Unary::Cosine),
        "popc" => reader.count(Unary::CountBits),
        "clz" => reader.count(Unary::LeadingZeros),
        "brev" => reader.unary(Unary::Reverse),
        "setp" => reader.compare(),
        "selp" => reader.select(),
        "cvt" => reader.convert(),
        "cvta" => reader.convert_address(),
        "ld" | "ldu" => reader.load(),
        "st" => reader.store(),
        "atom" => reader.atomic(true),
        "red" => reader.atomic(false),
        "bar" | "barrier" => reader.barrier(),
        "membar" | "fence" => Ok(Action::Nothing),
        "ret" | "exit" => reader.exit(),
        "call" => reader.set_condition(),
        _ if NOT_SIMULATED.contains(&name) => Err(reader.unknown()),
        _ => return Err(Refusal::invalid(line, format!("there is no instruction '{name}'"))),
    }?;
    // Whatever a function above did not ask for is not understood.
    match reader.modifiers.first() {
        None => Ok(action),
        Some(left) => Err(Refusal::not_simulated(line, format!("'.{left}' of '{word}'"))),
    }
}

impl<'a> Reader<'a> {
    fn unknown(&mut self) -> Refusal {
        Refusal::not_simulated(self.line, format!("'{}'", self.word))
    }

    fn wrong(&self, what: &str) -> Refusal {
        Refusal::invalid(self.line, format!("{what} of '{}'", self.word))
    }

    /// Takes a modifier if it is there.
    fn takes(&mut self, modifier: &str) -> bool {
        let found = self.modifiers.iter().position(|other| *other == modifier);
        found.map(|index| self.modifiers.remove(index)).is_some()
    }

    /// Takes the first of the modifiers that means something.
    fn take<T>(&mut self, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (index, found) =
            self.modifiers.iter().enumerate().find_map(|(index, word)| meaning(word).map(|found| (index, found)))?;
        self.modifiers.remove(index);
        Some(found)
    }

    fn ty(&mut self) -> Result<Type, Refusal> {
        self.take(Type::of).ok_or_else(|| self.wrong("the type is missing"))
    }

    fn modes(&mut self) -> Modes {
        Modes { flush: self.takes("ftz"), saturate: self.takes("sat") }
    }

    /// Takes how an operation rounds, which must be to the nearest; and whether it may be approximate, which it is not.
    fn plain_rounding(&mut self) {
        let _ = self.takes("rn") || self.takes("approx") || self.takes("full");
    }

    fn operands<const N: usize>(&self) -> Result<&'a [Operand; N], Refusal> {
        self.operands.try_into().map_err(|_| self.wrong("wrong number of operands"))
    }

    fn to(&self, operand: &Operand, bits: u8) -> Result<Register, Refusal> {
        let register = self.to_any(operand)?;
        if register.bits == bits { Ok(register) } else { Err(self.wrong("wrong size of an operand")) }
    }

    fn to_any(&self, operand: &Operand) -> Result<Register, Refusal> {
        match operand {
            Operand::Name(name) => self.names.register(name, self.line),
            Operand::Not(_) | Operand::Integer(_) | Operand::Float(..) | Operand::Address(..) | Operand::List(_) => {
                Err(self.wrong("the result is no register"))
            }
        }
    }

    /// A value of a type.
    fn value(&self, operand: &Operand, ty: Type) -> Result<Source, Refusal> {
        let source = self.any_value(operand, ty)?;
        match source {
            Source::Register(register) if register.bits != ty.bits => Err(self.wrong("wrong size of an operand")),
            Source::Register(_) | Source::Constant(_) | Source::Special(_) => Ok(source),
        }
    }

    /// A value of a type, from a register that may be wider.
    fn any_value(&self, operand: &Operand, ty: Type) -> Result<Source, Refusal> {
        match operand {
            Operand::Name(name) => {
                if let Some(special) = special(name) {
                    return Ok(Source::Special(special));
                }
                match self.names.shared_address(name) {
                    Some(address) => Ok(address),
                    None => self.names.register(name, self.line).map(Source::Register),
                }
            }
            &Operand::Integer(_) if ty.is_float() => Err(self.wrong("an integer as an operand")),
            &Operand::Integer(number) => Ok(Source::Constant(number & ty.mask())),
            &Operand::Float(bits, size) => self.float(bits, size, ty),
            Operand::Not(_) | Operand::Address(..) | Operand::List(_) => Err(self.wrong("wrong form of an operand")),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a constant of fewer bits is rounded")]
    fn float(&self, bits: u64, size: u8, ty: Type) -> Result<Source, Refusal> {
        let narrow = |bits: u64| u64::from((f64::from_bits(bits) as f32).to_bits());
        let wide = |bits: u64| f64::from(f32::from_bits(bits as u32)).to_bits();
        match (ty.kind, ty.bits, size) {
            (Kind::Float, 32, 64) => Ok(Source::Constant(narrow(bits))),
            (Kind::Float, 64, 32) => Ok(Source::Constant(wide(bits))),
            (Kind::Float | Kind::Bits, bits_wanted, _) if bits_wanted == size => Ok(Source::Constant(bits)),
            _ => Err(self.wrong("a floating constant as an operand")),
        }
    }

    fn predicate(&self, operand: &Operand) -> Result<(Source, bool), Refusal> {
        let (name, inverted) = match operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            Operand::Integer(_) | Operand::Float(..) | Operand::Address(..) | Operand::List(_) => {
                return Err(self.wrong("no predicate as an operand"));
            }
        };
        let register = self.names.register(name, self.line)?;
        if register.bits == 1 {
            Ok((Source::Register(register), inverted))
        } else {
            Err(self.wrong("no predicate as an operand"))
        }
    }

    fn mov(&mut self) -> Result<Action, Refusal> {
        let ty = self.ty()?;
        let [to, from] = self.operands()?;
        if matches!(to, Operand::List(_)) || matches!(from, Operand::List(_)) {
            return Err(Refusal::not_simulated(self.line, "moves of several registers"));
        }
        Ok(Action::Move { to: self.to(to, ty.bits)?, from: self.value(from, ty)? })
    }

    fn unary(&mut self, op: Unary) -> Result<Action, Refusal> {
        self.plain_rounding();
        let (modes, ty) = (self.modes(), self.ty()?);
        let of_floats = matches!(
            op,
            Unary::SquareRoot
                | Unary::Reciprocal
                | Unary::ReciprocalRoot
                | Unary::PowerOfTwo
                | Unary::LogarithmOfTwo
                | Unary::Sine
                | Unary::Cosine
        );
        let of_bits = matches!(op, Unary::Not | Unary::Reverse);
        let fits = match ty.kind {
            Kind::Float => !of_bits,
            Kind::Signed => !of_floats && !of_bits,
            Kind::Bits | Kind::Predicate => of_bits,
            Kind::Unsigned => false,
        };
        if !fits {
            return Err(self.wrong("wrong type"));
        }
        let [to, a] = self.operands()?;
        Ok(Action::Unary { op, ty, modes, to: self.to(to, ty.bits)?, a: self.value(a, ty)? })
    }

    /// `popc` and `clz`, whose result has 32 bits.
    fn count(&mut self, op: Unary) -> Result<Action, Refusal> {
        let ty = self.ty()?;
        let [to, a] = self.operands()?;
        Ok(Action::Unary { op, ty, modes: Modes::default(), to: self.to(to, 32)?, a: self.value(a, ty)? })
    }

    fn check_binary(&self, op: Binary, ty: Type) -> Result<(), Refusal> {
        let of_bits = matches!(op, Binary::And | Binary::Or | Binary::Xor);
        let fits = match ty.kind {
            Kind::Bits | Kind::Predicate => of_bits,
            Kind::Unsigned | Kind::Signed => !of_bits && ty.bits >= 16,
            Kind::Float => !of_bits && op != Binary::Remainder,
        };
        if fits { Ok(()) } else { Err(self.wrong("wrong type")) }
    }

    fn binary(&mut self, op: Binary) -> Result<Action, Refusal> {
        self.plain_rounding();
        let (modes, ty) = (self.modes(), self.ty()?);
        self.check_binary(op, ty)?;
        if modes.saturate && !ty.is_float() {
            return Err(self.unknown());
        }
        let [to, a, b] = self.operands()?;
        Ok(Action::Binary { op, ty, modes, to: self.to(to, ty.bits)?, a: self.value(a, ty)?, b: self.value(b, ty)? })
    }

    fn shift(&mut self, op: Binary) -> Result<Action, Refusal> {
        let ty = self.ty()?;
        if ty.is_float() || ty.kind == Kind::Predicate {
            return Err(self.wrong("wrong type"));
        }
        let [to, a, b] = self.operands()?;
        let count = Type { kind: Kind::Unsigned, bits: 32 };
        let modes = Modes::default();
        Ok(Action::Binary { op, ty, modes, to: self.to(to, ty.bits)?, a: self.value(a, ty)?, b: self.value(b, count)? })
    }

    fn half(&mut self) -> Option<Half> {
        self.take(|word| match word {
            "lo" => Some(Half::Low),
            "hi" => Some(Half::High),
            "wide" => Some(Half::Wide),
            _ => None,
        })
    }

    /// Half and type of a product, and the bits of its result.
    fn product(&mut self) -> Result<(Half, Type, Modes, u8), Refusal> {
        self.plain_rounding();
        let (half, modes, ty) = (self.half(), self.modes(), self.ty()?);
        match (half, ty.kind) {
            (None, Kind::Float) => Ok((Half::Low, ty, modes, ty.bits)),
            (Some(Half::Wide), Kind::Unsigned | Kind::Signed) if ty.bits <= 32 && modes == Modes::default() => {
                Ok((Half::Wide, ty, modes, ty.bits * 2))
            }
            (Some(half @ (Half::Low | Half::High)), Kind::Unsigned | Kind::Signed) if modes == Modes::default() => {
                Ok((half, ty, modes, ty.bits))
            }
            _ => Err(self.wrong("wrong type")),
        }
    }

    fn multiply(&mut self) -> Result<Action, Refusal> {
        let (half, ty, modes, bits) = self.product()?;
        let [to, a, b] = self.operands()?;
        let (to, a, b) = (self.to(to, bits)?, self.value(a, ty)?, self.value(b, ty)?);
        Ok(Action::Binary { op: Binary::Multiply(half), ty, modes, to, a, b })
    }

    fn multiply_add(&mut self) -> Result<Action, Refusal> {
        let (half, ty, modes, bits) = self.product()?;
        let [to, a, b, c] = self.operands()?;
        let sum = Type { bits, ..ty };
        let (to, a, b, c) = (self.to(to, bits)?, self.value(a, ty)?, self.value(b, ty)?, self.value(c, sum)?);
        Ok(Action::MultiplyAdd { half, ty, modes, to, a, b, c })
    }

    fn compare(&mut self) -> Result<Action, Refusal> {
        let found = self.take(comparison).ok_or_else(|| self.wrong("the comparison is missing"))?;
        let with = self.take(|word| match word {
            "and" => Some(Binary::And),
            "or" => Some(Binary::Or),
            "xor" => Some(Binary::Xor),
            _ => None,
        });
        let (flush, ty) = (self.takes("ftz"), self.ty()?);
        let (comparison, or_unordered) = found;
        let only_floats = or_unordered || matches!(comparison, Comparison::Numbers | Comparison::NotNumbers);
        let ordered = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        if only_floats && !ty.is_float() || ordered && ty.kind == Kind::Bits || ty.kind == Kind::Predicate {
            return Err(self.wrong("wrong type"));
        }
        let (operands, with) = match (with, self.operands) {
            (None, [_, _, _]) => (self.operands, None),
            (Some(op), [first @ .., last]) if first.len() == 3 => {
                let (source, inverted) = self.predicate(last)?;
                (first, Some((op, source, inverted)))
            }
            _ => return Err(self.wrong("wrong number of operands")),
        };
        let [to, a, b] = operands else { return Err(self.wrong("wrong number of operands")) };
        let (to, a, b) = (self.to(to, 1)?, self.value(a, ty)?, self.value(b, ty)?);
        Ok(Action::Compare { comparison, or_unordered, ty, flush, to, a, b, with })
    }

    fn select(&mut self) -> Result<Action, Refusal> {
        let ty = self.ty()?;
        let [to, a, b, condition] = self.operands()?;
        let (condition, _) = self.predicate(condition)?;
        Ok(Action::Select { to: self.to(to, ty.bits)?, a: self.value(a, ty)?, b: self.value(b, ty)?, condition })
    }

    fn convert(&mut self) -> Result<Action, Refusal> {
        let rounding = self.take(rounding);
        let modes = self.modes();
        let (to_type, from_type) = (self.ty()?, self.ty()?);
        let (rounding, to_integer) = rounding.unwrap_or((Rounding::Nearest, false));
        let needed = match (to_type.is_float(), from_type.is_float()) {
            (true, true) if to_type.bits < from_type.bits => Some(false),
            // Between equal sizes a rounding to integers may stand there, and need not.
            (true, true) => to_integer.then_some(true),
            (true, false) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        };
        let given = self.word.split('.').find_map(self::rounding).map(|(_, to_integer)| to_integer);
        let numbers = [to_type, from_type].iter().all(|ty| !matches!(ty.kind, Kind::Bits | Kind::Predicate));
        if given != needed || !numbers {
            return Err(self.wrong("wrong types or rounding"));
        }
        let [to, from] = self.operands()?;
        let (to, from) = (self.to_any(to)?, self.any_value(from, from_type)?);
        let too_small = to.bits < to_type.bits || matches!(from, Source::Register(from) if from.bits < from_type.bits);
        if too_small {
            return Err(self.wrong("wrong size of an operand"));
        }
        Ok(Action::Convert { to_type, from_type, rounding, to_integer, modes, to, from })
    }

    fn convert_address(&mut self) -> Result<Action, Refusal> {
        let to_generic = !self.takes("to");
        let shared = match self.space() {
            Some(Space::Shared) => true,
            Some(Space::Global) => false,
            Some(Space::Parameters | Space::Generic) | None => return Err(self.unknown()),
        };
        let ty = self.ty()?;
        let [to, from] = self.operands()?;
        Ok(Action::ConvertAddress { to_generic, shared, to: self.to(to, ty.bits)?, from: self.value(from, ty)? })
    }

    fn space(&mut self) -> Option<Space> {
        self.take(|word| match word {
            "global" => Some(Space::Global),
            "shared" => Some(Space::Shared),
            "param" => Some(Space::Parameters),
            _ => None,
        })
    }

    /// Modifiers of memory instructions that change nothing where one thread runs at a time.
    fn order(&mut self) {
        for word in [
            "volatile", "relaxed", "acquire", "release", "acq_rel", "sys", "gpu", "cta", "nc", "ca", "cg", "cs", "cv",
            "wb", "wt", "weak",
        ] {
            self.takes(word);
        }
    }

    fn vector(&mut self) -> usize {
        self.take(|word| match word {
            "v2" => Some(2),
            "v4" => Some(4),
            _ => None,
        })
        .unwrap_or(1)
    }

    /// The operands of an access to several elements.
    fn elements<'o>(&self, operand: &'o Operand, count: usize) -> Result<&'o [Operand], Refusal> {
        match operand {
            Operand::List(list) if list.len() == count && count > 1 => Ok(list),
            Operand::List(_) => Err(self.wrong("wrong number of elements")),
            Operand::Name(_) | Operand::Not(_) | Operand::Integer(_) | Operand::Float(..) | Operand::Address(..) => {
                if count == 1 {
                    Ok(std::slice::from_ref(operand))
                } else {
                    Err(self.wrong("wrong number of elements"))
                }
            }
        }
    }

    fn address(&self, operand: &Operand, space: Space) -> Result<Address, Refusal> {
        let Operand::Address(base, offset) = operand else { return Err(self.wrong("no address as an operand")) };
        let base = match base.as_ref() {
            Operand::Name(name) if space == Space::Parameters => {
                let unknown = || Refusal::invalid(self.line, format!("'{name}' is no parameter"));
                Source::Constant(*self.names.parameters.get(name).ok_or_else(unknown)?)
            }
            Operand::Name(name) => match self.names.shared_address(name).filter(|_| space == Space::Shared) {
                Some(address) => address,
                None => {
                    let register = self.names.register(name, self.line)?;
                    let wide = register.bits == 64 || register.bits == 32 && space == Space::Shared;
                    if !wide {
                        return Err(self.wrong("wrong size of an address"));
                    }
                    Source::Register(register)
                }
            },
            &Operand::Integer(number) => Source::Constant(number),
            Operand::Not(_) | Operand::Float(..) | Operand::Address(..) | Operand::List(_) => {
                return Err(self.wrong("wrong form of an address"));
            }
        };
        Ok(Address { base, offset: *offset })
    }

    fn load(&mut self) -> Result<Action, Refusal> {
        self.order();
        let (space, count, ty) = (self.space().unwrap_or(Space::Generic), self.vector(), self.ty()?);
        let [to, from] = self.operands()?;
        let to: Vec<Register> =
            self.elements(to, count)?.iter().map(|element| self.to_any(element)).collect::<Result<_, _>>()?;
        if ty.kind == Kind::Predicate || to.iter().any(|to| to.bits < ty.bits) {
            return Err(self.wrong("wrong size of an operand"));
        }
        Ok(Action::Load { space, ty, to, from: self.address(from, space)? })
    }

    fn store(&mut self) -> Result<Action, Refusal> {
        self.order();
        let (space, count, ty) = (self.space().unwrap_or(Space::Generic), self.vector(), self.ty()?);
        let [to, from] = self.operands()?;
        let from: Vec<Source> =
            self.elements(from, count)?.iter().map(|element| self.any_value(element, ty)).collect::<Result<_, _>>()?;
        if space == Space::Parameters {
            return self.pass(to, &from, ty);
        }
        let small = from.iter().any(|from| matches!(from, Source::Register(from) if from.bits < ty.bits));
        if ty.kind == Kind::Predicate || small {
            return Err(self.wrong("wrong operand"));
        }
        Ok(Action::Store { space, ty, to: self.address(to, space)?, from })
    }

    /// A store to an argument of a call.
    fn pass(&self, to: &Operand, from: &[Source], ty: Type) -> Result<Action, Refusal> {
        let name = if let Operand::Address(base, 0) = to
            && let Operand::Name(name) = base.as_ref()
            && self.names.arguments.contains(name)
        {
            name
        } else {
            return Err(self.wrong("wrong operand"));
        };
        let to = self.names.register(name, self.line)?;
        match from {
            &[from] if to.bits == ty.bits => Ok(Action::Move { to, from }),
            _ => Err(self.wrong("wrong size of an operand")),
        }
    }

    /// A call of `cudaGraphSetConditional`.
    fn set_condition(&mut self) -> Result<Action, Refusal> {
        self.takes("uni");
        let bits = |bits| Type { kind: Kind::Bits, bits };
        let [handle, value] = self.operands()?;
        Ok(Action::SetCondition { handle: self.value(handle, bits(64))?, value: self.value(value, bits(32))? })
    }

    fn atomic(&mut self, gives_old: bool) -> Result<Action, Refusal> {
        self.order();
        let space = self.space().unwrap_or(Space::Generic);
        let op = self.take(|word| {
            Some(match word {
                "add" => Atomic::Binary(Binary::Add),
                "min" => Atomic::Binary(Binary::Least),
                "max" => Atomic::Binary(Binary::Greatest),
                "and" => Atomic::Binary(Binary::And),
                "or" => Atomic::Binary(Binary::Or),
                "xor" => Atomic::Binary(Binary::Xor),
                "exch" => Atomic::Exchange,
                "cas" => Atomic::CompareAndSwap,
                "inc" => Atomic::Increment,
                "dec" => Atomic::Decrement,
                _ => return None,
            })
        });
        let op = op.ok_or_else(|| self.wrong("the operation is missing"))?;
        let ty = self.ty()?;
        let fits = match op {
            Atomic::Binary(op) => self.check_binary(op, ty).is_ok() && ty.bits >= 32,
            Atomic::Exchange | Atomic::CompareAndSwap => ty.kind == Kind::Bits && ty.bits >= 32,
            Atomic::Increment | Atomic::Decrement => ty == Type { kind: Kind::Unsigned, bits: 32 },
        };
        if !fits || space == Space::Parameters {
            return Err(self.wrong("wrong type"));
        }
        let (to, rest) = match self.operands {
            [to, rest @ ..] if gives_old => (Some(self.to(to, ty.bits)?), rest),
            rest => (None, rest),
        };
        let (at, b, c) = match rest {
            [at, b, c] if op == Atomic::CompareAndSwap => (at, b, self.value(c, ty)?),
            [at, b] if op != Atomic::CompareAndSwap => (at, b, Source::Constant(0)),
            _ => return Err(self.wrong("wrong number of operands")),
        };
        Ok(Action::Atomic { space, op, ty, to, at: self.address(at, space)?, b: self.value(b, ty)?, c })
    }

    /// A barrier of the whole block; there is one that is simulated.
    fn barrier(&mut self) -> Result<Action, Refusal> {
        self.takes("cta");
        let all = self.takes("sync");
        self.takes("aligned");
        match self.operands {
            [Operand::Integer(0)] if all => Ok(Action::Barrier),
            _ => Err(self.unknown()),
        }
    }

    fn exit(&mut self) -> Result<Action, Refusal> {
        self.takes("uni");
        let [] = self.operands()?;
        Ok(Action::Exit)
    }
}

fn special(name: &str) -> Option<Special> {
    let (base, axis) = name.split_at_checked(name.len().saturating_sub(2))?;
    let axis = match axis {
        ".x" => Some(0),
        ".y" => Some(1),
        ".z" => Some(2),
        _ => None,
    };
    if let Some(axis) = axis {
        return match base {
            "%tid" => Some(Special::Thread(axis)),
            "%ntid" => Some(Special::BlockSize(axis)),
            "%ctaid" => Some(Special::Block(axis)),
            "%nctaid" => Some(Special::GridSize(axis)),
            _ => None,
        };
    }
    match name {
        "%laneid" => Some(Special::Lane),
        "%warpid" => Some(Special::Warp),
        "%clock64" | "%clock" => Some(Special::Clock),
        "%clock_hi" => Some(Special::ClockHigh),
        "%globaltimer" | "%globaltimer_lo" => Some(Special::Nanoseconds),
        "WARP_SZ" => Some(Special::WarpSize),
        _ => None,
    }
}

/// A comparison, and whether it also holds when a number is none.
fn comparison(word: &str) -> Option<(Comparison, bool)> {
    Some(match word {
        "eq" => (Comparison::Equal, false),
        "ne" => (Comparison::NotEqual, false),
        "lt" | "lo" => (Comparison::Less, false),
        "le" | "ls" => (Comparison::LessOrEqual, false),
        "gt" | "hi" => (Comparison::Greater, false),
        "ge" | "hs" => (Comparison::GreaterOrEqual, false),
        "equ" => (Comparison::Equal, true),
        "neu" => (Comparison::NotEqual, true),
        "ltu" => (Comparison::Less, true),
        "leu" => (Comparison::LessOrEqual, true),
        "gtu" => (Comparison::Greater, true),
        "geu" => (Comparison::GreaterOrEqual, true),
        "num" => (Comparison::Numbers, false),
        "nan" => (Comparison::NotNumbers, false),
        _ => return None,
    })
}

/// A rounding, and whether it is to an integer.
fn rounding(word: &str) -> Option<(Rounding, bool)> {
    Some(match word {
        "rn" => (Rounding::Nearest, false),
        "rz" => (Rounding::Zero, false),
        "rm" => (Rounding::Down, false),
        "rp" => (Rounding::Up, false),
        "rni" => (Rounding::Nearest, true),
        "rzi" => (Rounding::Zero, true),
        "rmi" => (Rounding::Down, true),
        "rpi" => (Rounding::Up, true),
        _ => return None,
    })
}
