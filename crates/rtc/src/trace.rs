//! Traces for calls: rows of time, bandwidth, round-trip time and loss rate, without holes.

use links::Trace;

use crate::error::BadValue;

/// A row may last this many times the usual step.
const MAX_STEPS: u32 = 3;

/// Parses a trace of rows; `name` names it in errors.
///
/// # Errors
/// The text is no trace of rows, or times are negative, unsorted or have a hole.
pub fn parse(name: &str, text: &str) -> Result<Trace, BadValue> {
    let trace = text
        .parse::<Trace>()
        .map_err(|why| BadValue::new(format_args!("trace {name}"), why, "rows in order of time"))?;
    let Trace::Rows(rows) = &trace else {
        return Err(BadValue::new(
            format_args!("trace {name}"),
            "delivery opportunities",
            "rows of seconds, Mbps, round-trip time and loss rate",
        ));
    };
    let mut steps: Vec<_> = rows.rows().windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    steps.sort();
    let Some(&usual) = steps.get(steps.len() / 2) else { return Ok(trace) };
    let hole = rows.rows().windows(2).find(|pair| pair[1].at - pair[0].at > usual * MAX_STEPS);
    match hole {
        None => Ok(trace),
        Some(pair) => Err(BadValue::new(
            format_args!("trace {name}"),
            format_args!("no row from {:?} to {:?}", pair[0].at, pair[1].at),
            format_args!("a row every {usual:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_with_holes_negative_or_unsorted_times_are_rejected_by_name() {
        let row = |at: &str| format!("{at} 5.0 30.0ms 0.01\n");
        let text = |times: &[&str]| times.iter().map(|at| row(at)).collect::<String>();
        assert!(parse("a", &text(&["0.0", "0.015", "0.03", "0.045"])).is_ok());
        let error = |text: &str| parse("cell.log", text).expect_err("rejected").to_string();
        let hole = error(&text(&["0.0", "0.015", "0.03", "0.5", "0.515"]));
        assert!(hole.contains("cell.log") && hole.contains("30ms to 500ms"), "{hole}");
        for bad in [text(&["-0.1", "0.0"]), text(&["0.03", "0.015"]), "1\n2\n".to_owned()] {
            assert!(error(&bad).starts_with("trace cell.log = "), "{}", error(&bad));
        }
        for (bad, part) in [
            ("", "empty"),
            ("# only a header\n", "empty"),
            ("nan 5 30ms 0\n", "`time`"),
            ("18446744073709551615 5 30ms 0\n", "`time`"),
            ("0 inf 30ms 0\n", "`rate`"),
            ("0 5 -30ms 0\n", "`rtt`"),
            ("0 5 30ms nan\n", "`loss`"),
            ("0 5 30ms 1.5\n", "`loss`"),
            ("0 5 30ms\n", "3 columns"),
            ("0 5 30ms 0\n0 5 30ms 0\n", "ascend"),
        ] {
            let error = error(bad);
            let is_named = error.starts_with("trace cell.log = ") && error.lines().count() == 1;
            assert!(is_named && error.contains(part), "{error}");
        }
    }
}
