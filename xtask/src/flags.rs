//! All commands and their options in one table, and what reads a command line against it.
//!
//! An unknown command, an unknown option, a missing or a surplus value is an error with the usage text; nothing is
//! guessed.

use std::collections::BTreeMap;
use std::ffi::OsString;

use lexopt::{Arg, Parser, ValueExt as _};

use crate::shell::Result;
use crate::{
    bench, check, codegen, demo, differential, differential_ops, fills, foreign, gpu_test, kernels, lint, replay,
    survey, test, viewer,
};

/// One command of `cargo xtask`.
#[derive(Debug)]
pub(crate) struct Command {
    /// The word after `cargo xtask`.
    pub(crate) name: &'static str,
    /// What it does, in half a line.
    pub(crate) about: &'static str,
    /// Where the files are that it reads and writes, and what is in them; printed below the options.
    pub(crate) files: &'static str,
    /// The options it takes.
    pub(crate) options: &'static [Opt],
    /// What runs.
    pub(crate) run: fn(&Flags) -> Result<()>,
}

/// One option of a command.
#[derive(Debug)]
pub(crate) struct Opt {
    /// The word with its two dashes; one without stands for all words that are no options.
    pub(crate) name: &'static str,
    /// What the value is called in the usage text; an option without one is a switch.
    pub(crate) value: Option<&'static str>,
    /// What it does.
    pub(crate) about: &'static str,
}

const DRIVER: Opt = Opt {
    name: "--driver",
    value: Some("auto|sim|real|PATH"),
    about: "which driver programs run on: a real GPU where there is one, else the simulated one (auto, the default), \
            the simulated one, the real one, or the libcuda at a path",
};

/// The words that ask for the usage text.
const HELP: [&str; 3] = ["help", "--help", "-h"];

