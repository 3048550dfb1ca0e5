//! The caching allocator through the runtime's public functions: `bench alloc [--peer HARNESS | --figures FILE] [--json]`.
//!
//! With `--peer` the same runs in the harness's process, in turn with ours: ours sleeps while it works and it sleeps
//! while ours works, so that both meet the same machine. With `--figures` what another program has printed just before
//! stands beside ours. On the simulated driver the figures are those of the allocator's own work.
//!
//! **Invariants:** each figure is the median of [`ROUNDS`] rounds, each side's as long as [`ROUND_NS`]; each row begins
//! with an empty cache on both sides.

mod case;
mod host_memory;
mod peer;
mod report;
mod work;

use std::io::Write as _;
use std::path::PathBuf;

use crate::figures::Figures;
use bench::median;

use crate::measure::{BURST_CALLS, BURSTS, alone};
use crate::raw::{Failure, Raw};
use case::{BYTES, Case, Kind, THREADS_MAX};
use host_memory::HostMemory;
use peer::Peer;
use report::{Control, Floor, Row};
use work::Ground;

/// Rounds of each side.
const ROUNDS: usize = 7;

/// How long a round is meant to take.
const ROUND_NS: f64 = 100e6;

/// A shorter trial says nothing about how many operations make a round.
const TRIAL_NS: f64 = 2e6;

/// Operations of the first trial.
const TRIAL_OPS: usize = 100;

/// The most operations of a round.
const OPS_MAX: usize = 100_000_000;

/// Timed calls of a round of latencies.
const LATENCY_OPS: usize = 50_000;

/// How often the control's steps are brought nearer to what they stand beside.
const CALIBRATIONS: usize = 3;

/// How the command is used.
const USAGE: &str = "usage: bench alloc [--peer HARNESS | --figures FILE] [--json]";

/// Runs the command with the words behind `alloc`; what is still to be printed.
///
/// # Errors
/// The words mean nothing; the runtime, the driver or the peer failed.
pub(crate) fn main(words: &[&str]) -> Result<String, Failure> {
    if words == &host_memory::WORDS[1..] {
        return HostMemory::count();
    }
    let options = Options::parse(words)?;
    let mut beside = match &options {
        Options { peer: Some(path), .. } => Beside::Peer(Peer::start(path)?),
        Options { figures: Some(path), .. } => Beside::Figures(Figures::read(path)?),
        _ => Beside::Nothing,
    };
    let memory = HostMemory::measure()?;
    let (ground, raw) = (Ground::new()?, Raw::new()?);
    let (version, origin) = ground.runtime.driver_version()?;
    say(&format!("driver: CUDA {}.{} from {origin}", version / 1000, version % 1000 / 10));
    say(&report::head(beside.name()));
    let mut rows = Vec::new();
    for case in case::all() {
        for row in measure(case, &ground, &raw, &mut beside)? {
            say(&row.line());
            rows.push(row);
        }
    }
    let floor = floor(&raw)?;
    say(&floor.lines());
    let control = control(&ground)?;
    say(&control.lines(THREADS_MAX));
    say(&report::host_memory_line(&memory));
    let json = options.json.then(|| report::json(&rows, &floor, &control, THREADS_MAX, &memory));
    Ok(json.unwrap_or_default())
}

/// Prints a line while more is measured. A reader that went away is not an error worth reporting.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[derive(Debug, Default, PartialEq)]
struct Options {
    peer: Option<PathBuf>,
    figures: Option<PathBuf>,
    json: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let place = match *word {
                "--json" if !options.json => {
                    options.json = true;
                    continue;
                }
                "--peer" => &mut options.peer,
                "--figures" => &mut options.figures,
                _ => return Err(USAGE.into()),
            };
            let value = words.next().ok_or_else(|| format!("{word} needs a path\n{USAGE}"))?;
            *place = Some(value.into());
        }
        if options.peer.is_some() && options.figures.is_some() {
            return Err(format!("a peer or figures can stand beside ours, not both\n{USAGE}").into());
        }
        Ok(options)
    }
}

/// What stands beside ours.
#[derive(Debug)]
enum Beside {
    Nothing,
    Peer(Peer),
    Figures(Figures),
}

impl Beside {
    fn name(&self) -> &'static str {
        match self {
            Self::Nothing | Self::Peer(_) => "peer",
            Self::Figures(_) => "torch",
        }
    }
}

/// One side of a row: how many operations a round has, and what its rounds measured so far, for each name of the row.
struct Side<'run> {
    ops: usize,
    run: Box<dyn FnMut(usize) -> Result<Vec<f64>, Failure> + 'run>,
    rounds: Vec<Vec<f64>>,
}

