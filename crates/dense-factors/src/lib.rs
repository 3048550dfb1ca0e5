//! Factorisations of dense matrices by plain loops in double precision, as LAPACK defines them.
//!
//! A matrix is a [`Table`] of columns. What a factorisation cannot do is a number as LAPACK's `info`, counted from 1: the
//! leading minor that is not positive, or the pivot that is zero; 0 where all is well.
//!
//! **Invariant:** memory that grows with a matrix is reserved by [`collected`]: if the system is out of memory, the
//! result is [`OutOfMemory`] and the process continues.
//!
//! ```
//! use dense_factors::{Complex64, Table, cholesky};
//!
//! let number = |value: f64| Complex64::new(value, 0.0);
//! let mut matrix = Table::new(2, 2, [4.0, 2.0, 2.0, 5.0].map(number).to_vec());
//! assert_eq!(cholesky(&mut matrix), 0);
//! assert_eq!([matrix.at(0, 0), matrix.at(1, 0), matrix.at(1, 1)], [2.0, 1.0, 2.0].map(number));
//! ```

#![forbid(unsafe_code)]

pub use num_complex::Complex64;

/// The example of the README, which is tested with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

const ZERO: Complex64 = Complex64::new(0.0, 0.0);
const ONE: Complex64 = Complex64::new(1.0, 0.0);

/// Error of a failed memory allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Requested bytes.
    pub bytes: usize,
}

/// Result of work that allocates memory for a matrix.
pub type Result<T> = std::result::Result<T, OutOfMemory>;

/// Collects at most `count` elements.
///
/// # Errors
/// There is not enough memory for them.
pub fn collected<T>(count: usize, elements: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let mut made = Vec::new();
    made.try_reserve_exact(count).map_err(|_| OutOfMemory { bytes: count.saturating_mul(size_of::<T>()) })?;
    made.extend(elements.into_iter().take(count));
    Ok(made)
}

/// A matrix by columns.
#[derive(Debug, PartialEq)]
pub struct Table {
    rows: usize,
    columns: usize,
    numbers: Vec<Complex64>,
}

impl Table {
    /// A matrix with these numbers, column after column.
    ///
    /// # Panics
    /// There are not as many numbers as places.
    #[must_use]
    pub fn new(rows: usize, columns: usize, numbers: Vec<Complex64>) -> Self {
        assert_eq!(numbers.len(), rows * columns, "a table has all its numbers");
        Self { rows, columns, numbers }
    }

    fn identity(rows: usize, columns: usize) -> Result<Self> {
        let count = rows.saturating_mul(columns);
        let numbers = (0..count).map(|place| if place % rows == place / rows { ONE } else { ZERO });
        Ok(Self::new(rows, columns, collected(count, numbers)?))
    }

    /// Returns a copy of the matrix.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn copy(&self) -> Result<Self> {
        self.first_columns(self.columns)
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns there are.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All numbers, column after column.
    #[must_use]
    pub fn numbers(&self) -> &[Complex64] {
        &self.numbers
    }

    /// The number at a place; both counts begin at 0.
    ///
    /// # Panics
    /// The place is behind the last one.
    #[must_use]
    pub fn at(&self, row: usize, column: usize) -> Complex64 {
        self.numbers[column * self.rows + row]
    }

    /// Writes the number at a place.
    ///
    /// # Panics
    /// The place is behind the last one.
    pub fn set(&mut self, row: usize, column: usize, value: Complex64) {
        self.numbers[column * self.rows + row] = value;
    }

    fn column(&self, column: usize) -> &[Complex64] {
        &self.numbers[column * self.rows..(column + 1) * self.rows]
    }

    fn swap_rows(&mut self, one: usize, other: usize) {
        for column in 0..self.columns {
            self.numbers.swap(column * self.rows + one, column * self.rows + other);
        }
    }