/// Every command there is.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        about: "shows the runtime at work on a recorded training run",
        files: "",
        options: &[DRIVER],
        run: demo::run,
    },
    Command {
        name: "test",
        about: "unit, documentation, conformance and golden tests; none needs a GPU",
        files: "",
        options: &[DRIVER],
        run: test::run,
    },
    Command {
        name: "lint",
        about: "formatting, clippy, documentation warnings, house rules, drift of what is generated or listed",
        files: "",
        options: &[DRIVER],
        run: lint::run,
    },
    Command {
        name: "layers",
        about: "prints which folder of a crate imports which, and fails where one imports a folder above it",
        files: "",
        options: &[DRIVER],
        run: survey::layers,
    },
    Command {
        name: "api",
        about: "writes the public API of the crates to `docs/api`, one line an item",
        files: "",
        options: &[DRIVER, Opt { name: "--check", value: None, about: "writes nothing, fails if something differs" }],
        run: survey::api,
    },
    Command {
        name: "coverage",
        about: "writes into `docs/coverage.md` which file each name is in, and how many there are",
        files: "",
        options: &[DRIVER, Opt { name: "--check", value: None, about: "writes nothing, fails if a row is not true" }],
        run: survey::coverage,
    },
    Command {
        name: "check",
        about: "model checkers, AddressSanitizer, fuzz bodies over their corpus and then for a while each",
        files: "",
        options: &[
            DRIVER,
            Opt { name: "--seconds", value: Some("N"), about: "how long each fuzz body runs (60)" },
            Opt { name: "--seed", value: Some("N"), about: "first seed of the fuzz bodies (1)" },
        ],
        run: check::run,
    },
    Command {
        name: "kernels",
        about: "kernels in CUDA C++, compiled by pinned compilers, run and compared with plain Rust",
        files: "The sources are `tests/kernels/*.cu`, and `kernels/*.cu` of the crates, whose texts are committed and must be\n\
                what the sources give. Compilers and texts land in `kernels` in the target folder; with the texts there,\n\
                nothing is fetched.",
        options: &[
            DRIVER,
            Opt { name: "--seeds", value: Some("N"), about: "how many seeds each case runs under (3)" },
            Opt { name: "--filter", value: Some("TEXT"), about: "runs only the cases with this in `file::name`" },
            Opt { name: "--write", value: None, about: "writes the texts of the crates' kernels, and runs nothing" },
            Opt { name: "--all", value: None, about: "assembles every generated text (a third of them)" },
        ],
        run: kernels::run,
    },
    Command {
        name: "viewer",
        about: "the page of memory-viz in a real browser without a screen; says so where none can be had",
        files: "A Chromium is fetched by npm at a pinned version into `viewer` in the target folder, or CHROMIUM names one. Screenshots\n\
                land in `tmp` there.",
        options: &[DRIVER],
        run: viewer::run,
    },
    Command {
        name: "codegen",
        about: "writes the bindings of cuda-sys from the pinned headers",
        files: "",
        options: &[DRIVER, Opt { name: "--check", value: None, about: "writes nothing, fails if something differs" }],
        run: codegen::run,
    },
    Command {
        name: "gpu-test",
        about: "tests, demo and bench on a real GPU: here, or packed for a host without Rust",
        files: "The folder that is packed (DIR, or `gpu-test` in the target folder) holds `run`, a script that takes `real`, `sim` or\n\
                the path of a libcuda; `bin`, the programs; `data`, a recorded trace. `run` writes `out/summary.txt`, a line with name,\n\
                outcome and seconds for each step, and beside it what the benches print, `bench_flow.txt` and `bench_alloc.txt`.\n\
                FOLDER is no part of this project; of it are built and run, where their tools are found: `torch_bench.cpp`,\n\
                `torch_replay.cpp`, `torch_py_bench.py`, `driver_costs.cpp`.",
        options: &[
            DRIVER,
            Opt { name: "--bundle", value: Some("DIR"), about: "pack everything into this folder instead of running" },
            Opt { name: "--peer", value: Some("FOLDER"), about: "benchmarks of the peers to pack or run beside ours" },
        ],
        run: gpu_test::run,
    },
    Command {
        name: "bench",
        about: "our costs beside those of the raw driver, in one run; with `alloc` those of the caching allocator",
        files: "FILE holds a figure a line: a name as our table has it, a tabulator, nanoseconds; other lines are passed over.\n\
                HARNESS is a program, no part of this project, that reads `bench KIND ARGUMENT THREADS OPS` a line from its standard\n\
                input and answers each with a line of figures; with `tensors` it reads the name of a row and answers with a figure. All forms, and every row: docs/testing.md, \"Measuring\".",
        options: &[
            DRIVER,
            Opt {
                name: "alloc",
                value: None,
                about: "measures the caching allocator, by threads, sizes and statistics",
            },
            Opt { name: "streams", value: None, about: "measures what is current, guards, events, pinned memory" },
            Opt { name: "graphs", value: None, about: "measures capture and replay" },
            Opt {
                name: "tensors",
                value: None,
                about: "measures operations on tensors, on a real GPU beside PyTorch's",
            },
            Opt {
                name: "observe",
                value: None,
                about: "measures the history, snapshots, marks and the time line, beside their targets",
            },
            Opt {
                name: "storage",
                value: None,
                about: "measures files of tensors onto the device, beside the bus, the disk and PyTorch's loader",
            },
            Opt { name: "--cold", value: None, about: "with `streams`: also pinned memory that nothing is cached for" },
            Opt {
                name: "--figures",
                value: Some("FILE"),
                about: "with `streams` and `graphs`: what another program has printed, to stand beside ours",
            },
            Opt {
                name: "--peer",
                value: Some("HARNESS"),
                about: "with `alloc`, `tensors` and `storage`: a program that measures somebody else's, which runs in turn with ours",
            },
            Opt { name: "--filter", value: Some("TEXT"), about: "with `tensors`: only rows whose name has this in it" },
            Opt {
                name: "--small",
                value: None,
                about: "with `tensors` and `storage`: little data, for the simulated device",
            },
            Opt {
                name: "--json",
                value: None,
                about: "prints one JSON object: instead of the table, with `alloc` as the last line",
            },
        ],
        run: bench::run,
    },
    Command {
        name: "replay",
        about: "checks golden allocator scripts, or measures a recorded trace, on the simulated driver",
        files: "SCRIPT is a file of `tests/data/golden/allocator` (`*.script.gz`) or one like it, plain or compressed with gzip: a line\n\
                of `key=value` words (`conf`, `kind`, `total_memory`), then an operation or an answer a line. FILE is one of\n\
                `tests/data/traces` (`*.trace.gz`) or one like it: a line `a ID BYTES STREAM` takes memory, a line `f ID` gives it back.\n\
                TEXT is what `PYTORCH_CUDA_ALLOC_CONF` takes, as `expandable_segments:True`. A script that fails has a line\n\
                `FAIL NAME: line N, KEY, expected X, got Y`; the last line counts.",
        options: &[
            DRIVER,
            Opt { name: "SCRIPT...", value: None, about: "the scripts to check" },
            Opt { name: "--trace", value: Some("FILE"), about: "the trace to run twice" },
            Opt { name: "--conf", value: Some("TEXT"), about: "the allocator's configuration for the trace" },
            Opt { name: "--json", value: None, about: "prints the measures as one JSON object last" },
        ],
        run: replay::run,
    },
    Command {
        name: "fills",
        about: "draws recorded random fills again, and compares states and values",
        files: "FILE is a JSON list of fills: `name` is the call (`randn`, `uniform_-2_3`), `dtype` torch's name, `numel` the size,\n\
                `state_before` and `state_after` are the generator's 16 bytes in hex, `head_hex` is how the result begins, and\n\
                `sha256` that of all its bytes. On the simulated driver, values of approximate instructions need only be within\n\
                the bounds of these; they are counted apart. The last line counts. Nothing is written.",
        options: &[
            DRIVER,
            Opt { name: "FILE...", value: None, about: "the files to check" },
            Opt { name: "--filter", value: Some("TEXT"), about: "only the fills with this in their name" },
            Opt { name: "--all", value: None, about: "tells of every failure, not only of the first of each call" },
        ],
        run: fills::fills,
    },
    Command {
        name: "ops",
        about: "computes recorded tensor operations again, and compares dtypes, layouts, values and errors",
        files: "FILE is JSON, plain or compressed with gzip: `cases` holds an operation, its inputs and arguments, and what PyTorch\n\
                answered; `promote`, `result_type_with_scalar` and `repr` are tables of promotions and printed forms. The\n\
                last line counts.",
        options: &[
            Opt {
                name: "--driver",
                value: Some("auto|cpu|sim|real|PATH"),
                about: "where to compute: on the host, on the simulated driver (auto, the default), the real one, or the \
                        libcuda at a path",
            },
            Opt { name: "FILE...", value: None, about: "the files to check" },
            Opt { name: "--filter", value: Some("NAME"), about: "only the operation of this name" },
            Opt {
                name: "--all",
                value: None,
                about: "tells of every failure, not only of the first of each operation",
            },
            Opt {
                name: "--sums",
                value: Some("SUMS"),
                about: "writes a sum of each answer's bytes into this file, to compare two devices bit by bit",
            },
        ],
        run: fills::ops,
    },
    Command {
        name: "differential",
        about: "runs random scripts on our allocator and on PyTorch's own, and compares every answer",
        files: "HARNESS is a program, no part of this project, that runs the allocator of PyTorch 2.11's `libc10_cuda.so` on a\n\
                simulated runtime. It reads a command a line from its standard input and answers each; the commands are in\n\
                docs/testing.md, \"Random scripts against PyTorch's allocator\". Nothing is written: a script that differs is printed\n\
                as the text that HARNESS reads.",
        options: &[
            DRIVER,
            Opt { name: "--peer", value: Some("HARNESS"), about: "the program that runs PyTorch's allocator" },
            Opt { name: "--sequences", value: Some("N"), about: "how many scripts of 400 operations (1000)" },
            Opt { name: "--seed", value: Some("N"), about: "the seed of the first; each next has the next seed (1)" },
        ],
        run: differential::run,
    },
    Command {
        name: "differential-ops",
        about: "runs random tensor operations on our devices and on PyTorch's CPU wheel, and compares every answer",
        files: "PYTHON is a Python that has torch 2.11; without it the wheel is fetched into the target folder. The calls are\n\
                written to `random_ops-SEED.jsonl` there. Classes of differences are printed with the smallest call of each.",
        options: &[
            DRIVER,
            Opt { name: "--count", value: Some("N"), about: "the number of calls (100000)" },
            Opt { name: "--seed", value: Some("N"), about: "the seed of the calls (1)" },
            Opt {
                name: "--device-every",
                value: Some("N"),
                about: "runs every Nth call on the device too (20; 0: none)",
            },
            Opt { name: "--python", value: Some("PYTHON"), about: "a Python that has torch, instead of a fetched one" },
        ],
        run: differential_ops::run,
    },
    Command {
        name: "foreign",
        about: "runs programs of others on the simulated driver: cudarc's own tests, scripts for cuda.core and numba-cuda",
        files: "SUITE is `cudarc`, `cudarc-examples`, `cudarc-caching`, `cudarc-program`, `candle-program`, `cuda-core` or `numba`.\n\
                They are fetched at pinned versions into `foreign` in the target folder: packages of crates.io, wheels of the\n\
                Python package index. What is expected of each test stands in `tests/foreign/expected.txt`, what one\n\
                printed last in `foreign/logs` in the target folder.",
        options: &[
            DRIVER,
            Opt { name: "SUITE...", value: None, about: "the suites to run, instead of all" },
            Opt { name: "--slow", value: None, about: "also the tests that keep a kernel busy for a minute" },
        ],
        run: foreign::run,
    },
];

