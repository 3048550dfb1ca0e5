//! Host operations where the system has no memory: each large request of each operation is refused once, and the operation
//! returns the typed error instead of ending the process.
#![expect(unsafe_code, reason = "implements the allocator of the program")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use aten_cuda::attention::Attention;
use aten_cuda::blas::{ScaledMm, einsum};
use aten_cuda::dlpack::Consumer;
use aten_cuda::{CrossEntropy, DType, Generator, Result, Storage, Tensor, comm, fft, linalg, reductions, scans};
use c10_core::{Error, MemoryError};
use common::operations::pointwise;

#[global_allocator]
static HEAP: Refusing = Refusing;

/// Requests of at least this many bytes count as large. Rows of elements, which have a fixed length, are smaller.
const LARGE: usize = 9 << 10;
/// Rows and columns of the operands: their masks are large too.
const SIDE: i64 = 100;

/// Large requests until one is refused; at 0 none are counted.
static UNTIL_REFUSED: AtomicUsize = AtomicUsize::new(0);

/// The allocator is of the whole process: one test at a time refuses.
static ONE_TEST: Mutex<()> = Mutex::new(());

struct Refusing;

/// Whether a request is the one that is refused.
fn is_refused(bytes: usize) -> bool {
    bytes >= LARGE && UNTIL_REFUSED.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) == Ok(1)
}

// SAFETY: the system's allocator meets all duties of requests that are passed on; others get null, which every caller of an
// allocator has to expect.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_refused(size) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's duties are the same.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs with the large request of this number refused, and returns whether there was one.
fn with_refusal(number: usize, run: impl FnOnce()) -> bool {
    UNTIL_REFUSED.store(number, Ordering::SeqCst);
    run();
    UNTIL_REFUSED.swap(0, Ordering::SeqCst) == 0
}

/// A call, of matrices of `SIDE` times `SIDE` elements.
type Call = Box<dyn Fn(&Tensor) -> Result<()>>;

/// A named call whose result is of no interest.
fn call<T>(name: &'static str, run: impl Fn(&Tensor) -> Result<T> + 'static) -> (&'static str, Call) {
    (name, Box::new(move |x| run(x).map(drop)))
}

/// A list of indices, small enough for its memory never to be refused.
fn rows() -> Result<Tensor> {
    Tensor::arange(0, SIDE, 1, None, "cpu")
}

/// An index for each element.
fn places() -> Result<Tensor> {
    rows()?.expand(&[SIDE, SIDE])
}

fn mask() -> Result<Tensor> {
    Tensor::ones(&[1, 1], DType::Bool, "cpu")?.expand(&[SIDE, SIDE])
}

fn making() -> Vec<(&'static str, Call)> {
    let sizes = [SIDE, SIDE];
    vec![
        call("zeros", move |_| Tensor::zeros(&sizes, DType::F32, "cpu")),
        call("ones", move |_| Tensor::ones(&sizes, DType::F32, "cpu")),
        call("full", move |_| Tensor::full(&sizes, 2, DType::F32, "cpu")),
        call("empty", move |_| Tensor::empty(&sizes, DType::F32, "cpu")),
        call("empty_strided", move |_| Tensor::empty_strided(&sizes, &[SIDE * 2, 1], DType::F32, "cpu")),
        call("from_bytes", |_| Tensor::from_bytes(&[7; 1 << 16], &[1 << 14], DType::F32)),
        call("from_slice", |_| Tensor::from_slice(&[7_i64; 1 << 14], &[1 << 14])),
        call("from_bools", |_| Tensor::from_bools(&[true; 1 << 16], &[1 << 16])),
        call("arange", |_| Tensor::arange(0, 1 << 14, 1, None, "cpu")),
        call("linspace", |_| Tensor::linspace(0, 1, 1 << 14, None, "cpu")),
        call("eye", |_| Tensor::eye(SIDE, SIDE, DType::F32, "cpu")),
        call("zeros_like", Tensor::zeros_like),
        call("ones_like", Tensor::ones_like),
        call("full_like", |x| x.full_like(3)),
        call("empty_like", Tensor::empty_like),
        call("div", |x| x.div(2)),
        call("norm", |x| x.norm(2, 0, false, None)),
        call("where_cond", |x| mask()?.where_cond(x, 2)),
        call("tril", |x| x.tril(0)),
        call("triu", |x| x.triu(0)),
        call("storage_new", |x| Storage::new(1 << 16, x.device())),
        call("storage_from_bytes", |_| Storage::from_bytes(&[7; 1 << 16])),
    ]
}

