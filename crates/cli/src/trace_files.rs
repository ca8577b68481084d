//! Decides where each file of a trace begins in the one file of the run: one after the other, or
//! where the user wants them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, anyhow};
use serde::{Serialize, Serializer};

use crate::failure::Failure;
use crate::trace_text::shown;
use crate::units;

/// If the user chose a file that the trace doesn't have, the message lists at most this many names.
const NAMES_MAX: usize = 5;

/// A value of `--map`: a file of the trace, and where it begins in the file that is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Bytes, as names of files are.
    pub(crate) name: Vec<u8>,
    pub(crate) offset: u64,
}

/// A file of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TraceFile {
    /// Bytes, as names of files are.
    #[serde(serialize_with = "serialize_shown")]
    pub(crate) name: Vec<u8>,
    /// Where it begins in the file that is used.
    pub(crate) offset: u64,
    /// The length up to the end of the furthest operation.
    pub(crate) bytes: u64,
}

/// The range that the operations on one file cover.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// The first byte; `None` if there are no reads and writes.
    pub(crate) first: Option<u64>,
    /// The first byte past all of them.
    pub(crate) end: u64,
}

impl Reach {
    /// Adds an operation.
    pub(crate) fn add(&mut self, offset: u64, end: u64) {
        self.first = Some(self.first.map_or(offset, |first| first.min(offset)));
        self.end = self.end.max(end);
    }
}

/// Counts of the operations of a trace that were parsed but left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Skipped {
    /// Writes that the user left out.
    pub(crate) writes: u64,
    /// Trims (discards of a range) in the trace. A replay leaves them out.
    pub(crate) trims: u64,
    /// Pauses: a replay runs as fast as it can.
    pub(crate) waits: u64,
    /// Operations on files that `--map` doesn't name.
    pub(crate) elsewhere: u64,
}

impl Skipped {
    /// Returns text such as `3 writes, 1 trim`; `None` if nothing was left out.
    pub(crate) fn to_text(self) -> Option<String> {
        let counts =
            [(self.writes, "write"), (self.trims, "trim"), (self.waits, "wait"), (self.elsewhere, "operation")];
        let parts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, noun)| units::plural(*count, noun));
        let text = parts.collect::<Vec<_>>().join(", ");
        let text = if self.elsewhere > 0 { text + " on files not in --map" } else { text };
        (!text.is_empty()).then_some(text)
    }
}

fn serialize_shown<S: Serializer>(name: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shown(name))
}

impl Mapped {
    /// Parses `NAME=OFFSET`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, String> {
        let text = text.as_bytes();
        let parts = text.iter().rposition(|&byte| byte == b'=').filter(|&at| at > 0);
        let Some((name, offset)) = parts.map(|at| (&text[..at], &text[at + 1..])) else {
            return Err(
                "expected the name of a file in the trace and where it begins in FILE, as in a.dat=0".to_owned()
            );
        };
        let offset = units::parse_size(&String::from_utf8_lossy(offset))
            .map_err(|error| format!("offset of `{}`: {error}", shown(name)))?;
        Ok(Self { name: name.to_owned(), offset })
    }
}

/// Gives each file its place: the one in `map`, or else the first page boundary after the previous
/// file.
///
/// # Errors
/// A usage failure if `map` has a file that the trace doesn't have; an error if a file would reach
/// beyond 2^64.
pub(crate) fn lay_out(
    names: &[Vec<u8>],
    reach: &[Reach],
    map: &[Mapped],
    page_bytes: u64,
) -> Result<Vec<TraceFile>, Failure> {
    if let Some(mapped) = map.iter().find(|mapped| !names.contains(&mapped.name)) {
        let files = if names.is_empty() {
            "the trace names no files: fio's iolog does".to_owned()
        } else {
            let first = names.iter().take(NAMES_MAX).map(|name| shown(name)).collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(NAMES_MAX);
            format!("the trace names {first}{}", if more > 0 { format!(" and {more} more") } else { String::new() })
        };
        return Err(Failure::usage(format!("--map {}={}: {files}", shown(&mapped.name), mapped.offset)));
    }
    let mut next = 0_u64;
    let place = |(number, name): (usize, &Vec<u8>)| {
        let bytes = reach.get(number).map_or(0, |reach| reach.end);
        let offset = map.iter().find(|mapped| mapped.name == *name).map_or(next, |mapped| mapped.offset);
        let end = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page_bytes));
        next = end.with_context(|| format!("`{}` at {offset} with {bytes} bytes reaches beyond 2^64", shown(name)))?;
        Ok(TraceFile { name: name.clone(), offset, bytes })
    };
    names.iter().enumerate().map(place).collect::<Result<_, _>>().map_err(|error: anyhow::Error| anyhow!(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(text: &str) -> Result<Mapped, String> {
        Mapped::parse(OsStr::new(text))
    }

    fn reach(end: u64) -> Reach {
        Reach { first: Some(0), end }
    }

    #[test]
    fn files_lie_one_after_the_other_or_where_the_user_wants() {
        let names = [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
        let reaches = [reach(5000), reach(0), reach(1)];
        let offsets = |map: &[Mapped]| {
            lay_out(&names, &reaches, map, 4096).unwrap().iter().map(|file| file.offset).collect::<Vec<_>>()
        };
        assert_eq!(offsets(&[]), [0, 8192, 8192]);
        assert_eq!(offsets(&[mapped("b=1MiB").unwrap()])[1], 1 << 20);
        assert!(
            lay_out(&names, &reaches, &[mapped("d=0").unwrap()], 4096).unwrap_err().to_string().contains("a, b, c")
        );
        let far = Reach { first: Some(0), end: u64::MAX };
        assert!(lay_out(&names, &[far, far], &[], 4096).unwrap_err().to_string().contains("beyond 2^64"));
    }

    #[test]
    fn mapped_files_parse() {
        assert_eq!(mapped("a=b=64k"), Ok(Mapped { name: b"a=b".to_vec(), offset: 65_536 }));
        let latin = Mapped::parse(OsStr::from_bytes(b"caf\xe9=0")).unwrap();
        assert_eq!((&latin.name[..], shown(&latin.name).as_str()), (&b"caf\xe9"[..], "caf\\xe9"));
        for bad in ["", "a", "=1", "a=", "a=x"] {
            assert!(mapped(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_left_out_is_said() {
        assert_eq!(Skipped::default().to_text(), None);
        let skipped = Skipped { writes: 1, trims: 2, ..Skipped::default() };
        assert_eq!(skipped.to_text().unwrap(), "1 write, 2 trims");
        let skipped = Skipped { elsewhere: 3, ..Skipped::default() };
        assert_eq!(skipped.to_text().unwrap(), "3 operations on files not in --map");
    }
}
