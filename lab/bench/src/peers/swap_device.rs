//! A swap device for the kernel: zram, or a file. Only an administrator can make one.
//!
//! (Linux, Documentation/admin-guide/blockdev/zram.rst; swapon(2); the header as in mkswap(8).)

use std::ffi::CString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, fallocate};

const PAGE: u64 = 4096;
const CONTROL: &str = "/sys/class/zram-control";

/// What kind of device, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Compressed memory.
    Zram { bytes: u64 },
    /// A file in the current directory.
    File { bytes: u64 },
}

impl fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zram { bytes } => write!(formatter, "zram:{bytes}"),
            Self::File { bytes } => write!(formatter, "file:{bytes}"),
        }
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, bytes) = text.split_once(':').ok_or("KIND:BYTES")?;
        let bytes = bytes.parse().map_err(|error| format!("{error}"))?;
        match kind {
            "zram" => Ok(Self::Zram { bytes }),
            "file" => Ok(Self::File { bytes }),
            _ => Err("a kind is zram or file".to_owned()),
        }
    }
}

/// A swap device in use. When this is dropped, the kernel stops using the device, and its zram
/// device or file is removed.
#[derive(Debug)]
pub(crate) struct SwapDevice {
    place: Place,
    is_on: bool,
}

#[derive(Debug)]
enum Place {
    Zram(u32),
    File(PathBuf),
}

impl SwapDevice {
    /// Makes one, and has the kernel use it.
    pub(crate) fn make(wanted: Wanted) -> Result<Self> {
        let mut device = match wanted {
            Wanted::Zram { bytes } => Self::zram(bytes)?,
            Wanted::File { bytes } => Self::file(bytes)?,
        };
        let path = device.path();
        let (Wanted::Zram { bytes } | Wanted::File { bytes }) = wanted;
        let file = OpenOptions::new().write(true).open(&path);
        let file = file.with_context(|| format!("cannot write to {}", path.display()))?;
        write_header(&file, bytes / PAGE).and_then(|()| file.sync_all()).context("cannot write the header of swap")?;
        let name = c_path(&path)?;
        // SAFETY: a string that ends with a zero.
        if unsafe { libc::swapon(name.as_ptr(), 0) } != 0 {
            bail!("the kernel doesn't swap to {}: {}", path.display(), io::Error::last_os_error());
        }
        device.is_on = true;
        Ok(device)
    }

    fn zram(bytes: u64) -> Result<Self> {
        let number = fs::read_to_string(format!("{CONTROL}/hot_add")).context("there is no zram to be had")?;
        let number = number.trim().parse().context("the number of a zram")?;
        let device = Self { place: Place::Zram(number), is_on: false };
        device.set_zram("disksize", bytes)?;
        Ok(device)
    }

    fn file(bytes: u64) -> Result<Self> {
        let path = std::env::current_dir()?.join(format!("pagefold-bench-{}.swap", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot make {}", path.display()))?;
        let device = Self { place: Place::File(path), is_on: false };
        // The kernel takes no file with holes.
        fallocate(&file, FallocateFlags::empty(), 0, bytes).context("no room for a swap file")?;
        Ok(device)
    }

    fn path(&self) -> PathBuf {
        match &self.place {
            Place::Zram(number) => format!("/dev/zram{number}").into(),
            Place::File(path) => path.clone(),
        }
    }

    fn set_zram(&self, name: &str, value: u64) -> Result<()> {
        let Place::Zram(number) = self.place else { return Ok(()) };
        let path = format!("/sys/block/zram{number}/{name}");
        fs::write(&path, value.to_string()).with_context(|| format!("cannot write to {path}"))
    }
}

impl Drop for SwapDevice {
    fn drop(&mut self) {
        if self.is_on
            && let Ok(name) = c_path(&self.path())
        {
            // SAFETY: a string that ends with a zero.
            unsafe { libc::swapoff(name.as_ptr()) };
        }
        let removed = match &self.place {
            Place::Zram(number) => {
                let _ = self.set_zram("reset", 1); // A device that never had a size needs none.
                fs::write(format!("{CONTROL}/hot_remove"), number.to_string())
            }
            Place::File(path) => fs::remove_file(path),
        };
        if let Err(error) = removed {
            eprintln!("bench: {} is left: {error}", self.path().display());
        }
    }
}

fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The header of a swap area of so many pages, itself included.
fn write_header(file: &File, pages: u64) -> io::Result<()> {
    let mut header = vec![0_u8; PAGE as usize];
    let last = u32::try_from(pages - 1).map_err(io::Error::other)?;
    header[1024..1028].copy_from_slice(&1_u32.to_ne_bytes()); // The version.
    header[1028..1032].copy_from_slice(&last.to_ne_bytes());
    header[PAGE as usize - 10..].copy_from_slice(b"SWAPSPACE2");
    file.write_all_at(&header, 0)
}
