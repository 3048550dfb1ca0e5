//! Descriptions of tensors for the unit that copies tiles of them.
//!
//! # Safety
//! The one unsafe block is a call through the function table; what it points to are locals that outlive the call.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ptr;

use cuda_sys::driver::types::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::tensor_map::{TensorMapElement, TensorMapLayout};
use crate::driver::Api;

impl Api {
    /// Whether the driver has the call for [`Self::tensor_map`].
    pub(crate) fn makes_tensor_maps(&self) -> bool {
        self.table.functions().cuTensorMapEncodeTiled.is_some()
    }

    /// Describes elements that begin at an address.
    pub(crate) fn tensor_map(
        &self,
        device: DeviceIndex,
        address: u64,
        layout: &TensorMapLayout<'_>,
    ) -> Result<[u64; 16]> {
        self.bind(device)?;
        let element = match layout.element {
            TensorMapElement::U8 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            TensorMapElement::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            TensorMapElement::BF16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            TensorMapElement::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            TensorMapElement::TF32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        };
        let swizzle = if layout.line() == 64 {
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B
        } else {
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B
        };
        let sizes: Vec<u64> = layout.dims.iter().map(|dim| dim.size).collect();
        let steps: Vec<u64> = layout.dims.iter().skip(1).map(|dim| dim.step).collect();
        let tile: Vec<u32> = layout.dims.iter().map(|dim| dim.tile).collect();
        let every = vec![1_u32; layout.dims.len()];
        let rank = u32::try_from(layout.dims.len()).unwrap_or(u32::MAX);
        let mut map = CUtensorMap { opaque: [0; 16] };
        // SAFETY: the map, the sizes and the steps outlive the call; there is one for each dimension, but no first step.
        unsafe {
            self.table.cuTensorMapEncodeTiled(
                &mut map,
                element,
                rank,
                ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(usize::MAX)),
                sizes.as_ptr(),
                steps.as_ptr(),
                tile.as_ptr(),
                every.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }?;
        Ok(map.opaque)
    }
}
