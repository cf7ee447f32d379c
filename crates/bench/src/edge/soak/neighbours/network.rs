//! A network that takes every place over TCP: 16 addresses with open FLV responses, read at a byte
//! a second or not at all. No address has many.
//!
//! 20 connections a second. The server ends those without progress after 60 s, so they would be
//! 1,200 at the same time, 75 of each address: all 1,024 places are taken after 50 s, and newcomers
//! need some.

use super::crew::{Crew, Neighbour};
use super::slow::{Takes, h1};

fn neighbour(name: &'static str) -> Neighbour {
    Neighbour { name, per_second: 10.0, at_once: 1, network: 7, addresses: 16 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("one network: reads nothing"), |strike| h1(strike, Takes::Nothing));
    crew.add(neighbour("one network: a byte a second"), |strike| h1(strike, Takes::Little));
}
