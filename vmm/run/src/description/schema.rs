//! The JSON schema of description files, made from what the parser of the command line knows of
//! `run` (docs/schema/config.json).

use clap::Command;
use serde_json::{Map, Value, json};

use super::SUBCOMMAND;
use super::keys::{Key, Takes, keys};

/// Returns the schema. `command` is the whole command as its parser knows it.
///
/// # Panics
/// If there is no subcommand `run`.
pub fn schema(command: &Command) -> Value {
    let mut built = command.clone();
    built.build();
    let run = built.find_subcommand(SUBCOMMAND);
    let run = run.expect("the command has the subcommand `run`");
    let properties = keys(run).map(|key| (key.name(), property(key)));
    let properties: Map<String, Value> = properties.collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Description file of `causeway run --config`",
        "description": "docs/guests.md, \"A description file\". Each key is an option of `causeway \
                        run` without its dashes.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn property(key: Key<'_>) -> Value {
    let mut property = match key.takes() {
        Takes::Switch => json!({ "type": "boolean" }),
        Takes::Count => json!({ "type": "integer", "minimum": 0, "maximum": u8::MAX }),
        Takes::One => one(key),
        Takes::Several => json!({
            "anyOf": [one(key), { "type": "array", "items": one(key) }],
        }),
    };
    if let Some(help) = key.argument().get_help() {
        property["description"] = help.to_string().into();
    }
    let defaults = key.default_values();
    if let Some(default) = defaults.first() {
        property["default"] = default.to_string_lossy().into();
    }
    property
}

/// Returns the schema of one value: words to choose from, else a text or a number.
fn one(key: Key<'_>) -> Value {
    let choices = key.argument().get_possible_values();
    let names = choices.iter().map(|choice| choice.get_name());
    let is_word = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic());
    match !choices.is_empty() && names.clone().all(is_word) {
        true => json!({ "enum": names.collect::<Vec<_>>() }),
        false => json!({ "type": ["string", "number"] }),
    }
}
