//! Description of the admin listener's HTTP interface as OpenAPI 3.1: docs/reference/openapi.json.
//!
//! Tests compare it with the routes, the accepted keys and parameters, and the answers.

use serde_json::{Map, Value, json};

use super::ControlAction;

/// A call of the control API.
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    /// Path with parameters in braces. `{name}` may contain slashes.
    pub path: &'static str,
    pub(super) action: ControlAction,
    summary: &'static str,
    /// Parameters of the query: name, type and meaning.
    pub query: &'static [(&'static str, &'static str, &'static str)],
    /// Keys of the content: name and meaning. All are strings.
    pub keys: &'static [(&'static str, &'static str)],
    /// Status of success.
    pub status: u16,
    /// Statuses of errors, besides those of [`COMMON_ERRORS`].
    errors: &'static [u16],
    /// Schema of the answer.
    pub answer: &'static str,
}

const LIMIT: (&str, &str, &str) =
    ("limit", "integer", "Maximum number of entries, 1 to 1000, default 100");
const CURSOR: (&str, &str, &str) = ("cursor", "string", "`next` of the previous page");
const FOR: &str = "Duration such as 10m, from 1s to 30d";

/// Errors of all calls.
const COMMON_ERRORS: [u16; 4] = [400, 401, 403, 429];
/// Errors of calls with content.
const CONTENT_ERRORS: [u16; 3] = [408, 413, 415];

const NO_KEYS: &[(&str, &str)] = &[];

macro_rules! operation {
    ($method:literal $path:literal, $action:ident, $summary:literal, query $query:expr,
     keys $keys:expr, $status:literal $answer:literal, errors $errors:expr) => {
        Operation {
            method: $method,
            path: $path,
            action: ControlAction::$action,
            summary: $summary,
            query: $query,
            keys: $keys,
            status: $status,
            errors: $errors,
            answer: $answer,
        }
    };
}

/// All calls, in the order of docs/operate/control.md.
pub(crate) const OPERATIONS: [Operation; 12] = [
    operation!("get" "/api/streams", ListStreams, "Lists streams by name",
        query &[LIMIT, CURSOR], keys NO_KEYS, 200 "Streams", errors &[]),
    operation!("get" "/api/viewers", ListViewers, "Lists open sessions, oldest first",
        query &[LIMIT, CURSOR, ("stream", "string", "Only sessions of this stream")],
        keys NO_KEYS, 200 "Viewers", errors &[]),
    operation!("get" "/api/bans", ListBans, "Lists bans",
        query &[LIMIT, CURSOR], keys NO_KEYS, 200 "Bans", errors &[]),
    operation!("delete" "/api/viewers/{viewer}", Kick, "Ends all sessions of a viewer",
        query &[], keys NO_KEYS, 200 "Kicked", errors &[404]),
    operation!("post" "/api/viewers/{viewer}/kick", Kick, "Ends all sessions of a viewer",
        query &[], keys NO_KEYS, 200 "Kicked", errors &[404]),
    operation!("post" "/api/bans", Ban, "Bans one of address, prefix, viewer and stream",
        query &[], keys &[
            ("address", "IPv4 address, or IPv6 address, which stands for its /64"),
            ("prefix", "Network, at least /8 for IPv4 and /16 for IPv6"),
            ("viewer", "Viewer id, 16 hexadecimal digits"),
            ("stream", "Stream name"),
            ("for", FOR),
        ], 201 "Banned", errors &[409]),
    operation!("delete" "/api/bans/{id}", Unban, "Lifts a ban",
        query &[], keys NO_KEYS, 200 "Ban", errors &[404]),
    operation!("post" "/api/streams/{name}/end", End, "Ends a stream, and bans it for a time",
        query &[], keys &[("for", FOR)], 200 "Ended", errors &[404, 409]),
    operation!("get" "/api/log", ShowLog, "Shows the level of the log",
        query &[], keys NO_KEYS, 200 "Log", errors &[]),
    operation!("post" "/api/log", SetLogLevel, "Sets the level of the log until the next reload",
        query &[], keys &[("level", "error, warn, info, debug or trace")],
        200 "Log", errors &[]),
    operation!("post" "/api/reload", Reload, "Reloads the configuration file",
        query &[], keys NO_KEYS, 200 "Reloaded", errors &[409]),
    operation!("post" "/api/drain", Drain, "Drains the server, which then ends",
        query &[], keys NO_KEYS, 202 "Draining", errors &[409]),
];

