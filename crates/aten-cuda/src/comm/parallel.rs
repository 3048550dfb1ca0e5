//! Values of Rust on several devices: what data-parallel programs do around `broadcast`, `scatter` and `gather`.
//!
//! A program says of its types which tensors are in them ([`Scatterable`], [`Gatherable`], [`Replicable`]); tensors, numbers,
//! texts, lists, maps, options and tuples are known.

use std::collections::BTreeMap;
use std::thread;

use c10_core::{DeviceArg, DeviceIndex, Runtime};

use super::transfer::current;
use super::{BUFFER_SIZE, GatherDestination, broadcast_coalesced, gather, resolved, scatter};
use crate::autocast::{Autocast, AutocastGuard, AutocastState, autocast};
use crate::base::comm_error::CommError;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

/// A value that is cut up for several devices: its tensors along a dimension, everything else as it is
/// (`torch.nn.parallel.scatter_gather.scatter`).
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::comm::Scatterable;
/// use aten_cuda::{DType, Tensor};
///
/// let parts = (Tensor::arange(0, 4, 1, None, "cpu")?, "same".to_owned()).scatter_to(&[0, 1], 0)?;
/// assert_eq!((parts[1].0.to_vec::<i64>()?, parts[1].1.as_str()), (vec![2, 3], "same"));
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub trait Scatterable: Sized {
    /// A value for each device, or fewer where the tensors give fewer chunks.
    ///
    /// # Errors
    /// As for [`scatter`].
    fn scatter_to(&self, devices: &[DeviceIndex], dim: i64) -> Result<Vec<Self>>;
}

/// A value that is joined from those of several devices: its tensors along a dimension (`torch.nn.parallel.gather`).
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::comm::Gatherable;
/// use aten_cuda::{DType, Tensor};
///
/// // Numbers of each device become a list of one dimension.
/// let losses = [Tensor::full(&[], 1, DType::F32, "cuda:0")?, Tensor::full(&[], 2, DType::F32, "cuda:1")?];
/// assert_eq!(Tensor::gather_from(losses.to_vec(), 0.into(), 0)?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub trait Gatherable: Sized {
    /// The value that those of all devices give together, on the device of number `destination`, the current one for `None`.
    ///
    /// # Errors
    /// As for [`gather`], or the values do not have the same number of elements.
    fn gather_from(values: Vec<Self>, destination: Option<DeviceIndex>, dim: i64) -> Result<Self>;
}

impl Scatterable for Tensor {
    fn scatter_to(&self, devices: &[DeviceIndex], dim: i64) -> Result<Vec<Self>> {
        let parts = scatter(self, devices, None, dim, &[])?;
        // Complex tensors travel as real ones, and are complex again here.
        if self.dtype().is_complex() { parts.iter().map(Self::view_as_complex).collect() } else { Ok(parts) }
    }
}

impl Gatherable for Tensor {
    fn gather_from(values: Vec<Self>, destination: Option<DeviceIndex>, dim: i64) -> Result<Self> {
        let is_complex = values.first().is_some_and(|value| value.dtype().is_complex());
        let are_numbers = !values.is_empty() && values.iter().all(|value| value.dim() == 0);
        let values = if are_numbers && dim == 0 {
            c10_core::warn(
                "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze and \
                 return a vector.",
            );
            values.iter().map(|value| value.view(&[1])).collect::<Result<Vec<Self>>>()?
        } else {
            values
        };
        let joined = gather(&values.iter().collect::<Vec<_>>(), dim, destination.gather_device()?)?;
        if is_complex { joined.view_as_complex() } else { Ok(joined) }
    }
}

/// Values that every device has the same of; the first one's stand for all when they are joined.
macro_rules! same_everywhere {
    ($($of:ty)*) => {$(
        impl Scatterable for $of {
            fn scatter_to(&self, devices: &[DeviceIndex], _dim: i64) -> Result<Vec<Self>> {
                Ok(vec![self.clone(); devices.len()])
            }
        }

        impl Gatherable for $of {
            fn gather_from(values: Vec<Self>, _destination: Option<DeviceIndex>, _dim: i64) -> Result<Self> {
                values.into_iter().next().ok_or_else(|| CommError::GatherFromNone.into())
            }
        }
    )*};
}
same_everywhere! { () bool i32 i64 u32 u64 usize f32 f64 String }

impl<T: Scatterable> Scatterable for Vec<T> {
    fn scatter_to(&self, devices: &[DeviceIndex], dim: i64) -> Result<Vec<Self>> {
        if self.is_empty() {
            return Ok(devices.iter().map(|_| Self::new()).collect());
        }
        let columns = self.iter().map(|value| value.scatter_to(devices, dim)).collect::<Result<Vec<_>>>()?;
        Ok(rows(columns))
    }
}

impl<T: Gatherable> Gatherable for Vec<T> {
    fn gather_from(values: Vec<Self>, destination: Option<DeviceIndex>, dim: i64) -> Result<Self> {
        let length = values.first().map_or(0, Self::len);
        if values.iter().any(|list| list.len() != length) {
            return Err(CommError::Uneven { what: "lists" }.into());
        }
        rows(values).into_iter().map(|of_place| T::gather_from(of_place, destination, dim)).collect()
    }
}

