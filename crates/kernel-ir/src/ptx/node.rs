//! What each node of a program becomes.

use std::collections::HashMap;

use super::{Class, Recall, Reg, Writer, line};
use crate::graph::{Binary, Compare, Node, Program, Unary, Value};
use crate::math::{self, Math};
use crate::types::{Kind, Type};

/// What tells the value of a node: the node without its operands, its type and that of its first operand, whether it is
/// rounded in place, and the registers of its operands.
pub(super) type Made = (Node, Type, Option<Type>, bool, Vec<Reg>);

impl Writer {
    /// Writes the program for one element; returns the registers of its outputs. The inputs and scalars are in registers
    /// already; the index is one of 64 bits and is needed only where the program uses it.
    pub(crate) fn program(
        &mut self,
        program: &Program,
        inputs: &[Reg],
        scalars: &[Reg],
        index: Option<Reg>,
    ) -> Vec<Reg> {
        let mut values: Vec<Reg> = Vec::with_capacity(program.nodes().len());
        let mut widened: HashMap<Value, Reg> = HashMap::new();
        for (at, node, ty) in program.nodes() {
            let key = self.key(program, &values, at, node, ty);
            let (made, wide) = match key.as_ref().and_then(|key| self.made.get(key)) {
                Some(&known) => known,
                None => {
                    if let Some(operation) = program.note_at(at).filter(|_| self.is_fused) {
                        self.comment(operation);
                    }
                    let known = if let Node::Convert(short) = node { widened.get(&short).copied() } else { None };
                    let made = match (node, known) {
                        (_, Some(known)) => (known, None),
                        (Node::Convert(wide), _) if self.rounds_in_place(program, at, ty) => {
                            let (word, wide) = self.round_in_place(values[wide.index()]);
                            (word, Some(wide))
                        }
                        _ => (self.node(program, &values, node, ty, inputs, scalars, index), None),
                    };
                    self.made.extend(key.map(|key| (key, made)));
                    made
                }
            };
            widened.extend(wide.map(|wide| (at, wide)));
            values.push(made);
        }
        program.outputs().iter().map(|output| values[output.index()]).collect()
    }

    /// Whether a conversion gives a number that is only widened again, so that one instruction does both.
    fn rounds_in_place(&self, program: &Program, at: Value, ty: Type) -> bool {
        self.is_fused && self.has_bf16 && ty == Type::BF16 && program.is_only_widened(at)
    }

    /// What tells the value of a node, while values are recalled; nothing for what is there without an instruction.
    fn key(&self, program: &Program, values: &[Reg], at: Value, node: Node, ty: Type) -> Option<Made> {
        let is_conversion = matches!(node, Node::Convert(_));
        let first = node.operands().next().filter(|_| match self.recalls {
            Recall::Nothing => false,
            Recall::Conversions => is_conversion,
            Recall::Everything => true,
        })?;
        let in_place = is_conversion && self.rounds_in_place(program, at, ty);
        let read = node.operands().map(|value| values[value.index()]).collect();
        Some((node.with_operands(|_| Value::new(0)), ty, Some(program.type_of(first)), in_place, read))
    }

    #[expect(clippy::too_many_arguments, reason = "they are what a node can refer to")]
    fn node(
        &mut self,
        program: &Program,
        values: &[Reg],
        node: Node,
        ty: Type,
        inputs: &[Reg],
        scalars: &[Reg],
        index: Option<Reg>,
    ) -> Reg {
        let of = |value: Value| values[value.index()];
        match node {
            Node::Input(at) => inputs[at as usize],
            Node::Scalar(at) => scalars[at as usize],
            Node::Constant { bits } => self.constant(ty, bits),
            Node::Index => index.unwrap_or_else(|| self.constant(Type::I64, 0)),
            Node::Unary(op, a) => self.unary(op, ty, of(a)),
            Node::Binary(op, a, b) => self.binary(op, ty, of(a), of(b)),
            Node::Compare(op, a, b) => self.compare(op, program.type_of(a), of(a), of(b)),
            Node::Select(condition, a, b) => self.select(ty, of(condition), of(a), of(b)),
            Node::Fma(a, b, c) => {
                let (a, b, c) = (of(a), of(b), of(c));
                self.make(Class::of(ty), &format!("fma.rn.{ty}"), format_args!("{a}, {b}, {c}"))
            }
            Node::Convert(a) => self.convert(of(a), program.type_of(a), ty),
            Node::Bitcast(a) => self.bitcast(of(a), program.type_of(a), ty),
            Node::Call(function, a, b) => self.call(function, ty, of(a), b.map(of)),
        }
    }

