//! Factorisations of matrices, Fourier transforms and complex products by the GPU's libraries, against the host in `f64`:
//! `linalg_and_fft`. Products are also computed by the crate's kernels.
//!
//! Factors are multiplied again, orthonormal columns are multiplied with themselves, and what is unique is compared with the
//! host's loops. Prints a line for each question and dtype with the number of problems and the largest error; the exit code
//! is 1 where one is beyond its bound, 0 where a library is not installed. An error is counted in units of the dtype's
//! precision beside the largest number, times the number of rounded steps that one number takes: the longer side of a
//! matrix, or the logarithm of a signal.

use std::collections::BTreeMap;
use std::process::ExitCode;

use aten_cuda::{Complex64, DType, Error, LinalgError, Result, Tensor, blas, fft, linalg};
use tests::program::{ended_unless_missing, say};

/// Sizes of matrices with the batch in front: single numbers, odd sizes, such that fill tiles and such that do not.
const SIZES: [&[i64]; 7] = [&[1, 1], &[5, 5], &[33, 20], &[20, 33], &[3, 2, 17, 17], &[2, 64, 96], &[130, 130]];

/// Lengths of signals: powers of two, products of small primes, a large prime.
const LENGTHS: [i64; 7] = [1, 2, 15, 64, 210, 1009, 4096];

/// The most that an error may be, in the units above. Bounds of textbooks are some units; random numbers stay far below.
const MOST: f64 = 4.0;

fn main() -> ExitCode {
    ended_unless_missing(all(), is_missing)
}

/// Whether a library is not installed.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Linalg(cause) if matches!(**cause, LinalgError::Missing { .. }))
}

