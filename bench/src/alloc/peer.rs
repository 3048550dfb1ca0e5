//! Another allocator in a process of its own, which measures what it is told to: the harness of `--peer`.
//!
//! It reads commands from its standard input, one a line, and answers `bench KIND ARGUMENT THREADS OPS` by one line:
//! `bench KIND ARGUMENT threads THREADS ns FIGURE`, or for a latency
//! `bench latency ARGUMENT p50 FIGURE p99 FIGURE p99.9 FIGURE` and any words behind. `e` empties its cache and is not
//! answered.
//!
//! **Invariants:** one process lives as long as the [`Peer`] and sleeps between commands; whatever it does or leaves
//! undone ends in an answer or a [`PeerError`] within [`PATIENCE`].

use std::fmt;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::alloc::case::QUANTILES;

/// How long an answer may take; what is asked takes well below a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a process may take to end after it closed its output.
const END: Duration = Duration::from_secs(2);

/// A longer line is no answer.
const LINE_BYTES: u64 = 4096;

/// Lines that are kept of what the harness complains about.
const COMPLAINTS: usize = 20;

/// Why the peer cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// The program cannot be started.
    #[error("cannot start the harness `{path}`: {source}; `--peer` takes the path of the harness program itself")]
    Start {
        /// What was to be started.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It ended, or closed its output, instead of answering.
    #[error("the harness `{path}` ended instead of answering `{command}`: {how}{complaints}")]
    Ended {
        /// The program.
        path: String,
        /// What it was asked.
        command: String,
        /// Its exit status.
        how: String,
        /// What it wrote to its error output.
        complaints: String,
    },
    /// It did not answer in time.
    #[error("the harness `{path}` did not answer `{command}` within {patience:?}; does it speak the protocol?")]
    Silent {
        /// The program.
        path: String,
        /// What it was asked.
        command: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// It answered, but with a failure of its own.
    #[error("the harness `{path}` could not do `{command}`: {failure}")]
    Failed {
        /// The program.
        path: String,
        /// What it was asked.
        command: String,
        /// Its words.
        failure: String,
    },
    /// It answered something else.
    #[error("the harness `{path}` answered `{answer}` to `{command}`; expected `{expected}`")]
    Answer {
        /// The program.
        path: String,
        /// What it was asked.
        command: String,
        /// What it said.
        answer: String,
        /// What it should have said.
        expected: String,
    },
}

/// What a harness is asked to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// What to do.
    pub(crate) kind: &'static str,
    /// With how many bytes or blocks.
    pub(crate) argument: u64,
    /// On how many threads.
    pub(crate) threads: usize,
}

/// The kind whose answer differs.
const LATENCY: &str = "latency";

impl Request {
    /// The command, without its end of line.
    #[must_use]
    pub(crate) fn command(&self, ops: usize) -> String {
        let Self { kind, argument, threads } = self;
        format!("bench {kind} {argument} {threads} {ops}")
    }

    fn expected(&self) -> String {
        let Self { kind, argument, threads } = self;
        match *kind {
            LATENCY => format!("bench {kind} {argument} p50 FIGURE p99 FIGURE p99.9 FIGURE"),
            _ => format!("bench {kind} {argument} threads {threads} ns FIGURE"),
        }
    }

    /// The figures of an answer: one, or one for each quantile of a latency. `None` for anything but an answer to this.
    #[must_use]
    pub(crate) fn parse(&self, answer: &str) -> Option<Vec<f64>> {
        let mut words = answer.split_whitespace();
        let mut is_next = |expected: &str| words.next() == Some(expected);
        if !(is_next("bench") && is_next(self.kind) && is_next(&self.argument.to_string())) {
            return None;
        }
        if self.kind == LATENCY {
            return QUANTILES.iter().map(|name| figure(name, words.next()?, words.next()?)).collect();
        }
        if !(is_next("threads") && is_next(&self.threads.to_string())) {
            return None;
        }
        let figures = vec![figure("ns", words.next()?, words.next()?)?];
        words.next().is_none().then_some(figures)
    }
}

fn figure(expected: &str, name: &str, text: &str) -> Option<f64> {
    let figure: f64 = text.parse().ok()?;
    (name == expected && figure.is_finite() && figure > 0.0).then_some(figure)
}

/// A harness that runs.
pub(crate) struct Peer {
    path: String,
    patience: Duration,
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    complaints: Receiver<String>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("path", &self.path).field("process", &self.child.id()).finish_non_exhaustive()
    }
}

