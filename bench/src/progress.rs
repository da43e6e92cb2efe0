//! Progress of a measurement.

/// A receiver of progress.
pub trait Progress: Send + Sync {
    /// Announces the number of steps.
    fn plan(&mut self, steps: usize);
    /// Announces the start of a step.
    fn step(&mut self, what: &str);
    /// Removes steps that are not needed.
    fn pass(&mut self, steps: usize);
}