/// The options given on a command line, checked against the table.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    options: BTreeMap<&'static str, String>,
    words: Vec<String>,
}

impl Flags {
    /// The value of an option, if it was given.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Whether a switch was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The value of an option as a whole number, or what stands in for it.
    pub(crate) fn number(&self, name: &str, otherwise: u64) -> Result<u64> {
        self.value(name).map_or(Ok(otherwise), |text| {
            text.parse().map_err(|_| format!("{name} takes a whole number, not `{text}`"))
        })
    }

    /// The words that are no options, for a command that takes some.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// The driver asked for; `auto` if nothing was said.
    pub(crate) fn driver(&self) -> &str {
        self.value(DRIVER.name).unwrap_or("auto")
    }
}

/// What a command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// To be told this.
    Help(String),
    /// To run this command.
    Run(&'static Command, Flags),
}

/// Reads the words after `cargo xtask`.
///
/// # Errors
/// The usage text, headed by what is wrong.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> std::result::Result<Request, String> {
    let mut args = args.into_iter();
    let Some(name) = args.next().map(|name| name.to_string_lossy().into_owned()) else {
        return Ok(Request::Help(overview()));
    };
    if HELP.contains(&name.as_str()) {
        return Ok(Request::Help(overview()));
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(format!("there is no command `{name}`\n\n{}", overview()));
    };
    let rest: Vec<OsString> = args.collect();
    if rest.iter().any(|word| HELP.iter().any(|help| word == help)) {
        return Ok(Request::Help(usage(command)));
    }
    match options(command, Parser::from_args(rest)) {
        Ok(flags) => Ok(Request::Run(command, flags)),
        Err(error) => Err(format!("{error}\n\n{}", usage(command))),
    }
}

