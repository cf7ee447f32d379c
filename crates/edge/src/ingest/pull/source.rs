//! Sources of tags, by the protocol of the upstream.

use media::Tag;
use tokio::time::timeout;
use url::Url;

use super::flv::FlvSource;
use super::hls::HlsSource;
use super::http::{Upstream, check};
use super::report::{PullError, Reporter};
use super::rtmp::RtmpSource;
use super::selection::selection;
use super::via::Via;
use crate::client::{Client, no_answer};
use crate::config;

pub(super) enum PullSource {
    Rtmp(Box<RtmpSource>),
    Flv(Box<FlvSource>),
    Hls(Box<HlsSource>),
}

impl PullSource {
    /// Connects to an upstream. Its first response may take at most the rule's timeout.
    pub(super) async fn open(
        client: &Client,
        url: Url,
        rule: &config::Pull,
        live: &config::Live,
        reporter: Reporter,
        via: &Via,
    ) -> Result<Self, PullError> {
        let (limit, max_tag) = (rule.timeout, live.max_tag.as_usize());
        if url.scheme().starts_with("rtmp") {
            let opened = RtmpSource::open(client, url.as_str(), max_tag, limit);
            return Ok(Self::Rtmp(Box::new(opened.await?)));
        }
        let mut upstream = Upstream::new(client.clone(), url, rule, via);
        let url = upstream.url().clone();
        let got = timeout(limit, upstream.get(&url, None));
        let (from, response) = got.await.map_err(|_| no_answer(limit))??;
        check(&response)?;
        let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let is_playlist = kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("mpegurl"))
            || [&url, &from].iter().any(|url| url.path().ends_with(".m3u8"));
        Ok(if is_playlist {
            let first = (from, response);
            let (_, selection) = selection(rule, reporter.stream());
            Self::Hls(Box::new(HlsSource::start(upstream, first, selection, limit, reporter)))
        } else {
            Self::Flv(Box::new(FlvSource::new(response, max_tag, limit, reporter)))
        })
    }

    /// Returns the next tag; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Tag>, PullError> {
        match self {
            Self::Rtmp(source) => source.next().await,
            Self::Flv(source) => source.next().await,
            Self::Hls(source) => source.next().await,
        }
    }
}
