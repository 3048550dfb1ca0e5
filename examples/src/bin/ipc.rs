//! Two processes use one stretch of device memory, and an event orders their work.
//!
//! The program starts itself a second time. The first process shares a buffer and an event, the second writes once the
//! event has passed and records it anew, and the first sees what was written. Memory that was shared stays with the first
//! process until the second has dropped it. Runs on any driver; ends with exit code 1 where something is not as it should
//! be.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use cuda_api::{DeviceBuffer, Event, EventOptions, SharedBuffer, Stream, ipc_collect, memory_allocated};
use examples::checks::{Failure, holds};
use examples::second::{Second, is_second, told};

const BYTES: usize = 1 << 20;

fn main() -> Result<(), Failure> {
    if is_second() { second() } else { first() }
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

    let mut other = Second::start()?;
    other.tell(&shared.to_bytes())?;
    other.tell(&event.ipc_handle()?)?;
    println!("{}", other.hear()?);
    println!("{}", other.hear()?);
    event.synchronize()?;
    holds("the second process has written 2", buffer.to_vec()?.iter().all(|byte| *byte == 2))?;
    println!("first: the event has passed, and the bytes are 2");

    drop(buffer);
    ipc_collect()?;
    holds("the memory is kept for the second process", memory_allocated(None)? == BYTES as u64)?;
    println!("first: dropped here, {} bytes are kept for the second process", memory_allocated(None)?);
    other.tell(&[])?;
    println!("{}", other.hear()?);
    ipc_collect()?;
    holds("nothing is kept any more", memory_allocated(None)? == 0)?;
    println!("first: {} bytes are kept", memory_allocated(None)?);
    other.end()
}

fn second() -> Result<(), Failure> {
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
    ipc_collect()?;
    println!("second: dropped them");
    Ok(())
}
