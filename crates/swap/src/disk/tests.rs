//! Disks in made-up trees that are laid out like the kernel's `/sys`.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// Where a disk of the first SATA controller is.
const SATA: &str = "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda";

struct Tree {
    _directory: TempDir,
    sys: PathBuf,
}

impl Tree {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sys = directory.path().canonicalize().unwrap();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        Self { _directory: directory, sys }
    }

    /// Returns a path in the tree, whose directory exists.
    fn new_path(&self, path: &str) -> PathBuf {
        assert!(!path.starts_with('/'), "{path} isn't in the tree");
        let path = self.sys.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, path: &str, value: impl AsRef<[u8]>) {
        fs::write(self.new_path(path), value).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        symlink(self.sys.join(to), self.new_path(path)).unwrap();
    }

    /// Adds a device with a number.
    fn number(&self, device: u64, path: &str) {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        self.link(&format!("dev/block/{major}:{minor}"), path);
    }

    /// Adds a disk whose `queue/rotational` is 1. If `driver` isn't empty, adds the driver to the
    /// directory `above`.
    fn rotating(&self, path: &str, above: &str, driver: &str) {
        self.write(&format!("{path}/queue/rotational"), "1\n");
        if !driver.is_empty() {
            self.link(&format!("{above}/driver"), &format!("bus/any/drivers/{driver}"));
        }
    }

    /// Adds a disk without a controller: a stack or a loop device.
    fn stacked(&self, name: &str) -> String {
        let path = format!("devices/virtual/block/{name}");
        self.rotating(&path, &path, "");
        path
    }

    fn is_made_of(&self, path: &str, below: &[&str]) {
        for slave in below {
            self.link(&format!("{path}/slaves/{}", slave.rsplit('/').next().unwrap()), slave);
        }
    }

    /// Returns what a search finds, in words.
    fn says(&self, path: &str) -> String {
        self.search().by_directory(&self.sys.join(path)).to_string()
    }

    fn search(&self) -> Search<'_> {
        Search { sys: &self.sys, disks_left: DISKS_MAX }
    }
}

const UNKNOWN: &str = "on no disk that the kernel names";

#[test]
fn disks_and_partitions_are_asked_as_the_kernel_lays_them_out() {
    let tree = Tree::new();
    let nvme = "devices/pci0000:00/0000:00:1d.0/nvme/nvme0/nvme0n1";
    for (minor, disk, says) in [(0, SATA, "1\n"), (16, nvme, "0\n")] {
        tree.write(&format!("{disk}/queue/rotational"), says);
        tree.write(&format!("{disk}/part1/partition"), "1\n");
        tree.number(rustix::fs::makedev(8, minor), disk);
        tree.number(rustix::fs::makedev(8, minor + 1), &format!("{disk}/part1"));
    }
    let found = [0, 1, 16, 17, 32].map(|minor| tree.search().by_number(rustix::fs::makedev(8, minor)).to_string());
    let nvme = "nvme0n1 doesn't rotate";
    assert_eq!(found, ["sda rotates", "sda rotates", nvme, nvme, UNKNOWN]);
    // The number of a file on tmpfs: no block device has the major number 0.
    assert_eq!(tree.search().by_number(rustix::fs::makedev(0, 8)), PlacementReason::UnknownDisk);
}

#[test]
fn a_driver_of_any_parent_tells_that_a_disk_is_virtual() {
    let (pci, scsi) = ("devices/pci0000:00/0000:00:02.0", "host0/target0:0:0/0:0:0:0/block/sda");
    let virtio = format!("{pci}/virtio1");
    for (above, rest, driver, is_virtual) in [
        (&*virtio, "block/vda", "virtio_blk", true),
        (&virtio, scsi, "virtio_scsi", true),
        ("devices/vbd-51712", "block/xvda", "vbd", true),
        ("devices/LNXSYSTM:00/PNP0A03:00/VMBUS:01/f8b3781a", scsi, "hv_storvsc", true),
        (pci, scsi, "vmw_pvscsi", true),
        (pci, scsi, "ahci", false),
        (pci, scsi, "", false),
    ] {
        let disk = &*format!("{above}/{rest}");
        let tree = Tree::new();
        tree.rotating(disk, above, driver);
        let name = disk.rsplit('/').next().unwrap();
        let expected = if is_virtual { format!("{name} is a virtual disk") } else { format!("{name} rotates") };
        assert_eq!(tree.says(disk), expected, "{driver}");
        tree.write(&format!("{disk}/part1/partition"), "1\n");
        assert_eq!(tree.says(&format!("{disk}/part1")), expected, "a partition, {driver}");
        // A virtual disk that says it doesn't rotate is taken at its word.
        tree.write(&format!("{disk}/queue/rotational"), "0\n");
        assert_eq!(tree.says(disk), format!("{name} doesn't rotate"), "{driver}");
    }
}

