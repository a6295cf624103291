//! The .npy header. Parsed here rather than by a general Python parser: a file may hold anything, and
//! neither deep nesting nor a huge length in it may take the stack or the memory.

use super::dtype::{Stored, at};
use crate::{Error, Result, Shape};
use std::io::Read;
use std::path::Path;

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest header text accepted; NumPy itself stops at 10000 characters.
const MAX_TEXT: usize = 1 << 16;

/// What a .npy file says about its data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Header {
    pub stored: Stored,
    pub fortran: bool,
    pub shape: Shape,
    /// Byte at which the data start.
    pub start: u64,
}

impl Header {
    /// Reads the header of a .npy of `total` bytes and checks that the data are exactly the rest.
    pub fn read(path: &Path, reader: &mut impl Read, total: u64) -> Result<Self> {
        let short =
            |needed: u64| Error::format(path, format!("the .npy header needs {needed} bytes, the file has {total}"));
        let mut fixed = [0; 8];
        if total < 10 {
            return Err(short(10));
        }
        at(path, reader.read_exact(&mut fixed))?;
        if !fixed.starts_with(MAGIC) {
            return Err(Error::format(path, "not a .npy file: its first 6 bytes are not \\x93NUMPY"));
        }
        let (major, minor) = (fixed[6], fixed[7]);
        let (prefix, length) = match (major, minor) {
            (1, 0) => {
                let mut bytes = [0; 2];
                at(path, reader.read_exact(&mut bytes))?;
                (10, u64::from(u16::from_le_bytes(bytes)))
            }
            (2 | 3, 0) if total < 12 => return Err(short(12)),
            (2 | 3, 0) => {
                let mut bytes = [0; 4];
                at(path, reader.read_exact(&mut bytes))?;
                (12, u64::from(u32::from_le_bytes(bytes)))
            }
            _ => {
                let reason = format!("version {major}.{minor} of the .npy format is not supported (1.0 to 3.0 are)");
                return Err(Error::format(path, reason));
            }
        };
        let start = prefix + length;
        if start > total {
            return Err(short(start));
        }
        if length > MAX_TEXT as u64 {
            return Err(Error::format(
                path,
                format!("the .npy header has {length} bytes, at most {MAX_TEXT} are read"),
            ));
        }
        let mut text = vec![0; length as usize];
        at(path, reader.read_exact(&mut text))?;
        let fields = Parser { text: &text, place: 0 }
            .fields()
            .map_err(|e| Error::format(path, format!("in the .npy header, {e}")))?;
        let stored = Stored::parse(&fields.descr).map_err(|e| Error::format(path, e))?;
        let shape = Shape::new(&fields.dims)?;
        let header = Self { stored, fortran: fields.fortran, shape, start };
        let found = total - start;
        if found != header.data_bytes() {
            let fault = if found < header.data_bytes() { "the data are cut short" } else { "bytes trail the data" };
            let (promised, dims) = (header.data_bytes(), crate::error::show(&header.shape));
            let reason = format!(
                "{fault}: dims {dims} of {} take {promised} bytes, {found} follow the header of {start} bytes",
                stored.name()
            );
            return Err(Error::format(path, reason));
        }
        Ok(header)
    }

    pub fn data_bytes(&self) -> u64 {
        // Shape has made sure that 8 bytes an entry can be addressed.
        self.shape.len() as u64 * self.stored.bytes() as u64
    }

    /// The index of the entry at a place in storage order.
    pub fn index(&self, place: usize) -> Vec<usize> {
        if self.fortran { super::column_major_index(&self.shape, place) } else { self.shape.index(place) }
    }
}

#[derive(Debug)]
struct Fields {
    descr: String,
    fortran: bool,
    dims: Vec<usize>,
}

/// A parser for the one dictionary that a header is.
struct Parser<'a> {
    text: &'a [u8],
    place: usize,
}

type Parsed<T> = std::result::Result<T, String>;