impl<'run> Side<'run> {
    fn new(case: Case, mut run: impl FnMut(usize) -> Result<Vec<f64>, Failure> + 'run) -> Result<Self, Failure> {
        let ops = match case.kind {
            Kind::Latency(_) => LATENCY_OPS,
            Kind::Pair(_)
            | Kind::Replace(_)
            | Kind::Remote(_)
            | Kind::RecordStream(_)
            | Kind::Stats
            | Kind::StatsOfStreams(_)
            | Kind::Flattened => ops_of_a_round(|ops| Ok(run(ops)?.first().copied().unwrap_or_default()))?,
        };
        Ok(Self { ops, run: Box::new(run), rounds: Vec::new() })
    }

    fn round(&mut self) -> Result<(), Failure> {
        self.rounds.push((self.run)(self.ops)?);
        Ok(())
    }

    fn median(&self, position: usize) -> f64 {
        median(&mut self.rounds.iter().filter_map(|round| round.get(position).copied()).collect::<Vec<_>>())
    }
}

/// Measures one case on both sides.
fn measure(case: Case, ground: &Ground, raw: &Raw, beside: &mut Beside) -> Result<Vec<Row>, Failure> {
    ground.runtime.memory().empty_cache()?;
    let mut ours = Side::new(case, |ops| run(case, ground, raw, ops))?;
    let mut peer = match (&mut *beside, case.request()) {
        (Beside::Peer(peer), Some(request)) => {
            peer.empty_cache()?;
            Some(Side::new(case, move |ops| Ok(peer.bench(&request, ops)?))?)
        }
        _ => None,
    };
    for _ in 0..ROUNDS {
        ours.round()?;
        peer.iter_mut().try_for_each(Side::round)?;
    }
    let peer_ns = |position| peer.as_ref().map(|side| side.median(position));
    let rows: Vec<Row> = case
        .names()
        .into_iter()
        .enumerate()
        .map(|(position, name)| Row { name, ours_ns: ours.median(position), peer_ns: peer_ns(position) })
        .collect();
    drop(peer);
    Ok(match (beside, case.figure_name()) {
        (Beside::Figures(figures), Some(name)) => {
            rows.into_iter().map(|row| Row { peer_ns: figures.get(&name), ..row }).collect()
        }
        _ => rows,
    })
}

/// One round of ours: nanoseconds of an operation, or the quantiles of a latency.
fn run(case: Case, ground: &Ground, raw: &Raw, ops: usize) -> Result<Vec<f64>, Failure> {
    Ok(match case.kind {
        Kind::Pair(bytes) => vec![ground.pair(bytes, case.threads, ops)?],
        Kind::Replace(live) => vec![ground.replace(live, ops)?],
        Kind::Remote(bytes) => vec![ground.remote(bytes, ops)?],
        Kind::RecordStream(bytes) => vec![alone::<Failure>(
            ops.div_ceil(BURST_CALLS),
            || Ok(raw.synchronize()?),
            || Ok(ground.record_stream(bytes)?),
        )?],
        Kind::Stats => vec![ground.stats(ops)?],
        Kind::StatsOfStreams(streams) => vec![Ground::stats_of_streams(streams, ops)?],
        Kind::Flattened => vec![ground.flattened(ops)?],
        Kind::Latency(bytes) => {
            let figures = ground.latencies(bytes, ops)?;
            [ops / 2, ops * 99 / 100, ops * 999 / 1000].map(|position| figures[position]).to_vec()
        }
    })
}

