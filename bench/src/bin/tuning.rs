//! The tuner of products on a GPU: `tuning [--small] [--folder FOLDER] [--peer PROGRAM]`.
//!
//! Tunes 100 products offline and tells how long that takes, then runs large products and ten shapes of real models by the
//! ways that were found, by the default and by the peer in turn, with weights that rotate beyond the cache, and measures
//! what a look-up costs. The peer reads lines of batches, rows, inputs, outputs, dtype and copies of the weights, and
//! answers each with the microseconds of a call; `tuning.py` beside this file is PyTorch's. Files are written to the
//! folder, the current one unless another is named. `--small` is for a look on the simulated device.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Instant;

use aten_cuda::{DType, Tensor, blas, tunable};
use bench::{Failure, device_seconds, host_seconds, median};

/// Bursts of a row, of which the median counts, and calls of a burst.
const BURSTS: usize = 9;
const CALLS: u32 = 24;

/// Bytes of weights that calls go through in turn, beyond the second-level cache of any device.
const ROTATED: i64 = 256 << 20;

/// Large products and ten shapes of real models: a name, how many at once, rows of the input, inputs and outputs. Of `f32`
/// the name tells whether TF32 is allowed.
const MODELS: &[(&str, [i64; 4], DType)] = &[
    ("mm bf16 8192", [1, 8192, 8192, 8192], DType::BF16),
    ("mm f16 8192", [1, 8192, 8192, 8192], DType::F16),
    ("mm tf32 8192", [1, 8192, 8192, 8192], DType::F32),
    ("mm f32 8192", [1, 8192, 8192, 8192], DType::F32),
    ("decode 1 x 4096 x 4096", [1, 1, 4096, 4096], DType::BF16),
    ("decode 8 x 4096 x 14336", [1, 8, 4096, 14336], DType::BF16),
    ("decode 32 x 8192 x 1024", [1, 32, 8192, 1024], DType::F16),
    ("prompt 512 x 4096 x 6144", [1, 512, 4096, 6144], DType::BF16),
    ("prompt 2048 x 4096 x 11008", [1, 2048, 4096, 11008], DType::BF16),
    ("training 8192 x 5120 x 5120", [1, 8192, 5120, 5120], DType::BF16),
    ("head 128 x 2048 x 50257", [1, 128, 2048, 50257], DType::F16),
    ("vision 6304 x 768 x 3072", [1, 6304, 768, 3072], DType::F16),
    ("attention 128 of 512 x 64", [128, 512, 64, 512], DType::BF16),
    ("odd 1000 x 1001 x 1003", [1, 1000, 1001, 1003], DType::F16),
];

fn main() -> ExitCode {
    bench::ended(run().map(|()| true))
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn run() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let small = words.iter().any(|word| word == "--small");
    let folder = words.iter().skip_while(|word| *word != "--folder").nth(1).map_or_else(PathBuf::new, PathBuf::from);
    tunable::set_filename(&folder.join("tunableop_results.csv").to_string_lossy(), true);
    println!("{:?}", blas::product_library());
    tunable::enable(true);
    let untuned = folder.join("hundred.csv");
    std::fs::write(&untuned, hundred(small))?;
    let begin = Instant::now();
    tunable::tune_gemm_in_file(&untuned)?;
    println!("100 products were tuned in {:.1} s", begin.elapsed().as_secs_f64());
    let peer = words.iter().skip_while(|word| *word != "--peer").nth(1);
    let mut peer = peer.map(|program| Peer::start(program)).transpose()?;
    println!("{:<27} {:>9} {:>9} {:>9} {:>6} {:>6}  way", "shape", "tuned us", "usual us", "peer us", "usual", "peer");
    let mut logarithms = Vec::new();
    for (name, shape, dtype) in MODELS {
        blas::set_allow_tf32(name.contains("tf32"));
        let shape = shape.map(|size| if small { size.min(32) } else { size });
        let Compared { tuned, usual, peer, way } = compare(name, shape, *dtype, peer.as_mut())?;
        let ratios = [usual / tuned, peer / tuned];
        logarithms.push(ratios.map(f64::ln));
        let [over_usual, over_peer] = ratios;
        println!("{name:<27} {tuned:>9.2} {usual:>9.2} {peer:>9.2} {over_usual:>6.3} {over_peer:>6.3}  {way}");
    }
    let count = f64::from(u32::try_from(logarithms.len())?);
    let means = [0, 1].map(|at| (logarithms.iter().map(|pair| pair[at]).sum::<f64>() / count).exp());
    println!("geometric means {:.3} {:.3}", means[0], means[1]);
    let (on, off) = look_up()?;
    println!("small mm on the host: {on:.0} ns with the tuner, {off:.0} ns without");
    Ok(())
}

