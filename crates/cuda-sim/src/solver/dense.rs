//! Factorisations of dense matrices, as LAPACK defines them, in double precision whatever the numbers of the program are.
//!
//! A matrix is a table of columns. What a factorisation cannot do is a number as LAPACK's `info`: which leading minor is not
//! positive, or which pivot is zero, counted from 1.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Z {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Z {
    pub(super) const ZERO: Self = Self { re: 0.0, im: 0.0 };
    pub(super) const ONE: Self = Self { re: 1.0, im: 0.0 };

    pub(super) fn real(re: f64) -> Self {
        Self { re, im: 0.0 }
    }

    pub(super) fn conj(self) -> Self {
        Self { re: self.re, im: -self.im }
    }

    fn square(self) -> f64 {
        self.re * self.re + self.im * self.im
    }

    pub(super) fn size(self) -> f64 {
        self.re.hypot(self.im)
    }

    fn scaled(self, factor: f64) -> Self {
        Self { re: self.re * factor, im: self.im * factor }
    }
}

impl Add for Z {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Z {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Z {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}

impl Div for Z {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        (self * other.conj()).scaled(1.0 / other.square())
    }
}

impl Neg for Z {
    type Output = Self;
    fn neg(self) -> Self {
        Self { re: -self.re, im: -self.im }
    }
}

/// A matrix by columns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    pub(super) rows: usize,
    pub(super) columns: usize,
    numbers: Vec<Z>,
}

impl Table {
    pub(super) fn new(rows: usize, columns: usize, numbers: Vec<Z>) -> Self {
        assert_eq!(numbers.len(), rows * columns, "a table has all its numbers");
        Self { rows, columns, numbers }
    }

    fn identity(rows: usize, columns: usize) -> Self {
        let numbers = (0..rows * columns).map(|place| if place % rows == place / rows { Z::ONE } else { Z::ZERO });
        Self::new(rows, columns, numbers.collect())
    }

    pub(super) fn numbers(&self) -> &[Z] {
        &self.numbers
    }

    pub(super) fn at(&self, row: usize, column: usize) -> Z {
        self.numbers[column * self.rows + row]
    }

    pub(super) fn set(&mut self, row: usize, column: usize, value: Z) {
        self.numbers[column * self.rows + row] = value;
    }

    fn column(&self, column: usize) -> &[Z] {
        &self.numbers[column * self.rows..(column + 1) * self.rows]
    }

    fn swap_rows(&mut self, one: usize, other: usize) {
        for column in 0..self.columns {
            self.numbers.swap(column * self.rows + one, column * self.rows + other);
        }
    }

    /// The conjugate transpose.
    pub(super) fn adjoint(&self) -> Self {
        let numbers = (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| self.at(row, column).conj()));
        Self::new(self.columns, self.rows, numbers.collect())
    }

    /// The first columns, or the same with columns of zeros added.
    pub(super) fn first_columns(&self, columns: usize) -> Self {
        let mut numbers = self.numbers.clone();
        numbers.resize(self.rows * columns, Z::ZERO);
        Self::new(self.rows, columns, numbers)
    }
}

/// `A = L L'`: the lower triangle becomes `L`. The other triangle is left as it is.
pub(super) fn cholesky(a: &mut Table) -> usize {
    for step in 0..a.rows {
        let row: f64 = (0..step).map(|before| a.at(step, before).square()).sum();
        let pivot = a.at(step, step).re - row;
        if pivot.is_nan() || pivot <= 0.0 {
            return step + 1;
        }
        let root = pivot.sqrt();
        a.set(step, step, Z::real(root));
        for below in step + 1..a.rows {
            let sum = (0..step).fold(Z::ZERO, |sum, before| sum + a.at(below, before) * a.at(step, before).conj());
            a.set(below, step, (a.at(below, step) - sum).scaled(1.0 / root));
        }
    }
    0
}

