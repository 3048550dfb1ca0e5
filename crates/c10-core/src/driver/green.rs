//! Green contexts: parts of a device's multiprocessors, and streams on them.
//!
//! # Safety
//! Every unsafe block is one call through the function table, or reads the field of a union that its type says is there.
//! Out pointers are locals that outlive the call; resources and descriptors are used as the driver gave them, and right
//! away. Green contexts come from [`Api::green_create`] and are destroyed once, by their owner.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ptr;

use cuda_sys::CudaVersion;
use cuda_sys::driver::types::{
    CUdevResource, CUdevResource_st__bindgen_ty_1, CUdevResourceDesc, CUdevResourceType, CUgreenCtx, CUstream,
};

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, GreenContextError, Result};
use crate::base::handles::{GreenHandle, StreamHandle};
use crate::driver::Api;

/// The oldest driver on which green contexts are used, as torch decides.
const OLDEST: CudaVersion = CudaVersion(12080);

/// `CU_GREEN_CTX_DEFAULT_STREAM`, which the driver demands.
const DEFAULT_STREAM: u32 = 1;

/// `CU_STREAM_NON_BLOCKING`, which the driver demands.
const NON_BLOCKING: u32 = 1;

const SM: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;

/// A resource before the driver has filled it.
fn nothing() -> CUdevResource {
    CUdevResource {
        type_: CUdevResourceType::CU_DEV_RESOURCE_TYPE_INVALID,
        _internal_padding: [0; 92],
        __bindgen_anon_1: CUdevResource_st__bindgen_ty_1 { _oversize: [0; 48] },
    }
}

/// Multiprocessors of a resource.
fn count_of(resource: &CUdevResource) -> u32 {
    if resource.type_ != SM {
        return 0;
    }
    // SAFETY: resources of this type have this field.
    unsafe { resource.__bindgen_anon_1.sm }.smCount
}

impl Api {
    /// Makes a green context with at least `asked` multiprocessors; how many it has.
    pub(crate) fn green_create(&self, device: DeviceIndex, asked: u32) -> Result<(GreenHandle, u32)> {
        let found = self.table.version();
        if found < OLDEST {
            return Err(Error::GreenContext(GreenContextError::DriverTooOld { found: found.0 }));
        }
        let number = self.device(device)?;
        // The driver would make the primary context for each green one otherwise.
        self.context(device)?;
        let mut group = self.green_group(device, asked)?;
        let (mut descriptor, mut green): (CUdevResourceDesc, CUgreenCtx) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `descriptor` outlives the call; `group` is one resource that the driver filled.
        unsafe { self.table.cuDevResourceGenerateDesc(&mut descriptor, &mut group, 1) }?;
        // SAFETY: `green` outlives the call; the descriptor was made right here for `number`.
        unsafe { self.table.cuGreenCtxCreate(&mut green, descriptor, number, DEFAULT_STREAM) }?;
        Ok((GreenHandle(green.expose_provenance()), count_of(&group)))
    }

    /// The smallest group of a device's multiprocessors that has at least `asked`.
    fn green_group(&self, device: DeviceIndex, asked: u32) -> Result<CUdevResource> {
        let number = self.device(device)?;
        let (mut whole, mut group, mut rest, mut count) = (nothing(), nothing(), nothing(), 1);
        // SAFETY: `whole` outlives the call.
        unsafe { self.table.cuDeviceGetDevResource(number, &mut whole, SM) }?;
        let available = count_of(&whole);
        if !(1..=available).contains(&asked) {
            return Err(Error::GreenContext(GreenContextError::InvalidCount { asked, available }));
        }
        // SAFETY: `whole` was filled right here; `group` has room for the one group that `count` says.
        unsafe { self.table.cuDevSmResourceSplitByCount(&mut group, &mut count, &whole, &mut rest, 0, asked) }?;
        if count == 1 { Ok(group) } else { Err(Error::GreenContext(GreenContextError::NoGroup)) }
    }

    /// Makes a stream whose kernels run on the green context's multiprocessors.
    pub(crate) fn green_stream(&self, green: GreenHandle) -> Result<StreamHandle> {
        let mut stream: CUstream = ptr::null_mut();
        // SAFETY: `stream` outlives the call; the green context is alive.
        unsafe { self.table.cuGreenCtxStreamCreate(&mut stream, raw(green), NON_BLOCKING, 0) }?;
        Ok(StreamHandle(stream.expose_provenance()))
    }

    /// Destroys a green context, whose streams were destroyed before.
    pub(crate) fn green_destroy(&self, green: GreenHandle) -> Result<()> {
        // SAFETY: the owner gives the green context up.
        Ok(unsafe { self.table.cuGreenCtxDestroy(raw(green)) }?)
    }
}

fn raw(green: GreenHandle) -> CUgreenCtx {
    ptr::with_exposed_provenance_mut(green.0)
}
