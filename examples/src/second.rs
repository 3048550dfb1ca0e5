//! A program that starts itself once more, and what the two processes say to each other: lines of hexadecimal digits to the
//! second one, and lines that people read back.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::checks::{Failure, holds};

/// Tells the second process that it is the second.
const SECOND: &str = "EXAMPLES_SECOND";

/// Whether this is the second process.
#[must_use]
pub fn is_second() -> bool {
    std::env::var_os(SECOND).is_some()
}

/// The second process, as the first one has it.
#[derive(Debug)]
pub struct Second {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Second {
    /// Starts this program once more.
    ///
    /// # Errors
    /// The system does not start it.
    pub fn start() -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.env(SECOND, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output of the second process")?;
        Ok(Self { child, lines: BufReader::new(output).lines() })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The second process has ended.
    pub fn tell(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let input = self.child.stdin.as_mut().ok_or("no input of the second process")?;
        writeln!(input, "{digits}")?;
        Ok(())
    }

    /// What the second process says next.
    ///
    /// # Errors
    /// It has ended.
    pub fn hear(&mut self) -> Result<String, Failure> {
        Ok(self.lines.next().ok_or("the second process has ended")??)
    }

    /// Kills it.
    ///
    /// # Errors
    /// It has ended before.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// It has failed.
    pub fn end(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        holds("the second process ends well", self.child.wait()?.success())
    }
}

/// The bytes that the second process is told next.
///
/// # Errors
/// The first process has ended, or has sent something else.
pub fn told() -> Result<Vec<u8>, Failure> {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        return Err("the first process has ended".into());
    }
    let digits = line.trim_end();
    let byte = |at: usize| digits.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| format!("{digits:?} are no bytes").into())
}
