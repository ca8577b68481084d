//! Standard output, files that will be written at the end, and progress bars.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

/// Said of every run with `--quick`.
pub(crate) const QUICK: &str = "--quick: shows that everything works; the figures mean nothing.";

/// Prints `text`.
pub(crate) fn say(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // The reader of the output has closed it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// A progress bar for `steps` steps, on standard error if that is a terminal.
pub(crate) fn progress(experiment: &'static str, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:10} [{bar:30}] {pos}/{len} {msg} ({eta} left)")
        .expect("the template is a constant")
        .progress_chars("=> ");
    ProgressBar::new(steps as u64).with_style(style).with_prefix(experiment)
}

/// Fails if a plot can't be written to `path` later. Doesn't change an existing file, and leaves no
/// new file behind.
pub(crate) fn prepare_plot(path: &Path) -> Result<()> {
    let cannot = || format!("cannot write the plot to {}", path.display());
    let existed = fs::symlink_metadata(path).is_ok();
    OpenOptions::new().create(true).write(true).truncate(false).open(path).with_context(cannot)?;
    if existed { Ok(()) } else { fs::remove_file(path).with_context(cannot) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_where_nothing_can_be_written_is_found_at_once() {
        let error = format!("{:#}", prepare_plot(Path::new("/nowhere/at/all.svg")).unwrap_err());
        assert!(error.contains("cannot write the plot to /nowhere/at/all.svg: No such file"), "{error}");
    }
}
