//! The CUDA graphs of a function, as a tree (`mode="reduce-overhead"`; torch's CUDA graph trees).
//!
//! A call runs one plan, or several if the function's graph breaks. Each plan becomes a graph that is a child of the
//! graph of the plan that ran before it in the call, and reads the results of its ancestors in place. Each thread has
//! its own tree for a function, as in torch. All graphs of a tree share one pool. The results of a call are valid until
//! the thread's next call of the function. Graphs on different branches, which never run in one call, share memory:
//! before a graph is captured, the pool is restored to its checkpoint after the parent graph.
//!
//! **Invariants:**
//! - A graph writes to no memory that a graph of another thread writes, except memory of shared arguments.
//! - A plan that has no graph here runs its kernels.
//! - The graph that a call launched last at a level is the first of its level.
//! - While a graph is captured, the results of its ancestors stay allocated.
//! - Tensors with results of an earlier call are invalid from the first launch of a call on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use c10_core::{DeviceIndex, Runtime, Stream};
use smallvec::SmallVec;

use super::graph_pool::{Given, GraphPool, PoolState};
use super::graphed::{self, Graphed, Places};
use super::layout::Made;
use super::plan::Plan;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Dims;
use crate::storage::Storage;
use crate::storage::deferred::Deferred;
use crate::tensor::Tensor;

/// Graphs that a function has at most. Torch stops recording after as many.
const MOST_GRAPHS: usize = 128;

/// Plans that are known at a level, with a graph or without one.
const MOST_BRANCHES: usize = 256;

/// Graphs of different shapes after which a warning is given, as in torch.
const MANY_SHAPES: usize = 50;

/// Trees of a function, one for each thread that has called it.
#[derive(Debug, Default)]
pub(super) struct ThreadTrees(Mutex<Vec<ThreadTree>>);

/// Tree of a thread. The weak reference expires when the thread ends.
#[derive(Debug)]
struct ThreadTree {
    thread: Weak<()>,
    tree: Arc<Trees>,
}

thread_local! {
    /// Identity of the thread, alive as long as the thread. Its address is unique until the thread's last
    /// [`ThreadTree`] is gone.
    static THREAD: Arc<()> = Arc::new(());
}

/// Lock held while a graph is captured: a backend may allow only one capture at a time.
static CAPTURES: Mutex<()> = Mutex::new(());

/// Tree of a function on a thread. A call that runs the function takes the tree out until the call ends.
#[derive(Debug)]
pub(super) struct Trees(Mutex<Option<Tree>>);

/// The tree while a call has it.
#[derive(Debug)]
pub(super) struct Taken {
    from: Arc<Trees>,
    tree: Tree,
}

/// All graphs of a function on a thread.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pool: Option<GraphPool>,
    roots: Vec<Branch>,
    /// How many graphs of the call that is under way were launched, one beneath another.
    depth: usize,
    /// Whether nothing of this call was launched yet.
    is_fresh: bool,
    /// What the graphs of a call gave, of the last call that launched any.
    given: Vec<Arc<Deferred>>,
    /// The stream of the last launch.
    stream: Option<Stream>,
    /// The number of the graph that was captured last.
    number: u64,
    /// Why no more graphs are launched.
    stopped: Option<&'static str>,
}

/// A plan at a place in the tree.
#[derive(Debug)]
struct Branch {
    plan: Arc<Plan>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It cannot be a graph.
    Never(&'static str),
    /// It will be one in the next call. It was one where arguments have moved.
    Seen(Places),
    Is(Box<Node>),
}

/// A graph, and what comes after it.
#[derive(Debug)]
struct Node {
    graphed: Graphed,
    /// The memory of each wanted slot, and what calls that do not call the function give of it.
    made: Given,
    results: SmallVec<[Option<Arc<Deferred>>; 4]>,
    /// The state of the pool behind the graph.
    behind: PoolState,
    branches: Vec<Branch>,
}

impl ThreadTrees {
    fn lock(&self) -> MutexGuard<'_, Vec<ThreadTree>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the calling thread's tree; `None` while the thread is ending. Trees of ended threads are dropped when a
    /// new thread gets its first tree.
    pub(super) fn own(&self) -> Option<Arc<Trees>> {
        THREAD.try_with(|thread| self.of(thread)).ok()
    }

