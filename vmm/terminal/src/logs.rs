//! Log lines: which of them go to standard error and to the file of `--log-file`, and how they
//! look.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use env_logger::{Builder, Logger, Target};
use log::{Level, Log, Metadata, Record};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::escape::escaped;
use crate::failure::{Code, Failure};
use crate::limit::{Admission, BURST, Limit, PAUSE};
use crate::output::write_error;
use crate::time::utc_text;

/// Target of records whose text standard error has already, as a message: they go to the file only.
pub const PRINTED: &str = "causeway_printed";
/// The settings that [`start_logging`] was called with.
static SETTINGS: OnceLock<LogSettings> = OnceLock::new();

/// What the user wants to see of the log: the options `-v`, `-q` and `--log-file`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// How often `-v` was given: 1 for info lines, 2 for debug lines, more for trace lines.
    pub verbose: u8,
    /// How often `-q` was given: 1 for errors only, more for nothing.
    pub quiet: u8,
    /// File to which log lines are appended; `None` for no file.
    pub file: Option<PathBuf>,
}

/// Makes log records go to standard error, one line each, in the form of the command's other
/// messages, and to the file of `settings` if it names one. Without `-v` and `-q`, the environment
/// variable `RUST_LOG` sets the level of both; without that, standard error gets errors and
/// warnings, and the file also gets info lines. Only the first call has an effect.
///
/// # Errors
/// A failure with [`Code::Report`] if the file cannot be opened.
pub fn start_logging(settings: LogSettings) -> Result<(), Failure> {
    let environment = std::env::var("RUST_LOG").ok();
    let file = settings.file.as_deref().map(open).transpose()?;
    let logs = Logs {
        error: logger(
            &settings.error_filters(environment.as_deref()),
            Target::Pipe(Box::new(StandardError)),
            match settings.verbose {
                0 => Style::Plain,
                _ => Style::Timed,
            },
        ),
        file: file.map(|file| {
            let filters = settings.file_filters(environment.as_deref());
            logger(&filters, Target::Pipe(Box::new(file)), Style::Complete)
        }),
        limit: Limit::default(),
    };
    let level = logs.all().map(Logger::filter).max();
    if log::set_boxed_logger(Box::new(logs)).is_ok() {
        log::set_max_level(level.unwrap_or(log::LevelFilter::Off));
        let _ = SETTINGS.set(settings);
        log::info!("Causeway {} starts: {}", env!("CARGO_PKG_VERSION"), typed());
    }
    Ok(())
}

/// Returns the options by which another process of this program logs in the same way.
pub fn log_arguments() -> Vec<OsString> {
    SETTINGS.get().map_or_else(Vec::new, LogSettings::arguments)
}

impl LogSettings {
    fn arguments(&self) -> Vec<OsString> {
        let verbose = (0..self.verbose).map(|_| OsString::from("-v"));
        let quiet = (0..self.quiet).map(|_| OsString::from("-q"));
        let file = self.file.iter();
        let file = file.flat_map(|file| [OsString::from("--log-file"), file.into()]);
        verbose.chain(quiet).chain(file).collect()
    }

    /// Returns the filters of standard error, in the syntax of `RUST_LOG`.
    fn error_filters(&self, environment: Option<&str>) -> String {
        match (self.verbose, self.quiet) {
            (0, 0) => filters(environment, "warn"),
            (0, 1) => filters(None, "error"),
            (0, _) => filters(None, "off"),
            (verbose, _) => filters(None, verbose_level(verbose)),
        }
    }

    /// Returns the filters of the file. `-q` is about standard error only.
    fn file_filters(&self, environment: Option<&str>) -> String {
        match self.verbose {
            0 => filters(environment, "info"),
            verbose => filters(None, verbose_level(verbose)),
        }
    }
}

