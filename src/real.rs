//! The two element types, and what generic code needs to know about them.

use std::fmt;

/// Element type of a computation.
///
/// ```
/// use polyad::Dtype;
/// assert_eq!(Dtype::F64.bytes(), 8);
/// assert_eq!("f32".parse::<Dtype>().unwrap(), Dtype::F32);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Dtype {
    /// IEEE 754 binary32.
    #[default]
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl Dtype {
    /// `"f32"` or `"f64"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Dtype {
    type Err = crate::Error;

    fn from_str(text: &str) -> crate::Result<Self> {
        match text {
            "f32" => Ok(Self::F32),
            "f64" => Ok(Self::F64),
            _ => Err(crate::Error::Option {
                name: "dtype",
                value: text.into(),
                requirement: "it must be f32 or f64".into(),
            }),
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32` or `f64`: the element types of tensors and factors. Sealed.
///
/// ```
/// use polyad::{Dtype, Real};
/// fn dtype_of<T: Real>(_: &[T]) -> Dtype { T::DTYPE }
/// assert_eq!(dtype_of(&[1.0f32]), Dtype::F32);
/// ```
pub trait Real:
    num_traits::Float
    + num_traits::NumAssign
    + std::iter::Sum
    + bytemuck::Pod
    + faer::traits::RealField
    + ndarray_npy::WritableElement
    + ndarray_npy::ReadableElement
    + fmt::Debug
    + fmt::Display
    + fmt::LowerExp
    + Send
    + Sync
    + sealed::Sealed
    + 'static
{
    /// Which of the two it is.
    const DTYPE: Dtype;

    /// The value in f64, exactly.
    fn f64(self) -> f64;

    /// The nearest value of this type.
    fn of(value: f64) -> Self;
}

impl Real for f32 {
    const DTYPE: Dtype = Dtype::F32;

    fn f64(self) -> f64 {
        f64::from(self)
    }

    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    const DTYPE: Dtype = Dtype::F64;

    fn f64(self) -> f64 {
        self
    }

    fn of(value: f64) -> Self {
        value
    }
}
