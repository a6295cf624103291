//! Every device in both dtypes, and the fit by the definition.

use ndarray::ArrayD;
use polyad::{CpTensor, Cpu, Device, Dtype, Real};

/// The CPU and, where there is one, a GPU.
pub fn devices() -> Vec<Device> {
    #[allow(unused_mut, reason = "without the GPU backend there is one")]
    let mut all = vec![Device::Cpu(Cpu::new())];
    #[cfg(feature = "gpu")]
    match polyad::Gpu::new() {
        Ok(gpu) => all.push(Device::Gpu(gpu)),
        Err(error) => {
            assert!(std::env::var("POLYAD_REQUIRE_GPU").is_err(), "POLYAD_REQUIRE_GPU and {error}");
            println!("no GPU: {error}");
        }
    }
    all
}

pub fn has(device: &Device, dtype: Dtype) -> bool {
    dtype == Dtype::F32 || polyad::Backend::caps(device).f64
}

/// Every device in both dtypes.
pub fn everywhere(f32: impl Fn(&Device), f64: impl Fn(&Device)) {
    for device in devices() {
        f32(&device);
        if has(&device, Dtype::F64) {
            f64(&device);
        }
    }
}

/// `1 - |X - Xhat| / |X|` entry by entry in f64.
pub fn true_fit<T: Real, M: Real>(x: &ArrayD<T>, model: &CpTensor<M>) -> f64 {
    let full = model.to_f64().to_full().unwrap();
    let scale = x.iter().fold(0.0f64, |m, v| m.max(v.f64().abs()));
    let x = x.mapv(|v| v.f64() / scale);
    let error = (&x - &full.mapv(|v| v / scale)).mapv(|v| v * v).sum().sqrt();
    1.0 - error / x.mapv(|v| v * v).sum().sqrt()
}
