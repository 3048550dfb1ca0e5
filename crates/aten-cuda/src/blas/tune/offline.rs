//! Offline tuning: products from files of untuned ones, tuned on one device or on several.
//!
//! Each product gets operands of its own that lie as its signature says. Several devices are served by a thread each, where
//! torch starts processes: the results are the same.
//!
//! **Invariants:** a file is read to its end before anything is tuned, and a line that is no product is an error then.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use c10_core::{DeviceIndex, Runtime};

use super::context::{Context, Gain};
use super::file::{self, General};
use super::locked;
use super::log::warn;
use super::search::DEFAULT;
use super::settings::Settings;
use super::signature::{Kind, Problem};
use crate::base::error::{Error, Result};
use crate::base::tune_error::TuneError;
use crate::blas::{byte_candidates, candidates};

/// Tunes the products in a file on the current device.
pub(super) fn tune_file(path: &Path) -> Result<()> {
    let runtime = Runtime::current();
    let context = Context::of(&runtime);
    check_switches(&context)?;
    let lines = file::read_bytes(path)?.ok_or_else(|| missing(path))?;
    let problems = problems(&lines_of(path, &lines)?)?;
    let device = runtime.current_device()?;
    let progress = Progress::new(problems.len());
    let tuned = problems.iter().try_for_each(|problem| tune(&context, &runtime, device, problem, &progress));
    progress.end();
    tuned
}

/// Tunes the products in the files of a pattern on the first devices, and gathers what was found.
pub(super) fn tune_files(pattern: &str, devices: usize) -> Result<()> {
    let runtime = Runtime::current();
    let context = Context::of(&runtime);
    let available = runtime.device_count();
    if !(1..=available).contains(&devices) {
        return Err(TuneError::DeviceCount { asked: devices, available }.into());
    }
    if !context.is_enabled() {
        warn(format_args!("TunableOp was disabled. Trying to enable now."));
        context.enable(true);
    }
    check_switches(&context)?;
    if context.settings(|settings| settings.is_recording()) {
        return Err(TuneError::Recording.into());
    }
    let mut lines = BTreeSet::new();
    for path in expand(pattern)? {
        let bytes = file::read_bytes(&path)?.unwrap_or_default();
        lines.extend(lines_of(&path, &bytes)?.into_iter().map(str::to_owned));
    }
    let problems = problems(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    let progress = Progress::new(problems.len());
    let tuned = on_devices(&context, &runtime, &problems, devices, &progress);
    progress.end();
    tuned?;
    gather(&context, devices)
}

/// One thread for each device; products go to the devices in turn.
fn on_devices(
    context: &Context,
    runtime: &Runtime,
    problems: &[Problem],
    devices: usize,
    progress: &Progress,
) -> Result<()> {
    let of_device = |index: usize| -> Result<()> {
        let _bound = runtime.bind();
        let device = DeviceIndex(i32::try_from(index).unwrap_or(i32::MAX));
        runtime.set_device(device)?;
        let own = problems.iter().skip(index).step_by(devices);
        own.into_iter().try_for_each(|problem| tune(context, runtime, device, problem, progress))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..devices).map(|index| scope.spawn(move || of_device(index))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn check_switches(context: &Context) -> Result<()> {
    if !context.is_enabled() {
        return Err(TuneError::Disabled.into());
    }
    if !context.settings(|settings| settings.is_tuning()) {
        return Err(TuneError::TuningDisabled.into());
    }
    Ok(())
}

fn missing(path: &Path) -> TuneError {
    file::failed("read", path, &std::io::ErrorKind::NotFound.into())
}

/// The lines that are about products: torch passes over all others.
fn lines_of<'a>(path: &Path, bytes: &'a [u8]) -> Result<Vec<&'a str>> {
    let lines = file::lines(bytes).map_err(|cause| file::rejected(path, cause))?;
    let lines = lines.into_iter().map(|(_, line)| line);
    Ok(lines.filter(|line| line.starts_with("Gemm") || line.starts_with("ScaledGemm")).collect())
}

/// The products of lines. An operation that is not known is warned of, as in torch.
fn problems(lines: &[&str]) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for line in lines {
        let (op, rest) = line.split_once(',').unwrap_or((line, ""));
        let params = rest.split(',').next().unwrap_or_default();
        let name = op.split('_').next().unwrap_or_default();
        if !Kind::is_name(name) {
            warn(format_args!("error: unknown op {name}"));
            continue;
        }
        problems.push(Problem::parse(op, params.trim_end())?);
    }
    Ok(problems)
}

