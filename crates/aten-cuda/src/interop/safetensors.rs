//! Tensors in files of the safetensors format: `save`, `load` and what holds them, as in Python's `safetensors.torch`.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use aten_cuda::{DType, Tensor, safetensors};
//!
//! let weight = Tensor::arange(0, 6, 1, Some(DType::BF16), "cpu")?.view(&[2, 3])?;
//! let bytes = safetensors::save([("weight", &weight), ("turned", &weight.t()?)], &BTreeMap::new())?;
//! let loaded = safetensors::load(&bytes, "cpu")?;
//! assert_eq!(loaded.keys().collect::<Vec<_>>(), ["turned", "weight"]);
//! assert_eq!((loaded["turned"].sizes(), loaded["turned"].dtype()), (&[3, 2][..], DType::BF16));
//! # Ok::<(), aten_cuda::Error>(())
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use c10_core::Device;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, View};

use crate::base::dtype::DType;
use crate::base::error::{Error, Result, invalid};
use crate::tensor::{Tensor, ToDevice};

/// The dtypes that the format has. It has no complex numbers but those of two floats of 32 bits.
const DTYPES: [(DType, Dtype); 13] = [
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::C64, Dtype::C64),
    (DType::F8E4M3FN, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
];

/// A tensor as the format has it.
struct Stored {
    dtype: Dtype,
    sizes: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.sizes
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The bytes of a file with these tensors and texts, after the work of the devices' current streams (`save`).
///
/// # Errors
/// The format has no such dtype, two tensors have one name, or a device failed.
pub fn save<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let mut stored = BTreeMap::new();
    for (name, tensor) in tensors {
        if stored.insert(name, of(name, tensor)?).is_some() {
            return Err(invalid(format!("safetensors: two tensors have the name '{name}'")));
        }
    }
    let metadata = (!metadata.is_empty()).then(|| metadata.clone().into_iter().collect());
    safetensors::serialize(stored, metadata).map_err(refused)
}

/// [`save`] into a file (`save_file`).
///
/// # Errors
/// As for [`save`], or the file cannot be written.
pub fn save_file<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    path: impl AsRef<Path>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let path = path.as_ref();
    std::fs::write(path, save(tensors, metadata)?).map_err(|error| unusable(path, &error))
}

/// The tensors of a file's bytes, on a device (`load`).
///
/// # Errors
/// The bytes are no such file, a dtype is not known here, the device does not exist, or there is not enough memory.
pub fn load(bytes: &[u8], device: impl ToDevice) -> Result<BTreeMap<String, Tensor>> {
    let device = device.to_device()?;
    let file = SafeTensors::deserialize(bytes).map_err(refused)?;
    file.iter().map(|(name, view)| Ok((name.to_owned(), loaded(name, &view, device)?))).collect()
}

/// [`load`] from a file (`load_file`).
///
/// # Errors
/// As for [`load`], or the file cannot be read.
pub fn load_file(path: impl AsRef<Path>, device: impl ToDevice) -> Result<BTreeMap<String, Tensor>> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|error| unusable(path, &error))?;
    load(&bytes, device)
}

/// The texts that stand in a file beside its tensors (`safe_open(...).metadata()`).
///
/// # Errors
/// The bytes are no such file.
pub fn metadata(bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(refused)?;
    Ok(header.metadata().clone().into_iter().flatten().collect())
}

fn of(name: &str, tensor: &Tensor) -> Result<Stored> {
    let known = DTYPES.iter().find(|(dtype, _)| *dtype == tensor.dtype());
    let Some(&(_, dtype)) = known else {
        return Err(invalid(format!("safetensors: the format has no {}, which '{name}' is of", tensor.dtype())));
    };
    let sizes = tensor.sizes().iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
    Ok(Stored { dtype, sizes, bytes: tensor.to_bytes()? })
}

fn loaded(name: &str, view: &safetensors::tensor::TensorView<'_>, device: Device) -> Result<Tensor> {
    let known = DTYPES.iter().find(|(_, dtype)| *dtype == view.dtype());
    let Some(&(dtype, _)) = known else {
        return Err(invalid(format!("safetensors: no dtype here is {:?}, which '{name}' is of", view.dtype())));
    };
    let size = |&size: &usize| i64::try_from(size).map_err(|_| invalid(format!("safetensors: '{name}' is too large")));
    let sizes: Vec<i64> = view.shape().iter().map(size).collect::<Result<_>>()?;
    Tensor::from_bytes(view.data(), &sizes, dtype)?.to_device(device)
}

fn refused(error: SafeTensorError) -> Error {
    invalid(format!("safetensors: {error}"))
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    invalid(format!("safetensors: {}: {error}", path.display()))
}
