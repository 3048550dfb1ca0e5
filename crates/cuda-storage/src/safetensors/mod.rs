//! Tensors in files of the safetensors format: `save`, `load` and their file forms, as in Python's `safetensors.torch`.
//!
//! A file goes straight onto a device, at the rate of the disk or of the bus, whichever is slower. The places of the tensors are
//! known before the first byte is read, so that reading and copying overlap from the beginning to the end.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use std::collections::BTreeMap;
//!
//! use aten_cuda::{DType, Tensor};
//! use cuda_storage::safetensors;
//!
//! # let path = std::env::temp_dir().join(format!("cuda-storage-doc-{}.safetensors", std::process::id()));
//! let weight = Tensor::arange(0, 6, 1, Some(DType::BF16), "cuda")?.view(&[2, 3])?;
//! safetensors::save_file([("weight", &weight), ("turned", &weight.t()?)], &path, &BTreeMap::new())?;
//! let loaded = safetensors::load_file(&path, "cuda")?;
//! assert_eq!(loaded.keys().collect::<Vec<_>>(), ["turned", "weight"]);
//! assert_eq!((loaded["turned"].sizes(), loaded["turned"].dtype()), (&[3, 2][..], DType::BF16));
//! assert_eq!(loaded["weight"].to_bytes()?, weight.to_bytes()?);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod header;
mod place;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use aten_cuda::{Storage, Tensor, ToDevice};
use c10_core::{DeviceIndex, DeviceType, host_memory};

pub use header::HeaderError;

use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::gds;
use crate::options::Options;
use crate::plan::Piece;
use crate::route::Route;
use crate::transfer;
use header::{Header, LENGTH, Stored};

/// The tensors of a file's bytes, on a device (`load`).
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use std::collections::BTreeMap;
///
/// use aten_cuda::Tensor;
/// use cuda_storage::safetensors::{load, save};
///
/// let bytes = save([("x", &Tensor::from_slice(&[1_i64, 2], &[2])?)], &BTreeMap::new())?;
/// assert_eq!(load(&bytes, "cuda")?["x"].to_vec::<i64>()?, [1, 2]);
/// # Ok::<(), cuda_storage::Error>(())
/// ```
///
/// # Errors
/// The bytes are no such file ([`Error::Header`]), a dtype is not known here, the device does not exist, or there is not
/// enough memory.
pub fn load(bytes: &[u8], device: impl ToDevice) -> Result<BTreeMap<String, Tensor>> {
    let device = device.to_device()?;
    let (header, data) = split(bytes)?;
    let tensor = |stored: &Stored| {
        let bytes = &data[index(stored.bytes.start)..index(stored.bytes.end)];
        let tensor = Tensor::from_bytes(bytes, &stored.sizes, stored.dtype)?.to_device(device)?;
        Ok((stored.name.clone(), tensor))
    };
    header.tensors.iter().map(tensor).collect()
}

/// The texts that stand in a file beside its tensors (`safe_open(...).metadata()`).
///
/// ```
/// use cuda_storage::safetensors::{metadata, save};
///
/// let texts = [("format".to_owned(), "pt".to_owned())].into();
/// assert_eq!(metadata(&save([], &texts)?)?, texts);
/// # Ok::<(), cuda_storage::Error>(())
/// ```
///
/// # Errors
/// The bytes are no such file.
pub fn metadata(bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    Ok(split(bytes)?.0.metadata)
}

/// A file's header and the bytes behind it.
fn split(bytes: &[u8]) -> Result<(Header, &[u8])> {
    let refused = |cause| Error::Header { path: None, cause };
    let file = bytes.len() as u64;
    let (first, rest) = bytes.split_first_chunk().ok_or_else(|| refused(HeaderError::TooShort { bytes: file }))?;
    let (json, data) = rest.split_at(index(header::length(*first, file).map_err(refused)?));
    Ok((Header::parse(json, data.len() as u64).map_err(refused)?, data))
}

/// A place in bytes that are in memory.
fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// The tensors of a file, on a device (`load_file`); as [`load_file_with`] without options.
///
/// # Errors
/// As for [`load_file_with`].
pub fn load_file(path: impl AsRef<Path>, device: impl ToDevice) -> Result<BTreeMap<String, Tensor>> {
    Ok(load_file_with(path, device, &Options::default())?.tensors)
}

/// What [`load_file_with`] has loaded, and by which way.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The tensors by their names.
    pub tensors: BTreeMap<String, Tensor>,
    /// Which way their bytes went.
    pub route: Route,
}

