//! Devices: how many, which, what they can do.

use std::ffi::CStr;

use cuda_sys::CUresult;

use super::prelude::*;

cases!("device", CASES, Needs::NO_CONTEXT;
    init_twice, init_with_flags, count_is_positive, handle_is_the_ordinal, unknown_ordinals, name, name_is_cut,
    total_memory, unknown_device_everywhere, compute_capability, capability_equals_attributes, unknown_attribute, attribute_values,
    properties_equal_attributes, uuid_interfaces_agree, bus_id_and_back, bus_id_equals_attributes, bus_id_without_room,
    unknown_bus_ids, luid_is_for_windows, peer_of_itself, p2p_attribute_of_itself, pool_of_a_device, driver_version, pools_of_the_host_are_there_when_said,
);
cases!("device", PAIR_CASES, Needs { devices: 2, ..Needs::NO_CONTEXT };
    uuids_differ, bus_ids_differ, p2p_unknown_attribute,
);

fn init_twice(cu: &Cuda<'_>) -> CaseResult {
    want!(SUCCESS, cu.cuInit(0));
    want!(SUCCESS, cu.cuInit(0));
    Ok(())
}

fn init_with_flags(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuInit(1));
    want!(INVALID_VALUE, cu.cuInit(u32::MAX));
    Ok(())
}

fn count(cu: &Cuda<'_>) -> CaseResult<i32> {
    let mut count = -1;
    ok!(cu.cuDeviceGetCount(&mut count));
    Ok(count)
}

fn count_is_positive(cu: &Cuda<'_>) -> CaseResult {
    that!(cu, count(cu)? > 0);
    Ok(())
}

fn handle_is_the_ordinal(cu: &Cuda<'_>) -> CaseResult {
    for ordinal in 0..count(cu)? {
        let mut device = -1;
        ok!(cu.cuDeviceGet(&mut device, ordinal));
        same!(cu, device, ordinal);
    }
    Ok(())
}

fn unknown_ordinals(cu: &Cuda<'_>) -> CaseResult {
    let mut device = 77;
    want!(INVALID_DEVICE, cu.cuDeviceGet(&mut device, -1));
    want!(INVALID_DEVICE, cu.cuDeviceGet(&mut device, count(cu)?));
    want!(INVALID_DEVICE, cu.cuDeviceGet(&mut device, i32::MAX));
    Ok(())
}

/// A device's name, asked for with a buffer of `room` bytes.
fn name_in(cu: &Cuda<'_>, room: i32) -> CaseResult<String> {
    let mut buffer = [0_u8; 256];
    ok!(cu.cuDeviceGetName(buffer.as_mut_ptr().cast(), room, 0));
    let text = CStr::from_bytes_until_nul(&buffer).map_err(|_| Stop::Failed("a name without an end".to_owned()))?;
    Ok(text.to_string_lossy().into_owned())
}

fn name(cu: &Cuda<'_>) -> CaseResult {
    that!(cu, name_in(cu, 256)?.starts_with("NVIDIA"));
    Ok(())
}

fn name_is_cut(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, name_in(cu, 7)?, "NVIDIA");
    same!(cu, name_in(cu, 4)?, "NVI");
    same!(cu, name_in(cu, 1)?, "");
    Ok(())
}

fn total_memory(cu: &Cuda<'_>) -> CaseResult {
    let mut bytes = 0;
    ok!(cu.cuDeviceTotalMem_v2(&mut bytes, 0));
    that!(cu, bytes >= 64 << 20);
    Ok(())
}