    /// Returns the conjugate transpose.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn adjoint(&self) -> Result<Self> {
        let numbers = (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| self.at(row, column).conj()));
        Ok(Self::new(self.columns, self.rows, collected(self.numbers.len(), numbers)?))
    }

    /// Returns the first `columns` columns, padded with columns of zeros if the matrix has fewer.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn first_columns(&self, columns: usize) -> Result<Self> {
        let numbers = self.numbers.iter().copied().chain(std::iter::repeat(ZERO));
        Ok(Self::new(self.rows, columns, collected(self.rows.saturating_mul(columns), numbers)?))
    }
}

/// `A = L L'`: the lower triangle becomes `L`. The other triangle is left as it is.
pub fn cholesky(a: &mut Table) -> usize {
    for step in 0..a.rows {
        let row: f64 = (0..step).map(|before| a.at(step, before).norm_sqr()).sum();
        let pivot = a.at(step, step).re - row;
        if pivot.is_nan() || pivot <= 0.0 {
            return step + 1;
        }
        let root = pivot.sqrt();
        a.set(step, step, Complex64::from(root));
        for below in step + 1..a.rows {
            let sum = (0..step).fold(ZERO, |sum, before| sum + a.at(below, before) * a.at(step, before).conj());
            a.set(below, step, (a.at(below, step) - sum).scale(1.0 / root));
        }
    }
    0
}

/// `P A = L U` in place of `A`, with the rows that were swapped, counted from 1; without swaps where `pivots` is false.
///
/// # Errors
/// There is not enough memory.
pub fn lu(a: &mut Table, pivots: bool) -> Result<(Vec<usize>, usize)> {
    let mut info = 0;
    let mut swapped = collected(a.rows.min(a.columns), 1..)?;
    let weight = |value: Complex64| value.re.abs() + value.im.abs();
    for (step, own) in swapped.iter_mut().enumerate() {
        let best =
            |best: usize, row: usize| if weight(a.at(row, step)) > weight(a.at(best, step)) { row } else { best };
        let pivot = if pivots { (step..a.rows).fold(step, best) } else { step };
        *own = pivot + 1;
        if a.at(pivot, step) == ZERO {
            info = if info == 0 { step + 1 } else { info };
            continue;
        }
        a.swap_rows(step, pivot);
        for row in step + 1..a.rows {
            let factor = a.at(row, step) / a.at(step, step);
            a.set(row, step, factor);
            for column in step + 1..a.columns {
                a.set(row, column, a.at(row, column) - factor * a.at(step, column));
            }
        }
    }
    Ok((swapped, info))
}

/// Which triangle of a system's matrix is used, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triangle {
    /// Whether it is the lower one.
    pub lower: bool,
    /// Whether the diagonal is ones, whatever is there.
    pub unit: bool,
    /// Whether the matrix of the system is the transpose.
    pub transposed: bool,
    /// Whether the matrix of the system has the conjugate numbers.
    pub conjugated: bool,
}

impl Triangle {
    /// The upper triangle, as it is.
    pub const UPPER: Self = Self { lower: false, unit: false, transposed: false, conjugated: false };
    /// The lower triangle with ones on its diagonal: the left factor of [`lu`].
    pub const UNIT_LOWER: Self = Self { lower: true, unit: true, transposed: false, conjugated: false };
}

/// Solves a triangular system in place of its right side. A pivot of zero gives infinities, as a division does.
///
/// # Panics
/// The right side has fewer rows than the matrix.
pub fn solve(a: &Table, triangle: Triangle, b: &mut Table) {
    let Triangle { lower, unit, transposed, conjugated } = triangle;
    let get = |row: usize, column: usize| {
        let value = if transposed { a.at(column, row) } else { a.at(row, column) };
        if conjugated { value.conj() } else { value }
    };
    let size = a.rows;
    let forward = lower != transposed;
    for column in 0..b.columns {
        for step in 0..size {
            let row = if forward { step } else { size - 1 - step };
            let known = if forward { 0..row } else { row + 1..size };
            let sum = known.fold(ZERO, |sum, other| sum + get(row, other) * b.at(other, column));
            let value = b.at(row, column) - sum;
            b.set(row, column, if unit { value } else { value / get(row, row) });
        }
    }
}

