//! What is asked of a communicator: checked, counted, and in the library's types.
//!
//! **Invariant:** the tensors of an [`Asked`] are contiguous, on the communicator's device, and have as many elements as the
//! function reads and writes.

use c10_core::DeviceIndex;
use cuda_sys::nccl::types::{ncclDataType_t, ncclRedOp_t};

use super::ReduceOp;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::nccl_error::NcclError;
use crate::tensor::Tensor;

/// A function of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    Send,
    Recv,
}

/// A checked call.
#[derive(Debug)]
pub(super) struct Asked<'t> {
    pub(super) function: Function,
    pub(super) from: Option<&'t Tensor>,
    pub(super) to: Option<&'t Tensor>,
    /// Elements, as the function counts them.
    pub(super) count: usize,
    pub(super) kind: ncclDataType_t,
    pub(super) op: ncclRedOp_t,
    /// What each element is multiplied by before, as one of `kind`; the operation is a sum then.
    pub(super) factor: Option<[u8; 8]>,
    /// The root, or the rank at the other end.
    pub(super) other: usize,
}

/// A rank, as far as calls depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) device: DeviceIndex,
}

impl Asked<'_> {
    /// The C function.
    pub(super) fn symbol(&self) -> &'static str {
        match self.function {
            Function::AllReduce => "ncclAllReduce",
            Function::Reduce => "ncclReduce",
            Function::Broadcast => "ncclBroadcast",
            Function::AllGather => "ncclAllGather",
            Function::ReduceScatter => "ncclReduceScatter",
            Function::Send => "ncclSend",
            Function::Recv => "ncclRecv",
        }
    }
}

impl<'t> Asked<'t> {
    pub(super) fn all_reduce(at: Rank, from: &'t Tensor, to: &'t Tensor, op: ReduceOp) -> Result<Self> {
        at.check(&[from, to])?;
        has_elements(to, from.numel())?;
        Self::reducing(Function::AllReduce, from, Some(to), op, from)
    }

    pub(super) fn reduce(
        at: Rank,
        from: &'t Tensor,
        to: Option<&'t Tensor>,
        root: usize,
        op: ReduceOp,
    ) -> Result<Self> {
        at.check_rank("root", root)?;
        at.check(&[from])?;
        // Only the root has an output; in place it is the input.
        let to = if at.rank == root { Some(to.unwrap_or(from)) } else { None };
        if let Some(to) = to {
            at.check(&[from, to])?;
            has_elements(to, from.numel())?;
        }
        Ok(Self { other: root, ..Self::reducing(Function::Reduce, from, to, op, from)? })
    }

    pub(super) fn broadcast(at: Rank, from: Option<&'t Tensor>, to: &'t Tensor, root: usize) -> Result<Self> {
        at.check_rank("root", root)?;
        let from = if at.rank == root { Some(from.unwrap_or(to)) } else { None };
        if let Some(from) = from {
            at.check(&[from, to])?;
            has_elements(to, from.numel())?;
        }
        at.check(&[to])?;
        Ok(Self { other: root, ..Self::moving(Function::Broadcast, from, Some(to), to) })
    }

    pub(super) fn all_gather(at: Rank, from: &'t Tensor, to: &'t Tensor) -> Result<Self> {
        at.check(&[from, to])?;
        has_elements(to, from.numel().saturating_mul(at.count()))?;
        Ok(Self::moving(Function::AllGather, Some(from), Some(to), from))
    }

    pub(super) fn reduce_scatter(at: Rank, from: &'t Tensor, to: &'t Tensor, op: ReduceOp) -> Result<Self> {
        at.check(&[from, to])?;
        if to.numel().saturating_mul(at.count()) != from.numel() {
            return Err(NcclError::OutputSize { found: to.numel(), expected: from.numel() / at.count() }.into());
        }
        Self::reducing(Function::ReduceScatter, from, Some(to), op, to)
    }

    pub(super) fn send(at: Rank, from: &'t Tensor, peer: usize) -> Result<Self> {
        at.check_rank("peer", peer)?;
        at.check(&[from])?;
        Ok(Self { other: peer, ..Self::moving(Function::Send, Some(from), None, from) })
    }

    pub(super) fn recv(at: Rank, to: &'t Tensor, peer: usize) -> Result<Self> {
        at.check_rank("peer", peer)?;
        at.check(&[to])?;
        Ok(Self { other: peer, ..Self::moving(Function::Recv, None, Some(to), to) })
    }

    fn reducing(
        function: Function,
        from: &'t Tensor,
        to: Option<&'t Tensor>,
        op: ReduceOp,
        counted: &Tensor,
    ) -> Result<Self> {
        let dtype = from.dtype();
        let refused = || NcclError::Reduction { dtype, op: op.name() };
        let factor = match op {
            ReduceOp::PreMulSum(factor) => Some(scalar_of(dtype, factor.value())?.ok_or_else(refused)?),
            ReduceOp::Sum | ReduceOp::Product | ReduceOp::Min | ReduceOp::Max | ReduceOp::Avg => None,
        };
        let (kind, parts, op) = reduced_as(dtype, op).ok_or_else(refused)?;
        let count = usize::try_from(counted.numel()).unwrap_or(0) * parts;
        Ok(Self { function, from: Some(from), to, count, kind, op, factor, other: 0 })
    }

