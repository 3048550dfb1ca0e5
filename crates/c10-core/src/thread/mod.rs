//! The number of a thread, and what is current on it: for each runtime the device, and for each device a stream.
//!
//! The view of the runtime that the thread used last lies in cells without a destructor, so that reading it costs a
//! comparison and a load. The views of other runtimes are put aside, and change places with it when they are needed.
//!
//! **Invariants:** only numbers are stored, so that nothing here keeps a runtime alive. A runtime's view is in one
//! place: in the cells or put aside. If it is in neither, everything has its first value. While a thread is being torn
//! down, the views that were put aside may be gone; then the defaults are returned.

pub(crate) mod entered;
pub(crate) mod pending;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::device::DeviceIndex;
use crate::base::ids::RuntimeId;
use crate::base::ids::StreamKey;

/// Devices whose current streams lie in the cells.
const NEAR: usize = 16;

thread_local! {
    static HERE: Here = const { Here::new() };
    static ASIDE: RefCell<Aside> = const { RefCell::new(Aside { views: Vec::new(), far: Vec::new() }) };
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
    /// The word that names the memory and its owner.
    pub(crate) claim: u64,
    /// Number of the shard it is from.
    pub(crate) shard: u32,
}

thread_local! {
    static HANDED_OUT: Cell<HandedOut> = const { Cell::new(HandedOut { allocator: 0, claim: 0, shard: 0 }) };
}

/// Notes what this thread was handed out last. This is only a hint.
#[inline]
pub(crate) fn set_handed_out(last: HandedOut) {
    HANDED_OUT.with(|known| known.set(last));
}

/// Forgets what this thread was handed out last.
#[inline]
pub(crate) fn forget_handed_out() {
    set_handed_out(HandedOut { allocator: 0, claim: 0, shard: 0 });
}

/// What this thread was handed out last.
#[inline]
pub(crate) fn handed_out() -> HandedOut {
    HANDED_OUT.with(Cell::get)
}

/// What is read all the time.
struct Here {
    /// The runtime whose view the other cells hold.
    runtime: Cell<RuntimeId>,
    device: Cell<DeviceIndex>,
    streams: [Cell<StreamKey>; NEAR],
}

/// What is read now and then.
struct Aside {
    /// Views that are not in the cells and differ from a new view.
    views: Vec<View>,
    /// Current streams, other than the default one, of devices with high numbers.
    far: Vec<(RuntimeId, DeviceIndex, StreamKey)>,
}

/// One runtime as this thread sees it.
#[derive(Clone, Copy)]
struct View {
    runtime: RuntimeId,
    device: DeviceIndex,
    streams: [StreamKey; NEAR],
}

impl View {
    const fn new(runtime: RuntimeId) -> Self {
        Self { runtime, device: DeviceIndex(0), streams: [StreamKey::DEFAULT; NEAR] }
    }

    /// Whether a new view would say the same.
    fn is_as_at_first(&self) -> bool {
        self.device == DeviceIndex(0) && self.streams.iter().all(|stream| *stream == StreamKey::DEFAULT)
    }
}

impl Here {
    const fn new() -> Self {
        Self {
            runtime: Cell::new(RuntimeId::NONE),
            device: Cell::new(DeviceIndex(0)),
            streams: [const { Cell::new(StreamKey::DEFAULT) }; NEAR],
        }
    }

    fn view(&self) -> View {
        let streams = std::array::from_fn(|device| self.streams[device].get());
        View { runtime: self.runtime.get(), device: self.device.get(), streams }
    }

    fn show(&self, view: &View) {
        self.runtime.set(view.runtime);
        self.device.set(view.device);
        for (cell, stream) in self.streams.iter().zip(view.streams) {
            cell.set(stream);
        }
    }

    /// Puts the view in the cells aside and that of another runtime in its place.
    #[cold]
    fn turn_to(&self, runtime: RuntimeId) {
        let shown = self.view();
        let next = ASIDE.try_with(|aside| {
            let views = &mut aside.borrow_mut().views;
            let next =
                views.iter().position(|view| view.runtime == runtime).map(|position| views.swap_remove(position));
            if !shown.is_as_at_first() {
                views.push(shown);
            }
            next
        });
        self.show(&next.ok().flatten().unwrap_or(View::new(runtime)));
    }
}

/// Looks at the view of a runtime.
#[inline]
fn here<R>(runtime: RuntimeId, look: impl FnOnce(&Here) -> R) -> R {
    HERE.with(|here| {
        if here.runtime.get() != runtime {
            here.turn_to(runtime);
        }
        look(here)
    })
}

/// The current device.
#[inline]
pub(crate) fn device(runtime: RuntimeId) -> DeviceIndex {
    here(runtime, |here| here.device.get())
}

