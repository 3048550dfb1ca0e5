//! Random programs, compiled and as they are: the same results, the same changes to their arguments.
//!
//! Programs of whole numbers have every kind of operation, since their sums are exact in any order. Programs of floats
//! without rows are compared bit by bit too; with rows, sums may be added up in another order, and products of programs that
//! may round less often go other ways.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use aten_cuda::blas;
use aten_cuda::compile::{CompileMode, CompileOptions, Report, compile_with};
use aten_cuda::{DType, Result, Tensor};
use c10_core::{Runtime, Stream};

/// A step of a program: which operation, and numbers that say on what.
#[derive(Clone, Copy, Debug)]
struct Step {
    operation: u32,
    first: usize,
    second: usize,
    number: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Whole,
    Floats,
    Rows,
    Products,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(limit)).unwrap()
    }

    fn place(&mut self, limit: u32) -> usize {
        usize::try_from(self.below(limit)).unwrap()
    }
}

/// A program with the sizes of its arguments.
#[derive(Clone, Debug)]
struct Program {
    numbers: Numbers,
    sizes: [i64; 2],
    steps: Vec<Step>,
    returned: Vec<usize>,
    /// Which stream each step runs on: 0 is the caller's. Empty: all run there.
    streams: Vec<usize>,
    /// Whether it is compiled to CUDA graphs, and before which steps a value decides whether they are done.
    graphs: Option<Vec<usize>>,
}

/// Streams beside the caller's.
const SIDE_STREAMS: u32 = 2;

