//! Green contexts: what of a device can be given away, contexts made of it, and what of them is their own.

use super::capture::RELAXED;
use super::prelude::*;
use super::ptx::{ONE, idle, kernel};

const SINCE: u32 = 12050;

cases!("green", CASES, Needs::CONTEXT.since(SINCE);
    resource_of_the_device, kinds_there_are_not, resources_of_nothing, splits, splits_without_clusters, counts_without_room, splits_refused, groups_are_not_split,
    descriptors, descriptors_refused, create_refused, two_of_one_descriptor, without_a_descriptor, stands_for_a_context, resources_of_contexts, what_a_green_resource_gives,
    memory_is_of_the_primary, streams_made_by_it, streams_refused, streams_made_in_it, default_stream_of_it, streams_of_the_primary, work_and_events, events_of_either, events_refused,
    no_events_while_capturing, captured_graphs_run_on_either, kernels_run_on_either, waits_for_itself_only, primary_waits_for_it, events_of_the_primary_wait_for_it,
    without_a_current_context, peers_of_itself, limits_of_it, destroy_while_current, streams_after_the_end, not_destroyed_as_a_context,
);
cases!("green", ID_CASES, Needs::CONTEXT.since(12090);
    ids_of_it,
);
cases!("green", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    handles_of_nothing, destroyed_twice, streams_destroyed_after_it, too_many_multiprocessors, kernels_stay_in_their_part, cooperative_launches_fit_the_part,
    work_ends_with_it, heap_of_the_primary,
);
cases!("green", PRIMARY_CASES, Needs { simulated: true, ..Needs::NO_CONTEXT };
    retains_the_primary, reset_of_the_primary,
);

const SM: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;

/// Multiprocessors that a resource has.
fn count_of(resource: &CUdevResource) -> u32 {
    if resource.type_ != SM {
        return 0;
    }
    // SAFETY: the resource says that it has this field; all its bytes are set.
    unsafe { resource.__bindgen_anon_1.sm }.smCount
}

fn device_resource(cu: &Cuda<'_>) -> CaseResult<CUdevResource> {
    let mut resource = CUdevResource::zeroed();
    ok!(cu.cuDeviceGetDevResource(0, &mut resource, SM));
    Ok(resource)
}

/// A split of a resource: groups and what is left.
fn split(
    cu: &Cuda<'_>,
    from: &CUdevResource,
    most: u32,
    least: u32,
) -> CaseResult<(Vec<CUdevResource>, CUdevResource)> {
    let (mut count, mut rest) = (most, CUdevResource::zeroed());
    let mut groups = vec![CUdevResource::zeroed(); most as usize];
    ok!(cu.cuDevSmResourceSplitByCount(groups.as_mut_ptr(), &mut count, from, &mut rest, 0, least));
    groups.truncate(count as usize);
    Ok((groups, rest))
}

fn describe(cu: &Cuda<'_>, resources: &mut [CUdevResource]) -> CaseResult<CUdevResourceDesc> {
    let mut descriptor = ptr::null_mut();
    let count = u32::try_from(resources.len()).unwrap_or(0);
    ok!(cu.cuDevResourceGenerateDesc(&mut descriptor, resources.as_mut_ptr(), count));
    Ok(descriptor)
}

/// A green context that the case destroys itself.
fn loose(cu: &Cuda<'_>, least: u32) -> CaseResult<CUgreenCtx> {
    let (mut groups, _) = split(cu, &device_resource(cu)?, 1, least)?;
    let descriptor = describe(cu, &mut groups)?;
    let mut green = ptr::null_mut();
    ok!(cu.cuGreenCtxCreate(&mut green, descriptor, 0, 1));
    Ok(green)
}

/// A green context of 16 multiprocessors, and as a context.
fn green(cu: &Cuda<'_>) -> CaseResult<(CUgreenCtx, CUcontext)> {
    let green = loose(cu, 16)?;
    cu.later(Cleanup::Green(green));
    Ok((green, as_context(cu, green)?))
}

fn as_context(cu: &Cuda<'_>, green: CUgreenCtx) -> CaseResult<CUcontext> {
    let mut context = ptr::null_mut();
    ok!(cu.cuCtxFromGreenCtx(&mut context, green));
    Ok(context)
}

fn stream_of(cu: &Cuda<'_>, green: CUgreenCtx) -> CaseResult<CUstream> {
    let mut stream = ptr::null_mut();
    ok!(cu.cuGreenCtxStreamCreate(&mut stream, green, NON_BLOCKING, 0));
    cu.later(Cleanup::Stream(stream));
    Ok(stream)
}