/// `P A = L U` in place of `A`, with the rows that were swapped, counted from 1; without swaps where `pivots` is false.
pub(super) fn lu(a: &mut Table, pivots: bool) -> (Vec<usize>, usize) {
    let mut info = 0;
    let mut swapped = Vec::new();
    let weight = |value: Z| value.re.abs() + value.im.abs();
    for step in 0..a.rows.min(a.columns) {
        let best =
            |best: usize, row: usize| if weight(a.at(row, step)) > weight(a.at(best, step)) { row } else { best };
        let pivot = if pivots { (step..a.rows).fold(step, best) } else { step };
        swapped.push(pivot + 1);
        if a.at(pivot, step) == Z::ZERO {
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
    (swapped, info)
}

/// Which triangle of a system's matrix is used, and how.
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    pub(super) lower: bool,
    /// Whether the diagonal is ones, whatever is there.
    pub(super) unit: bool,
    pub(super) transposed: bool,
    pub(super) conjugated: bool,
}

/// Solves a triangular system in place of its right side.
pub(super) fn solve(a: &Table, triangle: Triangle, b: &mut Table) {
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
            let known: Vec<usize> = if forward { (0..row).collect() } else { (row + 1..size).collect() };
            let sum = known.into_iter().fold(Z::ZERO, |sum, other| sum + get(row, other) * b.at(other, column));
            let value = b.at(row, column) - sum;
            b.set(row, column, if unit { value } else { value / get(row, row) });
        }
    }
}

/// Swaps rows of a right side as `lu` did, or back.
pub(super) fn swap(b: &mut Table, swapped: &[usize], back: bool) {
    let mut steps: Vec<(usize, usize)> = swapped.iter().map(|&row| row.max(1) - 1).enumerate().collect();
    if back {
        steps.reverse();
    }
    let rows = b.rows;
    for (row, other) in steps.into_iter().filter(|&(row, other)| row < rows && other < rows) {
        b.swap_rows(row, other);
    }
}

/// `A = Q R` in place of `A`: `R` above, the reflectors below; their factors.
pub(super) fn qr(a: &mut Table) -> Vec<Z> {
    (0..a.rows.min(a.columns)).map(|step| reflect(a, step)).collect()
}

/// Makes the reflector of one column and applies it to those after it.
fn reflect(a: &mut Table, step: usize) -> Z {
    let alpha = a.at(step, step);
    let below: f64 = (step + 1..a.rows).map(|row| a.at(row, step).square()).sum();
    if below == 0.0 && alpha.im == 0.0 {
        return Z::ZERO;
    }
    let norm = (alpha.square() + below).sqrt();
    let beta = if alpha.re >= 0.0 { -norm } else { norm };
    let tau = Z { re: (beta - alpha.re) / beta, im: -alpha.im / beta };
    let scale = Z::ONE / (alpha - Z::real(beta));
    for row in step + 1..a.rows {
        a.set(row, step, a.at(row, step) * scale);
    }
    a.set(step, step, Z::real(beta));
    for column in step + 1..a.columns {
        apply(a, (step, column), tau.conj(), None);
    }
    tau
}

/// Applies a reflector, which lies below the diagonal of a column, to another column of the same table or of another one.
fn apply(a: &mut Table, (step, column): (usize, usize), tau: Z, other: Option<&mut Table>) {
    let reflector: Vec<Z> = std::iter::once(Z::ONE).chain((step + 1..a.rows).map(|row| a.at(row, step))).collect();
    let target = other.unwrap_or(a);
    let product = reflector
        .iter()
        .enumerate()
        .fold(Z::ZERO, |sum, (index, &part)| sum + part.conj() * target.at(step + index, column));
    for (index, &part) in reflector.iter().enumerate() {
        let value = target.at(step + index, column) - tau * part * product;
        target.set(step + index, column, value);
    }
}

/// The first columns of `Q`, from what [`qr`] left.
pub(super) fn unitary(a: &mut Table, factors: &[Z]) -> Table {
    let mut q = Table::identity(a.rows, a.columns);
    for (step, &tau) in factors.iter().enumerate().rev() {
        for column in 0..q.columns {
            apply(a, (step, column), tau, Some(&mut q));
        }
    }
    q
}

