//! Systems whose TCP says nothing and cannot be told: viewers are served with what they have.

use std::io;
use std::os::fd::AsFd;

use super::counts::Counts;

pub(super) fn set_congestion(_: &impl AsFd, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn congestion(_: &impl AsFd) -> String {
    String::new()
}

pub(super) fn pace(_: &impl AsFd) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn counts(_: &impl AsFd) -> Option<Counts> {
    None
}
