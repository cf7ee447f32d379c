//! The description and the routes are the same.

use super::*;
use crate::admin::control::ControlResource;

/// A path for each resource. A new resource does not compile without one.
fn sample(resource: &ControlResource) -> &'static str {
    match resource {
        ControlResource::Streams => "/api/streams",
        ControlResource::End(_) => "/api/streams/x/end",
        ControlResource::Viewers => "/api/viewers",
        ControlResource::Viewer(_) => "/api/viewers/x",
        ControlResource::Kick(_) => "/api/viewers/x/kick",
        ControlResource::Bans => "/api/bans",
        ControlResource::Ban(_) => "/api/bans/x",
        ControlResource::Log => "/api/log",
        ControlResource::Reload => "/api/reload",
        ControlResource::Drain => "/api/drain",
    }
}

fn resources() -> [ControlResource; 10] {
    let x = || "x".to_owned();
    [
        ControlResource::Streams,
        ControlResource::End(x()),
        ControlResource::Viewers,
        ControlResource::Viewer(x()),
        ControlResource::Kick(x()),
        ControlResource::Bans,
        ControlResource::Ban(x()),
        ControlResource::Log,
        ControlResource::Reload,
        ControlResource::Drain,
    ]
}

fn filled(path: &str) -> String {
    path.replace("{viewer}", "x").replace("{id}", "x").replace("{name}", "x")
}

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    for operation in &OPERATIONS {
        let path = filled(operation.path);
        let resource = ControlResource::of(&path).expect(operation.path);
        let method = operation.method.to_ascii_uppercase();
        assert_eq!(resource.action(&method), Ok(operation.action), "{method} {path}");
    }
    let mut routes = 0;
    for resource in resources() {
        let path = sample(&resource);
        assert_eq!(ControlResource::of(path).as_ref(), Some(&resource), "{path}");
        for method in ["get", "post", "put", "delete", "patch", "options"] {
            let Ok(action) = resource.action(&method.to_ascii_uppercase()) else { continue };
            routes += 1;
            let is_this = |known: &&Operation| {
                known.method == method && filled(known.path) == path && known.action == action
            };
            assert!(OPERATIONS.iter().any(|known| is_this(&known)), "{method} {path}");
        }
    }
    assert_eq!(routes, OPERATIONS.len());
}

#[test]
fn the_stored_description_is_current() {
    let stored = include_str!("../../../../../../docs/reference/openapi.json");
    assert!(stored == describe(), "docs/reference/openapi.json: run `make reference`");
    let value: Value = serde_json::from_str(stored).expect("JSON");
    // Each reference leads somewhere, and identifiers are unique.
    let schemas = value["components"]["schemas"].as_object().expect("schemas");
    for part in stored.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().expect("a name");
        assert!(schemas.contains_key(name), "{name}");
    }
    let mut ids: Vec<_> = OPERATIONS.iter().map(operation_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), OPERATIONS.len());
}
