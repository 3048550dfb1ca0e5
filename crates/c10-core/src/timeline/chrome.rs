//! The Trace Event Format of Chrome, which Perfetto reads: one object of JSON with a list of events.
//!
//! The program is a process with its threads, each device another with a thread for each stream. Slices are complete events
//! (`X`), figures of memory counters (`C`), allocations instants (`i`), and an arrow from the record of an event to a wait for
//! it a pair of flow events (`s` and `f`), each inside of a slice. Categories are those of torch's profiler, and so are the
//! instants of memory.
//!
//! **Invariants:** times are microseconds of the host's clock with three digits behind the point. Slices of a stream do not
//! overlap, and last a nanosecond at least. Numbers of threads differ in the whole file.

use std::fmt;
use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use crate::base::device::DeviceIndex;
use crate::timeline::books::{MemoryNote, Records, What, Work};
use crate::timeline::stamps::Span;
use crate::trace::{TraceCopy, TraceStream};

/// Numbers of processes are less in Linux, so that no device has that of the program.
const DEVICES: u32 = 1 << 23;
/// Nanoseconds that a slice of a stream lasts at least.
const LEAST: i64 = 1;

/// Writes what was recorded.
pub(super) fn write(records: &Records, devices: &[String], out: impl Write) -> io::Result<()> {
    let mut file = File { out, host: std::process::id(), threads: records.threads.len(), any: false };
    file.begin(records)?;
    file.name_host(records)?;
    file.name_devices(records, devices)?;
    let ran = on_streams(records);
    for (number, work) in records.works.iter().enumerate() {
        file.call(number, work)?;
        if let (Some(span), Some(stream)) = (ran[number], work.stream) {
            file.slice(number, work, stream, records.streams[stream], span)?;
        }
    }
    for (number, &(record, wait)) in records.arrows.iter().enumerate() {
        if let (Some(from), Some(to)) = (ran[record], ran[wait]) {
            file.arrow(number, records, (record, from), (wait, to))?;
        }
    }
    file.memory(&records.memory)?;
    file.end()
}

/// When each piece of work ran, by the clock of the host.
fn on_streams(records: &Records) -> Vec<Option<Span>> {
    let place = |work: &Work| {
        let (span, device) = (work.ran?, usize::try_from(work.device).ok()?);
        Some(records.to_host.get(device)?.span(span))
    };
    let mut ran: Vec<_> = records.works.iter().map(place).collect();
    let mut by_time: Vec<usize> = (0..ran.len()).filter(|number| ran[*number].is_some()).collect();
    by_time.sort_by_key(|number| ran[*number].map(|span| span.start));
    let mut before = vec![i64::MIN; records.streams.len()];
    for number in by_time {
        if let (Some(span), Some(stream)) = (&mut ran[number], records.works[number].stream) {
            span.start = span.start.max(before[stream]);
            span.end = span.end.max(span.start + LEAST);
            before[stream] = span.end;
        }
    }
    ran
}

/// A file that is being written.
struct File<W> {
    out: W,
    /// The number of the program's process.
    host: u32,
    /// Threads of the program; streams are numbered after them.
    threads: usize,
    any: bool,
}

