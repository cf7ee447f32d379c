//! Programs of other projects, where they are installed.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::until;

/// The demo clip.
pub const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/demo.flv");
/// Where Debian's `libnginx-mod-rtmp` is.
const NGINX_RTMP: &str = "/usr/lib/nginx/modules/ngx_rtmp_module.so";

/// Whether the program is installed; otherwise reports the skipped test.
pub fn has(program: &str) -> bool {
    let mut found = Command::new(program)
        .arg(if program == "nginx" { "-v" } else { "-version" })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    let mut what = program;
    if program == "nginx" && found && !Path::new(NGINX_RTMP).exists() {
        (what, found) = ("nginx's RTMP module", false);
    }
    if !found {
        let test = std::thread::current();
        let test = test.name().unwrap_or_default();
        let packages = "Debian: apt-get install ffmpeg curl nginx-light libnginx-mod-rtmp";
        // Past the test harness, which shows only what failing tests print.
        let _ = writeln!(std::io::stderr(), "skipped {test}: no {what} here ({packages})");
    }
    found
}

/// A process that is killed when it is dropped.
pub struct Program(Child);

impl Program {
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("started"))
    }

    /// kill -9.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs ffmpeg, which sends the clip in a loop, in real time and unmodified, to this place.
pub fn ffmpeg_sends(format: &[&str], place: &str) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-re", "-stream_loop", "-1", "-i", CLIP, "-c", "copy"]);
    Program::start(command.args(format).arg(place))
}

/// Decodes this many seconds of a URL with ffmpeg: errors on stderr, progress on stdout.
pub fn ffmpeg_plays(url: &str, seconds: u32) -> Output {
    let mut command = Command::new("timeout");
    command.args(["20", "ffmpeg", "-v", "warning", "-nostats", "-progress", "pipe:1"]);
    if url.starts_with("https") {
        command.args(["-tls_verify", "0"]);
    }
    command.args(["-i", url, "-t", &seconds.to_string(), "-f", "null", "-"]);
    command.stdin(Stdio::null()).output().expect("run")
}

/// nginx with its RTMP module, listening for RTMP at this address; without workers, so that killing
/// it kills all of it.
pub fn nginx(directory: &Path, rtmp: SocketAddr) -> Program {
    let config = directory.join("nginx.conf");
    let text = format!(
        "load_module {NGINX_RTMP}; daemon off; master_process off; pid nginx.pid;
         error_log stderr; events {{}}
         rtmp {{ server {{ listen {rtmp}; application live {{ live on; }} }} }}"
    );
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new("nginx");
    command.arg("-p").arg(directory).arg("-c").arg(&config).args(["-e", "stderr"]);
    let program = Program::start(&mut command);
    until("nginx listens", || TcpStream::connect(rtmp).is_ok());
    program
}

/// An address without a listener.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.local_addr().expect("bound")
}
