//! Pointers that a C caller handed over.
//!
//! A [`Ptr`] is a claim: null, or valid for what the C function reads or writes through it. It is made in one place,
//! where a call crosses the C interface, and the promise of the caller is taken over there; from then on it is used
//! without further unsafe code. Null is answered with `CUDA_ERROR_INVALID_VALUE`.
//!
//! # Safety
//! [`IntoModel::into_model`] is unsafe and asks for exactly the duties of the C function. A `Ptr` must not outlive the call
//! it was made for, except as an address; some C functions demand that memory stays valid for later ones.
#![expect(unsafe_code, reason = "reads and writes through pointers of C callers")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use crate::codes::{Answer, INVALID_VALUE};

/// A pointer argument of a C function, constant or not.
pub(crate) struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> Ptr<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn null() -> Self {
        Self(ptr::null_mut())
    }

    /// A pointer out of a parameter structure, which the promise for the structure covers.
    pub(crate) fn from_params(pointer: *const T) -> Self {
        Self(pointer.cast_mut())
    }

    /// The pointer as a number, for handles and for looking things up.
    pub(crate) fn address(self) -> u64 {
        self.0.addr() as u64
    }

    /// The pointer as a number that the program's memory will be touched by when queued work runs.
    pub(crate) fn expose(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// A pointer that a call gave away with [`Ptr::expose`], for as long as the C function demands that it stays valid.
    pub(crate) fn from_exposed(address: u64) -> Self {
        Self(host_pointer(address).cast())
    }

    /// Address of element `index` of the array behind the pointer, as [`Ptr::expose`] gives it.
    pub(crate) fn expose_at(self, index: usize) -> u64 {
        Self(self.0.wrapping_add(index)).expose()
    }

    /// Refuses null.
    pub(crate) fn required(self) -> Answer<Self> {
        if self.0.is_null() { Err(INVALID_VALUE) } else { Ok(self) }
    }

    /// Reads the value behind the pointer.
    pub(crate) fn read(self) -> Answer<T>
    where
        T: Copy,
    {
        self.required()?;
        // SAFETY: not null, so by the promise given to `into_model` valid for reads; unaligned pointers are allowed here.
        Ok(unsafe { ptr::read_unaligned(self.0) })
    }

    /// Reads element `index` of the array behind the pointer.
    pub(crate) fn read_at(self, index: usize) -> Answer<T>
    where
        T: Copy,
    {
        self.required()?;
        Ptr(self.0.wrapping_add(index)).read()
    }

    /// Writes the value behind the pointer.
    pub(crate) fn write(self, value: T) -> Answer {
        self.required()?;
        // SAFETY: not null, so by the promise given to `into_model` valid for writes; unaligned pointers are allowed here.
        unsafe { ptr::write_unaligned(self.0, value) };
        Ok(())
    }

    /// Writes where the pointer is not null; for optional results.
    pub(crate) fn write_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so by the promise given to `into_model` valid for writes.
            unsafe { ptr::write_unaligned(self.0, value) };
        }
    }

    /// Writes element `index` of the array behind the pointer.
    pub(crate) fn write_at(self, index: usize, value: T) -> Answer {
        self.required()?;
        Ptr(self.0.wrapping_add(index)).write(value)
    }

    /// The same address as a pointer to something else; the C function says by other arguments what lies there.
    pub(crate) fn cast<U>(self) -> Ptr<U> {
        Ptr(self.0.cast())
    }

    /// Copies an array of `count` elements; null is fine when there are none.
    pub(crate) fn read_array(self, count: usize) -> Answer<Vec<T>>
    where
        T: Copy,
    {
        (0..count).map(|index| self.read_at(index)).collect()
    }
}

impl Ptr<*mut c_void> {
    /// Element `index` of an array of pointers, which is as good as a pointer argument.
    pub(crate) fn pointer_at(self, index: usize) -> Answer<Ptr<c_void>> {
        Ok(Ptr(self.read_at(index)?))
    }
}

impl Ptr<c_char> {
    /// Copies the C string behind the pointer.
    pub(crate) fn read_string(self) -> Answer<String> {
        self.required()?;
        // SAFETY: not null, so by the promise given to `into_model` a C string that ends with a zero byte.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }

    /// Writes `text` and a zero byte into the `capacity` bytes behind the pointer, cut off where it does not fit.
    pub(crate) fn write_string(self, text: &str, capacity: usize) -> Answer {
        self.required()?;
        let kept = text.len().min(capacity.saturating_sub(1));
        let bytes = text.as_bytes()[..kept].iter().copied().chain([0]).take(capacity);
        bytes.enumerate().try_for_each(|(index, byte)| self.write_at(index, byte.cast_signed()))
    }
}

/// An argument as it comes over the C interface, turned into what the model takes.
pub(crate) trait IntoModel {
    /// What the model takes.
    type Model;

