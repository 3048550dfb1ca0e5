//! The arenas of plans: taking one, giving one up, and what else is done between two requests.
//!
//! An arena is a segment, and the free parts of segments that stay because other parts are in use. Before it is taken the
//! cache is emptied, since the plan replaces most of what is cached; for the same reason that happens again after the first
//! periods. A plan that is given up leaves its arena to the cache.
//!
//! **Invariants:** a plan that cannot be had changes nothing for the requests. No arena is taken during a capture or while a
//! scope is open.

use std::sync::Arc;

use crate::base::handles::StreamRef;
use crate::caching::block::{ROUND_LARGE, SMALL_SIZE, SizeClass, max_split_size};
use crate::caching::device::count_segment;
use crate::caching::plan::{Filled, Holes, Job, Layout, PlanStats, StreamPlan, Turn};
use crate::caching::pools::{FromDriver, new_segment};
use crate::caching::shard::{Hole, Shard};
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::growth::Growth;
use crate::driver::Driver;
use crate::sync::lock;
use crate::trace::TraceEvent;

/// What an arena is to be made of.
struct Arena {
    job: Arc<Job>,
    layout: Layout,
    holes: Holes,
    /// The holes that the layout uses.
    parts: Vec<Option<Hole>>,
}

impl DeviceAllocator {
    /// Does what a stream's plan needs before the next request. Errors of the driver are passed over: the request that
    /// follows meets them too, if they matter.
    #[cold]
    pub(crate) fn take_turn<D: Driver>(&self, driver: &D, stream: StreamRef, turn: Turn) {
        let Some(shard) = self.cache.streams.get(stream.handle) else { return };
        match turn {
            Turn::Compute(job) => {
                if !compute(move || job.run()) {
                    self.with_plan(shard, StreamPlan::refuse);
                }
            }
            Turn::Adopt => self.adopt(driver, shard, stream),
            Turn::Trim => {
                let mut growth = lock(&self.growth);
                if growth.scopes.is_empty() {
                    let _ = self.release_cached_of(driver, &mut growth);
                }
            }
            Turn::Drop => {
                let position = shard.position;
                self.dissolve_at(|at, _| at == position);
            }
        }
    }

    fn with_plan(&self, shard: &Shard, change: impl FnOnce(&mut StreamPlan)) {
        if let Some(plan) = &mut shard.lock_flushed().plan {
            change(plan);
        }
    }

    /// Takes an arena for the plan of a stream, if it still wants one.
    fn adopt<D: Driver>(&self, driver: &D, shard: &Arc<Shard>, stream: StreamRef) {
        let mut growth = lock(&self.growth);
        if self.cache.shared.is_capturing() || !growth.scopes.is_empty() || !growth.config.learn_plans {
            return;
        }
        let Some(job) = shard.lock_flushed().plan.as_ref().and_then(|plan| plan.wanted()) else {
            return self.with_plan(shard, StreamPlan::refuse);
        };
        // What is beyond what may be split takes other ways.
        let may_split = growth.config.max_split_size.is_none();
        if !may_split || self.release_cached_of(driver, &mut growth).is_err() {
            return self.with_plan(shard, StreamPlan::refuse);
        }
        let found = shard.lock_flushed().holes();
        // Smaller requests would share pages of the address table, which holds one block of each in such segments.
        let holes = Holes::new(&found.iter().map(|hole| hole.size).collect::<Vec<_>>(), SMALL_SIZE + 1);
        let layout = match job.fill(&holes) {
            Some(Filled::By(layout)) => layout,
            Some(Filled::Wanted(filling)) => {
                // Taken in a later period. Without a thread it is the layout without holes.
                let (computed, wanted) = (Arc::clone(&job), Arc::clone(&filling));
                if !compute(move || computed.run_filling(&wanted)) {
                    job.leave_holes(&filling);
                }
                return;
            }
            None => return,
        };
        let holes = if layout.bytes < job.bytes() { holes } else { Holes::default() };
        let used = job.used(&layout, &holes);
        let parts = found.into_iter().enumerate().map(|(number, hole)| used.contains(&number).then_some(hole));
        let arena = Arena { job, layout, holes, parts: parts.collect() };
        match self.take_segment(driver, &growth, stream, arena.layout.bytes.next_multiple_of(ROUND_LARGE)) {
            Some(new) => self.enter_arena(driver, &growth, (shard, stream), &arena, new),
            None => self.with_plan(shard, StreamPlan::refuse),
        }
    }

