//! A live stream in virtual time: what an encoder or a file makes of it, the product's relay between that and the
//! transport, and what its viewer receives.

mod broadcast;
mod encoder;
mod reception;
mod recording;
mod reporter;
mod source;
mod view;

pub(crate) use broadcast::Broadcast;
pub use encoder::Encoder;
pub(crate) use reception::Reception;
pub use recording::Recording;
pub(crate) use reporter::Reporter;
pub use source::Source;
pub use view::{Arrival, Live, LiveOutcome, Skips};

#[cfg(test)]
mod tests;
