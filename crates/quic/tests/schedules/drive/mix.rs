//! Which steps there are, and how likely each is: mixes that reach different depths.

/// Kind of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Packet,
    Burst,
    Ack,
    Rounds,
    Answer,
    Move,
    Old,
    Late,
    Garbage,
    Losses,
    Hold,
    Keys,
    SwitchId,
    Wait,
    Deadline,
    Poll,
    Write,
    Application,
    Close,
}

/// By weight: a bit of everything.
const EVEN: &[(Step, u8)] = &[
    (Step::Burst, 10),
    (Step::Packet, 40),
    (Step::Ack, 24),
    (Step::Rounds, 12),
    (Step::Answer, 12),
    (Step::Move, 14),
    (Step::Old, 6),
    (Step::Late, 5),
    (Step::Garbage, 3),
    (Step::Losses, 10),
    (Step::Hold, 6),
    (Step::Keys, 4),
    (Step::SwitchId, 6),
    (Step::Wait, 24),
    (Step::Deadline, 16),
    (Step::Poll, 10),
    (Step::Write, 24),
    (Step::Application, 24),
    (Step::Close, 1),
];

/// A download over a bad network.
const DOWNLOAD: &[(Step, u8)] = &[
    (Step::Burst, 4),
    (Step::Packet, 10),
    (Step::Ack, 40),
    (Step::Rounds, 50),
    (Step::Losses, 40),
    (Step::Hold, 10),
    (Step::Wait, 20),
    (Step::Deadline, 30),
    (Step::Write, 40),
    (Step::Application, 8),
    (Step::Keys, 4),
    (Step::Old, 4),
];

/// Addresses and connection IDs.
const MOVING: &[(Step, u8)] = &[
    (Step::Burst, 14),
    (Step::Packet, 60),
    (Step::Ack, 20),
    (Step::Rounds, 4),
    (Step::Answer, 20),
    (Step::Move, 50),
    (Step::Old, 10),
    (Step::Losses, 10),
    (Step::SwitchId, 20),
    (Step::Wait, 20),
    (Step::Deadline, 20),
    (Step::Poll, 10),
    (Step::Write, 16),
    (Step::Application, 8),
];

/// Streams and flow control.
const STREAMS: &[(Step, u8)] = &[
    (Step::Burst, 6),
    (Step::Packet, 80),
    (Step::Ack, 20),
    (Step::Rounds, 8),
    (Step::Losses, 10),
    (Step::Wait, 16),
    (Step::Deadline, 10),
    (Step::Write, 40),
    (Step::Application, 70),
    (Step::Late, 8),
    (Step::Old, 4),
];

/// The mix of a profile, from 0 to 15.
pub fn of(profile: u8) -> &'static [(Step, u8)] {
    match profile {
        0..=5 => EVEN,
        6..=8 => DOWNLOAD,
        9..=12 => MOVING,
        _ => STREAMS,
    }
}
