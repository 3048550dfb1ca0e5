//! Files of results, in torch's format: a line for each validator, then a line for each result.
//!
//! ```text
//! Validator,PT_VERSION,2.11.0
//! GemmTunableOp_Half_NN,nn_64_48_32_ld_64_32_64,Default,0.012224
//! ```
//!
//! The reader takes what torch's takes: empty and short lines are passed over, a time is optional, what stands behind it
//! is not read. Beyond torch it takes lines that end in a carriage return, and refuses what cannot be a file of results.
//!
//! **Invariants:** reading never panics and takes time and memory in proportion to the file, which is bounded; what is
//! written is read back.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use regular_files::Links;

use crate::base::tune_error::{RejectedResults, TuneError};

/// The largest file that is read, in bytes: some hundred thousand results.
const FILE_MAX: u64 = 64 << 20;

/// The longest line that is read, in bytes. Torch's longest have about 500, with the parameters of the BLAS call.
const LINE_MAX: usize = 4096;

/// The version of torch whose files are read and written: one that has another version refuses them.
pub(crate) const PT_VERSION: &str = "2.11.0";

/// Keys and values that the results in a file depend on, in the order in which they are written.
pub(crate) type Validators = Vec<(String, String)>;

/// The validators of torch's own files.
pub(crate) fn torch_validators() -> Validators {
    vec![("PT_VERSION".to_owned(), PT_VERSION.to_owned())]
}

/// A line of results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) op: String,
    pub(crate) params: String,
    pub(crate) solution: String,
    /// Milliseconds; 0 where the file does not tell.
    pub(crate) time: f64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.op, self.params, self.solution, General(self.time))
    }
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contents {
    /// Of several lines with one key the last one counts.
    pub(crate) validators: Validators,
    /// In the order of the lines; of several lines for one product the first one counts.
    pub(crate) rows: Vec<Row>,
    /// The numbers of lines that say nothing, counted from 1; empty lines are not among them.
    pub(crate) short_lines: Vec<usize>,
    /// Whether the last line does not end, as in a file that was cut short or edited.
    pub(crate) is_cut: bool,
}

/// Reads the bytes of a file.
///
/// # Errors
/// A line is no text or too long.
pub(crate) fn parse(bytes: &[u8]) -> Result<Contents, RejectedResults> {
    let mut contents = Contents { is_cut: bytes.last().is_some_and(|last| *last != b'\n'), ..Contents::default() };
    let mut seen = HashSet::new();
    for (number, line) in lines(bytes)? {
        let fields: Vec<&str> = line.splitn(5, ',').collect();
        match fields.as_slice() {
            ["Validator", key, value, ..] => set(&mut contents.validators, key, value),
            [op, params, solution, rest @ ..] => {
                if seen.insert((*op, *params)) {
                    let time = rest.first().map_or(0.0, |time| parse_time(time));
                    let (op, params, solution) = ((*op).to_owned(), (*params).to_owned(), (*solution).to_owned());
                    contents.rows.push(Row { op, params, solution, time });
                }
            }
            _ => contents.short_lines.push(number),
        }
    }
    Ok(contents)
}

/// The lines of a text that are not empty, with their numbers, counted from 1.
///
/// # Errors
/// A line is no text or too long.
pub(crate) fn lines(bytes: &[u8]) -> Result<Vec<(usize, &str)>, RejectedResults> {
    let mut lines = Vec::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line).ok().filter(|text| text.len() <= LINE_MAX);
        let text = text.filter(|text| !text.chars().any(char::is_control));
        let text = text.ok_or(RejectedResults::Line { line: at + 1 })?;
        if !text.is_empty() {
            lines.push((at + 1, text));
        }
    }
    Ok(lines)
}

fn set(validators: &mut Validators, key: &str, value: &str) {
    match validators.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) => value.clone_into(known),
        None => validators.push((key.to_owned(), value.to_owned())),
    }
}

/// A time as C reads it, 0 where there is none. A time that cannot have been measured is none.
fn parse_time(text: &str) -> f64 {
    text.trim().parse().ok().filter(|time: &f64| time.is_finite() && *time >= 0.0).unwrap_or(0.0)
}

