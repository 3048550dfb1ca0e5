//! cuFFT: where it comes from, its plans, and the calls.
//!
//! A runtime keeps plans for each device, the most recently used ones; a call has them to itself while it queues its work.
//! Plans do not allocate: their work area is a tensor of each call, so the caching allocator keeps it until the stream is
//! done with it, and a captured transform has one of its own.
//!
//! # Safety
//! The library reads and writes signals of the lengths that a plan was made for: those of contiguous tensors. The storages
//! are handed to the runtime, which orders their use. A plan is alive as long as it is in its cache.
#![expect(unsafe_code, reason = "calls of cuFFT")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use c10_core::{DeviceIndex, MemoryAccess, Runtime};
use cuda_sys::cublas::types::cudaDataType_t;
use cuda_sys::cufft::types::{CUFFT_FORWARD, CUFFT_INVERSE, cufftHandle};
use cuda_sys::{Cufft, CufftError};

use super::Kind;
use crate::base::dtype::DType;
use crate::base::error::{Error, Result, invalid};
use crate::base::linalg_error::LinalgError;
use crate::blas::Slot;
use crate::launch::record;
use crate::tensor::Tensor;

/// How many plans are kept for a device where nothing else was said.
const PLANS: usize = 4096;

/// What a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    length: i64,
    batch: i64,
    is_double: bool,
    kind: Kind,
}

/// A plan and the memory that it works in.
#[derive(Debug)]
struct Plan {
    raw: cufftHandle,
    bytes: usize,
    library: Arc<Cufft>,
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: made by this library, and nobody else has it. An error cannot be returned here.
        let _ = unsafe { self.library.cufftDestroy(self.raw) };
    }
}

/// Plans of a device, the most recently used one last.
#[derive(Debug)]
struct Plans {
    kept: Vec<(Key, Plan)>,
    most: usize,
}

impl Default for Plans {
    fn default() -> Self {
        Self { kept: Vec::new(), most: PLANS }
    }
}

impl Plans {
    fn shrink(&mut self) {
        let surplus = self.kept.len().saturating_sub(self.most);
        self.kept.drain(..surplus);
    }
}

/// What a runtime keeps for cuFFT.
#[derive(Debug, Default)]
struct Fft {
    library: Slot<Cufft>,
    plans: Mutex<BTreeMap<DeviceIndex, Plans>>,
}

impl Fft {
    fn plans(&self) -> MutexGuard<'_, BTreeMap<DeviceIndex, Plans>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The library of a runtime, which is looked for where that was not done; else why it is not there.
pub(super) fn find(runtime: &Runtime) -> std::result::Result<Arc<Cufft>, String> {
    runtime.extension::<Fft>().library.find(runtime, Cufft::load, "libcufft.so", Cufft::load_from)
}

/// Has a runtime use this library from now on.
pub(super) fn set(runtime: &Runtime, cufft: Option<Cufft>) {
    let fft = runtime.extension::<Fft>();
    fft.library.set(cufft);
    fft.plans().values_mut().for_each(|plans| plans.kept.clear());
}

/// The plans that are kept for a device (`torch.backends.cuda.cufft_plan_cache[i]`).
pub struct PlanCache {
    fft: Arc<Fft>,
    device: DeviceIndex,
}

impl fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("PlanCache");
        text.field("device", &self.device).field("size", &self.size()).field("max_size", &self.max_size()).finish()
    }
}

impl PlanCache {
    pub(super) fn new(runtime: &Runtime, device: DeviceIndex) -> Self {
        Self { fft: runtime.extension::<Fft>(), device }
    }

    /// How many plans are kept (`size`).
    #[must_use]
    pub fn size(&self) -> usize {
        self.fft.plans().get(&self.device).map_or(0, |plans| plans.kept.len())
    }

    /// How many plans are kept at most (`max_size`); 4096 at first.
    #[must_use]
    pub fn max_size(&self) -> usize {
        self.fft.plans().get(&self.device).map_or(PLANS, |plans| plans.most)
    }

    /// Sets how many plans are kept at most; the ones used longest ago go.
    ///
    /// # Errors
    /// The number is negative.
    pub fn set_max_size(&self, most: i64) -> Result<()> {
        let text = format!("cuFFT plan cache size must be non-negative, but got {most}");
        let most = usize::try_from(most).map_err(|_| invalid(text))?;
        let mut all = self.fft.plans();
        let plans = all.entry(self.device).or_default();
        plans.most = most;
        plans.shrink();
        Ok(())
    }

    /// Forgets all plans (`clear`).
    pub fn clear(&self) {
        if let Some(plans) = self.fft.plans().get_mut(&self.device) {
            plans.kept.clear();
        }
    }
}

fn failed(cause: CufftError, key: &Key) -> Error {
    let Key { length, batch, is_double, kind } = key;
    let width = if *is_double { "double" } else { "single" };
    let arguments = format!("n {length}, batch {batch}, {width} precision, {kind:?}");
    LinalgError::Transform { cause, arguments }.into()
}

