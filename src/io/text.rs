//! Tensor Toolbox text: words separated by white space, `//` comments, and the dense tensor format.
//!
//! ```text
//! // comment
//! tensor
//! 3                order
//! 4 3 2            dims
//! 8.58e-01         values, first index fastest
//! ..
//! ```

use super::data::TensorData;
use super::dtype::{overflow, parse_number};
use crate::{Error, Real, Result, Shape};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A word longer than this is no number.
const MAX_WORD: usize = 1024;

/// The words of a text file, with their line numbers, read as a stream.
pub(super) struct Words<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    file_bytes: u64,
    word: Vec<u8>,
    /// Line of `word`, from 1.
    line: usize,
    /// `word` has been looked at but not taken.
    held: bool,
}

impl<'a> Words<'a> {
    pub fn open(path: &'a Path) -> Result<Self> {
        let (file, file_bytes) = super::open(path)?;
        let reader = BufReader::with_capacity(1 << 16, file);
        Ok(Self { path, reader, file_bytes, word: Vec::new(), line: 1, held: false })
    }

    /// Moves to the next word; false at the end of the file.
    fn advance(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.held) {
            return Ok(true);
        }
        self.word.clear();
        let mut comment = false;
        loop {
            let bytes = self.reader.fill_buf().map_err(|e| Error::io(self.path, e))?;
            if bytes.is_empty() {
                return Ok(!self.word.is_empty());
            }
            let mut used = 0;
            while used < bytes.len() && (self.word.is_empty() || !bytes[used].is_ascii_whitespace()) {
                let rest = &bytes[used..];
                if comment || rest[0].is_ascii_whitespace() {
                    used += 1;
                    if rest[0] == b'\n' {
                        self.line += 1;
                        comment = false;
                    }
                    continue;
                }
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                // Longer words are cut to a length that still tells them from numbers.
                let room = (MAX_WORD + 1).saturating_sub(self.word.len());
                self.word.extend_from_slice(&rest[..end.min(room)]);
                used += end;
                if self.word.starts_with(b"//") {
                    comment = true;
                    self.word.clear();
                }
            }
            // The space after a word stays unread, so that `line` is still that of the word.
            let whole = used < bytes.len();
            self.reader.consume(used);
            if whole {
                return Ok(true);
            }
        }
    }

    pub fn fault(&self, reason: impl std::fmt::Display) -> Error {
        Error::format(self.path, reason)
    }

    pub fn fault_here(&self, reason: impl std::fmt::Display) -> Error {
        self.fault(format!("line {}: {reason}", self.line))
    }

    /// The current word for a message.
    fn shown(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.word).chars().take(40).collect();
        format!("{text:?}")
    }

    fn next_or_end(&mut self, wanted: &str) -> Result<()> {
        if self.advance()? { Ok(()) } else { Err(self.fault(format!("the file ends before {wanted}"))) }
    }

    /// Reads the header word; the rest of its line is free text.
    pub fn header(&mut self, wanted: &str) -> Result<()> {
        self.next_or_end(&format!("the header {wanted:?}"))?;
        if self.word == wanted.as_bytes() {
            let line = self.line;
            while self.advance()? {
                if self.line != line {
                    self.held = true;
                    break;
                }
            }
            return Ok(());
        }
        Err(match self.word.as_slice() {
            b"sptensor" => self.fault_here("an sptensor is sparse: write it dense, as export_data(full(X)) does"),
            b"ktensor" => self.fault_here("a ktensor is a model, not a dense tensor"),
            _ => self.fault_here(format!("the header is {}, not {wanted:?}", self.shown())),
        })
    }

    pub fn whole_number(&mut self, wanted: &str) -> Result<usize> {
        self.next_or_end(wanted)?;
        let text = std::str::from_utf8(&self.word).ok();
        match text.and_then(|t| t.parse().ok()) {
            Some(n) => Ok(n),
            None => Err(self.fault_here(format!("{} is not {wanted} (a whole number)", self.shown()))),
        }
    }

    /// Reads the order and the line of dims.
    pub fn dims(&mut self) -> Result<Vec<usize>> {
        let order = self.whole_number("the order")?;
        if order == 0 || order > crate::MAX_ORDER {
            return Err(Error::Order { found: order, max: crate::MAX_ORDER });
        }
        let mut dims = vec![self.whole_number("the dims")?];
        let line = self.line;
        while self.advance()? {
            self.held = true;
            if self.line != line {
                break;
            }
            dims.push(self.whole_number("a dim")?);
        }
        if dims.len() != order {
            return Err(self.fault(format!("line {line}: {} dims where the order is {order}", dims.len())));
        }
        Ok(dims)
    }

    /// Reads exactly `count` numbers. `index` gives the index of a place for the overflow message.
    pub fn values<T: Real>(&mut self, what: &str, count: usize, index: impl Fn(usize) -> Vec<usize>) -> Result<Vec<T>> {
        // A number and its separator take two bytes, so a small file cannot make a large allocation.
        let mut values = Vec::with_capacity(count.min((self.file_bytes / 2 + 1) as usize));
        while values.len() < count {
            if !self.advance()? {
                return Err(
                    self.fault(format!("{what} must have {count} values, the file ends after {}", values.len()))
                );
            }
            let text = std::str::from_utf8(&self.word).ok().filter(|t| t.len() <= MAX_WORD);
            match text.and_then(|t| parse_number(t).ok()) {
                Some(Some(v)) => values.push(v),
                Some(None) => return Err(overflow::<T>(self.path, self.shown(), index(values.len()))),
                None => return Err(self.fault_here(format!("{} is not a number", self.shown()))),
            }
        }
        Ok(values)
    }

    /// Errors if words are left.
    pub fn end(&mut self, what: &str, count: usize) -> Result<()> {
        let mut more = 0usize;
        let mut first = 0;
        while self.advance()? {
            if more == 0 {
                first = self.line;
            }
            more += 1;
        }
        if more > 0 {
            let found = count + more;
            return Err(
                self.fault(format!("{what} must have {count} values, the file has {found} (from line {first} on)"))
            );
        }
        Ok(())
    }
}

/// The dims of a text tensor.
pub(super) fn read_shape(path: &Path) -> Result<Shape> {
    let mut words = Words::open(path)?;
    words.header("tensor")?;
    Shape::new(&words.dims()?)
}

/// The entries of a text tensor, in the column-major order of the file.
pub(super) fn read_tensor<T: Real>(path: &Path) -> Result<TensorData<T>> {
    let mut words = Words::open(path)?;
    words.header("tensor")?;
    let shape = Shape::new(&words.dims()?)?;
    let what = format!("a tensor with dims {}", crate::error::show(&shape));
    let values = words.values(&what, shape.len(), |place| super::column_major_index(&shape, place))?;
    words.end(&what, shape.len())?;
    TensorData::from_column_major(path, &shape, values)
}
