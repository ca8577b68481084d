//! File systems that the test may be able to mount in a mount namespace of its own: one without
//! direct I/O, a full one, an overlay, and one on a loop device.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use pagefold::io::IoError;
use pagefold::{AddError, Advice, Error, SwapArea};

use crate::{NOT_HERE, a_file_is_used, in_a_process, open, small_fold};

/// What this machine lacks.
type Skipped = String;

/// Gives this process mounts of its own.
fn unshare() -> Result<(), Skipped> {
    // SAFETY: no memory is concerned.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(format!("mount namespaces ({})", std::io::Error::last_os_error()));
    }
    run("mount", &["--make-rprivate", "/"])
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), Skipped> {
    let done = Command::new(program).args(arguments).output().map_err(|error| format!("{program} ({error})"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    done.status.success().then_some(()).ok_or_else(|| format!("{program} {} ({})", arguments.join(" "), said.trim()))
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn tmpfs(at: &Path, size: &str) -> Result<(), Skipped> {
    fs::create_dir_all(at).unwrap();
    run("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", text(at)])
}

fn overlay(at: &Path) -> Result<(), Skipped> {
    tmpfs(at, "64m")?;
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| at.join(name));
    for directory in [&lower, &upper, &work, &merged] {
        fs::create_dir(directory).unwrap();
    }
    fs::write(lower.join("below"), [5; 10_000]).unwrap();
    let layers = format!("lowerdir={},upperdir={},workdir={}", text(&lower), text(&upper), text(&work));
    run("mount", &["-t", "overlay", "-o", &layers, "overlay", text(&merged)])
}

fn loop_device(at: &Path) -> Result<(), Skipped> {
    fs::create_dir_all(at).unwrap();
    let image = at.with_extension("image");
    fs::File::create(&image).and_then(|file| file.set_len(32 << 20)).unwrap();
    run("mkfs.ext4", &["-q", "-F", text(&image)])?;
    run("mount", &["-o", "loop", text(&image), text(at)])
}

#[test]
fn every_file_system_that_can_be_mounted_is_used() {
    for scenario in [
        "on_tmpfs",
        "on_a_full_file_system",
        "on_an_overlay",
        "on_an_overlay_that_copies_up_under_a_reader",
        "over_a_loop_device",
        "swap_on_a_device_that_is_in_use",
    ] {
        in_a_process(&format!("file_systems::{scenario}"));
    }
    for scenario in ["is_used", "is_changed_by_its_server", "has_a_server_that_fails", "has_a_server_that_goes"] {
        in_a_process(&format!("fuse::{scenario}"));
    }
}

/// Runs `body` in a directory that `mount` has mounted.
pub(crate) fn mounted(mount: impl Fn(&Path) -> Result<(), Skipped>, body: impl Fn(&Path)) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = directory.path().join("mounted");
    match unshare().and_then(|()| mount(&at)) {
        Ok(()) => {
            body(&at);
            let _ = run("umount", &["-l", text(&at)]);
        }
        Err(what) => println!("{NOT_HERE}{what}"),
    }
}

#[test]
#[ignore = "for a process of its own"]
fn on_tmpfs() {
    mounted(
        |at| tmpfs(at, "64m"),
        |at| {
            a_file_is_used(&small_fold(), &at.join("file"), 1);
            small_fold().add_swap(SwapArea::unlinked(at, 1 << 20)).unwrap();
        },
    );
}

/// Bytes for which there is no room aren't written, and the sync fails. When there is room again,
/// they can be written.
#[test]
#[ignore = "for a process of its own"]
fn on_a_full_file_system() {
    mounted(
        |at| tmpfs(at, "256k"),
        |at| {
            let fold = small_fold();
            let file = open(&fold, "a", &at.join("file"));
            fs::write(at.join("other"), vec![1; 200 << 10]).unwrap();
            let bytes = vec![7; 128 << 10];
            let refused = file.write_at(&bytes, 0).and_then(|()| file.sync());
            assert!(matches!(refused, Err(Error::WriteFailed { .. })), "{refused:?}");
            assert!(fold.add_swap(SwapArea::unlinked(at, 8 << 20)).is_err());
            fs::remove_file(at.join("other")).unwrap();
            file.write_at(&bytes, 0).unwrap();
            file.sync().unwrap();
            assert!(fs::read(at.join("file")).unwrap() == bytes, "what was synced isn't what is in the file");
        },
    );
}

