//! A second process of a test, which is the test program once more, running one of its tests under a role.
//!
//! The two talk by lines: the first one tells bytes as hexadecimal digits, the other says texts. Since the test framework
//! writes lines too, those that are meant begin with `=`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Names the role that a process was started for.
const ROLE: &str = "TESTKIT_ROLE";

/// Another process, which is the calling test program running one of its tests.
///
/// Who drops it without [`end`](Self::end) or [`kill`](Self::kill) closes what it reads from and lets it go on alone.
///
/// ```no_run
/// use testkit::process::{Other, role, say, told};
///
/// // The body of the test `the_other_process`, which does nothing when it runs as a test like others.
/// if role().as_deref() == Some("counter") {
///     say(&told().len().to_string());
/// }
///
/// // The body of another test.
/// let mut other = Other::start("the_other_process", "counter", &[]);
/// other.tell(&[7, 8, 9]);
/// assert_eq!(other.hear(), "3");
/// other.end();
/// ```
#[derive(Debug)]
pub struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Other {
    /// Starts the program again for `test`, which is its name with its modules as `cargo test` prints it; there [`role`] is
    /// `role`, and these environment variables are set too.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn start(test: &str, role: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--exact", test, "--nocapture"]).env(ROLE, role).envs(variables.iter().copied());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program starts again");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, to, from: BufReader::new(from) }
    }

    /// Sends bytes, which [`told`] returns there.
    ///
    /// # Panics
    /// The other process has ended.
    pub fn tell(&mut self, bytes: &[u8]) {
        writeln!(self.to, "{}", hexadecimal(bytes)).expect("the other process reads");
    }

    /// Waits for the next text that the other process [says](say).
    ///
    /// # Panics
    /// The other process has ended without a further text.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.from.read_line(&mut line).expect("the other process writes text") > 0 {
            if let Some((_, text)) = line.trim_end().split_once('=') {
                return text.to_owned();
            }
            line.clear();
        }
        panic!("the other process has ended: {:?}", self.child.wait());
    }

    /// Waits for the next bytes that the other process [says](say_bytes).
    ///
    /// # Panics
    /// As [`Self::hear`], and what was said are no bytes.
    pub fn hear_bytes(&mut self) -> Vec<u8> {
        bytes_of(&self.hear())
    }

    /// Kills the other process, and returns when it is gone.
    ///
    /// # Panics
    /// The system refuses it.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Tells the other process that nothing more comes, and waits for its end.
    ///
    /// # Panics
    /// Its test failed.
    pub fn end(self) {
        let Self { mut child, to, from: _from } = self;
        drop(to);
        let status = child.wait().expect("it ends");
        assert!(status.success(), "the other process: {status}");
    }
}

/// The role that this process was started for; none in a process that nobody started by [`Other::start`].
#[must_use]
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Waits for the next bytes that this process is [told](Other::tell); none when nothing more comes.
///
/// # Panics
/// Something else than bytes was written to this process.
pub fn told() -> Vec<u8> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a text can be read");
    bytes_of(line.trim_end())
}

/// Says a text of one line to the process that started this one, which [hears](Other::hear) it.
#[expect(clippy::print_stdout, reason = "the way to the other process")]
pub fn say(text: &str) {
    println!("={text}");
}

/// Says bytes to the process that started this one, which [hears](Other::hear_bytes) them.
pub fn say_bytes(bytes: &[u8]) {
    say(&hexadecimal(bytes));
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes = digits.as_bytes().chunks(2).map(byte).collect::<Option<_>>();
    bytes.unwrap_or_else(|| panic!("not bytes: {digits}"))
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    const TEST: &str = "process::tests::the_other_process";

    #[test]
    fn the_other_process() {
        match role().as_deref() {
            Some("echo") => {
                say_bytes(&told());
                say(&told().is_empty().to_string());
                told();
            }
            Some("failing") => panic!("as it was asked to"),
            _ => {}
        }
    }

    #[test]
    fn bytes_go_there_and_back() {
        let mut other = Other::start(TEST, "echo", &[]);
        other.tell(&[0, 1, 0xFF]);
        assert_eq!(other.hear_bytes(), [0, 1, 0xFF]);
        other.tell(&[]);
        assert_eq!(other.hear(), "true");
        other.end();
    }

    #[test]
    fn a_process_that_is_killed_says_nothing_more() {
        let mut other = Other::start(TEST, "echo", &[]);
        other.kill();
        assert!(catch_unwind(move || other.hear()).is_err());
    }

    #[test]
    fn a_failure_there_is_one_here() {
        let other = Other::start(TEST, "failing", &[]);
        assert!(catch_unwind(move || other.end()).is_err());
    }
}