impl Program {
    fn new(seed: u64, numbers: Numbers) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let sizes = match numbers {
            Numbers::Products => [[8, 8], [24, 24], [16, 24], [12, 40], [1, 16]][random.place(5)],
            Numbers::Whole | Numbers::Floats | Numbers::Rows => {
                [[6, 10], [3, 32], [40, 8], [1, 5], [17, 1]][random.place(5)]
            }
        };
        // What stands around products: sums, activations, other orders of elements, and the products themselves.
        let around = [0, 0, 1, 4, 6, 6, 9, 9, 11, 15, 15, 20, 22, 22, 22, 23, 23, 24];
        let steps = (0..2 + random.below(14))
            .map(|_| Step {
                operation: match numbers {
                    Numbers::Floats => random.below(17),
                    Numbers::Whole | Numbers::Rows => random.below(22),
                    Numbers::Products => around[random.place(18)],
                },
                first: random.place(1 << 20),
                second: random.place(1 << 20),
                number: i64::from(random.below(5)) - 2,
            })
            .collect();
        let returned = (0..1 + random.below(3)).map(|_| random.place(1 << 20)).collect();
        Self { numbers, sizes, steps, returned, streams: Vec::new(), graphs: None }
    }

    /// The same program with each step on one of several streams.
    fn on_streams(self, seed: u64) -> Self {
        let mut random = Random(seed);
        let streams = self.steps.iter().map(|_| random.place(1 + SIDE_STREAMS)).collect();
        Self { streams, ..self }
    }

    /// The same program as CUDA graphs, with breaks.
    fn in_graphs(self, seed: u64) -> Self {
        let mut random = Random(seed);
        let steps = u32::try_from(self.steps.len()).unwrap();
        let breaks = (0..random.below(4)).map(|_| random.place(steps)).collect();
        Self { graphs: Some(breaks), ..self }
    }

    /// Whether a step is left out, by what was made last.
    fn leaves_out(&self, step: usize, values: &[Tensor]) -> Result<bool> {
        let is_break = self.graphs.as_ref().is_some_and(|breaks| breaks.contains(&step));
        Ok(is_break && values[values.len() - 1].max()?.item()?.to_f64() > 2.0)
    }

    /// Arguments: two matrices, a row, a column.
    fn arguments(&self) -> Vec<Tensor> {
        let [rows, columns] = self.sizes;
        let all = [vec![rows, columns], vec![rows, columns], vec![columns], vec![rows, 1]];
        all.iter().enumerate().map(|(at, sizes)| self.argument(at as i64, sizes)).collect()
    }

    fn argument(&self, seed: i64, sizes: &[i64]) -> Tensor {
        let count: i64 = sizes.iter().product();
        let number = |at: i64| (at * 7 + seed * 13) % 11 - 5;
        let host = match self.numbers {
            Numbers::Whole => Tensor::from_slice(&(0..count).map(number).collect::<Vec<i64>>(), sizes),
            Numbers::Floats | Numbers::Rows | Numbers::Products => {
                Tensor::from_slice(&(0..count).map(|at| number(at) as f32 / 4.0).collect::<Vec<f32>>(), sizes)
            }
        };
        host.unwrap().cuda(None).unwrap()
    }

    /// Each stream waits for the one before it, so that the steps are in order wherever they run.
    fn run(&self, arguments: &[Tensor], sides: &[Stream]) -> Result<Vec<Tensor>> {
        let mut values = arguments.to_vec();
        let main = Runtime::current().streams().current(arguments[0].device().index.unwrap())?;
        let mut now = &main;
        for (at, step) in self.steps.iter().enumerate() {
            let next = self.streams.get(at).and_then(|stream| stream.checked_sub(1)).map_or(&main, |side| &sides[side]);
            if next != now {
                next.wait_stream(now)?;
                now = next;
            }
            if self.leaves_out(at, &values)? {
                continue;
            }
            let _on = now.guard();
            let (a, b) = (values[step.first % values.len()].clone(), values[step.second % values.len()].clone());
            if let Some(made) = self.step(step, &a, &b)? {
                values.push(made);
            }
        }
        if now != &main {
            main.wait_stream(now)?;
        }
        // Each result is a tensor of its own, whatever it is a view of.
        self.returned.iter().map(|at| values[at % values.len()].add(0)).collect()
    }

    /// Does a step where its operands allow it.
    fn step(&self, step: &Step, a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
        let last = a.dim() as i64 - 1;
        let fits = a.sizes() == b.sizes() || b.dim() == 0 || self.sizes == a.sizes() && broadcasts(b, a);
        let n = step.number;
        Ok(Some(match step.operation {
            0 if fits => a.add(b)?,
            1 if fits => a.sub(b)?,
            2 if fits => a.mul(b)?,
            3 if fits => a.maximum(b)?,
            4 => a.neg()?,
            5 => a.abs()?,
            6 => a.relu()?,
            7 => a.mul(n)?.add(1)?,
            8 => a.hardtanh(-3, 3)?,
            9 if a.dim() == 2 => a.t()?,
            10 if a.dim() == 1 => a.unsqueeze(0)?,
            11 if a.sizes().last().is_some_and(|&size| size > 1) => a.narrow(last, 1, a.size(last)? - 1)?,
            12 if fits && a.sizes().len() >= b.sizes().len() => {
                // A copy is changed in place, and an argument is.
                let copy = a.copy()?;
                copy.add_(b)?;
                copy.mul_(2)?;
                copy
            }
            13 if a.sizes() == self.sizes && !a.storage().is_same(b.storage()) && fits => {
                a.add_(b)?;
                return Ok(None);
            }
            14 => a.reshape(&[-1])?,
            15 => a.contiguous()?,
            16 if fits => a.gt(b)?.to_dtype(a.dtype())?,
            17 if a.dim() > 0 => self.rows(a, last, true)?,
            18 if a.dim() > 0 => self.rows(a, 0, true)?,
            19 if a.dim() > 0 => a.sub(&self.rows(a, last, true)?)?,
            20 if a.dim() > 0 => self.rows(a, last, false)?,
            21 if a.dim() > 0 => match self.numbers {
                Numbers::Rows => a.softmax(last, None)?,
                Numbers::Whole | Numbers::Floats | Numbers::Products => a.amax([last], true)?,
            },
            22 if a.dim() == 2 && b.dim() == 2 && a.size(1)? == b.size(0)? => a.mm(b)?,
            23 if a.dim() == 2 => a.mm(&a.t()?.contiguous()?)?,
            24 if a.dim() == 2 && b.dim() == 2 && a.size(1)? == b.size(1)? => {
                a.linear(b, None)?.gelu_tanh()?.hardtanh(-4, 4)?
            }
            _ => return Ok(None),
        }))
    }

    fn rows(&self, a: &Tensor, dim: i64, keepdim: bool) -> Result<Tensor> {
        match self.numbers {
            Numbers::Rows | Numbers::Products => a.mean([dim], keepdim, None),
            Numbers::Whole | Numbers::Floats => a.sum([dim], keepdim, None),
        }
    }

    fn check(&self, seed: u64) -> Report {
        let sides: Vec<Stream> = (0..SIDE_STREAMS).map(|_| Stream::new(None, 0).unwrap()).collect();
        let compiled = {
            let (program, sides) = (self.clone(), sides.clone());
            let mut options = CompileOptions::default();
            options.wide_intermediates = self.numbers == Numbers::Products;
            if self.graphs.is_some() {
                options.mode = CompileMode::ReduceOverhead;
            }
            compile_with(move |arguments: &[Tensor]| program.run(arguments, &sides), options)
        };
        let (eager, mut own) = (self.arguments(), self.arguments());
        let calls = if self.graphs.is_some() { 9 } else { 3 };
        for call in 0..calls {
            if call == 6 {
                // All arguments lie elsewhere from now on.
                own = own.iter().map(|argument| argument.copy().unwrap()).collect();
            }
            let expected = self.run(&eager, &sides).unwrap();
            let found = compiled.call(&own.iter().collect::<Vec<_>>()).unwrap();
            let context = || format!("seed {seed}, call {call}, {self:?}\n{}", compiled.report());
            for (expected, found) in expected.iter().chain(&eager).zip(found.iter().chain(&own)) {
                assert_eq!(expected.sizes(), found.sizes(), "{}", context());
                self.compare(expected, found, &context);
            }
        }
        compiled.report()
    }

    fn compare(&self, expected: &Tensor, found: &Tensor, context: &dyn Fn() -> String) {
        if self.numbers == Numbers::Whole {
            assert_eq!(expected.to_vec::<i64>().unwrap(), found.to_vec::<i64>().unwrap(), "{}", context());
            return;
        }
        let [expected, found] = [expected, found].map(|tensor| tensor.to_vec::<f32>().unwrap());
        let largest = expected.iter().fold(1e-6_f32, |most, value| most.max(value.abs()));
        for (expected, found) in expected.iter().zip(&found) {
            let near = match self.numbers {
                Numbers::Rows | Numbers::Products if largest.is_finite() => (expected - found).abs() <= 2e-5 * largest,
                Numbers::Rows | Numbers::Products => true,
                Numbers::Whole | Numbers::Floats => {
                    expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan()
                }
            };
            assert!(near, "{expected} and {found}: {}", context());
        }
    }
}

