//! Errors of this crate.

/// The system refused address space or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't reserve {bytes} bytes of address space: {}", std::io::Error::from_raw_os_error(*errno))]
pub struct ReserveError {
    /// The number of bytes that were requested.
    pub bytes: u64,
    /// The system's error number.
    pub errno: i32,
}
