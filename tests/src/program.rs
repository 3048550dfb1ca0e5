//! What programs that check something have in common: what they print, and how they end.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

/// Prints a line. A reader that went away is no error worth reporting.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// How a program ends whose `outcome` says whether all was right; an error is printed.
pub fn ended(outcome: Result<bool, impl Display>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// As [`ended`], with success where the error says that what is checked is not installed.
pub fn ended_unless_missing<E: Display>(outcome: Result<bool, E>, is_missing: impl FnOnce(&E) -> bool) -> ExitCode {
    match outcome {
        Err(error) if is_missing(&error) => {
            say(&format!("nothing to check: {error}"));
            ExitCode::SUCCESS
        }
        outcome => ended(outcome),
    }
}
