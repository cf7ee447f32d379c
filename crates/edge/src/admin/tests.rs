//! Tests of the admin listener over its socket.

use super::control::openapi::{FIELDS, OPERATIONS, PAGES, TARGETS};
use super::*;
use crate::config::Config;
use crate::live::settings;
use crate::passes::ViewerId;
use crate::server::Edge;
use crate::sessions::Opening;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

const TOKEN: &str = "correct-horse-battery";
/// Timeout of each wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// An admin listener at this address with these keys; the rest of the edge is not running.
struct Listening {
    shared: Arc<Shared>,
    port: u16,
}

impl Listening {
    async fn at(address: &str, more: &str) -> Self {
        let text =
            format!("server.listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n{more}");
        let edge = Edge::open(Config::parse("edge.toml", &text).expect("valid")).expect("opened");
        let listener = TcpListener::bind(address).await.expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let shared = edge.shared().clone();
        tokio::spawn(serve(listener, shared.clone()));
        Self { shared, port }
    }

    /// Returns status, head and content of the response to a request with these header fields.
    async fn ask(&self, request: &str, fields: &str, body: &str) -> (u16, String, String) {
        let asked = async {
            let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await.expect("connected");
            let host = if fields.contains("host: ") { "" } else { "host: 127.0.0.1\r\n" };
            let length = body.len();
            let text = format!(
                "{request} HTTP/1.1\r\n{host}connection: close\r\ncontent-length: {length}\r\n\
                 {fields}\r\n{body}"
            );
            socket.write_all(text.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            // Content beyond the limit stays unread, which may reset the connection after the
            // response.
            let _ = socket.read_to_string(&mut answer).await;
            let (head, content) = answer.split_once("\r\n\r\n").expect("an answer");
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
            (status.expect("a status"), head.to_ascii_lowercase(), content.to_owned())
        };
        timeout(PATIENCE, asked).await.expect("in time")
    }

    async fn status(&self, request: &str, fields: &str, body: &str) -> u16 {
        self.ask(request, fields, body).await.0
    }
}

const OWN: &str = "mendcast-control: 1\r\n";
const JSON: &str = "mendcast-control: 1\r\ncontent-type: application/json\r\n";
const BAN: &str = r#"{"address":"192.0.2.7","for":"10m"}"#;

#[tokio::test]
async fn web_page_in_the_operators_browser_cannot_change_anything() {
    let edge = Listening::at("127.0.0.1:0", "").await;
    for fields in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/json\r\n",
        "content-type: application/x-www-form-urlencoded\r\norigin: https://evil.example\r\n",
    ] {
        for call in ["POST /api/bans", "POST /api/drain", "POST /api/reload", "DELETE /api/bans/1"]
        {
            assert_eq!(edge.status(call, fields, BAN).await, 403, "{call} {fields}");
        }
    }
    // The page's preflight is not granted.
    let (status, head, _) =
        edge.ask("OPTIONS /api/bans", "origin: https://evil.example\r\n", "").await;
    assert!(status == 405 && !head.contains("access-control"), "{head}");
    let rebound = format!("host: evil.example:9433\r\n{JSON}");
    assert_eq!(edge.status("POST /api/bans", &rebound, BAN).await, 403);
    assert_eq!(edge.status("GET /api/viewers", "host: evil.example\r\n", "").await, 403);
    assert!(!edge.shared.is_draining());
    assert_eq!(edge.shared.state().bans.count(std::time::Instant::now()), 0);
    assert_eq!(edge.status("POST /api/bans", JSON, BAN).await, 201);
    let text = edge.ask("GET /metrics", "", "").await.2;
    for line in [
        "mendcast_control_calls_total{action=\"ban\",result=\"denied\"} 4.0",
        "mendcast_control_calls_total{action=\"ban\",result=\"ok\"} 1.0",
        "mendcast_bans 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn silent_connections_and_event_streams_are_bounded_and_health_stays_available() {
    let edge = Listening::at("127.0.0.1:0", "").await;
    let connect = async || TcpStream::connect(("127.0.0.1", edge.port)).await.expect("connected");
    let ask = async || {
        let mut socket = connect().await;
        let request = b"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
        socket.write_all(request).await.expect("sent");
        let mut status = [0; 12];
        timeout(PATIENCE, socket.read_exact(&mut status)).await.expect("in time").expect("read");
        (socket, &status == b"HTTP/1.1 200")
    };
    let mut streams = vec![];
    for number in 0..visitors::MAX_EVENT_STREAMS + 3 {
        let (socket, is_let_in) = ask().await;
        assert_eq!(is_let_in, number < visitors::MAX_EVENT_STREAMS, "{number}");
        streams.extend(is_let_in.then_some(socket));
    }
    let mut silent = vec![];
    for _ in 0..500 {
        silent.push(connect().await);
    }
    assert_eq!(edge.status("GET /healthz", "", "").await, 200);
    let text = edge.ask("GET /metrics", "", "").await.2;
    let value = |reason: &str| {
        let start = format!("mendcast_connections_limited_total{{reason=\"{reason}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(start.as_str()));
        line.expect(reason).parse::<f64>().expect(reason)
    };
    assert!(value("admin_evicted") >= 400.0, "{text}");
    assert!((value("admin_events") - 3.0).abs() < 0.5, "{text}");
    let mut event = [0; 4_000];
    for socket in &mut streams {
        let read = timeout(PATIENCE, socket.read(&mut event)).await.expect("in time");
        assert!(read.expect("open") > 0, "event streams go on");
    }
    let mut first = silent.swap_remove(0);
    let end = timeout(PATIENCE, first.read(&mut event)).await.expect("in time");
    assert!(end.is_err() || end.is_ok_and(|length| length == 0), "the oldest is closed");
    drop(streams);
    let again = async { while !ask().await.1 {} };
    timeout(PATIENCE, again).await.expect("streams that end make room");
}

#[tokio::test]
async fn remote_listener_requires_the_current_token() {
    let edge = Listening::at("0.0.0.0:0", "").await;
    let calls = ["GET /api/streams", "GET /api/viewers", "GET /api/bans", "POST /api/drain"];
    for call in calls {
        let (status, _, content) = edge.ask(call, OWN, "").await;
        assert!(status == 403 && content.contains("[admin] token"), "{call}: {content}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, "the-token-of-the-file\n").expect("written");
    let text = format!("[admin]\ntoken = \"{TOKEN}\"\ntoken_file = {file:?}");
    edge.shared.reload(Config::parse("edge.toml", &text).expect("valid")).expect("reloaded");
    for call in &calls[..3] {
        let (status, head, _) = edge.ask(call, OWN, "").await;
        assert!(status == 401 && head.contains("www-authenticate: bearer"), "{call}: {head}");
        for token in [TOKEN, "the-token-of-the-file"] {
            let fields = format!("authorization: Bearer {token}\r\n");
            assert_eq!(edge.status(call, &fields, "").await, 200, "{call}");
        }
        let wrong = "authorization: Bearer wrong\r\n";
        assert_eq!(edge.status(call, wrong, "").await, 401, "{call}");
    }
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(edge.status(&format!("GET {path}"), "host: any\r\n", "").await, 200, "{path}");
    }
    std::fs::write(&file, "short\n").expect("written");
    let again = edge.shared.reload(Config::parse("edge.toml", &text).expect("valid"));
    let error = again.expect_err("too short").to_string();
    assert!(error.starts_with("token file ") && !error.contains("short\n"), "{error}");
}

#[tokio::test]
async fn invalid_calls_get_a_reason() {
    let edge = Listening::at("127.0.0.1:0", "").await;
    for (call, fields, body, status, key) in [
        ("POST /api/bans", JSON, r#"{"address":"x","for":"10m"}"#, 400, "address"),
        ("POST /api/bans", JSON, r#"{"address":"192.0.2.7"}"#, 400, "for"),
        ("POST /api/bans", JSON, r#"{"address":"192.0.2.7","for":"31d"}"#, 400, "for"),
        ("POST /api/bans", JSON, r#"{"prefix":"0.0.0.0/0","for":"1m"}"#, 400, "prefix"),
        ("POST /api/bans", JSON, r#"{"prefix":"2001::/8","for":"1m"}"#, 400, "prefix"),
        ("POST /api/bans", JSON, r#"{"viewer":"7","for":"1m"}"#, 400, "viewer"),
        ("POST /api/bans", JSON, r#"{"stream":"../a","for":"1m"}"#, 400, "stream"),
        ("POST /api/bans", JSON, r#"{"adress":"192.0.2.7","for":"1m"}"#, 400, "adress"),
        ("POST /api/bans", JSON, r#"{"for":"1m"}"#, 400, ""),
        ("POST /api/bans", JSON, "{", 400, ""),
        ("POST /api/bans", OWN, BAN, 415, ""),
        ("POST /api/bans", JSON, &" ".repeat(5_000), 413, ""),
        ("POST /api/drain", JSON, r#"{"now":true}"#, 400, "now"),
        ("POST /api/drain?x=1", OWN, "", 400, "x"),
        ("GET /api/viewers?limit=0", "", "", 400, "limit"),
        ("GET /api/viewers?steam=a", "", "", 400, "steam"),
        ("GET /api/bans?cursor=x", "", "", 400, "cursor"),
        ("DELETE /api/viewers/7", OWN, "", 400, "id"),
        ("DELETE /api/viewers/0000000000000007", OWN, "", 404, ""),
        ("DELETE /api/bans/7", OWN, "", 404, ""),
        ("POST /api/streams/live/a/end", OWN, "", 404, ""),
        ("POST /api/reload", OWN, "", 409, ""),
        ("PUT /api/bans", OWN, "", 405, ""),
    ] {
        let (found, head, content) = edge.ask(call, fields, body).await;
        assert_eq!(found, status, "{call} {body:.60}: {content}");
        let value: Value = serde_json::from_str(&content).expect("JSON");
        assert!(value["error"].is_string(), "{call}: {value}");
        assert_eq!(value["key"].as_str().unwrap_or_default(), key, "{call}: {value}");
        assert!(status != 405 || head.contains("allow: get, head, post"), "{head}");
    }
    assert!(!edge.shared.is_draining());
    assert_eq!(edge.status("POST /metrics", OWN, "").await, 405);
}

#[tokio::test]
async fn drain_ends_readiness_but_not_health() {
    let edge = Listening::at("127.0.0.1:0", "").await;
    let probe = async |path: &str| {
        let (status, _, text) = edge.ask(&format!("GET {path}"), "", "").await;
        (status, text)
    };
    assert_eq!(probe("/readyz").await, (200, "ready\n".into()));
    assert_eq!(edge.status("POST /api/drain", OWN, "").await, 202);
    assert_eq!(probe("/readyz").await, (503, "draining\n".into()));
    assert_eq!(probe("/healthz").await, (200, "ok\n".into()));
    assert_eq!(edge.status("POST /api/drain", OWN, "").await, 409);
}

#[test]
fn host_must_be_an_address_or_a_configured_name() {
    let hosts = ["edge-1.example".to_owned()];
    for host in ["127.0.0.1:9433", "localhost", "localhost:1", "[::1]:9433", "10.0.0.7"] {
        assert!(is_own_name(host, &[]), "{host}");
    }
    for host in ["", "evil.example", "evil.example:9433", "localhost.evil.example", "127.0.0.1.x"] {
        assert!(!is_own_name(host, &hosts), "{host}");
    }
    for host in ["edge-1.example", "Edge-1.example:9433"] {
        assert!(is_own_name(host, &hosts) && !is_own_name(host, &[]), "{host}");
    }
}

#[tokio::test]
async fn only_side_by_side_players_may_connect_to_other_https_origins() {
    let edge = Listening::at("127.0.0.1:0", "").await;
    let policy = async |path: &str| {
        let (status, head, _) = edge.ask(&format!("GET {path}"), "", "").await;
        let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: "));
        (status, policy.map(str::to_owned))
    };
    let (status, dashboard) = policy("/").await;
    if status == 503 {
        eprintln!("skipped: this binary was built without its pages (make web)");
        return;
    }
    let dashboard = dashboard.expect("a policy");
    assert!(dashboard.starts_with("default-src 'self';"), "{dashboard}");
    assert!(!dashboard.contains("connect-src"), "{dashboard}");
    let (status, players) = policy("/side-by-side.html?player=a=https://127.0.0.1:5000").await;
    let players = players.expect("a policy");
    assert_eq!(status, 200);
    // Only connect-src is added; scripts stay restricted to our own.
    assert_eq!(players.replace(" connect-src https:;", ""), dashboard);
    assert!(players.contains(" connect-src https:;"), "{players}");
}

#[tokio::test]
async fn user_groups_are_shown_with_any_report_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (table, report) = (folder.path().join("table.groups"), folder.path().join("report.json"));
    let config = format!("[autoplex]\nmode = \"safe\"\nholdout = 0.25\ntable = {table:?}\n");
    let edge = Listening::at("0.0.0.0:0", &config).await;
    let ask = async |edge: &Listening| {
        let (status, head, content) = edge.ask("GET /api/autoplex", "", "").await;
        assert!(status == 200 && head.contains("content-type: application/json"), "{head}");
        assert!(head.contains("cache-control: no-store"), "{head}");
        serde_json::from_str::<Value>(&content).expect("JSON")
    };
    let state = ask(&edge).await;
    assert_eq!((&state["mode"], &state["shares"]["holdout"]), (&"safe".into(), &0.25.into()));
    assert_eq!((&state["limits"]["floor"], &state["table"]), (&1.5.into(), &Value::Null));
    assert_eq!(
        (&state["sessions"]["treated"], &state["absent"]["no table"]),
        (&0.into(), &0.into())
    );
    let fault = |state: &Value| state["report_fault"].as_str().unwrap_or_default().to_owned();
    assert!(fault(&state).starts_with("report.json: no report"), "{state}");
    assert!(!state.to_string().contains(&*folder.path().to_string_lossy()), "no paths: {state}");
    for (text, why) in [("{\"end\":", "damaged"), (&" ".repeat(5 << 20), "larger than 4 MiB")] {
        std::fs::write(&report, text).expect("written");
        let state = ask(&edge).await;
        assert!(fault(&state).contains(why) && state["report"].is_null(), "{state}");
    }
    std::fs::write(&report, r#"{"end":7,"shown":[]}"#).expect("written");
    std::fs::write(&table, "no table").expect("written");
    edge.shared.state().autoplex.poll_file(&table);
    let state = ask(&edge).await;
    assert_eq!((&state["report"]["end"], &state["report_fault"]), (&7.into(), &Value::Null));
    assert_eq!((&state["tables"]["loaded"], &state["tables"]["refused"]), (&0.into(), &1.into()));
    let (status, head, content) = edge.ask("HEAD /api/autoplex", "", "").await;
    assert!(status == 200 && content.is_empty(), "{head}");
    assert_eq!(edge.status("POST /api/autoplex", OWN, "").await, 405);
    assert_eq!(edge.status("GET /api/autoplex", "host: evil.example\r\n", "").await, 403);
    // Without a table no report is expected.
    let off = Listening::at("127.0.0.1:0", "").await;
    let state = ask(&off).await;
    assert_eq!((&state["mode"], fault(&state)), (&"off".into(), String::new()));
}

/// Whether an answer has exactly the described fields of this schema, with their types.
fn check_fields(schema: &str, answer: &Value) {
    let (_, fields) = FIELDS.iter().find(|(name, _)| *name == schema).expect(schema);
    let answer = answer.as_object().expect("an object");
    for (name, kind) in *fields {
        let value = answer.get(*name).unwrap_or_else(|| panic!("{schema} lacks {name}"));
        let is_right = match (kind.trim_end_matches('?'), value) {
            ("any", _) => true,
            (_, Value::Null) => kind.ends_with('?'),
            ("string", value) => value.is_string(),
            ("integer", value) => value.is_u64(),
            ("number", value) => value.is_number(),
            ("boolean", value) => value.is_boolean(),
            (list, Value::Array(items)) if list.starts_with("[]") => {
                let item = list.trim_start_matches("[]");
                let objects = items.iter().filter(|item| item.is_object());
                objects.for_each(|object| check_fields(item, object));
                true
            }
            _ => false,
        };
        assert!(is_right, "{schema}: {name} = {value}, expected {kind}");
    }
    let is_known = |name: &String| {
        let is_target = schema.starts_with("Ban") && TARGETS.contains(&name.as_str());
        is_target || fields.iter().any(|(known, _)| known == name)
    };
    assert!(answer.keys().all(is_known), "{schema}: {answer:?}");
}

#[tokio::test]
async fn calls_are_as_the_openapi_description_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("edge.toml");
    std::fs::write(&file, "server.listen = \"127.0.0.1:0\"\n").expect("written");
    let edge = Listening::at("127.0.0.1:0", "").await;
    edge.shared.set_file(&file);
    let state = edge.shared.state();
    let _publisher = state.live.streams.publish("live/a", settings(&state.config.live));
    let opening = Opening {
        stream: "live/a".into(),
        protocol: Protocol::Http1,
        format: "flv",
        remote: [192, 0, 2, 1].into(),
        viewer: ViewerId::random(),
        granted: SystemTime::now(),
        until: None,
        unit: None,
        cohort: String::new(),
        scheme: "",
        tcp: None,
    };
    let viewer = opening.viewer.to_string();
    let mut sessions = vec![state.sessions.begin(opening.clone(), vec![])];
    for operation in &OPERATIONS {
        // Ends the sessions of others.
        if operation.path.contains("{viewer}") {
            sessions.push(state.sessions.begin(opening.clone(), vec![]));
        }
        let path = operation.path.replace("{viewer}", &viewer).replace("{name}", "live/a");
        let path = path.replace("{id}", "1");
        let call = format!("{} {path}", operation.method.to_uppercase());
        for (name, ..) in operation.query {
            let (status, _, text) = edge.ask(&format!("{call}?{name}=%00"), OWN, "").await;
            assert!(!text.contains("unknown parameter"), "{call} {name}: {status} {text}");
        }
        for (name, _) in operation.keys {
            let body = format!("{{\"{name}\":7}}");
            let (status, _, text) = edge.ask(&call, JSON, &body).await;
            let error: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!((status, error["key"].as_str()), (400, Some(*name)), "{call}: {text}");
            assert!(!text.contains("unknown key"), "{call} {name}: {text}");
        }
        let body = match operation.answer {
            "Banned" => BAN,
            "Log" if operation.method == "post" => r#"{"level":"info"}"#,
            "Ended" => r#"{"for":"10m"}"#,
            _ => "",
        };
        let (status, _, text) = edge.ask(&call, JSON, body).await;
        assert_eq!(status, operation.status, "{call}: {text}");
        check_fields(operation.answer, &serde_json::from_str(&text).expect("JSON"));
    }
    for (path, _, kind, statuses) in PAGES {
        if path == "/api/events" {
            continue;
        }
        let (status, head, _) = edge.ask(&format!("GET {path}"), "", "").await;
        assert!(statuses.contains(&status) && head.contains(kind), "{path}: {head}");
    }
}

#[tokio::test]
async fn the_log_level_is_set_by_word() {
    let edge = Listening::at("127.0.0.1:0", "log.level = \"warn\"\n").await;
    let (status, _, text) = edge.ask("GET /api/log", "", "").await;
    assert_eq!((status, text.contains("\"configured\":\"warn\"")), (200, true), "{text}");
    for body in [r#"{"level":"loud"}"#, r#"{"level":"INFO"}"#, r#"{"level":7}"#, "{}"] {
        let (status, _, text) = edge.ask("POST /api/log", JSON, body).await;
        let error: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((status, &error["key"]), (400, &"level".into()), "{body}: {text}");
    }
    let (status, _, text) = edge.ask("POST /api/log", JSON, r#"{"level":"debug"}"#).await;
    assert_eq!((status, text.contains("\"level\":\"debug\"")), (200, true), "{text}");
    assert_eq!(edge.status("POST /api/log", "", r#"{"level":"debug"}"#).await, 403);
}
