//! Why the demo ended before its end.

/// What stops the demo. Whatever it is, the network is taken down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Ctrl-C, or a request to end.
    #[error("interrupted")]
    Interrupted,
    /// The laboratory could not do its part.
    #[error(transparent)]
    Lab(#[from] crate::Error),
    /// Something that was shown did not hold: a ping without an answer, bytes that changed on the way.
    #[error("{0}")]
    Wrong(String),
    /// `sidestep` refused, or said what this demo does not understand.
    #[error("{0}")]
    Product(String),
    /// The command line.
    #[error("{0}")]
    Usage(String),
}
