//! What a program tells by `tracing`, written down.
//!
//! **Invariant:** spans end in the order in which they have begun, the last one first; otherwise the test fails.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A subscriber of `tracing` that writes down spans of level `debug` and warnings. Clones share what they have heard.
///
/// ```
/// let listener = testkit::Listener::default();
/// let simulated = testkit::simulated_runtime();
/// listener.during(|| drop(simulated.runtime().streams().default(0)));
/// assert_eq!(listener.take_spans(), ["start_runtime"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Listener(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    names: Vec<String>,
    open: Vec<usize>,
    spans: Vec<String>,
    warnings: Vec<String>,
}

impl Listener {
    /// Listens to the calling thread while `run` runs.
    ///
    /// # Panics
    /// A span has not ended.
    pub fn during<R>(&self, run: impl FnOnce() -> R) -> R {
        have_listeners_asked();
        let result = tracing::subscriber::with_default(self.clone(), run);
        let open = self.heard().open.len();
        assert_eq!(open, 0, "spans that have not ended");
        result
    }

    /// The spans that were entered since the last question, each with those around it, the outermost first, and with the
    /// field `bytes` where it has one, such as `grow 20971520 > segment_alloc 20971520`.
    #[must_use]
    pub fn take_spans(&self) -> Vec<String> {
        std::mem::take(&mut self.heard().spans)
    }

    /// The messages of the warnings since the last question.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.heard().warnings)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has `tracing` ask whoever listens for each span and message, from now on. Otherwise a span that a thread enters for the
/// first time while another thread begins to listen can be taken for one that nobody wants, for good.
pub(crate) fn have_listeners_asked() {
    static UNDECIDED: OnceLock<Dispatch> = OnceLock::new();
    UNDECIDED.get_or_init(|| Dispatch::new(Undecided));
}

/// Wants nothing, and does not say so beforehand.
struct Undecided;

impl Subscriber for Undecided {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A field as text.
struct Text {
    field: &'static str,
    found: Option<String>,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == self.field {
            self.found = Some(format!("{value:?}"));
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let wanted = if metadata.is_span() { Level::DEBUG } else { Level::WARN };
        *metadata.level() == wanted
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut bytes = Text { field: "bytes", found: None };
        span.record(&mut bytes);
        let name = span.metadata().name();
        let mut heard = self.heard();
        heard.names.push(bytes.found.map_or_else(|| name.to_owned(), |bytes| format!("{name} {bytes}")));
        Id::from_u64(heard.names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Text { field: "message", found: None };
        event.record(&mut message);
        self.heard().warnings.extend(message.found);
    }

    fn enter(&self, span: &Id) {
        let mut heard = self.heard();
        let index = usize::try_from(span.into_u64()).unwrap_or(0).saturating_sub(1);
        heard.open.push(index);
        let path: Vec<&str> = heard.open.iter().map(|&index| heard.names[index].as_str()).collect();
        let path = path.join(" > ");
        heard.spans.push(path);
    }

    fn exit(&self, span: &Id) {
        let last = self.heard().open.pop();
        assert_eq!(last.map(|index| index as u64 + 1), Some(span.into_u64()), "spans end in order");
    }
}
