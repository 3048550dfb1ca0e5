//! Kernels for cases, written by hand as PTX that every driver since CUDA 11.8 reads, and short ways to run them.

use super::prelude::*;

/// How every text begins.
pub(super) const HEAD: &str = ".version 7.8\n.target sm_75\n.address_size 64\n";

/// A kernel `k(u64 out, u64 in, u32 n)` with registers of every kind, `%o`, `%i` and `%n` loaded.
pub(super) fn kernel(body: &str) -> String {
    with_directives("", body)
}

/// The same, with directives between parameters and body.
pub(super) fn with_directives(directives: &str, body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(\n.param .u64 k_out,\n.param .u64 k_in,\n.param .u32 k_n\n)\n{directives}{{\n\
         .reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<12>;\n.reg .b64 %d<12>;\n.reg .f32 %f<8>;\n.reg .f64 %g<8>;\n\
         .reg .b64 %o, %i;\n.reg .b32 %n;\n\
         ld.param.u64 %o, [k_out];\nld.param.u64 %i, [k_in];\nld.param.u32 %n, [k_n];\n{body}\nret;\n}}\n"
    )
}

/// A kernel `k()` that does nothing.
pub(super) fn idle() -> String {
    format!("{HEAD}.visible .entry k() {{ ret; }}\n")
}

/// The number of a thread in `%r0`, and 4 times that in `%d0`; threads from `%n` on go to `end`.
pub(super) const INDEX: &str = "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n\
    mad.lo.s32 %r0, %r1, %r2, %r3;\nsetp.ge.u32 %p0, %r0, %n;\n@%p0 bra end;\nmul.wide.u32 %d0, %r0, 4;\n\
    add.s64 %d1, %o, %d0;\nadd.s64 %d2, %i, %d0;\n";

/// Three sizes.
pub(super) type Sizes = [u32; 3];

/// One of everything.
pub(super) const ONE: Sizes = [1, 1, 1];

impl Cuda<'_> {
    /// A module of this text.
    pub(super) fn module(&self, text: &str) -> CaseResult<CUmodule> {
        let cu = self;
        let (mut module, text) = (ptr::null_mut(), format!("{text}\0"));
        ok!(cu.cuModuleLoadData(&mut module, text.as_ptr().cast()));
        self.later(Cleanup::Module(module));
        Ok(module)
    }

    /// What a driver answers to text; a module that it makes is unloaded when the case ends.
    pub(super) fn load_status(&self, text: &str) -> CaseResult<CUresult> {
        let cu = self;
        let (mut module, text) = (ptr::null_mut(), format!("{text}\0"));
        let status = status!(cu.cuModuleLoadData(&mut module, text.as_ptr().cast()));
        if status == CUresult::CUDA_SUCCESS {
            self.later(Cleanup::Module(module));
        }
        Ok(status)
    }

    /// The function `k` of a module.
    pub(super) fn function_of(&self, module: CUmodule) -> CaseResult<CUfunction> {
        let cu = self;
        let mut function = ptr::null_mut();
        ok!(cu.cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
        Ok(function)
    }

    /// The function `k` of this text.
    pub(super) fn function(&self, text: &str) -> CaseResult<CUfunction> {
        let module = self.module(text)?;
        self.function_of(module)
    }

    /// Queues a launch; each value is a parameter of up to 8 bytes.
    pub(super) fn launch(
        &self,
        function: CUfunction,
        [grid, block]: [Sizes; 2],
        shared: u32,
        stream: CUstream,
        values: &[u64],
    ) -> CaseResult {
        let cu = self;
        let mut pointers = pointers_to(values);
        ok!(cu.cuLaunchKernel(
            function,
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            shared,
            stream,
            pointers.as_mut_ptr(),
            ptr::null_mut(),
        ));
        Ok(())
    }

    /// Runs the body of a kernel in `blocks` blocks of `threads` threads and reads `words` words of its output.
    pub(super) fn compute(
        &self,
        body: &str,
        [blocks, threads]: [u32; 2],
        input: &[u32],
        n: u32,
        words: usize,
    ) -> CaseResult<Vec<u32>> {
        let cu = self;
        let (function, stream) = (self.function(&kernel(body))?, self.stream()?);
        let (out, from) = (self.filled(words * 4, 0)?, self.alloc(input.len().max(1) * 4)?);
        ok!(cu.cuMemcpyHtoD_v2(from, input.as_ptr().cast(), input.len() * 4));
        self.launch(function, [[blocks, 1, 1], [threads, 1, 1]], 0, stream, &[out, from, n.into()])?;
        ok!(cu.cuStreamSynchronize(stream));
        self.read_words(out, words)
    }

    /// Words of device memory, once all work on the device is done.
    pub(super) fn read_words(&self, pointer: CUdeviceptr, words: usize) -> CaseResult<Vec<u32>> {
        let bytes = self.read(pointer, words * 4)?;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        Ok(bytes.chunks_exact(4).map(word).collect())
    }
}

/// Pointers to values, as launches take them.
pub(super) fn pointers_to(values: &[u64]) -> Vec<*mut c_void> {
    values.iter().map(|value| ptr::from_ref(value).cast_mut().cast()).collect()
}
