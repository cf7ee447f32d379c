//! Recorded network conditions, read from files.
//!
//! The content determines the format. *Mahimahi* (Netravali et al., USENIX ATC 2015): one delivery
//! opportunity per line, as a time in integer milliseconds. *Rows* (SparkTraces, NSDI 2024): time
//! in seconds, bandwidth in Mbps, RTT with the unit `ms`, and loss rate, all piecewise constant.
//! Both repeat at their end.
//!
//! Negative loss rates are read as 0 and counted: SparkTraces computes the loss of an interval as
//! the difference of two counters, which is negative if packets of an earlier interval arrive late.
//! Other negative values, NaN and infinities are rejected.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use units::{Rate, Timestamp};

use crate::random::Probability;
use crate::text::ParseError;

/// A trace of either format.
///
/// ```
/// use mendcast_links::Trace;
///
/// // Seconds, Mbps, RTT and loss rate.
/// let trace: Trace = "0.0 12.0 40ms 0.01\n1.0 8.0 60ms 0.02\n".parse().unwrap();
/// assert!(matches!(trace, Trace::Rows(_)));
/// // Delivery opportunities in milliseconds, as of mahimahi.
/// let trace: Trace = "1\n3\n3\n7\n".parse().unwrap();
/// assert!(matches!(trace, Trace::Opportunities(_)));
/// ```
#[derive(Clone, Debug)]
pub enum Trace {
    /// Delivery opportunities; drives the rate.
    Opportunities(Arc<Opportunities>),
    /// Conditions over time; drives rate, delay and loss.
    Rows(Arc<Rows>),
}

/// Mahimahi's delivery opportunities.
#[derive(Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Nanoseconds, ascending. The last is above zero and the length of a lap.
    times: Vec<u64>,
}

/// Conditions until the start of the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// Start, relative to the first row.
    pub at: Duration,
    /// Available bandwidth.
    pub rate: Rate,
    /// Round-trip time. Each direction takes half.
    pub rtt: Duration,
    /// Loss rate of packets.
    pub loss: Probability,
}

/// A piecewise-constant record of conditions.
#[derive(Debug, PartialEq, Eq)]
pub struct Rows {
    rows: Vec<TraceRow>,
    period: u64,
    /// Rows with a negative loss rate in the file.
    negative_losses: usize,
}

impl Trace {
    /// Reads a trace from the file at `path`.
    ///
    /// # Errors
    /// If the file cannot be read or has an invalid line. The error names file and line.
    pub fn load(path: &str) -> Result<Self, ParseError> {
        let error = |e: &dyn fmt::Display| ParseError(format!("trace {path}: {e}"));
        let text = std::fs::read_to_string(path).map_err(|e| error(&e))?;
        text.parse().map_err(|e| error(&e))
    }

    /// Returns the number of rows with a negative loss rate, read as 0.
    pub fn negative_losses(&self) -> usize {
        self.rows().map_or(0, |rows| rows.negative_losses)
    }

    /// Returns the rows, if the trace has this format.
    pub(crate) fn rows(&self) -> Option<&Arc<Rows>> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Opportunities(_) => None,
        }
    }
}

impl FromStr for Trace {
    type Err = ParseError;

    /// Parses the content of a trace file.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let lines = || {
            (1..)
                .zip(text.lines().map(str::trim))
                .filter(|(_, l)| !l.is_empty() && !l.starts_with('#'))
        };
        let Some((_, first)) = lines().next() else {
            return Err(ParseError("empty; expected at least one line".to_owned()));
        };
        let refuse = |number: usize, line: &str, expected: &str| {
            ParseError(format!("line {number}, `{line}`: expected {expected}"))
        };
        if first.split_whitespace().count() == 1 {
            let times = lines()
                .map(|(number, line)| {
                    let millis: Option<u64> = line.parse().ok();
                    millis.and_then(|m| m.checked_mul(1_000_000)).ok_or_else(|| {
                        refuse(number, line, "the time of a delivery opportunity in milliseconds")
                    })
                })
                .collect::<Result<_, _>>()?;
            return Opportunities::new(times).map(Arc::new).map(Self::Opportunities);
        }
        let mut negative_losses = 0;
        let rows = lines()
            .map(|(number, line)| {
                let (row, is_negative) = read_row(line)
                    .map_err(|why| ParseError(format!("line {number}, `{line}`: {why}")))?;
                negative_losses += usize::from(is_negative);
                Ok(row)
            })
            .collect::<Result<_, _>>()?;
        let rows = Rows { negative_losses, ..Rows::new(rows)? };
        Ok(Self::Rows(Arc::new(rows)))
    }
}

