//! The JSON schema of statistics of a session (docs/schema).

use causeway_mediator::statistics::{STATISTICS, Statistic};
use schemars::{Schema, json_schema};
use serde_json::{Map, Value, json};

/// Returns the schema of an object with a field for each statistic for which `has` is true.
pub fn statistics_schema(has: impl Fn(&Statistic) -> bool) -> Schema {
    let fields = STATISTICS.iter().filter(|statistic| has(statistic));
    let field = |statistic: &Statistic| {
        let schema = json!({
            "description": statistic.help,
            "type": "integer",
            "format": "uint64",
            "minimum": 0,
        });
        (statistic.name.to_owned(), schema)
    };
    let properties: Map<String, Value> = fields.map(field).collect();
    let required: Vec<String> = properties.keys().cloned().collect();
    json_schema!({ "type": "object", "properties": properties, "required": required })
}
