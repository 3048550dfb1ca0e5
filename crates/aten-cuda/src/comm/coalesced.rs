//! Many small tensors at once: brought together by one kernel, moved or added as one, and cut up again as views.
//!
//! Tensors of one dtype are brought together until their bytes reach a limit. A broadcast counts the tensor that reaches it
//! with those before; a sum begins anew with it. Both are torch's rules. Each tensor begins at a multiple of 16 bytes.
//!
//! **Invariant:** results on other devices lie contiguously and share memory with nothing that the caller has.

use c10_core::{Device, DeviceArg, DeviceIndex, Runtime};

use super::broadcast::broadcast_to;
use super::reduce::reduce_to;
use super::{as_real, device_of, not_negative, resolved};
use crate::base::comm_error::CommError;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::{Dims, contiguous_strides};
use crate::launch;
use crate::launch::library::comm as kernel;
use crate::tensor::{Context, Tensor, empty_strided};

/// The tensors on each of `devices`: a list for each device, in the tensors' order
/// (`torch.cuda.comm.broadcast_coalesced`). All are on the first device, where the results are the tensors themselves.
/// Elsewhere they are contiguous copies; tensors of one dtype are brought together by one kernel for every 320 of them, in
/// memory of about `buffer_size` bytes ([`super::BUFFER_SIZE`]), which travels as one. Such copies share memory with each
/// other, and it lives as long as one of them.
///
/// Queued on the current streams of the devices. Complex tensors are broadcast as real ones with a last dimension of two.
/// Tensors without elements keep their sizes, which torch replaces by `[0]`.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let tensors = [Tensor::ones(&[3], DType::F32, "cuda:0")?, Tensor::full(&[2, 2], 5, DType::I32, "cuda:0")?];
/// let copies = comm::broadcast_coalesced(&[&tensors[0], &tensors[1]], &[0, 1], comm::BUFFER_SIZE)?;
/// assert_eq!(copies[0][1].data_ptr(), tensors[1].data_ptr());
/// assert_eq!(copies[1][1].to_vec::<i32>()?, [5; 4]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There are no devices, a number is below zero or names none, a tensor is not on the first device or is a conjugate, there
/// is not enough memory, or a device failed.
pub fn broadcast_coalesced<D: DeviceArg + Clone>(
    tensors: &[&Tensor],
    devices: &[D],
    buffer_size: usize,
) -> Result<Vec<Vec<Tensor>>> {
    let devices = resolved(devices)?;
    let &first = devices.first().ok_or(CommError::NoDevices)?;
    devices.iter().try_for_each(|&device| not_negative(device).map(drop))?;
    let tensors = tensors.iter().map(|tensor| as_real(tensor)).collect::<Result<Vec<Tensor>>>()?;
    if tensors.iter().any(|tensor| device_of(tensor) != Some(first)) {
        return Err(CommError::NotOnFirst { first }.into());
    }
    let mut results: Vec<Vec<Option<Tensor>>> = vec![vec![None; tensors.len()]; devices.len() - 1];
    let mut run = || {
        for chunk in chunks(&tensors, buffer_size, Limit::ReachedWith) {
            let members: Vec<&Tensor> = chunk.iter().map(|&at| &tensors[at]).collect();
            let flat = Flat::of(&members, first)?;
            for (results, whole) in results.iter_mut().zip(broadcast_to(&flat.whole, &devices[1..])?) {
                // Another device has a copy, and the first one named again the very memory.
                for (&at, part) in chunk.iter().zip(flat.parts(&whole)) {
                    results[at] = Some(part?);
                }
            }
        }
        Ok(())
    };
    run().of("broadcast_coalesced", &tensors.iter().collect::<Vec<_>>())?;
    let others = results.into_iter().map(|of_device| of_device.into_iter().flatten().collect());
    Ok([tensors.clone()].into_iter().chain(others).collect())
}