    /// A constant in a register.
    pub(crate) fn constant(&mut self, ty: Type, bits: u64) -> Reg {
        if let Some(known) = self.constants.as_ref().and_then(|known| known.get(&(ty, bits))) {
            return *known;
        }
        let made = self.new_constant(ty, bits);
        if let Some(known) = &mut self.constants {
            known.insert((ty, bits), made);
        }
        made
    }

    fn new_constant(&mut self, ty: Type, bits: u64) -> Reg {
        match ty {
            Type::Bool => {
                let word = self.make(Class::Bits32, "mov.b32", format_args!("{}", u32::from(bits != 0)));
                self.make(Class::Predicate, "setp.ne.u32", format_args!("{word}, 0"))
            }
            Type::F32 => self.make(Class::Float32, "mov.f32", format_args!("0f{:08X}", bits & 0xffff_ffff)),
            Type::F64 => self.make(Class::Float64, "mov.f64", format_args!("0d{bits:016X}")),
            Type::I64 | Type::U64 => self.make(Class::Bits64, "mov.b64", format_args!("{}", bits.cast_signed())),
            Type::F16 | Type::BF16 => self.make(Class::Bits16, "mov.b16", format_args!("{}", bits & 0xffff)),
            Type::F8E4M3 | Type::F8E5M2 => self.make(Class::Bits32, "mov.b32", format_args!("{}", bits & 0xff)),
            Type::U8 | Type::I8 | Type::I16 | Type::I32 | Type::U32 => {
                let all = self.make(Class::Bits32, "mov.b32", format_args!("{}", bits & 0xffff_ffff));
                self.narrow(ty, all)
            }
        }
    }

    fn unary(&mut self, op: Unary, ty: Type, a: Reg) -> Reg {
        let class = Class::of(ty);
        let mnemonic = match (op, ty.kind()) {
            (Unary::Neg, Kind::Float) => format!("neg.{ty}"),
            (Unary::Neg, _) => format!("neg.s{}", width(ty)),
            (Unary::Abs, Kind::Float) => format!("abs.{ty}"),
            (Unary::Abs, Kind::Int { signed: false }) => return a,
            (Unary::Abs, _) => format!("abs.s{}", width(ty)),
            (Unary::Not, Kind::Bool) => "not.pred".to_owned(),
            (Unary::Not, _) => format!("not.b{}", width(ty)),
            (Unary::Sqrt, _) => format!("sqrt.rn.{ty}"),
            (Unary::Floor, _) => format!("cvt.rmi.{ty}.{ty}"),
            (Unary::Ceil, _) => format!("cvt.rpi.{ty}.{ty}"),
            (Unary::Trunc, _) => format!("cvt.rzi.{ty}.{ty}"),
            (Unary::Round, _) => format!("cvt.rni.{ty}.{ty}"),
        };
        let made = self.make(class, &mnemonic, format_args!("{a}"));
        self.narrow(ty, made)
    }

