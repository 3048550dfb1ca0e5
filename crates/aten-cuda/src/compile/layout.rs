//! Where the memory of each slot is in a run of a plan, and when it is asked for.
//!
//! What lives between steps has one block, and where results are not written yet it lies in their memory. All of that is
//! taken before the first step. Where it would be more than what is there at the worst moment ([`ENOUGH`]), each slot has
//! memory of its own instead, from the first step that uses it to the last, as without compiling.
//!
//! **Invariants:** what is wanted outside has memory that nothing else is in after the run. Memory of another stream, or of
//! a pool that the function entered, is asked for before the first step and kept to the end.

use c10_core::{Device, Stream};
use smallvec::SmallVec;

use super::graph::{Graph, Home, SlotId, View};
use super::memory::{self, ALIGNMENT, Arena, Lodging, Need};
use crate::base::error::Result;
use crate::storage::Storage;
use crate::storage::deferred::Source;

/// The memory of a run in hundredths of what is there at the worst moment, from which on there is no block.
const ENOUGH: usize = 102;

/// Where everything is.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) places: Vec<Place>,
    /// New memory of each run, that which is wanted outside first.
    new: Vec<New>,
    /// How much of it is wanted outside.
    pub(super) wanted: usize,
    /// The block of what lives between steps, for each device.
    pub(super) arenas: Vec<(Device, Arena)>,
    /// What each step begins and ends, where some memory is not there in all of a run; else nothing.
    changes: Vec<Changes>,
    /// The most bytes that a run has at once, and the least that any run could do with.
    pub(super) peak: usize,
    pub(super) peak_bound: usize,
}

/// Memory that a run has made, by its numbers: nothing where it is not there yet, or not any more. That which is wanted
/// outside comes first, and is there after the run.
pub(super) type Made = SmallVec<[Option<Storage>; 4]>;

/// Where the memory of a slot is in a run.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Input(usize),
    Captured(Storage),
    /// New memory of each run, by its number.
    New {
        number: usize,
        offset: usize,
    },
    /// A part of the block of a device.
    Arena {
        block: usize,
        offset: usize,
    },
    /// No step uses it.
    Nowhere,
}

/// Memory that each run asks for.
#[derive(Debug)]
struct New {
    bytes: usize,
    device: Device,
    /// Where it comes from, if not from where the call takes its memory.
    source: Option<Source>,
    /// Whether it is not asked for before the first step.
    is_late: bool,
}

/// New memory, by its number, that a step is the first or the last to use.
#[derive(Clone, Debug, Default)]
struct Changes {
    begins: Vec<usize>,
    ends: Vec<usize>,
}

impl New {
    /// That of a slot of the trace's own, in a call on a stream.
    fn of(home: &Home, stream: &Stream) -> Option<Self> {
        let Home::Made { bytes, device, source } = home else { return None };
        // Memory of another stream is reused in the order of that one.
        let source = Some(source.clone()).filter(|own| own.stream != *stream || own.pool.is_some());
        Some(Self { bytes: *bytes, device: *device, source, is_late: false })
    }

    fn make(&self) -> Result<Storage> {
        let new = || Storage::new(self.bytes, self.device);
        self.source.as_ref().map_or_else(new, |source| source.memory(new))
    }
}

/// What a step uses.
#[derive(Clone, Copy)]
pub(super) struct Uses<'a> {
    pub(super) views: [&'a [View]; 2],
    /// Whether it runs on another stream than that of the call.
    pub(super) is_elsewhere: bool,
}

/// What steps do to a slot over time.
#[derive(Clone, Copy, Default)]
struct Life {
    /// The first and the last step that use it.
    steps: Option<(usize, usize)>,
    /// Whether one of them is on another stream than that of the call. Two streams share no block: only the order of one of
    /// them tells when memory is free again.
    is_shared: bool,
}