/// Problems of a question and a dtype, and their largest error.
#[derive(Default)]
struct Seen(BTreeMap<(&'static str, String), (u32, f64)>);

impl Seen {
    /// Notes how far a result is off, beside `largest`, after `steps` rounded steps.
    fn note(&mut self, question: &'static str, dtype: DType, off: &Tensor, largest: f64, steps: f64) -> Result<()> {
        let unit = if dtype.to_real() == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
        let error = size_of(off)? / (unit * largest.max(f64::MIN_POSITIVE) * steps);
        let entry = self.0.entry((question, dtype.to_string())).or_insert((0, 0.0));
        *entry = (entry.0 + 1, entry.1.max(error));
        Ok(())
    }

    fn told(&self) -> bool {
        let mut is_good = true;
        for ((question, dtype), (count, worst)) in &self.0 {
            let note = if *worst <= MOST { "" } else { " TOO FAR OFF" };
            is_good &= *worst <= MOST;
            say(&format!("{question} {dtype}: {count} problems, {worst:.3}{note}"));
        }
        is_good
    }
}

fn all() -> Result<bool> {
    let mut seen = Seen::default();
    for dtype in [DType::F32, DType::F64, DType::C64, DType::C128] {
        for sizes in SIZES {
            let [rows, columns] = [sizes[sizes.len() - 2], sizes[sizes.len() - 1]];
            if rows == columns {
                check_cholesky(&mut seen, sizes, dtype)?;
                check_solve(&mut seen, sizes, dtype)?;
            }
            check_qr(&mut seen, sizes, dtype)?;
            check_svd(&mut seen, sizes, dtype)?;
        }
        for length in LENGTHS {
            check_fft(&mut seen, length, dtype)?;
        }
    }
    for dtype in [DType::C64, DType::C128] {
        check_products(&mut seen, ["mm by the library", "bmm by the library"], dtype)?;
    }
    blas::set_libraries(None, None);
    for dtype in [DType::C64, DType::C128] {
        check_products(&mut seen, ["mm by own kernels", "bmm by own kernels"], dtype)?;
    }
    let is_good = seen.told();
    Ok(refusals()? && is_good)
}

/// Products of complex numbers, by rows and by columns, of which each operand is a conjugate or not.
fn check_products(seen: &mut Seen, questions: [&'static str; 2], dtype: DType) -> Result<()> {
    let (alpha, beta) = (Complex64::new(0.5, -1.0), Complex64::new(2.0, 0.25));
    for bits in 0..32 {
        let is_set = |bit: u32| bits >> bit & 1 == 1;
        let factor = |rows: i64, columns: i64, first: u32| -> Result<Tensor> {
            let made = if is_set(first) {
                random(&[3, columns, rows], dtype)?.transpose(1, 2)?
            } else {
                random(&[3, rows, columns], dtype)?
            };
            Ok(if is_set(first + 1) { made.conj() } else { made })
        };
        let (a, b, c) = (factor(65, 70, 0)?, factor(70, 33, 2)?, random(&[65, 33], dtype)?);
        let c = if is_set(4) { c.conj() } else { c };
        let there = |tensor: &Tensor| -> Result<Tensor> {
            // The copy lies as the tensor does.
            let plain = if tensor.is_conj() { tensor.conj() } else { tensor.clone() };
            Ok(if tensor.is_conj() { plain.cuda(None)?.conj() } else { plain.cuda(None)? })
        };
        let (there_a, there_b, there_c) = (there(&a)?, there(&b)?, there(&c)?);
        let (wide_a, wide_b, wide_c) = (wide(&a)?, wide(&b)?, wide(&c)?);
        let found = wide(&there_c.addmm(&there_a.select(0, 1)?, &there_b.select(0, 2)?, beta, alpha)?)?;
        let wanted = wide_c.addmm(&wide_a.select(0, 1)?, &wide_b.select(0, 2)?, beta, alpha)?;
        seen.note(questions[0], dtype, &found.sub(&wanted)?, size_of(&wanted)?, 70.0)?;
        let found = wide(&there_c.baddbmm(&there_a, &there_b, beta, alpha)?)?;
        let wanted = wide_c.baddbmm(&wide_a, &wide_b, beta, alpha)?;
        seen.note(questions[1], dtype, &found.sub(&wanted)?, size_of(&wanted)?, 70.0)?;
    }
    Ok(())
}

/// Random numbers of the dtype on the host.
fn random(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    Tensor::randn(sizes, dtype, "cpu", None)
}

/// On the host, in `f64` or pairs of those.
fn wide(tensor: &Tensor) -> Result<Tensor> {
    tensor.cpu()?.to_dtype(if tensor.dtype().is_complex() { DType::C128 } else { DType::F64 })
}

/// The largest magnitude; infinite where there is a NaN.
fn size_of(tensor: &Tensor) -> Result<f64> {
    let numbers = tensor.to_dtype(DType::C128)?.contiguous()?.to_vec::<Complex64>()?;
    let sizes = numbers.into_iter().map(|number| number.re.hypot(number.im));
    Ok(sizes.fold(0.0_f64, |most, size| if size.is_nan() { f64::INFINITY } else { most.max(size) }))
}

/// How many rounded steps a number of a matrix takes.
fn steps_of(tensor: &Tensor) -> f64 {
    let longer = tensor.sizes().iter().rev().take(2).copied().max().unwrap_or(1);
    f64::from(i32::try_from(longer).unwrap_or(i32::MAX))
}

fn eye(size: i64, dtype: DType) -> Result<Tensor> {
    Tensor::eye(size, size, dtype, "cpu")
}

/// A unit matrix as large as the last dimension of a tensor on the host.
fn unit_like(tensor: &Tensor) -> Result<Tensor> {
    eye(tensor.size(-1)?, tensor.dtype())
}

/// Whether columns are orthonormal.
fn check_orthonormal(seen: &mut Seen, question: &'static str, q: &Tensor, dtype: DType) -> Result<()> {
    let off = q.mh()?.matmul(q)?.sub(&unit_like(q)?)?;
    seen.note(question, dtype, &off, 1.0, steps_of(q))
}

fn check_cholesky(seen: &mut Seen, sizes: &[i64], dtype: DType) -> Result<()> {
    let a = random(sizes, dtype)?;
    let n = a.size(-1)?;
    let positive = a.matmul(&a.mh()?)?.add(&unit_like(&a)?.mul(n)?)?;
    for upper in [false, true] {
        let found = wide(&linalg::cholesky(&positive.cuda(None)?, upper)?)?;
        let (exact, wanted) = (wide(&positive)?, linalg::cholesky(&wide(&positive)?, upper)?);
        let product = if upper { found.mh()?.matmul(&found)? } else { found.matmul(&found.mh()?)? };
        seen.note("cholesky: product", dtype, &product.sub(&exact)?, size_of(&exact)?, steps_of(&a))?;
        seen.note("cholesky: factor", dtype, &found.sub(&wanted)?, size_of(&wanted)?, steps_of(&a))?;
    }
    Ok(())
}

fn check_solve(seen: &mut Seen, sizes: &[i64], dtype: DType) -> Result<()> {
    let n = sizes[sizes.len() - 1];
    // Well conditioned, with the large numbers on the other diagonal, so that rows must be exchanged.
    let a = random(sizes, dtype)?.add(&eye(n, dtype)?.mul(2.0 * f64::sqrt(steps_of_size(n)))?)?;
    let a = a.flip(&[-2])?;
    for columns in [1, 7] {
        let right: Vec<i64> = sizes[..sizes.len() - 1].iter().copied().chain([columns]).collect();
        let b = random(&right, dtype)?;
        let found = wide(&linalg::solve(&a.cuda(None)?, &b.cuda(None)?)?)?;
        let wanted = linalg::solve(&wide(&a)?, &wide(&b)?)?;
        let left = wide(&a)?.matmul(&found)?.sub(&wide(&b)?)?;
        let largest = size_of(&a)? * size_of(&found)?;
        seen.note("solve: what is left", dtype, &left, largest, steps_of(&a))?;
        seen.note("solve: solution", dtype, &found.sub(&wanted)?, size_of(&wanted)?, 4.0 * steps_of(&a))?;
    }
    Ok(())
}

fn steps_of_size(size: i64) -> f64 {
    f64::from(i32::try_from(size).unwrap_or(i32::MAX))
}

fn check_qr(seen: &mut Seen, sizes: &[i64], dtype: DType) -> Result<()> {
    let a = random(sizes, dtype)?;
    for mode in ["reduced", "complete"] {
        let (q, r) = linalg::qr(&a.cuda(None)?, mode)?;
        let (q, r, exact) = (wide(&q)?, wide(&r)?, wide(&a)?);
        let (_, wanted) = linalg::qr(&exact, mode)?;
        seen.note("qr: product", dtype, &q.matmul(&r)?.sub(&exact)?, size_of(&exact)?, steps_of(&a))?;
        seen.note("qr: factor", dtype, &r.abs()?.sub(&wanted.abs()?)?, size_of(&wanted)?, 4.0 * steps_of(&a))?;
        check_orthonormal(seen, "qr: orthonormal", &q, dtype)?;
        let (empty, alone) = linalg::qr(&a.cuda(None)?, "r")?;
        if mode == "reduced" {
            assert_eq!(empty.numel(), 0, "without Q");
            seen.note("qr: factor alone", dtype, &wide(&alone)?.sub(&r)?, size_of(&r)?, 1.0)?;
        }
    }
    Ok(())
}

fn check_svd(seen: &mut Seen, sizes: &[i64], dtype: DType) -> Result<()> {
    let a = random(sizes, dtype)?;
    let wanted = linalg::svdvals(&wide(&a)?, None)?;
    let largest = size_of(&wanted)?;
    for full in [false, true] {
        let (u, values, v) = linalg::svd(&a.cuda(None)?, full, None)?;
        let (u, values, v, exact) = (wide(&u)?, wide(&values)?, wide(&v)?, wide(&a)?);
        let count = values.size(-1)?;
        let scaled = u.narrow(-1, 0, count)?.mul(&values.unsqueeze(-2)?)?;
        let product = scaled.matmul(&v.narrow(-2, 0, count)?)?;
        seen.note("svd: product", dtype, &product.sub(&exact)?, largest, steps_of(&a))?;
        seen.note("svd: values", dtype, &values.sub(&wanted)?, largest, steps_of(&a))?;
        check_orthonormal(seen, "svd: orthonormal U", &u, dtype)?;
        check_orthonormal(seen, "svd: orthonormal V", &v.mh()?, dtype)?;
    }
    Ok(())
}

/// All transforms of a length that there are for the dtype: along both dimensions, cut, filled, with each normalisation.
fn check_fft(seen: &mut Seen, length: i64, dtype: DType) -> Result<()> {
    type Transform = fn(&Tensor, Option<i64>, i64, Option<&str>) -> Result<Tensor>;
    let transforms: [(&str, Transform); 4] =
        [("fft", fft::fft), ("ifft", fft::ifft), ("rfft", fft::rfft), ("irfft", fft::irfft)];
    let steps = (2.0 * steps_of_size(length)).log2();
    let signals = random(&[3, length], dtype)?;
    for (question, transform) in transforms {
        if question == "rfft" && dtype.is_complex() {
            continue;
        }
        let cases = [
            (Some(length), 1, None),
            (Some(length + 3), 1, Some("ortho")),
            (Some((length + 1) / 2), 1, Some("forward")),
            (Some(5), 0, Some("backward")),
        ];
        for (n, dim, norm) in cases {
            let found = wide(&transform(&signals.cuda(None)?, n, dim, norm)?)?;
            let wanted = transform(&wide(&signals)?, n, dim, norm)?;
            // What one number is made of: all numbers of the signal.
            seen.note(question, dtype, &found.sub(&wanted)?, size_of(&wanted)?, steps + 2.0)?;
        }
    }
    Ok(())
}

/// Matrices that cannot be factorised are named, as on the host.
fn refusals() -> Result<bool> {
    let mut is_good = true;
    for dtype in [DType::F32, DType::F64, DType::C64, DType::C128] {
        let units = eye(4, dtype)?.expand(&[3, 4, 4])?.contiguous()?;
        units.select(0, 1)?.select(0, 2)?.zero_()?;
        let given = units.cuda(None)?;
        let texts = [linalg::cholesky(&given, false).err(), linalg::solve(&given, &given).err()];
        let wanted = [LinalgError::NotPositive { batch: Some(1), order: 3 }, LinalgError::Singular { batch: Some(1) }];
        for (text, wanted) in texts.iter().zip(wanted) {
            let text = text.as_ref().map_or(String::new(), Error::to_string);
            if text != wanted.to_string() {
                is_good = false;
                say(&format!("for {dtype} it says `{text}`, not `{wanted}`"));
            }
        }
    }
    Ok(is_good)
}