/// Makes a device current and returns the one before.
#[inline]
pub(crate) fn exchange_device(runtime: RuntimeId, device: DeviceIndex) -> DeviceIndex {
    here(runtime, |here| here.device.replace(device))
}

/// The current stream of a device.
#[inline]
pub(crate) fn stream(runtime: RuntimeId, device: DeviceIndex) -> StreamKey {
    here(runtime, |here| match near(here, device) {
        Some(cell) => cell.get(),
        None => exchange_far(runtime, device, None),
    })
}

/// Makes a stream the current one of its device and returns the one before.
#[inline]
pub(crate) fn exchange_stream(runtime: RuntimeId, device: DeviceIndex, stream: StreamKey) -> StreamKey {
    here(runtime, |here| match near(here, device) {
        Some(cell) => cell.replace(stream),
        None => exchange_far(runtime, device, Some(stream)),
    })
}

#[inline]
fn near(here: &Here, device: DeviceIndex) -> Option<&Cell<StreamKey>> {
    here.streams.get(usize::try_from(device).ok()?)
}

/// The current stream of a device with a high number, and another in its place if one is given.
#[cold]
fn exchange_far(runtime: RuntimeId, device: DeviceIndex, stream: Option<StreamKey>) -> StreamKey {
    let exchanged = ASIDE.try_with(|aside| {
        let far = &mut aside.borrow_mut().far;
        let position = far.iter().position(|(of, on, _)| (*of, *on) == (runtime, device));
        let before = position.map_or(StreamKey::DEFAULT, |position| far[position].2);
        if let Some(stream) = stream {
            position.map(|position| far.swap_remove(position));
            if stream != StreamKey::DEFAULT {
                far.push((runtime, device, stream));
            }
        }
        before
    });
    exchanged.unwrap_or(StreamKey::DEFAULT)
}

/// Forgets a runtime that has ended; other threads keep a few numbers of it.
pub(crate) fn forget(runtime: RuntimeId) {
    entered::forget(runtime);
    HERE.with(|here| {
        if here.runtime.get() == runtime {
            here.show(&View::new(RuntimeId::NONE));
        }
    });
    let _ = ASIDE.try_with(|aside| {
        let mut aside = aside.borrow_mut();
        aside.views.retain(|view| view.runtime != runtime);
        aside.far.retain(|(of, ..)| *of != runtime);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::handles::StreamHandle;
    use crate::base::ids::StreamId;

    fn stream_number(number: usize) -> StreamKey {
        StreamKey::new(StreamId(i64::try_from(number).unwrap()), StreamHandle(number))
    }

    /// Many runtimes in turn, devices near and far: each keeps what was set, and what is set back leaves nothing behind.
    #[test]
    fn every_runtime_has_a_view_of_its_own() {
        let runtimes = [901, 902, 903].map(RuntimeId::for_test);
        let devices = [0, 1, 15, 16, 63].map(DeviceIndex);
        for (number, runtime) in (100..).step_by(100).zip(runtimes) {
            assert_eq!(exchange_device(runtime, DeviceIndex(7)), DeviceIndex(0));
            for (offset, device) in (0..).zip(devices) {
                assert_eq!(stream(runtime, device), StreamKey::DEFAULT);
                assert_eq!(exchange_stream(runtime, device, stream_number(number + offset)), StreamKey::DEFAULT);
            }
        }
        for (number, runtime) in (100..).step_by(100).zip(runtimes).collect::<Vec<_>>().into_iter().rev() {
            assert_eq!(exchange_device(runtime, DeviceIndex(0)), DeviceIndex(7));
            for (offset, device) in (0..).zip(devices) {
                assert_eq!(exchange_stream(runtime, device, StreamKey::DEFAULT), stream_number(number + offset));
                assert_eq!(stream(runtime, device), StreamKey::DEFAULT);
            }
        }
        device(RuntimeId::for_test(904));
        ASIDE.with(|aside| assert_eq!((aside.borrow().views.len(), aside.borrow().far.len()), (0, 0)));
    }

    #[test]
    fn a_forgotten_runtime_is_as_at_first() {
        let (gone, other) = (RuntimeId::for_test(911), RuntimeId::for_test(912));
        for shown in [gone, other] {
            exchange_device(gone, DeviceIndex(3));
            exchange_stream(gone, DeviceIndex(3), stream_number(5));
            exchange_stream(gone, DeviceIndex(40), stream_number(6));
            device(shown);
            forget(gone);
            assert_eq!((device(gone), stream(gone, DeviceIndex(3))), (DeviceIndex(0), StreamKey::DEFAULT));
            assert_eq!(stream(gone, DeviceIndex(40)), StreamKey::DEFAULT);
        }
    }
}
