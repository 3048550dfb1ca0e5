//! What a runtime keeps for tuning, and the look-up that every product makes.
//!
//! Torch has one table of results and one file for a process; here each device has its own table and, where the name of the
//! file has an ordinal, its own file. The file is read when results of the device are first asked for.
//!
//! Beside torch's file, which has what torch accepts, lies one with our own solutions (`….solutions.csv`). Its validators
//! are the driver, the libraries, the device and the kernels, so that it is given up when one of them changes. Torch's file
//! alone says of a product that the default is used, which is no reason not to tune it here.
//!
//! **Invariants:** `ENABLED` counts the contexts whose tuner is on, and one more as long as the environment was not asked.
//! One search runs on a device at a time, and none twice: threads that ask for the same product wait for it. A search holds
//! no lock that a look-up needs. Products that candidates compute on their way are not tuned.

use std::cell::Cell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, OnceLock, PoisonError, RwLock};

use c10_core::{DeviceIndex, Runtime};

use super::file::{self, General, Row, Validators};
use super::journal::Journal;
use super::locked;
use super::log::{Log, warn};
use super::search::{Candidates, EventTimer, Found, Timer, find_fastest};
use super::settings::{Environment, Limits, Settings};
use super::signature::Problem;
use super::table::{Entry, Origin, Resolved, Table};
use crate::base::error::{Result, invalid};
use crate::base::tune_error::TuneError;

/// How many contexts have the tuner on, plus [`UNASKED`] until the environment was asked.
static ENABLED: AtomicU32 = AtomicU32::new(UNASKED);

/// A bit that no count reaches.
const UNASKED: u32 = 1 << 31;

/// The environment of the process, as it was when it was first needed.
static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();

thread_local! {
    /// Whether the thread searches, so that products of candidates go their usual way.
    static SEARCHING: Cell<bool> = const { Cell::new(false) };
}

/// The most devices that a process can have: torch counts them with eight bits.
const DEVICES: usize = 128;

/// Whether the tuner may be on for the current runtime. While it is on for none this is one atomic load.
#[inline]
pub(crate) fn may_be_enabled() -> bool {
    let count = ENABLED.load(Ordering::Relaxed);
    count != 0 && (count & UNASKED == 0 || is_enabled_by_environment())
}

/// Asks the environment, the first time.
#[cold]
fn is_enabled_by_environment() -> bool {
    // What it switches on stays on, whatever the contexts do.
    let count = u32::from(ENVIRONMENT.get_or_init(Environment::of_process).enables());
    let ask = |old: u32| (old & UNASKED != 0).then_some((old & !UNASKED) + count);
    let _ = ENABLED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, ask);
    ENABLED.load(Ordering::Relaxed) != 0
}

/// What the product does: the candidate that is known or found to be the fastest, or the default for `None`.
///
/// Tunes the product if it has no result, tuning is on and the tuner is.
///
/// # Errors
/// A file names a solution that there is not; the product cannot be tuned in a capture; or as for a search.
pub(crate) fn choose<C: Candidates>(
    problem: &Problem,
    device: DeviceIndex,
    candidates: impl FnOnce() -> Result<C>,
) -> Result<Option<Arc<C::Candidate>>> {
    if SEARCHING.get() {
        return Ok(None);
    }
    let runtime = Runtime::current();
    let context = Context::of(&runtime);
    if !context.is_enabled() {
        return Ok(None);
    }
    context.choose(problem, &runtime, device, candidates)
}

/// What a search for offline tuning gained.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gain {
    pub(super) solution: String,
    /// Milliseconds.
    pub(super) time: f64,
    /// Milliseconds.
    pub(super) default_time: f64,
}

/// What a runtime keeps for tuning.
#[derive(Debug)]
pub(super) struct Context {
    settings: Mutex<Settings>,
    enabled: AtomicBool,
    log: OnceLock<Log>,
    devices: Box<[OnceLock<DeviceResults>]>,
}

