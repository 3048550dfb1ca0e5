//! The programs of a function: which entry a call has, and which entries are one program.
//!
//! Calls are found by their keys: that of the last call is compared first, then a table is asked. Entries whose functions did
//! the same but for sizes are the shapes of one program. A shape that a program does not know is traced, since only the
//! function can tell what it does with it; when it turns out to have the structure of the program it becomes one more shape
//! of it, and no program of its own.
//!
//! **Invariants:** a key has one entry. A program keeps its first shape and at most [`MOST_SHAPES`] in all; the one whose last
//! call is the longest ago goes first. Entries that go are handed out, so that nothing of them is dropped under a lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::entry::{Calls, Entry};
use super::guard::{Call, GuardFailure, Guards, Key};

/// Shapes of a program that are kept.
const MOST_SHAPES: usize = 64;

/// Shapes of which two traces have been the same, after which one trace is enough for a further one. It has to have the
/// numbers that all of them have alike, such as a factor that does not follow from sizes. If it has others, they may come of
/// something that changes from call to call, and only a second trace can tell.
const ENOUGH_PROVEN: usize = 2;

/// The programs of a function.
#[derive(Debug, Default)]
pub(super) struct Programs {
    known: HashMap<Key, Arc<Entry>>,
    /// The entry of the last call.
    latest: Option<Arc<Entry>>,
    pub(super) families: Vec<Family>,
    /// Calls that ran the function as it is.
    pub(super) uncompiled: usize,
    /// All calls.
    calls: u64,
}

/// A program: entries that do the same but for sizes.
#[derive(Debug)]
pub(super) struct Family {
    /// The first of them, and others that were called since.
    pub(super) shapes: Vec<Arc<Entry>>,
    /// How many shapes were traced.
    pub(super) traced: usize,
    /// How its first call differed from those of the programs before it.
    pub(super) recompiled: Vec<GuardFailure>,
    /// Calls with arguments like its own that did something else, when there could be no more programs.
    strangers: usize,
    /// The numbers of its graph that all shapes have alike whose plan runs; nothing where they have different ones. Empty
    /// before the first.
    alike: Vec<Option<u64>>,
}

impl Programs {
    /// The entry of a call.
    pub(super) fn find(&mut self, call: &Call<'_>) -> Option<Arc<Entry>> {
        self.calls += 1;
        if self.latest.as_ref().is_none_or(|latest| !call.has(&latest.key)) {
            self.latest = Some(Arc::clone(self.known.get(&call.key())?));
        }
        self.latest.as_ref().inspect(|found| found.note_call(self.calls)).cloned()
    }

    /// Whether a call that no entry is for is to be traced: there may be one more program, or it may be a shape of one.
    pub(super) fn admits(&mut self, guards: &Guards, limit: usize) -> bool {
        let is_admitted = self.families.len() < limit
            || self.families.iter().any(|family| family.first().guards.is_like(guards) && family.strangers < limit);
        self.uncompiled += usize::from(!is_admitted);
        is_admitted
    }

    /// Adds the entry of a call that was traced. What is not kept is returned.
    pub(super) fn add(&mut self, entry: Arc<Entry>, limit: usize) -> Option<Arc<Entry>> {
        // Another thread may have traced the same.
        if self.known.contains_key(&entry.key) {
            return Some(entry);
        }
        entry.note_call(self.calls);
        let family = self.families.iter().position(|family| family.has(&entry));
        if family.is_none() && self.families.len() >= limit {
            self.uncompiled += 1;
            let alike = self.families.iter_mut().filter(|family| family.first().guards.is_like(&entry.guards));
            alike.for_each(|family| family.strangers += 1);
            return Some(entry);
        }
        self.known.insert(entry.key.clone(), Arc::clone(&entry));
        match family {
            Some(number) => {
                entry.is_resized.store(true, Ordering::Relaxed);
                let gone = self.families[number].add(entry)?;
                self.known.remove(&gone.key);
                if self.latest.as_ref().is_some_and(|latest| Arc::ptr_eq(latest, &gone)) {
                    self.latest = None;
                }
                Some(gone)
            }
            None => {
                let others = self.families.iter().map(Family::first);
                let recompiled = others.filter_map(|other| other.guards.failure(&entry.guards)).collect();
                self.families.push(Family {
                    shapes: vec![entry],
                    traced: 1,
                    recompiled,
                    strangers: 0,
                    alike: Vec::new(),
                });
                None
            }
        }
    }
}

impl Family {
    /// The shape that it was made for.
    pub(super) fn first(&self) -> &Arc<Entry> {
        &self.shapes[0]
    }

    /// How the calls of the other shapes that it keeps differ from the first.
    pub(super) fn resized(&self) -> Vec<GuardFailure> {
        let first = &self.first().guards;
        self.shapes[1..].iter().filter_map(|entry| first.failure(&entry.guards)).collect()
    }

    fn has(&self, entry: &Entry) -> bool {
        let first = self.first();
        first.structure == entry.structure && first.guards.is_like(&entry.guards)
    }

    /// Takes note of the numbers of shapes whose plan runs. The answer is how many such shapes there are.
    fn learn(&mut self) -> usize {
        let proven: Vec<&Arc<Entry>> =
            self.shapes.iter().filter(|shape| shape.decided() == Some(Calls::Plan)).collect();
        for shape in &proven {
            let numbers = std::mem::take(&mut *shape.numbers());
            if self.alike.is_empty() {
                self.alike = numbers.into_iter().map(Some).collect();
            } else {
                let pairs = self.alike.iter_mut().zip(numbers);
                pairs.filter(|(alike, number)| **alike != Some(*number)).for_each(|(alike, _)| *alike = None);
            }
        }
        proven.len()
    }

    fn has_what_is_alike(&self, numbers: &[u64]) -> bool {
        let mut pairs = self.alike.iter().zip(numbers);
        self.alike.len() == numbers.len() && pairs.all(|(alike, number)| alike.is_none_or(|alike| alike == *number))
    }

    /// Adds a shape. The one that goes for it is returned.
    fn add(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        if self.learn() >= ENOUGH_PROVEN && self.has_what_is_alike(&entry.numbers()) {
            entry.trust();
        }
        self.shapes.push(entry);
        self.traced += 1;
        if self.shapes.len() <= MOST_SHAPES {
            return None;
        }
        let others = 1..self.shapes.len() - 1;
        let oldest = others.min_by_key(|&at| self.shapes[at].last_call.load(Ordering::Relaxed))?;
        Some(self.shapes.remove(oldest))
    }
}