impl<W: Write> File<W> {
    fn begin(&mut self, records: &Records) -> io::Result<()> {
        let began = records.began.and_then(|began| began.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let untimed = records.works.iter().filter(|work| work.what.runs() && work.ran.is_none()).count();
        write!(
            self.out,
            r#"{{"displayTimeUnit":"ns","baseTimeNanoseconds":{},"otherData":{{"dropped":{},"without device times":{untimed}}},"traceEvents":["#,
            began.as_nanos(),
            records.dropped,
        )
    }

    fn end(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }

    /// One event, without its braces.
    fn event(&mut self, fields: fmt::Arguments<'_>) -> io::Result<()> {
        let separator = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        write!(self.out, "{separator}\n{{{fields}}}")
    }

    /// What is said of a process or of a thread in it.
    fn about(&mut self, what: &str, process: u32, thread: usize, arguments: fmt::Arguments<'_>) -> io::Result<()> {
        let fields =
            format_args!(r#""ph":"M","name":"{what}","pid":{process},"tid":{thread},"ts":0,"args":{{{arguments}}}"#);
        self.event(fields)
    }

    fn name_host(&mut self, records: &Records) -> io::Result<()> {
        let host = self.host;
        self.about("process_name", host, 0, format_args!(r#""name":"program {host}""#))?;
        self.about("process_sort_index", host, 0, format_args!(r#""sort_index":0"#))?;
        for (number, name) in (1..).zip(&records.threads) {
            self.about("thread_name", host, number, format_args!(r#""name":{}"#, Text(name)))?;
        }
        Ok(())
    }

    fn name_devices(&mut self, records: &Records, devices: &[String]) -> io::Result<()> {
        for (index, name) in (0..).zip(devices) {
            let process = DEVICES + index;
            let name = format!("GPU {index} {name}");
            self.about("process_name", process, 0, format_args!(r#""name":{}"#, Text(&name)))?;
            self.about("process_sort_index", process, 0, format_args!(r#""sort_index":{process}"#))?;
        }
        for (number, TraceStream { device, handle }) in records.streams.iter().enumerate() {
            let (process, thread) = (process(*device), self.thread_of(number));
            self.about("thread_name", process, thread, format_args!(r#""name":"stream {handle:#x}""#))?;
            self.about("thread_sort_index", process, thread, format_args!(r#""sort_index":{number}"#))?;
        }
        Ok(())
    }

    fn thread_of(&self, stream: usize) -> usize {
        self.threads + stream + 1
    }

    /// The call of the program.
    fn call(&mut self, number: usize, work: &Work) -> io::Result<()> {
        let Work { what, called, thread, .. } = work;
        let (name, host) = (what.call(), self.host);
        let (start, duration) = (Micros(called.start), Micros(called.end - called.start));
        self.event(format_args!(
            r#""ph":"X","cat":"cuda_driver","name":"{name}","pid":{host},"tid":{},"ts":{start},"dur":{duration},"args":{{"correlation":{number}{}}}"#,
            thread + 1,
            Details(work),
        ))
    }

    /// The work on its stream.
    fn slice(
        &mut self,
        number: usize,
        work: &Work,
        stream: usize,
        TraceStream { device, handle }: TraceStream,
        span: Span,
    ) -> io::Result<()> {
        let (category, name) = work.what.on_stream();
        let name = work.name.as_deref().unwrap_or(name);
        let (start, duration) = (Micros(span.start), Micros(span.end - span.start));
        let (process, thread) = (process(device), self.thread_of(stream));
        self.event(format_args!(
            r#""ph":"X","cat":"{category}","name":{},"pid":{process},"tid":{thread},"ts":{start},"dur":{duration},"args":{{"correlation":{number},"device":{device},"stream":"{handle:#x}"{}}}"#,
            Text(name),
            Details(work),
        ))
    }

    /// From the record of an event to a wait for it; each end lies in the slice of its work.
    fn arrow(
        &mut self,
        number: usize,
        records: &Records,
        (record, from): (usize, Span),
        (wait, to): (usize, Span),
    ) -> io::Result<()> {
        let ends = [("s", "", record, from.start), ("f", r#","bp":"e""#, wait, to.end - LEAST)];
        for (phase, binding, work, at) in ends {
            let Some(stream) = records.works[work].stream else { continue };
            let (process, thread) = (process(records.works[work].device), self.thread_of(stream));
            let at = Micros(at);
            self.event(format_args!(
                r#""ph":"{phase}"{binding},"cat":"event","name":"event","id":{number},"pid":{process},"tid":{thread},"ts":{at}"#
            ))?;
        }
        Ok(())
    }

    /// What happened to memory, and the figures after it.
    fn memory(&mut self, notes: &[MemoryNote]) -> io::Result<()> {
        let host = self.host;
        let mut last: Vec<(i64, i64)> = Vec::new();
        for note in notes {
            let &MemoryNote { at, thread, device, action, address, size, allocated, reserved } = note;
            let (name, thread, at) =
                (if action == "oom" { "out of memory" } else { "[memory]" }, thread + 1, Micros(at));
            self.event(format_args!(
                r#""ph":"i","s":"t","cat":"cpu_instant_event","name":"{name}","pid":{host},"tid":{thread},"ts":{at},"args":{{"Action":"{action}","Device Type":1,"Device Id":{device},"Addr":{address},"Bytes":{size},"Total Allocated":{allocated},"Total Reserved":{reserved}}}"#
            ))?;
            let place = usize::try_from(device).unwrap_or(0);
            last.resize(last.len().max(place + 1), (-1, -1));
            let before = std::mem::replace(&mut last[place], (allocated, reserved));
            let process = process(device);
            for (name, is_new, bytes) in [
                ("allocated bytes", before.0 != allocated, allocated),
                ("reserved bytes", before.1 != reserved, reserved),
            ] {
                if is_new {
                    self.event(format_args!(
                        r#""ph":"C","name":"{name}","pid":{process},"tid":0,"ts":{at},"args":{{"bytes":{bytes}}}"#
                    ))?;
                }
            }
        }
        Ok(())
    }
}

fn process(device: DeviceIndex) -> u32 {
    u32::try_from(usize::try_from(device).unwrap_or(0)).map_or(DEVICES, |index| DEVICES + index)
}

impl What {
    /// Whether it runs on a stream.
    fn runs(self) -> bool {
        !matches!(self, Self::SynchronizeStream | Self::SynchronizeEvent | Self::SynchronizeDevice)
    }

    /// What the program called.
    fn call(self) -> &'static str {
        match self {
            Self::Kernel => "cuLaunchKernel",
            Self::Library => "library call",
            Self::Copy(TraceCopy::OnDevice) => "cuMemcpyAsync",
            Self::Copy(TraceCopy::ToDevice) => "cuMemcpyHtoD",
            Self::Copy(TraceCopy::ToHost) => "cuMemcpyDtoH",
            Self::Fill => "cuMemsetAsync",
            Self::Replay => "cuGraphLaunch",
            Self::Record => "cuEventRecord",
            Self::Wait => "cuStreamWaitEvent",
            Self::SynchronizeStream => "cuStreamSynchronize",
            Self::SynchronizeEvent => "cuEventSynchronize",
            Self::SynchronizeDevice => "cuCtxSynchronize",
        }
    }

    /// The category and the name of the slice on its stream.
    fn on_stream(self) -> (&'static str, &'static str) {
        match self {
            Self::Kernel => ("kernel", "kernel"),
            Self::Library => ("kernel", "library"),
            Self::Copy(TraceCopy::OnDevice) => ("gpu_memcpy", "Memcpy DtoD"),
            Self::Copy(TraceCopy::ToDevice) => ("gpu_memcpy", "Memcpy HtoD"),
            Self::Copy(TraceCopy::ToHost) => ("gpu_memcpy", "Memcpy DtoH"),
            Self::Fill => ("gpu_memset", "Memset"),
            Self::Replay => ("graph", "graph replay"),
            Self::Record => ("cuda_sync", "event record"),
            Self::Wait => ("cuda_sync", "event wait"),
            Self::SynchronizeStream | Self::SynchronizeEvent | Self::SynchronizeDevice => ("cuda_sync", "synchronize"),
        }
    }
}

/// What else is known of a piece of work, as further members of an object.
struct Details<'a>(&'a Work);

impl fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { what, name, number, .. } = self.0;
        if let Some(name) = name {
            write!(f, r#","kernel":{}"#, Text(name))?;
        }
        match what {
            What::Copy(_) | What::Fill => write!(f, r#","bytes":{number}"#),
            What::Replay => write!(f, r#","graph":"{number:#x}""#),
            What::Record | What::Wait | What::SynchronizeEvent => write!(f, r#","event":"{number:#x}""#),
            What::Kernel | What::Library | What::SynchronizeStream | What::SynchronizeDevice => Ok(()),
        }
    }
}

/// Nanoseconds as microseconds.
#[derive(Clone, Copy)]
struct Micros(i64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", nanos / 1000, nanos % 1000)
    }
}

/// A text in quotes.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for char in self.0.chars() {
            match char {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                char if char.is_control() => write!(f, "\\u{:04x}", u32::from(char))?,
                char => write!(f, "{char}")?,
            }
        }
        f.write_str("\"")
    }
}