impl Parser<'_> {
    fn fields(mut self) -> Parsed<Fields> {
        let (mut descr, mut fortran, mut dims) = (None, None, None);
        self.expect(b'{')?;
        while !self.accept(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            match key.as_str() {
                "descr" => descr = Some(self.descr()?),
                "fortran_order" => fortran = Some(self.boolean()?),
                "shape" => dims = Some(self.dims()?),
                _ => return Err(format!("the key {key:?} is unknown")),
            }
            if !self.accept(b',') && self.peek() != Some(b'}') {
                return Err(self.fault("',' or '}'"));
            }
        }
        if self.peek().is_some() {
            return Err(self.fault("the end"));
        }
        Ok(Fields {
            descr: descr.ok_or("the key \"descr\" is missing")?,
            fortran: fortran.ok_or("the key \"fortran_order\" is missing")?,
            dims: dims.ok_or("the key \"shape\" is missing")?,
        })
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.place).is_some_and(u8::is_ascii_whitespace) {
            self.place += 1;
        }
        self.text.get(self.place).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let same = self.peek() == Some(byte);
        self.place += usize::from(same);
        same
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.accept(byte) { Ok(()) } else { Err(self.fault(&format!("{:?}", char::from(byte)))) }
    }

    fn fault(&self, wanted: &str) -> String {
        match self.text.get(self.place) {
            Some(b) => format!("byte {} is {:?} where {wanted} belongs", self.place, char::from(*b)),
            None => format!("{wanted} is missing at the end"),
        }
    }

    fn take_while(&mut self, keep: impl Fn(u8) -> bool) -> String {
        let rest = &self.text[self.place..];
        let n = rest.iter().position(|&b| !keep(b)).unwrap_or(rest.len());
        self.place += n;
        String::from_utf8_lossy(&rest[..n]).into_owned()
    }

    fn string(&mut self) -> Parsed<String> {
        let quote = match self.peek() {
            Some(q @ (b'\'' | b'"')) => q,
            _ => return Err(self.fault("a string")),
        };
        self.place += 1;
        let value = self.take_while(|b| b != quote);
        self.expect(quote)?;
        Ok(value)
    }

    fn descr(&mut self) -> Parsed<String> {
        if matches!(self.peek(), Some(b'[' | b'(')) {
            let shown: String = String::from_utf8_lossy(&self.text[self.place..]).chars().take(40).collect();
            return Err(format!("a structured dtype ({shown} ..) is not supported: f32, f64, bool and integers are"));
        }
        self.string()
    }

    fn boolean(&mut self) -> Parsed<bool> {
        self.peek();
        let from = self.place;
        match self.take_while(|b| b.is_ascii_alphabetic()).as_str() {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => {
                self.place = from;
                Err(self.fault("True or False"))
            }
        }
    }

    fn dims(&mut self) -> Parsed<Vec<usize>> {
        let mut dims = Vec::new();
        self.expect(b'(')?;
        while !self.accept(b')') {
            self.peek();
            let digits = self.take_while(|b| b.is_ascii_digit());
            if digits.is_empty() {
                return Err(self.fault("a dim"));
            }
            dims.push(digits.parse().map_err(|_| format!("the dim {digits} is too large"))?);
            // Python 2 wrote long integers as 3L.
            self.accept(b'L');
            if !self.accept(b',') && self.peek() != Some(b')') {
                return Err(self.fault("',' or ')'"));
            }
        }
        Ok(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Parsed<Fields> {
        Parser { text: text.as_bytes(), place: 0 }.fields()
    }

    #[test]
    fn reads_what_numpy_writes_and_old_spellings() {
        let f = fields("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }   \n").unwrap();
        assert_eq!((f.descr.as_str(), f.fortran, f.dims), ("<f8", false, vec![3, 4]));
        let f = fields("{\"shape\":(3L,),\"fortran_order\":True,\"descr\":\"|u1\"}").unwrap();
        assert_eq!((f.descr.as_str(), f.fortran, f.dims), ("|u1", true, vec![3]));
        assert_eq!(fields("{'descr': '<f8', 'fortran_order': False, 'shape': ()}").unwrap().dims, Vec::<usize>::new());
    }

    #[test]
    fn says_where_the_header_is_wrong() {
        assert_eq!(fields("{'descr': '<f8', 'shape': (3,)}").unwrap_err(), "the key \"fortran_order\" is missing");
        assert_eq!(fields("{'shape': (-3,)}").unwrap_err(), "byte 11 is '-' where a dim belongs");
        assert_eq!(fields("{'shape': (3").unwrap_err(), "',' or ')' is missing at the end");
        assert!(fields("{'descr': [('a', '<f8')], ").unwrap_err().starts_with("a structured dtype ([('a', '<f8')]"));
        assert!(fields(&"(".repeat(60000)).is_err());
    }
}
