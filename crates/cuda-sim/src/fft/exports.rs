//! The functions of cuFFT that are simulated: symbol, arguments, who answers. Sorted by symbol.

/// Calls the macro `$callback` with the functions of cuFFT that are simulated.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_cufft_export {
    ($callback:ident) => {
        $callback! {
            cufftCreate (handle: *mut cufftHandle) => plans::create;
            cufftDestroy (plan: cufftHandle) => plans::destroy;
            cufftExecC2C (plan: cufftHandle, idata: *mut cufftComplex, odata: *mut cufftComplex, direction: core::ffi::c_int) => exec::both_ways;
            cufftExecC2R (plan: cufftHandle, idata: *mut cufftComplex, odata: *mut cufftReal) => exec::inverse;
            cufftExecD2Z (plan: cufftHandle, idata: *mut cufftDoubleReal, odata: *mut cufftDoubleComplex) => exec::forward;
            cufftExecR2C (plan: cufftHandle, idata: *mut cufftReal, odata: *mut cufftComplex) => exec::forward;
            cufftExecZ2D (plan: cufftHandle, idata: *mut cufftDoubleComplex, odata: *mut cufftDoubleReal) => exec::inverse;
            cufftExecZ2Z (plan: cufftHandle, idata: *mut cufftDoubleComplex, odata: *mut cufftDoubleComplex, direction: core::ffi::c_int) => exec::both_ways;
            cufftGetProperty (type_: libraryPropertyType, value: *mut core::ffi::c_int) => plans::property;
            cufftGetSize (handle: cufftHandle, workSize: *mut usize) => plans::size;
            cufftGetVersion (version: *mut core::ffi::c_int) => plans::version;
            cufftMakePlanMany (plan: cufftHandle, rank: core::ffi::c_int, n: *mut core::ffi::c_int, inembed: *mut core::ffi::c_int, istride: core::ffi::c_int, idist: core::ffi::c_int, onembed: *mut core::ffi::c_int, ostride: core::ffi::c_int, odist: core::ffi::c_int, type_: cufftType, batch: core::ffi::c_int, workSize: *mut usize) => plans::make;
            cufftMakePlanMany64 (plan: cufftHandle, rank: core::ffi::c_int, n: *mut core::ffi::c_longlong, inembed: *mut core::ffi::c_longlong, istride: core::ffi::c_longlong, idist: core::ffi::c_longlong, onembed: *mut core::ffi::c_longlong, ostride: core::ffi::c_longlong, odist: core::ffi::c_longlong, type_: cufftType, batch: core::ffi::c_longlong, workSize: *mut usize) => plans::make_wide;
            cufftSetAutoAllocation (plan: cufftHandle, autoAllocate: core::ffi::c_int) => plans::set_auto_allocation;
            cufftSetStream (plan: cufftHandle, stream: cudaStream_t) => plans::set_stream;
            cufftSetWorkArea (plan: cufftHandle, workArea: *mut core::ffi::c_void) => plans::set_work_area;
            cufftXtExec (plan: cufftHandle, input: *mut core::ffi::c_void, output: *mut core::ffi::c_void, direction: core::ffi::c_int) => exec::any;
            cufftXtMakePlanMany (plan: cufftHandle, rank: core::ffi::c_int, n: *mut core::ffi::c_longlong, inembed: *mut core::ffi::c_longlong, istride: core::ffi::c_longlong, idist: core::ffi::c_longlong, inputtype: cudaDataType, onembed: *mut core::ffi::c_longlong, ostride: core::ffi::c_longlong, odist: core::ffi::c_longlong, outputtype: cudaDataType, batch: core::ffi::c_longlong, workSize: *mut usize, executiontype: cudaDataType) => plans::make_any;
        }
    };
}
