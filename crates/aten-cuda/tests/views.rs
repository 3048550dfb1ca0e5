//! Views with arguments near the ends of `i64`, against a model in numbers of 128 bits: a view is refused or is exactly
//! that of the model, stays inside the storage, and a write through it changes no other element.

use aten_cuda::{DType, Result, Tensor};
use proptest::prelude::*;

/// Largest number of elements, stride and offset of a view.
const LARGEST: i128 = (i64::MAX / 16) as i128;
/// Elements of the storage.
const STORED: i64 = 96;
/// Lists of more views than this are not asked for.
const MANY: i128 = 1 << 10;

/// The layout of a view in numbers that do not overflow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    sizes: Vec<i128>,
    strides: Vec<i128>,
    offset: i128,
    /// Elements of the storage.
    stored: i128,
}

impl Model {
    fn of(tensor: &Tensor) -> Self {
        let wide = |numbers: &[i64]| numbers.iter().copied().map(i128::from).collect();
        let stored = tensor.storage().nbytes() / tensor.element_size();
        Self {
            sizes: wide(tensor.sizes()),
            strides: wide(tensor.strides()),
            offset: tensor.storage_offset().into(),
            stored: i128::try_from(stored).expect("it fits"),
        }
    }

    /// Returns the number of elements, of which no dimension counts as less than one; `None` for more than 128 bits.
    fn count(&self) -> Option<i128> {
        self.sizes.iter().try_fold(1_i128, |count, size| count.checked_mul((*size).max(1)))
    }

    fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// Returns the end of the last element; `None` for more than 128 bits.
    fn end(&self) -> Option<i128> {
        if self.is_empty() {
            return Some(0);
        }
        let steps = self.sizes.iter().zip(&self.strides);
        let mut last = steps.map(|(size, stride)| (size - 1).checked_mul(*stride));
        last.try_fold(self.offset, |sum, step| sum.checked_add(step?)).map(|last| last + 1)
    }

    /// Whether such a view may exist.
    fn is_legal(&self) -> bool {
        self.sizes.iter().all(|size| *size >= 0)
            && self.strides.iter().chain([&self.offset]).all(|number| (0..=LARGEST).contains(number))
            && self.count().is_some_and(|count| count <= LARGEST)
            && self.end().is_some_and(|end| end <= self.stored)
    }

    /// The dimension that a number names among `rank`.
    fn dim(dim: i64, rank: usize) -> Option<usize> {
        let count = i128::try_from(rank.max(1)).expect("it fits");
        let place = if dim < 0 { i128::from(dim) + count } else { i128::from(dim) };
        usize::try_from(place).ok().filter(|at| *at < rank.max(1))
    }

    fn slice(&self, dim: i64, start: Option<i64>, end: Option<i64>, step: i64) -> Option<Self> {
        let at = Self::dim(dim, self.sizes.len()).filter(|_| !self.sizes.is_empty() && step > 0)?;
        let size = self.sizes[at];
        let place = |place: i64| if place < 0 { i128::from(place) + size } else { place.into() }.clamp(0, size);
        let start = place(start.unwrap_or(0));
        let length = (place(end.unwrap_or(i64::MAX)) - start).max(0);
        let mut made = self.clone();
        made.sizes[at] = (length + i128::from(step) - 1) / i128::from(step);
        made.strides[at] *= i128::from(step);
        made.offset += start * self.strides[at];
        Some(made)
    }

    fn narrow(&self, dim: i64, start: i128, length: i128) -> Option<Self> {
        let at = Self::dim(dim, self.sizes.len()).filter(|_| !self.sizes.is_empty())?;
        let size = self.sizes[at];
        let first = if start < 0 { start + size } else { start };
        if !(0..=size).contains(&first) || !(0..=size - first).contains(&length) {
            return None;
        }
        let mut made = self.clone();
        made.sizes[at] = length;
        made.offset += first * self.strides[at];
        Some(made)
    }

    fn select(&self, dim: i64, index: i64) -> Option<Self> {
        let at = Self::dim(dim, self.sizes.len()).filter(|_| !self.sizes.is_empty())?;
        let place = if index < 0 { i128::from(index) + self.sizes[at] } else { index.into() };
        if !(0..self.sizes[at]).contains(&place) {
            return None;
        }
        let mut made = self.clone();
        made.sizes.remove(at);
        made.offset += place * made.strides.remove(at);
        Some(made)
    }