/// Signatures of 100 products: sizes of models with all layouts.
fn hundred(small: bool) -> String {
    let rows = [1, 16, 128, 1024, 4096];
    let widths = [(1024, 1024), (2048, 5632), (4096, 4096), (4096, 11008), (768, 3072)];
    let mut lines = Vec::new();
    for dtype in ["Half", "BFloat16"] {
        for layout in ["nn", "tn"] {
            for rows in rows {
                for (inner, outer) in widths {
                    let [m, n, k] = [outer, rows, inner].map(|size| if small { size.min(32) } else { size });
                    let lda = if layout == "tn" { k } else { m };
                    let upper = layout.to_uppercase();
                    lines.push(format!("GemmTunableOp_{dtype}_{upper},{layout}_{m}_{n}_{k}_ld_{lda}_{k}_{m}\n"));
                }
            }
        }
    }
    lines.concat()
}

/// Another library in a process of its own.
struct Peer {
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn start(program: &str) -> Result<Self, Failure> {
        let words: Vec<&str> = program.split_whitespace().collect();
        let (first, rest) = words.split_first().ok_or("the peer has no name")?;
        let mut child = Command::new(first).args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let asked = child.stdin.take().ok_or("the peer does not read")?;
        let answers = BufReader::new(child.stdout.take().ok_or("the peer does not answer")?);
        Ok(Self { asked, answers })
    }

    /// Microseconds of a call.
    fn figure(&mut self, what: &str) -> Result<f64, Failure> {
        writeln!(self.asked, "{what}")?;
        self.asked.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

/// Microseconds of a product by the way that the tuner finds, by the usual one and by the peer, and the name of the way.
struct Compared {
    tuned: f64,
    usual: f64,
    peer: f64,
    way: String,
}

fn compare(name: &str, shape: [i64; 4], dtype: DType, mut peer: Option<&mut Peer>) -> Result<Compared, Failure> {
    let [batches, rows, inner, outer] = shape;
    let bytes = batches * inner * outer * i64::try_from(dtype.itemsize())?;
    let copies = usize::try_from((ROTATED / bytes.max(1)).clamp(1, 24))?;
    let input = Tensor::randn(&[batches, rows, inner], dtype, "cuda", None)?;
    let weight = || Ok::<_, Failure>(Tensor::randn(&[batches, outer, inner], dtype, "cuda", None)?.transpose(1, 2)?);
    let weights = (0..copies).map(|_| weight()).collect::<Result<Vec<_>, _>>()?;
    let call = |at: usize| match batches {
        1 => input.select(0, 0)?.mm(&weights[at % copies].select(0, 0)?),
        _ => input.bmm(&weights[at % copies]),
    };
    tunable::enable(true);
    let known: Vec<_> = tunable::get_results()?.into_iter().map(|result| (result.op, result.params)).collect();
    call(0)?;
    let results = tunable::get_results()?;
    let new = results.into_iter().find(|result| !known.contains(&(result.op.clone(), result.params.clone())));
    let kind = if name.contains("tf32") { "tf32" } else { dtype.torch_name() };
    let what = format!("{batches} {rows} {inner} {outer} {kind} {copies}");
    let (mut tuned, mut usual, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let calls = if rows * inner * outer >= 1 << 38 { CALLS / 8 } else { CALLS };
    for _ in 0..BURSTS {
        tunable::enable(true);
        tuned.push(burst(&call, calls)?);
        tunable::enable(false);
        usual.push(burst(&call, calls)?);
        theirs.extend(peer.as_mut().map(|peer| peer.figure(&what)).transpose()?);
    }
    let way = new.map_or_else(|| "known".to_owned(), |result| result.solution);
    Ok(Compared { tuned: median(&mut tuned), usual: median(&mut usual), peer: median(&mut theirs), way })
}

/// Microseconds of one call.
fn burst(call: &dyn Fn(usize) -> aten_cuda::Result<Tensor>, calls: u32) -> Result<f64, Failure> {
    call(0)?;
    let mut numbers = 0..;
    Ok(device_seconds(calls, || call(numbers.next().unwrap_or_default()).map(drop))? * 1e6)
}

/// What the host needs for a small product with the tuner and without, in nanoseconds.
fn look_up() -> Result<(f64, f64), Failure> {
    let a = Tensor::randn(&[64, 64], DType::F32, "cuda", None)?;
    tunable::enable(true);
    a.mm(&a)?;
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for _ in 0..BURSTS {
        for (is_on, times) in [(true, &mut on), (false, &mut off)] {
            tunable::enable(is_on);
            times.push(host_seconds(200, || a.mm(&a).map(drop))? * 1e9);
        }
    }
    Ok((median(&mut on), median(&mut off)))
}