    /// Takes over the caller's promise.
    ///
    /// # Safety
    /// - A pointer is null or valid for what the C function does with it, for as long as the C function demands.
    unsafe fn into_model(self) -> Self::Model;
}

impl<T> IntoModel for *mut T {
    type Model = Ptr<T>;
    unsafe fn into_model(self) -> Ptr<T> {
        Ptr(self)
    }
}

impl<T> IntoModel for *const T {
    type Model = Ptr<T>;
    unsafe fn into_model(self) -> Ptr<T> {
        Ptr(self.cast_mut())
    }
}

macro_rules! plain_values {
    ($($plain:ty),* $(,)?) => {
        $(impl IntoModel for $plain {
            type Model = Self;
            unsafe fn into_model(self) -> Self {
                self
            }
        })*
    };
}

plain_values! {
    i8, i32, i64, u8, u16, u32, u64, usize, f64,
    cuda_sys::CUresult,
    cuda_sys::driver::types::CUdevice_attribute,
    cuda_sys::driver::types::CUlimit,
    cuda_sys::driver::types::CUpointer_attribute,
    cuda_sys::driver::types::CUmemAllocationGranularity_flags,
    cuda_sys::driver::types::CUmemAllocationHandleType,
    cuda_sys::driver::types::CUmemPool_attribute,
    cuda_sys::driver::types::CUmem_advise,
    cuda_sys::driver::types::CUmem_range_attribute,
    cuda_sys::driver::types::CUmemLocation,
    cuda_sys::driver::types::CUgraphMem_attribute,
    cuda_sys::driver::types::CUdevice_P2PAttribute,
    cuda_sys::driver::types::CUdevResourceType,
    cuda_sys::driver::types::CUstreamCaptureMode,
    cuda_sys::driver::types::CUlaunchAttributeID,
    cuda_sys::driver::types::CUfunc_cache,
    cuda_sys::driver::types::CUfunction_attribute,
    cuda_sys::driver::types::CUsharedconfig,
    cuda_sys::driver::types::CUjitInputType,
    cuda_sys::driver::types::CUhostFn,
    cuda_sys::driver::types::CUoccupancyB2DSize,
    cuda_sys::driver::types::CUstreamCallback,
    cuda_sys::driver::types::CUipcMemHandle,
    cuda_sys::driver::types::CUipcEventHandle,
    cuda_sys::cublas::types::cublasAtomicsMode_t,
    cuda_sys::cublas::types::cublasFillMode_t,
    cuda_sys::cublas::types::cublasComputeType_t,
    cuda_sys::cublas::types::cublasGemmAlgo_t,
    cuda_sys::cublas::types::cublasMath_t,
    cuda_sys::cublas::types::cublasOperation_t,
    cuda_sys::cublas::types::cublasPointerMode_t,
    cuda_sys::cublas::types::cudaDataType_t,
    cuda_sys::cublas::types::libraryPropertyType_t,
    cuda_sys::cublaslt::types::cublasLtMatmulAlgoCapAttributes_t,
    cuda_sys::cublaslt::types::cublasLtMatmulAlgoConfigAttributes_t,
    cuda_sys::cublaslt::types::cublasLtMatmulDescAttributes_t,
    cuda_sys::cublaslt::types::cublasLtMatmulPreferenceAttributes_t,
    cuda_sys::cublaslt::types::cublasLtMatrixLayoutAttribute_t,
    cuda_sys::cufft::types::cufftType_t,
    cuda_sys::nccl::types::ncclDataType_t,
    cuda_sys::nccl::types::ncclRedOp_t,
    cuda_sys::nccl::types::ncclScalarResidence_t,
    cuda_sys::nccl::types::ncclUniqueId,
    cuda_sys::cusolver::types::cusolverDeterministicMode_t,
    cuda_sys::cusolver::types::cusolverEigMode_t,
    cuda_sys::nvml::types::nvmlTemperatureSensors_t,
    cuda_sys::nvml::types::nvmlClockType_t,
    cuda_sys::nvml::types::nvmlEccCounterType_t,
    cuda_sys::nvml::types::nvmlGpuP2PCapsIndex_t,
    cuda_sys::nvml::types::nvmlGpuTopologyLevel_t,
    cuda_sys::nvml::types::nvmlNvLinkCapability_t,
    cuda_sys::nvml::types::nvmlMemoryErrorType_t,
    cuda_sys::nvml::types::nvmlPcieUtilCounter_t,
    cuda_sys::nvml::types::nvmlTemperatureThresholds_t,
}

/// A handle as a number of the program's choice; only looked up, never followed.
pub(crate) fn handle<T>(value: u64) -> *mut T {
    ptr::without_provenance_mut(usize::try_from(value).unwrap_or(usize::MAX))
}

/// A host address that came as a number, for giving it back to the program.
pub(crate) fn host_pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(usize::MAX))
}
