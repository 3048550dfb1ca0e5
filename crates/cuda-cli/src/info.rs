//! `info`: the driver and the devices. What cannot be had is left open, with the reason once below.

use std::io::Write;

use cuda_api::Runtime;
use memory_viz::analysis::human_bytes;

use crate::Error;

/// Prints the driver and a line for each device.
pub(crate) fn run(out: &mut dyn Write) -> Result<u8, Error> {
    if let Err(error) = cuda_api::init() {
        writeln!(out, "no device can be used: {error}")?;
        writeln!(out, "`torch-cuda doctor` says what is missing")?;
        return Ok(1);
    }
    match Runtime::current().driver_version() {
        Ok((version, from)) => {
            writeln!(out, "driver for CUDA {}.{}, {from}", version / 1000, version % 1000 / 10)?;
            if Runtime::current().is_simulated() {
                writeln!(out, "the devices are simulated: no GPU computes")?;
            }
        }
        Err(error) => writeln!(out, "driver of unknown version: {error}")?,
    }
    for device in 0..cuda_api::device_count() {
        self::device(device, out)?;
    }
    Ok(0)
}

fn device(device: usize, out: &mut dyn Write) -> Result<(), Error> {
    match cuda_api::get_device_properties(device) {
        Ok(properties) => writeln!(
            out,
            "cuda:{device}  {}, compute capability {}.{}, {} multiprocessors, {}, PCI {:04x}:{:02x}:{:02x}",
            properties.name,
            properties.major,
            properties.minor,
            properties.multi_processor_count,
            human_bytes(properties.total_memory),
            properties.pci_domain_id,
            properties.pci_bus_id,
            properties.pci_device_id
        )?,
        Err(error) => return Ok(writeln!(out, "cuda:{device}  {error}")?),
    }
    match cuda_api::mem_get_info(device) {
        Ok((free, total)) => writeln!(out, "        {} of {} free", human_bytes(free), human_bytes(total))?,
        Err(error) => writeln!(out, "        its memory cannot be asked for: {error}")?,
    }
    let load = cuda_api::utilization(device).and_then(|load| {
        let (heat, power) = (cuda_api::temperature(device)?, cuda_api::power_draw(device)?);
        Ok(format!("{load} % busy, {heat} degrees Celsius, {}.{} W", power / 1000, power % 1000 / 100))
    });
    match load {
        Ok(text) => writeln!(out, "        {text}")?,
        Err(error) => writeln!(out, "        load unknown: {error}")?,
    }
    Ok(())
}