    fn of(&self, thread: &Arc<()>) -> Arc<Trees> {
        let mut trees = self.lock();
        if let Some(own) = trees.iter().find(|own| std::ptr::eq(own.thread.as_ptr(), Arc::as_ptr(thread))) {
            return Arc::clone(&own.tree);
        }
        let ended = trees.extract_if(.., |own| own.thread.strong_count() == 0).collect::<Vec<_>>();
        let tree = Arc::new(Trees::default());
        trees.push(ThreadTree { thread: Arc::downgrade(thread), tree: Arc::clone(&tree) });
        drop(trees);
        // Dropping graphs may wait for other threads, so the lock is released first.
        drop(ended);
        tree
    }

    /// Returns the trees of all threads.
    pub(super) fn all(&self) -> Vec<Arc<Trees>> {
        self.lock().iter().map(|own| Arc::clone(&own.tree)).collect()
    }

    /// Drops the graphs of calls that begin with a plan, on every thread.
    pub(super) fn forget(&self, plan: &Arc<Plan>) {
        for tree in self.all() {
            if let Some(tree) = &mut *tree.lock() {
                tree.forget(plan);
            }
        }
    }
}

impl Default for Trees {
    fn default() -> Self {
        Self(Mutex::new(Some(Tree::default())))
    }
}

impl Trees {
    /// The tree, where no call has taken it.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Tree>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the tree for a call; nothing where another call has it.
    pub(super) fn take(self: &Arc<Self>) -> Option<Taken> {
        let mut tree = self.lock().take()?;
        tree.begin();
        Some(Taken { from: Arc::clone(self), tree })
    }
}

impl Taken {
    pub(super) fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.from.lock() = Some(std::mem::take(&mut self.tree));
    }
}

impl Tree {
    /// A call begins.
    pub(super) fn begin(&mut self) {
        self.depth = 0;
        self.is_fresh = true;
    }

    /// How many graphs there are.
    pub(super) fn len(&self) -> usize {
        self.roots.iter().map(Branch::graphs).sum()
    }