    fn diagonal(&self, offset: i64, first: i64, second: i64) -> Option<Self> {
        let rank = self.sizes.len();
        let (first, second) = (Self::dim(first, rank)?, Self::dim(second, rank)?);
        if first == second {
            return None;
        }
        let (offset, mut made) = (i128::from(offset), self.clone());
        let length = (self.sizes[first] + offset.min(0)).min(self.sizes[second] - offset.max(0)).max(0);
        if length > 0 {
            made.offset += offset.max(0) * self.strides[second] - offset.min(0) * self.strides[first];
        }
        for at in [first.max(second), first.min(second)] {
            made.sizes.remove(at);
            made.strides.remove(at);
        }
        made.sizes.push(length);
        made.strides.push(self.strides[first] + self.strides[second]);
        Some(made)
    }

    fn unsqueeze(&self, dim: i64) -> Option<Self> {
        let (rank, mut made) = (self.sizes.len(), self.clone());
        let at = Self::dim(dim, rank + 1)?;
        made.strides.insert(at, if at < rank { self.sizes[at] * self.strides[at] } else { 1 });
        made.sizes.insert(at, 1);
        Some(made)
    }

    fn expand(&self, sizes: &[i64]) -> Option<Self> {
        let new = sizes.len().checked_sub(self.sizes.len())?;
        let mut made = Self { sizes: Vec::new(), strides: Vec::new(), ..*self };
        for (dim, &wanted) in sizes.iter().enumerate().rev() {
            let own = dim.checked_sub(new).map(|at| (self.sizes[at], self.strides[at]));
            let (size, stride) = match (own, i128::from(wanted)) {
                (Some((size, stride)), -1) => (size, stride),
                (Some((size, stride)), wanted) if size == wanted => (size, stride),
                // torch gives a new dimension of one element the stride of a contiguous one.
                (None, 1) if !self.sizes.is_empty() => (1, made.sizes[0] * made.strides[0]),
                (Some((1, _)) | None, wanted) if wanted >= 0 => (wanted, 0),
                _ => return None,
            };
            made.sizes.insert(0, size);
            made.strides.insert(0, stride);
        }
        Some(made)
    }

    /// Splits into parts of a size, the last one of what is left; `None` for lists that are too long too.
    fn split(&self, size: i64, dim: i64) -> Option<Vec<Self>> {
        let at = Self::dim(dim, self.sizes.len()).filter(|_| !self.sizes.is_empty() && size >= 0)?;
        let (length, size) = (self.sizes[at], i128::from(size));
        if size == 0 && length != 0 {
            return None;
        }
        let count = if size == 0 { 1 } else { ((length + size - 1) / size).max(1) };
        (0..count.min(MANY)).map(|part| self.narrow(dim, part * size, size.min(length - part * size))).collect()
    }

    fn split_with_sizes(&self, lengths: &[i64], dim: i64) -> Option<Vec<Self>> {
        let at = Self::dim(dim, self.sizes.len()).filter(|_| !self.sizes.is_empty())?;
        let sum: i128 = lengths.iter().copied().map(i128::from).sum();
        if sum != self.sizes[at] || lengths.iter().any(|length| *length < 0) {
            return None;
        }
        let mut start = 0;
        let part = |length: &i64| {
            let made = self.narrow(dim, start, (*length).into());
            start += i128::from(*length);
            made
        };
        lengths.iter().map(part).collect()
    }

    fn chunk(&self, chunks: i64, dim: i64) -> Option<Vec<Self>> {
        let at = Self::dim(dim, self.sizes.len()).filter(|_| !self.sizes.is_empty() && chunks > 0)?;
        let size = (self.sizes[at] + i128::from(chunks) - 1) / i128::from(chunks);
        if size > 0 {
            return self.split(i64::try_from(size).ok()?, dim);
        }
        (0..i128::from(chunks).min(MANY)).map(|_| self.narrow(dim, 0, 0)).collect()
    }
}