/// How many operations take about as long as a round should, found by trials.
fn ops_of_a_round(mut trial: impl FnMut(usize) -> Result<f64, Failure>) -> Result<usize, Failure> {
    let mut ops = TRIAL_OPS;
    loop {
        let ns = trial(ops)?;
        if ns * ops as f64 >= TRIAL_NS || ops >= OPS_MAX {
            return Ok(whole(ROUND_NS / ns).clamp(TRIAL_OPS, OPS_MAX));
        }
        ops *= 8;
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; out of range it saturates")]
fn whole(count: f64) -> usize {
    count as usize
}

/// The raw calls beside `record_stream`, in bursts like it.
fn floor(raw: &Raw) -> Result<Floor, Failure> {
    let burst =
        |body: &mut dyn FnMut() -> Result<(), Failure>| alone::<Failure>(BURSTS, || Ok(raw.synchronize()?), body);
    let record_ns = burst(&mut || Ok(raw.event_record()?))?;
    let query_ns = burst(&mut || Ok(raw.event_query()?))?;
    let word_ns = raw.host_word().and_then(|word| raw.stream_write_value(&word, 0).map(|()| word));
    let word_ns = match word_ns {
        Ok(word) => {
            let mut number = 0;
            let write_ns = burst(&mut || {
                number += 1;
                Ok(raw.stream_write_value(&word, number)?)
            })?;
            raw.synchronize()?;
            if word.poll() != number {
                return Err(format!("a pinned word holds {} after {number} was written to it", word.poll()).into());
            }
            let poll_ns = burst(&mut || {
                std::hint::black_box(word.poll());
                Ok(())
            })?;
            Ok((write_ns, poll_ns))
        }
        Err(error) => Err(error.to_string()),
    };
    Ok(Floor { record_ns, query_ns, word_ns })
}

/// What threads cost each other: the pair beside as much work on a thread's own data, in turn.
fn control(ground: &Ground) -> Result<Control, Failure> {
    ground.runtime.memory().empty_cache()?;
    let null_ns = work::null(ops_of_a_round(|ops| Ok(work::null(ops)?))?)?;
    let pair = |threads, ops| Ok::<f64, Failure>(ground.pair(BYTES, threads, ops)?);
    let ops = (ops_of_a_round(|ops| pair(1, ops))?, ops_of_a_round(|ops| pair(THREADS_MAX, ops))?);
    let steps = steps_like(ops.0 / 8, |ops| pair(1, ops))?;
    let private = |threads, ops| Ok::<f64, Failure>(work::control(steps, threads, ops)?);
    let private_ops = ops_of_a_round(|ops| private(THREADS_MAX, ops))?;
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        figures[0].push(pair(1, ops.0)?);
        figures[1].push(private(1, ops.0)?);
        figures[2].push(pair(THREADS_MAX, ops.1)?);
        figures[3].push(private(THREADS_MAX, private_ops)?);
    }
    let [pair_one, private_one, pair_all, private_all] = figures.map(|mut figures| median(&mut figures));
    Ok(Control { null_ns, pair_ns: (pair_one, pair_all), private_ns: (private_one, private_all) })
}

/// How many steps of the control take as long as a body does on one thread. The least figures are compared: other
/// programs can only add to them.
fn steps_like(ops: usize, body: impl Fn(usize) -> Result<f64, Failure>) -> Result<usize, Failure> {
    let (ops, mut steps) = (ops.max(TRIAL_OPS), 10);
    for _ in 0..CALIBRATIONS {
        let (mut wanted, mut found) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            wanted = wanted.min(body(ops)?);
            found = found.min(work::control(steps, 1, ops)?);
        }
        steps = whole((steps as f64 * wanted / found).round()).max(1);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options = Options::parse(&["--json", "--peer", "/some/harness"]).unwrap();
        assert_eq!(options, Options { peer: Some("/some/harness".into()), figures: None, json: true });
        assert_eq!(Options::parse(&[]).unwrap(), Options::default());
    }

    #[test]
    fn what_is_no_option_is_refused_with_the_usage() {
        let cases: [&[&str]; 5] =
            [&["--loud"], &["--peer"], &["--json", "--json"], &["fast"], &["--peer", "a", "--figures", "b"]];
        for words in cases {
            assert!(Options::parse(words).unwrap_err().to_string().contains("usage: bench alloc"), "{words:?}");
        }
    }

    #[test]
    fn the_control_takes_as_long_as_it_should() {
        let steps = steps_like(TRIAL_OPS, |_| Ok(100_000.0)).unwrap();
        let shorter = steps_like(TRIAL_OPS, |_| Ok(10_000.0)).unwrap();
        // Other tests run beside; a wrong direction or a missing step would be off by more.
        assert!((4 * shorter..40 * shorter).contains(&steps), "{steps} and {shorter}");
    }

    #[test]
    fn a_round_has_as_many_operations_as_its_time_takes() {
        let asked = std::cell::RefCell::new(Vec::new());
        let ops = ops_of_a_round(|ops| {
            asked.borrow_mut().push(ops);
            Ok(50.0)
        });
        assert_eq!(ops.unwrap(), 2_000_000);
        // Until a trial takes long enough: 51200 operations of 50 ns take 2.56 ms.
        assert_eq!(asked.into_inner(), [100, 800, 6400, 51_200]);
        assert_eq!(ops_of_a_round(|_| Ok(1e12)).unwrap(), TRIAL_OPS);
        assert_eq!(ops_of_a_round(|_| Ok(0.0)).unwrap(), OPS_MAX);
    }
}
