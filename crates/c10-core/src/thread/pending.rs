//! Work that a thread has put off: what was asked for and is not queued yet.
//!
//! A layer above may write work down instead of queueing it, to queue something better in its place later. Whatever asks
//! about the state of streams, or queues work of its own, says so here first. Either what was put off is queued then, or
//! the call itself is put off behind it, so that order is kept.
//!
//! **Invariant:** nothing is put off while a thread queues what it has put off.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::base::error::Result;

/// Who puts work off.
///
/// ```
/// use std::rc::Rc;
/// use c10_core::{Made, PutOff, PuttingOff};
///
/// struct Refusing;
/// impl PutOff for Refusing {
///     fn settle(&self, _cause: &'static str) {}
///     fn put_off(
///         &self,
///         _: &'static str,
///         _: [u64; 2],
///         _: Option<&Made>,
///         _: Box<dyn Fn() -> c10_core::Result<()> + Send + Sync>,
///     ) -> bool {
///         false
///     }
/// }
/// assert!(!PuttingOff::is_on());
/// let on = PuttingOff::begin(Rc::new(Refusing));
/// assert!(PuttingOff::is_on());
/// drop(on);
/// assert!(!PuttingOff::is_on());
/// ```
pub trait PutOff {
    /// Queues what was put off, since something needs it: `cause` in words. Errors are kept for later.
    fn settle(&self, cause: &'static str);

    /// Puts a call off, behind what was put off before; `false` where it has to be made now.
    /// Calls of one name with one key do the same.
    /// `made` stands for what the first number of the key names, where that was made while this thread put work off: such
    /// things have another number each time.
    fn put_off(
        &self,
        name: &'static str,
        key: [u64; 2],
        made: Option<&Made>,
        call: Box<dyn Fn() -> Result<()> + Send + Sync>,
    ) -> bool;
}

/// Something that was made while its thread put work off, such as an [`Event`](crate::Event), as calls that are put off know
/// it. Clones are the same thing.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use std::cell::RefCell;
/// use std::rc::Rc;
///
/// use c10_core::{Made, PutOff, PuttingOff, Stream};
///
/// #[derive(Default)]
/// struct Calls(RefCell<Vec<Made>>);
/// impl PutOff for Calls {
///     fn settle(&self, _cause: &'static str) {}
///     fn put_off(
///         &self,
///         _: &'static str,
///         _: [u64; 2],
///         made: Option<&Made>,
///         _: Box<dyn Fn() -> c10_core::Result<()> + Send + Sync>,
///     ) -> bool {
///         self.0.borrow_mut().extend(made.cloned());
///         true
///     }
/// }
/// let stream = Stream::new(None, 0)?;
/// let calls = Rc::new(Calls::default());
/// let on = PuttingOff::begin(Rc::<Calls>::clone(&calls));
/// let event = stream.record_event()?;
/// drop(on);
/// let made = calls.0.borrow()[0].clone();
/// assert!(made.is_held());
/// drop(event);
/// assert!(!made.is_held());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Made(Arc<AtomicBool>);

impl Made {
    /// Something that is made now; `None` where this thread puts nothing off.
    #[inline]
    pub(crate) fn now() -> Option<Self> {
        PuttingOff::is_on().then(|| Self(Arc::new(AtomicBool::new(true))))
    }

    /// Its owner drops it.
    pub(crate) fn let_go(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether its owner still has it. If not, the calls that were put off are its only users.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether both stand for the same thing.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A call of the runtime that can be made later, and again.
pub(crate) type Call = dyn Fn() -> Result<()> + Send + Sync;

/// Threads of the process that put work off, so that a program without any pays for one load.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static OWNER: RefCell<Option<Rc<dyn PutOff>>> = const { RefCell::new(None) };
    /// How often this thread has begun to put work off.
    static TIMES: Cell<u64> = const { Cell::new(0) };
}

/// This thread puts work off, until the value is dropped.
///
/// ```
/// use std::cell::RefCell;
/// use std::rc::Rc;
///
/// use c10_core::{Made, PutOff, PuttingOff};
///
/// #[derive(Default)]
/// struct Causes(RefCell<Vec<&'static str>>);
/// impl PutOff for Causes {
///     fn settle(&self, cause: &'static str) {
///         self.0.borrow_mut().push(cause);
///     }
///     fn put_off(
///         &self,
///         _: &'static str,
///         _: [u64; 2],
///         _: Option<&Made>,
///         _: Box<dyn Fn() -> c10_core::Result<()> + Send + Sync>,
///     ) -> bool {
///         false
///     }
/// }
/// let causes = Rc::new(Causes::default());
/// let on = PuttingOff::begin(Rc::<Causes>::clone(&causes));
/// PuttingOff::settle("values are read");
/// PuttingOff::paused(|| PuttingOff::settle("nobody hears this"));
/// drop(on);
/// PuttingOff::settle("nor this");
/// assert_eq!(*causes.0.borrow(), ["values are read"]);
/// ```
#[derive(Debug)]
#[must_use = "work is put off until this is dropped"]
pub struct PuttingOff {
    /// The owner lives on the thread.
    _here: std::marker::PhantomData<Rc<()>>,
}

impl PuttingOff {
    /// Begins. A thread has one owner of what it puts off: an earlier one is not asked any more.
    pub fn begin(owner: Rc<dyn PutOff>) -> Self {
        THREADS.fetch_add(1, Ordering::Relaxed);
        let before = OWNER.replace(Some(owner));
        drop(before);
        IS_ON.set(true);
        TIMES.set(TIMES.get() + 1);
        Self { _here: std::marker::PhantomData }
    }

    /// Whether this thread puts work off.
    #[inline]
    #[must_use]
    pub fn is_on() -> bool {
        THREADS.load(Ordering::Relaxed) != 0 && IS_ON.get()
    }

    /// How often this thread has begun to put work off: what carries another number is of an earlier time.
    pub(crate) fn times() -> u64 {
        TIMES.get()
    }

    /// Queues what this thread has put off, where it has put something off: `cause` says why in words.
    #[inline]
    pub fn settle(cause: &'static str) {
        if Self::is_on() {
            settle(cause);
        }
    }

    /// Does something without putting anything off.
    pub fn paused<T>(body: impl FnOnce() -> T) -> T {
        let _paused = Paused { before: IS_ON.replace(false) };
        body()
    }
}

impl Drop for PuttingOff {
    fn drop(&mut self) {
        IS_ON.set(false);
        let owner = OWNER.take();
        drop(owner);
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Paused {
    before: bool,
}

impl Drop for Paused {
    fn drop(&mut self) {
        IS_ON.set(self.before);
    }
}

#[cold]
fn settle(cause: &'static str) {
    if let Some(owner) = OWNER.with_borrow(Clone::clone) {
        PuttingOff::paused(|| owner.settle(cause));
    }
}

/// Puts a call off where this thread does so; else `false`: the caller makes it now.
#[inline]
pub(crate) fn put_off(
    name: &'static str,
    key: [u64; 2],
    made: Option<&Made>,
    call: impl FnOnce() -> Box<Call>,
) -> bool {
    PuttingOff::is_on() && ask(name, key, made, call())
}

#[cold]
fn ask(name: &'static str, key: [u64; 2], made: Option<&Made>, call: Box<Call>) -> bool {
    let Some(owner) = OWNER.with_borrow(Clone::clone) else { return false };
    let is_off = owner.put_off(name, key, made, call);
    if !is_off {
        settle(name);
    }
    is_off
}
