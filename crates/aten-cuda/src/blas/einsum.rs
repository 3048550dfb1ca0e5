//! Sums of products over named dimensions (`torch.einsum`).
//!
//! An equation is read into labels: a letter, or a dimension that an ellipsis stands for. Then pairs of operands are
//! contracted by batched products, the pair with the smallest result first, until one is left.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::autocast::{self, Policies};
use crate::base::error::{Result, invalid};
use crate::base::shape::Dims;
use crate::ops::Dim;
use crate::tensor::Tensor;

/// A named dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// One that an ellipsis stands for, counted from the last one.
    Hidden(usize),
    /// One with a letter. Capitals come first, as in torch.
    Letter(char),
}

type Labels = SmallVec<[Label; 6]>;

/// A tensor with a name for each dimension, all of them different.
struct Named {
    tensor: Tensor,
    labels: Labels,
}

/// The sum of products that an equation names (`torch.einsum`): `"ij,jk->ik"` is the product of two matrices.
///
/// Letters name dimensions; those that do not stand after the arrow are summed over. An ellipsis stands for any further
/// dimensions, which broadcast. Without an arrow the result has the letters that occur once, in the order of the alphabet.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use aten_cuda::{Tensor, blas::einsum};
///
/// let a = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2])?.cuda(None)?;
/// assert_eq!(einsum("ii", &[&a])?.to_vec::<f32>()?, [5.0]);
/// assert_eq!(einsum("ij,kj->ik", &[&a, &a])?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// The equation is wrong or does not fit the operands; there is not enough memory, or the device or a library failed.
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    if let Some((_inside, cast)) = autocast::cast_all(const { Policies::of("einsum") }, operands)? {
        return einsum(equation, &cast.iter().collect::<Vec<_>>());
    }
    if operands.is_empty() {
        return Err(invalid(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its \
             subscripts list",
        ));
    }
    let (left, right) = match equation.find("->") {
        Some(at) => (&equation[..at], Some((&equation[at + 2..], at + 2))),
        None => (equation, None),
    };
    let inputs = read_inputs(left, operands)?;
    let output = match right {
        Some((text, at)) => read_output(text, at, &inputs)?,
        None => implied(&inputs),
    };
    let mut named: Vec<Named> = Vec::new();
    let mut sizes: BTreeMap<Label, i64> = BTreeMap::new();
    for (at, (labels, &tensor)) in inputs.iter().zip(operands).enumerate() {
        named.push(with_diagonals(at, tensor, labels)?);
        check_sizes(at, named.last(), &mut sizes)?;
    }
    // The labels of the result in output order, then the summed labels in theirs.
    let summed_over = sizes.keys().copied().filter(|label| !output.contains(label));
    let ranked: Labels = output.iter().copied().chain(summed_over).collect();
    while named.len() > 1 {
        let (first, second) = cheapest(&named, &output, &sizes);
        // The later one is taken out first, so that the earlier one's place holds.
        let right = named.remove(second);
        let left = named.remove(first);
        let stays = |label: Label| output.contains(&label) || named.iter().any(|other| other.labels.contains(&label));
        let made = contract(left, right, &ranked, stays)?;
        named.insert(first, made);
    }
    named.pop().map_or_else(|| Err(invalid("einsum(): no operand")), |last| finish(last, &output))
}

/// The labels of one operand's text, with `hidden` dimensions for an ellipsis. `start` is where the text begins in the
/// equation.
fn read_labels(text: &str, start: usize, operand: Option<usize>) -> Result<(Labels, Option<usize>)> {
    let whose = operand.map_or("the output".to_owned(), |operand| format!("operand {operand}"));
    let (mut labels, mut ellipsis) = (Labels::new(), None);
    let letters: Vec<char> = text.chars().collect();
    let mut at = 0;
    while let Some(&letter) = letters.get(at) {
        match letter {
            ' ' => {}
            '.' => {
                if ellipsis.is_some() {
                    return Err(invalid(format!(
                        "einsum(): found '.' for {whose} for which an ellipsis was already found"
                    )));
                }
                if letters.get(at..at + 3) != Some(&['.'; 3]) {
                    return Err(invalid(format!("einsum(): found '.' for {whose} that is not part of any ellipsis")));
                }
                ellipsis = Some(labels.len());
                at += 2;
            }
            letter if letter.is_ascii_alphabetic() => labels.push(Label::Letter(letter)),
            _ => {
                let index = start + at;
                return Err(invalid(format!(
                    "einsum(): invalid subscript given at index {index} in the equation string, subscripts must be in \
                     [a-zA-Z]"
                )));
            }
        }
        at += 1;
    }
    Ok((labels, ellipsis))
}

