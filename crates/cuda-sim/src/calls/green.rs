//! Green contexts: what a device has to give, its parts, and contexts made of them.

use cuda_sys::driver::types::{
    CUcontext, CUctx_st, CUdevResource, CUdevResourceDesc, CUdevResourceDesc_st, CUdevResourceType, CUevent_st,
    CUgreenCtx, CUgreenCtx_st, CUstream, CUstream_st,
};

use super::context::{named_context, record_in, wait_in};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{
    Answer, INVALID_CONTEXT, INVALID_DEVICE, INVALID_RESOURCE_CONFIGURATION, INVALID_RESOURCE_TYPE, INVALID_VALUE,
};
use crate::model::green::{Origin, Part};
use crate::model::stream::NON_BLOCKING;

/// `CU_GREEN_CTX_DEFAULT_STREAM`, without which no green context is made.
const DEFAULT_STREAM: u32 = 1;

/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORES_CLUSTERS: u32 = 1;

/// `CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE`.
const LARGE_CLUSTERS: u32 = 2;

/// A resource as programs hold it: what is its own, where the C structure has room for the driver's notes and for counts.
#[derive(Clone, Copy)]
#[repr(C)]
struct Told {
    kind: CUdevResourceType,
    device: u32,
    origin: u64,
    seal: u64,
    notes: [u8; 72],
    multiprocessors: u32,
    least: u32,
    together: u32,
    rest: [u8; 36],
}

const _: () = assert!(size_of::<Told>() == size_of::<CUdevResource>());

impl Told {
    fn new(part: Option<Part>) -> Self {
        let kind = if part.is_some() { SM } else { CUdevResourceType::CU_DEV_RESOURCE_TYPE_INVALID };
        let (device, origin) = part.map_or((0, 0), |part| (part.device, part.origin as u64));
        let (multiprocessors, together) = part.map_or((0, 0), |part| (part.multiprocessors, part.together));
        let seal = part.map_or(0, |part| part.seal());
        let (notes, rest, least) = ([0; 72], [0; 36], together);
        Self { kind, device, origin, seal, notes, multiprocessors, least, together, rest }
    }

    /// The part that it stands for; one that the program made or changed is refused.
    fn part(&self) -> Answer<Part> {
        if self.kind != SM {
            return Err(INVALID_RESOURCE_TYPE);
        }
        let origin = if self.origin == Origin::Split as u64 { Origin::Split } else { Origin::Owned };
        let Self { device, multiprocessors, together, .. } = *self;
        let part = Part { device, multiprocessors, origin, together };
        if part.seal() == self.seal { Ok(part) } else { Err(INVALID_RESOURCE_CONFIGURATION) }
    }
}

const SM: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;

/// Refuses kinds of resources that there are not.
fn check_kind(kind: CUdevResourceType) -> Answer {
    if kind == SM { Ok(()) } else { Err(INVALID_RESOURCE_TYPE) }
}

pub(crate) fn of_device(
    call: &mut Call<'_>,
    device: i32,
    resource: Ptr<CUdevResource>,
    kind: CUdevResourceType,
) -> Answer {
    resource.required()?;
    let index = call.device(device)?;
    check_kind(kind)?;
    resource.cast().write(Told::new(Some(Part::whole(index))))
}

pub(crate) fn of_context(
    call: &mut Call<'_>,
    context: Ptr<CUctx_st>,
    resource: Ptr<CUdevResource>,
    kind: CUdevResourceType,
) -> Answer {
    resource.required()?;
    let key = named_context(call, context)?;
    check_kind(kind)?;
    call.active_context(key)?;
    let part = call.part_of(key)?;
    resource.cast().write(Told::new(Some(part)))
}

pub(crate) fn of_green(
    call: &mut Call<'_>,
    green: Ptr<CUgreenCtx_st>,
    resource: Ptr<CUdevResource>,
    kind: CUdevResourceType,
) -> Answer {
    resource.required()?;
    call.need_init()?;
    let part = call.green(green.address())?.part;
    check_kind(kind)?;
    resource.cast().write(Told::new(Some(part)))
}

