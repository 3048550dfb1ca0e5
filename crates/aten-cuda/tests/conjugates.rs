//! Conjugates that are views: every operation answers for them as for copies that are conjugated, random programs of views
//! and writes agree with a list of places, and products read them without copies.

mod common;

use aten_cuda::blas::{self, einsum};
use aten_cuda::{Complex64, DType, Error, Result, Tensor, random, reductions, scans};
use common::operations::{Try, drawing, indexing, making, matrices_and_rows, pointwise};
use testkit::{Config, SimulatedRuntime, Simulation};

/// A simulated machine, with cuBLAS or without.
fn machine(with_library: bool) -> SimulatedRuntime {
    let simulated = Simulation::new(Config::default()).here();
    if with_library {
        blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt()));
    }
    simulated
}

/// Complex numbers on the host that are all different.
fn complex(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    let count: i64 = sizes.iter().product();
    let number = |at: i64| f64::from(i32::try_from(at % 23).unwrap_or(0)) / 8.0;
    let numbers: Vec<Complex64> =
        (0..count).map(|at| Complex64::new(number(at * 5 + 1) - 1.0, number(at * 7 + 3) - 1.25)).collect();
    Tensor::from_slice(&numbers, sizes)?.to_dtype(dtype)
}

/// The elements as numbers, or what was refused.
fn answer(made: Result<Tensor>) -> std::result::Result<(DType, Vec<i64>, Vec<String>), String> {
    let first_line = |error: Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    let made = made.map_err(first_line)?;
    let numbers = made.to_dtype(DType::C128).and_then(|wide| wide.to_vec::<Complex64>()).map_err(first_line)?;
    // Zeros of both signs are one number, and so are all NaNs.
    let text = |number: f64| if number.is_nan() { "NaN".to_owned() } else { (number + 0.0).to_string() };
    let texts = numbers.into_iter().map(|number| format!("{} {}", text(number.re), text(number.im)));
    Ok((made.dtype(), made.sizes().to_vec(), texts.collect()))
}

/// Every operation that tests know, with reductions and scans along the first dimension.
fn operations() -> Vec<(String, Try)> {
    let rows = reductions().chain(scans()).map(|row| -> (String, Try) {
        (row.name.to_owned(), Box::new(move |x: &Tensor| row.apply(x, 0)?.pop().ok_or_else(|| unreachable!())))
    });
    let named = [pointwise(), indexing(), matrices_and_rows(), making(), drawing()].into_iter().flatten();
    named.map(|(name, run)| (name.to_owned(), run)).chain(rows).collect()
}

/// Runs every operation on a view and on a tensor that has the same elements in memory.
fn compare_all(view: impl Fn() -> Result<Tensor>, kind: &str) -> Result<()> {
    let mut answered = 0;
    for (name, run) in operations() {
        let (with_signs, plain) = (view()?, view()?.copy()?);
        assert!(!plain.is_conj() && !plain.is_neg());
        random::manual_seed_all(7)?;
        let found = answer(run(&with_signs));
        random::manual_seed_all(7)?;
        let wanted = answer(run(&plain));
        assert_eq!(found, wanted, "{name} of {kind}");
        answered += u32::from(found.is_ok());
        assert_eq!(answer(Ok(with_signs)), answer(Ok(plain)), "what {name} leaves of {kind}");
    }
    assert!(answered > 60, "only {answered} operations answer for {kind}");
    Ok(())
}

#[test]
fn every_operation_answers_for_conjugates_as_for_their_copies() -> Result<()> {
    for with_library in [false, true] {
        let _simulated = machine(with_library);
        for dtype in [DType::C32, DType::C64, DType::C128] {
            compare_all(|| Ok(complex(&[2, 2], dtype)?.cuda(None)?.conj()), &format!("{dtype}"))?;
            compare_all(|| complex(&[2, 2], dtype)?.cuda(None)?.mh(), &format!("{dtype} turned"))?;
        }
    }
    Ok(())
}

#[test]
fn every_operation_answers_for_negatives_as_for_their_copies() -> Result<()> {
    let _simulated = machine(true);
    for dtype in [DType::C32, DType::C64, DType::C128] {
        compare_all(|| complex(&[2, 2], dtype)?.cuda(None)?.conj().imag(), &format!("imag of {dtype}"))?;
    }
    Ok(())
}