/// A view function with its arguments.
#[derive(Clone, Debug)]
enum View {
    AsStrided(Vec<(i64, i64)>, Option<i64>),
    Slice(i64, Option<i64>, Option<i64>, i64),
    Narrow(i64, i64, i64),
    Select(i64, i64),
    Diagonal(i64, i64, i64),
    Unsqueeze(i64),
    Squeeze(Option<i64>),
    Expand(Vec<i64>),
    Transpose(i64, i64),
    Permute(Vec<i64>),
    Reshaped(Vec<i64>),
    Split(i64, i64),
    SplitWithSizes(Vec<i64>, i64),
    Chunk(i64, i64),
    AsReal,
    AsComplex,
}

/// Numbers near zero, near the limits and near the ends of `i64`.
fn number() -> impl Strategy<Value = i64> {
    let near = |center: i64| (-3..=3_i64).prop_map(move |step| center.saturating_add(step));
    prop_oneof![
        12 => 0..10_i64,
        3 => near(0),
        1 => near(STORED),
        1 => near(i64::MAX / 16),
        1 => near(i64::MAX / 2),
        1 => near(i64::MAX),
        1 => near(i64::MIN),
        1 => (0..63_u32).prop_map(|bits| 1_i64 << bits),
        1 => any::<i64>(),
    ]
}

fn dim() -> impl Strategy<Value = i64> {
    prop_oneof![20 => -3..4_i64, 1 => number()]
}

fn list() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(number(), 0..4)
}

fn view() -> impl Strategy<Value = View> {
    let maybe = || prop::option::of(number());
    prop_oneof![
        (prop::collection::vec((number(), number()), 0..4), maybe()).prop_map(|(dims, at)| View::AsStrided(dims, at)),
        (dim(), maybe(), maybe(), number()).prop_map(|(dim, start, end, step)| View::Slice(dim, start, end, step)),
        (dim(), number(), number()).prop_map(|(dim, start, length)| View::Narrow(dim, start, length)),
        (dim(), number()).prop_map(|(dim, index)| View::Select(dim, index)),
        (number(), dim(), dim()).prop_map(|(offset, first, second)| View::Diagonal(offset, first, second)),
        dim().prop_map(View::Unsqueeze),
        prop::option::of(dim()).prop_map(View::Squeeze),
        list().prop_map(View::Expand),
        (dim(), dim()).prop_map(|(first, second)| View::Transpose(first, second)),
        prop::collection::vec(dim(), 0..4).prop_map(View::Permute),
        list().prop_map(View::Reshaped),
        (number(), dim()).prop_map(|(size, dim)| View::Split(size, dim)),
        (list(), dim()).prop_map(|(lengths, dim)| View::SplitWithSizes(lengths, dim)),
        (number(), dim()).prop_map(|(chunks, dim)| View::Chunk(chunks, dim)),
        Just(View::AsReal),
        Just(View::AsComplex),
    ]
}

/// What the model says of a call.
enum Expected {
    /// Exactly this layout, or a refusal where it may not exist.
    One(Option<Model>),
    /// The first of these views, or a refusal where one may not exist.
    List(Option<Vec<Model>>),
    /// A refusal, or a view that may exist.
    Legal,
}

fn expected(model: &Model, view: &View) -> Expected {
    match view {
        View::AsStrided(dims, offset) => Expected::One(Some(Model {
            sizes: dims.iter().map(|(size, _)| (*size).into()).collect(),
            strides: dims.iter().map(|(_, stride)| (*stride).into()).collect(),
            offset: offset.map_or(model.offset, i128::from),
            stored: model.stored,
        })),
        View::Slice(dim, start, end, step) => Expected::One(model.slice(*dim, *start, *end, *step)),
        View::Narrow(dim, start, length) => Expected::One(model.narrow(*dim, (*start).into(), (*length).into())),
        View::Select(dim, index) => Expected::One(model.select(*dim, *index)),
        View::Diagonal(offset, first, second) => Expected::One(model.diagonal(*offset, *first, *second)),
        View::Unsqueeze(dim) => Expected::One(model.unsqueeze(*dim)),
        View::Expand(sizes) => Expected::One(model.expand(sizes)),
        View::Split(size, dim) => Expected::List(model.split(*size, *dim)),
        View::SplitWithSizes(lengths, dim) => Expected::List(model.split_with_sizes(lengths, *dim)),
        View::Chunk(chunks, dim) => Expected::List(model.chunk(*chunks, *dim)),
        View::Squeeze(_)
        | View::Transpose(..)
        | View::Permute(_)
        | View::Reshaped(_)
        | View::AsReal
        | View::AsComplex => Expected::Legal,
    }
}

