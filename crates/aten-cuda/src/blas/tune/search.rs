//! The search for the fastest candidate, by torch's rules.
//!
//! The default is timed first and is the reference. Each other candidate is timed three times and dropped if it takes
//! more than 1.5 times as long as the best so far, then ten times with a limit of 1.15. The result of a surviving
//! candidate is compared with the default's; the candidate is then timed until the limits are reached. The limits count
//! device time or real time, whichever is longer: a simulated device takes far more real time. Beyond torch, the best
//! few then compete with the default once more, in turn and in bursts of back-to-back runs, as in a real program. So
//! neither a GPU that was cold for the first candidate nor chance decides, and overlap with the end of the previous
//! kernel counts. The lowest mean wins; on a tie the default stays.
//!
//! Two comparisons keep wrong numbers out. One is always made, on normal random operands, against the largest number of
//! the default's result. The other is the user's (`set_numerical_check_tolerances`), on the real operands, as torch has it.
//!
//! **Invariants:** the default is never dropped, so a search that ends without an error has an answer. A candidate is
//! chosen only after its result was compared. An error of the default is the error of the search, and so is a lost
//! context; every other error only drops a candidate.

use std::fmt;
use std::time::Instant;

use c10_core::{Event, EventOptions, Stream};

use super::file::plain;
use super::journal::{Journal, Trial};
use super::log::{Log, warn};
use super::settings::{Limits, Tolerances};
use super::signature::{Element, Problem};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::tune_error::TuneError;
use crate::tensor::Tensor;

/// The name of the way that a product goes without tuning.
pub(crate) const DEFAULT: &str = "Default";

/// How often a candidate runs before it is timed, so that what happens at the first run alone is not timed.
const UNTIMED: usize = 2;

/// Runs of the first estimate, and how much slower than the best a candidate may be in it.
const FIRST: (usize, f64) = (3, 1.5);

/// Runs of the second estimate, and its limit.
const SECOND: (usize, f64) = (10, 1.15);

/// Timed runs where nothing limits them.
const RUNS: i64 = 100;

/// Rounds of the comparison of the best with the default.
const ROUNDS: usize = 4;

/// The most candidates that are compared with the default once more, and how much slower than the best one they may be.
const FINALISTS: (usize, f64) = (4, 1.15);

/// What a candidate may take of the time of the default to be chosen: a gain that is less is chance.
const GAIN: f64 = 0.995;

/// The most copies of the operands. Between two runs with one copy lie at least as many others, and the cache is emptied
/// before they are timed, so that more would make no difference.
const COPIES_MAX: u64 = 128;

/// Which operands a candidate runs with. Where the product reads what its result held before, that is like an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inputs {
    /// The caller's own inputs. The result has memory of its own.
    Shared,
    /// Copies of the caller's inputs.
    Copied,
    /// Normal random numbers, the same ones at every call. Where the product does not read what its result held before,
    /// that is not a number, so that what a candidate leaves unwritten is found.
    Random,
}

/// The ways to compute one product, and the product with its operands. All work is queued on the current stream.
pub(crate) trait Candidates {
    /// What tells one way from another, ready to be used again and again. It must not hold the runtime.
    type Candidate: Clone + Send + Sync + 'static;
    /// Operands and the memory of the result.
    type Arguments;

    /// Every candidate with its name, the default ([`DEFAULT`]) first. Names have no comma.
    ///
    /// # Errors
    /// The candidates cannot be asked for.
    fn list(&self) -> Result<Vec<(String, Self::Candidate)>>;

    /// The candidate of a name that a file tells.
    ///
    /// # Errors
    /// The candidates cannot be asked for.
    fn find(&self, name: &str) -> Result<Option<Self::Candidate>> {
        Ok(self.list()?.into_iter().find(|(known, _)| known == name).map(|(_, candidate)| candidate))
    }

    /// Bytes of the result and of the inputs.
    fn bytes(&self) -> u64;

    /// Operands for candidates to run with.
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    fn arguments(&self, inputs: Inputs) -> Result<Self::Arguments>;

    /// Queues the product.
    ///
    /// # Errors
    /// The candidate is not for this product, its launch failed, or the context is lost.
    fn run(&self, candidate: &Self::Candidate, arguments: &Self::Arguments) -> Result<()>;

    /// The result in some arguments, as a tensor of a float or complex dtype.
    ///
    /// # Errors
    /// The device failed.
    fn result(&self, arguments: &Self::Arguments) -> Result<Tensor>;
}

