//! Reports against their JSON schemas in docs/schema.

use std::path::Path;

use jsonschema::Validator;
use serde_json::Value;

/// Asserts that a report is as the schema of its format says, and has no field that the schema does
/// not know.
#[track_caller]
pub fn assert_valid(report: &Value) {
    let format = report["schema"].as_str();
    let name = format.and_then(|format| format.strip_prefix("causeway.")?.split_once('/'));
    let (name, _version) = name.unwrap_or_else(|| panic!("no format: {report}"));
    assert_valid_for(name, report);
}

/// As [`assert_valid`], for the schema in the file `NAME.json`.
#[track_caller]
pub fn assert_valid_for(name: &str, value: &Value) {
    let problems = problems(name, value);
    assert!(problems.is_empty(), "{name}: {problems:#?}: {value}");
}

/// Returns what is wrong with a value by the schema in the file `NAME.json`.
pub fn problems(name: &str, value: &Value) -> Vec<String> {
    let validator = validator(name);
    let errors = validator.iter_errors(value);
    errors
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect()
}

fn validator(name: &str) -> Validator {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let path = folder.join(name).with_extension("json");
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    close(&mut schema);
    jsonschema::draft202012::new(&schema).unwrap()
}

/// Makes a schema refuse fields that it does not know. The files allow them, because later versions
/// of a format may have more.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") {
                let closed = fields.entry("additionalProperties");
                closed.or_insert(Value::Bool(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_field_that_is_missing_unknown_or_of_another_type_is_found() {
    let text = crate::command::Scratch::new()
        .run(&["doctor", "--json"])
        .stdout;
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_valid(&report);
    for what in ["missing", "unknown", "type", "format"] {
        let mut changed = report.clone();
        match what {
            "missing" => drop(changed["host"].as_object_mut().unwrap().remove("cpu")),
            "unknown" => changed["host"]["colour"] = "red".into(),
            "type" => changed["findings"][0]["state"] = "perhaps".into(),
            _ => changed["schema"] = "causeway.doctor/2".into(),
        }
        assert_eq!(problems("doctor", &changed).len(), 1, "{what}: {changed}");
    }
}
