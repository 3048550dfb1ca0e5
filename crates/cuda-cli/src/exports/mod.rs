//! The processes that export their figures: finding them and reading them.
//!
//! **Invariants:** nothing that such a process says is trusted. It is waited for at most [`PATIENCE`], all of them together
//! at most [`PATIENCE_WITH_ALL`]. Whose figures they are is told by the system, not by the process.

mod fault;
mod figures;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use cuda_api::ExportedFigures;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

pub(crate) use fault::Fault;
pub(crate) use figures::{Figure, Figures};

/// How long a process may take to tell its figures.
const PATIENCE: Duration = Duration::from_millis(300);

/// How long all processes may take together.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(2);

/// A process that exports its figures, and what it told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exporter {
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) figures: Result<Figures, Fault>,
}

/// Reads the figures of all processes of this user that export them, by their numbers.
///
/// # Errors
/// The folder of exports cannot be used.
pub(crate) fn read_all() -> cuda_api::Result<Vec<Exporter>> {
    let end = Instant::now() + PATIENCE_WITH_ALL;
    Ok(cuda_api::figure_exports()?.iter().map(|exported| read(exported, end)).collect())
}

/// Reads the figures of one process.
fn read(exported: &ExportedFigures, end: Instant) -> Exporter {
    let pid = exported.pid;
    let end = end.min(Instant::now() + PATIENCE);
    let figures = if exported.is_alive { ask(&exported.socket, pid, end) } else { Err(Fault::Ended) };
    Exporter { pid, program: program(pid).unwrap_or_else(|| "?".to_owned()), figures }
}

/// The name of a program, as the system knows it.
pub(crate) fn program(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| printable(name.trim_end()))
}

/// A name that others chose, without what a terminal would obey, and not too long.
pub(crate) fn printable(name: &str) -> String {
    printable_long(name).chars().take(128).collect()
}

/// A text that others chose, without what a terminal would obey.
pub(crate) fn printable_long(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { '?' } else { sign }).collect()
}

fn ask(socket: &Path, pid: u32, end: Instant) -> Result<Figures, Fault> {
    let mut stream = open(socket)?;
    let answers = sockopt::socket_peercred(&stream).map_err(|error| Fault::System(error.kind()))?;
    let answers = u32::try_from(answers.pid.as_raw_nonzero().get()).unwrap_or(0);
    if answers != pid {
        return Err(Fault::OtherProcess(answers));
    }
    let text = text(&mut stream, end)?;
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    Figures::parse(&text).map_err(Fault::Line)
}

/// Connects without waiting: a listener that takes nobody must not keep us.
fn open(socket: &Path) -> Result<UnixStream, Fault> {
    let connected = || -> io::Result<UnixStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let ours: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&ours, &SocketAddrUnix::new(socket)?)?;
        let stream = UnixStream::from(ours);
        stream.set_nonblocking(false)?;
        Ok(stream)
    };
    let is_full = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    connected().map_err(|error| if is_full(&error) { Fault::Silent } else { Fault::System(error.kind()) })
}

/// What a process says until it hangs up.
fn text(stream: &mut UnixStream, end: Instant) -> Result<String, Fault> {
    let (mut text, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::Silent);
        }
        stream.set_read_timeout(Some(left)).map_err(|error| Fault::System(error.kind()))?;
        match stream.read(&mut piece) {
            Ok(0) => return String::from_utf8(text).map_err(|_| Fault::NoText),
            Ok(count) => text.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Fault::Silent),
            Err(error) => return Err(Fault::System(error.kind())),
        }
        if text.len() > figures::TEXT_MAX {
            return Err(Fault::TooLong);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use super::*;

    fn socket(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("torch-cuda-{name}-{}.sock", std::process::id()))
    }

    /// What is read of this process where `speaks` answers.
    fn heard(name: &str, speaks: impl FnOnce(UnixStream) + Send + 'static) -> Result<Figures, Fault> {
        let socket = socket(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let speaker = thread::spawn(move || speaks(listener.accept().unwrap().0));
        let figures = ask(&socket, std::process::id(), Instant::now() + PATIENCE);
        speaker.join().unwrap();
        std::fs::remove_file(&socket).unwrap();
        figures
    }

    #[test]
    fn figures_are_read_in_any_pieces() {
        let figures = heard("pieces", |mut stream| {
            "x{device=\"0\"} 5\ny 6\n".bytes().for_each(|byte| stream.write_all(&[byte]).unwrap());
        });
        let figures = figures.unwrap();
        assert_eq!((figures.of_device("x", 0), figures.of_host("y")), (Some(5), Some(6)));
    }

    #[test]
    fn whoever_says_nonsense_too_much_or_nothing_is_named_so() {
        assert_eq!(heard("nonsense", |mut stream| stream.write_all(b"x 1\nnonsense").unwrap()), Err(Fault::Line(2)));
        assert_eq!(heard("bytes", |mut stream| stream.write_all(&[0xff, 0xfe]).unwrap()), Err(Fault::NoText));
        assert_eq!(heard("nothing", drop), Err(Fault::Empty));
        let endless = |mut stream: UnixStream| while stream.write_all(&[b'#'; 4096]).is_ok() {};
        assert_eq!(heard("endless", endless), Err(Fault::TooLong));
    }

    #[test]
    fn whoever_does_not_speak_is_not_waited_for() {
        let begin = Instant::now();
        let slow = |mut stream: UnixStream| {
            while stream.write_all(b"#").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        };
        assert_eq!(heard("slow", slow), Err(Fault::Silent));
        // Nobody accepts, and the queue is full: even connecting would wait.
        let socket = socket("full");
        let _listener = UnixListener::bind(&socket).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| open(&socket).ok()).take(10_000).collect();
        assert_eq!(open(&socket).err(), Some(Fault::Silent), "after {} that wait", waiting.len());
        drop(waiting);
        std::fs::remove_file(&socket).unwrap();
        assert!(begin.elapsed() < 20 * PATIENCE, "{:?}", begin.elapsed());
    }

    #[test]
    fn figures_are_those_of_the_process_that_answers() {
        let socket = socket("other");
        let _listener = UnixListener::bind(&socket).unwrap();
        let refused = ask(&socket, 1, Instant::now() + PATIENCE);
        assert_eq!(refused, Err(Fault::OtherProcess(std::process::id())));
        std::fs::remove_file(&socket).unwrap();
        assert_eq!(ask(&socket, 1, Instant::now() + PATIENCE), Err(Fault::System(io::ErrorKind::NotFound)));
    }

    #[test]
    fn texts_of_others_cannot_drive_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a?[2Jb?");
        assert_eq!(printable(&"x".repeat(1000)).len(), 128);
    }
}