/// The green context of a stream; null for one of an ordinary context.
fn green_of(cu: &Cuda<'_>, stream: CUstream) -> CaseResult<CUgreenCtx> {
    let mut green = ptr::without_provenance_mut(1);
    ok!(cu.cuStreamGetGreenCtx(stream, &mut green));
    Ok(green)
}

fn resource_of_the_device(cu: &Cuda<'_>) -> CaseResult {
    let (resource, mut count) = (device_resource(cu)?, 0);
    let asked = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    ok!(cu.cuDeviceGetAttribute(&mut count, asked, 0));
    same!(cu, i64::from(count_of(&resource)), i64::from(count));
    // SAFETY: a resource of this type has this field.
    let sm = unsafe { resource.__bindgen_anon_1.sm };
    same!(cu, (sm.minSmPartitionSize, sm.smCoscheduledAlignment), (8, 8));
    Ok(())
}

fn kinds_there_are_not(cu: &Cuda<'_>) -> CaseResult {
    let (mut resource, (green, context)) = (CUdevResource::zeroed(), green(cu)?);
    for kind in [0, 2, 3].map(CUdevResourceType) {
        want!(INVALID_RESOURCE_TYPE, cu.cuDeviceGetDevResource(0, &mut resource, kind));
        want!(INVALID_RESOURCE_TYPE, cu.cuCtxGetDevResource(context, &mut resource, kind));
        want!(INVALID_RESOURCE_TYPE, cu.cuGreenCtxGetDevResource(green, &mut resource, kind));
    }
    Ok(())
}

fn resources_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let mut resource = CUdevResource::zeroed();
    want!(INVALID_DEVICE, cu.cuDeviceGetDevResource(1000, &mut resource, SM));
    want!(INVALID_VALUE, cu.cuDeviceGetDevResource(0, ptr::null_mut(), SM));
    let (green, context) = green(cu)?;
    want!(INVALID_VALUE, cu.cuCtxGetDevResource(context, ptr::null_mut(), SM));
    want!(INVALID_VALUE, cu.cuGreenCtxGetDevResource(green, ptr::null_mut(), SM));
    Ok(())
}

/// Splits 132 multiprocessors and compares the number of groups, the size of each, and what is left.
fn expect_splits(cu: &Cuda<'_>, flags: u32, table: &[([u32; 2], [u32; 3])]) -> CaseResult {
    let whole = device_resource(cu)?;
    if count_of(&whole) != 132 {
        return Err(Stop::Skip("needs a device with 132 multiprocessors".to_owned()));
    }
    for &([most, least], wanted) in table {
        let (mut count, mut rest, mut groups) = (most, CUdevResource::zeroed(), [CUdevResource::zeroed(); 200]);
        ok!(cu.cuDevSmResourceSplitByCount(groups.as_mut_ptr(), &mut count, &whole, &mut rest, flags, least));
        let groups = &groups[..count as usize];
        let size = groups.first().map_or(0, count_of);
        that!(cu, groups.iter().all(|group| count_of(group) == size));
        same!(cu, ([most, least], [count, size, count_of(&rest)]), ([most, least], wanted));
    }
    Ok(())
}

fn splits(cu: &Cuda<'_>) -> CaseResult {
    let table = [
        ([1, 0], [1, 8, 124]),
        ([1, 7], [1, 8, 124]),
        ([1, 9], [1, 16, 116]),
        ([1, 66], [1, 72, 60]),
        ([1, 128], [1, 128, 4]),
        ([1, 130], [1, 132, 0]),
        ([2, 60], [2, 64, 4]),
        ([2, 66], [1, 72, 60]),
        ([3, 40], [3, 40, 12]),
        ([3, 44], [2, 48, 36]),
        ([200, 0], [15, 8, 12]),
    ];
    expect_splits(cu, 0, &table)?;
    expect_splits(cu, 2, &[([16, 8], [15, 8, 12]), ([4, 16], [4, 16, 68])])?;
    expect_splits(cu, 4, &[([1, 8], [1, 8, 124])])
}

fn splits_without_clusters(cu: &Cuda<'_>) -> CaseResult {
    let table = [
        ([16, 8], [16, 8, 4]),
        ([16, 1], [16, 2, 100]),
        ([1, 3], [1, 4, 128]),
        ([2, 66], [2, 66, 0]),
        ([1, 131], [1, 132, 0]),
    ];
    expect_splits(cu, 1, &table)
}

fn counts_without_room(cu: &Cuda<'_>) -> CaseResult {
    let whole = device_resource(cu)?;
    for (least, wanted) in [(0, 15), (8, 15), (60, 2)] {
        let mut count = 77;
        ok!(cu.cuDevSmResourceSplitByCount(ptr::null_mut(), &mut count, &whole, ptr::null_mut(), 0, least));
        same!(cu, (least, count), (least, wanted));
    }
    let mut groups = [CUdevResource::zeroed(); 2];
    let mut count = 2;
    want!(SUCCESS, cu.cuDevSmResourceSplitByCount(groups.as_mut_ptr(), &mut count, &whole, ptr::null_mut(), 0, 16));
    same!(cu, groups.map(|group| count_of(&group)), [16, 16]);
    Ok(())
}

