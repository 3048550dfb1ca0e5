//! Whether operations give the same bits at every run: many times in a process, on several streams at once, and in
//! processes of their own.
//!
//! A case makes its operands from a seed, so that they are the same in every process. Its result is computed again and
//! again and compared on the device; what it was is printed as a digest, so that processes can be compared.

use std::process::{Command, ExitCode, Stdio};

use aten_cuda::attention::Attention;
use aten_cuda::own_products::{Problem, run as run_product, solutions};
use aten_cuda::{CrossEntropy, DType, Result, Tensor, blas, deterministic, fft, linalg, random};
use c10_core::{Device, Stream};
use sha2::{Digest, Sha256};

/// Streams that compute at the same time.
const STREAMS: usize = 4;
/// How operands are made.
const SEED: i64 = 7;
/// What makes cuBLAS reproducible, as its documentation has it.
const WORKSPACE: (&str, &str) = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8");

const USAGE: &str = "determinism [--driver sim|real|PATH] [--runs N] [--only TEXT] [--off] [--one]";

/// What is asked for on the command line.
struct Options {
    driver: String,
    runs: usize,
    /// Cases whose names have this text.
    only: String,
    /// Deterministic algorithms are not asked for; what differs is told and no failure.
    off: bool,
    /// One process, as it was started.
    one: bool,
}

impl Options {
    fn read(arguments: Vec<String>) -> std::result::Result<Self, String> {
        let mut options = Self { driver: "sim".to_owned(), runs: 100, only: String::new(), off: false, one: false };
        let mut words = arguments.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| USAGE.to_owned());
            match word.as_str() {
                "--driver" => options.driver = value()?,
                "--runs" => options.runs = value()?.parse().map_err(|_| USAGE.to_owned())?,
                "--only" => options.only = value()?,
                "--off" => options.off = true,
                "--one" => options.one = true,
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }

    fn is_large(&self) -> bool {
        self.driver != "sim"
    }
}

/// The program `determinism`.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]
pub fn main(arguments: Vec<String>) -> ExitCode {
    let outcome = Options::read(arguments.clone()).and_then(|options| {
        if options.one || options.off { of_one_process(&options) } else { of_processes(&options, &arguments) }
    });
    match outcome {
        Ok((lines, is_good)) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::from(u8::from(!is_good))
        }
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}

/// Lines to print, and whether all is as it should be.
type Told = (Vec<String>, bool);

/// Starts the program twice with the workspaces that cuBLAS wants for it, once without, all at the same time, and compares
/// what they say.
fn of_processes(options: &Options, arguments: &[String]) -> std::result::Result<Told, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let start = |workspace: bool| {
        let mut command = Command::new(&own);
        command.args(arguments).arg("--one").env_remove(WORKSPACE.0);
        if workspace {
            command.env(WORKSPACE.0, WORKSPACE.1);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())
    };
    let started = [start(true)?, start(true)?, start(false)?];
    let mut said = Vec::new();
    for process in started {
        let output = process.wait_with_output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.code().is_none_or(|code| code > 1) {
            return Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)));
        }
        said.push((text, output.status.success()));
    }
    let (first, second) = (&said[0].0, &said[1].0);
    let mut lines: Vec<String> = first.lines().map(str::to_owned).collect();
    let differing = |one: &str, other: &str| {
        one.lines().zip(other.lines()).filter(|(one, other)| one != other).map(|(one, _)| one.to_owned()).collect()
    };
    let between: Vec<String> = differing(first, second);
    // Another size of workspaces may be another way to compute a product; each is the same at every run.
    let beside: Vec<String> = differing(first, &said[2].0);
    lines.extend(between.iter().map(|line| format!("another result in the second process: {line}")));
    lines.extend(beside.iter().map(|line| format!("without {}={} another result: {line}", WORKSPACE.0, WORKSPACE.1)));
    let runs = options.runs;
    lines.push(format!(
        "{} results in three processes, {runs} runs in each; {} differ between two processes with {}={}, {} of one without",
        first.lines().count(),
        between.len(),
        WORKSPACE.0,
        WORKSPACE.1,
        beside.len(),
    ));
    let is_good = between.is_empty() && first.lines().count() == second.lines().count();
    Ok((lines, is_good && said.iter().all(|(_, is_good)| *is_good)))
}

