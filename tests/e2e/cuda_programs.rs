//! `causeway cuda` with programs that look for NVIDIA's driver as CUDA programs do: functions of
//! this file, each in a process of its own, and shell scripts.
#![allow(unsafe_code)] // Calls a C library.

use std::path::Path;

use cudarc::driver::sys;
use rustix::process::Signal;

use crate::command::{Running, Scratch};
use crate::workers::await_output;

/// What the command ends with when an argument is at fault.
const USAGE: i32 = 2;
/// A small GPU.
const GPU: &[&str] = &["--gpu", "software,memory=64"];

/// Starts the command with `options` and a program.
fn start(scratch: &Scratch, options: &[&str], program: &[&str]) -> Running {
    scratch.start(&[&["cuda"][..], options, &["--"], program].concat())
}

/// Returns the words that run a function of this file.
fn function(name: &str) -> Vec<String> {
    let test = std::env::current_exe().unwrap();
    let path = format!("cuda_programs::{name}");
    let words = [
        test.to_str().unwrap(),
        "--exact",
        &path,
        "--ignored",
        "--nocapture",
    ];
    words.map(str::to_owned).to_vec()
}

/// Returns the output of the function `describe_device`, run with `options`.
fn description(scratch: &Scratch, options: &[&str]) -> String {
    let words = function("describe_device");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = start(scratch, options, &words).finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let lines = outcome.stdout.lines();
    let line = lines
        .filter_map(|line| line.strip_prefix("device: "))
        .next();
    line.unwrap_or_else(|| panic!("no device: {outcome:?}"))
        .to_owned()
}

#[test]
#[ignore = "a program that other tests run"]
fn describe_device() {
    let mut count = 0;
    let mut name = [0; 256];
    // SAFETY: the calls are given what they ask for, in the order in which they may be made.
    let codes = unsafe {
        [
            sys::cuInit(0) as u32,
            sys::cuDeviceGetCount(&raw mut count) as u32,
            sys::cuDeviceGetName(name.as_mut_ptr(), 256, 0) as u32,
        ]
    };
    assert_eq!(codes, [0; 3]);
    let name = name.map(i8::cast_unsigned);
    let end = name.iter().position(|byte| *byte == 0).unwrap();
    // Behind what the test harness prints in its own line.
    println!(
        "\ndevice: {} of {count}",
        String::from_utf8_lossy(&name[..end])
    );
}

#[test]
fn a_program_finds_one_device_through_the_driver_api() {
    let scratch = Scratch::new();
    let device = description(&scratch, GPU);
    assert!(device.ends_with(" of 1") && device.len() > 6, "{device}");
}

#[test]
fn a_program_ends_the_command_with_its_status_and_leaves_nothing() {
    let scratch = Scratch::new();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let outcome = start(&scratch, GPU, &["sh", "-c", script]).finish();
        assert_eq!(outcome.code, code, "{script}: {outcome:?}");
        assert_eq!(outcome.stderr, "", "{script}");
    }
}

#[test]
fn a_program_has_the_library_and_the_socket_in_a_folder_of_its_own() {
    let scratch = Scratch::new();
    let script = "echo $LD_LIBRARY_PATH; dirname $CAUSEWAY_SOCKET; ls ${LD_LIBRARY_PATH%%:*}";
    let outcome = start(&scratch, GPU, &["sh", "-c", script]).finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let [path, folder, files @ ..] = &lines[..] else {
        panic!("{outcome:?}")
    };
    assert_eq!(path.split(':').next(), Some(*folder), "{outcome:?}");
    let wanted = "libcuda.so libcuda.so.1 libcudart.so libcudart.so.12 libcudart.so.13 \
                  libnvidia-ml.so libnvidia-ml.so.1 socket";
    assert_eq!(files.join(" "), wanted);
    assert!(!Path::new(folder).exists());
}

#[test]
fn signals_are_passed_on_and_the_program_decides_when_it_ends() {
    let script = "trap 'exit 9' TERM; trap 'echo told >&2' USR1 INT; echo ready >&2; \
                  while :; do sleep 0.01; done";
    let scratch = Scratch::new();
    let running = start(&scratch, GPU, &["sh", "-c", script]);
    await_output(&running, "ready", 1);
    for (times, signal) in [(1, Signal::USR1), (2, Signal::INT)] {
        running.signal(signal);
        await_output(&running, "told", times);
    }
    running.signal(Signal::TERM);
    let outcome = running.finish();
    assert_eq!(outcome.code, 9, "{outcome:?}");
}

#[test]
fn a_signal_ends_a_program_that_knows_nothing_of_signals() {
    let scratch = Scratch::new();
    let script = "echo ready >&2; exec sleep 100";
    let running = start(&scratch, GPU, &["sh", "-c", script]);
    await_output(&running, "ready", 1);
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
}