fn called(tensor: &Tensor, view: &View) -> Result<Vec<Tensor>> {
    let one = match view {
        View::AsStrided(dims, offset) => {
            let (sizes, strides): (Vec<i64>, Vec<i64>) = dims.iter().copied().unzip();
            tensor.as_strided(&sizes, &strides, *offset)
        }
        View::Slice(dim, start, end, step) => tensor.slice(*dim, *start, *end, *step),
        View::Narrow(dim, start, length) => tensor.narrow(*dim, *start, *length),
        View::Select(dim, index) => tensor.select(*dim, *index),
        View::Diagonal(offset, first, second) => tensor.diagonal(*offset, *first, *second),
        View::Unsqueeze(dim) => tensor.unsqueeze(*dim),
        View::Squeeze(dim) => tensor.squeeze(*dim),
        View::Expand(sizes) => tensor.expand(sizes),
        View::Transpose(first, second) => tensor.transpose(*first, *second),
        View::Permute(dims) => tensor.permute(dims),
        View::Reshaped(sizes) => tensor.view(sizes),
        View::Split(size, dim) => return tensor.split(*size, *dim),
        View::SplitWithSizes(lengths, dim) => return tensor.split_with_sizes(lengths, *dim),
        View::Chunk(chunks, dim) => return tensor.chunk(*chunks, *dim),
        View::AsReal => tensor.view_as_real(),
        View::AsComplex => tensor.view_as_complex(),
    };
    one.map(|made| vec![made])
}

/// Whether a call makes a list that is too long for a test, and short enough to be made.
fn is_long(model: &Model, view: &View) -> bool {
    let (View::Split(number, dim) | View::Chunk(number, dim)) = *view else { return false };
    let Some(at) = Model::dim(dim, model.sizes.len()) else { return false };
    let length = model.sizes.get(at).copied().unwrap_or(0);
    let pieces = |size: i128| if size > 0 { (length + size - 1) / size } else { 0 };
    let number = i128::from(number);
    let count = if matches!(view, View::Split(..)) {
        pieces(number)
    } else if length == 0 {
        number
    } else if number > 0 {
        pieces(pieces(number))
    } else {
        0
    };
    (MANY..=1 << 24).contains(&count)
}

/// Checks the results of a call against the model. Returns one of them to go on with.
fn checked(tensor: &Tensor, view: &View) -> std::result::Result<Option<Tensor>, TestCaseError> {
    let model = Model::of(tensor);
    if is_long(&model, view) {
        return Ok(None);
    }
    let made = called(tensor, view);
    for own in made.iter().flatten() {
        let own_model = Model::of(own);
        prop_assert!(own_model.is_legal(), "{view:?} of {model:?} made {own_model:?}");
        let numel: i128 = own_model.sizes.iter().product();
        prop_assert_eq!(i128::from(own.numel()), numel);
    }
    let is_legal = |models: &[Model]| models.iter().all(Model::is_legal);
    match (expected(&model, view), &made) {
        (Expected::One(Some(wanted)), Ok(made)) => prop_assert_eq!(&Model::of(&made[0]), &wanted),
        (Expected::One(Some(wanted)), Err(error)) => {
            prop_assert!(!wanted.is_legal(), "{view:?} of {model:?} is refused: {error}");
        }
        (Expected::List(Some(wanted)), Ok(made)) => {
            prop_assert!(made.iter().map(Model::of).zip(&wanted).all(|(own, wanted)| own == *wanted));
            prop_assert!(made.len() >= wanted.len());
        }
        (Expected::List(Some(wanted)), Err(error)) => {
            let is_endless = i128::try_from(wanted.len()).expect("it fits") >= MANY;
            prop_assert!(is_endless || !is_legal(&wanted), "{view:?} of {model:?} is refused: {error}");
        }
        (Expected::One(None) | Expected::List(None), made) => {
            prop_assert!(made.is_err(), "{view:?} of {model:?} is not refused");
        }
        (Expected::Legal, _) => {}
    }
    Ok(made.ok().and_then(|made| made.into_iter().last()))
}