fn broadcasts(small: &Tensor, large: &Tensor) -> bool {
    let pairs = small.sizes().iter().rev().zip(large.sizes().iter().rev());
    small.dim() <= large.dim() && pairs.into_iter().all(|(small, large)| small == large || *small == 1)
}

/// How many products do more than their own.
fn products_with_more(report: &Report) -> usize {
    let kernels = report.programs.iter().flat_map(|program| &program.kernels);
    kernels.filter(|kernel| kernel.operations.len() > 1 && kernel.operations.contains(&"matmul")).count()
}

/// A simulated runtime, unless `COMPILE_DRIVER=real` asks for the one of the machine.
fn start() -> Option<testkit::SimulatedRuntime> {
    (std::env::var("COMPILE_DRIVER").as_deref() != Ok("real")).then(testkit::simulated_runtime)
}

fn check(numbers: Numbers, seeds: std::ops::Range<u64>) {
    let _simulated = start();
    for seed in seeds {
        Program::new(seed, numbers).check(seed);
    }
}

/// `COMPILE_PROGRAMS` asks for more programs of each kind.
fn count() -> u64 {
    std::env::var("COMPILE_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(120)
}

#[test]
fn programs_of_whole_numbers_give_what_they_gave() {
    check(Numbers::Whole, 0..count());
}

#[test]
fn programs_of_floats_give_the_same_bits() {
    check(Numbers::Floats, 0..count());
}

#[test]
fn programs_with_rows_of_floats_give_near_results() {
    check(Numbers::Rows, 0..count());
}

#[test]
fn programs_with_products_give_near_results() {
    for has_library in [true, false] {
        let simulated = start();
        if !has_library {
            blas::set_libraries(None, None);
        } else if simulated.is_some() {
            blas::set_libraries(Some(testkit::cublas()), Some(testkit::cublaslt()));
        }
        let does_more = |seed| products_with_more(&Program::new(seed, Numbers::Products).check(seed));
        let more: usize = (0..2 * count()).map(does_more).sum();
        assert!(more > 10, "{more} products did more than their own");
    }
}

#[test]
fn programs_on_several_streams_give_the_same_bits() {
    let _simulated = start();
    for seed in 0..count() {
        for numbers in [Numbers::Whole, Numbers::Floats] {
            Program::new(seed, numbers).on_streams(seed + 1).check(seed);
        }
    }
}

#[test]
fn programs_with_breaks_give_the_same_bits_as_cuda_graphs() {
    let _simulated = start();
    let mut graphs = 0;
    for seed in 0..count() / 2 {
        for numbers in [Numbers::Whole, Numbers::Floats] {
            graphs += Program::new(seed, numbers).in_graphs(seed + 1).check(seed).graphs as u64;
        }
    }
    assert!(graphs > count(), "{graphs} graphs");
}

#[test]
fn a_kind_of_number_has_a_dtype() {
    let _simulated = start();
    assert_eq!(Program::new(1, Numbers::Whole).arguments()[0].dtype(), DType::I64);
    assert_eq!(Program::new(1, Numbers::Floats).arguments()[0].dtype(), DType::F32);
}