fn lives(graph: &Graph, steps: &[Uses<'_>]) -> Vec<Life> {
    let mut lives = vec![Life::default(); graph.slots.len()];
    for (at, step) in steps.iter().enumerate() {
        for view in step.views.into_iter().flatten() {
            let life = &mut lives[view.slot];
            life.steps = Some((life.steps.map_or(at, |(first, _)| first), at));
            life.is_shared |= step.is_elsewhere;
        }
    }
    lives
}

/// Slots of a device that may share memory, with the times when they are there.
struct Sharing {
    device: Device,
    /// What lives between steps.
    inner: Vec<(SlotId, Need)>,
    /// What is wanted outside, by its number, and when it is first used.
    results: Vec<(usize, Lodging)>,
}

impl Layout {
    /// The layout of a graph whose steps use these slots. `stream` is the stream of the call.
    pub(super) fn new(graph: &Graph, steps: &[Uses<'_>], stream: &Stream) -> Self {
        let mut layout = Self { places: Vec::with_capacity(graph.slots.len()), ..Self::default() };
        // What is wanted comes first.
        let wanted = graph.slots.iter().filter(|slot| slot.wanted.is_some());
        layout.new.extend(wanted.filter_map(|slot| New::of(&slot.home, stream)));
        layout.wanted = layout.new.len();
        let mut next_wanted = 0..layout.wanted;
        let mut sharing: Vec<Sharing> = Vec::new();
        let mut all: Vec<Need> = Vec::new();
        for (at, (slot, life)) in graph.slots.iter().zip(lives(graph, steps)).enumerate() {
            let (Home::Made { bytes, device, source }, Some((first, last))) = (&slot.home, life.steps) else {
                layout.places.push(match &slot.home {
                    Home::Input(argument) => Place::Input(*argument),
                    Home::Captured(storage) => Place::Captured(storage.clone()),
                    Home::Made { .. } => Place::Nowhere,
                });
                if slot.wanted.is_some() {
                    next_wanted.next();
                }
                continue;
            };
            let is_apart = life.is_shared || source.pool.is_some();
            let number = if slot.wanted.is_some() { next_wanted.next() } else { None };
            if is_apart && number.is_none() {
                layout.new.extend(New::of(&slot.home, stream));
            }
            layout.places.push(match number {
                Some(number) => Place::New { number, offset: 0 },
                None if is_apart => Place::New { number: layout.new.len() - 1, offset: 0 },
                None => Place::Nowhere,
            });
            let last = if number.is_some() { steps.len() - 1 } else { last };
            all.push(Need { bytes: bytes.next_multiple_of(ALIGNMENT), first, last });
            if is_apart {
                layout.peak += bytes.next_multiple_of(ALIGNMENT);
                continue;
            }
            let own = of_device(&mut sharing, *device);
            match number {
                Some(number) => own.results.push((number, Lodging { bytes: *bytes, first })),
                None => own.inner.push((at, Need { bytes: *bytes, first, last })),
            }
        }
        layout.peak_bound = memory::bound(&all);
        sharing.into_iter().for_each(|own| layout.add(&own, steps.len()));
        layout
    }

    /// Adds what shares memory on a device, in a run of so many steps.
    fn add(&mut self, own: &Sharing, steps: usize) {
        let rounded = |bytes: usize| bytes.next_multiple_of(ALIGNMENT);
        let results: usize = own.results.iter().map(|(_, result)| rounded(result.bytes)).sum();
        let all = own.inner.iter().map(|(_, need)| Need { bytes: rounded(need.bytes), ..*need });
        let lasting = |result: &Lodging| Need { bytes: rounded(result.bytes), first: result.first, last: steps - 1 };
        let all: Vec<Need> = all.chain(own.results.iter().map(|(_, result)| lasting(result))).collect();
        let bound = memory::bound(&all);
        let needs: Vec<Need> = own.inner.iter().map(|(_, need)| *need).collect();
        let lodgings: Vec<Lodging> = own.results.iter().map(|(_, result)| *result).collect();
        let lodged = memory::lodge(&lodgings, &needs);
        let staying = || (0..needs.len()).filter(|&at| lodged[at].is_none());
        let arena = Arena::new(&staying().map(|at| needs[at]).collect::<Vec<_>>());
        if (arena.bytes + results).saturating_mul(100) > bound.saturating_mul(ENOUGH) {
            self.add_each(own, steps);
            self.peak += bound;
            return;
        }
        self.peak += arena.bytes + results;
        for ((slot, _), place) in own.inner.iter().zip(&lodged) {
            if let &Some((result, offset)) = place {
                self.places[*slot] = Place::New { number: own.results[result].0, offset };
            }
        }
        for (at, &offset) in staying().zip(&arena.offsets) {
            self.places[own.inner[at].0] = Place::Arena { block: self.arenas.len(), offset };
        }
        if arena.bytes > 0 {
            self.arenas.push((own.device, arena));
        }
    }

    /// Each slot has memory of its own, for as long as steps use it.
    fn add_each(&mut self, own: &Sharing, steps: usize) {
        self.changes.resize_with(steps, Changes::default);
        for (number, result) in &own.results {
            self.new[*number].is_late = true;
            self.changes[result.first].begins.push(*number);
        }
        for (slot, need) in &own.inner {
            let number = self.new.len();
            self.places[*slot] = Place::New { number, offset: 0 };
            self.new.push(New { bytes: need.bytes, device: own.device, source: None, is_late: true });
            self.changes[need.first].begins.push(number);
            self.changes[need.last].ends.push(number);
        }
    }

    /// Whether memory comes from elsewhere than where the call takes its memory.
    pub(super) fn has_sources(&self) -> bool {
        self.new.iter().any(|new| new.source.is_some())
    }

    /// The memory that is there before the first step.
    pub(super) fn begin(&self) -> Result<Made> {
        let mut made = Made::new();
        for new in &self.new {
            made.push(if new.is_late { None } else { Some(new.make()?) });
        }
        Ok(made)
    }

    /// Whether all memory of a run is there from before the first step to behind the last.
    pub(super) fn is_there_throughout(&self) -> bool {
        self.changes.is_empty()
    }

    /// Asks for the memory that a step is the first to use.
    #[inline]
    pub(super) fn before(&self, step: usize, made: &mut Made) -> Result<()> {
        let Some(changes) = self.changes.get(step) else { return Ok(()) };
        for &number in &changes.begins {
            made[number] = Some(self.new[number].make()?);
        }
        Ok(())
    }

    /// Gives back the memory that a step was the last to use.
    #[inline]
    pub(super) fn after(&self, step: usize, made: &mut Made) {
        if let Some(changes) = self.changes.get(step) {
            changes.ends.iter().for_each(|&number| made[number] = None);
        }
    }
}

fn of_device(all: &mut Vec<Sharing>, device: Device) -> &mut Sharing {
    let at = all.iter().position(|own| own.device == device).unwrap_or_else(|| {
        all.push(Sharing { device, inner: Vec::new(), results: Vec::new() });
        all.len() - 1
    });
    &mut all[at]
}