fn splits_refused(cu: &Cuda<'_>) -> CaseResult {
    let (whole, nothing, mut groups) = (device_resource(cu)?, CUdevResource::zeroed(), [CUdevResource::zeroed(); 2]);
    let (room, mut count, none) = (groups.as_mut_ptr(), 1, ptr::null_mut());
    want!(INVALID_RESOURCE_CONFIGURATION, cu.cuDevSmResourceSplitByCount(room, &mut count, &whole, none, 0, 1000));
    same!(cu, count, 1);
    want!(INVALID_VALUE, cu.cuDevSmResourceSplitByCount(room, &mut count, &whole, none, 3, 8));
    want!(INVALID_VALUE, cu.cuDevSmResourceSplitByCount(room, &mut 0, &whole, none, 0, 8));
    want!(INVALID_VALUE, cu.cuDevSmResourceSplitByCount(room, &mut count, ptr::null(), none, 0, 8));
    want!(INVALID_RESOURCE_TYPE, cu.cuDevSmResourceSplitByCount(room, &mut count, &nothing, none, 0, 8));
    Ok(())
}

fn groups_are_not_split(cu: &Cuda<'_>) -> CaseResult {
    let (groups, rest) = split(cu, &device_resource(cu)?, 2, 32)?;
    let (mut again, mut count) = ([CUdevResource::zeroed(); 2], 2);
    for part in [&groups[0], &rest] {
        let (room, none) = (again.as_mut_ptr(), ptr::null_mut());
        want!(INVALID_RESOURCE_CONFIGURATION, cu.cuDevSmResourceSplitByCount(room, &mut count, part, none, 0, 8));
    }
    Ok(())
}

/// Multiprocessors of a green context made of these resources.
fn made_of(cu: &Cuda<'_>, resources: &mut [CUdevResource]) -> CaseResult<u32> {
    let (mut green, mut resource) = (ptr::null_mut(), CUdevResource::zeroed());
    ok!(cu.cuGreenCtxCreate(&mut green, describe(cu, resources)?, 0, 1));
    ok!(cu.cuGreenCtxGetDevResource(green, &mut resource, SM));
    ok!(cu.cuGreenCtxDestroy(green));
    Ok(count_of(&resource))
}

fn descriptors(cu: &Cuda<'_>) -> CaseResult {
    let whole = device_resource(cu)?;
    let (groups, rest) = split(cu, &whole, 2, 16)?;
    let all = count_of(&whole);
    same!(cu, made_of(cu, &mut [groups[0], groups[1]])?, 32);
    // The same group twice counts twice.
    same!(cu, made_of(cu, &mut [groups[0], groups[0]])?, 32);
    same!(cu, made_of(cu, &mut [rest])?, all - 32);
    same!(cu, made_of(cu, &mut [groups[0], rest])?, all - 16);
    same!(cu, made_of(cu, &mut [whole])?, all);
    Ok(())
}

fn descriptors_refused(cu: &Cuda<'_>) -> CaseResult {
    let (mut whole, mut nothing, mut descriptor) = (device_resource(cu)?, CUdevResource::zeroed(), ptr::null_mut());
    want!(INVALID_VALUE, cu.cuDevResourceGenerateDesc(ptr::null_mut(), &mut whole, 1));
    want!(INVALID_VALUE, cu.cuDevResourceGenerateDesc(&mut descriptor, ptr::null_mut(), 1));
    want!(INVALID_RESOURCE_TYPE, cu.cuDevResourceGenerateDesc(&mut descriptor, &mut nothing, 1));
    whole.__bindgen_anon_1.sm = CUdevSmResource { smCount: 9, minSmPartitionSize: 8, smCoscheduledAlignment: 8 };
    want!(INVALID_RESOURCE_CONFIGURATION, cu.cuDevResourceGenerateDesc(&mut descriptor, &mut whole, 1));
    Ok(())
}

fn create_refused(cu: &Cuda<'_>) -> CaseResult {
    let (mut whole, mut green) = ([device_resource(cu)?], ptr::null_mut());
    let descriptor = describe(cu, &mut whole)?;
    for flags in [0, 2, 3] {
        want!(INVALID_VALUE, cu.cuGreenCtxCreate(&mut green, descriptor, 0, flags));
    }
    want!(INVALID_DEVICE, cu.cuGreenCtxCreate(&mut green, descriptor, 1000, 1));
    want!(INVALID_VALUE, cu.cuGreenCtxCreate(ptr::null_mut(), descriptor, 0, 1));
    Ok(())
}