#[test]
fn views_carry_the_sign_along() -> Result<()> {
    let _simulated = machine(false);
    let a = complex(&[2, 3], DType::C64)?.cuda(None)?;
    let conjugate = a.conj();
    assert!(conjugate.is_conj() && !conjugate.conj().is_conj() && !a.is_conj());
    assert_eq!(conjugate.data_ptr(), a.data_ptr());
    assert!(conjugate.t()?.select(0, 1)?.is_conj() && conjugate.view(&[6])?.as_strided(&[2], &[3], None)?.is_conj());
    assert!(!conjugate.copy()?.is_conj() && !conjugate.resolve_conj()?.is_conj() && !conjugate.add(1)?.is_conj());
    assert!(!conjugate.cpu()?.is_conj());
    assert_eq!(a.resolve_conj()?.data_ptr(), a.data_ptr());
    let real = Tensor::ones(&[2, 2], DType::F32, "cuda")?;
    assert!(!real.conj().is_conj());
    assert_eq!(real.conj().data_ptr(), real.data_ptr());
    let numbers = a.cpu()?.to_dtype(DType::C128)?.to_vec::<Complex64>()?;
    let turned: Vec<Complex64> = numbers.iter().map(Complex64::conj).collect();
    assert_eq!(conjugate.to_dtype(DType::C128)?.to_vec::<Complex64>()?, turned);
    assert_eq!(conjugate.cpu()?.to_dtype(DType::C128)?.to_vec::<Complex64>()?, turned);
    Ok(())
}

#[test]
fn adjoints_and_their_refusals_are_those_of_torch() -> Result<()> {
    let (line, matrix) = (complex(&[3], DType::C64)?, complex(&[2, 3], DType::C64)?);
    let batch = complex(&[2, 3, 4], DType::C64)?;
    assert_eq!((matrix.h()?.sizes(), matrix.h()?.is_conj()), (&[3, 2][..], true));
    assert_eq!((batch.mh()?.sizes(), batch.adjoint()?.is_conj()), (&[2, 4, 3][..], true));
    assert_eq!((batch.mt()?.sizes(), batch.mt()?.is_conj()), (&[2, 4, 3][..], false));
    assert!(complex(&[], DType::C64)?.h()?.is_conj() && complex(&[], DType::C64)?.adjoint()?.is_conj());
    let texts = [
        (
            batch.h(),
            "tensor.H is only supported on matrices (2-D tensors). Got 3-D tensor. For batches of matrices, consider \
          using tensor.mH",
        ),
        (line.h(), "tensor.H is only supported on matrices (2-D tensors). Got 1-D tensor."),
        (line.mh(), "tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor."),
        (line.adjoint(), "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor."),
        (
            matrix.conj().view_as_real(),
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate \
          tensor so you can view it as real, use self.resolve_conj(); however, be warned that the resulting tensor will NOT \
          alias the original.",
        ),
        (line.real()?.imag(), "imag is not implemented for tensors with non-complex dtypes."),
        (line.real()?.view_as_real(), "view_as_real is only supported for complex tensors"),
        (line.real()?.view_as_complex(), "Tensor must have a last dimension of size 2"),
    ];
    for (made, text) in texts {
        assert_eq!(made.unwrap_err().to_string(), text);
    }
    Ok(())
}

#[test]
fn parts_of_complex_numbers_are_views() -> Result<()> {
    for device in ["cpu", "cuda"] {
        let _simulated = machine(false);
        let a = complex(&[4], DType::C128)?.to_device(device)?;
        let imaginary = a.conj().imag()?;
        assert!(imaginary.is_neg() && !a.imag()?.is_neg() && !a.conj().real()?.is_neg());
        imaginary.add_(1)?;
        a.conj().real()?.fill_(5)?;
        let numbers = a.to_vec::<Complex64>()?;
        let was = complex(&[4], DType::C128)?.to_vec::<Complex64>()?;
        for (now, was) in numbers.iter().zip(&was) {
            assert_eq!((now.re, now.im), (5.0, was.im - 1.0));
        }
        assert_eq!(imaginary.to_vec::<f64>()?, was.iter().map(|was| 1.0 - was.im).collect::<Vec<_>>());
        let pairs = a.view_as_real()?;
        assert_eq!((pairs.sizes(), pairs.view_as_complex()?.data_ptr()), (&[4, 2][..], a.data_ptr()));
        assert_eq!(pairs.view_as_complex()?.to_vec::<Complex64>()?, numbers);
    }
    Ok(())
}

