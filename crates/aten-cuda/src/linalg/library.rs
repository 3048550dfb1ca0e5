//! cuSOLVER: where it comes from, its handles, and the calls.
//!
//! A runtime has one handle for each device, which a call has to itself while it queues its work, and which is bound to the
//! current stream each time. Workspaces are tensors, so the caching allocator keeps them until the stream is done with them.
//!
//! The library takes other ways to a result on one stream than on another, or where a handle is at work on several. While
//! deterministic algorithms are used, a second handle serves, whose work is on the device's default stream alone.
//!
//! # Safety
//! The library reads and writes matrices of the sizes that it is given: those of packed tensors, which are contiguous. The
//! storages are handed to the runtime, which orders their use. A handle is alive as long as its runtime.
#![expect(unsafe_code, reason = "calls of cuSOLVER")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use c10_core::{DeviceIndex, MemoryAccess, PuttingOff, Runtime, host_memory};
use cuda_sys::cublas::types::{cuComplex, cuDoubleComplex, cublasFillMode_t, cublasOperation_t, cudaDataType_t};
use cuda_sys::cusolver::types::cusolverDnHandle_t;
use cuda_sys::{Cusolver, CusolverError};

use super::{Packed, real_of};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::linalg_error::LinalgError;
use crate::blas::Slot;
use crate::deterministic;
use crate::launch::record;
use crate::tensor::Tensor;

/// What a runtime keeps for cuSOLVER.
#[derive(Debug, Default)]
struct Solver {
    library: Slot<Cusolver>,
    handles: Mutex<Handles>,
}

/// For each device the handle for all streams and that for the default stream, as the second half of the key says.
type Handles = BTreeMap<(DeviceIndex, bool), Handle>;

/// A handle, as an address, and the library that made it.
#[derive(Clone, Debug)]
struct Handle {
    raw: usize,
    library: Arc<Cusolver>,
}

impl Handle {
    fn raw(&self) -> cusolverDnHandle_t {
        ptr::with_exposed_provenance_mut(self.raw)
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        for handle in std::mem::take(self.handles.get_mut().unwrap_or_else(PoisonError::into_inner)).into_values() {
            // SAFETY: made by this library; without its runtime nobody uses it any more. An error cannot be returned here.
            let _ = unsafe { handle.library.cusolverDnDestroy(handle.raw()) };
        }
    }
}

/// Has a runtime use this library from now on.
pub(super) fn set(runtime: &Runtime, cusolver: Option<Cusolver>) {
    let solver = runtime.extension::<Solver>();
    solver.library.set(cusolver);
    let old = std::mem::take(&mut *handles(&solver));
    for handle in old.into_values() {
        // SAFETY: as when the runtime goes.
        let _ = unsafe { handle.library.cusolverDnDestroy(handle.raw()) };
    }
}

/// The library of a runtime, which is looked for where that was not done; else why it is not there.
pub(super) fn find(runtime: &Runtime) -> std::result::Result<Arc<Cusolver>, String> {
    let solver = runtime.extension::<Solver>();
    solver.library.find(runtime, Cusolver::load, "libcusolver.so", Cusolver::load_from)
}

fn handles(solver: &Solver) -> std::sync::MutexGuard<'_, Handles> {
    solver.handles.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(cause: CusolverError, arguments: String) -> Error {
    LinalgError::Solver { cause, arguments }.into()
}

/// What a call queues with: the library, its handle, and what failed is told with.
struct Calling<'a> {
    library: &'a Cusolver,
    handle: cusolverDnHandle_t,
}

