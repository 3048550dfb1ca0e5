//! The search and the context, with candidates whose times and faults are planned.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use c10_core::{DeviceIndex, Runtime};
use testkit::{CUresult, Config, Fault, SimulatedRuntime, Simulation, simulated_runtime};

use super::context::{Context, choose};
use super::file;
use super::journal::Journal;
use super::log::Log;
use super::search::{Candidates, DEFAULT, Dropped, Found, Inputs, Timer, find_fastest};
use super::settings::{Environment, Limits, Settings};
use super::signature::{Element, Problem};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result, invalid};
use crate::base::tune_error::TuneError;
use crate::tensor::Tensor;

/// What a planned candidate does.
#[derive(Clone)]
enum Plan {
    /// Right numbers in so many milliseconds.
    Right(f64),
    /// Milliseconds of the runs one after another; the last one counts from then on.
    Changing(Vec<f64>),
    /// Wrong numbers in so many milliseconds.
    Wrong(f64),
    /// It leaves its result as it is.
    Nothing(f64),
    /// Its launch fails.
    Failing,
    /// It runs so often and then destroys the context.
    Losing(usize),
}

/// Candidates that are planned, with a clock that they set.
struct Planned {
    plans: Vec<(&'static str, Plan)>,
    /// What the last run took.
    clock: Rc<Cell<f64>>,
    runs: RefCell<Vec<usize>>,
    lost: Option<Error>,
}

/// A timer that believes the candidates.
struct PlannedTimer {
    clock: Rc<Cell<f64>>,
    /// Milliseconds of real time that each run takes.
    real: f64,
}

impl Timer for PlannedTimer {
    fn times(&mut self, count: usize, run: &mut dyn FnMut() -> Result<()>) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        for _ in 0..count {
            run()?;
            times.push(self.clock.get());
        }
        Ok(times)
    }

    fn burst(&mut self, count: usize, run: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let times = self.times(count, run)?;
        Ok(times.iter().sum::<f64>() / f64::from(u32::try_from(count).unwrap()))
    }

    fn real(&self) -> f64 {
        self.real
    }
}

const RIGHT: [f32; 3] = [1.0, -2.0, 1000.0];

impl Candidates for Planned {
    type Candidate = usize;
    type Arguments = RefCell<Tensor>;

    fn list(&self) -> Result<Vec<(String, usize)>> {
        Ok(self.plans.iter().enumerate().map(|(at, (name, _))| ((*name).to_owned(), at)).collect())
    }

    fn bytes(&self) -> u64 {
        12
    }

    fn arguments(&self, _: Inputs) -> Result<RefCell<Tensor>> {
        Ok(RefCell::new(Tensor::from_slice(&[f32::NAN; 3], &[3])?))
    }

    fn run(&self, candidate: &usize, arguments: &RefCell<Tensor>) -> Result<()> {
        let count = self.runs.borrow()[*candidate];
        self.runs.borrow_mut()[*candidate] += 1;
        let (numbers, time) = match &self.plans[*candidate].1 {
            Plan::Right(time) => (Some(RIGHT), *time),
            Plan::Changing(times) => (Some(RIGHT), times[count.min(times.len() - 1)]),
            Plan::Wrong(time) => (Some([1.0, -2.0, 999.0]), *time),
            Plan::Nothing(time) => (None, *time),
            Plan::Failing => return Err(invalid("no such kernel")),
            Plan::Losing(runs) if count >= *runs => return Err(self.lost.clone().expect("the test made one")),
            Plan::Losing(_) => (Some(RIGHT), 0.1),
        };
        self.clock.set(time);
        if let Some(numbers) = numbers {
            arguments.replace(Tensor::from_slice(&numbers, &[3])?);
        }
        Ok(())
    }

    fn result(&self, arguments: &RefCell<Tensor>) -> Result<Tensor> {
        Ok(arguments.borrow().clone())
    }
}

