//! Streams, events, green contexts, and NVTX marks.

use cuda_api::{
    CUDAGraph, CaptureMode, Device, DeviceType, Event, EventOptions, ExternalStream, GreenContext, Stream,
    get_stream_from_external, nvtx,
};

use super::{Example, ones, run};

#[test]
fn streams() {
    run(STREAMS);
}

#[test]
fn streams_of_others() {
    run(EXTERNAL);
}

#[test]
fn events() {
    run(EVENTS);
}

#[test]
fn marks() {
    run(MARKS);
}

/// Returns a stream of the runtime wrapped as if another library had created it.
fn external(stream: &Stream) -> cuda_api::Result<ExternalStream> {
    // SAFETY: each example keeps the stream to its end.
    unsafe { ExternalStream::new(stream.cuda_stream(), 0, 0) }
}

const STREAMS: &[Example] = &[
    ("torch.cuda.Stream torch.cuda.stream torch.cuda.StreamContext", || {
        let side = Stream::new(None, 0)?;
        let inside = {
            let _side = cuda_api::stream(&side)?;
            ones(&[4])?.mul(2)?
        };
        let closure = cuda_api::with_stream(&side, || inside.add(1))?;
        cuda_api::current_stream(None)?.wait_stream(&side)?;
        assert_eq!(closure.to_vec::<f32>()?, [3.0; 4]);
        assert!(cuda_api::stream(None)?.is_none());
        Ok(())
    }),
    ("torch.cuda.current_stream torch.cuda.default_stream torch.cuda.set_stream", || {
        let side = Stream::new("cuda", -1)?;
        cuda_api::set_stream(&side)?;
        assert_eq!(cuda_api::current_stream(None)?, side);
        cuda_api::set_stream(cuda_api::default_stream(None)?)?;
        assert!(cuda_api::current_stream(0)?.is_default());
        Ok(())
    }),
    ("torch.cuda._set_stream_by_id Stream.stream_id Stream.device_index Stream.device_type", || {
        let side = Stream::new(None, 0)?;
        cuda_api::set_stream_by_id(side.stream_id(), side.device_index(), side.device_type())?;
        assert_eq!(cuda_api::current_stream(None)?, side);
        assert_eq!(side.device_type(), DeviceType::Cuda);
        Ok(())
    }),
    ("torch.cuda._sleep Stream.query Stream.synchronize", || {
        let side = Stream::new(None, 0)?;
        cuda_api::with_stream(&side, || Ok(cuda_api::sleep(1_000_000)?))?;
        assert!(!side.query()?);
        side.synchronize()?;
        assert!(side.query()?);
        Ok(())
    }),
    ("Stream.record_event Stream.wait_event Stream.wait_stream", || {
        let (first, second) = (Stream::new(None, 0)?, Stream::new(None, 0)?);
        let event = first.record_event()?;
        second.wait_event(&event)?;
        second.wait_stream(&first)?;
        Ok(())
    }),
    ("Stream.cuda_stream Stream.native_handle Stream.device Stream.priority Stream.priority_range", || {
        let (_least, greatest) = Stream::priority_range()?;
        let stream = Stream::new(None, greatest)?;
        assert_eq!((stream.cuda_stream(), stream.priority()?), (stream.native_handle(), greatest));
        assert_eq!(stream.device(), Device::cuda(0));
        Ok(())
    }),
    (
        "torch.cuda.GreenContext GreenContext.create GreenContext.set_context GreenContext.pop_context \
         GreenContext.Stream",
        || {
            let context: GreenContext = GreenContext::create(8, 0)?;
            context.set_context()?;
            let inside = ones(&[4]);
            context.pop_context()?;
            let stream = context.stream()?;
            stream.wait_stream(&cuda_api::current_stream(None)?)?;
            let sum = cuda_api::with_stream(&stream, || inside?.add(1))?;
            assert_eq!(sum.to_vec::<f32>()?, [2.0; 4]);
            Ok(())
        },
    ),
];

