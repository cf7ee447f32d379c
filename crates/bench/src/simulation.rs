//! The testbed's speed beside that of a bare `quinn-proto` pair in a plain loop.

use lab::Cipher;
use lab::speed::{Measured, measure as simulate};

use crate::identity::Identity;
use crate::memory::{Contestant, Path, download};
use crate::report::{Report, Samples, Target};

const UNIT: &str = "packets per CPU-second";

/// `rounds` downloads of `bytes` each.
pub(crate) fn measure(report: &mut Report, rounds: usize, bytes: u64) -> Result<(), String> {
    let (mut real, mut null) = (Samples::default(), Samples::default());
    let (mut real_share, mut null_share) = (Samples::default(), Samples::default());
    let mut pair = Samples::default();
    let identity = Identity::new();
    for _ in 0..rounds {
        for (cipher, speeds, shares) in
            [(Cipher::Real, &mut real, &mut real_share), (Cipher::Null, &mut null, &mut null_share)]
        {
            let measured = simulate(cipher, bytes, 1)?;
            speeds.push(measured.packets_per_second());
            shares.push(Measured::client_share(&measured));
        }
        let plain = download(&Contestant::QuinnProto, &identity, bytes, Path::default())?;
        pair.push(plain.packets as f64 / plain.all.as_secs_f64());
    }
    let peer = "quinn-proto to quinn-proto, no links";
    report.add(("sim_packets_per_cpu_second", UNIT), &real, (peer, &pair), Target::AtLeast(0.6e6));
    report.add(
        ("sim_packets_per_cpu_second_null_cipher", UNIT),
        &null,
        (peer, &pair),
        Target::AtLeast(1.0e6),
    );
    println!(
        "      the client's code takes {:.0} % of the time with the real cipher, {:.0} % with none",
        real_share.median() * 100.0,
        null_share.median() * 100.0
    );
    Ok(())
}
