//! Runs fuzz bodies: `fuzz --list` or `fuzz BODY [--seconds N] [--seed N] [--corpus FOLDER] [--input HEX]`.
//!
//! First the corpus, and that of the folder, then inputs made from them until the time is over. An input that fails is
//! printed as hexadecimal digits, which `--input` runs again, and the program ends with exit code 1.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fuzz::bodies::{BODIES, Body};
use fuzz::mutate::{Style, mutate, random};

/// The time that no input may take.
const LONG: Duration = Duration::from_secs(30);

/// How many inputs that did something new are kept as a start for others.
const KEPT_MAX: usize = 4096;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn run(args: &[String]) -> Result<(), String> {
    if args == ["--list"] {
        BODIES.iter().for_each(|body| say(body.name));
        return Ok(());
    }
    let (name, rest) = args
        .split_first()
        .ok_or("usage: fuzz --list | BODY [--seconds N] [--seed N] [--corpus FOLDER] [--input HEX]")?;
    let body = BODIES.iter().find(|body| body.name == name).ok_or_else(|| format!("there is no body `{name}`"))?;
    if let Some(text) = option(rest, "--input") {
        return attempt(body, &unhex(&text)?);
    }
    let seconds = number(rest, "--seconds", 60)?;
    let seed = number(rest, "--seed", 1)?;
    let mut corpus = corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name))?;
    if let Some(folder) = option(rest, "--corpus") {
        corpus.extend(self::corpus(Path::new(&folder))?);
    }
    corpus.iter().try_for_each(|input| attempt(body, input))?;
    let count = explore(body, &corpus, seed, Duration::from_secs(seconds))?;
    say(&format!(
        "{name}: {} inputs of the corpus and {count} made from them with seed {seed}: none fails",
        corpus.len()
    ));
    Ok(())
}

/// Runs new inputs until the time is over. Longer inputs do more, so every hundredth is kept as a start for others. Texts
/// are not: one that is broken is read no further, so that nothing made from it reaches the rest.
fn explore(body: &Body, corpus: &[Vec<u8>], seed: u64, time: Duration) -> Result<u64, String> {
    let mut random = random(seed);
    let mut starts = corpus.to_vec();
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < time {
        let input = mutate(&mut random, &starts, body.style);
        attempt(body, &input).map_err(|error| format!("{error} (seed {seed}, input {count})"))?;
        count += 1;
        if count % 100 == 0 && starts.len() < KEPT_MAX && body.style == Style::Bytes {
            starts.push(input);
        }
    }
    Ok(count)
}

/// Runs one input.
fn attempt(body: &Body, input: &[u8]) -> Result<(), String> {
    let begin = Instant::now();
    let outcome = std::panic::catch_unwind(|| (body.run)(input));
    let why = match outcome {
        Ok(Ok(())) if begin.elapsed() < LONG => return Ok(()),
        Ok(Ok(())) => format!("took {:?}", begin.elapsed()),
        Ok(Err(error)) => error,
        Err(_) => "panicked".to_owned(),
    };
    Err(format!("{}: {why}\nrun it again with: fuzz {} --input {}", body.name, body.name, hex(input)))
}

/// The inputs that are kept, in the order of their names, and at least the empty one.
fn corpus(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut corpus = vec![Vec::new()];
    for path in paths {
        let text = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let is_hex = path.extension().is_some_and(|extension| extension == "hex");
        corpus.push(if is_hex { unhex(String::from_utf8_lossy(&text).trim())? } else { text });
    }
    Ok(corpus)
}

fn option(args: &[String], name: &str) -> Option<String> {
    args.iter().skip_while(|word| *word != name).nth(1).cloned()
}

fn number(args: &[String], name: &str, otherwise: u64) -> Result<u64, String> {
    option(args, name)
        .map_or(Ok(otherwise), |text| text.parse().map_err(|_| format!("{name} takes a number, not `{text}`")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2));
    let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
    bytes.ok_or_else(|| format!("`{text}` is not a row of hexadecimal digits in pairs"))
}