/// Paths without control actions: path, summary, content type, and statuses.
pub(crate) const PAGES: [(&str, &str, &str, &[u16]); 8] = [
    ("/api/state", "State for the dashboard; changes with it", "application/json", &[200]),
    (
        "/api/events",
        "The same each second, as server-sent events",
        "text/event-stream",
        &[200, 503],
    ),
    ("/api/autoplex", "User groups and the last decision", "application/json", &[200]),
    (
        "/api/outputs",
        "Targets of pushes, directories of recordings and uploads, with counts",
        "application/json",
        &[200],
    ),
    ("/api/openapi.json", "This description", "application/json", &[200]),
    ("/metrics", "Metrics, as OpenMetrics or Prometheus text by Accept", "text/plain", &[200]),
    ("/healthz", "Liveness", "text/plain", &[200, 503]),
    ("/readyz", "Readiness for viewers", "text/plain", &[200, 503]),
];

/// Fields of answers: schema, field and type. A type with `?` may be null, a list is `[]` and the
/// schema of its items.
pub(crate) const FIELDS: [(&str, &[(&str, &str)]); 12] = [
    ("Streams", &[("streams", "[]Stream"), ("next", "string?"), ("left_out", "integer")]),
    (
        "Stream",
        &[
            ("name", "string"),
            ("source", "string"),
            ("status", "string"),
            ("viewers", "integer"),
            ("gop_ms", "integer?"),
            ("key_frame_age_ms", "integer?"),
            ("skips", "integer"),
            ("thinned", "integer"),
            ("codecs", "string"),
            ("corrections", "any"),
            ("error", "string?"),
        ],
    ),
    ("Viewers", &[("viewers", "[]Viewer"), ("next", "string?"), ("left_out", "integer")]),
    (
        "Viewer",
        &[
            ("viewer", "string"),
            ("session", "integer"),
            ("stream", "string"),
            ("protocol", "string"),
            ("format", "string"),
            ("address", "string"),
            ("age_s", "number"),
            ("bytes", "integer"),
        ],
    ),
    ("Bans", &[("bans", "[]Ban"), ("next", "string?"), ("left_out", "integer")]),
    ("Kicked", &[("viewer", "string"), ("ended", "integer")]),
    ("Ended", &[("stream", "string"), ("banned_s", "number?")]),
    ("Log", &[("level", "string"), ("configured", "string")]),
    ("Reloaded", &[("for_new", "[]string"), ("at_once", "[]string"), ("at_start", "[]string")]),
    ("Draining", &[("draining", "boolean"), ("timeout_s", "number")]),
    ("Ban", &[("id", "integer"), ("left_s", "number")]),
    ("Banned", &[("id", "integer"), ("left_s", "number"), ("ended", "integer")]),
];

/// Targets of bans. Each ban has one.
pub(crate) const TARGETS: [&str; 3] = ["prefix", "viewer", "stream"];

/// Returns the description, indented, with a final line feed.
pub fn describe() -> String {
    let mut paths = Map::new();
    for operation in &OPERATIONS {
        let entry = paths.entry(operation.path).or_insert_with(|| json!({}));
        entry[operation.method] = describe_operation(operation);
    }
    for (path, summary, kind, statuses) in PAGES {
        let responses = statuses.iter().map(|status| {
            let content = json!({ kind: { "schema": {} } });
            (status.to_string(), json!({ "description": name(*status), "content": content }))
        });
        let responses: Map<_, _> = responses.collect();
        paths.insert(
            path.into(),
            json!({ "get": { "summary": summary, "security": [], "responses": responses } }),
        );
    }
    let description = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Mendcast admin listener",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Plain HTTP/1.1 on `[admin] listen`. docs/operate/control.md explains \
                            authorization, kicks and bans.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:9433" }],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "local": {
                    "type": "apiKey",
                    "in": "header",
                    "name": crate::admin::access::HEADER,
                    "description": "Any value, on a loopback address only",
                },
            },
        },
    });
    // Only maps with other keys than strings fail.
    serde_json::to_string_pretty(&description).unwrap_or_default() + "\n"
}

