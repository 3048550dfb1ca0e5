//! Random requests through random stacks of adaptors, over a source of numbers that nobody reads.
//!
//! Whatever the stack is: live memory never overlaps, a limit is never passed, figures say what is live, a failure changes
//! nothing, and in the end the source has everything back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::base::device::DeviceIndex;
use crate::base::error::{AllocatorError, Error, MemoryError};
use crate::base::handles::{StreamHandle, StreamRef};
use crate::sync::{Mutex, lock};

fn on(stream: usize) -> StreamView {
    StreamView(StreamRef { device: DeviceIndex(0), handle: StreamHandle(stream) })
}

/// Hands numbers out, up to a capacity.
#[derive(Debug)]
struct Shelf {
    capacity: u64,
    taken: Mutex<BTreeMap<u64, (u64, StreamView)>>,
    next: AtomicU64,
    /// Refuses what is given back.
    refuses: AtomicBool,
}

impl Shelf {
    fn new(capacity: u64) -> Arc<Self> {
        let (taken, next) = (Mutex::default(), AtomicU64::new(1 << 40));
        Arc::new(Self { capacity, taken, next, refuses: AtomicBool::new(false) })
    }

    fn held(&self) -> u64 {
        lock(&self.taken).values().map(|(bytes, _)| *bytes).sum()
    }
}

impl MemoryResource for Shelf {
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
        let mut taken = lock(&self.taken);
        if taken.values().map(|(bytes, _)| *bytes).sum::<u64>() + bytes > self.capacity {
            return Err(AllocatorError::NoMemory { device: stream.device(), requested: bytes }.into());
        }
        if bytes == 0 {
            return Ok(Allocation::empty(stream.device()));
        }
        let address = self.next.fetch_add(bytes.next_multiple_of(512), Ordering::Relaxed);
        taken.insert(address, (bytes, stream));
        Ok(Allocation::new(address, bytes, stream.device()))
    }

    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
        let address = memory.address();
        if address == 0 {
            return Ok(());
        }
        let mut taken = lock(&self.taken);
        if self.refuses.load(Ordering::Relaxed) || taken.get(&address) != Some(&(memory.bytes(), stream)) {
            return Err(NotDeallocated { memory, error: MemoryError::InvalidPointer { address }.into() });
        }
        taken.remove(&address);
        Ok(())
    }
}

/// One adaptor of a stack.
#[derive(Clone, Copy, Debug)]
enum Layer {
    Limit(u64),
    Logging,
    Statistics,
    /// Fails each call whose number is a multiple.
    Failing(u64),
    Arena(u64),
}

fn layer() -> impl Strategy<Value = Layer> {
    prop_oneof![
        (1_u64..200_000).prop_map(Layer::Limit),
        Just(Layer::Logging),
        Just(Layer::Statistics),
        (2_u64..20).prop_map(Layer::Failing),
        (1_u64..50_000).prop_map(Layer::Arena),
    ]
}

/// What a layer is put over.
type Beneath = Arc<dyn MemoryResource>;

/// What the layers tell from outside.
#[derive(Debug, Default)]
struct Told {
    /// Live bytes that the logs of a stack saw, by layer.
    logged: Vec<Arc<Mutex<i64>>>,
    statistics: Vec<Arc<StatisticsResource<Beneath>>>,
    limits: Vec<(u64, Arc<LimitResource<Beneath>>)>,
    arenas: Vec<Arc<ArenaResource<Beneath>>>,
    /// No call fails by choice any more.
    calm: Arc<AtomicBool>,
}

impl Told {
    fn put(&mut self, beneath: Beneath, layer: Layer) -> Beneath {
        match layer {
            Layer::Limit(limit) => {
                let limited = Arc::new(LimitResource::new(beneath, limit));
                self.limits.push((limit, Arc::clone(&limited)));
                limited
            }
            Layer::Logging => {
                let live = Arc::<Mutex<i64>>::default();
                self.logged.push(Arc::clone(&live));
                Arc::new(LoggingResource::new(beneath, move |event| {
                    let bytes = i64::try_from(event.bytes).unwrap();
                    let by = match (&event.error, event.action) {
                        (Some(_), _) => 0,
                        (None, ResourceAction::Allocate) => bytes,
                        (None, ResourceAction::Deallocate) => -bytes,
                    };
                    *lock(&live) += by;
                }))
            }
            Layer::Statistics => {
                let counted = Arc::new(StatisticsResource::new(beneath));
                self.statistics.push(Arc::clone(&counted));
                counted
            }
            Layer::Failing(each) => {
                let calm = Arc::clone(&self.calm);
                Arc::new(FailingResource::new(beneath, move |call| {
                    let fails = call.number.is_multiple_of(each) && !calm.load(Ordering::Relaxed);
                    fails.then(|| AllocatorError::Injected { call: call.number }.into())
                }))
            }
            Layer::Arena(chunk) => {
                let arena = Arc::new(ArenaResource::new(beneath, chunk));
                self.arenas.push(Arc::clone(&arena));
                arena
            }
        }
    }