/// Tunes one product.
fn tune(
    context: &Context,
    runtime: &Runtime,
    device: DeviceIndex,
    problem: &Problem,
    progress: &Progress,
) -> Result<()> {
    let tuned = if problem.kind == Kind::Scaled {
        byte_candidates::with_operands(problem, device, |problem, ways| {
            context.tune(problem, runtime, device, || Ok(ways))
        })
    } else {
        candidates::with_operands(problem, device, |problem, ways| context.tune(problem, runtime, device, || Ok(ways)))
    };
    let gain = match tuned {
        Ok(gain) => gain,
        Err(error) if is_of_product(&error) => {
            warn(format_args!("{}({}) is left out: {error}", problem.op(), problem.params()));
            None
        }
        Err(error) => return Err(error),
    };
    progress.step(problem, gain);
    Ok(())
}

/// Whether an error is about one product, so that the others can still be tuned: there are no such operands, or not enough
/// memory for them.
fn is_of_product(error: &Error) -> bool {
    match error {
        Error::Tensor(_) => true,
        Error::Tune(error) => matches!(**error, TuneError::Offline { .. }),
        other => other.runtime().is_some_and(c10_core::Error::is_out_of_memory),
    }
}

/// What offline tuning prints: a bar where the error output is a terminal, and in the end what was gained.
struct Progress {
    count: usize,
    draws: bool,
    /// How many products are done, and what was gained with each that was tuned.
    done: Mutex<(usize, Vec<(Problem, Gain)>)>,
}

/// Cells of the bar.
const BAR: usize = 24;

impl Progress {
    fn new(count: usize) -> Self {
        Self { count, draws: std::io::stderr().is_terminal(), done: Mutex::default() }
    }

    fn step(&self, problem: &Problem, gain: Option<Gain>) {
        let mut done = locked(&self.done);
        done.0 += 1;
        let filled = BAR * done.0 / self.count.max(1);
        let told = gain.as_ref().map_or_else(|| "known".to_owned(), Gain::to_string);
        if self.draws {
            let (bar, rest) = ("#".repeat(filled), ".".repeat(BAR - filled));
            let (at, count, op, params) = (done.0, self.count, problem.op(), problem.own_params());
            print(&format!("\r\x1b[K[{bar}{rest}] {at}/{count} {op}({params}) {told}"));
        }
        done.1.extend(gain.map(|gain| (*problem, gain)));
    }

    fn end(&self) {
        let done = locked(&self.done);
        let start = if self.draws { "\r\x1b[K" } else { "" };
        print(&format!("{start}{}\n", summary(done.0, &done.1)));
    }
}

fn print(text: &str) {
    // A program that closed its error output does not want to know.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// What was gained with some products.
fn summary(done: usize, gains: &[(Problem, Gain)]) -> String {
    let faster = gains.iter().filter(|(_, gain)| gain.solution != DEFAULT).count();
    let mut text =
        format!("tuned {} of {done} products, {faster} of them to something faster than the default", gains.len());
    let ratio = |gain: &Gain| if gain.time > 0.0 { gain.default_time / gain.time } else { 1.0 };
    let best = gains.iter().filter(|_| faster > 0);
    if let Some((problem, gain)) = best.max_by(|a, b| ratio(&a.1).total_cmp(&ratio(&b.1))) {
        let count = f64::from(u32::try_from(gains.len()).unwrap_or(u32::MAX));
        let mean = (gains.iter().map(|(_, gain)| ratio(gain).ln()).sum::<f64>() / count).exp();
        let (op, params) = (problem.op(), problem.own_params());
        text.push_str(&format!(": {mean:.3} times as fast in the geometric mean, at most {op}({params}) {gain}"));
    }
    text
}

impl std::fmt::Display for Gain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (time, default) = (General(self.time), General(self.default_time));
        write!(f, "{} {time} ms (default {default} ms)", self.solution)
    }
}