    /// A segment of so many bytes, if there is room; none at all for no bytes.
    fn take_segment<D: Driver>(
        &self,
        driver: &D,
        growth: &Growth,
        stream: StreamRef,
        bytes: u64,
    ) -> Option<Option<(u64, u64)>> {
        if bytes == 0 {
            return Some(None);
        }
        let held = self.cache.held().saturating_add(bytes);
        if growth.limit.is_some_and(|limit| held > limit) {
            return None;
        }
        let address = new_segment(&FromDriver(driver), self.cache.index, bytes, stream).ok().flatten()?;
        Some(Some((address, bytes)))
    }

    /// Enters an arena into the books, if its holes are what they were; else the plan has to wait.
    fn enter_arena<D: Driver>(
        &self,
        driver: &D,
        growth: &Growth,
        (shard, stream): (&Shard, StreamRef),
        arena: &Arena,
        new: Option<(u64, u64)>,
    ) {
        let Arena { job, layout, holes, parts } = arena;
        if let Some((address, bytes)) = new {
            // Many places begin in a page, as in one of small blocks.
            self.cache.shared.pages.register(address, bytes, shard.id, SizeClass::Small);
        }
        let is_entered = self.cache.all_shards(|all| {
            let state = &mut all.states[shard.position];
            let is_wanted = state.plan.as_ref().is_some_and(|plan| plan.wants(job));
            if !is_wanted || !parts.iter().flatten().all(|hole| state.has_hole(hole)) {
                return false;
            }
            let change = state.adopt(layout, holes, parts, new);
            state.ledger.apply(SizeClass::Large, &change);
            if let Some((_, bytes)) = new {
                count_segment(
                    all.stats,
                    SizeClass::Large,
                    bytes,
                    1,
                    max_split_size(&growth.config, growth.config.is_elastic()),
                );
            }
            all.cover(shard.position);
            true
        });
        let Some((address, bytes)) = new else { return };
        if is_entered {
            self.report_segment(TraceEvent::SegmentAllocated, (address, bytes, stream.handle, None));
            return;
        }
        self.cache.shared.pages.unregister(address, bytes);
        // A driver that does not take it back has lost it.
        let _ = driver.mem_free(self.cache.index, address);
    }

    /// Gives plans up that a test names: their arenas are cached memory from then on. Whether there were any.
    pub(crate) fn dissolve_plans(&self, takes: impl Fn(&StreamPlan) -> bool) -> bool {
        self.dissolve_at(|_, plan| takes(plan))
    }

    fn dissolve_at(&self, takes: impl Fn(usize, &StreamPlan) -> bool) -> bool {
        self.cache.all_shards(|all| {
            let mut dissolved = false;
            for position in 0..all.states.len() {
                let state = &mut all.states[position];
                if !state.plan.as_ref().is_some_and(|plan| takes(position, plan)) {
                    continue;
                }
                if state.dissolve() {
                    all.cover(position);
                    dissolved = true;
                }
            }
            dissolved
        })
    }

    /// What the plans of all streams have done.
    pub(crate) fn plan_stats(&self) -> PlanStats {
        let shards = lock(&self.cache.figures).shards.clone();
        let mut sum = PlanStats::default();
        for shard in shards {
            if let Some(plan) = &shard.lock().books().plan {
                sum.add(&plan.stats());
            }
        }
        sum
    }
}

/// Has a thread compute a layout; whether there is one.
fn compute(work: impl FnOnce() + Send + 'static) -> bool {
    // The thread is not waited for: it knows nothing but numbers.
    std::thread::Builder::new().name("plan".to_owned()).spawn(work).is_ok()
}
