//! Requests to the client, as JSON.

use serde_json::{Value, json};

/// Returns an elicitation: a form for the client's user.
pub(crate) fn form(message: &str, properties: Value, required: &[&str]) -> Value {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "method": "elicitation/create", "params": { "message": message, "requestedSchema": schema } })
}

/// Returns a form with one required field.
pub(crate) fn field(message: &str, name: &str, kind: &str) -> Value {
    form(message, json!({ name: { "type": kind } }), &[name])
}

/// Returns a sampling request: a prompt for the client's model.
pub(crate) fn sample(prompt: &str) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": 100 } })
}

pub(crate) fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// Returns a form with every primitive type, each with a default.
pub(crate) fn defaults() -> Value {
    let properties = json!({
        "name": { "type": "string", "description": "Your name", "default": "John Doe" },
        "age": { "type": "integer", "description": "Your age", "default": 30 },
        "score": { "type": "number", "description": "Your score", "default": 95.5 },
        "status": {
            "type": "string",
            "description": "Your status",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": { "type": "boolean", "description": "Whether you are verified", "default": true },
    });
    form("Please look at these values", properties, &[])
}

/// Returns a form with every way to choose from a list.
pub(crate) fn enumerations() -> Value {
    let plain = json!(["option1", "option2", "option3"]);
    let titled = json!([
        { "const": "value1", "title": "First option" },
        { "const": "value2", "title": "Second option" },
        { "const": "value3", "title": "Third option" },
    ]);
    let properties = json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option one", "Option two", "Option three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    });
    form("Please choose", properties, &[])
}
