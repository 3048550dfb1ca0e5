//! The tuner's switches, set by the environment (`PYTORCH_TUNABLEOP_*`) and by calls.
//!
//! As in torch, the environment is read once and beats the calls in the direction that it names: `ENABLED=1` and
//! `RECORD_UNTUNED=1` cannot be switched off, `TUNING=0` cannot be switched on, and numbers of the environment stay. The
//! one exception is the file of results, where a call counts more.
//!
//! `ICACHE_FLUSH_ENABLED` is not read: torch fetches kernels anew before timed runs on other GPUs than NVIDIA's only.
//!
//! **Invariants:** pure, but for [`Environment::of_process`]; a value that cannot be read is an error when it is needed,
//! never another value.

use crate::base::tune_error::TuneError;

/// Milliseconds that a candidate is timed for, unless it is set.
const DURATION: i64 = 30;

/// How often a candidate is timed, unless it is set.
const ITERATIONS: i64 = 100;

/// The unit of the rotating buffer's size.
const MEBIBYTE: u64 = 1 << 20;

/// What the environment says. `None`: it says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Environment {
    enabled: bool,
    never_tunes: bool,
    records: bool,
    verbose: Option<String>,
    verbose_filename: Option<String>,
    filename: Option<String>,
    untuned_filename: Option<String>,
    numerical_check: Option<String>,
    duration: Option<String>,
    iterations: Option<String>,
    warmup_duration: Option<String>,
    warmup_iterations: Option<String>,
    rotating: Option<String>,
    blas_log: bool,
}

impl Environment {
    /// That of the process, as it is now.
    pub(super) fn of_process() -> Self {
        Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// The variables that `get` answers.
    pub(super) fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let is = |name: &str, value: &str| get(name).as_deref() == Some(value);
        Self {
            enabled: is("PYTORCH_TUNABLEOP_ENABLED", "1"),
            never_tunes: is("PYTORCH_TUNABLEOP_TUNING", "0"),
            records: is("PYTORCH_TUNABLEOP_RECORD_UNTUNED", "1"),
            verbose: get("PYTORCH_TUNABLEOP_VERBOSE"),
            verbose_filename: get("PYTORCH_TUNABLEOP_VERBOSE_FILENAME"),
            filename: get("PYTORCH_TUNABLEOP_FILENAME"),
            untuned_filename: get("PYTORCH_TUNABLEOP_UNTUNED_FILENAME"),
            numerical_check: get("PYTORCH_TUNABLEOP_NUMERICAL_CHECK"),
            duration: get("PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS"),
            iterations: get("PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS"),
            warmup_duration: get("PYTORCH_TUNABLEOP_MAX_WARMUP_DURATION_MS"),
            warmup_iterations: get("PYTORCH_TUNABLEOP_MAX_WARMUP_ITERATIONS"),
            rotating: get("PYTORCH_TUNABLEOP_ROTATING_BUFFER_SIZE"),
            blas_log: is("PYTORCH_TUNABLEOP_BLAS_LOG", "1"),
        }
    }

    /// Whether it switches the tuner on for good.
    pub(super) fn enables(&self) -> bool {
        self.enabled
    }

    /// How much is told.
    ///
    /// # Errors
    /// The variable is no number.
    pub(super) fn verbose(&self) -> Result<i32, TuneError> {
        let level = integer("PYTORCH_TUNABLEOP_VERBOSE", self.verbose.as_ref())?.unwrap_or(0);
        Ok(i32::try_from(level.clamp(0, 3)).unwrap_or(3))
    }

    /// Where it is told.
    pub(super) fn verbose_filename(&self) -> &str {
        self.verbose_filename.as_deref().unwrap_or("err")
    }
}

/// How much two results may differ: `|a - b| <= atol + rtol * |a|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub(super) absolute: f64,
    pub(super) relative: f64,
}

impl Tolerances {
    /// # Errors
    /// One of them is not above zero.
    fn checked(absolute: f64, relative: f64) -> Result<Self, TuneError> {
        if absolute > 0.0 && relative > 0.0 {
            return Ok(Self { absolute, relative });
        }
        Err(TuneError::Tolerances { atol: absolute, rtol: relative })
    }
}

/// How long and how often candidates are run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    /// Milliseconds; 0: no limit.
    pub(super) duration: i64,
    /// 0: no limit.
    pub(super) iterations: i64,
    /// Milliseconds before the timed runs; 0: none.
    pub(super) warmup_duration: i64,
    /// 0: none.
    pub(super) warmup_iterations: i64,
    /// The bytes that copies of the operands fill together; 0: one copy.
    pub(super) rotating: u64,
    /// The user's numerical check.
    pub(super) check: Option<Tolerances>,
}

