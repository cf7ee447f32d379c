//! Viewers that change between renditions of one stream.

use super::*;

/// Audio frames of 40 ms, between the video frames.
fn audio(number: u32, rendition: u8) -> Tag {
    tag(Kind::Audio, number * 40 + 10, &[0x2f, number as u8, rendition])
}

fn video(number: u32, rendition: u8) -> Tag {
    let first = if number.is_multiple_of(FRAMES) { 0x17 } else { 0x27 };
    tag(Kind::Video, number * 40, &[first, 1, 0, 0, 0, number as u8, rendition])
}

/// A rendition with audio that is late by some frames, in the order of its tags.
struct Rendition {
    publisher: Publisher,
    id: u8,
    audio_delay: u32,
    frames: u32,
}

impl Rendition {
    fn new(registry: &Registry, id: u8, audio_delay: u32) -> Self {
        let publisher = registry.publish(&format!("live/{id}"), settings()).expect("free");
        assert!(publisher.push(header(id)));
        Self { publisher, id, audio_delay, frames: 0 }
    }

    fn publish(&mut self, frames: u32) {
        for number in self.frames..self.frames + frames {
            assert!(self.publisher.push(video(number, self.id)));
            if let Some(number) = number.checked_sub(self.audio_delay) {
                assert!(self.publisher.push(audio(number, self.id)));
            }
        }
        self.frames += frames;
    }
}

/// A viewer that switches to the other rendition at each key frame.
#[derive(Default)]
struct Seen {
    video: Vec<u32>,
    audio: Vec<u32>,
    headers: usize,
    switches: usize,
    own: Vec<u32>,
}

impl Seen {
    fn pull(&mut self, viewer: &mut Viewer, streams: &[Arc<Stream>; 2]) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Some(key) = viewer.next_key()
                && !self.video.is_empty()
            {
                let is_first = Arc::ptr_eq(viewer.stream(), &streams[0]);
                self.switches += usize::from(viewer.switch(&streams[usize::from(is_first)], key));
            }
            let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) else { return };
            let own = viewer.own_time(&tag);
            match tag.role() {
                Role::SequenceHeader => self.headers += 1,
                Role::AudioFrame => self.audio.push(tag.timestamp() / 40),
                _ => {
                    self.video.push(tag.timestamp() / 40);
                    self.own.push(own);
                }
            }
        }
    }
}

fn assert_contiguous(numbers: &[u32]) {
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

#[test]
fn a_switch_neither_loses_nor_repeats_a_frame() {
    for delays in [[0, 0], [0, 5], [5, 0], [8, 3]] {
        let registry = Registry::new(10);
        let mut all = [1, 2].map(|id| Rendition::new(&registry, id, delays[usize::from(id) - 1]));
        let streams = [0, 1].map(|at: usize| all[at].publisher.stream().clone());
        all.iter_mut().for_each(|rendition| rendition.publish(30));
        let mut viewer = Viewer::new(streams[0].clone(), Start::LatestGop).expect("room");
        let mut seen = Seen::default();
        for _ in 0..120 {
            seen.pull(&mut viewer, &streams);
            all.iter_mut().for_each(|rendition| rendition.publish(1));
        }
        assert!(seen.switches >= 4 && seen.headers == seen.switches + 1, "{}", seen.switches);
        assert_contiguous(&seen.video);
        assert_contiguous(&seen.audio);
        let steps: Vec<u32> = seen.own.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.iter().all(|step| *step == 40), "{delays:?} {steps:?}");
        let viewers = streams.each_ref().map(|stream| stream.stats().viewers);
        assert_eq!(viewers.iter().sum::<u64>(), 1);
        assert_eq!(viewer.progress().skips, 0);
        drop(viewer);
        assert!(streams.iter().all(|stream| stream.stats().viewers == 0));
    }
}

#[test]
fn a_switch_waits_for_the_key_frame_of_the_other_rendition() {
    let registry = Registry::new(10);
    let [mut one, mut other] = [1, 2].map(|id| Rendition::new(&registry, id, 0));
    one.publish(FRAMES + 1);
    other.publish(FRAMES);
    let mut viewer = Viewer::new(one.publisher.stream().clone(), Start::Oldest).expect("room");
    let mut context = Context::from_waker(Waker::noop());
    let key = loop {
        match viewer.next_key() {
            Some(key) if key > 0 => break key,
            _ => assert!(viewer.poll_next(&mut context).is_ready()),
        }
    };
    let to = other.publisher.stream().clone();
    assert!(!viewer.switch(&to, key), "the key frame has not arrived");
    assert_eq!(to.stats().viewers, 0);
    other.publish(1);
    assert!(viewer.switch(&to, key));
    // The header of the other rendition, then its key frame.
    assert_eq!(pull(&mut viewer)[..2], [(Role::SequenceHeader, 0), (Role::KeyFrame, key)]);
}

#[test]
fn other_codecs_or_tracks_are_no_rendition() {
    let registry = Registry::new(10);
    let mut one = Rendition::new(&registry, 1, 0);
    one.publish(1);
    let other = registry.publish("live/hevc", settings()).expect("free");
    assert!(other.push(tag(Kind::Video, 0, &[0x90, b'h', b'v', b'c', b'1', 1])));
    assert!(other.push(tag(Kind::Video, 0, &[0x91, b'h', b'v', b'c', b'1', 0, 0, 0, 1])));
    let mut viewer = Viewer::new(one.publisher.stream().clone(), Start::Oldest).expect("room");
    pull(&mut viewer);
    assert!(!viewer.restart(other.stream()) && !viewer.switch(other.stream(), 0));
    assert_eq!(other.stream().stats().viewers, 0);
}

#[test]
fn a_lost_rendition_is_replaced_at_the_next_key_frame() {
    let registry = Registry::new(10);
    let mut all = [1, 2].map(|id| Rendition::new(&registry, id, 0));
    all.iter_mut().for_each(|rendition| rendition.publish(FRAMES + 5));
    let mut viewer = Viewer::new(all[0].publisher.stream().clone(), Start::Oldest).expect("room");
    pull(&mut viewer);
    let to = all[1].publisher.stream().clone();
    assert!(viewer.restart(&to));
    assert_eq!(pull(&mut viewer), [], "waits for a key frame");
    all[1].publish(FRAMES);
    let got = pull(&mut viewer);
    assert_eq!(got[..2], [(Role::SequenceHeader, 0), (Role::KeyFrame, 2_000)]);
    assert_eq!(got[2], (Role::AudioFrame, 2_010));
    assert_eq!(viewer.progress().skips, 1);
}
