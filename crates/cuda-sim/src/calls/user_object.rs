//! User objects: data of the program that graphs keep.

use std::ffi::c_void;

use cuda_sys::driver::types::{CUgraph_st, CUhostFn, CUuserObject, CUuserObject_st};

use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_VALUE};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which must be set.
const NO_DESTRUCTOR_SYNC: u32 = 1;

/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;

pub(crate) fn create(
    call: &mut Call<'_>,
    object: Ptr<CUuserObject>,
    data: Ptr<c_void>,
    destroy: CUhostFn,
    references: u32,
    flags: u32,
) -> Answer {
    object.required()?;
    let destroy = destroy.filter(|_| flags == NO_DESTRUCTOR_SYNC).ok_or(INVALID_VALUE)?;
    let key = call.new_user_object(destroy, data.expose(), references)?;
    object.write(handle(key))
}

pub(crate) fn retain(call: &mut Call<'_>, object: Ptr<CUuserObject_st>, count: u32) -> Answer {
    call.retain_user_object(object.address(), count)
}

pub(crate) fn release(call: &mut Call<'_>, object: Ptr<CUuserObject_st>, count: u32) -> Answer {
    call.release_user_object(object.address(), count)
}

pub(crate) fn retain_in_graph(
    call: &mut Call<'_>,
    graph: Ptr<CUgraph_st>,
    object: Ptr<CUuserObject_st>,
    count: u32,
    flags: u32,
) -> Answer {
    if flags & !MOVE != 0 {
        return Err(INVALID_VALUE);
    }
    call.retain_in_graph(graph.address(), object.address(), count, flags == MOVE)
}

pub(crate) fn release_in_graph(
    call: &mut Call<'_>,
    graph: Ptr<CUgraph_st>,
    object: Ptr<CUuserObject_st>,
    count: u32,
) -> Answer {
    call.release_in_graph(graph.address(), object.address(), count)
}
