//! A small disk that a test can fill.

use std::path::Path;
use std::process::Command;

use crate::environment;

/// Names the folder that is the small disk.
const DISK: &str = "TESTKIT_DISK";

/// Mounts a file system of this size there, for this process and those it becomes, and becomes the program that follows.
const SCRIPT: &str = "mount -t tmpfs -o \"size=$1\" none \"$2\" && shift 2 && exec \"$@\"";

/// Runs the body of a test in a process of its own for which `folder`, which exists, is an empty disk of so many bytes, and
/// which has these environment variables too. The system rounds the bytes up to whole pages.
///
/// `test` is as for [`with_environment`](crate::with_environment). The body gets the folder. Where the system lets nobody
/// make such a disk, the body does not run, and the reason is printed.
///
/// ```no_run
/// // The body of the test `a_full_disk_is_noticed`.
/// let folder = std::env::temp_dir();
/// testkit::with_small_disk("a_full_disk_is_noticed", &folder, 1 << 20, &[], |disk| {
///     let error = std::fs::write(disk.join("large"), vec![0; 2 << 20]).unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
/// });
/// ```
///
/// # Panics
/// As [`with_environment`](crate::with_environment).
#[expect(clippy::print_stdout, reason = "who runs tests wants to know which did not run")]
pub fn with_small_disk(test: &str, folder: &Path, bytes: u64, variables: &[(&str, &str)], body: impl FnOnce(&Path)) {
    if environment::is_started_for(test) {
        return body(Path::new(&std::env::var_os(DISK).expect("whoever starts it says where the disk is")));
    }
    let mut program = Command::new("unshare");
    program.args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh", &bytes.to_string()]);
    program.arg(folder).arg(std::env::current_exe().expect("this program has a path")).env(DISK, folder);
    let Ok(output) = environment::for_test(&mut program, test, variables).output() else {
        println!("not run: `{test}`, since there is no `unshare`");
        return;
    };
    let why = String::from_utf8_lossy(&output.stderr);
    if why.contains("unshare:") || why.contains("mount:") {
        println!("not run: `{test}`, since no small disk can be made here: {why}");
        return;
    }
    environment::assert_passed(test, &output);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_as_small_as_asked() {
        let folder = std::env::temp_dir().join(format!("testkit-disk-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let test = "disk::tests::the_disk_is_as_small_as_asked";
        with_small_disk(test, &folder, 1 << 16, &[("TESTKIT_OTHER", "7")], |disk| {
            assert_eq!(std::env::var("TESTKIT_OTHER").as_deref(), Ok("7"));
            std::fs::write(disk.join("whole"), vec![1; 1 << 16]).expect("there is room");
            let error = std::fs::write(disk.join("more"), [1]).expect_err("it is full");
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        });
        std::fs::remove_dir(&folder).expect("nothing was written beneath the disk");
    }
}
