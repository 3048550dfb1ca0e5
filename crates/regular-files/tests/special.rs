//! Special files are rejected at once with their type, and no planted link redirects a write.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use regular_files::{
    Error, Kind, Links, append_or_create, create_beside, open, open_append, open_sink, read, read_text, replace,
};

/// Folder that is removed after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("regular-files-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn kind_of<T: std::fmt::Debug>(outcome: regular_files::Result<T>) -> Kind {
    match outcome {
        Err(Error::NotRegular(kind)) => kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn special_files_are_refused_by_every_function_that_opens() {
    let folder = Folder::new("special");
    let (fifo, socket, link) = (folder.fifo("fifo"), folder.path("socket"), folder.path("link"));
    let _listener = UnixListener::bind(&socket).unwrap();
    symlink(&fifo, &link).unwrap();
    let cases: [(&Path, Kind); 6] = [
        (&fifo, Kind::Fifo),
        (&link, Kind::Fifo),
        (&socket, Kind::Socket),
        (&folder.0, Kind::Directory),
        (Path::new("/dev/zero"), Kind::CharacterDevice),
        (Path::new("/dev/full"), Kind::CharacterDevice),
    ];
    for (path, kind) in cases {
        assert_eq!(kind_of(open(path)), kind);
        assert_eq!(kind_of(open_append(path)), kind);
        assert_eq!(kind_of(append_or_create(path, Links::Follow)), kind);
        assert_eq!(kind_of(read(path, u64::MAX)), kind);
        assert_eq!(kind_of(read_text(path, u64::MAX)), kind);
        let error = io::Error::from(read(path, 1).unwrap_err());
        assert!(error.get_ref().unwrap().downcast_ref::<Error>().is_some(), "{error}");
    }
    assert_eq!(kind_of(replace(&fifo, |_| Ok(()))), Kind::Fifo);
    assert_eq!(kind_of(append_or_create(&link, Links::Refuse)), Kind::Link);
    assert!(open_sink(&fifo).is_err(), "no process reads it");
}

#[test]
fn sizes_are_checked_before_anything_is_read() {
    let folder = Folder::new("sizes");
    let sparse = folder.path("sparse");
    File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let error = read(&sparse, 1 << 20).unwrap_err();
    assert!(matches!(error, Error::TooLarge { bytes, limit: 1_048_576 } if bytes == 1 << 40), "{error}");
    let exact = folder.path("exact");
    fs::write(&exact, b"12345").unwrap();
    assert_eq!(read(&exact, 5).unwrap(), b"12345");
    assert!(matches!(read(&exact, 4), Err(Error::TooLarge { bytes: 5, limit: 4 })));
    fs::write(&exact, [0xff]).unwrap();
    assert!(matches!(read_text(&exact, 5), Err(Error::Io(error)) if error.kind() == io::ErrorKind::InvalidData));
    assert!(matches!(read(&folder.path("none"), 5), Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound));
}

#[test]
fn planted_links_are_not_followed() {
    let folder = Folder::new("links");
    let (target, link) = (folder.path("target"), folder.path("link"));
    fs::write(&target, b"precious").unwrap();
    symlink(&target, &link).unwrap();
    assert_eq!(kind_of(append_or_create(&link, Links::Refuse)), Kind::Link);
    replace(&link, |file| file.write_all(b"new")).unwrap();
    assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!((fs::read(&target).unwrap(), fs::read(&link).unwrap()), (b"precious".to_vec(), b"new".to_vec()));
}

#[test]
fn temporary_names_that_are_taken_are_passed_over() {
    let folder = Folder::new("taken");
    let (path, target) = (folder.path("file"), folder.path("target"));
    let (_, first) = create_beside(&path).unwrap();
    // Plants links under the next temporary names, as another user could.
    let (stem, count) = first.to_str().unwrap().strip_suffix(".unfinished").unwrap().rsplit_once('-').unwrap();
    let count: u32 = count.parse().unwrap();
    let planted: Vec<String> = (count + 1..count + 60).map(|next| format!("{stem}-{next}.unfinished")).collect();
    planted.iter().for_each(|name| symlink(&target, name).unwrap());
    let (mut file, second) = create_beside(&path).unwrap();
    file.write_all(b"x").unwrap();
    assert!(!planted.iter().any(|name| Path::new(name) == second));
    assert!(!target.exists(), "no link was followed");
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let folder = Folder::new("failed");
    let path = folder.path("file");
    replace(&path, |file| file.write_all(b"old")).unwrap();
    assert!(replace(&path, |_| Err(io::ErrorKind::StorageFull.into())).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0);
}
