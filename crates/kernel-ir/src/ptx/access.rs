//! Elements in memory: loading and storing one, or several neighbours at once.

use std::fmt;

use super::{Class, Reg, Writer, line};
use crate::types::Type;

/// The memory that an address is in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Space {
    /// The device's, whose addresses have 64 bits.
    Global,
    /// That of a block, whose addresses have 32 bits.
    Shared,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Shared => "shared",
        })
    }
}

impl Writer {
    /// The block and the thread, of 32 bits.
    pub(crate) fn block_and_thread(&mut self) -> (Reg, Reg) {
        let block = self.make(Class::Bits32, "mov.u32", format_args!("%ctaid.x"));
        (block, self.make(Class::Bits32, "mov.u32", format_args!("%tid.x")))
    }

    /// A number that the launch gives at this place of the last parameter.
    pub(crate) fn scalar(&mut self, ty: Type, place: usize) -> Reg {
        match ty {
            Type::Bool => {
                let byte = self.make(Class::Bits32, "ld.param.u8", format_args!("[meta+{place}]"));
                self.make(Class::Predicate, "setp.ne.u32", format_args!("{byte}, 0"))
            }
            _ => self.make(Class::of(ty), &format!("ld.param.{}", suffix(ty)), format_args!("[meta+{place}]")),
        }
    }

    /// The address of the element at an index of 64 bits.
    pub(crate) fn element(&mut self, base: Reg, index: Reg, ty: Type) -> Reg {
        let bytes = ty.bytes();
        if bytes == 1 {
            return self.make(Class::Bits64, "add.s64", format_args!("{base}, {index}"));
        }
        self.make(Class::Bits64, "mad.lo.s64", format_args!("{index}, {bytes}, {base}"))
    }

    /// Loads one element.
    pub(crate) fn load(&mut self, ty: Type, address: Reg) -> Reg {
        let made = self.register(Class::of(ty));
        self.load_to(Space::Global, ty, address, made);
        made
    }

    fn load_to(&mut self, space: Space, ty: Type, address: Reg, to: Reg) {
        match ty {
            Type::Bool => {
                let byte = self.make(Class::Bits32, &format!("ld.{space}.u8"), format_args!("[{address}]"));
                line!(self, "setp.ne.u32 {to}, {byte}, 0");
            }
            _ => line!(self, "ld.{space}.{} {to}, [{address}]", suffix(ty)),
        }
    }

    /// Stores one element.
    pub(crate) fn store(&mut self, ty: Type, address: Reg, value: Reg) {
        self.store_to(Space::Global, ty, address, value);
    }

    fn store_to(&mut self, space: Space, ty: Type, address: Reg, value: Reg) {
        let value = if ty == Type::Bool { self.word_of(value) } else { value };
        line!(self, "st.{space}.{} [{address}], {value}", if ty == Type::Bool { "u8" } else { suffix(ty) });
    }

    /// Loads `count` neighbours, which lie at a multiple of their whole size; a power of two, at most 16 bytes in all.
    pub(crate) fn load_vector(&mut self, ty: Type, address: Reg, count: usize) -> Vec<Reg> {
        let words = self.words(ty, count);
        self.load_words(Space::Global, ty, address, &words, count);
        self.elements(ty, &words, count)
    }

    /// Registers for `count` neighbours as memory has them: each holds one element or several.
    pub(crate) fn words(&mut self, ty: Type, count: usize) -> Vec<Reg> {
        let (word, words) = words_of(ty, count);
        (0..words).map(|_| self.register(word)).collect()
    }

    /// Loads `count` neighbours into the registers that [`Self::words`] has made.
    pub(crate) fn load_words(&mut self, space: Space, ty: Type, address: Reg, words: &[Reg], count: usize) {
        match words {
            [word] if count == 1 => self.load_to(space, ty, address, *word),
            [first, ..] => {
                line!(self, "ld.{space}.{}{} {}, [{address}]", many(words), bits_of(first.class), list(words));
            }
            [] => {}
        }
    }

    /// The `count` elements in words.
    pub(crate) fn elements(&mut self, ty: Type, words: &[Reg], count: usize) -> Vec<Reg> {
        let each = count / words.len().max(1);
        if each == 1 {
            return words.to_vec();
        }
        words.iter().flat_map(|&word| self.unpack(ty, word, each)).collect()
    }

    /// Stores neighbours, as [`Self::load_vector`] loads them.
    pub(crate) fn store_vector(&mut self, ty: Type, address: Reg, values: &[Reg]) {
        let words = self.packed(ty, values, values.len());
        self.store_words(Space::Global, ty, address, &words, values.len());
    }

