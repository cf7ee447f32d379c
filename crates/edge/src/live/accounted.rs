//! A segmenter with memory that counts for its stream: of HLS viewers, and of recordings.

use media::hls::Segmenter;
use media::hls::segmenter::SegmenterConfig;
use relay::Stream;
use relay::memory::{Account, Surplus};

/// The segmenter of a stream, and its memory account.
#[derive(Debug)]
pub(crate) struct AccountedSegmenter {
    pub segmenter: Segmenter,
    account: Account,
}

impl AccountedSegmenter {
    pub(crate) fn new(stream: &Stream, config: SegmenterConfig) -> Self {
        Self { segmenter: Segmenter::new(config), account: stream.memory().account() }
    }

    /// Updates the account and evicts beyond the stream's share.
    pub(crate) fn update_account(&mut self) {
        let Some(surplus) = self.account.set(self.segmenter.bytes()) else { return };
        match surplus {
            Surplus::Excess(bytes) => self.segmenter.shed(bytes),
            Surplus::Beyond(bytes) => self.segmenter.shrink_to(bytes),
        }
        self.account.shrink(self.segmenter.bytes());
    }

    /// Evicts everything.
    pub(crate) fn evict_all(&mut self) {
        self.segmenter.shrink_to(0);
        let _ = self.account.set(self.segmenter.bytes());
    }
}
