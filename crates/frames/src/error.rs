//! What can go wrong below the policy.

/// The system refused address space or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't reserve {bytes} bytes of address space: {}", std::io::Error::from_raw_os_error(*errno))]
pub struct ReserveError {
    /// How much was asked for.
    pub bytes: u64,
    /// The system's error number.
    pub errno: i32,
}