/// Splits a resource into groups of one size. Without room for them it only counts.
pub(crate) fn split(
    call: &mut Call<'_>,
    result: Ptr<CUdevResource>,
    count: Ptr<u32>,
    input: Ptr<CUdevResource>,
    remaining: Ptr<CUdevResource>,
    flags: u32,
    least: u32,
) -> Answer {
    call.need_init()?;
    let told: Told = input.cast().read()?;
    let most = if result.is_null() { count.required().map(|_| u32::MAX)? } else { count.read()? };
    let flags = flags & (IGNORES_CLUSTERS | LARGE_CLUSTERS);
    if most == 0 || flags == IGNORES_CLUSTERS | LARGE_CLUSTERS {
        return Err(INVALID_VALUE);
    }
    let groups = told.part()?.split(most, least, flags != IGNORES_CLUSTERS)?;
    count.write(groups.count)?;
    if !result.is_null() {
        let result = result.cast::<Told>();
        (0..groups.count as usize).try_for_each(|index| result.write_at(index, Told::new(Some(groups.group))))?;
    }
    remaining.cast().write_if_wanted(Told::new(groups.rest));
    Ok(())
}

pub(crate) fn describe(
    call: &mut Call<'_>,
    descriptor: Ptr<CUdevResourceDesc>,
    resources: Ptr<CUdevResource>,
    count: u32,
) -> Answer {
    descriptor.required()?;
    resources.required()?;
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    call.need_init()?;
    let resources = resources.cast::<Told>();
    let parts: Answer<Vec<Part>> = (0..count as usize).map(|index| resources.read_at(index)?.part()).collect();
    let part = Part::join(&parts?)?;
    let key = call.new_handle();
    call.parts.insert(key, part);
    descriptor.write(handle(key))
}

/// Makes a green context of what a descriptor names; of the whole device without one.
pub(crate) fn create(
    call: &mut Call<'_>,
    green: Ptr<CUgreenCtx>,
    descriptor: Ptr<CUdevResourceDesc_st>,
    device: i32,
    flags: u32,
) -> Answer {
    green.required()?;
    let index = call.device(device)?;
    if flags != DEFAULT_STREAM {
        return Err(INVALID_VALUE);
    }
    let part = match descriptor.address() {
        0 => Part::whole(index),
        key => *call.parts.get(&key).ok_or(INVALID_VALUE)?,
    };
    if part.device != index {
        return Err(INVALID_DEVICE);
    }
    let key = call.create_green(part)?;
    green.write(handle(key))
}

pub(crate) fn destroy(call: &mut Call<'_>, green: Ptr<CUgreenCtx_st>) -> Answer {
    let key = green.address();
    if call.green(key).is_ok() {
        // One that was lost is destroyed like any other.
        let _ = call.finish_context(key);
    }
    call.destroy_green(key)
}

/// The context that stands for a green one in functions that take contexts: it has the same handle.
pub(crate) fn as_context(call: &mut Call<'_>, context: Ptr<CUcontext>, green: Ptr<CUgreenCtx_st>) -> Answer {
    context.required()?;
    call.need_init()?;
    call.green(green.address())?;
    context.write(handle(green.address()))
}

pub(crate) fn id(call: &mut Call<'_>, green: Ptr<CUgreenCtx_st>, id: Ptr<u64>) -> Answer {
    id.required()?;
    call.need_init()?;
    id.write(call.green(green.address())?.id)
}

/// The green context of a handle, which is looked at before anything else.
fn named_green(call: &Call<'_>, green: Ptr<CUgreenCtx_st>) -> Answer<u64> {
    if green.is_null() {
        return Err(INVALID_CONTEXT);
    }
    call.need_init()?;
    call.green(green.address())?;
    Ok(green.address())
}

/// The event is reached when everything queued in the green context is done.
pub(crate) fn record_event(call: &mut Call<'_>, green: Ptr<CUgreenCtx_st>, event: Ptr<CUevent_st>) -> Answer {
    let key = named_green(call, green)?;
    record_in(call, key, event)
}

/// Everything queued in the green context from now on comes after the event.
pub(crate) fn wait_event(call: &mut Call<'_>, green: Ptr<CUgreenCtx_st>, event: Ptr<CUevent_st>) -> Answer {
    let key = named_green(call, green)?;
    wait_in(call, key, event)
}

pub(crate) fn of_stream(call: &mut Call<'_>, stream: Ptr<CUstream_st>, green: Ptr<CUgreenCtx>) -> Answer {
    green.required()?;
    let key = call.named_stream(stream)?;
    let context = call.stream(key)?.context;
    green.write(handle(if call.greens.contains_key(&context) { context } else { 0 }))
}

/// Makes a stream, which must not order itself with the default stream.
pub(crate) fn create_stream(
    call: &mut Call<'_>,
    stream: Ptr<CUstream>,
    green: Ptr<CUgreenCtx_st>,
    flags: u32,
    priority: i32,
) -> Answer {
    stream.required()?;
    let key = named_green(call, green)?;
    call.usable_context(key)?;
    if flags != NON_BLOCKING {
        return Err(INVALID_VALUE);
    }
    super::stream::make(call, stream, key, flags, priority)
}
