//! The script that takes everything on a machine with a GPU runs through: here on the stand-in,
//! with small numbers.

use std::path::Path;
use std::process::Command;

use crate::command::{Outcome, Scratch, alone, kvm};
use crate::schema;
use crate::visible;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/gpu/measure");

/// Runs the script with the results in a folder of the scratch directory.
fn measure(scratch: &Scratch, command: impl FnOnce(&mut Command), parts: &[&str]) -> Outcome {
    let results = scratch.path("results");
    std::fs::create_dir_all(&results).unwrap();
    let mut bash = Command::new("bash");
    bash.args([
        Path::new(SCRIPT),
        env!("CARGO_BIN_EXE_causeway").as_ref(),
        &results,
    ])
    .args(parts)
    .env("CAUSEWAY_RESIDUE", "rounds=4,mib=4")
    .env("CAUSEWAY_LIVES", "4")
    .env("CAUSEWAY_KILLS", "1");
    command(&mut bash);
    scratch.start_command(bash).finish()
}

#[test]
fn the_script_for_a_gpu_runs_through_on_the_stand_in() {
    let name = "tests/gpu/measure";
    let Some(lavapipe) = visible::lavapipe(name).filter(|_| kvm(name)) else {
        return;
    };
    let _alone = alone();
    let scratch = Scratch::new();
    let equip = |command: &mut Command| visible::equip(command, &scratch, &lavapipe);
    let parts = ["doctor", "backend", "guests", "limits", "residue", "lives"];
    let outcome = measure(&scratch, equip, &parts);
    let logs = || {
        let files = std::fs::read_dir(scratch.path("results"))
            .unwrap()
            .flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|e| e == "log"));
        logs.map(|file| std::fs::read_to_string(file.path()).unwrap())
            .collect::<String>()
    };
    assert_eq!(outcome.code, 0, "{outcome:?}\n{}", logs());
    // The lines of the summary begin with a part, and say how it ended.
    let summary = |part: &str, end: &str| {
        let of_part = |line: &&str| line.starts_with(&format!("{part} ")) && line.contains(end);
        outcome.stdout.lines().filter(of_part).count()
    };
    for part in ["doctor", "compute", "visible", "sms-32", "residue", "lives"] {
        assert_eq!(summary(part, "exit   0"), 1, "{part}: {outcome:?}");
    }
    assert_eq!(summary("sms-too-many", "refusal wanted"), 1, "{outcome:?}");
    // Test programs are no part of an installation.
    assert_eq!(summary("tests-cuda", "not run"), 1, "{outcome:?}");
    for file in ["compute.json", "sms-32.json", "residue.json", "lives.json"] {
        let text = std::fs::read_to_string(scratch.path("results").join(file)).unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(report["schema"].is_string(), "{file}: {text}");
        schema::assert_valid(&report);
    }
}

#[test]
fn the_script_says_when_something_fails_and_when_a_part_does_not_exist() {
    let scratch = Scratch::new();
    // Without a driver.
    let outcome = measure(&scratch, |_| {}, &["residue"]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.stdout.contains("residue "), "{outcome:?}");
    let outcome = measure(&scratch, |_| {}, &["nonsense"]);
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.contains("'nonsense'"), "{outcome:?}");
}