impl Default for Context {
    fn default() -> Self {
        Self::new(ENVIRONMENT.get_or_init(Environment::of_process).clone())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if *self.enabled.get_mut() {
            ENABLED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Context {
    /// A context under an environment.
    fn new(environment: Environment) -> Self {
        let devices = (0..DEVICES).map(|_| OnceLock::new()).collect();
        let settings = Settings::new(environment);
        let is_enabled = settings.is_enabled();
        ENABLED.fetch_add(u32::from(is_enabled), Ordering::Relaxed);
        let enabled = AtomicBool::new(is_enabled);
        Self { settings: Mutex::new(settings), enabled, log: OnceLock::new(), devices }
    }

    /// That of a runtime.
    pub(super) fn of(runtime: &Runtime) -> Arc<Self> {
        runtime.extension()
    }

    /// Looks at the settings or changes them.
    pub(super) fn settings<R>(&self, look: impl FnOnce(&mut Settings) -> R) -> R {
        look(&mut locked(&self.settings))
    }

    pub(super) fn enable(&self, on: bool) {
        self.log().say(1, format_args!("{} TunableOp", if on { "Enable" } else { "Disable" }));
        // Both change under one lock, so that threads that switch at the same time leave the count right.
        self.settings(|settings| {
            settings.enable(on);
            let now = settings.is_enabled();
            if self.enabled.swap(now, Ordering::Relaxed) != now {
                let _ =
                    if now { ENABLED.fetch_add(1, Ordering::Relaxed) } else { ENABLED.fetch_sub(1, Ordering::Relaxed) };
            }
        });
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// What is told; a level that cannot be read tells nothing.
    pub(super) fn log(&self) -> &Log {
        self.log.get_or_init(|| {
            self.settings(|settings| {
                let environment = settings.environment();
                let level = environment.verbose().unwrap_or_else(|error| {
                    warn(format_args!("{error}"));
                    0
                });
                Log::new(level, environment.verbose_filename())
            })
        })
    }

    /// The results of a device, with what its files say.
    ///
    /// # Errors
    /// There is no such device.
    pub(super) fn results(&self, runtime: &Runtime, device: DeviceIndex) -> Result<&DeviceResults> {
        let results = self.unread(runtime, device)?;
        results.read.call_once(|| {
            self.settings(Settings::settle_filename);
            if !self.settings(|settings| settings.is_recording()) {
                results.read_files(Path::new(&self.filename(device)), self.log());
            }
        });
        Ok(results)
    }

    /// The results of a device, whether or not its files were read.
    fn unread(&self, runtime: &Runtime, device: DeviceIndex) -> Result<&DeviceResults> {
        let Some(slot) = self.devices.get(place(device)) else {
            // A device that there is not has an error of its own.
            runtime.devices().properties(device)?;
            return Err(invalid(format!("results are kept for {DEVICES} devices")));
        };
        if let Some(known) = slot.get() {
            return Ok(known);
        }
        let validators = own_validators(runtime, device)?;
        Ok(slot.get_or_init(|| DeviceResults::new(validators)))
    }

    /// Takes the results of a file, before those of the device's own files where nobody asked for any yet.
    ///
    /// # Errors
    /// The file is not there, cannot be read or is refused.
    pub(super) fn load(&self, runtime: &Runtime, device: DeviceIndex, path: &Path) -> Result<()> {
        Ok(self.unread(runtime, device)?.read_file(path, self.log())?)
    }

    /// Torch's file of a device, where it is known by now.
    pub(super) fn filename(&self, device: DeviceIndex) -> String {
        self.settings(|settings| settings.filename(place(device)))
    }

    fn choose<C: Candidates>(
        &self,
        problem: &Problem,
        runtime: &Runtime,
        device: DeviceIndex,
        candidates: impl FnOnce() -> Result<C>,
    ) -> Result<Option<Arc<C::Candidate>>> {
        let results = self.results(runtime, device)?;
        let found = results.get(problem);
        let tunes = || self.settings(|settings| settings.is_tuning());
        match found {
            Some(entry) if entry.resolved.get().is_some() => Ok(resolved(&entry)),
            Some(entry) if entry.is_default() && !(entry.is_untuned() && tunes()) => Ok(None),
            Some(entry) if !entry.is_untuned() => self.resolve(problem, results, &entry, candidates),
            _ if tunes() => {
                let searched =
                    self.search(problem, runtime, device, candidates, &mut |limits| timer(runtime, device, limits));
                searched.map(|entry| resolved(&entry))
            }
            _ => {
                if self.settings(|settings| settings.is_recording()) {
                    self.record(problem, results, device);
                }
                self.log().say(2, format_args!("no result, using default"));
                Ok(None)
            }
        }
    }

    /// The candidate of a name in a file.
    fn resolve<C: Candidates>(
        &self,
        problem: &Problem,
        results: &DeviceResults,
        entry: &Arc<Entry>,
        candidates: impl FnOnce() -> Result<C>,
    ) -> Result<Option<Arc<C::Candidate>>> {
        if let Some(candidate) = candidates()?.find(&entry.solution)? {
            let candidate = Arc::new(candidate);
            let kept: Resolved = candidate.clone();
            let _ = entry.resolved.set(kept);
            return Ok(Some(candidate));
        }
        let (op, params, solution) = (problem.op(), problem.own_params(), entry.solution.clone());
        if entry.origin == Origin::Torch {
            return Err(TuneError::UnknownSolution { solution, op, params }.into());
        }
        // Our own file outlived what it was made with: the product is as good as untuned.
        warn(format_args!("{solution} is no solution of {op}({params}) any more; the default is used"));
        results.forget(problem);
        Ok(None)
    }

    /// Tunes a product, or waits for the thread that does.
    pub(super) fn search<C: Candidates>(
        &self,
        problem: &Problem,
        runtime: &Runtime,
        device: DeviceIndex,
        candidates: impl FnOnce() -> Result<C>,
        timer: &mut dyn FnMut(&Limits) -> Result<Box<dyn Timer>>,
    ) -> Result<Arc<Entry>> {
        let results = self.results(runtime, device)?;
        if runtime.streams().current(device)?.is_capturing()? {
            return Err(TuneError::Capturing { op: problem.op(), params: problem.own_params() }.into());
        }
        let Some(_claim) = results.claim(problem) else {
            // The other thread has it by now.
            return Ok(results.get(problem).unwrap_or_else(|| Arc::new(default_entry())));
        };
        let _alone = locked(&results.alone);
        let _searching = Searching::begin();
        let cache = u64::try_from(runtime.devices().properties(device)?.L2_cache_size).unwrap_or(0);
        let limits = self.settings(|settings| settings.limits(cache))?;
        let mut journal = locked(results.journal(&self.filename(device)));
        let candidates = candidates()?;
        let found = find_fastest(problem, &candidates, &limits, &mut *timer(&limits)?, &mut journal, self.log())?;
        if let Err(error) = journal.tidy() {
            warn(format_args!("{error}"));
        }
        drop(journal);
        Ok(self.keep(problem, results, device, found))
    }

    /// Puts a result into the table and the files.
    fn keep<T: Send + Sync + 'static>(
        &self,
        problem: &Problem,
        results: &DeviceResults,
        device: DeviceIndex,
        found: Found<T>,
    ) -> Arc<Entry> {
        let entry =
            Entry { default_time: found.default_time, ..Entry::new(found.name.clone(), found.time, Origin::Own) };
        if !entry.is_default() {
            let _ = entry.resolved.set(Arc::new(found.candidate));
        }
        let (op, params) = (problem.op(), problem.own_params());
        let time = General(found.time);
        let (name, dropped) = (&found.name, found.dropped.len());
        self.log().say(2, format_args!("{op}({params}) -> {name},{time}, the best of {}", dropped + 1));
        let entry = results.set(*problem, entry);
        if !self.settings(|settings| settings.is_recording()) {
            let path = PathBuf::from(self.filename(device));
            let torch = problem.kind.is_torchs().then(|| Row {
                op: problem.op(),
                params: problem.params(),
                solution: "Default".to_owned(),
                time: found.default_time,
            });
            let own = Row { op, params, solution: found.name, time: found.time };
            results.append(&path, torch, &own, self.log());
        }
        entry
    }

    /// Writes an untuned product down, once, if torch has a name for it.
    fn record(&self, problem: &Problem, results: &DeviceResults, device: DeviceIndex) {
        if !problem.kind.is_torchs() {
            return;
        }
        let (op, params) = (problem.op(), problem.params());
        if !locked(&results.untuned).insert((op.clone(), params.clone())) {
            return;
        }
        let (name, has_blas) =
            self.settings(|settings| (settings.untuned_filename(place(device)), settings.has_blas_log()));
        let blas = if has_blas { format!(",BLAS_PARAMS: {}", blas_parameters(problem)) } else { String::new() };
        let line = format!("{op},{params}{blas}");
        match file::append(Path::new(&name), &Vec::new(), &line) {
            Ok(()) => self.log().say(3, format_args!("Untuned,{line}")),
            Err(error) => warn(format_args!("{error}; the untuned product is not saved")),
        }
    }

    /// Tunes a product again, whatever is known of it, for offline tuning.
    ///
    /// # Errors
    /// As for a search.
    pub(super) fn tune<C: Candidates>(
        &self,
        problem: &Problem,
        runtime: &Runtime,
        device: DeviceIndex,
        candidates: impl FnOnce() -> Result<C>,
    ) -> Result<Option<Gain>> {
        let known = self.results(runtime, device)?.get(problem);
        if known.is_some_and(|entry| !entry.is_untuned()) {
            return Ok(None);
        }
        let entry = self.search(problem, runtime, device, candidates, &mut |limits| timer(runtime, device, limits))?;
        Ok(Some(Gain { solution: entry.solution.clone(), time: entry.time, default_time: entry.default_time }))
    }
}

/// The place of a device in the list.
fn place(device: DeviceIndex) -> usize {
    usize::try_from(device).unwrap_or(DEVICES)
}

/// The candidate of an entry, where it is of this type.
fn resolved<T: Send + Sync + 'static>(entry: &Entry) -> Option<Arc<T>> {
    Arc::clone(entry.resolved.get()?).downcast().ok()
}

fn default_entry() -> Entry {
    Entry::new("Default".to_owned(), 0.0, Origin::Torch)
}

/// A timer on the current stream of a device.
fn timer(runtime: &Runtime, device: DeviceIndex, limits: &Limits) -> Result<Box<dyn Timer>> {
    let clock = runtime.devices().properties(device)?.clock_rate;
    Ok(Box::new(EventTimer::new(runtime.streams().current(device)?, clock, limits.rotating)))
}

/// The validators of our own solutions on a device.
fn own_validators(runtime: &Runtime, device: DeviceIndex) -> Result<Validators> {
    let mut validators = file::torch_validators();
    let (driver, _) = runtime.driver_version()?;
    validators.push(("DRIVER_VERSION".to_owned(), driver.to_string()));
    validators.push(("DEVICE".to_owned(), file::plain(&runtime.devices().name(device)?)));
    validators.extend(crate::blas::versions(runtime));
    Ok(validators)
}

/// The parameters of the BLAS call as torch writes them for its own tools.
fn blas_parameters(problem: &Problem) -> String {
    let Problem { sizes: [m, n, k], leading: [lda, ldb, ldc], batches, transposed, .. } = problem;
    let [a, b] = transposed.map(|is| if is { 'T' } else { 'N' });
    let name = problem.elements[0].name();
    format!(
        "- {{ function: matmul, M: {m}, N: {n}, K: {k}, lda: {lda}, ldb: {ldb}, ldc: {ldc}, transA: {a}, transB: {b}, \
         batch_count: {batches}, type: {name} }}"
    )
}

/// Marks the thread as one that searches.
struct Searching(bool);

impl Searching {
    fn begin() -> Self {
        Self(SEARCHING.replace(true))
    }
}

impl Drop for Searching {
    fn drop(&mut self) {
        SEARCHING.set(self.0);
    }
}

/// What is kept for one device.
#[derive(Debug)]
pub(super) struct DeviceResults {
    /// Whether the device's own files were read.
    read: Once,
    table: RwLock<Table>,
    validators: Validators,
    /// Opened by the first search.
    journal: OnceLock<Mutex<Journal>>,
    /// Held while a search runs: two at once would disturb each other's times.
    alone: Mutex<()>,
    /// Products that threads tune now.
    claimed: Mutex<HashSet<Problem>>,
    /// Told when one of them is done.
    done: Condvar,
    untuned: Mutex<HashSet<(String, String)>>,
    /// Torch's rows in the file, so that none is written twice, whatever its variants are.
    written: Mutex<HashSet<(String, String)>>,
    /// Files whose validators were found to be right.
    checked: Mutex<HashSet<PathBuf>>,
}

impl DeviceResults {
    fn new(validators: Validators) -> Self {
        Self {
            read: Once::new(),
            table: RwLock::default(),
            validators,
            journal: OnceLock::new(),
            alone: Mutex::default(),
            claimed: Mutex::default(),
            done: Condvar::new(),
            untuned: Mutex::default(),
            written: Mutex::default(),
            checked: Mutex::default(),
        }
    }

    /// The journal beside torch's file.
    fn journal(&self, torch: &str) -> &Mutex<Journal> {
        self.journal.get_or_init(|| {
            let path = file::journal_of(Path::new(torch));
            Mutex::new(Journal::open(path.clone()).unwrap_or_else(|error| {
                warn(format_args!("{error}; no candidate is left out"));
                Journal::empty(path)
            }))
        })
    }

    pub(super) fn get(&self, problem: &Problem) -> Option<Arc<Entry>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(problem).cloned()
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).rows()
    }

