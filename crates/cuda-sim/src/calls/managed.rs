//! Managed memory: allocation, advice, prefetches, and what was said of a range.
//!
//! Advice is kept and can be asked for; it changes nothing else. Nodes of the host are known, and advice for them is
//! taken and forgotten, as on a host that has only one.

use std::ffi::c_void;

use cuda_sys::driver::types::{
    CUmem_advise as Advice, CUmem_range_attribute as Attribute, CUmemLocation, CUmemLocationType as Kind, CUstream_st,
};

use super::copy::refuse_capturing;
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE};
use crate::model::Effect;
use crate::model::engine::Timing;
use crate::model::memory::{CPU, Location, Managed, Pages, Stretch};

/// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`, one of which memory is allocated with.
const ALLOC_FLAGS: [u32; 2] = [1, 2];

/// `CU_MEM_ATTACH_SINGLE`: only one stream uses the memory.
const ATTACH_SINGLE: u32 = 4;

/// Picoseconds that a byte takes to move.
const MOVE_PICOSECONDS: u64 = 20;

/// What is said of pages that have no place, or none in common.
const NOWHERE: i32 = -2;

/// The one node that the host has.
const NUMA_NODE: i32 = 0;

pub(crate) fn alloc(call: &mut Call<'_>, pointer: Ptr<u64>, bytes: usize, flags: u32) -> Answer {
    pointer.write(0)?;
    call.need_init()?;
    if bytes == 0 || !ALLOC_FLAGS.contains(&flags) {
        return Err(INVALID_VALUE);
    }
    let context = call.need_context()?;
    call.refuse_if_unsafe()?;
    let base = call.memory.allocate_managed(context, bytes as u64)?;
    pointer.write(base)
}

/// A device as the first interface names it.
fn device_location(call: &Call<'_>, device: i32) -> Answer<Location> {
    if device == CPU {
        return Ok(Location::Host);
    }
    call.device(device)?;
    Ok(Location::Device(device))
}

/// A location that there is.
fn location(call: &Call<'_>, given: CUmemLocation) -> Answer<Location> {
    match given.type_ {
        Kind::CU_MEM_LOCATION_TYPE_DEVICE => {
            call.device(given.id)?;
            Ok(Location::Device(given.id))
        }
        Kind::CU_MEM_LOCATION_TYPE_HOST => Ok(Location::Host),
        Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA if given.id == NUMA_NODE => Ok(Location::Numa(NUMA_NODE)),
        Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(Location::NumaCurrent),
        _ => Err(INVALID_VALUE),
    }
}

/// Whether there are locations of a kind.
fn is_known(kind: Kind) -> bool {
    (Kind::CU_MEM_LOCATION_TYPE_DEVICE.0..=Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT.0).contains(&kind.0)
}

pub(crate) fn advise(call: &mut Call<'_>, pointer: u64, bytes: usize, advice: Advice, device: i32) -> Answer {
    let place = device_location(call, device);
    advise_pages(call, (pointer, bytes), advice, place)
}

