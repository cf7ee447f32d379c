//! Cost of the viewers of one turn, and reasons to doubt it.

use std::collections::HashMap;
use std::time::Duration;

use super::media::RATE;
use super::servers::Thread;
use super::tally::ViewMeasurement;

/// Cost of the viewers.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    /// Viewers present to the end. The whole cost is divided among them.
    pub viewers: usize,
    /// Each thread's share of a CPU, busiest first.
    pub threads: Vec<(String, f64)>,
    /// Duration of the measurement.
    pub wall: Duration,
    /// Busy CPUs of the machine, including unrelated processes.
    pub machine: f64,
    /// Resident memory per viewer, in bytes.
    pub resident: f64,
    pub receive_errors: u64,
    pub seen: ViewMeasurement,
}

/// Returns the share of a CPU used by each thread between two samples taken `wall` apart, busiest
/// first.
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
    /// Returns the server's share of a CPU.
    pub(super) fn busy(&self) -> f64 {
        self.threads.iter().map(|(_, share)| share).sum()
    }

    /// Returns the CPU seconds per viewer and hour.
    pub(super) fn per_viewer_hour(&self) -> f64 {
        self.busy() * 3_600.0 / self.viewers as f64
    }

    /// Returns the CPU seconds per gigabit of media that viewers received.
    pub(super) fn per_gbit(&self) -> f64 {
        self.busy() * self.wall.as_secs_f64() / (self.seen.total as f64 * 8e-9)
    }

    /// Prints the cost of the contestant `name`.
    pub(super) fn tell(&self, name: &str, wanted: usize, time: Duration) {
        let (seen, busy) = (&self.seen, self.busy());
        let mbps = seen.bytes.map(|bytes| bytes as f64 * 8e-6 / time.as_secs_f64());
        println!(
            "      {name}: {:.1} % of a CPU ({:.2} per 100 viewers), viewers' process {:.0} %; resident \
             {:.0} KB per viewer; {:.2} / {:.2} / {:.2} Mbps",
            busy * 100.0,
            busy * 1e4 / self.viewers as f64,
            seen.busy * 100.0,
            self.resident / 1e3,
            mbps[0],
            mbps[1],
            mbps[2]
        );
        if seen.pictures.tags > 0 {
            let (pictures, sound) = (&seen.pictures, &seen.sound);
            println!("        delay of {} pictures: {}", pictures.tags, pictures.text());
            println!("        delay of {} tags of sound: {}", sound.tags, sound.text());
        }
        if seen.datagram > 0.0 {
            println!(
                "        {:.0} B per datagram, {} receive errors",
                seen.datagram, self.receive_errors
            );
        }
        if self.viewers < wanted || seen.late > 0 {
            let failure = seen.failure.as_deref().unwrap_or("nobody failed");
            println!("        {} viewers had tags late: {failure}", seen.late);
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        for doubt in self.doubts(wanted, time, cpus) {
            println!("        {doubt}: these figures are unreliable");
        }
    }

    /// Returns reasons why the result is not the cost of `wanted` viewers on an idle machine with
    /// `cpus` processors.
    pub(super) fn doubts(&self, wanted: usize, time: Duration, cpus: usize) -> Vec<String> {
        let mut doubts = Vec::new();
        let (busy, viewers) = (self.busy(), self.seen.busy);
        if self.threads.first().is_some_and(|(_, share)| *share > 0.95) {
            doubts.push("a thread of the server is saturated".to_owned());
        }
        if viewers > 1.9 {
            doubts.push("the viewers' process is saturated".to_owned());
        }
        if self.machine > 0.9 * cpus as f64 {
            let others = (self.machine - busy - viewers).max(0.0);
            doubts.push(format!(
                "the machine is saturated, {busy:.2} of {cpus} CPUs with the server, {viewers:.2} \
                 with the viewers, {others:.2} with others"
            ));
        }
        let lost = wanted - self.viewers.min(wanted);
        if lost > 0 {
            doubts.push(format!("{lost} of {wanted} viewers failed"));
        }
        let got = self.seen.bytes[1] as f64 * 8.0 / (RATE * time.as_secs_f64());
        if got < 0.9 {
            doubts.push(format!("viewers got {:.0} % of the stream", got * 100.0));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_share_covers_the_interval() {
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

    #[test]
    fn full_threads_a_full_machine_viewers_and_media_that_are_missing_cast_doubt() {
        let second = Duration::from_secs(1);
        let cost = |share: f64, viewers: f64, machine: f64, bytes: u64| Cost {
            viewers: 100,
            threads: vec![("tcp-0".to_owned(), share)],
            wall: second,
            machine,
            resident: 0.0,
            receive_errors: 0,
            seen: ViewMeasurement {
                busy: viewers,
                bytes: [0, bytes, bytes],
                ..ViewMeasurement::default()
            },
        };
        let all = (RATE / 8.0) as u64;
        assert_eq!(cost(0.5, 0.5, 1.5, all).doubts(100, second, 2), Vec::<String>::new());
        let lost = cost(0.5, 0.5, 1.5, all).doubts(103, second, 2);
        assert_eq!(lost, ["3 of 103 viewers failed"]);
        let cases = [
            (cost(0.96, 0.5, 1.5, all), "a thread of the server is saturated"),
            (cost(0.5, 1.95, 3.0, all), "the viewers' process is saturated"),
            (
                cost(0.5, 0.5, 1.9, all),
                "of 2 CPUs with the server, 0.50 with the viewers, 0.90 with",
            ),
            (cost(0.5, 0.5, 1.5, all / 2), "viewers got 50 % of the stream"),
        ];
        for (cost, words) in cases {
            let cpus = if cost.machine > 2.0 { 4 } else { 2 };
            let doubts = cost.doubts(100, second, cpus);
            assert!(doubts.len() == 1 && doubts[0].contains(words), "{words}: {doubts:?}");
        }
    }
}
