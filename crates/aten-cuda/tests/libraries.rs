//! Products by the simulated cuBLAS and cuBLASLt: the numbers, the calls and their order, workspaces in the memory
//! statistics, captures, settings, and calls that fail.
//!
//! The settings are the process's, so that the tests that change one take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use aten_cuda::blas::{self, BlasBackend, ProductLibrary, einsum};
use aten_cuda::{DType, Error, Result, Scalar, Tensor};
use c10_core::{CUDAGraph, CaptureMode, DeviceIndex, Runtime, Stream};
use testkit::{Config, Fault, LibraryCall, SimulatedRuntime, Simulation};

static SETTINGS: Mutex<()> = Mutex::new(());

/// A simulated machine with both libraries, which compute small products too; nobody else changes a setting meanwhile.
struct Fixture {
    _turn: MutexGuard<'static, ()>,
    simulated: SimulatedRuntime,
}

fn fixture() -> Fixture {
    let turn = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let simulated = Simulation::new(Config::default()).here();
    blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt()));
    if blas::preferred_blas_library() == BlasBackend::Cublas {
        blas::set_preferred_blas_library(BlasBackend::Cublas).expect("there is such a library");
    }
    Fixture { _turn: turn, simulated }
}

/// The same where nobody has asked for a library.
fn undecided() -> Fixture {
    let fixture = fixture();
    blas::set_preferred_blas_library("default").expect("there is such a choice");
    fixture
}

impl Fixture {
    /// The calls since the last time that queue products, and where they are queued.
    fn calls(&self) -> Vec<LibraryCall> {
        self.simulated.machine().take_library_calls()
    }

    fn names(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.symbol.to_string()).collect()
    }
}

fn numbers(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    let count: i64 = sizes.iter().product();
    let numbers = Tensor::arange(0, count, 1, Some(DType::I64), "cpu")?.remainder(7)?.sub(3)?;
    numbers.to_dtype(dtype)?.view(sizes)
}

fn equal(device: &Tensor, host: &Tensor) -> Result<()> {
    assert_eq!(device.sizes(), host.sizes());
    let difference = device.cpu()?.to_dtype(DType::C128)?.sub(&host.to_dtype(DType::C128)?)?.abs()?;
    if difference.numel() > 0 {
        let largest = difference.max()?.item()?.to_f64();
        assert!(largest < 1e-3, "{largest}");
    }
    Ok(())
}

#[test]
fn products_of_every_dtype_and_layout_are_those_of_the_host() -> Result<()> {
    let fixture = fixture();
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::C64, DType::C128] {
        for (turned_a, turned_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = numbers(if turned_a { &[9, 5] } else { &[5, 9] }, dtype)?;
            let b = numbers(if turned_b { &[7, 9] } else { &[9, 7] }, dtype)?;
            let turn = |tensor: &Tensor, turned| if turned { tensor.t() } else { Ok(tensor.clone()) };
            let (da, db) = (turn(&a.cuda(None)?, turned_a)?, turn(&b.cuda(None)?, turned_b)?);
            let (a, b) = (turn(&a, turned_a)?, turn(&b, turned_b)?);
            equal(&da.mm(&db)?, &a.mm(&b)?)?;
            let added = numbers(&[5, 1], dtype)?;
            equal(&added.cuda(None)?.addmm(&da, &db, 2, 0.5)?, &added.addmm(&a, &b, 2, 0.5)?)?;
            equal(&da.unsqueeze(0)?.expand(&[3, 5, 9])?.bmm(&db.unsqueeze(0)?.expand(&[3, 9, 7])?)?, &{
                a.unsqueeze(0)?.expand(&[3, 5, 9])?.bmm(&b.unsqueeze(0)?.expand(&[3, 9, 7])?)?
            })?;
        }
    }
    let names = fixture.names();
    for name in ["cublasGemmEx", "cublasSgemm_v2", "cublasDgemm_v2", "cublasCgemm_v2", "cublasZgemm_v2"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    Ok(())
}

