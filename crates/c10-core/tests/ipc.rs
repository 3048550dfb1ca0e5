//! Memory and events between processes. This program is its own second process: it starts itself with a variable set.
//!
//! The simulated machines are made from the environment, so that queued work goes on by itself while nobody calls.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::PathBuf;
use std::sync::Mutex;

use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, DeviceIndex, Error, Event, EventOptions, IpcError, Result};
use c10_core::{Runtime, SharedBuffer, Stream};
use common::{DEVICE, Rig, config, fail_each_call, rig};
use cuda_sim::{LiveHandles, Machine};
use testkit::process::{Other, role, say, say_bytes, told};

/// Held by tests that map pages on the machine of the process, whose calls they count.
static PAGES: Mutex<()> = Mutex::new(());

/// Set in the process whose warnings are read.
const WARNED: &str = "C10_IPC_TEST_WARNED";

const LEN: usize = 3 << 20;
/// Bytes that fill a segment.
const WHOLE: usize = 20 << 20;

/// The other process, whose driver fails at no call.
fn start(role: &str) -> Other {
    start_with(role, "")
}

/// With calls of its driver that fail.
fn start_with(role: &str, faults: &str) -> Other {
    start_in(role, &[("CUDA_SIM_FAULTS", faults)])
}

/// With these variables.
fn start_in(role: &str, variables: &[(&str, &str)]) -> Other {
    Other::start("the_other_process", role, variables)
}

/// A runtime on the machine of the environment.
fn process() -> (Runtime, Stream) {
    let runtime = common::runtime();
    let stream = runtime.streams().pooled(DEVICE, 0).unwrap();
    runtime.streams().set_current(&stream).unwrap();
    (runtime, stream)
}

fn interprocess(runtime: &Runtime) -> Event {
    Event::on(runtime, EventOptions { interprocess: true, ..EventOptions::default() })
}

#[test]
fn the_other_process() {
    match role().as_deref() {
        Some("writer") => writer(),
        Some("reader") => reader(),
        Some("twice") => opens_twice(),
        Some("unlucky") => unlucky(),
        Some("lender of elastic memory") => lends_pages("backend:elastic"),
        Some("lender of an expandable segment") => lends_pages("expandable_segments:True"),
        Some("receiver of pages without luck") => without_luck(),
        Some("keeper of pages") => keeps_pages(),
        Some("killed") => {
            let (runtime, _stream) = process();
            let _held = runtime.ipc().open(&SharedBuffer::from_bytes(&told()).unwrap()).unwrap();
            say("opened");
            told();
        }
        Some("killed at any moment") => {
            let (runtime, stream) = process();
            stream.synchronize().unwrap();
            say("ready");
            let buffer = runtime.ipc().open(&SharedBuffer::from_bytes(&told()).unwrap()).unwrap();
            buffer.fill(0..LEN, 2, &stream).unwrap();
            drop(buffer);
            stream.synchronize().unwrap();
            runtime.ipc().collect().unwrap();
            told();
        }
        Some("killed sender") => {
            let (runtime, stream) = process();
            let buffers = [1, 2].map(|_| runtime.memory().buffer(LEN, &stream).unwrap());
            for buffer in &buffers {
                buffer.fill(0..LEN, 6, &stream).unwrap();
                // What a process had queued that was killed never ends for those who wait for it.
                stream.synchronize().unwrap();
                say_bytes(&buffer.share().unwrap().to_bytes());
            }
            told();
        }
        Some("sender back") => sends_back(),
        Some("third") => {
            let (runtime, stream) = process();
            let buffer = runtime.ipc().open(&SharedBuffer::from_bytes(&told()).unwrap()).unwrap();
            say("opened");
            told();
            buffer.fill(0..LEN, 8, &stream).unwrap();
            drop(buffer);
            stream.synchronize().unwrap();
            runtime.ipc().collect().unwrap();
            say("dropped");
            told();
        }
        Some("brief") => {
            let (runtime, _stream) = process();
            let honest = told();
            // The place in the segment, behind version, device and length.
            let mut beyond = honest.clone();
            beyond[18] = 0xFF;
            let refused = runtime.ipc().open(&SharedBuffer::from_bytes(&beyond).unwrap()).unwrap_err();
            assert_eq!(refused, Error::Ipc(IpcError::InvalidBytes));
            drop(runtime.ipc().open(&SharedBuffer::from_bytes(&honest).unwrap()).unwrap());
            runtime.synchronize(DEVICE).unwrap();
            runtime.ipc().collect().unwrap();
            say("dropped");
        }
        _ => {}
    }
}

