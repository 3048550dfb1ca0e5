//! Conversions between types.

use super::node::{sign, width};
use super::{Class, Reg, Writer};
use crate::types::{Kind, Type};

impl Writer {
    /// The value in another type. Booleans are no type here: the builder made comparisons and selections of them.
    pub(super) fn convert(&mut self, a: Reg, from: Type, to: Type) -> Reg {
        match (from.kind(), to.kind()) {
            (Kind::Float, Kind::Float) if from == Type::F32 => {
                self.make(Class::Float64, "cvt.f64.f32", format_args!("{a}"))
            }
            (Kind::Float, Kind::Float) => self.make(Class::Float32, "cvt.rn.f32.f64", format_args!("{a}")),
            (Kind::Half, _) => self.widen_half(a, from),
            (_, Kind::Half) => self.round_to_half(a, to),
            (Kind::Float, _) => self.float_to_int(a, from, to),
            (_, Kind::Float) => {
                let mnemonic = format!("cvt.rn.{to}.{}{}", sign(from), width(from));
                self.make(Class::of(to), &mnemonic, format_args!("{a}"))
            }
            _ => self.int_to_int(a, from, to),
        }
    }

    fn widen_half(&mut self, a: Reg, from: Type) -> Reg {
        if from == Type::F16 {
            return self.make(Class::Float32, "cvt.f32.f16", format_args!("{a}"));
        }
        let word = self.make(Class::Bits32, "cvt.u32.u16", format_args!("{a}"));
        let high = self.make(Class::Bits32, "shl.b32", format_args!("{word}, 16"));
        self.make(Class::Float32, "mov.b32", format_args!("{high}"))
    }

    fn round_to_half(&mut self, a: Reg, to: Type) -> Reg {
        match to {
            Type::F16 => self.make(Class::Bits16, "cvt.rn.f16.f32", format_args!("{a}")),
            _ if self.has_bf16 => self.make(Class::Bits16, "cvt.rn.bf16.f32", format_args!("{a}")),
            _ => self.round_to_bf16(a),
        }
    }

    /// To the nearest `bf16`, halves to the even one, on devices without an instruction for it.
    fn round_to_bf16(&mut self, a: Reg) -> Reg {
        let bits = self.make(Class::Bits32, "mov.b32", format_args!("{a}"));
        let odd = self.make(Class::Bits32, "bfe.u32", format_args!("{bits}, 16, 1"));
        let bias = self.make(Class::Bits32, "add.u32", format_args!("{odd}, 32767"));
        let sum = self.make(Class::Bits32, "add.u32", format_args!("{bits}, {bias}"));
        let high = self.make(Class::Bits32, "shr.u32", format_args!("{sum}, 16"));
        let nan = self.make(Class::Predicate, "setp.nan.f32", format_args!("{a}, {a}"));
        let chosen = self.make(Class::Bits32, "selp.b32", format_args!("32767, {high}, {nan}"));
        self.make(Class::Bits16, "cvt.u16.u32", format_args!("{chosen}"))
    }

    /// Towards zero. To 8 unsigned bits it goes by way of 64 signed bits, so that negative numbers wrap around; to the
    /// other narrow types by way of 32.
    fn float_to_int(&mut self, a: Reg, from: Type, to: Type) -> Reg {
        match to {
            Type::U8 => {
                let wide = self.make(Class::Bits64, &format!("cvt.rzi.s64.{from}"), format_args!("{a}"));
                self.int_to_int(wide, Type::I64, Type::U8)
            }
            Type::I8 | Type::I16 => {
                let word = self.make(Class::Bits32, &format!("cvt.rzi.s32.{from}"), format_args!("{a}"));
                self.narrow(to, word)
            }
            _ => {
                let mnemonic = format!("cvt.rzi.{}{}.{from}", sign(to), width(to));
                self.make(Class::of(to), &mnemonic, format_args!("{a}"))
            }
        }
    }

    fn int_to_int(&mut self, a: Reg, from: Type, to: Type) -> Reg {
        match (width(from), width(to)) {
            (64, 32) => {
                let low = self.make(Class::Bits32, "cvt.u32.u64", format_args!("{a}"));
                self.narrow(to, low)
            }
            (32, 64) => self.make(Class::Bits64, &format!("cvt.{0}64.{0}32", sign(from)), format_args!("{a}")),
            _ => self.narrow(to, a),
        }
    }

    pub(super) fn bitcast(&mut self, a: Reg, from: Type, to: Type) -> Reg {
        if Class::of(from) == Class::of(to) {
            return self.narrow(to, a);
        }
        match (from.bytes(), Class::of(from)) {
            (2, Class::Bits16) => {
                let word = self.make(Class::Bits32, "cvt.u32.u16", format_args!("{a}"));
                self.narrow(to, word)
            }
            (2, _) => self.make(Class::Bits16, "cvt.u16.u32", format_args!("{a}")),
            (4, _) => self.make(Class::of(to), "mov.b32", format_args!("{a}")),
            _ => self.make(Class::of(to), "mov.b64", format_args!("{a}")),
        }
    }
}
