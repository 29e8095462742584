//! Tests of description files, with the options of `run`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use toml_writer::ToTomlValue as _;

use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches as _, ValueHint};

use super::keys::{Key, Takes, keys};
use super::{Completed, complete};
use crate::arguments::RunArguments;
use causeway_terminal::Failure;

/// A folder with description files, which goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("causeway-description-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command, with options that all subcommands have.
fn command() -> Command {
    let loud = Arg::new("loud").long("loud").global(true);
    let still = Arg::new("still").long("still").global(true);
    Command::new("causeway")
        .arg(loud.action(ArgAction::Count))
        .arg(still.action(ArgAction::SetTrue).conflicts_with("loud"))
        .subcommand(RunArguments::augment_args(Command::new("run")))
        .subcommand(Command::new("stat").arg(Arg::new("config").long("config")))
}

fn completed(words: &[OsString]) -> Result<Completed, Failure> {
    let program = [OsString::from("causeway"), "run".into()];
    complete(
        &command(),
        program.into_iter().chain(words.iter().cloned()).collect(),
    )
}

fn os(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// What is printed for these words.
fn printed(words: &[&str]) -> String {
    let words = [words, &["--print-config"]].concat();
    completed(&os(&words)).unwrap().described.text().to_owned()
}

/// The arguments of a run with these words.
fn parsed(words: &[&str]) -> RunArguments {
    let completed = completed(&os(words)).unwrap();
    let matches = command().try_get_matches_from(completed.words).unwrap();
    let (_, of_run) = matches.subcommand().unwrap();
    RunArguments::from_arg_matches(of_run).unwrap()
}

/// The message about a file with this content.
fn refused(content: impl AsRef<[u8]>) -> String {
    let folder = Folder::new("refused");
    let path = folder.file("vm.toml", content);
    let failure = completed(&os(&["--config", &path])).expect_err("refused");
    failure.text().replace(&format!("{path}, "), "")
}

/// A value for each kind of key: as TOML, and as words. Words that the parser accepts do not matter
/// here.
fn example(key: Key<'_>) -> (String, Vec<OsString>) {
    let (name, option) = (key.name(), key.option());
    let choices = key.argument().get_possible_values();
    let choice = choices.first().map(|choice| choice.get_name().to_owned());
    let one = choice.unwrap_or_else(|| match &*name {
        "vcpus" | "vms" | "vsock" | "timeout" | "memory" | "worker-memory" | "numa" => {
            String::from("7")
        }
        "metrics" => String::from("127.0.0.1:9400"),
        "env" => String::from("NAME=\"a\",b"),
        "user" => String::from("7:8"),
        _ => format!("/a \"{name}\",b"),
    });
    let quoted = one.to_toml_value();
    match key.takes() {
        Takes::Switch => (format!("{name} = true"), vec![option.into()]),
        Takes::Count => (
            format!("{name} = 2"),
            vec![(&*option).into(), option.into()],
        ),
        Takes::One => (format!("{name} = {quoted}"), os(&[&option, &one])),
        Takes::Several if key.follows_all() => (
            format!("{name} = [{quoted}, '--x']"),
            os(&["--", &one, "--x"]),
        ),
        Takes::Several => (
            format!("{name} = [{quoted}, {quoted}]"),
            os(&[&option, &one, &option, &one]),
        ),
    }
}

/// Every option of `run` in one file and in one command line, except those that exclude others.
fn all() -> (String, Vec<OsString>) {
    let mut built = command();
    built.build();
    let run = built.find_subcommand("run").unwrap();
    let (mut lines, mut words) = (String::new(), Vec::new());
    for key in keys(run).filter(|key| key.name() != "still") {
        let (line, of_key) = example(key);
        lines += &format!("{line}\n");
        // What follows `--` stands last.
        let at = if key.follows_all() { words.len() } else { 0 };
        words.splice(at..at, of_key);
    }
    (lines, words)
}

#[test]
fn every_option_is_a_key_and_means_the_same() {
    let folder = Folder::new("every");
    let (lines, words) = all();
    assert!(lines.lines().count() > 30, "{lines}");
    let path = folder.file("vm.toml", &lines);
    let typed = words.iter().map(|word| word.to_str().unwrap());
    let typed: Vec<_> = typed.collect();
    let shown = |arguments: RunArguments| {
        let without = RunArguments {
            config: None,
            described: super::Described::default(),
            ..arguments
        };
        format!("{without:?}")
    };
    let from_file = shown(parsed(&["--config", &path]));
    assert_eq!(from_file, shown(parsed(&typed)));
    // And what is printed of either is the same, and stays the same when it is read again.
    let text = printed(&["--config", &path]);
    let front = ["--print-config"].iter().chain(&typed).copied();
    let completed = completed(&os(&front.collect::<Vec<_>>())).unwrap();
    assert_eq!(text, completed.described.text());
    let again = folder.file("again.toml", &text);
    assert_eq!(printed(&["--config", &again]), text);
    assert_eq!(shown(parsed(&["--config", &again])), from_file);
}

#[test]
fn what_is_typed_wins() {
    let folder = Folder::new("wins");
    let path = folder.file(
        "vm.toml",
        "vcpus = 2\nvms = 3\ndisk = [\"/a\", \"/b\"]\nloud = 2\n",
    );
    let arguments = parsed(&["--vcpus", "5", "--config", &path, "--disk", "/c"]);
    assert_eq!((arguments.vcpus, arguments.vms), (5, 3));
    assert_eq!(arguments.disk, ["/c"]);
    // An option that excludes another takes its place.
    let still = completed(&os(&["--still", "--config", &path])).unwrap();
    assert!(still.words.contains(&"--still".into()), "{still:?}");
    assert!(!still.words.contains(&"--loud".into()), "{still:?}");
    // What is typed before the subcommand counts, too.
    let words = os(&["causeway", "--loud", "run", "--config", &path]);
    let loud = complete(&command(), words).unwrap().words;
    assert_eq!(loud.iter().filter(|word| *word == "--loud").count(), 1);
}

#[test]
fn an_option_may_require_one_of_the_file() {
    let folder = Folder::new("require");
    let path = folder.file("vm.toml", "metrics = \"0.0.0.0:1\"");
    let arguments = parsed(&["--metrics-any-address", "--config", &path]);
    assert!(arguments.metrics.metrics.is_some());
}

#[test]
fn what_follows_the_dashes_may_look_like_an_option() {
    let folder = Folder::new("dashes");
    let path = folder.file(
        "vm.toml",
        "program-arguments = ['--config', '-x', '']\nappend = '-a'",
    );
    let arguments = parsed(&["--config", &path]);
    assert_eq!(arguments.more.program_arguments, ["--config", "-x", ""]);
    assert_eq!(arguments.append.as_deref(), Some("-a"));
    let arguments = parsed(&[
        "--config", &path, "--append", "--config", "--", "--vms", "9",
    ]);
    assert_eq!(arguments.more.program_arguments, ["--vms", "9"]);
    assert_eq!(arguments.append.as_deref(), Some("--config"));
}

#[test]
fn command_lines_that_are_not_of_run_or_have_a_mistake_stay_as_they_are() {
    for words in [
        &["causeway", "stat", "--config", "/nowhere"][..],
        &["causeway", "run", "--append", "--config"],
        &["causeway", "run", "--", "--config"],
        &["causeway", "run", "--config", "/nowhere", "--wombat"],
        &["causeway", "run", "--config"],
    ] {
        assert_eq!(complete(&command(), os(words)).unwrap().words, os(words));
    }
}

/// Paths in the guest are not among them. An option that is added must say by its placeholder
/// whether it is a path on the host.
#[test]
fn relative_paths_of_the_host_begin_at_the_folder_of_the_file() {
    let mut built = command();
    built.build();
    let all = keys(built.find_subcommand("run").unwrap());
    let paths: Vec<String> = all.filter(|key| key.holds_paths()).map(Key::name).collect();
    for path in [
        "kernel",
        "initramfs",
        "program",
        "file",
        "module",
        "disk",
        "disk-folder",
        "worker-cgroup",
        "json",
        "metrics-socket",
        "control",
    ] {
        assert!(paths.iter().any(|other| other == path), "{path}");
    }
    for path in ["share", "rootfs", "virtiofsd"] {
        assert!(paths.iter().any(|other| other == path), "{path}");
    }
    for other in ["root", "cwd", "append", "gpu", "guest", "program-arguments"] {
        assert!(!paths.iter().any(|path| path == other), "{other}");
    }
    // What the parser takes for a path is one, but for those in the guest.
    let known = keys(built.find_subcommand("run").unwrap());
    let hinted = known.filter(|key| key.argument().get_value_hint() == ValueHint::AnyPath);
    for key in hinted.filter(|key| !["root", "cwd"].contains(&&*key.name())) {
        assert!(key.holds_paths(), "{key:?}");
    }
    let folder = Folder::new("relative");
    let content = "kernel = './k'\ndisk = ['../a,ro', '/b']\njson = '-'\nroot = 'dev'";
    let path = folder.file("vm.toml", content);
    let arguments = parsed(&["--config", &path]);
    // As texts, because paths are equal with `.` between.
    let kernel = arguments.kernel.unwrap().into_os_string();
    assert_eq!(kernel, folder.0.join("k").into_os_string());
    let disks = [folder.0.join("../a,ro"), PathBuf::from("/b")];
    assert_eq!(arguments.disk, disks);
    assert_eq!(arguments.json.as_deref(), Some(Path::new("-")));
    assert_eq!(arguments.more.root.as_deref(), Some(Path::new("dev")));
    // A typed path begins at the working directory, as always, and is printed from the root.
    let text = printed(&["--kernel", "k", "--json", "-"]);
    let here = std::env::current_dir().unwrap().join("k");
    assert!(
        text.contains(&format!("kernel = \"{}\"", here.display())),
        "{text}"
    );
    assert!(text.contains("json = \"-\""), "{text}");
}

#[test]
fn defaults_are_printed() {
    let text = printed(&[]);
    let wanted = "vcpus = 1\nmemory = 256\ngpu = [\"software\"]\nsandbox = \"on\"\nvms = 1\n";
    assert_eq!(text, wanted);
    let text = printed(&["--gpu", "cuda", "--memory", "0256", "--small-pages"]);
    let wanted = "vcpus = 1\nmemory = \"0256\"\ngpu = [\"cuda\"]\nsandbox = \"on\"\nvms = 1\n\
                  small-pages = true\n";
    assert_eq!(text, wanted);
}

#[test]
fn a_value_that_is_not_utf8_is_not_printed() {
    let kernel = OsString::from_vec(b"--kernel=\xff".to_vec());
    assert!(completed(std::slice::from_ref(&kernel)).is_ok());
    let failure = completed(&[kernel, "--print-config".into()]).expect_err("refused");
    let text = failure.text();
    assert!(
        text.contains("\u{fffd} of --kernel") && text.contains("rename"),
        "{text}"
    );
}

#[test]
fn values_are_what_words_would_be() {
    let folder = Folder::new("values");
    let content = "memory = 0x1_00\nvcpus = +2\ndisk = '/one'\nmailboxes = false\ntimeout = 1e3\n";
    let path = folder.file("vm.toml", content);
    let words = completed(&os(&["--config", &path])).unwrap().words;
    let options = ["--vcpus=2", "--memory=256", "--disk=/one", "--timeout=1e3"];
    for option in options {
        assert!(words.contains(&option.into()), "{option}: {words:?}");
    }
    assert!(!words.contains(&"--mailboxes".into()), "{words:?}");
}

#[test]
fn mistakes_are_named_with_line_and_way_out() {
    for (content, message) in [
        (
            "\n\nmemroy = 1",
            "line 3: unknown key memroy: did you mean memory?",
        ),
        (
            "require_zero_exits = true",
            "line 1: unknown key require_zero_exits: did you mean \
                                       require-zero-exits?",
        ),
        (
            "wombat = 1",
            "line 1: unknown key wombat: keys are the options that `causeway run --help`",
        ),
        ("config = 'x'", "line 1: unknown key config: "),
        (
            "vms = 1\nmemory = true",
            "line 2: invalid value true for memory: choose a text in quotes",
        ),
        (
            "memory = [1, 2]",
            "line 1: invalid value [1, 2] for memory: choose a text in quotes, or",
        ),
        (
            "mailboxes = 'yes'",
            "line 1: invalid value 'yes' for mailboxes: choose true or false",
        ),
        (
            "disk = [['a']]",
            "line 1: invalid value [['a']] for disk: choose a text in quotes, or se",
        ),
        ("[gpu]\nname = 'cuda'", "line 1: invalid value "),
        (
            "loud = 256",
            "line 1: invalid value 256 for loud: choose a whole number from 0 to 255",
        ),
        ("memory = 2G", "line 1: this is not TOML ("),
        (
            "vms = 1\nvms = 2",
            "line 2: this is not TOML (duplicate key): ",
        ),
        (
            "append = \"a\\u0000b\"",
            "line 1: invalid value \"a\\u0000b\" for append: it has a zero",
        ),
        ("zz = 1\nyy = 2", "line 1: unknown key zz"),
    ] {
        let text = refused(content);
        assert!(text.starts_with(message), "{content}: {text}");
        assert!(!text.contains('\n') && text.len() < 250, "{text}");
    }
    let text = refused(b"vms = 1\n# \xff");
    assert!(
        text.starts_with("line 2: this is not UTF-8: save"),
        "{text}"
    );
    let long = format!("memory = ['{}']", "x".repeat(1000));
    assert!(refused(long).len() < 200);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = Folder::new("unreadable");
    let large = folder.file("large", vec![b'#'; (1 << 20) + 1]);
    let missing = folder.0.join("missing");
    for (path, why) in [
        (missing.to_str().unwrap(), "No such file"),
        (folder.0.to_str().unwrap(), "is a directory"),
        (&large, "it is larger"),
        ("/dev/zero", "not a regular file"),
    ] {
        let text = completed(&os(&["--config", path])).expect_err(why).text();
        let start = format!("cannot read {path} of --config, which takes a file in TOML format");
        assert!(text.starts_with(&start) && text.contains(why), "{text}");
    }
    let most = folder.file("most", vec![b'#'; 1 << 20]);
    assert!(completed(&os(&["--config", &most])).is_ok());
}

#[test]
fn messages_about_settings_of_the_file_say_where_they_are() {
    let folder = Folder::new("where");
    let content = "memory = '2G'\nvms = 3\nkernel = '/k'\nmetrics = '127.0.0.1:1'\n\
                   mailboxes = false\n";
    let path = folder.file("vm.toml", content);
    let described = completed(&os(&["--config", &path, "--vms", "4"]))
        .unwrap()
        .described;
    let explained = |text: &str| described.explain(Failure::usage(text)).to_string();
    for (message, place) in [
        (
            "invalid value 2 for --memory: choose",
            ", line 1 (memory): ",
        ),
        (
            "--memory and --metrics",
            ", line 1 (memory) and line 4 (metrics): ",
        ),
        ("cannot read the guest image /k: no", ", line 3 (kernel): "),
    ] {
        assert_eq!(explained(message), format!("{path}{place}{message}"));
    }
    for other in [
        "--vms 4 are too many",
        "--metrics-socket",
        "no KVM",
        "--mailboxes",
        "/k-other",
    ] {
        assert_eq!(explained(other), other);
    }
    let about_words = described.explain_words(Failure::usage("x is missing"));
    assert_eq!(about_words.to_string(), format!("{path}: x is missing"));
}
