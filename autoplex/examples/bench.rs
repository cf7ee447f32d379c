//! Benchmark of decisions: writes synthetic sessions over groups with the sizes of the paper's
//! table 1 (as the measurement module would), and times each decision in a process of its own. Then
//! measures records, and looks addresses up in a table of a million ranges.
//!
//!     cargo run --release --example bench -- [SESSIONS]

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use groups::decide::Rules;
use groups::select::Policy;
use groups::{Group, Parameters, Table, TableBuilder, Times};
use mendcast_autoplex::decide::{Decision, Rows};
use mendcast_autoplex::engine::Engine;
use mendcast_autoplex::geo::Geo;
use mendcast_autoplex::measure::Measurement;
use mendcast_autoplex::query::Plan;
use mendcast_autoplex::rows::table;
use mendcast_autoplex::store::Store;
use records::{Record, RecordWriter, Retention};
use synthetic::Rng;
use units::Rate;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BEGIN: u64 = 1_800_000_000;
const END: u64 = BEGIN + 1_800;
const GROUPS: usize = 18_620;
const FILE: usize = 250_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [root, policy, exact] => decide(Path::new(root), policy, exact == "exact"),
        [root, count] => {
            write_sessions(Path::new(root), count.parse().expect("a number of sessions"))
        }
        [count] => all(count.parse().expect("a number of sessions")),
        _ => all(10_000_000),
    }
}

fn all(count: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let begun = Instant::now();
    write_sessions(root, count);
    println!("wrote {count} sessions in {:.1} s", begun.elapsed().as_secs_f64());
    for policy in Policy::ALL {
        for kind in ["histogram", "exact"] {
            let itself = std::env::current_exe().expect("a path");
            let run = Command::new(itself).arg(root).args([policy.name, kind]).output();
            let run = run.expect("started");
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
            print!("{}", String::from_utf8_lossy(&run.stdout));
        }
    }
    measure(&root.join("records"));
    ranges();
}

/// Writes sessions over groups with sizes proportional to 1 / (rank + 0.30) ^ 0.824.
fn write_sessions(root: &Path, count: usize) {
    let store = Store::new(root);
    let mut upto = Vec::with_capacity(GROUPS);
    let mut total = 0.0;
    for rank in 1..=GROUPS {
        total += (rank as f64 + 0.30).powf(-0.824);
        upto.push(total);
    }
    let names: Vec<String> = (0..GROUPS as i64).map(synthetic::name).collect();
    let id = |name: &String| (groups::select::group_id(name).to_string(), name.clone());
    let pairs: BTreeMap<String, String> = names.iter().map(id).collect();
    store.write_pairs("groups.csv", "id,name", &pairs).expect("written");
    let mut rng = Rng(1);
    for file in 0..count.div_ceil(FILE) {
        let rows: Vec<_> = (0..FILE.min(count - file * FILE))
            .map(|_| {
                let at = rng.uniform() * total;
                let group = upto.partition_point(|upto| *upto <= at).min(GROUPS - 1);
                synthetic::session(&mut rng, group as i64, BEGIN as i64, END as i64)
            })
            .collect();
        let path = store.sessions(BEGIN, &format!("edge-{file}"));
        table(&rows).write_parquet(&path).expect("written");
    }
}

fn decide(root: &Path, policy: &str, exact: bool) {
    let policy = Policy::ALL.into_iter().find(|p| p.name == policy).expect("a policy");
    let begun = Instant::now();
    let (store, geo) = (Store::new(root), Geo::default());
    let engine = Engine::new(2).expect("threads");
    for place in ["decisions", "guard.csv", "table.groups"].map(|name| store.path(name)) {
        let _ = std::fs::remove_dir_all(&place).or_else(|_| std::fs::remove_file(&place));
    }
    let decision = Decision {
        store: &store,
        geo: &geo,
        engine: &engine,
        plan: Plan::of(&policy),
        rows: if exact { Rows::Exact } else { Rows::Sessions },
        rules: Rules::default(),
        period: Duration::from_secs(1_800),
        window: Duration::from_secs(1_800),
        lifetime: Duration::from_secs(7_200),
        now: END,
    };
    let summary = decision.run().expect("decided").expect("not decided yet");
    let took = begun.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: ?");
    println!(
        "{} {}: {took:.2} s, {}, {summary}",
        policy.name,
        if exact { "exact" } else { "histograms" },
        peak.split_whitespace().collect::<Vec<_>>().join(" "),
    );
}

