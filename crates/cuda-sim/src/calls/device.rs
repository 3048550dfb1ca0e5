//! Devices and what they say of themselves.

use std::ffi::c_char;

use cuda_sys::driver::types::{CUdevice_P2PAttribute, CUdevice_attribute, CUdevprop, CUuuid};

use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED};
use crate::model::profile;

pub(crate) fn count(call: &mut Call<'_>, count: Ptr<i32>) -> Answer {
    count.write(i32::try_from(call.config.devices).unwrap_or(i32::MAX))
}

pub(crate) fn get(call: &mut Call<'_>, device: Ptr<i32>, ordinal: i32) -> Answer {
    device.required()?;
    call.device(ordinal)?;
    device.write(ordinal)
}

pub(crate) fn name(call: &mut Call<'_>, name: Ptr<c_char>, length: i32, device: i32) -> Answer {
    name.required()?;
    let capacity = usize::try_from(length).ok().filter(|&length| length > 0).ok_or(INVALID_VALUE)?;
    call.device(device)?;
    name.write_string(profile::NAME, capacity)
}

pub(crate) fn total_memory(call: &mut Call<'_>, bytes: Ptr<usize>, device: i32) -> Answer {
    bytes.required()?;
    call.device(device)?;
    bytes.write(usize::try_from(call.config.capacity_bytes).unwrap_or(usize::MAX))
}

pub(crate) fn attribute(call: &mut Call<'_>, value: Ptr<i32>, attribute: CUdevice_attribute, device: i32) -> Answer {
    value.required()?;
    let known = profile::attribute(attribute, 0).ok_or(INVALID_VALUE)?;
    call.need_init()?;
    let index = call.device(device)?;
    if attribute == CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED {
        return value.write(i32::from(call.config.virtual_memory));
    }
    value.write(profile::attribute(attribute, index).unwrap_or(known))
}

pub(crate) fn uuid(call: &mut Call<'_>, uuid: Ptr<CUuuid>, device: i32) -> Answer {
    uuid.required()?;
    let index = call.device(device)?;
    uuid.write(CUuuid { bytes: profile::uuid(index).map(u8::cast_signed) })
}

pub(crate) fn pci_bus_id(call: &mut Call<'_>, text: Ptr<c_char>, length: i32, device: i32) -> Answer {
    text.required()?;
    let index = call.device(device)?;
    let id = profile::pci_bus_id(index);
    let capacity = usize::try_from(length).ok().filter(|&length| length > id.len()).ok_or(INVALID_VALUE)?;
    text.write_string(&id, capacity)
}

pub(crate) fn by_pci_bus_id(call: &mut Call<'_>, device: Ptr<i32>, text: Ptr<c_char>) -> Answer {
    device.required()?;
    let text = text.read_string()?;
    let looks_right = text.split([':', '.']).all(|part| u32::from_str_radix(part, 16).is_ok()) && text.contains(':');
    if !looks_right {
        return Err(INVALID_VALUE);
    }
    let index = profile::device_with_pci_bus_id(&text, call.config.devices).ok_or(INVALID_DEVICE)?;
    device.write(i32::try_from(index).unwrap_or(i32::MAX))
}

pub(crate) fn compute_capability(call: &mut Call<'_>, major: Ptr<i32>, minor: Ptr<i32>, device: i32) -> Answer {
    major.required()?;
    minor.required()?;
    let index = call.device(device)?;
    let get = |attribute| profile::attribute(attribute, index).unwrap_or(0);
    major.write(get(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR))?;
    minor.write(get(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
}

pub(crate) fn properties(call: &mut Call<'_>, properties: Ptr<CUdevprop>, device: i32) -> Answer {
    properties.required()?;
    let index = call.device(device)?;
    let get = |number| profile::attribute(CUdevice_attribute(number), index).unwrap_or(0);
    properties.write(CUdevprop {
        maxThreadsPerBlock: get(1),
        maxThreadsDim: [get(2), get(3), get(4)],
        maxGridSize: [get(5), get(6), get(7)],
        sharedMemPerBlock: get(8),
        totalConstantMemory: get(9),
        SIMDWidth: get(10),
        memPitch: get(11),
        regsPerBlock: get(12),
        clockRate: get(13),
        textureAlign: get(14),
    })
}

/// Locally unique ids are for Windows.
pub(crate) fn luid(call: &mut Call<'_>, luid: Ptr<c_char>, mask: Ptr<u32>, device: i32) -> Answer {
    luid.required()?;
    mask.required()?;
    call.device(device)?;
    Err(NOT_SUPPORTED)
}

pub(crate) fn can_access_peer(call: &mut Call<'_>, can: Ptr<i32>, device: i32, peer: i32) -> Answer {
    can.required()?;
    let (device, peer) = (call.device(device)?, call.device(peer)?);
    call.change_links();
    can.write(i32::from(device != peer && call.reaches(device, peer)))
}

pub(crate) fn peer_attribute(
    call: &mut Call<'_>,
    value: Ptr<i32>,
    attribute: CUdevice_P2PAttribute,
    source: i32,
    target: i32,
) -> Answer {
    value.required()?;
    let known = [
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK,
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED,
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED,
    ];
    if !known.contains(&attribute) {
        return Err(INVALID_VALUE);
    }
    let (source, target) = (call.device(source)?, call.device(target)?);
    if source == target {
        return Err(INVALID_DEVICE);
    }
    call.change_links();
    let reaches = call.reaches(source, target);
    value.write(match attribute {
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => call.peer_rank(source, target),
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => {
            i32::from(call.joined_by_nvlink(source, target))
        }
        _ => i32::from(reaches),
    })
}
