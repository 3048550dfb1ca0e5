//! Threads that share one caching allocator: every order of a few calls, and many random orders of more.
//!
//! After each call the allocator's books must balance. At the end every block has been given back once, and the machine
//! has no allocation left.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use c10_core::{DeviceIndex, Runtime, Stream};
use cuda_sim::{Config, Machine};
use shuttle::sync::Mutex;
use shuttle::thread;

const DEVICE: DeviceIndex = DeviceIndex(0);

/// One runtime on a machine of its own, shared by the threads of a model.
struct Shared {
    machine: Machine,
    runtime: Runtime,
    streams: Vec<Stream>,
    /// Blocks that any thread may give back.
    handed_over: Mutex<Vec<u64>>,
}

impl Shared {
    fn new(capacity_bytes: u64) -> Arc<Self> {
        let machine = Machine::new(Config::default().seed(1).capacity(capacity_bytes).late_events(true));
        // All threads of a model are one thread of the system, which stays bound while the model runs.
        let _bound = machine.bind();
        let runtime = Runtime::new(cuda_sim::driver().unwrap());
        let streams = (0..2).map(|_| runtime.streams().pooled(DEVICE, 0).unwrap()).collect();
        Arc::new(Self { machine, runtime, streams, handed_over: Mutex::new(Vec::new()) })
    }

    /// One call of a thread: bound to the machine, followed by a look at the books and by a chance for the others.
    fn call<T>(&self, body: impl FnOnce(&Runtime) -> T) -> T {
        let answer = {
            let _bound = self.machine.bind();
            let answer = body(&self.runtime);
            assert_eq!(self.runtime.inconsistency(), None);
            answer
        };
        thread::yield_now();
        answer
    }

    fn alloc(&self, bytes: u64, stream: usize) -> u64 {
        self.call(|runtime| runtime.memory().alloc(bytes, &self.streams[stream])).unwrap()
    }

    fn record(&self, address: u64, stream: usize) {
        self.call(|runtime| runtime.memory().record_stream(address, &self.streams[stream])).unwrap();
    }

    fn free(&self, address: u64) {
        self.call(|runtime| runtime.memory().free(address)).unwrap();
    }

    /// Lets the others give a block back, and gives back what they left.
    fn swap(&self, address: u64) {
        let other = {
            let mut handed_over = self.handed_over.lock().unwrap();
            handed_over.push(address);
            handed_over.swap_remove(0)
        };
        self.free(other);
    }

    /// Gives everything back and looks whether nothing is left.
    fn finish(&self) {
        for address in std::mem::take(&mut *self.handed_over.lock().unwrap()) {
            self.free(address);
        }
        self.call(|runtime| runtime.synchronize(DEVICE)).unwrap();
        self.call(|runtime| runtime.memory().empty_cache()).unwrap();
        let _bound = self.machine.bind();
        let stats = self.runtime.memory().stats(DEVICE).unwrap();
        assert_eq!((stats.allocation.all.current, stats.reserved_bytes.all.current), (0, 0));
        assert_eq!(stats.allocation.all.allocated, stats.allocation.all.freed);
        assert_eq!(self.machine.live().allocations, 0);
    }
}

/// Runs two threads and waits for them.
fn two(shared: &Arc<Shared>, first: fn(&Shared), second: fn(&Shared)) {
    let threads: Vec<_> = [first, second]
        .into_iter()
        .map(|body| {
            let shared = Arc::clone(shared);
            thread::spawn(move || body(&shared))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn blocks_used_on_both_streams_survive_every_order() {
    let model = || {
        let shared = Shared::new(1 << 30);
        let body: fn(&Shared) = |shared| {
            let address = shared.alloc(3 << 20, 0);
            shared.record(address, 1);
            shared.free(address);
        };
        two(&shared, body, |shared| {
            let address = shared.alloc(3 << 20, 1);
            shared.record(address, 0);
            shared.swap(address);
        });
        shared.finish();
    };
    shuttle::check_dfs(model, Some(4000));
}

#[test]
fn emptying_the_cache_beside_allocations_loses_nothing() {
    let model = || {
        let shared = Shared::new(1 << 30);
        two(
            &shared,
            |shared| {
                let address = shared.alloc(1 << 20, 0);
                shared.free(address);
                shared.call(|runtime| runtime.memory().empty_cache()).unwrap();
            },
            |shared| {
                let (small, large) = (shared.alloc(512, 0), shared.alloc(12 << 20, 0));
                shared.free(small);
                shared.free(large);
            },
        );
        shared.finish();
    };
    shuttle::check_dfs(model, Some(4000));
}

#[test]
fn random_orders_of_many_calls_leave_the_books_balanced() {
    let model = || {
        // Room for a few segments only, so that the cache is given back and allocations fail in between.
        let shared = Shared::new(96 << 20);
        let threads: Vec<_> = (0..3_usize)
            .map(|number| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    for round in 0..6_u64 {
                        let bytes = 1 << (9 + (round * 7 + number as u64 * 5) % 16);
                        let stream = (number + usize::from(round % 2 == 0)) % 2;
                        let answer = shared.call(|runtime| runtime.memory().alloc(bytes, &shared.streams[stream]));
                        let Ok(address) = answer else { continue };
                        if round % 3 == 1 {
                            shared.record(address, 1 - stream);
                        }
                        shared.swap(address);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shared.finish();
    };
    shuttle::check_random(model, 2000);
}