/// Parses a row. Also returns whether its loss rate is negative.
fn read_row(line: &str) -> Result<(TraceRow, bool), ParseError> {
    const EXPECTED: &str = "seconds, Mbps, RTT and loss rate, like `0.015 3.63 38.0ms 0.00` \
        (`#` before a header)";
    let columns: Vec<&str> = line.split_whitespace().collect();
    let [at, rate, rtt, loss] = columns[..] else {
        let text = format!("{} columns, expected 4: {EXPECTED}", columns.len());
        return Err(ParseError(text));
    };
    let refuse = |column: u32, name: &str, text: &str, expected: &str| {
        ParseError(format!(
            "column {column} (`{name}`) is `{text}`, expected {expected} in a row of {EXPECTED}"
        ))
    };
    let number = |text: &str, unit: f64| {
        let n: f64 = text.parse().ok()?;
        let n = n * unit;
        (0.0..1e18).contains(&n).then_some(n.round() as u64)
    };
    let at_nanos = number(at, 1e9).ok_or_else(|| refuse(1, "time", at, "seconds from 0"))?;
    let bps = number(rate, 1e6).ok_or_else(|| refuse(2, "rate", rate, "Mbps from 0"))?;
    let rtt_nanos = rtt.strip_suffix("ms").and_then(|rtt| number(rtt, 1e6));
    let rtt_nanos =
        rtt_nanos.ok_or_else(|| refuse(3, "rtt", rtt, "milliseconds from 0 with their unit"))?;
    let share: Option<f64> = loss.parse().ok().filter(|share: &f64| share.is_finite());
    let is_negative = share.is_some_and(|share| share < 0.0);
    let share = share.map(|share| share.max(0.0)).and_then(Probability::new);
    let row = TraceRow {
        at: Duration::from_nanos(at_nanos),
        rate: Rate::from_bps(bps),
        rtt: Duration::from_nanos(rtt_nanos),
        loss: share.ok_or_else(|| refuse(4, "loss", loss, "a share up to 1"))?,
    };
    Ok((row, is_negative))
}

impl Opportunities {
    /// Creates a schedule with opportunities at these nanoseconds.
    ///
    /// # Errors
    /// If the times do not ascend, or the last is zero.
    pub fn new(times: Vec<u64>) -> Result<Self, ParseError> {
        if !times.is_sorted() {
            return Err(ParseError("delivery opportunities must be in order of time".to_owned()));
        }
        match times.last() {
            None | Some(0) => Err(ParseError("the last opportunity must be after zero".to_owned())),
            Some(_) => Ok(Self { times }),
        }
    }

    /// Opportunities of one lap, in nanoseconds.
    pub(crate) fn times(&self) -> &[u64] {
        &self.times
    }

    /// Length of a lap in nanoseconds.
    pub(crate) fn period(&self) -> u64 {
        *self.times.last().expect("checked at construction: not empty")
    }
}

impl Rows {
    /// Creates a record of these rows. The last one lasts as long as the previous one.
    ///
    /// # Errors
    /// If there are no rows, times do not ascend, or all rates are zero.
    pub fn new(mut rows: Vec<TraceRow>) -> Result<Self, ParseError> {
        let Some(start) = rows.first().map(|row| row.at) else {
            return Err(ParseError("no rows".to_owned()));
        };
        if !rows.windows(2).all(|pair| pair[0].at < pair[1].at) {
            return Err(ParseError("the rows' times must ascend".to_owned()));
        }
        if rows.iter().all(|row| row.rate == Rate::ZERO) {
            return Err(ParseError("every rate is zero: nothing would ever arrive".to_owned()));
        }
        rows.iter_mut().for_each(|row| row.at -= start);
        let step = match rows[..] {
            [.., before, last] => last.at - before.at,
            _ => Duration::from_secs(1),
        };
        let period = nanos(rows[rows.len() - 1].at + step);
        Ok(Self { rows, period, negative_losses: 0 })
    }

    /// Rows of one lap.
    pub fn rows(&self) -> &[TraceRow] {
        &self.rows
    }

    /// Round-trip time at `now`.
    pub fn rtt(&self, now: Timestamp) -> Duration {
        self.at(now, &mut 0).0.rtt
    }

    /// Returns the row at `now`, and the start of the next one. `cursor` is a hint that may have
    /// any value and is updated.
    #[inline]
    pub(crate) fn at(&self, now: Timestamp, cursor: &mut usize) -> (&TraceRow, Timestamp) {
        let phase = now.as_nanos() % self.period;
        let starts = |i: usize| self.rows.get(i).map_or(self.period, |row| nanos(row.at));
        if !(starts(*cursor) <= phase && phase < starts(*cursor + 1)) {
            *cursor = self.rows.partition_point(|row| nanos(row.at) <= phase) - 1;
        }
        let end = now + Duration::from_nanos(starts(*cursor + 1) - phase);
        (&self.rows[*cursor], end)
    }
}

/// Converts a span, limited by [`read_row`] or the caller to 584 years, to nanoseconds.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
