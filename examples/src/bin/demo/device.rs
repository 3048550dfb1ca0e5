//! What there is to know about the device.

use examples::checks::{Failure, bytes, equal, holds};

use crate::say;

/// Prints the facts and checks that two ways to ask agree.
pub(crate) fn show() -> Result<(), Failure> {
    let properties = cuda_api::get_device_properties(None)?;
    let (free, total) = cuda_api::mem_get_info(None)?;
    let (major, minor) = cuda_api::get_device_capability(None)?;
    let rows = [
        ("name", properties.name.clone()),
        ("devices", cuda_api::device_count().to_string()),
        ("compute capability", format!("{major}.{minor}")),
        ("multiprocessors", properties.multi_processor_count.to_string()),
        ("threads of each", properties.max_threads_per_multi_processor.to_string()),
        ("memory", bytes(total)),
        ("memory free", bytes(free)),
        ("L2 cache", bytes(u64::try_from(properties.L2_cache_size)?)),
        ("uuid", properties.uuid.to_string()),
    ];
    for (label, value) in rows {
        say(format!("  {label:<20} {value}"));
    }
    equal("capability, asked for twice", (properties.major, properties.minor), (major, minor))?;
    equal("memory, asked for twice", properties.total_memory, total)?;
    holds("no more memory is free than there is", free <= total)
}