fn planned(plans: &[(&'static str, Plan)]) -> Planned {
    let runs = RefCell::new(vec![0; plans.len()]);
    Planned { plans: plans.to_vec(), clock: Rc::default(), runs, lost: None }
}

const PROBLEM: Problem = Problem::gemm(Element::Float, [false, false], [64, 48, 32], [64, 32, 64]);

const LIMITS: Limits =
    Limits { duration: 30, iterations: 100, warmup_duration: 0, warmup_iterations: 0, rotating: 0, check: None };

/// A folder of its own, which is empty.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tune-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn search(candidates: &Planned, limits: &Limits, name: &str) -> Result<Found<usize>> {
    search_in_real_time(candidates, limits, name, 0.0)
}

/// Runs a search in which each run takes `real` milliseconds of real time.
fn search_in_real_time(candidates: &Planned, limits: &Limits, name: &str, real: f64) -> Result<Found<usize>> {
    let mut journal = Journal::open(folder(name).join("results0.trying.csv")).unwrap();
    let mut timer = PlannedTimer { clock: Rc::clone(&candidates.clock), real };
    find_fastest(&PROBLEM, candidates, limits, &mut timer, &mut journal, &Log::default())
}

#[test]
fn the_fastest_right_candidate_wins() {
    let candidates = planned(&[
        (DEFAULT, Plan::Right(1.0)),
        ("Slow", Plan::Right(2.0)),
        ("Failing", Plan::Failing),
        ("Fast", Plan::Right(0.5)),
        ("Wrong", Plan::Wrong(0.1)),
        ("Nothing", Plan::Nothing(0.1)),
        ("Faster", Plan::Right(0.375)),
        ("Near", Plan::Right(0.406_25)),
    ]);
    let found = search(&candidates, &LIMITS, "wins").unwrap();
    assert_eq!((found.name.as_str(), found.candidate), ("Faster", 6));
    assert_eq!((found.time, found.default_time), (0.375, 1.0));
    let mut dropped = found.dropped;
    dropped.sort_by(|a, b| a.0.cmp(&b.0));
    let wanted = [
        ("Default", Dropped::Slow),
        ("Failing", Dropped::Failed("no such kernel".into())),
        ("Fast", Dropped::Slow),
        ("Near", Dropped::Slow),
        ("Nothing", Dropped::Wrong),
        ("Slow", Dropped::Slow),
        ("Wrong", Dropped::Wrong),
    ];
    assert_eq!(dropped, wanted.map(|(name, reason)| (name.to_owned(), reason)));
    // Two untimed runs and three timed ones were enough to give up the slow one.
    assert_eq!(candidates.runs.borrow()[1], 5);
    // Near ran ten times more, was compared, and was then timed for 30 ms, as were the best once more, in four parts.
    assert_eq!(candidates.runs.borrow()[7], 5 + 12 + 1 + 2 + 73 + 4 * (2 + 20));
}

#[test]
fn a_winner_by_chance_is_found_out() {
    // The default was slow while the GPU was cold: 1 run for the comparison, 2 + 3 estimated and 2 + 10 timed ones.
    let cold = vec![3.0; 1 + 5 + 12];
    let default = Plan::Changing(cold.into_iter().chain([1.0]).collect());
    let candidates = planned(&[(DEFAULT, default), ("Lucky", Plan::Right(1.5))]);
    let found = search(&candidates, &LIMITS, "chance").unwrap();
    assert_eq!((found.name.as_str(), found.time, found.default_time), (DEFAULT, 1.0, 1.0));
    assert_eq!(found.dropped, [("Lucky".to_owned(), Dropped::Slow)]);
}

#[test]
fn the_second_best_may_win_in_bursts() {
    // 2 + 3, 2 + 10, 1 compared, 2 + 36 timed runs; then the bursts, in which it is slower.
    let slows_down = Plan::Changing([0.8125; 5 + 12 + 1 + 2 + 36].into_iter().chain([0.9375]).collect());
    let candidates = planned(&[(DEFAULT, Plan::Right(1.0)), ("First", slows_down), ("Second", Plan::Right(0.875))]);
    let found = search(&candidates, &LIMITS, "second").unwrap();
    assert_eq!((found.name.as_str(), found.time), ("Second", 0.875));
    // A gain that may be chance is none.
    let candidates = planned(&[(DEFAULT, Plan::Right(1.0)), ("Equal", Plan::Right(0.998))]);
    assert_eq!(search(&candidates, &LIMITS, "equal").unwrap().name, DEFAULT);
}

#[test]
fn runs_within_the_limits() {
    let runs = |time: f64, limits: Limits| {
        let candidates = planned(&[(DEFAULT, Plan::Right(time))]);
        search(&candidates, &limits, &format!("limits-{time}-{limits:?}").replace([' ', '{', '}', ':', '/'], ""))
            .unwrap();
        // Without the comparison and the estimate.
        let count = candidates.runs.borrow()[0] - 1 - 5;
        count - 2
    };
    let limits = |duration, iterations| Limits { duration, iterations, ..LIMITS };
    assert_eq!(runs(1.0, limits(30, 100)), 30);
    assert_eq!(runs(0.125, limits(30, 100)), 100);
    assert_eq!(runs(0.125, limits(30, 0)), 240);
    assert_eq!(runs(1.0, limits(0, 7)), 7);
    assert_eq!(runs(1.0, limits(0, 0)), 100);
    assert_eq!(runs(50.0, limits(30, 100)), 1);
    assert_eq!(runs(1.0, Limits { warmup_duration: 4, warmup_iterations: 9, ..limits(0, 7) }), 7 + 4);
    assert_eq!(runs(1.0, Limits { warmup_iterations: 9, ..limits(0, 7) }), 7 + 9);
}

/// Runs on a simulated device take almost no device time and much real time.
#[test]
fn limits_count_real_time_too() {
    let runs = |real: f64| {
        let plans = [(DEFAULT, Plan::Right(0.001)), ("Other", Plan::Right(0.000_9))];
        let candidates = planned(&plans);
        let found = search_in_real_time(&candidates, &LIMITS, &format!("real-{real}"), real).unwrap();
        assert_eq!(found.name, "Other", "{real}");
        candidates.runs.borrow().clone()
    };
    // The comparison, 2 + 3 estimated and 2 + 100 timed runs; the other has 2 + 10 more. Then 4 bursts of 2 + 25 runs.
    assert_eq!(runs(0.0), [1 + 5 + 102 + 4 * 27, 1 + 5 + 12 + 102 + 4 * 27]);
    // In 30 ms there is room for 6 runs of 5 ms each.
    assert_eq!(runs(5.0), [1 + 5 + 8 + 4 * 4, 1 + 5 + 8 + 8 + 4 * 4]);
    assert_eq!(runs(1000.0), [1 + 5 + 3 + 4 * 3, 1 + 5 + 3 + 3 + 4 * 3]);
}

#[test]
fn the_users_tolerances() {
    let plans = [(DEFAULT, Plan::Right(1.0)), ("Wrong", Plan::Wrong(0.1))];
    let check = |absolute, relative| {
        let mut settings = Settings::new(Environment::default());
        settings.set_check(true, absolute, relative).unwrap();
        Limits { check: settings.check().unwrap(), ..LIMITS }
    };
    // However far the user lets results differ, our own comparison is made.
    assert_eq!(search(&planned(&plans), &check(1e6, 1.0), "loose").unwrap().name, DEFAULT);
    let right = [(DEFAULT, Plan::Right(1.0)), ("Right", Plan::Right(0.1))];
    assert_eq!(search(&planned(&right), &check(1e-30, 1e-30), "tight").unwrap().name, "Right");
}

#[test]
fn copies_fill_the_rotating_buffer() {
    struct Counting(Planned, Cell<usize>);
    impl Candidates for Counting {
        type Candidate = usize;
        type Arguments = RefCell<Tensor>;
        fn list(&self) -> Result<Vec<(String, usize)>> {
            self.0.list()
        }
        fn bytes(&self) -> u64 {
            1 << 20
        }
        fn arguments(&self, inputs: Inputs) -> Result<RefCell<Tensor>> {
            self.1.set(self.1.get() + usize::from(inputs == Inputs::Copied));
            self.0.arguments(inputs)
        }
        fn run(&self, candidate: &usize, arguments: &RefCell<Tensor>) -> Result<()> {
            self.0.run(candidate, arguments)
        }
        fn result(&self, arguments: &RefCell<Tensor>) -> Result<Tensor> {
            self.0.result(arguments)
        }
    }
    for (mebibytes, wanted) in [(0, 0), (3, 4), (4096, 128)] {
        let candidates = Counting(planned(&[(DEFAULT, Plan::Right(1.0))]), Cell::new(0));
        let limits = Limits { rotating: mebibytes << 20, ..LIMITS };
        let mut journal = Journal::open(folder("copies").join("results0.trying.csv")).unwrap();
        let mut timer = PlannedTimer { clock: Rc::clone(&candidates.0.clock), real: 0.0 };
        find_fastest(&PROBLEM, &candidates, &limits, &mut timer, &mut journal, &Log::default()).unwrap();
        assert_eq!(candidates.1.get(), wanted, "{mebibytes} MiB");
    }
}

/// An error after which the context is lost.
fn lost_context(simulated: &SimulatedRuntime) -> Error {
    let stream = simulated.runtime().streams().default(0).unwrap();
    let fault = Fault { call: "cuStreamSynchronize", occurrence: 1, code: CUresult::CUDA_ERROR_ILLEGAL_ADDRESS };
    simulated.machine().inject(fault);
    let error = Error::from(stream.synchronize().unwrap_err());
    assert!(error.runtime().is_some_and(c10_core::Error::context_is_lost));
    error
}

#[test]
fn a_candidate_that_loses_the_context_is_named_and_then_left_out() {
    let simulated = simulated_runtime();
    let path = folder("lost").join("results0.trying.csv");
    // At the first run, while it is timed, and in the comparison with the default at the end.
    for runs in [0, 4, 100] {
        let _ = std::fs::remove_file(&path);
        let mut candidates =
            planned(&[(DEFAULT, Plan::Right(1.0)), ("Bad", Plan::Losing(runs)), ("Good", Plan::Right(0.5))]);
        candidates.lost = Some(lost_context(&simulated));
        let find = |candidates: &Planned| {
            let mut journal = Journal::open(path.clone()).unwrap();
            let mut timer = PlannedTimer { clock: Rc::clone(&candidates.clock), real: 0.0 };
            find_fastest(&PROBLEM, candidates, &LIMITS, &mut timer, &mut journal, &Log::default())
        };
        let error = find(&candidates).unwrap_err();
        let Error::Tune(error) = error else { panic!("{runs}: {error}") };
        let TuneError::ContextLost { candidate, op, .. } = *error else { panic!("{runs}: {error}") };
        assert_eq!((candidate.as_str(), op.as_str()), ("Bad", "GemmTunableOp_float_NN"));
        candidates.runs.borrow_mut().fill(0);
        let found = find(&candidates).unwrap();
        assert_eq!((found.name.as_str(), candidates.runs.borrow()[1]), ("Good", 0), "{runs}");
        assert!(found.dropped.contains(&("Bad".to_owned(), Dropped::Lost)));
    }
}

#[test]
fn errors_of_the_default_are_those_of_the_search() {
    let failing = planned(&[(DEFAULT, Plan::Failing), ("Good", Plan::Right(0.5))]);
    assert!(search(&failing, &LIMITS, "default-fails").unwrap_err().to_string().contains("no such kernel"));
    let none = search(&planned(&[]), &LIMITS, "no-default").unwrap_err();
    assert!(matches!(none, Error::Tune(error) if matches!(*error, TuneError::UnknownSolution { .. })));
}

/// Candidates on a device, whose times are those of the simulated machine.
struct OnDevice {
    device: DeviceIndex,
    /// Names and clock cycles.
    plans: Vec<(&'static str, i64)>,
    searches: Arc<AtomicUsize>,
}

impl Candidates for OnDevice {
    type Candidate = i64;
    type Arguments = Tensor;

    fn list(&self) -> Result<Vec<(String, i64)>> {
        self.searches.fetch_add(1, Ordering::Relaxed);
        Ok(self.plans.iter().map(|(name, cycles)| ((*name).to_owned(), *cycles)).collect())
    }

    fn bytes(&self) -> u64 {
        1 << 18
    }

    fn arguments(&self, _: Inputs) -> Result<Tensor> {
        Tensor::full(&[4], f64::NAN, DType::F32, c10_core::Device::cuda(self.device))
    }

    fn run(&self, cycles: &i64, result: &Tensor) -> Result<()> {
        // A product that a candidate computes on its way is not tuned.
        assert!(choose(&PROBLEM, self.device, || -> Result<Self> { panic!("it is tuned") })?.is_none());
        Runtime::current().streams().current(self.device)?.sleep(*cycles)?;
        result.fill_(2.0).map(drop)
    }

    fn result(&self, result: &Tensor) -> Result<Tensor> {
        Ok(result.clone())
    }
}

const PLANS: [(&str, i64); 3] = [(DEFAULT, 3_000_000), ("Quick", 1_000_000), ("Slow", 9_000_000)];

/// A runtime whose tuner is on, with files in a folder of its own.
struct Rig {
    simulation: Simulation,
    context: Arc<Context>,
    searches: Arc<AtomicUsize>,
    folder: PathBuf,
}

impl Rig {
    fn new(name: &str) -> Self {
        Self::in_folder(folder(name), Config::default().devices(2))
    }

    fn in_folder(folder: PathBuf, config: Config) -> Self {
        let simulation = Simulation::new(config);
        let context = Context::of(simulation.runtime());
        context.enable(true);
        context.settings(|settings| {
            settings.set_filename(&folder.join("results.csv").to_string_lossy(), true);
            settings.set_rotating(1);
            settings.set_iterations(4);
        });
        Self { simulation, context, searches: Arc::default(), folder }
    }

    fn choose(&self, problem: &Problem, device: DeviceIndex) -> Result<Option<i64>> {
        let _here = self.simulation.enter();
        let candidates = || Ok(OnDevice { device, plans: PLANS.to_vec(), searches: Arc::clone(&self.searches) });
        Ok(choose(problem, device, candidates)?.map(|cycles| *cycles))
    }

    fn searches(&self) -> usize {
        self.searches.load(Ordering::Relaxed)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }
}

#[test]
fn a_product_is_tuned_once_and_kept() {
    let rig = Rig::new("kept");
    assert_eq!(rig.choose(&PROBLEM, 0).unwrap(), Some(1_000_000));
    assert_eq!((rig.choose(&PROBLEM, 0).unwrap(), rig.searches()), (Some(1_000_000), 1));
    let torch = rig.read("results0.csv");
    let lines: Vec<&str> = torch.lines().collect();
    assert_eq!(lines[0], "Validator,PT_VERSION,2.11.0");
    assert!(lines[1].starts_with("GemmTunableOp_float_NN,nn_64_48_32_ld_64_32_64,Default,"), "{torch}");
    let own = rig.read("results0.solutions.csv");
    assert!(own.contains("\nGemmTunableOp_float_NN,nn_64_48_32_ld_64_32_64,Quick,"), "{own}");
    assert!(own.contains("\nValidator,KERNELS,") && own.contains("\nValidator,DRIVER_VERSION,"), "{own}");
    assert!(!rig.folder.join("results0.trying.csv").exists());
    // A variant is another product to us and the same one to torch.
    let variant = Problem { variant: 3, ..PROBLEM };
    assert_eq!((rig.choose(&variant, 0).unwrap(), rig.searches()), (Some(1_000_000), 2));
    assert_eq!(rig.read("results0.csv"), torch);
    assert!(rig.read("results0.solutions.csv").contains(",nn_64_48_32_ld_64_32_64_v_3,Quick,"));
    // Another device has results of its own.
    assert_eq!((rig.choose(&PROBLEM, 1).unwrap(), rig.searches()), (Some(1_000_000), 3));
    assert!(rig.read("results1.csv").contains("Default"));
    // Another run finds all of it: the candidate is looked up by its name.
    let next = Rig::in_folder(rig.folder.clone(), Config::default());
    next.context.settings(|settings| settings.enable_tuning(false));
    assert_eq!(next.choose(&PROBLEM, 0).unwrap(), Some(1_000_000));
    assert_eq!(next.choose(&variant, 0).unwrap(), Some(1_000_000));
    assert_eq!(next.read("results0.csv"), torch);
}

#[test]
fn switches_decide() {
    let rig = Rig::new("switches");
    let untuned = rig.folder.join("untuned.csv");
    let _here = rig.simulation.enter();
    rig.context.enable(false);
    assert_eq!((rig.choose(&PROBLEM, 0).unwrap(), rig.searches()), (None, 0));
    rig.context.enable(true);
    rig.context.settings(|settings| settings.enable_tuning(false));
    assert_eq!((rig.choose(&PROBLEM, 0).unwrap(), rig.searches()), (None, 0));
    assert!(!rig.folder.join("results0.csv").exists() && !untuned.exists());
    rig.context.settings(|settings| settings.enable_tuning(true));
    assert_eq!((rig.choose(&PROBLEM, 0).unwrap(), rig.searches()), (Some(1_000_000), 1));
}

#[test]
fn files_of_torch_and_of_others() {
    let rig = Rig::new("foreign");
    let row = "GemmTunableOp_float_NN,nn_64_48_32_ld_64_32_64";
    let other = Problem { sizes: [1, 2, 3], leading: [1, 3, 1], ..PROBLEM };
    let text =
        format!("Validator,PT_VERSION,2.11.0\n{row},Default,0.01\nGemmTunableOp_float_NN,nn_1_2_3_ld_1_3_1,Magic,1\n");
    std::fs::write(rig.folder.join("results0.csv"), &text).unwrap();
    let solutions = "Validator,PT_VERSION,2.11.0\nValidator,DRIVER_VERSION,1\n";
    std::fs::write(rig.folder.join("results0.solutions.csv"), format!("{solutions}{row},Quick,0.01\n")).unwrap();
    rig.context.settings(|settings| settings.enable_tuning(false));
    assert_eq!((rig.choose(&PROBLEM, 0).unwrap(), rig.searches()), (None, 0), "torch's default stands");
    let error = rig.choose(&other, 0).unwrap_err();
    assert!(
        error.to_string().starts_with("Magic is no solution of GemmTunableOp_float_NN(nn_1_2_3_ld_1_3_1)"),
        "{error}"
    );
    // What torch alone has said is tuned, and the solutions of another driver are put aside.
    rig.context.settings(|settings| settings.enable_tuning(true));
    assert_eq!(rig.choose(&PROBLEM, 0).unwrap(), Some(1_000_000));
    assert_eq!(rig.read("results0.csv"), text);
    assert!(rig.read("results0.solutions.csv.old").starts_with(solutions));
    assert!(rig.read("results0.solutions.csv").contains(",Quick,"));
}

#[test]
fn a_name_in_our_file_that_is_gone() {
    let rig = Rig::new("gone");
    assert_eq!(rig.choose(&PROBLEM, 0).unwrap(), Some(1_000_000));
    let own = rig.read("results0.solutions.csv").replace("Quick", "Gone");
    let next = Rig::in_folder(rig.folder.clone(), Config::default());
    std::fs::write(next.folder.join("results0.solutions.csv"), &own).unwrap();
    assert_eq!(next.choose(&PROBLEM, 0).unwrap(), None, "the default, with a warning");
    assert_eq!(next.choose(&PROBLEM, 0).unwrap(), Some(1_000_000), "and then it is tuned");
    // A name that is cut short is not taken for another one.
    let cut = Rig::in_folder(rig.folder.clone(), Config::default());
    std::fs::write(cut.folder.join("results0.solutions.csv"), own.trim_end().rsplit_once(',').unwrap().0).unwrap();
    assert_eq!(cut.choose(&PROBLEM, 0).unwrap(), Some(1_000_000));
}

#[test]
fn threads_that_tune_one_product() {
    let rig = Rig::new("threads");
    let chosen: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| rig.choose(&PROBLEM, 0).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((chosen, rig.searches()), (vec![Some(1_000_000); 4], 1));
}

#[test]
fn nothing_is_tuned_in_a_capture() {
    let rig = Rig::new("capture");
    let _here = rig.simulation.enter();
    let stream = c10_core::Stream::new(None, 0).unwrap();
    let mut graph = c10_core::CUDAGraph::new();
    let captured = graph.capture(&stream, None, c10_core::CaptureMode::Global, || rig.choose(&PROBLEM, 0));
    let error = captured.unwrap_err();
    assert!(matches!(&error, Error::Tune(error) if matches!(**error, TuneError::Capturing { .. })), "{error}");
    assert_eq!(rig.searches(), 0);
    // Afterwards it can be, and a later capture uses the result.
    assert_eq!(rig.choose(&PROBLEM, 0).unwrap(), Some(1_000_000));
}

#[test]
fn a_folder_that_cannot_be_written() {
    let rig = Rig::new("no-folder");
    std::fs::remove_dir_all(&rig.folder).unwrap();
    assert_eq!(rig.choose(&PROBLEM, 0).unwrap(), Some(1_000_000), "the result stays in this process");
    assert_eq!((rig.choose(&PROBLEM, 0).unwrap(), rig.searches()), (Some(1_000_000), 1));
}

/// The files that PyTorch 2.11 wrote on an H200.
#[test]
fn files_that_torch_wrote() {
    let results = file::parse(include_bytes!("../../../tests/data/tunable/torch-2.11-results.csv")).unwrap();
    assert_eq!(file::check(&results.validators, &file::torch_validators()), Ok(()));
    assert_eq!((results.rows.len(), results.short_lines.len()), (69, 0));
    let mut kinds = std::collections::HashSet::new();
    for row in &results.rows {
        let problem = Problem::parse(&row.op, &row.params).unwrap();
        assert_eq!((problem.op(), problem.params()), (row.op.clone(), row.params.clone()));
        assert_eq!(row.solution, DEFAULT);
        kinds.insert((problem.kind, problem.elements));
    }
    assert!(kinds.len() > 15, "{kinds:?}");
    let written: String = results.rows.iter().map(|row| format!("{row}\n")).collect();
    let torch = include_str!("../../../tests/data/tunable/torch-2.11-results.csv");
    assert_eq!(format!("Validator,PT_VERSION,2.11.0\n{written}"), torch, "we write what torch writes");
}
