//! Conformance of all engines: the native selection, DataFusion, ClickHouse and Spark. The latter
//! two run if installed; `MENDCAST_PYTHON` names a Python that has them.

mod synthetic;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use groups::select::{Policy, choose};
use mendcast_autoplex::engine::{Engine, Kept, Source};
use mendcast_autoplex::integers::Integers;
use mendcast_autoplex::query::{HISTOGRAM_COLUMNS, Plan, SELECTION_COLUMNS, outcomes};
use mendcast_autoplex::rows::{COLUMNS, Measured, table};

const BEGIN: u64 = 1_800_000_000;
const END: u64 = BEGIN + 1_800;
const SESSIONS: usize = 120_000;
const GROUPS: i64 = 300;

/// Shared input of all tests: session files, queries, and the results of DataFusion.
struct Case {
    folder: tempfile::TempDir,
    sessions: Vec<Measured>,
    /// Names of the queries.
    names: Vec<String>,
}

impl Case {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    mendcast_autoplex::store::list_directory(folder).expect("listed")
}

fn case() -> &'static Case {
    static CASE: OnceLock<Case> = OnceLock::new();
    CASE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let sessions = synthetic::sessions(5, SESSIONS, GROUPS, BEGIN as i64, END as i64);
        let mut case = Case { folder, sessions, names: Vec::new() };
        for (part, rows) in case.sessions.chunks(SESSIONS / 3).enumerate() {
            let path = case.path(&format!("sessions/{part}.parquet"));
            table(rows).write_parquet(&path).expect("written");
        }
        let engine = Engine::new(2).expect("threads");
        let mut queries: Vec<(String, String, PathBuf)> =
            vec![("outcomes".into(), outcomes(&(BEGIN..END)), case.path("sessions"))];
        for policy in Policy::ALL {
            let plan = Plan::of(&policy);
            let name = |query| format!("{query}-{}", policy.name);
            let histograms = case.path(&name("histograms"));
            queries.push((name("band"), plan.band(&(BEGIN..END)), case.path("sessions")));
            queries.push((name("histogram"), plan.histogram(&(BEGIN..END)), case.path("sessions")));
            // Three points of presence, one of them without sessions.
            for part in 0..3 {
                let files = files(&case.path("sessions"))[part..part + 1].to_vec();
                let window = if part == 2 { END..END } else { BEGIN..END };
                let source = Source::Files(files, &COLUMNS, plan.kept());
                let histogram =
                    engine.run(&plan.histogram(&window), "sessions", source).expect("run");
                let path = histograms.join(format!("{part}.parquet"));
                histogram.write_parquet(&path).expect("written");
            }
            queries.push((name("merge"), plan.merge(), histograms));
        }
        for (name, sql, folder) in queries {
            let table = if name.starts_with("merge") { "histograms" } else { "sessions" };
            let run = |kept| {
                let found = engine.run(&sql, table, Source::Files(files(&folder), &COLUMNS, kept));
                found.unwrap_or_else(|e| panic!("{name}: {e}"))
            };
            let found = run(Kept::Most);
            assert!(found == run(Kept::Few), "{name}: another result");
            assert!(found.len() > 100, "{name}: {} rows", found.len());
            std::fs::write(case.path(&format!("{name}.sql")), sql).expect("written");
            std::fs::write(case.path(&format!("{name}.csv")), found.csv()).expect("written");
            case.names.push(name);
        }
        case
    })
}

fn in_window() -> impl Iterator<Item = &'static Measured> {
    case().sessions.iter().filter(|row| (BEGIN as i64..END as i64).contains(&row.sample.ended))
}

#[test]
fn the_exact_query_agrees_with_the_native_selection() {
    for policy in Policy::ALL {
        let mut rows = Integers::empty(&SELECTION_COLUMNS);
        for chosen in choose(in_window().map(|row| row.sample), &policy) {
            rows.push(&[
                chosen.group,
                chosen.sessions,
                chosen.weight,
                chosen.goodput_kbps,
                chosen.open_kbps,
                chosen.in_flight,
                chosen.window,
            ]);
        }
        assert!(rows.len() > 100, "{}", rows.len());
        assert!(rows.csv() == case().read(&format!("band-{}.csv", policy.name)), "{}", policy.name);
    }
}

#[test]
fn histograms_approximate_the_exact_query() {
    for policy in Policy::ALL {
        let read = |query| {
            let path = case().path(&format!("{query}-{}.csv", policy.name));
            Integers::read_csv(&path, &SELECTION_COLUMNS).expect("read")
        };
        // The merged histograms of the case omit the third part of the sessions.
        let path = case().path(&format!("histogram-{}.csv", policy.name));
        let histogram = Integers::read_csv(&path, &HISTOGRAM_COLUMNS).expect("read");
        let engine = Engine::new(2).expect("threads");
        let merged = engine.run(&Plan::of(&policy).merge(), "histograms", Source::Table(histogram));
        let merged = merged.expect("merged");
        let mean = |row: &[i64]| row[3] as f64 / row[2] as f64;
        let mut apart = Vec::new();
        for exact in read("band").rows().filter(|row| row[1] >= 30) {
            let same = merged.rows().find(|row| row[0] == exact[0]).expect("the group");
            assert_eq!(exact[1], same[1], "sessions");
            apart.push((mean(&same) / mean(&exact) - 1.0).abs());
        }
        let worst = apart.iter().copied().fold(0.0, f64::max);
        let all = apart.iter().sum::<f64>() / apart.len() as f64;
        println!("{}: {} groups, mean {all:.4}, worst {worst:.4}", policy.name, apart.len());
        assert!(apart.len() > 20 && all < 0.05, "{}: {all} of {}", policy.name, apart.len());
    }
}