/// The places in the storage of all elements, in units of `width` elements of the storage.
fn places(tensor: &Tensor, width: i64) -> Vec<i64> {
    if tensor.numel() == 0 {
        return Vec::new();
    }
    let mut places = vec![tensor.storage_offset()];
    for (&size, &stride) in tensor.sizes().iter().zip(tensor.strides()) {
        places = places.iter().flat_map(|place| (0..size).map(move |step| place + step * stride)).collect();
    }
    places.iter().flat_map(|place| (0..width).map(move |part| place * width + part)).collect()
}

/// Writes through a view and checks that its elements alone have changed.
fn write_through(whole: &Tensor, view: &Tensor) -> std::result::Result<(), TestCaseError> {
    if i128::from(view.numel()) > MANY || view.fill_(123).is_err() {
        return Ok(());
    }
    let width = i64::try_from(view.element_size() / whole.element_size()).expect("it fits");
    let mut wanted = vec![0.0_f32; usize::try_from(STORED).expect("it fits")];
    for (at, place) in places(view, width).into_iter().enumerate() {
        // Imaginary parts are zero.
        let is_real = width == 1 || at % 2 == 0;
        wanted[usize::try_from(place).expect("it is inside")] = if is_real { 123.0 } else { 0.0 };
    }
    let found = whole.to_vec::<f32>().map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(found, wanted);
    Ok(())
}

fn chain(shape: &[i64], device: &str, views: &[View]) -> std::result::Result<(), TestCaseError> {
    let fail = |error: aten_cuda::Error| TestCaseError::fail(error.to_string());
    let whole = Tensor::zeros(&[STORED], DType::F32, device).map_err(fail)?;
    let mut tensor = whole.view(shape).map_err(fail)?;
    for view in views {
        if let Some(next) = checked(&tensor, view)? {
            tensor = next;
        }
    }
    write_through(&whole, &tensor)
}

const SHAPES: [&[i64]; 6] = [&[STORED], &[8, 12], &[4, 1, 24], &[2, 3, 4, 4], &[48, 2], &[1, 96, 1]];

