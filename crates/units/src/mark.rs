use crate::{Rate, Timestamp};
use core::time::Duration;

/// Properties of data that an application writes. They stay with the data through queueing, loss
/// and retransmission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mark {
    /// Media time of live data, which is written at the pace of its source. `None` for data that is
    /// sent as fast as the path allows.
    pub media_time: Option<Duration>,
    /// Time when the player needs the data, by its reports or its playlist. `None` while unknown.
    pub deadline: Option<Timestamp>,
    /// Published rate of the stream while a new viewer receives its cached part. `None` later, and
    /// while unknown.
    pub catching_up: Option<Rate>,
}
