//! Comparisons, which give booleans.

use kernel_ir::{Binary, Compare, Graph};

use super::{Call, Operation, Pair, Rule, accept, count, methods, operations};
use crate::base::error::Result;
use crate::tensor::{Operand, Tensor};

/// A row of a comparison by order.
macro_rules! order {
    ($name:literal, $op:ident) => {
        Operation::new($name, "compare_cuda", Rule::Bool, accept::real, |g, _, v| g.compare(Compare::$op, v[0], v[1]))
            .rounded_numbers()
    };
}

operations! {
    /// Where the elements are equal (`torch.eq`).
    eq, eq_, eq_out(other): Operation::new("eq", "compare_eq_ne_cuda", Rule::Bool, accept::real,
        |g, _, v| g.compare(Compare::Eq, v[0], v[1])).complex(|g, _, v| parts(g, Compare::Eq, Binary::And, v)).float8()
        .rounded_numbers();
    /// Where the elements differ (`torch.ne`).
    ne, ne_, ne_out(other): Operation::new("ne", "compare_eq_ne_cuda", Rule::Bool, accept::real,
        |g, _, v| g.compare(Compare::Ne, v[0], v[1])).complex(|g, _, v| parts(g, Compare::Ne, Binary::Or, v)).float8()
        .rounded_numbers();
    /// Where the first is less (`torch.lt`).
    lt, lt_, lt_out(other): order!("lt", Lt);
    /// Where the first is less or equal (`torch.le`).
    le, le_, le_out(other): order!("le", Le);
    /// Where the first is greater (`torch.gt`).
    gt, gt_, gt_out(other): order!("gt", Gt);
    /// Where the first is greater or equal (`torch.ge`).
    ge, ge_, ge_out(other): order!("ge", Ge);
}

/// Both parts compared.
fn parts(graph: &mut Graph, op: Compare, joined: Binary, values: &[Pair]) -> Pair {
    let (a, b) = (values[0], values[1]);
    let (real, imaginary) = (graph.compare(op, a.0, b.0), graph.compare(op, a.1, b.1));
    (graph.binary(joined, real, imaginary), real)
}