/// Queues work in the order of the current stream of the tensors' device.
fn queue(
    operation: &'static str,
    function: &'static str,
    tensors: &[&Tensor],
    body: impl FnOnce(&Calling<'_>) -> Result<()>,
) -> Result<()> {
    let device = tensors[0].device().cuda_index()?.unwrap_or(DeviceIndex(0));
    if !deterministic::are_deterministic_algorithms_enabled() {
        return queue_here(operation, function, (device, false), tensors, body);
    }
    let (current, default) = Runtime::with_current(|runtime| {
        Ok::<_, Error>((runtime.streams().current(device)?, runtime.streams().default(device)?))
    })?;
    // Work of the default stream cannot be captured with that of others.
    if current == default || current.is_capturing()? {
        return queue_here(operation, function, (device, true), tensors, body);
    }
    default.wait_stream(&current)?;
    let queued = {
        let _on_default = default.guard();
        queue_here(operation, function, (device, true), tensors, body)
    };
    current.wait_stream(&default)?;
    queued
}

/// Queues work on the current stream by one of the handles.
fn queue_here(
    operation: &'static str,
    function: &'static str,
    (device, on_default): (DeviceIndex, bool),
    tensors: &[&Tensor],
    body: impl FnOnce(&Calling<'_>) -> Result<()>,
) -> Result<()> {
    Runtime::with_current(|runtime| {
        let solver = runtime.extension::<Solver>();
        let library =
            find(runtime).map_err(|reason| LinalgError::Missing { operation, library: "cuSOLVER", reason })?;
        let mut handles = handles(&solver);
        let handle = match handles.entry((device, on_default)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(new_handle(runtime, library, device)?),
        };
        let noted = runtime.library_function(function)?;
        // The library works in place.
        let buffers: Vec<_> = tensors.iter().filter_map(|tensor| tensor.used(MemoryAccess::Writes(""))).collect();
        runtime.queue_by_library(noted, device, buffers, |stream| {
            let raw = ptr::with_exposed_provenance_mut(stream.handle);
            // SAFETY: handle and stream are alive.
            let set = unsafe { handle.library.cusolverDnSetStream(handle.raw(), raw) };
            set.map_err(|cause| failed(cause, "handle, stream".to_owned()))?;
            body(&Calling { library: &handle.library, handle: handle.raw() })
        })
    })
}

fn new_handle(runtime: &Runtime, library: Arc<Cusolver>, device: DeviceIndex) -> Result<Handle> {
    let raw = runtime.with_library(device, || {
        let mut raw: cusolverDnHandle_t = ptr::null_mut();
        // SAFETY: `raw` outlives the call; the device's context is current.
        let made = unsafe { library.cusolverDnCreate(&mut raw) };
        made.map_err(|cause| failed(cause, "handle".to_owned()))?;
        Ok::<_, Error>(raw.expose_provenance())
    })?;
    Ok(Handle { raw, library })
}

/// The library's number of a dtype.
fn type_of(dtype: DType) -> cudaDataType_t {
    match dtype {
        DType::F32 => cudaDataType_t::CUDA_R_32F,
        DType::F64 => cudaDataType_t::CUDA_R_64F,
        DType::C64 => cudaDataType_t::CUDA_C_32F,
        _ => cudaDataType_t::CUDA_C_64F,
    }
}

/// Where an element of a tensor lies.
fn place<T>(tensor: &Tensor, element: i64) -> *mut T {
    let bytes = usize::try_from(element).unwrap_or(0) * tensor.element_size();
    ptr::with_exposed_provenance_mut(usize::try_from(tensor.data_ptr()).unwrap_or(0) + bytes)
}

impl Packed {
    /// Where a matrix lies.
    fn at<T>(&self, matrix: i64) -> *mut T {
        place(&self.tensor, matrix * self.rows * self.columns)
    }

    fn leading(&self) -> i64 {
        self.rows.max(1)
    }

    fn ty(&self) -> cudaDataType_t {
        type_of(self.tensor.dtype())
    }

    /// The numbers that say what failed, one for each matrix.
    fn info(&self) -> Result<Tensor> {
        Tensor::zeros(&[self.batch], DType::I32, &self.tensor)
    }

    fn workspace(&self, bytes: usize) -> Result<Tensor> {
        Tensor::uninitialized(&[i64::try_from(bytes.max(1)).unwrap_or(i64::MAX)], DType::U8, &self.tensor)
    }

    fn shape(&self) -> String {
        format!("handle, m {}, n {}, lda {}, {}", self.rows, self.columns, self.leading(), self.tensor.dtype())
    }
}

/// What the library gets for one matrix besides that: workspaces on the device and on the host, and where it says what
/// failed.
struct Room {
    device: *mut c_void,
    device_bytes: usize,
    host: *mut c_void,
    host_bytes: usize,
    info: *mut c_int,
}

/// A factorisation of every matrix of a batch, one call each.
struct Factorisation<'a> {
    operation: &'static str,
    /// The functions that tell how much memory is needed, and that factorise.
    functions: [&'static str; 2],
    matrices: &'a Packed,
    /// What is read and written besides the matrices.
    others: &'a [&'a Tensor],
}

impl Factorisation<'_> {
    /// Asks how much memory a call needs, on the device and on the host, and queues a call for each matrix. The result says of
    /// each what failed, once the device is done.
    fn run(
        &self,
        ask: impl FnOnce(&Calling<'_>, &mut usize, &mut usize) -> std::result::Result<(), CusolverError>,
        mut call: impl FnMut(&Calling<'_>, i64, &Room) -> Result<()>,
    ) -> Result<Tensor> {
        let (operation, [asked, called], a) = (self.operation, self.functions, self.matrices);
        let (mut device_bytes, mut host_bytes) = (0, 0);
        queue(operation, asked, &[&a.tensor], |calling| {
            ask(calling, &mut device_bytes, &mut host_bytes).map_err(|cause| failed(cause, a.shape()))
        })?;
        let mut on_host: Vec<u8> = host_memory::zeroed(host_bytes)?;
        let (info, workspace) = (a.info()?, a.workspace(device_bytes)?);
        let own = [&a.tensor, &info, &workspace];
        let tensors: Vec<&Tensor> = own.into_iter().chain(self.others.iter().copied()).collect();
        queue(operation, called, &tensors, |calling| {
            (0..a.batch).try_for_each(|at| {
                let (device, host) = (place(&workspace, 0), on_host.as_mut_ptr().cast());
                call(calling, at, &Room { device, device_bytes, host, host_bytes, info: place(&info, at) })
            })
        })?;
        Ok(info)
    }
}

/// Replaces matrices by their lower factors.
pub(super) fn cholesky(a: &Packed) -> Result<Vec<i32>> {
    // What failed is read below.
    PuttingOff::settle("values are read");
    let (lower, none, n, ty) = (cublasFillMode_t::CUBLAS_FILL_MODE_LOWER, ptr::null_mut(), a.rows, a.ty());
    let ld = a.leading();
    let functions = ["cusolverDnXpotrf_bufferSize", "cusolverDnXpotrf"];
    let info = Factorisation { operation: "linalg.cholesky", functions, matrices: a, others: &[] }.run(
        |Calling { library, handle }, device, host| {
            // SAFETY: the sizes are written to; nothing else is read.
            unsafe {
                library.cusolverDnXpotrf_bufferSize(
                    *handle,
                    none,
                    lower,
                    n,
                    ty,
                    a.at::<c_void>(0),
                    ld,
                    ty,
                    device,
                    host,
                )
            }
        },
        |Calling { library, handle }, at, room| {
            let Room { device, device_bytes, host, host_bytes, info } = *room;
            // SAFETY: see the module: matrix, workspaces and number are of the sizes given.
            let queued = unsafe {
                library.cusolverDnXpotrf(
                    *handle,
                    none,
                    lower,
                    n,
                    ty,
                    a.at(at),
                    ld,
                    ty,
                    device,
                    device_bytes,
                    host,
                    host_bytes,
                    info,
                )
            };
            queued.map_err(|cause| failed(cause, a.shape()))
        },
    )?;
    info.to_vec::<i32>()
}

/// Replaces right sides by solutions, and matrices by their factors.
pub(super) fn solve(a: &Packed, b: &Packed) -> Result<Vec<i32>> {
    // What failed is read below.
    PuttingOff::settle("values are read");
    let (none, n, ty, op) = (ptr::null_mut(), a.rows, a.ty(), cublasOperation_t::CUBLAS_OP_N);
    let (ld, ld_b, columns) = (a.leading(), b.leading(), b.columns);
    let solved = a.info()?;
    let pivots = Tensor::uninitialized(&[a.batch, n], DType::I64, &a.tensor)?;
    let functions = ["cusolverDnXgetrf_bufferSize", "cusolverDnXgetrf"];
    let others = [&b.tensor, &solved, &pivots];
    let info = Factorisation { operation: "linalg.solve", functions, matrices: a, others: &others }.run(
        |Calling { library, handle }, device, host| {
            // SAFETY: the sizes are written to; nothing else is read.
            unsafe {
                library.cusolverDnXgetrf_bufferSize(*handle, none, n, n, ty, a.at::<c_void>(0), ld, ty, device, host)
            }
        },
        |Calling { library, handle }, at, room| {
            let Room { device, device_bytes, host, host_bytes, info } = *room;
            let swapped = place(&pivots, at * n);
            // SAFETY: see the module: matrix, pivots, workspaces and number are of the sizes given.
            let queued = unsafe {
                library.cusolverDnXgetrf(
                    *handle,
                    none,
                    n,
                    n,
                    ty,
                    a.at(at),
                    ld,
                    swapped,
                    ty,
                    device,
                    device_bytes,
                    host,
                    host_bytes,
                    info,
                )
            };
            queued.map_err(|cause| failed(cause, a.shape()))?;
            let out = place(&solved, at);
            // SAFETY: as above; the right side has as many rows.
            let queued = unsafe {
                library.cusolverDnXgetrs(
                    *handle,
                    none,
                    op,
                    n,
                    columns,
                    ty,
                    a.at(at),
                    ld,
                    swapped,
                    ty,
                    b.at(at),
                    ld_b,
                    out,
                )
            };
            queued.map_err(|cause| failed(cause, b.shape()))
        },
    )?;
    info.to_vec::<i32>()
}

/// Factors of matrices: `Q` with so many columns, and a tensor whose upper triangle is `R`.
pub(super) fn qr(a: &Packed, wanted: Option<i64>) -> Result<(Option<Packed>, Packed)> {
    let q = wanted.map(|wanted| a.with_columns(a.rows, wanted)).transpose()?;
    if !is_recorded(a, q.as_ref())? {
        factorise(a, q.as_ref())?;
    }
    Ok((q, a.clone()))
}

/// Writes such a factorisation down where a trace is under way. Without a library the call fails where it is made.
fn is_recorded(a: &Packed, q: Option<&Packed>) -> Result<bool> {
    if !record::is_on() || Runtime::with_current(find).is_err() {
        return Ok(false);
    }
    let (batch, rows, columns, wanted) = (a.batch, a.rows, a.columns, q.map(|q| q.columns));
    let detail = [batch, rows, columns, wanted.unwrap_or(-1)].map(i64::cast_unsigned).to_vec();
    let outputs: Vec<&Tensor> = std::iter::once(&a.tensor).chain(q.map(|q| &q.tensor)).collect();
    record::pure_call("qr", (&outputs, &[&a.tensor]), detail, move |outputs, _| {
        let over =
            |tensor: &Tensor, columns| Packed { tensor: tensor.clone(), batch, rows, columns, batches: vec![batch] };
        let [a, q @ ..] = outputs else { return Ok(()) };
        let q = q.first().zip(wanted).map(|(q, wanted)| over(q, wanted));
        factorise(&over(a, columns), q.as_ref())
    })
}

/// Replaces matrices by `R` and what makes `Q`, and that by `Q` where it is wanted.
fn factorise(a: &Packed, q: Option<&Packed>) -> Result<()> {
    let (none, ty, count) = (ptr::null_mut(), a.ty(), a.rows.min(a.columns));
    let (m, n, ld) = (a.rows, a.columns, a.leading());
    let tau = Tensor::uninitialized(&[a.batch, count.max(1)], a.tensor.dtype(), &a.tensor)?;
    let functions = ["cusolverDnXgeqrf_bufferSize", "cusolverDnXgeqrf"];
    Factorisation { operation: "linalg.qr", functions, matrices: a, others: &[&tau] }.run(
        |Calling { library, handle }, device, host| {
            let factors = place::<c_void>(&tau, 0);
            // SAFETY: the sizes are written to; nothing else is read.
            unsafe {
                library.cusolverDnXgeqrf_bufferSize(
                    *handle,
                    none,
                    m,
                    n,
                    ty,
                    a.at::<c_void>(0),
                    ld,
                    ty,
                    factors,
                    ty,
                    device,
                    host,
                )
            }
        },
        |Calling { library, handle }, at, room| {
            let Room { device, device_bytes, host, host_bytes, info } = *room;
            let factors = place(&tau, at * count);
            // SAFETY: see the module: matrix, factors, workspaces and number are of the sizes given.
            let queued = unsafe {
                library.cusolverDnXgeqrf(
                    *handle,
                    none,
                    m,
                    n,
                    ty,
                    a.at(at),
                    ld,
                    ty,
                    factors,
                    ty,
                    device,
                    device_bytes,
                    host,
                    host_bytes,
                    info,
                )
            };
            queued.map_err(|cause| failed(cause, a.shape()))
        },
    )?;
    let Some(q) = q else { return Ok(()) };
    let shared = q.columns.min(a.columns);
    q.tensor.narrow(1, 0, shared)?.copy_(&a.tensor.narrow(1, 0, shared)?)?;
    match a.tensor.dtype() {
        DType::F32 => unitary::<f32>(q, &tau, count)?,
        DType::F64 => unitary::<f64>(q, &tau, count)?,
        DType::C64 => unitary::<cuComplex>(q, &tau, count)?,
        _ => unitary::<cuDoubleComplex>(q, &tau, count)?,
    }
    Ok(())
}

/// Sizes, a matrix and its factors, as the library takes them.
struct Reflectors<T> {
    sizes: [c_int; 3],
    matrix: *mut T,
    leading: c_int,
    factors: *const T,
}

/// A type whose unitary matrices the library has functions for.
trait Reflected: Sized {
    const NAME: &'static str;
    /// How many numbers of workspace are needed.
    ///
    /// # Safety
    /// - Handle and matrix are the library's.
    unsafe fn room(
        calling: &Calling<'_>,
        given: &Reflectors<Self>,
        count: &mut c_int,
    ) -> std::result::Result<(), CusolverError>;
    /// Replaces reflectors by the unitary matrix.
    ///
    /// # Safety
    /// - Handle, matrix, factors, workspace and number are of the sizes given.
    unsafe fn make(
        calling: &Calling<'_>,
        given: &Reflectors<Self>,
        room: (*mut Self, c_int),
        info: *mut c_int,
    ) -> std::result::Result<(), CusolverError>;
}

macro_rules! reflected {
    ($($ty:ty: $room:ident, $make:ident;)*) => {
        $(impl Reflected for $ty {
            const NAME: &'static str = stringify!($make);

            unsafe fn room(calling: &Calling<'_>, given: &Reflectors<Self>, count: &mut c_int) -> std::result::Result<(), CusolverError> {
                let [m, n, k] = given.sizes;
                // SAFETY: the caller's promise.
                unsafe { calling.library.$room(calling.handle, m, n, k, given.matrix, given.leading, given.factors, count) }
            }

            unsafe fn make(
                calling: &Calling<'_>,
                given: &Reflectors<Self>,
                (room, count): (*mut Self, c_int),
                info: *mut c_int,
            ) -> std::result::Result<(), CusolverError> {
                let [m, n, k] = given.sizes;
                // SAFETY: the caller's promise.
                unsafe {
                    calling.library.$make(
                        calling.handle, m, n, k, given.matrix, given.leading, given.factors, room, count, info,
                    )
                }
            }
        })*
    };
}

reflected! {
    f32: cusolverDnSorgqr_bufferSize, cusolverDnSorgqr;
    f64: cusolverDnDorgqr_bufferSize, cusolverDnDorgqr;
    cuComplex: cusolverDnCungqr_bufferSize, cusolverDnCungqr;
    cuDoubleComplex: cusolverDnZungqr_bufferSize, cusolverDnZungqr;
}

fn unitary<T: Reflected>(q: &Packed, tau: &Tensor, factors: i64) -> Result<()> {
    const OPERATION: &str = "linalg.qr";
    let int =
        |size: i64| c_int::try_from(size).map_err(|_| crate::base::error::invalid("linalg.qr: a matrix is too large"));
    let (sizes, leading) = ([int(q.rows)?, int(q.columns)?, int(factors.min(q.columns))?], int(q.leading())?);
    let given = |at: i64| Reflectors::<T> { sizes, matrix: q.at(at), leading, factors: place(tau, at * factors) };
    let mut count = 0;
    queue(OPERATION, T::NAME, &[&q.tensor, tau], |calling| {
        // SAFETY: a number is written to; nothing else is read.
        unsafe { T::room(calling, &given(0), &mut count) }.map_err(|cause| failed(cause, q.shape()))
    })?;
    let info = q.info()?;
    let workspace = q.workspace(usize::try_from(count).unwrap_or(0) * size_of::<T>())?;
    queue(OPERATION, T::NAME, &[&q.tensor, tau, &info, &workspace], |calling| {
        (0..q.batch).try_for_each(|at| {
            let (room, out) = ((place(&workspace, 0), count), place(&info, at));
            // SAFETY: see the module: matrix, factors, workspace and number are of the sizes given.
            unsafe { T::make(calling, &given(at), room, out) }.map_err(|cause| failed(cause, q.shape()))
        })
    })
}

/// Singular values and vectors of matrices that have no fewer rows than columns. The matrices are lost.
pub(super) fn svd(a: &Packed, values: &Tensor, u: &Packed, v: &Packed) -> Result<Vec<i32>> {
    // What failed is read below.
    PuttingOff::settle("values are read");
    let (none, ty, real) = (ptr::null_mut(), a.ty(), type_of(real_of(a.tensor.dtype())));
    let letter = |all: bool| if all { b'A' } else { b'S' }.cast_signed();
    let (job_u, job_v) = (letter(u.columns == a.rows), letter(v.rows == a.columns));
    let (m, n, [ld, ld_u, ld_v]) = (a.rows, a.columns, [a, u, v].map(Packed::leading));
    let functions = ["cusolverDnXgesvd_bufferSize", "cusolverDnXgesvd"];
    let others = [values, &u.tensor, &v.tensor];
    let info = Factorisation { operation: "linalg.svd", functions, matrices: a, others: &others }.run(
        |Calling { library, handle }, device, host| {
            let singular = place::<c_void>(values, 0);
            // SAFETY: the sizes are written to; nothing else is read.
            unsafe {
                library.cusolverDnXgesvd_bufferSize(
                    *handle,
                    none,
                    job_u,
                    job_v,
                    m,
                    n,
                    ty,
                    a.at::<c_void>(0),
                    ld,
                    real,
                    singular,
                    ty,
                    u.at::<c_void>(0),
                    ld_u,
                    ty,
                    v.at::<c_void>(0),
                    ld_v,
                    ty,
                    device,
                    host,
                )
            }
        },
        |Calling { library, handle }, at, room| {
            let Room { device, device_bytes, host, host_bytes, info } = *room;
            let singular = place(values, at * n);
            // SAFETY: see the module: matrices, values, workspaces and number are of the sizes given.
            let queued = unsafe {
                library.cusolverDnXgesvd(
                    *handle,
                    none,
                    job_u,
                    job_v,
                    m,
                    n,
                    ty,
                    a.at(at),
                    ld,
                    real,
                    singular,
                    ty,
                    u.at(at),
                    ld_u,
                    ty,
                    v.at(at),
                    ld_v,
                    ty,
                    device,
                    device_bytes,
                    host,
                    host_bytes,
                    info,
                )
            };
            queued.map_err(|cause| failed(cause, a.shape()))
        },
    )?;
    info.to_vec::<i32>()
}
