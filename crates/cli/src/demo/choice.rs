//! The link and the player that the demo shows unless it is told otherwise, and the measurement
//! that chose them: experiments/demo.toml compares them with all other candidates.

use core::time::Duration;

use links::{Loss, parse_duration, parse_rate};
use qoe::Policy;
use units::Rate;

/// Losses that come together, as on mobile networks and Wi-Fi.
pub(super) const LOSS: &str = "outages:rate=5%,length=20ms";
/// Of a viewer on the other side of the earth.
pub(super) const RTT: &str = "300ms";
/// Nearly three times the stream's: room for copies, but not for any number of them.
pub(super) const RATE: &str = "4mbps";
/// A low-delay player.
pub(super) const PLAYER: &str = "buffer:400ms";
/// Loss as on most testbeds, each packet by itself.
const INDEPENDENT: &str = "5%";

/// Loss as `links` reads it; `independent` is short for 5 % of the packets.
pub(super) fn loss(text: &str) -> Result<String, String> {
    let text = if text == "independent" { INDEPENDENT } else { text };
    text.parse::<Loss>().map(|_| text.to_owned()).map_err(|e| e.to_string())
}

/// Why this link and this player, or that they are the user's own choice.
pub(super) fn explain(loss: &str, rtt: Duration, rate: Rate, player: Policy) -> String {
    let is_link = loss == LOSS && parse_duration(RTT) == Ok(rtt) && parse_rate(RATE) == Ok(rate);
    if !is_link || player.to_string() != PLAYER {
        let own = format!("{RATE}, {RTT}, {LOSS} and {PLAYER}");
        return format!("That is your choice; the demo's own is {own}.");
    }
    RATIONALE.to_owned()
}

/// With half the 95 % interval of each mean, of freezes in 100 s.
const RATIONALE: &str = "\
Why these: losses often come together, paths are long, and low delay means a small buffer. There, in 100 s of virtual
time, retransmission alone froze 8.6 ± 1.5 times for 200 ms or more (2.6 s), the default 3.0 ± 1.4 (0.9 s), AutoRec 4.2,
ART 5.4. With losses as in calls (--loss calls:rate=5%) it was 8.0 and 4.9; if all of a slot has one fate (add
,reading=slots) 6.3 and 4.4; with --player low-latency, which keeps 800 ms, or --rtt 60ms there is next to nothing to
gain. `mendcast lab run demo --runs 20` measured it, with all other candidates.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_link_is_one_of_the_candidates_and_another_one_is_called_the_users() {
        let candidates = include_str!("../../../../experiments/demo.toml");
        let numbers = [RTT.trim_end_matches("ms"), RATE.trim_end_matches("mbps")];
        assert!(candidates.contains(&format!("\"{}\"", LOSS.replace("5%", "{}"))));
        assert!(candidates.contains(&format!("\"{PLAYER}\"")));
        let claim = format!("rtt_ms = {}, rate_mbps = {}, player", numbers[0], numbers[1]);
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
    fn independent_is_short_for_a_loss() {
        assert_eq!(loss("independent"), Ok("5%".to_owned()));
        assert_eq!(loss("calls:rate=5%"), Ok("calls:rate=5%".to_owned()));
        assert!(loss("calls").is_err());
    }
}
