use recovery::Random;

use super::*;

const TAU: u32 = 3;

/// A stream of frames with up to `most` symbols per part and parities.
struct Stream {
    draws: Random,
    most: u32,
    /// Loss rate now; changes in bursts.
    loss: f64,
}

impl Stream {
    fn new(seed: u64, most: u32) -> Self {
        Self { draws: Random::new(seed), most, loss: 0.0 }
    }

    fn frame(&mut self) -> CodedFrame {
        [0, 1].map(|_| {
            let count = self.draws.below(self.most + 1);
            (0..count).map(|_| vec![self.draws.below(u32::MAX), self.draws.below(9)]).collect()
        })
    }

    fn is_lost(&mut self) -> bool {
        self.draws.fraction() < self.loss
    }

    /// Sends a frame with its parities through the path.
    fn pass(&mut self, frame: &CodedFrame, parities: Vec<Symbol>) -> ReceivedFrame {
        if self.draws.fraction() < 0.5 {
            self.loss = [0.0, 0.0, 0.05, 0.05, 0.1, 0.2, 0.4, 1.0][self.draws.below(8) as usize];
        }
        let mut data: [Vec<Option<Symbol>>; 2] = Default::default();
        for part in 0..2 {
            for symbol in &frame[part] {
                let symbol = (!self.is_lost()).then(|| symbol.clone());
                data[part].push(symbol);
            }
        }
        let parity = (0..).zip(parities).filter(|_| !self.is_lost()).collect();
        ReceivedFrame { data, parity }
    }
}

fn losses(frames: &[ReceivedFrame]) -> Vec<FrameLoss> {
    let missing = |part: &Vec<Option<Symbol>>| part.iter().filter(|s| s.is_none()).count() as u32;
    let loss = |frame: &ReceivedFrame| FrameLoss {
        lost: [missing(&frame.data[0]), missing(&frame.data[1])],
        parity: frame.parity.len() as u32,
    };
    frames.iter().map(loss).collect()
}

/// Runs a stream, and counts windows with losses, windows with other restored parts than counts
/// say, and windows that are restored wholly and not at all.
fn differences(seed: u64, frames: usize, coefficient: fn(bytes::Place) -> u32) -> [usize; 4] {
    let mut stream = Stream::new(seed, 3);
    let mut encoder = Encoder::new(TAU, 8).expect("in range");
    let mut decoder = Decoder::new(TAU, 8).expect("in range");
    (encoder.coefficient, decoder.coefficient) = (coefficient, coefficient);
    let mut sent: Vec<CodedFrame> = vec![Default::default(); window(TAU)];
    let mut counts = [0; 4];
    for _ in 0..frames {
        let frame = stream.frame();
        let parity = stream.draws.below(4);
        let parities = encoder.push(frame.clone(), parity);
        let received = stream.pass(&frame, parities);
        sent.push(frame);
        let mut before: Vec<_> = decoder.frames().skip(1).cloned().collect();
        before.push(received.clone());
        decoder.push(received);
        let (losses, promised) = (losses(&before), recoverable(TAU, &losses(&before)));
        let open: u32 = losses.iter().flat_map(|loss| loss.lost).sum();
        if open == 0 {
            continue;
        }
        counts[0] += 1;
        let after: Vec<_> = decoder.frames().collect();
        let originals = &sent[sent.len() - after.len()..];
        let mut restored = 0;
        for (at, frame) in after.iter().enumerate() {
            for part in 0..2 {
                let missing = frame.data[part].iter().filter(|s| s.is_none()).count() as u32;
                let expected = if promised[at][part] { 0 } else { losses[at].lost[part] };
                counts[1] += usize::from(missing != expected);
                restored += losses[at].lost[part] - missing;
                for (symbol, original) in frame.data[part].iter().zip(&originals[at][part]) {
                    assert!(symbol.as_ref().is_none_or(|s| s == original), "seed {seed}");
                }
            }
        }
        counts[2] += usize::from(restored == open);
        counts[3] += usize::from(restored == 0);
    }
    counts
}

#[test]
fn the_decoder_restores_exactly_the_promised_parts_in_10_000_random_patterns() {
    let mut all = [0; 4];
    for seed in 1..=6 {
        let counts = differences(seed, 2_500, bytes::coefficient);
        assert_eq!(counts[1], 0, "seed {seed}: {counts:?}");
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
    }
    // Wholly, partly and not restored.
    let partly = all[0] - all[2] - all[3];
    assert!(all[0] >= 10_000 && all[2].min(partly).min(all[3]) > 500, "{all:?}");
}

#[test]
fn a_code_with_related_coefficients_is_found_out() {
    assert!(differences(1, 500, |_| 1)[1] > 0, "sums without coefficients");
    assert!(differences(1, 500, |place| place.row + 1)[1] > 0, "equal within a row");
}

/// Frames with `size` symbols per part and parities each; frames `lost` do not arrive at all.
fn burst(size: u32, parity: u32, lost: core::ops::Range<usize>) -> Vec<FrameLoss> {
    let frame = |at| match lost.contains(&at) {
        true => FrameLoss { lost: [size, size], parity: 0 },
        false => FrameLoss { lost: [0, 0], parity },
    };
    (0..window(TAU)).map(frame).collect()
}

#[test]
fn a_burst_is_repaired_within_tau_frames_if_parities_suffice() {
    // The burst of one frame ends τ frames before the newest one. V needs two symbols of the two
    // parities before frame i + τ, and U two of frame i + τ.
    let one = |parity| recoverable(TAU, &burst(2, parity, 6..7))[6];
    assert_eq!((one(2), one(1)), ([true, true], [false, true]));
    let two = recoverable(TAU, &burst(2, 4, 5..7));
    assert_eq!((two[5], two[6]), ([true, true], [true, true]));
    let later = recoverable(TAU, &burst(2, 2, 7..8));
    assert_eq!(later[7], [false, true], "U waits for the parity τ frames later");
}

#[test]
fn impossible_codes_are_rejected_with_key_and_value() {
    let text = |bad: Result<Encoder, BadValue>| bad.expect_err("rejected").to_string();
    assert_eq!(text(Encoder::new(0, 8)), "tau = 0: expected 1 to 16 frames");
    assert!(text(Encoder::new(3, 6)).starts_with("symbol_bytes = 6: expected"));
}