/// What times runs on the current stream.
pub(crate) trait Timer {
    /// Runs `run` so many times and answers the milliseconds of each. All work that was queued is done then.
    ///
    /// # Errors
    /// That of `run`, or the device failed.
    fn times(&mut self, count: usize, run: &mut dyn FnMut() -> Result<()>) -> Result<Vec<f64>>;

    /// Runs `run` so many times, one right after the other, and answers the milliseconds of one run. All work that was
    /// queued is done then.
    ///
    /// # Errors
    /// As for [`Self::times`].
    fn burst(&mut self, count: usize, run: &mut dyn FnMut() -> Result<()>) -> Result<f64>;

    /// Returns the milliseconds of real time that each run of the last [`Self::times`] took. This exceeds the device
    /// time if the host is slow to queue work, and far exceeds it on a simulated device.
    fn real(&self) -> f64;
}

/// A timer by events.
///
/// Before the timed runs the stream is kept busy for as long as the host needs to queue them, so that they follow each
/// other at once, and the second-level cache is filled with something else.
pub(super) struct EventTimer {
    stream: Stream,
    events: Vec<(Event, Event)>,
    /// What the cache is filled with; `None` where operands may be found there.
    filling: Option<Tensor>,
    /// Clock cycles in which the host queues one run.
    cycles: i64,
    /// Milliseconds of real time of each of the last runs.
    real: f64,
}

/// Microseconds in which the host queues one run with its events.
const QUEUEING: i64 = 8;

impl EventTimer {
    /// A timer on a stream of a device with this clock (kHz), that overwrites `cache` bytes of the cache.
    pub(super) fn new(stream: Stream, kilohertz: i32, cache: u64) -> Self {
        let device = stream.device();
        let size = i64::try_from(cache).unwrap_or(0);
        // Without memory for it the cache stays as it is.
        let filling = if size == 0 { None } else { Tensor::uninitialized(&[size], DType::U8, device).ok() };
        Self { stream, events: Vec::new(), filling, cycles: QUEUEING * i64::from(kilohertz) / 1000, real: 0.0 }
    }
}

impl EventTimer {
    /// So many pairs of events are there then, the stream is busy until as many runs are queued, and the cache is filled.
    fn begin(&mut self, pairs: usize, runs: usize) -> Result<()> {
        while self.events.len() < pairs {
            self.events.push((Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING)));
        }
        self.stream.sleep(self.cycles.saturating_mul(i64::try_from(runs).unwrap_or(1)))?;
        match &self.filling {
            Some(filling) => filling.zero_().map(drop),
            None => Ok(()),
        }
    }
}

impl Timer for EventTimer {
    fn burst(&mut self, count: usize, run: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        self.begin(1, count)?;
        let (start, end) = &self.events[0];
        start.record(&self.stream)?;
        for _ in 0..count {
            run()?;
        }
        end.record(&self.stream)?;
        end.synchronize()?;
        Ok(f64::from(start.elapsed_time(end)?) / f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX)))
    }

    fn times(&mut self, count: usize, run: &mut dyn FnMut() -> Result<()>) -> Result<Vec<f64>> {
        let begun = Instant::now();
        self.begin(count, count)?;
        for (start, end) in &self.events[..count] {
            start.record(&self.stream)?;
            run()?;
            end.record(&self.stream)?;
        }
        if let Some((_, last)) = self.events[..count].last() {
            last.synchronize()?;
        }
        self.real = begun.elapsed().as_secs_f64() * 1e3 / f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX));
        let pairs = self.events[..count].iter();
        pairs.map(|(start, end)| Ok(f64::from(start.elapsed_time(end)?))).collect()
    }

    fn real(&self) -> f64 {
        self.real
    }
}

/// What some timed runs took, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    mean: f64,
    min: f64,
    max: f64,
    deviation: f64,
    /// Milliseconds of real time of one run.
    real: f64,
}

impl Stats {
    /// Computes the statistics of runs that each took `real` milliseconds of real time.
    fn of(times: &[f64], real: f64) -> Self {
        let count = f64::from(u32::try_from(times.len().max(1)).unwrap_or(u32::MAX));
        let mean = times.iter().sum::<f64>() / count;
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        let min = times.iter().copied().fold(f64::INFINITY, f64::min);
        let max = times.iter().copied().fold(0.0, f64::max);
        Self { mean, min, max, deviation: (squares / (count - 1.0).max(1.0)).sqrt(), real }
    }

