//! Disk access off the event loops, since a slow disk would stall thousands of viewers. `pool`
//! reads files, `body` streams them to viewers, `small` reads those that the configuration names,
//! `writer` writes logs.

pub(crate) mod body;
pub(crate) mod pool;
pub(crate) mod small;
pub(crate) mod writer;
