//! Live streams in virtual time: an encoder or a file as the source, the product's relay, and the
//! viewer's reception.

mod broadcast;
mod encoder;
mod reception;
mod recording;
mod reporter;
mod source;
mod view;

pub(crate) use broadcast::Broadcast;
pub use encoder::Encoder;
pub(crate) use encoder::gaussian;
pub(crate) use reception::Reception;
pub use recording::Recording;
pub(crate) use reporter::Reporter;
pub use source::LiveSource;
pub use view::{FrameArrival, Live, LiveOutcome, PICTURES, Skips};

#[cfg(test)]
mod tests;
