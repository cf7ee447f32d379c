//! Speed of the testbed, compared with a bare `quinn-proto` pair in a plain loop.

use lab::Cipher;
use lab::speed::{RunCost, measure as simulate};

use crate::Failure;
use crate::identity::Identity;
use crate::memory::{Contestant, MemoryPath, download};
use crate::report::{BenchReport, PeerTarget, Samples};

const UNIT: &str = "packets per CPU-second";

/// Measures `rounds` downloads of `bytes` each.
pub(crate) fn measure(report: &mut BenchReport, rounds: usize, bytes: u64) -> Result<(), Failure> {
    let (mut real, mut null) = (Vec::new(), Vec::new());
    let (mut real_share, mut null_share) = (Samples::default(), Samples::default());
    let identity = Identity::new();
    for _ in 0..rounds {
        let plain = download(&Contestant::QuinnProto, &identity, bytes, MemoryPath::default())?;
        let pair = plain.packets as f64 / plain.all.as_secs_f64();
        for (cipher, speeds, shares) in
            [(Cipher::Real, &mut real, &mut real_share), (Cipher::Null, &mut null, &mut null_share)]
        {
            let measured = simulate(cipher, bytes, 1)?;
            speeds.push((measured.packets_per_second(), pair));
            shares.push(RunCost::client_share(&measured));
        }
    }
    let peer = "quinn-proto to quinn-proto, no links";
    // Links and the event queue add cost; our end is cheaper than the pair's.
    let target = PeerTarget::RatioAtLeast(1.0);
    report.add_pairs(("sim_packets_per_cpu_second", UNIT), peer, &real, target);
    // The pair seals and opens its packets, the testbed does not.
    let target = PeerTarget::RatioAtLeast(1.1);
    report.add_pairs(("sim_packets_per_cpu_second_null_cipher", UNIT), peer, &null, target);
    println!(
        "      the client's code takes {:.0} % of the time with the real cipher, {:.0} % with none",
        real_share.median() * 100.0,
        null_share.median() * 100.0
    );
    Ok(())
}
