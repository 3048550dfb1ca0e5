//! Where one program's elements lie among another's: linear maps of indices.
//!
//! **Invariant:** a map that exists leads each element of the reader to the element of the maker that lies at the same
//! place in memory, inside the maker's sizes.

use smallvec::SmallVec;

use super::graph::View;
use crate::base::shape::Dims;

/// For each dimension of a maker, how its index follows from the indices of a reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Map {
    pub(super) dims: SmallVec<[Form; 4]>,
}

/// `shift` and the sum of indices of the reader, each times a factor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) terms: SmallVec<[(u8, i64); 2]>,
    pub(super) shift: i64,
}

impl Map {
    /// Each index as it is.
    pub(super) fn identity(sizes: &[i64]) -> Self {
        let form = |(dim, &size): (usize, &i64)| Form { terms: term(dim, 1, size), shift: 0 };
        Self { dims: sizes.iter().enumerate().map(form).collect() }
    }

    /// From the indices of a reader's view, over its domain, to those of the maker that wrote `made` over its own. `read`
    /// is broadcast to `domain` from the right.
    pub(super) fn link(read: &View, domain: &[i64], made: &View, maker_domain: &[i64]) -> Option<Self> {
        if read.dtype != made.dtype || read.signs != made.signs || maker_domain.len() < made.sizes.len() {
            return None;
        }
        let behind = maker_domain.len() - made.sizes.len();
        let mut order: SmallVec<[usize; 4]> = (0..made.sizes.len()).filter(|&dim| made.sizes[dim] > 1).collect();
        order.sort_by_key(|&dim| std::cmp::Reverse(made.strides[dim]));
        let split = |mut stride: i64| -> Option<SmallVec<[(usize, i64); 2]>> {
            let mut parts = SmallVec::new();
            for &dim in &order {
                let factor = stride.checked_div(made.strides[dim])?;
                if factor != 0 {
                    parts.push((dim + behind, factor));
                    stride -= factor * made.strides[dim];
                }
            }
            (stride == 0).then_some(parts)
        };
        let mut dims: SmallVec<[Form; 4]> = SmallVec::from_elem(Form::default(), maker_domain.len());
        if read.offset < made.offset {
            return None;
        }
        for (dim, shift) in split(read.offset - made.offset)? {
            dims[dim].shift = shift;
        }
        let strides = broadcast(read, domain)?;
        for (reader, (&stride, &size)) in strides.iter().zip(domain).enumerate() {
            if size <= 1 || stride == 0 {
                continue;
            }
            for (dim, factor) in split(stride)? {
                dims[dim].terms.push((u8::try_from(reader).ok()?, factor));
            }
        }
        let map = Self { dims };
        map.is_inside(domain, maker_domain).then_some(map)
    }

    fn is_inside(&self, domain: &[i64], sizes: &[i64]) -> bool {
        let most = |form: &Form| {
            form.terms.iter().fold(form.shift, |sum, &(dim, factor)| sum + factor * (domain[usize::from(dim)] - 1))
        };
        self.dims.iter().zip(sizes).all(|(form, &size)| form.shift >= 0 && most(form) < size.max(1))
    }

    /// First this map, then another one: from this one's reader to the other one's maker.
    pub(super) fn then(&self, next: &Self) -> Self {
        let compose = |form: &Form| {
            let mut made = Form { terms: SmallVec::new(), shift: form.shift };
            for &(through, factor) in &form.terms {
                let inner = &self.dims[usize::from(through)];
                made.shift += factor * inner.shift;
                for &(dim, own) in &inner.terms {
                    match made.terms.iter_mut().find(|(known, _)| *known == dim) {
                        Some((_, sum)) => *sum += factor * own,
                        None => made.terms.push((dim, factor * own)),
                    }
                }
            }
            made.terms.sort_unstable();
            made
        };
        Self { dims: next.dims.iter().map(compose).collect() }
    }

    /// The strides over `domain`, and the offset, of a view that is broadcast over the maker's sizes.
    pub(super) fn place(&self, view: &View, maker: &[i64], domain: &[i64]) -> Option<(Dims, i64)> {
        let own = broadcast(view, maker)?;
        let (mut strides, mut offset) = (Dims::from_elem(0, domain.len()), view.offset);
        for (form, &stride) in self.dims.iter().zip(&own) {
            offset += form.shift * stride;
            for &(dim, factor) in &form.terms {
                strides[usize::from(dim)] += factor * stride;
            }
        }
        Some((strides, offset))
    }

    /// Whether each index of a dimension larger than one is that of the same dimension, at those dimensions.
    pub(super) fn is_identity_at(&self, sizes: &[i64], mut at: impl FnMut(usize) -> bool) -> bool {
        let mut pairs = self.dims.iter().zip(sizes).enumerate();
        pairs.all(|(dim, (form, &size))| {
            !at(dim) || size <= 1 || (form.shift == 0 && form.terms.as_slice() == term(dim, 1, size).as_slice())
        })
    }
}

fn term(dim: usize, factor: i64, size: i64) -> SmallVec<[(u8, i64); 2]> {
    if size <= 1 { SmallVec::new() } else { SmallVec::from_elem((u8::try_from(dim).unwrap_or(u8::MAX), factor), 1) }
}

/// The strides of a view over the sizes that it broadcasts to.
pub(super) fn broadcast(view: &View, domain: &[i64]) -> Option<Dims> {
    let new = domain.len().checked_sub(view.sizes.len())?;
    let mut strides = Dims::from_elem(0, domain.len());
    for (dim, (&size, &stride)) in view.sizes.iter().zip(&view.strides).enumerate() {
        if size == domain[new + dim] {
            strides[new + dim] = if size == 1 { 0 } else { stride };
        } else if size != 1 {
            return None;
        }
    }
    Some(strides)
}
