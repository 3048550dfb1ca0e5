//! `doctor` on a simulated machine, with libraries and without, and completions of all commands.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::path::PathBuf;

use common::{program, shared_object, told};

/// Normalises the output: removes folders, which differ between machines.
fn plain(text: &str) -> String {
    let folder = shared_object("x").parent().unwrap().to_str().unwrap().to_owned();
    text.replace(&folder, "/usr/lib")
}

#[test]
fn what_is_there_and_what_is_missing_is_told() {
    let blas = shared_object("libcublas_sim.so");
    let mut command = program(&["doctor"]);
    for library in ["CUBLAS", "CUBLASLT", "CUSOLVER"] {
        command.env(format!("CUDA_SYS_LIB{library}"), &blas);
    }
    let (code, text, error) = told(command.env("CUDA_SYS_LIBCUFFT", "/nowhere/libcufft.so.12"));
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(!text.contains("/dev/nvidia"), "a simulated driver has no part in the kernel: {text}");
    let text = plain(&text);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once("<!-- doctor -->\n").unwrap();
    let (part, after) = rest.split_once("<!-- end -->").unwrap();
    let wanted = format!("```text\n{text}```\n");
    if std::env::var_os("TORCH_CUDA_BLESS").is_some() {
        std::fs::write(&path, format!("{before}<!-- doctor -->\n{wanted}<!-- end -->{after}")).unwrap();
    } else {
        assert!(part == wanted, "the README shows\n{part}\ninstead of\n{wanted}");
    }
}

#[test]
fn every_library_that_is_missing_has_its_meaning() {
    let mut command = program(&["doctor"]);
    for library in ["CUBLAS", "CUBLASLT", "CUSOLVER", "CUFFT", "NVML"] {
        command.env(format!("CUDA_SYS_LIB{library}"), "/nowhere/lib.so");
    }
    let (code, text, _) = told(&mut command);
    assert_eq!(code, 0, "none of them is needed: {text}");
    for (what, so) in [
        ("cuBLAS", "products of matrices run on own kernels, which know fewer cases"),
        ("cuSOLVER", "torch.linalg works on the host alone: cholesky, qr, solve, svd"),
        ("cuFFT", "torch.fft works on the host alone"),
        ("NVML", "no `top`, no temperature, power, load or processes; all else works"),
    ] {
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("missing  {what}: ")));
        assert!(lines.next().is_some_and(|line| line.contains("/nowhere/lib.so")), "{what}: {text}");
        assert_eq!(lines.next(), Some(format!("         so: {so}").as_str()));
    }
    let (code, text, _) = told(program(&["doctor"]).env("CUDA_SIM_DEVICES", "0").env("CUDA_VISIBLE_DEVICES", "7"));
    assert_eq!(code, 1, "{text}");
    assert!(text.starts_with("ok       driver: ") && text.contains("\nmissing  devices: "), "{text}");
    assert!(text.contains("(CUDA_VISIBLE_DEVICES=7)"), "{text}");
}

#[test]
fn completions_and_help_know_every_command() {
    let (_, help, _) = told(&mut program(&["help"]));
    for command in ["info", "doctor", "top", "stats", "replay", "bench", "snapshot", "viz", "completions"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
        let (code, own_help, _) = told(&mut program(&["help", command]));
        assert!(code == 0 && own_help.contains(&format!("Usage: torch-cuda {command}")), "{own_help}");
        for shell in ["bash", "zsh", "fish"] {
            let (_, text, _) = told(&mut program(&["completions", shell]));
            assert!(text.contains(command), "{shell} does not know {command}");
        }
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, text, _) = told(&mut program(&["completions", shell]));
        for option in ["interval", "prometheus", "of-device", "quick", "once"] {
            assert!(code == 0 && text.contains(option), "{shell} does not know {option}");
        }
    }
}
