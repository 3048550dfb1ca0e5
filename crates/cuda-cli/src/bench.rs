//! `bench`: a handful of figures of this machine, each of them checked: what was copied arrived, what was launched ran.
//!
//! **Invariants:** a figure is the median of several samples, with the lowest and the highest beside it. A sample is long
//! enough for the clock. Times of the host end when the host may go on; those of the device are taken by events.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use cuda_api::{CUDAGraph, DeviceBuffer, Event, EventOptions, GraphOptions, PinnedBuffer, Runtime, Stream};
use serde_json::json;

use crate::Error;
use crate::machine::one_line;
use crate::progress::Bar;
use crate::table::{Column, Table, number, words};

/// Samples of each figure.
const SAMPLES: usize = 15;

/// A sample takes at least this long.
const SAMPLE: Duration = Duration::from_millis(5);

/// Operations that are queued before the device is waited for: few enough for its queue.
const QUEUED: u32 = 500;

/// Bytes of a copy.
const COPY: usize = 64 << 20;

/// A figure: a median with the lowest and the highest sample.
struct Figure {
    unit: &'static str,
    samples: Vec<f64>,
}

impl Figure {
    fn median(&self) -> f64 {
        self.samples.get(self.samples.len() / 2).copied().unwrap_or(0.0)
    }

    fn ends(&self) -> (f64, f64) {
        (self.samples.first().copied().unwrap_or(0.0), self.samples.last().copied().unwrap_or(0.0))
    }
}

/// What can go wrong here: the runtime refuses, or what was measured did not do its work.
#[derive(Debug)]
enum Failure {
    Runtime(cuda_api::Error),
    Tensor(cuda_api::torch::Error),
    Wrong(&'static str),
}

impl From<cuda_api::Error> for Failure {
    fn from(error: cuda_api::Error) -> Self {
        Self::Runtime(error)
    }
}

impl From<cuda_api::torch::Error> for Failure {
    fn from(error: cuda_api::torch::Error) -> Self {
        Self::Tensor(error)
    }
}

type Measured = Result<Figure, Failure>;

/// The name of a figure, and what measures it.
type Task = (&'static str, fn(&Bench) -> Measured);

/// Everything that is measured, in the order of the table.
const FIGURES: [Task; 10] = [
    ("allocation and free, cached", Bench::pair),
    ("event recorded and queried", Bench::event),
    ("kernel queued", Bench::launch),
    ("tensor operation queued", Bench::operation),
    ("graph of 20 kernels queued", Bench::graph),
    ("wait for an idle stream", Bench::wait),
    ("host to device, pageable", Bench::up_pageable),
    ("host to device, pinned", Bench::up),
    ("device to host, pinned", Bench::down),
    ("device to device", Bench::across),
];

const COLUMNS: &[Column] =
    &[words("FIGURE", 0), number("MEDIAN", 0), words("UNIT", 0), number("LOWEST", 0), number("HIGHEST", 0)];

/// Measures and prints; the exit code is 1 if something could not be measured.
pub(crate) fn run(given: &ArgMatches, out: &mut dyn Write) -> Result<u8, Error> {
    let device = given.get_one::<i32>("device").copied().unwrap_or(0);
    let mut bar = Bar::new("", FIGURES.len());
    let bench = Bench::new(device, given.get_flag("quick"));
    let results = FIGURES.iter().enumerate().map(|(done, (name, measure))| {
        bar.tell(done);
        let measured =
            bench.as_ref().map_err(one_sentence).and_then(|bench| measure(bench).map_err(|why| one_sentence(&why)));
        (*name, measured)
    });
    let results: Vec<(&str, Result<Figure, String>)> = results.collect();
    drop(bar);
    if given.get_flag("json") {
        let figures = results.iter().map(|(name, result)| match result {
            Ok(figure) => {
                let (lowest, highest) = figure.ends();
                json!({ "name": name, "unit": figure.unit, "median": figure.median(), "lowest": lowest, "highest": highest })
            }
            Err(why) => json!({ "name": name, "error": why }),
        });
        let (name, is_simulated) = (name_of(device), Runtime::current().is_simulated());
        let figures: Vec<_> = figures.collect();
        writeln!(out, "{}", json!({ "device": name, "simulated": is_simulated, "figures": figures }))?;
    } else {
        table(device, &results, out)?;
    }
    Ok(u8::from(results.iter().any(|(_, result)| result.is_err())))
}

fn name_of(device: i32) -> Option<String> {
    cuda_api::get_device_name(device).ok()
}

fn one_sentence(failure: &Failure) -> String {
    match failure {
        Failure::Runtime(error) => one_line(&error.to_string()),
        Failure::Tensor(error) => one_line(&error.to_string()),
        Failure::Wrong(what) => format!("not measured: {what}"),
    }
}

fn table(device: i32, results: &[(&str, Result<Figure, String>)], out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "cuda:{device}  {}", name_of(device).unwrap_or_else(|| "cannot be used".to_owned()))?;
    if Runtime::current().is_simulated() {
        writeln!(out, "the device is simulated: the figures are those of the simulator")?;
    }
    writeln!(out)?;
    let row = |(name, result): &(&str, Result<Figure, String>)| match result {
        Ok(figure) => {
            let (lowest, highest) = figure.ends();
            let cells = [digits(figure.median()), figure.unit.to_owned(), digits(lowest), digits(highest)];
            std::iter::once((*name).to_owned()).chain(cells).collect()
        }
        Err(why) => vec![format!("{name}: {why}")],
    };
    let rows = Table { columns: COLUMNS, rows: results.iter().map(row).collect() };
    rows.lines(None).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(())
}

/// Three digits that mean something.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// What the figures are measured with.
struct Bench {
    device: i32,
    stream: Stream,
    samples: usize,
    sample: Duration,
    copy: usize,
}

impl Bench {
    fn new(device: i32, is_quick: bool) -> Result<Self, Failure> {
        cuda_api::init()?;
        let stream = Stream::new(device, 0)?;
        let (samples, sample, copy) = if is_quick { (3, Duration::ZERO, 1 << 20) } else { (SAMPLES, SAMPLE, COPY) };
        Ok(Self { device, stream, samples, sample, copy })
    }

