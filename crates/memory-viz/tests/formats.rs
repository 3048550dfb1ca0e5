//! Files: written and read again, read after Python has written them, and refused when they are not whole or not honest.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

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
    // A list of a thousand entries, recalled a thousand times.
    let mut text = String::from("{\"segments\": [], \"device_traces\": [");
    text.push_str(&vec!["[]"; 1000].join(","));
    text.push_str("]}");
    let limits = Limits { entries_max: 999, ..Limits::default() };
    assert!(matches!(
        file::parse_with(text.as_bytes(), &limits),
        Err(Error::Limit { limit: 999, field: "entries_max", .. })
    ));
    let limits = Limits { values_max: 10, ..Limits::default() };
    assert!(matches!(file::parse_with(text.as_bytes(), &limits), Err(Error::Limit { field: "values_max", .. })));
    let limits = Limits { bytes_max: 10, ..Limits::default() };
    assert!(matches!(file::parse_with(text.as_bytes(), &limits), Err(Error::Limit { field: "bytes_max", .. })));
    let mut bomb = b"\x80\x04}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](".to_vec();
    bomb.extend(b"}(X\x06\0\0\0actionX\x05\0\0\0allocX\x04\0\0\0sizeK\x01u".repeat(1000));
    bomb.extend(b"e\x94");
    bomb.extend(b"h\0".repeat(100_000));
    bomb.extend(b"eu.");
    let limits = Limits { entries_max: 1_000_000, ..Limits::default() };
    assert!(matches!(
        file::parse_with(&bomb, &limits),
        Err(Error::Limit { limit: 1_000_000, field: "entries_max", .. })
    ));
}

#[test]
fn a_list_that_holds_itself_is_refused() {
    // x = []; x.append(x); {"segments": x}, and settings that hold themselves.
    let own = b"\x80\x04}(X\x08\0\0\0segments]\x94h\0au.";
    assert!(matches!(file::parse(own), Err(Error::Shape { path: "segments[]", .. })));
    let settings = b"\x80\x04}(X\x08\0\0\0segments]X\x12\0\0\0allocator_settings}\x94(X\x01\0\0\0ah\0uu.";
    assert!(file::parse(settings).is_ok());
}
