//! The stream sanitizer as users switch it on.
//!
//! **Invariant:** it can be switched on before the runtime starts and does not start it.

use std::fmt;
use std::sync::Arc;

use crate::base::error::UnsynchronizedAccessError;
use crate::runtime::{Runtime, WeakRuntime};
use crate::sanitizer::{Knowledge, Listener, SanitizerOptions, listen};
use crate::trace::{SubscriptionId, TraceKind};

/// A stream sanitizer that is on; made by [`Runtime::enable_sanitizer`]. It stays on when this is dropped.
///
/// This is a handle: clones refer to the same sanitizer.
///
/// ```
/// # testkit::make_default_exactly(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, SanitizerAction, SanitizerOptions};
///
/// let runtime = Runtime::current();
/// let options = SanitizerOptions { action: SanitizerAction::Collect, ..SanitizerOptions::ranges() };
/// let sanitizer = runtime.enable_sanitizer(options);
/// let (buffer, other) = (DeviceBuffer::new(8, None)?, runtime.streams().pooled(0, 0)?);
/// buffer.fill(.., 1, None)?;
/// buffer.fill(4.., 2, &other)?;
/// let races = sanitizer.take_errors();
/// assert_eq!((races.len(), races[0].data_ptr, races[0].bytes), (1, buffer.address() + 4, Some(4)));
/// assert!(races[0].to_string().contains("Previous access by stream 0 during kernel:\nfill\nwriting to the output\n"));
/// assert!(sanitizer.disable());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Sanitizer {
    home: Arc<WeakRuntime>,
    id: SubscriptionId,
    listener: Arc<Listener>,
}

/// What a thread of the host knows to be done, for another one; made by [`Sanitizer::hand_over`].
///
/// ```
/// # testkit::make_default_exactly(testkit::Config::default()).unwrap();
/// use c10_core::{Runtime, SanitizerOptions};
///
/// let options = SanitizerOptions { separate_threads: true, ..SanitizerOptions::ranges() };
/// let sanitizer = Runtime::current().enable_sanitizer(options);
/// let knowledge = sanitizer.hand_over();
/// std::thread::spawn({
///     let sanitizer = sanitizer.clone();
///     move || sanitizer.take_over(&knowledge)
/// })
/// .join()
/// .unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct HandOver(Knowledge);

impl Runtime {
    /// Switches a stream sanitizer on, which from now on is told of all work; torch's `enable_cuda_sanitizer`. Each call
    /// makes one of its own.
    ///
    /// What work does to memory is known of fills, copies, tensor operations, and of launches as far as they declare it
    /// ([`crate::LaunchBuilder::reads`], [`crate::LaunchBuilder::writes`]).
    ///
    /// ```
    /// # testkit::make_default_exactly(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, Error, Runtime, SanitizerOptions};
    ///
    /// let runtime = Runtime::current();
    /// let (buffer, other) = (DeviceBuffer::new(8, None)?, runtime.streams().pooled(0, 0)?);
    /// let sanitizer = runtime.enable_sanitizer(SanitizerOptions::default());
    /// buffer.fill(.., 1, None)?;
    /// let raced = buffer.fill(.., 2, &other).unwrap_err();
    /// assert_eq!((raced.to_string().as_str(), sanitizer.count()), ("detected 1 errors", 1));
    ///
    /// other.wait_stream(&runtime.streams().default(0)?)?;
    /// buffer.fill(.., 3, &other)?;
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "enable_cuda_sanitizer")]
    pub fn enable_sanitizer(&self, options: SanitizerOptions) -> Sanitizer {
        let (id, listener) = listen(self.trace(), options);
        self.follow_trace();
        Sanitizer { home: Arc::new(self.downgrade()), id, listener }
    }
}

impl Runtime {
    /// Whether anybody wants to know what work does to memory, so that a crate above can leave out finding it out.
    ///
    /// ```
    /// # testkit::make_default_exactly(testkit::Config::default()).unwrap();
    /// use c10_core::{Runtime, SanitizerOptions};
    ///
    /// let runtime = Runtime::current();
    /// let sanitizer = runtime.enable_sanitizer(SanitizerOptions::default());
    /// assert!(runtime.reports_accesses() && sanitizer.disable() && !runtime.reports_accesses());
    /// ```
    #[must_use]
    #[inline]
    pub fn reports_accesses(&self) -> bool {
        self.trace().wants(TraceKind::Access)
    }
}

impl Sanitizer {
    /// Races so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.listener.count()
    }

    /// Races since this was asked last, the oldest first; none unless they are collected ([`crate::SanitizerAction::Collect`]).
    #[must_use]
    pub fn take_errors(&self) -> Vec<UnsynchronizedAccessError> {
        self.listener.take_errors()
    }

    /// Switches the sanitizer off; `false` if it was off already, or its runtime is gone.
    pub fn disable(&self) -> bool {
        Runtime::upgrade(&self.home).is_some_and(|runtime| runtime.unsubscribe(self.id))
    }

    /// What the calling thread knows to be done, for a thread that it is about to tell so. Needed only where threads are
    /// told apart ([`SanitizerOptions::separate_threads`]).
    #[must_use]
    pub fn hand_over(&self) -> HandOver {
        HandOver(self.listener.known())
    }

    /// The calling thread has been told what another one knew.
    pub fn take_over(&self, knowledge: &HandOver) {
        self.listener.learn(&knowledge.0);
    }
}

impl fmt::Debug for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sanitizer {{ {:?}, {} races }}", self.listener.options(), self.count())
    }
}
