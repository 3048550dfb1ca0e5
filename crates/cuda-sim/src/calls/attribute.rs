//! Attributes of streams. Only the priority means anything here; the others are taken and forgotten.

use cuda_sys::driver::types::{CUlaunchAttributeID as Attribute, CUlaunchAttributeValue, CUstream_st};

use super::stream::{GREATEST_PRIORITY, LEAST_PRIORITY};
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE};

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