/// Whoever borrows the memory cannot be told of signs.
#[test]
fn lenders_refuse_signs() -> Result<()> {
    let a = complex(&[2], DType::C64)?;
    let lent = a.conj().to_dlpack(aten_cuda::dlpack::Consumer::Unordered);
    assert_eq!(lent.unwrap_err().to_string(), "Can't export tensors with the conjugate bit set");
    assert!(a.conj().imag()?.to_dlpack(aten_cuda::dlpack::Consumer::Unordered).is_err());
    Ok(())
}

/// A view as the places of its elements, and whether each is a conjugate of what lies there.
#[derive(Clone)]
struct Model {
    sizes: Vec<i64>,
    places: Vec<(usize, bool)>,
}

impl Model {
    fn read(&self, memory: &[Complex64]) -> Vec<Complex64> {
        self.places.iter().map(|&(at, is_conj)| if is_conj { memory[at].conj() } else { memory[at] }).collect()
    }

    fn write(&self, memory: &mut [Complex64], numbers: &[Complex64]) {
        for (&(at, is_conj), number) in self.places.iter().zip(numbers) {
            memory[at] = if is_conj { number.conj() } else { *number };
        }
    }

    fn conj(&self) -> Self {
        let places = self.places.iter().map(|&(at, is_conj)| (at, !is_conj)).collect();
        Self { sizes: self.sizes.clone(), places }
    }

    fn transposed(&self) -> Self {
        let (rows, columns) = (self.rows(), self.columns());
        let at = |column: usize, row: usize| self.places[row * columns + column];
        let places = (0..columns).flat_map(|column| (0..rows).map(move |row| at(column, row))).collect();
        Self { sizes: vec![self.sizes[1], self.sizes[0]], places }
    }

    /// All rows but the first.
    fn below(&self) -> Self {
        Self { sizes: vec![self.sizes[0] - 1, self.sizes[1]], places: self.places[self.columns()..].to_vec() }
    }

    fn rows(&self) -> usize {
        usize::try_from(self.sizes[0]).expect("a size")
    }

    fn columns(&self) -> usize {
        usize::try_from(self.sizes[1]).expect("a size")
    }
}

/// Random views of one matrix, written in turn, against lists of places.
fn random_program(seed: usize, device: &str) -> Result<()> {
    let _simulated = machine(seed.is_multiple_of(2));
    let start = complex(&[6, 5], DType::C128)?;
    let mut memory = start.to_vec::<Complex64>()?;
    let whole = Model { sizes: vec![6, 5], places: (0..30).map(|at| (at, false)).collect() };
    let mut views = vec![(start.to_device(device)?.copy()?, whole)];
    let mut choices = common::random(400).skip(seed * 61).map(|word| usize::try_from(word % 1000).unwrap_or(0));
    let mut choose = |count: usize| choices.next().unwrap_or(0) % count;
    for _ in 0..30 {
        let (view, model) = views[choose(views.len())].clone();
        match choose(9) {
            0 => views.push((view.conj(), model.conj())),
            1 => views.push((view.t()?, model.transposed())),
            2 => views.push((view.mh()?, model.conj().transposed())),
            3 if model.rows() > 2 => views.push((view.narrow(0, 1, model.sizes[0] - 1)?, model.below())),
            4 => {
                view.add_(Complex64::new(0.5, 1.0))?;
                let sums: Vec<Complex64> =
                    model.read(&memory).into_iter().map(|number| number + Complex64::new(0.5, 1.0)).collect();
                model.write(&mut memory, &sums);
            }
            5 => {
                let row = Complex64::new(0.25, -2.0);
                view.select(0, 0)?.fill_(row)?;
                let mut numbers = model.read(&memory);
                numbers[..model.columns()].fill(row);
                model.write(&mut memory, &numbers);
            }
            6 => {
                // A copy, which may go from a view to its own transpose.
                let Some((other, source)) = views.iter().find(|(_, other)| other.sizes == model.sizes) else {
                    continue;
                };
                view.copy_(other)?;
                let numbers = source.read(&memory);
                model.write(&mut memory, &numbers);
            }
            7 => {
                // The first two rows, conjugated, in each other's place.
                let places = Tensor::from_slice(&[1_i64, 0], &[2])?.to_device(device)?;
                let rows = view.index_select(0, &places)?;
                view.index_copy_(0, &Tensor::arange(0, 2, 1, Some(DType::I64), device)?, &rows.conj())?;
                let (mut numbers, columns) = (model.read(&memory), model.columns());
                let (first, second) = (numbers[..columns].to_vec(), numbers[columns..2 * columns].to_vec());
                for column in 0..columns {
                    numbers[column] = second[column].conj();
                    numbers[columns + column] = first[column].conj();
                }
                model.write(&mut memory, &numbers);
            }
            _ => {
                let square = view.mul(&view.conj())?.sum(None, false, None)?.item()?.to_f64();
                let wanted: f64 = model.read(&memory).iter().map(Complex64::norm_sqr).sum();
                assert!((square - wanted).abs() <= 1e-12 * wanted, "{square} for {wanted}");
            }
        }
        for (view, model) in &views {
            let found = view.to_vec::<Complex64>()?;
            for (found, wanted) in found.iter().zip(model.read(&memory)) {
                assert!((found - wanted).l1_norm() <= 1e-12 * wanted.l1_norm(), "{found} for {wanted}, seed {seed}");
            }
        }
    }
    Ok(())
}

