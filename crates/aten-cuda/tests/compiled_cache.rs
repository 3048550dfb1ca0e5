//! Compiled programs on disk: that later processes find them, and files that are wrong, removed, or cannot be written.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/programs.rs"]
#[expect(dead_code, reason = "one of the programs is used")]
mod programs;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aten_cuda::compile::compile;
use aten_cuda::{DType, Tensor};
use testkit::{CUresult, Config, Fault, Machine, Simulation};

/// An empty folder of a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled_cache").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A fused program on a machine of its own, as a later process has it; `fails` is a call of the driver that fails there.
fn call(fails: Option<&'static str>) -> Vec<f32> {
    let simulation = Simulation::new(Config::default());
    let simulated = simulation.here();
    let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], &[3]).unwrap().cuda(None).unwrap();
    if let Some(call) = fails {
        let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        simulated.machine().inject(Fault { call, occurrence: 1, code });
    }
    let compiled = compile(|x| Ok(vec![x[0].mul(2)?.add(1)?.relu()?]));
    compiled.call(&[&x]).unwrap()[0].to_vec().unwrap()
}

const EXPECTED: [f32; 3] = [3.0, 5.0, 7.0];

/// Runs a test in a process whose folder of compiled kernels this is, and whose driver keeps nothing.
fn with_folder(test: &str, path: &Path, switch: &str, body: impl FnOnce(PathBuf)) {
    with_switches(test, path, [switch, "1"], body);
}

/// Runs a test in a process with these [`switches`].
fn with_switches(test: &str, path: &Path, values: [&str; 2], body: impl FnOnce(PathBuf)) {
    let variables = switches(path, values);
    testkit::with_environment(test, &variables, || body(std::env::var_os("PYTORCH_KERNEL_CACHE_PATH").unwrap().into()));
}

/// The variables of a process whose folder of compiled kernels this is; the values are those of the folder's own switch and of
/// the one that has the driver keep nothing.
fn switches<'a>(path: &'a Path, [own, driver]: [&'a str; 2]) -> [(&'static str, &'a str); 3] {
    let folder = ("PYTORCH_KERNEL_CACHE_PATH", path.to_str().unwrap());
    [folder, ("USE_PYTORCH_KERNEL_CACHE", own), ("CUDA_CACHE_DISABLE", driver)]
}

#[test]
fn what_the_driver_made_is_found_by_later_processes() {
    let test = "what_the_driver_made_is_found_by_later_processes";
    with_folder(test, &folder("again"), "1", |own| {
        assert_eq!(call(None), EXPECTED);
        let [file] = files(&own).try_into().unwrap();
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("compiled_arch9.0_driver") && name.contains("_sass_"), "{name}");
        // Whoever finds the file links nothing, so that a linker that fails leaves it as it is.
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(call(Some("cuLinkComplete")), EXPECTED, "the driver compiles it at once");
        assert_eq!(std::fs::read(&file).unwrap().len(), whole.len() - 1, "and nothing was kept");
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(call(Some("cuLinkCreate_v2")), EXPECTED);
        assert_eq!(std::fs::read(&file).unwrap(), whole);
        // Each file that is wrong counts as none and is written again.
        for damage in [|bytes: &mut Vec<u8>| bytes[10] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(9), Vec::clear] {
            let mut bytes = whole.clone();
            damage(&mut bytes);
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(call(None), EXPECTED);
            assert_eq!(std::fs::read(&file).unwrap(), whole);
        }
        // With a limit of nothing, nothing stays.
        aten_cuda::raw::set_cache_limit(0);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(call(None), EXPECTED);
        assert!(files(&own).iter().all(|file| file.ends_with(".lock")), "{:?}", files(&own));
    });
}

#[test]
fn a_file_that_the_driver_refuses_is_written_again() {
    with_folder("a_file_that_the_driver_refuses_is_written_again", &folder("refused"), "1", |own| {
        assert_eq!(call(None), EXPECTED);
        let [file] = files(&own).try_into().unwrap();
        let whole = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        // The driver is out of memory when it loads what it has linked; it compiles the text then, and nothing is kept.
        assert_eq!(call(Some("cuModuleLoadDataEx")), EXPECTED);
        assert!(files(&own).is_empty());
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(call(Some("cuModuleLoadDataEx")), EXPECTED);
        assert_eq!(std::fs::read(&file).unwrap(), whole);
    });
}

#[test]
fn two_that_write_at_once_leave_one_whole_file() {
    with_folder("two_that_write_at_once_leave_one_whole_file", &folder("writers"), "1", |own| {
        std::thread::scope(|scope| {
            let both = [(), ()].map(|()| scope.spawn(|| call(None)));
            for one in both {
                assert_eq!(one.join().unwrap(), EXPECTED);
            }
        });
        assert_eq!(files(&own).len(), 1);
        assert_eq!(call(Some("cuLinkCreate_v2")), EXPECTED);
    });
}

#[test]
fn the_cache_can_be_switched_off() {
    with_folder("the_cache_can_be_switched_off", &folder("off"), "0", |own| {
        assert_eq!(call(None), EXPECTED);
        assert!(files(&own).is_empty());
    });
}