/// The sums of tensors of several devices, each with those at its place in the other lists, on the device of number
/// `destination`, the current one for `None` (`torch.cuda.comm.reduce_add_coalesced`). `inputs` has a list for each device,
/// all in the same order. The tensors of a list and one dtype are brought together as by [`broadcast_coalesced`], and added
/// as one; the results are contiguous views of that sum.
///
/// Queued as by [`super::reduce_add`].
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let on = |device: &str| -> Result<[Tensor; 2], aten_cuda::Error> {
///     Ok([Tensor::ones(&[3], DType::F32, device)?, Tensor::full(&[2, 2], 5, DType::I64, device)?])
/// };
/// let (one, two) = (on("cuda:0")?, on("cuda:1")?);
/// let sums = comm::reduce_add_coalesced(&[&[&one[0], &one[1]], &[&two[0], &two[1]]], 0, comm::BUFFER_SIZE)?;
/// assert_eq!((sums[0].to_vec::<f32>()?, sums[1].to_vec::<i64>()?), (vec![2.0; 3], vec![10; 4]));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There are no lists, tensors at one place have different sizes or dtypes, a list has tensors of several devices or of the
/// host, none is on the destination, there is not enough memory, or a device failed.
pub fn reduce_add_coalesced(
    inputs: &[&[&Tensor]],
    destination: impl DeviceArg,
    buffer_size: usize,
) -> Result<Vec<Tensor>> {
    let destination = Runtime::with_current(|runtime| destination.resolve(runtime))?;
    // As in torch, lists are as long as the shortest.
    let count = inputs.iter().map(|list| list.len()).min().ok_or(CommError::NoInputs)?;
    check_alike(inputs, count)?;
    let first: Vec<Tensor> = inputs[0][..count].iter().map(|&tensor| tensor.clone()).collect();
    let mut results: Vec<Option<Tensor>> = vec![None; count];
    let mut run = || {
        for chunk in chunks(&first, buffer_size, Limit::ReachedBefore) {
            let flats = inputs.iter().map(|list| {
                let members: Vec<&Tensor> = chunk.iter().map(|&at| list[at]).collect();
                Flat::of(&members, device_of(members[0]).unwrap_or(0))
            });
            let flats = flats.collect::<Result<Vec<Flat>>>()?;
            let sum = reduce_to(&flats.iter().map(|flat| &flat.whole).collect::<Vec<_>>(), destination)?;
            for (&at, part) in chunk.iter().zip(flats[0].parts(&sum)) {
                results[at] = Some(part?);
            }
        }
        Ok(())
    };
    run().of("reduce_add_coalesced", &first.iter().collect::<Vec<_>>())?;
    Ok(results.into_iter().flatten().collect())
}

/// Checks that tensors at one place have the same sizes and dtype, and those of a list one CUDA device.
fn check_alike(inputs: &[&[&Tensor]], count: usize) -> Result<()> {
    for list in inputs {
        launch::common_device(list[..count].iter().copied())?;
    }
    for at in 0..count {
        let first = inputs[0][at];
        for (index, list) in inputs.iter().enumerate() {
            if device_of(list[at]).is_none() {
                return Err(CommError::InputOnHost.into());
            }
            if list[at].sizes() != first.sizes() || list[at].dtype() != first.dtype() {
                let (found, expected) = (list[at].sizes().to_vec(), first.sizes().to_vec());
                return Err(CommError::InputSize { index, found, expected }.into());
            }
        }
    }
    Ok(())
}

/// When tensors that are brought together are enough.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// When the last one has reached the limit.
    ReachedWith,
    /// Before the one that would pass the limit.
    ReachedBefore,
}

/// Which tensors travel together: those of one dtype, in their order, up to a limit of bytes.
fn chunks(tensors: &[Tensor], limit: usize, rule: Limit) -> Vec<Vec<usize>> {
    let mut open: Vec<(DType, Vec<usize>, usize)> = Vec::new();
    let mut done = Vec::new();
    for (at, tensor) in tensors.iter().enumerate() {
        let found = open.iter().position(|(dtype, ..)| *dtype == tensor.dtype());
        let place = found.unwrap_or_else(|| {
            open.push((tensor.dtype(), Vec::new(), 0));
            open.len() - 1
        });
        let (_, members, bytes) = &mut open[place];
        if rule == Limit::ReachedBefore && *bytes > 0 && *bytes + tensor.nbytes() > limit {
            done.push(std::mem::take(members));
            *bytes = 0;
        }
        members.push(at);
        *bytes += tensor.nbytes();
        if rule == Limit::ReachedWith && *bytes >= limit {
            done.push(std::mem::take(members));
            *bytes = 0;
        }
    }
    done.extend(open.into_iter().map(|(_, members, _)| members).filter(|members| !members.is_empty()));
    done
}

