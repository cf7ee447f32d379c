//! The process's log on standard error. Logging never blocks, and peers cannot flood it.
//!
//! A separate thread writes the lines (`DiskWriter`); lines that standard error is too slow for are
//! dropped and counted. Each kind of event has a budget (`Throttle`), since peers can cause some
//! of them at will. Control characters are escaped and long lines are truncated (`LogLine`), since
//! names and messages come from peers.

mod json;
mod line;
mod throttle;

use std::fs::File;
use std::io::{IsTerminal as _, Write, stderr};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Error;
use crate::config::{Level, LogFormat};
use crate::disk::writer::DiskWriter;
use json::Json;
use line::LogLine;
use throttle::Throttle;

/// The writer's number of the only file.
const FILE: u64 = 0;
/// Timeout for writing the last lines at exit.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The log of this process, once started.
static LOG: OnceLock<Log> = OnceLock::new();

#[derive(Debug)]
struct Log {
    writer: DiskWriter,
    throttle: Throttle,
    format: LogFormat,
    /// Whether lines carry colours.
    has_colours: bool,
}

/// Installs the log for all events of this process. Panics are logged too: the default hook would
/// block on standard error.
///
/// # Errors
/// The thread cannot be started, or a log exists already.
pub fn start(level: Level, format: LogFormat) -> Result<(), Error> {
    let error = |e: std::io::Error| Error::new(format!("log: {e}"));
    let writer = DiskWriter::start("log")?;
    let file = File::from(stderr().as_fd().try_clone_to_owned().map_err(error)?);
    writer.adopt(FILE, file).map_err(error)?;
    let has_colours = format == LogFormat::Text && stderr().is_terminal();
    let throttle = Throttle::new(filter(level));
    let taken = LOG.set(Log { writer, throttle, format, has_colours });
    taken.map_err(|_| Error::new("log: started twice"))?;
    let log = LOG.get().ok_or_else(|| Error::new("log: not started"))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Lines)
        .with_ansi(has_colours)
        .with_target(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.event_format(Json).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(&log.throttle));
    subscriber.try_init().map_err(|e| Error::new(format!("log: {e}")))?;
    std::panic::set_hook(Box::new(|cause| tracing::error!("{cause}")));
    Ok(())
}

/// Changes the level, for example on reload.
pub(crate) fn set_level(level: Level) {
    if let Some(log) = LOG.get() {
        log.throttle.set_level(filter(level));
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Returns the level in force; `None` without a log.
pub(crate) fn level() -> Option<Level> {
    let level = LOG.get()?.throttle.level();
    Level::ALL.into_iter().find(|known| filter(*known) == level)
}

/// Switches from the `configured` level to `debug` and back. If `configured` is `debug` or `trace`,
/// switches to `info` and back. Returns the new level.
pub(crate) fn switch(configured: Level) -> Level {
    let other = if configured >= Level::Debug { Level::Info } else { Level::Debug };
    let new = if level() == Some(other) { configured } else { other };
    set_level(new);
    new
}

/// Logs the number of lines dropped since the last report, if any. Call it periodically.
pub(crate) fn report() {
    let Some(log) = LOG.get() else { return };
    if let Some(line) = log.throttle.report(Instant::now()) {
        tracing::warn!("{line}");
    }
}

/// Returns the dropped lines by reason: repeated too often, and slow reader.
pub(crate) fn lost() -> [(&'static str, u64); 2] {
    let counts = LOG.get().map_or((0, 0), |log| (log.throttle.left_out(), log.writer.lost()));
    [("repeated", counts.0), ("slow_reader", counts.1)]
}

/// Waits until all pending lines are written, for at most 1 s.
pub(crate) fn flush() {
    if let Some(log) = LOG.get() {
        log.writer.flush(FLUSH_TIMEOUT);
    }
}

const fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

/// Creates the writer of each line.
#[derive(Clone, Copy, Debug)]
struct Lines;

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        *self
    }
}

impl Write for Lines {
    /// Takes one whole line: the formatter writes each event at once.
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if let Some(log) = LOG.get() {
            let line = match log.format {
                LogFormat::Text => LogLine::new(text, log.has_colours).into_bytes(),
                // Safe already.
                LogFormat::Json => text.to_vec(),
            };
            // Dropped lines are counted by the writer.
            let _ = log.writer.append(FILE, line);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
