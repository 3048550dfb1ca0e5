//! Which instructions there are: their names, the family that reads each, and why some are not supported.
//!
//! **Invariants:** the rows are in the order of their names; a name that is no row is no instruction of PTX. `refused`
//! lists modifiers that are PTX for an instruction but not supported here: others that nothing reads are no PTX.

use super::reader::Reader;
use super::{
    arithmetic, atomic, bits, carry, compare, control, convert, fence, float, matrix, memory, moves, warp, wmma,
};
use crate::refusal::Refusal;

/// Reads the instructions of one name.
pub(super) type Decoder = fn(&mut Reader<'_, '_, '_>) -> Result<(), Refusal>;

/// What is done with a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Status {
    Supported(Decoder),
    /// Supported, and read with the labels and functions of a body.
    Elsewhere,
    Refused,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// Why it is refused, or what of it is.
    pub(super) note: &'static str,
    /// Modifiers that are PTX but not supported.
    pub(super) refused: &'static [&'static str],
}

/// Whether instructions of a name are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormStatus {
    /// They are, except for what the note says.
    Supported,
    /// They are not, for the reason that the note gives.
    NotSupported,
}

/// Every instruction of PTX by its name, whether it is supported, and what is to be said about it.
pub fn forms() -> impl Iterator<Item = (&'static str, FormStatus, &'static str)> {
    ROWS.iter().map(|row| {
        let status = match row.status {
            Status::Supported(_) | Status::Elsewhere => FormStatus::Supported,
            Status::Refused => FormStatus::NotSupported,
        };
        (row.name, status, row.note)
    })
}

/// The row of a name.
pub(super) fn row(name: &str) -> Option<&'static Row> {
    ROWS.binary_search_by_key(&name, |row| row.name).ok().and_then(|index| ROWS.get(index))
}

/// An instruction that is read by a family.
const fn reads(name: &'static str, decode: Decoder) -> Row {
    Row { name, status: Status::Supported(decode), note: "", refused: &[] }
}

