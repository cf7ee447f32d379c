//! Reads a schedule: arbitrary bytes, taken one after the other. Where they end, zeros follow, so
//! that every prefix of a schedule is a schedule.

/// A schedule that is being read.
pub struct Script<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Script<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Whether all bytes are read.
    pub fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    /// From 0 to `n` - 1.
    pub fn below(&mut self, n: u8) -> u8 {
        self.byte() % n
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// True with one byte in `n`.
    pub fn one_in(&mut self, n: u8) -> bool {
        self.below(n) == n - 1
    }

    /// One of these by their weights.
    pub fn weighted<T: Copy>(&mut self, choices: &[(T, u8)]) -> T {
        let total: u32 = choices.iter().map(|(_, weight)| u32::from(*weight)).sum();
        let mut left = u32::from(self.byte()) % total;
        for (choice, weight) in choices {
            match left.checked_sub(u32::from(*weight)) {
                Some(rest) => left = rest,
                None => return *choice,
            }
        }
        unreachable!("less than all weights together")
    }

    /// Small as a rule, sometimes near a limit, sometimes anything up to 2^62 − 1.
    pub fn number(&mut self) -> u64 {
        const LARGEST: u64 = (1 << 62) - 1;
        match self.byte() {
            small @ 0..=159 => u64::from(small),
            middle @ 160..=207 => u64::from(middle - 160) << 8 | u64::from(self.byte()),
            shift @ 208..=239 => {
                let power = 1u64 << (2 * (shift - 208));
                (power + u64::from(self.byte())).saturating_sub(128).min(LARGEST)
            }
            _ => LARGEST - u64::from(self.byte()),
        }
    }
}