#[test]
fn other_products_are_those_of_the_host() -> Result<()> {
    let _fixture = fixture();
    let (a, b) = (numbers(&[4, 3, 5], DType::F32)?, numbers(&[4, 5, 6], DType::F32)?);
    let (v, w, flat) = (numbers(&[5], DType::F32)?, numbers(&[3], DType::F32)?, numbers(&[3, 6], DType::F32)?);
    let there = |tensor: &Tensor| tensor.cuda(None);
    let (da, db, dv, dw, dflat) = (there(&a)?, there(&b)?, there(&v)?, there(&w)?, there(&flat)?);
    equal(&dflat.addbmm(&da, &db, 0.5, 2)?, &flat.addbmm(&a, &b, 0.5, 2)?)?;
    equal(&dw.addmv(&da.select(0, 1)?, &dv, 3, -1)?, &w.addmv(&a.select(0, 1)?, &v, 3, -1)?)?;
    equal(&dv.dot(&dv)?, &v.dot(&v)?)?;
    equal(&da.matmul(&dv)?, &a.matmul(&v)?)?;
    equal(&dw.matmul(&da)?, &w.matmul(&a)?)?;
    equal(&da.linear(&numbers(&[7, 5], DType::F32)?.cuda(None)?, &numbers(&[7], DType::F32)?.cuda(None)?)?, &{
        a.linear(&numbers(&[7, 5], DType::F32)?, &numbers(&[7], DType::F32)?)?
    })?;
    let imaginary = Scalar::Complex(aten_cuda::Complex64::new(0.0, 1.0));
    let z = v.to_dtype(DType::C64)?.mul(imaginary)?.add(1)?;
    equal(&there(&z)?.vdot(&there(&z)?)?, &z.vdot(&z)?)?;
    for equation in ["bij,bjk->bik", "bij,bjk->k", "bij,bjk", "...ij,...jk->...k", "bij,bjk->"] {
        equal(&einsum(equation, &[&da, &db])?, &einsum(equation, &[&a, &b])?)?;
    }
    equal(&einsum("bij,bjk,ik->b", &[&da, &db, &dflat])?, &einsum("bij,bjk,ik->b", &[&a, &b, &flat])?)
}

#[test]
fn outputs_may_be_operands_and_have_gaps() -> Result<()> {
    let _fixture = fixture();
    let a = numbers(&[4, 4], DType::F32)?;
    let wanted = a.mm(&a)?;
    let device = a.cuda(None)?;
    let wide = Tensor::zeros(&[4, 8], DType::F32, "cuda")?;
    let out = wide.narrow(1, 2, 4)?;
    device.mm_out(&device, &out)?;
    equal(&out, &wanted)?;
    assert_eq!(wide.select(1, 0)?.to_vec::<f32>()?, [0.0; 4]);
    device.mm_out(&device, &device)?;
    equal(&device, &wanted)?;
    let sum = a.cuda(None)?;
    sum.addmm_(&sum, &sum, 1, 1)?;
    equal(&sum, &a.addmm(&a, &a, 1, 1)?)?;
    let error = device.mm_out(&device, &Tensor::zeros(&[4, 4], DType::F16, "cuda")?).unwrap_err();
    assert_eq!(error.to_string(), "Expected out tensor to have dtype float, but got c10::Half instead");
    let error = Tensor::zeros(&[4, 1], DType::F32, "cuda")?.addmm_(&device, &device, 1, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Bad in-place call: input tensor size [4, 1] and output tensor size [4, 4] should match"
    );
    Ok(())
}