#[test]
fn nothing_is_kept_twice() {
    with_switches("nothing_is_kept_twice", &folder("twice"), ["1", "0"], |own| {
        assert_eq!(call(None), EXPECTED);
        assert!(files(&own).is_empty(), "the driver keeps what it has compiled");
    });
}

#[test]
fn a_folder_that_cannot_be_written_costs_only_time() {
    let own = folder("file").join("file");
    std::fs::write(&own, "").unwrap();
    with_folder("a_folder_that_cannot_be_written_costs_only_time", &own.join("kernels"), "1", |_| {
        assert_eq!(call(None), EXPECTED);
        assert_eq!(call(None), EXPECTED);
    });
}

#[test]
fn a_full_disk_keeps_nothing_and_changes_no_result() {
    let disk = folder("full");
    let variables = switches(&disk, ["1", "1"]);
    // A disk of one page, which the first file fills.
    testkit::with_small_disk("a_full_disk_keeps_nothing_and_changes_no_result", &disk, 4096, &variables, |disk| {
        std::fs::write(disk.join("filler"), [0; 4096]).unwrap();
        assert_eq!(std::fs::write(disk.join("more"), [1]).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        std::fs::remove_file(disk.join("more")).unwrap();
        assert_eq!((call(None), call(None)), (EXPECTED.to_vec(), EXPECTED.to_vec()));
        let left: Vec<PathBuf> = files(disk).into_iter().filter(|path| !path.ends_with("filler")).collect();
        assert!(left.is_empty(), "what had no room is left: {left:?}");
    });
}

fn numbers(sizes: &[i64]) -> Tensor {
    let count: i64 = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|at| ((at * 37) % 101) as f32 / 25.0 - 2.0).collect();
    Tensor::from_slice(&values, sizes).unwrap().to_dtype(DType::BF16).unwrap().cuda(None).unwrap()
}

fn bits(made: &[Tensor]) -> Vec<u32> {
    let values = made[0].to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

/// How often the driver was called so.
fn calls(machine: &Machine, name: &str) -> u64 {
    machine.calls().iter().filter(|(call, ..)| *call == name).map(|(.., count)| count).sum()
}

/// The bits of a long program on a machine of its own, by a first call and by one after all threads are done, and the calls
/// of the linker; `folder` has a file by then.
fn long(folder: &Path) -> ([Vec<u32>; 2], u64) {
    let simulation = Simulation::new(Config::default());
    let simulated = simulation.here();
    simulated.machine().make_default();
    let inputs = [numbers(&[2, 4096]), numbers(&[4096]), numbers(&[4096])];
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let compiled = compile(programs::norm);
    let bits = || bits(&compiled.call(&inputs).unwrap());
    let first = bits();
    let end = Instant::now() + Duration::from_secs(60);
    while files(folder).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let links = calls(simulated.machine(), "cuLinkComplete");
    ([first, bits()], links)
}

#[test]
fn a_long_text_is_compiled_in_steps_and_kept() {
    let test = "a_long_text_is_compiled_in_steps_and_kept";
    with_switches(test, &folder("steps"), ["1", "0"], |own| {
        let (before, links) = long(&own);
        assert_eq!(links, 1);
        assert!(before[0] == before[1]);
        let [file] = files(&own).try_into().unwrap();
        assert!(file.file_name().unwrap().to_str().unwrap().starts_with("compiled_rows_arch9.0_driver"), "{file:?}");
        // A later process begins with it.
        let (after, links) = long(&own);
        assert_eq!(links, 0);
        assert!(after[0] == before[0] && after[1] == before[0]);
    });
}

#[test]
fn what_runs_before_the_better_code_gives_the_same_bits() {
    type Function = fn(&[Tensor]) -> aten_cuda::Result<Vec<Tensor>>;
    let programs: [(&str, Function, &[&[i64]]); 3] = [
        ("a row of two lanes for each thread", programs::norm, &[&[2, 4096], &[4096], &[4096]]),
        ("a row of one lane", programs::norm, &[&[2, 6144], &[6144], &[6144]]),
        ("a split sum", programs::squares, &[&[(1 << 17) + 77], &[(1 << 17) + 77]]),
    ];
    let test = "what_runs_before_the_better_code_gives_the_same_bits";
    with_switches(test, &folder("before"), ["1", "0"], |own| {
        for (name, function, sizes) in programs {
            let simulation = Simulation::new(Config::default());
            let simulated = simulation.here();
            simulated.machine().make_default();
            let owned: Vec<Tensor> = sizes.iter().map(|sizes| numbers(sizes)).collect();
            let inputs: Vec<&Tensor> = owned.iter().collect();
            let expected = bits(&function(&owned).unwrap());
            let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
            simulated.machine().inject(Fault { call: "cuLinkCreate_v2", occurrence: 1, code });
            let compiled = compile(function);
            for _ in 0..3 {
                assert!(bits(&compiled.call(&inputs).unwrap()) == expected, "{name}");
            }
            let end = Instant::now() + Duration::from_secs(60);
            while calls(simulated.machine(), "cuLinkCreate_v2") == 0 && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            let linked = ["cuLinkCreate_v2", "cuLinkComplete"].map(|call| calls(simulated.machine(), call));
            assert_eq!(linked, [1, 0], "{name}");
            assert!(files(&own).iter().all(|file| !file.to_str().unwrap().contains("compiled_rows")), "{name}");
        }
    });
}