/// Swaps rows of a right side as [`lu`] did, or back. Rows that the right side lacks are left out.
pub fn swap_rows(b: &mut Table, swapped: &[usize], back: bool) {
    let rows = b.rows;
    let mut swap = |(row, other): (usize, usize)| {
        if row < rows && other < rows {
            b.swap_rows(row, other);
        }
    };
    let steps = swapped.iter().map(|&row| row.max(1) - 1).enumerate();
    if back { steps.rev().for_each(&mut swap) } else { steps.for_each(&mut swap) }
}

/// `A = Q R` in place of `A`: `R` above, the reflectors below; their factors.
///
/// # Errors
/// There is not enough memory.
pub fn qr(a: &mut Table) -> Result<Vec<Complex64>> {
    let steps = a.rows.min(a.columns);
    let mut factors = collected(steps, std::iter::empty())?;
    for step in 0..steps {
        factors.push(reflect(a, step)?);
    }
    Ok(factors)
}

/// Makes the reflector of one column and applies it to those after it.
fn reflect(a: &mut Table, step: usize) -> Result<Complex64> {
    let alpha = a.at(step, step);
    let below: f64 = (step + 1..a.rows).map(|row| a.at(row, step).norm_sqr()).sum();
    if below == 0.0 && alpha.im == 0.0 {
        return Ok(ZERO);
    }
    let norm = (alpha.norm_sqr() + below).sqrt();
    let beta = if alpha.re >= 0.0 { -norm } else { norm };
    let tau = Complex64 { re: (beta - alpha.re) / beta, im: -alpha.im / beta };
    let scale = ONE / (alpha - Complex64::from(beta));
    for row in step + 1..a.rows {
        a.set(row, step, a.at(row, step) * scale);
    }
    a.set(step, step, Complex64::from(beta));
    let reflector = reflector(a, step)?;
    for column in step + 1..a.columns {
        apply(&reflector, tau.conj(), a, (step, column));
    }
    Ok(tau)
}

/// The reflector of a step: one, and what lies below the diagonal of its column.
fn reflector(a: &Table, step: usize) -> Result<Vec<Complex64>> {
    collected(a.rows - step, std::iter::once(ONE).chain((step + 1..a.rows).map(|row| a.at(row, step))))
}

/// Applies the reflector of a step to a column.
fn apply(reflector: &[Complex64], tau: Complex64, target: &mut Table, (step, column): (usize, usize)) {
    let parts = reflector.iter().enumerate();
    let product = parts.clone().fold(ZERO, |sum, (index, &part)| sum + part.conj() * target.at(step + index, column));
    for (index, &part) in parts {
        let value = target.at(step + index, column) - tau * part * product;
        target.set(step + index, column, value);
    }
}

/// The first columns of `Q`, as many as the matrix has, from what [`qr`] left.
///
/// # Errors
/// There is not enough memory.
pub fn unitary(a: &Table, factors: &[Complex64]) -> Result<Table> {
    let mut q = Table::identity(a.rows, a.columns)?;
    for (step, &tau) in factors.iter().enumerate().rev() {
        let reflector = reflector(a, step)?;
        for column in 0..q.columns {
            apply(&reflector, tau, &mut q, (step, column));
        }
    }
    Ok(q)
}

/// How often the Jacobi method goes over all pairs of columns at most.
const SWEEPS_MAX: usize = 60;

