//! `snapshot` and `viz`: files of snapshots as text and as a page.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use memory_viz::analysis::Frames;
use memory_viz::page::{Page, page as make_page};
use memory_viz::{Snapshot, analysis, file};

use crate::Error;

fn given_path<'given>(given: &'given ArgMatches, name: &str) -> Option<&'given PathBuf> {
    given.get_one::<PathBuf>(name)
}

fn read(path: &Path) -> Result<Snapshot, Error> {
    file::read(path).map_err(|source| Error::Snapshot { file: path.to_owned(), source })
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Prints what a snapshot holds, what changed since an earlier one, or the lines of a flame graph.
pub(crate) fn report(given: &ArgMatches, out: &mut dyn Write) -> Result<u8, Error> {
    let Some(path) = given_path(given, "file") else { return Ok(2) };
    let snapshot = read(path)?;
    let frames = if given.get_flag("all-frames") { Frames::All } else { Frames::Program };
    let text = match (given.get_one::<String>("lines").map(String::as_str), given_path(given, "before")) {
        (Some("segments"), _) => analysis::flame::segments(&snapshot),
        (Some(_), _) => analysis::flame::memory(&snapshot),
        (None, Some(before)) => analysis::compare_report_with(&read(before)?, &snapshot, frames),
        (None, None) => analysis::report_with(&snapshot, frames),
    };
    out.write_all(text.as_bytes())?;
    Ok(0)
}

/// Writes the page of a snapshot and says where it is.
pub(crate) fn page(given: &ArgMatches, out: &mut dyn Write) -> Result<u8, Error> {
    let Some(path) = given_path(given, "file") else { return Ok(2) };
    let snapshot = read(path)?;
    let before = given_path(given, "before").map(|path| Ok::<_, Error>((read(path)?, name(path)))).transpose()?;
    let before = before.as_ref().map(|(snapshot, name)| (snapshot, name.as_str()));
    let html = make_page(&Page { snapshot: &snapshot, title: &name(path), before });
    let target = given_path(given, "output").cloned().unwrap_or_else(|| path.with_extension("html"));
    file::write_text(&html, &target).map_err(|source| Error::Snapshot { file: target.clone(), source })?;
    writeln!(out, "{}", target.display())?;
    Ok(0)
}
