//! What NVML tells of how devices are connected: by PCIe, by NVLink, and what one reaches of another.
//!
//! **Invariant:** all of it follows from the machine's topology, as the ways of copies do. An H200 has 18 links; they lead to a
//! switch, to the devices at the other ends, or nowhere.

use std::ffi::c_char;

use cuda_sys::nvml::types::*;

use super::{Answer, FIRST_HANDLE, HANDLE_DISTANCE, INVALID_ARGUMENT, index_of, put};
use crate::claim::{Ptr, handle};
use crate::model::{State, profile};
use crate::topology::Connection;

type Device = Ptr<nvmlDevice_st>;

const NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED;

/// Device and vendor of an H200, and of the chip of a switch of its generation; the one below, of boards with either.
const PCI_OF_DEVICE: u32 = 0x2335_10DE;
const PCI_OF_SWITCH: u32 = 0x22A3_10DE;
const PCI_OF_BOARD: u32 = 0x18BE_10DE;

/// The switch as the PCI bus knows it: its bus, on which it is alone.
const SWITCH_BUS: u32 = 5;

/// Where a link of NVLink leads.
enum End {
    Switch,
    Device(u32),
}

/// What is at the other end of a link; none where it leads nowhere.
fn end(state: &State, device: u32, link: u32) -> Answer<Option<End>> {
    if link >= NVML_NVLINK_MAX_LINKS {
        return Err(INVALID_ARGUMENT);
    }
    let peers = state.nvlink_peers(device);
    let Some(&first) = peers.first() else { return Ok(None) };
    if state.connection(device, first) == Connection::Switch {
        return Ok(Some(End::Switch));
    }
    // The links of a device are dealt out to its neighbours evenly.
    let each = NVML_NVLINK_MAX_LINKS / u32::try_from(peers.len()).unwrap_or(NVML_NVLINK_MAX_LINKS);
    let which = usize::try_from(link / each.max(1)).unwrap_or(usize::MAX);
    Ok(peers.get(which).copied().map(End::Device))
}

pub(super) fn nvlink_state(state: &mut State, device: Device, link: u32, active: Ptr<nvmlEnableState_t>) -> Answer {
    let is_active = end(state, index_of(state, device)?, link)?.is_some();
    let (on, off) = (nvmlEnableState_t::NVML_FEATURE_ENABLED, nvmlEnableState_t::NVML_FEATURE_DISABLED);
    put(active, if is_active { on } else { off })
}

pub(super) fn nvlink_version(state: &mut State, device: Device, link: u32, version: Ptr<u32>) -> Answer {
    end(state, index_of(state, device)?, link)?;
    put(version, nvmlNvlinkVersion_t::NVML_NVLINK_VERSION_4_0.0)
}

/// A link that leads somewhere can all that links of its generation can; others can nothing.
pub(super) fn nvlink_capability(
    state: &mut State,
    device: Device,
    link: u32,
    capability: nvmlNvLinkCapability_t,
    can: Ptr<u32>,
) -> Answer {
    let is_active = end(state, index_of(state, device)?, link)?.is_some();
    if capability.0 >= nvmlNvLinkCapability_t::NVML_NVLINK_CAP_COUNT.0 {
        return Err(INVALID_ARGUMENT);
    }
    put(can, u32::from(is_active))
}

pub(super) fn nvlink_remote_kind(
    state: &mut State,
    device: Device,
    link: u32,
    kind: Ptr<nvmlIntNvLinkDeviceType_t>,
) -> Answer {
    match end(state, index_of(state, device)?, link)?.ok_or(NOT_SUPPORTED)? {
        End::Switch => put(kind, nvmlIntNvLinkDeviceType_t::NVML_NVLINK_DEVICE_TYPE_SWITCH),
        End::Device(_) => put(kind, nvmlIntNvLinkDeviceType_t::NVML_NVLINK_DEVICE_TYPE_GPU),
    }
}

pub(super) fn nvlink_remote_pci(state: &mut State, device: Device, link: u32, pci: Ptr<nvmlPciInfo_t>) -> Answer {
    match end(state, index_of(state, device)?, link)?.ok_or(NOT_SUPPORTED)? {
        End::Switch => put(pci, identity(SWITCH_BUS, 0, PCI_OF_SWITCH)),
        End::Device(device) => put(pci, identity_of(device)),
    }
}