/// `A = U S V'` for a matrix with at least as many rows as columns, the largest singular value first. `U` has as many
/// columns as rows.
fn tall_svd(a: &Table) -> Result<(Table, Vec<f64>, Table)> {
    let (mut work, mut v) = (a.copy()?, Table::identity(a.columns, a.columns)?);
    for _ in 0..SWEEPS_MAX {
        let mut turned = false;
        for left in 0..a.columns {
            for right in left + 1..a.columns {
                turned |= turn(&mut work, &mut v, left, right);
            }
        }
        if !turned {
            break;
        }
    }
    let norm = |column| work.column(column).iter().map(|value| value.norm_sqr()).sum::<f64>().sqrt();
    let norms: Vec<f64> = collected(a.columns, (0..a.columns).map(norm))?;
    let mut order: Vec<usize> = collected(a.columns, 0..)?;
    // Equal norms keep their order; a stable sort would need memory.
    order.sort_unstable_by(|&one, &other| norms[other].total_cmp(&norms[one]).then(one.cmp(&other)));
    let sorted = |table: &Table, scale: &dyn Fn(usize) -> f64| {
        let numbers = order.iter().flat_map(|&column| table.column(column).iter().map(move |value| (column, *value)));
        let numbers = collected(table.numbers.len(), numbers.map(|(column, value)| value.scale(scale(column))))?;
        Ok(Table::new(table.rows, table.columns, numbers))
    };
    let u = sorted(&work, &|column| if norms[column] > 0.0 { 1.0 / norms[column] } else { 0.0 })?;
    let singular: Vec<f64> = collected(order.len(), order.iter().map(|&column| norms[column]))?;
    Ok((completed(u, &singular)?, singular, sorted(&v, &|_| 1.0)?))
}

/// Makes two columns orthogonal; false where they are.
fn turn(work: &mut Table, v: &mut Table, left: usize, right: usize) -> bool {
    let square = |table: &Table, column: usize| table.column(column).iter().map(|value| value.norm_sqr()).sum::<f64>();
    let (alpha, beta) = (square(work, left), square(work, right));
    let pairs = work.column(left).iter().zip(work.column(right));
    let gamma = pairs.fold(ZERO, |sum, (&one, &other)| sum + one.conj() * other);
    let size = gamma.norm_sqr().sqrt();
    if size == 0.0 || size <= 1e-15 * (alpha * beta).sqrt() {
        return false;
    }
    let zeta = (beta - alpha) / (2.0 * size);
    let tangent = if zeta >= 0.0 { 1.0 } else { -1.0 } / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
    let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
    let sine = gamma.scale(cosine * tangent / size);
    for table in [work, v] {
        for row in 0..table.rows {
            let (one, other) = (table.at(row, left), table.at(row, right));
            table.set(row, left, one.scale(cosine) - sine.conj() * other);
            table.set(row, right, sine * one + other.scale(cosine));
        }
    }
    true
}

/// Completes orthonormal columns to a basis; columns of singular values that are zero are replaced.
fn completed(u: Table, singular: &[f64]) -> Result<Table> {
    let rows = u.rows;
    let tiny = singular.first().copied().unwrap_or(0.0) * 1e-15;
    let kept = singular.iter().take_while(|&&value| value > tiny).count();
    let mut numbers = collected(rows.saturating_mul(rows), u.numbers[..kept * rows].iter().copied())?;
    let mut unit = 0;
    while numbers.len() < rows * rows && unit < rows {
        let mut next: Vec<Complex64> = collected(rows, (0..rows).map(|row| if row == unit { ONE } else { ZERO }))?;
        // Twice, since one pass leaves what rounding made of it.
        for column in numbers.chunks_exact(rows).chain(numbers.chunks_exact(rows)) {
            let part = column.iter().zip(&next).fold(ZERO, |sum, (&one, &other)| sum + one.conj() * other);
            next.iter_mut().zip(column).for_each(|(value, &one)| *value -= part * one);
        }
        let norm = next.iter().map(|value| value.norm_sqr()).sum::<f64>().sqrt();
        if norm > 1e-3 {
            numbers.extend(next.into_iter().map(|value| value.scale(1.0 / norm)));
        }
        unit += 1;
    }
    Ok(Table::new(rows, rows, numbers))
}

