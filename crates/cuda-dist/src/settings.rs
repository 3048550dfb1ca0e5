//! Variables of torch's NCCL process group.
//!
//! Those that mean something here:
//!
//! | variable | meaning here | default |
//! |---|---|---|
//! | `TORCH_NCCL_BLOCKING_WAIT` | `Work::wait` waits on the host also where it could order streams | 0 |
//! | `TORCH_NCCL_ASYNC_ERROR_HANDLING` | what a failure does besides being reported: 0 nothing, 2 the group is given up, 1 and 3 the process ends | 2 (torch: 3) |
//! | `TORCH_NCCL_DESYNC_DEBUG` | a time-out says what the other ranks do | 1 (torch: 0) |
//! | `TORCH_NCCL_PROPAGATE_ERROR` | the other ranks give up too | 1 (torch: 0) |
//! | `TORCH_NCCL_COORD_CHECK_MILSEC` | how often a rank writes its state and looks whether another gave up | 1000 |
//! | `TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC` | how long a report may take | 15000 |
//! | `TORCH_NCCL_NAN_CHECK` | what a rank gives is looked at before it goes, and a NaN is an error; the host waits for that | 0 |
//! | `TORCH_NCCL_ENABLE_TIMING` | `Work::duration` says how long a collective took | 0 |
//! | `TORCH_NCCL_HIGH_PRIORITY` | the group's stream has the priority -1 | 0 |
//! | `TORCH_NCCL_USE_COMM_NONBLOCKING` | 0: calls go straight to NCCL and wait there while it connects ranks, where every rank is ours and says so; quicker for small tensors | 1 (torch: 0) |
//! | `TORCH_NCCL_NONBLOCKING_TIMEOUT` | seconds in which NCCL's ranks come together and a call is queued | the group's time |
//! | `TORCH_FR_BUFFER_SIZE`, `TORCH_NCCL_TRACE_BUFFER_SIZE` | how many calls the flight recorder keeps | 2000 |
//! | `TORCH_NCCL_DUMP_ON_TIMEOUT` | the recorder is written to a file when the group is given up, as a pickle that `torchfrtrace` reads | 0 (torch: 1) |
//! | `TORCH_FR_DUMP_TEMP_FILE`, `TORCH_NCCL_DEBUG_INFO_TEMP_FILE` | that file, but for the rank at its end | `torch/comm_lib_trace_rank_` in `XDG_CACHE_HOME`, or in the home's `.cache` |
//!
//! Those that are checked and have no effect, and why:
//!
//! | variable | why |
//! |---|---|
//! | `TORCH_NCCL_ENABLE_MONITORING`, `TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC` | they guard torch's watch-dog against calls that hang; this one makes none: it asks events and does not wait for them |
//! | `TORCH_NCCL_AVOID_RECORD_STREAMS` | each operation marks the memory that its stream uses, and nothing is held longer |
//! | `TORCH_NCCL_CUDA_EVENT_CACHE` | events always come from a pool |
//! | `TORCH_NCCL_RETHROW_CUDA_ERRORS` | an error of the driver is always that of the work |
//! | `TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK` | tensors are registered where that is asked for (`aten_cuda::nccl::Communicator::register`) |
//! | `TORCH_NCCL_RANKS_PER_ROOT` | rank 0 alone makes NCCL's identity |
//! | `TORCH_NCCL_ABORT_IN_DESTROY_PG` | destroying a group always aborts what is under way |
//! | `TORCH_NCCL_TRACE_CPP_STACK`, `TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN` | there is no C++ stack |
//! | `TORCH_NCCL_EXTRA_DUMP_ON_EXEC` | a failure is written once, with all that is known |
//! | `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` | `ProcessGroup::flight_record` is there whenever the program wants it |
//! | `TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING` | messages are always in the order of their calls, or together |
//!
//! What begins with `NCCL_` is NCCL's own, which reads it itself, but for torch's old names of the first rows
//! (`NCCL_BLOCKING_WAIT`, `NCCL_ASYNC_ERROR_HANDLING`, `NCCL_DESYNC_DEBUG`, `NCCL_ENABLE_TIMING`).
//!
//! Invariant: a variable that is set and is none of its values is an error, never a default.

use std::time::Duration;

use crate::error::{Error, Result};

