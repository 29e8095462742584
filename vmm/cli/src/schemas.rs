//! docs/schema: JSON schemas of reports and of description files, which are made from the types
//! and options of this program. To write them again: `CAUSEWAY_BLESS=1 cargo test -p causeway
//! schemas`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::arguments::Arguments;

/// Returns the schemas, each with the name of its file.
fn schemas() -> Vec<(String, Value)> {
    let reports = [
        causeway_run::report::schema(),
        causeway_cuda_command::schema(),
        causeway_doctor::schema(),
        causeway_stat::schema(),
    ];
    let reports = reports.into_iter().chain(causeway_bench::schemas());
    let reports = reports.chain(causeway_run::control::schemas());
    let named = reports.map(|schema| (file_name(&schema), schema));
    let config = causeway_run::description::schema(&Arguments::parser());
    named
        .chain([(String::from("config.json"), config)])
        .collect()
}

/// Returns `bench-gpu.json` for the schema of `causeway.bench-gpu/1`.
fn file_name(schema: &Value) -> String {
    let title = schema["title"].as_str().unwrap();
    let name = title.strip_prefix("causeway.").unwrap();
    let (name, _version) = name.split_once('/').unwrap();
    format!("{name}.json")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}

#[test]
fn the_files_are_those_of_this_program() {
    let schemas = schemas();
    for (name, schema) in &schemas {
        let path = folder().join(name);
        let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
        if std::env::var_os("CAUSEWAY_BLESS").is_some() {
            std::fs::write(path, text).unwrap();
            continue;
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == text,
            "docs/schema/{name} is out of date: CAUSEWAY_BLESS=1 cargo test -p causeway schemas"
        );
    }
    let files = std::fs::read_dir(folder()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = schemas.into_iter().map(|(name, _)| name);
    assert_eq!(files.collect::<BTreeSet<_>>(), names.collect());
}

#[test]
fn every_key_and_every_field_is_explained() {
    for (name, schema) in schemas() {
        check_explained(&name, &schema);
    }
}

fn check_explained(place: &str, schema: &Value) {
    let fields = schema["properties"].as_object().into_iter().flatten();
    for (field, property) in fields {
        // A reference leads to the explanation of a type.
        let explained = property["description"].is_string() || property["$ref"].is_string();
        assert!(explained, "{place}: {field}: {property}");
    }
    match schema {
        Value::Object(parts) => parts.iter().for_each(|(name, part)| {
            check_explained(&format!("{place}/{name}"), part);
        }),
        Value::Array(parts) => parts.iter().for_each(|part| check_explained(place, part)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