    /// Why a plan has no graph, where one was asked for.
    pub(super) fn refused(&self, plan: &Arc<Plan>) -> Option<&'static str> {
        self.stopped.or_else(|| refused(&self.roots, plan))
    }

    /// Drops the graphs of calls that begin with a plan.
    fn forget(&mut self, plan: &Arc<Plan>) {
        self.roots.retain(|branch| !Arc::ptr_eq(&branch.plan, plan));
    }

    /// Arguments that last through a call which launches several graphs: what an earlier call gave is copied.
    pub(super) fn lasting(&self, arguments: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let lasting = |tensor: Tensor| if self.stays(&tensor) { Ok(tensor) } else { copy_of(&tensor) };
        arguments.into_iter().map(lasting).collect()
    }

    /// Launches the graph of a plan beneath those of the call so far. The answer is whether there is one; if not, the plan's
    /// kernels have to be run. `shares` tells whether two arguments share memory.
    pub(super) fn run(
        &mut self,
        runtime: &Runtime,
        plan: &Arc<Plan>,
        arguments: &[&Tensor],
        shares: impl FnOnce() -> bool,
    ) -> Result<bool> {
        // A graph is not launched within another capture: its kernels become a part of that. An empty one is not launched.
        if self.stopped.is_some() || plan.steps.is_empty() || runtime.streams().is_current_capturing()? {
            return Ok(false);
        }
        arguments.iter().try_for_each(|tensor| tensor.storage().checked().map(drop))?;
        if !self.bring_up(plan) {
            let branch = Branch { plan: Arc::clone(plan), state: self.first(plan, arguments, shares()) };
            if let Some(level) = level(&mut self.roots, self.depth).filter(|level| level.len() < MOST_BRANCHES) {
                level.push(branch);
            }
            return Ok(false);
        }
        let is_graph = self.make_fit(runtime, arguments)?;
        if is_graph {
            self.launch(runtime, arguments)?;
        }
        Ok(is_graph)
    }

    /// The results of the graph that was launched last, for a call that does not call its function.
    pub(super) fn results(&mut self) -> Result<Made> {
        let Some(node) = last_node(&mut self.roots, self.depth) else { return Ok(Made::new()) };
        let mut results = Made::new();
        for (buffer, result) in node.made.iter().zip(&mut node.results) {
            let Some(buffer) = buffer else {
                results.push(None);
                continue;
            };
            // Nobody has what an earlier call gave: it serves again.
            let own = match result.take().filter(|own| Arc::strong_count(own) == 1) {
                Some(own) => own,
                None => Arc::new(Deferred::of(buffer.clone())?),
            };
            own.revive();
            self.given.push(Arc::clone(&own));
            results.push(Some(Storage::of_deferred(Arc::clone(&own))));
            *result = Some(own);
        }
        Ok(results)
    }

    /// Gives those who wait for the results of the graph that was launched last their memory.
    pub(super) fn fill(&mut self, wanted: &[Arc<Deferred>]) {
        let Some(node) = last_node(&mut self.roots, self.depth) else { return };
        for (deferred, buffer) in wanted.iter().zip(&node.made) {
            if let Some(buffer) = buffer {
                deferred.fill(buffer.clone());
                self.given.push(Arc::clone(deferred));
            }
        }
    }

    /// Launches no more graphs where what the call's graphs gave has more holders than these: the next call would write over
    /// it. `holders` are those of the call's results, and those that go with the call.
    pub(super) fn stop_if_kept<'a>(&mut self, holders: impl Iterator<Item = &'a Arc<Deferred>> + Clone) {
        let of = |own: &Arc<Deferred>| holders.clone().filter(|other| Arc::ptr_eq(own, other)).count();
        if !self.is_fresh && self.given.iter().any(|own| Arc::strong_count(own) > 1 + of(own)) {
            self.stopped = Some("the function keeps tensors that it has made");
        }
    }

    /// Whether the memory of an argument may be there in the next call too: it is not what an earlier call gave.
    fn stays(&self, tensor: &Tensor) -> bool {
        let is_it = |own: &Arc<Deferred>| tensor.storage().deferred().is_some_and(|other| Arc::ptr_eq(own, other));
        !self.is_fresh || !self.given.iter().any(is_it)
    }

    /// The state of a plan that is there for the first time.
    fn first(&self, plan: &Plan, arguments: &[&Tensor], shares: bool) -> State {
        let shared = shares.then_some("its arguments share memory");
        let on_host = || graphed::reads_host(plan, arguments).then_some("it reads an argument in host memory");
        let refused = shared.or_else(|| plan.not_graphed()).or_else(on_host);
        let places = || State::Seen(Places::of(arguments, |tensor| self.stays(tensor)));
        refused.map_or_else(places, State::Never)
    }

    /// Brings a plan to the head of the level. Whether it is there.
    fn bring_up(&mut self, plan: &Arc<Plan>) -> bool {
        let Some(level) = level(&mut self.roots, self.depth) else { return false };
        let at = level.iter().position(|branch| Arc::ptr_eq(&branch.plan, plan));
        at.into_iter().for_each(|at| level.swap(0, at));
        at.is_some()
    }

    /// Captures the plan at the head of the level, unless its graph is there and reads the arguments where they lie. Whether
    /// there is a graph then.
    fn make_fit(&mut self, runtime: &Runtime, arguments: &[&Tensor]) -> Result<bool> {
        let Some(branch) = level(&mut self.roots, self.depth).and_then(|level| level.first()) else { return Ok(false) };
        let mut places = match &branch.state {
            State::Never(_) => return Ok(false),
            State::Is(node) if node.graphed.fits(arguments) => return Ok(true),
            State::Is(node) => node.graphed.places(),
            State::Seen(places) => places.clone(),
        };
        let (plan, gone) = (Arc::clone(&branch.plan), branch.graphs());
        let others = self.len() - gone;
        let moves = places.moving(arguments, |tensor| self.stays(tensor));
        places.forget(&moves);
        let refused = if graphed::writes_what_moves(&plan, &moves) {
            Some("it writes to an argument that moves")
        } else if others >= MOST_GRAPHS {
            Some("the function has as many graphs as it may have")
        } else {
            None
        };
        // A graph that was there goes first, so that the next one can have its memory.
        self.set_state(refused.map_or_else(|| State::Seen(places), State::Never));
        if refused.is_some() {
            return Ok(false);
        }
        let node = self.capture(runtime, &plan, (arguments, &moves))?;
        self.set_state(State::Is(Box::new(node)));
        if self.depth == 0 && self.roots.iter().filter(|branch| branch.graphs() > 0).count() == MANY_SHAPES {
            tracing::warn!(graphs = MANY_SHAPES, "a compiled function has a CUDA graph for each of many shapes");
        }
        Ok(true)
    }

    /// Captures a plan behind the graphs of the call so far.
    fn capture(
        &mut self,
        runtime: &Runtime,
        plan: &Arc<Plan>,
        (arguments, moves): (&[&Tensor], &[bool]),
    ) -> Result<Node> {
        let above = last_node(&mut self.roots, self.depth).map(|node| node.behind.clone());
        let pool = match &mut self.pool {
            Some(pool) => pool,
            none => none.insert(GraphPool::new(runtime, device_of(runtime, arguments)?)?),
        };
        pool.return_to(runtime, above.as_ref())?;
        let (graphed, made) = {
            let _alone = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
            Graphed::new(plan, arguments, moves, (pool.stream(), pool.id()))?
        };
        self.number += 1;
        let (made, behind) = pool.keep(runtime, made, self.number)?;
        let results = made.iter().map(|_| None).collect();
        Ok(Node { graphed, made, results, behind, branches: Vec::new() })
    }

    /// Launches the graph at the head of the level. From here on what an earlier call gave is gone.
    fn launch(&mut self, runtime: &Runtime, arguments: &[&Tensor]) -> Result<()> {
        let device = device_of(runtime, arguments)?;
        let id = runtime.streams().current_id(device)?;
        if self.stream.as_ref().is_none_or(|last| last.stream_id() != id || last.device_index() != device) {
            let current = runtime.streams().current(device)?;
            // The graphs of a function write to the same memory, whatever stream a call is on.
            self.stream.as_ref().map_or(Ok(()), |last| current.wait_stream(last))?;
            self.stream = Some(current);
        }
        self.depth += 1;
        let Some(node) = last_node(&mut self.roots, self.depth) else { return Ok(()) };
        node.graphed.take(arguments)?;
        if std::mem::take(&mut self.is_fresh) {
            self.given.drain(..).for_each(|own| own.overwrite());
        }
        node.graphed.launch(|at| arguments.get(at).map(|tensor| tensor.storage()))
    }

    /// Sets the state of the plan at the head of the level.
    fn set_state(&mut self, state: State) {
        if let Some(branch) = level(&mut self.roots, self.depth).and_then(|level| level.first_mut()) {
            branch.state = state;
        }
    }
}