fn of_one_process(options: &Options) -> std::result::Result<Told, String> {
    let _bound = crate::ops::bind(&options.driver)?;
    deterministic::use_deterministic_algorithms(!options.off, false);
    let checked = all(options).map_err(|error| error.to_string())?;
    let differing = checked.iter().filter(|(_, is_same)| !is_same).count();
    let mut lines: Vec<String> = checked.into_iter().map(|(line, _)| line).collect();
    if options.off {
        lines.push(format!("{differing} of {} results differ between runs", lines.len()));
    }
    Ok((lines, differing == 0 || options.off))
}

/// Names and results.
struct Checks<'a> {
    options: &'a Options,
    streams: Vec<Stream>,
    lines: Vec<(String, bool)>,
}

fn all(options: &Options) -> Result<Vec<(String, bool)>> {
    let streams = (0..STREAMS).map(|_| Stream::new(Device::CUDA, 0)).collect::<c10_core::Result<_>>()?;
    let mut checks = Checks { options, streams, lines: Vec::new() };
    products(&mut checks)?;
    own_kernels(&mut checks)?;
    by_index(&mut checks)?;
    rows(&mut checks)?;
    draws(&mut checks)?;
    if options.is_large() {
        decompositions(&mut checks)?;
    }
    Ok(checks.lines)
}

impl Checks<'_> {
    /// Computes a result again and again, on several streams at once, and notes its digest.
    fn case(&mut self, name: &str, run: impl Fn() -> Result<Tensor>) -> Result<()> {
        if !name.contains(&self.options.only) {
            return Ok(());
        }
        // What operands are made of has been done before other streams read it.
        aten_cuda::synchronize(None)?;
        let first = run()?.contiguous()?;
        aten_cuda::synchronize(None)?;
        let wanted = bits(&first)?;
        let mut others = 0;
        let mut done = 1;
        while done < self.options.runs {
            let mut answers = Vec::new();
            for stream in self.streams.iter().take(self.options.runs - done) {
                let _current = stream.guard();
                answers.push(bits(&run()?.contiguous()?)?.ne(&wanted)?.any((), false)?);
            }
            done += answers.len();
            aten_cuda::synchronize(None)?;
            for answer in answers {
                others += usize::from(answer.item()?.is_true());
            }
        }
        let digest = Sha256::digest(first.to_bytes()?);
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let told = if others == 0 { String::new() } else { format!(", {others} of {done} runs differ") };
        self.lines.push((format!("{name}: {digest}{told}"), others == 0));
        Ok(())
    }

    /// A size on a real device, or a tenth of it or so.
    fn sized(&self, size: i64) -> i64 {
        if self.options.is_large() { size } else { (size / 16).max(size.min(24)) }
    }
}

/// The bytes of a contiguous tensor as whole numbers, which are equal where the bits are.
fn bits(tensor: &Tensor) -> Result<Tensor> {
    let bytes = i64::try_from(tensor.storage().nbytes()).unwrap_or(0);
    let (dtype, width) = [(DType::I64, 8), (DType::I32, 4), (DType::I16, 2), (DType::U8, 1)]
        .into_iter()
        .find(|(_, width)| bytes % width == 0)
        .unwrap_or((DType::U8, 1));
    Tensor::from_storage(tensor.storage().clone(), dtype, &[bytes / width], &[1], 0)
}

/// Random numbers, the same in every process.
fn normal(sizes: &[i64], dtype: DType) -> Result<Tensor> {
    random::manual_seed(SEED)?;
    Tensor::randn(sizes, dtype, "cuda", None)
}

/// Numbers up to `below`, some of them often.
fn indices(sizes: &[i64], below: i64) -> Result<Tensor> {
    random::manual_seed(SEED + 1)?;
    Tensor::rand(sizes, DType::F64, "cuda", None)?.square()?.mul(below)?.to_dtype(DType::I64)
}

/// A setting for products of `f32` while a case runs.
struct Tf32;

impl Tf32 {
    fn allowed() -> Self {
        blas::set_allow_tf32(true);
        Self
    }
}

