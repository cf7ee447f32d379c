//! Trace files: formats, laps, and rejected values.

use super::*;

#[test]
fn the_content_determines_the_format() {
    assert!(matches!("0\n5\n5\n9\n".parse(), Ok(Trace::Opportunities(_))));
    let trace: Trace = "1.000 12.48 29.9ms 0.02\n1.015 8.11 30.5ms 0.00\n".parse().unwrap();
    let rows = trace.rows().unwrap();
    assert_eq!(rows.period, 30_000_000);
    assert_eq!(rows.rows[0].rate, Rate::from_kbps(12_480));
    assert_eq!(rows.rows[0].rtt, Duration::from_micros(29_900));
    assert_eq!(rows.rows[0].loss.as_f64(), Probability::clamped(0.02).as_f64());
}

#[test]
fn errors_name_the_line_and_the_expected_format() {
    let error = |text: &str| text.parse::<Trace>().unwrap_err().to_string();
    assert!(error("0\n5\nx\n").starts_with("line 3, `x`: expected the time"));
    assert!(error("0 1 2ms 0\n1 1 2 0\n").starts_with("line 2, `1 1 2 0`: column 3 (`rtt`)"));
    assert!(error("0 1 2ms 2\n").contains("loss rate"));
    assert!(error("").contains("empty"));
    assert!(error("0\n0\n").contains("after zero"));
    assert!(error("5\n3\n").contains("order"));
    assert!(error("0 0 2ms 0\n").contains("zero"));
    assert!(error("1 1 2ms 0\n1 1 2ms 0\n").contains("ascend"));
    assert!(Trace::load("/nowhere/at/all").unwrap_err().to_string().contains("/nowhere/at/all"));
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

#[test]
fn negative_losses_are_zero_and_counted() {
    let text = "0 1 2ms -0.02\r\n1 2 2ms 0.5\r\n2 2 2ms -1e-9\r\n3 2 2ms -0\r\n";
    let trace: Trace = text.parse().unwrap();
    let losses: Vec<f64> = trace.rows().unwrap().rows.iter().map(|row| row.loss.as_f64()).collect();
    assert_eq!(losses, [0.0, 0.5, 0.0, 0.0]);
    assert_eq!(trace.negative_losses(), 2);
    assert_eq!("0\n5\n".parse::<Trace>().unwrap().negative_losses(), 0);
}

#[test]
fn invalid_values_are_rejected_with_row_and_column() {
    for (row, column) in [
        ("-1 1 2ms 0", "column 1 (`time`) is `-1`"),
        ("nan 1 2ms 0", "column 1 (`time`) is `nan`"),
        ("1 -0.001 2ms 0", "column 2 (`rate`) is `-0.001`"),
        ("1 inf 2ms 0", "column 2 (`rate`) is `inf`"),
        ("1 NaN 2ms 0", "column 2 (`rate`) is `NaN`"),
        ("1 1e300 2ms 0", "column 2 (`rate`) is `1e300`"),
        ("1 1 -2ms 0", "column 3 (`rtt`) is `-2ms`"),
        ("1 1 infms 0", "column 3 (`rtt`) is `infms`"),
        ("1 1 ms 0", "column 3 (`rtt`) is `ms`"),
        ("1 1 2ms 1.0000001", "column 4 (`loss`) is `1.0000001`"),
        ("1 1 2ms nan", "column 4 (`loss`) is `nan`"),
        ("1 1 2ms -inf", "column 4 (`loss`) is `-inf`"),
        ("1 1 2ms", "3 columns, expected 4"),
        ("1\t\t2ms 0", "3 columns, expected 4"),
        ("1 1 2ms 0 0", "5 columns, expected 4"),
        ("1,1,2ms,0", "1 columns, expected 4"),
    ] {
        for end in ["\n", "\r\n"] {
            let text = format!("0 1 2ms 0{end}{row}{end}");
            let error = text.parse::<Trace>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("line 2, `{row}`: {column}")), "{error}");
            assert!(error.contains("0.015 3.63 38.0ms 0.00"), "{error}");
        }
    }
    let error = "0\n-5\n".parse::<Trace>().unwrap_err().to_string();
    assert!(error.starts_with("line 2, `-5`: expected the time"), "{error}");
}

#[test]
fn headers_must_be_comments() {
    let rows = "0 1 2ms 0\n1 2 2ms 0\n";
    assert!(format!("# time rate rtt loss\n{rows}").parse::<Trace>().is_ok());
    let error = format!("time rate rtt loss\n{rows}").parse::<Trace>().unwrap_err().to_string();
    assert!(error.starts_with("line 1, `time rate rtt loss`: column 1 (`time`)"), "{error}");
    assert!(error.contains("`#` before a header"), "{error}");
}