    fn binary(&mut self, op: Binary, ty: Type, a: Reg, b: Reg) -> Reg {
        if matches!(op, Binary::Shl | Binary::Shr) {
            return self.shift(op, ty, a, b);
        }
        let (width, sign) = (width(ty), sign(ty));
        let mnemonic = match (op, ty.kind()) {
            (Binary::Add, Kind::Float) => format!("add.rn.{ty}"),
            (Binary::Sub, Kind::Float) => format!("sub.rn.{ty}"),
            (Binary::Mul, Kind::Float) => format!("mul.rn.{ty}"),
            (Binary::Div, Kind::Float) => format!("div.rn.{ty}"),
            (Binary::Min, Kind::Float) => format!("min.{ty}"),
            (Binary::Max, Kind::Float) => format!("max.{ty}"),
            (Binary::And, Kind::Bool) => "and.pred".to_owned(),
            (Binary::Or, Kind::Bool) => "or.pred".to_owned(),
            (Binary::Xor, Kind::Bool) => "xor.pred".to_owned(),
            (Binary::Add, _) => format!("add.s{width}"),
            (Binary::Sub, _) => format!("sub.s{width}"),
            (Binary::Mul, _) => format!("mul.lo.s{width}"),
            (Binary::Div, _) => format!("div.{sign}{width}"),
            (Binary::Rem, _) => format!("rem.{sign}{width}"),
            (Binary::Min, _) => format!("min.{sign}{width}"),
            (Binary::Max, _) => format!("max.{sign}{width}"),
            (Binary::And, _) => format!("and.b{width}"),
            (Binary::Or, _) => format!("or.b{width}"),
            (Binary::Xor, _) => format!("xor.b{width}"),
            (Binary::Shl | Binary::Shr, _) => return a,
        };
        let made = self.make(Class::of(ty), &mnemonic, format_args!("{a}, {b}"));
        self.narrow(ty, made)
    }

    /// A shift, whose distance PTX takes as 32 unsigned bits and holds to the register's width. Distances that are
    /// negative or past the width of the type shift everything out.
    fn shift(&mut self, op: Binary, ty: Type, a: Reg, b: Reg) -> Reg {
        let distance = match Class::of(ty) {
            Class::Bits64 => {
                let held = self.make(Class::Bits64, "min.u64", format_args!("{b}, 64"));
                self.make(Class::Bits32, "cvt.u32.u64", format_args!("{held}"))
            }
            _ => self.make(Class::Bits32, "min.u32", format_args!("{b}, 32")),
        };
        let mnemonic = match op {
            Binary::Shl => format!("shl.b{}", width(ty)),
            _ => format!("shr.{}{}", sign(ty), width(ty)),
        };
        let made = self.make(Class::of(ty), &mnemonic, format_args!("{a}, {distance}"));
        self.narrow(ty, made)
    }

    fn compare(&mut self, op: Compare, ty: Type, a: Reg, b: Reg) -> Reg {
        let name = match (op, ty.kind()) {
            (Compare::Eq, _) => "eq",
            (Compare::Ne, Kind::Float) => "neu",
            (Compare::Ne, _) => "ne",
            (Compare::Lt, _) => "lt",
            (Compare::Le, _) => "le",
            (Compare::Gt, _) => "gt",
            (Compare::Ge, _) => "ge",
        };
        let (a, b) = match ty {
            Type::Bool => (self.word_of(a), self.word_of(b)),
            _ => (a, b),
        };
        let suffix = match ty.kind() {
            Kind::Float => ty.to_string(),
            Kind::Bool => "u32".to_owned(),
            _ => format!("{}{}", sign(ty), width(ty)),
        };
        self.make(Class::Predicate, &format!("setp.{name}.{suffix}"), format_args!("{a}, {b}"))
    }

    /// The first value where the condition holds, else the second.
    pub(crate) fn select(&mut self, ty: Type, condition: Reg, a: Reg, b: Reg) -> Reg {
        let suffix = match Class::of(ty) {
            Class::Predicate => {
                let (a, b) = (self.word_of(a), self.word_of(b));
                let word = self.make(Class::Bits32, "selp.b32", format_args!("{a}, {b}, {condition}"));
                return self.make(Class::Predicate, "setp.ne.u32", format_args!("{word}, 0"));
            }
            Class::Bits16 => "b16",
            Class::Bits32 => "b32",
            Class::Bits64 => "b64",
            Class::Float32 => "f32",
            Class::Float64 => "f64",
        };
        self.make(Class::of(ty), &format!("selp.{suffix}"), format_args!("{a}, {b}, {condition}"))
    }