/// Opens a buffer and an event, writes when the event has passed, and tells when it has let go.
fn writer() {
    let (runtime, stream) = process();
    let shared = SharedBuffer::from_bytes(&told()).unwrap();
    let event = Event::from_ipc_handle_on(&runtime, DEVICE, &told()).unwrap();
    let buffer = runtime.ipc().open(&shared).unwrap();
    assert_eq!((buffer.len(), buffer.device_index()), (LEN, DEVICE));
    say(&format!("{} {}", event.query().unwrap(), buffer.to_vec().unwrap().iter().all(|byte| *byte == 1)));
    event.wait(&stream).unwrap();
    buffer.fill(0..LEN, 2, &stream).unwrap();
    event.record(&stream).unwrap();
    say("queued");
    told();
    buffer.fill(0..1, 3, &stream).unwrap();
    drop(buffer);
    stream.synchronize().unwrap();
    runtime.ipc().collect().unwrap();
    let left = Machine::current().live();
    say(&format!("{} {}", left.allocations, left.events));
    let unrecorded = Event::from_ipc_handle_on(&runtime, DEVICE, &told()).unwrap();
    assert!(unrecorded.query().unwrap());
    unrecorded.record(&stream).unwrap();
    say("recorded");
    told();
}

#[test]
fn memory_and_an_event_cross_over() {
    let (runtime, stream) = process();
    let mut other = start("writer");
    let buffer = runtime.memory().buffer(LEN, &stream).unwrap();
    let address = buffer.address();
    buffer.fill(0..LEN, 1, &stream).unwrap();
    let shared = buffer.share().unwrap();
    let event = interprocess(&runtime);
    event.record(&stream).unwrap();
    other.tell(&shared.to_bytes());
    other.tell(&event.ipc_handle().unwrap());
    drop(buffer);
    let line = other.hear();
    assert!(line.ends_with(" true"), "what was queued before is seen: {line}");
    assert_eq!(other.hear(), "queued");
    event.synchronize().unwrap();
    assert!(event.query().unwrap());
    let allocated = || runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current;
    assert_eq!(allocated(), i64::try_from(LEN).unwrap(), "kept although it was dropped here");
    assert_eq!(byte_at(address), 2, "the other process has written");
    runtime.ipc().collect().unwrap();
    assert_eq!(allocated(), i64::try_from(LEN).unwrap(), "the receiver has it");

    other.tell(&[1]);
    let left = other.hear();
    assert_eq!(left, "0 2", "the mapping is gone; left are the event and a spare one for what is held");
    runtime.ipc().collect().unwrap();
    assert_eq!(allocated(), 0);
    assert!(runtime.is_valid());
    let late = runtime.ipc().open(&shared);
    assert_eq!(late.unwrap_err(), Error::Ipc(IpcError::Released));

    // An event that only the other process records.
    let theirs = interprocess(&runtime);
    other.tell(&theirs.ipc_handle().unwrap());
    assert_eq!(other.hear(), "recorded");
    theirs.wait(&stream).unwrap();
    theirs.synchronize().unwrap();
    stream.synchronize().unwrap();
    assert!(theirs.query().unwrap());
    other.tell(&[1]);
    other.end();
}

/// Opens a buffer and an event, waits for the event, and says a byte of the buffer.
fn reader() {
    let (runtime, _stream) = process();
    let shared = SharedBuffer::from_bytes(&told()).unwrap();
    let event = Event::from_ipc_handle_on(&runtime, DEVICE, &told()).unwrap();
    let buffer = runtime.ipc().open(&shared).unwrap();
    event.synchronize().unwrap();
    say(&buffer.to_vec().unwrap()[LEN - 1].to_string());
    told();
}

/// The sender's machine makes progress although the sender calls no driver while it reads the pipe.
#[test]
fn work_of_a_sender_that_waits_for_a_pipe_goes_on() {
    let rig = Rig::new(config());
    let stream = rig.runtime.streams().pooled(DEVICE, 0).unwrap();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let event = interprocess(&rig.runtime);
    let mut other = start("reader");
    stream.sleep(1_000_000).unwrap();
    buffer.fill(0..LEN, 7, &stream).unwrap();
    event.record(&stream).unwrap();
    other.tell(&buffer.share().unwrap().to_bytes());
    other.tell(&event.ipc_handle().unwrap());
    assert_eq!(other.hear(), "7");
    other.tell(&[1]);
    other.end();
}

/// A byte that the simulated machine has at an address.
fn byte_at(address: u64) -> u8 {
    use std::os::unix::fs::FileExt;
    let (file, offset) = Machine::current().memory_file(address).unwrap();
    let mut byte = [0];
    std::fs::File::from(file).read_exact_at(&mut byte, offset).unwrap();
    byte[0]
}

