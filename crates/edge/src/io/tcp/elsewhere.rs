//! Fallback for systems without TCP statistics, pacing and a choice of congestion control.

use std::io;
use std::os::fd::AsFd;

use super::counts::TcpCounts;

pub(super) fn set_congestion(_: &impl AsFd, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn congestion(_: &impl AsFd) -> String {
    String::new()
}

pub(super) fn pace(_: &impl AsFd) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn counts(_: &impl AsFd) -> Option<TcpCounts> {
    None
}
