//! Explains why an operation of a run failed, in terms of the user's file.

use anyhow::anyhow;

use crate::checker::Wrong;
use crate::target::Target;
use crate::worker::{Failed, Fault};

/// Explains why an operation for `group` failed.
pub(crate) fn explain(failed: Failed, group: &str, target: &Target) -> anyhow::Error {
    // If the file became shorter, this is the cause of any other error, so it is reported instead.
    // If the length can't be read, the operation's own error is reported.
    if let Ok(Some(shrank)) = target.shrank() {
        return shrank;
    }
    let Failed { access, fault } = failed;
    let place = format!("group {group}, {} bytes at {}", access.len, access.offset);
    let path = target.path().display();
    let others = if target.content().is_some() { "" } else { " (or another program is writing to it)" };
    match fault {
        Fault::Pagefold(error) => anyhow!(error).context(place),
        Fault::Short { got, wanted } => anyhow!("{place}: only {got} of {wanted} bytes of {path} came"),
        Fault::Wrong(Wrong::Unknown(error)) => {
            anyhow!(error).context(format!("{place}: can't read {path} to compare with it"))
        }
        Fault::Wrong(Wrong::Byte(wrong)) => anyhow!(
            "{place}: byte {} was read as {:#04x}, but {path} holds {:#04x}{others}",
            wrong.offset,
            wrong.found,
            wrong.expected,
        ),
        Fault::Wrong(Wrong::Foreign { offset, found }) => anyhow!(
            "{place}: the {} bytes at {offset} were read as {found:02x?}: neither what {path} held before, nor what \
                 was written there{others}",
            found.len()
        ),
        Fault::Wrong(Wrong::Stale { offset, found, written }) => anyhow!(
            "{place}: byte {offset} was read as {}, though this thread had written there: {written}",
            found.map_or_else(|| "it was before the run".to_owned(), |stamp| stamp.to_string()),
        ),
    }
}
