//! Conversions between types.

use super::node::{sign, width};
use super::{Class, Reg, Writer};
use crate::float8::{self, Format};
use crate::types::{Kind, Type};

impl Writer {
    /// The value in another type. Booleans are no type here: the builder made comparisons and selections of them.
    pub(super) fn convert(&mut self, a: Reg, from: Type, to: Type) -> Reg {
        match (from.kind(), to.kind()) {
            (Kind::Float, Kind::Float) if from == Type::F32 => {
                self.make(Class::Float64, "cvt.f64.f32", format_args!("{a}"))
            }
            (Kind::Float, Kind::Float) => self.make(Class::Float32, "cvt.rn.f32.f64", format_args!("{a}")),
            (Kind::Short, _) => self.widen(a, from),
            (_, Kind::Short) => self.shorten(a, to),
            (Kind::Float, _) => self.float_to_int(a, from, to),
            (_, Kind::Float) => {
                let mnemonic = format!("cvt.rn.{to}.{}{}", sign(from), width(from));
                self.make(Class::of(to), &mnemonic, format_args!("{a}"))
            }
            _ => self.int_to_int(a, from, to),
        }
    }

    /// A float of 8 or 16 bits as one of 32.
    fn widen(&mut self, a: Reg, from: Type) -> Reg {
        match from {
            Type::F16 => self.make(Class::Float32, "cvt.f32.f16", format_args!("{a}")),
            Type::F8E4M3 => self.widen_e4m3(a),
            Type::F8E5M2 => {
                // The code is the high byte of a binary16.
                let word = self.make(Class::Bits32, "shl.b32", format_args!("{a}, 8"));
                self.widen_word(word)
            }
            _ if let Some(&(word, is_high)) = self.halves.get(&a) => {
                // A `bf16` is the high half of the same number.
                let bits = match is_high {
                    true => self.make(Class::Bits32, "and.b32", format_args!("{word}, -65536")),
                    false => self.make(Class::Bits32, "shl.b32", format_args!("{word}, 16")),
                };
                self.make(Class::Float32, "mov.b32", format_args!("{bits}"))
            }
            _ => {
                let word = self.make(Class::Bits32, "cvt.u32.u16", format_args!("{a}"));
                let high = self.make(Class::Bits32, "shl.b32", format_args!("{word}, 16"));
                self.make(Class::Float32, "mov.b32", format_args!("{high}"))
            }
        }
    }

    /// A binary16 in the low half of a word as an `f32`.
    fn widen_word(&mut self, word: Reg) -> Reg {
        let half = self.make(Class::Bits16, "cvt.u16.u32", format_args!("{word}"));
        self.make(Class::Float32, "cvt.f32.f16", format_args!("{half}"))
    }

    /// The code with its fields where a binary16 has them is smaller by eight powers of two. What would be 480 is a NaN.
    fn widen_e4m3(&mut self, a: Reg) -> Reg {
        let sign = self.make(Class::Bits32, "and.b32", format_args!("{a}, 128"));
        let magnitude = self.make(Class::Bits32, "and.b32", format_args!("{a}, 127"));
        let fields = self.make(Class::Bits32, "shl.b32", format_args!("{magnitude}, 7"));
        let word = self.make(Class::Bits32, "mad.lo.u32", format_args!("{sign}, 256, {fields}"));
        let scaled = self.widen_word(word);
        let number = self.make(Class::Float32, "mul.rn.f32", format_args!("{scaled}, 0f43800000"));
        let nan = self.make(Class::Predicate, "setp.eq.u32", format_args!("{magnitude}, 127"));
        let not_number = self.make(Class::Float32, "mov.f32", format_args!("0f7FFFFFFF"));
        self.make(Class::Float32, "selp.f32", format_args!("{not_number}, {number}, {nan}"))
    }

    /// To the nearest float of 8 or 16 bits, halves to the even one.
    fn shorten(&mut self, a: Reg, to: Type) -> Reg {
        match to {
            Type::F8E4M3 => self.round_to_float8(a, float8::E4M3),
            Type::F8E5M2 => self.round_to_float8(a, float8::E5M2),
            Type::F16 => self.make(Class::Bits16, "cvt.rn.f16.f32", format_args!("{a}")),
            _ if self.has_bf16 => self.make(Class::Bits16, "cvt.rn.bf16.f32", format_args!("{a}")),
            _ => self.round_to_bf16(a),
        }
    }

    /// To the nearest `bf16` and back to 32 bits: in the high half of a word, above a zero, it is that number already. The
    /// instruction for two numbers runs several times as fast as the one for a single number. First the word.
    pub(super) fn round_in_place(&mut self, a: Reg) -> (Reg, Reg) {
        let zero = self.constant(Type::F32, 0);
        let word = self.make(Class::Bits32, "cvt.rn.bf16x2.f32", format_args!("{a}, {zero}"));
        (word, self.make(Class::Float32, "mov.b32", format_args!("{word}")))
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

    /// As [`float8::Format::round`] does, in its steps.
    fn round_to_float8(&mut self, a: Reg, format: Format) -> Reg {
        let bits = self.make(Class::Bits32, "mov.b32", format_args!("{a}"));
        let magnitude = self.make(Class::Bits32, "and.b32", format_args!("{bits}, 2147483647"));
        // Below the smallest code with a leading one the sum with a large number rounds.
        let (rounder, dropped) = (format.rounder(), format.dropped());
        let positive = self.make(Class::Float32, "mov.b32", format_args!("{magnitude}"));
        let sum = self.make(Class::Float32, "add.rn.f32", format_args!("{positive}, 0f{rounder:08X}"));
        let sum = self.make(Class::Bits32, "mov.b32", format_args!("{sum}"));
        let small = self.make(Class::Bits32, "sub.u32", format_args!("{sum}, {rounder}"));
        // Others are rounded as whole numbers.
        let odd = self.make(Class::Bits32, "bfe.u32", format_args!("{magnitude}, {dropped}, 1"));
        let half = (1_u32 << (dropped - 1)) - 1;
        let added = half.wrapping_sub((127 - format.bias) << 23);
        let biased = self.make(Class::Bits32, "add.u32", format_args!("{magnitude}, {}", added.cast_signed()));
        let rounded = self.make(Class::Bits32, "add.u32", format_args!("{biased}, {odd}"));
        let large = self.make(Class::Bits32, "shr.u32", format_args!("{rounded}, {dropped}"));
        let is_small =
            self.make(Class::Predicate, "setp.lt.u32", format_args!("{magnitude}, {}", format.smallest_normal()));
        let finite = self.make(Class::Bits32, "selp.b32", format_args!("{small}, {large}, {is_small}"));
        let is_beyond = self.make(Class::Predicate, "setp.ge.u32", format_args!("{magnitude}, {}", format.beyond));
        let held = self.make(Class::Bits32, "selp.b32", format_args!("{}, {finite}, {is_beyond}", format.overflow));
        let is_nan = self.make(Class::Predicate, "setp.gt.u32", format_args!("{magnitude}, {}", float8::INFINITY));
        let code = self.make(Class::Bits32, "selp.b32", format_args!("127, {held}, {is_nan}"));
        let high = self.make(Class::Bits32, "shr.u32", format_args!("{bits}, 24"));
        let sign = self.make(Class::Bits32, "and.b32", format_args!("{high}, 128"));
        self.make(Class::Bits32, "or.b32", format_args!("{code}, {sign}"))
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