#[test]
fn random_programs_agree_with_lists_of_places() -> Result<()> {
    (0..5).try_for_each(|seed| random_program(seed, "cpu").and_then(|()| random_program(seed, "cuda")))
}

/// Kernels that were launched, and blocks of memory that were handed out.
fn counts(rig: &SimulatedRuntime) -> Result<(u64, i64)> {
    let launched = rig.machine().calls().into_iter().filter(|(call, ..)| call.starts_with("cuLaunchKernel"));
    let handed = rig.runtime().memory().stats(0).map_err(Error::from)?.allocation.all.allocated;
    Ok((launched.map(|(.., count)| count).sum(), handed))
}

/// How many kernels a product launches, and how many blocks it takes; its operations as the library gets them.
fn costs(rig: &SimulatedRuntime, run: impl Fn() -> Result<Tensor>) -> Result<((u64, i64), Vec<String>)> {
    run()?;
    let _ = rig.machine().take_library_calls();
    let before = counts(rig)?;
    let _made = run()?;
    let after = counts(rig)?;
    let calls = rig.machine().take_library_calls();
    let named = |call: &testkit::LibraryCall, name: &str| {
        call.arguments.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    };
    let operations = calls.iter().filter_map(|call| Some(named(call, "transa")? + "/" + &named(call, "transb")?));
    Ok(((after.0 - before.0, after.1 - before.1), operations.collect()))
}

#[test]
fn products_by_the_library_copy_no_conjugate_that_it_can_read() -> Result<()> {
    let rig = machine(true);
    let (a, b) = (complex(&[5, 7], DType::C64)?.cuda(None)?, complex(&[7, 6], DType::C64)?.cuda(None)?);
    let (tall, wide) = (complex(&[7, 5], DType::C64)?.cuda(None)?, complex(&[6, 7], DType::C64)?.cuda(None)?);
    let same = |made: &Tensor, a: &Tensor, b: &Tensor| -> Result<()> {
        let wanted = a.cpu()?.mm(&b.cpu()?)?;
        assert!(made.cpu()?.sub(&wanted)?.abs()?.max()?.item()?.to_f64() < 1e-4);
        Ok(())
    };
    // One block for the result, no kernel besides the library's.
    for (a, b, operations) in [
        (tall.mh()?, b.clone(), "0/2"),
        (a.clone(), wide.mh()?, "2/0"),
        (tall.mh()?, wide.mh()?, "2/2"),
        (tall.mh()?, wide.t()?, "1/2"),
    ] {
        let (cost, called) = costs(&rig, || a.mm(&b))?;
        assert_eq!(cost, (0, 1), "{called:?}");
        assert_eq!(called.iter().map(|called| digits(called)).collect::<Vec<_>>(), [operations]);
        same(&a.mm(&b)?, &a, &b)?;
    }
    // Conjugates by rows: the whole result is conjugated in place.
    let (cost, called) = costs(&rig, || a.conj().mm(&b.conj()))?;
    assert_eq!(cost, (1, 1), "{called:?}");
    same(&a.conj().mm(&b.conj())?, &a.conj(), &b.conj())?;
    // A conjugate by rows beside a factor by rows is copied.
    same(&a.conj().mm(&b)?, &a.conj(), &b)?;
    let (cost, _) = costs(&rig, || a.select(0, 0)?.vdot(&a.select(0, 1)?))?;
    assert_eq!(cost, (0, 1));
    Ok(())
}