/// How often the Jacobi method goes over all pairs of columns at most.
const SWEEPS_MAX: usize = 60;

/// `A = U S V'` for a matrix with at least as many rows as columns, the largest singular value first. `U` has as many
/// columns as rows.
fn tall_svd(a: &Table) -> (Table, Vec<f64>, Table) {
    let (mut work, mut v) = (a.clone(), Table::identity(a.columns, a.columns));
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
    let norms: Vec<f64> = (0..a.columns)
        .map(|column| work.column(column).iter().map(|value| value.square()).sum::<f64>().sqrt())
        .collect();
    let mut order: Vec<usize> = (0..a.columns).collect();
    order.sort_by(|&one, &other| norms[other].total_cmp(&norms[one]));
    let sorted = |table: &Table, scale: &dyn Fn(usize) -> f64| {
        let numbers = order.iter().flat_map(|&column| table.column(column).iter().map(move |value| (column, *value)));
        Table::new(table.rows, table.columns, numbers.map(|(column, value)| value.scaled(scale(column))).collect())
    };
    let u = sorted(&work, &|column| if norms[column] > 0.0 { 1.0 / norms[column] } else { 0.0 });
    let singular: Vec<f64> = order.iter().map(|&column| norms[column]).collect();
    (completed(u, &singular), singular, sorted(&v, &|_| 1.0))
}

/// Makes two columns orthogonal; false where they are.
fn turn(work: &mut Table, v: &mut Table, left: usize, right: usize) -> bool {
    let square = |table: &Table, column: usize| table.column(column).iter().map(|value| value.square()).sum::<f64>();
    let (alpha, beta) = (square(work, left), square(work, right));
    let pairs = work.column(left).iter().zip(work.column(right));
    let gamma = pairs.fold(Z::ZERO, |sum, (&one, &other)| sum + one.conj() * other);
    let size = gamma.size();
    if size == 0.0 || size <= 1e-15 * (alpha * beta).sqrt() {
        return false;
    }
    let zeta = (beta - alpha) / (2.0 * size);
    let tangent = if zeta >= 0.0 { 1.0 } else { -1.0 } / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
    let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
    let sine = gamma.scaled(cosine * tangent / size);
    for table in [work, v] {
        for row in 0..table.rows {
            let (one, other) = (table.at(row, left), table.at(row, right));
            table.set(row, left, one.scaled(cosine) - sine.conj() * other);
            table.set(row, right, sine * one + other.scaled(cosine));
        }
    }
    true
}

/// Completes orthonormal columns to a basis; columns of singular values that are zero are replaced.
fn completed(u: Table, singular: &[f64]) -> Table {
    let rows = u.rows;
    let tiny = singular.first().copied().unwrap_or(0.0) * 1e-15;
    let mut columns: Vec<Vec<Z>> = singular
        .iter()
        .take_while(|&&value| value > tiny)
        .enumerate()
        .map(|(index, _)| u.column(index).to_vec())
        .collect();
    let mut unit = 0;
    while columns.len() < rows && unit < rows {
        let mut next: Vec<Z> = (0..rows).map(|row| if row == unit { Z::ONE } else { Z::ZERO }).collect();
        // Twice, since one pass leaves what rounding made of it.
        for column in columns.iter().chain(&columns) {
            let part = column.iter().zip(&next).fold(Z::ZERO, |sum, (&one, &other)| sum + one.conj() * other);
            next.iter_mut().zip(column).for_each(|(value, &one)| *value = *value - part * one);
        }
        let norm = next.iter().map(|value| value.square()).sum::<f64>().sqrt();
        if norm > 1e-3 {
            columns.push(next.into_iter().map(|value| value.scaled(1.0 / norm)).collect());
        }
        unit += 1;
    }
    Table::new(rows, rows, columns.concat())
}