/// Puts the dimensions that an ellipsis stands for into its place.
fn expanded(labels: &Labels, ellipsis: Option<usize>, hidden: usize) -> Labels {
    let Some(at) = ellipsis else { return labels.clone() };
    let middle = (0..hidden).rev().map(Label::Hidden);
    labels[..at].iter().copied().chain(middle).chain(labels[at..].iter().copied()).collect()
}

fn read_inputs(text: &str, operands: &[&Tensor]) -> Result<Vec<Labels>> {
    let parts: Vec<&str> = text.split(',').collect();
    let mut inputs = Vec::with_capacity(parts.len());
    let mut start = 0;
    for (at, part) in parts.iter().enumerate() {
        let (labels, ellipsis) = read_labels(part, start, Some(at))?;
        start += part.chars().count() + 1;
        let Some(&tensor) = operands.get(at) else {
            return Err(invalid("einsum(): fewer operands were provided than specified in the equation"));
        };
        let (named, dim) = (labels.len(), tensor.dim());
        let fits = if ellipsis.is_some() { named <= dim } else { named == dim };
        if !fits {
            let what = if ellipsis.is_some() { "more than" } else { "and no ellipsis was given" };
            return Err(invalid(if ellipsis.is_some() {
                format!(
                    "einsum(): the number of subscripts in the equation ({named}) is {what} the number of dimensions \
                     ({dim}) for operand {at}"
                )
            } else {
                format!(
                    "einsum(): the number of subscripts in the equation ({named}) does not match the number of \
                     dimensions ({dim}) for operand {at} {what}"
                )
            }));
        }
        inputs.push(expanded(&labels, ellipsis, dim - named));
    }
    if parts.len() < operands.len() {
        return Err(invalid("einsum(): more operands were provided than specified in the equation"));
    }
    Ok(inputs)
}

fn read_output(text: &str, start: usize, inputs: &[Labels]) -> Result<Labels> {
    let (labels, ellipsis) = read_labels(text, start, None)?;
    let hidden = hidden_count(inputs);
    for (at, label) in labels.iter().enumerate() {
        let Label::Letter(letter) = *label else { continue };
        if labels[..at].contains(label) {
            return Err(invalid(format!("einsum(): output subscript {letter} appears more than once in the output")));
        }
        if !inputs.iter().any(|input| input.contains(label)) {
            return Err(invalid(format!(
                "einsum(): output subscript {letter} does not appear in the equation for any input operand"
            )));
        }
    }
    Ok(expanded(&labels, ellipsis, hidden))
}

/// The most dimensions that an ellipsis stands for.
fn hidden_count(inputs: &[Labels]) -> usize {
    let hidden = |labels: &Labels| labels.iter().filter(|label| matches!(label, Label::Hidden(_))).count();
    inputs.iter().map(hidden).max().unwrap_or(0)
}

/// The result's dimensions where the equation does not say: hidden ones, then letters that occur once.
fn implied(inputs: &[Labels]) -> Labels {
    let mut counts: BTreeMap<Label, usize> = BTreeMap::new();
    inputs.iter().flatten().for_each(|&label| *counts.entry(label).or_default() += 1);
    let hidden = (0..hidden_count(inputs)).rev().map(Label::Hidden);
    let once = counts.into_iter().filter(|&(label, count)| matches!(label, Label::Letter(_)) && count == 1);
    hidden.chain(once.map(|(label, _)| label)).collect()
}

