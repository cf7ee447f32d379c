//! Settings of streams and their viewers, from a configuration.

use core::num::NonZeroU32;
use core::time::Duration;

use media::CacheLimits;
use relay::{Lags, Settings, Start};

/// Returns the settings of a stream.
pub fn relay_settings(live: &config::Live) -> Settings {
    Settings {
        cache: CacheLimits { groups: live.groups.into(), bytes: live.cache.as_usize() },
        lags: Lags { thin: millis(live.thin_lag), skip: millis(live.max_lag) },
        merge_ms: millis(live.merge),
        max_viewers: live.max_viewers.into(),
    }
}

/// Returns the start policy of new viewers.
pub fn start_policy(live: &config::Live) -> Start {
    match live.start {
        config::Start::KeyFrame => Start::KeyFrame,
        config::Start::LatestGop => Start::LatestGop,
        config::Start::LowDelay => Start::LowDelay,
    }
}

/// Returns the number of video frames that make the first frame (Wira's Θ_VF).
pub fn video_frames(startup: &config::Startup) -> NonZeroU32 {
    NonZeroU32::new(startup.video_frames).unwrap_or(NonZeroU32::MIN)
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
