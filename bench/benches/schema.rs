//! Cost of argument checks: compiling a schema and validating by it, in time and memory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops when something is wrong")]
#![expect(clippy::print_stdout, reason = "it prints what it finds")]

use ostler_core::argument_schema::ArgumentSchema;
use serde_json::json;

#[global_allocator]
static ALLOC: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    // The first compilation also reads the schemas of schemas.
    let definition = json!({"inputSchema": {"type": "object"}}).to_string();
    let (before, began) = (anonymous_kib(), std::time::Instant::now());
    ArgumentSchema::compile(definition.as_bytes()).unwrap();
    println!("first compile: {:?}, {} KiB", began.elapsed(), anonymous_kib() - before);
    divan::main();
}

/// Returns the anonymous memory of this process.
fn anonymous_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A tool with one argument, and one like those of published servers that edit files.
const KINDS: [&str; 2] = ["small", "usual"];

fn definition(kind: &str) -> String {
    let schema = match kind {
        "small" => {
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
        }
        _ => json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file to edit"},
                "edits": {"type": "array", "items": {
                    "type": "object",
                    "properties": {
                        "oldText": {"type": "string", "description": "Text to look for, which must match exactly"},
                        "newText": {"type": "string", "description": "Text to put in its place"}
                    },
                    "required": ["oldText", "newText"],
                    "additionalProperties": false
                }},
                "mode": {"type": "string", "enum": ["once", "all", "last"]},
                "encoding": {"anyOf": [{"type": "string", "pattern": "^[a-z0-9-]{1,32}$"}, {"type": "null"}]},
                "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
                "dryRun": {"type": "boolean", "default": false, "description": "Show what would be changed"}
            },
            "required": ["path", "edits"],
            "additionalProperties": false
        }),
    };
    json!({"name": "t", "description": "Edits a file", "inputSchema": schema}).to_string()
}

fn arguments(kind: &str) -> String {
    match kind {
        "small" => json!({"text": "x".repeat(60)}).to_string(),
        _ => {
            let edit = json!({"oldText": "let a = 1;", "newText": "let a = 2;"});
            json!({"path": "/srv/a.rs", "edits": [edit, edit, edit], "mode": "all", "encoding": "utf-8", "limit": 7}).to_string()
        }
    }
}

#[divan::bench(args = KINDS)]
fn compile(bencher: divan::Bencher<'_, '_>, kind: &str) {
    let definition = definition(kind);
    bencher
        .counter(divan::counter::BytesCount::of_str(&definition))
        .bench(|| ArgumentSchema::compile(definition.as_bytes()).unwrap());
}

#[divan::bench(args = KINDS)]
fn check(bencher: divan::Bencher<'_, '_>, kind: &str) {
    let schema = ArgumentSchema::compile(definition(kind).as_bytes()).unwrap();
    let arguments = arguments(kind);
    bencher.bench(|| {
        let bounded = schema.bound(Some(arguments.as_bytes())).unwrap();
        assert!(schema.check(&bounded).is_empty());
    });
}