    fn call(&mut self, function: Math, ty: Type, a: Reg, b: Option<Reg>) -> Reg {
        match (function, ty) {
            (Math::Exp, Type::F32) => return self.exp_f32(a),
            (Math::Exp2Near, _) => return self.make(Class::Float32, "ex2.approx.ftz.f32", format_args!("{a}")),
            (Math::Log2Near, _) => return self.make(Class::Float32, "lg2.approx.ftz.f32", format_args!("{a}")),
            (Math::RecipNear, _) => return self.make(Class::Float32, "rcp.approx.ftz.f32", format_args!("{a}")),
            _ => {}
        }
        self.calls.insert((function, ty));
        let made = self.register(Class::of(ty));
        let bits = ty.bits();
        let kind = if ty.is_float() { ty.to_string() } else { format!("b{bits}") };
        let symbol = math::symbol(function, ty);
        self.open_scope();
        line!(self, ".param .b{bits} result");
        for (at, argument) in [Some(a), b].into_iter().flatten().enumerate() {
            line!(self, ".param .b{bits} argument{at}");
            line!(self, "st.param.{kind} [argument{at}], {argument}");
        }
        let list = if b.is_some() { "argument0, argument1" } else { "argument0" };
        line!(self, "call.uni (result), {symbol}, ({list})");
        line!(self, "ld.param.{kind} {made}, [result]");
        self.close_scope();
        made
    }

    /// The function `math_exp_f32`, written in place: it is short, softmax calls it twice for each element, and the
    /// assembler leaves calls as calls.
    fn exp_f32(&mut self, a: Reg) -> Reg {
        let class = Class::Float32;
        let float = |writer: &mut Self, bits: u64| writer.constant(Type::F32, bits);
        let (half, scale) = (float(self, 0x3f00_0000), float(self, 0x3bbb_989d));
        let share = self.make(class, "fma.rn.f32", format_args!("{a}, {scale}, {half}"));
        let share = self.make(class, "cvt.sat.f32.f32", format_args!("{share}"));
        let (shift, range) = (float(self, 0x4b40_0001), float(self, 0x437c_0000));
        let whole = self.make(class, "fma.rm.f32", format_args!("{share}, {range}, {shift}"));
        let back = float(self, 0xcb40_007f);
        let power = self.make(class, "add.rn.f32", format_args!("{whole}, {back}"));
        let power = self.make(class, "neg.f32", format_args!("{power}"));
        let (high, low) = (float(self, 0x3fb8_aa3b), float(self, 0x32a5_7060));
        let rest = self.make(class, "fma.rn.f32", format_args!("{a}, {high}, {power}"));
        let rest = self.make(class, "fma.rn.f32", format_args!("{a}, {low}, {rest}"));
        let bits = self.make(Class::Bits32, "mov.b32", format_args!("{whole}"));
        let bits = self.make(Class::Bits32, "shl.b32", format_args!("{bits}, 23"));
        let factor = self.make(class, "mov.b32", format_args!("{bits}"));
        let fraction = self.make(class, "ex2.approx.ftz.f32", format_args!("{rest}"));
        self.make(class, "mul.rn.f32", format_args!("{fraction}, {factor}"))
    }

    /// One or zero for a predicate.
    pub(crate) fn word_of(&mut self, predicate: Reg) -> Reg {
        self.make(Class::Bits32, "selp.u32", format_args!("1, 0, {predicate}"))
    }

    /// A value of a narrow type, extended again after an operation on 32 bits.
    pub(crate) fn narrow(&mut self, ty: Type, a: Reg) -> Reg {
        match ty {
            Type::U8 | Type::F8E4M3 | Type::F8E5M2 => self.make(Class::Bits32, "and.b32", format_args!("{a}, 255")),
            Type::I8 => self.make(Class::Bits32, "bfe.s32", format_args!("{a}, 0, 8")),
            Type::I16 => self.make(Class::Bits32, "bfe.s32", format_args!("{a}, 0, 16")),
            _ => a,
        }
    }
}

/// Bits of the register that an integer is in.
pub(super) const fn width(ty: Type) -> u32 {
    if ty.bytes() == 8 { 64 } else { 32 }
}

/// How instructions write whether an integer has a sign.
pub(super) const fn sign(ty: Type) -> char {
    if matches!(ty.kind(), Kind::Int { signed: true }) { 's' } else { 'u' }
}
