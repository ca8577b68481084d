//! Whether a device seeks, according to the kernel's information about the disk that a file is on.

use std::fs;
use std::path::{Path, PathBuf};

use io::Identity;

/// Returns whether the file, or the block device, is on a rotating disk. Returns false if that is
/// unknown, as for memory, for file systems on several devices, and on machines without `/sys`.
pub(crate) fn is_rotating(identity: Identity) -> bool {
    let (major, minor) = (rustix::fs::major(identity.device), rustix::fs::minor(identity.device));
    says_rotating(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
}

fn says_rotating(device: &Path) -> bool {
    // A partition has no queue of its own. Once links are followed, its disk is the parent
    // directory.
    let queues = ["queue/rotational", "../queue/rotational"];
    let said = queues.into_iter().find_map(|queue| fs::read_to_string(device.join(queue)).ok());
    said.is_some_and(|said| said.trim() == "1")
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn disks_and_partitions_are_asked_as_the_kernel_lays_them_out() {
        let root = tempfile::tempdir().unwrap();
        for (disk, says) in [("sda", "1\n"), ("nvme0n1", "0\n")] {
            let partition = root.path().join("devices").join(disk).join("part1");
            fs::create_dir_all(&partition).unwrap();
            let queue = partition.parent().unwrap().join("queue");
            fs::create_dir(&queue).unwrap();
            fs::write(queue.join("rotational"), says).unwrap();
            for (name, target) in [(disk.to_owned(), partition.parent().unwrap()), (format!("{disk}1"), &*partition)] {
                let link = root.path().join(&name);
                std::os::unix::fs::symlink(target, &link).unwrap();
                assert_eq!(says_rotating(&link), disk == "sda", "{name}");
            }
        }
        assert!(!says_rotating(&root.path().join("tmpfs")));
    }
}