/// One whose note says what of it is not supported.
const fn reads_but(name: &'static str, decode: Decoder, refused: &'static [&'static str], note: &'static str) -> Row {
    Row { name, status: Status::Supported(decode), note, refused }
}

const fn elsewhere(name: &'static str) -> Row {
    Row { name, status: Status::Elsewhere, note: "", refused: &[] }
}

const fn refused(name: &'static str, note: &'static str) -> Row {
    Row { name, status: Status::Refused, note, refused: &[] }
}

const CLUSTERS: &str = "clusters of blocks are not supported";
const TEXTURES: &str = "textures and surfaces are not supported";
const VIDEO: &str = "instructions of video are not supported";
const MBARRIER: &str = "barriers in memory are not supported";
const TENSOR_CORE_5: &str = "tensor memory is not supported";
const WARP_GROUP: &str = "products of warp groups are not supported";
const MULTIMEM: &str = "addresses of several devices are not supported";
const PAIRS: &[&str] = &["f32x2"];

const ROWS: &[Row] = &[
    reads("abs", arithmetic::abs),
    reads("activemask", warp::activemask),
    reads_but("add", arithmetic::add, PAIRS, "not .f32x2, nor of mixed types"),
    reads("addc", carry::addc),
    reads("alloca", control::alloca),
    reads("and", bits::and),
    reads("applypriority", memory::line),
    reads_but(
        "atom",
        atomic::atom,
        &["b128", "shared::cluster", "async"],
        "not of 128 bits, nor in shared memory of other blocks",
    ),
    reads_but("bar", control::bar, &[], ""),
    reads_but("barrier", control::barrier, &["cluster"], "not of clusters"),
    reads("bfe", bits::bfe),
    reads("bfi", bits::bfi),
    reads("bfind", bits::bfind),
    reads("bmsk", bits::bmsk),
    elsewhere("bra"),
    reads("brev", bits::brev),
    reads_but("brkpt", control::trap, &[], "as trap, since no debugger waits for it"),
    elsewhere("brx"),
    elsewhere("call"),
    refused("clusterlaunchcontrol", CLUSTERS),
    reads("clz", bits::clz),
    reads("cnot", bits::cnot),
    reads("copysign", float::copysign),
    reads_but("cos", float::cos, &[], "correctly rounded instead of approximate"),
    reads_but(
        "cp",
        memory::cp,
        &["bulk", "mbarrier", "reduce", "shared::cluster"],
        "cp.async, without those in bulk or with a barrier in memory",
    ),
    reads_but("createpolicy", memory::createpolicy, &[], "policies have no effect"),
    reads_but(
        "cvt",
        convert::cvt,
        &[
            "rs",
            "e2m1x2",
            "e2m3x2",
            "e3m2x2",
            "ue8m0x2",
            "e4m3x4",
            "e5m2x4",
            "e2m1x4",
            "e2m3x4",
            "e3m2x4",
            "scaled::n2::ue8m0",
            "e8m0",
            "s2f6x2",
        ],
        "not .rs, nor floating types of less than 8 bits or without fraction",
    ),
    reads_but("cvta", moves::cvta, &["shared::cluster"], "not of shared memory of other blocks"),
    reads_but("discard", memory::line, &[], "has no effect"),
    reads("div", arithmetic::div),
    reads("dp2a", bits::dp2a),
    reads("dp4a", bits::dp4a),
    reads("elect", warp::elect),
    reads_but("ex2", float::ex2, &[], "correctly rounded instead of approximate"),
    reads("exit", control::exit),
    reads_but("fence", fence::fence, &[], "all forms are one fence"),
    reads_but("fma", arithmetic::fma, &["f32x2", "oob"], "not .f32x2, .oob, nor of mixed types"),
    reads("fns", bits::fns),
    refused("getctarank", CLUSTERS),
    reads_but("griddepcontrol", control::griddepcontrol, &[], "has no effect: launches do not overlap"),
    reads_but(
        "isspacep",
        moves::isspacep,
        &["shared::cluster", "param::func"],
        "constant memory is a part of the module's variables",
    ),
    refused("istypep", TEXTURES),
    reads_but(
        "ld",
        memory::ld,
        &["b128", "v8", "unified", "shared::cluster", "L2::evict_normal", "L2::evict_first", "L2::evict_last"],
        "not of 128 bits, .v8, .unified, nor in shared memory of other blocks",
    ),
    reads_but(
        "ldmatrix",
        matrix::ldmatrix,
        &["m16n16", "m8n16", "b8", "b8x16.b6x16_p32", "b6x16_p32", "b4x16_p64", "b8x16", "shared::cluster"],
        "matrices of 8 by 8 values of 16 bits",
    ),
    reads_but("ldu", memory::ldu, &["b128"], "not of 128 bits"),
    reads_but("lg2", float::lg2, &[], "correctly rounded instead of approximate"),
    reads("lop3", bits::lop3),
    reads("mad", arithmetic::mad),
    reads("mad24", bits::mad24),
    reads("madc", carry::madc),
    refused("mapa", CLUSTERS),
    reads("match", warp::agree),
    reads_but("max", arithmetic::max, &[], "not of three values, nor .abs alone"),
    refused("mbarrier", MBARRIER),
    reads_but("membar", fence::membar, &[], "all forms are one fence"),
    reads_but("min", arithmetic::min, &[], "not of three values, nor .abs alone"),
    reads_but(
        "mma",
        matrix::mma,
        &[
            "sp",
            "sp::ordered_metadata",
            "e3m2",
            "e2m3",
            "e2m1",
            "b1",
            "popc",
            "xor",
            "and",
            "m8n8k128",
            "m16n8k128",
            "m16n8k256",
            "block_scale",
        ],
        "dense products of f16 (not m8n8k4), bf16, tf32, f64, e4m3, e5m2 and integers of 4 or 8 bits; sums in the order of k",
    ),
    reads_but("mov", moves::mov, &["b128", "v2", "v4"], "not of 128 bits"),
    reads("movmatrix", matrix::movmatrix),
    reads_but("mul", arithmetic::mul, PAIRS, "not .f32x2"),
    reads("mul24", bits::mul24),
    refused("multimem", MULTIMEM),
    reads("nanosleep", control::nanosleep),
    reads("neg", arithmetic::neg),
    reads("not", bits::not),
    reads("or", bits::or),
    reads_but("pmevent", control::pmevent, &[], "has no effect"),
    reads("popc", bits::popc),
    reads_but("prefetch", memory::prefetch, &["tensormap"], "has no effect; not of tensor maps"),
    reads_but("prefetchu", memory::prefetch, &[], "has no effect"),
    reads("prmt", bits::prmt),
    reads("rcp", float::rcp),
    reads_but(
        "red",
        atomic::red,
        &["async", "shared::cluster", "mmio"],
        "not .async, nor in shared memory of other blocks",
    ),
    reads_but("redux", warp::redux, &["f32", "abs", "NaN"], "of integers; of f32 no device up to sm_90 has it"),
    reads("rem", arithmetic::rem),
    reads("ret", control::ret),
    reads_but("rsqrt", float::rsqrt, &[], "correctly rounded instead of approximate"),
    reads("sad", bits::sad),
    reads("selp", bits::selp),
    reads("set", compare::set),
    refused("setmaxnreg", "registers are not counted"),
    reads("setp", compare::setp),
    reads("shf", bits::shf),
    reads("shfl", warp::shfl),
    reads("shl", bits::shl),
    reads("shr", bits::shr),
    reads_but("sin", float::sin, &[], "correctly rounded instead of approximate"),
    reads("slct", bits::slct),
    reads("sqrt", float::sqrt),
    reads_but(
        "st",
        memory::st,
        &["b128", "v8", "async", "bulk", "shared::cluster", "L2::evict_normal", "L2::evict_first", "L2::evict_last"],
        "not of 128 bits, .v8, .async, nor in shared memory of other blocks",
    ),
    reads("stackrestore", control::stackrestore),
    reads("stacksave", control::stacksave),
    reads_but(
        "stmatrix",
        matrix::stmatrix,
        &["m16n8", "b8", "shared::cluster"],
        "matrices of 8 by 8 values of 16 bits",
    ),
    reads_but("sub", arithmetic::sub, PAIRS, "not .f32x2, nor of mixed types"),
    reads("subc", carry::subc),
    refused("suld", TEXTURES),
    refused("suq", TEXTURES),
    refused("sured", TEXTURES),
    refused("sust", TEXTURES),
    reads("szext", bits::szext),
    reads_but("tanh", float::tanh, &[], "correctly rounded instead of approximate"),
    refused("tcgen05", TENSOR_CORE_5),
    refused("tensormap", "tensor maps are not supported"),
    reads("testp", float::testp),
    refused("tex", TEXTURES),
    refused("tld4", TEXTURES),
    reads("trap", control::trap),
    refused("txq", TEXTURES),
    refused("vabsdiff", VIDEO),
    refused("vabsdiff2", VIDEO),
    reads_but("vabsdiff4", bits::vabsdiff4, &["sat"], "not of selected bytes, nor saturated"),
    refused("vadd", VIDEO),
    refused("vadd2", VIDEO),
    refused("vadd4", VIDEO),
    refused("vavrg2", VIDEO),
    refused("vavrg4", VIDEO),
    refused("vmad", VIDEO),
    refused("vmax", VIDEO),
    refused("vmax2", VIDEO),
    refused("vmax4", VIDEO),
    refused("vmin", VIDEO),
    refused("vmin2", VIDEO),
    refused("vmin4", VIDEO),
    reads("vote", warp::vote),
    refused("vset", VIDEO),
    refused("vset2", VIDEO),
    refused("vset4", VIDEO),
    refused("vshl", VIDEO),
    refused("vshr", VIDEO),
    refused("vsub", VIDEO),
    refused("vsub2", VIDEO),
    refused("vsub4", VIDEO),
    refused("wgmma", WARP_GROUP),
    reads_but("wmma", wmma::wmma, &[], "not of single bits; lanes hold what they hold for mma"),
    reads("xor", bits::xor),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_names() {
        assert!(ROWS.is_sorted_by(|one, next| one.name < next.name));
        assert!(ROWS.iter().all(|row| self::row(row.name).is_some()));
    }

    #[test]
    fn what_is_refused_says_why() {
        assert!(forms().all(|(_, status, note)| status == FormStatus::Supported || !note.is_empty()));
        assert!(forms().any(|form| form == ("wgmma", FormStatus::NotSupported, WARP_GROUP)));
    }
}