    /// Returns the time of one run that counts towards the limits: the longer of device time and real time.
    fn counted(&self) -> f64 {
        self.mean.max(self.real)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mean, min, max, deviation] = [self.mean, self.min, self.max, self.deviation].map(super::file::General);
        write!(f, "mean {mean} min {min} max {max} std {deviation}")
    }
}

/// Why a candidate was not chosen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Dropped {
    /// It took more time than the best.
    Slow,
    /// It computed other numbers than the default.
    Wrong,
    /// It cannot compute the product, or failed.
    Failed(String),
    /// It destroyed its context in an earlier run.
    Lost,
}

/// What a search found.
#[derive(Clone, Debug)]
pub(super) struct Found<C> {
    pub(super) name: String,
    pub(super) candidate: C,
    /// Milliseconds.
    pub(super) time: f64,
    /// Milliseconds that the default takes.
    pub(super) default_time: f64,
    /// Every candidate but the chosen one, with the reason.
    pub(super) dropped: Vec<(String, Dropped)>,
}

/// The fastest candidate.
///
/// # Errors
/// The candidates cannot be asked for, there is no memory for the operands, the default failed, or a candidate destroyed
/// the context ([`TuneError::ContextLost`]).
pub(super) fn find_fastest<C: Candidates>(
    problem: &Problem,
    candidates: &C,
    limits: &Limits,
    timer: &mut dyn Timer,
    journal: &mut Journal,
    log: &Log,
) -> Result<Found<C::Candidate>> {
    let named = candidates.list()?;
    log.say(
        2,
        format_args!(
            "finding fastest for {}({}) out of {} candidates",
            problem.op(),
            problem.own_params(),
            named.len()
        ),
    );
    let copies = copies(candidates, limits, log)?;
    let search = Search {
        problem,
        candidates,
        limits,
        timer,
        journal,
        log,
        copies,
        offset: 0,
        references: None,
        best: None,
        counted: 0.0,
    };
    search.run(named)
}

/// Copies of the operands, as many as fill the rotating buffer; fewer where memory runs out.
fn copies<C: Candidates>(candidates: &C, limits: &Limits, log: &Log) -> Result<Vec<C::Arguments>> {
    if limits.rotating == 0 {
        return Ok(vec![candidates.arguments(Inputs::Shared)?]);
    }
    let wanted = (limits.rotating / candidates.bytes().max(1) + 1).min(COPIES_MAX);
    log.say(2, format_args!("Rotating buffer {} MiB, copies of the operands: {wanted}", limits.rotating >> 20));
    let mut copies = Vec::new();
    for _ in 0..wanted {
        match candidates.arguments(Inputs::Copied) {
            Ok(copy) => copies.push(copy),
            Err(error) if is_out_of_memory(&error) => break,
            Err(error) => return Err(error),
        }
    }
    if copies.is_empty() {
        copies.push(candidates.arguments(Inputs::Shared)?);
    }
    Ok(copies)
}

fn is_out_of_memory(error: &Error) -> bool {
    error.runtime().is_some_and(c10_core::Error::is_out_of_memory)
}

/// The results of the default.
struct References {
    /// On random operands.
    random: Tensor,
    /// On the real operands, where the user asked for a comparison.
    real: Option<(Tensor, Tolerances)>,
}

/// A candidate with the milliseconds that it takes.
struct Timed<C> {
    name: String,
    candidate: C,
    time: f64,
}

struct Search<'a, C: Candidates> {
    problem: &'a Problem,
    candidates: &'a C,
    limits: &'a Limits,
    timer: &'a mut dyn Timer,
    journal: &'a mut Journal,
    log: &'a Log,
    copies: Vec<C::Arguments>,
    /// Which copy is next.
    offset: usize,
    references: Option<References>,
    /// Milliseconds of the best candidate so far.
    best: Option<f64>,
    /// Longest real time of one run of a candidate, in milliseconds.
    counted: f64,
}

/// How a trial ended.
enum Trialled {
    /// It was timed to the end; milliseconds.
    Timed(f64),
    Dropped(Dropped),
}