/// What lies at each place of several lists, as far as the shortest goes.
fn rows<T>(columns: Vec<Vec<T>>) -> Vec<Vec<T>> {
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    std::iter::from_fn(|| {
        let row: Vec<T> = columns.iter_mut().map_while(Iterator::next).collect();
        (!row.is_empty() && row.len() == columns.len()).then_some(row)
    })
    .collect()
}

impl<T: Scatterable> Scatterable for Option<T> {
    fn scatter_to(&self, devices: &[DeviceIndex], dim: i64) -> Result<Vec<Self>> {
        match self {
            Some(value) => Ok(value.scatter_to(devices, dim)?.into_iter().map(Some).collect()),
            None => Ok(devices.iter().map(|_| None).collect()),
        }
    }
}

impl<T: Gatherable> Gatherable for Option<T> {
    /// Nothing, where the first has nothing, as in torch.
    fn gather_from(values: Vec<Self>, destination: Option<DeviceIndex>, dim: i64) -> Result<Self> {
        if values.first().is_none_or(Self::is_none) {
            return Ok(None);
        }
        let count = values.len();
        let values: Vec<T> = values.into_iter().flatten().collect();
        if values.len() != count {
            return Err(CommError::Uneven { what: "options" }.into());
        }
        T::gather_from(values, destination, dim).map(Some)
    }
}

impl<K: Ord + Clone, T: Scatterable> Scatterable for BTreeMap<K, T> {
    fn scatter_to(&self, devices: &[DeviceIndex], dim: i64) -> Result<Vec<Self>> {
        if self.is_empty() {
            return Ok(devices.iter().map(|_| Self::new()).collect());
        }
        let columns = self.values().map(|value| value.scatter_to(devices, dim)).collect::<Result<Vec<_>>>()?;
        Ok(rows(columns).into_iter().map(|row| self.keys().cloned().zip(row).collect()).collect())
    }
}

impl<K: Ord + Clone, T: Gatherable> Gatherable for BTreeMap<K, T> {
    fn gather_from(values: Vec<Self>, destination: Option<DeviceIndex>, dim: i64) -> Result<Self> {
        let keys: Vec<K> = values.first().map(|first| first.keys().cloned().collect()).unwrap_or_default();
        if values.iter().any(|map| !map.keys().eq(keys.iter())) {
            return Err(CommError::Uneven { what: "dicts" }.into());
        }
        let lists = values.into_iter().map(|map| map.into_values().collect()).collect();
        Ok(keys.into_iter().zip(Vec::gather_from(lists, destination, dim)?).collect())
    }
}

macro_rules! tuples {
    ($($name:ident $place:tt),*) => {
        impl<$($name: Scatterable),*> Scatterable for ($($name,)*) {
            fn scatter_to(&self, devices: &[DeviceIndex], dim: i64) -> Result<Vec<Self>> {
                let mut columns = ($(self.$place.scatter_to(devices, dim)?.into_iter(),)*);
                Ok(std::iter::from_fn(|| Some(($(columns.$place.next()?,)*))).collect())
            }
        }

        impl<$($name: Gatherable),*> Gatherable for ($($name,)*) {
            fn gather_from(values: Vec<Self>, destination: Option<DeviceIndex>, dim: i64) -> Result<Self> {
                let mut columns = ($(Vec::<$name>::new(),)*);
                for value in values {
                    $(columns.$place.push(value.$place);)*
                }
                Ok(($($name::gather_from(columns.$place, destination, dim)?,)*))
            }
        }
    };
}
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);

/// Cuts a value up for several devices, computes with each part there, and joins the results
/// (`torch.nn.parallel.scatter_gather` around a function). `run` is called once for each part, one after another on the
/// calling thread, with the part's device as the current one. The parts are cut along `dim`, the results joined along it on
/// the device of number `destination`, the current one for `None`.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let input = Tensor::arange(0, 6, 1, Some(DType::F32), "cuda:0")?;
/// let doubled = comm::scatter_gather(&input, &[0, 1], None, 0, |part: &Tensor, _device| part.mul(2))?;
/// assert_eq!(doubled.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// As for [`scatter`] and [`gather`], or that of `run`.
pub fn scatter_gather<T: Scatterable, R: Gatherable, D: DeviceArg + Clone>(
    value: &T,
    devices: &[D],
    destination: Option<DeviceIndex>,
    dim: i64,
    mut run: impl FnMut(&T, DeviceIndex) -> Result<R>,
) -> Result<R> {
    let devices = resolved(devices)?;
    let parts = value.scatter_to(&devices, dim)?;
    let results = parts.iter().zip(&devices).map(|(part, &device)| {
        let _current = current(device)?.guard();
        run(part, device)
    });
    R::gather_from(results.collect::<Result<Vec<R>>>()?, destination, dim)
}