impl Branch {
    /// How many graphs there are from here on.
    fn graphs(&self) -> usize {
        match &self.state {
            State::Is(node) => 1 + node.branches.iter().map(Self::graphs).sum::<usize>(),
            State::Never(_) | State::Seen(_) => 0,
        }
    }
}

/// The plans that come after so many graphs of the call.
fn level(branches: &mut Vec<Branch>, depth: usize) -> Option<&mut Vec<Branch>> {
    match depth {
        0 => Some(branches),
        _ => level(&mut first_node(branches)?.branches, depth - 1),
    }
}

/// The graph that was launched last, where so many were.
fn last_node(branches: &mut Vec<Branch>, depth: usize) -> Option<&mut Node> {
    first_node(level(branches, depth.checked_sub(1)?)?)
}

fn first_node(branches: &mut [Branch]) -> Option<&mut Node> {
    match &mut branches.first_mut()?.state {
        State::Is(node) => Some(node),
        State::Never(_) | State::Seen(_) => None,
    }
}

/// Why a plan has no graph at a place, where it is known there and refused.
fn refused(branches: &[Branch], plan: &Arc<Plan>) -> Option<&'static str> {
    branches.iter().find_map(|branch| match &branch.state {
        State::Never(why) if Arc::ptr_eq(&branch.plan, plan) => Some(*why),
        State::Never(_) | State::Seen(_) => None,
        State::Is(node) => refused(&node.branches, plan),
    })
}

/// The device that work on these arguments is on.
fn device_of(runtime: &Runtime, arguments: &[&Tensor]) -> Result<DeviceIndex> {
    let device = arguments.iter().find_map(|tensor| tensor.device().index);
    Ok(device.map_or_else(|| runtime.current_device(), Ok)?)
}

/// All bytes of a storage.
pub(super) fn bytes_of(storage: &Storage) -> Result<Tensor> {
    let sizes = Dims::from_slice(&[i64::try_from(storage.nbytes()).unwrap_or(i64::MAX)]);
    Tensor::view_of(storage.clone(), DType::U8, sizes, Dims::from_slice(&[1]), 0)
}

/// The same elements, lying as they do, in memory of their own.
fn copy_of(tensor: &Tensor) -> Result<Tensor> {
    let own = graphed::own_memory(tensor)?;
    own.copy_(tensor)?;
    Ok(own)
}