/// Puts the results of all devices into one file for each of them (`…_full0.csv` and on).
fn gather(context: &Context, devices: usize) -> Result<()> {
    context.settings(Settings::settle_filename);
    let (pattern, name) = context.settings(|settings| (settings.filename_pattern(), settings.filename(0)));
    let torch = pattern.unwrap_or(name);
    let (from, to) = match torch.contains('?') {
        true => (torch.clone(), torch.replacen('?', "_full?", 1)),
        false => (torch.clone(), Settings::before_last_dot(&torch, "_full?")),
    };
    for of in [|path: &str| PathBuf::from(path), |path: &str| file::solutions_of(Path::new(path))] {
        let sources = expand(&of(&from).to_string_lossy())?;
        gather_files(&sources, &of(&to).to_string_lossy(), devices)?;
    }
    Ok(())
}

/// The rows of all files, each product once, behind the validators of the first file.
fn gather_files(sources: &[PathBuf], to: &str, devices: usize) -> Result<()> {
    let (mut validators, mut rows): (Option<file::Validators>, Vec<file::Row>) = (None, Vec::new());
    for path in sources {
        let contents = file::read(path)?.unwrap_or_default();
        if validators.get_or_insert_with(|| contents.validators.clone()) != &contents.validators {
            warn(format_args!("{} is of another machine or version and is left out", path.display()));
            continue;
        }
        for row in contents.rows {
            if !rows.iter().any(|known| known.op == row.op && known.params == row.params) {
                rows.push(row);
            }
        }
    }
    let Some(validators) = validators else { return Ok(()) };
    for device in 0..devices {
        file::write(Path::new(&to.replacen('?', &device.to_string(), 1)), &validators, &rows)?;
    }
    Ok(())
}

/// The files of a pattern with `*` and `?`, in the order of their names; of a plain name that file, where it is there.
fn expand(pattern: &str) -> Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::new()];
    for part in Path::new(pattern).components() {
        let text = part.as_os_str().to_string_lossy();
        if !text.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut next = Vec::new();
        for folder in found {
            let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            let Ok(entries) = std::fs::read_dir(here) else { continue };
            let names = entries.flatten().map(|entry| entry.file_name());
            next.extend(names.filter(|name| matches(&text, &name.to_string_lossy())).map(|name| folder.join(name)));
        }
        found = next;
    }
    found.retain(|path| path.is_file());
    found.sort();
    Ok(found)
}

/// Whether a name fits a pattern. A name that begins with a dot fits only a pattern that does.
fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of, mut star) = (0, 0, None);
    while of < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(character) if *character == '?' || *character == name[of] => (at, of) = (at + 1, of + 1),
            // The last star takes one character more.
            _ => match star {
                Some((star_at, star_of)) => {
                    (at, of) = (star_at + 1, star_of + 1);
                    star = Some((star_at, star_of + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|character| *character == '*')
}

#[cfg(test)]
mod tests {
    use super::super::signature::Element;
    use super::*;

    #[test]
    fn names_and_patterns() {
        for (pattern, name) in
            [("a?.csv", "a0.csv"), ("*.csv", "a.csv"), ("a*b*c", "a-b-bc"), ("*", "x"), ("ab", "ab"), ("a**", "a")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("a?.csv", "a10.csv"), ("*.csv", "a.csx"), ("a", ""), ("?", ""), ("*", ".x"), ("ab", "abc")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn what_was_gained() {
        let problem = Problem::gemm(Element::Half, [false, false], [1, 2, 3], [1, 3, 1]);
        let gain = |solution: &str, time| (problem, Gain { solution: solution.to_owned(), time, default_time: 4.0 });
        assert_eq!(
            summary(3, &[gain("Default", 4.0), gain("Lt_1", 1.0)]),
            "tuned 2 of 3 products, 1 of them to something faster than the default: 2.000 times as fast in the geometric \
             mean, at most GemmTunableOp_Half_NN(nn_1_2_3_ld_1_3_1) Lt_1 1 ms (default 4 ms)"
        );
        assert_eq!(summary(0, &[]), "tuned 0 of 0 products, 0 of them to something faster than the default");
    }
}
