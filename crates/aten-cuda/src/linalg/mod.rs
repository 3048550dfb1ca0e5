//! Factorisations of matrices (`torch.linalg`): by cuSOLVER on devices, by loops on the host.
//!
//! Reading order: this file (what is refused, in torch's words; shapes; batches; the host, by `dense-factors`), `library`
//! (cuSOLVER).
//!
//! Matrices are the last two dimensions; those before them are a batch. Both ways take and give them one after the other,
//! each by columns, as LAPACK does: a `Packed` tensor. Calls on devices are ordered by the current stream, and wait where
//! torch waits: to see whether a factorisation failed.

mod library;

use std::sync::atomic::{AtomicU8, Ordering};

use c10_core::{Runtime, host_memory};
use cuda_sys::Cusolver;
use dense_factors::{Table, Triangle};
use num_complex::Complex64;

use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result, TensorError, invalid};
use crate::base::linalg_error::LinalgError;
use crate::base::scalar::Scalar;
use crate::base::shape::broadcast;
use crate::tensor::{Tensor, read_complex, scalar_bytes};

/// Which library factorises matrices on devices (`torch.backends.cuda.preferred_linalg_library`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinalgBackend {
    /// The one that is best; cuSOLVER here.
    Default,
    /// cuSOLVER.
    Cusolver,
    /// MAGMA, which this crate does not use.
    Magma,
}

impl TryFrom<&str> for LinalgBackend {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self> {
        match text {
            "default" => Ok(Self::Default),
            "cusolver" => Ok(Self::Cusolver),
            "magma" => Ok(Self::Magma),
            _ => Err(invalid("Unknown input value. Choose from: default, cusolver, magma.")),
        }
    }
}

/// What was chosen; 255 as long as nothing was.
static PREFERRED: AtomicU8 = AtomicU8::new(u8::MAX);

/// Which library factorises matrices on devices (`torch.backends.cuda.preferred_linalg_library`): what was set, or else
/// cuSOLVER where the environment says `TORCH_LINALG_PREFER_CUSOLVER=1`.
#[must_use]
pub fn preferred_linalg_library() -> LinalgBackend {
    match PREFERRED.load(Ordering::Relaxed) {
        0 => LinalgBackend::Default,
        1 => LinalgBackend::Cusolver,
        _ => {
            let variables = ["TORCH_LINALG_PREFER_CUSOLVER", "TORCH_LINALG_PREFER_HIPSOLVER"];
            let asked = variables.iter().any(|name| std::env::var(name).is_ok_and(|value| value == "1"));
            if asked { LinalgBackend::Cusolver } else { LinalgBackend::Default }
        }
    }
}

/// Chooses the library that factorises matrices on devices.
///
/// # Errors
/// The text names none, or MAGMA, which this crate does not use.
pub fn set_preferred_linalg_library<B: TryInto<LinalgBackend, Error: Into<Error>>>(backend: B) -> Result<()> {
    let backend = backend.try_into().map_err(Into::into)?;
    if backend == LinalgBackend::Magma {
        return Err(invalid("Cannot set preferred backend to MAGMA if PyTorch has not been compiled with MAGMA."));
    }
    PREFERRED.store(backend as u8, Ordering::Relaxed);
    Ok(())
}

/// Has the current runtime use this cuSOLVER from now on: a simulated one, or none.
pub fn set_library(cusolver: Option<Cusolver>) {
    Runtime::with_current(|runtime| library::set(runtime, cusolver));
}

/// The version of the cuSOLVER that the current runtime uses, and where it was loaded from; it is looked for where that was
/// not done. Torch has no such thing.
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// let missing = aten_cuda::linalg::loaded_library().unwrap_err();
/// assert!(missing.to_string().starts_with("torch.linalg on CUDA tensors needs cuSOLVER, which is not there"));
/// ```
///
/// # Errors
/// [`LinalgError::Missing`] says what was looked for.
pub fn loaded_library() -> Result<(String, String)> {
    let missing = |reason| LinalgError::Missing { operation: "torch.linalg", library: "cuSOLVER", reason };
    let library = Runtime::with_current(library::find).map_err(missing)?;
    Ok((library.version().to_string(), library.origin().to_owned()))
}