/// What a failure does besides being reported: `TORCH_NCCL_ASYNC_ERROR_HANDLING`.
///
/// ```
/// assert_eq!(cuda_dist::Settings::default().error_handling, cuda_dist::ErrorHandling::CleanUpOnly);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorHandling {
    /// 0: the work has its error, and the group goes on.
    NoHandling,
    /// 1 and 3: the group is given up, and the process ends (`abort`).
    TearDown,
    /// 2: the group is given up: whatever is under way or begun later has the error. The default here; torch ends the
    /// process.
    CleanUpOnly,
}

/// The variables `TORCH_NCCL_*` that mean something here, as the module's table lists them.
///
/// ```
/// use cuda_dist::Settings;
///
/// let settings = Settings::from_variables(&|name| (name == "TORCH_NCCL_COORD_CHECK_MILSEC").then(|| "50".to_owned()))?;
/// assert_eq!(settings.beat.as_millis(), 50);
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `TORCH_NCCL_BLOCKING_WAIT`: waiting is done on the host.
    pub blocking_wait: bool,
    /// `TORCH_NCCL_ASYNC_ERROR_HANDLING`: what a failure does.
    pub error_handling: ErrorHandling,
    /// `TORCH_NCCL_DESYNC_DEBUG`: a time-out says what the other ranks do.
    pub desync_debug: bool,
    /// `TORCH_NCCL_PROPAGATE_ERROR`: the others give up too.
    pub propagate_error: bool,
    /// `TORCH_NCCL_COORD_CHECK_MILSEC`: how often a rank gives a sign of life.
    pub beat: Duration,
    /// `TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC`: how long a report may take.
    pub report_time: Duration,
    /// `TORCH_NCCL_NAN_CHECK`: a NaN among what a rank gives is an error.
    pub nan_check: bool,
    /// `TORCH_NCCL_ENABLE_TIMING`: works say how long they took.
    pub enable_timing: bool,
    /// `TORCH_NCCL_HIGH_PRIORITY`: NCCL's work goes before other work of the device.
    pub high_priority: bool,
    /// `TORCH_NCCL_USE_COMM_NONBLOCKING`, the other way round: calls go straight to NCCL ([`aten_cuda::nccl::Calls::Direct`]).
    /// All ranks have to say so; with a rank of PyTorch among them none does.
    pub direct_calls: bool,
    /// `TORCH_NCCL_NONBLOCKING_TIMEOUT`: how long NCCL's ranks may take to come together; the group's time where not said.
    pub nonblocking_timeout: Option<Duration>,
    /// `TORCH_NCCL_TRACE_BUFFER_SIZE`: how many calls the flight recorder keeps; 0 turns it off.
    pub trace_buffer_size: usize,
    /// `TORCH_NCCL_DUMP_ON_TIMEOUT`: the flight recorder is written to a file when the group is given up.
    pub dump_on_timeout: bool,
    /// `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`: the path of that file without the rank at its end.
    pub debug_info_file: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            blocking_wait: false,
            error_handling: ErrorHandling::CleanUpOnly,
            desync_debug: true,
            propagate_error: true,
            beat: Duration::from_secs(1),
            report_time: Duration::from_secs(15),
            nan_check: false,
            enable_timing: false,
            high_priority: false,
            direct_calls: false,
            nonblocking_timeout: None,
            trace_buffer_size: 2000,
            dump_on_timeout: false,
            debug_info_file: trace_file("/tmp/.cache"),
        }
    }
}

/// Where torch writes what its flight recorder has, but for the rank, in a folder for caches.
fn trace_file(caches: &str) -> String {
    format!("{caches}/torch/comm_lib_trace_rank_")
}

/// What a variable without effect may be.
#[derive(Clone, Copy)]
enum Kind {
    Flag,
    Number,
    Text,
}

const WITHOUT_EFFECT: [(&str, Kind); 13] = [
    ("TORCH_NCCL_ENABLE_MONITORING", Kind::Flag),
    ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", Kind::Number),
    ("TORCH_NCCL_AVOID_RECORD_STREAMS", Kind::Flag),
    ("TORCH_NCCL_CUDA_EVENT_CACHE", Kind::Flag),
    ("TORCH_NCCL_RETHROW_CUDA_ERRORS", Kind::Flag),
    ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", Kind::Flag),
    ("TORCH_NCCL_RANKS_PER_ROOT", Kind::Number),
    ("TORCH_NCCL_ABORT_IN_DESTROY_PG", Kind::Flag),
    ("TORCH_NCCL_TRACE_CPP_STACK", Kind::Flag),
    ("TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", Kind::Flag),
    ("TORCH_NCCL_EXTRA_DUMP_ON_EXEC", Kind::Flag),
    ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", Kind::Text),
    ("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", Kind::Flag),
];

