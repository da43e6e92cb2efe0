//! Who waits for a measurement is told how far it is.

/// Somebody who waits.
pub trait Progress: Send + Sync {
    /// So many steps will be made.
    fn plan(&mut self, steps: usize);
    /// One begins.
    fn step(&mut self, what: &str);
    /// So many need not be made.
    fn pass(&mut self, steps: usize);
}
