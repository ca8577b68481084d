//! Destinations of results: standard output, and the files of `--prometheus` and `--plot`.
//!
//! If the results go to a pipe whose reader is slow or never reads, the write blocks. So while the
//! command writes results, the first SIGINT, SIGTERM or SIGHUP ends the process at once. The
//! exception is when results of earlier runs are still to be written (`signals`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::failure::Failure;
use crate::signals;

/// How long [`open`] waits between two tries.
const LOOKS: Duration = Duration::from_millis(20);

/// Writes to standard output without delay.
///
/// # Errors
/// Errors of the system; [`Failure::OutputClosed`].
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Does the same as [`print()`] for bytes.
///
/// # Errors
/// Same as for [`print()`].
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match signals::ending_at_once(|| out.write_all(bytes).and_then(|()| out.flush())) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        result => Ok(result.context("can't write to standard output")?),
    }
}

/// Writes a file, replacing its contents. For a pipe, waits until the pipe has a reader, and then
/// writes to it.
///
/// # Errors
/// Errors of the system; [`Failure::Interrupted`] if a signal came and the pipe has no reader.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = || format!("can't write {}", path.display());
    let mut file = open(path, failed)?;
    signals::ending_at_once(|| file.write_all(bytes)).with_context(failed)?;
    Ok(())
}

fn open(path: &Path, failed: impl Fn() -> String) -> Result<File, Failure> {
    let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    let mut options = OpenOptions::new();
    options.write(true);
    if !is_pipe {
        return Ok(options.create(true).truncate(true).open(path).with_context(failed)?);
    }
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    loop {
        match options.open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                signals::check()?;
                sync::thread::sleep(LOOKS);
            }
            opened => {
                let file = opened.with_context(&failed)?;
                let flags = rustix::fs::fcntl_getfl(&file).map_err(io::Error::from).with_context(&failed)?;
                let waits = rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK);
                waits.map_err(io::Error::from).with_context(failed)?;
                return Ok(file);
            }
        }
    }
}
