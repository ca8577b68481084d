//! Closes many files at once.

use std::panic::resume_unwind;

use sync::Arc;
use sync::lock::Mutex;
use sync::thread::spawn;

use crate::api::file::File;
use crate::error::Error;

/// Files that are synced concurrently.
const SIDE_BY_SIDE: usize = 8;

impl File {
    /// [Closes](Self::close) files. Those that are open for writing are synced, up to eight at a
    /// time. That is faster than one after the other: a disk does several syncs in little more than
    /// the time of one, and a file system writes its journal once for all of them.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync), for any of the files. All files are closed nevertheless.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use pagefold::{File, Pagefold};
    /// # let directory = tempfile::tempdir()?;
    /// let mm = Pagefold::builder().memory("16MiB").build()?;
    /// let group = mm.group("unpacker").build()?;
    /// let mut files = Vec::new();
    /// for name in ["a", "b", "c"] {
    ///     let path = directory.path().join(name);
    ///     let file = group.open_options().write(true).create(true).open(path)?;
    ///     file.write_at(name.as_bytes(), 0)?;
    ///     files.push(file);
    /// }
    /// File::close_all(files)?; // All three survive a power cut from here on.
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_all(files: impl IntoIterator<Item = Self>) -> Result<(), Error> {
        let files: Vec<_> = files.into_iter().filter(|file| file.handle().writable).collect();
        let helpers = files.len().saturating_sub(1).min(SIDE_BY_SIDE - 1);
        let left = Arc::new(Mutex::new(files));
        // If no thread can be started, this one closes all files.
        let helper = |_| {
            let left = Arc::clone(&left);
            spawn("pagefold-close", move || close_on(&left)).ok()
        };
        let helpers: Vec<_> = (0..helpers).map_while(helper).collect();
        let own = close_on(&left);
        let join = |thread: sync::thread::JoinHandle<_>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        helpers.into_iter().map(join).fold(own, Result::and)
    }
}

/// Closes files until none is left. Returns the first error.
fn close_on(left: &Mutex<Vec<File>>) -> Result<(), Error> {
    let next = || left.lock().pop();
    let mut result = Ok(());
    while let Some(file) = next() {
        result = result.and(file.close());
    }
    result
}
