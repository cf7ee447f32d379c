//! Converts segments into audio and video samples in time order.

use bytes::Bytes;

use crate::fmp4::read::{CodecConfig, Movie};
use crate::fmp4::{self, Sample};
use crate::ts;

/// A configuration or sample, which becomes a tag.
#[derive(Debug)]
pub(super) struct PullItem {
    /// 0 for video, 1 for audio.
    pub(super) index: usize,
    /// Decoding time.
    pub(super) ms: i64,
    pub(super) content: ItemContent,
}

#[derive(Debug)]
pub(super) enum ItemContent {
    Config(CodecConfig),
    Sample { data: Bytes, sync: bool, composition_ms: i64 },
}

impl PullItem {
    fn sample(index: usize, sample: Sample, timescale: u32) -> Self {
        let scale = i128::from(timescale);
        let ms = |time: i64| ((i128::from(time) * 1_000 + scale / 2).div_euclid(scale)) as i64;
        let (dts, pts) = (ms(sample.dts), ms(sample.dts + i64::from(sample.composition)));
        let content =
            ItemContent::Sample { data: sample.data, sync: sample.sync, composition_ms: pts - dts };
        Self { index, ms: dts, content }
    }
}

/// Returns 0 for video, 1 for audio.
fn config_index(config: &CodecConfig) -> usize {
    usize::from(!matches!(config, CodecConfig::Video(_)))
}

/// Returns the samples of the first video and first audio track of a segment, in time order.
pub(super) fn mp4_items(
    movie: &Movie,
    segment: &Bytes,
) -> Result<Vec<PullItem>, fmp4::read::Error> {
    let location = |kind| movie.tracks.iter().position(|track| config_index(&track.config) == kind);
    let chosen = [location(0), location(1)];
    let mut items = Vec::new();
    let mut reported = [false; 2];
    for (track, sample) in movie.samples(segment)? {
        let Some(kind) = chosen.iter().position(|chosen| *chosen == Some(track)) else { continue };
        let track = &movie.tracks[track];
        let item = PullItem::sample(kind, sample, track.timescale);
        if !core::mem::replace(&mut reported[kind], true) {
            let content = ItemContent::Config(track.config.clone());
            items.push(PullItem { index: kind, ms: item.ms, content });
        }
        items.push(item);
    }
    Ok(by_time(items))
}

pub(super) fn ts_items(
    reader: &mut ts::SegmentReader,
    segment: &[u8],
) -> Result<Vec<PullItem>, ts::read::Error> {
    let mut items: Vec<PullItem> = Vec::new();
    let mut configs = [None, None];
    for item in reader.read(segment)? {
        let (index, sample) = match item {
            ts::read::Item::Config(config) => {
                let index = config_index(&config);
                configs[index] = Some(config);
                continue;
            }
            ts::read::Item::Video(sample) => (0, sample),
            ts::read::Item::Audio(sample) => (1, sample),
        };
        let item = PullItem::sample(index, sample, ts::TIMESCALE);
        if let Some(config) = configs[index].take() {
            items.push(PullItem { index, ms: item.ms, content: ItemContent::Config(config) });
        }
        items.push(item);
    }
    Ok(by_time(items))
}

/// Sorts the items of a segment by time. Configurations precede all frames: the receiver of the
/// first frame must know which other tracks exist.
fn by_time(mut items: Vec<PullItem>) -> Vec<PullItem> {
    let first = items.iter().map(|item| item.ms).min().unwrap_or(0);
    for index in 0..2 {
        let start = items.iter_mut().find(|item| item.index == index);
        if let Some(item) = start.filter(|item| matches!(item.content, ItemContent::Config(_))) {
            item.ms = first;
        }
    }
    items.sort_by_key(|item| (item.ms, matches!(item.content, ItemContent::Sample { .. })));
    items
}
