//! The machine code that `aten-cuda` brings along: a pack for each architecture, found by fingerprints of texts.
//!
//! The program `common_kernels` of the tests writes the texts of common calls, each into a file that is named after its
//! fingerprint. Here they are assembled and packed: the number of entries, the entries (fingerprint, place, length)
//! sorted by fingerprint, and the images, each at a multiple of 16 bytes. The reader is `launch/module.rs` there.

use std::path::{Path, PathBuf};

use super::texts::{self, Assembler};
use crate::shell::{self, Result};

/// The packs.
const FOLDER: &str = "crates/aten-cuda/kernels/machine";
const ARCHITECTURES: [u32; 2] = [80, 90];

/// All packs together have at most as many bytes.
const BYTES_MAX: usize = 4 << 20;

/// Bytes of the number of entries, and what each image begins at a multiple of.
const ALIGNMENT: usize = 16;
/// Bytes of an entry.
const ENTRY: usize = 32;

/// Makes the packs again: writes those that differ, or fails if one does.
///
/// # Errors
/// A text cannot be made or assembled, the packs are too large, or one differs while checking.
pub(crate) fn update(write: bool, requirements: &Path) -> Result<()> {
    let texts = texts::files(&texts::written("texts", &[])?)?;
    let mut bytes = 0;
    for architecture in ARCHITECTURES {
        let own = texts.iter().map(|text| Ok((text, target(text, architecture)?)));
        let own: Vec<(&PathBuf, Option<String>)> = own.collect::<Result<_>>()?;
        let own: Vec<(&PathBuf, String)> = own.into_iter().filter_map(|(text, own)| Some((text, own?))).collect();
        let pack = pack(&assembled(&own, architecture, requirements)?);
        bytes += pack.len();
        let path = shell::root().join(FOLDER).join(format!("sm_{architecture}.bin"));
        if std::fs::read(&path).is_ok_and(|committed| committed == pack) {
            continue;
        }
        if !write {
            return Err(format!(
                "{} is not of today's texts; `cargo xtask kernels --write` makes it again",
                path.display()
            ));
        }
        std::fs::write(&path, &pack).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        shell::say(&format!("wrote {} ({} texts, {} bytes)", path.display(), own.len(), pack.len()));
    }
    if bytes > BYTES_MAX { Err(format!("the packs have {bytes} bytes, more than {BYTES_MAX}")) } else { Ok(()) }
}

/// The architecture that a text is assembled for in the pack of one, or `None` if it is not in that pack: a text for one
/// architecture alone says so.
fn target(text: &Path, architecture: u32) -> Result<Option<String>> {
    let said = shell::read(text)?.lines().find_map(|line| line.strip_prefix(".target sm_").map(str::to_owned));
    let own = architecture.to_string();
    Ok(match said {
        Some(said) if said.ends_with('a') => (said.trim_end_matches('a') == own).then_some(said),
        _ => Some(own),
    })
}

/// The machine code of each text for its architecture, with its fingerprint. What was assembled before is taken from where
/// it was kept.
fn assembled(texts: &[(&PathBuf, String)], architecture: u32, requirements: &Path) -> Result<Vec<(u128, Vec<u8>)>> {
    let folder = shell::target_dir().join(format!("kernels/sm_{architecture}"));
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let failed = texts::for_each(texts, |(text, own)| assemble(text, &image_of(text, &folder), own, requirements));
    if let Some(error) = failed.into_iter().next() {
        return Err(error);
    }
    let read = |(text, _): &(&PathBuf, String)| {
        let name = text.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let fingerprint = u128::from_str_radix(name, 16).map_err(|error| format!("{}: {error}", text.display()))?;
        let image = image_of(text, &folder);
        let code = std::fs::read(&image).map_err(|error| format!("cannot read {}: {error}", image.display()))?;
        Ok((fingerprint, code))
    };
    texts.iter().map(read).collect()
}

fn image_of(text: &Path, folder: &Path) -> PathBuf {
    folder.join(text.file_name().unwrap_or_default()).with_extension("cubin")
}

fn assemble(text: &Path, image: &Path, architecture: &str, requirements: &Path) -> Result<()> {
    if image.exists() {
        return Ok(());
    }
    let part = image.with_extension("part");
    Assembler::of(requirements, architecture)?.assemble(text, architecture, &part)?;
    std::fs::rename(&part, image).map_err(|error| format!("cannot rename {}: {error}", part.display()))
}

/// The bytes of a pack of images that are sorted by fingerprint.
fn pack(images: &[(u128, Vec<u8>)]) -> Vec<u8> {
    let mut place = ALIGNMENT + ENTRY * images.len();
    let mut pack = (images.len() as u128).to_le_bytes().to_vec();
    for (fingerprint, image) in images {
        pack.extend(fingerprint.to_le_bytes());
        pack.extend((place as u64).to_le_bytes());
        pack.extend((image.len() as u64).to_le_bytes());
        place += image.len().next_multiple_of(ALIGNMENT);
    }
    for (at, (_, image)) in images.iter().enumerate() {
        pack.extend(image);
        // The last image ends the pack.
        if at + 1 < images.len() {
            pack.resize(pack.len().next_multiple_of(ALIGNMENT), 0);
        }
    }
    pack
}

#[cfg(test)]
mod tests {
    use super::pack;

    #[test]
    fn entries_tell_where_images_are() {
        let pack = pack(&[(1, vec![7; 3]), (u128::MAX, vec![8; 16])]);
        assert_eq!(pack[..16], 2_u128.to_le_bytes());
        assert_eq!((pack[32], pack[40]), (80, 3));
        assert_eq!((pack[64], pack[72]), (96, 16));
        assert_eq!((&pack[80..83], &pack[96..]), (&[7; 3][..], &[8; 16][..]));
    }
}
