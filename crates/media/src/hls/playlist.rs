//! Rendering of playlists.
//!
//! RFC 8216, section 4; draft-pantos-hls-rfc8216bis, section 4.4, for the tags of Low-Latency HLS.

use core::fmt::Write as _;

use units::date_time;

use super::retained::RetainedSegment;
use super::segmenter::{Container, Segmenter};

impl Container {
    const fn extension(self) -> &'static str {
        match self {
            Self::Fmp4 => "m4s",
            Self::Ts => "ts",
        }
    }
}

impl Segmenter {
    /// Renders the media playlist, or its delta update. Writing to a string cannot fail.
    pub(super) fn media_playlist(&self, skip: bool) -> String {
        let Some(pace) = self.pace else { return self.empty_playlist() };
        let (target, part_target) = (pace.target_s, pace.part_ms);
        let complete = self.retained.segments.iter().filter(|segment| segment.complete).count();
        let unlisted = complete.saturating_sub(self.config.window);
        let listed: Vec<&RetainedSegment> = self.retained.segments.iter().skip(unlisted).collect();
        // Distance of each segment's end from the end of the playlist.
        let mut behind = vec![0; listed.len()];
        for index in (1..listed.len()).rev() {
            behind[index - 1] = behind[index] + listed[index].duration_ms();
        }
        let skip_until = 6_000 * target;
        let skippable = behind.iter().take_while(|behind| **behind >= skip_until).count();
        let skipped = if skip { skippable } else { 0 };
        // Players do not use parts further from the end.
        let with_parts = |index: usize| behind[index] < 3_000 * target;
        let discontinuities = self.retained.dropped_discontinuities
            + self.retained.segments.iter().take(unlisted).filter(|s| s.discontinuity).count()
                as u64;
        let extension = self.config.container.extension();
        let base = if self.config.shared { "../" } else { "" };

        let mut text = String::with_capacity(4_096);
        // EXT-X-SKIP needs version 9, EXT-X-MAP 6.
        let version = if skipped > 0 { 9 } else { 6 };
        let _ = writeln!(text, "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{target}");
        let _ = writeln!(
            text,
            "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={},CAN-SKIP-UNTIL={}",
            seconds(pace.part_hold_back_ms()),
            seconds(skip_until)
        );
        let _ = writeln!(text, "#EXT-X-PART-INF:PART-TARGET={}", seconds(part_target));
        let first = listed.first().map_or(self.position().0, |segment| segment.name.msn);
        let _ = writeln!(text, "#EXT-X-MEDIA-SEQUENCE:{first}");
        if discontinuities > 0 {
            let _ = writeln!(text, "#EXT-X-DISCONTINUITY-SEQUENCE:{discontinuities}");
        }
        if listed.iter().all(|segment| segment.is_independent()) {
            let _ = writeln!(text, "#EXT-X-INDEPENDENT-SEGMENTS");
        }
        if skipped > 0 {
            let _ = writeln!(text, "#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}");
        }
        let mut map = None;
        for (index, segment) in listed.iter().enumerate().skip(skipped) {
            if segment.discontinuity {
                let _ = writeln!(text, "#EXT-X-DISCONTINUITY");
            }
            if self.config.container == Container::Fmp4 && map != Some(segment.version) {
                map = Some(segment.version);
                let version = self.retained.versions.iter().find(|v| v.number == segment.version);
                let id = version.map_or(0, |version| version.id);
                let _ = writeln!(text, "#EXT-X-MAP:URI=\"{base}init-{id:016x}.mp4\"");
            }
            let _ = writeln!(text, "#EXT-X-PROGRAM-DATE-TIME:{}", date_time(segment.wall_ms));
            let name = segment.name;
            for (number, part) in segment.parts.iter().enumerate().filter(|_| with_parts(index)) {
                let duration = seconds(part.duration_ms);
                let independent = if part.independent { ",INDEPENDENT=YES" } else { "" };
                let _ = writeln!(
                    text,
                    "#EXT-X-PART:DURATION={duration},\
                     URI=\"{base}{name}.{number}.{extension}\"{independent}"
                );
            }
            if segment.complete {
                let duration = seconds(segment.duration_ms());
                let _ = writeln!(text, "#EXTINF:{duration},\n{base}{name}.{extension}");
            }
        }
        text.push_str(&self.render_tail(base));
        text
    }

    /// Renders the lines after the newest part: hints at the next part.
    fn render_tail(&self, base: &str) -> String {
        if self.ended {
            return "#EXT-X-ENDLIST\n".to_owned();
        }
        let mut text = String::new();
        // Players already count the next segment, and do not accept a later change of this count.
        if self.discontinuity && self.open.is_none_or(|open| !open.has_parts) {
            text.push_str("#EXT-X-DISCONTINUITY\n");
        }
        if let Some(name) = self.growing() {
            let (part, extension) = (self.position().1, self.config.container.extension());
            let hint = format!("{base}{name}.{part}.{extension}");
            let _ = writeln!(text, "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{hint}\"");
        }
        text
    }

    /// Renders the playlist of a stream that ended before its first segment.
    fn empty_playlist(&self) -> String {
        let target = (self.config.segment.as_millis() as i64 + 500) / 1_000;
        let (target, first) = (target.max(1), self.msn);
        format!(
            "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:{target}\n\
             #EXT-X-MEDIA-SEQUENCE:{first}\n#EXT-X-ENDLIST\n"
        )
    }
}

/// Formats milliseconds as seconds with three decimals.
pub(super) fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}