#[test]
fn directories_above_sys_have_no_drivers() {
    let tree = Tree::new();
    tree.rotating(&format!("sys/{SATA}"), ".", "virtio_blk");
    assert!(tree.sys.join("driver").is_symlink());
    let sys = tree.sys.join("sys");
    let mut search = Search { sys: &sys, disks_left: DISKS_MAX };
    assert_eq!(search.by_directory(&sys.join(SATA)).to_string(), "sda rotates");
}

#[test]
fn a_vendor_or_model_tells_that_a_disk_is_emulated() {
    for (vendor, model, is_virtual) in [
        ("ATA     \n", "QEMU HARDDISK   \n", true),
        ("QEMU    \n", "QEMU HARDDISK   \n", true),
        ("ATA     \n", "VBOX HARDDISK   \n", true),
        ("VMware, \n", "VMware Virtual S\n", true),
        ("VMware  \n", "Virtual disk    \n", true),
        ("ATA     \n", "BHYVE SATA DISK \n", true),
        ("ATA     \n", "ST4000DM004-2CV1\n", false),
        ("SEAGATE \n", "NOT QEMU\n", false),
    ] {
        let tree = Tree::new();
        tree.rotating(SATA, "devices/pci0000:00/0000:00:17.0", "ahci");
        let device = SATA.strip_suffix("/block/sda").unwrap();
        tree.link(&format!("{SATA}/device"), device);
        tree.write(&format!("{device}/vendor"), vendor);
        tree.write(&format!("{device}/model"), model);
        assert_eq!(tree.says(SATA), if is_virtual { "sda is a virtual disk" } else { "sda rotates" }, "{model:?}");
    }
}

#[test]
fn a_stack_seeks_if_a_disk_below_it_does() {
    let tree = Tree::new();
    let vda = "devices/virtio1/block/vda";
    tree.rotating(vda, "devices/virtio1", "virtio_blk");
    tree.write(&format!("{vda}/vda3/partition"), "3\n");
    tree.rotating(SATA, "devices/pci0000:00/0000:00:17.0", "ahci");
    tree.write("devices/nvme0n1/queue/rotational", "0\n");
    let made_of = |name: &str, below: &[&str]| {
        let path = tree.stacked(name);
        tree.is_made_of(&path, below);
        path
    };
    let vda3 = format!("{vda}/vda3");
    let on_virtual = made_of("dm-0", &[&vda3]);
    let on_both = made_of("dm-1", &["devices/nvme0n1", SATA, vda]);
    let on_stack = made_of("dm-2", &[&on_virtual]);
    let on_stack_and_disk = made_of("dm-3", &[&on_virtual, &on_both]);
    let on_none = made_of("dm-4", &[]);
    let on_lost = made_of("dm-5", &[vda, "devices/lost"]);
    let on_solid = made_of("md0", &["devices/nvme0n1"]);
    assert_eq!(tree.says(&on_virtual), "vda is a virtual disk");
    assert_eq!(tree.says(&on_both), "sda rotates");
    assert_eq!(tree.says(&on_stack), "vda is a virtual disk");
    assert_eq!(tree.says(&on_stack_and_disk), "sda rotates");
    assert_eq!(tree.says(&on_none), "dm-4 rotates", "nothing speaks against it");
    assert_eq!(tree.says(&on_lost), "dm-5 rotates", "the disk that isn't found may rotate");
    assert_eq!(tree.says(&on_solid), "nvme0n1 doesn't rotate");
    // A stack that says it doesn't rotate is taken at its word.
    tree.write(&format!("{on_both}/queue/rotational"), "0\n");
    assert_eq!(tree.says(&on_both), "dm-1 doesn't rotate");
}