#[test]
fn small_products_need_no_library() -> Result<()> {
    let fixture = undecided();
    let bound = ["cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2"];
    let a = numbers(&[64, 64], DType::F32)?;
    equal(&a.cuda(None)?.mm(&a.cuda(None)?)?, &a.mm(&a)?)?;
    assert_eq!(fixture.names(), bound);
    let sizes = [[1, 1, 1], [8, 8, 8], [5, 9, 7], [16, 64, 32], [33, 20, 70], [128, 64, 128], [1, 3, 200]];
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for ([m, k, n], turned) in sizes.into_iter().flat_map(|sizes| (0..4).map(move |turned| (sizes, turned))) {
            let of = |rows, columns, is_turned: bool, gap: i64| {
                let wide = numbers(&if is_turned { [columns, rows + gap] } else { [rows, columns + gap] }, dtype)?;
                let there = wide.cuda(None)?;
                let part = |wide: Tensor| wide.narrow(1, 0, wide.sizes()[1] - gap);
                let pair = [part(wide)?, part(there)?];
                if is_turned { Ok::<_, Error>([pair[0].t()?, pair[1].t()?]) } else { Ok(pair) }
            };
            let gap = [0, 8, 3][turned % 3];
            let ([a, da], [b, db]) = (of(m, k, turned & 1 == 1, gap)?, of(k, n, turned & 2 == 2, gap)?);
            let made = da.mm(&db)?;
            equal(&made, &a.mm(&b)?)?;
            let out = Tensor::empty(&[m, n], dtype, "cuda")?;
            da.mm_out(&db, &out)?;
            let added = out.addmm(&da, &db, 0, 1)?;
            for other in [out, added] {
                assert!(
                    other.eq(&made)?.all((), false)?.item()?.is_true(),
                    "a product has the same bits however asked for"
                );
            }
        }
    }
    assert_eq!(fixture.names(), Vec::<String>::new());
    // Whoever asks for a library has it compute, and so do larger products.
    let (small, long) = (numbers(&[8, 8], DType::F32)?.cuda(None)?, numbers(&[8, 80], DType::F32)?.cuda(None)?);
    long.mm(&long.t()?)?;
    blas::set_preferred_blas_library("cublas")?;
    small.mm(&small)?;
    assert_eq!(fixture.names(), ["cublasSgemm_v2", "cublasSgemm_v2"]);
    Ok(())
}

#[test]
fn small_products_follow_streams_captures_and_libraries() -> Result<()> {
    let fixture = undecided();
    let a = numbers(&[16, 16], DType::F32)?.cuda(None)?;
    let wanted = a.cpu()?.mm(&a.cpu()?)?;
    equal(&a.mm(&a)?, &wanted)?;
    let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
    let out = graph.capture(&stream, None, CaptureMode::Global, || a.mm(&a))?;
    a.fill_(0)?;
    graph.replay()?;
    equal(&out, &Tensor::zeros(&[16, 16], DType::F32, "cpu")?)?;
    fixture.calls();
    a.copy_(&numbers(&[16, 16], DType::F32)?)?;
    let side = Stream::new(None, 0)?;
    side.wait_stream(&Runtime::current().streams().current(DeviceIndex(0))?)?;
    let current = side.guard();
    equal(&a.mm(&a)?, &wanted)?;
    drop(current);
    assert_eq!(fixture.names(), ["cublasSetStream_v2", "cublasSetWorkspace_v2"]);
    // Without a library nothing is bound.
    blas::set_libraries(None, None);
    equal(&a.mm(&a)?, &wanted)?;
    equal(&a.mm(&a)?, &wanted)?;
    assert_eq!(fixture.names(), Vec::<String>::new());
    blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt()));
    equal(&a.mm(&a)?, &wanted)?;
    assert_eq!(fixture.names(), ["cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2"]);
    Ok(())
}

#[test]
fn workspaces_stand_in_the_memory_statistics_as_in_torch() -> Result<()> {
    workspaces_are_in_the_statistics(&fixture())?;
    workspaces_are_in_the_statistics(&undecided())
}

