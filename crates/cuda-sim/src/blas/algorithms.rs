//! Algorithms of cuBLASLt: which there are for a product, what they need, and their settings.
//!
//! All give the same numbers. They differ in tile, in parts of the inner dimension (split-K) and by that in the workspace
//! they need: the parts' sums have to lie somewhere. An algorithm is a structure of the program's, so nothing in it is
//! trusted: the library's own check is made before each use.

use std::ffi::c_void;

use cuda_sys::cublas::types::{cublasComputeType_t, cublasStatus_t, cudaDataType_t};
use cuda_sys::cublaslt::types::{
    cublasLtContext, cublasLtMatmulAlgo_t, cublasLtMatmulAlgoCapAttributes_t, cublasLtMatmulAlgoConfigAttributes_t,
    cublasLtMatmulDescOpaque_t, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulTile_t, cublasLtMatrixLayoutOpaque_t,
};

use cublasLtMatmulAlgoCapAttributes_t as Capability;
use cublasLtMatmulAlgoConfigAttributes_t as Config;

use super::descriptors::Kind;
use super::gemm::arithmetic;
use super::lt::{Plan, is_eight_bits};
use super::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::call::Call;
use crate::claim::Ptr;

/// Marks structures that this library has filled.
const MARK: u64 = 0x4c74_416c_676f_0000;

/// Numbers of algorithms.
const IDS: [i32; 3] = [21, 31, 66];

/// Tiles that every algorithm has.
const TILES: [cublasLtMatmulTile_t; 3] = [
    cublasLtMatmulTile_t::CUBLASLT_MATMUL_TILE_128x256,
    cublasLtMatmulTile_t::CUBLASLT_MATMUL_TILE_128x128,
    cublasLtMatmulTile_t::CUBLASLT_MATMUL_TILE_64x64,
];

/// Parts of the inner dimension that are offered.
const SPLITS: [u32; 3] = [1, 2, 4];

/// Sums of parts in the type of the computation.
const REDUCE_COMPUTE_TYPE: u32 = 2;

/// The most settings of an algorithm's own.
const CUSTOM_OPTION_MAX: u32 = 3;

/// The settings of an algorithm, in the order of their attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Algorithm {
    id: i32,
    /// Values by attribute, beginning with the tile.
    settings: [u32; 8],
}

/// Place in `settings` of the way to add parts up: the attribute's number less one.
const REDUCTION: usize = 2;

impl Algorithm {
    fn new(id: i32, tile: cublasLtMatmulTile_t, split: u32) -> Self {
        let reduction = if split > 1 { REDUCE_COMPUTE_TYPE } else { 0 };
        Self { id, settings: [tile.0, split, reduction, 0, 0, 0, 0, 0] }
    }

    pub(super) fn read(given: Ptr<cublasLtMatmulAlgo_t>) -> Answer<Self> {
        let data = given.read().map_err(|_| INVALID_VALUE)?.data;
        let id = i32::try_from(data[0] ^ MARK).ok().filter(|id| IDS.contains(id)).ok_or(INVALID_VALUE)?;
        let settings = std::array::from_fn(|place| {
            let word = data[1 + place / 2] >> (32 * (place % 2));
            super::word(word)
        });
        Ok(Self { id, settings })
    }

    fn as_data(self) -> cublasLtMatmulAlgo_t {
        let mut data = [0; 8];
        data[0] = MARK ^ u64::from(self.id.unsigned_abs());
        for (place, &value) in self.settings.iter().enumerate() {
            data[1 + place / 2] |= u64::from(value) << (32 * (place % 2));
        }
        cublasLtMatmulAlgo_t { data }
    }

    /// Bytes of workspace that a product needs with these settings; `NOT_SUPPORTED` where they do not go together.
    pub(super) fn workspace(self, plan: &Plan) -> Answer<u64> {
        let [tile, split, reduction, ..] = self.settings;
        let known = tile == 0 || TILES.iter().any(|known| known.0 == tile);
        let splits = SPLITS.contains(&split.max(1)) && u64::from(split) <= plan.inner().max(1);
        if !known || !splits || reduction > 7 || self.settings[4] > CUSTOM_OPTION_MAX {
            return Err(NOT_SUPPORTED);
        }
        if split <= 1 {
            return Ok(0);
        }
        if reduction == 0 || plan.has_small_floats() {
            return Err(NOT_SUPPORTED);
        }
        Ok(u64::from(split) * plan.sum_bytes())
    }
}

/// All algorithms for a product that need no more than so much workspace, the best first.
fn candidates(plan: &Plan, workspace_max: u64, reductions: u32) -> Vec<(Algorithm, u64)> {
    let offered = SPLITS
        .iter()
        .flat_map(|&split| TILES.iter().zip(IDS.iter().rev()).map(move |(&tile, &id)| Algorithm::new(id, tile, split)));
    let allowed = offered.filter(|algorithm| algorithm.settings[REDUCTION] & !reductions == 0);
    let needs = allowed.filter_map(|algorithm| Some((algorithm, algorithm.workspace(plan).ok()?)));
    needs.filter(|&(_, bytes)| bytes <= workspace_max).collect()
}

