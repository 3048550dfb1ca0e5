//! Rows of fused programs: vectors that stay in registers are gone through in a loop, and where a long program makes
//! something of each element, so are the elements of a vector. The text does not grow with their number then.
//!
//! **Invariant:** after a sweep over what is held every vector is where it was before.

use super::write::{At, Body, Load, Loaded, Operand};
use crate::graph::Program;
use crate::pointwise::{SHORT, Turns, advance};
use crate::ptx::{Class, Reg, line};

/// Elements of a turn.
const OF_TURN: usize = 2;

impl Body<'_> {
    /// Loads what passes read of the row, as memory has it.
    pub(super) fn hold_all(&mut self) {
        let (vector, inputs) = (usize::from(self.schedule.vector), self.inputs.clone());
        let is_held = |input: usize| self.repeated[input].is_none() && self.reduction.is_accumulated(input);
        let held: Vec<bool> = (0..inputs.len()).map(is_held).collect();
        self.held = vec![Vec::new(); inputs.len()];
        let name = self.arithmetic.unsigned();
        for turn in 0..self.schedule.resident {
            let at = self.arithmetic.add(self.writer, self.first, self.schedule.step() * u64::from(turn));
            let test = format!("setp.lt.{name}");
            let exists = self.writer.make(Class::Predicate, &test, format_args!("{at}, {}", self.end));
            let skip = self.writer.label();
            line!(self.writer, "@!{exists} bra {skip}");
            let places = self.arithmetic.reduced_places(self.writer, at);
            for (input, Operand { number, row, ty }) in inputs.iter().copied().enumerate().filter(|(at, _)| held[*at]) {
                let words = self.writer.words(ty, vector);
                let address = self.arithmetic.element(self.writer, row, number, &places);
                self.writer.load_words(ty, address, &words, vector);
                self.held[input].extend(words);
            }
            self.writer.place(&skip);
        }
    }

    /// Writes once what is done with each vector that is held.
    pub(super) fn sweep_held(&mut self, load: Load, each: &mut dyn FnMut(&mut Self, At, &Loaded)) {
        let (class, name, count) = (self.arithmetic.class(), self.arithmetic.unsigned(), self.schedule.resident);
        let at = self.writer.register(class);
        self.writer.copy(at, self.first);
        let left = self.writer.make(Class::Bits32, "mov.b32", format_args!("{count}"));
        let (again, skip) = (self.writer.label(), self.writer.label());
        if count > 1 {
            self.writer.place(&again);
            self.writer.keep_loop();
        }
        let exists = self.writer.make(Class::Predicate, &format!("setp.lt.{name}"), format_args!("{at}, {}", self.end));
        line!(self.writer, "@!{exists} bra {skip}");
        self.writer.share(true);
        let loaded = self.first_held();
        let loaded = if load == Load::All { self.with_rest(at, &loaded) } else { loaded };
        each(self, at, &loaded);
        self.writer.share(false);
        self.writer.place(&skip);
        if count > 1 {
            self.turn_held();
            line!(self.writer, "add.{name} {at}, {at}, {}", self.schedule.step());
            line!(self.writer, "sub.u32 {left}, {left}, 1");
            let more = self.writer.make(Class::Predicate, "setp.ne.u32", format_args!("{left}, 0"));
            line!(self.writer, "@{more} bra {again}");
        }
    }

    /// The elements of the vector that comes first.
    fn first_held(&mut self) -> Loaded {
        let vector = usize::from(self.schedule.vector);
        let mut loaded = Vec::with_capacity(self.inputs.len());
        for (input, Operand { ty, .. }) in self.inputs.clone().into_iter().enumerate() {
            let words = self.held[input].clone();
            let each = words.len() / usize::from(self.schedule.resident);
            loaded.push(match self.repeated[input] {
                Some(element) if self.reduction.is_accumulated(input) => vec![element; vector],
                _ if each == 0 => Vec::new(),
                _ => self.writer.elements(ty, &words[..each], vector),
            });
        }
        loaded
    }

    /// Puts the next vector first, and the first one last.
    fn turn_held(&mut self) {
        for words in self.held.clone() {
            let each = words.len() / usize::from(self.schedule.resident);
            let first: Vec<Reg> = words[..each]
                .iter()
                .map(|&word| {
                    let saved = self.writer.register(word.class());
                    self.writer.copy(saved, word);
                    saved
                })
                .collect();
            advance(self.writer, &words, each);
            for (&word, &saved) in words[words.len() - each..].iter().zip(&first) {
                self.writer.copy(word, saved);
            }
        }
    }

    /// Whether a vector of so many elements is gone through in turns.
    pub(super) fn takes_turns(&self, program: &Program, count: usize) -> bool {
        self.schedule.fused && program.nodes().len() > SHORT && count > OF_TURN && !self.are_values_of_lanes()
    }

    /// What comes out for each element of a vector, a few of them in each turn.
    pub(super) fn each_in_turns(&mut self, program: &Program, loaded: &Loaded) -> Vec<Vec<Reg>> {
        let count = loaded.iter().map(Vec::len).max().unwrap_or(1);
        let turns = Turns { vector: count, turn: OF_TURN };
        self.writer.share(false);
        let moving: Loaded = loaded.iter().map(|elements| self.own_copies(elements)).collect();
        let made: Vec<Vec<Reg>> = program
            .output_types()
            .map(|ty| {
                let registers: Vec<Reg> = (0..count).map(|_| self.writer.register(Class::of(ty))).collect();
                registers.iter().for_each(|&register| self.writer.clear(register));
                registers
            })
            .collect();
        let left = self.writer.make(Class::Bits32, "mov.b32", format_args!("{}", turns.count()));
        let again = self.writer.label();
        self.writer.place(&again);
        self.writer.keep_loop();
        self.writer.share(true);
        let results: Vec<Vec<Reg>> = (0..turns.turn).map(|lane| self.each(program, &moving, lane)).collect();
        self.writer.share(false);
        for elements in moving.iter().filter(|elements| elements.first() != elements.last()) {
            advance(self.writer, elements, turns.turn);
        }
        for (output, elements) in made.iter().enumerate() {
            advance(self.writer, elements, turns.turn);
            for (lane, &element) in elements[count - turns.turn..].iter().enumerate() {
                self.writer.copy(element, results[lane][output]);
            }
        }
        line!(self.writer, "sub.u32 {left}, {left}, 1");
        let more = self.writer.make(Class::Predicate, "setp.ne.u32", format_args!("{left}, 0"));
        line!(self.writer, "@{more} bra {again}");
        (0..count).map(|lane| made.iter().map(|elements| elements[lane]).collect()).collect()
    }

    /// Elements in registers that may be moved; one that repeats itself stays where it is.
    fn own_copies(&mut self, elements: &[Reg]) -> Vec<Reg> {
        if elements.first() == elements.last() {
            return elements.to_vec();
        }
        elements
            .iter()
            .map(|&element| {
                let own = self.writer.register(element.class());
                self.writer.copy(own, element);
                own
            })
            .collect()
    }
}