/// Checks the words of a command line against the options of its command.
fn options(command: &Command, mut words: Parser) -> std::result::Result<Flags, lexopt::Error> {
    let mut flags = Flags::default();
    let takes_words = command.options.iter().any(|option| !option.name.starts_with('-'));
    while let Some(word) = words.next()? {
        let name = match word {
            Arg::Value(word) if takes_words => {
                flags.words.push(word.string()?);
                continue;
            }
            Arg::Long(name) => format!("--{name}"),
            Arg::Short(_) | Arg::Value(_) => return Err(word.unexpected()),
        };
        let Some(option) = command.options.iter().find(|option| option.name == name) else {
            return Err(format!("`{}` takes no `{name}`", command.name).into());
        };
        let value = if option.value.is_some() { words.value()?.string()? } else { String::new() };
        if flags.options.insert(option.name, value).is_some() {
            return Err(format!("{name} is given twice").into());
        }
    }
    Ok(flags)
}

fn overview() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND [OPTION]...\n");
    for command in COMMANDS {
        text.push_str(&format!("\n  {:<12} {}", command.name, command.about));
    }
    text.push_str("\n\n`cargo xtask COMMAND --help` lists its options.");
    text
}

fn usage(command: &Command) -> String {
    let mut text = format!("usage: cargo xtask {}", command.name);
    for option in command.options {
        text.push_str(&format!(" [{}]", spelled(option)));
    }
    text.push_str(&format!("\n\n{}\n", command.about));
    for option in command.options {
        text.push_str(&format!("\n  {}\n      {}", spelled(option), option.about));
    }
    if !command.files.is_empty() {
        text.push_str(&format!("\n\n{}", command.files));
    }
    text
}