fn shape() -> impl Strategy<Value = &'static [i64]> {
    prop::sample::select(SHAPES.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6_000))]

    #[test]
    fn views_on_the_host_are_those_of_the_model(shape in shape(), views in prop::collection::vec(view(), 1..6)) {
        chain(shape, "cpu", &views)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn views_on_the_device_are_those_of_the_model(shape in shape(), views in prop::collection::vec(view(), 1..6)) {
        let _simulated = testkit::simulated_runtime();
        chain(shape, "cuda", &views)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Operations that make tensors refuse sizes that overflow, and make those that the model has.
    #[test]
    fn sizes_of_new_tensors_are_those_of_the_model(
        repeats in list(),
        sizes in list(),
        strides in list(),
        parts in prop::collection::vec((0..3_i64, number()), 1..4),
    ) {
        let small = |sizes: &[i128]| sizes.iter().try_fold(1_i128, |count, size| count.checked_mul((*size).max(1)))
            .is_some_and(|count| count <= MANY);
        let huge = |sizes: &[i128]| sizes.iter().any(|size| *size < 0)
            || sizes.iter().try_fold(1_i128, |count, size| count.checked_mul((*size).max(1)))
                .is_none_or(|count| count > LARGEST);
        let check = |made: &dyn Fn() -> Result<Tensor>, wanted: Vec<i128>| {
            // What lies between is a question of memory.
            if small(&wanted) || huge(&wanted) {
                let made = made();
                prop_assert_eq!(made.is_ok(), !huge(&wanted), "{:?} {:?}", made, wanted);
                if let Ok(made) = made {
                    prop_assert_eq!(Model::of(&made).sizes, wanted);
                }
            }
            Ok(())
        };
        let wide = |numbers: &[i64]| numbers.iter().copied().map(i128::from).collect::<Vec<i128>>();
        let base = Tensor::from_slice(&[1.0_f32, 2.0], &[2]).expect("it is made");
        if let Some((last, first)) = repeats.split_last() {
            let wanted = wide(first).into_iter().chain([2 * i128::from(*last)]).collect();
            check(&|| base.repeat(&repeats), wanted)?;
        }
        check(&|| Tensor::zeros(&sizes, DType::U8, "cpu"), wide(&sizes))?;
        if sizes.len() == strides.len() {
            let model = Model { sizes: wide(&sizes), strides: wide(&strides), offset: 0, stored: MANY };
            let beyond = Model { stored: i128::MAX, ..model.clone() };
            if model.is_legal() || !beyond.is_legal() {
                let made = Tensor::empty_strided(&sizes, &strides, DType::U8, "cpu");
                prop_assert_eq!(made.is_ok(), model.is_legal(), "{:?}", made);
            }
        }
        // Tensors without elements, of any length along the other dimension.
        let views: Vec<Tensor> = parts.iter()
            .filter_map(|(_, length)| base.narrow(0, 0, 0).and_then(|none| none.unsqueeze(0)?.expand(&[*length, 0])).ok())
            .collect();
        if !views.is_empty() {
            let length = views.iter().map(|view| i128::from(view.sizes()[0])).sum();
            check(&|| Tensor::cat(&views.iter().collect::<Vec<_>>(), 0), vec![length, 0])?;
        }
    }
}

/// A step near the end of `i64` made sizes of -1, and a fill of the view wrote into other tensors.
#[test]
fn a_step_near_the_end_of_the_numbers_reaches_no_neighbour() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for device in ["cpu", "cuda"] {
        let neighbours: Vec<Tensor> =
            (0..4).map(|_| Tensor::zeros(&[64], DType::F32, device)).collect::<Result<_>>()?;
        let whole = &neighbours[1];
        let view = whole.as_strided(&[60, 2, 2], &[1, 1, 1], Some(0))?;
        let refused = |dim, step| view.slice(dim, None, None, step).expect_err("the stride overflows").to_string();
        assert_eq!(
            refused(1, i64::MAX),
            "Storage size calculation overflowed with sizes=[60, 1, 2] and strides=[1, 9223372036854775807, 1]"
        );
        assert!(refused(2, i64::MAX).starts_with("Storage size calculation overflowed with sizes=[60, 2, 1]"));
        // Steps that are large, and not too large, take the first place.
        let first = view.slice(1, None, None, i64::MAX / 16)?.slice(2, None, None, 1 << 50)?;
        assert_eq!(first.sizes(), [60, 1, 1]);
        first.fill_(123)?;
        let numbers = |tensor: &Tensor| tensor.to_vec::<f32>();
        let wanted: Vec<f32> = (0..64).map(|at| if at < 60 { 123.0 } else { 0.0 }).collect();
        assert_eq!(numbers(whole)?, wanted, "{device}");
        for other in [0, 2, 3] {
            assert_eq!(numbers(&neighbours[other])?, [0.0; 64], "{device}");
        }
    }
    Ok(())
}

#[test]
fn numbers_of_views_are_bounded() -> Result<()> {
    let none = Tensor::zeros(&[0, 3], DType::F32, "cpu")?;
    let is_refused = |made: Result<Vec<Tensor>>| made.expect_err("there are too many").is_out_of_memory();
    assert!(is_refused(none.chunk(i64::MAX, 0)));
    assert_eq!(none.chunk(5, 0)?.len(), 5);
    let wide = Tensor::zeros(&[1], DType::F32, "cpu")?.expand(&[1 << 58])?;
    assert!(is_refused(wide.split(1, 0)));
    assert!(is_refused(wide.chunk(i64::MAX, 0)));
    assert_eq!(wide.split(i64::MAX, 0)?[0].sizes(), [1 << 58]);
    assert!(
        wide.split_with_sizes(&[i64::MAX, i64::MAX, 2 + (1 << 58)], 0).is_err(),
        "the sum is not taken modulo 2^64"
    );
    Ok(())
}
