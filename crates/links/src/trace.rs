//! Recorded network conditions, read from files that experiments name by path.
//!
//! Two formats are told apart by their content. *Mahimahi* (Netravali et al., USENIX ATC 2015): one
//! line per delivery opportunity, the time in whole milliseconds. *Rows* (SparkTraces, NSDI 2024):
//! time in seconds, bandwidth in Mbps, RTT with the unit `ms`, and loss rate, all piecewise
//! constant. Both repeat when they end.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use units::{Rate, Timestamp};

use crate::random::Probability;
use crate::text::ParseError;

/// A trace of either format.
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
    /// Nanoseconds, ascending, the last above zero: it is also the length of a lap.
    times: Vec<u64>,
}

/// The conditions from one point in time to the next row's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Start, counted from the first row's.
    pub at: Duration,
    /// Available bandwidth.
    pub rate: Rate,
    /// Round-trip time; each direction takes half.
    pub rtt: Duration,
    /// Loss rate of packets.
    pub loss: Probability,
}

/// A piecewise-constant record of conditions.
#[derive(Debug, PartialEq, Eq)]
pub struct Rows {
    rows: Vec<Row>,
    period: u64,
}

impl Trace {
    /// Reads the trace in the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read or a line is in neither format; the error names file and line.
    pub fn load(path: &str) -> Result<Self, ParseError> {
        let error = |e: &dyn fmt::Display| ParseError(format!("trace {path}: {e}"));
        let text = std::fs::read_to_string(path).map_err(|e| error(&e))?;
        text.parse().map_err(|e| error(&e))
    }

    /// The rows, if the trace is of that format.
    pub(crate) fn rows(&self) -> Option<&Arc<Rows>> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Opportunities(_) => None,
        }
    }
}

impl FromStr for Trace {
    type Err = ParseError;

    /// Reads the content of a trace file.
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
        let rows = lines()
            .map(|(number, line)| {
                read_row(line).ok_or_else(|| {
                    refuse(
                        number,
                        line,
                        "seconds, Mbps, RTT and loss rate, like `0.015 3.63 38.0ms 0.00`",
                    )
                })
            })
            .collect::<Result<_, _>>()?;
        Rows::new(rows).map(Arc::new).map(Self::Rows)
    }
}

fn read_row(line: &str) -> Option<Row> {
    let number = |text: &str, unit: f64| {
        let n: f64 = text.parse().ok()?;
        let n = n * unit;
        (n.is_finite() && (0.0..1e18).contains(&n)).then_some(n.round() as u64)
    };
    let mut columns = line.split_whitespace();
    let row = Row {
        at: Duration::from_nanos(number(columns.next()?, 1e9)?),
        rate: Rate::from_bps(number(columns.next()?, 1e6)?),
        rtt: Duration::from_nanos(number(columns.next()?.strip_suffix("ms")?, 1e6)?),
        loss: Probability::new(columns.next()?.parse().ok()?)?,
    };
    columns.next().is_none().then_some(row)
}

impl Opportunities {
    /// Opportunities at these nanoseconds.
    ///
    /// # Errors
    /// When the times do not ascend, or the last is zero (a lap must take time).
    pub fn new(times: Vec<u64>) -> Result<Self, ParseError> {
        if !times.is_sorted() {
            return Err(ParseError("delivery opportunities must be in order of time".to_owned()));
        }
        match times.last() {
            None | Some(0) => Err(ParseError("the last opportunity must be after zero".to_owned())),
            Some(_) => Ok(Self { times }),
        }
    }

    /// Nanoseconds of the opportunities of one lap.
    pub(crate) fn times(&self) -> &[u64] {
        &self.times
    }

    /// Nanoseconds that a lap takes.
    pub(crate) fn period(&self) -> u64 {
        *self.times.last().expect("checked at construction: not empty")
    }
}

impl Rows {
    /// A record made of these rows. The last one lasts as long as the one before it.
    ///
    /// # Errors
    /// When there is none, times do not ascend, or every rate is zero.
    pub fn new(mut rows: Vec<Row>) -> Result<Self, ParseError> {
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
        Ok(Self { rows, period })
    }

    /// The rows of one lap.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row in force at `now`, and the time at which the next one begins. `cursor` is where the
    /// last look-up ended; any value is right, a good one is fast.
    #[inline]
    pub(crate) fn at(&self, now: Timestamp, cursor: &mut usize) -> (&Row, Timestamp) {
        let phase = now.as_nanos() % self.period;
        let starts = |i: usize| self.rows.get(i).map_or(self.period, |row| nanos(row.at));
        if !(starts(*cursor) <= phase && phase < starts(*cursor + 1)) {
            *cursor = self.rows.partition_point(|row| nanos(row.at) <= phase) - 1;
        }
        let end = now + Duration::from_nanos(starts(*cursor + 1) - phase);
        (&self.rows[*cursor], end)
    }
}

/// Nanoseconds of a span that [`read_row`] or a caller keeps below 584 years.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_formats_are_told_apart_by_content() {
        assert!(matches!("0\n5\n5\n9\n".parse(), Ok(Trace::Opportunities(_))));
        let trace: Trace = "1.000 12.48 29.9ms 0.02\n1.015 8.11 30.5ms 0.00\n".parse().unwrap();
        let rows = trace.rows().unwrap();
        assert_eq!(rows.period, 30_000_000);
        assert_eq!(rows.rows[0].rate, Rate::from_kbps(12_480));
        assert_eq!(rows.rows[0].rtt, Duration::from_micros(29_900));
        assert_eq!(rows.rows[0].loss.as_f64(), Probability::clamped(0.02).as_f64());
    }

    #[test]
    fn a_bad_line_is_named_with_what_was_expected() {
        let error = |text: &str| text.parse::<Trace>().unwrap_err().to_string();
        assert!(error("0\n5\nx\n").starts_with("line 3, `x`: expected the time"));
        assert!(error("0 1 2ms 0\n1 1 2 0\n").starts_with("line 2, `1 1 2 0`: expected seconds"));
        assert!(error("0 1 2ms 2\n").contains("loss rate"));
        assert!(error("").contains("empty"));
        assert!(error("0\n0\n").contains("after zero"));
        assert!(error("5\n3\n").contains("order"));
        assert!(error("0 0 2ms 0\n").contains("zero"));
        assert!(error("1 1 2ms 0\n1 1 2ms 0\n").contains("ascend"));
        assert!(
            Trace::load("/nowhere/at/all").unwrap_err().to_string().contains("/nowhere/at/all")
        );
    }

    #[test]
    fn rows_are_found_in_any_lap_with_any_cursor() {
        let text = "0 1 2ms 0\n0.010 2 2ms 0\n0.030 3 2ms 0\n";
        let trace: Trace = text.parse().unwrap();
        let rows = trace.rows().unwrap();
        for (millis, mbps, ends) in
            [(0, 1, 10), (9, 1, 10), (10, 2, 30), (49, 3, 50), (50, 1, 60), (112, 2, 130)]
        {
            for mut cursor in 0..3 {
                let (row, end) = rows.at(Timestamp::from_millis(millis), &mut cursor);
                assert_eq!(row.rate, Rate::from_mbps(mbps), "at {millis} ms");
                assert_eq!(end, Timestamp::from_millis(ends), "at {millis} ms");
            }
        }
    }
}