impl Drop for Tf32 {
    fn drop(&mut self) {
        blas::set_allow_tf32(false);
    }
}

fn products(checks: &mut Checks<'_>) -> Result<()> {
    let (n, long) = (checks.sized(1024), checks.sized(65536));
    for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64, DType::C64] {
        let (a, b) = (normal(&[n, n], dtype)?, normal(&[n, n], dtype)?.t()?);
        checks.case(&format!("mm {dtype}"), || a.mm(&b))?;
        // Few results of long sums, which are split among blocks.
        let (wide, tall) = (normal(&[24, long], dtype)?, normal(&[long, 40], dtype)?);
        checks.case(&format!("mm of long sums {dtype}"), || wide.mm(&tall))?;
        let vector = normal(&[n], dtype)?;
        checks.case(&format!("addmm {dtype}"), || vector.addmm(&a, &b, 0.5, 2))?;
        checks.case(&format!("mv {dtype}"), || a.mv(&vector))?;
        let flat = wide.flatten()?;
        checks.case(&format!("dot {dtype}"), || flat.dot(&flat))?;
        let batch = normal(&[6, n / 4, n / 4], dtype)?;
        checks.case(&format!("bmm {dtype}"), || batch.bmm(&batch))?;
        checks.case(&format!("baddbmm {dtype}"), || batch.baddbmm(&batch, &batch, 1, 1))?;
    }
    let _allowed = Tf32::allowed();
    let (a, b) = (normal(&[n, n], DType::F32)?, normal(&[n, n], DType::F32)?);
    checks.case("mm tf32", || a.mm(&b))?;
    let (wide, tall) = (normal(&[24, long], DType::F32)?, normal(&[long, 40], DType::F32)?);
    checks.case("mm of long sums tf32", || wide.mm(&tall))?;
    let bias = normal(&[n], DType::F32)?;
    checks.case("linear tf32", || a.linear(&b, &bias))
}

/// Every kernel of the crate that can compute a product.
fn own_kernels(checks: &mut Checks<'_>) -> Result<()> {
    let (m, long) = (checks.sized(256), checks.sized(16384));
    for (dtype, allow_tf32) in [(DType::BF16, false), (DType::F32, true), (DType::F64, false)] {
        for [batches, m, n, k] in [[1, m, m, m], [1, 16, 128, long], [1, 1, m, long], [8, 64, 64, 64]] {
            let (a, b) = (normal(&[batches, m, k], dtype)?, normal(&[batches, k, n], dtype)?);
            let shape = Tensor::zeros(&[batches, m, n], dtype, "cuda")?;
            let problem = Problem { allow_tf32, ..Problem::new(&shape, &a, &b, None, 1.into(), 0.into()) };
            for solution in solutions(&problem)? {
                let name = format!("{} {dtype} {batches}x{m}x{n}x{k}", solution.name());
                checks.case(&name, || {
                    let out = shape.zeros_like()?;
                    run_product(solution, &Problem { out: &out, ..problem })?;
                    Ok(out)
                })?;
            }
        }
    }
    Ok(())
}

fn by_index(checks: &mut Checks<'_>) -> Result<()> {
    let (count, places) = (checks.sized(200_000), checks.sized(4000));
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::C64] {
        let (list, few) = (indices(&[count], places)?, indices(&[count], 3)?);
        let into = normal(&[places], dtype)?;
        let source = normal(&[count], dtype)?;
        checks.case(&format!("index_add {dtype}"), || into.index_add(0, &list, &source, 1))?;
        checks.case(&format!("index_add to few places {dtype}"), || into.index_add(0, &few, &source, 1))?;
        checks.case(&format!("scatter_add {dtype}"), || into.scatter_add(0, &list, &source))?;
        checks.case(&format!("index_put accumulating {dtype}"), || into.index_put(&[Some(&list)], &source, true))?;
        checks.case(&format!("index_put {dtype}"), || into.index_put(&[Some(&list)], &source, false))?;
        checks.case(&format!("index_copy {dtype}"), || into.index_copy(0, &list, &source))?;
        checks.case(&format!("scatter {dtype}"), || into.scatter(0, &list, &source))?;
        let (rows, columns) = (checks.sized(2000), 64);
        let (table, lines) = (normal(&[rows, columns], dtype)?, normal(&[rows * 4, columns], dtype)?);
        let list = indices(&[rows * 4], rows)?;
        checks.case(&format!("index_add of rows {dtype}"), || table.index_add(0, &list, &lines, 1))?;
        let each = indices(&[rows * 4, columns], rows)?;
        checks.case(&format!("scatter_add of columns {dtype}"), || table.scatter_add(0, &each, &lines))?;
        checks.case(&format!("scatter of columns {dtype}"), || table.scatter(0, &each, &lines))?;
    }
    Ok(())
}