/// Opens two buffers of one segment and the first of them twice.
fn opens_twice() {
    let (runtime, stream) = process();
    let (first, second) = (SharedBuffer::from_bytes(&told()).unwrap(), SharedBuffer::from_bytes(&told()).unwrap());
    let one = runtime.ipc().open(&first).unwrap();
    let again = runtime.ipc().open(&first).unwrap();
    let two = runtime.ipc().open(&second).unwrap();
    assert_eq!((one.address(), two.address()), (again.address(), one.address() + 512));
    let opened = |symbol: &str| {
        let calls = Machine::current().calls();
        calls.iter().filter(|(call, ..)| *call == symbol).map(|(.., count)| *count).sum::<u64>()
    };
    assert_eq!(opened("cuIpcOpenMemHandle_v2"), 1, "one mapping for the segment");
    again.copy_from_slice(0, &[5; 100]).unwrap();
    assert_eq!((one.to_vec().unwrap(), two.to_vec().unwrap()), (vec![5; 100], vec![2; 100]));
    drop((one, two));
    stream.synchronize().unwrap();
    runtime.ipc().collect().unwrap();
    assert_eq!(opened("cuIpcCloseMemHandle"), 0);
    say("one left");
    told();
    drop(again);
    stream.synchronize().unwrap();
    runtime.ipc().collect().unwrap();
    assert_eq!(opened("cuIpcCloseMemHandle"), 1);
    say("none left");
}

#[test]
fn a_segment_is_mapped_once() {
    let (runtime, stream) = process();
    let mut other = start("twice");
    let (first, second) =
        (runtime.memory().buffer(100, &stream).unwrap(), runtime.memory().buffer(100, &stream).unwrap());
    first.fill(0..100, 1, &stream).unwrap();
    second.fill(0..100, 2, &stream).unwrap();
    other.tell(&first.share().unwrap().to_bytes());
    other.tell(&second.share().unwrap().to_bytes());
    assert_eq!(other.hear(), "one left");
    drop((first, second));
    runtime.ipc().collect().unwrap();
    let allocated = || runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current;
    assert_eq!(allocated(), 512, "the second one came back");
    other.tell(&[1]);
    assert_eq!(other.hear(), "none left");
    runtime.ipc().collect().unwrap();
    assert_eq!(allocated(), 0);
    other.end();
}

#[test]
fn a_receiver_that_is_killed_keeps_nothing_with_the_sender() {
    let (runtime, stream) = process();
    let buffer = runtime.memory().buffer(LEN, &stream).unwrap();
    let shared = buffer.share().unwrap();
    drop(buffer);
    assert!(file_of(&shared).exists());
    let mut others = ["killed", "killed"].map(start);
    for other in &mut others {
        other.tell(&shared.to_bytes());
        assert_eq!(other.hear(), "opened");
    }
    let allocated = || {
        runtime.ipc().collect().unwrap();
        runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current
    };
    for mut other in others {
        assert_eq!(allocated(), i64::try_from(LEN).unwrap(), "a receiver has it");
        other.kill();
    }
    assert_eq!(allocated(), 0);
    drop((stream, runtime));
    assert!(!file_of(&shared).exists());
}

/// The file in which the process that has allocated the memory counts its receivers: its path is the first one that stands
/// in the bytes.
fn file_of(shared: &SharedBuffer) -> PathBuf {
    let bytes = shared.to_bytes();
    let folder = std::env::temp_dir();
    let at = bytes.windows(8).position(|part| part == b"c10-ipc-").unwrap();
    let name: Vec<u8> = bytes[at..].iter().copied().take_while(|byte| byte.is_ascii_graphic()).collect();
    folder.join(String::from_utf8(name).unwrap())
}

#[test]
fn a_receiver_that_is_killed_at_any_moment_keeps_nothing_with_the_sender() {
    let (runtime, stream) = process();
    let allocated = || runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current;
    for moment in 0..10 {
        let mut other = start("killed at any moment");
        assert_eq!(other.hear(), "ready");
        let shared = runtime.memory().buffer(LEN, &stream).unwrap().share().unwrap();
        other.tell(&shared.to_bytes());
        std::thread::sleep(std::time::Duration::from_micros(moment * 300));
        other.kill();
        // A receiver that had not come yet is not waited for any more.
        match runtime.ipc().release(&shared) {
            Ok(()) | Err(Error::Ipc(IpcError::Released)) => {}
            Err(error) => panic!("moment {moment}: {error}"),
        }
        runtime.ipc().collect().unwrap();
        assert_eq!(allocated(), 0, "moment {moment}");
    }
    runtime.memory().empty_cache().unwrap();
    assert_eq!(runtime.memory().stats(DEVICE).unwrap().reserved_bytes.all.current, 0);
    assert!(runtime.is_valid());
}

