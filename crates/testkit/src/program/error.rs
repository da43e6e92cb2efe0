//! Why a program of the laboratory ended before its end.

/// Errors that end a run. Whatever it is, the network is taken down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Ctrl-C, or a request to end.
    #[error("interrupted")]
    Interrupted,
    /// The laboratory could not do its part.
    #[error(transparent)]
    Lab(crate::Error),
    /// Something that was shown or measured did not hold: a ping without an answer, bytes that changed on the way, another
    /// path than the one meant.
    #[error("{0}")]
    Wrong(String),
    /// `sidestep` refused, or said what this program does not understand.
    #[error("{0}")]
    Product(String),
    /// The command line.
    #[error("{0}")]
    Usage(String),
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        match error {
            crate::Error::Interrupted => Self::Interrupted,
            other => Self::Lab(other),
        }
    }
}