#[test]
fn a_loop_device_seeks_if_the_disk_of_its_file_does() {
    let tree = Tree::new();
    let disk_of_the_file = |driver: &str| {
        let tree = Tree::new();
        // The path ends in a space, which is a part of the name.
        let file = tree.sys.join("image ");
        fs::write(&file, "").unwrap();
        let disk = "devices/some/block/sdb";
        tree.rotating(disk, "devices/some", driver);
        tree.number(fs::metadata(&file).unwrap().dev(), disk);
        let path = tree.stacked("loop0");
        tree.write(&format!("{path}/loop/backing_file"), [file.as_os_str().as_bytes(), b"\n"].concat());
        tree.says(&path)
    };
    assert_eq!(disk_of_the_file("hv_storvsc"), "sdb is a virtual disk");
    assert_eq!(disk_of_the_file("ahci"), "sdb rotates");
    let deleted = tree.stacked("loop1");
    tree.write(&format!("{deleted}/loop/backing_file"), "/nowhere/image (deleted)\n");
    assert_eq!(tree.says(&deleted), "loop1 rotates");
}

/// The file behind a loop device may be the node of a block device. The disk is then the one that
/// the node's `st_rdev` names. (`st_dev` names the file system that the node is on.)
#[test]
fn a_loop_device_on_a_block_device_has_its_number() {
    let nodes = fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_block = |path: &PathBuf| fs::metadata(path).is_ok_and(|node| node.file_type().is_block_device());
    let Some(node) = nodes.map(|node| node.path()).find(is_block) else {
        return println!("not here: a block device in /dev");
    };
    let tree = Tree::new();
    let disk = "devices/virtio1/block/vdb";
    tree.rotating(disk, "devices/virtio1", "virtio_blk");
    tree.number(fs::metadata(&node).unwrap().rdev(), disk);
    let path = tree.stacked("loop0");
    tree.write(&format!("{path}/loop/backing_file"), node.as_os_str().as_bytes());
    assert_eq!(tree.says(&path), "vdb is a virtual disk");
}

#[test]
fn a_search_ends_whatever_is_in_sys() {
    let tree = Tree::new();
    for (at, value) in [&b""[..], b"2\n", b"yes", b"\xff\xfe\0", b"11\n", &[b'1'; 100_000]].into_iter().enumerate() {
        let path = format!("devices/odd{at}");
        tree.write(&format!("{path}/queue/rotational"), value);
        assert_eq!(tree.says(&path), UNKNOWN, "{}", value.escape_ascii());
    }
    // Directories where files belong, files where directories belong, and links to nowhere.
    fs::create_dir_all(tree.sys.join("devices/a/queue/rotational")).unwrap();
    tree.write("devices/b/queue", "1\n");
    tree.link("devices/c/queue", "devices/c/queue");
    assert_eq!(["a", "b", "c", "none"].map(|name| tree.says(&format!("devices/{name}"))), [UNKNOWN; 4]);
    let odd = tree.stacked("odd");
    for name in ["driver/x", "device/model/x", "loop/backing_file/x"] {
        tree.write(&format!("{odd}/{name}"), "");
    }
    tree.write(&format!("{odd}/slaves"), "");
    assert_eq!(tree.says(&odd), "odd rotates");
    tree.write(&format!("{}/loop/backing_file", tree.stacked("nul")), "a\0b\n");
    assert_eq!(tree.says("devices/virtual/block/nul"), "nul rotates");

    // Stacks that contain themselves.
    let both = ["x", "y"].map(|name| tree.stacked(name));
    both.iter().for_each(|path| tree.is_made_of(path, &both.each_ref().map(|path| &**path)));
    assert_eq!(tree.says(&both[0]), "x rotates");
}

#[test]
fn a_search_looks_at_a_limited_number_of_disks() {
    let tree = Tree::new();
    tree.rotating("devices/virtio1/block/vda", "devices/virtio1", "virtio_blk");
    let mut below = "devices/virtio1/block/vda".to_owned();
    for depth in 1..=DISKS_MAX {
        let path = tree.stacked(&format!("dm-{depth}"));
        tree.is_made_of(&path, &[&below]);
        below = path;
    }
    let deepest_known = DISKS_MAX - 1;
    assert_eq!(tree.says(&format!("devices/virtual/block/dm-{deepest_known}")), "vda is a virtual disk");
    // It rotates as far as the search got: to the last disk but the virtual one.
    assert_eq!(tree.says(&below), "dm-1 rotates");
}
