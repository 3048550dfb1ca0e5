//! The other library: a program that answers the names of rows with figures.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bench::Failure;

/// A running program.
pub(crate) struct Peer {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts a program, given with its arguments.
    pub(crate) fn start(program: &str, small: bool) -> Result<Self, Failure> {
        let mut words = program.split_whitespace();
        let mut command = Command::new(words.next().ok_or("the peer has no name")?);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        if small {
            command.arg("--small");
        }
        let mut child = command.spawn()?;
        let questions = child.stdin.take().ok_or("the peer has no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("the peer has no standard output")?);
        Ok(Self { child, questions, answers })
    }

    /// The figure of a row, or not a number where the peer has none.
    pub(crate) fn figure(&mut self, row: &str) -> Result<f64, Failure> {
        writeln!(self.questions, "{row}")?;
        self.questions.flush()?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            return Err(format!("the peer ended at the row {row}").into());
        }
        Ok(answer.trim().parse().unwrap_or(f64::NAN))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A program that is gone already cannot be ended, and nothing hangs on how it ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