/// Whether the validators of a file are those that are wanted: the same keys, each with the same value.
///
/// # Errors
/// The first difference.
pub(crate) fn check(found: &Validators, wanted: &Validators) -> Result<(), RejectedResults> {
    let value_of = |validators: &Validators, key: &str| {
        validators.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
    };
    for (key, _) in wanted {
        if value_of(found, key).is_none() {
            return Err(RejectedResults::MissingValidator { key: key.clone() });
        }
    }
    for (key, value) in found {
        let Some(here) = value_of(wanted, key) else {
            return Err(RejectedResults::ExtraValidator { key: key.clone() });
        };
        if here != *value {
            return Err(RejectedResults::OtherValue { key: key.clone(), found: value.clone(), wanted: here });
        }
    }
    Ok(())
}

/// What a file says, whatever its validators; `None` when there is no file.
///
/// # Errors
/// The file cannot be read, or is none of results.
pub(crate) fn read(path: &Path) -> Result<Option<Contents>, TuneError> {
    let Some(bytes) = read_bytes(path)? else { return Ok(None) };
    parse(&bytes).map(Some).map_err(|cause| rejected(path, cause))
}

/// The bytes of a file, if there is one and it is not too large.
///
/// # Errors
/// The file cannot be read, or is too large.
pub(crate) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, TuneError> {
    match regular_files::read(path, FILE_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(regular_files::Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(regular_files::Error::TooLarge { bytes, limit }) => {
            Err(rejected(path, RejectedResults::TooLarge { bytes, limit }))
        }
        Err(error) => Err(failed("read", path, &error.into())),
    }
}

pub(crate) fn rejected(path: &Path, cause: RejectedResults) -> TuneError {
    TuneError::Rejected { path: path.display().to_string(), cause }
}

/// Adds a line at once, so that a program that ends early loses nothing. A file that is new or empty begins with its
/// validators; a last line that does not end is ended first.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn append(path: &Path, validators: &Validators, line: &dyn fmt::Display) -> Result<(), TuneError> {
    let write = || {
        let mut file = regular_files::append_or_create(path, Links::Follow)?;
        let length = file.seek(SeekFrom::End(0))?;
        let mut text = String::new();
        if length == 0 {
            text = header(validators);
        } else {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                text.push('\n');
            }
        }
        text.push_str(&format!("{line}\n"));
        // One call, so that processes that share the file do not write into each other's lines.
        file.write_all(text.as_bytes())
    };
    write().map_err(|error: io::Error| failed("write", path, &error))
}

/// Replaces the file by these validators and rows. Another process sees the old file or the new one.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(path: &Path, validators: &Validators, rows: &[Row]) -> Result<(), TuneError> {
    let mut text = header(validators);
    rows.iter().for_each(|row| text.push_str(&format!("{row}\n")));
    let written = regular_files::replace(path, |file| file.write_all(text.as_bytes()));
    written.map_err(|error| failed("write", path, &error.into()))
}

/// Puts a file that is refused aside, so that a new one can begin: its name with `.old` behind it.
///
/// # Errors
/// The file cannot be renamed.
pub(crate) fn put_aside(path: &Path) -> Result<PathBuf, TuneError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".old");
    let aside = PathBuf::from(aside);
    std::fs::rename(path, &aside).map_err(|error| failed("rename", path, &error))?;
    Ok(aside)
}

fn header(validators: &Validators) -> String {
    validators.iter().map(|(key, value)| format!("Validator,{},{}\n", plain(key), plain(value))).collect()
}

/// A text that fits into a field.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|character| if character == ',' || character.is_control() { ' ' } else { character }).collect()
}

pub(crate) fn failed(action: &'static str, path: &Path, error: &io::Error) -> TuneError {
    TuneError::File { action, path: path.display().to_string(), cause: error.to_string() }
}

/// The file of our own solutions beside torch's: `.solutions` before the extension.
pub(crate) fn solutions_of(torch: &Path) -> PathBuf {
    beside(torch, "solutions")
}

/// The journal beside torch's file: `.trying` before the extension.
pub(crate) fn journal_of(torch: &Path) -> PathBuf {
    beside(torch, "trying")
}

fn beside(path: &Path, word: &str) -> PathBuf {
    let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
    path.with_extension(extension.map_or_else(|| word.to_owned(), |extension| format!("{word}.{extension}")))
}

/// A number as C++ streams print it: six digits, without zeros at the end.
pub(crate) struct General(pub(crate) f64);