fn two_of_one_descriptor(cu: &Cuda<'_>) -> CaseResult {
    let before = cu.current()?;
    let descriptor = describe(cu, &mut [device_resource(cu)?])?;
    let (mut first, mut second) = (ptr::null_mut(), ptr::null_mut());
    ok!(cu.cuGreenCtxCreate(&mut first, descriptor, 0, 1));
    ok!(cu.cuGreenCtxCreate(&mut second, descriptor, 0, 1));
    that!(cu, first != second);
    same!(cu, cu.current()?, before);
    ok!(cu.cuGreenCtxDestroy(first));
    ok!(cu.cuGreenCtxDestroy(second));
    Ok(())
}

fn without_a_descriptor(cu: &Cuda<'_>) -> CaseResult {
    let mut green = ptr::null_mut();
    want!(SUCCESS, cu.cuGreenCtxCreate(&mut green, ptr::null_mut(), 0, 1));
    ok!(cu.cuGreenCtxDestroy(green));
    Ok(())
}

fn stands_for_a_context(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context)) = (cu.current()?, green(cu)?);
    that!(cu, context != primary);
    same!(cu, as_context(cu, green)?, context);
    same!(cu, context.addr(), green.addr());
    ok!(cu.cuCtxSetCurrent(context));
    same!(cu, cu.current()?, context);
    let (mut device, mut flags, mut version) = (7, 0, 0);
    want!(SUCCESS, cu.cuCtxGetDevice(&mut device));
    want!(SUCCESS, cu.cuCtxGetFlags(&mut flags));
    want!(SUCCESS, cu.cuCtxGetApiVersion(context, &mut version));
    same!(cu, (device, flags & 8, version), (0, 8, 3020));
    want!(SUCCESS, cu.cuCtxSynchronize_v2(context));
    ok!(cu.cuCtxSetCurrent(primary));
    want!(INVALID_VALUE, cu.cuCtxFromGreenCtx(ptr::null_mut(), green));
    Ok(())
}

fn ids_of_it(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context)) = (cu.current()?, green(cu)?);
    let (mut own, mut as_context, mut of_primary) = (0, 0, 0);
    want!(SUCCESS, cu.cuGreenCtxGetId(green, &mut own));
    want!(SUCCESS, cu.cuCtxGetId(context, &mut as_context));
    want!(SUCCESS, cu.cuCtxGetId(primary, &mut of_primary));
    same!(cu, own, as_context);
    that!(cu, own != of_primary);
    want!(INVALID_VALUE, cu.cuGreenCtxGetId(green, ptr::null_mut()));
    Ok(())
}

fn resources_of_contexts(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context), mut resource) = (cu.current()?, green(cu)?, CUdevResource::zeroed());
    want!(SUCCESS, cu.cuGreenCtxGetDevResource(green, &mut resource, SM));
    same!(cu, count_of(&resource), 16);
    resource = CUdevResource::zeroed();
    want!(SUCCESS, cu.cuCtxGetDevResource(context, &mut resource, SM));
    same!(cu, count_of(&resource), 16);
    want!(SUCCESS, cu.cuCtxGetDevResource(primary, &mut resource, SM));
    same!(cu, count_of(&resource), count_of(&device_resource(cu)?));
    Ok(())
}

/// What a green context has can be split again.
fn what_a_green_resource_gives(cu: &Cuda<'_>) -> CaseResult {
    let ((green, _), mut resource) = (green(cu)?, CUdevResource::zeroed());
    ok!(cu.cuGreenCtxGetDevResource(green, &mut resource, SM));
    let (groups, _) = split(cu, &resource, 2, 8)?;
    same!(cu, groups.iter().map(count_of).collect::<Vec<_>>(), [8, 8]);
    Ok(())
}

fn memory_is_of_the_primary(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (_, context)) = (cu.current()?, green(cu)?);
    ok!(cu.cuCtxSetCurrent(context));
    let (memory, mut owner) = (cu.alloc(4096)?, ptr::null_mut::<CUctx_st>());
    let asked = CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT;
    want!(SUCCESS, cu.cuPointerGetAttribute((&raw mut owner).cast(), asked, memory));
    same!(cu, owner, primary);
    let (mut free, mut total) = (0, 0);
    want!(SUCCESS, cu.cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cu.cuCtxSetCurrent(primary));
    want!(SUCCESS, cu.cuMemsetD8_v2(memory, 1, 4096));
    Ok(())
}

