//! Domains: marks and ranges of one library or part of a program, which tools show apart from the others.

use std::marker::PhantomData;
use std::sync::Arc;

use cuda_sys::nvtx::{EventAttributes, NVTX_NO_PUSH_POP_TRACKING, PayloadType};

use crate::api::nvtx::message::Message;
use crate::api::nvtx::{Range, RangeId};
use crate::driver::nvtx::{self, ToolDomain, ToolText};

/// A value that a mark or range carries.
///
/// ```
/// use c10_core::nvtx::{self, Attributes, Payload};
///
/// nvtx::mark_with("loss", Attributes::default().payload(Payload::F64(0.25)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Payload {
    /// An unsigned integer of 64 bits.
    U64(u64),
    /// A signed integer of 64 bits.
    I64(i64),
    /// A floating-point number of 64 bits.
    F64(f64),
    /// An unsigned integer of 32 bits.
    U32(u32),
    /// A signed integer of 32 bits.
    I32(i32),
    /// A floating-point number of 32 bits.
    F32(f32),
}

impl Payload {
    fn parts(self) -> (PayloadType, u64) {
        match self {
            Self::U64(value) => (PayloadType::U64, value),
            Self::I64(value) => (PayloadType::I64, value.cast_unsigned()),
            Self::F64(value) => (PayloadType::F64, value.to_bits()),
            Self::U32(value) => (PayloadType::U32, u64::from(value)),
            Self::I32(value) => (PayloadType::I32, u64::from(value.cast_unsigned())),
            Self::F32(value) => (PayloadType::F32, u64::from(value.to_bits())),
        }
    }
}

/// What a mark or range says of itself besides its text: NVTX's `nvtxEventAttributes_t`.
///
/// ```
/// use c10_core::nvtx::{Attributes, Payload};
///
/// let green = Attributes::default().color(0xff_00_aa_00).category(1).payload(Payload::I64(-3));
/// c10_core::nvtx::mark_with("batch", green);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Attributes {
    color: Option<u32>,
    category: u32,
    payload: Option<Payload>,
}

impl Attributes {
    /// The same with a colour: alpha, red, green and blue, eight bits each, from the highest bits down.
    #[must_use]
    pub fn color(self, argb: u32) -> Self {
        Self { color: Some(argb), ..self }
    }

    /// The same with a category, by which tools group. Zero is none.
    #[must_use]
    pub fn category(self, category: u32) -> Self {
        Self { category, ..self }
    }

    /// The same with a value.
    #[must_use]
    pub fn payload(self, payload: Payload) -> Self {
        Self { payload: Some(payload), ..self }
    }

    pub(super) fn apply<'a>(&self, mut event: EventAttributes<'a>) -> EventAttributes<'a> {
        event = event.category(self.category);
        if let Some(argb) = self.color {
            event = event.color(argb);
        }
        if let Some((payload_type, bits)) = self.payload.map(Payload::parts) {
            event = event.payload(payload_type, bits);
        }
        event
    }
}

/// A domain: NVTX's `nvtxDomainCreate`. A tool shows what happens in it apart from the rest, and may hide it.
///
/// A domain that is made while no tool is attached does nothing. Clones are the same domain; it ends with the last of them
/// and of its registered texts.
///
/// ```
/// use c10_core::nvtx::{Attributes, Domain};
///
/// let loader = Domain::new("data loader");
/// loader.name_category(1, "read");
/// let epoch = loader.register("epoch");
/// {
///     let _range = loader.range(&epoch, Attributes::default().category(1));
///     loader.mark("first batch", Attributes::default());
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Domain(Option<Arc<ToolDomain>>);

/// A text that the tool of a domain was given once: NVTX's `nvtxDomainRegisterString`. It saves a copy at each use.
///
/// ```
/// use c10_core::nvtx::{Attributes, Domain, RegisteredText};
///
/// let domain = Domain::new("loader");
/// let step: RegisteredText = domain.register("step");
/// for _ in 0..3 {
///     let _range = domain.range(&step, Attributes::default());
/// }
/// ```
#[derive(Debug, Clone)]
pub struct RegisteredText {
    text: String,
    known: Option<ToolText>,
}

