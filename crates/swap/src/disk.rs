//! Finds out from `/sys` whether a file is on a disk that seeks.
//!
//! Slots on a disk that seeks are allocated in order; on any other disk each CPU has a cluster of
//! its own (`slots`). Linux makes the same distinction for its swap, by one attribute,
//! `queue/rotational` (`mm/swapfile.c`: `SWP_SOLIDSTATE`, `global_cluster`). That attribute alone
//! isn't enough, because for most virtual disks its value doesn't depend on the host's disk:
//!
//! | driver | `queue/rotational` is 1 | where Linux decides it |
//! |---|---|---|
//! | `virtio_blk` | always | `virtblk_probe`. Commit bd4a633b6f7c (6.11) keeps it so for the sake of existing behavior, although rotating disks are "probably not their main use today" |
//! | `sd`: SCSI, SATA, USB | unless the disk states that it doesn't rotate (VPD page B1h, a rate of 1) | `sd_revalidate_disk`: "any device which doesn't support it should be treated as rotational" |
//! | `xen-blkfront` | never | it sets `QUEUE_FLAG_VIRT`, which is `QUEUE_FLAG_NONROT`; since 6.11 the default |
//! | `nbd` | if the server sets `NBD_FLAG_ROTATIONAL`; never in older kernels | `__nbd_set_size` |
//! | `loop` | if the disk of the backing file's file system says so | `loop_update_rotational`, later `loop_update_limits` |
//! | device mapper, md | if one of the disks below says so | `blk_stack_limits`, `BLK_FEAT_INHERIT_MASK` |
//!
//! The driver `sd` also serves the disks of `virtio_scsi`, `hv_storvsc` (Hyper-V, Azure) and
//! `vmw_pvscsi` (VMware), and the disks of the SATA, IDE and USB controllers that hypervisors
//! emulate. The kernel takes these disks for rotating ones unless the hypervisor states otherwise.
//! QEMU states a rate only if its user set the property `rotation_rate`; VMware states that a disk
//! doesn't rotate if it knows that the datastore is flash.
//!
//! # The rule
//! A disk seeks if its attribute is 1, it isn't virtual, and nothing below it says otherwise:
//! - A disk is virtual if the driver of one of its parent devices is in [`VIRTUAL_DRIVERS`], or if
//!   its vendor or model is in [`VIRTUAL_MODELS`], which lists emulated disks. The list of drivers
//!   contains Xen's, although the table says "never", because a udev rule may have set the
//!   attribute. It doesn't contain `nbd`, whose attribute is the server's own answer.
//! - A stack of disks (device mapper, md, bcache) seeks if a disk below it does. A loop device
//!   seeks if the disk below its backing file does. If a disk below can't be found, and no other
//!   one seeks, the attribute of the stack decides.
//! - A file counts as not seeking if its device number isn't a block device's. Files on tmpfs,
//!   Btrfs, overlayfs and network file systems have such numbers.
//!
//! # If the rule is wrong
//! The area's statistics say why its placement was chosen, and the user can
//! [set](crate::AreaOptions::placement) it. The rule is wrong in two known cases, and in both of
//! them the disk counts as one that doesn't seek:
//! - The host keeps a virtual disk on a rotating disk, or passes a rotating disk through. Then
//!   pages are in order only within the 512 slots of a cluster. The host's cache and scheduler may
//!   put writes in order again.
//! - The file is on Btrfs or overlayfs, on a rotating disk.
//!
//! # Why nothing is measured
//! A measurement would have to read at random places. A new file has no blocks to read, and reads
//! of a device may be answered by the host's cache. On a disk that seeks, a read takes around 10
//! ms, so a few dozen reads would delay the start of the program. A read from a virtual disk also
//! takes that long while other guests are busy. So the placement could differ from one start to the
//! next.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use io::Identity;

use crate::placement::PlacementReason;

/// The beginnings of the names of drivers whose disks are virtual. The driver of Xen's disks is
/// called `vbd`.
const VIRTUAL_DRIVERS: [&str; 4] = ["virtio", "vbd", "hv_storvsc", "vmw_pvscsi"];

/// The beginnings of the vendors or models of disks that a hypervisor emulates behind a controller
/// of an ordinary kind: `QEMU HARDDISK`, `VBOX HARDDISK`, `VMware Virtual S`, `BHYVE SATA DISK`.
const VIRTUAL_MODELS: [&str; 4] = ["QEMU", "VBOX", "VMware", "BHYVE"];

/// The maximum number of disks that are looked at for one area. Real stacks are a few disks deep
/// and rarely dozens wide. Further disks count as not found.
const DISKS_MAX: u32 = 100;

/// The kernel gives at most this many bytes for an attribute: one page.
const ATTRIBUTE_BYTES_MAX: u64 = 4096;