/// `A = U S V'`: square `U` and `V`, and the singular values, the largest first, by one-sided Jacobi rotations.
///
/// # Errors
/// There is not enough memory.
pub fn svd(a: &Table) -> Result<(Table, Vec<f64>, Table)> {
    if a.rows >= a.columns {
        return tall_svd(a);
    }
    let (v, singular, u) = tall_svd(&a.adjoint()?)?;
    Ok((u, singular, v))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize, columns: usize) -> Table {
        let number = |place: usize| {
            let value = |step: usize| f64::from(u8::try_from(place * step % 23).expect("small")) - 11.0;
            Complex64 { re: value(7), im: value(5) }
        };
        Table::new(rows, columns, (0..rows * columns).map(number).collect())
    }

    fn product(a: &Table, b: &Table) -> Table {
        let numbers = (0..b.columns).flat_map(|column| (0..a.rows).map(move |row| (row, column)));
        let sum = |(row, column)| (0..a.columns).fold(ZERO, |sum, step| sum + a.at(row, step) * b.at(step, column));
        Table::new(a.rows, b.columns, numbers.map(sum).collect())
    }

    fn assert_near(one: &Table, other: &Table) {
        assert_eq!((one.rows, one.columns), (other.rows, other.columns));
        let distance = one.numbers.iter().zip(&other.numbers).map(|(&one, &other)| (one - other).norm_sqr().sqrt());
        let most = distance.fold(0.0, f64::max);
        assert!(most < 1e-9, "{most}");
    }

    #[test]
    fn a_positive_matrix_is_a_triangle_times_itself() {
        let a = product(&table(4, 6), &table(4, 6).adjoint().unwrap());
        let mut found = a.copy().unwrap();
        assert_eq!(cholesky(&mut found), 0);
        for column in 1..4 {
            (0..column).for_each(|row| found.set(row, column, ZERO));
        }
        assert_near(&product(&found, &found.adjoint().unwrap()), &a);
        let mut negative = Table::new(2, 2, vec![ONE, ZERO, ZERO, Complex64::from(-1.0)]);
        assert_eq!(cholesky(&mut negative), 2);
    }

    #[test]
    fn a_system_is_solved_by_its_factors() {
        let (a, mut b) = (table(5, 5), table(5, 2));
        let (mut factors, right) = (a.copy().unwrap(), b.copy().unwrap());
        let (swapped, info) = lu(&mut factors, true).unwrap();
        assert_eq!(info, 0);
        swap_rows(&mut b, &swapped, false);
        solve(&factors, Triangle::UNIT_LOWER, &mut b);
        solve(&factors, Triangle::UPPER, &mut b);
        assert_near(&product(&a, &b), &right);
        assert_eq!(lu(&mut Table::new(2, 2, vec![ZERO; 4]), true).unwrap().1, 1);
    }

    #[test]
    fn orthogonal_factors_give_the_matrix_back() {
        let a = table(5, 3);
        let mut packed = a.copy().unwrap();
        let factors = qr(&mut packed).unwrap();
        let mut r = Table::new(3, 3, vec![ZERO; 9]);
        for column in 0..3 {
            (0..=column).for_each(|row| r.set(row, column, packed.at(row, column)));
        }
        let q = unitary(&packed, &factors).unwrap();
        assert_near(&product(&q, &r), &a);
        assert_near(&product(&q.adjoint().unwrap(), &q), &Table::identity(3, 3).unwrap());
    }

    #[test]
    fn singular_values_and_vectors_give_the_matrix_back() {
        for (rows, columns) in [(5, 3), (3, 5), (4, 4)] {
            let a = table(rows, columns);
            let (u, singular, v) = svd(&a).unwrap();
            let mut middle = Table::new(rows, columns, vec![ZERO; rows * columns]);
            singular.iter().enumerate().for_each(|(index, &value)| middle.set(index, index, Complex64::from(value)));
            assert_near(&product(&product(&u, &middle), &v.adjoint().unwrap()), &a);
            assert_near(&product(&u.adjoint().unwrap(), &u), &Table::identity(rows, rows).unwrap());
            assert!(singular.windows(2).all(|pair| pair[0] >= pair[1]));
        }
        let (u, singular, _) = svd(&Table::new(2, 2, vec![ZERO; 4])).unwrap();
        assert_eq!((singular, u), (vec![0.0; 2], Table::identity(2, 2).unwrap()));
    }

    #[test]
    fn a_result_beyond_any_memory_is_an_error() {
        let bytes = (1 << 56) * size_of::<Complex64>();
        assert_eq!(table(1, 1).first_columns(1 << 56).unwrap_err(), OutOfMemory { bytes });
    }
}
