//! What stands behind the name of an image: `FILE[,ro][,format=FORMAT][,backing]`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The guest may only read the image.
const READ_ONLY: &[u8] = b",ro";
/// The image's backing files are opened, too.
const BACKING: &[u8] = b",backing";
/// Before the name of a format.
const FORMAT: &[u8] = b",format=";
/// Formats of images, by name.
const FORMATS: [(&[u8], Format); 2] = [
    (b"raw", Format::Raw),
    (b"qcow2", Format::Qcow2 { backing: false }),
];

/// How a file contains a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Nobody has said. It is raw: the guest of a raw image can write any beginning to it, so the
    /// beginning says nothing.
    #[default]
    Unstated,
    /// Byte for byte.
    Raw,
    /// As QEMU's format has it.
    Qcow2 {
        /// It may have a backing file.
        backing: bool,
    },
}

/// What stands behind the name of an image, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageOptions {
    /// The guest may only read it.
    pub read_only: bool,
    /// How the file contains the disk.
    pub format: Format,
}

impl ImageOptions {
    /// Splits the value of an option into the path of an image and what stands behind it.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn split(text: &OsStr) -> Result<(&Path, Self), &'static str> {
        let (mut path, mut options, mut is_backed) = (text.as_bytes(), Self::default(), false);
        loop {
            if let Some(rest) = path.strip_suffix(READ_ONLY) {
                (path, options.read_only) = (rest, true);
            } else if let Some(rest) = path.strip_suffix(BACKING) {
                (path, is_backed) = (rest, true);
            } else if let Some((rest, format)) = format_behind(path)? {
                if options.format != Format::Unstated {
                    return Err("it states two formats");
                }
                (path, options.format) = (rest, format);
            } else {
                break;
            }
        }
        match (&mut options.format, is_backed) {
            (_, false) => {}
            (Format::Qcow2 { backing }, true) => *backing = true,
            _ => return Err("only images with ,format=qcow2 have backing files"),
        }
        Ok((Path::new(OsStr::from_bytes(path)), options))
    }

    /// Returns the text that [`Self::split`] reads so.
    pub fn suffix(&self) -> String {
        let format = match self.format {
            Format::Unstated => "",
            Format::Raw => ",format=raw",
            Format::Qcow2 { backing: false } => ",format=qcow2",
            Format::Qcow2 { backing: true } => ",format=qcow2,backing",
        };
        let read_only = if self.read_only { ",ro" } else { "" };
        format!("{format}{read_only}")
    }
}

/// Splits the format off that stands last.
fn format_behind(text: &[u8]) -> Result<Option<(&[u8], Format)>, &'static str> {
    let at = text.windows(FORMAT.len()).rposition(|part| part == FORMAT);
    let Some(at) = at else { return Ok(None) };
    let name = &text[at + FORMAT.len()..];
    let known = FORMATS.iter().find(|(known, _)| *known == name);
    match known {
        Some((_, format)) => Ok(Some((&text[..at], *format))),
        // A folder can be called so.
        None if name.contains(&b'/') => Ok(None),
        None => Err("the formats are raw and qcow2; behind them can only be ,ro and ,backing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn the_format_stands_behind_the_name_in_any_order() {
        let split = |text: &'static str| ImageOptions::split(OsStr::new(text));
        let qcow2 = |backing| Format::Qcow2 { backing };
        for (text, path, read_only, format) in [
            ("x", "x", false, Format::Unstated),
            ("x,y,ro", "x,y", true, Format::Unstated),
            ("x,format=raw", "x", false, Format::Raw),
            ("x,ro,format=qcow2", "x", true, qcow2(false)),
            ("x,backing,format=qcow2,ro", "x", true, qcow2(true)),
            (",format=x/y", ",format=x/y", false, Format::Unstated),
        ] {
            let (found, options) = split(text).unwrap();
            assert_eq!((found, options.read_only), (Path::new(path), read_only));
            assert_eq!(options.format, format, "{text}");
            let again = OsString::from(format!("{path}{}", options.suffix()));
            assert_eq!(ImageOptions::split(&again).unwrap(), (found, options));
        }
        for (text, part) in [
            ("x,format=vmdk", "raw and qcow2"),
            ("x,format=raw,rw", "raw and qcow2"),
            ("x,backing", "format=qcow2"),
            ("x,format=raw,format=qcow2", "two formats"),
            ("x,format=raw,backing", "format=qcow2"),
        ] {
            let told = split(text).unwrap_err();
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
