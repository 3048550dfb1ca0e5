//! The journal: which candidate is being tried, so that the next run leaves out one that took its process along.
//!
//! ```text
//! Trying,4711,GemmTunableOp_Half_NN,nn_64_48_32_ld_64_32_64,Lt_12
//! Done,4711,GemmTunableOp_Half_NN,nn_64_48_32_ld_64_32_64,Lt_12
//! ```
//!
//! A line is written before a candidate is first tried, with the number of the process, and one behind it afterwards. What
//! was begun and not done, by a process that is no more, is left out from then on, until the file is deleted. The file is
//! removed when nothing is left in it.
//!
//! **Invariants:** lines of processes that still run are kept. A journal that cannot be read or written costs no result:
//! it is told, and tuning goes on without.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::file;
use crate::base::tune_error::TuneError;

/// The operation's signature, that of its parameters, and the candidate's name.
pub(super) type Trial = (String, String, String);

/// The journal of one device.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    process: u32,
    /// What is left out.
    lost: HashSet<Trial>,
    /// What of other processes stands in the file.
    others: bool,
}

impl Journal {
    /// The journal in a file, which may not be there.
    ///
    /// # Errors
    /// The file cannot be read, or is no journal.
    pub(super) fn open(path: PathBuf) -> Result<Self, TuneError> {
        let mut journal = Self::empty(path);
        let Some(bytes) = file::read_bytes(&journal.path)? else { return Ok(journal) };
        let lines = file::lines(&bytes).map_err(|cause| file::rejected(&journal.path, cause))?;
        for (process, trial) in open_trials(&lines) {
            if process == journal.process || !is_running(process) {
                journal.lost.insert(trial);
            } else {
                journal.others = true;
            }
        }
        Ok(journal)
    }

    /// A journal that knows nothing yet.
    pub(super) fn empty(path: PathBuf) -> Self {
        Self { path, process: std::process::id(), lost: HashSet::new(), others: false }
    }

    /// Whether a candidate took a process along.
    pub(super) fn is_lost(&self, trial: &Trial) -> bool {
        self.lost.contains(trial)
    }

    /// Writes down that a candidate is tried now.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn begin(&self, trial: &Trial) -> Result<(), TuneError> {
        self.write("Trying", trial)
    }

    /// Writes down that the candidate did no harm.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn end(&self, trial: &Trial) -> Result<(), TuneError> {
        self.write("Done", trial)
    }

    /// Notes that the candidate destroyed its context, in this process: the line in the file stays.
    pub(super) fn lose(&mut self, trial: Trial) {
        self.lost.insert(trial);
    }

    /// Leaves in the file only what is left out, and no file where that is nothing.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub(super) fn tidy(&self) -> Result<(), TuneError> {
        if self.others {
            return Ok(());
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(file::failed("remove", &self.path, &error));
            }
            _ => {}
        }
        let mut lost: Vec<&Trial> = self.lost.iter().collect();
        lost.sort();
        lost.into_iter().try_for_each(|trial| self.line("Trying", NO_PROCESS, trial))
    }

    fn write(&self, word: &str, trial: &Trial) -> Result<(), TuneError> {
        self.line(word, self.process, trial)
    }

    fn line(&self, word: &str, process: u32, (op, params, candidate): &Trial) -> Result<(), TuneError> {
        let line = format!("{word},{process},{op},{params},{}", file::plain(candidate));
        file::append(&self.path, &Vec::new(), &line)
    }
}

/// A number that no process has.
const NO_PROCESS: u32 = 0;

/// The trials that were begun and not done, each with its process. Lines that say nothing are passed over.
fn open_trials(lines: &[(usize, &str)]) -> Vec<(u32, Trial)> {
    let mut open: Vec<(u32, Trial)> = Vec::new();
    for (_, line) in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let [word, process, op, params, candidate] = fields.as_slice() else { continue };
        let Ok(process) = process.parse() else { continue };
        let trial = (process, ((*op).to_owned(), (*params).to_owned(), (*candidate).to_owned()));
        match *word {
            "Trying" => open.push(trial),
            "Done" => open.retain(|known| *known != trial),
            _ => {}
        }
    }
    open
}

/// Whether a process of this number runs. Where that cannot be known it does not.
fn is_running(process: u32) -> bool {
    process != NO_PROCESS && Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(candidate: &str) -> Trial {
        ("GemmTunableOp_Half_NN".into(), "nn_64_48_32_ld_64_32_64".into(), candidate.into())
    }

    fn journal(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tune-{name}-{}.trying.csv", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn what_is_done_leaves_nothing() {
        let path = journal("done");
        let journal = Journal::open(path.clone()).unwrap();
        journal.begin(&trial("A")).unwrap();
        assert!(Journal::open(path.clone()).unwrap().is_lost(&trial("A")), "another run finds it");
        journal.end(&trial("A")).unwrap();
        assert!(!Journal::open(path.clone()).unwrap().is_lost(&trial("A")));
        journal.tidy().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_was_lost_stays_left_out() {
        let path = journal("lost");
        let mut journal = Journal::open(path.clone()).unwrap();
        journal.begin(&trial("A")).unwrap();
        journal.lose(trial("A"));
        drop(journal);
        let next = Journal::open(path.clone()).unwrap();
        assert!(next.is_lost(&trial("A")) && !next.is_lost(&trial("B")));
        next.begin(&trial("B")).unwrap();
        next.end(&trial("B")).unwrap();
        next.tidy().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "Trying,0,GemmTunableOp_Half_NN,nn_64_48_32_ld_64_32_64,A\n");
        assert!(Journal::open(path.clone()).unwrap().is_lost(&trial("A")));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn another_process_that_still_tries() {
        let path = journal("other");
        // The process with the number 1 always runs.
        std::fs::write(&path, "Trying,1,a,b,C\nTrying,x\nnothing\n").unwrap();
        let journal = Journal::open(path.clone()).unwrap();
        assert!(!journal.is_lost(&("a".into(), "b".into(), "C".into())));
        journal.tidy().unwrap();
        assert!(path.exists(), "its line is kept");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_journal() {
        let path = journal("none");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(Journal::open(path.clone()), Err(TuneError::Rejected { .. })));
        std::fs::remove_file(path).unwrap();
    }
}
