//! `mendcast autoplex`: user groups and what their sessions may send. What decides is a program of
//! its own (`autoplex/` in the repository), because its query engine is larger than all of this;
//! what explains is here.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command as Process;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use groups::{Absent, Parameters, Table};

use crate::error::Error;

/// Program for all other AutoPlex commands.
const DECIDER: &str = "mendcast-autoplex";

const OTHERS: &str = "\
Other commands run the program mendcast-autoplex, which `make autoplex` builds:
  decide     measure new records, decide, and write table.groups
  measure    measure new records
  histogram  write a histogram of one point of presence
  sql        print a query for another engine
  sync       copy new files between folders and object stores

mendcast autoplex decide --help shows its options.";
const EXPLAIN: &str = "\
Examples:
  mendcast autoplex explain 192.0.2.7 --table decided/table.groups
  mendcast autoplex explain 2001:db8::7 --json";

#[derive(Debug, Args)]
#[command(after_help = OTHERS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the cap of an address and its source.
    #[command(after_long_help = EXPLAIN)]
    Explain(Explain),
    /// Command of mendcast-autoplex.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Debug, Args)]
struct Explain {
    /// Address of a viewer.
    #[arg(value_name = "ADDRESS")]
    address: IpAddr,
    /// Table of `mendcast autoplex decide`.
    #[arg(long, default_value = "table.groups", value_name = "FILE")]
    table: PathBuf,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self.command {
            Command::Explain(explain) => explain.run(),
            Command::Other(arguments) => hand_over(&arguments),
        }
    }
}

/// Runs the AutoPlex program: next to this binary, or from `PATH`.
fn hand_over(arguments: &[OsString]) -> Result<(), Error> {
    let own = env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(DECIDER)));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(DECIDER));
    let status = Process::new(&program).args(arguments).status().map_err(|e| {
        Error::new(format_args!(
            "{DECIDER}: {e}; build it with `make autoplex`, and put it beside mendcast or into PATH"
        ))
    })?;
    match status.code() {
        Some(0) => Ok(()),
        // It has said why.
        code => std::process::exit(code.unwrap_or(1)),
    }
}

impl Explain {
    fn run(self) -> Result<(), Error> {
        let file = self.table.display();
        let bytes = std::fs::read(&self.table).map_err(Error::at(&file))?;
        let table = Table::decode(&bytes).map_err(Error::at(&file))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let told = Told::of(&table, self.address, now);
        crate::output::print(if self.json { told.json() } else { told.text() });
        Ok(())
    }
}

/// A table's entry for an address.
#[derive(Debug)]
struct Told<'a> {
    address: IpAddr,
    /// The group and the wider ones, the finest first.
    groups: Vec<(&'a str, Option<&'a Parameters>)>,
    outcome: Result<Parameters, Absent>,
    /// Since the table was decided, and since the group's parameters were: in seconds.
    age: u64,
    parameters_age: u64,
    lifetime: u64,
}