/// The steps and the sums were taken from PyTorch 2.11 on an H200.
fn workspaces_are_in_the_statistics(_: &Fixture) -> Result<()> {
    let allocated =
        || Ok::<_, Error>(Runtime::current().memory().stats(0).map_err(Error::from)?.allocated_bytes.all.current);
    let (a, b) = (numbers(&[64, 64], DType::F32)?.cuda(None)?, numbers(&[64, 64], DType::F32)?.cuda(None)?);
    assert_eq!(allocated()?, 32_768);
    let product = a.mm(&b)?;
    assert_eq!(allocated()?, 33_603_584);
    let with_bias = b.select(0, 0)?.addmm(&a, &b, 1, 1)?;
    assert_eq!(allocated()?, 33_603_584 + (1 << 20) + 16_384);
    let side = Stream::new(None, 0)?;
    let current = side.guard();
    let on_side = a.mm(&b)?;
    drop(current);
    assert_eq!(allocated()?, 33_603_584 + (1 << 20) + 16_384 + (32 << 20) + 16_384);
    drop((product, with_bias, on_side));
    blas::clear_cublas_workspaces();
    assert_eq!(allocated()?, 32_768);
    equal(&a.mm(&b)?, &a.cpu()?.mm(&b.cpu()?)?)
}

#[test]
fn a_handle_is_bound_once_for_each_stream() -> Result<()> {
    let fixture = fixture();
    let a = numbers(&[8, 8], DType::F32)?.cuda(None)?;
    a.mm(&a)?;
    let first = fixture.names();
    assert_eq!(first, ["cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSgemm_v2"]);
    a.mm(&a)?;
    assert_eq!(fixture.names(), ["cublasSgemm_v2"]);
    let side = Stream::new(None, 0)?;
    let current = side.guard();
    a.mm(&a)?;
    drop(current);
    assert_eq!(fixture.names(), ["cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSgemm_v2"]);
    let here = blas::current_blas_handle(None)?;
    assert_eq!(here, blas::current_blas_handle("cuda:0")?);
    Ok(())
}

#[test]
fn a_captured_product_is_replayed_with_its_workspace_alive() -> Result<()> {
    let _fixture = fixture();
    let a = numbers(&[16, 16], DType::F32)?.cuda(None)?;
    let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
    let out = graph.capture(&stream, None, CaptureMode::Global, || a.mm(&a))?;
    // Neither of the two touches what the graph works with.
    blas::clear_cublas_workspaces();
    a.mm(&a)?;
    a.copy_(&numbers(&[16, 16], DType::F32)?.add(1)?)?;
    graph.replay()?;
    equal(&out, &a.cpu()?.mm(&a.cpu()?)?)
}

#[test]
fn settings_reach_the_library() -> Result<()> {
    let fixture = fixture();
    let (single, half) = (numbers(&[8, 8], DType::F32)?.cuda(None)?, numbers(&[8, 8], DType::F16)?.cuda(None)?);
    single.mm(&single)?;
    fixture.calls();
    blas::set_allow_tf32(true);
    single.mm(&single)?;
    let calls = fixture.calls();
    assert_eq!(calls[0].symbol, "cublasSetMathMode");
    assert_eq!(calls[0].number("mode"), Some(3));
    blas::set_allow_tf32(false);
    blas::set_fp16_reduction(false)?;
    half.mm(&half)?;
    assert_eq!(fixture.calls()[0].number("mode"), Some(16));
    blas::set_fp16_reduction(true)?;
    blas::set_allow_fp16_accumulation(true);
    half.mm(&half)?;
    let calls = fixture.calls();
    assert_eq!(calls.last().and_then(|call| call.number("computeType")), Some(64));
    blas::set_allow_fp16_accumulation(false);
    blas::set_preferred_blas_library("cublaslt")?;
    single.mm(&single)?;
    assert_eq!(fixture.names().last().map(String::as_str), Some("cublasLtMatmul"));
    blas::set_preferred_blas_library("default")?;
    Ok(())
}

