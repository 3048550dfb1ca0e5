//! The command line of the programs that compare files of recorded answers: `FILE... [--driver D] [--filter NAME] [--all]
//! [--sums FILE]`.

use std::process::ExitCode;

/// What the command line asks for.
pub(crate) struct Options {
    pub(crate) files: Vec<String>,
    pub(crate) driver: String,
    pub(crate) filter: Option<String>,
    pub(crate) all: bool,
    /// Where a sum of each answer's bytes goes, so that two devices can be compared bit by bit.
    pub(crate) sums: Option<String>,
}

/// Runs the program, prints how many cases passed and failed, and says by the exit code whether one failed.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]
pub(crate) fn main(arguments: Vec<String>, run: impl FnOnce(&Options) -> Result<(usize, usize), String>) -> ExitCode {
    let outcome = parse(arguments).and_then(|options| run(&options));
    match outcome {
        Ok((passed, failed)) => {
            println!("{passed} passed, {failed} failed");
            ExitCode::from(u8::from(failed > 0))
        }
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: Vec<String>) -> Result<Options, String> {
    let mut options = Options { files: Vec::new(), driver: "sim".to_owned(), filter: None, all: false, sums: None };
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--driver" => options.driver = value()?,
            "--filter" => options.filter = Some(value()?),
            "--all" => options.all = true,
            "--sums" => options.sums = Some(value()?),
            _ => options.files.push(word),
        }
    }
    if options.files.is_empty() { Err("name a file to check".to_owned()) } else { Ok(options) }
}