/// Returns whether the disk of a file, or of a block device, seeks, and which disk that is.
pub(crate) fn look_up(identity: Identity) -> PlacementReason {
    Search { sys: Path::new("/sys"), disks_left: DISKS_MAX }.by_number(identity.device)
}

/// A search for the disks below a block device.
struct Search<'a> {
    /// Where sysfs is mounted, without links in the path.
    sys: &'a Path,
    disks_left: u32,
}

impl Search<'_> {
    fn by_number(&mut self, device: u64) -> PlacementReason {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        self.by_directory(&self.sys.join(format!("dev/block/{major}:{minor}")))
    }

    fn by_directory(&mut self, device: &Path) -> PlacementReason {
        let Some(left) = self.disks_left.checked_sub(1) else { return PlacementReason::UnknownDisk };
        self.disks_left = left;
        let Some(disk) = Disk::of(device) else { return PlacementReason::UnknownDisk };
        match disk.says_rotating() {
            None => PlacementReason::UnknownDisk,
            Some(false) => PlacementReason::DoesntRotate { disk: disk.name() },
            Some(true) if disk.is_virtual(self.sys) => PlacementReason::Virtual { disk: disk.name() },
            Some(true) => self.below(&disk).unwrap_or_else(|| PlacementReason::Rotates { disk: disk.name() }),
        }
    }

    /// Returns what the disks below a disk say. Returns `None` in two cases: there are no such
    /// disks; or one of them isn't known, and none of the others rotates.
    fn below(&mut self, disk: &Disk) -> Option<PlacementReason> {
        let mut reasons = match disk.backing_file() {
            Some(file) => vec![self.by_file(&file)],
            None => disk.slaves().iter().map(|slave| self.by_directory(slave)).collect(),
        };
        let rotating = reasons.iter().position(|reason| matches!(reason, PlacementReason::Rotates { .. }));
        let is_known = !reasons.contains(&PlacementReason::UnknownDisk);
        let told = rotating.or(is_known.then_some(0)).filter(|&at| at < reasons.len());
        told.map(|at| reasons.swap_remove(at))
    }

    fn by_file(&mut self, path: &Path) -> PlacementReason {
        match fs::metadata(path) {
            Ok(file) if file.file_type().is_block_device() => self.by_number(file.rdev()),
            Ok(file) => self.by_number(file.dev()),
            Err(_) => PlacementReason::UnknownDisk,
        }
    }
}

/// The directory of a whole disk in `/sys/devices`, without links in the path.
struct Disk(PathBuf);

impl Disk {
    /// Returns the disk of a block device, if there is one. The disk of a partition is the parent
    /// directory.
    fn of(device: &Path) -> Option<Self> {
        let directory = fs::canonicalize(device).ok()?;
        let whole = directory.parent().filter(|_| directory.join("partition").exists());
        Some(Self(whole.unwrap_or(&directory).to_owned()))
    }

    fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the value of an attribute, which may end in spaces and a line break.
    fn attribute(&self, name: &str) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let file = File::open(self.0.join(name)).ok()?;
        file.take(ATTRIBUTE_BYTES_MAX).read_to_end(&mut value).ok()?;
        Some(value)
    }

    fn says_rotating(&self) -> Option<bool> {
        match self.attribute("queue/rotational")?.trim_ascii() {
            b"0" => Some(false),
            b"1" => Some(true),
            _ => None,
        }
    }

    fn is_virtual(&self, sys: &Path) -> bool {
        let parents = self.0.ancestors().take_while(|parent| parent.starts_with(sys));
        let mut drivers = parents.filter_map(|parent| fs::read_link(parent.join("driver")).ok());
        let mut names = ["device/vendor", "device/model"].into_iter().filter_map(|name| self.attribute(name));
        drivers.any(|driver| begins_with_one_of(driver.file_name().unwrap_or_default(), &VIRTUAL_DRIVERS))
            || names.any(|name| begins_with_one_of(OsStr::from_bytes(&name), &VIRTUAL_MODELS))
    }

    /// Returns the path of a loop device's file. The file isn't there if it was deleted (the kernel
    /// then adds a word to the path), or if it is in another mount namespace.
    fn backing_file(&self) -> Option<PathBuf> {
        let mut path = self.attribute("loop/backing_file")?;
        path.pop_if(|last| *last == b'\n');
        Some(OsString::from_vec(path).into())
    }

    /// Returns the devices that this disk is made of, in the order of their names.
    fn slaves(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("slaves")).into_iter().flatten();
        let mut slaves: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        slaves.sort_unstable();
        slaves
    }
}

fn begins_with_one_of(name: &OsStr, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| name.as_bytes().starts_with(beginning.as_bytes()))
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
