//! Kernels of long fused programs: a thread goes over the elements of its vectors in a loop, so that the text, and the
//! driver's time with it, does not grow with their number.
//!
//! What is loaded lies in registers, which no number can choose. So each turn works on the first words of every operand
//! and moves the others forward. The elements after the last whole block take turns of the same loop, one at a time.
//!
//! **Invariant:** the loop has one entry, and the program stands in it once for each element of a turn.

use super::{Body, THREADS};
use crate::ptx::{Class, Reg, Space, Writer, line};
use crate::types::Type;

/// Elements of a turn where no operand asks for more: with fewer, moving the words costs more than it saves.
const OF_TURN: usize = 4;

/// How vectors are cut into turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// Elements of a vector and of a turn.
    pub(crate) vector: usize,
    pub(crate) turn: usize,
}

impl Turns {
    /// Turns of so many elements, or of more where a word of an operand has more.
    pub(crate) fn new(types: impl Iterator<Item = Type>, vector: usize, least: usize) -> Self {
        let of_word = types.map(|ty| 4 / ty.bytes().min(4)).max().unwrap_or(1);
        Self { vector, turn: of_word.max(least).min(vector) }
    }

    /// Words of a turn, of an operand whose vector has so many.
    pub(crate) const fn words(self, all: usize) -> usize {
        all * self.turn / self.vector
    }

    /// How many turns a vector takes.
    pub(crate) const fn count(self) -> usize {
        self.vector / self.turn
    }
}

/// Moves words forward by as many as a turn has; the last ones stay as they are.
pub(crate) fn advance(writer: &mut Writer, words: &[Reg], by: usize) {
    for at in by..words.len() {
        writer.copy(words[at - by], words[at]);
    }
}

/// The parts of the kernel that its places share.
struct Loop {
    turns: Turns,
    /// For each operand, outputs first, the words of a vector.
    words: Vec<Vec<Reg>>,
    /// The number of the first element of the turn.
    at: Reg,
    /// Whether the block is the last one.
    is_last: Reg,
}