/// Writes records as an edge does, and times their measurement.
fn measure(root: &Path) {
    let count = 100_000;
    let writer = RecordWriter::start(root, Duration::from_secs(86_400), Retention::default());
    let writer = writer.expect("started");
    let mut rng = Rng(2);
    for number in 0..count {
        let row = synthetic::session(&mut rng, number % 1_000, BEGIN as i64, END as i64);
        let mut record = Box::new(Record::default());
        let session = &mut record.session;
        session.session = Some(number);
        session.viewer = Some(format!("{number:016x}"));
        session.prefix = Some(format!("10.{}.{}.0/24", number % 200, rng.below(250)));
        session.group = Some(synthetic::name(number % 1_000));
        session.started_ms = Some((row.sample.ended - 60) * 1_000);
        session.duration_s = Some(60.0);
        record.delivery.goodput_mbps = Some(row.sample.goodput_kbps as f64 / 1e3);
        record.autoplex.autoplex = Some("treated".into());
        record.path.rtt_ms = Some(row.sample.rtt_us as f64 / 1e3);
        record.path.max_in_flight = Some(row.sample.in_flight);
        record.path.max_window = Some(row.sample.window);
        record.path.open_rate_mbps = Some(row.sample.open_kbps as f64 / 1e3);
        record.recovery.first_transmissions = Some(row.sample.packets);
        record.recovery.retransmissions = Some(row.sample.retransmitted);
        while let Err(back) = writer.write(*record) {
            record = back;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    writer.close();
    let store = Store::new(&root.join("out"));
    let (records, geo, begun) = ([root.to_owned()], Geo::default(), Instant::now());
    let keep = Duration::from_secs(86_400);
    let measurement = Measurement { records: &records, store: &store, geo: &geo, now: END, keep };
    let summary = measurement.run().expect("measured");
    let each = begun.elapsed().as_secs_f64() / count as f64;
    println!("{summary}: {:.1} s per million records", each * 1e6);
}

/// Times the encoding, decoding and lookups of a table of a million ranges.
fn ranges() {
    let times = Times { issued: END, lifetime: Duration::from_secs(7_200) };
    let mut building = TableBuilder::new(times);
    let parameters =
        Parameters { rate: Rate::from_kbps(4_000), in_flight: 60_000, sessions: 300, decided: END };
    let ids: Vec<_> = (0..GROUPS as i64)
        .map(|group| {
            let name = synthetic::name(group).into();
            let parameters = Some(parameters);
            building.group(Group { name, parent: None, parameters, is_off: false })
        })
        .collect();
    for range in 0..1_000_000u32 {
        let first = range << 12;
        let [first, last] = [first, first | 0xfff].map(Ipv4Addr::from_bits);
        building.v4(first, last, ids[range as usize % GROUPS]);
    }
    let table = building.finish().expect("disjoint");
    let begun = Instant::now();
    let bytes = table.encode();
    let encode = begun.elapsed().as_secs_f64() * 1e3;
    let begun = Instant::now();
    let table = Table::decode(&bytes).expect("a table");
    let decode = begun.elapsed().as_secs_f64() * 1e3;
    let mut rng = Rng(3);
    let addresses: Vec<IpAddr> =
        (0..1_000_000).map(|_| Ipv4Addr::from_bits(rng.next() as u32).into()).collect();
    let begun = Instant::now();
    let found = addresses.iter().filter(|at| table.parameters(**at, END).is_ok()).count();
    let lookup = begun.elapsed().as_nanos() as f64 / addresses.len() as f64;
    println!(
        "{} ranges in {} bytes: encoded in {encode:.0} ms, decoded in {decode:.0} ms; \
         {found} lookups, {lookup:.0} ns each",
        table.ranges(),
        bytes.len()
    );
}