impl fmt::Display for General {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_finite() {
            let sign = if self.0.is_sign_negative() { "-" } else { "" };
            return write!(f, "{sign}{}", if self.0.is_nan() { "nan" } else { "inf" });
        }
        let text = format!("{:.5e}", self.0);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..6).contains(&exponent) {
            let decimals = usize::try_from(5 - exponent).unwrap_or(0);
            f.write_str(trimmed(&format!("{:.decimals$}", self.0)))
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(f, "{}e{sign}{:02}", trimmed(digits), exponent.abs())
        }
    }
}

/// Without the zeros behind the point, and without the point where nothing is left behind it.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALIDATOR: &str = "Validator,PT_VERSION,2.11.0\n";
    const LINE: &str = "GemmTunableOp_Half_NN,nn_64_48_32_ld_64_32_64,Default,0.01\n";

    fn row(solution: &str, time: f64) -> Row {
        let (op, params) = ("GemmTunableOp_Half_NN".to_owned(), "nn_64_48_32_ld_64_32_64".to_owned());
        Row { op, params, solution: solution.to_owned(), time }
    }

    /// What PyTorch 2.11 answered for the same files, and what it took from them.
    #[test]
    fn files_that_torch_accepts() {
        let accepted = |text: &str, wanted: &[Row]| {
            let contents = parse(text.as_bytes()).expect(text);
            assert_eq!(check(&contents.validators, &torch_validators()), Ok(()), "{text}");
            assert_eq!(contents.rows, wanted, "{text}");
        };
        let good = [row("Default", 0.01)];
        accepted(&format!("{VALIDATOR}{LINE}"), &good);
        accepted(&format!("{VALIDATOR}{VALIDATOR}{LINE}"), &good);
        accepted(&format!("{LINE}{VALIDATOR}"), &good);
        accepted(&format!("{VALIDATOR}\n\n{LINE}"), &good);
        accepted(&format!("{VALIDATOR}{LINE}{LINE}{}", LINE.replace("Default", "Other")), &good);
        accepted(&format!("{VALIDATOR}GemmTunableOp_Half_NN,nn_1\n{LINE}"), &good);
        accepted(format!("{VALIDATOR}{LINE}").trim_end(), &good);
        accepted(&format!("{}{LINE}", VALIDATOR.replace('\n', ",more\n")), &good);
        accepted(&format!("{VALIDATOR}{}", LINE.replace(",0.01", "")), &[row("Default", 0.0)]);
        accepted(&format!("{VALIDATOR}{}", LINE.replace("0.01", "abc")), &[row("Default", 0.0)]);
        accepted(
            &format!("{VALIDATOR}{}", LINE.replace("0.01", "0.5,BLAS_PARAMS: {x: 1,y: 2}")),
            &[row("Default", 0.5)],
        );
        // Beyond torch: it refuses the first of these and takes the infinite time for one.
        accepted(&format!("{VALIDATOR}{LINE}").replace('\n', "\r\n"), &good);
        accepted(&format!("{VALIDATOR}{}", LINE.replace("0.01", "inf")), &[row("Default", 0.0)]);
    }

    #[test]
    fn files_that_torch_refuses() {
        let refused = |text: &str| {
            let contents = parse(text.as_bytes()).expect(text);
            check(&contents.validators, &torch_validators()).expect_err(text)
        };
        let missing = RejectedResults::MissingValidator { key: "PT_VERSION".into() };
        assert_eq!(refused(""), missing);
        assert_eq!(refused(LINE), missing);
        assert_eq!(refused(&format!("Validator,PT_VERSION\n{LINE}")), missing);
        let other = |found: &str| {
            let (key, found, wanted) = ("PT_VERSION".into(), found.into(), PT_VERSION.into());
            RejectedResults::OtherValue { key, found, wanted }
        };
        assert_eq!(refused(&format!("Validator,PT_VERSION,2.3.0\n{LINE}")), other("2.3.0"));
        assert_eq!(refused(&format!("{VALIDATOR}Validator,PT_VERSION,1.0.0\n{LINE}")), other("1.0.0"));
        let extra = RejectedResults::ExtraValidator { key: "ROCM_VERSION".into() };
        assert_eq!(refused(&format!("{VALIDATOR}Validator,ROCM_VERSION,6\n{LINE}")), extra);
    }

    #[test]
    fn what_is_no_file_of_results() {
        let line = |bytes: &[u8]| parse(bytes).expect_err("it is refused");
        assert_eq!(line(b"Validator,PT_VERSION,2.11.0\n\x00\x01,\xfe,x\n"), RejectedResults::Line { line: 2 });
        assert_eq!(line(b"a,b,\xff\n"), RejectedResults::Line { line: 1 });
        assert_eq!(line(&vec![b'a'; LINE_MAX + 1]), RejectedResults::Line { line: 1 });
    }

    #[test]
    fn numbers_as_streams_print_them() {
        let texts = [0.0, 0.012_224, 0.013_045_33, 0.004_309_333_2, 1.0, 12.5, 123_456.7, 1_234_567.0, 1e-5, 1.5e-7];
        let texts: Vec<String> = texts.into_iter().map(|number| General(number).to_string()).collect();
        let wanted =
            ["0", "0.012224", "0.0130453", "0.00430933", "1", "12.5", "123457", "1.23457e+06", "1e-05", "1.5e-07"];
        assert_eq!(texts, wanted);
        assert_eq!([f64::INFINITY, f64::NAN].map(|number| General(number).to_string()), ["inf", "nan"]);
    }

    #[test]
    fn names_beside_torchs_file() {
        let names = |torch: &str| [solutions_of(Path::new(torch)), journal_of(Path::new(torch))];
        assert_eq!(names("a/results0.csv"), ["a/results0.solutions.csv", "a/results0.trying.csv"].map(PathBuf::from));
        assert_eq!(names("results0"), ["results0.solutions", "results0.trying"].map(PathBuf::from));
    }

    #[test]
    fn appended_lines() {
        let path = std::env::temp_dir().join(format!("tune-append-{}.csv", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let validators = torch_validators();
        append(&path, &validators, &row("Default", 0.01)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{VALIDATOR}{LINE}"));
        // The last line was cut short: what follows is a line of its own.
        std::fs::write(&path, format!("{VALIDATOR}GemmTunable")).unwrap();
        append(&path, &validators, &row("Default", 0.01)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{VALIDATOR}GemmTunable\n{LINE}"));
        write(&path, &validators, &[row("Other", 2.0)]).unwrap();
        let contents = read(&path).unwrap().unwrap();
        assert_eq!((contents.rows, contents.is_cut), (vec![row("Other", 2.0)], false));
        let aside = put_aside(&path).unwrap();
        assert_eq!(read(&path).unwrap(), None);
        std::fs::remove_file(aside).unwrap();
    }

    #[test]
    fn special_files_and_planted_links_are_refused() {
        let folder = std::env::temp_dir().join(format!("tune-special-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (fifo, huge, path) = (folder.join("fifo"), folder.join("huge"), folder.join("results.csv"));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
        for (path, says) in [(fifo.as_path(), "a FIFO"), (Path::new("/dev/zero"), "a character device")] {
            let read = read_bytes(path).unwrap_err();
            let appended = append(path, &torch_validators(), &"line").unwrap_err();
            assert!(read.to_string().contains(says) && appended.to_string().contains(says), "{read}, {appended}");
        }
        let error = read_bytes(&huge).unwrap_err();
        assert!(
            matches!(error, TuneError::Rejected { cause: RejectedResults::TooLarge { bytes, .. }, .. } if bytes == 1 << 40)
        );
        // Plants a symbolic link under the formerly predictable temporary name.
        let planted = folder.join(format!("results.csv.{}.new", std::process::id()));
        let target = folder.join("target");
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &planted).unwrap();
        write(&path, &torch_validators(), &[row("Default", 0.01)]).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
        std::fs::remove_dir_all(folder).unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read_back(fields in proptest::collection::vec(("[A-Za-z_]{1,9}", "[a-z0-9_]{1,9}", "[A-Z][a-z0-9_]{0,9}", 0.0..1e4_f64), 0..20)) {
            let mut rows: Vec<Row> = Vec::new();
            for (op, params, solution, time) in fields {
                let time = General(time).to_string().parse().unwrap();
                if op != "Validator" && !rows.iter().any(|row| row.op == op && row.params == params) {
                    rows.push(Row { op, params, solution, time });
                }
            }
            let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
            prop_assert_eq!(parse(text.as_bytes()).unwrap().rows, rows);
        }
    }
}
