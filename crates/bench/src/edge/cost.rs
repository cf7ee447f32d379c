//! What the viewers of one turn cost their server, and everything that may cast doubt on it.

use std::collections::HashMap;
use std::time::Duration;

use super::servers::{Contestant, Thread, Transport};
use super::watch::Seen;

/// What the viewers cost.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    /// Viewers that came.
    pub viewers: usize,
    /// Each thread's share of a CPU, the busiest first.
    pub threads: Vec<(String, f64)>,
    /// Bytes of resident memory that a viewer added.
    pub resident: f64,
    pub receive_errors: u64,
    pub seen: Seen,
}

/// The share of a CPU that each thread took from one look at a process to the next, `wall` later; the
/// busiest first.
pub(super) fn shares(before: &[Thread], after: &[Thread], wall: Duration) -> Vec<(String, f64)> {
    let before: HashMap<u32, Duration> = before.iter().map(|t| (t.id, t.time)).collect();
    let mut shares = Vec::new();
    for thread in after {
        let start = before.get(&thread.id).copied().unwrap_or_default();
        let time = thread.time.saturating_sub(start);
        shares.push((thread.name.clone(), time.as_secs_f64() / wall.as_secs_f64()));
    }
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

impl Cost {
    /// Share of a CPU that the server took.
    fn busy(&self) -> f64 {
        self.threads.iter().map(|(_, share)| share).sum()
    }

    /// CPU seconds for one viewer for an hour.
    pub(super) fn per_viewer_hour(&self) -> f64 {
        self.busy() * 3_600.0 / self.viewers as f64
    }

    pub(super) fn tell(&self, contestant: Contestant, wanted: usize, time: Duration) {
        let (seen, busy) = (&self.seen, self.busy());
        let mbps = seen.bytes.map(|bytes| bytes as f64 * 8e-6 / time.as_secs_f64());
        println!(
            "      {}: {:.1} % of a CPU ({:.2} per 100 viewers), viewers' process {:.0} %; resident \
             {:.0} KB per viewer; {:.2} / {:.2} / {:.2} Mbps",
            contestant.name(),
            busy * 100.0,
            busy * 1e4 / self.viewers as f64,
            seen.busy * 100.0,
            self.resident / 1e3,
            mbps[0],
            mbps[1],
            mbps[2]
        );
        if contestant.transport() != Transport::Hls {
            println!(
                "        tag delay {:.1} ms in the middle, {:.1} ms at 99 %, {:.1} ms at most, of {} \
                 tags",
                seen.delay[0] * 1e3,
                seen.delay[1] * 1e3,
                seen.delay[2] * 1e3,
                seen.tags
            );
        }
        if contestant.transport() == Transport::H3 {
            println!(
                "        {:.0} B per datagram, {} receive errors",
                seen.datagram, self.receive_errors
            );
        }
        if seen.stayed < wanted || seen.late > 0 {
            let failure = seen.failure.as_deref().unwrap_or("nobody failed");
            let lost = wanted - seen.stayed;
            println!("        {lost} viewers lost, {} late: {failure}", seen.late);
        }
        let busiest = self.threads.first().map_or(0.0, |(_, share)| *share);
        if busiest > 0.95 || seen.busy > 1.9 {
            println!("        a side is at its limit: these figures say little");
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if busy + seen.busy > 0.9 * cpus as f64 {
            println!(
                "        server and viewers fill the machine: more viewers cannot be tried here"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_share_is_what_it_took_meanwhile() {
        let thread = |id, name: &str, millis| Thread {
            id,
            name: name.to_owned(),
            time: Duration::from_millis(millis),
        };
        let before = [thread(1, "main", 900), thread(2, "tcp-0", 100), thread(3, "gone", 700)];
        let after = [thread(1, "main", 1_000), thread(2, "tcp-0", 1_600), thread(4, "new", 400)];
        let shares = shares(&before, &after, Duration::from_secs(2));
        let expected = [("tcp-0", 0.75), ("new", 0.2), ("main", 0.05)];
        assert_eq!(shares, expected.map(|(name, share)| (name.to_owned(), share)));
    }
}