#[test]
fn memory_of_a_sender_that_is_killed_stays_with_its_receiver() {
    let (runtime, stream) = process();
    let mut other = start("killed sender");
    let hear = |other: &mut Other| SharedBuffer::from_bytes(&other.hear_bytes()).unwrap();
    let (shared, late) = (hear(&mut other), hear(&mut other));
    let buffer = runtime.ipc().open(&shared).unwrap();
    stream.synchronize().unwrap();
    other.kill();
    assert_eq!(buffer.to_vec().unwrap(), [6; LEN]);
    buffer.fill(0..LEN, 7, &stream).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [7; LEN]);
    assert_eq!(runtime.ipc().open(&late).unwrap_err(), Error::Ipc(IpcError::Released));
    let address = buffer.address();
    assert!(Machine::current().memory_file(address).is_some());
    drop(buffer);
    stream.synchronize().unwrap();
    runtime.ipc().collect().unwrap();
    assert!(Machine::current().memory_file(address).is_none(), "it is not mapped any more");
    // The last receiver tidies up, if no other process has done it before.
    assert!(!file_of(&shared).exists());
    assert_eq!(runtime.ipc().open(&late).unwrap_err(), Error::Ipc(IpcError::Released));
}

#[test]
fn a_sender_that_is_killed_at_any_moment_leaves_memory_or_an_error() {
    let (runtime, stream) = process();
    for moment in 0..8 {
        let mut other = start("killed sender");
        let shared = SharedBuffer::from_bytes(&other.hear_bytes()).unwrap();
        let opened = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_micros(moment * 60));
                other.kill();
            });
            runtime.streams().set_current(&stream).unwrap();
            runtime.ipc().open(&shared)
        });
        match opened {
            Ok(buffer) => assert_eq!(buffer.to_vec().unwrap(), [6; LEN], "moment {moment}"),
            Err(Error::Ipc(IpcError::Released)) => {}
            Err(error) => panic!("moment {moment}: {error}"),
        }
        stream.synchronize().unwrap();
        runtime.ipc().collect().unwrap();
        assert!(!file_of(&shared).exists(), "moment {moment}");
    }
}

/// Receives a buffer, and shares it on: with its sender, and with another process.
fn sends_back() {
    let (runtime, stream) = process();
    let buffer = runtime.ipc().open(&SharedBuffer::from_bytes(&told()).unwrap()).unwrap();
    buffer.fill(0..LEN, 3, &stream).unwrap();
    let shared = buffer.share().unwrap();
    assert_eq!(runtime.ipc().open(&shared).unwrap().address(), buffer.address(), "its own once more");
    say_bytes(&buffer.share().unwrap().to_bytes());
    say_bytes(&buffer.share().unwrap().to_bytes());
    told();
    drop(buffer);
    stream.synchronize().unwrap();
    runtime.ipc().collect().unwrap();
    runtime.ipc().collect().unwrap();
    assert_eq!(Machine::current().live().allocations, 0);
    say("dropped");
    told();
}

#[test]
fn received_memory_is_shared_on_and_back() {
    let (runtime, stream) = process();
    let mut other = start("sender back");
    let mut third = start("third");
    let buffer = runtime.memory().buffer(LEN, &stream).unwrap();
    buffer.fill(0..LEN, 1, &stream).unwrap();
    other.tell(&buffer.share().unwrap().to_bytes());
    let back = SharedBuffer::from_bytes(&other.hear_bytes()).unwrap();
    let on = other.hear_bytes();
    let same = runtime.ipc().open(&back).unwrap();
    assert_eq!(same.address(), buffer.address());
    assert_eq!(same.to_vec().unwrap(), [3; LEN], "the other process's work comes first");
    third.tell(&on);
    assert_eq!(third.hear(), "opened");
    drop((buffer, same));
    stream.synchronize().unwrap();
    runtime.ipc().collect().unwrap();
    let allocated = || {
        runtime.ipc().collect().unwrap();
        runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current
    };
    // The process in between ends without a word; the third one's count keeps the memory.
    other.kill();
    assert_eq!(allocated(), i64::try_from(LEN).unwrap());
    third.tell(&[1]);
    assert_eq!(third.hear(), "dropped");
    assert_eq!(allocated(), 0);
    third.tell(&[1]);
    third.end();
    let mut other = start("sender back");
    let buffer = runtime.memory().buffer(LEN, &stream).unwrap();
    let shared = buffer.share().unwrap();
    other.tell(&shared.to_bytes());
    let unopened = [other.hear_bytes(), other.hear_bytes()].map(|bytes| SharedBuffer::from_bytes(&bytes).unwrap());
    unopened.iter().for_each(|shared| runtime.ipc().release(shared).unwrap());
    other.tell(&[1]);
    assert_eq!(other.hear(), "dropped");
    drop(buffer);
    assert_eq!(allocated(), 0);
    other.tell(&[1]);
    other.end();
}