/// Both kinds of questions about a stream's context: its own, and its primary context beside its green one.
fn expect_contexts(cu: &Cuda<'_>, stream: CUstream, [own, primary]: [CUcontext; 2], green: CUgreenCtx) -> CaseResult {
    let (mut first, mut second, mut told) = (ptr::null_mut(), ptr::null_mut(), ptr::without_provenance_mut(1));
    want!(SUCCESS, cu.cuStreamGetCtx(stream, &mut first));
    want!(SUCCESS, cu.cuStreamGetCtx_v2(stream, &mut second, &mut told));
    same!(cu, (first, second, told), (own, primary, green));
    second = ptr::null_mut();
    want!(SUCCESS, cu.cuStreamGetCtx_v2(stream, &mut second, ptr::null_mut()));
    same!(cu, second, primary);
    same!(cu, green_of(cu, stream)?, green);
    Ok(())
}

fn streams_made_by_it(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context)) = (cu.current()?, green(cu)?);
    for (asked, wanted) in [(0, 0), (-3, -3), (-99, -5), (9, 0)] {
        let (mut stream, mut priority, mut flags) = (ptr::null_mut(), 7, 7);
        want!(SUCCESS, cu.cuGreenCtxStreamCreate(&mut stream, green, NON_BLOCKING, asked));
        cu.later(Cleanup::Stream(stream));
        ok!(cu.cuStreamGetPriority(stream, &mut priority));
        ok!(cu.cuStreamGetFlags(stream, &mut flags));
        same!(cu, (asked, priority, flags), (asked, wanted, 1));
        expect_contexts(cu, stream, [context, primary], green)?;
    }
    Ok(())
}

fn streams_refused(cu: &Cuda<'_>) -> CaseResult {
    let ((green, _), mut stream) = (green(cu)?, ptr::null_mut());
    for flags in [0, 2, 3] {
        want!(INVALID_VALUE, cu.cuGreenCtxStreamCreate(&mut stream, green, flags, 0));
    }
    want!(INVALID_VALUE, cu.cuGreenCtxStreamCreate(ptr::null_mut(), green, NON_BLOCKING, 0));
    Ok(())
}

fn streams_made_in_it(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context)) = (cu.current()?, green(cu)?);
    ok!(cu.cuCtxSetCurrent(context));
    let stream = cu.stream_with(0)?;
    expect_contexts(cu, stream, [context, primary], green)?;
    ok!(cu.cuCtxSetCurrent(primary));
    Ok(())
}

fn default_stream_of_it(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context)) = (cu.current()?, green(cu)?);
    ok!(cu.cuCtxSetCurrent(context));
    for stream in [DEFAULT, LEGACY] {
        same!(cu, green_of(cu, stream)?, green);
    }
    ok!(cu.cuCtxSetCurrent(primary));
    Ok(())
}

fn streams_of_the_primary(cu: &Cuda<'_>) -> CaseResult {
    let (primary, stream) = (cu.current()?, cu.stream()?);
    expect_contexts(cu, stream, [primary, primary], ptr::null_mut())?;
    that!(cu, green_of(cu, DEFAULT)?.is_null());
    want!(INVALID_VALUE, cu.cuStreamGetGreenCtx(stream, ptr::null_mut()));
    Ok(())
}

fn work_and_events(cu: &Cuda<'_>) -> CaseResult {
    let ((green, _), memory, event) = (green(cu)?, cu.filled(4096, 0)?, cu.event()?);
    let stream = stream_of(cu, green)?;
    ok!(cu.cuMemsetD8Async(memory, 4, 4096, stream));
    want!(SUCCESS, cu.cuGreenCtxRecordEvent(green, event));
    want!(SUCCESS, cu.cuGreenCtxWaitEvent(green, event));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    want!(SUCCESS, cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(memory, 16)?, [4; 16]);
    Ok(())
}

/// Events of a green context and of its primary one serve both.
fn events_of_either(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context), of_primary) = (cu.current()?, green(cu)?, cu.event()?);
    let (inside, outside) = (stream_of(cu, green)?, cu.stream()?);
    ok!(cu.cuCtxSetCurrent(context));
    let of_green = cu.event()?;
    ok!(cu.cuCtxSetCurrent(primary));
    for event in [of_primary, of_green] {
        want!(SUCCESS, cu.cuGreenCtxRecordEvent(green, event));
        want!(SUCCESS, cu.cuCtxRecordEvent(context, event));
        want!(SUCCESS, cu.cuCtxRecordEvent(primary, event));
        for stream in [inside, outside] {
            want!(SUCCESS, cu.cuEventRecord(event, stream));
            want!(SUCCESS, cu.cuStreamWaitEvent(outside, event, 0));
            want!(SUCCESS, cu.cuStreamWaitEvent(inside, event, 0));
        }
    }
    ok!(cu.cuStreamSynchronize(inside));
    ok!(cu.cuStreamSynchronize(outside));
    Ok(())
}

