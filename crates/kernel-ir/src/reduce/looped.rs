//! Rows of fused programs: vectors that stay over all passes lie in shared memory and are gone through in a loop, and
//! where a very long program makes something of each element, so are the elements of a vector. The text does not grow with
//! their number then.
//!
//! **Invariant:** a thread reads in shared memory only what it has put there, so that no barrier is needed.

use super::write::{At, Body, Load, Loaded, Operand};
use crate::graph::Program;
use crate::pointwise::{Turns, advance};
use crate::ptx::{Class, Reg, Space, line};

/// Elements of a turn.
const OF_TURN: usize = 2;

/// Nodes of a program, over all elements of a vector, that are written out; more are gone through in turns.
const LONG: usize = 512;

impl Body<'_> {
    /// Takes what passes read of the row into shared memory, as memory has it.
    pub(super) fn stage_all(&mut self) {
        self.staged = self.staged_places();
        let vector = usize::from(self.schedule.vector);
        let mut turns = Vec::new();
        for turn in 0..self.schedule.resident {
            let (at, exists, skip) = self.open_turn(turn);
            let places = self.arithmetic.reduced_places(self.writer, at);
            let mut loaded = Vec::new();
            for (input, place) in self.staged.clone().into_iter().enumerate() {
                let (Some(place), Operand { number, row, ty }) = (place, self.inputs[input]) else { continue };
                let words = self.writer.words(ty, vector);
                let address = self.arithmetic.element(self.writer, row, number, &places);
                self.writer.load_words(Space::Global, ty, address, &words, vector);
                loaded.push((input, place, ty, words));
            }
            self.writer.place(&skip);
            turns.push((exists, loaded));
        }
        // All loads stand before the first store, so that they are under way together.
        for (turn, (exists, loaded)) in turns.into_iter().enumerate() {
            let skip = self.writer.label();
            line!(self.writer, "@!{exists} bra {skip}");
            for (input, place, ty, words) in loaded {
                let further = turn * self.staged_step(input);
                let to = self.writer.make(Class::Bits32, "add.u32", format_args!("{place}, {further}"));
                self.writer.store_words(Space::Shared, ty, to, &words, vector);
            }
            self.writer.place(&skip);
        }
    }

    /// Where the thread's first vector of each input that stays is.
    fn staged_places(&mut self) -> Vec<Option<Reg>> {
        let mut from = self.schedule.staged_from(self.reduction);
        let shared = self.writer.make(Class::Bits32, "mov.u32", format_args!("shared"));
        let mut places = Vec::with_capacity(self.inputs.len());
        for input in 0..self.inputs.len() {
            let bytes = self.schedule.staged_vector(self.reduction, input);
            places.push((bytes > 0).then(|| {
                let begin = self.writer.make(Class::Bits32, "add.u32", format_args!("{shared}, {from}"));
                self.writer.make(Class::Bits32, "mad.lo.u32", format_args!("{}, {bytes}, {begin}", self.thread))
            }));
            from += self.staged_step(input) * usize::from(self.schedule.resident);
        }
        places
    }

    /// Bytes between two vectors of a thread.
    fn staged_step(&self, input: usize) -> usize {
        self.schedule.staged_vector(self.reduction, input) * usize::from(self.schedule.threads)
    }

    /// Writes once what is done with each vector that is in shared memory.
    pub(super) fn sweep_staged(&mut self, load: Load, each: &mut dyn FnMut(&mut Self, At, &Loaded)) {
        let (class, name) = (self.arithmetic.class(), self.arithmetic.unsigned());
        let at = self.writer.register(class);
        self.writer.copy(at, self.first);
        let places: Vec<Option<Reg>> = self.staged.clone().into_iter().map(|place| self.moving(place)).collect();
        let (again, done) = (self.writer.label(), self.writer.label());
        let is_loop = self.schedule.resident > 1;
        if is_loop {
            self.writer.place(&again);
            self.writer.keep_loop();
        }
        let past = self.writer.make(Class::Predicate, &format!("setp.ge.{name}"), format_args!("{at}, {}", self.end));
        line!(self.writer, "@{past} bra {done}");
        self.writer.share(true);
        let loaded = self.load_staged(&places);
        let loaded = if load == Load::All { self.with_rest(at, &loaded) } else { loaded };
        each(self, at, &loaded);
        self.writer.share(false);
        if is_loop {
            for (input, place) in places.into_iter().enumerate() {
                let Some(place) = place else { continue };
                line!(self.writer, "add.u32 {place}, {place}, {}", self.staged_step(input));
            }
            line!(self.writer, "add.{name} {at}, {at}, {}", self.schedule.step());
            line!(self.writer, "bra {again}");
        }
        self.writer.place(&done);
    }

    /// A register of its own with this place.
    fn moving(&mut self, place: Option<Reg>) -> Option<Reg> {
        let own = place.map(|place| self.writer.register(place.class()));
        if let (Some(own), Some(place)) = (own, place) {
            self.writer.copy(own, place);
        }
        own
    }

    /// The elements of the vectors at these places.
    fn load_staged(&mut self, places: &[Option<Reg>]) -> Loaded {
        let vector = usize::from(self.schedule.vector);
        let mut loaded = Vec::with_capacity(places.len());
        for (input, &place) in places.iter().enumerate() {
            let ty = self.inputs[input].ty;
            loaded.push(match (self.repeated[input], place) {
                (Some(element), _) if self.reduction.is_accumulated(input) => vec![element; vector],
                (_, None) => Vec::new(),
                (_, Some(place)) => {
                    let words = self.writer.words(ty, vector);
                    self.writer.load_words(Space::Shared, ty, place, &words, vector);
                    self.writer.elements(ty, &words, vector)
                }
            });
        }
        loaded
    }

    /// Whether a vector of so many elements is gone through in turns.
    pub(super) fn takes_turns(&self, program: &Program, count: usize) -> bool {
        self.schedule.fused && program.nodes().len() * count > LONG && count > OF_TURN && !self.are_values_of_lanes()
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
