//! Options of the compiler and the linker (`CUjit_option`). Those that ask for logs are answered.
//! Of those that steer the compiler, the device gets the most registers of a thread and the level
//! of optimisation; the others have no effect.

use std::time::Instant;

use crate::boundary::{In, Out};
use crate::error::{Answer, Code};
use crate::image::Compilation;

/// Numbers of `CUjit_option`.
mod option {
    pub(super) const MAX_REGISTERS: u32 = 0;
    pub(super) const WALL_TIME: u32 = 2;
    pub(super) const INFO_BUFFER: u32 = 3;
    pub(super) const INFO_BYTES: u32 = 4;
    pub(super) const ERROR_BUFFER: u32 = 5;
    pub(super) const ERROR_BYTES: u32 = 6;
    pub(super) const OPTIMIZATION_LEVEL: u32 = 7;
    /// The last one of CUDA 13.
    pub(super) const LAST: u32 = 35;
}

/// Options of a call, at most: there are some 35.
const OPTIONS_MAX: u32 = 1024;

/// Where a caller wants to read what the compiler says, and how it is to compile.
pub(crate) struct Logs {
    pub(crate) compilation: Compilation,
    info: Log,
    error: Log,
    /// Slot for the milliseconds that the call took.
    wall_time: Option<usize>,
    start: Instant,
}

#[derive(Default)]
struct Log {
    /// Address and size in bytes of the caller's buffer.
    buffer: usize,
    room: usize,
    /// Slot with the size, for the number of bytes that were written.
    size: Option<usize>,
}

impl Log {
    fn write(&self, text: &str) -> Answer {
        let mut written = 0;
        if self.buffer != 0 && self.room != 0 {
            let end = Out::<u8>::at(self.buffer).set_text(text, self.room)?;
            written = if text.is_empty() { 0 } else { end };
        }
        match self.size {
            Some(slot) => Out::<usize>::at(slot).set(written),
            None => Ok(()),
        }
    }
}

impl Logs {
    /// Returns the logs of a call without options.
    pub(crate) fn none() -> Self {
        Self {
            compilation: Compilation::default(),
            info: Log::default(),
            error: Log::default(),
            wall_time: None,
            start: Instant::now(),
        }
    }

    /// Reads the options of a call. Each value is in a slot of the size of a pointer.
    pub(crate) fn of(count: u32, options: In<u32>, values: Out<usize>) -> Answer<Self> {
        let mut logs = Self::none();
        if count > OPTIONS_MAX {
            return Err(Code::INVALID_VALUE);
        }
        for index in 0..count as usize {
            let slot = values.address_of(index)?;
            // Sizes are 32-bit numbers.
            let value = || In::<usize>::at(slot).get();
            let number = || In::<u32>::at(slot).get();
            let size = || number().map(|bytes| bytes as usize);
            let so_far = logs.compilation;
            match options.get_at(index)? {
                option::MAX_REGISTERS => logs.compilation = so_far.registers(number()?),
                option::OPTIMIZATION_LEVEL => logs.compilation = so_far.optimization(number()?),
                option::WALL_TIME => logs.wall_time = Some(slot),
                option::INFO_BUFFER => logs.info.buffer = value()?,
                option::ERROR_BUFFER => logs.error.buffer = value()?,
                option::INFO_BYTES => (logs.info.room, logs.info.size) = (size()?, Some(slot)),
                option::ERROR_BYTES => (logs.error.room, logs.error.size) = (size()?, Some(slot)),
                known if known <= option::LAST => {}
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        let lacks_buffer = |log: &Log| log.buffer == 0 && log.room != 0;
        if lacks_buffer(&logs.info) || lacks_buffer(&logs.error) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(logs)
    }

    /// Returns whether the caller wants to read why code is refused.
    pub(crate) const fn wants_errors(&self) -> bool {
        self.error.buffer != 0
    }

    /// Writes what went wrong, or that nothing did, and how long it took.
    pub(crate) fn write(&self, errors: &str) -> Answer {
        self.info.write("")?;
        self.error.write(errors)?;
        match self.wall_time {
            Some(slot) => Out::<f32>::at(slot).set(self.start.elapsed().as_secs_f32() * 1000.0),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[u32], values: &mut [usize]) -> Answer<Logs> {
        let count = options.len() as u32;
        let options = In::at(options.as_ptr() as usize);
        Logs::of(count, options, Out::at(values.as_mut_ptr() as usize))
    }

    #[test]
    fn sizes_are_read_and_written_back() {
        let mut info = [b'?'; 16];
        let mut errors = [b'?'; 6];
        let options = [7, 4, 3, 6, 5, 2, 30];
        let (at_info, at_errors) = (info.as_mut_ptr() as usize, errors.as_mut_ptr() as usize);
        // The upper half of a size is not part of it.
        let mut values = [4, 16, at_info, 6 | 0xee << 32, at_errors, usize::MAX, 5];
        let logs = read(&options, &mut values).unwrap();
        assert!(logs.wants_errors());
        assert_eq!(logs.compilation, Compilation::default().optimization(4));
        logs.write("line 3 is wrong").unwrap();
        assert_eq!((&errors, info[0]), (b"line \0", 0));
        assert_eq!((values[1], values[3]), (0, 6));
        let milliseconds = f32::from_bits(values[5] as u32);
        assert!((0.0..1e6).contains(&milliseconds), "{milliseconds}");
        logs.write("").unwrap();
        assert_eq!((values[3], errors[0]), (0, 0));
    }

    #[test]
    fn buffers_without_a_size_stay_as_they_are() {
        let mut errors = [b'?'; 4];
        let mut values = [errors.as_mut_ptr() as usize];
        let logs = read(&[5], &mut values).unwrap();
        logs.write("text").unwrap();
        assert_eq!(&errors, b"????");
    }

    #[test]
    fn option_arrays_must_be_there() {
        assert!(Logs::of(0, In::at(0), Out::at(0)).is_ok());
        for (count, options, values) in [(1, 0, 8), (1, 8, 0), (OPTIONS_MAX + 1, 8, 8)] {
            let read = Logs::of(count, In::at(options), Out::at(values));
            assert_eq!(read.err(), Some(Code::INVALID_VALUE));
        }
    }
}
