//! Whether NCCL is quicker than what is done here: measured where a program asks for it, kept, and asked for each call.
//!
//! **Invariant:** without a measurement NCCL is used only where it is named.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Instant;

use c10_core::locks::Mutex;
use c10_core::{DeviceArg, DeviceIndex, Runtime};

use super::{Pattern, Route, all_reduce_, broadcast_out, device_of, reduce, resolved, route};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::nccl::{self, Using};
use crate::report::synchronize;
use crate::tensor::Tensor;

/// What there is a choice for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Movement {
    /// [`super::broadcast`] and its like.
    Broadcast,
    /// [`super::reduce_add`] and its like.
    ReduceAdd,
    /// [`super::all_reduce_`].
    AllReduce,
}

/// What was measured: nanoseconds of a call on some devices.
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::comm;
///
/// let measured = comm::measure(&[0, 1], &[4096])?;
/// assert_eq!(measured.len(), 3, "a row for each movement");
/// assert!(measured.iter().all(|row| row.bytes == 4096 && row.nccl_ns > 0));
/// comm::forget_measurements();
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// What was done.
    pub movement: Movement,
    /// Bytes of a tensor.
    pub bytes: usize,
    /// Without NCCL.
    pub own_ns: u64,
    /// With NCCL.
    pub nccl_ns: u64,
}

/// Measurements of a runtime, by the devices.
#[derive(Debug, Default)]
struct Known(Mutex<BTreeMap<Vec<DeviceIndex>, Vec<Measurement>>>);

/// How often each call is measured; the quickest counts.
const ROUNDS: usize = 3;

/// Measures on some devices, for tensors of so many bytes, whether NCCL is quicker than copies and kernels of this module,
/// and keeps that: [`Route::Auto`] and [`Pattern::Auto`] go by the nearest size from then on, for calls on the same devices.
/// Sums that NCCL makes are added in another order. Waits for the devices, and needs memory for a few such tensors.
///
/// # Errors
/// There is no NCCL, a device does not exist or is named twice, there is not enough memory, or a device failed.
pub fn measure<D: DeviceArg + Clone>(devices: &[D], sizes: &[usize]) -> Result<Vec<Measurement>> {
    let devices = resolved(devices)?;
    let mut named = devices.clone();
    named.sort_unstable();
    let known = Runtime::with_current(|runtime| runtime.extension::<Known>());
    // What was measured before does not count now.
    known.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&named);
    let mut rows = Vec::new();
    for &bytes in sizes {
        let count = i64::try_from(bytes.div_ceil(4)).unwrap_or(i64::MAX);
        let zeros = |device: &DeviceIndex| Tensor::zeros(&[count], DType::F32, c10_core::Device::cuda(*device));
        let tensors = devices.iter().map(zeros).collect::<Result<Vec<Tensor>>>()?;
        let tensors: Vec<&Tensor> = tensors.iter().collect();
        let Some((first, rest)) = tensors.split_first() else { continue };
        let at = device_of(first).unwrap_or(0);
        let time = |run: &dyn Fn() -> Result<()>| quickest(&devices, run);
        for movement in [Movement::Broadcast, Movement::ReduceAdd, Movement::AllReduce] {
            let (own_ns, nccl_ns) = match movement {
                Movement::Broadcast => {
                    (time(&|| broadcast_out(first, rest))?, time(&|| nccl::broadcast(&tensors, 0, &Using::default()))?)
                }
                Movement::ReduceAdd => (
                    time(&|| reduce::reduce_here(&tensors, at).map(drop))?,
                    time(&|| reduce_by_nccl(&tensors, 0).map(drop))?,
                ),
                Movement::AllReduce => {
                    let own = time(&|| all_reduce_(&tensors, Pattern::Ring))?
                        .min(time(&|| all_reduce_(&tensors, Pattern::Tree))?);
                    (own, time(&|| all_reduce_(&tensors, Pattern::Nccl))?)
                }
            };
            rows.push(Measurement { movement, bytes, own_ns, nccl_ns });
        }
    }
    known.0.lock().unwrap_or_else(PoisonError::into_inner).insert(named, rows.clone());
    Ok(rows)
}

/// Forgets what was measured on the current runtime.
pub fn forget_measurements() {
    let known = Runtime::with_current(|runtime| runtime.extension::<Known>());
    known.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Nanoseconds of the quickest of some calls, until all devices are done. At least one.
fn quickest(devices: &[DeviceIndex], run: &dyn Fn() -> Result<()>) -> Result<u64> {
    let wait = || devices.iter().try_for_each(|&device| synchronize(device));
    run()?;
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        wait()?;
        let begin = Instant::now();
        run()?;
        wait()?;
        best = best.min(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(best.max(1))
}

/// Whether a call goes by NCCL: it is named, or was measured to be quicker for the nearest size. Tensors of one kind that
/// NCCL takes, on devices of their own, none of which captures.
pub(super) fn is_nccl(movement: Movement, tensors: &[&Tensor], is_named: bool) -> Result<bool> {
    if !is_named && (route() != Route::Auto || !was_quicker(movement, tensors)) {
        return Ok(false);
    }
    let first = tensors[0];
    let alike = |tensor: &&Tensor| {
        tensor.sizes() == first.sizes() && tensor.dtype() == first.dtype() && !tensor.is_conj() && !tensor.is_neg()
    };
    let sums = movement != Movement::Broadcast;
    let fits = tensors.len() > 1
        && first.numel() > 0
        && tensors.iter().all(alike)
        && !(sums && matches!(first.dtype(), DType::I16 | DType::Bool | DType::F8E4M3FN | DType::F8E5M2))
        && nccl::is_available(tensors);
    Ok(fits && !super::transfer::is_any_capturing(tensors.iter().filter_map(|tensor| device_of(tensor)))?)
}

fn was_quicker(movement: Movement, tensors: &[&Tensor]) -> bool {
    let known = Runtime::with_current(|runtime| runtime.extension::<Known>());
    let known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_empty() {
        return false;
    }
    let mut devices: Vec<DeviceIndex> = tensors.iter().filter_map(|tensor| device_of(tensor)).collect();
    devices.sort_unstable();
    let bytes = tensors[0].nbytes().max(1);
    let distance = |row: &&Measurement| row.bytes.max(1).ilog2().abs_diff(bytes.ilog2());
    let rows = known.get(&devices).into_iter().flatten().filter(|row| row.movement == movement);
    rows.min_by_key(distance).is_some_and(|row| row.nccl_ns < row.own_ns)
}

/// The sum of tensors on the device of one of them, by NCCL.
pub(super) fn reduce_by_nccl(tensors: &[&Tensor], root: usize) -> Result<Tensor> {
    let out = tensors[root].uninitialized_like()?;
    nccl::reduce(tensors, Some(&out), root, nccl::SUM, &Using::default())?;
    Ok(out)
}