/// The operand with one dimension for each label: those that have one name become their diagonal.
fn with_diagonals(operand: usize, tensor: &Tensor, labels: &Labels) -> Result<Named> {
    let (mut tensor, mut kept) = (tensor.clone(), Labels::new());
    let mut dim = 0;
    for &label in labels {
        let Some(before) = kept.iter().position(|&known| known == label) else {
            kept.push(label);
            dim += 1;
            continue;
        };
        let (first, second) = (tensor.sizes()[before], tensor.sizes()[dim]);
        if first != second {
            let Label::Letter(letter) = label else { return Err(invalid("einsum(): an ellipsis stands twice")) };
            return Err(invalid(format!(
                "einsum(): subscript {letter} is repeated for operand {operand} but the sizes don't match, {second} != \
                 {first}"
            )));
        }
        let (here, there) = (wrapped(before), wrapped(dim));
        // The diagonal's dimension comes last and goes back to where the first one was.
        tensor = tensor.diagonal(0, here, there)?;
        let last = tensor.dim() - 1;
        let mut order: SmallVec<[i64; 6]> = (0..last).map(wrapped).collect();
        order.insert(before, wrapped(last));
        tensor = tensor.permute(&order)?;
    }
    Ok(Named { tensor, labels: kept })
}

fn wrapped(dim: usize) -> i64 {
    i64::try_from(dim).unwrap_or(i64::MAX)
}

/// Refuses dimensions of one name that do not broadcast, and notes their sizes.
fn check_sizes(operand: usize, named: Option<&Named>, sizes: &mut BTreeMap<Label, i64>) -> Result<()> {
    let Some(Named { tensor, labels }) = named else { return Ok(()) };
    for (&label, &size) in labels.iter().zip(tensor.sizes()) {
        let known = sizes.entry(label).or_insert(size);
        if *known == 1 {
            *known = size;
        } else if size != 1 && size != *known {
            let name = match label {
                Label::Letter(letter) => letter.to_string(),
                Label::Hidden(_) => "...".to_owned(),
            };
            return Err(invalid(format!(
                "einsum(): subscript {name} has size {size} for operand {operand} which does not broadcast with \
                 previously seen size {known}"
            )));
        }
    }
    Ok(())
}

/// The pair whose contraction has the fewest elements, and of those the one with the fewest multiplications.
fn cheapest(named: &[Named], output: &Labels, sizes: &BTreeMap<Label, i64>) -> (usize, usize) {
    let size = |label: &Label| sizes.get(label).copied().unwrap_or(1).unsigned_abs();
    let cost = |first: usize, second: usize| {
        let mut all: Labels = named[first].labels.iter().chain(&named[second].labels).copied().collect();
        all.sort_unstable();
        all.dedup();
        let is_other = |label: &Label| {
            let others = named.iter().enumerate().filter(|(at, _)| *at != first && *at != second);
            output.contains(label) || others.into_iter().any(|(_, other)| other.labels.contains(label))
        };
        let kept = all.iter().filter(|label| is_other(label)).map(size).fold(1_u64, u64::saturating_mul);
        (kept, all.iter().map(size).fold(1_u64, u64::saturating_mul))
    };
    let pairs = (0..named.len()).flat_map(|first| (first + 1..named.len()).map(move |second| (first, second)));
    pairs.min_by_key(|&(first, second)| cost(first, second)).unwrap_or((0, 1))
}

/// Returns the product of two operands, summed over the labels for which `stays` is false. `ranked` lists all labels of
/// the equation, output labels first: the order in which torch lays out a product.
fn contract(left: Named, right: Named, ranked: &Labels, stays: impl Fn(Label) -> bool) -> Result<Named> {
    let of_left = |label: Label| left.size(label) != 1;
    let of_right = |label: Label| right.size(label) != 1;
    let gone = |label: Label| !stays(label);
    let inner = chosen(ranked, |label| gone(label) && of_left(label) && of_right(label));
    let (left_alone, right_alone) = (
        chosen(ranked, |label| gone(label) && of_left(label) && !of_right(label)),
        chosen(ranked, |label| gone(label) && !of_left(label) && of_right(label)),
    );
    let kept = chosen(ranked, |label| stays(label) && (left.labels.contains(&label) || right.labels.contains(&label)));
    let batch = chosen(&kept, |label| of_left(label) && of_right(label));
    let rows = chosen(&kept, |label| of_left(label) && !of_right(label));
    let columns = chosen(&kept, |label| !of_left(label));
    // Every label that is not summed here counts as a column of size one, even a label that neither operand has any
    // more.
    let counted = chosen(ranked, |label| !inner.contains(&label) && !of_left(label));
    let turns = comes_first(ranked, &counted, &rows);
    let left = summed(left, |label| !left_alone.contains(&label))?;
    let right = summed(right, |label| !right_alone.contains(&label))?;
    if inner.is_empty() {
        let product = aligned(&left, &kept)?.mul(&aligned(&right, &kept)?)?;
        return Ok(Named { tensor: product, labels: kept });
    }
    let ((first, before), (second, after)) =
        if turns { ((&right, &columns), (&left, &rows)) } else { ((&left, &rows), (&right, &columns)) };
    let a = arranged(first, &[&batch, before, &inner])?;
    let b = arranged(second, &[&batch, &inner, after])?;
    let labels: Labels = [&batch, before, after].into_iter().flatten().copied().collect();
    let size = |&label: &Label| if left.size(label) == 1 { right.size(label) } else { left.size(label) };
    let sizes: Dims = labels.iter().map(size).collect();
    Ok(Named { tensor: a.bmm(&b)?.reshape(&sizes)?, labels })
}

