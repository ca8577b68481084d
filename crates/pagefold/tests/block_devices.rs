//! Block devices, and the kernel's errors when a device can't write. The devices are loop devices
//! whose backing file is in a small file system. If the process may not mount file systems or set
//! up loop devices, the tests say so and end.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagefold::io::{DirectIo, Posix};
use pagefold::{Error, Pagefold};

const LEN: usize = 12 << 20;

/// A loop device of [`LEN`] bytes, whose backing file is in a file system with less room than that.
struct Device {
    path: PathBuf,
    /// The device's backing file.
    image: File,
    /// A file that takes a part of the file system's room.
    ballast: File,
}

impl Device {
    /// Returns `None` if the process lacks the permissions. The kernel removes the device and the
    /// file system when the last descriptor is closed, even if this process is killed.
    fn new(ballast_len: usize) -> Option<(Self, impl FnOnce())> {
        let place = tempfile::tempdir().ok()?;
        let run = |program: &str, arguments: &[&str], path: &Path| {
            let output = Command::new(program).args(arguments).arg(path).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            output.status.success().then_some(text)
        };
        let mounted = run("mount", &["-t", "tmpfs", "-o", "size=16m", "pagefold-test"], place.path());
        if mounted.is_none() {
            println!("not here: mounts");
            return None;
        }
        let made = (|| {
            let create =
                |name| File::options().read(true).write(true).create_new(true).open(place.path().join(name)).ok();
            let (image, ballast) = (create("image")?, create("ballast")?);
            image.set_len(LEN as u64).ok()?;
            ballast.write_all_at(&vec![1; ballast_len], 0).ok()?;
            let device = run("losetup", &["-f", "--show"], &place.path().join("image"))?;
            Some(Self { path: device.into(), image, ballast })
        })();
        let _ = run("umount", &["-l"], place.path());
        if made.is_none() {
            println!("not here: loop devices");
        }
        let device = made?;
        let path = device.path.clone();
        // The caller calls this when it has opened the device: the device is then removed when it
        // is closed.
        Some((device, move || drop(Command::new("losetup").arg("-d").arg(path).status())))
    }

    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        self.image.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }
}

fn bytes(version: u8) -> Vec<u8> {
    (0..LEN).map(|at| (at / 4096) as u8 ^ (at as u8).wrapping_mul(31) ^ version).collect()
}

/// Opens the device in a budget of half its length. The device is removed when the file is closed.
fn open(device: &Device, forget: impl FnOnce(), direct: DirectIo) -> pagefold::File {
    let mm = Pagefold::builder().memory("6MiB").backend(Posix::new(direct)).build().unwrap();
    let file = mm.group("a").build().unwrap().open_options().write(true).open(&device.path);
    forget();
    file.unwrap()
}

#[test]
fn a_block_device_is_written_and_read_and_keeps_its_length() {
    for direct in [DirectIo::Never, DirectIo::Always] {
        let Some((device, forget)) = Device::new(0) else { return };
        let file = open(&device, forget, direct);
        assert_eq!(file.len(), LEN as u64);
        file.write_at(&bytes(1), 0).unwrap();
        file.write_at(b"part of a page", 5 * 4096 + 100).unwrap();
        file.sync().unwrap();
        let mut expected = bytes(1);
        expected[5 * 4096 + 100..][..14].copy_from_slice(b"part of a page");
        assert!(device.contents() == expected, "what was synced isn't on the device");
        let mut found = vec![0; LEN];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected, "what was read isn't what was written");
        assert!(matches!(file.set_len(4096), Err(Error::WriteFailed { .. })), "a device has the length that it has");
        assert!(file.write_at(&[1], LEN as u64).is_err() || file.sync().is_err(), "nor is there anything beyond");
    }
}

/// The device fails with `EIO`: direct writes at once, and buffered writes only at the sync, long
/// after the kernel accepted them. All bytes that were lost in this way must be written again.
#[test]
fn what_a_device_could_not_write_is_on_it_when_it_can() {
    for direct in [DirectIo::Never, DirectIo::Always] {
        let Some((device, forget)) = Device::new(8 << 20) else { return };
        let file = open(&device, forget, direct);
        let new = bytes(2);
        // Writes until enough writes have failed, or until everything is written.
        let mut written = 0;
        let mut refused = false;
        for at in (0..LEN).step_by(1 << 20) {
            refused |= file.write_at(&new[at..at + (1 << 20)], at as u64).is_err();
            refused |= file.sync().is_err();
            if refused {
                written = at;
                break;
            }
        }
        assert!(refused && written >= 4 << 20, "{written} bytes went to a device with room for 8 MiB");
        device.ballast.set_len(0).unwrap();
        let _ = file.sync();
        file.sync().unwrap();
        file.write_at(&new[written..], written as u64).unwrap();
        file.sync().unwrap();
        assert!(device.contents() == new, "{direct:?}: a sync that said Ok has lost something");
    }
}
