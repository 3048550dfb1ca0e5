//! Work on two streams: what one writes the other reads, once an event says that it is there.
//!
//! Dropping a buffer that another stream still uses is allowed: its memory is handed out again only when that stream
//! has passed the work queued until then.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use cuda_api::{DeviceBuffer, Stream, current_stream, torch};

const BYTES: usize = 1 << 20;

fn main() -> torch::Result<()> {
    let (producer, consumer) = (Stream::new(None, 0)?, Stream::new(None, 0)?);
    let result = cuda_api::with_stream(&consumer, || Ok(DeviceBuffer::new(BYTES, None)?))?;

    cuda_api::with_stream(&producer, || {
        let made = DeviceBuffer::new(BYTES, None)?;
        made.fill(.., 3, None)?;
        let there = producer.record_event()?;
        consumer.wait_event(&there)?;
        Ok(result.copy_from_buffer(0, &made, .., &consumer)?)
    })?;

    current_stream(None)?.wait_stream(&consumer)?;
    assert!(result.to_vec()?.iter().all(|byte| *byte == 3));
    println!("{BYTES} bytes went from {producer} to {consumer}");
    Ok(())
}
