//! The relation of CPUs, cores and sockets.
//!
//! CPUs are numbered as Linux numbers them on most servers: the first hardware threads of all
//! cores, socket by socket, and then the second hardware threads in the same order. So a run with N
//! threads on CPUs 0..N uses every core once before it uses a core's second thread.

use crate::SetupError;
use serde::{Deserialize, Serialize};

/// The maximum number of CPUs of a machine.
pub const CPUS_MAX: usize = 256;

/// Sockets, cores in each, and hardware threads in each core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Sockets, or NUMA nodes: each has memory of its own.
    pub sockets: usize,
    /// Cores in each socket.
    pub cores_per_socket: usize,
    /// Hardware threads in each core: 1 or 2.
    pub threads_per_core: usize,
}

impl Shape {
    /// Creates a shape.
    ///
    /// # Errors
    /// [`SetupError`], if it has no CPU, more than [`CPUS_MAX`], or cores with more than two
    /// threads.
    pub fn new(sockets: usize, cores_per_socket: usize, threads_per_core: usize) -> Result<Self, SetupError> {
        let shape = Self { sockets, cores_per_socket, threads_per_core };
        let cpus = sockets.saturating_mul(cores_per_socket).saturating_mul(threads_per_core);
        match (cpus, threads_per_core) {
            (0, _) => Err(SetupError::NoCpus),
            (_, 3..) => Err(SetupError::ThreadsPerCore { asked: threads_per_core }),
            (cpus, _) if cpus > CPUS_MAX => Err(SetupError::TooManyCpus { asked: cpus, have: CPUS_MAX }),
            _ => Ok(shape),
        }
    }

    /// Returns the number of CPUs, which are hardware threads.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cores() * self.threads_per_core
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.sockets * self.cores_per_socket
    }

    /// Returns the core that a CPU belongs to.
    #[must_use]
    pub fn core_of(&self, cpu: usize) -> usize {
        cpu % self.cores()
    }

    /// Returns the socket that a core belongs to.
    #[must_use]
    pub fn socket_of_core(&self, core: usize) -> usize {
        core / self.cores_per_socket
    }

    /// Returns the other hardware thread of a CPU's core.
    #[must_use]
    pub fn sibling_of(&self, cpu: usize) -> Option<usize> {
        (self.threads_per_core == 2).then(|| (cpu + self.cores()) % self.cpus())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_numbered_cores_first() {
        let shape = Shape::new(2, 22, 2).unwrap();
        assert_eq!(shape.cpus(), 88);
        assert_eq!((shape.core_of(43), shape.core_of(44), shape.sibling_of(0)), (43, 0, Some(44)));
        assert_eq!((shape.sibling_of(44), shape.sibling_of(87)), (Some(0), Some(43)));
        assert_eq!((shape.socket_of_core(21), shape.socket_of_core(22)), (0, 1));
        assert_eq!(Shape::new(1, 4, 1).unwrap().sibling_of(2), None);
    }

    #[test]
    fn impossible_shapes_say_what_is_possible() {
        assert!(Shape::new(0, 4, 1).unwrap_err().to_string().contains("at least one"));
        assert!(Shape::new(2, 100, 2).unwrap_err().to_string().contains("256"));
        assert!(Shape::new(usize::MAX, 2, 2).unwrap_err().to_string().contains("256"));
        assert!(Shape::new(1, 4, 4).unwrap_err().to_string().contains("1 or 2"));
    }
}