fn copying() -> Vec<(&'static str, Call)> {
    vec![
        call("copy", Tensor::copy),
        call("copy_", |x| x.copy_(&x.narrow(0, 0, 1)?.expand(&[SIDE, SIDE])?.copy()?).map(drop)),
        call("contiguous", |x| x.t()?.contiguous()),
        call("fill_", |x| x.copy()?.fill_(1).map(drop)),
        call("zero_", |x| x.copy()?.zero_().map(drop)),
        call("to", |x| x.to(DType::F64)),
        call("to_dtype", |x| x.to_dtype(DType::I32)),
        call("view_as_complex", |x| x.copy()?.view(&[SIDE, SIDE / 2, 2])?.view_as_complex()?.copy()),
        call("resolve_conj", |x| x.to_dtype(DType::C64)?.adjoint()?.resolve_conj()),
        call("resolve_neg", |x| x.to_dtype(DType::C64)?.adjoint()?.imag()?.resolve_neg()),
        call("reshape", |x| x.t()?.reshape(&[-1])),
        call("flatten", |x| x.t()?.flatten()),
        call("to_vec", Tensor::to_vec::<f32>),
        call("to_vec_of_a_view", |x| x.narrow(0, 0, 1)?.expand(&[SIDE, SIDE])?.to_vec::<f32>()),
        call("to_bytes", |x| x.t()?.to_bytes()),
        call("to_bools", |_| mask()?.to_bools()),
        call("to_dlpack", |x| x.copy()?.to_dlpack(Consumer::Default)),
        call("display", |x| Ok(format!("{x}"))),
        call("cat", |x| Tensor::cat(&[x, x], 0)),
        call("stack", |x| Tensor::stack(&[x, x], 0)),
        call("flip", |x| x.flip(&[0])),
        call("roll", |x| x.roll(&[1], &[0])),
        call("repeat", |x| x.repeat(&[2, 2])),
        call("split", |x| x.flatten()?.split(1, 0)),
        call("chunk", |x| x.flatten()?.chunk(1 << 14, 0)),
        call("split_with_sizes", |x| x.flatten()?.split_with_sizes(&[1 << 10; 25], 0)),
        call("comm_gather_out", |x| comm::gather_out(&[], x, 0)),
    ]
}

fn indexing() -> Vec<(&'static str, Call)> {
    vec![
        call("gather", |x| x.gather(0, &places()?)),
        call("take_along_dim", |x| x.take_along_dim(&places()?, Some(0))),
        call("scatter", |x| x.scatter(0, &places()?, x)),
        call("scatter_value", |x| x.scatter(0, &places()?, 1.0)),
        call("scatter_add", |x| x.scatter_add(0, &places()?, x)),
        call("index_select", |x| x.index_select(0, &rows()?)),
        call("index_add", |x| x.index_add(0, &rows()?, x, 2)),
        call("index_copy", |x| x.index_copy(0, &rows()?, x)),
        call("index", |x| x.index(&[Some(&places()?)])),
        call("index_by_mask", |x| x.index(&[Some(&mask()?)])),
        call("index_put", |x| x.index_put(&[Some(&rows()?)], x, false)),
        call("index_put_accumulate", |x| x.index_put(&[Some(&rows()?)], x, true)),
        call("masked_select", |x| x.masked_select(&mask()?)),
        call("masked_scatter", |x| x.masked_scatter(&mask()?, x)),
        call("masked_fill", |x| x.masked_fill(&mask()?, 3)),
        call("nonzero", |x| x.add(1)?.nonzero()),
        call("embedding", |x| x.embedding(&rows()?)),
        call("sort", |x| x.sort(0, false)),
        call("argsort", |x| x.argsort(1, true)),
        call("sort_of_a_row", |x| x.flatten()?.sort(0, false)),
        call("topk", |x| x.topk(SIDE, 0, true)),
        call("unique", Tensor::unique),
    ]
}

