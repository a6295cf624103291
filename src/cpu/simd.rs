//! Vectors of f32 and f64 on whatever instruction set the machine has, by way of pulp. Code uses an instruction set only
//! inside `with_simd` of what `Isa::run` is given, and there only what is inlined.

use crate::Real;
use bytemuck::{Pod, Zeroable};
use pulp::{Simd, WithSimd};

/// What the kernels do with vectors of an element type.
pub(super) trait Element: Real {
    type V<S: Simd>: Pod;

    fn splat<S: Simd>(s: S, value: Self) -> Self::V<S>;
    fn plus<S: Simd>(s: S, a: Self::V<S>, b: Self::V<S>) -> Self::V<S>;
    fn times<S: Simd>(s: S, a: Self::V<S>, b: Self::V<S>) -> Self::V<S>;
    /// `a b + c`.
    fn fma<S: Simd>(s: S, a: Self::V<S>, b: Self::V<S>, c: Self::V<S>) -> Self::V<S>;
    /// At most a vector's elements, zeros behind them.
    fn load<S: Simd>(s: S, from: &[Self]) -> Self::V<S>;
    /// As many of the first elements as there is room for.
    fn store<S: Simd>(s: S, to: &mut [Self], v: Self::V<S>);
}

/// Elements of a vector.
pub(super) const fn lanes<T: Element, S: Simd>() -> usize {
    size_of::<T::V<S>>() / size_of::<T>()
}

/// Zeros.
pub(super) fn zero<T: Element, S: Simd>() -> T::V<S> {
    Zeroable::zeroed()
}

/// N vectors of the elements of a row, zeros behind them.
#[inline(always)]
pub(super) fn vectors_of<T: Element, S: Simd, const N: usize>(s: S, row: &[T]) -> [T::V<S>; N] {
    let lanes = lanes::<T, S>();
    let mut vectors = [zero::<T, S>(); N];
    for (v, to) in vectors.iter_mut().enumerate() {
        *to = T::load(s, &row[row.len().min(v * lanes)..row.len().min((v + 1) * lanes)]);
    }
    vectors
}

/// Whether the instruction set multiplies and adds in one instruction. pulp's stand-in for it elsewhere is a function
/// call for each element. The portable vectors are those with the fewest registers.
const fn has_mul_add<S: Simd>() -> bool {
    S::REGISTER_COUNT > 8
}

macro_rules! element {
    ($t:ident, $v:ident, $splat:ident, $add:ident, $mul:ident, $mul_add:ident, $load:ident, $store:ident) => {
        impl Element for $t {
            type V<S: Simd> = S::$v;

            #[inline(always)]
            fn splat<S: Simd>(s: S, value: Self) -> S::$v {
                s.$splat(value)
            }

            #[inline(always)]
            fn plus<S: Simd>(s: S, a: S::$v, b: S::$v) -> S::$v {
                s.$add(a, b)
            }

            #[inline(always)]
            fn times<S: Simd>(s: S, a: S::$v, b: S::$v) -> S::$v {
                s.$mul(a, b)
            }

            #[inline(always)]
            fn fma<S: Simd>(s: S, a: S::$v, b: S::$v, c: S::$v) -> S::$v {
                if has_mul_add::<S>() { s.$mul_add(a, b, c) } else { s.$add(s.$mul(a, b), c) }
            }

            #[inline(always)]
            fn load<S: Simd>(s: S, from: &[Self]) -> S::$v {
                if from.len() == lanes::<Self, S>() {
                    bytemuck::pod_read_unaligned(bytemuck::cast_slice(from))
                } else {
                    s.$load(from)
                }
            }

            #[inline(always)]
            fn store<S: Simd>(s: S, to: &mut [Self], v: S::$v) {
                if to.len() == lanes::<Self, S>() {
                    bytemuck::cast_slice_mut::<Self, u8>(to).copy_from_slice(bytemuck::bytes_of(&v));
                } else {
                    s.$store(to, v);
                }
            }
        }
    };
}

element!(f32, f32s, splat_f32s, add_f32s, mul_f32s, mul_add_e_f32s, partial_load_f32s, partial_store_f32s);
element!(f64, f64s, splat_f64s, add_f64s, mul_f64s, mul_add_e_f64s, partial_load_f64s, partial_store_f64s);

/// An instruction set that this machine has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Isa {
    /// Arrays that the compiler makes vectors of, if it can.
    Portable,
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    Avx2(pulp::x86::V3),
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    Avx512(pulp::x86::V4),
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
}

impl Isa {
    /// All that there are, the widest last.
    #[cfg(test)]
    pub fn all() -> Vec<Self> {
        #[allow(unused_mut, reason = "elsewhere than on x86 and aarch64 there is one")]
        let mut all = vec![Self::Portable];
        #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
        {
            all.extend(pulp::x86::V3::try_new().map(Self::Avx2));
            all.extend(pulp::x86::V4::try_new().map(Self::Avx512));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(pulp::aarch64::Neon::try_new().map(Self::Neon));
        all
    }

    /// The best for that many ranks: narrower vectors where they hold all of them.
    pub fn best<T: Real>(rank: usize) -> Self {
        #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
        {
            let narrow = rank * size_of::<T>() <= 32;
            if let Some(simd) = pulp::x86::V4::try_new().filter(|_| !narrow) {
                return Self::Avx512(simd);
            }
            if let Some(simd) = pulp::x86::V3::try_new() {
                return Self::Avx2(simd);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(simd) = pulp::aarch64::Neon::try_new() {
            return Self::Neon(simd);
        }
        let _ = rank;
        Self::Portable
    }

    /// Runs it with these instructions.
    pub fn run<Op: WithSimd>(self, op: Op) -> Op::Output {
        match self {
            Self::Portable => pulp::Scalar512b.vectorize(op),
            #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
            Self::Avx2(simd) => Simd::vectorize(simd, op),
            #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
            Self::Avx512(simd) => Simd::vectorize(simd, op),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => Simd::vectorize(simd, op),
        }
    }
}
