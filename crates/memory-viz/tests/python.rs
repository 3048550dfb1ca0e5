//! Python reads what this crate writes, and this crate reads what Python writes, at every protocol.
//!
//! Without Python the test says so and passes.

mod common;

use std::path::Path;
use std::process::Command;

use memory_viz::file;

/// Reads a pickle, looks at it, and writes it again at every protocol and as JSON. The instructions are held against
/// those that the reader in PyTorch's page knows.
const PROGRAM: &str = r#"
import json, pickle, pickletools, sys
path = sys.argv[1]
data = pickle.load(open(path, "rb"))
known = {"PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
         "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "TUPLE", "TUPLE1",
         "TUPLE2", "TUPLE3", "LIST", "DICT", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT",
         "BINGET", "LONG_BINGET", "MEMOIZE"}

for opcode, argument, place in pickletools.genops(open(path, "rb").read()):
    assert opcode.name in known, opcode.name
segment, entry = data["segments"][0], data["device_traces"][0][-1]
assert segment["segment_pool_id"] == (0, 0) and segment["is_expandable"] is False
assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
assert data["allocator_settings"]["roundup_power2_divisions"] == {"1": 0, "2": 4}
assert entry["action"] == "alloc" and entry["compile_context"] == "N/A"
assert entry["frames"][0] == {"name": "linear::forward", "filename": "/home/someone/model/linear.py", "line": 114}
for protocol in range(0, 6):
    pickle.dump(data, open(f"{path}.{protocol}", "wb"), protocol=protocol)
json.dump(data, open(path + ".json", "w"), indent=1)
print(len(data["device_traces"][0]))
"#;

#[test]
fn python_and_this_crate_read_each_other() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no python3 here");
        return;
    }
    let snapshot = common::training(3000, 11);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python.pickle");
    file::write_pickle(&snapshot, &path).unwrap();
    // Isolated mode: ignores the user's packages and environment variables.
    let output = Command::new("python3").args(["-I", "-c", PROGRAM]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let entries = snapshot.device_traces[0].len().to_string();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), entries);
    let ours = file::read(&path).unwrap();
    let beside = |end: &str| path.with_file_name(format!("python.pickle.{end}"));
    for end in ["2", "3", "4", "5", "json"] {
        assert_eq!(file::read(&beside(end)).unwrap(), ours, "{end}");
    }
    for end in ["0", "1"] {
        assert!(
            file::read(&beside(end)).unwrap_err().to_string().contains("does not begin as a pickle of protocol 2 to 5")
        );
    }
}
