//! Tests that need environment variables.
//!
//! A process has one environment for all its threads, and tests are threads of one process. So a test that needs another
//! environment runs in a process of its own.

use std::process::{Command, Output};

/// Names the test that a process was started for.
const TEST: &str = "TESTKIT_TEST";

/// Runs the body of a test in a process of its own that has these environment variables too.
///
/// `test` is the name of the calling test, with its modules, as `cargo test` prints it. The test program is started again
/// for that test alone, and the body runs there.
///
/// ```no_run
/// // The body of the test `options_are_read`.
/// testkit::with_environment("options_are_read", &[("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")], || {
///     let simulated = testkit::simulated_runtime();
///     assert_eq!(simulated.runtime().memory().config().max_split_size, Some(64 << 20));
/// });
/// ```
///
/// # Panics
/// The body fails there, there is no test of that name, or the program cannot be started.
pub fn with_environment(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if is_started_for(test) {
        return body();
    }
    let mut program = Command::new(std::env::current_exe().expect("this program has a path"));
    let output = for_test(&mut program, test, variables).output().expect("this program can be started");
    assert_passed(test, &output);
}

/// Whether this process was started to run the body of this test.
pub(crate) fn is_started_for(test: &str) -> bool {
    std::env::var_os(TEST).is_some_and(|started_for| started_for == test)
}

/// Has a program, or what it runs, run the body of this test.
pub(crate) fn for_test<'a>(program: &'a mut Command, test: &str, variables: &[(&str, &str)]) -> &'a mut Command {
    program.args([test, "--exact", "--nocapture"]).env(TEST, test).envs(variables.iter().copied())
}

/// Fails with what the process has said unless the test ran there and passed.
pub(crate) fn assert_passed(test: &str, output: &Output) {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(
        output.status.success() && said[0].contains("1 passed"),
        "`{test}` in a process of its own: {}",
        said.concat()
    );
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn variables_are_set_in_that_process_alone() {
        let test = "environment::tests::variables_are_set_in_that_process_alone";
        let mut runs_here = false;
        with_environment(test, &[("TESTKIT_OTHER", "7")], || {
            runs_here = true;
            assert_eq!(std::env::var("TESTKIT_OTHER").as_deref(), Ok("7"));
        });
        assert_eq!(std::env::var_os("TESTKIT_OTHER").is_some(), runs_here);
    }

    #[test]
    fn a_failure_there_is_one_here() {
        let test = "environment::tests::a_failure_there_is_one_here";
        let failure = catch_unwind(|| with_environment(test, &[], || panic!("said there")));
        // There this is the plain text of the body, which is no `String`, so that the test fails.
        let said = failure.expect_err("the body fails").downcast::<String>().expect("what the other process said");
        assert!(said.contains("said there"), "{said}");
    }

    #[test]
    fn a_test_that_is_not_there_fails() {
        assert!(catch_unwind(|| with_environment("no_test_has_this_name", &[], || ())).is_err());
    }
}
