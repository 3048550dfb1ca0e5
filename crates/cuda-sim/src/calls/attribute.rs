//! Attributes of streams and of kernel nodes.
//!
//! Of a stream only the priority means anything here; the others are taken and forgotten. A node keeps all of them, and
//! whether its blocks must run at once is looked at. Clusters are of one block, or not supported.

use cuda_sys::driver::types::{CUgraphNode_st, CUlaunchAttributeID as Attribute, CUlaunchAttributeValue, CUstream_st};

use super::graph::set_kind_of;
use super::launch::launch_of;
use super::stream::{GREATEST_PRIORITY, LEAST_PRIORITY};
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_VALUE, NOT_SUPPORTED};
use crate::model::graph::NodeKind;
use crate::model::modules::Launch;

/// Size of an attribute's value.
const VALUE_BYTES: usize = size_of::<CUlaunchAttributeValue>();

/// Whether streams have an attribute.
fn is_known(attribute: Attribute) -> bool {
    matches!(
        attribute,
        Attribute::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | Attribute::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
            | Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY
            | Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
    )
}

pub(crate) fn get(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    attribute: Attribute,
    value: Ptr<CUlaunchAttributeValue>,
) -> Answer {
    let key = call.named_stream(stream)?;
    value.required()?;
    if !is_known(attribute) {
        return Err(INVALID_VALUE);
    }
    (0..VALUE_BYTES).try_for_each(|index| value.cast::<u8>().write_at(index, 0))?;
    if attribute == Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY {
        value.cast::<i32>().write(call.stream(key)?.priority)?;
    }
    Ok(())
}

pub(crate) fn set(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    attribute: Attribute,
    value: Ptr<CUlaunchAttributeValue>,
) -> Answer {
    let key = call.named_stream(stream)?;
    value.required()?;
    if !is_known(attribute) {
        return Err(INVALID_VALUE);
    }
    if attribute == Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY {
        let priority = value.cast::<i32>().read()?;
        call.stream_mut(key)?.priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    }
    Ok(())
}

pub(crate) fn copy(call: &mut Call<'_>, to: Ptr<CUstream_st>, from: Ptr<CUstream_st>) -> Answer {
    let (to, from) = (call.named_stream(to)?, call.named_stream(from)?);
    let priority = call.stream(from)?.priority;
    call.stream_mut(to)?.priority = priority;
    Ok(())
}

/// What a node has where nothing else was set; none for an attribute that nodes do not have.
fn default_of(attribute: Attribute) -> Option<[u8; VALUE_BYTES]> {
    let mut value = [0; VALUE_BYTES];
    match attribute {
        Attribute::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        | Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        | Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        | Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
        | Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY
        | Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => {}
        // The remote domain is the second one.
        Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => value[1] = 1,
        // The driver chooses.
        Attribute::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => value[..4].copy_from_slice(&[0xFF; 4]),
        _ => return None,
    }
    Some(value)
}

/// A number at the beginning of a value.
fn word(value: &[u8; VALUE_BYTES], index: usize) -> i32 {
    let at = |byte: usize| value[index * 4 + byte];
    i32::from_le_bytes([at(0), at(1), at(2), at(3)])
}

pub(crate) fn get_of_node(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    attribute: Attribute,
    value: Ptr<CUlaunchAttributeValue>,
) -> Answer {
    let launch = launch_of(call, node)?;
    let mut found = default_of(attribute).ok_or(INVALID_VALUE)?;
    match attribute {
        Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => found[0] = u8::from(launch.cooperative),
        Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY => {
            found[..4].copy_from_slice(&launch.attributes.priority.to_le_bytes());
        }
        _ => found = launch.attributes.others.get(&attribute.0).copied().unwrap_or(found),
    }
    value.cast::<[u8; VALUE_BYTES]>().write(found)
}

pub(crate) fn set_of_node(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    attribute: Attribute,
    value: Ptr<CUlaunchAttributeValue>,
) -> Answer {
    let mut launch = launch_of(call, node)?.clone();
    default_of(attribute).ok_or(INVALID_VALUE)?;
    let given = value.cast::<[u8; VALUE_BYTES]>().read()?;
    match attribute {
        Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => launch.cooperative = word(&given, 0) != 0,
        Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY => {
            launch.attributes.priority = word(&given, 0).clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
        }
        Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION if (0..3).any(|axis| word(&given, axis) > 1) => {
            return Err(NOT_SUPPORTED);
        }
        _ => drop(launch.attributes.others.insert(attribute.0, given)),
    }
    renew(call, node, launch)
}

pub(crate) fn copy_between_nodes(call: &mut Call<'_>, to: Ptr<CUgraphNode_st>, from: Ptr<CUgraphNode_st>) -> Answer {
    let Launch { cooperative, attributes, .. } = launch_of(call, from)?.clone();
    let launch = Launch { cooperative, attributes, ..launch_of(call, to)?.clone() };
    renew(call, to, launch)
}

/// Gives a node its launch back with other attributes.
///
/// `COOPERATIVE_LAUNCH_TOO_LARGE`: not all blocks of it can run at once. `INVALID_VALUE`: its function is gone.
fn renew(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, launch: Launch) -> Answer {
    let too_large = |code| if code == COOPERATIVE_LAUNCH_TOO_LARGE { code } else { INVALID_VALUE };
    call.check_launch(&launch).map_err(too_large)?;
    set_kind_of(call, node, NodeKind::Kernel(launch))
}