/// The name of a file of results, before the device is put in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileName {
    name: String,
    inserts_ordinal: bool,
}

/// What is set.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    environment: Environment,
    enabled: bool,
    tuning: bool,
    recording: bool,
    duration: i64,
    iterations: i64,
    /// Mebibytes; below zero: as many as the second-level cache has.
    rotating: i64,
    check: Option<Tolerances>,
    file: Option<FileName>,
}

impl Settings {
    /// Torch's defaults under an environment.
    pub(super) fn new(environment: Environment) -> Self {
        Self {
            environment,
            enabled: false,
            tuning: true,
            recording: false,
            duration: DURATION,
            iterations: ITERATIONS,
            rotating: -1,
            check: None,
            file: None,
        }
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(super) fn enable(&mut self, on: bool) {
        self.enabled = on;
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.environment.enabled || self.enabled
    }

    pub(super) fn enable_tuning(&mut self, on: bool) {
        self.tuning = on;
    }

    pub(super) fn is_tuning(&self) -> bool {
        !self.environment.never_tunes && self.tuning
    }

    pub(super) fn enable_recording(&mut self, on: bool) {
        self.recording = on;
    }

    pub(super) fn is_recording(&self) -> bool {
        self.environment.records || self.recording
    }

    /// Whether files of untuned products have the parameters of the BLAS call, too.
    pub(super) fn has_blas_log(&self) -> bool {
        self.environment.blas_log
    }

    pub(super) fn set_duration(&mut self, milliseconds: i64) {
        self.duration = limit(milliseconds);
    }

    /// # Errors
    /// The variable of the environment is no number.
    pub(super) fn duration(&self) -> Result<i64, TuneError> {
        let set = integer("PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS", self.environment.duration.as_ref())?;
        Ok(set.map_or(self.duration, limit))
    }

    pub(super) fn set_iterations(&mut self, count: i64) {
        self.iterations = limit(count);
    }

    /// # Errors
    /// The variable of the environment is no number.
    pub(super) fn iterations(&self) -> Result<i64, TuneError> {
        let set = integer("PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS", self.environment.iterations.as_ref())?;
        Ok(set.map_or(self.iterations, limit))
    }

    pub(super) fn set_rotating(&mut self, mebibytes: i64) {
        self.rotating = mebibytes;
    }

    /// Bytes of the rotating buffer, on a device whose second-level cache has `cache` bytes.
    ///
    /// # Errors
    /// The variable of the environment is no number.
    pub(super) fn rotating(&self, cache: u64) -> Result<u64, TuneError> {
        let set = integer("PYTORCH_TUNABLEOP_ROTATING_BUFFER_SIZE", self.environment.rotating.as_ref())?;
        Ok(u64::try_from(set.unwrap_or(self.rotating)).map_or(cache, |size| size.saturating_mul(MEBIBYTE)))
    }

    /// # Errors
    /// One of the tolerances is not above zero, even where the check is switched off.
    pub(super) fn set_check(&mut self, on: bool, absolute: f64, relative: f64) -> Result<(), TuneError> {
        let tolerances = Tolerances::checked(absolute, relative)?;
        self.check = on.then_some(tolerances);
        Ok(())
    }

    /// # Errors
    /// The variable of the environment has no two tolerances.
    pub(super) fn check(&self) -> Result<Option<Tolerances>, TuneError> {
        let Some(text) = &self.environment.numerical_check else { return Ok(self.check) };
        if text == "0" {
            return Ok(None);
        }
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let parts = text.split_once('_').and_then(|(first, second)| Some((number(first)?, number(second)?)));
        let (absolute, relative) = parts.ok_or_else(|| TuneError::Environment {
            variable: "PYTORCH_TUNABLEOP_NUMERICAL_CHECK",
            value: text.clone(),
            expected: "0 or two tolerances with a _ between them (atol_rtol)",
        })?;
        Tolerances::checked(absolute, relative).map(Some)
    }

    /// All limits, on a device whose second-level cache has `cache` bytes.
    ///
    /// # Errors
    /// A variable of the environment cannot be read.
    pub(super) fn limits(&self, cache: u64) -> Result<Limits, TuneError> {
        let environment = &self.environment;
        let warmup = |name, value: &Option<String>| Ok(integer(name, value.as_ref())?.map_or(0, limit));
        Ok(Limits {
            duration: self.duration()?,
            iterations: self.iterations()?,
            warmup_duration: warmup("PYTORCH_TUNABLEOP_MAX_WARMUP_DURATION_MS", &environment.warmup_duration)?,
            warmup_iterations: warmup("PYTORCH_TUNABLEOP_MAX_WARMUP_ITERATIONS", &environment.warmup_iterations)?,
            rotating: self.rotating(cache)?,
            check: self.check()?,
        })
    }

    /// The empty name is none.
    pub(super) fn set_filename(&mut self, name: &str, inserts_ordinal: bool) {
        self.file = (!name.is_empty()).then(|| FileName { name: name.to_owned(), inserts_ordinal });
    }

    /// Takes the default name, or the environment's, where none was set. Torch does so when results are first asked for.
    pub(super) fn settle_filename(&mut self) {
        let environment = self.environment.filename.clone().filter(|name| !name.is_empty());
        self.file.get_or_insert_with(|| FileName {
            name: environment.unwrap_or_else(|| "tunableop_results.csv".to_owned()),
            inserts_ordinal: true,
        });
    }

    /// The file of results of a device, the empty name while none was set.
    pub(super) fn filename(&self, device: usize) -> String {
        self.file.as_ref().map_or_else(String::new, |file| {
            if file.inserts_ordinal { with_ordinal(&file.name, &device.to_string()) } else { file.name.clone() }
        })
    }

    /// The pattern of the files of all devices, with a `?` for the ordinal; `None` where all have one file.
    pub(super) fn filename_pattern(&self) -> Option<String> {
        let file = self.file.as_ref().filter(|file| file.inserts_ordinal)?;
        Some(with_ordinal(&file.name, "?"))
    }

    /// The file of untuned products of a device.
    pub(super) fn untuned_filename(&self, device: usize) -> String {
        let name = self.environment.untuned_filename.as_deref().unwrap_or("tunableop_untuned.csv");
        Self::before_last_dot(name, &device.to_string())
    }

    /// A name with a word before its last dot, or at its end.
    pub(super) fn before_last_dot(name: &str, word: &str) -> String {
        let (stem, extension) = name.split_at(name.rfind('.').unwrap_or(name.len()));
        format!("{stem}{word}{extension}")
    }
}

/// Torch's rule: in the place of the first `%d`, else before the last dot, else at the end.
fn with_ordinal(name: &str, ordinal: &str) -> String {
    if name.contains("%d") { name.replacen("%d", ordinal, 1) } else { Settings::before_last_dot(name, ordinal) }
}

/// A number that may not be below zero, nor beyond torch's `int`.
fn limit(number: i64) -> i64 {
    number.clamp(0, i64::from(i32::MAX))
}

/// The number that a variable begins with, as C++ reads it.
fn integer(variable: &'static str, value: Option<&String>) -> Result<Option<i64>, TuneError> {
    let Some(value) = value else { return Ok(None) };
    let text = value.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    let number = text[..text.len() - digits.len() + end].parse::<i32>();
    number.map(|number| Some(number.into())).map_err(|_| TuneError::Environment {
        variable,
        value: value.clone(),
        expected: "a whole number",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings under an environment, given without the prefix of the names.
    fn under(variables: &[(&str, &str)]) -> Settings {
        Settings::new(Environment::read(|name| {
            let short = name.strip_prefix("PYTORCH_TUNABLEOP_")?;
            variables.iter().find(|(known, _)| *known == short).map(|(_, value)| (*value).to_owned())
        }))
    }

    #[test]
    fn the_defaults_are_torchs() {
        let settings = under(&[]);
        assert_eq!((settings.is_enabled(), settings.is_tuning(), settings.is_recording()), (false, true, false));
        let limits = settings.limits(60 << 20).unwrap();
        let wanted = Limits {
            duration: 30,
            iterations: 100,
            warmup_duration: 0,
            warmup_iterations: 0,
            rotating: 62_914_560,
            check: None,
        };
        assert_eq!(limits, wanted);
        assert_eq!(
            (settings.filename(0), settings.untuned_filename(3)),
            (String::new(), "tunableop_untuned3.csv".into())
        );
        assert!(!settings.has_blas_log() && under(&[("BLAS_LOG", "1")]).has_blas_log());
        assert_eq!(settings.environment().verbose(), Ok(0));
    }

    /// What PyTorch 2.11 answered after the same calls.
    #[test]
    fn numbers_are_held_to_torchs_limits() {
        let mut settings = under(&[]);
        for (given, kept) in
            [(0, 0), (-3, 0), (12, 12), (i64::from(i32::MAX), i64::from(i32::MAX)), (1 << 40, i64::from(i32::MAX))]
        {
            settings.set_duration(given);
            settings.set_iterations(given);
            assert_eq!((settings.duration(), settings.iterations()), (Ok(kept), Ok(kept)), "{given}");
        }
        // Torch's own arithmetic has 32 bits, and makes nothing of 4096 MiB.
        for (given, kept) in [(0, 0), (-1, 7), (1, 1 << 20), (-7, 7), (4096, 1 << 32), (i64::MAX, u64::MAX)] {
            settings.set_rotating(given);
            assert_eq!(settings.rotating(7), Ok(kept), "{given}");
        }
    }

    /// What PyTorch 2.11 answered after the same calls, on its first device.
    #[test]
    fn names_of_files() {
        let cases = [
            ("a.csv", false, "a.csv"),
            ("a.csv", true, "a0.csv"),
            ("a%d.csv", false, "a%d.csv"),
            ("a%d.csv", true, "a0.csv"),
            ("a%db%d.csv", true, "a0b%d.csv"),
            ("d.x/a", true, "d0.x/a"),
            ("noext", true, "noext0"),
            ("a.b.csv", true, "a.b0.csv"),
            ("", true, ""),
        ];
        for (name, inserts, wanted) in cases {
            let mut settings = under(&[]);
            settings.set_filename(name, inserts);
            assert_eq!(settings.filename(0), wanted, "{name}");
        }
        let mut settings = under(&[("FILENAME", "res%dx.csv"), ("UNTUNED_FILENAME", "unt%dx.csv")]);
        assert_eq!((settings.filename(0), settings.untuned_filename(0)), (String::new(), "unt%dx0.csv".into()));
        settings.settle_filename();
        assert_eq!((settings.filename(2), settings.filename_pattern()), ("res2x.csv".into(), Some("res?x.csv".into())));
        settings.set_filename("other.csv", false);
        assert_eq!((settings.filename(2), settings.filename_pattern()), ("other.csv".into(), None));
        settings.set_filename("", false);
        settings.settle_filename();
        assert_eq!(settings.filename(2), "res2x.csv");
    }

    #[test]
    fn the_environment_beats_the_calls() {
        let variables = [
            ("ENABLED", "1"),
            ("TUNING", "0"),
            ("RECORD_UNTUNED", "1"),
            ("MAX_TUNING_DURATION_MS", "-5"),
            ("MAX_TUNING_ITERATIONS", "7"),
            ("ROTATING_BUFFER_SIZE", "3"),
            ("NUMERICAL_CHECK", "1e-2_1e-3"),
            ("MAX_WARMUP_DURATION_MS", "2"),
            ("MAX_WARMUP_ITERATIONS", " 4 "),
        ];
        let mut settings = under(&variables);
        settings.enable(false);
        settings.enable_tuning(true);
        settings.enable_recording(false);
        settings.set_duration(9);
        settings.set_iterations(9);
        settings.set_rotating(9);
        settings.set_check(false, 1.0, 1.0).unwrap();
        assert_eq!((settings.is_enabled(), settings.is_tuning(), settings.is_recording()), (true, false, true));
        let check = Some(Tolerances { absolute: 1e-2, relative: 1e-3 });
        let wanted =
            Limits { duration: 0, iterations: 7, warmup_duration: 2, warmup_iterations: 4, rotating: 3 << 20, check };
        assert_eq!(settings.limits(5).unwrap(), wanted);
        let mut off = under(&[("ENABLED", "0"), ("NUMERICAL_CHECK", "0"), ("TUNING", "1")]);
        off.enable(true);
        off.set_check(true, 1.0, 1.0).unwrap();
        off.enable_tuning(false);
        assert_eq!((off.is_enabled(), off.is_tuning(), off.check()), (true, false, Ok(None)));
    }

    #[test]
    fn values_that_cannot_be_read() {
        for value in ["", "x", "-", "99999999999"] {
            let settings =
                under(&[("MAX_TUNING_DURATION_MS", value), ("VERBOSE", value), ("ROTATING_BUFFER_SIZE", value)]);
            assert!(matches!(settings.duration(), Err(TuneError::Environment { .. })), "{value}");
            assert!(settings.environment().verbose().is_err() && settings.rotating(1).is_err(), "{value}");
        }
        for value in ["1", "", "1e-2", "a_b", "1_", "inf_1"] {
            let check = under(&[("NUMERICAL_CHECK", value)]).check();
            assert!(matches!(check, Err(TuneError::Environment { .. })), "{value}");
        }
        assert!(matches!(under(&[("NUMERICAL_CHECK", "0_1")]).check(), Err(TuneError::Tolerances { .. })));
        let mut settings = under(&[]);
        for (absolute, relative) in [(-1.0, 1.0), (0.0, 0.0), (f64::NAN, 1.0)] {
            assert!(settings.set_check(true, absolute, relative).is_err());
            assert!(settings.set_check(false, absolute, relative).is_err());
        }
        assert_eq!(settings.check(), Ok(None));
    }
}