    pub(super) fn validators(&self) -> &Validators {
        &self.validators
    }

    fn change<R>(&self, change: impl FnOnce(&mut Table) -> R) -> R {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, problem: Problem, entry: Entry) -> Arc<Entry> {
        self.change(|table| {
            table.insert(problem, entry);
            table.get(&problem).cloned().unwrap_or_else(|| Arc::new(default_entry()))
        })
    }

    fn forget(&self, problem: &Problem) {
        self.change(|table| table.remove(problem));
    }

    /// Torch's file and the one beside it, where they are there and valid.
    fn read_files(&self, path: &Path, log: &Log) {
        for path in [path.to_owned(), file::solutions_of(path)] {
            if let Err(error) = self.read_file(&path, log) {
                let is_absent = !path.exists();
                if is_absent { log.say(1, format_args!("{error}")) } else { warn(format_args!("{error}")) }
            }
        }
    }

    /// The results of a file, torch's or one of our own solutions.
    ///
    /// # Errors
    /// The file is not there, cannot be read or is refused.
    pub(super) fn read_file(&self, path: &Path, log: &Log) -> std::result::Result<(), TuneError> {
        log.say(1, format_args!("reading tuning results from {}", path.display()));
        let missing = || file::failed("read", path, &std::io::ErrorKind::NotFound.into());
        let contents = file::read(path)?.ok_or_else(missing)?;
        for line in &contents.short_lines {
            log.say(1, format_args!("could not parse line {line} of {}", path.display()));
        }
        let torch = file::torch_validators();
        let origin = if contents.validators.len() > torch.len() { Origin::Own } else { Origin::Torch };
        let wanted = if origin == Origin::Own { &self.validators } else { &torch };
        file::check(&contents.validators, wanted).map_err(|cause| file::rejected(path, cause))?;
        let mut rows = contents.rows;
        if origin == Origin::Torch {
            let names = rows.iter().map(|row| (row.op.clone(), row.params.clone()));
            locked(&self.written).extend(names);
        } else if contents.is_cut {
            // The name of the last solution may be cut short, and be that of another one.
            rows.pop();
        }
        for row in self.change(|table| table.load(rows, origin)) {
            let Row { op, params, solution, .. } = row;
            log.say(1, format_args!("{op}({params}) already has a best kernel, {solution} will be ignored"));
        }
        Ok(())
    }