    fn check(&self) {
        for (limit, limited) in &self.limits {
            assert!(limited.held() <= *limit);
        }
        assert!(self.statistics.iter().all(|counted| counted.stats().bytes.is_valid()));
    }

    /// Gives back what arenas keep, from the top down.
    fn release(&self) {
        for arena in self.arenas.iter().rev() {
            arena.release().unwrap();
        }
    }
}

/// Live memory by address, with the stream it was allocated for.
type Live = BTreeMap<u64, (Allocation, StreamView)>;

fn assert_apart(live: &Live) {
    let mut end = 0;
    for (address, (memory, _)) in live {
        assert!(*address >= end, "memory at {address:#x} overlaps");
        end = address + memory.bytes();
    }
}

/// Takes or gives back; a failure leaves what is live as it was.
fn step(memory: &dyn MemoryResource, live: &mut Live, (kind, amount, stream): (bool, u64, usize)) {
    if kind {
        if let Ok(taken) = memory.allocate(amount, on(stream)) {
            assert_eq!((taken.bytes(), taken.address() == 0, taken.address() % 512), (amount, amount == 0, 0));
            if amount > 0 {
                assert!(live.insert(taken.address(), (taken, on(stream))).is_none());
            }
        }
        return;
    }
    let position = usize::try_from(amount).unwrap() % live.len().max(1);
    let Some(address) = live.keys().nth(position).copied() else { return };
    let (taken, stream) = live.remove(&address).unwrap();
    if let Err(refused) = memory.deallocate(taken, stream) {
        live.insert(address, (refused.memory, stream));
    }
}

proptest! {
    #[test]
    fn every_stack_of_adaptors_keeps_its_books(
        layers in prop::collection::vec(layer(), 0..6),
        capacity in 1_u64..2_000_000,
        steps in prop::collection::vec((any::<bool>(), 0_u64..20_000, 0_usize..3), 0..120),
    ) {
        let shelf = Shelf::new(capacity);
        let mut told = Told::default();
        let beneath: Beneath = Arc::<Shelf>::clone(&shelf);
        let memory = layers.iter().fold(beneath, |beneath, layer| told.put(beneath, *layer));
        let mut live = Live::new();
        for each in steps {
            step(&*memory, &mut live, each);
            assert_apart(&live);
            told.check();
            assert!(shelf.held() <= capacity);
        }
        told.calm.store(true, Ordering::Relaxed);
        for (taken, stream) in std::mem::take(&mut live).into_values() {
            memory.deallocate(taken, stream).unwrap();
        }
        told.release();
        assert_eq!(shelf.held(), 0, "the source has everything back");
        assert!(told.logged.iter().all(|live| *lock(live) == 0));
        assert!(told.statistics.iter().all(|counted| counted.stats().bytes.current == 0));
        assert!(told.limits.iter().all(|(_, limited)| limited.held() == 0));
    }
}

#[test]
fn threads_share_a_stack() {
    let shelf = Shelf::new(1 << 30);
    let limit = LimitResource::new(ArenaResource::new(Arc::clone(&shelf), 1 << 16), 1 << 20);
    let memory = StatisticsResource::new(limit);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let memory = &memory;
            scope.spawn(move || {
                for round in 0..500_u64 {
                    let taken = memory.allocate(1 + round * 7, on(thread)).unwrap();
                    memory.deallocate(taken, on(thread)).unwrap();
                }
            });
        }
    });
    let stats = memory.stats();
    assert_eq!((stats.allocations.current, stats.allocations.allocated, stats.refused), (0, 2000, 0));
    assert_eq!(memory.upstream().upstream().release().unwrap(), shelf.next.load(Ordering::Relaxed) - (1 << 40));
    assert_eq!(shelf.held(), 0);
}

#[test]
fn the_limit_holds_while_many_ask_at_once() {
    let memory = LimitResource::new(Shelf::new(1 << 30), 10_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let taken = memory.allocate(3000, on(0));
                    assert!(memory.held() <= 10_000);
                    taken.into_iter().for_each(|taken| memory.deallocate(taken, on(0)).unwrap());
                }
            });
        }
    });
    assert_eq!(memory.held(), 0);
    let error = memory.allocate(u64::MAX, on(0)).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!(error, AllocatorError::LimitReached { limit: 10_000, left: 10_000, requested: u64::MAX }.into());
}

