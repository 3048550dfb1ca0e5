//! Files: written and read again, read after Python has written them, and refused when they are not whole or not honest.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use memory_viz::page::Page;
use memory_viz::{Error, Limits, PickleFault, Snapshot, file};

fn pickled(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    file::pickle_to(snapshot, &mut bytes).unwrap();
    bytes
}

#[test]
fn both_formats_give_back_what_was_written() {
    let snapshot = common::training(5000, 1);
    let bytes = pickled(&snapshot);
    // Writing orders texts and stacks by their first use; what was read once comes back the same from then on.
    let again = file::parse(&bytes).unwrap();
    assert_eq!(pickled(&again), bytes);
    assert_eq!(file::parse(&pickled(&again)).unwrap(), again);
    let mut text = Vec::new();
    file::json_to(&again, &mut text).unwrap();
    let from_json = file::parse(&text).unwrap();
    assert_eq!(from_json, again);
    assert_eq!(again.segments.len(), snapshot.segments.len());
    assert_eq!(again.device_traces[0].len(), snapshot.device_traces[0].len());
    assert_eq!(again.allocator_settings, snapshot.allocator_settings);
    assert!(bytes.len() * 3 < text.len(), "{} bytes against {}", bytes.len(), text.len());
}

#[test]
fn the_sample_is_written_for_other_programs() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join("sample.pickle");
    file::write_pickle(&common::training(3000, 7), &path).unwrap();
    file::write_pickle(&common::training(3500, 8), &folder.join("sample-after.pickle")).unwrap();
    assert_eq!(pickled(&file::read(&path).unwrap()), std::fs::read(&path).unwrap());
}

fn fault(bytes: &[u8]) -> (usize, PickleFault) {
    match file::parse(bytes) {
        Err(Error::Pickle { offset, fault }) => (offset, fault),
        other => panic!("expected a fault of the pickle, got {other:?}"),
    }
}

#[test]
fn a_file_cut_short_anywhere_is_an_error_that_names_the_place() {
    let bytes = pickled(&common::training(20, 2));
    for length in 0..bytes.len() {
        let (offset, kind) = fault(&bytes[..length]);
        assert_eq!(kind, PickleFault::CutShort, "cut after {length} bytes");
        assert!(offset <= length);
    }
}

#[test]
fn nothing_of_a_file_is_run() {
    // cos\nsystem\n(S'true'\ntR. of protocol 2, and its kind of protocol 4.
    assert_eq!(fault(b"\x80\x02cos\nsystem\n(X\x04\0\0\0truetR."), (2, PickleFault::RunsCode(b'c')));
    assert_eq!(fault(b"\x80\x04\x8c\x02os\x8c\x06system\x93."), (14, PickleFault::RunsCode(0x93)));
    assert_eq!(fault(b"\x80\x04}b."), (3, PickleFault::RunsCode(b'b')));
}

#[test]
fn other_faults_of_pickles_are_told_apart() {
    assert_eq!(fault(b""), (0, PickleFault::CutShort));
    assert_eq!(fault(b"(dp0\n."), (0, PickleFault::NoPickle));
    assert_eq!(fault(b"\x80\x06N."), (0, PickleFault::Protocol(6)));
    assert_eq!(fault(b"\x80\x01N."), (0, PickleFault::Protocol(1)));
    assert_eq!(fault(b"\x80\x04\x8f."), (2, PickleFault::Instruction(0x8f)));
    assert_eq!(fault(b"\x80\x04NN."), (4, PickleFault::LeftOver));
    assert_eq!(fault(b"\x80\x04."), (2, PickleFault::StackEmpty));
    assert_eq!(fault(b"\x80\x04NNa."), (4, PickleFault::WrongContainer));
    assert_eq!(fault(b"\x80\x04}(Nu."), (5, PickleFault::WrongContainer));
    assert_eq!(fault(b"\x80\x04h\x05."), (2, PickleFault::NoMemo(5)));
    let mut long = b"\x80\x04\x8a\x09".to_vec();
    long.extend([0, 0, 0, 0, 0, 0, 0, 0, 1]);
    long.push(b'.');
    assert_eq!(fault(&long), (2, PickleFault::IntegerTooLarge));
    let mut deep = b"\x80\x04".to_vec();
    deep.extend([b'('; 100]);
    assert_eq!(fault(&deep), (2 + 64, PickleFault::TooDeep));
}

