//! Gilbert chains of recorded sessions, from a file. It has one line per session, with the columns
//! `network`, `p_good_to_bad` and `r_bad_to_good`: the transition probabilities between rows of
//! 16.7 ms. This is the format of `gilbert-model-regression` in SparkTraces, with sessions of cloud
//! gaming.

use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use crate::random::Probability;
use crate::text::{Fields, ParseError};

/// Time between two steps of a chain.
pub(crate) const ROW: Duration = Duration::from_micros(16_700);
/// Header of a file.
const COLUMNS: &str = "network,p_good_to_bad,r_bad_to_good";

/// Chain of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionChain {
    /// Probability that a bad row follows a good one.
    pub p: Probability,
    /// Probability that a good row follows a bad one.
    pub r: Probability,
}

/// Parses `file=PATH` and its options. Returns the candidate sessions and the loss rate of bad
/// rows.
pub(crate) fn read(
    text: &str,
    fields: &mut Fields<'_>,
) -> Result<(Arc<[SessionChain]>, Probability), ParseError> {
    let file = fields.optional("file")?;
    let file: String = file.ok_or_else(|| ParseError::new(text, "`gilbert:file=PATH`"))?;
    let network: Option<String> = fields.optional("network")?;
    let all = std::fs::read_to_string(&file)
        .map_err(|e| ParseError(e.to_string()))
        .and_then(|content| parse(&content, network.as_deref()))
        .map_err(|why| ParseError(format!("`file` in `{text}`: {file}: {why}")))?;
    let row = |row: &str| match row.parse::<usize>() {
        Ok(row) if (1..=all.len()).contains(&row) => Ok(row - 1),
        _ => Err(ParseError::new(row, &format!("a session from 1 to {}", all.len()))),
    };
    let sessions = match fields.optional_with("row", row)? {
        Some(row) => Arc::from([all[row]]),
        None => Arc::from(all),
    };
    let bad = fields.optional("bad")?.unwrap_or(Probability::clamped(0.5));
    Ok((sessions, bad))
}

/// Parses the sessions of one network, or of all.
fn parse(content: &str, network: Option<&str>) -> Result<Vec<SessionChain>, ParseError> {
    let mut lines = (1..).zip(content.lines().map(str::trim)).filter(|(_, line)| !line.is_empty());
    match lines.next() {
        Some((_, COLUMNS)) => {}
        _ => return Err(ParseError(format!("expected the columns `{COLUMNS}`"))),
    }
    let mut sessions = Vec::new();
    for (number, line) in lines {
        let (name, session) = parse_line(line).ok_or_else(|| {
            ParseError(format!("line {number}, `{line}`: expected `NETWORK,0.002,0.5`"))
        })?;
        if network.is_none_or(|network| network == name) {
            sessions.push(session);
        }
    }
    match (sessions.is_empty(), network) {
        (false, _) => Ok(sessions),
        (true, Some(network)) => {
            Err(ParseError(format!("it has no session with the network `{network}`")))
        }
        (true, None) => Err(ParseError("it has no session".to_owned())),
    }
}

fn parse_line(line: &str) -> Option<(&str, SessionChain)> {
    let mut columns = line.split(',');
    let name = columns.next()?;
    let mut chance = || Probability::from_str(columns.next()?).ok();
    let session = SessionChain { p: chance()?, r: chance()? };
    columns.next().is_none().then_some((name, session))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Link, LinkConfig, Loss, Packet};
    use units::{Ecn, Timestamp};

    /// A temporary file.
    struct File(std::path::PathBuf);

    impl File {
        fn new(name: &str, content: &str) -> Self {
            let name = format!("mendcast-{name}-{}.csv", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, content).unwrap();
            Self(path)
        }

        fn loss(&self, more: &str) -> Result<Loss, ParseError> {
            format!("gilbert:file={}{more}", self.0.display()).parse()
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    const SESSIONS: &str = "network,p_good_to_bad,r_bad_to_good\n\
        cell,0.001,0.5\n\
        wifi,0.02,0.25\n\
        cell,0.1,0.4\n";

    /// Fraction of a million packets, one per 2 ms, that is lost with this seed.
    fn lost(loss: &Loss, seed: u64) -> f64 {
        let config = LinkConfig { loss: Some(loss.clone()), ..LinkConfig::default() };
        let mut link = Link::new(&config, seed, "down");
        for index in 0..1_000_000 {
            let packet = Packet { size: 100, ecn: Ecn::NotEct, payload: () };
            link.send(Timestamp::from_millis(2 * index), packet);
            link.poll(Timestamp::from_millis(2 * index));
        }
        link.counters().lost.packets as f64 / 1e6
    }

    #[test]
    fn the_loss_rate_follows_from_the_chain() {
        let file = File::new("sessions", SESSIONS);
        // The chain is bad for p ÷ (p + r) of the time.
        for (more, share) in [
            (",row=2,bad=100%", 0.02 / 0.27),
            (",network=cell,row=2", 0.5 * 0.1 / 0.5),
            (",network=wifi,bad=20%", 0.2 * 0.02 / 0.27),
        ] {
            let measured = lost(&file.loss(more).unwrap(), 3);
            assert!((measured / share - 1.0).abs() < 0.07, "{more}: {measured} {share}, seed 3");
        }
    }

    #[test]
    fn the_seed_draws_the_session() {
        let file = File::new("drawn", SESSIONS);
        let loss = file.loss(",network=cell,bad=100%").unwrap();
        let rates: Vec<f64> = (0..12).map(|seed| lost(&loss, seed)).collect();
        let many = rates.iter().filter(|rate| **rate > 0.1).count();
        let few = rates.iter().filter(|rate| **rate < 0.01).count();
        assert!(many >= 2 && few >= 2 && many + few == 12, "{rates:?}");
        assert_eq!(lost(&loss, 5), rates[5]);
    }

    #[test]
    fn errors_name_the_file_and_line() {
        let error = |content: &str, more: &str| {
            File::new("bad", content).loss(more).unwrap_err().to_string()
        };
        assert!(error("p,r\n", "").contains("the columns `network,"));
        assert!(error("network,p_good_to_bad,r_bad_to_good\n", "").contains("no session"));
        let long = format!("{SESSIONS}wifi,0.1\n");
        assert!(error(&long, "").contains("line 5, `wifi,0.1`"));
        assert!(error(&SESSIONS.replace("0.02", "2"), "").contains("line 3"));
        assert!(error(SESSIONS, ",network=eth").contains("`eth`"));
        assert!(error(SESSIONS, ",row=4").contains("1 to 3"));
        assert!(error(SESSIONS, ",rows=4").contains("rows=4"));
        let nowhere = "gilbert:file=/nowhere/at/all".parse::<Loss>().unwrap_err().to_string();
        assert!(nowhere.contains("/nowhere/at/all"), "{nowhere}");
        assert!("gilbert:bad=1".parse::<Loss>().unwrap_err().to_string().contains("file=PATH"));
    }
}
