//! How the slots of an area are distributed over CPUs, and why.

use std::fmt;

/// How slots are distributed over CPUs. `Display` gives `per-cpu` or `sequential`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each CPU allocates from its own cluster of slots.
    #[default]
    PerCpu,
    /// All CPUs share one hand, and so allocate consecutive slots: for disks that seek.
    Sequential,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PerCpu => "per-cpu",
            Self::Sequential => "sequential",
        })
    }
}

/// Why an area has its [`Placement`]. `Display` gives a few words, as in `sda rotates`. Disks have
/// the names that they have in `/sys/block`.
///
/// An area gets [`Placement::Sequential`] for [`Rotates`](Self::Rotates), and
/// [`Placement::PerCpu`] for any other reason, unless the user set the placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementReason {
    /// The user set the placement.
    Requested,
    /// The area's pages are in memory.
    Memory,
    /// The kernel says that this disk rotates, and it isn't a virtual disk.
    Rotates {
        /// The disk's name.
        disk: String,
    },
    /// The kernel says that this disk doesn't rotate.
    DoesntRotate {
        /// The disk's name.
        disk: String,
    },
    /// This disk belongs to a virtual machine. The kernel says that the disk rotates, but it says
    /// that of many virtual disks, whatever disk the host has.
    Virtual {
        /// The disk's name.
        disk: String,
    },
    /// The kernel names no disk for the area's file. For example, the file is on tmpfs, Btrfs,
    /// overlayfs or a network file system, or `/sys` isn't mounted.
    #[default]
    UnknownDisk,
}

impl PlacementReason {
    /// Returns the placement and the reason for it. The placement is `chosen`, or else the one that
    /// suits the reason that `find` returns.
    pub(crate) fn decide(chosen: Option<Placement>, find: impl FnOnce() -> Self) -> (Placement, Self) {
        let reason = if chosen.is_some() { Self::Requested } else { find() };
        let suits = if let Self::Rotates { .. } = reason { Placement::Sequential } else { Placement::PerCpu };
        (chosen.unwrap_or(suits), reason)
    }
}

impl fmt::Display for PlacementReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("as requested"),
            Self::Memory => f.write_str("in memory"),
            Self::Rotates { disk } => write!(f, "{disk} rotates"),
            Self::DoesntRotate { disk } => write!(f, "{disk} doesn't rotate"),
            Self::Virtual { disk } => write!(f, "{disk} is a virtual disk"),
            Self::UnknownDisk => f.write_str("on no disk that the kernel names"),
        }
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_disk_that_rotates_is_filled_in_order_unless_the_user_chose() {
        let disk = || "sda".to_owned();
        let rotates = PlacementReason::Rotates { disk: disk() };
        let others = [
            PlacementReason::Memory,
            PlacementReason::DoesntRotate { disk: disk() },
            PlacementReason::Virtual { disk: disk() },
            PlacementReason::UnknownDisk,
        ];
        let decided = |reason: &PlacementReason| PlacementReason::decide(None, || reason.clone());
        assert_eq!(decided(&rotates), (Placement::Sequential, rotates.clone()));
        for reason in &others {
            assert_eq!(decided(reason), (Placement::PerCpu, reason.clone()));
        }
        for (chosen, reason) in [(Placement::PerCpu, &rotates), (Placement::Sequential, &others[0])] {
            let decided = PlacementReason::decide(Some(chosen), || reason.clone());
            assert_eq!(decided, (chosen, PlacementReason::Requested));
        }
    }

    #[test]
    fn reasons_name_the_disk() {
        let disk = || "sda".to_owned();
        assert_eq!(PlacementReason::Rotates { disk: disk() }.to_string(), "sda rotates");
        assert_eq!(PlacementReason::DoesntRotate { disk: disk() }.to_string(), "sda doesn't rotate");
        assert_eq!(PlacementReason::Virtual { disk: disk() }.to_string(), "sda is a virtual disk");
        assert_eq!(format!("{:>12}", Placement::Sequential), "  sequential");
    }
}