fn events_refused(cu: &Cuda<'_>) -> CaseResult {
    let (green, _) = green(cu)?;
    want!(INVALID_HANDLE, cu.cuGreenCtxRecordEvent(green, ptr::null_mut()));
    want!(INVALID_HANDLE, cu.cuGreenCtxWaitEvent(green, ptr::null_mut()));
    Ok(())
}

fn no_events_while_capturing(cu: &Cuda<'_>) -> CaseResult {
    let ((green, _), event) = (green(cu)?, cu.event()?);
    let stream = stream_of(cu, green)?;
    cu.begin(stream, RELAXED)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuGreenCtxRecordEvent(green, event));
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuGreenCtxWaitEvent(green, event));
    let mut graph = ptr::null_mut();
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &mut graph));
    Ok(())
}

fn captured_graphs_run_on_either(cu: &Cuda<'_>) -> CaseResult {
    let ((green, _), memory, outside) = (green(cu)?, cu.filled(4096, 0)?, cu.stream()?);
    let stream = stream_of(cu, green)?;
    cu.begin(stream, RELAXED)?;
    ok!(cu.cuMemsetD8Async(memory, 4, 4096, stream));
    let exec = cu.instantiate(cu.end(stream)?)?;
    for stream in [stream, outside] {
        ok!(cu.cuMemsetD8_v2(memory, 0, 4096));
        ok!(cu.cuCtxSynchronize());
        want!(SUCCESS, cu.cuGraphLaunch(exec, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(cu, cu.read(memory, 16)?, [4; 16]);
    }
    Ok(())
}

/// A function serves the green and the primary context, wherever its module was loaded.
fn kernels_run_on_either(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context), outside) = (cu.current()?, green(cu)?, cu.stream()?);
    let (inside, of_primary) = (stream_of(cu, green)?, cu.function(&idle())?);
    ok!(cu.cuCtxSetCurrent(context));
    let of_green = cu.function(&idle())?;
    for function in [of_primary, of_green] {
        for stream in [inside, outside, DEFAULT] {
            cu.launch(function, [ONE, ONE], 0, stream, &[])?;
        }
    }
    want!(SUCCESS, cu.cuCtxSynchronize());
    ok!(cu.cuCtxSetCurrent(primary));
    want!(SUCCESS, cu.cuCtxSynchronize());
    Ok(())
}

fn waits_for_itself_only(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (_, context), stream) = (cu.current()?, green(cu)?, cu.stream()?);
    let gate = cu.hold(stream)?;
    ok!(cu.cuCtxSetCurrent(context));
    want!(SUCCESS, cu.cuCtxSynchronize());
    want!(NOT_READY, cu.cuStreamQuery(stream));
    ok!(cu.cuCtxSetCurrent(primary));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn primary_waits_for_it(cu: &Cuda<'_>) -> CaseResult {
    let ((green, _), count) = (green(cu)?, counter());
    let stream = stream_of(cu, green)?;
    let memory = cu.alloc(64 << 20)?;
    ok!(cu.cuMemsetD8Async(memory, 1, 64 << 20, stream));
    ok!(cu.cuLaunchHostFunc(stream, Some(raise), data(count)));
    want!(SUCCESS, cu.cuCtxSynchronize());
    same!(cu, count.load(Ordering::SeqCst), 1);
    want!(SUCCESS, cu.cuStreamQuery(stream));
    Ok(())
}

fn events_of_the_primary_wait_for_it(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, _), event) = (cu.current()?, green(cu)?, cu.event()?);
    let stream = stream_of(cu, green)?;
    let gate = cu.hold(stream)?;
    ok!(cu.cuCtxRecordEvent(primary, event));
    want!(NOT_READY, cu.cuEventQuery(event));
    gate.open();
    want!(SUCCESS, cu.cuEventSynchronize(event));
    Ok(())
}

/// Calls that name what they mean need no current context.
fn without_a_current_context(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (green, context), event) = (cu.current()?, green(cu)?, cu.event()?);
    let stream = stream_of(cu, green)?;
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    let mut resource = CUdevResource::zeroed();
    want!(SUCCESS, cu.cuStreamQuery(stream));
    want!(SUCCESS, cu.cuGreenCtxGetDevResource(green, &mut resource, SM));
    same!(cu, as_context(cu, green)?, context);
    same!(cu, green_of(cu, stream)?, green);
    want!(SUCCESS, cu.cuGreenCtxRecordEvent(green, event));
    want!(SUCCESS, cu.cuGreenCtxWaitEvent(green, event));
    let other = stream_of(cu, green)?;
    ok!(cu.cuCtxSetCurrent(primary));
    that!(cu, other != stream);
    Ok(())
}