/// Returns a Python with this module, or prints how to install it.
fn python(module: &str, version: &str) -> Option<String> {
    let python = std::env::var("MENDCAST_PYTHON").unwrap_or_else(|_| "python3".into());
    let import = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if import.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    println!(
        "skipped: {python} has no {module}; python3 -m venv engines && engines/bin/pip install \
         {module}=={version} && export MENDCAST_PYTHON=$PWD/engines/bin/python"
    );
    None
}

/// Runs a script with every query, and compares its results with DataFusion's.
fn compare(engine: &str, script: &str, command: impl Fn() -> Command) {
    let case = case();
    for policy in Policy::ALL {
        let sessions = case.path("sessions");
        let histograms = case.path(&format!("histograms-{}", policy.name));
        let mut run = command();
        run.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
        run.arg("--view").arg(format!("sessions={}", sessions.display()));
        run.arg("--view").arg(format!("histograms={}", histograms.display()));
        let names = case.names.iter().filter(|name| {
            name.ends_with(policy.name) || (policy == Policy::OPEN_RATE && *name == "outcomes")
        });
        let names: Vec<&String> = names.collect();
        assert!(names.len() >= 3, "{names:?}");
        for name in &names {
            run.arg("--query").arg(case.path(&format!("{name}.sql")));
            run.arg(case.path(&format!("{name}.{engine}")));
        }
        let run = run.output().expect("started");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        for name in names {
            let (own, other) =
                (case.read(&format!("{name}.csv")), case.read(&format!("{name}.{engine}")));
            let lines = own.lines().zip(other.lines());
            let first = lines.filter(|(own, other)| own != other).take(1).collect::<Vec<_>>();
            assert!(own == other, "{name}: {engine} differs: {first:?}");
            println!("{engine}: {name}: {} equal bytes", own.len());
        }
    }
}

#[test]
fn clickhouse_returns_the_same_bytes() {
    let Some(python) = python("chdb", "4.4.0") else { return };
    compare("chdb", "clickhouse.py", || Command::new(&python));
}

/// A Spark process that is killed at the end of the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process, waits for a line that contains `text`, and returns it.
fn started(command: &mut Command, text: &str) -> (Process, String) {
    let mut process =
        Process(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started"));
    let (sender, receiver) = std::sync::mpsc::channel();
    let lines = BufReader::new(process.0.stderr.take().expect("piped")).lines();
    // Reads to the end, so that the process never blocks on a full pipe.
    std::thread::spawn(move || {
        lines.map_while(Result::ok).for_each(|line| drop(sender.send(line)))
    });
    let (begun, mut output) = (Instant::now(), String::new());
    while begun.elapsed() < Duration::from_secs(120) {
        let Ok(line) = receiver.recv_timeout(Duration::from_secs(120)) else { break };
        if line.contains(text) {
            return (process, line);
        }
        output += &(line + "\n");
    }
    panic!("no {text:?} in the output: {output}");
}

#[test]
fn spark_with_two_workers_returns_the_same_bytes() {
    let Some(python) = python("pyspark", "4.3.0") else { return };
    if !Command::new("java").arg("-version").output().is_ok_and(|java| java.status.success()) {
        println!("skipped: no Java; apt-get install openjdk-17-jre-headless");
        return;
    }
    let home = "import os, pyspark; print(os.path.dirname(pyspark.__file__))";
    let home = Command::new(&python).args(["-c", home]).output().expect("asked");
    let home = PathBuf::from(String::from_utf8(home.stdout).expect("a path").trim());
    let spark = |program: &str| {
        let mut command = Command::new(home.join("bin").join(program));
        command.env("SPARK_HOME", &home).env("PYSPARK_PYTHON", &python);
        command.env("SPARK_LOCAL_IP", "127.0.0.1").current_dir(case().folder.path());
        command
    };
    let ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"];
    let mut master = spark("spark-class");
    master.arg("org.apache.spark.deploy.master.Master").args(ports);
    let (_master, line) = started(&mut master, "Starting Spark master at spark://");
    let at = line.find("spark://").expect("an address");
    let url = line[at..].trim().to_owned();
    let workers = [0, 1].map(|number| {
        let mut worker = spark("spark-class");
        worker.arg("org.apache.spark.deploy.worker.Worker").args(ports);
        worker.args(["--cores", "1", "--memory", "1g", "--work-dir"]);
        worker.arg(case().path(&format!("worker-{number}"))).arg(&url);
        started(&mut worker, "Successfully registered with master").0
    });
    compare("spark", "spark.py", || {
        let mut submit = spark("spark-submit");
        submit.args(["--master", &url, "--driver-memory", "1g", "--executor-memory", "1g"]);
        for conf in ["spark.driver.host=127.0.0.1", "spark.ui.enabled=false"] {
            submit.args(["--conf", conf]);
        }
        submit
    });
    drop(workers);
}