    /// Adds a result to both files, or to our own alone.
    fn append(&self, path: &Path, torch: Option<Row>, own: &Row, log: &Log) {
        let torch = torch.filter(|row| locked(&self.written).insert((row.op.clone(), row.params.clone())));
        let solutions = file::solutions_of(path);
        let torch = torch.as_ref().map(|row| (path, file::torch_validators(), row));
        for (path, validators, row) in torch.into_iter().chain([(&*solutions, self.validators.clone(), own)]) {
            match self.append_valid(path, &validators, row) {
                Ok(()) => log.say(3, format_args!("Realtime append: {}({}) -> {}", row.op, row.params, row.solution)),
                Err(error) => warn(format_args!("{error}; the result is kept for this process alone")),
            }
        }
    }

    /// Adds a row to a file whose validators are these. A file with others is put aside first: what is behind it would never
    /// be read.
    fn append_valid(&self, path: &Path, validators: &Validators, row: &Row) -> std::result::Result<(), TuneError> {
        let mut checked = locked(&self.checked);
        if !checked.contains(path) {
            if let Some(refused) = refusal(path, validators)? {
                let aside = file::put_aside(path)?;
                warn(format_args!("{refused}; it is now {}", aside.display()));
            }
            checked.insert(path.to_owned());
        }
        file::append(path, validators, row)
    }