#[test]
fn well_formed_files_that_hold_something_else_are_named() {
    for (bytes, says) in [
        (&b"\x80\x04N."[..], "not a memory snapshot: the snapshot should be a dictionary, found nothing"),
        (b"{}", "not a memory snapshot: segments should be a list, found nothing"),
        (b"{\"segments\": 3}", "not a memory snapshot: segments should be a list, found a whole number"),
        (
            b"[{\"address\": -1, \"total_size\": 4, \"blocks\": []}]",
            "not a memory snapshot: segments[].address should be a number of at least 0, found a negative number",
        ),
        (
            b"[1, 2",
            "not a snapshot that can be read: a comma or the end of the list should stand here (byte 5 of the JSON text)",
        ),
    ] {
        assert_eq!(file::parse(bytes).unwrap_err().to_string(), says);
    }
}

#[test]
fn a_small_file_cannot_grow_without_bound() {
    let limits = Limits { bytes_max: 10, ..Limits::default() };
    let text = b"{\"segments\": []}";
    assert!(matches!(file::parse_with(text, &limits), Err(Error::Limit { limit: 10, field: "bytes_max", .. })));
    // A list of a thousand entries that is referenced a hundred thousand times.
    let mut bomb = b"\x80\x04}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](".to_vec();
    bomb.extend(b"}(X\x06\0\0\0actionX\x05\0\0\0allocX\x04\0\0\0sizeK\x01u".repeat(1000));
    bomb.extend(b"e\x94");
    bomb.extend(b"h\0".repeat(100_000));
    bomb.extend(b"eu.");
    let error = file::parse(&bomb).unwrap_err();
    assert!(matches!(error, Error::Limit { field: "held_ratio", .. }), "{error}");
    // Four references to a list are within the limits; a hundred need a higher limit.
    let recalled = |times| {
        let mut file = bomb[..bomb.len() - 3 - 2 * 100_000].to_vec();
        file.extend(b"h\0".repeat(times));
        file.extend(b"eu.");
        file
    };
    assert_eq!(file::parse(&recalled(1)).unwrap().device_traces.len(), 2);
    assert!(file::parse(&recalled(100)).is_err());
    let limits = Limits { held_ratio: 500, ..Limits::default() };
    let traces = file::parse_with(&recalled(100), &limits).unwrap().device_traces;
    assert!(traces.len() == 101 && traces.iter().all(|trace| trace.len() == 1000));
}

#[test]
fn a_list_that_holds_itself_is_refused() {
    // x = []; x.append(x); {"segments": x}, and settings that hold themselves.
    let own = b"\x80\x04}(X\x08\0\0\0segments]\x94h\0au.";
    assert!(matches!(file::parse(own), Err(Error::Shape { path: "segments[]", .. })));
    let settings = b"\x80\x04}(X\x08\0\0\0segments]X\x12\0\0\0allocator_settings}\x94(X\x01\0\0\0ah\0uu.";
    assert!(file::parse(settings).is_ok());
}

