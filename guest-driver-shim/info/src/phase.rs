//! `causeway-info phase`: marks phases for shell scripts and programs in other languages.

use causeway_shim_linux::{Phase, PhaseError, PhasePath, Totals};

/// What follows the word `phase` on the command line.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseCommand {
    /// Begin a phase of this path and name.
    Begin(PhasePath, String),
    /// End the open phase, which had these operations and bytes.
    End {
        /// Number of operations in the phase.
        operations: u64,
        /// Number of bytes that were moved in the phase.
        bytes: u64,
    },
}

impl PhaseCommand {
    /// Parses the words after `phase`.
    ///
    /// # Errors
    /// A message that names what is wrong.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        match words {
            ["begin", words @ ..] => begin(words),
            ["end", words @ ..] => end(words),
            [other, ..] => Err(format!("invalid word `{other}` after phase: begin or end")),
            [] => Err(String::from("phase needs a word: begin or end")),
        }
    }

    /// Makes the mark.
    ///
    /// # Errors
    /// [`PhaseError`] if this machine is no guest that can mark phases, or no phase is open.
    pub fn carry_out(self) -> Result<(), PhaseError> {
        match self {
            // The phase goes on when this program has ended.
            Self::Begin(path, name) => Phase::begin(path, &name).map(drop),
            Self::End { operations, bytes } => Phase::adopt()?.end(Totals {
                operations,
                bytes,
                doorbells: 0,
            }),
        }
    }
}

fn begin(words: &[&str]) -> Result<PhaseCommand, String> {
    let (path, name) = match words {
        ["--path", path, name] => (self::path(path)?, name),
        [name] if !name.starts_with("--") => (PhasePath::Data, name),
        _ => return Err(String::from("phase begin needs one name")),
    };
    Ok(PhaseCommand::Begin(path, (*name).to_owned()))
}

fn path(word: &str) -> Result<PhasePath, String> {
    match word {
        "setup" => Ok(PhasePath::Setup),
        "control" => Ok(PhasePath::Control),
        "data" => Ok(PhasePath::Data),
        other => Err(format!(
            "invalid value {other} for --path: choose setup, control or data"
        )),
    }
}

fn end(words: &[&str]) -> Result<PhaseCommand, String> {
    let (mut operations, mut bytes) = (0, 0);
    for pair in words.chunks(2) {
        let (figure, value) = match pair {
            ["--operations", value] => (&mut operations, value),
            ["--bytes", value] => (&mut bytes, value),
            [other, ..] => {
                return Err(format!(
                    "invalid word `{other}` after phase end: --operations N or --bytes N"
                ));
            }
            [] => continue,
        };
        let invalid = |_| format!("invalid value {value} for {}: a whole number", pair[0]);
        *figure = value.parse().map_err(invalid)?;
    }
    Ok(PhaseCommand::End { operations, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PhaseCommand, String> {
        PhaseCommand::parse(&text.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn a_phase_is_of_the_data_path_unless_it_is_said_otherwise() {
        let begin = |path, name: &str| Ok(PhaseCommand::Begin(path, name.to_owned()));
        assert_eq!(parse("begin loads"), begin(PhasePath::Data, "loads"));
        let control = parse("begin --path control maps");
        assert_eq!(control, begin(PhasePath::Control, "maps"));
        let none = PhaseCommand::End {
            operations: 0,
            bytes: 0,
        };
        assert_eq!(parse("end"), Ok(none));
        let some = PhaseCommand::End {
            operations: 7,
            bytes: 56,
        };
        assert_eq!(parse("end --bytes 56 --operations 7"), Ok(some));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "begin or end"),
            ("start", "`start`"),
            ("begin", "one name"),
            ("begin --path", "one name"),
            ("begin a b", "one name"),
            ("begin --path fast a", "invalid value fast for --path"),
            ("end 7", "`7`"),
            ("end --operations", "`--operations`"),
            ("end --operations -1", "invalid value -1 for --operations"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