    /// The right to tune a product; `None` after another thread has tuned it.
    fn claim(&self, problem: &Problem) -> Option<Claim<'_>> {
        let mut claimed = locked(&self.claimed);
        let mut waited = false;
        while claimed.contains(problem) {
            waited = true;
            claimed = self.done.wait(claimed).unwrap_or_else(PoisonError::into_inner);
        }
        // A search that failed leaves no result: then it is this thread's turn.
        if waited && self.get(problem).is_some_and(|entry| !entry.is_untuned()) {
            return None;
        }
        claimed.insert(*problem);
        Some(Claim { results: self, problem: *problem })
    }
}

/// Why a file is none to add to; an empty one is.
///
/// # Errors
/// The file cannot be read.
fn refusal(path: &Path, validators: &Validators) -> std::result::Result<Option<TuneError>, TuneError> {
    match file::read(path) {
        Ok(None) => Ok(None),
        Ok(Some(contents)) if contents == file::Contents::default() => Ok(None),
        Ok(Some(contents)) => {
            Ok(file::check(&contents.validators, validators).err().map(|cause| file::rejected(path, cause)))
        }
        Err(error @ TuneError::Rejected { .. }) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// A product that a thread tunes.
struct Claim<'a> {
    results: &'a DeviceResults,
    problem: Problem,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        locked(&self.results.claimed).remove(&self.problem);
        self.results.done.notify_all();
    }
}
