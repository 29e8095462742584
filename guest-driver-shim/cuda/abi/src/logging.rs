//! The log of a library that programs load, such as `libcuda`.
//!
//! | environment variable | meaning | usually |
//! |---|---|---|
//! | `CAUSEWAY_CUDA_LOG` | file to which lines are appended, or `stderr` or `-` | standard error, errors only |
//! | `CAUSEWAY_CUDA_LOG_LEVEL` | `off`, `error`, `warn`, `info`, `debug` or `trace` | `warn`; `error` without `CAUSEWAY_CUDA_LOG` |
//!
//! An error is what the user of a program must know, because no result of a call says it. What a
//! program lacks is a warning.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record};

/// Names of the environment variables.
const PLACE: &str = "CAUSEWAY_CUDA_LOG";
const LEVEL: &str = "CAUSEWAY_CUDA_LOG_LEVEL";

/// Where lines go, and from which level on.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    /// Path of the file; `None` for standard error.
    file: Option<String>,
    level: LevelFilter,
}

struct Logger {
    /// The library that writes.
    library: &'static str,
    /// `None` for standard error.
    file: Option<File>,
}

/// Starts the log of `library`, unless it has been started before.
pub fn start(library: &'static str) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let value = |name| std::env::var(name).ok();
        let settings = Settings::of(value(PLACE), value(LEVEL));
        let logger = Box::leak(Box::new(Logger::open(library, &settings)));
        // Fails where the program that links this library as a crate has a logger.
        if log::set_logger(logger).is_ok() {
            log::set_max_level(settings.level);
        }
    });
}

impl Settings {
    fn of(place: Option<String>, level: Option<String>) -> Self {
        let place = place.filter(|place| !place.is_empty());
        let usual = match place {
            Some(_) => LevelFilter::Warn,
            None => LevelFilter::Error,
        };
        let level = level.and_then(|level| level.parse().ok());
        Self {
            file: place.filter(|place| place != "-" && place != "stderr"),
            level: level.unwrap_or(usual),
        }
    }
}

impl Logger {
    /// Opens the file, if there is to be one. Lines go to standard error if that fails.
    fn open(library: &'static str, settings: &Settings) -> Self {
        let logger = Self {
            library,
            file: None,
        };
        let Some(path) = &settings.file else {
            return logger;
        };
        match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Self {
                file: Some(file),
                ..logger
            },
            Err(error) => {
                logger.write(
                    "error",
                    &format!("cannot append to {PLACE}={path}: {error}"),
                );
                logger
            }
        }
    }

    /// Writes one line, in one piece, because other threads and processes may write, too.
    fn write(&self, level: &str, text: &str) {
        let line = line(self.library, level, text);
        // There is nobody to tell that the log cannot be written.
        let _ = match &self.file {
            Some(file) => (&*file).write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_ascii_lowercase();
            self.write(&level, &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Returns a line of the log. Line breaks in `text`, which may be a program's, are escaped.
fn line(library: &str, level: &str, text: &str) -> String {
    let text = text.replace('\n', "\\n").replace('\r', "\\r");
    format!("{library}: {level}: {text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_variables_only_errors_are_written_to_standard_error() {
        let settings = |place: Option<&str>, level: Option<&str>| {
            Settings::of(place.map(str::to_owned), level.map(str::to_owned))
        };
        let wanted = |file: Option<&str>, level| Settings {
            file: file.map(str::to_owned),
            level,
        };
        assert_eq!(settings(None, None), wanted(None, LevelFilter::Error));
        assert_eq!(settings(Some(""), None), wanted(None, LevelFilter::Error));
        for place in ["-", "stderr"] {
            let found = settings(Some(place), None);
            assert_eq!(found, wanted(None, LevelFilter::Warn));
        }
        let found = settings(Some("/a/log"), Some("DEBUG"));
        assert_eq!(found, wanted(Some("/a/log"), LevelFilter::Debug));
        let found = settings(Some("log"), Some("loud"));
        assert_eq!(found, wanted(Some("log"), LevelFilter::Warn));
        assert_eq!(settings(None, Some("off")).level, LevelFilter::Off);
    }

    #[test]
    fn a_line_stays_one_line() {
        let line = line("libcuda", "warn", "kernel a\nlibcuda: error: b\r");
        assert_eq!(line, "libcuda: warn: kernel a\\nlibcuda: error: b\\r\n");
    }
}
