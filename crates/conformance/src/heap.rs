//! The device's heap: `malloc` and `free` in kernels.

use super::prelude::*;
use super::ptx::{HEAD, ONE};

cases!("heap", CASES, Needs::CONTEXT;
    memory_is_given_out, more_than_the_heap_has, memory_stays_after_the_launch,
);

cases!("heap", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    limit_of_a_heap_in_use,
);

/// A kernel `k(u64 out, u64 bytes)` that allocates, and one that frees what it is given in the place of `bytes`.
fn text(frees: bool) -> String {
    let body = if frees {
        "{ .param .b64 p; st.param.b64 [p], %b; call.uni free, (p); }"
    } else {
        "{ .param .b64 n; st.param.b64 [n], %b; .param .b64 r; call.uni (r), malloc, (n); ld.param.b64 %p, [r]; }\n\
         st.global.u64 [%o], %p;\nsetp.eq.u64 %none, %p, 0;\n@!%none st.u32 [%p], 42;"
    };
    format!(
        "{HEAD}.extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n\
         .visible .entry k(.param .u64 o, .param .u64 b) {{\n.reg .b64 %o, %b, %p;\n.reg .pred %none;\n\
         ld.param.u64 %o, [o];\nld.param.u64 %b, [b];\n{body}\nret;\n}}\n"
    )
}

fn allocate(cu: &Cuda<'_>, bytes: u64) -> CaseResult<u64> {
    allocate_on(cu, bytes, cu.stream()?)
}

pub(super) fn allocate_on(cu: &Cuda<'_>, bytes: u64, stream: CUstream) -> CaseResult<u64> {
    let (function, out) = (cu.function(&text(false))?, cu.filled(8, 0xEE)?);
    cu.launch(function, [ONE; 2], 0, stream, &[out, bytes])?;
    ok!(cu.cuStreamSynchronize(stream));
    Ok(cu.read(out, 8)?.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)))
}

pub(super) fn free(cu: &Cuda<'_>, pointer: u64) -> CaseResult {
    let (function, stream) = (cu.function(&text(true))?, cu.stream()?);
    cu.launch(function, [ONE; 2], 0, stream, &[0, pointer])?;
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn memory_is_given_out(cu: &Cuda<'_>) -> CaseResult {
    let pointer = allocate(cu, 1000)?;
    that!(cu, pointer != 0 && pointer % 16 == 0);
    free(cu, pointer)?;
    free(cu, 0)
}

fn more_than_the_heap_has(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, allocate(cu, 1 << 40)?, 0);
    Ok(())
}

fn memory_stays_after_the_launch(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (allocate(cu, 1000)?, allocate(cu, 1000)?);
    that!(cu, first.abs_diff(second) >= 1000);
    free(cu, first)?;
    free(cu, second)
}

fn limit_of_a_heap_in_use(cu: &Cuda<'_>) -> CaseResult {
    let (limit, mut before, mut after) = (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 0, 0);
    let pointer = allocate(cu, 1 << 20)?;
    that!(cu, pointer != 0);
    ok!(cu.cuCtxGetLimit(&mut before, limit));
    want!(INVALID_VALUE, cu.cuCtxSetLimit(limit, 16 << 20));
    ok!(cu.cuCtxGetLimit(&mut after, limit));
    same!(cu, after, before);
    free(cu, pointer)
}
