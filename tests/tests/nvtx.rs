//! What a program's marks and ranges are to a tool that attaches itself: a shared object which knows the protocol and
//! nothing of this project.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the program with an environment and without the variables of tools that the tests are run with.
fn program(environment: &[(&str, &Path)]) -> Output {
    program_with(environment, &[])
}

fn program_with(environment: &[(&str, &Path)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvtx_program"));
    command.env_remove("NVTX_INJECTION64_PATH").env_remove("NVTX_SIM_REFUSE");
    command.envs(environment.iter().copied()).args(arguments);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes text")
}

/// The tool, which cargo builds next to this test's executable.
fn tool() -> PathBuf {
    let path = std::env::current_exe().expect("this test has a path").with_file_name("libnvtx_sim.so");
    assert!(path.exists(), "{} was not built", path.display());
    path
}

#[test]
fn a_tool_is_told_of_everything_in_order() {
    let log = std::env::temp_dir().join(format!("nvtx-log-{}", std::process::id()));
    let output = program(&[("NVTX_INJECTION64_PATH", &tool()), ("NVTX_SIM_LOG", &log)]);
    let told = fs::read_to_string(&log).expect("the tool wrote its log");
    fs::remove_file(&log).expect("the log is this test's");
    let expected = r#"mark "a mark"
mark "cut"
push "outer"
push "inner"
pop
pop
push "step 7"
pop
push "after a panic"
pop
mark_ex "green" v3 48 bytes category 4 color ff00aa00 payload 6:3fc00000
start 1 "begun here"
end 1
category 4 "loading"
thread numbered "main"
device 0 "the first"
domain 100 "loader"
domain 101 "other"
domain 100 category 1 "read"
domain 100 text 102 "epoch"
domain 100 push "registered 102" v3 48 bytes category 0 payload 2:ffffffffffffffff
domain 100 pop
domain 101 mark "epoch" v3 48 bytes category 0
domain 101 start 2 "wide" v3 48 bytes category 2
domain 101 end 2
mark "the text keeps its domain"
domain 100 ends
domain 101 ends
stream other "work"
start 3 "on the device"
mark "between"
end 3
mark "captured"
start 4 "in a graph"
end 4
start 5 "in a graph"
end 5
"#;
    assert_eq!(told, expected);
    let answers = "tool attached\npush 0 1\npop 1 0\npush 0\npop 0\nid 1\n";
    assert_eq!(text(&output.stdout), answers);
}

#[test]
fn a_tool_sees_what_the_runtime_does() {
    let log = std::env::temp_dir().join(format!("nvtx-emit-{}", std::process::id()));
    let output = program_with(&[("NVTX_INJECTION64_PATH", &tool()), ("NVTX_SIM_LOG", &log)], &["emit"]);
    let told = fs::read_to_string(&log).expect("the tool wrote its log");
    fs::remove_file(&log).expect("the log is this test's");
    assert_eq!(text(&output.stdout), "tool attached\nshown true\nshown false\n");
    // What comes after the text of a mark or a range is its payload.
    let brief = |line: &str| line.rsplit_once("\" v3").map_or(line, |(brief, _)| brief).replace('"', "");
    let lines: Vec<String> = told.lines().map(brief).collect();
    let expected = "domain 100 torch-cuda
domain 100 mark segment_alloc
domain 100 mark alloc
domain 100 start 1 copy
domain 100 end 1
domain 100 start 2 event wait
domain 100 end 2
domain 100 start 3 synchronize
domain 100 end 3
domain 100 start 4 synchronize
domain 100 end 4
domain 100 start 5 capture
domain 100 start 6 copy
domain 100 end 6
domain 100 end 5
domain 100 start 7 graph replay
domain 100 end 7
domain 100 start 8 synchronize
domain 100 end 8
domain 100 mark free
domain 100 ends";
    assert_eq!(lines, expected.lines().collect::<Vec<_>>());
    let output = program_with(&[], &["emit"]);
    assert_eq!(text(&output.stdout), "tool none\nshown false\nshown false\n");
}

#[test]
fn without_a_tool_nothing_is_counted() {
    let output = program(&[]);
    assert_eq!(text(&output.stdout), "tool none\npush -2 -2\npop -2 -2\npush -2\npop -2\nid 0\n");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_tool_that_cannot_be_attached_is_named_once_and_does_nothing() {
    let missing = Path::new("/nonexistent/tool.so");
    let program_itself = PathBuf::from(env!("CARGO_BIN_EXE_nvtx_program"));
    let nvtx = tool();
    let one = Path::new("1");
    let log = Path::new("/nonexistent/log");
    let cases: [(&[(&str, &Path)], &str); 3] = [
        (&[("NVTX_INJECTION64_PATH", missing)], "cannot open shared object file"),
        (&[("NVTX_INJECTION64_PATH", &program_itself)], "cannot dynamically load"),
        (
            &[("NVTX_INJECTION64_PATH", &nvtx), ("NVTX_SIM_LOG", log), ("NVTX_SIM_REFUSE", one)],
            "its function InitializeInjectionNvtx2 refused",
        ),
    ];
    for (environment, reason) in cases {
        let output = program(environment);
        let (answers, warnings) = (text(&output.stdout), text(&output.stderr));
        let error = answers.lines().next().expect("the program says what it found");
        assert!(error.starts_with("error the NVTX tool /") && error.contains(reason), "{error}");
        assert!(answers.ends_with("\npush -2 -2\npop -2 -2\npush -2\npop -2\nid 0\n"), "{answers}");
        assert_eq!(warnings.matches(reason).count(), 1, "{warnings}");
    }
}