fn describe_operation(operation: &Operation) -> Value {
    let changes = operation.action.changes();
    let in_path = operation.path.split('/').filter_map(|part| part.strip_prefix('{'));
    let in_path = in_path.map(|part| {
        let name = part.trim_end_matches('}');
        let schema = json!({ "type": "string" });
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let in_query = operation.query.iter().map(|(name, kind, about)| {
        let schema = json!({ "type": kind });
        json!({ "name": name, "in": "query", "description": about, "schema": schema })
    });
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let content = json!({ "application/json": { "schema": reference(operation.answer) } });
    let success = json!({ "description": name(operation.status), "content": content });
    let content: &[u16] = if changes { &CONTENT_ERRORS } else { &[] };
    let mut errors = [&COMMON_ERRORS[..], operation.errors, content].concat();
    errors.sort_unstable();
    let mut responses = Map::from_iter([(operation.status.to_string(), success)]);
    responses.extend(errors.into_iter().map(|status| {
        let content = json!({ "application/json": { "schema": reference("Error") } });
        (status.to_string(), json!({ "description": name(status), "content": content }))
    }));
    // Calls that read need nothing on loopback.
    let security = if changes {
        json!([{ "token": [] }, { "local": [] }])
    } else {
        json!([{ "token": [] }, {}])
    };
    let mut described = json!({
        "operationId": operation_id(operation),
        "summary": operation.summary,
        "security": security,
        "parameters": parameters,
        "responses": responses,
    });
    if !operation.keys.is_empty() {
        let keys = operation.keys.iter().map(|(key, about)| {
            ((*key).to_owned(), json!({ "type": "string", "description": about }))
        });
        let keys: Map<_, _> = keys.collect();
        let schema = json!({ "type": "object", "additionalProperties": false, "properties": keys });
        described["requestBody"] =
            json!({ "content": { "application/json": { "schema": schema } } });
    }
    described
}

/// Returns a unique identifier: the action, or the action with its method.
fn operation_id(operation: &Operation) -> String {
    let same = OPERATIONS.iter().filter(|other| other.action == operation.action).count();
    let name = operation.action.name();
    if same > 1 { format!("{name}_by_{}", operation.method) } else { name.to_owned() }
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn schemas() -> Map<String, Value> {
    let mut all = Map::new();
    for (name, fields) in FIELDS {
        let required: Vec<_> = fields.iter().map(|(field, _)| *field).collect();
        let properties = fields.iter().map(|(field, kind)| ((*field).to_owned(), schema(kind)));
        let mut properties: Map<_, _> = properties.collect();
        if matches!(name, "Ban" | "Banned") {
            properties.extend(TARGETS.map(|target| (target.to_owned(), schema("string"))));
        }
        all.insert(
            name.into(),
            json!({ "type": "object", "required": required, "properties": properties }),
        );
    }
    let error = json!({ "error": schema("string"), "key": schema("string") });
    all.insert(
        "Error".into(),
        json!({ "type": "object", "required": ["error"], "properties": error }),
    );
    all
}

fn schema(kind: &str) -> Value {
    const PLAIN: [&str; 4] = ["string", "integer", "number", "boolean"];
    if let Some(item) = kind.strip_prefix("[]") {
        return json!({ "type": "array", "items": schema(item) });
    }
    match kind.strip_suffix('?') {
        Some(kind) => json!({ "type": [kind, "null"] }),
        None if kind == "any" => json!({}),
        None if PLAIN.contains(&kind) => json!({ "type": kind }),
        None => reference(kind),
    }
}

fn name(status: u16) -> &'static str {
    let status = hyper::StatusCode::from_u16(status);
    status.ok().and_then(|status| status.canonical_reason()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
