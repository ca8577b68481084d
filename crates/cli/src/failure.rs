//! Why a command ended early, and its exit status.

use std::fmt;

/// The command succeeded.
pub(crate) const EXIT_SUCCESS: u8 = 0;
/// The command failed: a file that can't be read, a trace line that doesn't parse, a failed check.
pub(crate) const EXIT_FAILURE: u8 = 1;
/// The command line is invalid; clap uses the same number.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Added to a signal's number, as shells do: 130 after Ctrl-C.
pub(crate) const EXIT_SIGNAL: u8 = 128;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments contradict each other, or don't fit the machine.
    Usage(String),
    /// The work failed.
    Failed(anyhow::Error),
    /// The user, or the system, asked to stop; the signal's number.
    Interrupted(i32),
    /// The reader of our output has closed it: `pagefold … | head`.
    OutputClosed,
}

impl Failure {
    /// Creates a usage failure with this message.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Returns the exit status of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Failed(_) => EXIT_FAILURE,
            Self::Interrupted(signal) => EXIT_SIGNAL.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            Self::OutputClosed => EXIT_SUCCESS,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Failed(error) => f.write_str(&chain(error)),
            Self::Interrupted(_) => f.write_str("interrupted"),
            Self::OutputClosed => f.write_str("nobody reads the output"),
        }
    }
}

/// Returns an error and its causes as text. Leaves out a cause with which the text already ends,
/// because Pagefold's errors contain their causes.
fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text {
        text if text.is_empty() => cause,
        text if text.ends_with(&cause) => text,
        text => format!("{text}: {cause}"),
    })
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Converts an error of the library. Impossible sizes are usage failures, all others are failures
/// of the machine.
pub(crate) fn refused(error: pagefold::Error) -> Failure {
    use pagefold::Error;
    match error {
        Error::BadSize(_) | Error::BadPageSize { .. } | Error::TooSmall { .. } | Error::BudgetTooLarge { .. } => {
            Failure::usage(error.to_string())
        }
        Error::FileInUse { path } => Failure::Failed(anyhow::anyhow!(
            "another program writes to {}, and has it locked: wait until that program has closed it, or replay \
             without writes",
            path.display()
        )),
        error => Failure::Failed(error.into()),
    }
}