impl<C: Candidates> Search<'_, C> {
    fn run(mut self, named: Vec<(String, C::Candidate)>) -> Result<Found<C::Candidate>> {
        let (mut default, mut others, mut dropped) = (None, Vec::new(), Vec::new());
        for (at, (name, candidate)) in named.into_iter().enumerate() {
            let trialled = if at == 0 { self.default(&candidate)? } else { self.other(&name, &candidate)? };
            match trialled {
                Trialled::Dropped(reason) => {
                    self.tell_dropped(at, &name, &reason);
                    dropped.push((name, reason));
                }
                Trialled::Timed(time) => {
                    self.best = Some(self.best.map_or(time, |best| best.min(time)));
                    let timed = Timed { name, candidate, time };
                    if at == 0 { default = Some(timed) } else { others.push(timed) }
                }
            }
        }
        let default = default.ok_or_else(|| self.unknown(DEFAULT))?;
        self.decide(default, others, dropped)
    }

    /// The best of the others and the default, run in turn.
    fn decide(
        mut self,
        default: Timed<C::Candidate>,
        mut others: Vec<Timed<C::Candidate>>,
        mut dropped: Vec<(String, Dropped)>,
    ) -> Result<Found<C::Candidate>> {
        others.sort_by(|one, other| one.time.total_cmp(&other.time));
        let (most, factor) = FINALISTS;
        let best = self.best.unwrap_or(default.time);
        let count = others.iter().take(most).take_while(|timed| timed.time <= factor * best).count();
        let left = others.split_off(count);
        dropped.extend(left.into_iter().map(|timed| (timed.name, Dropped::Slow)));
        let mut finalists = vec![default];
        finalists.append(&mut others);
        if finalists.len() > 1 {
            self.compare(&mut finalists, best)?;
        }
        let default_time = finalists[0].time;
        let limit = GAIN * default_time;
        let fastest = (1..finalists.len()).min_by(|&a, &b| finalists[a].time.total_cmp(&finalists[b].time));
        let chosen = fastest.filter(|&at| finalists[at].time < limit).unwrap_or(0);
        let Timed { name, candidate, time } = finalists.swap_remove(chosen);
        dropped.extend(finalists.into_iter().map(|timed| (timed.name, Dropped::Slow)));
        let (op, params) = (self.problem.op(), self.problem.own_params());
        self.log.say(2, format_args!("└──found fastest for {op}({params}) {name}"));
        Ok(Found { name, candidate, time, default_time, dropped })
    }

    /// Times candidates in turn, in bursts as long as the limits allow for one that takes `best`.
    fn compare(&mut self, finalists: &mut [Timed<C::Candidate>], best: f64) -> Result<()> {
        let runs = self.timed_runs(best.max(self.counted)).div_ceil(ROUNDS);
        let mut sums = vec![0.0; finalists.len()];
        for _ in 0..ROUNDS {
            for (sum, timed) in sums.iter_mut().zip(&*finalists) {
                *sum += self.burst(&timed.candidate, runs).map_err(|error| self.fatal(&timed.name, error))?;
            }
        }
        for (timed, sum) in finalists.iter_mut().zip(sums) {
            timed.time = sum / f64::from(u32::try_from(ROUNDS).unwrap_or(1));
        }
        Ok(())
    }

    /// Times the default, after its results were kept for the comparisons. Its errors are those of the search.
    fn default(&mut self, candidate: &C::Candidate) -> Result<Trialled> {
        let of = |inputs| {
            let arguments = self.candidates.arguments(inputs)?;
            self.candidates.run(candidate, &arguments)?;
            self.candidates.result(&arguments)?.copy()
        };
        let random = of(Inputs::Random)?;
        let real = self.limits.check.map(|tolerances| Ok::<_, Error>((of(Inputs::Shared)?, tolerances))).transpose()?;
        self.references = Some(References { random, real });
        let estimate = self.time(candidate, FIRST.0)?;
        self.timed("Default", candidate, estimate.counted())
    }

    /// Tries another candidate, with the journal telling which one it is.
    fn other(&mut self, name: &str, candidate: &C::Candidate) -> Result<Trialled> {
        let trial = self.trial(name);
        if self.journal.is_lost(&trial) {
            return Ok(Trialled::Dropped(Dropped::Lost));
        }
        note(self.journal.begin(&trial));
        let trialled = match self.estimated(name, candidate) {
            Ok(trialled) => trialled,
            Err(error) if is_fatal(&error) => return Err(self.fatal(name, error)),
            Err(error) => Trialled::Dropped(Dropped::Failed(error.to_string())),
        };
        note(self.journal.end(&trial));
        Ok(trialled)
    }

    /// Two estimates, the comparisons, and the timing.
    fn estimated(&mut self, name: &str, candidate: &C::Candidate) -> Result<Trialled> {
        let mut counted = 0.0;
        for (runs, factor) in [FIRST, SECOND] {
            let fitting = within(self.limits.duration, 0, counted)
                .map_or(runs, |fitting| usize::try_from(fitting).unwrap_or(runs));
            let stats = self.time(candidate, runs.min(fitting.max(1)))?;
            counted = stats.counted();
            if self.best.is_some_and(|best| stats.mean > factor * best) {
                return Ok(Trialled::Dropped(Dropped::Slow));
            }
        }
        if !self.is_right(candidate)? {
            return Ok(Trialled::Dropped(Dropped::Wrong));
        }
        self.timed(name, candidate, counted)
    }

    /// The timing for as long and as often as the limits allow.
    fn timed(&mut self, name: &str, candidate: &C::Candidate, approximate: f64) -> Result<Trialled> {
        let (untimed, runs) = (self.untimed_runs(approximate), self.timed_runs(approximate));
        let what = (self.problem.op(), self.problem.own_params());
        self.log.say(
            3,
            format_args!(
                "├──tuning using warmup iters {untimed} and tuning iters {runs}, {}({}) {name}",
                what.0, what.1
            ),
        );
        for _ in 0..untimed {
            self.once(candidate)?;
        }
        let stats = self.time(candidate, runs)?;
        self.log.say(3, format_args!("├──timed {name}: {stats}"));
        self.counted = self.counted.max(stats.real);
        Ok(Trialled::Timed(stats.mean))
    }

    /// So many runs, after some that are not timed.
    fn time(&mut self, candidate: &C::Candidate, runs: usize) -> Result<Stats> {
        for _ in 0..UNTIMED {
            self.once(candidate)?;
        }
        let Self { candidates, timer, copies, offset, .. } = self;
        let times = timer.times(runs, &mut || {
            *offset = (*offset + 1) % copies.len();
            candidates.run(candidate, &copies[*offset])
        })?;
        Ok(Stats::of(&times, self.timer.real()))
    }

    /// The milliseconds of one of so many runs in a row, after some that are not timed.
    fn burst(&mut self, candidate: &C::Candidate, runs: usize) -> Result<f64> {
        for _ in 0..UNTIMED {
            self.once(candidate)?;
        }
        let Self { candidates, timer, copies, offset, .. } = self;
        timer.burst(runs, &mut || {
            *offset = (*offset + 1) % copies.len();
            candidates.run(candidate, &copies[*offset])
        })
    }

    /// One run on the next copy.
    fn once(&mut self, candidate: &C::Candidate) -> Result<()> {
        self.offset = (self.offset + 1) % self.copies.len();
        self.candidates.run(candidate, &self.copies[self.offset])
    }

    /// Whether a candidate computes what the default does.
    fn is_right(&self, candidate: &C::Candidate) -> Result<bool> {
        let Some(references) = &self.references else { return Ok(false) };
        let of = |inputs| {
            let arguments = self.candidates.arguments(inputs)?;
            self.candidates.run(candidate, &arguments)?;
            self.candidates.result(&arguments)
        };
        let tolerance = tolerance(self.problem.elements[2]);
        if !is_near(&references.random, &of(Inputs::Random)?, tolerance)? {
            return Ok(false);
        }
        match &references.real {
            Some((reference, tolerances)) => all_close(reference, &of(Inputs::Shared)?, *tolerances),
            None => Ok(true),
        }
    }

    /// Timed runs: the smaller of both limits, and at least one.
    fn timed_runs(&self, approximate: f64) -> usize {
        let runs = within(self.limits.duration, self.limits.iterations, approximate).unwrap_or(RUNS);
        usize::try_from(runs.max(1)).unwrap_or(1)
    }

    /// Runs before that: none unless they are asked for.
    fn untimed_runs(&self, approximate: f64) -> usize {
        let runs = within(self.limits.warmup_duration, self.limits.warmup_iterations, approximate).unwrap_or(0);
        usize::try_from(runs).unwrap_or(0)
    }

    fn trial(&self, name: &str) -> Trial {
        (self.problem.op(), self.problem.own_params(), plain(name))
    }

    /// The error that ends the search: the candidate by name, where it destroyed the context.
    fn fatal(&mut self, name: &str, error: Error) -> Error {
        if !is_fatal(&error) {
            return error;
        }
        let trial = self.trial(name);
        self.journal.lose(trial.clone());
        let (op, params, candidate) = trial;
        TuneError::ContextLost { candidate, op, params, cause: error.to_string() }.into()
    }

    fn unknown(&self, name: &str) -> Error {
        let (op, params) = (self.problem.op(), self.problem.own_params());
        TuneError::UnknownSolution { solution: name.to_owned(), op, params }.into()
    }

    fn tell_dropped(&self, at: usize, name: &str, reason: &Dropped) {
        let (op, params) = (self.problem.op(), self.problem.own_params());
        let what = format_args!("id={at}, {op}({params}) {name}");
        match reason {
            Dropped::Slow => self.log.say(3, format_args!("├──skip slow instance {what}")),
            Dropped::Failed(error) => self.log.say(3, format_args!("├──unsupported {what}: {error}")),
            Dropped::Lost => self.log.say(1, format_args!("├──lost its context in an earlier run {what}")),
            Dropped::Wrong => {
                warn(format_args!("{name} computes other numbers than the default for {op}({params}) and is not used"));
            }
        }
    }
}

