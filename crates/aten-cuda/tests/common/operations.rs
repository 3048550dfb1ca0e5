//! The operations that tests go through: each row of the table of pointwise ones, and the others by name.

use aten_cuda::{CrossEntropy, DType, Operand, Operation, Result, Scalar, Tensor, table};

/// An operation, on a tensor of 2 by 2 elements on a CUDA device.
pub type Try = Box<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>;

/// Rows of pointwise operations that are forms of others: what they are called in the page, or nothing.
fn name_of(row: &'static str) -> Option<&'static str> {
    match row {
        "pow_half" | "pow_two" | "clamp_min" | "clamp_max" | "round_coarser" => None,
        "round_finer" => Some("round_decimals"),
        "lerp_weights" => Some("lerp_tensor"),
        name => Some(name),
    }
}

pub fn pointwise() -> Vec<(&'static str, Try)> {
    let apply = |operation: &'static Operation| -> Try {
        Box::new(move |x: &Tensor| {
            let condition = Tensor::ones(x.sizes(), DType::Bool, x)?;
            let is_condition = |at: usize| at == 0 && operation.takes_condition;
            let operands: Vec<Operand<'_>> =
                (0..operation.arity).map(|at| if is_condition(at) { &condition } else { x }.into()).collect();
            // The bounds of hardtanh are -1 and 1 where none are given.
            let first = if operation.name == "hardtanh" { -1 } else { 1 };
            let numbers: Vec<Scalar> =
                (0..operation.numbers).map(|at| if at == 0 { first } else { 1 }.into()).collect();
            operation.apply(&operands, &numbers)
        })
    };
    let rows = table().filter_map(|operation| name_of(operation.name).map(|name| (name, apply(operation))));
    let others: [(&'static str, Try); 2] =
        [("positive", Box::new(Tensor::positive)), ("pow_of", Box::new(|x| Tensor::pow_of(2, x)))];
    rows.chain(others).collect()
}

/// Tensors of indices.
pub fn places(numbers: &[i64], sizes: &[i64]) -> Result<Tensor> {
    Tensor::from_slice(numbers, sizes)?.cuda(None)
}

pub fn indexing() -> Vec<(&'static str, Try)> {
    let whole = || places(&[0; 4], &[2, 2]);
    // Of several elements for one place any may stay, so that each has its own.
    let apart = || places(&[0, 1, 1, 0], &[2, 2]);
    let row = || places(&[0, 1], &[2]);
    let mask = || Tensor::ones(&[2, 2], DType::Bool, "cuda");
    vec![
        ("gather", Box::new(move |x| x.gather(0, &whole()?))),
        ("take_along_dim", Box::new(move |x| x.take_along_dim(&whole()?, Some(0)))),
        ("scatter", Box::new(move |x| x.scatter(0, &apart()?, x))),
        ("scatter_add", Box::new(move |x| x.scatter_add(0, &whole()?, x))),
        ("index_select", Box::new(move |x| x.index_select(0, &row()?))),
        ("index_add", Box::new(move |x| x.index_add(0, &row()?, x, 1))),
        ("index_copy", Box::new(move |x| x.index_copy(0, &row()?, x))),
        ("index", Box::new(move |x| x.index(&[Some(&row()?)]))),
        ("index_put", Box::new(move |x| x.index_put(&[Some(&row()?)], x, false))),
        ("index_put_accumulate", Box::new(move |x| x.index_put(&[Some(&row()?)], x, true))),
        ("masked_select", Box::new(move |x| x.masked_select(&mask()?))),
        ("masked_scatter", Box::new(move |x| x.masked_scatter(&mask()?, x))),
        ("nonzero", Box::new(Tensor::nonzero)),
        ("embedding", Box::new(move |x| x.embedding(&row()?))),
        ("cat", Box::new(|x| Tensor::cat(&[x, x], 0))),
        ("stack", Box::new(|x| Tensor::stack(&[x, x], 0))),
        ("flip", Box::new(|x| x.flip(&[0]))),
        ("roll", Box::new(|x| x.roll(&[1], &[0]))),
        ("repeat", Box::new(|x| x.repeat(&[2, 2]))),
        ("sort", Box::new(|x| Ok(x.sort(0, false)?.0))),
        ("argsort", Box::new(|x| x.argsort(0, false))),
        ("topk", Box::new(|x| Ok(x.topk(1, 0, true)?.0))),
        ("unique", Box::new(|x| Ok(x.unique()?.0))),
    ]
}

pub fn matrices_and_rows() -> Vec<(&'static str, Try)> {
    let row = |x: &Tensor| x.select(0, 0);
    vec![
        ("mm", Box::new(|x| x.mm(x))),
        ("matmul", Box::new(|x| x.matmul(x))),
        ("addmm", Box::new(|x| x.addmm(x, x, 1, 1))),
        ("bmm", Box::new(|x| x.unsqueeze(0)?.bmm(&x.unsqueeze(0)?))),
        (
            "baddbmm",
            Box::new(|x| {
                let batch = x.unsqueeze(0)?;
                batch.baddbmm(&batch, &batch, 1, 1)
            }),
        ),
        ("mv", Box::new(move |x| x.mv(&row(x)?))),
        ("dot", Box::new(move |x| row(x)?.dot(&row(x)?))),
        ("outer", Box::new(move |x| row(x)?.outer(&row(x)?))),
        ("softmax", Box::new(|x| x.softmax(0, None))),
        ("log_softmax", Box::new(|x| x.log_softmax(0, None))),
        ("layer_norm", Box::new(|x| x.layer_norm(&[2], None, None, 1e-5))),
        ("cross_entropy", Box::new(|x| x.cross_entropy(&places(&[0, 0], &[2])?, &CrossEntropy::default()))),
    ]
}

pub fn making() -> Vec<(&'static str, Try)> {
    vec![
        ("arange", Box::new(|x| Tensor::arange(0, 3, 1, Some(x.dtype()), x))),
        ("linspace", Box::new(|x| Tensor::linspace(0, 3, 4, Some(x.dtype()), x))),
        ("full", Box::new(|x| Tensor::full(&[2], 1, x.dtype(), x))),
        ("eye", Box::new(|x| Tensor::eye(2, 2, x.dtype(), x))),
        ("zeros_like", Box::new(Tensor::zeros_like)),
        ("ones_like", Box::new(Tensor::ones_like)),
        ("fill_", Box::new(|x| x.fill_(1).cloned())),
        ("copy_", Box::new(|x| x.copy_(&Tensor::ones(&[2, 2], DType::F32, x)?).cloned())),
        ("to", Box::new(|x| x.to_dtype(DType::F32))),
        ("clone", Box::new(Tensor::copy)),
        ("tril", Box::new(|x| x.tril(0))),
        ("triu", Box::new(|x| x.triu(0))),
    ]
}

pub fn drawing() -> Vec<(&'static str, Try)> {
    vec![
        ("uniform_", Box::new(|x| x.uniform_(0.0, 1.0, None).cloned())),
        ("normal_", Box::new(|x| x.normal_(0.0, 1.0, None).cloned())),
        ("log_normal_", Box::new(|x| x.log_normal_(1.0, 2.0, None).cloned())),
        ("exponential_", Box::new(|x| x.exponential_(1.0, None).cloned())),
        ("cauchy_", Box::new(|x| x.cauchy_(0.0, 1.0, None).cloned())),
        ("geometric_", Box::new(|x| x.geometric_(0.5, None).cloned())),
        ("bernoulli_", Box::new(|x| x.bernoulli_(0.5, None).cloned())),
        ("bernoulli_of_", Box::new(|x| x.bernoulli_of_(&Tensor::ones(&[2, 2], DType::F32, x)?, None).cloned())),
        ("random_", Box::new(|x| x.random_(None).cloned())),
        ("random_from_to_", Box::new(|x| x.random_from_to_(0, Some(2), None).cloned())),
        ("randperm", Box::new(|x| Tensor::randperm(2, x.dtype(), x, None))),
        ("multinomial", Box::new(|x| x.multinomial(1, false, None))),
        ("native_dropout", Box::new(|x| Ok(x.native_dropout(0.5, Some(true))?.0))),
        ("normal", Box::new(|x| Tensor::normal(x, x, None))),
    ]
}