#[test]
fn a_program_can_use_a_server_that_runs_already() {
    let server = Scratch::new();
    let running = server.start(&["serve", "--socket", "socket", "--gpu", GPU[1]]);
    await_output(&running, "causeway: serving", 1);
    let socket = server.path("socket");
    let scratch = Scratch::new();
    let device = description(&scratch, &["--socket", socket.to_str().unwrap()]);
    assert!(device.ends_with(" of 1"), "{device}");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 0);
}

#[test]
fn the_library_is_installed_where_no_other_driver_is() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let folder = other.path("lib");
    let words = ["cuda", "--install", folder.to_str().unwrap()];
    for _ in 0..2 {
        let outcome = scratch.run(&words);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert!(outcome.stderr.contains("LD_LIBRARY_PATH="), "{outcome:?}");
    }
    for name in ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"] {
        let content = std::fs::read(folder.join(name)).unwrap();
        assert_eq!(&content[..4], b"\x7fELF");
    }
    std::fs::write(folder.join("libcuda.so.1"), "NVIDIA's").unwrap();
    let outcome = scratch.run(&words);
    outcome.assert_refused(USAGE, &["--install", "not Causeway's"]);
}

#[test]
fn nvcc_is_told_where_the_static_runtime_is() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let folder = other.path("lib");
    for (flag, inner) in [
        ("--nvcc-flags", ""),
        ("--nvcc-flags=13", ""),
        ("--nvcc-flags=12", "/cuda-12"),
    ] {
        let words = ["cuda", "--install", folder.to_str().unwrap(), flag];
        let outcome = scratch.run(&words);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let place = format!("{}{inner}", folder.display());
        let wanted = format!("-cudart static -L{place}\n");
        assert_eq!(outcome.stdout, wanted, "{outcome:?}");
        let archive = std::fs::read(Path::new(&place).join("libcudart_static.a")).unwrap();
        assert_eq!(&archive[..8], b"!<arch>\n");
    }

    let spaced = other.path("a folder");
    let words = [
        "cuda",
        "--install",
        spaced.to_str().unwrap(),
        "--nvcc-flags",
    ];
    let outcome = scratch.run(&words);
    outcome.assert_refused(USAGE, &["--install", "a folder", "has a space"]);
    assert!(!spaced.exists());
}

#[test]
fn mistakes_are_refused_before_anything_runs() {
    let scratch = Scratch::new();
    for (words, parts) in [
        (&["cuda"][..], &["PROGRAM", "is missing"][..]),
        (
            &["cuda", "--", "no-such-program"],
            &["no-such-program", "for PROGRAM"],
        ),
        (&["cuda", "--gpu", "abacus", "--", "true"], &["abacus"]),
        (&["cuda", "--install", "lib", "--", "true"], &["--install"]),
        (&["cuda", "--nvcc-flags"], &["--install", "is missing"]),
        (
            &["cuda", "--install", "lib", "--nvcc-flags=11"],
            &["11", "--nvcc-flags", "12"],
        ),
        (
            &["cuda", "--socket", "s", "--gpu", "software", "--", "true"],
            &["--socket"],
        ),
    ] {
        scratch.run(words).assert_refused(USAGE, parts);
    }
}

#[test]
#[ignore = "a program that other tests run"]
fn ask_for_a_table() {
    let (mut table, id) = (std::ptr::null(), sys::CUuuid { bytes: [7; 16] });
    for _ in 0..2 {
        // SAFETY: both pointers lead to what they say for the time of the call.
        let code = unsafe { sys::cuGetExportTable(&raw mut table, &raw const id) };
        assert_eq!(code, sys::CUresult::CUDA_ERROR_NOT_FOUND);
    }
}

#[test]
fn who_links_nvidias_runtime_is_told_the_flag_once() {
    let scratch = Scratch::new();
    let words = function("ask_for_a_table");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = start(&scratch, GPU, &words).finish();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(
        outcome.stderr.matches("nvcc -cudart shared").count(),
        1,
        "{outcome:?}"
    );
}

#[test]
fn a_program_of_another_cuda_is_refused_by_its_library() {
    let scratch = Scratch::new();
    let build = |words: &[&str]| {
        let mut compiler = std::process::Command::new("cc");
        let done = compiler.current_dir(scratch.path(".")).args(words).status();
        assert!(done.unwrap().success(), "{words:?}");
    };
    scratch.file("none.c", b"int none;\n");
    scratch.file(
        "main.c",
        b"extern int none;\nint main(void) { return none; }\n",
    );
    build(&[
        "-shared",
        "-Wl,-soname,libcudart.so.11.0",
        "-o",
        "old.so",
        "none.c",
    ]);
    build(&["-o", "program", "main.c", "./old.so"]);
    let outcome = start(&scratch, GPU, &["./program"]).finish();
    assert_eq!(outcome.code, USAGE, "{outcome:?}");
    let said = "./program was built for CUDA 11: it needs libcudart.so.11.0, ";
    assert!(outcome.stderr.contains(said), "{outcome:?}");
}
