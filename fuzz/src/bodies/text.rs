//! Texts that people and environments hand to the project: device names.
//!
//! What must hold: no text makes a parser panic, and what it accepts it writes back as it was.

use c10_core::Device;

/// Runs one input.
///
/// # Errors
/// A text was accepted as something other than what it says.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<Device>() {
        Ok(device) if device.to_string() == text => Ok(()),
        Ok(device) => Err(format!("`{text}` was read as `{device}`")),
        Err(error) if error.to_string().contains(text.as_ref()) => Ok(()),
        Err(error) => Err(format!("the error about `{text}` does not name it: {error}")),
    }
}