/// How often a candidate may run within milliseconds and a count, of which 0 is no limit; `None` where both are.
fn within(duration: i64, count: i64, approximate: f64) -> Option<i64> {
    let fitting = (duration > 0).then(|| {
        let runs = f64::from(i32::try_from(duration).unwrap_or(i32::MAX)) / approximate.max(1e-6);
        // As C++ cuts it; no count is near the largest number.
        #[expect(clippy::cast_possible_truncation, reason = "a limit in milliseconds over at least a nanosecond")]
        let runs = runs as i64;
        runs
    });
    match (fitting, (count > 0).then_some(count)) {
        (Some(fitting), Some(count)) => Some(fitting.min(count)),
        (fitting, count) => fitting.or(count),
    }
}

/// Whether the device is lost for good.
fn is_fatal(error: &Error) -> bool {
    error.runtime().is_some_and(c10_core::Error::context_is_lost)
}

/// A journal that cannot be written is told; the search goes on without.
fn note(written: std::result::Result<(), TuneError>) {
    if let Err(error) = written {
        warn(format_args!("{error}; a candidate that ends the process would be tried again"));
    }
}

/// How far a result may be from the default's, in parts of the largest number there: what another order of additions and
/// sums kept in the dtype of the result may make, and less than a product in a smaller type makes.
fn tolerance(element: Element) -> f64 {
    match element {
        Element::Int8 => 0.0,
        Element::Double | Element::ComplexDouble => 1e-10,
        Element::Float | Element::ComplexFloat => 5e-5,
        Element::Tf32 => 2e-3,
        Element::Half => 1e-2,
        Element::BFloat16 => 2e-2,
        Element::Float8E4m3fn | Element::Float8E4m3fnuz => 0.13,
        Element::Float8E5m2 | Element::Float8E5m2fnuz => 0.26,
    }
}

