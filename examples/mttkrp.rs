//! One MTTKRP, on the GPU if there is one. cargo run --release --example mttkrp

use ndarray::{Array2, Array3};
use polyad::Backend;

fn main() -> polyad::Result<()> {
    let x = Array3::from_shape_fn((40, 30, 20), |(i, j, k)| ((i * 7 + j * 5 + k * 3) % 11) as f32);
    let [a, b, c] = [40, 30, 20].map(|rows| Array2::from_shape_fn((rows, 4), |(i, r)| ((i + r) % 5) as f32));
    let factors = [a.view(), b.view(), c.view()];
    #[cfg(feature = "gpu")]
    if let Ok(gpu) = polyad::Gpu::new() {
        println!("{}:\n{:.0}", gpu.name(), gpu.mttkrp(x.view().into_dyn(), &factors, 0)?);
        return Ok(());
    }
    println!("CPU:\n{:.0}", polyad::Cpu::new().mttkrp(x.view().into_dyn(), &factors, 0)?);
    Ok(())
}
