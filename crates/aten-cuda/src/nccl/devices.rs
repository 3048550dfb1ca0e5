//! Collectives over the devices of one process, with torch's names (`torch.cuda.nccl`): one tensor for each device.
//!
//! **Invariant:** communicators are kept for each list of devices that was asked for, as long as they work.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use c10_core::{DeviceIndex, Runtime, Stream};

use super::ReduceOp;
use super::asked::check_dense;
use super::communicator::Communicator;
use super::group::group;
use super::library::Kept;
use crate::base::error::Result;
use crate::base::nccl_error::NcclError;
use crate::tensor::Tensor;

/// Communicators of a runtime, by the devices of their ranks.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<BTreeMap<Vec<DeviceIndex>, Vec<Communicator>>>);

impl Cache {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Vec<DeviceIndex>, Vec<Communicator>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn clear(&self) {
        // They are dropped with the lock given back, as that calls the library.
        let gone = std::mem::take(&mut *self.all());
        drop(gone);
    }

    /// The communicators of a list of devices. Those that have failed say so when they are called, and are forgotten then.
    fn get(&self, devices: &[DeviceIndex]) -> Result<Vec<Communicator>> {
        let known = self.all().get(devices).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Communicator::init_all(devices)?;
        self.all().insert(devices.to_vec(), made.clone());
        Ok(made)
    }

    /// Forgets communicators, and with them what only some of their ranks were asked for.
    fn forget(&self, devices: &[DeviceIndex]) {
        // They are dropped with the lock given back, as that calls the library.
        let gone = self.all().remove(devices);
        drop(gone);
    }
}

/// What the functions of devices use instead of what they choose themselves.
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::nccl::{self, Using};
/// use aten_cuda::{DType, Tensor};
/// use c10_core::Stream;
///
/// let side = Stream::new(1, 0)?;
/// let tensors = [Tensor::ones(&[2], DType::F32, "cuda:0")?, Tensor::ones(&[2], DType::F32, "cuda:1")?];
/// side.wait_stream(&c10_core::Runtime::current().streams().current(1)?)?;
/// let using = Using { streams: &[None, Some(&side)], comms: &[] };
/// nccl::all_reduce(&[&tensors[0], &tensors[1]], None, nccl::SUM, &using)?;
/// side.synchronize()?;
/// assert_eq!(tensors[1].to_vec::<f32>()?, [2.0; 2]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Using<'a> {
    /// A stream for each tensor, or the current one of its device; none at all for all current ones (`streams`).
    pub streams: &'a [Option<&'a Stream>],
    /// A communicator for each tensor; none for those that are kept for the devices (`comms`).
    pub comms: &'a [Communicator],
}

impl Using<'_> {
    fn check(&self, inputs: usize) -> Result<()> {
        for (what, found) in [("streams", self.streams.len()), ("communicators", self.comms.len())] {
            if found != 0 && found != inputs {
                return Err(NcclError::Companions { what, found, inputs }.into());
            }
        }
        Ok(())
    }

    /// Runs for each tensor, with its communicator and on its stream, as one group.
    fn each(&self, inputs: &[&Tensor], run: impl Fn(usize, &Communicator) -> Result<()>) -> Result<()> {
        self.check(inputs.len())?;
        let devices: Vec<DeviceIndex> = inputs.iter().map(|input| input.device().index.unwrap_or(0)).collect();
        let kept = Runtime::with_current(|runtime| runtime.extension::<Kept>());
        let comms = if self.comms.is_empty() { kept.cache.get(&devices)? } else { self.comms.to_vec() };
        let on_stream = |index: usize| {
            let stream = self.streams.get(index).copied().flatten();
            if let Some(stream) = stream.filter(|stream| stream.device_index() != devices[index]) {
                let (input, output) = (devices[index], stream.device_index());
                return Err(NcclError::Devices { input, output }.into());
            }
            let _current = stream.map(Stream::guard);
            run(index, &comms[index])
        };
        let done = group(|| (0..inputs.len()).try_for_each(on_stream));
        if done.is_err() && self.comms.is_empty() {
            kept.cache.forget(&devices);
        }
        done
    }
}

/// Refuses inputs that do not fit each other.
fn check_inputs(inputs: &[&Tensor]) -> Result<()> {
    let first = inputs.first().ok_or(NcclError::NoInputs)?;
    for (index, input) in inputs.iter().enumerate() {
        check_dense(input, first.dtype())?;
        if input.numel() != first.numel() {
            return Err(NcclError::Sizes { one: first.numel(), other: input.numel() }.into());
        }
        if inputs[..index].iter().any(|other| other.device() == input.device()) {
            return Err(NcclError::SharedDevice { device: input.device().index.unwrap_or(0) }.into());
        }
    }
    Ok(())
}

/// As [`check_inputs`], with an output for each input.
fn check_all(inputs: &[&Tensor], outputs: &[&Tensor]) -> Result<()> {
    if inputs.len() != outputs.len() {
        return Err(NcclError::Lengths { inputs: inputs.len(), outputs: outputs.len() }.into());
    }
    check_inputs(inputs)?;
    inputs.iter().zip(outputs).try_for_each(|(input, output)| check_output(input, output))
}

fn check_output(input: &Tensor, output: &Tensor) -> Result<()> {
    check_dense(output, input.dtype())?;
    let index = |tensor: &Tensor| tensor.device().index.unwrap_or(0);
    if input.device() != output.device() {
        return Err(NcclError::Devices { input: index(input), output: index(output) }.into());
    }
    Ok(())
}

