//! How the threads that share a row combine what they have.
//!
//! **Invariants:** afterwards every thread of a row has the same accumulators, to the bit. The order is that of the
//! module's documentation.

use super::schedule::Order;
use super::write::Body;
use crate::ptx::{Class, Reg, Writer, line};
use crate::types::Type;

impl Body<'_> {
    /// From the sets of each thread to the row's: one, or with vectors over rows one for each of those.
    pub(super) fn combine(&mut self, pass: usize, sets: Vec<Vec<Reg>>) -> Vec<Vec<Reg>> {
        if self.schedule.order == Order::Outer {
            return if self.schedule.lanes == 1 { sets } else { self.across_block(pass, &sets) };
        }
        // The elements of a vector first, then the lanes that a thread stands for.
        let vector = usize::from(self.schedule.vector);
        let lanes: Vec<Vec<Reg>> = sets.chunks(vector).map(|sets| self.halves(pass, sets)).collect();
        let set = self.halves(pass, &lanes);
        self.across_warp(pass, &set);
        if self.schedule.lanes > 32 {
            return vec![self.across_warps(pass, &set)];
        }
        vec![set]
    }

    /// Combines sets in halves; gives the first one, which has all.
    fn halves(&mut self, pass: usize, sets: &[Vec<Reg>]) -> Vec<Reg> {
        let mut half = sets.len() / 2;
        while half > 0 {
            for at in 0..half {
                self.join(pass, &sets[at], &sets[at + half]);
            }
            half /= 2;
        }
        sets[0].clone()
    }

    /// Combines two sets into the first one.
    pub(super) fn join(&mut self, pass: usize, set: &[Reg], other: &[Reg]) {
        let made = self.joined(pass, set, other);
        self.assign(set, &made);
    }

    /// Two sets as one.
    pub(super) fn joined(&mut self, pass: usize, set: &[Reg], other: &[Reg]) -> Vec<Reg> {
        let combine = &self.reduction.passes()[pass].combine;
        self.writer.program(combine, &[set, other].concat(), &self.scalars, None)
    }

    /// Of the threads that share a row: what those before this one have together, and what all have. Inclusive sums of
    /// a warp double their reach with each step; warps follow in rising order. `none` is what changes nothing.
    pub(super) fn scan_lanes(&mut self, own: &[Reg], none: &[Reg]) -> (Vec<Reg>, Vec<Reg>) {
        let width = u32::from(self.schedule.lanes).min(32);
        let first = (32 - width) << 8;
        let mut sums = own.to_vec();
        let place = self.writer.make(Class::Bits32, "and.b32", format_args!("{}, {}", self.lane, width - 1));
        let mut distance = 1;
        while distance < width {
            let below: Vec<Reg> = sums.iter().map(|&sum| shuffle(self.writer, "up", sum, distance, first)).collect();
            let reaches = self.writer.make(Class::Predicate, "setp.ge.u32", format_args!("{place}, {distance}"));
            let joined = self.joined(0, &below, &sums);
            sums = self.chosen(reaches, &joined, &sums);
            distance *= 2;
        }
        let bound = first | 31;
        let last: Vec<Reg> = sums.iter().map(|&sum| shuffle(self.writer, "idx", sum, width - 1, bound)).collect();
        let below: Vec<Reg> = sums.iter().map(|&sum| shuffle(self.writer, "up", sum, 1, first)).collect();
        let reaches = self.writer.make(Class::Predicate, "setp.ne.u32", format_args!("{place}, 0"));
        let before = self.chosen(reaches, &below, none);
        if self.schedule.lanes <= 32 {
            return (before, last);
        }
        self.scan_warps(before, &last, none)
    }

    /// The same over warps: what those before this one have comes before what the warp's threads have.
    fn scan_warps(&mut self, before: Vec<Reg>, last: &[Reg], none: &[Reg]) -> (Vec<Reg>, Vec<Reg>) {
        // The turn before has been read, as a pass before would have been.
        let shared = self.shared(1);
        let first = self.publish(0, shared, last);
        let own = self.writer.make(Class::Bits32, "shr.u32", format_args!("{}, 5", self.lane));
        let (mut all, mut lower) = (none.to_vec(), none.to_vec());
        for warp in 0..usize::from(self.schedule.lanes) / 32 {
            let is_own = self.writer.make(Class::Predicate, "setp.eq.u32", format_args!("{own}, {warp}"));
            lower = self.chosen(is_own, &all, &lower);
            let next = self.published(0, first, warp);
            all = self.joined(0, &all, &next);
        }
        (self.joined(0, &lower, &before), all)
    }

    /// One set or the other.
    fn chosen(&mut self, condition: Reg, yes: &[Reg], no: &[Reg]) -> Vec<Reg> {
        let types = self.types(0);
        let sets = types.into_iter().zip(yes.iter().zip(no));
        sets.map(|(ty, (&yes, &no))| self.writer.select(ty, condition, yes, no)).collect()
    }

    fn types(&self, pass: usize) -> Vec<Type> {
        self.reduction.passes()[pass].identity.iter().map(|&(ty, _)| ty).collect()
    }

    /// The threads of a warp that share a row: in halves down to the first, from which all get the result.
    fn across_warp(&mut self, pass: usize, set: &[Reg]) {
        let width = self.schedule.group();
        let mut distance = width / 2;
        while distance > 0 {
            let bound = (32 - width) << 8 | 31;
            let other: Vec<Reg> = set.iter().map(|&own| shuffle(self.writer, "down", own, distance, bound)).collect();
            self.join(pass, set, &other);
            distance /= 2;
        }
        // Only the first thread's result is everybody's; warps that are combined further read it from there.
        if width > 1 && self.schedule.lanes <= 32 {
            let bound = (32 - width) << 8 | 31;
            let first: Vec<Reg> = set.iter().map(|&own| shuffle(self.writer, "idx", own, 0, bound)).collect();
            self.assign(set, &first);
        }
    }

    /// The warps that share a row, in rising order.
    fn across_warps(&mut self, pass: usize, set: &[Reg]) -> Vec<Reg> {
        let shared = self.shared(pass);
        let first = self.publish(pass, shared, set);
        let all = self.published(pass, first, 0);
        for warp in 1..usize::from(self.schedule.lanes) / 32 {
            let other = self.published(pass, first, warp);
            self.join(pass, &all, &other);
        }
        all
    }

    /// Puts a set of each warp where the others of its row read it; gives the place of the row's first warp.
    fn publish(&mut self, pass: usize, shared: Reg, set: &[Reg]) -> Reg {
        let warps = self.warps();
        let group = self.schedule.group();
        let in_warp = self.writer.make(Class::Bits32, "and.b32", format_args!("{}, {}", self.thread, group - 1));
        let skips = self.writer.make(Class::Predicate, "setp.ne.u32", format_args!("{in_warp}, 0"));
        let warp =
            self.writer.make(Class::Bits32, "shr.u32", format_args!("{}, {}", self.thread, group.trailing_zeros()));
        let address = self.writer.make(Class::Bits32, "mad.lo.u32", format_args!("{warp}, 8, {shared}"));
        let stored = self.writer.label();
        line!(self.writer, "@{skips} bra {stored}");
        for (at, (ty, &own)) in self.types(pass).into_iter().zip(set).enumerate() {
            line!(self.writer, "st.shared.{} [{address}+{}], {own}", plain(ty), at * warps * 8);
        }
        self.writer.place(&stored);
        line!(self.writer, "bar.sync 0");
        let of_row = usize::from(self.schedule.lanes) / 32;
        self.writer.make(Class::Bits32, "mad.lo.u32", format_args!("{}, {}, {shared}", self.slot, of_row * 8))
    }

    /// The set that a warp of the row has published.
    fn published(&mut self, pass: usize, first: Reg, warp: usize) -> Vec<Reg> {
        let warps = self.warps();
        let places = self.types(pass).into_iter().enumerate().map(|(at, ty)| (ty, (at * warps + warp) * 8));
        places.map(|(ty, place)| load_shared(self.writer, ty, first, place)).collect()
    }

    /// Warps of a block.
    fn warps(&self) -> usize {
        usize::from(self.schedule.threads) / 32
    }

    /// The threads that share a row lie in several warps at one place each: through shared memory, in rising order.
    fn across_block(&mut self, pass: usize, sets: &[Vec<Reg>]) -> Vec<Vec<Reg>> {
        let types = self.types(pass);
        let (threads, vector) = (usize::from(self.schedule.threads), usize::from(self.schedule.vector));
        let (lanes, shared) = (usize::from(self.schedule.lanes), self.shared(pass));
        // Neighbouring threads have neighbouring words, one area for each accumulator of each row of a vector.
        let area = |at: usize, row: usize| (at * vector + row) * threads * 8;
        let own = self.writer.make(Class::Bits32, "mad.lo.u32", format_args!("{}, 8, {shared}", self.thread));
        for (row, set) in sets.iter().enumerate() {
            for (at, (&ty, &value)) in types.iter().zip(set).enumerate() {
                line!(self.writer, "st.shared.{} [{own}+{}], {value}", plain(ty), area(at, row));
            }
        }
        line!(self.writer, "bar.sync 0");
        let slots = threads / lanes;
        let first = self.writer.make(Class::Bits32, "mad.lo.u32", format_args!("{}, 8, {shared}", self.slot));
        let mut found = Vec::with_capacity(sets.len());
        for row in 0..sets.len() {
            let load = |body: &mut Self, lane: usize| -> Vec<Reg> {
                let places = types.iter().enumerate().map(|(at, &ty)| (ty, area(at, row) + lane * slots * 8));
                places.map(|(ty, place)| load_shared(body.writer, ty, first, place)).collect()
            };
            let all = load(self, 0);
            for lane in 1..lanes {
                let other = load(self, lane);
                self.join(pass, &all, &other);
            }
            found.push(all);
        }
        found
    }

    /// The address of the shared memory, once everybody has read what the pass before left there.
    fn shared(&mut self, pass: usize) -> Reg {
        if pass > 0 {
            line!(self.writer, "bar.sync 0");
        }
        self.writer.make(Class::Bits32, "mov.u32", format_args!("shared"))
    }
}

