//! Element types on disk and their conversion to `f32` or `f64`.

use crate::{Dtype, Error, Real, Result};
use rayon::prelude::*;
use std::io::Read;
use std::path::Path;

/// Elements converted as one piece of parallel work, or between two reads.
const PIECE: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

/// Element type and byte order of stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub kind: Kind,
    pub big_endian: bool,
}

impl Stored {
    /// From NumPy's type string, such as `<f8`; the error is a reason without the file's name.
    pub fn parse(descr: &str) -> std::result::Result<Self, String> {
        let (order, code) = match descr.chars().next() {
            Some(c @ ('<' | '>' | '|' | '=')) => (c, &descr[1..]),
            _ => ('=', descr),
        };
        let kind = match code {
            "b1" | "?" => Kind::Bool,
            "u1" => Kind::U8,
            "u2" => Kind::U16,
            "u4" => Kind::U32,
            "u8" => Kind::U64,
            "i1" => Kind::I8,
            "i2" => Kind::I16,
            "i4" => Kind::I32,
            "i8" => Kind::I64,
            "f4" => Kind::F32,
            "f8" => Kind::F64,
            _ => return Err(unsupported(descr, code)),
        };
        let big_endian = if order == '=' { cfg!(target_endian = "big") } else { order == '>' };
        Ok(Self { kind, big_endian })
    }

    pub fn name(self) -> &'static str {
        match self.kind {
            Kind::Bool => "bool",
            Kind::U8 => "u8",
            Kind::U16 => "u16",
            Kind::U32 => "u32",
            Kind::U64 => "u64",
            Kind::I8 => "i8",
            Kind::I16 => "i16",
            Kind::I32 => "i32",
            Kind::I64 => "i64",
            Kind::F32 => "f32",
            Kind::F64 => "f64",
        }
    }

    pub fn bytes(self) -> usize {
        match self.kind {
            Kind::Bool | Kind::U8 | Kind::I8 => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
        }
    }

    /// Whether the bytes on disk are the bytes of a `T` in memory.
    pub fn is<T: Real>(self) -> bool {
        let same_kind = matches!((self.kind, T::DTYPE), (Kind::F32, Dtype::F32) | (Kind::F64, Dtype::F64));
        same_kind && self.big_endian == cfg!(target_endian = "big")
    }
}

fn unsupported(descr: &str, code: &str) -> String {
    let word = match code.chars().next() {
        Some('c') => "complex",
        Some('O') => "Python objects",
        Some('S' | 'a') => "byte strings",
        Some('U') => "strings",
        Some('V') => "raw or structured",
        Some('M' | 'm') => "dates or times",
        Some('f') => "a float width other than 32 or 64 bits",
        _ => "unknown",
    };
    format!("dtype {descr:?} ({word}) is not supported: f32, f64, bool and integers of 8 to 64 bits are")
}

/// A finite value that has become infinite: its place in storage order and what it was.
type Overflow = (usize, f64);

/// Converts `out.len()` elements; reports the first that left the range of `T`.
fn convert<T: Real>(stored: Stored, bytes: &[u8], out: &mut [T]) -> Option<Overflow> {
    macro_rules! cast {
        ($t:ty) => {{
            let pieces = bytes.as_chunks::<{ size_of::<$t>() }>().0;
            let value = |b: &[u8; size_of::<$t>()]| {
                if stored.big_endian { <$t>::from_be_bytes(*b) } else { <$t>::from_le_bytes(*b) }
            };
            for (o, b) in out.iter_mut().zip(pieces) {
                *o = T::from(value(b)).unwrap_or_else(T::nan);
            }
            // Only f64 to f32 can overflow; every integer of 64 bits is within the range of f32.
            if (stored.kind, T::DTYPE) != (Kind::F64, Dtype::F32) {
                return None;
            }
            let overflowed = |&i: &usize| out[i].is_infinite() && (value(&pieces[i]) as f64).is_finite();
            (0..out.len().min(pieces.len())).find(overflowed).map(|i| (i, value(&pieces[i]) as f64))
        }};
    }
    match stored.kind {
        Kind::Bool => {
            for (o, &b) in out.iter_mut().zip(bytes) {
                *o = if b == 0 { T::zero() } else { T::one() };
            }
            None
        }
        Kind::U8 => cast!(u8),
        Kind::U16 => cast!(u16),
        Kind::U32 => cast!(u32),
        Kind::U64 => cast!(u64),
        Kind::I8 => cast!(i8),
        Kind::I16 => cast!(i16),
        Kind::I32 => cast!(i32),
        Kind::I64 => cast!(i64),
        Kind::F32 => cast!(f32),
        Kind::F64 => cast!(f64),
    }
}

/// Converts all elements of `bytes`, in parallel.
pub(super) fn convert_slice<T: Real>(stored: Stored, bytes: &[u8]) -> std::result::Result<Vec<T>, Overflow> {
    let mut out = vec![T::zero(); bytes.len() / stored.bytes()];
    let first = out
        .par_chunks_mut(PIECE)
        .zip(bytes.par_chunks(PIECE * stored.bytes()))
        .enumerate()
        .filter_map(|(n, (o, b))| convert(stored, b, o).map(|(i, v)| (n * PIECE + i, v)))
        .min_by_key(|&(i, _)| i);
    first.map_or(Ok(out), Err)
}

/// Reads and converts `len` elements without holding the stored bytes in memory.
pub(super) fn convert_stream<T: Real>(
    stored: Stored,
    reader: &mut impl Read,
    len: usize,
) -> std::io::Result<std::result::Result<Vec<T>, Overflow>> {
    let mut out = vec![T::zero(); len];
    let mut buffer = vec![0; PIECE.min(len) * stored.bytes()];
    let mut overflow = None;
    for (n, piece) in out.chunks_mut(PIECE).enumerate() {
        let bytes = &mut buffer[..piece.len() * stored.bytes()];
        reader.read_exact(bytes)?;
        overflow = overflow.or(convert(stored, bytes, piece).map(|(i, v)| (n * PIECE + i, v)));
    }
    Ok(overflow.map_or(Ok(out), Err))
}

/// The error for a value of `path` that does not fit `T`.
pub(super) fn overflow<T: Real>(path: &Path, value: impl std::fmt::Display, index: Vec<usize>) -> Error {
    Error::Overflow { what: format!("{}: the value {value}", path.display()), dtype: T::DTYPE.name(), index }
}

/// Parses one number; `Ok(None)` if it is a number beyond the range of `T`.
pub(super) fn parse_number<T: Real>(text: &str) -> std::result::Result<Option<T>, std::num::ParseFloatError> {
    // Straight to T: by way of f64 an f32 could be rounded twice.
    let value = match T::DTYPE {
        Dtype::F32 => T::of(f64::from(text.parse::<f32>()?)),
        Dtype::F64 => T::of(text.parse::<f64>()?),
    };
    let spelled_out = !text.contains(|c: char| c.is_ascii_digit());
    Ok((!value.is_infinite() || spelled_out).then_some(value))
}

/// Shorthand for a fallible step whose system error belongs to `path`.
pub(super) fn at<T>(path: &Path, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| Error::io(path, e))
}
