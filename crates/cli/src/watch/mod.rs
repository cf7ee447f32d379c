//! `mendcast watch`: a headless viewer on a third-party HTTP/3 stack (`quinn` and `h3`,
//! unmodified), for independent measurements of the server.

mod beacon;
mod client;
mod hls;
mod meter;
mod report;
mod target;
mod trust;
mod view;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use qoe::Policy;

use crate::error::Error;

#[cfg(test)]
pub(crate) use report::PolicyPlayback;
pub(crate) use report::WatchReport;
pub(crate) use trust::Trust;
pub(crate) use view::{WatchOptions, WatchViewer};

const EXAMPLES: &str = "\
Examples:
  mendcast watch https://127.0.0.1:4433/live/demo.flv --insecure --seconds 10
  mendcast watch https://edge.example/live/demo/index.m3u8 --player buffer:300ms --json
  mendcast watch https://edge.example/live/demo.flv --repeat 3 --seconds 5

Bodies of .flv and .m3u8 are played, others are only received. The exit code is 1 if a view fails.";
const CONNECTION: &str = "Connection";
const PLAYER: &str = "Player";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// URL: `https://HOST[:PORT]/PATH`.
    #[arg(value_name = "URL")]
    url: String,
    /// Duration of a view, in seconds [default: until the stream ends].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Number of views in turn, with the same TLS sessions and tokens.
    #[arg(long, value_name = "N")]
    repeat: Option<NonZeroU32>,
    /// Print one JSON object; with --repeat, the views are its `runs`.
    #[arg(long)]
    json: bool,
    /// Trusted certificates (PEM) [default: the system's].
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = CONNECTION)]
    ca: Option<PathBuf>,
    /// Trust any certificate; for tests.
    #[arg(long, help_heading = CONNECTION)]
    insecure: bool,
    /// Address to send packets to, instead of the URL's.
    #[arg(long, value_name = "ADDR", help_heading = CONNECTION)]
    connect: Option<SocketAddr>,
    /// Player to show: low-latency, mobile, cautious, or buffer:TIME.
    ///
    /// buffer:300ms keeps a buffer of that length, from 100 ms to 10 s.
    #[arg(
        long,
        value_name = "PLAYER",
        default_value = Policy::PRESETS[0].0,
        help_heading = PLAYER
    )]
    player: Policy,
    /// Report the player's experience to the server, as the web player does.
    #[arg(long, help_heading = PLAYER)]
    report: bool,
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.filter(|s| !s.is_zero()).ok_or("expected a number above 0")
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        let trust = match (self.insecure, self.ca) {
            (true, _) => Trust::Anyone,
            (false, Some(path)) => Trust::File(path),
            (false, None) => Trust::System,
        };
        let mut viewer = WatchViewer::new(WatchOptions {
            url: self.url.clone(),
            connect: self.connect,
            trust,
            limit: self.seconds,
            reports: self.report,
            pass: None,
            player: self.player,
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::new)?;
        let mut runs = Vec::new();
        let mut failure = None;
        for _ in 0..self.repeat.map_or(1, NonZeroU32::get) {
            let line = ProgressBar::new_spinner().with_style(style());
            let shown = |report: &WatchReport| line.set_message(report.progress(self.player));
            let result = runtime.block_on(viewer.view(shown));
            line.finish_and_clear();
            let report = match result {
                Ok(report) => report,
                Err(e) => {
                    failure = Some(e);
                    break;
                }
            };
            failure = failure.or(report.failure().map(Error::from));
            match self.json {
                true => runs.push(report.json()),
                false => print_line!("{report}"),
            }
        }
        match (self.json, self.repeat) {
            (true, Some(_)) => {
                print_line!("{}", serde_json::json!({ "url": self.url, "runs": runs }));
            }
            (true, None) => runs.iter().for_each(|run| print_line!("{run}")),
            (false, _) => {}
        }
        failure.map_or(Ok(()), Err)
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_above_0() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1_500)));
        assert!(seconds("0").is_err() && seconds("-1").is_err() && seconds("x").is_err());
    }
}
