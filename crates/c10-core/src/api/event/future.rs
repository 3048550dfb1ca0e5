//! Waiting for events without blocking a thread.
//!
//! **Invariants:** the future has an event, so the driver's event lives as long as a thread may ask for it; the entry
//! of the future is removed when the future is dropped, before the event is dropped.

use std::borrow::Borrow;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::api::event::Event;
use crate::base::error::Result;
use crate::state::wakers::WaiterId;

/// Ready when the work before an event is done; made by [`Event::done`], [`crate::Stream::done`] or by awaiting an
/// event.
///
/// Needs no executor of any kind. The waker is called by a thread of the runtime that asks the driver for the events that
/// are waited for, every 10 microseconds at first and every millisecond for long waits; it ends when nothing waits.
/// Dropping the future forgets the wait.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
/// #     }
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     let (mut future, mut context) = (std::pin::pin!(future), std::task::Context::from_waker(&waker));
/// #     loop {
/// #         if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) { return done }
/// #         std::thread::park();
/// #     }
/// # }
/// use c10_core::{DeviceBuffer, PinnedBuffer, Stream};
///
/// let (stream, device, mut host) = (Stream::new(None, 0)?, DeviceBuffer::new(4, None)?, PinnedBuffer::new(4)?);
/// block_on(async {
///     device.fill(.., 7, &stream)?;
///     device.copy_to_pinned(.., &host, 0, &stream)?;
///     stream.done()?.await?;
///     assert_eq!(host.as_slice()?, [7; 4]);
///     Ok::<_, c10_core::Error>(())
/// })?;
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use = "nothing waits before the future is polled"]
pub struct EventFuture<E: Borrow<Event> = Event> {
    waiter: Option<WaiterId>,
    event: E,
}

impl<E: Borrow<Event>> EventFuture<E> {
    pub(crate) fn new(event: E) -> Self {
        Self { waiter: None, event }
    }

    /// The event that is waited for.
    #[must_use]
    pub fn event(&self) -> &Event {
        self.event.borrow()
    }

    fn forget(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            let started = self.event.borrow().inner.runtime.started();
            started.into_iter().for_each(|started| started.wakers.remove(waiter));
        }
    }
}

impl Event {
    /// Waits for the work before the event without blocking: a future that is ready at once for an event that was never
    /// recorded. The event can also be awaited itself.
    pub fn done(&self) -> EventFuture<&Self> {
        EventFuture::new(self)
    }
}

impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = EventFuture;

    fn into_future(self) -> EventFuture {
        EventFuture::new(self)
    }
}

impl<'a> IntoFuture for &'a Event {
    type Output = Result<()>;
    type IntoFuture = EventFuture<&'a Event>;

    fn into_future(self) -> EventFuture<&'a Event> {
        self.done()
    }
}

impl<E: Borrow<Event> + Unpin> Future for EventFuture<E> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let event = this.event.borrow();
        let Some(native) = event.recorded() else { return Poll::Ready(Ok(())) };
        let started = event.inner.runtime.ready()?;
        match event.query() {
            Ok(true) => {
                this.forget();
                started_sweep(this.event.borrow());
                let event = this.event.borrow();
                return Poll::Ready(event.inner.runtime.waited(event.inner.runtime.ready()?, native.device, Ok(())));
            }
            Ok(false) => {}
            Err(error) => {
                this.forget();
                return Poll::Ready(Err(error));
            }
        }
        let waker = context.waker();
        if !this.waiter.is_some_and(|waiter| started.wakers.change(waiter, waker)) {
            this.waiter = started.wakers.add(native.handle, waker.clone(), || started.api.event_queries());
            if this.waiter.is_none() {
                // Without a thread the task has to ask itself.
                waker.wake_by_ref();
            }
        }
        Poll::Pending
    }
}

/// Frees what the finished work needed, as the blocking ways of waiting do.
fn started_sweep(event: &Event) {
    event.inner.runtime.started().into_iter().for_each(|started| started.sweep());
}

impl<E: Borrow<Event>> Drop for EventFuture<E> {
    fn drop(&mut self) {
        self.forget();
    }
}

impl<E: Borrow<Event>> fmt::Debug for EventFuture<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventFuture").field("event", self.event()).finish_non_exhaustive()
    }
}