fn chosen(labels: &Labels, is_chosen: impl Fn(Label) -> bool) -> Labels {
    labels.iter().copied().filter(|&label| is_chosen(label)).collect()
}

/// Whether all labels of `some` come before all of `others` in the order of the equation, and neither list is empty.
fn comes_first(ranked: &Labels, some: &Labels, others: &Labels) -> bool {
    let rank = |label: Option<&Label>| ranked.iter().position(|known| Some(known) == label);
    match (rank(some.last()), rank(others.first())) {
        (Some(last), Some(first)) => last < first,
        _ => false,
    }
}

impl Named {
    /// Returns the size of a label's dimension; 1 if the tensor lacks the label.
    fn size(&self, label: Label) -> i64 {
        self.labels.iter().position(|&known| known == label).map_or(1, |at| self.tensor.sizes()[at])
    }
}

/// Sums over the labels that no later step needs.
fn summed(named: Named, stays: impl Fn(Label) -> bool) -> Result<Named> {
    let gone: Vec<i64> =
        named.labels.iter().enumerate().filter(|(_, label)| !stays(**label)).map(|(at, _)| wrapped(at)).collect();
    if gone.is_empty() {
        return Ok(named);
    }
    let tensor = named.tensor.sum(Dim::from(gone.as_slice()), false, None)?;
    let labels = named.labels.into_iter().filter(|&label| stays(label)).collect();
    Ok(Named { tensor, labels })
}

/// Returns the tensor with exactly these labels, in order: missing dimensions are added with size one, others of size
/// one are dropped.
fn aligned(named: &Named, labels: &Labels) -> Result<Tensor> {
    let (mut tensor, mut own) = (named.tensor.clone(), named.labels.clone());
    for at in (0..own.len()).rev().filter(|&at| !labels.contains(&named.labels[at])) {
        tensor = tensor.select(wrapped(at), 0)?;
        own.remove(at);
    }
    for &label in labels.iter().filter(|label| !named.labels.contains(label)) {
        tensor = tensor.unsqueeze(-1)?;
        own.push(label);
    }
    let place = |label: &Label| own.iter().position(|known| known == label).map_or(0, wrapped);
    tensor.permute(&labels.iter().map(place).collect::<SmallVec<[i64; 6]>>())
}

/// With each group of labels as one dimension.
fn arranged(named: &Named, groups: &[&Labels; 3]) -> Result<Tensor> {
    let all: Labels = groups.iter().flat_map(|group| group.iter().copied()).collect();
    let turned = aligned(named, &all)?;
    let mut sizes = turned.sizes().iter();
    let flat = groups.map(|group| sizes.by_ref().take(group.len()).product::<i64>());
    turned.reshape(&flat)
}

/// The last operand, summed and in the order of the output.
fn finish(named: Named, output: &Labels) -> Result<Tensor> {
    let Named { tensor, labels } = summed(named, |label| output.contains(&label))?;
    let mut tensor = tensor;
    let mut order: SmallVec<[i64; 6]> = SmallVec::new();
    let mut dims = labels.len();
    for label in output {
        match labels.iter().position(|known| known == label) {
            Some(at) => order.push(wrapped(at)),
            // A dimension that an ellipsis stands for in no operand that is left has size 1.
            None => {
                tensor = tensor.unsqueeze(wrapped(dims))?;
                order.push(wrapped(dims));
                dims += 1;
            }
        }
    }
    tensor.permute(&order)
}