/// Opens a buffer while one call after another fails.
fn unlucky() {
    let (runtime, stream) = process();
    let shared = SharedBuffer::from_bytes(&told()).unwrap();
    for call in ["cuIpcOpenMemHandle_v2", "cuIpcOpenEventHandle", "cuStreamWaitEvent"] {
        let error = runtime.ipc().open(&shared).unwrap_err();
        assert_eq!(error.accelerator().map(|error| error.call()), Some(call));
    }
    let buffer = runtime.ipc().open(&shared).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [4; LEN]);
    buffer.fill(0..LEN, 5, &stream).unwrap();
    // Neither the event that tells when the work is done nor the closing comes about at first.
    drop(buffer);
    runtime.synchronize(DEVICE).unwrap();
    runtime.ipc().collect().unwrap();
    runtime.ipc().collect().unwrap();
    assert_eq!(Machine::current().live().allocations, 0);
    drop((stream, runtime));
    assert_eq!(Machine::current().live(), LiveHandles::default());
    say("let go");
}

#[test]
fn a_receiver_whose_calls_fail_leaves_nothing() {
    let (runtime, stream) = process();
    // The mapping made for nothing is closed by the second and the third attempt, of which one fails.
    let faults = "cuIpcOpenMemHandle_v2:1:2,cuIpcOpenEventHandle:1:2,cuStreamWaitEvent:1:2,cuIpcCloseMemHandle:2:2,\
        cuIpcCloseMemHandle:4:2,cuEventCreate:1:2,cuEventDestroy_v2:1:2";
    let mut other = start_with("unlucky", faults);
    let buffer = runtime.memory().buffer(LEN, &stream).unwrap();
    buffer.fill(0..LEN, 4, &stream).unwrap();
    other.tell(&buffer.share().unwrap().to_bytes());
    assert_eq!(other.hear(), "let go");
    assert_eq!(buffer.to_vec().unwrap(), [5; LEN]);
    drop(buffer);
    let allocated = || runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current;
    assert_eq!(allocated(), i64::try_from(LEN).unwrap());
    runtime.ipc().collect().unwrap();
    assert_eq!(allocated(), 0);
    other.end();
}

#[test]
fn what_was_let_go_serves_when_memory_runs_out() {
    let (runtime, stream) = process();
    let total = runtime.memory().info(DEVICE).unwrap().total;
    let most = usize::try_from(total / 4 * 3).unwrap();
    let mut other = start("brief");
    let buffer = runtime.memory().buffer(most, &stream).unwrap();
    other.tell(&buffer.share().unwrap().to_bytes());
    drop(buffer);
    assert_eq!(other.hear(), "dropped");
    drop(runtime.memory().buffer(most, &stream).unwrap());
    other.end();
}

#[test]
fn what_was_let_go_serves_before_the_driver_is_asked_for_more() {
    let (runtime, stream) = process();
    let mut other = start("brief");
    let buffer = runtime.memory().buffer(WHOLE, &stream).unwrap();
    let address = buffer.address();
    other.tell(&buffer.share().unwrap().to_bytes());
    drop(buffer);
    assert_eq!(other.hear(), "dropped");
    let stats = || runtime.memory().stats(DEVICE).unwrap();
    let before = stats();
    let next = runtime.memory().buffer(WHOLE, &stream).unwrap();
    assert_eq!(next.address(), address);
    let after = stats();
    assert_eq!((after.num_device_alloc, after.reserved_bytes), (before.num_device_alloc, before.reserved_bytes));
    assert_eq!(after.allocated_bytes.all.current, i64::try_from(WHOLE).unwrap());
    assert!(runtime.is_valid());
    other.end();
}

#[test]
fn what_a_receiver_has_does_not_serve_until_it_ends() {
    let (runtime, stream) = process();
    let mut other = start("killed");
    let buffer = runtime.memory().buffer(WHOLE, &stream).unwrap();
    let address = buffer.address();
    other.tell(&buffer.share().unwrap().to_bytes());
    drop(buffer);
    assert_eq!(other.hear(), "opened");
    let new = runtime.memory().buffer(WHOLE, &stream).unwrap();
    assert_ne!(new.address(), address, "the receiver has it");
    assert_eq!(runtime.memory().stats(DEVICE).unwrap().num_device_alloc, 2);
    other.kill();
    assert_eq!(runtime.memory().buffer(WHOLE, &stream).unwrap().address(), address);
    assert_eq!(runtime.memory().stats(DEVICE).unwrap().num_device_alloc, 2);
}