/// Loads the tensors of a file onto a device, with a say in how it is read. Ready when it returns; memory comes from the
/// current stream's cache, and each tensor has its own, but for small ones, which share pieces of at most 2 MiB.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use std::collections::BTreeMap;
///
/// use aten_cuda::Tensor;
/// use cuda_storage::safetensors::{load_file_with, save_file};
/// use cuda_storage::{Options, PageCache};
///
/// # let path = std::env::temp_dir().join(format!("cuda-storage-with-{}", std::process::id()));
/// save_file([("x", &Tensor::from_slice(&[3.5_f64], &[])?)], &path, &BTreeMap::new())?;
/// let loaded = load_file_with(&path, "cuda", &Options::default().page_cache(PageCache::Use))?;
/// assert_eq!(loaded.tensors["x"].to_vec::<f64>()?, [3.5]);
/// assert!(loaded.route.page_cache);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The file cannot be read or is no such file ([`Error::Header`]), a dtype is not known here, the device does not exist, the
/// current stream captures a graph, or there is not enough memory.
pub fn load_file_with(path: impl AsRef<Path>, device: impl ToDevice, options: &Options) -> Result<Loaded> {
    let (path, device) = (path.as_ref(), device.to_device()?);
    let file = regular_files::open(path).map_err(|error| Error::io("open", path, error.into()))?;
    let (header, data) = read_header(path, &file)?;
    if device.kind != DeviceType::Cuda {
        return on_host(path, &file, &header, data);
    }
    let places = place::places(&header.tensors);
    let storages: Vec<Storage> = places
        .iter()
        .map(|place| Storage::new(index(place.bytes.end - place.bytes.start), device))
        .collect::<std::result::Result<_, _>>()?;
    let piece = |(place, storage): (&place::Place, &'_ Storage)| {
        storage.buffer().cloned().map(|buffer| (data + place.bytes.start..data + place.bytes.end, buffer))
    };
    let buffers: Vec<_> = places.iter().zip(&storages).filter_map(piece).collect();
    let pieces: Vec<_> = buffers.iter().map(|(file, buffer)| Piece { file: file.clone(), buffer, at: 0 }).collect();
    let route = gds::read_pieces(path, &pieces, options)?;
    let mut tensors = BTreeMap::new();
    for (place, storage) in places.iter().zip(&storages) {
        for stored in &header.tensors[place.tensors.clone()] {
            let at = stored.bytes.start - place.bytes.start;
            tensors.insert(stored.name.clone(), view(storage, stored, at)?);
        }
    }
    Ok(Loaded { tensors, route })
}

/// A tensor at a byte of a storage.
fn view(storage: &Storage, stored: &Stored, at: u64) -> Result<Tensor> {
    let offset = at / stored.dtype.itemsize() as u64;
    let mut strides = vec![1_i64; stored.sizes.len()];
    for dim in (1..stored.sizes.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(stored.sizes[dim].max(1));
    }
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    Ok(Tensor::from_storage(storage.clone(), stored.dtype, &stored.sizes, &strides, offset)?)
}

/// Reads the header of a file, and where it ends.
fn read_header(path: &Path, file: &File) -> Result<(Header, u64)> {
    let refused = |cause| Error::Header { path: Some(path.to_owned()), cause };
    let failed = |error| Error::io("read", path, error);
    let bytes = file.metadata().map_err(|error| Error::io("look at", path, error))?.len();
    let mut first = [0; 8];
    if bytes < LENGTH {
        return Err(refused(HeaderError::TooShort { bytes }));
    }
    file.read_exact_at(&mut first, 0).map_err(failed)?;
    let length = header::length(first, bytes).map_err(refused)?;
    let mut json: Vec<u8> = host_memory::zeroed(index(length))?;
    file.read_exact_at(&mut json, LENGTH).map_err(failed)?;
    let data = LENGTH + length;
    Ok((Header::parse(&json, bytes - data).map_err(refused)?, data))
}

/// The tensors of a file in the host's memory.
fn on_host(path: &Path, file: &File, header: &Header, data: u64) -> Result<Loaded> {
    let tensor = |stored: &Stored| {
        let mut bytes: Vec<u8> = host_memory::zeroed(index(stored.bytes.end - stored.bytes.start))?;
        file.read_exact_at(&mut bytes, data + stored.bytes.start).map_err(|error| Error::io("read", path, error))?;
        Ok((stored.name.clone(), Tensor::from_bytes(&bytes, &stored.sizes, stored.dtype)?))
    };
    let tensors = header.tensors.iter().map(tensor).collect::<Result<_>>()?;
    let file = file.try_clone().map_err(|error| Error::io("open", path, error))?;
    let file = DiskFile::cached(path, file, "the tensors are on the host");
    Ok(Loaded { tensors, route: gds::through_host(&file, &Options::default(), "no device takes part") })
}