/// What may be given for the text of a mark or range in a domain: a [`Message`], or a text that the domain knows.
///
/// ```
/// use c10_core::nvtx::{Attributes, Domain};
///
/// let domain = Domain::new("loader");
/// let known = domain.register("read");
/// domain.mark(&known, Attributes::default());
/// domain.mark(format_args!("file {}", 3), Attributes::default());
/// ```
pub trait DomainMessage: sealed::Sealed {
    #[doc(hidden)]
    fn with_event<R>(self, domain: &Domain, f: impl FnOnce(EventAttributes<'_>) -> R) -> R;
}

mod sealed {
    pub trait Sealed {}
    impl<M: super::Message> Sealed for M {}
    impl Sealed for &super::RegisteredText {}
}

impl<M: Message> DomainMessage for M {
    fn with_event<R>(self, _domain: &Domain, f: impl FnOnce(EventAttributes<'_>) -> R) -> R {
        self.with(|text| f(EventAttributes::new(text)))
    }
}

impl DomainMessage for &RegisteredText {
    /// A text of another domain is no handle of this one, and goes as a text.
    fn with_event<R>(self, domain: &Domain, f: impl FnOnce(EventAttributes<'_>) -> R) -> R {
        match &self.known {
            Some(known) if domain.0.as_ref().is_some_and(|domain| Arc::ptr_eq(&known.domain, domain)) => {
                f(EventAttributes::registered(known.handle))
            }
            _ => self.text.as_str().with(|text| f(EventAttributes::new(text))),
        }
    }
}

impl Domain {
    /// Makes a domain of a name.
    pub fn new(name: impl Message) -> Self {
        Self(nvtx::tool().map(|tool| {
            let handle = name.with(|name| tool.domain_create(name));
            Arc::new(ToolDomain { tool, handle })
        }))
    }

    /// Names a category of this domain.
    pub fn name_category(&self, category: u32, name: impl Message) {
        if let Some(domain) = &self.0 {
            name.with(|name| domain.tool.domain_name_category(&domain.handle, category, name));
        }
    }

    /// Gives the tool a text that is used often.
    pub fn register(&self, text: impl Into<String>) -> RegisteredText {
        let text = text.into();
        let known = self.0.as_ref().and_then(|domain| {
            let handle = text.as_str().with(|text| domain.tool.domain_register_string(&domain.handle, text))?;
            Some(ToolText { domain: Arc::clone(domain), handle })
        });
        RegisteredText { text, known }
    }

    /// Marks an instant.
    pub fn mark(&self, message: impl DomainMessage, attributes: Attributes) {
        if let Some(domain) = &self.0 {
            message.with_event(self, |event| domain.tool.domain_mark(&domain.handle, &attributes.apply(event)));
        }
    }

    /// Begins a range of this thread, inside those of the domain that it has begun. Answers as [`super::range_push`].
    pub fn range_push(&self, message: impl DomainMessage, attributes: Attributes) -> i32 {
        let Some(domain) = &self.0 else { return NVTX_NO_PUSH_POP_TRACKING };
        message.with_event(self, |event| domain.tool.domain_range_push(&domain.handle, &attributes.apply(event)))
    }

    /// Ends the range of the domain that this thread began last. Answers as [`super::range_pop`].
    pub fn range_pop(&self) -> i32 {
        self.0.as_ref().map_or(NVTX_NO_PUSH_POP_TRACKING, |domain| domain.tool.domain_range_pop(&domain.handle))
    }

    /// Begins a range that ends with the value.
    #[must_use = "the range ends when this is dropped"]
    pub fn range(&self, message: impl DomainMessage, attributes: Attributes) -> Range<'_> {
        self.range_push(message, attributes);
        Range { tool: self.0.as_ref().map(|domain| domain.tool), domain: Some(self), of_thread: PhantomData }
    }

    /// Begins a range that another thread may end.
    pub fn range_start(&self, message: impl DomainMessage, attributes: Attributes) -> RangeId {
        let Some(domain) = &self.0 else { return RangeId(0) };
        RangeId(
            message.with_event(self, |event| domain.tool.domain_range_start(&domain.handle, &attributes.apply(event))),
        )
    }

    /// Ends a range that [`range_start`](Self::range_start) began.
    pub fn range_end(&self, id: RangeId) {
        if let Some(domain) = &self.0 {
            domain.tool.domain_range_end(&domain.handle, id.0);
        }
    }
}
