//! `causeway doctor`.

use serde_json::Value;

use crate::command::{Scratch, kvm};
use crate::schema;

fn findings(scratch: &Scratch) -> Vec<Value> {
    let outcome = scratch.run(&["doctor", "--json"]);
    let diagnosis: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(diagnosis["schema"], "causeway.doctor/1");
    schema::assert_valid(&diagnosis);
    assert!(diagnosis["host"].is_object());
    diagnosis["findings"].as_array().unwrap().clone()
}

#[test]
fn every_finding_says_what_it_means_and_how_to_get_what_is_missing() {
    let scratch = Scratch::new();
    let findings = findings(&scratch);
    assert!(findings.len() >= 8, "{findings:?}");
    for finding in &findings {
        let state = finding["state"].as_str().unwrap();
        assert!(["yes", "partly", "no"].contains(&state), "{finding}");
        for field in ["name", "found", "means"] {
            assert!(
                !finding[field].as_str().unwrap().is_empty(),
                "{field}: {finding}"
            );
        }
        let way = finding
            .get("how")
            .and_then(Value::as_str)
            .unwrap_or_default();
        assert!(state == "yes" || !way.is_empty(), "no way out: {finding}");
    }
}

#[test]
fn the_table_and_the_json_name_the_same_things() {
    let scratch = Scratch::new();
    let table = scratch.run(&["doctor"]).stdout;
    for finding in findings(&scratch) {
        let name = finding["name"].as_str().unwrap();
        assert!(table.contains(name), "{name} is not in the table:\n{table}");
    }
}

#[test]
fn the_exit_code_says_whether_guests_can_run() {
    let scratch = Scratch::new();
    let code = scratch.run(&["doctor"]).code;
    let wanted = if kvm("doctor") { 0 } else { 3 };
    assert_eq!(code, wanted);
}