/// Tensors of one dtype brought together.
struct Flat {
    /// One dimension, each tensor from a multiple of 16 bytes on.
    whole: Tensor,
    /// The sizes of each, and the element that it begins at.
    layout: Vec<(Dims, i64)>,
}

impl Flat {
    /// Brings tensors of a device together. A single one is not copied where it lies contiguously.
    fn of(members: &[&Tensor], device: DeviceIndex) -> Result<Self> {
        let (dtype, mut start) = (members[0].dtype(), 0);
        let layout = members.iter().map(|member| {
            let place = (Dims::from_slice(member.sizes()), i64::try_from(start / dtype.itemsize()).unwrap_or(i64::MAX));
            start += kernel::room(member);
            place
        });
        let layout = layout.collect();
        if let [single] = members {
            return Ok(Self { whole: single.packed()?.flatten()?, layout });
        }
        let count = i64::try_from(start / dtype.itemsize()).unwrap_or(i64::MAX);
        let whole = empty_strided(&[count], &[1], dtype, Device::cuda(device))?;
        write(members, &whole, device)?;
        Ok(Self { whole, layout })
    }

    /// Returns the tensors as views into `whole`, which has this layout.
    fn parts(&self, whole: &Tensor) -> impl Iterator<Item = Result<Tensor>> {
        self.layout.iter().map(move |(sizes, start)| {
            let (strides, offset) = (contiguous_strides(sizes), whole.storage_offset() + start);
            whole.with_layout(sizes.clone(), strides, offset)
        })
    }
}

/// Bytes that one launch writes at most; its table has places of 32 bits.
const MOST_BYTES: usize = 1 << 31;

/// Writes the tensors one after another to `whole`.
fn write(members: &[&Tensor], whole: &Tensor, device: DeviceIndex) -> Result<()> {
    let packed = members.iter().filter(|member| member.nbytes() > 0).map(|member| member.packed());
    let packed = packed.collect::<Result<Vec<Tensor>>>()?;
    let (mut first, mut start) = (0, 0);
    while first < packed.len() {
        let (mut end, mut bytes) = (first, 0);
        while end < packed.len()
            && end - first < kernel::TENSORS
            && (end == first || bytes + kernel::room(&packed[end]) <= MOST_BYTES)
        {
            bytes += kernel::room(&packed[end]);
            end += 1;
        }
        let count = |bytes: usize| i64::try_from(bytes / whole.dtype().itemsize()).unwrap_or(i64::MAX);
        if bytes > MOST_BYTES {
            // A tensor this large is worth a copy of its own.
            whole.narrow(0, count(start), packed[first].numel())?.copy_(&packed[first].flatten()?)?;
        } else {
            let place = whole.narrow(0, count(start), count(bytes))?;
            kernel::flatten(&packed[first..end].iter().collect::<Vec<_>>(), &place, device)?;
        }
        (first, start) = (end, start + bytes);
    }
    whole.storage().note_write();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_end_with_or_before_the_tensor_that_reaches_the_limit() -> Result<()> {
        let of = |bytes: i64, dtype| Tensor::zeros(&[bytes / dtype_bytes(dtype)], dtype, "cpu");
        let tensors = [
            of(8, DType::F32)?,
            of(8, DType::I64)?,
            of(8, DType::F32)?,
            of(0, DType::F32)?,
            of(40, DType::F32)?,
            of(8, DType::I64)?,
        ];
        assert_eq!(chunks(&tensors, 16, Limit::ReachedWith), [vec![0, 2], vec![3, 4], vec![1, 5]]);
        assert_eq!(chunks(&tensors, 17, Limit::ReachedWith), [vec![0, 2, 3, 4], vec![1, 5]]);
        assert_eq!(chunks(&tensors, 16, Limit::ReachedBefore), [vec![0, 2, 3], vec![4], vec![1, 5]]);
        assert_eq!(chunks(&tensors, 0, Limit::ReachedBefore), [vec![0], vec![2], vec![1], vec![3, 4], vec![5]]);
        assert_eq!(chunks(&[], 16, Limit::ReachedWith), Vec::<Vec<usize>>::new());
        Ok(())
    }

    fn dtype_bytes(dtype: DType) -> i64 {
        i64::try_from(dtype.itemsize()).unwrap_or(1)
    }
}