fn unknown_device_everywhere(cu: &Cuda<'_>) -> CaseResult {
    for device in [-1, 1000] {
        let (mut value, mut minor, mut bytes) = (0, 0, 0);
        let (mut buffer, mut uuid) = ([0_u8; 64], CUuuid::zeroed());
        let max_threads = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        want!(INVALID_DEVICE, cu.cuDeviceGetAttribute(&mut value, max_threads, device));
        want!(INVALID_DEVICE, cu.cuDeviceGetName(buffer.as_mut_ptr().cast(), 64, device));
        want!(INVALID_DEVICE, cu.cuDeviceTotalMem_v2(&mut bytes, device));
        want!(INVALID_DEVICE, cu.cuDeviceComputeCapability(&mut value, &mut minor, device));
        want!(INVALID_DEVICE, cu.cuDeviceGetUuid(&mut uuid, device));
        want!(INVALID_DEVICE, cu.cuDeviceGetUuid_v2(&mut uuid, device));
        want!(INVALID_DEVICE, cu.cuDeviceGetPCIBusId(buffer.as_mut_ptr().cast(), 64, device));
        want!(INVALID_DEVICE, cu.cuDeviceCanAccessPeer(&mut value, device, 0));
        want!(INVALID_DEVICE, cu.cuDeviceCanAccessPeer(&mut value, 0, device));
        let rank = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
        want!(INVALID_DEVICE, cu.cuDeviceGetP2PAttribute(&mut value, rank, 0, device));
        let mut mask = 0;
        want!(INVALID_DEVICE, cu.cuDeviceGetLuid(buffer.as_mut_ptr().cast(), &mut mask, device));
        let mut properties = CUdevprop::zeroed();
        want!(INVALID_DEVICE, cu.cuDeviceGetProperties(&mut properties, device));
        let mut pool = ptr::null_mut();
        want!(INVALID_DEVICE, cu.cuDeviceGetDefaultMemPool(&mut pool, device));
        want!(INVALID_VALUE, cu.cuDeviceGetMemPool(&mut pool, device));
    }
    Ok(())
}

fn attribute(cu: &Cuda<'_>, attribute: CUdevice_attribute) -> CaseResult<i32> {
    let mut value = -7;
    ok!(cu.cuDeviceGetAttribute(&mut value, attribute, 0));
    Ok(value)
}

fn compute_capability(cu: &Cuda<'_>) -> CaseResult {
    let (mut major, mut minor) = (0, -1);
    ok!(cu.cuDeviceComputeCapability(&mut major, &mut minor, 0));
    that!(cu, major >= 5 && (0..10).contains(&minor));
    Ok(())
}

fn capability_equals_attributes(cu: &Cuda<'_>) -> CaseResult {
    let (mut major, mut minor) = (0, -1);
    ok!(cu.cuDeviceComputeCapability(&mut major, &mut minor, 0));
    same!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?, major);
    same!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?, minor);
    Ok(())
}

fn unknown_attribute(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 0;
    want!(INVALID_VALUE, cu.cuDeviceGetAttribute(&mut value, CUdevice_attribute(0), 0));
    want!(INVALID_VALUE, cu.cuDeviceGetAttribute(&mut value, CUdevice_attribute(10_000), 0));
    Ok(())
}

fn pools_of_the_host_are_there_when_said(cu: &Cuda<'_>) -> CaseResult {
    let claims = [
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 2),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 3),
    ];
    for (claim, kind) in claims {
        let mut wanted = super::pool::props();
        wanted.location = CUmemLocation { type_: CUmemLocationType(kind), id: 0 };
        let (mut pool, mut said) = (ptr::null_mut(), 0);
        // A driver that does not know the attribute has no such pools either.
        let known = status!(cu.cuDeviceGetAttribute(&mut said, claim, 0)) == CUresult::CUDA_SUCCESS;
        let made = status!(cu.cuMemPoolCreate(&mut pool, &wanted)) == CUresult::CUDA_SUCCESS;
        if made {
            cu.later(Cleanup::Pool(pool));
        }
        that!(cu, !known || made == (said == 1));
    }
    Ok(())
}

fn attribute_values(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?, 32);
    same!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?, 1024);
    same!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)?, 1);
    same!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)?, 1);
    same!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?, 1);
    same!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED)?, 1);
    that!(cu, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? > 0);
    Ok(())
}

fn properties_equal_attributes(cu: &Cuda<'_>) -> CaseResult {
    let mut properties = CUdevprop::zeroed();
    ok!(cu.cuDeviceGetProperties(&mut properties, 0));
    same!(
        cu,
        properties.maxThreadsPerBlock,
        attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?
    );
    same!(cu, properties.SIMDWidth, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?);
    same!(cu, properties.maxThreadsDim[2], attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?);
    same!(cu, properties.regsPerBlock, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?);
    same!(cu, properties.clockRate, attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?);
    Ok(())
}

fn uuid_of(cu: &Cuda<'_>, device: i32) -> CaseResult<[i8; 16]> {
    let mut uuid = CUuuid::zeroed();
    ok!(cu.cuDeviceGetUuid_v2(&mut uuid, device));
    Ok(uuid.bytes)
}

fn uuid_interfaces_agree(cu: &Cuda<'_>) -> CaseResult {
    let mut uuid = CUuuid::zeroed();
    ok!(cu.cuDeviceGetUuid(&mut uuid, 0));
    same!(cu, uuid.bytes, uuid_of(cu, 0)?);
    that!(cu, uuid.bytes != [0; 16]);
    Ok(())
}