const EXTERNAL: &[Example] = &[
    ("torch.cuda.ExternalStream torch.cuda.get_stream_from_external ExternalStream.cuda_stream", || {
        let own = Stream::new(None, 0)?;
        let stream = external(&own)?;
        // SAFETY: the stream lives to the end of this example.
        let same = unsafe { get_stream_from_external(own.cuda_stream(), "cuda:0") }?;
        assert_eq!((stream.cuda_stream(), same.cuda_stream()), (own.cuda_stream(), own.cuda_stream()));
        let sum = cuda_api::with_stream(&same, || ones(&[4])?.add(1))?;
        same.synchronize()?;
        assert_eq!(sum.to_vec::<f32>()?, [2.0; 4]);
        Ok(())
    }),
    (
        "ExternalStream.device ExternalStream.device_index ExternalStream.device_type ExternalStream.native_handle \
         ExternalStream.priority ExternalStream.priority_range ExternalStream.stream_id",
        || {
            let own = Stream::new(None, 0)?;
            let stream = external(&own)?;
            assert_eq!((stream.device(), stream.device_index()), (Device::cuda(0), 0));
            assert_eq!((stream.device_type(), stream.native_handle()), (DeviceType::Cuda, own.cuda_stream()));
            assert_eq!((stream.priority()?, ExternalStream::priority_range()?), (0, Stream::priority_range()?));
            assert_eq!(stream.stream_id(), external(&own)?.stream_id());
            Ok(())
        },
    ),
    (
        "ExternalStream.query ExternalStream.record_event ExternalStream.synchronize ExternalStream.wait_event \
         ExternalStream.wait_stream",
        || {
            let (own, other) = (Stream::new(None, 0)?, Stream::new(None, 0)?);
            let stream = external(&own)?;
            let event = stream.record_event()?;
            stream.wait_event(&event)?;
            stream.wait_stream(&other)?;
            stream.synchronize()?;
            assert!(stream.query()?);
            Ok(())
        },
    ),
];

const EVENTS: &[Example] = &[
    ("torch.cuda.Event Event.record Event.synchronize Event.elapsed_time", || {
        let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
        start.record(None)?;
        cuda_api::sleep(1_000_000)?;
        end.record(cuda_api::current_stream(None)?)?;
        end.synchronize()?;
        assert!(start.elapsed_time(&end)? > 0.0);
        Ok(())
    }),
    ("Event.query Event.wait Event.device Event.cuda_event Event.event_id", || {
        let event = Event::new(EventOptions::default());
        assert!(event.query()? && event.device().is_none());
        event.record(None)?;
        event.wait(&Stream::new(None, 0)?)?;
        assert_eq!((event.device(), event.cuda_event()), (Some(Device::cuda(0)), event.event_id()));
        Ok(())
    }),
    ("Event.ipc_handle Event.from_ipc_handle", || {
        let event = Event::new(EventOptions { interprocess: true, ..EventOptions::default() });
        let handle = event.ipc_handle()?;
        // The driver refuses to open a handle in the process that created it.
        let refused = Event::from_ipc_handle(0, &handle).expect_err("it is open here");
        assert_eq!(refused.error_code(), Some(201));
        Ok(())
    }),
];

const MARKS: &[Example] = &[
    ("torch.cuda.nvtx.mark torch.cuda.nvtx.range nvtx.mark nvtx.range", || {
        let _epoch = nvtx::range("epoch 1");
        nvtx::mark("begun");
        Ok(())
    }),
    (
        "torch.cuda.nvtx.range_push torch.cuda.nvtx.range_pop torch.cuda.nvtx.range_start torch.cuda.nvtx.range_end \
         nvtx.range_push nvtx.range_pop nvtx.range_start nvtx.range_end",
        || {
            nvtx::range_push("forward");
            nvtx::range_pop();
            let range = nvtx::range_start("copies");
            nvtx::range_end(range);
            Ok(())
        },
    ),
    (
        "torch.cuda.nvtx._device_range_start torch.cuda.nvtx._device_range_end _device_range_start _device_range_end",
        || {
            let stream = cuda_api::current_stream(None)?;
            let range = nvtx::device_range_start("kernel", &stream)?;
            nvtx::device_range_end(range, &stream)?;
            Ok(())
        },
    ),
    ("torch.cuda.is_current_stream_capturing torch.cuda.graphs._cuda_isCurrentStreamCapturing", || {
        assert!(!cuda_api::is_current_stream_capturing()?);
        let (stream, mut graph) = (Stream::new(None, 0)?, CUDAGraph::new());
        let _stream = cuda_api::stream(&stream)?;
        graph.capture_begin(None, CaptureMode::Global)?;
        assert!(cuda_api::is_current_stream_capturing()?);
        graph.capture_end()?;
        Ok(())
    }),
];
