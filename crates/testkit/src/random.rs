//! Random choices that a seed determines on every machine.

/// splitmix64: small, and random enough to choose packets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a random number.
    #[allow(
        clippy::should_implement_trait,
        reason = "it never ends, so it is not an iterator"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns 8 random bits.
    pub fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    /// Returns a number from 0 to `limit` - 1, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Returns a number from `from` to `to`, both included.
    pub fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }

    /// Returns true with probability 1/n.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the elements; there must be at least one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns this number of random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.byte()).collect()
    }

    /// Returns one of the choices with a probability in proportion to its weight. There must be at
    /// least one.
    pub fn weighted<T: Clone>(&mut self, choices: &[(usize, T)]) -> T {
        let mut at = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            if at < *weight {
                return choice.clone();
            }
            at -= weight;
        }
        choices[0].1.clone()
    }
}
