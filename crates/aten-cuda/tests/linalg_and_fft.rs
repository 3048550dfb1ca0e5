//! Factorisations and Fourier transforms: on the host, on a simulated device with simulated libraries, and without them;
//! torch's texts.

use aten_cuda::{Complex64, DType, Error, LinalgError, Result, Tensor, deterministic, fft, linalg};
use c10_core::Stream;
use testkit::{CUresult, Config, Fault, SimulatedRuntime};

/// A simulated device with both libraries.
fn with_libraries(config: Config) -> SimulatedRuntime {
    let simulated = SimulatedRuntime::new(config);
    linalg::set_library(Some(testkit::cusolver()));
    fft::set_library(Some(testkit::cufft()));
    simulated
}

/// Numbers that make no matrix singular.
fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|at| f64::from(u8::try_from(at * 37 % 23).expect("small")) - 7.5).collect()
}

fn tensor(sizes: &[i64], device: &str) -> Result<Tensor> {
    let count = usize::try_from(sizes.iter().product::<i64>()).expect("a count");
    on(&Tensor::from_slice(&numbers(count), sizes)?, device)
}

fn on(tensor: &Tensor, device: &str) -> Result<Tensor> {
    if device == "cuda" { tensor.cuda(None) } else { Ok(tensor.clone()) }
}

fn assert_near(one: &Tensor, other: &Tensor) -> Result<()> {
    assert_eq!(one.sizes(), other.sizes());
    let pairs = one
        .to_dtype(DType::C128)?
        .to_vec::<Complex64>()?
        .into_iter()
        .zip(other.to_dtype(DType::C128)?.to_vec::<Complex64>()?);
    let distance = pairs.map(|(one, other)| (one - other).l1_norm()).fold(0.0, f64::max);
    assert!(distance < 1e-9, "{distance}");
    Ok(())
}

fn text<T: std::fmt::Debug>(answer: Result<T>) -> String {
    answer.expect_err("it is refused").to_string()
}

fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.cpu()?.matmul(&b.cpu()?)
}

#[test]
fn factors_give_the_matrices_back() -> Result<()> {
    let simulated = with_libraries(Config::default());
    for device in ["cpu", "cuda"] {
        let a = tensor(&[2, 4, 4], device)?;
        let b = tensor(&[4, 3], device)?;
        assert_near(&product(&a, &linalg::solve(&a, &b)?)?, &b.expand(&[2, 4, 3])?)?;
        let vector = tensor(&[2, 4], device)?;
        let solved = linalg::solve(&a, &vector)?;
        assert_near(&product(&a, &solved.unsqueeze(-1)?)?.squeeze(Some(-1))?, &vector)?;
        let positive = on(&product(&a, &a.transpose(-2, -1)?)?, device)?;
        let lower = linalg::cholesky(&positive, false)?;
        assert_near(&product(&lower, &lower.transpose(-2, -1)?)?, &positive)?;
        assert_near(&linalg::cholesky(&positive, true)?, &lower.transpose(-2, -1)?)?;
        for sizes in [[2, 5, 3], [2, 3, 5]] {
            let a = tensor(&sizes, device)?;
            for mode in ["reduced", "complete"] {
                let (q, r) = linalg::qr(&a, mode)?;
                assert_near(&product(&q, &r)?, &a)?;
            }
            let (empty, r) = linalg::qr(&a, "r")?;
            assert_eq!((empty.sizes(), r.sizes()), (&[0][..], &[2, 3, sizes[2]][..]));
            let (u, values, v) = linalg::svd(&a, false, None)?;
            assert_near(&product(&u.cpu()?.mul(&values.cpu()?.unsqueeze(-2)?)?, &v)?, &a)?;
            let (u, full, v) = linalg::svd(&a, true, None)?;
            assert_eq!((u.sizes()[1..].to_vec(), v.sizes()[1..].to_vec()), (vec![sizes[1]; 2], vec![sizes[2]; 2]));
            assert_near(&full, &linalg::svdvals(&a, None)?)?;
        }
    }
    simulated.close_clean();
    Ok(())
}