/// Returns the arguments of this process, with everything escaped that is not to be printed.
fn typed() -> String {
    let arguments = std::env::args_os().skip(1);
    let shown = arguments.map(|a| escaped(&a.to_string_lossy()).into_owned());
    shown.collect::<Vec<_>>().join(" ")
}

fn verbose_level(verbose: u8) -> &'static str {
    match verbose {
        1 => "info",
        2 => "debug",
        _ => "trace",
    }
}

fn filters(environment: Option<&str>, level: &str) -> String {
    // vfio-ioctls warns about features that a device lacks, and about errors that Causeway reports
    // itself.
    environment.map_or_else(|| format!("{level},vfio_ioctls=off"), str::to_owned)
}

/// What a line says beside its level, thread and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Nothing.
    Plain,
    /// The time.
    Timed,
    /// The time and the process, for a file to which several processes write.
    Complete,
}

fn logger(filters: &str, target: Target, style: Style) -> Logger {
    Builder::new()
        .parse_filters(filters)
        .format(move |out, record| {
            let thread = std::thread::current();
            let line = line(style, SystemTime::now(), thread.name(), record);
            out.write_all(line.as_bytes())
        })
        .target(target)
        .build()
}

/// Returns the line of a record: `causeway: LEVEL: THREAD: TEXT`, with what `style` adds. The
/// name of a thread contains the name of the VM that the thread works for.
fn line(style: Style, time: SystemTime, thread: Option<&str>, record: &Record<'_>) -> String {
    let begin = match style {
        Style::Plain => "causeway".to_owned(),
        Style::Timed => format!("causeway: {}", utc_text(time)),
        Style::Complete => format!("{} causeway[{}]", utc_text(time), std::process::id()),
    };
    let thread = thread.filter(|thread| *thread != "main");
    let thread = thread.map_or_else(String::new, |thread| format!("{thread}: "));
    let level = level(record.level());
    let text = record.args().to_string();
    format!("{begin}: {level}: {thread}{}\n", escaped(&text))
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// Opens a file to which each line is appended as a whole, whatever other processes append. Does
/// not wait for the reader of a pipe, which may never come. Does not follow a symbolic link: in a
/// directory of several users, another user could make this process append to any file.
fn open(path: &Path) -> Result<File, Failure> {
    let failed = |e: io::Error| {
        let takes = match e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            true => "it is a symbolic link, and --log-file follows none: name the file itself",
            false => "--log-file takes a file in a writable directory",
        };
        let message = format!("cannot write the log file {} ({takes})", path.display());
        Failure::new(Code::Report, message, e)
    };
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        // The log has command lines and what guests print: nothing for other users.
        .mode(0o600)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed())
        .open(path)
        .map_err(failed)?;
    rustix::fs::fcntl_getfl(&file)
        .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK))
        .map_err(|e| failed(e.into()))?;
    Ok(file)
}

/// Hands records to standard error and to the file, each with its own filter, but not more from one
/// place of the program than `limit` allows.
struct Logs {
    error: Logger,
    file: Option<Logger>,
    limit: Limit,
}

impl Logs {
    fn all(&self) -> impl Iterator<Item = &Logger> {
        std::iter::once(&self.error).chain(&self.file)
    }

    fn hand_on(&self, record: &Record<'_>) {
        if record.target() != PRINTED {
            self.error.log(record);
        }
        if let Some(file) = &self.file {
            file.log(record);
        }
    }
}

impl Log for Logs {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.all().any(|logger| logger.enabled(metadata))
    }

    fn log(&self, record: &Record<'_>) {
        if !self.all().any(|logger| logger.matches(record)) {
            return;
        }
        let note = match self.limit.admit(record, Instant::now()) {
            Admission::Whole => return self.hand_on(record),
            Admission::LeftOut => return,
            Admission::Last => format!(
                "{BURST} lines from this place of the program; from now on one in {} s at most",
                PAUSE.as_secs()
            ),
            Admission::After(left_out) => format!("{left_out} lines like this were left out"),
        };
        let text = format_args!("{text} ({note})", text = record.args());
        let metadata = record.metadata().clone();
        self.hand_on(&Record::builder().metadata(metadata).args(text).build());
    }

    fn flush(&self) {
        self.all().for_each(Log::flush);
    }
}

