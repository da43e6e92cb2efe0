//! A file read sequentially, with its current offset.

use std::io::{self, Read};

use super::CaptureError;

pub(super) struct Source<R> {
    reader: R,
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, offset: 0 }
    }

    /// Offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills `buffer`. Reads fewer bytes only at the end of the file.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, CaptureError> {
        let mut length = 0;
        while length < buffer.len() {
            match self.reader.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(read) => {
                    length += read;
                    self.offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(CaptureError::Read {
                        offset: self.offset,
                        source,
                    });
                }
            }
        }
        Ok(length)
    }

    /// Fills `buffer` completely. For the error, `start` is the offset of the item to read, and
    /// `what` describes the item and its length.
    pub(super) fn read_all(
        &mut self,
        buffer: &mut [u8],
        start: u64,
        what: impl FnOnce() -> String,
    ) -> Result<(), CaptureError> {
        if self.read(buffer)? == buffer.len() {
            Ok(())
        } else {
            Err(self.cut_short(start, &what()))
        }
    }

    /// Skips `length` bytes.
    pub(super) fn skip(
        &mut self,
        length: u64,
        start: u64,
        what: impl FnOnce() -> String,
    ) -> Result<(), CaptureError> {
        let mut rest = length;
        let mut waste = [0; 4096];
        while rest > 0 {
            let wanted = rest.min(waste.len() as u64) as usize;
            let read = self.read(&mut waste[..wanted])?;
            if read < wanted {
                return Err(self.cut_short(start, &what()));
            }
            rest -= read as u64;
        }
        Ok(())
    }

    fn cut_short(&self, start: u64, what: &str) -> CaptureError {
        CaptureError::damaged(
            start,
            format!(
                "{what} begins here, but the file ends at byte {}",
                self.offset
            ),
        )
    }
}