pub(super) fn pci_info(state: &mut State, device: Device, pci: Ptr<nvmlPciInfo_t>) -> Answer {
    put(pci, identity_of(index_of(state, device)?))
}

fn identity_of(device: u32) -> nvmlPciInfo_t {
    identity(0, profile::pci_device(device), PCI_OF_DEVICE)
}

/// What is at a place of the bus; its domain has four digits in the old text and eight in the new one.
fn identity(bus: u32, device: u32, id: u32) -> nvmlPciInfo_t {
    let place = format!("{bus:02X}:{device:02X}.0");
    nvmlPciInfo_t {
        busIdLegacy: text(&format!("0000:{place}")),
        domain: 0,
        bus,
        device,
        pciDeviceId: id,
        pciSubSystemId: PCI_OF_BOARD,
        busId: text(&format!("00000000:{place}")),
    }
}

fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().zip(text.bytes().take(N - 1)) {
        *place = c_char::from_ne_bytes([byte]);
    }
    field
}

/// What is the lowest above two devices. Devices behind switches of NVLink share the host's bridge.
fn level(state: &State, one: u32, other: u32) -> nvmlGpuTopologyLevel_t {
    if one == other {
        return nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_INTERNAL;
    }
    match state.connection(one, other) {
        Connection::PcieSwitch => nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SINGLE,
        Connection::Switch | Connection::Direct | Connection::HostBridge => {
            nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_HOSTBRIDGE
        }
    }
}

pub(super) fn common_ancestor(
    state: &mut State,
    one: Device,
    other: Device,
    path: Ptr<nvmlGpuTopologyLevel_t>,
) -> Answer {
    put(path, level(state, index_of(state, one)?, index_of(state, other)?))
}

/// The devices at just that level, as many as there is room for; asked for none, how many there are.
pub(super) fn nearest(
    state: &mut State,
    device: Device,
    wanted: nvmlGpuTopologyLevel_t,
    count: Ptr<u32>,
    devices: Ptr<nvmlDevice_t>,
) -> Answer {
    let device = index_of(state, device)?;
    let is_level = (0..=5).any(|level| wanted.0 == level * 10);
    let room = count.read().map_err(|_| INVALID_ARGUMENT)?;
    if !is_level || (room > 0 && devices.is_null()) {
        return Err(INVALID_ARGUMENT);
    }
    let all = (0..state.config.devices).filter(|&other| other != device);
    let found: Vec<u32> = all.filter(|&other| level(state, device, other) == wanted).collect();
    let told = u32::try_from(found.len()).unwrap_or(u32::MAX);
    if room == 0 {
        return put(count, told);
    }
    for (place, &other) in found.iter().take(usize::try_from(room).unwrap_or(usize::MAX)).enumerate() {
        let other = handle(FIRST_HANDLE + HANDLE_DISTANCE * u64::from(other));
        devices.write_at(place, other).map_err(|_| INVALID_ARGUMENT)?;
    }
    put(count, told.min(room))
}

pub(super) fn p2p_status(
    state: &mut State,
    one: Device,
    other: Device,
    ability: nvmlGpuP2PCapsIndex_t,
    status: Ptr<nvmlGpuP2PStatus_t>,
) -> Answer {
    let (one, other) = (index_of(state, one)?, index_of(state, other)?);
    if one == other || ability.0 >= nvmlGpuP2PCapsIndex_t::NVML_P2P_CAPS_INDEX_UNKNOWN.0 {
        return Err(INVALID_ARGUMENT);
    }
    let by_nvlink = state.joined_by_nvlink(one, other);
    let can = state.reaches(one, other)
        && match ability {
            nvmlGpuP2PCapsIndex_t::NVML_P2P_CAPS_INDEX_NVLINK | nvmlGpuP2PCapsIndex_t::NVML_P2P_CAPS_INDEX_ATOMICS => {
                by_nvlink
            }
            nvmlGpuP2PCapsIndex_t::NVML_P2P_CAPS_INDEX_PCI => !by_nvlink,
            _ => true,
        };
    put(
        status,
        match can {
            true => nvmlGpuP2PStatus_t::NVML_P2P_STATUS_OK,
            false if !state.config.peer_access => nvmlGpuP2PStatus_t::NVML_P2P_STATUS_DISABLED_BY_REGKEY,
            false => nvmlGpuP2PStatus_t::NVML_P2P_STATUS_NOT_SUPPORTED,
        },
    )
}