#[test]
fn complex_matrices_are_factorised_like_real_ones() -> Result<()> {
    let _simulated = with_libraries(Config::default());
    let numbers: Vec<Complex64> = numbers(12).iter().map(|&value| Complex64::new(value, 3.0 - value * value)).collect();
    for device in ["cpu", "cuda"] {
        let a = on(&Tensor::from_slice(&numbers, &[4, 3])?, device)?;
        let (q, r) = linalg::qr(&a, "reduced")?;
        assert_near(&product(&q, &r)?, &a)?;
        for a in [a.clone(), a.transpose(0, 1)?] {
            let (u, values, v) = linalg::svd(&a, false, None)?;
            assert_eq!(values.dtype(), DType::F64);
            let scaled = u.cpu()?.mul(&values.cpu()?.to_dtype(DType::C128)?.unsqueeze(0)?)?;
            assert_near(&product(&scaled, &v)?, &a)?;
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_in_torchs_words() -> Result<()> {
    let _simulated = with_libraries(Config::default());
    for device in ["cpu", "cuda"] {
        let zeros = Tensor::zeros(&[2, 2], DType::F64, device)?;
        let positive = "The factorization could not be completed because the input is not positive-definite (the leading minor of order 1 is not positive-definite).";
        assert_eq!(text(linalg::cholesky(&zeros, false)), format!("linalg.cholesky: {positive}"));
        let batch = zeros.unsqueeze(0)?;
        assert_eq!(text(linalg::cholesky(&batch, false)), format!("linalg.cholesky: (Batch element 0): {positive}"));
        let singular = "The solver failed because the input matrix is singular.";
        assert_eq!(text(linalg::solve(&zeros, &zeros)), format!("torch.linalg.solve: {singular}"));
        assert_eq!(text(linalg::solve(&batch, &zeros)), format!("torch.linalg.solve: (Batch element 0): {singular}"));
        let wide = Tensor::zeros(&[2, 3], DType::F64, device)?;
        let square = "A must be batches of square matrices, but they are 2 by 3 matrices";
        assert_eq!(text(linalg::cholesky(&wide, false)), format!("linalg.cholesky: {square}"));
        assert_eq!(text(linalg::solve(&wide, &zeros)), format!("linalg.solve: {square}"));
        let shapes = "linalg.solve: Incompatible shapes of A and B for the equation AX = B (2x2 and 3x1)";
        assert_eq!(text(linalg::solve(&zeros, &Tensor::zeros(&[3, 1], DType::F64, device)?)), shapes);
        let vector = Tensor::zeros(&[2], DType::F64, device)?;
        assert_eq!(
            text(linalg::qr(&vector, "reduced")),
            "linalg.qr: The input tensor A must have at least 2 dimensions."
        );
        let mode = "qr received unrecognized mode 'x' but expected one of 'reduced' (default), 'r', or 'complete'";
        assert_eq!(text(linalg::qr(&zeros, "x")), mode);
        let whole = Tensor::zeros(&[2, 2], DType::I32, device)?;
        let expected = "linalg.cholesky: Expected a floating point or complex tensor as input. Got Int";
        assert_eq!(text(linalg::cholesky(&whole, false)), expected);
    }
    let half = Tensor::zeros(&[2, 2], DType::F16, "cuda")?;
    assert_eq!(text(linalg::cholesky(&half, false)), "\"cholesky_cusolver\" not implemented for 'Half'");
    assert_eq!(
        text(linalg::set_preferred_linalg_library("xx")),
        "Unknown input value. Choose from: default, cusolver, magma."
    );
    Ok(())
}

#[test]
fn transforms_go_there_and_back_along_any_dimension() -> Result<()> {
    let simulated = with_libraries(Config::default());
    for device in ["cpu", "cuda"] {
        let a = tensor(&[3, 5, 4], device)?;
        for dim in [0, 1, -1] {
            let there = fft::fft(&a, None, dim, None)?;
            assert_near(&fft::ifft(&there, None, dim, None)?, &a)?;
            let length = a.sizes()[usize::try_from(dim).unwrap_or(2)];
            let half = fft::rfft(&a, None, dim, Some("ortho"))?;
            assert_near(&fft::irfft(&half, Some(length), dim, Some("ortho"))?, &a)?;
        }
        let line = tensor(&[5], device)?;
        let sum = fft::fft(&line, None, 0, Some("backward"))?.to_vec::<Complex64>()?[0];
        assert!((sum.re - numbers(5).iter().sum::<f64>()).abs() < 1e-9);
        // Longer signals are filled with zeros, shorter ones cut.
        assert_eq!(fft::rfft(&line, Some(8), 0, None)?.sizes(), [5]);
        assert_near(&fft::fft(&line, Some(3), 0, None)?, &fft::fft(&line.narrow(0, 0, 3)?, None, 0, None)?)?;
        assert_eq!(fft::fft(&Tensor::zeros(&[4], DType::I64, device)?, None, 0, None)?.dtype(), DType::C64);
        assert_eq!(
            text(fft::fft(&line, None, 3, None)),
            "Dimension out of range (expected to be in range of [-1, 0], but got 3)"
        );
        assert_eq!(text(fft::fft(&line, None, 0, Some("x"))), "Invalid normalization mode: \"x\"");
        assert_eq!(text(fft::fft(&line, Some(0), 0, None)), "Invalid number of data points (0) specified");
        let scalar = line.select(0, 0)?;
        assert_eq!(text(fft::fft(&scalar, None, -1, None)), "Dimension specified as -1 but tensor has no dimensions");
        assert_eq!(text(fft::fft(&line.to_dtype(DType::BF16)?, None, 0, None)), "Unsupported dtype BFloat16");
        let complex = line.to_dtype(DType::C64)?;
        assert_eq!(text(fft::rfft(&complex, None, 0, None)), "rfft expects a real input tensor, but got ComplexFloat");
    }
    fft::plan_cache(0)?.clear();
    simulated.close_clean();
    Ok(())
}

#[test]
fn plans_are_kept_and_forgotten() -> Result<()> {
    let _simulated = with_libraries(Config::default());
    let cache = fft::plan_cache(0)?;
    assert_eq!((cache.size(), cache.max_size()), (0, 4096));
    let line = tensor(&[8], "cuda")?;
    for length in [8, 7, 8, 6] {
        fft::fft(&line, Some(length), 0, None)?;
    }
    assert_eq!(cache.size(), 3);
    cache.set_max_size(2)?;
    assert_eq!((cache.size(), cache.max_size()), (2, 2));
    assert_eq!(text(cache.set_max_size(-1)), "cuFFT plan cache size must be non-negative, but got -1");
    cache.clear();
    assert_eq!(cache.size(), 0);
    let range = "cufft_plan_cache: expected 0 <= device index < 1, but got device with index 1";
    assert_eq!(text(fft::plan_cache(1)), range);
    Ok(())
}

#[test]
fn without_a_library_or_when_it_fails_the_error_says_so() -> Result<()> {
    let simulated = SimulatedRuntime::new(Config::default());
    let a = tensor(&[2, 2], "cuda")?;
    let Err(Error::Linalg(missing)) = linalg::cholesky(&a, false) else { panic!("there is no cuSOLVER") };
    assert!(matches!(*missing, LinalgError::Missing { library: "cuSOLVER", .. }), "{missing}");
    assert!(text(fft::fft(&a, None, -1, None)).starts_with("fft on CUDA tensors needs cuFFT"));
    linalg::set_library(Some(testkit::cusolver()));
    fft::set_library(Some(testkit::cufft()));
    for call in ["cusolverDnXpotrf", "cufftXtExec"] {
        simulated.machine().inject(Fault { call, occurrence: 1, code: CUresult(6) });
    }
    let failed = text(linalg::cholesky(&a, false));
    assert!(
        failed.starts_with("cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED, when calling `cusolverDnXpotrf("),
        "{failed}"
    );
    let failed = text(fft::fft(&a, None, -1, None));
    assert!(failed.starts_with("cuFFT error: CUFFT_EXEC_FAILED"), "{failed}");
    fft::fft(&a, None, -1, None)?;
    // That machine code is not simulated has to do with kernels.
    let reports = simulated.machine().reports();
    assert!(reports.iter().all(|report| report.call == "cuModuleLoadDataEx"), "{reports:?}");
    Ok(())
}

#[test]
fn one_stream_factorises_while_deterministic_algorithms_are_used() -> Result<()> {
    let simulated = with_libraries(Config::default());
    let streams = [Stream::new(None, 0)?, Stream::new(None, 0)?];
    let used = || -> Vec<Option<u64>> {
        let calls = simulated.machine().take_library_calls();
        let mut used: Vec<_> =
            calls.iter().filter(|call| call.symbol.starts_with("cusolverDnX")).map(|call| call.stream).collect();
        assert!(!used.is_empty());
        used.dedup();
        used
    };
    let a = tensor(&[4, 4], "cuda")?;
    for is_deterministic in [false, true] {
        deterministic::use_deterministic_algorithms(is_deterministic, false);
        for stream in &streams {
            let _current = stream.guard();
            let (q, r) = linalg::qr(&a, "reduced")?;
            assert_near(&product(&q, &r)?, &a)?;
            assert_near(&product(&a, &linalg::solve(&a, &a)?)?, &a)?;
            let own = u64::try_from(stream.cuda_stream()).expect("an address");
            assert_eq!(used(), [Some(if is_deterministic { 0 } else { own })]);
        }
    }
    deterministic::use_deterministic_algorithms(false, false);
    drop((a, streams));
    simulated.close_clean();
    Ok(())
}