#[test]
fn a_call_that_fails_is_told_in_torchs_words() -> Result<()> {
    let fixture = fixture();
    let a = numbers(&[8, 8], DType::F32)?.cuda(None)?;
    let fault = Fault { call: "cublasSgemm_v2", occurrence: 1, code: cuda_sys::CUresult(13) };
    fixture.simulated.machine().inject(fault);
    let error = a.mm(&a).unwrap_err();
    assert!(matches!(error, Error::Library(_)), "{error:?}");
    assert!(
        error.to_string().starts_with(
            "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k, &alpha, \
             a, lda, b, ldb, &beta, c, ldc )`\nwith opa n, opb n, m 8, n 8, k 8"
        ),
        "{error}"
    );
    equal(&a.mm(&a)?, &a.cpu()?.mm(&a.cpu()?)?)
}

#[test]
fn without_a_library_the_kernels_of_the_crate_compute() -> Result<()> {
    let fixture = fixture();
    assert!(matches!(blas::product_library(), ProductLibrary::Cublas { lt_version: Some(_), .. }));
    blas::set_libraries(None, None);
    assert!(matches!(blas::product_library(), ProductLibrary::Own { .. }));
    let a = numbers(&[8, 8], DType::F32)?.cuda(None)?;
    equal(&a.mm(&a)?, &a.cpu()?.mm(&a.cpu()?)?)?;
    assert_eq!(fixture.names(), Vec::<String>::new());
    assert!(blas::current_blas_handle(None).is_err());
    Ok(())
}

/// What a product on a device allocates besides its result, in bytes.
fn bytes_of(product: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<i64> {
    let allocated =
        || Ok::<_, Error>(Runtime::current().memory().stats(0).map_err(Error::from)?.allocated_bytes.all.current);
    let a = numbers(&[64, 64], DType::F32)?.cuda(None)?;
    let before = allocated()?;
    let made = product(&a)?;
    drop(made);
    Ok(allocated()? - before)
}

#[test]
fn workspaces_are_of_the_sizes_that_the_environment_says() {
    let variables = [("CUBLAS_WORKSPACE_CONFIG", ":16:8"), ("CUBLASLT_WORKSPACE_SIZE", "4096")];
    testkit::with_environment("workspaces_are_of_the_sizes_that_the_environment_says", &variables, || {
        let _fixture = fixture();
        assert_eq!(bytes_of(|a| a.mm(a)).expect("the product is computed"), 128 << 10);
        // No more than the workspace of cuBLAS has.
        let with_bias = bytes_of(|a| a.select(0, 0)?.addmm(a, a, 1, 1));
        assert_eq!(with_bias.expect("the product is computed"), 128 << 10);
    });
}

#[test]
fn the_environment_keeps_a_bias_out_of_the_product() {
    let variables = [("DISABLE_ADDMM_CUDA_LT", "1")];
    testkit::with_environment("the_environment_keeps_a_bias_out_of_the_product", &variables, || {
        let fixture = fixture();
        bytes_of(|a| a.select(0, 0)?.addmm(a, a, 1, 1)).expect("the product is computed");
        assert_eq!(fixture.names().last().map(String::as_str), Some("cublasSgemm_v2"));
    });
}

#[test]
fn the_environment_chooses_library_and_precision() {
    let variables = [
        ("TORCH_BLAS_PREFER_CUBLASLT", "1"),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"),
        ("TORCH_LINALG_PREFER_CUSOLVER", "1"),
    ];
    testkit::with_environment("the_environment_chooses_library_and_precision", &variables, || {
        let _fixture = fixture();
        assert_eq!(blas::preferred_blas_library(), BlasBackend::Cublaslt);
        assert_eq!(blas::allow_tf32().ok(), Some(true));
        assert_eq!(blas::float32_matmul_precision().ok(), Some(blas::Float32MatmulPrecision::High));
        assert_eq!(aten_cuda::linalg::preferred_linalg_library(), aten_cuda::linalg::LinalgBackend::Cusolver);
    });
}
