//! Generated kernels, assembled by the oldest assembler whose drivers are supported.
//!
//! The program `common_kernels` of the tests writes a text for every kind of kernel that is generated, for each of two
//! compute capabilities. Each text is assembled for one architecture: those of 7.5 for it, the others for 8.0 or 9.0, as
//! their fingerprint says. Of some six thousand texts a third is taken, by fingerprint, unless all are asked for. What
//! was assembled once is not assembled again.

use std::path::Path;

use super::texts::{self, Assembler};
use crate::shell::{self, Result};

/// Which part of the texts is taken.
const PART: u32 = 3;

/// Assembles the texts, or a part of them.
///
/// # Errors
/// A text cannot be made, or the assembler refuses one.
pub(super) fn assemble(all: bool, requirements: &Path) -> Result<()> {
    let folder = texts::written("every", &["--every"])?;
    let assembler = Assembler::of(requirements, "80")?;
    let done = shell::target_dir().join("kernels/assembled");
    std::fs::create_dir_all(&done).map_err(|error| format!("cannot create {}: {error}", done.display()))?;
    let mut taken = Vec::new();
    for target in [75, 80] {
        let listed = texts::files(&folder.join(target.to_string()))?;
        taken.extend(listed.into_iter().filter(|text| all || is_taken(text)).map(|text| (target, text)));
    }
    let refused =
        texts::for_each(&taken, |(target, text)| assemble_one(text, architecture(*target, text), &assembler, &done));
    match refused.first() {
        None => {
            shell::say(&format!("{} generated texts can be assembled", taken.len()));
            Ok(())
        }
        Some(first) => {
            Err(format!("{} of {} generated texts cannot be assembled: {first}", refused.len(), taken.len()))
        }
    }
}

/// The last digits of the fingerprint that a file is named after.
fn fingerprint(text: &Path) -> u32 {
    let name = text.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name.get(name.len().saturating_sub(6)..).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

fn is_taken(text: &Path) -> bool {
    (fingerprint(text) / 2).is_multiple_of(PART)
}

/// The architecture that a text for a compute capability is assembled for.
fn architecture(target: u32, text: &Path) -> u32 {
    match (target, fingerprint(text).is_multiple_of(2)) {
        (80, false) => 90,
        _ => target,
    }
}

/// Assembles a text, unless that was done before.
fn assemble_one(text: &Path, architecture: u32, assembler: &Assembler, done: &Path) -> Result<()> {
    let name = text.file_stem().unwrap_or_default().to_string_lossy();
    let mark = done.join(format!("{name}-{architecture}"));
    if mark.exists() {
        return Ok(());
    }
    let image = mark.with_extension("part");
    assembler.assemble(text, &architecture.to_string(), &image)?;
    // The machine code is of no use; that there was some is noted.
    std::fs::write(&mark, "").map_err(|error| format!("cannot write {}: {error}", mark.display()))?;
    std::fs::remove_file(&image).map_err(|error| format!("cannot remove {}: {error}", image.display()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{architecture, fingerprint, is_taken};

    #[test]
    fn a_third_is_taken_and_split_among_architectures() {
        let name = |number: u32| format!("texts/80/00000000000000000000000000{number:06x}.ptx");
        assert_eq!(fingerprint(Path::new(&name(0xabcdef))), 0xabcdef);
        let taken: Vec<String> = (0..600).map(name).filter(|name| is_taken(Path::new(name))).collect();
        assert_eq!(taken.len(), 200);
        let newest = taken.iter().filter(|name| architecture(80, Path::new(name)) == 90);
        assert_eq!(newest.count(), 100);
        assert!(taken.iter().all(|name| architecture(75, Path::new(name)) == 75));
    }
}