#[test]
#[ignore = "for a process of its own"]
fn on_an_overlay() {
    mounted(overlay, |at| {
        let merged = at.join("merged");
        a_file_is_used(&small_fold(), &merged.join("file"), 1);
        // The first write to a file of the lower layer copies the file to the upper layer. From
        // then on, the handle uses the copy.
        let fold = small_fold();
        let file = open(&fold, "a", &merged.join("below"));
        let mut bytes = [0; 10_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [5; 10_000]);
        file.write_at(&[6; 100], 9950).unwrap();
        file.sync().unwrap();
        let expected = [vec![5; 9950], vec![6; 100]].concat();
        assert_eq!(fs::read(merged.join("below")).unwrap(), expected);
        assert_eq!(fs::read(at.join("lower/below")).unwrap(), [5; 10_000]);
        drop(file);
        let _ = run("umount", &["-l", text(&merged)]);
    });
}

/// A reader has opened the file of the lower layer. Then this process, or another one, writes to
/// the file, so it is copied to the upper layer. The reader must see the copy.
#[test]
#[ignore = "for a process of its own"]
fn on_an_overlay_that_copies_up_under_a_reader() {
    mounted(overlay, |at| {
        let path = at.join("merged/below");
        let fold = small_fold();
        let reader = fold.group("reader").build().unwrap().open(&path).unwrap();
        let mut bytes = [0; 4096];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [5; 4096]);
        let writer = open(&fold, "writer", &path);
        writer.write_at(&[6; 5000], 2000).unwrap();
        writer.sync().unwrap();
        let expected = [vec![5; 2000], vec![6; 5000], vec![5; 3000]].concat();
        for file in [&reader, &writer] {
            for _ in 0..2 {
                let mut bytes = [0; 10_000];
                file.read_exact_at(&mut bytes, 0).unwrap();
                assert!(bytes[..] == expected, "a reader sees the copy, in memory and when it is read again");
                file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
            }
        }
        drop((reader, writer));
        assert!(fs::read(&path).unwrap() == expected);
        fs::write(at.join("lower/another"), [1; 10_000]).unwrap();
        let another = at.join("merged/another");
        if !another.exists() {
            println!("{NOT_HERE}an overlay that shows new files of its lower layer");
            return;
        }
        let reader = fold.group("reader").build().unwrap().open(&another).unwrap();
        let stranger = fs::OpenOptions::new().write(true).open(&another).unwrap();
        stranger.write_at(&[2; 10_000], 0).unwrap();
        let mut bytes = [0; 10_000];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [2; 10_000]);
        let _ = run("umount", &["-l", text(&at.join("merged"))]);
    });
}

/// Regression: A Pagefold swapped to a device that was the swap area of another Pagefold, or that
/// had a mounted file system. Both were destroyed.
#[test]
#[ignore = "for a process of its own"]
fn swap_on_a_device_that_is_in_use() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = directory.path().join("image");
    fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).unwrap();
    let device = match Command::new("losetup").args(["--find", "--show", text(&image)]).output() {
        Ok(done) if done.status.success() => String::from_utf8(done.stdout).unwrap().trim().to_owned(),
        Ok(done) => return println!("{NOT_HERE}losetup ({})", String::from_utf8_lossy(&done.stderr).trim()),
        Err(error) => return println!("{NOT_HERE}losetup ({error})"),
    };
    let (fold, other) = (small_fold(), small_fold());
    let area = || SwapArea::path(&device).overwrite(true);
    let added = fold.add_swap(area());
    let second = other.add_swap(area());
    drop(fold);
    let mounts = unshare().and_then(|()| run("mkfs.ext4", &["-q", "-F", &device])).and_then(|()| {
        let at = directory.path().join("mounted");
        fs::create_dir(&at).unwrap();
        run("mount", &[&device, text(&at)])
    });
    let over_mounted = mounts.map(|()| other.add_swap(area()));
    let _ = run("umount", &[&device]);
    run("losetup", &["--detach", &device]).unwrap();
    // The device has no length now, unless another process has set it up again already.
    match other.group("a").build().unwrap().open(&device) {
        Ok(file) => assert!(!file.is_empty()),
        Err(error) => assert!(matches!(error, Error::OpenFailed { error: IoError::NoLength, .. }), "{error}"),
    }
    added.unwrap();
    assert!(matches!(second, Err(Error::SwapRefused(AddError::InUse { .. }))), "{second:?}");
    match over_mounted {
        Ok(refused) => assert!(matches!(refused, Err(Error::SwapRefused(AddError::InUse { .. }))), "{refused:?}"),
        Err(what) => println!("{NOT_HERE}{what}"),
    }
}

#[test]
#[ignore = "for a process of its own"]
fn over_a_loop_device() {
    mounted(loop_device, |at| a_file_is_used(&small_fold(), &at.join("file"), 1));
}