const DAY_MS: u64 = 86_400_000;

/// Variables by their names. Where there are several names, the first that is set counts.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn text<'n>(&self, names: &[&'n str]) -> Option<(&'n str, String)> {
        names.iter().find_map(|name| Some((*name, (self.0)(name).filter(|text| !text.is_empty())?)))
    }

    fn number(&self, names: &[&str], least: u64, most: u64) -> Result<Option<u64>> {
        let Some((name, text)) = self.text(names) else { return Ok(None) };
        let value = text.trim().parse().ok().filter(|value| (least..=most).contains(value));
        let problem = || format!("is '{text}', and must be a number from {least} to {most}");
        value.map(Some).ok_or_else(|| Error::Variable { name: name.to_owned(), problem: problem() })
    }

    /// The words that torch takes, whatever their case.
    fn flag(&self, names: &[&str], default: bool) -> Result<bool> {
        let Some((name, text)) = self.text(names) else { return Ok(default) };
        match text.trim().to_ascii_lowercase().as_str() {
            "1" | "y" | "yes" | "t" | "true" => Ok(true),
            "0" | "n" | "no" | "f" | "false" => Ok(false),
            _ => {
                let problem = format!("is '{text}', and must be 1, y, yes, t or true, or 0, n, no, f or false");
                Err(Error::Variable { name: name.to_owned(), problem })
            }
        }
    }

    fn milliseconds(&self, name: &str, least: u64, default: Duration) -> Result<Duration> {
        Ok(self.number(&[name], least, DAY_MS)?.map_or(default, Duration::from_millis))
    }

    fn check_those_without_effect(&self) -> Result<()> {
        WITHOUT_EFFECT.iter().try_for_each(|(name, kind)| match kind {
            Kind::Flag => self.flag(&[name], false).map(drop),
            Kind::Number => self.number(&[name], 0, DAY_MS).map(drop),
            Kind::Text => Ok(()),
        })
    }
}