/// The algorithm that the library chooses by itself, with its workspace.
pub(super) fn chosen(plan: &Plan, workspace_max: u64) -> Answer<u64> {
    candidates(plan, workspace_max, u32::MAX).first().map(|&(_, bytes)| bytes).ok_or(NOT_SUPPORTED)
}

fn result(algorithm: Algorithm, bytes: u64, plan: &Plan) -> cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulHeuristicResult_t {
        algo: algorithm.as_data(),
        workspaceSize: usize::try_from(bytes).unwrap_or(usize::MAX),
        state: cublasStatus_t::CUBLAS_STATUS_SUCCESS,
        wavesCount: plan.waves(),
        reserved: [0; 4],
    }
}

/// What a product is made of, by its descriptors.
pub(super) struct Described {
    pub(super) desc: u64,
    pub(super) layouts: [u64; 4],
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn heuristic(
    call: &mut Call<'_>,
    handle: Ptr<cublasLtContext>,
    desc: Ptr<cublasLtMatmulDescOpaque_t>,
    a: Ptr<cublasLtMatrixLayoutOpaque_t>,
    b: Ptr<cublasLtMatrixLayoutOpaque_t>,
    c: Ptr<cublasLtMatrixLayoutOpaque_t>,
    d: Ptr<cublasLtMatrixLayoutOpaque_t>,
    preference: Ptr<cublasLtMatmulPreferenceOpaque_t>,
    wanted: i32,
    results: Ptr<cublasLtMatmulHeuristicResult_t>,
    found: Ptr<i32>,
) -> Answer {
    use cublasLtMatmulPreferenceAttributes_t as Preference;
    call.lt_context(handle)?;
    let wanted = usize::try_from(wanted).ok().filter(|&wanted| wanted > 0).ok_or(INVALID_VALUE)?;
    if results.is_null() || found.is_null() {
        return Err(INVALID_VALUE);
    }
    let preference = call.descriptor(preference.address(), Kind::Preference)?;
    let most = preference.get(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES.0);
    let reductions = super::word(preference.get(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK.0));
    found.write(0).map_err(|_| INVALID_VALUE)?;
    let layouts = [a.address(), b.address(), c.address(), d.address()];
    let plan = call.plan(&Described { desc: desc.address(), layouts })?;
    let all = candidates(&plan, most, reductions);
    for (index, &(algorithm, bytes)) in all.iter().take(wanted).enumerate() {
        results.write_at(index, result(algorithm, bytes, &plan)).map_err(|_| INVALID_VALUE)?;
    }
    found.write(i32::try_from(all.len().min(wanted)).unwrap_or(0)).map_err(|_| INVALID_VALUE)?;
    if all.is_empty() { Err(NOT_SUPPORTED) } else { Ok(()) }
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn ids(
    call: &mut Call<'_>,
    handle: Ptr<cublasLtContext>,
    compute: cublasComputeType_t,
    _scale: cudaDataType_t,
    a: cudaDataType_t,
    b: cudaDataType_t,
    c: cudaDataType_t,
    d: cudaDataType_t,
    wanted: i32,
    ids: Ptr<i32>,
    found: Ptr<i32>,
) -> Answer {
    call.lt_context(handle)?;
    let wanted = usize::try_from(wanted).ok().filter(|&wanted| wanted > 0).ok_or(INVALID_VALUE)?;
    check_types(compute, [a, b, c, d])?;
    for (index, &id) in IDS.iter().take(wanted).enumerate() {
        ids.write_at(index, id).map_err(|_| INVALID_VALUE)?;
    }
    found.write(i32::try_from(IDS.len().min(wanted)).unwrap_or(0)).map_err(|_| INVALID_VALUE)
}

/// Refuses types that there is no algorithm for.
fn check_types(compute: cublasComputeType_t, [a, b, c, d]: [cudaDataType_t; 4]) -> Answer {
    let small = is_eight_bits(a) && is_eight_bits(b) && compute == cublasComputeType_t::CUBLAS_COMPUTE_32F;
    let known = small || (c == d && arithmetic(compute, [a, b, d]).is_some());
    if known { Ok(()) } else { Err(NOT_SUPPORTED) }
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn init(
    call: &mut Call<'_>,
    handle: Ptr<cublasLtContext>,
    compute: cublasComputeType_t,
    _scale: cudaDataType_t,
    a: cudaDataType_t,
    b: cudaDataType_t,
    c: cudaDataType_t,
    d: cudaDataType_t,
    id: i32,
    algorithm: Ptr<cublasLtMatmulAlgo_t>,
) -> Answer {
    call.lt_context(handle)?;
    if !IDS.contains(&id) {
        return Err(INVALID_VALUE);
    }
    check_types(compute, [a, b, c, d])?;
    let made = Algorithm { id, settings: [0, 1, 0, 0, 0, 0, 0, 0] };
    algorithm.write(made.as_data()).map_err(|_| INVALID_VALUE)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(super) fn check(
    call: &mut Call<'_>,
    handle: Ptr<cublasLtContext>,
    desc: Ptr<cublasLtMatmulDescOpaque_t>,
    a: Ptr<cublasLtMatrixLayoutOpaque_t>,
    b: Ptr<cublasLtMatrixLayoutOpaque_t>,
    c: Ptr<cublasLtMatrixLayoutOpaque_t>,
    d: Ptr<cublasLtMatrixLayoutOpaque_t>,
    algorithm: Ptr<cublasLtMatmulAlgo_t>,
    answer: Ptr<cublasLtMatmulHeuristicResult_t>,
) -> Answer {
    call.lt_context(handle)?;
    let algorithm = Algorithm::read(algorithm)?;
    let layouts = [a.address(), b.address(), c.address(), d.address()];
    let plan = call.plan(&Described { desc: desc.address(), layouts })?;
    let bytes = algorithm.workspace(&plan)?;
    answer.write(result(algorithm, bytes, &plan)).map_err(|_| INVALID_VALUE)
}

/// Bytes of a setting, and its place; none for one that there is not.
fn setting(attribute: Config) -> Option<(usize, usize)> {
    let place = usize::try_from(attribute.0).ok()?.checked_sub(1)?;
    let bytes = match attribute {
        Config::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID | Config::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID => 2,
        _ => 4,
    };
    (place < 8).then_some((bytes, place))
}

pub(super) fn configure(
    _: &mut Call<'_>,
    given: Ptr<cublasLtMatmulAlgo_t>,
    attribute: Config,
    value: Ptr<c_void>,
    size: usize,
) -> Answer {
    let mut algorithm = Algorithm::read(given)?;
    let (bytes, place) = setting(attribute).ok_or(INVALID_VALUE)?;
    if size < bytes {
        return Err(INVALID_VALUE);
    }
    let read = value.cast::<u8>().read_array(bytes).map_err(|_| INVALID_VALUE)?;
    algorithm.settings[place] = read.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
    given.write(algorithm.as_data()).map_err(|_| INVALID_VALUE)
}

/// Answers with some bytes: writes how many, and themselves where there is room.
fn tell(bytes: &[u8], value: Ptr<c_void>, size: usize, written: Ptr<usize>) -> Answer {
    written.write_if_wanted(bytes.len());
    if size == 0 && !written.is_null() {
        return Ok(());
    }
    if size < bytes.len() {
        return Err(INVALID_VALUE);
    }
    let out = value.cast::<u8>();
    bytes.iter().enumerate().try_for_each(|(index, &byte)| out.write_at(index, byte)).map_err(|_| INVALID_VALUE)
}

pub(super) fn configuration(
    _: &mut Call<'_>,
    given: Ptr<cublasLtMatmulAlgo_t>,
    attribute: Config,
    value: Ptr<c_void>,
    size: usize,
    written: Ptr<usize>,
) -> Answer {
    let algorithm = Algorithm::read(given)?;
    if attribute == Config::CUBLASLT_ALGO_CONFIG_ID {
        return tell(&algorithm.id.to_le_bytes(), value, size, written);
    }
    let (bytes, place) = setting(attribute).ok_or(INVALID_VALUE)?;
    tell(&algorithm.settings[place].to_le_bytes()[..bytes], value, size, written)
}

pub(super) fn capability(
    call: &mut Call<'_>,
    given: Ptr<cublasLtMatmulAlgo_t>,
    attribute: Capability,
    value: Ptr<c_void>,
    size: usize,
    written: Ptr<usize>,
) -> Answer {
    Algorithm::read(given)?;
    let words: Vec<u32> = match attribute {
        Capability::CUBLASLT_ALGO_CAP_SPLITK_SUPPORT
        | Capability::CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT
        | Capability::CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT => vec![1],
        Capability::CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK => vec![7],
        Capability::CUBLASLT_ALGO_CAP_TILE_IDS => TILES.iter().map(|tile| tile.0).collect(),
        Capability::CUBLASLT_ALGO_CAP_STAGES_IDS
        | Capability::CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT
        | Capability::CUBLASLT_ALGO_CAP_UPLO_SUPPORT => vec![0],
        Capability::CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX => vec![CUSTOM_OPTION_MAX],
        Capability::CUBLASLT_ALGO_CAP_POINTER_MODE_MASK => vec![3],
        Capability::CUBLASLT_ALGO_CAP_EPILOGUE_MASK => vec![super::lt::EPILOGUES],
        Capability::CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES
        | Capability::CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES
        | Capability::CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES
        | Capability::CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES => vec![1],
        _ => return Err(call.not_simulated("this capability of algorithms")),
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    tell(&bytes, value, size, written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_what_its_structure_says() {
        let made = Algorithm::new(66, TILES[0], 4);
        let mut data = made.as_data();
        // A pointer to this test's own structure.
        assert_eq!(Algorithm::read(Ptr::from_params(&raw const data)), Ok(made));
        assert_eq!(made.settings, [23, 4, REDUCE_COMPUTE_TYPE, 0, 0, 0, 0, 0]);
        data.data[0] = 0;
        assert_eq!(Algorithm::read(Ptr::from_params(&raw const data)), Err(INVALID_VALUE));
    }
}
