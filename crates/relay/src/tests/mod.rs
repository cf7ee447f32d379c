//! Test streams of small frames, with publishers and viewers.

mod publishers;
mod switches;
mod viewers;

use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

use media::{Kind, Role, Tag};

use crate::*;

/// Frames of 40 ms in groups of 1 s.
pub(crate) const FRAMES: u32 = 25;

pub(crate) fn tag(kind: Kind, time: u32, payload: &[u8]) -> Tag {
    Tag::new(kind, time, payload).expect("short enough")
}

pub(crate) fn frame(number: u32) -> Tag {
    let first = if number.is_multiple_of(FRAMES) { 0x17 } else { 0x27 };
    tag(Kind::Video, number * 40, &[first, 1, 0, 0, 0, number as u8])
}

pub(crate) fn header(version: u8) -> Tag {
    tag(Kind::Video, 0, &[0x17, 0, 0, 0, 0, version])
}

pub(crate) fn settings() -> Settings {
    Settings { lags: Lags { thin: 1_000, skip: 3_000 }, ..Settings::default() }
}

pub(crate) struct Setup {
    pub(crate) registry: Registry,
    pub(crate) publisher: Publisher,
    pub(crate) start: Start,
    pub(crate) frames: u32,
}

impl Setup {
    pub(crate) fn new(start: Start, settings: Settings) -> Self {
        let registry = Registry::new(10);
        let publisher = registry.publish("live/demo", settings).expect("no publisher");
        assert!(publisher.push(header(1)));
        Self { registry, publisher, start, frames: 0 }
    }

    pub(crate) fn publish(&mut self, frames: u32) {
        for number in self.frames..self.frames + frames {
            assert!(self.publisher.push(frame(number)));
        }
        self.frames += frames;
    }

    pub(crate) fn viewer(&self) -> Viewer {
        Viewer::new(self.publisher.stream().clone(), self.start).expect("below the limit")
    }
}

/// Pulls all available tags, as (role, time).
pub(crate) fn pull(viewer: &mut Viewer) -> Vec<(Role, u32)> {
    let mut context = Context::from_waker(Waker::noop());
    let mut got = Vec::new();
    while let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) {
        got.push((tag.role(), tag.timestamp()));
    }
    got
}

pub(crate) fn is_over(viewer: &mut Viewer) -> bool {
    viewer.poll_next(&mut Context::from_waker(Waker::noop())) == Poll::Ready(None)
}

/// Waker that counts its wakes.
#[derive(Default)]
pub(crate) struct Bell(pub(crate) AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