fn products() -> Vec<(&'static str, Call)> {
    let row = |x: &Tensor| x.select(0, 0);
    let batch = |x: &Tensor| x.unsqueeze(0);
    // Few sums of many products: what is read is large, and the work is little.
    let low = |x: &Tensor| x.narrow(1, 0, 2);
    vec![
        call("mm", move |x| low(x)?.mm(&low(x)?.t()?)),
        call("mm_of_integers", move |x| low(x)?.to_dtype(DType::I32)?.mm(&low(x)?.t()?.to_dtype(DType::I32)?)),
        call("matmul", move |x| low(x)?.matmul(&low(x)?.t()?)),
        call("addmm", move |x| x.addmm(&low(x)?, &low(x)?.t()?, 1, 1)),
        call("addmm_activation", move |x| row(x)?.addmm_activation(&low(x)?, &low(x)?.t()?, 1, 1, false)),
        call("bmm", move |x| batch(&low(x)?)?.bmm(&batch(&low(x)?.t()?)?)),
        call("baddbmm", move |x| batch(x)?.baddbmm(&batch(&low(x)?)?, &batch(&low(x)?.t()?)?, 1, 1)),
        call("addbmm", move |x| x.addbmm(&batch(&low(x)?)?, &batch(&low(x)?.t()?)?, 1, 1)),
        call("mv", move |x| x.mv(&row(x)?)),
        call("addmv", move |x| row(x)?.addmv(x, &row(x)?, 1, 1)),
        call("dot", |x| x.flatten()?.dot(&x.flatten()?)),
        call("vdot", |x| x.flatten()?.vdot(&x.flatten()?)),
        call("outer", move |x| row(x)?.outer(&row(x)?)),
        call("linear", move |x| x.linear(&x.narrow(0, 0, 2)?, None)),
        call("int_mm", move |x| low(x)?.to_dtype(DType::I8)?.int_mm(&low(x)?.t()?.to_dtype(DType::I8)?)),
        call("scaled_mm", |x| {
            let (bytes, one) = (x.narrow(1, 0, 16)?.to_dtype(DType::F8E4M3FN)?, Tensor::ones(&[], DType::F32, "cpu")?);
            bytes.scaled_mm(&bytes.t()?, &one, &one, &ScaledMm::default())
        }),
        call("einsum", move |x| einsum("ij,kj->ik", &[&low(x)?, &low(x)?])),
        call("softmax", |x| x.softmax(0, None)),
        call("log_softmax", |x| x.log_softmax(1, None)),
        call("layer_norm", |x| x.layer_norm(&[SIDE], None, None, 1e-5)),
        call("cross_entropy", |x| x.cross_entropy(&rows()?, &CrossEntropy::default())),
        call("scaled_dot_product_attention", move |x| {
            let all = low(x)?.unsqueeze(0)?.unsqueeze(0)?;
            all.scaled_dot_product_attention(&all, &all, &Attention::default())
        }),
        call("fft", |x| fft::fft(&x.view(&[SIDE * SIDE / 4, 4])?, None, -1, None)),
        call("ifft", |x| fft::ifft(&x.view(&[SIDE * SIDE / 4, 4])?, None, -1, None)),
        call("rfft", |x| fft::rfft(&x.view(&[SIDE * SIDE / 4, 4])?, None, -1, None)),
        call("irfft", |x| fft::irfft(&x.view(&[SIDE * SIDE / 4, 4])?, None, -1, None)),
        call("cholesky", |_| linalg::cholesky(&Tensor::eye(SIDE, SIDE, DType::F32, "cpu")?, false)),
        call("solve", |x| linalg::solve(&Tensor::eye(SIDE, SIDE, DType::F32, "cpu")?, &x.narrow(1, 0, 40)?)),
        call("qr", move |x| linalg::qr(&low(&x.view(&[SIDE * SIDE / 4, 4])?)?, "reduced")),
        call("svd", move |x| linalg::svd(&low(x)?, true, None)),
        call("svdvals", move |x| linalg::svdvals(&low(x)?.t()?, None)),
    ]
}