/// Writes log records to standard error. The logger writes each record at once.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_error(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, UNIX_EPOCH};

    fn settings(verbose: u8, quiet: u8) -> LogSettings {
        LogSettings {
            verbose,
            quiet,
            file: None,
        }
    }

    #[test]
    fn options_come_before_the_environment_and_the_file_has_info_lines() {
        for (verbose, quiet, environment, error, file) in [
            (0, 0, None, "warn", "info"),
            (1, 0, None, "info", "info"),
            (2, 0, None, "debug", "debug"),
            (3, 0, Some("error"), "trace", "trace"),
            (0, 1, None, "error", "info"),
            (0, 2, None, "off", "info"),
        ] {
            let settings = settings(verbose, quiet);
            let all = |level: &str| format!("{level},vfio_ioctls=off");
            assert_eq!(settings.error_filters(environment), all(error));
            assert_eq!(settings.file_filters(environment), all(file));
        }
        let set = Some("causeway_vmm=debug");
        assert_eq!(settings(0, 0).error_filters(set), "causeway_vmm=debug");
        assert_eq!(settings(0, 0).file_filters(set), "causeway_vmm=debug");
        assert_eq!(settings(0, 1).error_filters(set), "error,vfio_ioctls=off");
    }

    #[test]
    fn another_process_gets_the_same_options() {
        assert!(LogSettings::default().arguments().is_empty());
        let settings = LogSettings {
            file: Some("a log".into()),
            ..settings(2, 0)
        };
        assert_eq!(settings.arguments(), ["-v", "-v", "--log-file", "a log"]);
        assert_eq!(super::tests::settings(0, 1).arguments(), ["-q"]);
    }

    #[test]
    fn lines_have_a_level_and_say_whom_they_are_about() {
        let time = UNIX_EPOCH + Duration::from_micros(1);
        let shown = |style, thread| {
            let mut record = Record::builder();
            let record = record.level(Level::Warn);
            line(
                style,
                time,
                thread,
                &record.args(format_args!("text")).build(),
            )
        };
        let of_vcpu = Some("vm0/vcpu0");
        assert_eq!(
            shown(Style::Plain, of_vcpu),
            "causeway: warning: vm0/vcpu0: text\n"
        );
        assert_eq!(
            shown(Style::Plain, Some("main")),
            "causeway: warning: text\n"
        );
        assert_eq!(
            shown(Style::Timed, None),
            "causeway: 1970-01-01T00:00:00.000001Z: warning: text\n"
        );
        let complete = shown(Style::Complete, of_vcpu);
        let process = format!("Z causeway[{}]: warning: vm0/", std::process::id());
        assert!(complete.contains(&process), "{complete}");
    }

    #[test]
    fn a_file_keeps_what_it_has_and_what_cannot_be_a_file_is_refused() {
        let path = std::env::temp_dir().join(format!("causeway-log-{}", std::process::id()));
        std::fs::write(&path, "old\n").unwrap();
        open(&path).unwrap().write_all(b"new\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old\nnew\n");
        std::fs::remove_file(&path).unwrap();
        let refused = open(&std::env::temp_dir()).unwrap_err().text();
        assert!(refused.contains("--log-file"), "{refused}");
    }

    #[test]
    fn a_symbolic_link_is_refused_and_only_the_user_can_read_a_new_file() {
        let folder = std::env::temp_dir().join(format!("causeway-links-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let refused = open(&link).unwrap_err().text();
        assert!(refused.contains("symbolic link"), "{refused}");
        assert!(!file.exists(), "the link was followed");
        drop(open(&file).unwrap());
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