/// The value that another thread of the warp has in this register.
fn shuffle(writer: &mut Writer, mode: &str, own: Reg, lane: u32, bound: u32) -> Reg {
    let word = |writer: &mut Writer, word: Reg| {
        let mnemonic = format!("shfl.sync.{mode}.b32");
        writer.make(Class::Bits32, &mnemonic, format_args!("{word}, {lane}, {bound}, -1"))
    };
    let class = own.class();
    if matches!(class, Class::Bits64 | Class::Float64) {
        let (low, high) = (writer.register(Class::Bits32), writer.register(Class::Bits32));
        line!(writer, "mov.b64 {{{low}, {high}}}, {own}");
        let (low, high) = (word(writer, low), word(writer, high));
        return writer.make(class, "mov.b64", format_args!("{{{low}, {high}}}"));
    }
    let bits = if class == Class::Bits32 { own } else { writer.make(Class::Bits32, "mov.b32", format_args!("{own}")) };
    let got = word(writer, bits);
    if class == Class::Bits32 { got } else { writer.make(class, "mov.b32", format_args!("{got}")) }
}

fn load_shared(writer: &mut Writer, ty: Type, base: Reg, place: usize) -> Reg {
    let class = Class::of(ty);
    writer.make(class, &format!("ld.shared.{}", plain(ty)), format_args!("[{base}+{place}]"))
}

/// How an accumulator is written in a load or store.
const fn plain(ty: Type) -> &'static str {
    match Class::of(ty) {
        Class::Float32 => "f32",
        Class::Float64 => "f64",
        Class::Bits64 => "b64",
        _ => "b32",
    }
}