#[test]
fn what_cannot_be_shared_says_why() {
    let rig = rig();
    let (runtime, stream) = (&rig.runtime, rig.stream());
    let buffer = runtime.memory().buffer(1000, &stream).unwrap();
    let shared = buffer.share().unwrap();
    assert_eq!((shared.len(), shared.device_index()), (1000, DEVICE));
    let same = runtime.ipc().open(&shared).unwrap();
    assert_eq!(same.address(), buffer.address(), "one's own memory");
    let wrong = SharedBuffer::from_bytes(&{
        let mut bytes = shared.to_bytes();
        bytes[5] = bytes[5].wrapping_add(1);
        bytes
    });
    assert_eq!(runtime.ipc().open(&wrong.unwrap()).unwrap_err(), Error::Ipc(IpcError::InvalidBytes));
    runtime.ipc().collect().unwrap();
    assert_eq!(runtime.ipc().open(&shared).unwrap_err(), Error::Ipc(IpcError::Released));
    assert_eq!(runtime.ipc().release(&shared), Err(Error::Ipc(IpcError::Released)));
    assert!(!file_of(&shared).exists(), "nothing is shared any more");
    let shared = buffer.share().unwrap();
    assert_eq!(common::runtime().ipc().open(&shared).unwrap_err(), Error::Ipc(IpcError::OwnMemory));

    let none = runtime.memory().buffer(0, &stream).unwrap().share().unwrap();
    assert_eq!(runtime.ipc().open(&none).unwrap().len(), 0);
    assert_eq!(SharedBuffer::from_bytes(&none.to_bytes()), Ok(none));

    let mut graph = CUDAGraph::on(runtime, false);
    let inside = graph.capture(&stream, None, CaptureMode::Global, || {
        assert_eq!(buffer.share(), Err(Error::Ipc(IpcError::DuringCapture)));
        assert_eq!(runtime.ipc().open(&shared).unwrap_err(), Error::Ipc(IpcError::DuringCapture));
        Ok::<_, Error>(())
    });
    inside.unwrap();
}

#[test]
fn many_blocks_that_only_others_use_are_warned_of() {
    const MANY: usize = 1001;
    if std::env::var_os(WARNED).is_none() {
        let (_, warnings) = common::in_a_process("many_blocks_that_only_others_use_are_warned_of", &[(WARNED, "1")]);
        let limbo = "Producer process tried to deallocate over 1000 memory blocks referred by consumer processes.";
        assert_eq!(warnings.matches(limbo).count(), 1, "{warnings}");
        let end = "Producer process has been terminated before all shared CUDA tensors released";
        assert_eq!(warnings.matches(end).count(), 1, "{warnings}");
        return;
    }
    let rig = rig();
    let stream = rig.stream();
    let shared: Vec<SharedBuffer> =
        (0..MANY).map(|_| rig.runtime.memory().buffer(512, &stream).unwrap().share().unwrap()).collect();
    let interprocess = rig.machine.live().events;
    assert!((1000..1010).contains(&interprocess), "events run out, and the last block has none: {interprocess}");
    // The place of the event: behind version, device, length, offset, identity of the device and identity.
    assert_eq!([0, MANY - 1].map(|at| shared[at].to_bytes()[45]), [1, 0]);
    for _ in 0..2 {
        rig.runtime.ipc().collect().unwrap();
    }
    assert_eq!(rig.allocated_bytes(), i64::try_from(512 * MANY).unwrap());
    shared[1..].iter().for_each(|shared| rig.runtime.ipc().release(shared).unwrap());
    rig.runtime.ipc().collect().unwrap();
    assert_eq!(rig.allocated_bytes(), 512);
    drop(stream);
    assert_eq!(rig.left(), LiveHandles::default());
}

/// Shares memory in pages, and tells what becomes of it.
fn lends_pages(settings: &str) {
    let runtime = common::runtime();
    runtime.memory().set_settings(settings).unwrap();
    let stream = runtime.streams().pooled(DEVICE, 0).unwrap();
    runtime.streams().set_current(&stream).unwrap();
    // The memory does not begin where a page does.
    let before = runtime.memory().buffer(3 << 19, &stream).unwrap();
    let buffer = runtime.memory().buffer(LEN, &stream).unwrap();
    buffer.fill(0..LEN, 1, &stream).unwrap();
    say_bytes(&buffer.share().unwrap().to_bytes());
    told();
    say(&buffer.to_vec().unwrap().iter().all(|byte| *byte == 2).to_string());
    drop((before, buffer));
    // Nothing of it is free, and nothing moves: other memory is other pages.
    let other = runtime.memory().buffer(5 * LEN, &runtime.streams().pooled(DEVICE, 0).unwrap()).unwrap();
    other.fill(0..5 * LEN, 9, &stream).unwrap();
    drop(other);
    runtime.memory().empty_cache().unwrap();
    let allocated = || {
        runtime.ipc().collect().unwrap();
        runtime.memory().stats(DEVICE).unwrap().allocated_bytes.all.current
    };
    assert_eq!(allocated(), i64::try_from(LEN).unwrap(), "kept although it was dropped here");
    say("kept");
    told();
    assert_eq!(allocated(), 0);
    runtime.memory().empty_cache().unwrap();
    assert_eq!(runtime.memory().stats(DEVICE).unwrap().reserved_bytes.all.current, 0);
    assert!(runtime.is_valid());
    say("gone");
    told();
}