/// Types of the two sides of a plan, and of what it computes with.
fn types(key: &Key) -> [cudaDataType_t; 3] {
    let (real, complex) = if key.is_double {
        (cudaDataType_t::CUDA_R_64F, cudaDataType_t::CUDA_C_64F)
    } else {
        (cudaDataType_t::CUDA_R_32F, cudaDataType_t::CUDA_C_32F)
    };
    match key.kind {
        Kind::Complex { .. } => [complex; 3],
        Kind::Forward => [real, complex, complex],
        Kind::Inverse => [complex, real, complex],
    }
}

fn new_plan(library: Arc<Cufft>, key: &Key) -> Result<Plan> {
    let mut raw = 0;
    // SAFETY: `raw` outlives the call.
    unsafe { library.cufftCreate(&mut raw) }.map_err(|cause| failed(cause, key))?;
    let mut plan = Plan { raw, bytes: 0, library };
    // SAFETY: the plan is alive.
    unsafe { plan.library.cufftSetAutoAllocation(raw, 0) }.map_err(|cause| failed(cause, key))?;
    let ([from, to, computed], mut length) = (types(key), key.length);
    let none = ptr::null_mut();
    // SAFETY: one length is read, and a size is written.
    let made = unsafe {
        plan.library.cufftXtMakePlanMany(
            raw,
            1,
            &mut length,
            none,
            1,
            0,
            from,
            none,
            1,
            0,
            to,
            key.batch,
            &mut plan.bytes,
            computed,
        )
    };
    made.map_err(|cause| failed(cause, key))?;
    Ok(plan)
}

/// Queues a transform of contiguous tensors on the current stream of their device.
pub(super) fn transform(input: &Tensor, out: &Tensor, length: i64, kind: Kind) -> Result<()> {
    let detail = vec![length.cast_unsigned(), u64::from(kind == Kind::Inverse), u64::from(kind.is_forward())];
    let again = move |outputs: &[Tensor], inputs: &[Tensor]| {
        let ([out], [input]) = (outputs, inputs) else { return Ok(()) };
        transform(input, out, length, kind)
    };
    // Without a library the call fails where it is made.
    if record::is_on()
        && Runtime::with_current(find).is_ok()
        && record::pure_call("fft", (&[out], &[input]), detail, again)?
    {
        return Ok(());
    }
    Runtime::with_current(|runtime| {
        let device = input.device().cuda_index()?.unwrap_or(DeviceIndex(0));
        let last = out.sizes()[out.dim() - 1].max(1);
        let batch = out.numel() / last;
        let is_double = matches!(input.dtype(), DType::F64 | DType::C128);
        let key = Key { length, batch, is_double, kind };
        let fft = runtime.extension::<Fft>();
        let missing = |reason| LinalgError::Missing { operation: "fft", library: "cuFFT", reason };
        let library = find(runtime).map_err(missing)?;
        let mut all = fft.plans();
        let plans = all.entry(device).or_default();
        let place = plans.kept.iter().position(|(known, _)| *known == key);
        let plan = match place {
            Some(place) => plans.kept.remove(place).1,
            None => runtime.with_library(device, || new_plan(library, &key))?,
        };
        let bytes = i64::try_from(plan.bytes.max(1)).unwrap_or(i64::MAX);
        let area = Tensor::uninitialized(&[bytes], DType::U8, input)?;
        queue(runtime, device, &plan, &key, [input, out, &area])?;
        plans.kept.push((key, plan));
        plans.shrink();
        Ok(())
    })
}

fn queue(
    runtime: &Runtime,
    device: DeviceIndex,
    plan: &Plan,
    key: &Key,
    [input, out, area]: [&Tensor; 3],
) -> Result<()> {
    let function = runtime.library_function("cufftXtExec")?;
    let accesses = [MemoryAccess::Reads("self"), MemoryAccess::Output, MemoryAccess::Writes("")];
    let used = [input, out, area].into_iter().zip(accesses).filter_map(|(tensor, access)| tensor.used(access));
    let buffers: Vec<_> = used.collect();
    let direction = if key.kind.is_forward() { CUFFT_FORWARD } else { c_int::try_from(CUFFT_INVERSE).unwrap_or(1) };
    runtime.queue_by_library(function, device, buffers, |stream| {
        let raw = ptr::with_exposed_provenance_mut(stream.handle);
        // SAFETY: plan and stream are alive.
        unsafe { plan.library.cufftSetStream(plan.raw, raw) }.map_err(|cause| failed(cause, key))?;
        // SAFETY: the plan is alive; the area has as many bytes as it asked for.
        unsafe { plan.library.cufftSetWorkArea(plan.raw, place(area)) }.map_err(|cause| failed(cause, key))?;
        // SAFETY: the tensors have as many numbers of these types as the plan was made for.
        let queued = unsafe { plan.library.cufftXtExec(plan.raw, place(input), place(out), direction) };
        queued.map_err(|cause| failed(cause, key))
    })
}

/// Where a tensor lies.
fn place(tensor: &Tensor) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(tensor.data_ptr()).unwrap_or(0))
}