/// Reductions, scans, sorts, rows and attention.
fn rows(checks: &mut Checks<'_>) -> Result<()> {
    let long = checks.sized(1 << 20);
    for dtype in [DType::F32, DType::BF16] {
        let row = normal(&[long], dtype)?;
        checks.case(&format!("sum {dtype}"), || row.sum((), false, None))?;
        checks.case(&format!("cumsum {dtype}"), || row.cumsum(0, None))?;
        checks.case(&format!("cumprod {dtype}"), || row.cumprod(0, None))?;
        let (lines, width) = (checks.sized(512), checks.sized(4096));
        let matrix = normal(&[lines, width], dtype)?;
        checks.case(&format!("logcumsumexp {dtype}"), || matrix.logcumsumexp(1))?;
        checks.case(&format!("softmax {dtype}"), || matrix.softmax(1, None))?;
        checks.case(&format!("sum of columns {dtype}"), || matrix.sum(0, false, None))?;
        checks.case(&format!("cumsum of columns {dtype}"), || matrix.cumsum(0, None))?;
        checks.case(&format!("sort {dtype}"), || Ok(matrix.sort(1, true)?.1))?;
        checks.case(&format!("topk {dtype}"), || Ok(matrix.topk(5, 1, true)?.1))?;
        checks.case(&format!("unique {dtype}"), || Ok(row.mul(100)?.floor()?.unique()?.2))?;
        // torch has no deterministic way for images.
        let images = normal(&[2, 5, checks.sized(96), checks.sized(96)], dtype)?;
        let target = indices(&[2, checks.sized(96), checks.sized(96)], 5)?;
        checks.case(&format!("cross_entropy {dtype}"), || images.cross_entropy(&target, &CrossEntropy::default()))?;
    }
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let [q, k, v] = [0; 3].map(|_| normal(&[2, 4, checks.sized(1024), 64], dtype));
        let (q, k, v) = (q?, k?, v?);
        let causal = Attention { is_causal: true, ..Attention::default() };
        checks.case(&format!("attention {dtype}"), || q.scaled_dot_product_attention(&k, &v, &causal))?;
    }
    Ok(())
}

/// Random numbers from the same state of the generator.
fn draws(checks: &mut Checks<'_>) -> Result<()> {
    let long = checks.sized(1 << 18);
    checks.case("randn", || normal(&[long], DType::F32))?;
    checks.case("randperm", || {
        random::manual_seed(SEED)?;
        Tensor::randperm(long, DType::I64, "cuda", None)
    })?;
    let weights = normal(&[checks.sized(2000)], DType::F32)?.abs()?;
    checks.case("multinomial", || {
        random::manual_seed(SEED)?;
        weights.multinomial(20, false, None)
    })
}

/// What other libraries compute.
fn decompositions(checks: &mut Checks<'_>) -> Result<()> {
    let a = normal(&[96, 96], DType::F32)?;
    let positive = a.mm(&a.t()?)?.add(&Tensor::eye(96, 96, DType::F32, "cuda")?)?;
    checks.case("cholesky", || linalg::cholesky(&positive, false))?;
    checks.case("solve", || linalg::solve(&positive, &a))?;
    checks.case("qr", || Ok(linalg::qr(&a, "reduced")?.0))?;
    checks.case("svdvals", || linalg::svdvals(&a, None))?;
    let signal = normal(&[64, 1000], DType::F32)?;
    checks.case("rfft", || fft::rfft(&signal, None, 1, None))
}
