//! Figures that a process shows to others while it runs.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use c10_core::{Error, ExportError, figure_exports};
use common::{Rig, config};
use testkit::with_environment;

/// A folder of this process alone.
fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("c10-export-{name}-{}", std::process::id()))
}

fn read(socket: &Path) -> String {
    let mut text = String::new();
    UnixStream::connect(socket).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn readers_get_the_figures_of_now_until_the_export_is_dropped() {
    let rig = Rig::new(config().devices(2));
    let export = rig.runtime.export_figures().unwrap();
    assert!(!rig.runtime.is_initialized(), "exporting starts nothing");
    assert!(!read(export.socket()).contains("device="));
    let held = rig.runtime.memory().buffer(1000, &rig.stream()).unwrap();
    assert!(read(export.socket()) == rig.runtime.figures_text().unwrap());
    assert!(read(export.socket()).contains("torch_cuda_allocated_bytes{device=\"0\",pool=\"all\"} 1024\n"));
    assert!(read(export.socket()).contains("torch_cuda_device_info{device=\"1\",uuid=\"GPU-"));
    drop(held);
    assert!(read(export.socket()).contains("torch_cuda_allocated_bytes{device=\"0\",pool=\"all\"} 0\n"));
    let socket = export.socket().to_owned();
    drop(export);
    assert!(!socket.exists() && UnixStream::connect(&socket).is_err());
}

#[test]
fn readers_that_misbehave_do_not_disturb_others() {
    let rig = Rig::new(config());
    let export = rig.runtime.export_figures().unwrap();
    let silent: Vec<_> = (0..20).map(|_| UnixStream::connect(export.socket()).unwrap()).collect();
    let mut talking = UnixStream::connect(export.socket()).unwrap();
    // The thread may have closed the connection already.
    let _ = talking.write_all(&[b'x'; 1 << 16]);
    drop(UnixStream::connect(export.socket()).unwrap());
    assert!(read(export.socket()).starts_with("# TYPE "));
    drop(silent);
}

#[test]
fn an_export_does_not_keep_its_runtime() {
    let rig = Rig::new(config());
    let export = rig.runtime.export_figures().unwrap();
    drop(rig);
    assert_eq!(read(export.socket()), "", "there is nothing to tell");
}

#[test]
fn the_environment_makes_a_program_export() {
    let test = "the_environment_makes_a_program_export";
    let place = folder("asked");
    let place = place.to_str().unwrap();
    with_environment(test, &[("TORCH_CUDA_EXPORT", "1"), ("TORCH_CUDA_EXPORT_FOLDER", place)], || {
        assert_eq!(figure_exports().unwrap(), []);
        let rig = Rig::new(config());
        rig.runtime.init().unwrap();
        let listed = figure_exports().unwrap();
        assert!(listed.len() == 1 && listed[0].is_alive && listed[0].pid == std::process::id(), "{listed:?}");
        assert!(read(&listed[0].socket) == rig.runtime.figures_text().unwrap());
        drop(rig);
        assert_eq!(figure_exports().unwrap(), [], "the export ends with its runtime");
        // What processes leave behind that end without a word is swept by the next one that exports.
        let left = std::env::var_os("TORCH_CUDA_EXPORT_FOLDER").map(PathBuf::from).unwrap();
        std::fs::write(left.join("1-1-0.sock"), "").unwrap();
        std::fs::write(left.join("note"), "").unwrap();
        assert!(!figure_exports().unwrap()[0].is_alive);
        let rig = Rig::new(config());
        rig.runtime.init().unwrap();
        assert!(!left.join("1-1-0.sock").exists() && left.join("note").exists());
        drop(rig);
        std::fs::remove_dir_all(left).unwrap();
    });
}

#[test]
fn a_folder_that_cannot_be_used_is_named_and_nothing_else_fails() {
    let test = "a_folder_that_cannot_be_used_is_named_and_nothing_else_fails";
    with_environment(test, &[("TORCH_CUDA_EXPORT", "1"), ("TORCH_CUDA_EXPORT_FOLDER", "/proc/nowhere")], || {
        let rig = Rig::new(config());
        let refused = rig.runtime.export_figures().unwrap_err();
        assert!(matches!(&refused, Error::Export(error) if matches!(**error, ExportError::Folder { .. })));
        assert!(refused.to_string().starts_with("figures cannot be exported in /proc/nowhere: "), "{refused}");
        assert_eq!(figure_exports().unwrap(), [], "a folder that is not there is empty");
        rig.runtime.init().unwrap();
    });
}
