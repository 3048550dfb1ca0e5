//! Files of tensors that anybody may hand over.
//!
//! What must hold: no file makes the reader panic, go on for long, or take more memory than the file has; what is read is
//! written so that it reads the same again.

use cuda_storage::safetensors::{load, metadata, save};

/// Runs one input: as a file, as a header with the right length before it, and as changes to files that are right.
///
/// # Errors
/// What was written is not what was read.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    one(bytes)?;
    let (json, data) = bytes.split_at(bytes.len() * 3 / 4);
    one(&file(json, data))?;
    for (json, data) in SAMPLES {
        one(&changed(file(json.as_bytes(), &vec![7; data]), bytes))?;
    }
    Ok(())
}

/// Headers, and how many bytes the tensors behind them have.
const SAMPLES: [(&str, usize); 2] = [
    (r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#, 24),
    (
        r#"{"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"c":{"dtype":"BOOL","shape":[0,9],"data_offsets":[10,10]}}"#,
        10,
    ),
];

/// A file of a header and what stands behind it.
fn file(json: &[u8], data: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json, data].concat()
}

/// A file with up to four bytes changed: each as two bytes of the input say, a place and what stands there.
fn changed(mut file: Vec<u8>, input: &[u8]) -> Vec<u8> {
    for two in input.chunks_exact(2).take(4) {
        let length = file.len();
        if let Some(byte) = file.get_mut(usize::from(two[0]) % length.max(1)) {
            *byte = two[1];
        }
    }
    file
}

fn one(bytes: &[u8]) -> Result<(), String> {
    let Ok(tensors) = load(bytes, "cpu") else { return Ok(()) };
    let texts = metadata(bytes).map_err(|error| format!("the tensors are read and the texts are not: {error}"))?;
    let named = || tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    let written = save(named(), &texts).map_err(|error| format!("what was read is not written: {error}"))?;
    let again = load(&written, "cpu").map_err(|error| format!("our own file is refused: {error}"))?;
    if !again.keys().eq(tensors.keys()) || metadata(&written).ok() != Some(texts) {
        return Err("a file that is written and read has other names".to_owned());
    }
    for (name, tensor) in &tensors {
        let read = |tensor: &aten_cuda::Tensor| tensor.to_bytes().map_err(|error| error.to_string());
        let other = &again[name];
        if (other.dtype(), other.sizes()) != (tensor.dtype(), tensor.sizes()) || read(other)? != read(tensor)? {
            return Err(format!("'{name}' is another tensor when it is read again"));
        }
    }
    Ok(())
}