impl Body<'_> {
    /// Vectors at `block * threads + thread`; in the last block, elements.
    pub(super) fn looped(&mut self, vector: usize) {
        let (block, thread) = self.writer.block_and_thread();
        let of_block = THREADS as usize * vector;
        let first = self.writer.make(Class::Bits64, "mul.wide.u32", format_args!("{block}, {of_block}"));
        let end = self.writer.make(Class::Bits64, "add.u64", format_args!("{first}, {of_block}"));
        let is_last = self.writer.make(Class::Predicate, "setp.gt.u64", format_args!("{end}, {}", self.count));
        let types: Vec<Type> = self.operands.iter().map(|&(_, ty)| ty).collect();
        let words = types.iter().map(|&ty| self.writer.words(ty, vector)).collect();
        let turns = Turns::new(types.into_iter(), vector, OF_TURN.min(vector.div_ceil(2)));
        let (at, left) = (self.writer.register(Class::Bits64), self.writer.register(Class::Bits32));
        let own = Loop { turns, words, at, is_last };
        let [alone, turn, single, done] = std::array::from_fn(|_| self.writer.label());

        line!(self.writer, "mov.b32 {left}, {}", turns.count());
        line!(self.writer, "@{is_last} bra {alone}");
        let offset = self.writer.make(Class::Bits64, "mul.wide.u32", format_args!("{thread}, {vector}"));
        line!(self.writer, "add.u64 {at}, {first}, {offset}");
        self.load_vectors(&own);
        line!(self.writer, "bra {turn}");
        self.writer.place(&alone);
        let offset = self.writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{thread}"));
        line!(self.writer, "add.u64 {at}, {first}, {offset}");
        self.load_single(&own, &done);

        self.writer.place(&turn);
        self.writer.keep_loop();
        let results = self.turn(&own);
        line!(self.writer, "@{} bra {single}", own.is_last);
        self.end_turn(&own, &results);
        line!(self.writer, "sub.u32 {left}, {left}, 1");
        line!(self.writer, "add.u64 {at}, {at}, {}", turns.turn);
        let more = self.writer.make(Class::Predicate, "setp.ne.u32", format_args!("{left}, 0"));
        line!(self.writer, "@{more} bra {turn}");
        self.store_vectors(&own);
        line!(self.writer, "bra {done}");

        self.writer.place(&single);
        for (number, result) in results.iter().enumerate() {
            let (base, ty) = self.operands[number];
            let address = self.writer.element(base, at, ty);
            self.writer.store(ty, address, result[0]);
        }
        line!(self.writer, "add.u64 {at}, {at}, {THREADS}");
        self.load_single(&own, &done);
        line!(self.writer, "bra {turn}");
        self.writer.place(&done);
    }

    fn load_vectors(&mut self, own: &Loop) {
        let outputs = self.program.outputs().len();
        for (words, &(base, ty)) in own.words.iter().zip(&self.operands.clone()).skip(outputs) {
            let address = self.writer.element(base, own.at, ty);
            self.writer.load_words(Space::Global, ty, address, words, own.turns.vector);
        }
        // Results move through their words from the last ones on, so that the first ones are read before they are made.
        if own.turns.count() > 1 {
            for &word in own.words[..outputs].iter().flatten() {
                self.writer.clear(word);
            }
        }
    }

    /// Loads one element of each input as every element of a turn, or leaves where there is none.
    fn load_single(&mut self, own: &Loop, done: &str) {
        let past = self.writer.make(Class::Predicate, "setp.ge.u64", format_args!("{}, {}", own.at, self.count));
        line!(self.writer, "@{past} bra {done}");
        let outputs = self.program.outputs().len();
        for (words, &(base, ty)) in own.words.iter().zip(&self.operands.clone()).skip(outputs) {
            let address = self.writer.element(base, own.at, ty);
            let element = self.writer.load(ty, address);
            let (vector, of_turn) = (own.turns.vector, own.turns.words(words.len()));
            let packed = self.writer.packed(ty, &vec![element; vector / words.len()], vector);
            for &word in &words[..of_turn] {
                self.writer.copy(word, packed[0]);
            }
        }
    }

    /// The results of a turn: of each output, for each element.
    fn turn(&mut self, own: &Loop) -> Vec<Vec<Reg>> {
        let (program, scalars, turns) = (self.program, self.scalars.clone(), own.turns);
        let outputs = program.outputs().len();
        let operands = &self.operands[outputs..];
        let computed: Vec<Vec<Reg>> = self.writer.sharing(|writer| {
            let inputs: Vec<Vec<Reg>> = own.words[outputs..]
                .iter()
                .zip(operands)
                .map(|(words, &(_, ty))| writer.elements(ty, &words[..turns.words(words.len())], turns.turn))
                .collect();
            let element = |writer: &mut Writer, lane: usize| {
                let element: Vec<Reg> = inputs.iter().map(|input| input[lane]).collect();
                let place = |writer: &mut Writer| match lane {
                    0 => own.at,
                    _ => writer.make(Class::Bits64, "add.u64", format_args!("{}, {lane}", own.at)),
                };
                let index = program.uses_index().then(|| place(writer));
                writer.program(program, &element, &scalars, index)
            };
            (0..turns.turn).map(|lane| element(writer, lane)).collect()
        });
        (0..outputs).map(|output| computed.iter().map(|lane| lane[output]).collect()).collect()
    }

    /// Puts the results of a turn behind those of the turns before, and the next words first.
    fn end_turn(&mut self, own: &Loop, results: &[Vec<Reg>]) {
        for (operand, words) in own.words.iter().enumerate() {
            let by = own.turns.words(words.len());
            advance(self.writer, words, by);
            if let Some(result) = results.get(operand) {
                let packed = self.writer.packed(self.operands[operand].1, result, own.turns.vector);
                for (&word, &new) in words[words.len() - by..].iter().zip(&packed) {
                    self.writer.copy(word, new);
                }
            }
        }
    }

    fn store_vectors(&mut self, own: &Loop) {
        let outputs = self.program.outputs().len();
        let start = self.writer.make(Class::Bits64, "sub.u64", format_args!("{}, {}", own.at, own.turns.vector));
        for (words, &(base, ty)) in own.words.iter().zip(&self.operands.clone()).take(outputs) {
            let address = self.writer.element(base, start, ty);
            self.writer.store_words(Space::Global, ty, address, words, own.turns.vector);
        }
    }
}
