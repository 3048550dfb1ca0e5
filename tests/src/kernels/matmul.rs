//! What `matmul.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::floats;

pub(super) const CASES: &[Case] = &[Case::new("matmul", "matmul", matmul)];

fn matmul(device: &Device<'_>) -> Answer {
    let (m, n, k) = (45_usize, 70_usize, 37_usize);
    let (a, b) = (floats(61, m * k, -1.0, 1.0), floats(62, k * n, -1.0, 1.0));
    let (on_a, on_b, to) = (device.put(&a)?, device.put(&b)?, device.zeros::<f32>(m * n)?);
    let arguments = [(&to).into(), (&on_a).into(), (&on_b).into(), 45_i32.into(), 70_i32.into(), 37_i32.into()];
    device.run("matmul", (3, 2), (16, 16), &arguments)?;
    let element =
        |row: usize, column: usize| (0..k).fold(0.0_f32, |sum, i| a[row * k + i].mul_add(b[i * n + column], sum));
    let wanted: Vec<f32> = (0..m * n).map(|i| element(i / n, i % n)).collect();
    same("matmul", &to.to_vec()?, &wanted)
}
