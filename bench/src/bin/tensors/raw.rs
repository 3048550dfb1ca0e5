//! The raw driver and the raw cuBLAS: what a launch or a product costs that nothing is wrapped around.
//!
//! # Safety
//! Every pointer given to the driver points to a local variable that outlives the call. The kernel adds the 1024 numbers
//! of two tensors into a third; the value here holds all three.
#![expect(unsafe_code, reason = "calls the driver's C interface")]

use std::ffi::c_void;
use std::ptr;

use aten_cuda::Tensor;
use cuda_sys::cublas::types::{cublasHandle_t, cublasOperation_t};
use cuda_sys::driver::types::CUfunction;
use cuda_sys::{Cublas, Driver};

const THREADS: u32 = 128;
const BLOCKS: u32 = 8;

/// An addition of as many numbers as its threads.
const TEXT: &std::ffi::CStr = c"
.version 7.8
.target sm_75
.address_size 64
.visible .entry add(.param .u64 out, .param .u64 one, .param .u64 other)
{
    .reg .b32 %block, %thread, %at;
    .reg .f32 %x, %y;
    .reg .b64 %out, %one, %other, %offset;
    ld.param.u64 %out, [out];
    ld.param.u64 %one, [one];
    ld.param.u64 %other, [other];
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %at, %block, 128, %thread;
    mul.wide.u32 %offset, %at, 4;
    add.s64 %out, %out, %offset;
    add.s64 %one, %one, %offset;
    add.s64 %other, %other, %offset;
    ld.global.f32 %x, [%one];
    ld.global.f32 %y, [%other];
    add.f32 %x, %x, %y;
    st.global.f32 [%out], %x;
    ret;
}
";

/// A kernel and its operands.
#[derive(Debug)]
pub(crate) struct Add {
    driver: Driver,
    function: CUfunction,
    /// The result first, each of 1024 numbers.
    operands: [Tensor; 3],
}

impl Add {
    /// Loads the kernel into the current context, for these tensors of 1024 `f32`: the result first.
    ///
    /// # Errors
    /// There is no driver, or its error.
    pub(crate) fn new(operands: [Tensor; 3]) -> Result<Self, Box<dyn std::error::Error>> {
        let driver = Driver::load()?;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `module` and the text, which ends with a zero, outlive the call.
        unsafe { driver.cuModuleLoadData(&mut module, TEXT.as_ptr().cast()) }?;
        // SAFETY: the module was just loaded; `function` and the name outlive the call.
        unsafe { driver.cuModuleGetFunction(&mut function, module, c"add".as_ptr()) }?;
        Ok(Self { driver, function, operands })
    }

    /// Queues it on the default stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn launch(&self) -> Result<(), Box<dyn std::error::Error>> {
        let mut operands = self.operands.each_ref().map(Tensor::data_ptr);
        let mut arguments = operands.each_mut().map(|operand| ptr::from_mut(operand).cast::<c_void>());
        let (function, arguments, stream) = (self.function, arguments.as_mut_ptr(), ptr::null_mut());
        let (driver, none) = (&self.driver, ptr::null_mut());
        // SAFETY: the kernel has three parameters of 8 bytes, which are copied during the call.
        unsafe { driver.cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, arguments, none) }?;
        Ok(())
    }
}

/// A product of square matrices of `f32` by cuBLAS, on the default stream with the library's own workspace.
#[derive(Debug)]
pub(crate) struct Gemm {
    cublas: Cublas,
    handle: cublasHandle_t,
    /// The result first.
    matrices: [Tensor; 3],
}

impl Gemm {
    /// Makes a handle for these matrices of one size: the result first.
    ///
    /// # Errors
    /// There is no cuBLAS, or its error.
    pub(crate) fn new(matrices: [Tensor; 3]) -> Result<Self, Box<dyn std::error::Error>> {
        let (cublas, mut handle) = (Cublas::load()?, ptr::null_mut());
        // SAFETY: `handle` outlives the call; the tensors have made the device's context current.
        unsafe { cublas.cublasCreate_v2(&mut handle) }?;
        Ok(Self { cublas, handle, matrices })
    }

    /// Queues it.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn launch(&self) -> Result<(), Box<dyn std::error::Error>> {
        let size = i32::try_from(self.matrices[0].sizes()[0])?;
        let [c, a, b] = self
            .matrices
            .each_ref()
            .map(|matrix| ptr::with_exposed_provenance_mut::<f32>(usize::try_from(matrix.data_ptr()).unwrap_or(0)));
        let (n, one, zero) = (cublasOperation_t::CUBLAS_OP_N, 1.0, 0.0);
        let (cublas, handle) = (&self.cublas, self.handle);
        // SAFETY: the matrices have these sizes, and the factors outlive the call.
        unsafe { cublas.cublasSgemm_v2(handle, n, n, size, size, size, &one, b, size, a, size, &zero, c, size) }?;
        Ok(())
    }
}
