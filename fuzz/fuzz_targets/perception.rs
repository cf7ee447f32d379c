//! Bodies for frame perception. The result must be within the limit and must not depend on how the
//! bodies are split. The first five bytes choose the number of frames, the limit, the piece size, the
//! boundary between two bodies, and whether RTMP starts after its handshake.

#![no_main]

use core::num::NonZeroU32;

use libfuzzer_sys::fuzz_target;
use startup::perception::{Perception, Progress};

fn perceive(head: [u8; 5], bodies: [&[u8]; 2], piece: usize) -> Progress {
    let frames = NonZeroU32::MIN.saturating_add(u32::from(head[0] % 4));
    let limit = 1 << (head[1] % 24);
    let mut perception = match head[4] % 4 {
        0 => Perception::of_chunks(frames, limit),
        _ => Perception::new(frames, limit),
    };
    for body in bodies {
        for piece in body.chunks(piece) {
            perception.read(piece);
        }
        perception.end_body();
    }
    let progress = perception.progress();
    assert!(progress.known().is_none_or(|size| size <= limit), "{progress:?} above {limit}");
    progress
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&head, rest)) = bytes.split_first_chunk::<5>() else { return };
    let split = rest.len() * usize::from(head[3]) / 255;
    let (first, second) = rest.split_at(split);
    let whole = perceive(head, [first, second], usize::MAX);
    for piece in [1, 1 + usize::from(head[2])] {
        assert_eq!(perceive(head, [first, second], piece), whole, "pieces of {piece}");
    }
});