fn uuids_differ(cu: &Cuda<'_>) -> CaseResult {
    that!(cu, uuid_of(cu, 0)? != uuid_of(cu, 1)?);
    Ok(())
}

fn bus_id(cu: &Cuda<'_>, device: i32) -> CaseResult<String> {
    let mut buffer = [0_u8; 32];
    ok!(cu.cuDeviceGetPCIBusId(buffer.as_mut_ptr().cast(), 32, device));
    let text = CStr::from_bytes_until_nul(&buffer).map_err(|_| Stop::Failed("a bus id without an end".to_owned()))?;
    Ok(text.to_string_lossy().into_owned())
}

fn bus_id_and_back(cu: &Cuda<'_>) -> CaseResult {
    let text = bus_id(cu, 0)?;
    same!(cu, (text.len(), text.ends_with(".0")), (12, true));
    let mut device = 77;
    let mut bytes = text.into_bytes();
    bytes.push(0);
    ok!(cu.cuDeviceGetByPCIBusId(&mut device, bytes.as_ptr().cast()));
    same!(cu, device, 0);
    Ok(())
}

fn bus_ids_differ(cu: &Cuda<'_>) -> CaseResult {
    that!(cu, bus_id(cu, 0)? != bus_id(cu, 1)?);
    Ok(())
}

fn bus_id_equals_attributes(cu: &Cuda<'_>) -> CaseResult {
    let domain = attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    let bus = attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
    let device = attribute(cu, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
    same!(cu, bus_id(cu, 0)?, format!("{domain:04X}:{bus:02X}:{device:02X}.0"));
    Ok(())
}

fn bus_id_without_room(cu: &Cuda<'_>) -> CaseResult {
    let mut buffer = [0_u8; 32];
    want!(INVALID_VALUE, cu.cuDeviceGetPCIBusId(buffer.as_mut_ptr().cast(), 0, 0));
    want!(INVALID_VALUE, cu.cuDeviceGetPCIBusId(buffer.as_mut_ptr().cast(), 12, 0));
    want!(SUCCESS, cu.cuDeviceGetPCIBusId(buffer.as_mut_ptr().cast(), 13, 0));
    Ok(())
}

fn unknown_bus_ids(cu: &Cuda<'_>) -> CaseResult {
    let mut device = 77;
    want!(INVALID_VALUE, cu.cuDeviceGetByPCIBusId(&mut device, c"not a bus id".as_ptr()));
    want!(INVALID_VALUE, cu.cuDeviceGetByPCIBusId(&mut device, c"".as_ptr()));
    want!(INVALID_DEVICE, cu.cuDeviceGetByPCIBusId(&mut device, c"7FFF:7F:1F.0".as_ptr()));
    Ok(())
}

fn luid_is_for_windows(cu: &Cuda<'_>) -> CaseResult {
    let (mut luid, mut mask) = ([0_u8; 8], 0);
    want!(NOT_SUPPORTED, cu.cuDeviceGetLuid(luid.as_mut_ptr().cast(), &mut mask, 0));
    Ok(())
}

fn peer_of_itself(cu: &Cuda<'_>) -> CaseResult {
    let mut able = 7;
    ok!(cu.cuDeviceCanAccessPeer(&mut able, 0, 0));
    same!(cu, able, 0);
    Ok(())
}

fn p2p_attribute_of_itself(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 7;
    let rank = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    want!(INVALID_DEVICE, cu.cuDeviceGetP2PAttribute(&mut value, rank, 0, 0));
    Ok(())
}

fn p2p_unknown_attribute(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 7;
    want!(INVALID_VALUE, cu.cuDeviceGetP2PAttribute(&mut value, CUdevice_P2PAttribute(99), 0, 1));
    Ok(())
}

fn pool_of_a_device(cu: &Cuda<'_>) -> CaseResult {
    let (mut default, mut current) = (ptr::null_mut(), ptr::null_mut());
    ok!(cu.cuDeviceGetDefaultMemPool(&mut default, 0));
    ok!(cu.cuDeviceGetMemPool(&mut current, 0));
    that!(cu, !default.is_null());
    same!(cu, current, default);
    Ok(())
}

fn driver_version(cu: &Cuda<'_>) -> CaseResult {
    let mut version = 0;
    ok!(cu.cuDriverGetVersion(&mut version));
    same!(cu, u32::try_from(version).unwrap_or(0), cu.driver().version().0);
    Ok(())
}
