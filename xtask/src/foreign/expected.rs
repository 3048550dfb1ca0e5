//! What is expected of each test of others: `tests/foreign/expected.txt`, read and compared.
//!
//! A line is `SUITE TEST OUTCOME`, and after a colon the cause of anything but `passed`. The outcomes are `passed`,
//! `failed`, `skipped` (never run), `slow` (passes, run with `--slow` alone) and `needs=FILE` (passes, run where that
//! file is).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::shell::Result;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// It had not ended when its time was over.
    Endless,
}

impl Verdict {
    /// Without the way in which a test failed, which is not what is compared.
    pub(super) fn plain(self) -> Self {
        if self == Self::Endless { Self::Failed } else { self }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::Endless => "FAILED (no end)",
        })
    }
}

/// The outcomes of one suite, by the name of the test.
pub(super) type Outcomes = BTreeMap<String, Expected>;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    outcome: Outcome,
    pub(super) cause: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
    Slow,
    Needs(PathBuf),
}

impl Expected {
    /// How the test ends where it runs.
    pub(super) fn verdict(&self) -> Verdict {
        if self.outcome == Outcome::Failed { Verdict::Failed } else { Verdict::Passed }
    }

    /// Why the test does not run, if it does not.
    pub(super) fn skipped(&self, slow: bool) -> Option<&str> {
        let skipped = match &self.outcome {
            Outcome::Passed | Outcome::Failed => false,
            Outcome::Skipped => true,
            Outcome::Slow => !slow,
            Outcome::Needs(file) => !Path::new(file).exists(),
        };
        skipped.then_some(self.cause.as_str())
    }
}

/// Reads the file; the outcomes by the name of the suite.
///
/// # Errors
/// A line that is not of the form above, or a test that stands there twice.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, Outcomes>> {
    let mut suites: BTreeMap<String, Outcomes> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (suite, test, expected) = parse_line(line).ok_or_else(|| format!("`{line}` is no expected outcome"))?;
        if suites.entry(suite.to_owned()).or_default().insert(test.to_owned(), expected).is_some() {
            return Err(format!("`{suite} {test}` stands there twice"));
        }
    }
    Ok(suites)
}

fn parse_line(line: &str) -> Option<(&str, &str, Expected)> {
    let (words, cause) = line.split_once(": ").unwrap_or((line, ""));
    let [suite, test, outcome] = words.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let outcome = match outcome {
        "passed" => Outcome::Passed,
        "failed" => Outcome::Failed,
        "skipped" => Outcome::Skipped,
        "slow" => Outcome::Slow,
        needs => Outcome::Needs(needs.strip_prefix("needs=")?.into()),
    };
    // Only what passes needs no cause, and it has none.
    let stands = (outcome == Outcome::Passed) == cause.is_empty();
    stands.then(|| (suite, test, Expected { outcome, cause: cause.to_owned() }))
}

/// Tests that are expected of a suite and that it does not have.
pub(super) fn absent(suite: &str, expected: &Outcomes, tests: &[String]) -> Vec<String> {
    let lost = expected.keys().filter(|name| !tests.contains(name));
    lost.map(|name| format!("{suite} {name}: there is no such test")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Expected> {
        Ok(parse(line)?["a"]["b::c"].clone())
    }

    #[test]
    fn what_runs_follows_from_the_outcome() {
        let runs = |line: &str, slow| one(line).unwrap().skipped(slow).is_none();
        assert!(runs("a b::c passed", false) && runs("a b::c failed: why", false));
        assert!(!runs("a b::c skipped: why", true));
        assert!(!runs("a b::c slow: why", false) && runs("a b::c slow: why", true));
        assert!(runs("a b::c needs=/: why", false) && !runs("a b::c needs=/nowhere/at/all: why", true));
    }

    #[test]
    fn only_failed_tests_are_expected_to_fail() {
        for (line, verdict) in
            [("passed", Verdict::Passed), ("slow: w", Verdict::Passed), ("failed: w", Verdict::Failed)]
        {
            assert_eq!(one(&format!("a b::c {line}")).unwrap().verdict(), verdict);
        }
        assert_eq!(Verdict::Endless.plain(), Verdict::Failed);
    }

    #[test]
    fn lines_that_say_something_else_are_refused() {
        for line in ["a b::c", "a b::c maybe", "a b::c passed: why", "a b::c failed", "a b::c slow", "a b c passed"] {
            assert!(one(line).is_err(), "{line}");
        }
        assert!(parse("a b passed\na b passed").is_err());
        assert_eq!(parse("# only a remark\n\n"), Ok(BTreeMap::new()));
    }

    #[test]
    fn a_test_that_went_away_is_a_difference() {
        let expected = parse("a b passed\na c passed").unwrap().remove("a").unwrap();
        assert_eq!(absent("a", &expected, &["b".to_owned()]), ["a c: there is no such test"]);
    }
}