    /// Nanoseconds of the host for each call; the device is waited for outside of the time.
    fn host(&self, mut call: impl FnMut() -> Result<(), Failure>) -> Measured {
        let mut samples = Vec::new();
        call()?;
        while samples.len() < self.samples {
            let (mut spent, mut calls) = (Duration::ZERO, 0);
            while calls == 0 || spent < self.sample {
                self.stream.synchronize()?;
                let begin = Instant::now();
                (0..QUEUED).try_for_each(|_| call())?;
                spent += begin.elapsed();
                calls += QUEUED;
            }
            samples.push(spent.as_secs_f64() * 1e9 / f64::from(calls));
        }
        self.stream.synchronize()?;
        Ok(figure("ns", samples))
    }

    /// Gigabytes a second of a copy, by events of the device.
    fn bandwidth(&self, moved: usize, mut copy: impl FnMut() -> Result<(), Failure>) -> Measured {
        let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
        let mut samples = Vec::new();
        copy()?;
        while samples.len() < self.samples {
            start.record(&self.stream)?;
            copy()?;
            end.record(&self.stream)?;
            end.synchronize()?;
            let seconds = f64::from(start.elapsed_time(&end)?) / 1e3;
            if seconds <= 0.0 {
                return Err(Failure::Wrong("the device's clock stood still"));
            }
            samples.push(real(moved) / 1e9 / seconds);
        }
        Ok(figure("GB/s", samples))
    }

    fn pair(&self) -> Measured {
        let memory = Runtime::current();
        let memory = memory.memory();
        let before = memory.stats(self.device)?;
        let measured = self.host(|| Ok(memory.free(memory.alloc(1 << 20, &self.stream)?)?))?;
        let after = memory.stats(self.device)?;
        let taken = after.num_device_alloc - before.num_device_alloc;
        if taken > 1 || after.allocated_bytes.all.current != before.allocated_bytes.all.current {
            return Err(Failure::Wrong("the memory did not come from the cache"));
        }
        Ok(measured)
    }

    fn event(&self) -> Measured {
        let event = Event::new(EventOptions::default());
        let measured = self.host(|| {
            event.record(&self.stream)?;
            event.query()?;
            Ok(())
        })?;
        if event.query()? { Ok(measured) } else { Err(Failure::Wrong("the last event is not done")) }
    }

    fn launch(&self) -> Measured {
        self.host(|| Ok(self.stream.sleep(1)?))
    }

