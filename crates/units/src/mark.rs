use crate::{Rate, Timestamp};
use core::time::Duration;

/// What an application says about a piece of data when it writes it. The mark stays with the data while
/// it waits, is sent, is lost and is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mark {
    /// Where live data stands on the media's time line: its source sets the pace at which it is written. `None` for
    /// what is fetched as fast as the path allows.
    pub media_time: Option<Duration>,
    /// When the player comes to the data, by what it reports or its playlist says; `None` while nothing is known of
    /// that.
    pub deadline: Option<Timestamp>,
    /// The rate at which the stream is published that the data is of, while a viewer who has just come gets what is kept
    /// of it; `None` later, and while nobody knows.
    pub catching_up: Option<Rate>,
}
