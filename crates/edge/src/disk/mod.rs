//! The disk, off the threads that serve viewers: a thread that waits for a disk may wait for long,
//! and an event loop has thousands of viewers. `pool` reads files, `body` streams them to viewers,
//! `small` reads those that a configuration names, `writer` writes logs.

pub(crate) mod body;
pub(crate) mod pool;
pub(crate) mod small;
pub(crate) mod writer;