/// The Cholesky factor of positive matrices: `A = L L'`, or `A = U' U` where `upper` is asked for (`torch.linalg.cholesky`).
/// `a` has the sizes `(*, n, n)` and a float or complex dtype. Waits for the device.
///
/// ```
/// use aten_cuda::{DType, Tensor, linalg};
///
/// let a = Tensor::from_slice(&[4.0_f64, 2.0, 2.0, 5.0], &[2, 2])?;
/// assert_eq!(linalg::cholesky(&a, false)?.to_vec::<f64>()?, [2.0, 0.0, 1.0, 2.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// Sizes or dtype do not fit, a matrix is not positive, or there is no cuSOLVER for a tensor on a device.
pub fn cholesky(a: &Tensor, upper: bool) -> Result<Tensor> {
    if let Some((_inside, [a])) = autocast::cast(const { Policies::of("linalg_cholesky") }, [a])? {
        return cholesky(&a, upper);
    }
    check_square("linalg.cholesky", a)?;
    check_dtype("linalg.cholesky", a, "cholesky")?;
    let packed = Packed::of(a)?;
    let info = if packed.is_cuda() { library::cholesky(&packed)? } else { cholesky_on_host(&packed)? };
    let batch = |at| (a.dim() > 2).then_some(at);
    if let Some((at, &order)) = info.iter().enumerate().find(|&(_, &order)| order != 0) {
        return Err(LinalgError::NotPositive { batch: batch(at), order }.into());
    }
    // Both factors are column-major, as in torch: their transposes are row-major.
    if upper {
        return packed.matrices()?.tril(0)?.mh()?.resolve_conj();
    }
    packed.matrices()?.transpose(-2, -1)?.triu(0)?.transpose(-2, -1)
}

fn cholesky_on_host(packed: &Packed) -> Result<Vec<i32>> {
    let (mut info, mut factors) = (packed.info_on_host()?, packed.room()?);
    packed.tables()?.try_for_each(|table| {
        let mut table = table?;
        info.push(i32::try_from(dense_factors::cholesky(&mut table)).unwrap_or(i32::MAX));
        factors.extend_from_slice(table.numbers());
        Ok::<_, Error>(())
    })?;
    packed.store(factors)?;
    Ok(info)
}

/// The solution of `A X = B` (`torch.linalg.solve`). `a` has the sizes `(*, n, n)`, `b` `(*, n, k)`, or `(*, n)` for vectors;
/// batches broadcast. Waits for the device.
///
/// # Errors
/// Sizes or dtypes do not fit, a matrix is singular, or there is no cuSOLVER for tensors on a device.
pub fn solve(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if let Some((_inside, [a, b])) = autocast::cast(const { Policies::of("linalg_solve") }, [a, b])? {
        return solve(&a, &b);
    }
    check_square("linalg.solve", a)?;
    check_dtype("linalg.solve", a, "lu_factor")?;
    if a.dtype() != b.dtype() {
        let (left, right) = (a.dtype().scalar_type_name(), b.dtype().scalar_type_name());
        return Err(invalid(format!(
            "linalg.solve: Expected A and B to have the same dtype, but found A of type {left} and B of type {right} instead"
        )));
    }
    let is_vector = b.dim() == 1 || (a.dim() == b.dim() + 1 && a.sizes()[..b.dim()] == *b.sizes());
    let right = if is_vector { b.unsqueeze(-1)? } else { b.clone() };
    let (n, of_a, of_b) =
        (a.sizes()[a.dim() - 1], &a.sizes()[..a.dim() - 2], &right.sizes()[..right.dim().saturating_sub(2)]);
    let (rows, columns) = (right.sizes()[right.dim() - 2], right.sizes()[right.dim() - 1]);
    if rows != n {
        let text = format!(
            "linalg.solve: Incompatible shapes of A and B for the equation AX = B ({n}x{n} and {rows}x{columns})"
        );
        return Err(invalid(text));
    }
    let batches = broadcast(of_a, of_b)?;
    let with = |last: [i64; 2]| -> Vec<i64> { batches.iter().copied().chain(last).collect() };
    let (left, mut right) = (Packed::of(&a.expand(&with([n, n]))?)?, Packed::of(&right.expand(&with([n, columns]))?)?);
    let info = if left.is_cuda() { library::solve(&left, &right)? } else { solve_on_host(&left, &mut right)? };
    if let Some(at) = info.iter().position(|&order| order != 0) {
        return Err(LinalgError::Singular { batch: (a.dim() > 2).then_some(at) }.into());
    }
    let solved = right.matrices()?;
    if is_vector { solved.squeeze(Some(-1)) } else { Ok(solved) }
}