fn drawing() -> Vec<(&'static str, Call)> {
    vec![
        call("uniform_", |x| x.copy()?.uniform_(0.0, 1.0, None).map(drop)),
        call("normal_", |x| x.copy()?.normal_(0.0, 1.0, None).map(drop)),
        call("log_normal_", |x| x.copy()?.log_normal_(1.0, 2.0, None).map(drop)),
        call("exponential_", |x| x.copy()?.exponential_(1.0, None).map(drop)),
        call("cauchy_", |x| x.copy()?.cauchy_(0.0, 1.0, None).map(drop)),
        call("geometric_", |x| x.copy()?.geometric_(0.5, None).map(drop)),
        call("bernoulli_", |x| x.copy()?.bernoulli_(0.5, None).map(drop)),
        call("bernoulli_of_", |x| x.copy()?.bernoulli_of_(&x.zeros_like()?, None).map(drop)),
        call("bernoulli", |x| x.zeros_like()?.bernoulli(None)),
        call("random_", |x| x.copy()?.random_(None).map(drop)),
        call("random_to_", |x| x.copy()?.random_to_(9, None).map(drop)),
        call("random_from_to_", |x| x.copy()?.random_from_to_(1, Some(9), None).map(drop)),
        call("rand", |_| Tensor::rand(&[SIDE, SIDE], DType::F32, "cpu", None)),
        call("rand_like", |x| x.rand_like(None)),
        call("randn", |_| Tensor::randn(&[SIDE, SIDE], DType::F32, "cpu", None)),
        call("randn_like", |x| x.randn_like(None)),
        call("randint", |_| Tensor::randint(0, 9, &[SIDE, SIDE], DType::I64, "cpu", None)),
        call("randint_like", |x| x.randint_like(0, 9, None)),
        call("randperm", |x| Tensor::randperm(1 << 14, DType::I64, x, None)),
        call("normal", |x| Tensor::normal(x, &x.ones_like()?, None)),
        call("normal_about", |x| x.normal_about(1.0, None)),
        call("multinomial", |x| x.ones_like()?.multinomial(9, true, None)),
        call("multinomial_of_a_row", |x| x.ones_like()?.flatten()?.multinomial(1 << 13, true, None)),
        call("multinomial_without_replacement", |x| x.ones_like()?.multinomial(9, false, None)),
        call("native_dropout", |x| x.native_dropout(0.5, Some(true))),
        call("dropout", |x| x.dropout(0.5, true)),
    ]
}

/// Each row of the tables of operations, and the calls above.
fn calls() -> Vec<(&'static str, Call)> {
    let rows = pointwise().into_iter().map(|(name, run)| -> (&'static str, Call) {
        // Operations on integers alone are tried with those.
        let with_integers = move |x: &Tensor| match run(x) {
            Err(error) if error.runtime().is_none() => run(&x.to_dtype(DType::I32)?),
            answer => answer,
        };
        call(name, with_integers)
    });
    let lines = reductions().chain(scans()).map(|row| call(row.name, move |x| row.apply(x, 0)));
    let along = reductions().map(|row| call(row.name, move |x| row.apply(&x.flatten()?, 0)));
    let own = [making(), copying(), indexing(), products(), drawing()].into_iter().flatten();
    rows.chain(lines).chain(along).chain(own).collect()
}

fn operand() -> Result<Tensor> {
    let generator = Generator::new("cpu")?;
    Tensor::rand(&[SIDE, SIDE], DType::F32, "cpu", Some(&generator))
}