    /// Adds one to a tensor of 256 elements, and checks how often.
    fn operation(&self) -> Measured {
        let _current = cuda_api::stream(&self.stream)?;
        let device = cuda_api::Device::cuda(self.device);
        let sum = cuda_api::torch::zeros(&[256], cuda_api::torch::DType::I32, device)?;
        let mut calls = 0;
        let measured = self.host(|| {
            calls += 1;
            sum.add_(1).map(|_| ()).map_err(Failure::from)
        })?;
        let found = sum.to_vec::<i32>()?;
        let is_right = found.iter().all(|value| *value == calls);
        if is_right { Ok(measured) } else { Err(Failure::Wrong("a kernel did not run as often as it was queued")) }
    }

    /// Replays a graph that adds one twenty times, and checks the sum.
    fn graph(&self) -> Measured {
        let _current = cuda_api::stream(&self.stream)?;
        let device = cuda_api::Device::cuda(self.device);
        let sum = cuda_api::torch::zeros(&[256], cuda_api::torch::DType::I32, device)?;
        sum.add_(0)?;
        self.stream.synchronize()?;
        let mut graph = CUDAGraph::new();
        let capture = cuda_api::graph(&mut graph, GraphOptions::default())?;
        (0..20).try_for_each(|_| sum.add_(1).map(|_| ()).map_err(Failure::from))?;
        capture.end()?;
        let mut calls = 0;
        let measured = self.host(|| {
            calls += 20;
            Ok(graph.replay()?)
        })?;
        let found = sum.to_vec::<i32>()?;
        let is_right = found.iter().all(|value| *value == calls);
        if is_right { Ok(measured) } else { Err(Failure::Wrong("a graph did not run as often as it was queued")) }
    }

    fn wait(&self) -> Measured {
        self.host(|| Ok(self.stream.synchronize()?))
    }

    fn buffer(&self) -> Result<DeviceBuffer, Failure> {
        Ok(Runtime::current().memory().buffer(self.copy, &self.stream)?)
    }

    fn up_pageable(&self) -> Measured {
        let _current = cuda_api::stream(&self.stream)?;
        let (from, to) = (pattern(self.copy), self.buffer()?);
        let measured = self.bandwidth(self.copy, || Ok(to.copy_from_slice(0, &from)?))?;
        self.same(&to.to_vec()?, &from, measured)
    }

    fn up(&self) -> Measured {
        let _current = cuda_api::stream(&self.stream)?;
        let (bytes, from, to) = (pattern(self.copy), PinnedBuffer::new(self.copy)?, self.buffer()?);
        from.write(0, &bytes)?;
        let copy = || Ok(to.copy_from_pinned(0, &from, 0..self.copy, &self.stream)?);
        let measured = self.bandwidth(self.copy, copy)?;
        self.same(&to.to_vec()?, &bytes, measured)
    }

    fn down(&self) -> Measured {
        let _current = cuda_api::stream(&self.stream)?;
        let (bytes, from, to) = (pattern(self.copy), self.buffer()?, PinnedBuffer::new(self.copy)?);
        from.copy_from_slice(0, &bytes)?;
        let copy = || Ok(from.copy_to_pinned(0..self.copy, &to, 0, &self.stream)?);
        let measured = self.bandwidth(self.copy, copy)?;
        self.same(&to.to_vec()?, &bytes, measured)
    }

    /// Every byte is read once and written once: both count, as for the device's own bandwidth.
    fn across(&self) -> Measured {
        let _current = cuda_api::stream(&self.stream)?;
        let (bytes, from, to) = (pattern(self.copy), self.buffer()?, self.buffer()?);
        from.copy_from_slice(0, &bytes)?;
        let copy = || Ok(to.copy_from_buffer(0, &from, 0..self.copy, &self.stream)?);
        let measured = self.bandwidth(2 * self.copy, copy)?;
        self.same(&to.to_vec()?, &bytes, measured)
    }

    fn same(&self, found: &[u8], sent: &[u8], measured: Figure) -> Measured {
        if found == sent { Ok(measured) } else { Err(Failure::Wrong("the bytes did not arrive")) }
    }
}

/// Bytes that differ from their neighbours and from page to page.
fn pattern(count: usize) -> Vec<u8> {
    (0..=250).cycle().take(count).collect()
}

/// Samples in order.
fn figure(unit: &'static str, mut samples: Vec<f64>) -> Figure {
    samples.sort_by(f64::total_cmp);
    Figure { unit, samples }
}

#[expect(clippy::cast_precision_loss, reason = "a buffer has fewer than 2^53 bytes")]
fn real(bytes: usize) -> f64 {
    bytes as f64
}