fn solve_on_host(left: &Packed, right: &mut Packed) -> Result<Vec<i32>> {
    let (mut info, mut solved) = (left.info_on_host()?, right.room()?);
    for (a, b) in left.tables()?.zip(right.tables()?) {
        let (mut a, mut b) = (a?, b?);
        let (swapped, order) = dense_factors::lu(&mut a, true)?;
        info.push(i32::try_from(order).unwrap_or(i32::MAX));
        dense_factors::swap_rows(&mut b, &swapped, false);
        dense_factors::solve(&a, Triangle::UNIT_LOWER, &mut b);
        dense_factors::solve(&a, Triangle::UPPER, &mut b);
        solved.extend_from_slice(b.numbers());
    }
    right.store(solved)?;
    Ok(info)
}

/// `A = Q R` with orthonormal columns of `Q` (`torch.linalg.qr`). `mode` is `reduced`, `complete` (a square `Q`) or `r` (an
/// empty `Q`). `a` has the sizes `(*, m, n)` and a float or complex dtype.
///
/// # Errors
/// The mode, sizes or dtype do not fit, or there is no cuSOLVER for a tensor on a device.
pub fn qr(a: &Tensor, mode: &str) -> Result<(Tensor, Tensor)> {
    if let Some((_inside, [a])) = autocast::cast(const { Policies::of("linalg_qr") }, [a])? {
        return qr(&a, mode);
    }
    if !["reduced", "complete", "r"].contains(&mode) {
        let known = "'reduced' (default), 'r', or 'complete'";
        return Err(invalid(format!("qr received unrecognized mode '{mode}' but expected one of {known}")));
    }
    check_matrix("linalg.qr", a)?;
    check_dtype("linalg.qr", a, "geqrf")?;
    let (m, n) = (a.sizes()[a.dim() - 2], a.sizes()[a.dim() - 1]);
    let count = m.min(n);
    let wanted = if mode == "complete" { m } else { count };
    let packed = Packed::of(a)?;
    let (q, r) = if packed.is_cuda() {
        library::qr(&packed, (mode != "r").then_some(wanted))?
    } else {
        qr_on_host(&packed, wanted)?
    };
    let rows = if mode == "complete" { m } else { count };
    let r = r.matrices()?.narrow(-2, 0, rows)?.triu(0)?;
    match q {
        Some(q) if mode != "r" => Ok((q.matrices()?, r)),
        _ => Ok((Tensor::uninitialized(&[0], a.dtype(), a)?, r)),
    }
}

fn qr_on_host(packed: &Packed, wanted: i64) -> Result<(Option<Packed>, Packed)> {
    let q = packed.with_columns(packed.rows, wanted)?;
    let (mut left, mut right) = (q.room()?, packed.room()?);
    for a in packed.tables()? {
        let mut a = a?;
        let factors = dense_factors::qr(&mut a)?;
        let columns = usize::try_from(wanted).unwrap_or(0);
        left.extend_from_slice(dense_factors::unitary(&a.first_columns(columns)?, &factors)?.numbers());
        right.extend_from_slice(a.numbers());
    }
    q.store(left)?;
    packed.store(right)?;
    Ok((Some(q), packed.clone()))
}