#[test]
fn each_refused_request_is_an_error() -> Result<()> {
    let _one = ONE_TEST.lock();
    let x = operand()?;
    let mut refused = 0;
    let mut wrong = Vec::new();
    for (name, run) in calls() {
        // Once before: what is made once, such as programs, is there.
        let plain = run(&x);
        for number in 1.. {
            let mut answer = Ok(());
            if !with_refusal(number, || answer = run(&x)) {
                break;
            }
            refused += 1;
            match answer {
                Err(error) if error.runtime().is_some_and(is_refusal) => {}
                Ok(()) if plain.is_ok() => {}
                other => wrong.push(format!("{name}, request {number}: {other:?}")),
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(refused > 500, "{refused} requests were refused");
    Ok(())
}

/// Whether an error is the documented one, with torch's text.
fn is_refusal(error: &Error) -> bool {
    let Error::Memory(MemoryError::HostAllocation { bytes }) = error else { return false };
    let text = format!(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate {bytes} bytes. Error code 12 (Cannot allocate \
         memory)"
    );
    error.to_string() == text && *bytes >= LARGE && error.is_out_of_memory()
}

#[test]
fn sizes_beyond_any_memory_are_errors() -> Result<()> {
    let _one = ONE_TEST.lock();
    let huge = Tensor::ones(&[1], DType::F64, "cpu")?.expand(&[1 << 45])?;
    let bytes = 8_usize << 45;
    let expected = MemoryError::HostAllocation { bytes };
    let calls: Vec<(&str, Call)> = vec![
        call("zeros", |_| Tensor::zeros(&[1 << 45], DType::F64, "cpu")),
        call("contiguous", Tensor::contiguous),
        call("copy", Tensor::copy),
        call("add", |x| x.add(1)),
        call("to_vec", Tensor::to_vec::<f64>),
        call("to_bytes", Tensor::to_bytes),
        call("cumsum", |x| x.cumsum(0, None)),
        call("rand", |_| Tensor::rand(&[1 << 45], DType::F64, "cpu", None)),
        call("flip", |x| x.flip(&[0])),
        call("arange", |_| Tensor::arange(0, 1_i64 << 45, 1, None, "cpu")),
    ];
    for (name, run) in calls {
        let error = run(&huge).unwrap_err();
        assert_eq!(error.runtime(), Some(&Error::Memory(expected.clone())), "{name}");
    }
    assert!(huge.split(1, 0).unwrap_err().runtime().is_some_and(Error::is_out_of_memory));
    // The device's memory is small, and what the host would need is not.
    let _simulated = testkit::simulated_runtime();
    let there = Tensor::ones(&[1], DType::F64, "cuda")?.expand(&[1 << 45])?;
    assert_eq!(there.to_vec::<f64>().unwrap_err().runtime(), Some(&Error::Memory(expected.clone())));
    assert_eq!(there.cpu().unwrap_err().runtime(), Some(&Error::Memory(expected)));
    Ok(())
}

/// Methods of tensors that reserve no memory for elements: views, and calls for devices alone.
const WITHOUT_ELEMENTS: &str = "adjoint h imag mh mt real view_as_real as_strided diagonal expand narrow permute select slice \
    squeeze t transpose unsqueeze view size from_scalar from_storage item from_dlpack from_shared share record_stream cpu cuda \
    cuda_non_blocking to_device to_device_non_blocking copy_non_blocking_ empty_pinned pin_memory from_ndarray to_ndarray";

#[test]
fn the_calls_are_all_that_the_interface_has() {
    let names: BTreeSet<&str> = calls().into_iter().map(|(name, _)| name).collect();
    let interface = include_str!("../../../docs/api/aten-cuda.txt");
    let methods = interface.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("pub fn aten_cuda::Tensor::")?.split_once(['(', '<'])?;
        rest.contains("-> aten_cuda::Result").then_some(name)
    });
    let is_tried = |name: &str| {
        let base = name.strip_suffix("_out").unwrap_or(name);
        let base = base.strip_suffix('_').unwrap_or(base);
        let base = ["_dim", "_alpha"].iter().find_map(|form| base.strip_suffix(form)).unwrap_or(base);
        [name, base]
            .iter()
            .any(|name| names.contains(name) || WITHOUT_ELEMENTS.split_whitespace().any(|known| known == *name))
    };
    let untried: Vec<&str> = methods.filter(|name| !is_tried(name)).collect();
    assert_eq!(untried, [""; 0]);
}
