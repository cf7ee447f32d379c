use std::path::Path;

use super::*;

/// Records of an earlier version, which lack newer columns: four of the testbed. A fifth line has
/// every column.
const STORED: &str = include_str!("../../tests/stored/sessions.jsonl");

#[test]
fn stored_lines_are_written_again_byte_by_byte_but_for_newer_columns() {
    for line in STORED.lines() {
        let values: Map<String, Value> = serde_json::from_str(line).expect("a record");
        assert!(values.keys().all(|name| Column::named(name).is_some()), "{line}");
        let mut record = Record::default();
        for column in Column::ALL {
            record.set(column, values.get(column.name()).cloned().unwrap_or_default());
        }
        let mut written = record.object();
        written.retain(|name, value| values.contains_key(name) || !value.is_null());
        assert_eq!(Value::from(written).to_string(), line);
    }
    let full: Map<String, Value> =
        serde_json::from_str(STORED.lines().last().expect("a line")).expect("a record");
    assert!(full.values().all(|value| !value.is_null()), "the last line has every column");
    assert_eq!(full.len(), Column::ALL.len());
}

#[test]
fn numbers_have_six_decimals_and_are_absent_if_not_finite() {
    let mut record = Record::default();
    record.session.duration_s = Some(1.0 / 3.0);
    record.path.rtt_ms = Some(f64::NAN);
    record.path.loss_rate = Some(f64::INFINITY);
    let row = record.object();
    assert_eq!(row["duration_s"], 0.333333);
    assert!(row["rtt_ms"].is_null() && row["loss_rate"].is_null());
}

#[test]
fn columns_are_found_by_name_and_parts_follow_their_whole() {
    for column in Column::ALL {
        assert_eq!(Column::named(column.name()), Some(column));
        if let Range::AtMost(whole) = column.range() {
            assert!((whole as usize) < column as usize && whole.range() == Range::Amount);
        }
        assert_eq!(column.range() == Range::Text, column.kind() == Kind::Text, "{column}");
    }
    assert_eq!(Column::named("speed"), None);
}

/// Marks of the generated part of the page.
const MARKS: [&str; 2] = ["<!-- schema -->\n", "<!-- end of schema -->\n"];

/// With `MENDCAST_WRITE=1`, writes the page instead of comparing it.
#[test]
fn the_page_of_records_has_the_tables_of_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/records.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (head, rest) = page.split_once(MARKS[0]).expect("the first mark");
    let (_, tail) = rest.split_once(MARKS[1]).expect("the last mark");
    let expected = format!("{head}{}{}\n{}{tail}", MARKS[0], markdown(), MARKS[1]);
    if std::env::var_os("MENDCAST_WRITE").is_some() {
        std::fs::write(&path, expected).expect("written");
    } else {
        let hint = "run MENDCAST_WRITE=1 cargo test -p mendcast-records";
        assert!(page == expected, "{} differs from the schema: {hint}", path.display());
    }
}

/// Returns the schema as Markdown: one table per group.
fn markdown() -> String {
    let mut text = String::new();
    let mut group = "";
    for column in Column::ALL {
        if column.group() != group {
            group = column.group();
            text +=
                &format!("\n### {group}\n\n| column | type | unit | range | source | meaning |\n");
            text += "|---|---|---|---|---|---|\n";
        }
        let kind = match column.kind() {
            Kind::Text => "text",
            Kind::Int => "integer",
            Kind::Float => "number",
        };
        text += &format!(
            "| `{column}` | {kind} | {} | {} | {} | {} |\n",
            column.unit(),
            column.range(),
            column.source().name(),
            column.meaning()
        );
    }
    text
}