/// Combines tensors of several devices and gives each device the result (`torch.cuda.nccl.all_reduce`): in the outputs, or
/// in the inputs themselves. Queued on the current streams of the devices, or those of `using`.
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::{DType, Tensor, nccl};
///
/// let (one, two) = (Tensor::full(&[2], 3, DType::I64, "cuda:0")?, Tensor::full(&[2], 4, DType::I64, "cuda:1")?);
/// nccl::all_reduce(&[&one, &two], None, nccl::SUM, &nccl::Using::default())?;
/// assert_eq!((one.to_vec::<i64>()?, two.to_vec::<i64>()?), (vec![7; 2], vec![7; 2]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There are no inputs; outputs, streams or communicators are not as many; tensors are on the host, have gaps, different
/// dtypes or sizes, or share a device; the dtype cannot be combined so; there is no NCCL, or its error; the driver's error.
pub fn all_reduce(inputs: &[&Tensor], outputs: Option<&[&Tensor]>, op: ReduceOp, using: &Using<'_>) -> Result<()> {
    let outputs = outputs.unwrap_or(inputs);
    check_all(inputs, outputs)?;
    using.each(inputs, |index, comm| comm.all_reduce(inputs[index], outputs[index], op))
}

/// Combines tensors of several devices and gives the result to one (`torch.cuda.nccl.reduce`): to `output`, which is on the
/// device of `inputs[root]`, or to that input itself.
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::{DType, Tensor, nccl};
///
/// let (one, two) = (Tensor::full(&[2], 3, DType::I64, "cuda:0")?, Tensor::full(&[2], 4, DType::I64, "cuda:1")?);
/// nccl::reduce(&[&one, &two], None, 1, nccl::ReduceOp::Max, &nccl::Using::default())?;
/// assert_eq!((one.to_vec::<i64>()?, two.to_vec::<i64>()?), (vec![3; 2], vec![4; 2]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// As [`all_reduce`], or there is no such root.
pub fn reduce(inputs: &[&Tensor], output: Option<&Tensor>, root: usize, op: ReduceOp, using: &Using<'_>) -> Result<()> {
    check_inputs(inputs)?;
    let of_root = inputs.get(root).ok_or(NcclError::Rank { name: "root", rank: root, ranks: inputs.len() })?;
    if let Some(output) = output {
        check_output(of_root, output)?;
    }
    using.each(inputs, |index, comm| comm.reduce(inputs[index], output.filter(|_| index == root), root, op))
}

/// Gives the devices of all tensors what `inputs[root]` holds, in place (`torch.cuda.nccl.broadcast`).
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::{DType, Tensor, nccl};
///
/// let (one, two) = (Tensor::full(&[2], 3, DType::I64, "cuda:0")?, Tensor::full(&[2], 4, DType::I64, "cuda:1")?);
/// nccl::broadcast(&[&one, &two], 1, &nccl::Using::default())?;
/// assert_eq!(one.to_vec::<i64>()?, [4; 2]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// As [`all_reduce`], or there is no such root.
pub fn broadcast(inputs: &[&Tensor], root: usize, using: &Using<'_>) -> Result<()> {
    check_inputs(inputs)?;
    using.each(inputs, |index, comm| comm.broadcast(None, inputs[index], root))
}

/// Gives the devices of all tensors all of them, one after another (`torch.cuda.nccl.all_gather`).
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::{DType, Tensor, nccl};
///
/// let (one, two) = (Tensor::full(&[1], 3, DType::I64, "cuda:0")?, Tensor::full(&[1], 4, DType::I64, "cuda:1")?);
/// let out = [Tensor::zeros(&[2], DType::I64, "cuda:0")?, Tensor::zeros(&[2], DType::I64, "cuda:1")?];
/// nccl::all_gather(&[&one, &two], &[&out[0], &out[1]], &nccl::Using::default())?;
/// assert_eq!(out[0].to_vec::<i64>()?, [3, 4]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// As [`all_reduce`], or an output has not as many elements as all inputs together.
pub fn all_gather(inputs: &[&Tensor], outputs: &[&Tensor], using: &Using<'_>) -> Result<()> {
    check_all(inputs, outputs)?;
    using.each(inputs, |index, comm| comm.all_gather(inputs[index], outputs[index]))
}

/// Combines tensors of several devices and gives each device its part of the result (`torch.cuda.nccl.reduce_scatter`).
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::{DType, Tensor, nccl};
///
/// let input = |device: &str| Tensor::arange(0, 4, 1, Some(DType::I64), device);
/// let (one, two) = (input("cuda:0")?, input("cuda:1")?);
/// let out = [Tensor::zeros(&[2], DType::I64, "cuda:0")?, Tensor::zeros(&[2], DType::I64, "cuda:1")?];
/// nccl::reduce_scatter(&[&one, &two], &[&out[0], &out[1]], nccl::SUM, &nccl::Using::default())?;
/// assert_eq!((out[0].to_vec::<i64>()?, out[1].to_vec::<i64>()?), (vec![0, 2], vec![4, 6]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// As [`all_reduce`], or an output has not its part of an input's elements.
pub fn reduce_scatter(inputs: &[&Tensor], outputs: &[&Tensor], op: ReduceOp, using: &Using<'_>) -> Result<()> {
    check_all(inputs, outputs)?;
    using.each(inputs, |index, comm| comm.reduce_scatter(inputs[index], outputs[index], op))
}
