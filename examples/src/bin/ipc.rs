//! Two processes use one stretch of device memory, and an event orders their work.
//!
//! The program starts itself a second time. The first process shares a buffer and an event, the second writes once the
//! event has passed and records it anew, and the first sees what was written. Memory that was shared stays with the first
//! process until the second has dropped it. Runs on any driver; ends with exit code 1 where something is not as it should
//! be.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use cuda_api::{DeviceBuffer, Event, EventOptions, SharedBuffer, Stream, ipc_collect, memory_allocated};
use examples::checks::{Failure, holds};

/// Tells the second process that it is the second.
const SECOND: &str = "EXAMPLES_IPC_SECOND";

const BYTES: usize = 1 << 20;

fn main() -> Result<(), Failure> {
    if std::env::var_os(SECOND).is_some() { second() } else { first() }
}

fn first() -> Result<(), Failure> {
    println!("on {}", cuda_api::get_device_name(None)?);
    let stream = Stream::new(None, 0)?;
    let _current = cuda_api::stream(&stream)?;
    let buffer = DeviceBuffer::new(BYTES, None)?;
    buffer.fill(0..BYTES, 1, &stream)?;
    let shared = buffer.share()?;
    let event = Event::new(EventOptions { interprocess: true, ..EventOptions::default() });
    event.record(&stream)?;
    println!("first: {} bytes at {:#x}, filled with 1, are shared", shared.len(), buffer.address());

    let mut other = Other::start()?;
    other.tell(&shared.to_bytes())?;
    other.tell(&event.ipc_handle()?)?;
    other.hear()?;
    other.hear()?;
    event.synchronize()?;
    holds("the second process has written 2", buffer.to_vec()?.iter().all(|byte| *byte == 2))?;
    println!("first: the event has passed, and the bytes are 2");

    drop(buffer);
    ipc_collect()?;
    holds("the memory is kept for the second process", memory_allocated(None)? == BYTES as u64)?;
    println!("first: dropped here, {} bytes are kept for the second process", memory_allocated(None)?);
    other.tell(&[])?;
    other.hear()?;
    ipc_collect()?;
    holds("nothing is kept any more", memory_allocated(None)? == 0)?;
    println!("first: {} bytes are kept", memory_allocated(None)?);
    other.end()
}

fn second() -> Result<(), Failure> {
    let mut lines = std::io::stdin().lines();
    let mut told = || from_digits(&lines.next().ok_or("the first process has ended")??);
    let stream = Stream::new(None, 0)?;
    let _current = cuda_api::stream(&stream)?;
    let buffer = DeviceBuffer::open_shared(&SharedBuffer::from_bytes(&told()?)?)?;
    let event = Event::from_ipc_handle(None, &told()?)?;
    holds("the first process has written 1", buffer.to_vec()?.iter().all(|byte| *byte == 1))?;
    println!("second: the same bytes are at {:#x}, and they are 1", buffer.address());
    event.wait(&stream)?;
    buffer.fill(0..BYTES, 2, &stream)?;
    event.record(&stream)?;
    println!("second: filling them with 2 is queued, and the event behind it");
    told()?;
    drop(buffer);
    stream.synchronize()?;
    println!("second: dropped them");
    Ok(())
}

/// The second process.
struct Other {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start() -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.env(SECOND, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output of the second process")?;
        Ok(Self { child, lines: BufReader::new(output).lines() })
    }

    fn tell(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let input = self.child.stdin.as_mut().ok_or("no input of the second process")?;
        writeln!(input, "{digits}")?;
        Ok(())
    }

    /// Shows what the second process says next.
    fn hear(&mut self) -> Result<(), Failure> {
        println!("{}", self.lines.next().ok_or("the second process has ended")??);
        Ok(())
    }

    fn end(mut self) -> Result<(), Failure> {
        holds("the second process ends well", self.child.wait()?.success())
    }
}

fn from_digits(digits: &str) -> Result<Vec<u8>, Failure> {
    let byte = |at: usize| digits.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| format!("{digits:?} are no bytes").into())
}
