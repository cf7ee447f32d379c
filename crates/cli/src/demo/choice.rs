//! Default link and player of the demo, chosen by measurement:
//! experiments/demo.toml compares them with all other candidates.

use core::time::Duration;

use links::{Loss, ParseError, parse_duration, parse_rate};
use qoe::Policy;
use units::Rate;

/// Bursty loss, as on mobile networks and Wi-Fi.
pub(super) const LOSS: &str = "outages:rate=5%,length=20ms";
/// Round-trip time of an intercontinental viewer.
pub(super) const RTT: &str = "300ms";
/// Nearly three times the stream's rate: enough for a limited number of copies.
pub(super) const RATE: &str = "4mbps";
/// A low-delay player.
pub(super) const PLAYER: &str = "buffer:400ms";
/// Independent loss, as on most testbeds.
const INDEPENDENT: &str = "5%";

/// Loss as `links` reads it; `independent` is short for 5 % of the packets.
pub(super) fn loss(text: &str) -> Result<String, ParseError> {
    let text = if text == "independent" { INDEPENDENT } else { text };
    text.parse::<Loss>().map(|_| text.to_owned())
}

/// Explains the default link and player, or reports that the user chose others.
pub(super) fn explain(loss: &str, rtt: Duration, rate: Rate, player: Policy) -> String {
    let is_link = loss == LOSS && parse_duration(RTT) == Ok(rtt) && parse_rate(RATE) == Ok(rate);
    if !is_link || player.to_string() != PLAYER {
        let own = format!("{RATE}, {RTT}, {LOSS} and {PLAYER}");
        return format!("That is your choice; the demo's own is {own}.");
    }
    RATIONALE.to_owned()
}

/// Freezes in 100 s: mean ± half the 95 % CI.
const RATIONALE: &str = "\
Why these: losses are often bursty, paths are long, and low delay means a small buffer. There, in
100 s of virtual time, retransmission alone froze 8.6 ± 1.5 times for 200 ms or more (2.6 s), the
default 3.0 ± 1.4 (0.9 s), AutoRec 4.2, ART 5.4. With losses as in calls (--loss calls:rate=5%) it
was 8.0 and 4.9; if all packets of a slot are lost together (add ,reading=slots) 6.3 and 4.4; with
--player low-latency, which keeps 800 ms, or --rtt 60ms the gain is near zero.
`mendcast lab run demo --runs 20` compares all candidates.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_link_is_a_candidate_and_other_links_are_reported_as_chosen() {
        let candidates = include_str!("../../../../experiments/demo.toml");
        assert!(candidates.contains(&format!("\"{}\"", LOSS.replace("5%", "{}"))));
        assert!(candidates.contains(&format!("\"{PLAYER}\"")));
        let claim = format!("path.rtt = \"{RTT}\", path.rate = \"{RATE}\", player.model");
        assert!(candidates.contains(&claim), "{claim}");
        let (rtt, rate) = (parse_duration(RTT).expect("a time"), parse_rate(RATE).expect("a rate"));
        let player = PLAYER.parse().expect("a player");
        assert_eq!(explain(LOSS, rtt, rate, player), RATIONALE);
        for own in [explain("5%", rtt, rate, player), explain(LOSS, rtt, rate, Policy::MOBILE)] {
            assert!(
                own.starts_with("That is your choice; the demo's own is 4mbps, 300ms, "),
                "{own}"
            );
        }
    }

    #[test]
    fn independent_is_an_alias_of_a_loss() {
        assert_eq!(loss("independent"), Ok("5%".to_owned()));
        assert_eq!(loss("calls:rate=5%"), Ok("calls:rate=5%".to_owned()));
        assert!(loss("calls").is_err());
    }
}
