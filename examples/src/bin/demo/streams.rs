//! Two streams that hand data to each other, ordered by events and by nothing else.
//!
//! One stream uploads pieces of a buffer, the other passes each piece on and brings it back once its event says that it
//! has arrived. A forgotten wait would bring back what the memory held before.

use cuda_api::{DeviceBuffer, Event, EventOptions, PinnedBuffer, Stream};
use examples::checks::{Failure, bytes, holds};

use crate::say;

/// Size of the data.
const BYTES: usize = 16 << 20;

/// How many pieces it travels in.
const PIECES: usize = 16;

/// Moves the data there and back, and looks at every byte.
pub(crate) fn run() -> Result<(), Failure> {
    let (upload, download) = (Stream::new(None, 0)?, Stream::new(None, 0)?);
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    let (source, target) = (PinnedBuffer::new(BYTES)?, PinnedBuffer::new(BYTES)?);
    let (arrived, passed_on) = (DeviceBuffer::new(BYTES, None)?, DeviceBuffer::new(BYTES, None)?);
    // The buffers belong to the current stream: the others begin when it is done with what they were before.
    upload.wait_stream(&cuda_api::current_stream(None)?)?;
    let data: Vec<u8> = (0..BYTES).map(byte_at).collect();
    source.write(0, &data)?;
    start.record(&upload)?;
    for piece in 0..PIECES {
        let range = piece * (BYTES / PIECES)..(piece + 1) * (BYTES / PIECES);
        arrived.copy_from_pinned(range.start, &source, range.clone(), &upload)?;
        download.wait_event(&upload.record_event()?)?;
        passed_on.copy_from_buffer(range.start, &arrived, range.clone(), &download)?;
        passed_on.copy_to_pinned(range.clone(), &target, range.start, &download)?;
    }
    end.record(&download)?;
    end.synchronize()?;
    let milliseconds = start.elapsed_time(&end)?;
    holds("both streams are done when the last event is", upload.query()? && download.query()?)?;
    holds(format!("{milliseconds} ms passed between the events"), milliseconds > 0.0)?;
    compare(&data, &target.to_vec()?)?;
    say(format!(
        "  {} there and back in {PIECES} pieces: {milliseconds:.3} ms by the device's clock",
        bytes(BYTES as u64)
    ));
    say(format!("  on {upload} and {download}; all bytes as expected"));
    Ok(())
}

/// A pattern without a short period, so that a piece in the wrong place is noticed.
fn byte_at(index: usize) -> u8 {
    (index.wrapping_mul(0x9e37_79b1) >> 16).to_le_bytes()[0]
}

fn compare(expected: &[u8], got: &[u8]) -> Result<(), Failure> {
    match expected.iter().zip(got).position(|(expected, got)| expected != got) {
        Some(at) => Err(format!("byte {at}: expected {}, got {}", expected[at], got[at]).into()),
        None => holds(format!("{} bytes came back", got.len()), got.len() == expected.len()),
    }
}
