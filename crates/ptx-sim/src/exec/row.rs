//! The frequent operations, for all lanes at once.
//!
//! Each gives in every lane what `arith` says of the values of one lane. What a lane holds that the mask leaves out stays.
//! Everything here is compiled twice, for the least x86-64 processor and for one with vectors of 256 bits.

#![expect(
    clippy::inline_always,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::wildcard_enum_match_arm,
    reason = "the arithmetic of a processor, in loops that become vector instructions where they are inlined"
)]

use super::op::{Conversion, Float1, Float2, Long1, Long2, Op, Operands, Word1, Word2, Word3};
use super::rows::{Base, LANES, Long, Rows, Word, collect, put};
use crate::program::scalar::{Comparison, Logic};

/// What is not a number, in f32 and in f64.
const NAN: u32 = 0x7FFF_FFFF;
const DOUBLE_NAN: u64 = 0xFFF8_0000_0000_0000;

/// The rows of one frame, and the lanes that an instruction acts in.
struct Frame<'r> {
    words: &'r mut [Word],
    longs: &'r mut [Long],
    predicates: &'r mut [u32],
    lanes: u32,
}

/// Does an operation in the lanes of a mask; false if it has no loop here.
#[inline(always)]
pub(super) fn execute<const FMA: bool>(rows: &mut Rows, base: Base, op: Op, lanes: u32) -> bool {
    let mut frame = Frame {
        words: &mut rows.words[base.words as usize..],
        longs: &mut rows.longs[base.longs as usize..],
        predicates: &mut rows.predicates[base.predicates as usize..],
        lanes,
    };
    match op {
        Op::Word1(op, at) => frame.word1(op, at),
        Op::Word2(op, at) => frame.word2(op, at),
        Op::Word3(op, at) => frame.word3(op, at),
        Op::Lookup3(table, at) => frame.lookup3(table, at),
        Op::Long1(op, at) => frame.long1(op, at),
        Op::Long2(op, at) => frame.long2(op, at),
        Op::LongMultiplyAdd(at) => frame.long_multiply_add(at),
        Op::Wide { signed, add, operands } => frame.wide(signed, add, operands),
        Op::Single1(op, at) => frame.single1(op, at),
        Op::Single2(op, at) => frame.single2(op, at),
        Op::SingleFma(at) => frame.single_fma::<FMA>(at),
        Op::Double1(op, at) => frame.double1(op, at),
        Op::Double2(op, at) => frame.double2(op, at),
        Op::DoubleFma(at) => frame.double_fma(at),
        Op::CompareWord { signed, comparison, operands } => frame.compare_word(signed, comparison, operands),
        Op::CompareLong { signed, comparison, operands } => frame.compare_long(signed, comparison, operands),
        Op::CompareSingle { or_unordered, comparison, operands } => {
            frame.compare_single(or_unordered, comparison, operands);
        }
        Op::CompareDouble { or_unordered, comparison, operands } => {
            frame.compare_double(or_unordered, comparison, operands);
        }
        Op::Predicates(op, at) => {
            let (a, b) = (frame.predicates[usize::from(at.a)], frame.predicates[usize::from(at.b)]);
            frame.put_predicate(
                at,
                match op {
                    Logic::And => a & b,
                    Logic::Or => a | b,
                    Logic::Xor => a ^ b,
                },
            );
        }
        Op::NotPredicate(at) => frame.put_predicate(at, !frame.predicates[usize::from(at.a)]),
        Op::MovePredicate(at) => frame.put_predicate(at, frame.predicates[usize::from(at.a)]),
        Op::SelectWord(at) => {
            let (a, b) = (&frame.words[usize::from(at.a)], &frame.words[usize::from(at.b)]);
            let chosen = select(a, b, frame.predicates[usize::from(at.c)]);
            put(&mut frame.words[usize::from(at.to)], chosen, lanes);
        }
        Op::SelectLong(at) => {
            let (a, b) = (&frame.longs[usize::from(at.a)], &frame.longs[usize::from(at.b)]);
            let chosen = select(a, b, frame.predicates[usize::from(at.c)]);
            put(&mut frame.longs[usize::from(at.to)], chosen, lanes);
        }
        Op::Convert(conversion, at) => frame.convert(conversion, at),
        Op::Lane
        | Op::LoadParameter { .. }
        | Op::LoadWord(_)
        | Op::StoreWord(_)
        | Op::Load
        | Op::Store
        | Op::Atomic
        | Op::Branch(_)
        | Op::Call
        | Op::Return
        | Op::Exit
        | Op::Barrier
        | Op::Warp
        | Op::Rare
        | Op::Nothing => return false,
    }
    true
}

