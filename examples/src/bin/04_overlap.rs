//! Copies and kernels on two streams at the same time, ordered by events, beside the same work on one stream.
//!
//! The data goes through in parts. While a kernel works on one part, the next is on its way to the device and the one
//! before on its way back; events say when a part is there.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use cuda_api::{DeviceBuffer, Event, EventOptions, PinnedBuffer, Stream};
use examples::checks::Failure;
use examples::kernels::Axpy;

const PARTS: usize = 8;
const ELEMENTS: usize = 4096;
const BYTES: usize = ELEMENTS * 4;

/// One part of the data on its way.
struct Part {
    input: PinnedBuffer,
    output: PinnedBuffer,
    x: DeviceBuffer,
    y: DeviceBuffer,
}

impl Part {
    fn new(index: u8) -> Result<Self, cuda_api::Error> {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(ELEMENTS).flat_map(|i| value(index, i).to_le_bytes()).collect();
        let input = PinnedBuffer::new(BYTES)?;
        input.write(0, &bytes)?;
        let output = PinnedBuffer::new(BYTES)?;
        Ok(Self { input, output, x: DeviceBuffer::new(BYTES, None)?, y: DeviceBuffer::new(BYTES, None)? })
    }

    fn upload(&self, stream: &Stream) -> Result<(), Failure> {
        Ok(self.x.copy_from_pinned(0, &self.input, 0..BYTES, stream)?)
    }

    /// Three times the input.
    fn work(&self, kernel: &Axpy, stream: &Stream) -> Result<(), Failure> {
        self.y.fill(0..BYTES, 0, stream)?;
        kernel.launch(&self.y, &self.x, 1.0, stream)?;
        kernel.launch(&self.y, &self.x, 2.0, stream)
    }

    fn download(&self, stream: &Stream) -> Result<(), Failure> {
        Ok(self.y.copy_to_pinned(0..BYTES, &self.output, 0, stream)?)
    }

    fn check(&self, index: u8) -> Result<(), Failure> {
        let bytes = self.output.to_vec()?;
        for (i, found) in (0..=u8::MAX).cycle().zip(bytes.chunks_exact(4)) {
            let wanted = 3.0 * value(index, i);
            if found != wanted.to_le_bytes() {
                return Err(format!("part {index}: {found:?} instead of {wanted}").into());
            }
        }
        self.output.write(0, &[0; BYTES])?;
        Ok(())
    }
}

fn value(index: u8, i: u8) -> f32 {
    f32::from(index) + f32::from(i) / 4.0
}

/// Everything in a row.
fn one_stream(parts: &[Part], kernel: &Axpy, stream: &Stream) -> Result<(), Failure> {
    for part in parts {
        part.upload(stream)?;
        part.work(kernel, stream)?;
        part.download(stream)?;
    }
    Ok(())
}

/// Copies on one stream, kernels on the other.
fn two_streams(parts: &[Part], kernel: &Axpy, copies: &Stream, kernels: &Stream) -> Result<(), Failure> {
    let mut before: Option<(&Part, Event)> = None;
    for part in parts {
        part.upload(copies)?;
        kernels.wait_event(&copies.record_event()?)?;
        part.work(kernel, kernels)?;
        let worked = kernels.record_event()?;
        // The part before goes back while the kernels of this one run.
        if let Some((done, worked)) = before.replace((part, worked)) {
            copies.wait_event(&worked)?;
            done.download(copies)?;
        }
    }
    if let Some((last, worked)) = before {
        copies.wait_event(&worked)?;
        last.download(copies)?;
    }
    Ok(())
}

/// Milliseconds on the device from an event before to one behind the work of a stream.
fn timed(stream: &Stream, work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    start.record(stream)?;
    work()?;
    end.record(stream)?;
    end.synchronize()?;
    Ok(start.elapsed_time(&end)?.into())
}

fn main() -> Result<(), Failure> {
    let (copies, kernels) = (Stream::new(None, 0)?, Stream::new(None, 0)?);
    let parts =
        cuda_api::with_stream(&copies, || Ok((0..).take(PARTS).map(Part::new).collect::<Result<Vec<_>, _>>()?))?;
    let kernel = Axpy::new(copies.device_index())?;
    cuda_api::synchronize(None)?;

    let check = || (0..).zip(&parts).try_for_each(|(index, part)| part.check(index));
    let in_a_row = timed(&copies, || one_stream(&parts, &kernel, &copies))?;
    check()?;
    kernels.wait_stream(&copies)?;
    let overlapped = timed(&copies, || two_streams(&parts, &kernel, &copies, &kernels))?;
    check()?;
    println!("{PARTS} parts of {BYTES} bytes: {in_a_row:.3} ms on one stream, {overlapped:.3} ms on two");
    Ok(())
}