impl Peer {
    /// Starts a harness and has it answer once.
    ///
    /// # Errors
    /// It cannot be started, or is no harness.
    pub(crate) fn start(path: &Path) -> Result<Self, PeerError> {
        Self::start_patiently(path, PATIENCE)
    }

    fn start_patiently(path: &Path, patience: Duration) -> Result<Self, PeerError> {
        let name = path.display().to_string();
        let refuse = |source| PeerError::Start { path: name.clone(), source };
        let mut command = Command::new(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(refuse)?;
        let (Some(commands), Some(answers), Some(complaints)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(refuse(std::io::ErrorKind::BrokenPipe.into()));
        };
        let mut peer = Self {
            path: name,
            patience,
            child,
            commands,
            answers: lines(answers, |answers, line| answers.send(line).is_ok()),
            // What nobody waits for must not keep the harness from writing on.
            complaints: lines(complaints, |complaints, line| {
                let _ = complaints.try_send(line);
                true
            }),
        };
        peer.bench(&Request { kind: "stats", argument: 0, threads: 1 }, 100)?;
        Ok(peer)
    }

    /// Has the harness measure something; waits for its answer.
    ///
    /// # Errors
    /// It ended, does not answer, or answers something else.
    pub(crate) fn bench(&mut self, request: &Request, ops: usize) -> Result<Vec<f64>, PeerError> {
        let command = request.command(ops);
        if self.write(&command).is_err() {
            return Err(self.ended(command));
        }
        let (path, patience) = (self.path.clone(), self.patience);
        let answer = match self.answers.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Err(PeerError::Silent { path, command, patience }),
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended(command)),
        };
        if answer.starts_with("ERR") || answer.starts_with("EXC") {
            return Err(PeerError::Failed { path, command, failure: answer });
        }
        let figures = request.parse(&answer);
        figures.ok_or_else(|| PeerError::Answer { path, command, answer, expected: request.expected() })
    }

    /// Has the harness give its cached memory back, so that each row begins with an empty cache.
    ///
    /// # Errors
    /// It ended.
    pub(crate) fn empty_cache(&mut self) -> Result<(), PeerError> {
        self.write("e").map_err(|_| self.ended("e".to_owned()))
    }

    fn write(&mut self, command: &str) -> std::io::Result<()> {
        self.commands.write_all(format!("{command}\n").as_bytes())?;
        self.commands.flush()
    }

    /// Finds out how the process ended that closed a pipe.
    fn ended(&mut self, command: String) -> PeerError {
        let how = match self.wait(END) {
            Some(status) => status.to_string(),
            None => "it closed its output and runs on".to_owned(),
        };
        let mut complaints = String::new();
        while let Ok(line) = self.complaints.recv_timeout(END / 4) {
            complaints = complaints + "\n  " + &line;
        }
        PeerError::Ended { path: self.path.clone(), command, how, complaints }
    }

    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let begin = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if begin.elapsed() < patience => thread::sleep(Duration::from_millis(10)),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It holds nothing that must be saved. Failures: it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines on a thread, until the end of the stream or until `pass_on` says that nobody listens any more.