/// Snapshot as a later PyTorch might write it: unknown actions, keys and lists in every dictionary.
const LATER: &str = r#"{
    "segments": [{"address": 4096, "total_size": 512, "device": 0, "novel": {"a": [1, 2.5, null, true]}, "blocks": [
        {"address": 4096, "size": 512, "state": "inactive", "owner": "me", "name": "of a block"}]}],
    "device_traces": [[
        {"action": "alloc", "addr": 4096, "size": 512, "time_us": 1, "frames": [
            {"name": "f", "filename": "a.py", "line": 3, "module": "m"}]},
        {"action": "annotate", "note": "epoch 3", "stage": "begin"},
        {"action": "annotate", "size": 7, "time_us": 2}]],
    "allocator_settings": {"backend": "native", "list": [1, 2]},
    "external_annotations": [{"name": "r", "stage": "START", "device": 0, "time_us": 5, "color": "red"}],
    "host_segments": [{"address": 65536, "blocks": []}, {}],
    "host_traces": [{"action": "alloc", "size": 18446744073709551615}]
}"#;

#[test]
fn parts_that_are_not_known_are_kept_and_written_again() {
    let snapshot = file::parse(LATER.as_bytes()).unwrap();
    let actions: Vec<&str> =
        snapshot.device_traces[0].iter().map(|entry| snapshot.names.action_text(entry.action)).collect();
    assert_eq!(actions, ["alloc", "annotate", "annotate"]);
    let (mut json, mut again) = (Vec::new(), Vec::new());
    file::json_to(&snapshot, &mut json).unwrap();
    let from_pickle = file::parse(&pickled(&snapshot)).unwrap();
    file::json_to(&from_pickle, &mut again).unwrap();
    assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(json.clone()).unwrap());
    assert_eq!(pickled(&file::parse(&json).unwrap()), pickled(&snapshot));
    // The output contains everything that the file says, unchanged.
    let (before, after): (serde_json::Value, serde_json::Value) =
        (serde_json::from_str(LATER).unwrap(), serde_json::from_slice(&json).unwrap());
    let places = [
        "/segments/0/novel",
        "/segments/0/blocks/0/owner",
        "/segments/0/blocks/0/name",
        "/device_traces/0/0/frames/0/module",
        "/device_traces/0/1/action",
        "/device_traces/0/1/note",
        "/device_traces/0/1/stage",
        "/device_traces/0/2/size",
        "/allocator_settings/list",
        "/external_annotations/0/color",
        "/host_segments",
        "/host_traces",
    ];
    for place in places {
        assert!(before.pointer(place).is_some(), "{place}");
        assert_eq!(before.pointer(place), after.pointer(place), "{place}");
    }
    let report = memory_viz::analysis::report(&snapshot);
    for line in ["annotate: 2 entries", "`host_segments` of the snapshot: 2 items", "`note` of the history"] {
        assert!(report.contains(line), "{line}: {report}");
    }
    assert!(
        memory_viz::page::page(&Page { snapshot: &snapshot, title: "later", before: None }).contains("host_segments")
    );
}

#[test]
fn unknown_values_of_a_pickle_keep_their_types_and_are_shared_as_before() {
    // x = ["shared"]; {"segments": [], "new": [x, x, (1, b"raw"), {5: -1}, True]}
    let mut bytes = b"\x80\x04}(X\x08\0\0\0segments]X\x03\0\0\0new](](X\x06\0\0\0sharede\x94h\0".to_vec();
    bytes.extend(b"K\x01C\x03raw\x86}K\x05J\xff\xff\xff\xffs\x88eu.");
    let snapshot = file::parse(&bytes).unwrap();
    let written = pickled(&snapshot);
    assert_eq!(pickled(&file::parse(&written).unwrap()), written);
    let count = |part: &[u8]| written.windows(part.len()).filter(|window| *window == part).count();
    assert_eq!((count(b"shared"), count(b"B\x03\0\0\0raw"), count(b"K\x05J\xff\xff\xff\xff")), (1, 1, 1));
    // An unknown value that contains itself is rejected, and so is one that is nested too deeply.
    let own = b"\x80\x04}(X\x08\0\0\0segments]X\x01\0\0\0x]\x94h\0au.";
    assert!(matches!(file::parse(own), Err(Error::Limit { field: "depth_max", .. })));
}
