//! Programs to run, servers and viewers to run them against, and the ways to wait for something.

pub mod edge;
pub mod http;
pub mod http3;
pub mod origin;
pub mod programs;
pub mod publishing;
pub mod tls;
pub mod viewer;

use std::time::{Duration, Instant};

use crate::common::publisher::clip;

/// What does not happen within this time does not happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What `look` finds, as soon as it finds something.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look)
}

/// The same within this time.
pub fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}

/// Content of a frame of the clip, equal at every receiver.
type Frame = (media::Kind, bytes::Bytes);

fn content(tag: &media::Tag) -> Frame {
    (tag.kind(), tag.payload())
}

/// Fails unless these frames are the clip's, bit for bit and without a gap, from any key frame on,
/// with the clip's times. The clip goes round and round.
pub fn assert_is_clip(frames: &[media::Tag]) {
    let clip: Vec<_> = clip().into_iter().filter(|tag| !tag.role().is_header()).collect();
    let last = clip.last().expect("a clip").timestamp();
    let first = frames.first().expect("frames");
    let place = clip.iter().position(|tag| content(tag) == content(first));
    let place = place.unwrap_or_else(|| panic!("{first:?} is not in the clip"));
    let start = i64::from(clip[place].timestamp()) - i64::from(first.timestamp());
    for (index, frame) in frames.iter().enumerate() {
        let (round, at) = ((place + index) / clip.len(), (place + index) % clip.len());
        assert!(content(frame) == content(&clip[at]), "{index}: {frame:?} for {:?}", clip[at]);
        let time = i64::from(clip[at].timestamp()) + round as i64 * i64::from(last + 40) - start;
        assert_eq!(i64::from(frame.timestamp()), time, "{index}: {frame:?}");
    }
}

/// The same for sound and pictures each by itself, and without the times: servers of others
/// interleave as they like.
pub fn assert_tracks_are_of_clip(frames: &[media::Tag]) {
    for kind in [media::Kind::Audio, media::Kind::Video] {
        let of_kind = |tags: Vec<media::Tag>| -> Vec<_> {
            let frames = tags.into_iter().filter(|tag| !tag.role().is_header());
            frames.filter(|tag| tag.kind() == kind).map(|tag| tag.payload()).collect()
        };
        let (clip, seen) = (of_kind(clip()), of_kind(frames.to_vec()));
        let place = clip.iter().position(|frame| *frame == seen[0]).expect("a frame of the clip");
        let expected = clip.iter().cycle().skip(place);
        let same = seen.iter().zip(expected).take_while(|(a, b)| a == b).count();
        assert_eq!(same, seen.len(), "{kind:?}");
    }
}

/// Fails unless no kind of tag goes back in time.
pub fn assert_time_goes_on(tags: &[media::Tag]) {
    let mut latest = [0; 3];
    for tag in tags {
        let latest = &mut latest[tag.kind() as usize];
        assert!(tag.timestamp() >= *latest, "{tag:?} after {latest} ms");
        *latest = tag.timestamp();
    }
}
