//! A network that tries to occupy every TCP place: 16 addresses with open FLV responses, read at
//! one byte per second or not at all. Each address has few.
//!
//! 20 connections per second. The server ends connections without progress after 60 s, which would
//! allow 1,200 at once, 75 per address. All 1,024 places would be occupied after 50 s, while
//! newcomers need some.

use super::crew::{Crew, Neighbour};
use super::slow::{Takes, h1};

fn neighbour(name: &'static str) -> Neighbour {
    Neighbour { name, per_second: 10.0, at_once: 1, network: 7, addresses: 16 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("one network: reads nothing"), |strike| h1(strike, Takes::Nothing));
    crew.add(neighbour("one network: a byte a second"), |strike| h1(strike, Takes::Little));
}