/// `A = U S V'`: square `U` and `V`, and the singular values, the largest first.
pub(super) fn svd(a: &Table) -> (Table, Vec<f64>, Table) {
    if a.rows >= a.columns {
        return tall_svd(a);
    }
    let (v, singular, u) = tall_svd(&a.adjoint());
    (u, singular, v)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize, columns: usize) -> Table {
        let number = |place: usize| {
            let value = |step: usize| f64::from(u8::try_from(place * step % 23).expect("small")) - 11.0;
            Z { re: value(7), im: value(5) }
        };
        Table::new(rows, columns, (0..rows * columns).map(number).collect())
    }

    fn product(a: &Table, b: &Table) -> Table {
        let numbers = (0..b.columns).flat_map(|column| (0..a.rows).map(move |row| (row, column)));
        let sum = |(row, column)| (0..a.columns).fold(Z::ZERO, |sum, step| sum + a.at(row, step) * b.at(step, column));
        Table::new(a.rows, b.columns, numbers.map(sum).collect())
    }

    fn assert_near(one: &Table, other: &Table) {
        assert_eq!((one.rows, one.columns), (other.rows, other.columns));
        let distance = one.numbers.iter().zip(&other.numbers).map(|(&one, &other)| (one - other).size());
        let most = distance.fold(0.0, f64::max);
        assert!(most < 1e-9, "{most}");
    }

    #[test]
    fn a_positive_matrix_is_a_triangle_times_itself() {
        let a = product(&table(4, 6), &table(4, 6).adjoint());
        let mut found = a.clone();
        assert_eq!(cholesky(&mut found), 0);
        for column in 1..4 {
            (0..column).for_each(|row| found.set(row, column, Z::ZERO));
        }
        assert_near(&product(&found, &found.adjoint()), &a);
        let mut negative = Table::new(2, 2, vec![Z::ONE, Z::ZERO, Z::ZERO, Z::real(-1.0)]);
        assert_eq!(cholesky(&mut negative), 2);
    }

    #[test]
    fn a_system_is_solved_by_its_factors() {
        let (a, mut b) = (table(5, 5), table(5, 2));
        let (mut factors, right) = (a.clone(), b.clone());
        let (swapped, info) = lu(&mut factors, true);
        assert_eq!(info, 0);
        swap(&mut b, &swapped, false);
        let triangle = |lower, unit| Triangle { lower, unit, transposed: false, conjugated: false };
        solve(&factors, triangle(true, true), &mut b);
        solve(&factors, triangle(false, false), &mut b);
        assert_near(&product(&a, &b), &right);
        assert_eq!(lu(&mut Table::new(2, 2, vec![Z::ZERO; 4]), true).1, 1);
    }

    #[test]
    fn orthogonal_factors_give_the_matrix_back() {
        let a = table(5, 3);
        let mut packed = a.clone();
        let factors = qr(&mut packed);
        let mut r = Table::new(3, 3, vec![Z::ZERO; 9]);
        for column in 0..3 {
            (0..=column).for_each(|row| r.set(row, column, packed.at(row, column)));
        }
        let q = unitary(&mut packed, &factors);
        assert_near(&product(&q, &r), &a);
        assert_near(&product(&q.adjoint(), &q), &Table::identity(3, 3));
    }

    #[test]
    fn singular_values_and_vectors_give_the_matrix_back() {
        for (rows, columns) in [(5, 3), (3, 5), (4, 4)] {
            let a = table(rows, columns);
            let (u, singular, v) = svd(&a);
            let mut middle = Table::new(rows, columns, vec![Z::ZERO; rows * columns]);
            singular.iter().enumerate().for_each(|(index, &value)| middle.set(index, index, Z::real(value)));
            assert_near(&product(&product(&u, &middle), &v.adjoint()), &a);
            assert_near(&product(&u.adjoint(), &u), &Table::identity(rows, rows));
            assert!(singular.windows(2).all(|pair| pair[0] >= pair[1]));
        }
        let (u, singular, _) = svd(&Table::new(2, 2, vec![Z::ZERO; 4]));
        assert_eq!((singular, u), (vec![0.0; 2], Table::identity(2, 2)));
    }
}
