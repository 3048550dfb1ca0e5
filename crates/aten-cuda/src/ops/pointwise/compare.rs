//! Comparisons, which give booleans.

use kernel_ir::Compare;

use super::{Operation, Rule, accept, binary_operations, elementwise, elementwise_into};
use crate::base::error::Result;
use crate::tensor::{Operand, Tensor};

binary_operations! {
    /// Where the elements are equal (`torch.eq`).
    eq, eq_, eq_out: "eq", "compare_eq_ne_cuda", Bool, real, |g, _, v| g.compare(Compare::Eq, v[0], v[1]);
    /// Where the elements differ (`torch.ne`).
    ne, ne_, ne_out: "ne", "compare_eq_ne_cuda", Bool, real, |g, _, v| g.compare(Compare::Ne, v[0], v[1]);
    /// Where the first is less (`torch.lt`).
    lt, lt_, lt_out: "lt", "compare_cuda", Bool, real, |g, _, v| g.compare(Compare::Lt, v[0], v[1]);
    /// Where the first is less or equal (`torch.le`).
    le, le_, le_out: "le", "compare_cuda", Bool, real, |g, _, v| g.compare(Compare::Le, v[0], v[1]);
    /// Where the first is greater (`torch.gt`).
    gt, gt_, gt_out: "gt", "compare_cuda", Bool, real, |g, _, v| g.compare(Compare::Gt, v[0], v[1]);
    /// Where the first is greater or equal (`torch.ge`).
    ge, ge_, ge_out: "ge", "compare_cuda", Bool, real, |g, _, v| g.compare(Compare::Ge, v[0], v[1]);
}