fn peers_of_itself(cu: &Cuda<'_>) -> CaseResult {
    let (_, context) = green(cu)?;
    want!(PEER_ACCESS_UNSUPPORTED, cu.cuCtxEnablePeerAccess(context, 0));
    Ok(())
}

fn limits_of_it(cu: &Cuda<'_>) -> CaseResult {
    let (primary, (_, context), mut value) = (cu.current()?, green(cu)?, 0);
    ok!(cu.cuCtxSetCurrent(context));
    want!(SUCCESS, cu.cuCtxGetLimit(&mut value, CUlimit::CU_LIMIT_STACK_SIZE));
    want!(SUCCESS, cu.cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, value));
    want!(SUCCESS, cu.cuCtxSetFlags(0));
    ok!(cu.cuCtxSetCurrent(primary));
    Ok(())
}

fn destroy_while_current(cu: &Cuda<'_>) -> CaseResult {
    let (primary, green) = (cu.current()?, loose(cu, 16)?);
    let context = as_context(cu, green)?;
    ok!(cu.cuCtxSetCurrent(context));
    let (memory, event, mut pointer) = (cu.filled(4096, 1)?, cu.event()?, 0);
    want!(SUCCESS, cu.cuGreenCtxDestroy(green));
    same!(cu, cu.current()?, context);
    want!(CONTEXT_IS_DESTROYED, cu.cuCtxSynchronize());
    want!(CONTEXT_IS_DESTROYED, cu.cuMemAlloc_v2(&mut pointer, 16));
    want!(SUCCESS, cu.cuEventQuery(event));
    ok!(cu.cuCtxSetCurrent(primary));
    // Making the destroyed one current again is answered with success, but leaving it once more is more than drivers
    // survive.
    want!(SUCCESS, cu.cuMemsetD8_v2(memory, 2, 16));
    Ok(())
}

fn streams_after_the_end(cu: &Cuda<'_>) -> CaseResult {
    let (green, mut stream) = (loose(cu, 16)?, ptr::null_mut());
    ok!(cu.cuGreenCtxStreamCreate(&mut stream, green, NON_BLOCKING, 0));
    ok!(cu.cuGreenCtxDestroy(green));
    // The handle is known, but destroying the stream a second time is more than drivers survive.
    want!(CONTEXT_IS_DESTROYED, cu.cuStreamQuery(stream));
    Ok(())
}

fn not_destroyed_as_a_context(cu: &Cuda<'_>) -> CaseResult {
    let (_, context) = green(cu)?;
    want!(INVALID_CONTEXT, cu.cuCtxDestroy_v2(context));
    want!(INVALID_CONTEXT, cu.cuGreenCtxDestroy(ptr::null_mut()));
    Ok(())
}

fn handles_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let nothing = ptr::without_provenance_mut(0xDEAD_BEE8);
    let (mut context, mut resource, mut id, mut stream) =
        (ptr::null_mut(), CUdevResource::zeroed(), 0, ptr::null_mut());
    want!(INVALID_CONTEXT, cu.cuCtxFromGreenCtx(&mut context, nothing));
    want!(INVALID_CONTEXT, cu.cuGreenCtxGetDevResource(nothing, &mut resource, SM));
    want!(INVALID_CONTEXT, cu.cuGreenCtxGetId(nothing, &mut id));
    want!(INVALID_CONTEXT, cu.cuGreenCtxStreamCreate(&mut stream, nothing, NON_BLOCKING, 0));
    let mut green = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGreenCtxCreate(&mut green, ptr::without_provenance_mut(0xDEAD_BEE8), 0, 1));
    let (mut whole, mut descriptor) = (device_resource(cu)?, ptr::null_mut());
    want!(INVALID_VALUE, cu.cuDevResourceGenerateDesc(&mut descriptor, &mut whole, 0));
    Ok(())
}

fn destroyed_twice(cu: &Cuda<'_>) -> CaseResult {
    let green = loose(cu, 16)?;
    ok!(cu.cuGreenCtxDestroy(green));
    want!(INVALID_CONTEXT, cu.cuGreenCtxDestroy(green));
    let mut context = ptr::null_mut();
    want!(INVALID_CONTEXT, cu.cuCtxFromGreenCtx(&mut context, green));
    Ok(())
}

