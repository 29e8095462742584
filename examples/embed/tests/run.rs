//! The program, with a guest whose exits are known.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_exits_of_a_guest_are_printed_by_phase_and_by_reason() {
    if let Err(e) = causeway_vmm::kvm::open() {
        assert!(std::env::var_os("CAUSEWAY_REQUIRE_KVM").is_none(), "{e}");
        eprintln!("skipped: no KVM ({e})");
        return;
    }
    let image = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exits");
    fs::write(&image, causeway_embedded::image("exits").unwrap()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_embed"))
        .arg(&image)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for line in [
        "phase nothing: 0 exits",
        "phase 100 port loads: 100 exits",
        "phase 100 register loads: 100 exits",
        "phase 1000000 stores to RAM: 0 exits",
        "the guest passed",
    ] {
        assert!(
            text.lines().any(|printed| printed == line),
            "{line}: {text}"
        );
    }
    assert!(text.contains(" mmio:registers:magic\n"), "{text}");
}

#[test]
fn a_file_that_is_no_guest_is_refused() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_embed"))
        .arg(file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.starts_with("embed: ") && text.contains("ELF"),
        "{text}"
    );
}