/// The numbers in what the recorder writes of operations.
fn digits(text: &str) -> String {
    text.chars().filter(|sign| sign.is_ascii_digit() || *sign == '/').collect()
}

#[test]
fn own_kernels_read_conjugates() -> Result<()> {
    let rig = machine(false);
    let (a, b) = (complex(&[5, 7], DType::C64)?.cuda(None)?, complex(&[7, 6], DType::C64)?.cuda(None)?);
    let c = complex(&[5, 6], DType::C64)?.cuda(None)?;
    for (a, b) in [(a.conj(), b.clone()), (a.clone(), b.conj()), (a.conj(), b.conj())] {
        let run = || c.conj().addmm(&a, &b, 2, Complex64::new(0.5, 1.0));
        assert_eq!(costs(&rig, run)?.0, (1, 1));
        let wanted = c.cpu()?.conj_physical()?.addmm(&a.cpu()?, &b.cpu()?, 2, Complex64::new(0.5, 1.0))?;
        assert!(run()?.cpu()?.sub(&wanted)?.abs()?.max()?.item()?.to_f64() < 1e-4);
    }
    Ok(())
}

/// Products of all kinds with every operand a conjugate or not, beside the host.
#[test]
fn all_products_take_conjugates() -> Result<()> {
    for with_library in [false, true] {
        let _simulated = machine(with_library);
        for bits in 0..8 {
            let turned = |tensor: Tensor, bit: u32| if bits >> bit & 1 == 1 { tensor.conj() } else { tensor };
            let run = |device: &str| -> Result<Vec<Tensor>> {
                let made = |sizes: &[i64]| complex(sizes, DType::C128)?.to_device(device);
                let (a, b, c) = (turned(made(&[3, 4, 5])?, 0), turned(made(&[3, 5, 6])?, 1), turned(made(&[4, 6])?, 2));
                let (first, second) = (a.select(0, 1)?, b.select(0, 2)?);
                let (alpha, beta) = (Complex64::new(0.5, -1.0), Complex64::new(1.5, 0.25));
                let kept = turned(made(&[4, 6])?, 2);
                kept.addmm_(&first, &second, beta, alpha)?;
                let out = turned(made(&[3, 4, 6])?, 2);
                a.bmm_out(&b, &out)?;
                Ok(vec![
                    first.mm(&second)?,
                    c.addmm(&first, &second, beta, alpha)?,
                    a.bmm(&b)?,
                    c.baddbmm(&a, &b, beta, alpha)?,
                    c.addbmm(&a, &b, beta, alpha)?,
                    a.transpose(1, 2)?.matmul(&c)?,
                    first.mv(&second.select(1, 1)?)?,
                    c.select(1, 2)?.addmv(&first, &second.select(1, 0)?, beta, alpha)?,
                    first.select(0, 0)?.dot(&second.select(1, 0)?)?,
                    first.select(0, 0)?.vdot(&second.select(1, 0)?)?,
                    first.linear(&second.t()?, None)?,
                    einsum("bij,bjk,ik->bk", &[&a, &b, &c])?,
                    a.expand(&[3, 4, 5])?.narrow(1, 0, 1)?.expand(&[3, 4, 5])?.bmm(&b)?,
                    kept,
                    out,
                ])
            };
            for (at, (host, device)) in run("cpu")?.iter().zip(run("cuda")?).enumerate() {
                let off = device.cpu()?.sub(host)?.abs()?.max()?.item()?.to_f64();
                assert!(off < 1e-11, "product {at} with {bits:03b} is off by {off}");
            }
        }
    }
    Ok(())
}
