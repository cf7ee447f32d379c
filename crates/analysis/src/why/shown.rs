//! Findings from the qlog: stalls by cause, with times.

use core::fmt::Write as _;

use records::Column;

use super::facts::Facts;
use super::finding::{Cause, Certainty, Finding, Source::Qlog};
use super::trace::{Stall, Trace};

/// Number of stalls that a sentence names.
const MAX_NAMED: usize = 5;
/// Stalls without anything to send count from this length on, in s: streams of few frames per
/// second have shorter pauses.
const MIN_IDLE_S: f64 = 0.5;
/// Margin of a recommended buffer beyond the longest deficit.
const BUFFER_MARGIN: f64 = 1.25;

/// Returns the stalls that count.
pub(super) fn counted<'a>(trace: &'a Trace, facts: &Facts) -> Vec<&'a Stall> {
    let is_counted = |stall: &&Stall| match stall.cause {
        // Between two requests for segments there is nothing to send.
        Some(Cause::Publisher) => !facts.is_hls() && stall.length_s >= MIN_IDLE_S,
        Some(_) => true,
        None => false,
    };
    trace.stalls.iter().filter(is_counted).collect()
}

/// Returns a finding per cause.
pub(super) fn findings(trace: &Trace, facts: &Facts) -> Vec<Finding> {
    let stalls = counted(trace, facts);
    let total: f64 = stalls.iter().map(|stall| stall.length_s).sum();
    let mut causes: Vec<Cause> = stalls.iter().filter_map(|stall| stall.cause).collect();
    causes.sort();
    causes.dedup();
    let of = |cause: Cause| {
        let own: Vec<&Stall> =
            stalls.iter().copied().filter(|stall| stall.cause == Some(cause)).collect();
        finding(cause, &own, total, trace, facts)
    };
    causes.into_iter().map(of).collect()
}

fn finding(cause: Cause, own: &[&Stall], total: f64, trace: &Trace, facts: &Facts) -> Finding {
    let seconds: f64 = own.iter().map(|stall| stall.length_s).sum();
    let longest = own.iter().map(|stall| stall.length_s).fold(0.0, f64::max);
    let lost: u64 = own.iter().map(|stall| stall.lost).sum();
    let run = own.iter().map(|stall| stall.run).max().unwrap_or(0);
    let rtt = own.iter().map(|stall| stall.rtt_ms).fold(0.0, f64::max);
    let rounds = own.iter().map(|stall| stall.rounds).max().unwrap_or(0);
    let at = times(own);
    let sentence = match cause {
        Cause::Loss => format!(
            "Loss bursts held back the data behind them: for {seconds:.1} s in all nothing arrived \
             in order, {at}."
        ),
        Cause::Outage => {
            format!("The path was silent: no packet passed for up to {longest:.1} s, {at}.")
        }
        Cause::Queue => format!(
            "A queue on the path delayed packets by up to {:.0} ms, {at}.",
            rtt - trace.min_rtt_ms().unwrap_or(0.0)
        ),
        Cause::Capacity => format!(
            "The path carried less than the stream needs: data was always waiting, and arrived at \
             {:.2} Mbps, {at}.",
            rate(own)
        ),
        Cause::Controller => format!(
            "After losses the congestion controller sent {:.2} Mbps although the path had no \
             queue, {at}.",
            rate(own)
        ),
        Cause::Publisher => format!(
            "The server had nothing to send for up to {longest:.1} s, {at}: everything before had \
             arrived. The publisher or upstream stalled, or the server did not forward it."
        ),
        Cause::Server => format!(
            "The server did not act for up to {longest:.1} s although its timers were due, {at}."
        ),
        Cause::PathChange => format!(
            "The viewer's address changed, and no data arrived in order for up to {longest:.1} s, \
             {at}."
        ),
        Cause::Cap | Cause::Tcp | Cause::Player | Cause::Startup => cause.title().to_owned(),
    };
    let share = if total > 0.0 { seconds / total } else { 0.0 };
    let mut finding = Finding::new(cause, Certainty::Shown, share, sentence)
        .with("stalls", own.len() as f64, "", Qlog)
        .with("stalled", seconds, "s", Qlog)
        .with("longest_stall", longest, "s", Qlog);
    if lost > 0 {
        finding = finding.with("lost_in_stalls", lost as f64, "packets", Qlog);
        finding = finding.with("longest_run", run as f64, "packets", Qlog);
    }
    if rounds > 0 {
        finding = finding.with("rounds", rounds as f64, "rounds", Qlog);
    }
    if rtt > 0.0 {
        finding = finding.with("rtt_largest", rtt, "ms", Qlog);
    }
    if matches!(cause, Cause::Capacity | Cause::Controller) {
        finding = finding.with("delivered", rate(own), "Mbps", Qlog);
    }
    with_remedies(finding, longest, trace, facts)
}

fn with_remedies(finding: Finding, longest: f64, trace: &Trace, facts: &Facts) -> Finding {
    let skips = facts[Column::skips].unwrap_or(0.0);
    // Skipped media is never sent, so it counts as a deficit forever.
    let needed = trace.deficit_s.filter(|_| skips == 0.0).unwrap_or(longest).max(longest);
    let buffer = format!(
        "a player buffer of about {:.1} s, which bridges every stall in the qlog",
        needed * BUFFER_MARGIN
    );
    match finding.cause {
        Cause::Loss | Cause::Queue => finding.helped_by(buffer),
        Cause::Outage => finding
            .helped_by(buffer)
            .helped_by("no recovery scheme: while the path is silent, copies are lost as well"),
        Cause::PathChange => finding.helped_by(buffer).helped_by(
            "check that the load balancer forwards packets of migrated connections to their server",
        ),
        Cause::Publisher => finding
            .helped_by(buffer)
            .helped_by("the publisher's uplink and encoder, or the upstream of the pull"),
        _ => finding,
    }
}

/// Delivered rate in slow stretches, in Mbps.
fn rate(own: &[&Stall]) -> f64 {
    let slow = || own.iter().filter(|stall| stall.is_slow);
    let seconds: f64 = slow().map(|stall| stall.length_s).sum();
    let mbit: f64 = slow().map(|stall| stall.rate_mbps * stall.length_s).sum();
    if seconds > 0.0 { mbit / seconds } else { 0.0 }
}

/// Times of the longest stalls, in order.
fn times(own: &[&Stall]) -> String {
    let mut named: Vec<&&Stall> = own.iter().collect();
    named.sort_by(|a, b| b.length_s.total_cmp(&a.length_s));
    named.truncate(MAX_NAMED);
    named.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let mut text = String::from("at ");
    for (place, stall) in named.iter().enumerate() {
        let comma = if place > 0 { ", " } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{:.1} s", stall.at_s);
    }
    if own.len() > named.len() {
        let _ = write!(text, " and {} more times", own.len() - named.len());
    }
    text
}