/// The receiver may take over descriptors of a process that it has started, wherever a process may trace its children.
#[test]
fn pages_cross_over() {
    let _alone = PAGES.lock();
    for (role, pages) in [("lender of elastic memory", 3), ("lender of an expandable segment", 1)] {
        let (runtime, stream) = process();
        let calls = |symbol: &str| {
            let calls = Machine::current().calls();
            calls.iter().filter(|(call, ..)| *call == symbol).map(|(.., count)| *count).sum::<u64>()
        };
        let mapped = calls("cuMemMap");
        let mut other = start(role);
        let shared = SharedBuffer::from_bytes(&other.hear_bytes()).unwrap();
        let buffer = runtime.ipc().open(&shared).unwrap();
        assert_eq!((buffer.len(), calls("cuMemMap") - mapped), (LEN, pages), "only the pages that it lies in: {role}");
        assert!(buffer.to_vec().unwrap().iter().all(|byte| *byte == 1), "{role}");
        let again = runtime.ipc().open(&shared).unwrap();
        assert_eq!(again.address(), buffer.address(), "the same memory");
        drop(again);
        buffer.fill(0..LEN, 2, &stream).unwrap();
        stream.synchronize().unwrap();
        other.tell(&[1]);
        assert_eq!(other.hear(), "true", "{role}: what was written here is seen there");
        assert_eq!(other.hear(), "kept");
        assert!(buffer.to_vec().unwrap().iter().all(|byte| *byte == 2), "{role}: nobody else got the memory");
        drop(buffer);
        stream.synchronize().unwrap();
        runtime.ipc().collect().unwrap();
        other.tell(&[1]);
        assert_eq!(other.hear(), "gone", "{role}");
        assert_eq!(runtime.ipc().open(&shared).unwrap_err(), Error::Ipc(IpcError::Released));
        other.tell(&[1]);
        other.end();
    }
}

/// Containers often refuse what descriptors are taken over by; the sender's socket serves there.
#[test]
fn pages_cross_over_by_the_senders_socket() {
    let _alone = PAGES.lock();
    let (runtime, stream) = process();
    let mut other = start("lender of elastic memory");
    let mut bytes = other.hear_bytes();
    // The namespace of the sender's number, behind version, device, length, offset, identity of the device, identity, event
    // and kind, number and start: as if the process numbers were others'.
    let namespace = 1 + 4 + 8 + 8 + 16 + 8 + 65 + 1 + 4 + 8;
    bytes[namespace] ^= 0xFF;
    let shared = SharedBuffer::from_bytes(&bytes).unwrap();
    let mut socket = file_of(&shared).into_os_string();
    socket.push(".sock");
    let aside = std::env::temp_dir().join(format!("c10-aside-{}", std::process::id()));
    std::fs::rename(&socket, &aside).unwrap();
    let refused = runtime.ipc().open(&shared).unwrap_err();
    assert!(matches!(refused, Error::Ipc(IpcError::Descriptors { .. })), "{refused}");
    std::fs::rename(&aside, &socket).unwrap();
    let buffer = runtime.ipc().open(&shared).unwrap();
    assert!(buffer.to_vec().unwrap().iter().all(|byte| *byte == 1));
    buffer.fill(0..LEN, 2, &stream).unwrap();
    stream.synchronize().unwrap();
    other.tell(&[1]);
    assert_eq!([other.hear(), other.hear()], ["true", "kept"]);
    drop(buffer);
    stream.synchronize().unwrap();
    runtime.ipc().collect().unwrap();
    other.tell(&[1]);
    assert_eq!(other.hear(), "gone");
    other.tell(&[1]);
    other.end();
    assert!(!std::path::Path::new(&socket).exists() && !file_of(&shared).exists());
}

