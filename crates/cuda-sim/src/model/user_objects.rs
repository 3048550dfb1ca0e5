//! User objects: data of the program that graphs keep, with a function that destroys it.
//!
//! An object has references of the program and references of graphs; copies of a graph, executable graphs and their
//! launches that are not over hold it too. It is destroyed when nobody holds it any more: its function then waits in
//! [`Orphans`] until a call runs it with the machine unlocked.
//!
//! Invariant: `own` of a [`UserObject`] is there while the program has references; what holds an object otherwise has an
//! `Arc` of it.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::engine::OpId;
use super::{HostWork, State};
use crate::codes::{Answer, INVALID_VALUE};

/// Functions of objects that nobody holds any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orphans(Arc<Mutex<Vec<HostWork>>>);

impl Orphans {
    fn add(&self, work: HostWork) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(work);
    }

    fn take(&self) -> Vec<HostWork> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An object, for as long as anybody holds it.
#[derive(Debug)]
pub(crate) struct Kept {
    destroy: HostWork,
    orphans: Orphans,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.orphans.add(self.destroy);
    }
}

/// References of a graph to an object.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) object: Arc<Kept>,
    references: u64,
}

/// An object as the program names it.
#[derive(Debug)]
pub(crate) struct UserObject {
    /// References of the program.
    references: u64,
    own: Option<Arc<Kept>>,
    kept: Weak<Kept>,
}

/// A number of references as the program gives it.
fn positive(count: u32) -> Answer<u64> {
    if i32::try_from(count).is_ok_and(|count| count > 0) { Ok(u64::from(count)) } else { Err(INVALID_VALUE) }
}

impl State {
    /// Makes an object with references of the program.
    pub(crate) fn new_user_object(
        &mut self,
        destroy: unsafe extern "C" fn(*mut c_void),
        data: u64,
        references: u32,
    ) -> Answer<u64> {
        // A new object may have any number of references; later calls take and give fewer than 2^31 at once.
        let references = Some(u64::from(references)).filter(|&references| references > 0).ok_or(INVALID_VALUE)?;
        let destroy = HostWork::Function { function: destroy, data };
        let own = Arc::new(Kept { destroy, orphans: self.orphans.clone() });
        let key = self.new_handle();
        self.user_objects.insert(key, UserObject { references, kept: Arc::downgrade(&own), own: Some(own) });
        Ok(key)
    }

    /// An object that somebody holds.
    fn user_object(&mut self, key: u64) -> Answer<(&mut UserObject, Arc<Kept>)> {
        let object = self.user_objects.get_mut(&key).ok_or(INVALID_VALUE)?;
        let kept = object.kept.upgrade().ok_or(INVALID_VALUE)?;
        Ok((object, kept))
    }

    /// The program has more references.
    pub(crate) fn retain_user_object(&mut self, key: u64, count: u32) -> Answer {
        let count = positive(count)?;
        let (object, kept) = self.user_object(key)?;
        object.references += count;
        object.own = Some(kept);
        Ok(())
    }

    /// The program has fewer references. `INVALID_VALUE`: it has not so many.
    pub(crate) fn release_user_object(&mut self, key: u64, count: u32) -> Answer {
        let count = positive(count)?;
        let (object, _) = self.user_object(key)?;
        object.references = object.references.checked_sub(count).ok_or(INVALID_VALUE)?;
        if object.references == 0 {
            object.own = None;
        }
        Ok(())
    }

    /// A graph has more references: new ones, or those that the program gives up.
    pub(crate) fn retain_in_graph(&mut self, graph: u64, key: u64, count: u32, is_moved: bool) -> Answer {
        let added = positive(count)?;
        self.graph(graph)?;
        let (_, object) = self.user_object(key)?;
        if is_moved {
            self.release_user_object(key, count)?;
        }
        let holdings = &mut self.graph_mut(graph)?.holdings;
        holdings.entry(key).or_insert(Holding { object, references: 0 }).references += added;
        Ok(())
    }

    /// A graph has fewer references. `INVALID_VALUE`: it has not so many.
    pub(crate) fn release_in_graph(&mut self, graph: u64, key: u64, count: u32) -> Answer {
        let count = positive(count)?;
        let holdings = &mut self.graph_mut(graph)?.holdings;
        let holding = holdings.get_mut(&key).ok_or(INVALID_VALUE)?;
        holding.references = holding.references.checked_sub(count).ok_or(INVALID_VALUE)?;
        if holding.references == 0 {
            holdings.remove(&key);
        }
        Ok(())
    }

    /// Holds objects that an executable graph held, until its last launch is over.
    pub(crate) fn hold_until(&mut self, last: Option<OpId>, objects: Vec<Arc<Kept>>) {
        if let Some(op) = last.filter(|&op| !objects.is_empty() && self.is_pending(op)) {
            self.departing.push((op, objects));
        }
    }

    /// Functions of objects that nobody holds any more.
    pub(crate) fn take_orphans(&mut self) -> Vec<HostWork> {
        if self.user_objects.is_empty() {
            return Vec::new();
        }
        let engine = &self.engine;
        self.departing.retain(|(op, _)| engine.is_pending(*op));
        self.user_objects.retain(|_, object| object.kept.strong_count() > 0);
        self.orphans.take()
    }
}

/// Objects of one graph, by handle.
pub(crate) type Holdings = BTreeMap<u64, Holding>;
