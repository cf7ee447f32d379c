//! Responses of a directory.

use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::http::tests::drained;
use crate::viewer::Protocol;

const NOW: Duration = Duration::from_secs(2_000_000_000);

struct Site {
    files: Files,
    // Removed on drop.
    dir: tempfile::TempDir,
}

fn site() -> Site {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("www");
    std::fs::create_dir_all(root.join("sub dir/empty")).expect("created");
    let write = |name: &str, content: &[u8]| {
        std::fs::write(root.join(name), content).expect("written");
    };
    write("index.html", b"<p>home");
    write("a b.txt", b"0123456789");
    write("none.bin", b"");
    write("sub dir/index.html", b"<p>sub");
    write(".hidden", b"secret");
    std::fs::write(dir.path().join("secret.txt"), b"secret").expect("written");
    symlink("../secret.txt", root.join("leak.txt")).expect("linked");
    symlink("..", root.join("up")).expect("linked");
    symlink("a b.txt", root.join("alias.txt")).expect("linked");
    symlink("loop", root.join("loop")).expect("linked");
    let files = Files::new(&root, "max-age=60", 1 << 20, &[]).expect("readable");
    Site { files, dir }
}

impl Site {
    fn request(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        let fields = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let (remote, protocol) = (([127, 0, 0, 1], 1).into(), Protocol::Http3);
        let head = RequestHead { fields, ..RequestHead::new(method, target, remote, protocol) };
        self.files.respond(&head, UNIX_EPOCH + NOW)
    }

    fn get(&self, target: &str) -> Response {
        self.request("GET", target, &[])
    }
}

fn content(response: Response) -> Vec<u8> {
    drained(response.body)
}

#[test]
fn files_have_type_length_validators_and_cache_control() {
    let site = site();
    let response = site.get("/a%20b.txt?query");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.header("content-length"), Some("10"));
    assert_eq!(response.header("accept-ranges"), Some("bytes"));
    assert_eq!(response.header("cache-control"), Some("max-age=60"));
    assert_eq!(response.header("date"), Some("Wed, 18 May 2033 03:33:20 GMT"));
    assert!(response.header("etag").is_some() && response.header("last-modified").is_some());
    assert_eq!(content(response), b"0123456789");
    assert_eq!(content(site.get("/")), b"<p>home");
    assert_eq!(content(site.get("/alias.txt")), b"0123456789");
    assert_eq!(content(site.get("/./sub%20dir//index.html")), b"<p>sub");
    assert_eq!(site.get("/none.bin").header("content-length"), Some("0"));
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let site = site();
    for target in ["/a%20b.txt", "/missing", "/sub%20dir", "/none.bin"] {
        let (get, head) = (site.get(target), site.request("HEAD", target, &[]));
        assert_eq!((get.status, get.headers), (head.status, head.headers));
        assert!(matches!(head.body, Body::Empty));
    }
    let ranged = site.request("HEAD", "/a%20b.txt", &[("range", "bytes=0-1")]);
    assert_eq!((ranged.status, ranged.header("content-length")), (200, Some("10")));
}

#[test]
fn ranges_return_parts() {
    let site = site();
    let part = site.request("GET", "/a%20b.txt", &[("range", "bytes=2-4")]);
    assert_eq!(part.status, 206);
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(part.header("content-length"), Some("3"));
    assert_eq!(content(part), b"234");
    let beyond = site.request("GET", "/a%20b.txt", &[("range", "bytes=10-")]);
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */10")));
}

#[test]
fn large_files_are_not_cached() {
    let site = site();
    let large: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(site.dir.path().join("www/large.bin"), &large).expect("written");
    let part = site.request("GET", "/large.bin", &[("range", "bytes=100000-")]);
    assert!(matches!(&part.body, Body::File(body) if body.remaining() == 200_000));
    assert!(content(part) == large[100_000..]);
}

