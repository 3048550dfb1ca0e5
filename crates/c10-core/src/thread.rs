//! What is current on a thread: the runtime, and for each runtime the device and one stream a device.
//!
//! Numbers only, so that nothing here keeps a runtime alive except the guard that bound it. While a thread is being
//! torn down the defaults are answered and changes are lost.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::DeviceIndex;
use crate::runtime::{Runtime, RuntimeId};
use crate::stream::StreamKey;

thread_local! {
    static THREAD: RefCell<Thread> = const { RefCell::new(Thread { bound: Vec::new(), views: Vec::new() }) };
}

/// A number that no other thread of the process has had; never 0.
#[inline]
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// What a thread was handed out last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HandedOut {
    /// Number of the allocator; 0 for none.
    pub(crate) allocator: u64,
    pub(crate) address: u64,
    /// Number of the shard it is from.
    pub(crate) shard: u32,
}

thread_local! {
    static HANDED_OUT: Cell<HandedOut> = const { Cell::new(HandedOut { allocator: 0, address: 0, shard: 0 }) };
}

/// Notes what this thread was handed out last: a hint, no more.
#[inline]
pub(crate) fn set_handed_out(last: HandedOut) {
    HANDED_OUT.with(|known| known.set(last));
}

/// Forgets what this thread was handed out last.
#[inline]
pub(crate) fn forget_handed_out() {
    set_handed_out(HandedOut { allocator: 0, address: 0, shard: 0 });
}

/// What this thread was handed out last.
#[inline]
pub(crate) fn handed_out() -> HandedOut {
    HANDED_OUT.with(Cell::get)
}

struct Thread {
    /// Runtimes bound to this thread, the innermost last.
    bound: Vec<Runtime>,
    views: Vec<View>,
}

/// One runtime as this thread sees it.
struct View {
    runtime: RuntimeId,
    device: DeviceIndex,
    /// Current streams that are not the default one.
    streams: Vec<(DeviceIndex, StreamKey)>,
}

impl View {
    fn new(runtime: RuntimeId) -> Self {
        Self { runtime, device: DeviceIndex(0), streams: Vec::new() }
    }
}

fn with_view<R>(runtime: RuntimeId, action: impl FnOnce(&mut View) -> R) -> R {
    let mut action = Some(action);
    let mut run = |view: &mut View| action.take().map(|action| action(view));
    let done = THREAD.try_with(|thread| {
        let views = &mut thread.borrow_mut().views;
        let position = views.iter().position(|view| view.runtime == runtime).unwrap_or_else(|| {
            views.push(View::new(runtime));
            views.len() - 1
        });
        run(&mut views[position])
    });
    match done {
        Ok(result) => result.expect("the action runs once"),
        Err(_) => run(&mut View::new(runtime)).expect("the action runs once"),
    }
}

/// The current device.
pub(crate) fn device(runtime: RuntimeId) -> DeviceIndex {
    with_view(runtime, |view| view.device)
}

/// Makes a device current and returns the one before.
pub(crate) fn exchange_device(runtime: RuntimeId, device: DeviceIndex) -> DeviceIndex {
    with_view(runtime, |view| std::mem::replace(&mut view.device, device))
}

/// The current stream of a device.
pub(crate) fn stream(runtime: RuntimeId, device: DeviceIndex) -> StreamKey {
    with_view(runtime, |view| {
        let found = view.streams.iter().find(|(of, _)| *of == device);
        found.map_or(StreamKey::DEFAULT, |(_, stream)| *stream)
    })
}

/// Makes a stream the current one of its device.
pub(crate) fn set_stream(runtime: RuntimeId, device: DeviceIndex, stream: StreamKey) {
    with_view(runtime, |view| {
        view.streams.retain(|(of, _)| *of != device);
        if stream != StreamKey::DEFAULT {
            view.streams.push((device, stream));
        }
    });
}

/// Forgets a runtime that is gone; other threads keep a few numbers.
pub(crate) fn forget(runtime: RuntimeId) {
    let _ = THREAD.try_with(|thread| {
        // A runtime that is dropped while a view is looked at belongs to the view's caller, which still holds it.
        if let Ok(mut thread) = thread.try_borrow_mut() {
            thread.views.retain(|view| view.runtime != runtime);
        }
    });
}

/// The innermost runtime bound to this thread.
pub(crate) fn bound() -> Option<Runtime> {
    THREAD.try_with(|thread| thread.borrow().bound.last().cloned()).ok().flatten()
}

/// Binds a runtime.
pub(crate) fn bind(runtime: Runtime) {
    let _ = THREAD.try_with(|thread| thread.borrow_mut().bound.push(runtime));
}

/// Undoes the innermost [`bind`] of that runtime.
pub(crate) fn unbind(id: RuntimeId) {
    let removed = THREAD.try_with(|thread| {
        let bound = &mut thread.borrow_mut().bound;
        bound.iter().rposition(|runtime| runtime.id() == id).map(|position| bound.remove(position))
    });
    // Dropped only here, after the borrow: dropping the last handle of a runtime looks at this thread again.
    drop(removed);
}