/// `A = U S V'`: orthonormal columns of `U`, singular values from the largest on, and `V'` (`torch.linalg.svd`). With
/// `full_matrices` `U` and `V'` are square. `a` has the sizes `(*, m, n)` and a float or complex dtype. Waits for the device.
///
/// `driver` names a function of cuSOLVER, for tensors on a device only; one function serves for all of them.
///
/// # Errors
/// Sizes, dtype or driver do not fit, singular values are not found, or there is no cuSOLVER for a tensor on a device.
pub fn svd(a: &Tensor, full_matrices: bool, driver: Option<&str>) -> Result<(Tensor, Tensor, Tensor)> {
    if let Some((_inside, [a])) = autocast::cast(const { Policies::of("linalg_svd") }, [a])? {
        return svd(&a, full_matrices, driver);
    }
    check_matrix("linalg.svd", a)?;
    check_dtype("linalg.svd", a, "svd")?;
    check_driver(a, driver)?;
    let (m, n) = (a.sizes()[a.dim() - 2], a.sizes()[a.dim() - 1]);
    let count = m.min(n);
    let (columns, rows) = if full_matrices { (m, n) } else { (count, count) };
    if a.is_cuda() && m < n {
        // cuSOLVER wants no fewer rows than columns.
        let (v, values, u) = svd(&a.mh()?, full_matrices, driver)?;
        return Ok((u.mh()?.resolve_conj()?, values, v.mh()?.resolve_conj()?));
    }
    let packed = Packed::of(a)?;
    let (u, v) = (packed.with_columns(m, columns)?, packed.with_columns(rows, n)?);
    let values = Tensor::uninitialized(&[packed.batch, count], real_of(a.dtype()), a)?;
    if packed.is_cuda() {
        let info = library::svd(&packed, &values, &u, &v)?;
        if let Some(at) = info.iter().position(|&failed| failed != 0) {
            return Err(LinalgError::NotConverged { batch: (a.dim() > 2).then_some(at) }.into());
        }
    } else {
        svd_on_host(&packed, &values, &u, &v)?;
    }
    let batches = &a.sizes()[..a.dim() - 2];
    let sizes: Vec<i64> = batches.iter().copied().chain([count]).collect();
    Ok((u.matrices()?, values.reshape(&sizes)?, v.matrices()?))
}

fn svd_on_host(packed: &Packed, values: &Tensor, u: &Packed, v: &Packed) -> Result<()> {
    let count = usize::try_from(values.numel()).unwrap_or(0);
    let (mut left, mut right, mut numbers) = (u.room()?, v.room()?, host_memory::with_capacity(count)?);
    for a in packed.tables()? {
        let (full_u, singular, full_v) = dense_factors::svd(&a?)?;
        left.extend_from_slice(full_u.first_columns(usize::try_from(u.columns).unwrap_or(0))?.numbers());
        right.extend_from_slice(full_v.first_columns(usize::try_from(v.rows).unwrap_or(0))?.adjoint()?.numbers());
        numbers.extend(singular.into_iter().map(Complex64::from));
    }
    u.store(left)?;
    v.store(right)?;
    write(values, numbers)
}

/// The singular values of matrices, from the largest on (`torch.linalg.svdvals`).
///
/// # Errors
/// As [`svd`].
pub fn svdvals(a: &Tensor, driver: Option<&str>) -> Result<Tensor> {
    if let Some((_inside, [a])) = autocast::cast(const { Policies::of("linalg_svdvals") }, [a])? {
        return svdvals(&a, driver);
    }
    Ok(svd(a, false, driver)?.1)
}

/// Matrices one after the other, each by columns: a contiguous tensor `(batch, columns, rows)`.
#[derive(Clone, Debug)]
struct Packed {
    tensor: Tensor,
    batch: i64,
    rows: i64,
    columns: i64,
    /// The dimensions before the matrix.
    batches: Vec<i64>,
}

impl Packed {
    /// A copy of matrices.
    fn of(a: &Tensor) -> Result<Self> {
        let (batches, last) = a.sizes().split_at(a.dim() - 2);
        let batch = batches.iter().product();
        let made = Self::empty(a, batches.to_vec(), batch, last[0], last[1])?;
        let sizes: Vec<i64> = batches.iter().copied().chain([last[1], last[0]]).collect();
        made.tensor.view(&sizes)?.copy_(&a.transpose(-2, -1)?)?;
        Ok(made)
    }

    fn empty(like: &Tensor, batches: Vec<i64>, batch: i64, rows: i64, columns: i64) -> Result<Self> {
        let tensor = Tensor::uninitialized(&[batch, columns, rows], like.dtype(), like)?;
        Ok(Self { tensor, batch, rows, columns, batches })
    }

