//! A mistake on the command line that is found only after the whole line was parsed.

use std::fmt;

/// The message must name the valid choices. The program ends with exit code 2 rather than 1.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl Usage {
    /// The message as an error.
    pub(crate) fn error(message: impl Into<String>) -> anyhow::Error {
        Self(message.into()).into()
    }
}
