//! JSON schemas of what commands print as JSON (docs/schema).

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Returns the JSON schema of `T` as it is written. `name` is the name and version of the format,
/// which is the value of its field `schema`.
pub fn schema_of<T: JsonSchema>(name: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let generator = settings.into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    schema["title"] = name.into();
    plain(&mut schema);
    schema
}

/// Turns links of documentation, which lead nowhere in a schema, into names, and joins the lines of
/// a paragraph.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description") {
                let paragraphs = text.split("\n\n").map(|text| text.replace('\n', " "));
                let joined = paragraphs.collect::<Vec<_>>().join("\n\n");
                *text = joined.replace("[`", "`").replace("`]", "`");
            }
            fields.values_mut().for_each(plain);
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
