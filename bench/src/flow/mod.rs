//! Streams, events and graphs beside the raw driver and beside PyTorch: `bench streams graphs [--figures FILE] [--json]`.
//!
//! What the raw driver does runs in turn with ours, in bursts after a synchronisation; PyTorch's figures are those that
//! its own program printed just before, in the file of `--figures`. On the simulated driver the figures say what the
//! runtime adds to it, and nothing about hardware.

mod graphs;
pub(crate) mod kernel;
mod report;
mod streams;

use std::io::Write as _;
use std::path::PathBuf;

use crate::figures::Figures;
use crate::raw::Failure;
use report::Row;

/// How the command is used.
const USAGE: &str = "usage: bench streams [graphs] [--cold] [--figures FILE] [--json], or bench graphs […]";

/// Whether these words are for this command.
#[must_use]
pub(crate) fn is_meant(words: &[&str]) -> bool {
    words.first().is_some_and(|word| ["streams", "graphs"].contains(word))
}

/// Runs the command; what is still to be printed.
///
/// # Errors
/// The words mean nothing; the runtime or the driver failed.
pub(crate) fn main(words: &[&str]) -> Result<String, Failure> {
    let options = Options::parse(words)?;
    let figures = options.figures.as_deref().map(Figures::read).transpose()?.unwrap_or_default();
    say(&report::head());
    let mut rows = Vec::new();
    let mut take = |row: Row| {
        let row = row.beside(&figures);
        say(&row.line());
        rows.push(row);
    };
    if options.streams {
        streams::measure(options.cold, &mut take)?;
    }
    if options.graphs {
        graphs::measure(&mut take)?;
    }
    Ok(if options.json { report::json(&rows) } else { String::new() })
}

/// Prints a line while more is measured. A reader that went away is not an error worth reporting.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[derive(Debug, Default, PartialEq)]
struct Options {
    streams: bool,
    graphs: bool,
    /// Also what takes seconds.
    cold: bool,
    json: bool,
    figures: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let flag = match *word {
                "streams" => &mut options.streams,
                "graphs" => &mut options.graphs,
                "--cold" => &mut options.cold,
                "--json" => &mut options.json,
                "--figures" if options.figures.is_none() => {
                    options.figures = Some(words.next().ok_or_else(|| format!("{word} needs a path\n{USAGE}"))?.into());
                    continue;
                }
                _ => return Err(USAGE.into()),
            };
            if std::mem::replace(flag, true) {
                return Err(USAGE.into());
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_checked() {
        let parse = |line: &str| Options::parse(&line.split_whitespace().collect::<Vec<_>>());
        let both = Options { streams: true, graphs: true, json: true, ..Options::default() };
        assert_eq!(parse("streams graphs --json").unwrap(), both);
        let figures = Options { graphs: true, cold: true, figures: Some("f".into()), ..Options::default() };
        assert_eq!(parse("graphs --figures f --cold").unwrap(), figures);
        for wrong in ["streams streams", "streams alloc", "graphs --figures", "graphs --figures a --figures b"] {
            assert!(parse(wrong).is_err_and(|error| error.to_string().contains("usage")), "{wrong}");
        }
    }
}
