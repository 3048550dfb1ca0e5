//! The inputs that were kept: none fails any more.

use std::process::Command;

fn fuzz(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fuzz")).args(args).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn every_body_takes_its_corpus() {
    let bodies = fuzz(&["--list"]);
    assert!(bodies.lines().count() > 1, "{bodies}");
    for body in bodies.lines() {
        assert!(fuzz(&[body, "--seconds", "0"]).starts_with(&format!("{body}: ")));
    }
}