fn lines(
    stream: impl Read + Send + 'static,
    pass_on: impl Fn(&SyncSender<String>, String) -> bool + Send + 'static,
) -> Receiver<String> {
    let (sender, receiver) = sync_channel(COMPLAINTS);
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            match stream.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if !pass_on(&sender, String::from_utf8_lossy(&line).trim_end().to_owned()) {
                break;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Request = Request { kind: "pair", argument: 65536, threads: 16 };
    const LATENCIES: Request = Request { kind: LATENCY, argument: 512, threads: 1 };

    #[test]
    fn a_command_has_all_its_words() {
        assert_eq!(PAIR.command(300), "bench pair 65536 16 300");
    }

    #[test]
    fn answers_are_read() {
        for (text, ns) in [("1005.66", 1005.66), ("3", 3.0), ("1.23457e+06", 1_234_570.0)] {
            assert_eq!(PAIR.parse(&format!("bench pair 65536 threads 16 ns {text}")), Some(vec![ns]));
        }
        let answer = "bench latency 512 p50 161 p99 271.5 p99.9 361 (one clock read included)";
        assert_eq!(LATENCIES.parse(answer), Some(vec![161.0, 271.5, 361.0]));
    }

    #[test]
    fn anything_else_is_no_answer() {
        for text in [
            "",
            "?? bench",
            "bench pair 65536 16 300",
            "bench pair 65536 threads 16 ns",
            "bench pair 65536 threads 16 ns fast",
            "bench pair 65536 threads 16 ns nan",
            "bench pair 65536 threads 16 ns -3",
            "bench pair 65536 threads 16 ns 3 4",
            "bench pair 65536 threads 8 ns 3",
            "bench pair 512 threads 16 ns 3",
            "bench replace 65536 threads 16 ns 3",
        ] {
            assert_eq!(PAIR.parse(text), None, "{text}");
        }
        for text in ["bench latency 512 p50 1 p99 2", "bench latency 512 p50 1 p90 2 p99.9 3", "bench latency 512 ns 1"]
        {
            assert_eq!(LATENCIES.parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_without_a_program_is_said() {
        let error = Peer::start(Path::new("/there/is/no/harness")).unwrap_err();
        assert!(matches!(error, PeerError::Start { .. }), "{error}");
        assert!(error.to_string().contains("/there/is/no/harness"), "{error}");
    }

    /// A program of one line of shell, in a folder of its own.
    fn program(name: &str, script: &str) -> std::path::PathBuf {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = std::env::temp_dir().join(format!("peer-{}-{name}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o700).open(&path).unwrap();
        file.write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        path
    }

    fn is_busy(error: &PeerError) -> bool {
        matches!(error, PeerError::Start { source, .. } if source.kind() == std::io::ErrorKind::ExecutableFileBusy)
    }

    fn start(name: &str, script: &str) -> Result<Peer, PeerError> {
        start_patiently(name, script, PATIENCE)
    }

    fn start_patiently(name: &str, script: &str, patience: Duration) -> Result<Peer, PeerError> {
        let path = program(name, script);
        let mut started = Peer::start_patiently(&path, patience);
        // Another test may have forked while the file was open for writing, which forbids running it for a moment.
        while started.as_ref().is_err_and(is_busy) {
            thread::sleep(Duration::from_millis(10));
            started = Peer::start_patiently(&path, patience);
        }
        std::fs::remove_file(path).unwrap();
        started
    }

    #[test]
    fn a_program_that_speaks_otherwise_is_refused() {
        let error = start("nonsense", "while read line; do echo \"hello $line\"; done").unwrap_err();
        assert!(matches!(&error, PeerError::Answer { answer, .. } if answer == "hello bench stats 0 1 100"), "{error}");
        let error = start("endless", "tr '\\0' x < /dev/zero").unwrap_err();
        assert!(matches!(&error, PeerError::Answer { .. }), "{error}");
        let error = start("failing", "read line; echo ERR no device; cat").unwrap_err();
        assert!(matches!(&error, PeerError::Failed { failure, .. } if failure == "ERR no device"), "{error}");
    }

    #[test]
    fn a_program_that_ends_is_said_with_its_last_words() {
        let error = start("exits", "echo 'libthing.so: not found' >&2; exit 7").unwrap_err();
        assert!(matches!(error, PeerError::Ended { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("libthing.so: not found") && text.contains('7'), "{text}");
        let error = start("closes", "exec >&-; exec sleep 60").unwrap_err();
        assert!(error.to_string().contains("closed its output"), "{error}");
    }

    #[test]
    fn a_program_that_says_nothing_is_given_up() {
        let begin = Instant::now();
        let error = start_patiently("silent", "exec sleep 60", Duration::from_millis(200)).unwrap_err();
        assert!(matches!(error, PeerError::Silent { .. }), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_harness_that_ends_later_is_said_too() {
        let script = "read line; echo bench stats 0 threads 1 ns 5; read line; exit 3";
        let mut peer = start("later", script).unwrap();
        let error = peer.bench(&PAIR, 10).unwrap_err();
        assert!(matches!(&error, PeerError::Ended { command, .. } if command == "bench pair 65536 16 10"), "{error}");
        assert!(peer.empty_cache().is_err());
    }

    #[test]
    fn a_harness_is_asked_and_answers() {
        let script = "while read word kind arg threads ops; do
            [ $word = bench ] && echo bench $kind $arg threads $threads ns 12.5
        done";
        let mut peer = start("answers", script).unwrap();
        peer.empty_cache().unwrap();
        assert_eq!(peer.bench(&PAIR, 10).unwrap(), [12.5]);
    }
}