fn streams_destroyed_after_it(cu: &Cuda<'_>) -> CaseResult {
    let (green, mut stream) = (loose(cu, 16)?, ptr::null_mut());
    ok!(cu.cuGreenCtxStreamCreate(&mut stream, green, NON_BLOCKING, 0));
    ok!(cu.cuGreenCtxDestroy(green));
    want!(INVALID_HANDLE, cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn too_many_multiprocessors(cu: &Cuda<'_>) -> CaseResult {
    let (mut twice, mut descriptor) = ([device_resource(cu)?; 2], ptr::null_mut());
    want!(INVALID_RESOURCE_CONFIGURATION, cu.cuDevResourceGenerateDesc(&mut descriptor, twice.as_mut_ptr(), 2));
    Ok(())
}

/// Every block writes the number of its multiprocessor, and how many there are.
const WHERE: &str = "mov.u32 %r1, %smid;\nmov.u32 %r2, %nsmid;\nmov.u32 %r3, %ctaid.x;\nmul.wide.u32 %d0, %r3, 8;\n\
    add.s64 %d1, %o, %d0;\nst.global.u32 [%d1], %r1;\nst.global.u32 [%d1+4], %r2;";

fn kernels_stay_in_their_part(cu: &Cuda<'_>) -> CaseResult {
    const BLOCKS: u32 = 64;
    let ((green, _), function, out) = (green(cu)?, cu.function(&kernel(WHERE))?, cu.filled(BLOCKS as usize * 8, 0xFF)?);
    for (stream, part) in [(stream_of(cu, green)?, 16), (cu.stream()?, 132)] {
        cu.launch(function, [[BLOCKS, 1, 1], ONE], 0, stream, &[out, 0, 0])?;
        ok!(cu.cuStreamSynchronize(stream));
        let words = cu.read_words(out, BLOCKS as usize * 2)?;
        that!(cu, words.chunks_exact(2).all(|word| word[0] < part && word[1] == part));
    }
    Ok(())
}

fn cooperative_launches_fit_the_part(cu: &Cuda<'_>) -> CaseResult {
    let ((green, _), function, mut blocks) = (green(cu)?, cu.function(&idle())?, 0);
    let (inside, none) = (stream_of(cu, green)?, ptr::null_mut());
    ok!(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 1024, 0));
    let room = u32::try_from(blocks).unwrap_or(0) * 16;
    want!(SUCCESS, cu.cuLaunchCooperativeKernel(function, room, 1, 1, 1024, 1, 1, 0, inside, none));
    let more = room + 1;
    want!(
        COOPERATIVE_LAUNCH_TOO_LARGE,
        cu.cuLaunchCooperativeKernel(function, more, 1, 1, 1024, 1, 1, 0, inside, none)
    );
    want!(SUCCESS, cu.cuLaunchCooperativeKernel(function, more, 1, 1, 1024, 1, 1, 0, cu.stream()?, none));
    Ok(())
}

/// Destroying a green context waits for what is queued on its streams.
fn work_ends_with_it(cu: &Cuda<'_>) -> CaseResult {
    let (green, memory, mut stream) = (loose(cu, 16)?, cu.filled(4096, 0)?, ptr::null_mut());
    ok!(cu.cuGreenCtxStreamCreate(&mut stream, green, NON_BLOCKING, 0));
    ok!(cu.cuMemsetD8Async(memory, 9, 4096, stream));
    ok!(cu.cuGreenCtxDestroy(green));
    same!(cu, cu.read(memory, 16)?, [9; 16]);
    Ok(())
}

fn is_active(cu: &Cuda<'_>) -> CaseResult<bool> {
    let (mut flags, mut active) = (0, 7);
    ok!(cu.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    Ok(active != 0)
}

fn retains_the_primary(cu: &Cuda<'_>) -> CaseResult {
    that!(cu, !is_active(cu)?);
    let green = loose(cu, 16)?;
    that!(cu, is_active(cu)?);
    that!(cu, cu.current()?.is_null());
    ok!(cu.cuGreenCtxDestroy(green));
    that!(cu, !is_active(cu)?);
    Ok(())
}

fn reset_of_the_primary(cu: &Cuda<'_>) -> CaseResult {
    let green = loose(cu, 16)?;
    ok!(cu.cuCtxSetCurrent(as_context(cu, green)?));
    ok!(cu.cuDevicePrimaryCtxReset_v2(0));
    want!(CONTEXT_IS_DESTROYED, cu.cuCtxSynchronize());
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    want!(SUCCESS, cu.cuGreenCtxDestroy(green));
    that!(cu, !is_active(cu)?);
    Ok(())
}

/// What a kernel allocates in a green context, one of the primary context frees.
fn heap_of_the_primary(cu: &Cuda<'_>) -> CaseResult {
    let (green, _) = green(cu)?;
    let stream = stream_of(cu, green)?;
    let pointer = super::heap::allocate_on(cu, 1000, stream)?;
    that!(cu, pointer != 0);
    super::heap::free(cu, pointer)
}