pub(crate) fn advise_v2(
    call: &mut Call<'_>,
    pointer: u64,
    bytes: usize,
    advice: Advice,
    given: CUmemLocation,
) -> Answer {
    if !is_known(given.type_) {
        return Err(INVALID_VALUE);
    }
    call.need_context()?;
    // Here hardware has one code for all mistakes.
    let place = location(call, given).map_err(|_| INVALID_VALUE);
    let is_node =
        matches!(given.type_, Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA | Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    if !is_node {
        return advise_pages(call, (pointer, bytes), advice, place);
    }
    call.refuse_if_unsafe()?;
    call.memory.managed_pages(pointer, bytes as u64)?;
    match advice {
        Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => place.map(|_| ()),
        Advice::CU_MEM_ADVISE_SET_READ_MOSTLY
        | Advice::CU_MEM_ADVISE_UNSET_READ_MOSTLY
        | Advice::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

/// Notes advice; its place counts only where the advice is about one.
fn advise_pages(
    call: &mut Call<'_>,
    (pointer, bytes): (u64, usize),
    advice: Advice,
    place: Answer<Location>,
) -> Answer {
    call.refuse_if_unsafe()?;
    let stretch = call.memory.managed_pages(pointer, bytes as u64)?;
    let memory = &mut call.memory;
    match advice {
        Advice::CU_MEM_ADVISE_SET_READ_MOSTLY => memory.note_pages(&stretch, |pages| pages.read_mostly = true),
        Advice::CU_MEM_ADVISE_UNSET_READ_MOSTLY => memory.note_pages(&stretch, |pages| pages.read_mostly = false),
        Advice::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => memory.note_pages(&stretch, |pages| pages.preferred = None),
        Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            let place = place?;
            memory.note_pages(&stretch, |pages| pages.preferred = Some(place));
        }
        Advice::CU_MEM_ADVISE_SET_ACCESSED_BY => {
            let place = place?;
            memory.note_pages(&stretch, |pages| {
                pages.accessed_by.insert(place);
            });
        }
        Advice::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            let place = place?;
            memory.note_pages(&stretch, |pages| {
                pages.accessed_by.remove(&place);
            });
        }
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn prefetch(
    call: &mut Call<'_>,
    pointer: u64,
    bytes: usize,
    device: i32,
    stream: Ptr<CUstream_st>,
) -> Answer {
    let key = call.named_stream(stream)?;
    let stretch = call.memory.managed_pages(pointer, bytes as u64)?;
    let to = device_location(call, device)?;
    prefetch_pages(call, stretch, bytes, to, (key, stream))
}

pub(crate) fn prefetch_v2(
    call: &mut Call<'_>,
    pointer: u64,
    bytes: usize,
    given: CUmemLocation,
    flags: u32,
    stream: Ptr<CUstream_st>,
) -> Answer {
    if !is_known(given.type_) || flags != 0 {
        return Err(INVALID_VALUE);
    }
    let key = call.named_stream(stream)?;
    let stretch = call.memory.managed_pages(pointer, bytes as u64)?;
    let to = location(call, given)?;
    prefetch_pages(call, stretch, bytes, to, (key, stream))
}

/// Queues a prefetch; what was asked for is known at once.
fn prefetch_pages(
    call: &mut Call<'_>,
    stretch: Stretch,
    bytes: usize,
    to: Location,
    (key, stream): (u64, Ptr<CUstream_st>),
) -> Answer {
    refuse_capturing(call, stream)?;
    let id = call.memory.pinned_at(stretch.base).map_or(0, |(_, pinned)| pinned.id);
    call.memory.note_pages(&stretch, |pages| pages.prefetched = Some(to));
    let timing = call.draw_timing(bytes as u64, MOVE_PICOSECONDS);
    call.enqueue(key, &[], timing, Effect::MovePages { stretch, id, to })?;
    Ok(())
}

/// A stream for itself cannot be the default stream by its old name.
pub(crate) fn attach(call: &mut Call<'_>, stream: Ptr<CUstream_st>, pointer: u64, bytes: usize, flags: u32) -> Answer {
    let key = call.named_stream(stream)?;
    let length =
        call.memory.managed_at(pointer).filter(|(base, _, _)| *base == pointer).map(|(_, found, _)| found.length);
    let length = length.ok_or(INVALID_VALUE)?;
    let known = flags == ATTACH_SINGLE || ALLOC_FLAGS.contains(&flags);
    if !known || (bytes != 0 && bytes as u64 != length) || (flags == ATTACH_SINGLE && stream.is_null()) {
        return Err(INVALID_VALUE);
    }
    refuse_capturing(call, stream)?;
    call.enqueue(key, &[], Timing::default(), Effect::Nothing)?;
    Ok(())
}

pub(crate) fn range_attribute(
    call: &mut Call<'_>,
    data: Ptr<c_void>,
    size: usize,
    attribute: Attribute,
    pointer: u64,
    bytes: usize,
) -> Answer {
    data.required()?;
    let stretch = call.memory.managed_pages(pointer, bytes as u64)?;
    write_attribute(call, data, size, attribute, &stretch)
}

pub(crate) fn range_attributes(
    call: &mut Call<'_>,
    data: Ptr<*mut c_void>,
    sizes: Ptr<usize>,
    attributes: Ptr<Attribute>,
    count: usize,
    pointer: u64,
    bytes: usize,
) -> Answer {
    let stretch = call.memory.managed_pages(pointer, bytes as u64)?;
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    data.required()?;
    sizes.required()?;
    for (index, attribute) in attributes.required()?.read_array(count)?.into_iter().enumerate() {
        write_attribute(call, data.pointer_at(index)?, sizes.read_at(index)?, attribute, &stretch)?;
    }
    Ok(())
}

fn write_attribute(call: &Call<'_>, data: Ptr<c_void>, size: usize, attribute: Attribute, stretch: &Stretch) -> Answer {
    let (_, _, managed) = call.memory.managed_at(stretch.base).ok_or(INVALID_VALUE)?;
    if attribute == Attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY {
        return write_accessors(data, size, managed, stretch);
    }
    let value = value_of(managed, attribute, stretch).filter(|_| size == size_of::<i32>()).ok_or(INVALID_VALUE)?;
    data.cast::<i32>().write(value)
}

/// As many accessors as there is room for; no device fills the rest.
fn write_accessors(data: Ptr<c_void>, size: usize, managed: &Managed, stretch: &Stretch) -> Answer {
    if size == 0 || !size.is_multiple_of(size_of::<i32>()) {
        return Err(INVALID_VALUE);
    }
    let known = managed.accessed_by(&stretch.pages);
    let devices = known.into_iter().map(Location::device).chain(std::iter::repeat(NOWHERE));
    devices
        .take(size / size_of::<i32>())
        .enumerate()
        .try_for_each(|(index, device)| data.cast().write_at(index, device))
}

/// The value of an attribute that is one number.
fn value_of(managed: &Managed, attribute: Attribute, stretch: &Stretch) -> Option<i32> {
    let place = |read: fn(&Pages) -> Option<Location>| managed.common(&stretch.pages, read).flatten();
    let preferred = || place(|pages| pages.preferred);
    let prefetched = || place(|pages| pages.prefetched);
    Some(match attribute {
        Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => {
            i32::from(managed.common(&stretch.pages, |pages| pages.read_mostly).unwrap_or(false))
        }
        Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => preferred().map_or(NOWHERE, Location::device),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => prefetched().map_or(NOWHERE, Location::device),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => preferred().map_or(0, Location::kind),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => preferred().map_or(NOWHERE, Location::id),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => prefetched().map_or(0, Location::kind),
        Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => prefetched().map_or(NOWHERE, Location::id),
        _ => return None,
    })
}
