//! What the simulated device says of itself: the figures of an NVIDIA H200, and of its abilities those that are simulated.

use cuda_sys::driver::types::CUdevice_attribute;

/// Memory of the default device in bytes.
pub(crate) const TOTAL_MEMORY_BYTES: u64 = 150_109_880_320;

/// Memory of the default device that its primary context takes, in bytes. With a memory size of the program's choice
/// it takes none, so that all of that size can be allocated.
pub(crate) const CONTEXT_BYTES: u64 = 829_227_008;

/// Name of every device.
pub(crate) const NAME: &str = "NVIDIA H200";

/// PCI device number of device 0; the others follow.
const FIRST_PCI_DEVICE: u32 = 6;

/// Values of the attributes 1, 2, 3 and so on, as an H200 under driver 580 gives them.
const ATTRIBUTES: [i32; 147] = [
    1024,
    1024,
    1024,
    64,
    2_147_483_647,
    65535,
    65535,
    49152,
    65536,
    32,
    2_147_483_647,
    65536,
    1_980_000,
    512,
    1,
    132,
    0,
    0,
    1,
    0,
    131_072,
    131_072,
    65536,
    16384,
    16384,
    16384,
    32768,
    32768,
    2048,
    512,
    1,
    1,
    0,
    6,
    0,
    3_201_000,
    6016,
    62_914_560,
    2048,
    3,
    1,
    32768,
    2048,
    1,
    32768,
    32768,
    8192,
    8192,
    32768,
    0,
    32,
    32768,
    32768,
    2046,
    32768,
    131_072,
    65536,
    16384,
    16384,
    16384,
    32768,
    2048,
    32768,
    32768,
    2048,
    32768,
    32768,
    2046,
    268_435_456,
    131_072,
    65000,
    2_097_120,
    32768,
    32768,
    9,
    0,
    32768,
    1,
    1,
    1,
    233_472,
    65536,
    1,
    0,
    0,
    0,
    2,
    0,
    1,
    1,
    1,
    0,
    0,
    0,
    1,
    1,
    232_448,
    0,
    1,
    0,
    0,
    1,
    1,
    0,
    0,
    32,
    1,
    39_321_600,
    134_217_728,
    1,
    1024,
    1,
    1,
    1,
    1,
    1,
    1,
    100,
    9,
    1,
    1,
    1,
    1,
    1,
    1,
    4,
    1,
    1,
    1,
    0,
    -1,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    590_680_286,
    415_174_878,
    1,
    1,
    0,
    1,
    1,
    0,
    0,
];

/// Abilities that an H200 has and the model has not: it says 0, so that programs do without them.
const NOT_SIMULATED: [CUdevice_attribute; 18] = [
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
];

/// As what memory pools can be exported: as file descriptors. An H200 also has handles for a fabric.
const POOL_HANDLE_TYPES: i32 = 1;

/// An attribute of device `index`; `None` for an attribute the driver does not know.
pub(crate) fn attribute(attribute: CUdevice_attribute, index: u32) -> Option<i32> {
    if NOT_SIMULATED.contains(&attribute) {
        return Some(0);
    }
    if attribute == CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES {
        return Some(POOL_HANDLE_TYPES);
    }
    if attribute == CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID {
        return i32::try_from(pci_device(index)).ok();
    }
    let position = usize::try_from(attribute.0).ok()?.checked_sub(1)?;
    ATTRIBUTES.get(position).copied()
}

/// PCI device number of device `index`, on bus 0.
pub(crate) fn pci_device(index: u32) -> u32 {
    FIRST_PCI_DEVICE + index
}

/// The text by which the PCI bus knows device `index`.
pub(crate) fn pci_bus_id(index: u32) -> String {
    format!("0000:00:{:02X}.0", pci_device(index))
}

/// The device with a PCI bus id, which may leave out the domain.
pub(crate) fn device_with_pci_bus_id(text: &str, devices: u32) -> Option<u32> {
    let short = |index| pci_bus_id(index).trim_start_matches("0000:").to_owned();
    (0..devices)
        .find(|&index| text.eq_ignore_ascii_case(&pci_bus_id(index)) || text.eq_ignore_ascii_case(&short(index)))
}

/// Identity of device `index`, the same on every machine.
pub(crate) fn uuid(index: u32) -> [u8; 16] {
    let mut bytes = *b"cuda-sim device0";
    bytes[15] = bytes[15].wrapping_add(u8::try_from(index).unwrap_or(u8::MAX));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_figures_of_an_h200() {
        let get = |id| attribute(id, 0);
        assert_eq!(get(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), Some(132));
        assert_eq!(get(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR), Some(2048));
        assert_eq!(get(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), Some(9));
        assert_eq!(get(CUdevice_attribute(0)), None);
        assert_eq!(get(CUdevice_attribute(148)), None);
    }

    #[test]
    fn what_is_not_simulated_is_not_claimed() {
        for lacking in NOT_SIMULATED {
            assert_eq!(attribute(lacking, 0), Some(0), "{lacking:?}");
            let position = usize::try_from(lacking.0).expect("small") - 1;
            assert_ne!(ATTRIBUTES[position], 0, "{lacking:?} is nothing that an H200 has");
        }
    }

    #[test]
    fn devices_are_told_apart() {
        assert_eq!(pci_bus_id(0), "0000:00:06.0");
        assert_eq!(device_with_pci_bus_id("00:07.0", 2), Some(1));
        assert_eq!(device_with_pci_bus_id("00:07.0", 1), None);
        assert_ne!(uuid(0), uuid(1));
    }
}