impl Settings {
    /// By the variables of this process.
    ///
    /// # Errors
    /// A variable is none of its values; the error names it.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(&|name| std::env::var(name).ok())
    }

    /// By variables that a function gives.
    ///
    /// # Errors
    /// A variable is none of its values; the error names it.
    pub fn from_variables(variables: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let (read, default) = (Variables(variables), Self::default());
        read.check_those_without_effect()?;
        let handling = read.number(&["TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"], 0, 3)?;
        let recorded = read.number(&["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"], 0, 1 << 24)?;
        let text = |names: &[&'static str]| read.text(names).map(|(_, text)| text);
        let home = || text(&["HOME"]).map(|home| format!("{home}/.cache"));
        let file = text(&["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
            .or_else(|| text(&["XDG_CACHE_HOME"]).or_else(home).map(|caches| trace_file(&caches)));
        let seconds = read.number(&["TORCH_NCCL_NONBLOCKING_TIMEOUT"], 1, DAY_MS)?;
        Ok(Self {
            blocking_wait: read.flag(&["TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"], default.blocking_wait)?,
            error_handling: match handling {
                Some(0) => ErrorHandling::NoHandling,
                Some(1 | 3) => ErrorHandling::TearDown,
                Some(_) | None => default.error_handling,
            },
            desync_debug: read.flag(&["TORCH_NCCL_DESYNC_DEBUG", "NCCL_DESYNC_DEBUG"], default.desync_debug)?,
            propagate_error: read.flag(&["TORCH_NCCL_PROPAGATE_ERROR"], default.propagate_error)?,
            beat: read.milliseconds("TORCH_NCCL_COORD_CHECK_MILSEC", 1, default.beat)?,
            report_time: read.milliseconds("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", 0, default.report_time)?,
            nan_check: read.flag(&["TORCH_NCCL_NAN_CHECK"], default.nan_check)?,
            enable_timing: read.flag(&["TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING"], default.enable_timing)?,
            high_priority: read.flag(&["TORCH_NCCL_HIGH_PRIORITY"], default.high_priority)?,
            direct_calls: !read.flag(&["TORCH_NCCL_USE_COMM_NONBLOCKING"], !default.direct_calls)?,
            nonblocking_timeout: seconds.map(Duration::from_secs),
            trace_buffer_size: recorded
                .map_or(default.trace_buffer_size, |count| usize::try_from(count).unwrap_or(usize::MAX)),
            dump_on_timeout: read.flag(&["TORCH_NCCL_DUMP_ON_TIMEOUT"], default.dump_on_timeout)?,
            debug_info_file: file.unwrap_or(default.debug_info_file),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorHandling, Kind, Settings, WITHOUT_EFFECT};
    use crate::Error;

    fn with(name: &'static str, value: &'static str) -> Result<Settings, Error> {
        Settings::from_variables(&move |asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn each_variable_is_read() {
        assert_eq!(Settings::from_variables(&|_| None).unwrap(), Settings::default());
        for (yes, no) in [("1", "0"), ("Yes", "No"), ("TRUE", "f")] {
            assert!(with("TORCH_NCCL_BLOCKING_WAIT", yes).unwrap().blocking_wait);
            assert!(!with("TORCH_NCCL_DESYNC_DEBUG", no).unwrap().desync_debug);
        }
        assert!(with("NCCL_BLOCKING_WAIT", "1").unwrap().blocking_wait);
        assert!(!with("TORCH_NCCL_PROPAGATE_ERROR", "0").unwrap().propagate_error);
        assert!(with("TORCH_NCCL_NAN_CHECK", "1").unwrap().nan_check);
        assert!(with("TORCH_NCCL_ENABLE_TIMING", "1").unwrap().enable_timing);
        assert!(with("TORCH_NCCL_HIGH_PRIORITY", "1").unwrap().high_priority);
        assert!(with("TORCH_NCCL_USE_COMM_NONBLOCKING", "0").unwrap().direct_calls);
        assert!(with("TORCH_NCCL_DUMP_ON_TIMEOUT", "1").unwrap().dump_on_timeout);
        assert_eq!(with("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "7").unwrap().report_time.as_millis(), 7);
        assert_eq!(with("TORCH_NCCL_NONBLOCKING_TIMEOUT", "7").unwrap().nonblocking_timeout.unwrap().as_secs(), 7);
        assert_eq!(with("TORCH_FR_BUFFER_SIZE", "9").unwrap().trace_buffer_size, 9);
        let file = |name, value| with(name, value).unwrap().debug_info_file;
        assert_eq!(file("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/x/y"), "/x/y");
        assert_eq!(file("HOME", "/home/x"), "/home/x/.cache/torch/comm_lib_trace_rank_");
        assert_eq!(file("XDG_CACHE_HOME", "/caches"), "/caches/torch/comm_lib_trace_rank_");
        let handling = |value| with("TORCH_NCCL_ASYNC_ERROR_HANDLING", value).unwrap().error_handling;
        assert_eq!((handling("0"), handling("2")), (ErrorHandling::NoHandling, ErrorHandling::CleanUpOnly));
        assert_eq!((handling("1"), handling("3")), (ErrorHandling::TearDown, ErrorHandling::TearDown));
    }

    #[test]
    fn a_wrong_value_is_named_also_where_it_would_have_no_effect() {
        let wrong = [
            ("TORCH_NCCL_BLOCKING_WAIT", "maybe"),
            ("TORCH_NCCL_COORD_CHECK_MILSEC", "0"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "4"),
            ("TORCH_NCCL_TRACE_BUFFER_SIZE", "-1"),
            ("TORCH_NCCL_NONBLOCKING_TIMEOUT", "soon"),
        ];
        let without = WITHOUT_EFFECT.iter().filter(|(_, kind)| !matches!(kind, Kind::Text));
        for (name, value) in wrong.into_iter().chain(without.map(|(name, _)| (*name, "what"))) {
            let error = with(name, value).unwrap_err();
            assert!(matches!(&error, Error::Variable { name: named, .. } if named == name), "{error}");
            assert!(error.to_string().contains(value), "{error}");
        }
        assert_eq!(with("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "480").unwrap(), Settings::default());
    }
}
