//! Variables of torch's NCCL process group that mean something here.
//!
//! | variable | meaning here | default |
//! |---|---|---|
//! | `TORCH_NCCL_BLOCKING_WAIT` | `Work::wait` waits on the host also where it could order streams | 0 |
//! | `TORCH_NCCL_ASYNC_ERROR_HANDLING` | what a failure does besides being reported: 0 nothing, 2 the group is given up, 1 and 3 the process ends | 2 (torch: 3) |
//! | `TORCH_NCCL_DESYNC_DEBUG` | a time-out says what the other ranks do | 1 (torch: 0) |
//! | `TORCH_NCCL_PROPAGATE_ERROR` | the other ranks give up too | 1 (torch: 0) |
//! | `TORCH_NCCL_COORD_CHECK_MILSEC` | how often a rank writes its state and looks whether another gave up | 1000 |
//! | `TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC` | how long a report may take | 15000 |
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        }
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
        let default = Self::default();
        let number = |name: &str, default: u64, least: u64, most: u64| {
            let Some(text) = variables(name).filter(|text| !text.is_empty()) else { return Ok(default) };
            let value = text.parse().ok().filter(|value| (least..=most).contains(value));
            let problem = || format!("is '{text}', and must be a number from {least} to {most}");
            value.ok_or_else(|| Error::Variable { name: name.to_owned(), problem: problem() })
        };
        let flag = |name, default| number(name, u64::from(default), 0, 1).map(|value| value == 1);
        let day = 86_400_000;
        Ok(Self {
            blocking_wait: flag("TORCH_NCCL_BLOCKING_WAIT", default.blocking_wait)?,
            error_handling: match number("TORCH_NCCL_ASYNC_ERROR_HANDLING", 2, 0, 3)? {
                0 => ErrorHandling::NoHandling,
                2 => ErrorHandling::CleanUpOnly,
                _ => ErrorHandling::TearDown,
            },
            desync_debug: flag("TORCH_NCCL_DESYNC_DEBUG", default.desync_debug)?,
            propagate_error: flag("TORCH_NCCL_PROPAGATE_ERROR", default.propagate_error)?,
            beat: Duration::from_millis(number("TORCH_NCCL_COORD_CHECK_MILSEC", 1000, 1, day)?),
            report_time: Duration::from_millis(number("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", 15_000, 0, day)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorHandling, Settings};
    use crate::Error;

    #[test]
    fn each_variable_is_read_and_checked() {
        let with = |name: &'static str, value: &'static str| {
            Settings::from_variables(&move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(Settings::from_variables(&|_| None).unwrap(), Settings::default());
        assert!(with("TORCH_NCCL_BLOCKING_WAIT", "1").unwrap().blocking_wait);
        assert!(!with("TORCH_NCCL_DESYNC_DEBUG", "0").unwrap().desync_debug);
        assert!(!with("TORCH_NCCL_PROPAGATE_ERROR", "0").unwrap().propagate_error);
        assert_eq!(with("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "7").unwrap().report_time.as_millis(), 7);
        let handling = |value| with("TORCH_NCCL_ASYNC_ERROR_HANDLING", value).unwrap().error_handling;
        assert_eq!(handling("0"), ErrorHandling::NoHandling);
        assert_eq!((handling("1"), handling("3")), (ErrorHandling::TearDown, ErrorHandling::TearDown));
        for (name, value) in [("TORCH_NCCL_BLOCKING_WAIT", "yes"), ("TORCH_NCCL_COORD_CHECK_MILSEC", "0")] {
            assert!(matches!(with(name, value), Err(Error::Variable { name: named, .. }) if named == name));
        }
    }
}
