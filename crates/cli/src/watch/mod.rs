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

pub(crate) use report::Report;
#[cfg(test)]
pub(crate) use report::Seen;
pub(crate) use trust::Trust;
pub(crate) use view::{Options, Viewer};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to watch: `https://HOST[:PORT]/PATH`. A path that ends in `.flv` or `.m3u8` is played.
    url: String,
    /// Stop after this long; otherwise at the end of the stream.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Watch N times, one after the other, with one store of TLS sessions and tokens.
    #[arg(long, value_name = "N")]
    repeat: Option<NonZeroU32>,
    /// Print one JSON object instead of text; with --repeat, the views are its `runs`.
    #[arg(long)]
    json: bool,
    /// Trust the certificates in this file (PEM) instead of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Trust any certificate: for tests only.
    #[arg(long)]
    insecure: bool,
    /// Send packets to this address, whatever the URL's host and port are.
    #[arg(long, value_name = "ADDR")]
    connect: Option<SocketAddr>,
    /// Report the player's experience to the server, as the web player does.
    #[arg(long)]
    report: bool,
    /// Player to report and show: low-latency, mobile, cautious, or one with a target buffer of
    /// 100 ms to 10 s, such as buffer:300ms.
    #[arg(long, value_name = "PLAYER", default_value = Policy::PRESETS[0].0)]
    player: Policy,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.filter(|s| !s.is_zero()).ok_or_else(|| "expected a number above 0".to_owned())
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), String> {
        let trust = match (self.insecure, self.ca) {
            (true, _) => Trust::Anyone,
            (false, Some(path)) => Trust::File(path),
            (false, None) => Trust::System,
        };
        let mut viewer = Viewer::new(Options {
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
            .map_err(|e| e.to_string())?;
        let mut runs = Vec::new();
        let mut failure = None;
        for _ in 0..self.repeat.map_or(1, NonZeroU32::get) {
            let line = ProgressBar::new_spinner().with_style(style());
            let shown = |report: &Report| line.set_message(report.progress(self.player));
            let result = runtime.block_on(viewer.view(shown));
            line.finish_and_clear();
            let report = match result {
                Ok(report) => report,
                Err(e) => {
                    failure = Some(e);
                    break;
                }
            };
            failure = failure.or(report.failure());
            match self.json {
                true => runs.push(report.json()),
                false => say!("{report}"),
            }
        }
        match (self.json, self.repeat) {
            (true, Some(_)) => {
                say!("{}", serde_json::json!({ "url": self.url, "runs": runs }));
            }
            (true, None) => runs.iter().for_each(|run| say!("{run}")),
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