/// A tensor in a dtype that differences are exact enough in.
fn widened(tensor: &Tensor) -> Result<Tensor> {
    match tensor.dtype() {
        DType::F64 | DType::C64 | DType::C128 => Ok(tensor.clone()),
        _ => tensor.to_dtype(DType::F32),
    }
}

/// Whether no element is further from the reference than a part of the reference's largest one. What is not a number is
/// far from everything.
fn is_near(reference: &Tensor, result: &Tensor, tolerance: f64) -> Result<bool> {
    if reference.numel() == 0 {
        return Ok(true);
    }
    let (reference, result) = (widened(reference)?, widened(result)?);
    let difference = result.sub(&reference)?.abs()?.amax((), false)?.item()?.to_f64();
    let largest = reference.abs()?.amax((), false)?.item()?.to_f64();
    Ok(difference <= tolerance * largest)
}

/// `torch.allclose`: an element may differ by `absolute + relative * |reference|`; infinities must be equal.
fn all_close(reference: &Tensor, result: &Tensor, tolerances: Tolerances) -> Result<bool> {
    let (reference, result) = (widened(reference)?, widened(result)?);
    let allowed = reference.abs()?.mul(tolerances.relative)?.add(tolerances.absolute)?;
    let difference = result.sub(&reference)?.abs()?;
    let is_close = difference.le(&allowed)?.logical_and(&difference.lt(f64::INFINITY)?)?;
    let is_close = is_close.logical_or(&result.eq(&reference)?)?;
    Ok(is_close.all((), false)?.item()?.is_true())
}
