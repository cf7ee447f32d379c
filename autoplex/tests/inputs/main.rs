//! Decisions from hostile input: damaged files, invalid values, crashed runs, empty groups, and
//! lying clients.

#[path = "../synthetic/mod.rs"]
mod synthetic;

mod decide;
mod geo;
mod measure;

use core::time::Duration;
use std::path::{Path, PathBuf};

use mendcast_autoplex::Error;
use mendcast_autoplex::geo::Geo;
use mendcast_autoplex::measure::{Measurement, Summary};
use mendcast_autoplex::store::{Store, list_directory};
use records::{Record, RecordWriter, Retention};

/// Current time in all tests: 2027-01-15 08:00 UTC.
const NOW: u64 = 1_800_000_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Returns a typical record that ended 9 min ago.
fn record(number: i64) -> Record {
    let mut record = Record::default();
    record.session.session = Some(number);
    record.session.prefix = Some(format!("10.0.{}.0/24", number % 200));
    record.session.group = Some("BR/AS1/SP/Campinas".into());
    record.session.started_ms = Some((NOW as i64 - 600) * 1_000);
    record.session.duration_s = Some(60.0);
    record.recovery.first_transmissions = Some(1_000);
    record.recovery.retransmissions = Some(number % 50);
    record.delivery.goodput_mbps = Some(3.0);
    record.path.rtt_ms = Some(50.0);
    record.path.max_in_flight = Some(60_000);
    record.path.max_window = Some(90_000);
    record.path.open_rate_mbps = Some(8.0);
    record.autoplex.autoplex = Some("explorer".into());
    record
}

/// Writes records with the edge's writer to `folder/NAME.parquet`.
fn write(folder: &Path, name: &str, records: impl IntoIterator<Item = Record>) -> PathBuf {
    let own = tempfile::tempdir().expect("a folder");
    let writer = RecordWriter::start(own.path(), DAY, Retention::default()).expect("started");
    records.into_iter().for_each(|record| writer.write(record).expect("room"));
    writer.close();
    let files = list_directory(own.path()).expect("listed");
    let file = files.iter().find(|path| path.extension().is_some_and(|form| form == "parquet"));
    std::fs::create_dir_all(folder).expect("created");
    let path = folder.join(name).with_extension("parquet");
    std::fs::copy(file.expect("a file"), &path).expect("copied");
    path
}

fn measured(records: &[PathBuf], store: &Store, geo: &Geo) -> Result<Summary, Error> {
    Measurement { records, store, geo, now: NOW, keep: DAY }.run()
}