/// Opens memory in pages while one call after another fails. It has started the sender, so that it may trace it.
fn without_luck() {
    let (runtime, stream) = process();
    let mut other = start("lender of elastic memory");
    let shared = SharedBuffer::from_bytes(&other.hear_bytes()).unwrap();
    let imports = ["cuMemAddressReserve", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"];
    for call in imports.into_iter().chain(["cuIpcOpenEventHandle"]) {
        let error = runtime.ipc().open(&shared).unwrap_err();
        assert_eq!(error.accelerator().map(|error| error.call()), Some(call));
        runtime.ipc().collect().unwrap();
    }
    let live = Machine::current().live();
    let buffer = runtime.ipc().open(&shared).unwrap();
    buffer.fill(0..LEN, 2, &stream).unwrap();
    stream.synchronize().unwrap();
    other.tell(&[1]);
    assert_eq!([other.hear(), other.hear()], ["true", "kept"]);
    drop(buffer);
    runtime.ipc().collect().unwrap();
    runtime.ipc().collect().unwrap();
    let left = Machine::current().live();
    assert_eq!((left.memory_handles, left.reservations), (0, 0), "before: {live:?}");
    other.tell(&[1]);
    assert_eq!(other.hear(), "gone");
    other.tell(&[1]);
    other.end();
    say("let go");
}

#[test]
fn a_receiver_of_pages_whose_calls_fail_leaves_nothing() {
    // What was mapped for nothing is unmapped by the next attempt, of which the first fails.
    let faults = "cuMemAddressReserve:1:2,cuMemImportFromShareableHandle:2:2,cuMemMap:2:2,cuMemSetAccess:1:2,\
        cuIpcOpenEventHandle:1:2,cuMemUnmap:1:2,cuMemRelease:1:2";
    let mut other = start_in("receiver of pages without luck", &[("CUDA_SIM_FAULTS", faults)]);
    assert_eq!(other.hear(), "let go");
    other.end();
}

/// Where pages stay in the process that makes them.
fn keeps_pages() {
    for (settings, refusal) in
        [("backend:elastic", IpcError::ElasticPages), ("expandable_segments:True", IpcError::ExpandableSegment)]
    {
        let rig = Rig::new(config());
        rig.runtime.memory().set_settings(settings).unwrap();
        let buffer = rig.runtime.memory().buffer(30 << 20, &rig.stream()).unwrap();
        assert_eq!(buffer.share(), Err(Error::Ipc(refusal)));
    }
    let text = IpcError::ExpandableSegment.to_string();
    let wanted = "Tensors allocated with expandable_segments:True cannot be shared between processes.";
    assert!(text.starts_with(wanted), "{text}");
    say("kept");
}

#[test]
fn pages_that_cannot_be_exported_are_refused() {
    let mut other = start_in("keeper of pages", &[("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "0")]);
    assert_eq!(other.hear(), "kept");
    other.end();
}

#[test]
fn events_for_other_processes_are_refused_as_torch_does() {
    let rig = rig();
    let (runtime, stream) = (&rig.runtime, rig.stream());
    let plain = Event::on(runtime, EventOptions::default());
    plain.record(&stream).unwrap();
    assert_eq!(plain.ipc_handle().unwrap_err().error_code(), Some(400));
    let timing = EventOptions { interprocess: true, ..EventOptions::TIMING };
    assert_eq!(Event::on(runtime, timing).ipc_handle().unwrap_err().error_code(), Some(1));

    let event = interprocess(runtime);
    let handle = event.ipc_handle().unwrap();
    assert_eq!(event.device().and_then(|device| device.index), Some(DEVICE), "made on the current device");
    assert!(event.query().unwrap());
    assert_eq!(Event::from_ipc_handle_on(runtime, DEVICE, &handle).unwrap_err().error_code(), Some(201));
    let short = Event::from_ipc_handle_on(runtime, DEVICE, &handle[..63]).unwrap_err();
    assert_eq!(short.to_string(), "cudaIpcEventHandle_t expects byte-like object of size 64, but got 63");
    assert_eq!(Event::from_ipc_handle_on(runtime, DeviceIndex(7), &handle).unwrap_err().error_code(), Some(101));
    assert_eq!(Event::from_ipc_handle_on(runtime, DEVICE, &[0; 64]).unwrap_err().error_code(), Some(205));
}

/// Shares a buffer twice, and opens it once where it was shared.
fn sharing(rig: &Rig) -> Result<DeviceBuffer> {
    let stream = rig.runtime.streams().pooled(DEVICE, 0)?;
    let buffer = rig.runtime.memory().buffer(LEN, &stream)?;
    buffer.share()?;
    let shared = buffer.share()?;
    rig.runtime.ipc().open(&shared)?;
    Ok(buffer)
}

#[test]
fn any_call_of_sharing_may_fail() {
    let rig = Rig::new(config());
    drop(sharing(&rig).unwrap());
    let calls = rig.machine.calls();
    let (tried, noticed) = fail_each_call(&calls, |fault| {
        let rig = Rig::new(config());
        rig.machine.inject(fault);
        let result = sharing(&rig);
        rig.machine.clear_faults();
        let failed = result.is_err();
        drop(result);
        drop(sharing(&rig).unwrap_or_else(|error| panic!("after {fault:?}: {error:?}")));
        rig.runtime.ipc().collect().unwrap();
        assert_eq!(rig.runtime.inconsistency(), None, "{fault:?}");
        assert_eq!(rig.left(), LiveHandles::default(), "{fault:?}");
        failed
    });
    assert!(tried > 15 && noticed * 10 > tried * 7, "{noticed} of {tried}");
}