    /// Elements as words, of which those of a vector of `count` elements are made.
    pub(crate) fn packed(&mut self, ty: Type, values: &[Reg], count: usize) -> Vec<Reg> {
        let (word, words) = words_of(ty, count);
        let each = count / words;
        if each == 1 {
            return values.to_vec();
        }
        values.chunks(each).map(|chunk| self.pack(ty, word, chunk)).collect()
    }

    /// Stores `count` neighbours that [`Self::packed`] has put into words.
    pub(crate) fn store_words(&mut self, space: Space, ty: Type, address: Reg, words: &[Reg], count: usize) {
        match words {
            [word] if count == 1 => self.store_to(space, ty, address, *word),
            [first, ..] => {
                line!(self, "st.{space}.{}{} [{address}], {}", many(words), bits_of(first.class), list(words));
            }
            [] => {}
        }
    }

    /// The elements in a word of 16, 32 or 64 bits.
    fn unpack(&mut self, ty: Type, word: Reg, count: usize) -> Vec<Reg> {
        if ty.bytes() >= 4 {
            return vec![word];
        }
        if Class::of(ty) == Class::Bits16 {
            let (low, high) = (self.register(Class::Bits16), self.register(Class::Bits16));
            line!(self, "mov.b32 {{{low}, {high}}}, {word}");
            if self.constants.is_some() {
                self.halves.extend([(low, (word, false)), (high, (word, true))]);
            }
            return vec![low, high];
        }
        let word = match word.class {
            Class::Bits16 => self.make(Class::Bits32, "cvt.u32.u16", format_args!("{word}")),
            _ => word,
        };
        let (bits, sign) = (ty.bits(), if matches!(ty, Type::I8 | Type::I16) { 's' } else { 'u' });
        (0..count)
            .map(|at| {
                let place = at * bits as usize;
                let part = self.make(Class::Bits32, &format!("bfe.{sign}32"), format_args!("{word}, {place}, {bits}"));
                match ty {
                    Type::Bool => self.make(Class::Predicate, "setp.ne.u32", format_args!("{part}, 0")),
                    _ => part,
                }
            })
            .collect()
    }

    /// A word of these elements.
    fn pack(&mut self, ty: Type, class: Class, values: &[Reg]) -> Reg {
        if ty.bytes() >= 4 {
            return values[0];
        }
        if let (Class::Bits16, [low, high]) = (Class::of(ty), values) {
            return self.make(Class::Bits32, "mov.b32", format_args!("{{{low}, {high}}}"));
        }
        let bits = ty.bits() as usize;
        let mut word = self.plain(ty, values[0]);
        for (at, &value) in values.iter().enumerate().skip(1) {
            let (value, place) = (self.plain(ty, value), at * bits);
            word = self.make(Class::Bits32, "bfi.b32", format_args!("{value}, {word}, {place}, {bits}"));
        }
        match class {
            Class::Bits16 => self.make(Class::Bits16, "cvt.u16.u32", format_args!("{word}")),
            _ => word,
        }
    }

    /// The element in a register of 32 bits.
    fn plain(&mut self, ty: Type, value: Reg) -> Reg {
        if ty == Type::Bool { self.word_of(value) } else { value }
    }
}

/// How a load or store of one element writes its type.
const fn suffix(ty: Type) -> &'static str {
    match ty {
        Type::Bool | Type::U8 | Type::F8E4M3 | Type::F8E5M2 => "u8",
        Type::I8 => "s8",
        Type::I16 => "s16",
        Type::F16 | Type::BF16 => "b16",
        Type::I32 | Type::U32 => "b32",
        Type::F32 => "f32",
        Type::I64 | Type::U64 => "b64",
        Type::F64 => "f64",
    }
}

/// The words that `count` elements are loaded as: their class and number.
fn words_of(ty: Type, count: usize) -> (Class, usize) {
    match (ty.bytes(), ty.bytes() * count) {
        _ if count == 1 => (Class::of(ty), 1),
        (4 | 8, _) => (Class::of(ty), count),
        (_, 2) => (Class::Bits16, 1),
        (_, bytes) => (Class::Bits32, bytes / 4),
    }
}

const fn bits_of(class: Class) -> &'static str {
    match class {
        Class::Predicate | Class::Bits16 => "b16",
        Class::Bits32 => "b32",
        Class::Bits64 => "b64",
        Class::Float32 => "f32",
        Class::Float64 => "f64",
    }
}

/// How an access of several words begins its type.
fn many(words: &[Reg]) -> String {
    if words.len() == 1 { String::new() } else { format!("v{}.", words.len()) }
}

fn list(registers: &[Reg]) -> String {
    let names: Vec<String> = registers.iter().map(Reg::to_string).collect();
    if let [one] = names.as_slice() { one.clone() } else { format!("{{{}}}", names.join(", ")) }
}
