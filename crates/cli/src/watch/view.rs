//! Successive views, as by one browser: connects, receives, plays, and reports.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use qoe::Policy;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::beacon::{self, Sums};
use super::client::{Http, Stream, WatchClient, next_data};
use super::hls;
use super::meter::{Meter, lock};
use super::report::{ViewEnd, WatchReport};
use super::target::{Form, WatchTarget};
use super::trust::Trust;
use crate::error::Error;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(200);

/// What to watch, and how.
#[derive(Clone, Debug)]
pub(crate) struct WatchOptions {
    /// `https://HOST[:PORT]/PATH`; `.flv` and `.m3u8` are played, others are only taken.
    pub url: String,
    /// Where packets go instead of the URL's host and port.
    pub connect: Option<SocketAddr>,
    /// Accepted certificates.
    pub trust: Trust,
    /// The end of a view, from its connection on, if the stream does not end before.
    pub limit: Option<Duration>,
    /// Whether the player reports to the server, as the web player does.
    pub reports: bool,
    /// The viewer's pass, if the server has given it one already.
    pub pass: Option<String>,
    /// The player to report.
    pub player: Policy,
}

/// A viewer with a browser's memory between views: TLS sessions, address tokens and its pass.
#[derive(Debug)]
pub(crate) struct WatchViewer {
    options: WatchOptions,
    target: WatchTarget,
    client: WatchClient,
    sums: Sums,
}

/// End of a view after its body failed.
fn broken(error: Error) -> ViewEnd {
    ViewEnd::Broken(error.to_string())
}

impl WatchViewer {
    /// # Errors
    /// One line: the URL or the certificates are of no use.
    pub(crate) fn new(options: WatchOptions) -> Result<Self, Error> {
        let target = WatchTarget::parse(&options.url)?;
        let client = WatchClient::new(&options.trust)?;
        Ok(Self { options, target, client, sums: Sums::default() })
    }

    /// Watches until the stream or the time is over. Passes the current measurements to
    /// `on_progress` a few times a second.
    ///
    /// # Errors
    /// One line: the connection failed. Later failures are in the report, see
    /// [`WatchReport::failure`].
    pub(crate) async fn view(
        &mut self,
        mut on_progress: impl FnMut(&WatchReport),
    ) -> Result<WatchReport, Error> {
        let Self { options, target, client, sums } = self;
        let uri = target.with_pass(options.pass.as_deref())?;
        let addresses = match options.connect {
            Some(address) => vec![address],
            None => target.addresses().await?,
        };
        let meter = Mutex::new(Meter::new(&options.url, options.player));
        let reached = |stage| lock(&meter).reached(stage);
        let (http, first) = client.connect(&target.host, &addresses, &uri, &reached).await?;
        let snapshot = || lock(&meter).report(target.form, http.stats());

        let pass = Mutex::new(options.pass.clone());
        let report = async || {
            let known = lock(&pass).clone().filter(|_| options.reports);
            let Some(pass) = known else { return };
            let sums = sums.with(&snapshot(), options.player);
            if sums.post(&http, target, &pass).await {
                lock(&meter).reported();
            }
        };
        let end = {
            let mut body = pin!(body(&http, target, first, &meter, &pass));
            let mut reports = pin!(async {
                loop {
                    sleep(beacon::INTERVAL).await;
                    report().await;
                }
            });
            let deadline = options.limit.and_then(|limit| Instant::now().checked_add(limit));
            let mut deadline = pin!(async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => core::future::pending().await,
                }
            });
            let mut ticks = interval(PROGRESS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    result = &mut body => break result.map_or_else(broken, |()| ViewEnd::Complete),
                    () = &mut deadline => break ViewEnd::Time,
                    () = &mut reports => {}
                    _ = ticks.tick() => on_progress(&snapshot()),
                }
            }
        };
        lock(&meter).end(end);
        // The server counts reports that it misses as unreported.
        let _ = timeout(beacon::LAST, report()).await;
        let report = snapshot();
        *sums = sums.with(&report, options.player);
        options.pass = pass.into_inner().unwrap_or_else(PoisonError::into_inner);
        http.close().await;
        Ok(report)
    }
}

/// Receives the response to the first request and all follow-up requests.
async fn body(
    http: &Http,
    target: &WatchTarget,
    mut stream: Stream,
    meter: &Mutex<Meter>,
    pass: &Mutex<Option<String>>,
) -> Result<(), Error> {
    let response = stream.recv_response().await.map_err(Error::new)?;
    lock(meter).status(response.status());
    if let Some(given) = response.headers().get("mendcast-viewer") {
        *lock(pass) = given.to_str().ok().map(str::to_owned);
    }
    if !response.status().is_success() {
        return Ok(());
    }
    if target.form == Form::Hls {
        return hls::follow(http, target, stream, meter).await;
    }
    while let Some(data) = next_data(&mut stream).await? {
        match target.form {
            Form::Flv => lock(meter).flv(&data).map_err(Error::new)?,
            _ => lock(meter).bytes(data.len()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_can_go_to_another_thread() {
        fn sent(_: impl Send) {}
        let mut viewer = WatchViewer::new(WatchOptions {
            url: "https://mendcast.test/live/demo.flv".into(),
            connect: None,
            trust: Trust::Anyone,
            limit: None,
            reports: false,
            pass: None,
            player: Policy::MOBILE,
        })
        .expect("a URL");
        sent(viewer.view(|_| {}));
    }
}