/// A value with tensors that can be had on other devices, such as a module with its parameters.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::comm::{self, Replicable};
/// use aten_cuda::{DType, Tensor};
///
/// struct Linear {
///     weight: Tensor,
///     bias: Tensor,
/// }
/// impl Replicable for Linear {
///     fn tensors(&self) -> Vec<&Tensor> {
///         vec![&self.weight, &self.bias]
///     }
///     fn with_tensors(&self, tensors: Vec<Tensor>) -> Self {
///         let [weight, bias] = tensors.try_into().expect("there are two");
///         Self { weight, bias }
///     }
/// }
/// let linear = Linear { weight: Tensor::ones(&[2, 2], DType::F32, "cuda")?, bias: Tensor::ones(&[2], DType::F32, "cuda")? };
/// let replicas = comm::replicate(&linear, &[0, 1])?;
/// assert_eq!(replicas[1].bias.device().to_string(), "cuda:1");
/// # Ok::<(), aten_cuda::Error>(())
/// ```
pub trait Replicable: Sized {
    /// The tensors, in an order of the type's own.
    fn tensors(&self) -> Vec<&Tensor>;

    /// The value with other tensors, as many and in the same order.
    #[must_use]
    fn with_tensors(&self, tensors: Vec<Tensor>) -> Self;
}

/// The value on each of `devices`, the first of which its tensors are on (`torch.nn.parallel.replicate`): by
/// [`broadcast_coalesced`]. The first replica has the tensors themselves. Complex tensors stay complex.
///
/// # Errors
/// As for [`broadcast_coalesced`].
pub fn replicate<T: Replicable, D: DeviceArg + Clone>(value: &T, devices: &[D]) -> Result<Vec<T>> {
    let tensors = value.tensors();
    let of_devices = broadcast_coalesced(&tensors, devices, BUFFER_SIZE)?;
    let rebuilt = of_devices.into_iter().map(|copies| {
        let complex_again = |(copy, source): (Tensor, &&Tensor)| {
            if source.dtype().is_complex() { copy.view_as_complex() } else { Ok(copy) }
        };
        Ok(value.with_tensors(copies.into_iter().zip(&tensors).map(complex_again).collect::<Result<Vec<Tensor>>>()?))
    });
    rebuilt.collect()
}

/// Computes with each replica and its input on its device, all at once, each on a thread of its own
/// (`torch.nn.parallel.parallel_apply`). A thread has the caller's runtime, the device and the caller's current stream of it
/// as the current ones, and the caller's autocast. A single replica is computed on the calling thread. The results come in
/// the replicas' order, and so does the first error.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use aten_cuda::{DType, Tensor, comm};
///
/// let input = Tensor::arange(0, 4, 1, Some(DType::F32), "cuda:0")?;
/// let parts = comm::scatter(&input, &[0, 1], None, 0, &[])?;
/// let factors = comm::broadcast(&Tensor::full(&[], 3, DType::F32, "cuda:0")?, &[0, 1])?;
/// let products = comm::parallel_apply(&factors, parts, &[0, 1], |factor, part| part.mul(factor))?;
/// assert_eq!(comm::gather(&[&products[0], &products[1]], 0, 0)?.to_vec::<f32>()?, [0.0, 3.0, 6.0, 9.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// There are more or fewer inputs or devices than replicas, or that of `run`.
///
/// # Panics
/// `run` panics.
pub fn parallel_apply<M: Sync, T: Send, R: Send, D: DeviceArg + Clone>(
    replicas: &[M],
    inputs: Vec<T>,
    devices: &[D],
    run: impl Fn(&M, T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    if replicas.len() != inputs.len() || replicas.len() != devices.len() {
        let (modules, inputs, devices) = (replicas.len(), inputs.len(), devices.len());
        return Err(CommError::ParallelCounts { modules, inputs, devices }.into());
    }
    let streams = resolved(devices)?.into_iter().map(current).collect::<Result<Vec<_>>>()?;
    let jobs = replicas.iter().zip(inputs).zip(&streams);
    if replicas.len() == 1 {
        return jobs
            .map(|((replica, input), stream)| {
                let _current = stream.guard();
                run(replica, input)
            })
            .collect();
    }
    let (runtime, state, run) = (Runtime::current(), AutocastState::current(), &run);
    thread::scope(|scope| {
        let threads: Vec<_> = jobs
            .map(|((replica, input), stream)| {
                let runtime = runtime.clone();
                scope.spawn(move || {
                    let (_runtime, _current) = (runtime.bind(), stream.guard());
                    let _regions = [region("cuda", state.cuda, state)?, region("cpu", state.cpu, state)?];
                    run(replica, input)
                })
            })
            .collect();
        let joined =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}

/// A region of autocast as another thread has it.
fn region(kind: &str, dtype: Option<DType>, state: AutocastState) -> Result<Option<AutocastGuard>> {
    let options = |dtype| Autocast { dtype: Some(dtype), enabled: true, cache_enabled: Some(state.cache_enabled) };
    dtype.map(|dtype| autocast(kind, options(dtype))).transpose()
}
