//! Why there are no figures.

/// What ends a run. Whatever it is, the network is taken down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Ctrl-C, or a request to end.
    #[error("interrupted")]
    Interrupted,
    /// The laboratory could not do its part.
    #[error(transparent)]
    Lab(#[from] crate::Error),
    /// What was measured is not what was meant: another packet came out, or another path sent it.
    #[error("{0}")]
    Wrong(String),
    /// `sidestep` refused, or said what this program does not understand.
    #[error("{0}")]
    Product(String),
    /// The command line.
    #[error("{0}")]
    Usage(String),
}