#[test]
fn an_arena_joins_neighbours_and_gives_whole_chunks_back() {
    let shelf = Shelf::new(1 << 30);
    let arena = ArenaResource::new(Arc::clone(&shelf), 4096);
    let parts: Vec<Allocation> = (0..8).map(|_| arena.allocate(512, on(1)).unwrap()).collect();
    assert_eq!((shelf.held(), arena.held()), (4096, 4096));
    for taken in parts.into_iter().rev().step_by(2).collect::<Vec<_>>() {
        arena.deallocate(taken, on(1)).unwrap();
    }
    assert_eq!(arena.release().unwrap(), 0, "something of the chunk is taken");
    let error = arena.allocate(1000, on(1)).map(|taken| taken.address() >= (1 << 40) + 4096);
    assert_eq!(error, Ok(true), "parts that do not touch serve no larger request");
}

#[test]
fn an_arena_gives_unused_chunks_back_before_it_fails() {
    let shelf = Shelf::new(5000);
    let arena = ArenaResource::new(Arc::clone(&shelf), 4096);
    let taken = arena.allocate(100, on(1)).unwrap();
    assert!(arena.allocate(100, on(2)).is_ok_and(|small| small.bytes() == 100), "a chunk of just that size");
    assert!(arena.allocate(1000, on(2)).is_err_and(|error| error.is_out_of_memory()));
    arena.deallocate(taken, on(1)).unwrap();
    assert!(arena.allocate(1000, on(2)).is_ok(), "the chunk of the other stream went back");
}

#[test]
fn an_arena_refuses_another_stream_and_foreign_memory() {
    let shelf = Shelf::new(1 << 20);
    let arena = ArenaResource::new(Arc::clone(&shelf), 4096);
    let taken = arena.allocate(100, on(1)).unwrap();
    let address = taken.address();
    let refused = arena.deallocate(taken, on(2)).unwrap_err();
    assert_eq!(refused.error, Error::Allocator(AllocatorError::OtherStream { address }));
    arena.deallocate(refused.memory, on(1)).unwrap();
    let foreign = shelf.allocate(100, on(1)).unwrap();
    let address = foreign.address();
    let refused = arena.deallocate(foreign, on(1)).unwrap_err();
    assert_eq!(refused.error, Error::Memory(MemoryError::InvalidPointer { address }));
    shelf.deallocate(refused.memory, on(1)).unwrap();
    assert!(arena.allocate(u64::MAX, on(1)).is_err_and(|error| error.is_out_of_memory()));
}

#[test]
fn a_chunk_that_is_refused_stays_usable() {
    let shelf = Shelf::new(1 << 20);
    let arena = ArenaResource::new(Arc::clone(&shelf), 4096);
    arena.deallocate(arena.allocate(100, on(1)).unwrap(), on(1)).unwrap();
    shelf.refuses.store(true, Ordering::Relaxed);
    assert!(arena.release().is_err());
    let again = arena.allocate(4096, on(1)).unwrap();
    assert_eq!(shelf.held(), 4096, "no second chunk");
    arena.deallocate(again, on(1)).unwrap();
    shelf.refuses.store(false, Ordering::Relaxed);
    drop(arena);
    assert_eq!(shelf.held(), 0, "the last that happens to an arena is that its chunks go back");
}

#[test]
fn a_sink_that_panics_loses_nothing() {
    let shelf = Shelf::new(1 << 20);
    let memory = LoggingResource::new(Arc::clone(&shelf), |_| panic!("a sink of the test"));
    let taken = memory.allocate(100, on(1)).unwrap();
    memory.deallocate(taken, on(1)).unwrap();
    assert_eq!(shelf.held(), 0);
}

#[test]
fn a_line_of_the_log_has_as_many_columns_as_the_header() {
    let error = AllocatorError::LimitReached { limit: 1, left: 1, requested: 2 };
    let event = ResourceEvent {
        time: std::time::Duration::from_micros(1_500_000),
        action: ResourceAction::Allocate,
        address: 0,
        bytes: 2,
        stream: on(16),
        error: Some(error.into()),
    };
    let line = event.to_string();
    assert!(line.starts_with("1.500000,allocate,0x0,2,0,0x10,the limit"), "{line}");
    assert_eq!(line.split(',').count(), ResourceEvent::HEADER.split(',').count());
}