    /// A call that moves elements, which are bytes to it.
    fn moving(function: Function, from: Option<&'t Tensor>, to: Option<&'t Tensor>, counted: &Tensor) -> Self {
        let (kind, count) = match moved_as(counted.dtype()) {
            Some((kind, parts)) => (kind, usize::try_from(counted.numel()).unwrap_or(0) * parts),
            None => (ncclDataType_t::ncclUint8, counted.nbytes()),
        };
        Self { function, from, to, count, kind, op: ncclRedOp_t::ncclSum, factor: None, other: 0 }
    }
}

impl Rank {
    fn count(self) -> i64 {
        i64::try_from(self.ranks).unwrap_or(i64::MAX)
    }

    fn check_rank(self, name: &'static str, rank: usize) -> Result<()> {
        if rank < self.ranks { Ok(()) } else { Err(NcclError::Rank { name, rank, ranks: self.ranks }.into()) }
    }

    /// Refuses tensors that are elsewhere, have gaps, or are of several dtypes.
    fn check(self, tensors: &[&Tensor]) -> Result<()> {
        for tensor in tensors {
            check_dense(tensor, tensors[0].dtype())?;
            let device = tensor.device().index.unwrap_or(0);
            if device != self.device {
                return Err(NcclError::OtherDevice { tensor: device, communicator: self.device }.into());
            }
        }
        Ok(())
    }
}

/// Refuses a tensor on the host, of another dtype, or with gaps; one whose elements are not what lies in memory too.
pub(super) fn check_dense(tensor: &Tensor, dtype: DType) -> Result<()> {
    if !tensor.is_cuda() {
        return Err(NcclError::NotOnDevice.into());
    }
    if tensor.dtype() != dtype {
        return Err(NcclError::Dtypes { one: dtype, other: tensor.dtype() }.into());
    }
    if !tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg() {
        return Err(NcclError::NotContiguous.into());
    }
    Ok(())
}

fn has_elements(to: &Tensor, expected: i64) -> Result<()> {
    if to.numel() == expected {
        return Ok(());
    }
    Err(NcclError::OutputSize { found: to.numel(), expected }.into())
}

/// The library's type of elements, and how many of them make one; none where it knows none.
fn moved_as(dtype: DType) -> Option<(ncclDataType_t, usize)> {
    Some(match dtype {
        DType::U8 | DType::Bool | DType::F8E4M3FN | DType::F8E5M2 => (ncclDataType_t::ncclUint8, 1),
        DType::I8 => (ncclDataType_t::ncclInt8, 1),
        DType::I32 => (ncclDataType_t::ncclInt32, 1),
        DType::I64 => (ncclDataType_t::ncclInt64, 1),
        DType::F16 => (ncclDataType_t::ncclFloat16, 1),
        DType::BF16 => (ncclDataType_t::ncclBfloat16, 1),
        DType::F32 => (ncclDataType_t::ncclFloat32, 1),
        DType::F64 => (ncclDataType_t::ncclFloat64, 1),
        DType::C32 => (ncclDataType_t::ncclFloat16, 2),
        DType::C64 => (ncclDataType_t::ncclFloat32, 2),
        DType::C128 => (ncclDataType_t::ncclFloat64, 2),
        DType::I16 => return None,
    })
}

/// A factor as the bytes of an element, rounded once; none where NCCL multiplies no elements of the dtype.
fn scalar_of(dtype: DType, factor: f64) -> Result<Option<[u8; 8]>> {
    if !matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64) {
        return Ok(None);
    }
    let mut bytes = [0; 8];
    let given = Tensor::full(&[], factor, dtype, "cpu")?.to_bytes()?;
    bytes[..given.len()].copy_from_slice(&given);
    Ok(Some(bytes))
}

/// How elements are reduced: their type, how many of them make one, and the operation.
fn reduced_as(dtype: DType, op: ReduceOp) -> Option<(ncclDataType_t, usize, ncclRedOp_t)> {
    let (kind, parts) = moved_as(dtype)?;
    let number = match op {
        // Booleans are added as logic has it.
        ReduceOp::Sum if dtype == DType::Bool => ncclRedOp_t::ncclMax,
        ReduceOp::Product if dtype == DType::Bool => ncclRedOp_t::ncclMin,
        ReduceOp::Sum | ReduceOp::PreMulSum(_) => ncclRedOp_t::ncclSum,
        ReduceOp::Product => ncclRedOp_t::ncclProd,
        ReduceOp::Min => ncclRedOp_t::ncclMin,
        ReduceOp::Max => ncclRedOp_t::ncclMax,
        ReduceOp::Avg => ncclRedOp_t::ncclAvg,
    };
    let kind = match dtype {
        DType::F8E4M3FN => ncclDataType_t::ncclFloat8e4m3,
        DType::F8E5M2 => ncclDataType_t::ncclFloat8e5m2,
        _ => kind,
    };
    let is_linear = matches!(op, ReduceOp::Sum | ReduceOp::Avg);
    let is_refused = (dtype.is_complex() && !is_linear) || (dtype == DType::Bool && op == ReduceOp::Avg);
    (!is_refused).then_some((kind, parts, number))
}