impl<'a> Told<'a> {
    fn of(table: &'a Table, address: IpAddr, now: u64) -> Self {
        let mut groups = Vec::new();
        let mut next = table.group_of(address);
        while let Some(group) = next.and_then(|id| table.group(id)) {
            groups.push((&*group.name, group.parameters.as_ref()));
            next = group.parent;
        }
        let outcome = table.parameters(address, now).map(|(_, parameters)| *parameters);
        let times = table.times();
        let decided = outcome.map_or(times.issued, |parameters| parameters.decided);
        Self {
            address,
            groups,
            outcome,
            age: now.saturating_sub(times.issued),
            parameters_age: now.saturating_sub(decided),
            lifetime: times.lifetime.as_secs(),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let minutes = |seconds: u64| format!("{:.0} min", seconds as f64 / 60.0);
        let Self { address, age, lifetime, .. } = self;
        match (self.groups.first(), &self.outcome) {
            (None, _) => writeln!(out, "{address} is in no group of this table: not capped")?,
            (Some((name, _)), Ok(parameters)) => {
                writeln!(out, "{address} is in {name}")?;
                writeln!(
                    out,
                    "cap: {:.2} Mbps, {} bytes in flight; never below the need of its stream",
                    parameters.rate.as_mbps_f64(),
                    parameters.in_flight
                )?;
                let (sessions, since) = (parameters.sessions, minutes(self.parameters_age));
                match sessions {
                    0 => writeln!(
                        out,
                        "decided {since} ago from the enclosing group, without sessions of its own"
                    )?,
                    n => writeln!(out, "decided {since} ago from {n} sessions of its own")?,
                }
            }
            (Some((name, _)), Err(why)) => {
                writeln!(out, "{address} is in {name}: not capped: {}", why.name())?;
            }
        }
        for (name, parameters) in self.groups.iter().skip(1) {
            match parameters {
                Some(parameters) => {
                    let rate = parameters.rate.as_mbps_f64();
                    writeln!(
                        out,
                        "  part of {name}: {rate:.2} Mbps, {} sessions",
                        parameters.sessions
                    )?;
                }
                None => writeln!(out, "  part of {name}: undecided")?,
            }
        }
        let left = lifetime
            .checked_sub(*age)
            .map_or("expired".to_owned(), |left| format!("valid for another {}", minutes(left)));
        writeln!(out, "the table is {} old and {left}", minutes(*age))
    }

    fn json(&self) -> String {
        let parameters = |p: &Parameters| {
            serde_json::json!({
                "rate_mbps": p.rate.as_mbps_f64(),
                "in_flight": p.in_flight,
                "sessions": p.sessions,
                "decided": p.decided,
            })
        };
        let groups: Vec<_> = self.groups.iter().map(|(name, known)| {
            serde_json::json!({ "name": name, "parameters": known.map(parameters) })
        }).collect();
        let object = serde_json::json!({
            "address": self.address.to_string(),
            "held": self.outcome.is_ok(),
            "why_not": self.outcome.err().map(Absent::name),
            "parameters": self.outcome.as_ref().ok().map(parameters),
            "groups": groups,
            "age_s": self.age,
            "lifetime_s": self.lifetime,
        });
        format!("{object}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use groups::{Group, TableBuilder, Times};
    use units::Rate;

    #[test]
    fn an_address_is_explained_with_its_group_and_its_parents() {
        let times = Times { issued: 1_000_000, lifetime: Duration::from_secs(7_200) };
        let mut building = TableBuilder::new(times);
        let of = |mbps, sessions| Parameters {
            rate: Rate::from_mbps(mbps),
            in_flight: 60_000,
            sessions,
            decided: 999_400,
        };
        let mut group = |name: &str, parent, parameters, is_off| {
            building.group(Group { name: name.into(), parent, parameters, is_off })
        };
        let country = group("BR", None, Some(of(4, 900)), false);
        let city = group("BR/AS1/SP", Some(country), Some(of(6, 200)), false);
        let off = group("BR/AS2", Some(country), Some(of(6, 200)), true);
        building.v4([192, 0, 2, 0].into(), [192, 0, 2, 255].into(), city);
        building.v4([192, 0, 3, 0].into(), [192, 0, 3, 255].into(), off);
        let table = building.finish().expect("disjoint");
        let text = |last: u8, now| Told::of(&table, [192, 0, last, 7].into(), now).text();
        assert_eq!(
            text(2, 1_000_600),
            "192.0.2.7 is in BR/AS1/SP\n\
             cap: 6.00 Mbps, 60000 bytes in flight; never below the need of its stream\n\
             decided 20 min ago from 200 sessions of its own\n  part of BR: 4.00 Mbps, 900 sessions\n\
             the table is 10 min old and valid for another 110 min\n"
        );
        assert!(text(3, 1_000_600).contains("not capped: off"), "{}", text(3, 1_000_600));
        assert!(text(2, 1_009_000).contains("not capped: expired"));
        assert!(text(4, 1_000_600).contains("in no group"));
        let json = Told::of(&table, [192, 0, 2, 7].into(), 1_000_600).json();
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&json["held"], &json["groups"][1]["name"]), (&true.into(), &"BR".into()));
    }
}
