//! The smallest program: memory from the caching allocator, filled on a stream and read back.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use cuda_api::{DeviceBuffer, Event, EventOptions, Stream, torch};

fn main() -> torch::Result<()> {
    println!("{} device(s), the first is a {}", cuda_api::device_count(), cuda_api::get_device_name(0)?);

    let stream = Stream::new(None, 0)?;
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    let buffer = cuda_api::with_stream(&stream, || {
        let buffer = DeviceBuffer::new(1 << 20, None)?;
        start.record(None)?;
        buffer.fill(.., 7, None)?;
        end.record(None)?;
        Ok(buffer)
    })?;
    end.synchronize()?;
    println!("filled in {} ms", start.elapsed_time(&end)?);

    assert!(buffer.to_vec()?.iter().all(|byte| *byte == 7));
    println!("{} bytes allocated, {} reserved", cuda_api::memory_allocated(None)?, cuda_api::memory_reserved(None)?);
    Ok(())
}