fn spelled(option: &Opt) -> String {
    option.value.map_or_else(|| option.name.to_owned(), |value| format!("{} {value}", option.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn flags(line: &str) -> Flags {
        match parse(words(line)).unwrap() {
            Request::Run(_, flags) => flags,
            Request::Help(text) => panic!("expected a command, got {text}"),
        }
    }

    #[test]
    fn both_spellings_of_a_value_are_read() {
        assert_eq!(flags("demo --driver sim").driver(), "sim");
        assert_eq!(flags("demo --driver=/opt/libcuda.so.1").driver(), "/opt/libcuda.so.1");
        assert_eq!(flags("demo").driver(), "auto");
    }

    #[test]
    fn every_command_takes_a_driver() {
        for command in COMMANDS {
            assert!(command.options.iter().any(|option| option.name == "--driver"), "{}", command.name);
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_refused_with_the_usage() {
        for line in [
            "dance",
            "demo --loud",
            "demo --driver",
            "codegen --check=yes",
            "demo extra",
            "demo --driver sim --driver sim",
            "demo -d sim",
        ] {
            let error = parse(words(line)).unwrap_err();
            assert!(error.contains("usage: cargo xtask"), "{line}: {error}");
        }
    }

    #[test]
    fn words_are_kept_for_a_command_that_takes_some() {
        let replay = flags("replay a.script --json b.script");
        assert_eq!(replay.words(), ["a.script", "b.script"]);
        assert!(replay.has("--json"));
    }

    #[test]
    fn the_usage_tells_of_files() {
        for name in ["replay", "fills", "ops", "differential", "differential-ops", "bench", "gpu-test", "foreign"] {
            let Request::Help(text) = parse(words(&format!("{name} --help"))).unwrap() else { panic!("{name}") };
            let command = COMMANDS.iter().find(|command| command.name == name).unwrap();
            assert!(text.ends_with(command.files) && command.files.len() > 100, "{name}");
        }
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(flags("check --seconds 5").number("--seconds", 60), Ok(5));
        assert_eq!(flags("check").number("--seconds", 60), Ok(60));
        assert!(flags("check --seconds soon").number("--seconds", 60).is_err());
    }
}