#[test]
fn unchanged_files_give_304_with_validators() {
    let site = site();
    let etag = site.get("/").header("etag").expect("a tag").to_owned();
    let response = site.request("GET", "/", &[("if-none-match", &etag)]);
    assert_eq!((response.status, response.header("etag")), (304, Some(etag.as_str())));
    assert_eq!(response.header("cache-control"), Some("max-age=60"));
    assert_eq!(response.header("content-length"), None);
    assert!(content(response).is_empty());
    assert_eq!(site.request("GET", "/", &[("if-match", "\"x\"")]).status, 412);
}

#[test]
fn changed_files_have_another_tag() {
    let site = site();
    let old = site.get("/a%20b.txt").header("etag").expect("a tag").to_owned();
    let path = site.dir.path().join("www/a b.txt");
    std::fs::write(&path, b"abc").expect("written");
    let new = site.get("/a%20b.txt");
    assert_ne!(new.header("etag"), Some(old.as_str()));
    assert_eq!(content(new), b"abc");
}

#[test]
fn nothing_outside_the_root_is_served() {
    let site = site();
    let cases = [
        ("/../secret.txt", 400),
        ("/%2e%2e/secret.txt", 400),
        ("/sub%20dir/../../secret.txt", 400),
        ("/..%2fsecret.txt", 404),
        ("/x%2f..%2f..%2fsecret.txt", 400),
        ("/leak.txt", 404),
        ("/up/secret.txt", 404),
        ("/up/", 404),
        ("/up", 404),
        ("/.hidden", 404),
        ("/loop", 404),
        ("/a%00b", 400),
        ("/a%2", 400),
        ("/a%zz", 400),
        ("/%ff", 400),
        ("*", 400),
        ("", 400),
        ("/a%20b.txt/", 404),
        ("/a%20b.txt/x", 404),
        ("/sub%20dir/empty/", 404),
        ("/missing", 404),
    ];
    for (target, status) in cases {
        let response = site.get(target);
        assert_eq!(response.status, status, "{target}");
        assert!(!content(response).windows(6).any(|w| w == b"secret"), "{target}");
    }
    assert_eq!(site.get(&format!("/{}", "x".repeat(5000))).status, 404);
}

#[test]
fn sockets_are_not_opened() {
    let site = site();
    let socket = site.dir.path().join("www/socket");
    let _listener = std::os::unix::net::UnixListener::bind(socket).expect("bound");
    assert_eq!(site.get("/socket").status, 404);
}

#[test]
fn directories_without_slash_redirect_within_the_host() {
    let site = site();
    let cases = [
        ("/sub%20dir", "sub%20dir/"),
        ("/sub%20dir?a=b", "sub%20dir/?a=b"),
        ("//sub%20dir", "sub%20dir/"),
    ];
    for (target, location) in cases {
        let response = site.get(target);
        assert_eq!((response.status, response.header("location")), (301, Some(location)));
    }
}

#[test]
fn other_methods_give_405_with_allow() {
    let site = site();
    for method in ["POST", "PUT", "OPTIONS", "CONNECT", "get", "BREW"] {
        let response = site.request(method, "/", &[]);
        assert_eq!((response.status, response.header("allow")), (405, Some("GET, HEAD")));
    }
}

#[test]
fn the_root_must_be_a_directory() {
    let site = site();
    assert!(Files::new(&site.dir.path().join("secret.txt"), "", 0, &[]).is_err());
    assert!(Files::new(&site.dir.path().join("missing"), "", 0, &[]).is_err());
}

#[test]
fn answers_wait_for_the_disk() {
    let site = site();
    let files = Arc::new(site.files);
    let fields = vec![("range", b"bytes=2-4".as_slice())];
    let (remote, protocol) = (([127, 0, 0, 1], 1).into(), Protocol::Http3);
    let head = RequestHead { fields, ..RequestHead::new("GET", "/a%20b.txt", remote, protocol) };
    let Answer::Later(answer) = files.answer(&head, UNIX_EPOCH + NOW) else {
        panic!("the disk was read at once");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("made");
    let response = runtime.block_on(answer);
    assert_eq!((response.status, response.header("content-range")), (206, Some("bytes 2-4/10")));
    assert_eq!(content(response), b"234");
}