#[inline(always)]
fn select<T: Copy>(a: &[T; LANES], b: &[T; LANES], condition: u32) -> [T; LANES] {
    let mut chosen = *b;
    for lane in 0..LANES {
        if condition & 1 << lane != 0 {
            chosen[lane] = a[lane];
        }
    }
    chosen
}

/// A number of f32 as a row holds it: all that is not a number is one value.
#[inline(always)]
fn single(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

impl Frame<'_> {
    #[inline(always)]
    fn put_predicate(&mut self, at: Operands, bits: u32) {
        let row = &mut self.predicates[usize::from(at.to)];
        *row = *row & !self.lanes | bits & self.lanes;
    }

    #[inline(always)]
    fn words1(&mut self, at: Operands, f: impl Fn(u32) -> u32) {
        let (a, mut new) = (&self.words[usize::from(at.a)], [0; LANES]);
        for lane in 0..LANES {
            new[lane] = f(a[lane]);
        }
        put(&mut self.words[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn words2(&mut self, at: Operands, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (&self.words[usize::from(at.a)], &self.words[usize::from(at.b)]);
        let mut new = [0; LANES];
        for lane in 0..LANES {
            new[lane] = f(a[lane], b[lane]);
        }
        put(&mut self.words[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn words3(&mut self, at: Operands, f: impl Fn(u32, u32, u32) -> u32) {
        let (a, b, c) =
            (&self.words[usize::from(at.a)], &self.words[usize::from(at.b)], &self.words[usize::from(at.c)]);
        let mut new = [0; LANES];
        for lane in 0..LANES {
            new[lane] = f(a[lane], b[lane], c[lane]);
        }
        put(&mut self.words[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn longs1(&mut self, at: Operands, f: impl Fn(u64) -> u64) {
        let (a, mut new) = (&self.longs[usize::from(at.a)], [0; LANES]);
        for lane in 0..LANES {
            new[lane] = f(a[lane]);
        }
        put(&mut self.longs[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn longs2(&mut self, at: Operands, f: impl Fn(u64, u64) -> u64) {
        let (a, b) = (&self.longs[usize::from(at.a)], &self.longs[usize::from(at.b)]);
        let mut new = [0; LANES];
        for lane in 0..LANES {
            new[lane] = f(a[lane], b[lane]);
        }
        put(&mut self.longs[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn longs3(&mut self, at: Operands, f: impl Fn(u64, u64, u64) -> u64) {
        let (a, b, c) =
            (&self.longs[usize::from(at.a)], &self.longs[usize::from(at.b)], &self.longs[usize::from(at.c)]);
        let mut new = [0; LANES];
        for lane in 0..LANES {
            new[lane] = f(a[lane], b[lane], c[lane]);
        }
        put(&mut self.longs[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn word1(&mut self, op: Word1, at: Operands) {
        match op {
            Word1::Move => {
                let row = self.words[usize::from(at.a)];
                put(&mut self.words[usize::from(at.to)], row, self.lanes);
            }
            Word1::Not => self.words1(at, |a| !a),
            Word1::Negate => self.words1(at, u32::wrapping_neg),
            Word1::CountBits => self.words1(at, u32::count_ones),
            Word1::LeadingZeros => self.words1(at, u32::leading_zeros),
            Word1::Reverse => self.words1(at, u32::reverse_bits),
        }
    }

    #[inline(always)]
    fn word2(&mut self, op: Word2, at: Operands) {
        match op {
            Word2::Add => self.words2(at, u32::wrapping_add),
            Word2::Subtract => self.words2(at, u32::wrapping_sub),
            Word2::Multiply => self.words2(at, u32::wrapping_mul),
            Word2::MultiplyHigh => self.words2(at, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            Word2::MultiplyHighSigned => {
                self.words2(at, |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32);
            }
            Word2::Minimum => self.words2(at, u32::min),
            Word2::MinimumSigned => self.words2(at, |a, b| (a as i32).min(b as i32) as u32),
            Word2::Maximum => self.words2(at, u32::max),
            Word2::MaximumSigned => self.words2(at, |a, b| (a as i32).max(b as i32) as u32),
            Word2::And => self.words2(at, |a, b| a & b),
            Word2::Or => self.words2(at, |a, b| a | b),
            Word2::Xor => self.words2(at, |a, b| a ^ b),
            Word2::ShiftLeft => self.words2(at, |a, b| if b < 32 { a << (b & 31) } else { 0 }),
            Word2::ShiftRight => self.words2(at, |a, b| if b < 32 { a >> (b & 31) } else { 0 }),
            Word2::ShiftRightSigned => self.words2(at, |a, b| (a as i32 >> b.min(31)) as u32),
        }
    }

    #[inline(always)]
    fn word3(&mut self, op: Word3, at: Operands) {
        match op {
            Word3::MultiplyAdd => self.words3(at, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            Word3::FunnelLeft => self.words3(at, |a, b, c| ((pair(a, b) << (c & 31)) >> 32) as u32),
            Word3::FunnelRight => self.words3(at, |a, b, c| (pair(a, b) >> (c & 31)) as u32),
            Word3::ExtractBits => self.words3(at, |a, b, c| {
                let (from, count) = (b & 255, c & 255);
                let shifted = if from < 32 { a >> (from & 31) } else { 0 };
                if count < 32 { shifted & !(u32::MAX << (count & 31)) } else { shifted }
            }),
            Word3::Permute => self.words3(at, permute),
        }
    }

    #[inline(always)]
    fn lookup3(&mut self, table: u8, at: Operands) {
        // Sums of products: a term for each set bit of the table.
        let bit = |index: u8| if table & 1 << index != 0 { u32::MAX } else { 0 };
        let terms: [u32; 8] = [bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), bit(7)];
        self.words3(at, |a, b, c| {
            let low = !a & (!b & (!c & terms[0] | c & terms[1]) | b & (!c & terms[2] | c & terms[3]));
            let high = a & (!b & (!c & terms[4] | c & terms[5]) | b & (!c & terms[6] | c & terms[7]));
            low | high
        });
    }

    #[inline(always)]
    fn long1(&mut self, op: Long1, at: Operands) {
        match op {
            Long1::Move => {
                let row = self.longs[usize::from(at.a)];
                put(&mut self.longs[usize::from(at.to)], row, self.lanes);
            }
            Long1::Not => self.longs1(at, |a| !a),
            Long1::Negate => self.longs1(at, u64::wrapping_neg),
        }
    }

    #[inline(always)]
    fn long2(&mut self, op: Long2, at: Operands) {
        match op {
            Long2::Add => self.longs2(at, u64::wrapping_add),
            Long2::Subtract => self.longs2(at, u64::wrapping_sub),
            Long2::Multiply => self.longs2(at, u64::wrapping_mul),
            Long2::And => self.longs2(at, |a, b| a & b),
            Long2::Or => self.longs2(at, |a, b| a | b),
            Long2::Xor => self.longs2(at, |a, b| a ^ b),
            Long2::ShiftLeft => self.shifts(at, |a, b| if b < 64 { a << (b & 63) } else { 0 }),
            Long2::ShiftRight => self.shifts(at, |a, b| if b < 64 { a >> (b & 63) } else { 0 }),
            Long2::ShiftRightSigned => self.shifts(at, |a, b| (a as i64 >> b.min(63)) as u64),
        }
    }

    #[inline(always)]
    fn shifts(&mut self, at: Operands, f: impl Fn(u64, u32) -> u64) {
        let (a, b) = (&self.longs[usize::from(at.a)], &self.words[usize::from(at.b)]);
        let mut new = [0; LANES];
        for lane in 0..LANES {
            new[lane] = f(a[lane], b[lane]);
        }
        put(&mut self.longs[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn long_multiply_add(&mut self, at: Operands) {
        self.longs3(at, |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    }

    #[inline(always)]
    fn wide(&mut self, signed: bool, add: bool, at: Operands) {
        let (a, b) = (&self.words[usize::from(at.a)], &self.words[usize::from(at.b)]);
        let mut new = if add { self.longs[usize::from(at.c)] } else { [0; LANES] };
        if signed {
            for lane in 0..LANES {
                let product = i64::from(a[lane] as i32) * i64::from(b[lane] as i32);
                new[lane] = new[lane].wrapping_add(product as u64);
            }
        } else {
            for lane in 0..LANES {
                new[lane] = new[lane].wrapping_add(u64::from(a[lane]) * u64::from(b[lane]));
            }
        }
        put(&mut self.longs[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn single1(&mut self, op: Float1, at: Operands) {
        match op {
            Float1::Negate => self.words1(at, |a| single(-f32::from_bits(a))),
            Float1::Absolute => self.words1(at, |a| single(f32::from_bits(a).abs())),
            Float1::SquareRoot => self.words1(at, |a| single(f32::from_bits(a).sqrt())),
            Float1::Reciprocal => self.words1(at, |a| single(1.0 / f32::from_bits(a))),
        }
    }

    #[inline(always)]
    fn single2(&mut self, op: Float2, at: Operands) {
        match op {
            Float2::Add => self.words2(at, |a, b| single(f32::from_bits(a) + f32::from_bits(b))),
            Float2::Subtract => self.words2(at, |a, b| single(f32::from_bits(a) - f32::from_bits(b))),
            Float2::Multiply => self.words2(at, |a, b| single(f32::from_bits(a) * f32::from_bits(b))),
            Float2::Divide => self.words2(at, |a, b| single(f32::from_bits(a) / f32::from_bits(b))),
            Float2::Minimum => self.words2(at, |a, b| extreme(a, b, false)),
            Float2::Maximum => self.words2(at, |a, b| extreme(a, b, true)),
        }
    }

    #[inline(always)]
    fn single_fma<const FMA: bool>(&mut self, at: Operands) {
        let (a, b, c) =
            (&self.words[usize::from(at.a)], &self.words[usize::from(at.b)], &self.words[usize::from(at.c)]);
        let mut new = [0; LANES];
        if FMA {
            for lane in 0..LANES {
                let (a, b, c) = (f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane]));
                new[lane] = single(a.mul_add(b, c));
            }
        } else {
            fma_without_instruction(a, b, c, &mut new);
        }
        put(&mut self.words[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn doubles2(&mut self, at: Operands, f: impl Fn(f64, f64) -> f64) {
        // Hardware hands on the second argument before the first.
        self.longs2(at, |a, b| double(f(f64::from_bits(a), f64::from_bits(b)), [b, a, a]));
    }

    #[inline(always)]
    fn extremes(&mut self, at: Operands, f: impl Fn(f64, f64) -> f64) {
        self.longs2(at, |a, b| f(f64::from_bits(a), f64::from_bits(b)).to_bits());
    }

    #[inline(always)]
    fn double1(&mut self, op: Float1, at: Operands) {
        match op {
            Float1::Negate => self.longs1(at, |a| quiet(a, a ^ 1 << 63)),
            Float1::Absolute => self.longs1(at, |a| quiet(a, a & !(1 << 63))),
            Float1::SquareRoot => self.longs1(at, |a| double(f64::from_bits(a).sqrt(), [a, a, a])),
            Float1::Reciprocal => self.longs1(at, |a| double(1.0 / f64::from_bits(a), [a, a, a])),
        }
    }

    #[inline(always)]
    fn double2(&mut self, op: Float2, at: Operands) {
        match op {
            Float2::Add => self.doubles2(at, |a, b| a + b),
            Float2::Subtract => self.doubles2(at, |a, b| a - b),
            Float2::Multiply => self.doubles2(at, |a, b| a * b),
            Float2::Divide => self.longs2(at, |a, b| double(f64::from_bits(a) / f64::from_bits(b), [a, b, b])),
            Float2::Minimum => self.extremes(at, |a, b| {
                let smaller = if a < b || a == b && a.is_sign_negative() { a } else { b };
                if a.is_nan() {
                    quiet_double(b, b)
                } else if b.is_nan() {
                    a
                } else {
                    smaller
                }
            }),
            Float2::Maximum => self.extremes(at, |a, b| {
                let greater = if a > b || a == b && a.is_sign_positive() { a } else { b };
                if a.is_nan() {
                    quiet_double(b, b)
                } else if b.is_nan() {
                    a
                } else {
                    greater
                }
            }),
        }
    }

    #[inline(always)]
    fn double_fma(&mut self, at: Operands) {
        // Hardware hands on the second factor where it is no number, then the addend, then the first factor.
        self.longs3(at, |a, b, c| double(f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)), [b, c, a]));
    }

    #[inline(always)]
    fn compare_word(&mut self, signed: bool, comparison: Comparison, at: Operands) {
        let (a, b) = (&self.words[usize::from(at.a)], &self.words[usize::from(at.b)]);
        // Signed numbers compare as unsigned ones do once their sign is turned.
        let turn = if signed { 1 << 31 } else { 0 };
        let holds = compare(comparison, |lane| a[lane] ^ turn, |lane| b[lane] ^ turn);
        self.put_predicate(at, holds);
    }

    #[inline(always)]
    fn compare_long(&mut self, signed: bool, comparison: Comparison, at: Operands) {
        let (a, b) = (&self.longs[usize::from(at.a)], &self.longs[usize::from(at.b)]);
        let turn = if signed { 1 << 63 } else { 0 };
        let holds = compare(comparison, |lane| a[lane] ^ turn, |lane| b[lane] ^ turn);
        self.put_predicate(at, holds);
    }

    #[inline(always)]
    fn compare_single(&mut self, or_unordered: bool, comparison: Comparison, at: Operands) {
        let (a, b) = (&self.words[usize::from(at.a)], &self.words[usize::from(at.b)]);
        let (a, b) = (|lane: usize| f32::from_bits(a[lane]), |lane: usize| f32::from_bits(b[lane]));
        let holds = compare_floats(or_unordered, comparison, a, b, |lane| a(lane).is_nan() || b(lane).is_nan());
        self.put_predicate(at, holds);
    }

    #[inline(always)]
    fn compare_double(&mut self, or_unordered: bool, comparison: Comparison, at: Operands) {
        let (a, b) = (&self.longs[usize::from(at.a)], &self.longs[usize::from(at.b)]);
        let (a, b) = (|lane: usize| f64::from_bits(a[lane]), |lane: usize| f64::from_bits(b[lane]));
        let holds = compare_floats(or_unordered, comparison, a, b, |lane| a(lane).is_nan() || b(lane).is_nan());
        self.put_predicate(at, holds);
    }

    #[inline(always)]
    fn words_to_longs(&mut self, at: Operands, f: impl Fn(u32) -> u64) {
        let (a, mut new) = (&self.words[usize::from(at.a)], [0; LANES]);
        for lane in 0..LANES {
            new[lane] = f(a[lane]);
        }
        put(&mut self.longs[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn longs_to_words(&mut self, at: Operands, f: impl Fn(u64) -> u32) {
        let (a, mut new) = (&self.longs[usize::from(at.a)], [0; LANES]);
        for lane in 0..LANES {
            new[lane] = f(a[lane]);
        }
        put(&mut self.words[usize::from(at.to)], new, self.lanes);
    }

    #[inline(always)]
    fn convert(&mut self, conversion: Conversion, at: Operands) {
        match conversion {
            Conversion::WordToLong => self.words_to_longs(at, u64::from),
            Conversion::SignedWordToLong => self.words_to_longs(at, |a| i64::from(a as i32) as u64),
            Conversion::LongToWord => self.longs_to_words(at, |a| a as u32),
            Conversion::WordToSingle => self.words1(at, |a| (a as f32).to_bits()),
            Conversion::SignedWordToSingle => self.words1(at, |a| (a as i32 as f32).to_bits()),
            Conversion::SingleToSignedWord => self.words1(at, |a| f32::from_bits(a) as i32 as u32),
            Conversion::SingleToDouble => self.words_to_longs(at, |a| f64::from(f32::from_bits(a)).to_bits()),
            Conversion::DoubleToSingle => self.longs_to_words(at, |a| single(f64::from_bits(a) as f32)),
            Conversion::LowerHalf => self.words1(at, |a| a & 0xFFFF),
            Conversion::UpperHalf => self.words1(at, |a| a >> 16),
            Conversion::Halves => self.words2(at, |a, b| a | b << 16),
        }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Bytes of `b` and `a`, chosen by the four lowest digits of `c`; a digit's highest bit replicates the byte's sign.
#[inline(always)]
fn permute(a: u32, b: u32, c: u32) -> u32 {
    let bytes = pair(a, b);
    let mut result = 0;
    for place in 0..4 {
        let digit = c >> (place * 4) & 15;
        let byte = (bytes >> ((digit & 7) * 8)) as u8;
        let chosen = if digit & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
        result |= u32::from(chosen) << (place * 8);
    }
    result
}

/// The smaller or greater of two f32; of a number and what is none, the number.
#[inline(always)]
fn extreme(a: u32, b: u32, greater: bool) -> u32 {
    let (left, right) = (f32::from_bits(a), f32::from_bits(b));
    let first = if greater { left > right } else { left < right };
    // Of two zeros the negative one is the smaller.
    let zero_first = left == right && (a >> 31 == 1) != greater;
    let chosen = if first || zero_first { a } else { b };
    let number = if left.is_nan() {
        b
    } else if right.is_nan() {
        a
    } else {
        chosen
    };
    single(f32::from_bits(number))
}

#[inline(always)]
fn compare<T: PartialOrd>(comparison: Comparison, a: impl Fn(usize) -> T, b: impl Fn(usize) -> T) -> u32 {
    match comparison {
        Comparison::Equal => collect(|lane| a(lane) == b(lane)),
        Comparison::NotEqual => collect(|lane| a(lane) != b(lane)),
        Comparison::Less => collect(|lane| a(lane) < b(lane)),
        Comparison::LessOrEqual => collect(|lane| a(lane) <= b(lane)),
        Comparison::Greater => collect(|lane| a(lane) > b(lane)),
        Comparison::GreaterOrEqual => collect(|lane| a(lane) >= b(lane)),
        Comparison::Numbers => u32::MAX,
        Comparison::NotNumbers => 0,
    }
}

#[inline(always)]
fn compare_floats<T: PartialOrd>(
    or_unordered: bool,
    comparison: Comparison,
    a: impl Fn(usize) -> T,
    b: impl Fn(usize) -> T,
    unordered: impl Fn(usize) -> bool,
) -> u32 {
    match comparison {
        Comparison::Numbers => !collect(unordered),
        Comparison::NotNumbers => collect(unordered),
        // Of what is not a number `!=` is true, where PTX says false.
        Comparison::NotEqual if or_unordered => compare(comparison, a, b),
        Comparison::NotEqual => compare(comparison, a, b) & !collect(unordered),
        _ if or_unordered => compare(comparison, a, b) | collect(unordered),
        _ => compare(comparison, a, b),
    }
}

/// `a * b + c` rounded once, by way of f64, where the product is exact. The sum is rounded twice, which differs from once
/// only where the first result lies exactly between two f32, or below the normal ones: those lanes are done one by one.
#[inline(always)]
fn fma_without_instruction(a: &Word, b: &Word, c: &Word, to: &mut Word) {
    let mut doubtful = 0_u32;
    for lane in 0..LANES {
        let product = f64::from(f32::from_bits(a[lane])) * f64::from(f32::from_bits(b[lane]));
        let sum = product + f64::from(f32::from_bits(c[lane]));
        let between = sum.to_bits() & 0x1FFF_FFFF == 0x1000_0000;
        let tiny = sum != 0.0 && sum.abs() < f64::from(f32::MIN_POSITIVE) * 2.0;
        doubtful |= u32::from(between | tiny);
        to[lane] = single(sum as f32);
    }
    if doubtful != 0 {
        fma_one_by_one(a, b, c, to);
    }
}

#[cold]
fn fma_one_by_one(a: &Word, b: &Word, c: &Word, to: &mut Word) {
    for lane in 0..LANES {
        let (a, b, c) = (f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane]));
        to[lane] = single(a.mul_add(b, c));
    }
}

/// The bits of a result; of one that is no number the first argument that is none, or the standard one. Which one the host
/// would hand on depends on the order that the compiler chose.
#[inline(always)]
fn double(result: f64, [first, second, third]: [u64; 3]) -> u64 {
    let none = quiet(first, quiet(second, quiet(third, DOUBLE_NAN)));
    if result.is_nan() { none } else { result.to_bits() }
}

/// The bits of a result that is its argument, quiet, where that is no number.
#[inline(always)]
fn quiet(argument: u64, result: u64) -> u64 {
    if f64::from_bits(argument).is_nan() { argument | 1 << 51 } else { result }
}

/// The same for numbers.
#[inline(always)]
fn quiet_double(argument: f64, result: f64) -> f64 {
    f64::from_bits(quiet(argument.to_bits(), result.to_bits()))
}