/// Tensors as a file has them: in the order of their bytes, without gaps between their elements.
struct Ordered {
    header: Header,
    tensors: Vec<Tensor>,
}

/// Puts tensors in the order of a file: larger elements first, so that all lie at multiples of their size.
fn ordered<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: &BTreeMap<String, String>,
) -> Result<Ordered> {
    let refused = |cause| Error::Header { path: None, cause };
    let mut named = BTreeMap::new();
    for (name, tensor) in tensors {
        if header::name_of(tensor.dtype()).is_none() {
            return Err(refused(HeaderError::NoSuchDtype { name: name.to_owned(), dtype: tensor.dtype() }));
        }
        let plain = tensor.resolve_conj()?.resolve_neg()?.contiguous()?;
        if named.insert(name, plain).is_some() {
            return Err(refused(HeaderError::Duplicate(name.to_owned())));
        }
    }
    let mut named: Vec<_> = named.into_iter().collect();
    named.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.element_size()));
    let (mut header, mut all, mut at) = (Header { metadata: metadata.clone(), ..Header::default() }, Vec::new(), 0);
    for (name, tensor) in named {
        let (name, dtype, sizes) = (name.to_owned(), tensor.dtype(), tensor.sizes().to_vec());
        let end = at + tensor.nbytes() as u64;
        header.tensors.push(Stored { name, dtype, sizes, bytes: at..end });
        all.push(tensor);
        at = end;
    }
    Ok(Ordered { header, tensors: all })
}

/// The bytes of a file with these tensors and texts, after the work of the devices' current streams (`save`).
///
/// # Errors
/// The format has no such dtype, two tensors have one name, or a device failed.
pub fn save<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let Ordered { header, tensors } = ordered(tensors, metadata)?;
    let mut bytes = header.to_bytes();
    for tensor in tensors {
        bytes.extend_from_slice(&tensor.to_bytes()?);
    }
    Ok(bytes)
}

/// Writes a file with these tensors and texts, after the work of the devices' current streams (`save_file`).
///
/// The file is written under another name beside `path`, reaches the disk, and then takes the place of the one at `path`:
/// whatever fails, that one stays as it was.
///
/// # Errors
/// As for [`save`]; the disk is full ([`Error::Full`]), or the file cannot be written.
pub fn save_file<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    path: impl AsRef<Path>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let ordered = ordered(tensors, metadata)?;
    replace(path.as_ref(), |file| write_out(file, &ordered))
}

/// Writes a file beside the one at a path, and puts it in its place once it is whole.
fn replace(path: &Path, write: impl FnOnce(&DiskFile) -> Result<()>) -> Result<()> {
    // A link stays a link: what it leads to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let failed = |error| Error::io("write", &path, error);
    if let Ok(there) = fs::metadata(&path) {
        if !there.is_file() {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        if there.permissions().readonly() {
            return Err(failed(io::ErrorKind::PermissionDenied.into()));
        }
    }
    let (file, beside) = regular_files::create_beside(&path).map_err(failed)?;
    let file = DiskFile::cached(&path, file, "files are saved so");
    let whole = write(&file).and_then(|()| file.file().sync_all().map_err(failed));
    let outcome = whole.and_then(|()| fs::rename(&beside, &path).map_err(failed));
    if outcome.is_err() {
        // What was begun is of no use; that it cannot be removed is no better news than that it could not be written.
        let _ = fs::remove_file(&beside);
    }
    outcome
}

fn write_out(file: &DiskFile, ordered: &Ordered) -> Result<()> {
    let header = ordered.header.to_bytes();
    file.write(&header, 0)?;
    let data = header.len() as u64;
    let mut by_device: BTreeMap<DeviceIndex, Vec<Piece<'_>>> = BTreeMap::new();
    for (stored, tensor) in ordered.header.tensors.iter().zip(&ordered.tensors) {
        let bytes = data + stored.bytes.start..data + stored.bytes.end;
        match tensor.storage().buffer() {
            Some(buffer) => {
                let at = index(tensor.storage_offset().unsigned_abs()) * tensor.element_size();
                by_device.entry(buffer.device_index()).or_default().push(Piece { file: bytes, buffer, at });
            }
            None => file.write(&tensor.to_bytes()?, bytes.start)?,
        }
    }
    for (device, pieces) in by_device {
        transfer::write(file, &pieces, device, &Options::default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_finished_leaves_the_old_one_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("cuda-storage-replace-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("tensors");
        replace(&path, |file| file.write(b"whole", 0)).unwrap();
        let full = || Error::io("write", &path, io::ErrorKind::StorageFull.into());
        let error = replace(&path, |file| file.write(b"half", 0).and_then(|()| Err(full()))).unwrap_err();
        assert!(matches!(error, Error::Full { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
