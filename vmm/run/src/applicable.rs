//! Which options of `causeway run` go with what the VMs boot. An option that would have no effect
//! is refused, with the way out.

use crate::arguments::{BootChoice, RunArguments};
use crate::guests;
use causeway_terminal::Failure;

/// What the VMs boot, as far as options depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest<'a> {
    /// The embedded guest of this name.
    Embedded(&'a str),
    /// The file of `--kernel`, whose name this is: a bare guest.
    Bare(&'a str),
    /// The file of `--kernel`: a Linux kernel.
    Linux,
}

/// Options that only Linux kernels have. `--file`, `--module`, `--root` and `--` belong to
/// `--program`.
const OF_LINUX: [&str; 19] = [
    "--initramfs",
    "--program",
    "--rootfs",
    "--append",
    "--disk",
    "--storage-daemon",
    "--disk-folder",
    "--share",
    "--virtiofsd",
    "--net",
    "--passt",
    "--vsock",
    "--file",
    "--module",
    "--root",
    "--env",
    "--cwd",
    "--user",
    "--",
];
/// Options that belong to the program of `--program` or `--rootfs`.
const OF_PROGRAM: [&str; 6] = ["--file", "--module", "--env", "--cwd", "--user", "--"];
/// Pairs of options that both say what a Linux guest runs.
const EITHER: [(&str, &str, &str); 4] = [
    (
        "--program",
        "--initramfs",
        "--program makes an initramfs itself",
    ),
    (
        "--rootfs",
        "--initramfs",
        "--rootfs makes an initramfs itself",
    ),
    (
        "--rootfs",
        "--program",
        "name the program of the root file system behind --",
    ),
    ("--rootfs", "--root", "both name the root file system"),
];

/// Refuses options that contradict each other whatever the VMs boot: `--kernel` with `--guest`, two
/// that both give a Linux guest its files, and what belongs to `--program` without it.
///
/// # Errors
/// A usage failure that names the options.
pub fn refuse_contradictions(arguments: &RunArguments) -> Result<(), Failure> {
    let given = |name: &str| is_given(arguments, name);
    if given("--kernel") && given("--guest") {
        return Err(Failure::usage(
            "--guest cannot be used with --kernel: boot either an embedded guest or a file",
        ));
    }
    for (one, other, why) in EITHER {
        if given(one) && given(other) {
            return Err(Failure::usage(format!(
                "{one} cannot be used with {other}: {why}"
            )));
        }
    }
    if given("--virtiofsd") && !given("--share") && !given("--rootfs") {
        return Err(Failure::usage(
            "--virtiofsd has nothing to serve: add --share DIR or --rootfs DIR",
        ));
    }
    if given("--storage-daemon") && !given("--disk") && !given("--rootfs") {
        return Err(Failure::usage(
            "--storage-daemon has nothing to serve: add --disk FILE,format=qcow2",
        ));
    }
    if given("--passt") && !given("--net") {
        return Err(Failure::usage(
            "--passt has nothing to serve: add --net user",
        ));
    }
    if given("--disk-folder") && arguments.control.is_none() {
        return Err(Failure::usage(
            "--disk-folder needs the control socket, over which disks get their images: add \
             --control PATH",
        ));
    }
    if given("--root") && !given("--program") {
        return Err(without_program("--root"));
    }
    match OF_PROGRAM.iter().find(|name| given(name)) {
        Some(name) if !arguments.has_program() => Err(without_program(name)),
        _ => Ok(()),
    }
}

fn without_program(option: &str) -> Failure {
    Failure::usage(format!(
        "{} belongs to a program: name the program with --program, and its Linux kernel with \
         --kernel",
        in_words(option)
    ))
}

/// Refuses options that have no effect on `guest`. [`refuse_contradictions`] comes first.
///
/// # Errors
/// A usage failure that names the first such option.
pub fn refuse_others(guest: Guest<'_>, arguments: &RunArguments) -> Result<(), Failure> {
    let given = |name: &&str| is_given(arguments, name);
    match guest {
        Guest::Embedded(name) => {
            if given(&"--mailboxes") {
                return Err(Failure::usage(format!(
                    "--mailboxes is for guests of your own: the embedded guest {name} has them"
                )));
            }
            if let Some(option) = ["--boot"].iter().chain(&OF_LINUX).find(|o| given(o)) {
                return Err(Failure::usage(for_linux(option, name)));
            }
            if given(&"--arguments") && !guests::takes_arguments(name) {
                return Err(Failure::usage(format!(
                    "--arguments cannot be used with the embedded guest {name}, which takes none"
                )));
            }
            Ok(())
        }
        Guest::Bare(file) => match OF_LINUX.iter().find(|o| given(o)) {
            Some(option) => Err(Failure::usage(not_on_bare(option, file, arguments.boot))),
            None => Ok(()),
        },
        Guest::Linux if given(&"--arguments") => Err(Failure::usage(
            "--arguments is for bare guests: use --append for a Linux kernel, and -- for the \
             arguments of --program",
        )),
        Guest::Linux if given(&"--cpl") => Err(Failure::usage(
            "--cpl is for bare guests: a Linux kernel chooses the privilege level itself",
        )),
        Guest::Linux => Ok(()),
    }
}

fn for_linux(option: &str, guest: &str) -> String {
    let option = in_words(option);
    let what = if option == "--boot" {
        "a file"
    } else {
        "a Linux kernel"
    };
    format!(
        "{option} is for {what} of --kernel, but the embedded guest {guest} is to run: add \
         --kernel FILE in place of --guest"
    )
}

fn not_on_bare(option: &str, file: &str, boot: Option<BootChoice>) -> String {
    let way_out = match boot {
        None => ": if the file is a 64-bit Linux kernel without a PVH note, add --boot linux64",
        Some(_) => " by --boot bare",
    };
    format!(
        "{} is for Linux kernels, but {file} of --kernel is a bare guest{way_out}",
        in_words(option)
    )
}

/// Returns an option as it is named in a message.
fn in_words(option: &str) -> &str {
    if option == "--" {
        "-- ARGUMENTS"
    } else {
        option
    }
}

/// Returns whether the option `name` was typed.
fn is_given(arguments: &RunArguments, name: &str) -> bool {
    let more = &arguments.more;
    match name {
        "--guest" => arguments.guest.is_some(),
        "--kernel" => arguments.kernel.is_some(),
        "--boot" => arguments.boot.is_some(),
        "--initramfs" => arguments.initramfs.is_some(),
        "--program" => arguments.program.is_some(),
        "--rootfs" => arguments.rootfs.is_some(),
        "--share" => !arguments.share.is_empty(),
        "--virtiofsd" => arguments.virtiofsd.is_some(),
        "--net" => arguments.net.is_some(),
        "--passt" => arguments.passt.is_some(),
        "--vsock" => arguments.vsock.is_some(),
        "--env" => !more.environment.is_empty(),
        "--cwd" => more.folder.is_some(),
        "--user" => more.user.is_some(),
        "--append" => arguments.append.is_some(),
        "--disk" => !arguments.disk.is_empty(),
        "--storage-daemon" => arguments.storage_daemon.is_some(),
        "--disk-folder" => arguments.disk_folder.is_some(),
        "--file" => !more.files.is_empty(),
        "--module" => !more.modules.is_empty(),
        "--root" => more.root.is_some(),
        "--" => !more.program_arguments.is_empty(),
        "--arguments" => arguments.arguments.is_some(),
        "--cpl" => arguments.cpl.is_some(),
        "--mailboxes" => arguments.mailboxes,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::tests::{options, parse};

    /// Each option with a value, and the kinds of guests that refuse it: `e` an embedded guest that
    /// takes no arguments, `a` one that does, `b` a bare guest of a file, `l` a Linux kernel.
    const OPTIONS: [(&str, &[&str], &str); 44] = [
        ("--guest", &["--guest", "compute"], "bl"),
        ("--kernel", &["--kernel", "x"], ""),
        ("--boot", &["--boot", "bare"], "ea"),
        ("--initramfs", &["--initramfs", "x"], "eab"),
        ("--program", &["--program", "x"], "eab"),
        ("--file", &["--file", "x"], "eab"),
        ("--module", &["--module", "x"], "eab"),
        ("--root", &["--root", "x"], "eab"),
        ("--rootfs", &["--rootfs", "x"], "eab"),
        ("--share", &["--share", "x"], "eab"),
        ("--virtiofsd", &["--virtiofsd", "x"], "eab"),
        ("--net", &["--net", "user"], "eab"),
        ("--passt", &["--passt", "x"], "eab"),
        ("--vsock", &["--vsock", "3"], "eab"),
        ("--env", &["--env", "x=y"], "eab"),
        ("--cwd", &["--cwd", "x"], "eab"),
        ("--user", &["--user", "7"], "eab"),
        ("--append", &["--append", "x"], "eab"),
        ("--disk", &["--disk", "x"], "eab"),
        ("--storage-daemon", &["--storage-daemon", "x"], "eab"),
        ("--disk-folder", &["--disk-folder", "x"], "eab"),
        ("--vfio", &["--vfio", "00:03.0"], ""),
        ("--vcpus", &["--vcpus", "2"], ""),
        ("--memory", &["--memory", "64"], ""),
        ("--gpu", &["--gpu", "software"], ""),
        ("--numa", &["--numa", "0"], ""),
        ("--vms", &["--vms", "2"], ""),
        ("--timeout", &["--timeout", "5"], ""),
        ("--json", &["--json", "x"], ""),
        ("--require-zero-exits", &["--require-zero-exits"], ""),
        ("--tracepoints", &["--tracepoints"], ""),
        ("--metrics", &["--metrics", "127.0.0.1:9400"], ""),
        ("--metrics-socket", &["--metrics-socket", "y"], ""),
        ("--control", &["--control", "z"], ""),
        ("--arguments", &["--arguments", "x"], "el"),
        ("--cpl", &["--cpl", "3"], "l"),
        ("--sandbox", &["--sandbox", "off"], ""),
        ("--worker-cgroup", &["--worker-cgroup", "x"], ""),
        ("--worker-memory", &["--worker-memory", "9"], ""),
        ("--small-pages", &["--small-pages"], ""),
        ("--mailboxes", &["--mailboxes"], "ea"),
        ("--config", &["--config", "x"], ""),
        ("--print-config", &["--print-config"], ""),
        // Last, because it takes all words behind it.
        ("--", &["--", "x"], "eab"),
    ];

    /// Pairs of options that no guest takes together.
    const CONTRADICTIONS: [(&str, &str); 5] = [
        ("--guest", "--kernel"),
        ("--initramfs", "--program"),
        ("--initramfs", "--rootfs"),
        ("--program", "--rootfs"),
        ("--root", "--rootfs"),
    ];

    fn verdict(kind: char, words: &[&str]) -> Result<(), String> {
        let (first, guest): (&[&str], _) = match kind {
            'e' => (&[], Guest::Embedded("compute")),
            'a' => (&[], Guest::Embedded("residue")),
            'b' => (&["--kernel", "k"], Guest::Bare("k")),
            _ => (&["--kernel", "k"], Guest::Linux),
        };
        let typed: Vec<&str> = match words.contains(&"--kernel") {
            true => words.to_vec(),
            false => [first, words].concat(),
        };
        let arguments = parse(&typed);
        refuse_contradictions(&arguments)
            .and_then(|()| refuse_others(guest, &arguments))
            .map_err(|failure| failure.to_string())
    }

    /// Returns whether a guest of this kind takes these options together.
    fn is_accepted(kind: char, options: [&(&str, &[&str], &str); 2]) -> bool {
        let has = |name| options.iter().any(|option| option.0 == name);
        let (program, root) = (has("--program"), has("--rootfs"));
        let alone = |option: &(&str, _, &str)| {
            let lacks = match option.0 {
                "--root" => !program,
                "--virtiofsd" => !has("--share") && !root,
                "--storage-daemon" => !has("--disk") && !root,
                "--passt" => !has("--net"),
                "--disk-folder" => !has("--control"),
                name => OF_PROGRAM.contains(&name) && !program && !root,
            };
            !(option.2.contains(kind) || kind == 'l' && lacks)
        };
        options.iter().all(|option| alone(option))
            && !CONTRADICTIONS
                .iter()
                .any(|(one, other)| has(one) && has(other))
    }

    #[test]
    fn the_table_has_every_option() {
        let mut known: Vec<&str> = OPTIONS.iter().map(|option| option.0).collect();
        let mut all = options();
        // Belongs to `--metrics`, without which the parser refuses it.
        all.retain(|option| *option != "--metrics-any-address");
        known.sort_unstable();
        all.sort_unstable();
        assert_eq!(known, all);
    }

    #[test]
    fn every_pair_of_options_goes_with_each_kind_of_guest_or_is_refused_by_name() {
        for kind in ['e', 'a', 'b', 'l'] {
            for (index, first) in OPTIONS.iter().enumerate() {
                for second in &OPTIONS[index..] {
                    let pair = [first, second];
                    // Only another kind has a file.
                    if pair.iter().any(|o| o.0 == "--kernel") && "ea".contains(kind) {
                        continue;
                    }
                    let words = if first.0 == second.0 {
                        first.1.to_vec()
                    } else {
                        [first.1, second.1].concat()
                    };
                    let verdict = verdict(kind, &words);
                    let accepted = is_accepted(kind, pair);
                    assert_eq!(verdict.is_ok(), accepted, "{kind} {words:?}: {verdict:?}");
                    if let Err(message) = verdict {
                        let named = pair.iter().any(|option| message.contains(option.0));
                        assert!(named && message.len() < 200, "{words:?}: {message}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_refusal_says_what_to_do_instead() {
        for (kind, words, part) in [
            (
                'e',
                ["--program", "x"],
                "add --kernel FILE in place of --guest",
            ),
            ('e', ["--boot", "pvh"], "--boot is for a file of --kernel"),
            ('e', ["--arguments", "x"], "compute, which takes none"),
            ('b', ["--append", "x"], "add --boot linux64"),
            ('l', ["--arguments", "x"], "use --append"),
            ('l', ["--module", "x"], "name the program with --program"),
        ] {
            let message = verdict(kind, &words).unwrap_err();
            assert!(message.contains(part), "{words:?}: {message}");
        }
        let typed = ["--boot", "bare", "--append", "x"];
        let message = verdict('b', &typed).unwrap_err();
        assert!(
            message.ends_with("a bare guest by --boot bare"),
            "{message}"
        );
    }
}
