//! The explanation as text for terminals, and as JSON.

use core::fmt::Write as _;

use super::finding::{Finding, Source};
use super::trace::Stall;
use super::verdict::{Explanation, Outcome};

/// Maximum number of printed stalls.
const MAX_STALLS: usize = 20;
const WIDTH: usize = 100;

impl Explanation {
    /// Renders one JSON object in one line.
    pub fn json(&self) -> String {
        // Cannot fail: keys are text, and evidence is finite.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Renders sentences for people.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n{}\n", self.title(), self.headline());
        for (place, finding) in self.causes.iter().enumerate() {
            let title = finding.cause.title();
            let _ = writeln!(out, "\n{}. {title} ({})", place + 1, finding.certainty.name());
            wrapped(&mut out, "   ", &finding.sentence);
            let evidence = evidence(finding);
            if !evidence.is_empty() {
                wrapped(&mut out, "   ", &format!("Evidence: {evidence}."));
            }
            if !finding.help.is_empty() {
                wrapped(&mut out, "   ", &format!("Would help: {}.", finding.help.join("; ")));
            }
        }
        if !self.timeline.is_empty() {
            out.push_str("\nTimes without media, in s after the start of the session\n");
            for stall in self.timeline.iter().take(MAX_STALLS) {
                let _ = writeln!(out, "  {}", line(stall));
            }
            if self.timeline.len() > MAX_STALLS {
                let _ = writeln!(out, "  and {} more", self.timeline.len() - MAX_STALLS);
            }
        }
        if !self.missing.is_empty() {
            let missing = format!("Unknown: {}.", self.missing.join("; "));
            out.push('\n');
            wrapped(&mut out, "", &missing);
        }
        for note in &self.notes {
            wrapped(&mut out, "", &format!("Note: {note}."));
        }
        out
    }

    fn title(&self) -> String {
        let session = &self.session;
        let unknown = || "?".to_owned();
        let mut title = format!(
            "viewer {}, {} over {}/{}",
            session.viewer.clone().unwrap_or_else(unknown),
            session.stream.clone().unwrap_or_else(unknown),
            session.format.clone().unwrap_or_else(unknown),
            session.protocol.clone().unwrap_or_else(unknown),
        );
        if let Some(scheme) = &session.scheme {
            let _ = write!(title, ", scheme {scheme}");
        }
        if let Some(started) = &session.started {
            let _ = write!(title, ", {started}");
        }
        if let Some(seconds) = session.duration_s {
            let _ = write!(title, ", {seconds:.1} s");
        }
        title
    }

    fn headline(&self) -> String {
        let session = &self.session;
        let (freezes, seconds) = (session.freezes.unwrap_or(0.0), session.freeze_s.unwrap_or(0.0));
        let outcome = match self.outcome {
            Outcome::Froze => format!("The player froze {freezes:.0} times, for {seconds:.1} s."),
            Outcome::NoFreeze => "The player reported no freeze.".to_owned(),
            Outcome::NoPicture => "The session ended before its first picture.".to_owned(),
            Outcome::Unreported => {
                "The player sent no valid report: whether it froze is unknown.".to_owned()
            }
        };
        let conclusion = match (self.causes.is_empty(), self.outcome) {
            _ if self.is_not_enough_data => " Not enough data for a cause.",
            (true, Outcome::Froze) => " No cause exceeds its threshold.",
            (false, Outcome::NoFreeze) => " These conditions did not suffice to freeze it:",
            _ => "",
        };
        outcome + conclusion
    }
}

fn evidence(finding: &Finding) -> String {
    let one = |known: &super::Evidence| {
        let unit = if known.unit.is_empty() { String::new() } else { format!(" {}", known.unit) };
        let by = match known.source {
            Source::Record => "",
            Source::Records => " (records)",
            Source::Qlog => " (qlog)",
            Source::ConnectionLog => " (connection log)",
        };
        format!("{} {}{unit}{by}", known.name, number(known.value))
    };
    finding.evidence.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A number with at most three decimals.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0".to_owned() } else { text.to_owned() }
}

fn line(stall: &Stall) -> String {
    let cause = stall.cause.map_or("unknown", |cause| cause.title());
    let mut text = format!("{:8.2}  {:6.2} s  {cause}", stall.at_s, stall.length_s);
    if stall.is_slow {
        let _ = write!(text, ", {:.2} Mbps", stall.rate_mbps);
    }
    if stall.lost > 0 {
        let _ = write!(text, ", {} packets lost", stall.lost);
        if stall.run > 1 {
            let _ = write!(text, " ({} in a row)", stall.run);
        }
    }
    if stall.rounds > 1 {
        let _ = write!(text, ", {} rounds", stall.rounds);
    }
    if stall.rtt_ms > 0.0 {
        let _ = write!(text, ", round trip up to {:.0} ms", stall.rtt_ms);
    }
    text
}

/// Appends a paragraph of at most [`WIDTH`] columns.
fn wrapped(out: &mut String, indent: &str, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.push_str(indent);
            column = indent.len();
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}