    /// Room for as many matrices of another size.
    fn with_columns(&self, rows: i64, columns: i64) -> Result<Self> {
        Self::empty(&self.tensor, self.batches.clone(), self.batch, rows, columns)
    }

    fn is_cuda(&self) -> bool {
        self.tensor.is_cuda()
    }

    /// The matrices as tensors have them: a view.
    fn matrices(&self) -> Result<Tensor> {
        let sizes: Vec<i64> = self.batches.iter().copied().chain([self.columns, self.rows]).collect();
        self.tensor.view(&sizes)?.transpose(-2, -1)
    }

    /// Reads the matrices on the host, one by one.
    fn tables(&self) -> Result<impl Iterator<Item = Result<Table>>> {
        let size = |size: i64| usize::try_from(size).unwrap_or(0);
        let (rows, columns) = (size(self.rows), size(self.columns));
        let numbers = read_complex(&self.tensor)?;
        let one = move |at: usize| {
            let own = &numbers[at * rows * columns..(at + 1) * rows * columns];
            Ok(Table::new(rows, columns, host_memory::copied(own)?))
        };
        Ok((0..size(self.batch)).map(one))
    }

    /// Returns an empty vector with room for the elements of all matrices.
    fn room(&self) -> Result<Vec<Complex64>> {
        Ok(host_memory::with_capacity(usize::try_from(self.tensor.numel()).unwrap_or(0))?)
    }

    /// Returns an empty vector with room for one LAPACK `info` code per matrix.
    fn info_on_host(&self) -> Result<Vec<i32>> {
        Ok(host_memory::with_capacity(usize::try_from(self.batch).unwrap_or(0))?)
    }

    /// Writes the elements of all matrices.
    fn store(&self, numbers: Vec<Complex64>) -> Result<()> {
        write(&self.tensor, numbers)
    }
}

/// Writes all elements of a contiguous tensor of the host.
fn write(tensor: &Tensor, numbers: impl IntoIterator<Item = Complex64>) -> Result<()> {
    let dtype = tensor.dtype();
    let numbers = numbers.into_iter().flat_map(|value| scalar_bytes(Scalar::Complex(value), dtype));
    let bytes = host_memory::collected(tensor.nbytes(), numbers)?;
    tensor.plain_storage()?.write(tensor.byte_offset(), &bytes)
}

/// The dtype of singular values.
fn real_of(dtype: DType) -> DType {
    match dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        other => other,
    }
}

fn check_matrix(operation: &str, a: &Tensor) -> Result<()> {
    if a.dim() < 2 {
        return Err(invalid(format!("{operation}: The input tensor A must have at least 2 dimensions.")));
    }
    Ok(())
}

fn check_square(operation: &str, a: &Tensor) -> Result<()> {
    check_matrix(operation, a)?;
    let (m, n) = (a.sizes()[a.dim() - 2], a.sizes()[a.dim() - 1]);
    if m != n {
        let text = format!("{operation}: A must be batches of square matrices, but they are {m} by {n} matrices");
        return Err(invalid(text));
    }
    Ok(())
}

fn check_dtype(operation: &str, a: &Tensor, kernel: &str) -> Result<()> {
    match a.dtype() {
        DType::F32 | DType::F64 | DType::C64 | DType::C128 => Ok(()),
        dtype @ (DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2) => {
            let place = if a.is_cuda() { "cusolver" } else { "cpu" };
            Err(TensorError::NotImplemented { kernel: format!("{kernel}_{place}"), dtype }.into())
        }
        dtype => {
            let name = dtype.scalar_type_name();
            Err(invalid(format!("{operation}: Expected a floating point or complex tensor as input. Got {name}")))
        }
    }
}

fn check_driver(a: &Tensor, driver: Option<&str>) -> Result<()> {
    let Some(driver) = driver else { return Ok(()) };
    if !a.is_cuda() {
        return Err(invalid(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.",
        ));
    }
    if ["gesvd", "gesvdj", "gesvda"].contains(&driver) {
        return Ok(());
    }
    let place = "Check doc at https://pytorch.org/docs/stable/generated/torch.linalg.svd.html ";
    Err(invalid(
        format!("torch.linalg.svd: unknown svd driver {driver} in svd_cusolver computation. {place}").trim_end(),
    ))
}
