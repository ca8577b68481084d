//! Values of options that are more than a number: groups with their limits, backends, swap areas.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use pagefold::io::ThreadPool;
use pagefold::{Advice, Placement};

use crate::temp_file::free_bytes;
use crate::units::{bytes, parse_positive_size};

/// More groups than this are taken for a mistake.
pub(crate) const GROUPS_MAX: usize = 1024;

/// The value of `--groups`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Groups {
    /// This many groups, with equal parts of the budget.
    Count(usize),
    /// Groups with these names, and their limits in bytes.
    Named(Vec<(String, u64)>),
}

impl FromStr for Groups {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(count) = text.trim().parse::<usize>() {
            let in_range = (1..=GROUPS_MAX).contains(&count);
            return if in_range { Ok(Self::Count(count)) } else { Err(format!("must be from 1 to {GROUPS_MAX}")) };
        }
        let mut named: Vec<(String, u64)> = Vec::new();
        for part in text.split(',') {
            let Some((name, limit)) = part.split_once('=') else {
                return Err(format!("`{part}` is neither a number of groups nor a limit, as in a=64MiB,b=32MiB"));
            };
            let name = name.trim();
            if name.contains(char::is_control) {
                return Err("a name contains control characters".to_owned());
            }
            if name.is_empty() {
                return Err(format!("`{part}` has no name, as in a=64MiB"));
            }
            if named.iter().any(|(other, _)| other == name) {
                return Err(format!("`{name}` is named twice"));
            }
            let limit = parse_positive_size(limit).map_err(|error| format!("limit of `{name}`: {error}"))?;
            named.push((name.to_owned(), limit));
        }
        if named.len() > GROUPS_MAX {
            return Err(format!("more than {GROUPS_MAX} groups"));
        }
        Ok(Self::Named(named))
    }
}

/// The value of `--advise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Advised {
    /// In no order: nothing is read ahead
    Random,
    /// From front to back, once
    Sequential,
    /// Nothing is said
    Normal,
}

impl Advised {
    pub(crate) fn advice(self) -> Advice {
        match self {
            Self::Random => Advice::Random,
            Self::Sequential => Advice::Sequential,
            Self::Normal => Advice::Normal,
        }
    }

    /// Returns the word of the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::Normal => "normal",
        }
    }
}

/// The value of `--swap-placement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SwapPlacement {
    /// Each CPU has a cluster of its own
    PerCpu,
    /// One after the other, for disks that seek
    Sequential,
}

impl From<SwapPlacement> for Placement {
    fn from(chosen: SwapPlacement) -> Self {
        match chosen {
            SwapPlacement::PerCpu => Self::PerCpu,
            SwapPlacement::Sequential => Self::Sequential,
        }
    }
}

/// What all areas of `--swap` have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SwapOptions {
    pub(crate) encrypted: bool,
    /// `None` leaves the choice to the library.
    pub(crate) placement: Option<Placement>,
}

/// The value of `--backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendChoice {
    /// The best backend that the machine supports.
    Auto,
    Uring,
    Threads {
        threads: usize,
    },
    Posix,
    Direct,
    Buffered,
    /// With room for the file to grow by this many bytes.
    Simulated {
        capacity: Option<u64>,
    },
}

impl BackendChoice {
    const THREADS_MAX: usize = 256;
}

impl FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, detail) = match text.split_once(':') {
            Some((name, detail)) => (name, Some(detail)),
            None => (text, None),
        };
        match (name, detail) {
            ("auto", None) => Ok(Self::Auto),
            ("uring", None) => Ok(Self::Uring),
            ("posix", None) => Ok(Self::Posix),
            ("direct", None) => Ok(Self::Direct),
            ("buffered", None) => Ok(Self::Buffered),
            ("simulated", None) => Ok(Self::Simulated { capacity: None }),
            ("simulated", Some(capacity)) => {
                let capacity = parse_positive_size(capacity).map_err(|error| format!("capacity: {error}"))?;
                Ok(Self::Simulated { capacity: Some(capacity) })
            }
            ("threads", None) => Ok(Self::Threads { threads: ThreadPool::THREADS_DEFAULT }),
            ("threads", Some(threads)) => match threads.parse() {
                Ok(threads) if (1..=Self::THREADS_MAX).contains(&threads) => Ok(Self::Threads { threads }),
                _ => Err(format!("`{threads}` isn't a number of threads from 1 to {}", Self::THREADS_MAX)),
            },
            _ => Err("expected auto, uring, threads[:N], posix, direct, buffered or simulated[:CAPACITY]".to_owned()),
        }
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Uring => f.write_str("uring"),
            Self::Threads { threads } => write!(f, "threads:{threads}"),
            Self::Posix => f.write_str("posix"),
            Self::Direct => f.write_str("direct"),
            Self::Buffered => f.write_str("buffered"),
            Self::Simulated { capacity: None } => f.write_str("simulated"),
            Self::Simulated { capacity: Some(bytes) } => write!(f, "simulated:{bytes}"),
        }
    }
}

/// A swap area: `FILE:SIZE`, or `memory` or `compressed` for `FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwapChoice {
    path: PathBuf,
    bytes: u64,
}

impl SwapChoice {
    pub(crate) fn area(&self, options: SwapOptions) -> pagefold::SwapArea {
        let (area, placement) = match self.path.to_str() {
            Some("memory") => (pagefold::SwapArea::memory(self.bytes), options.placement),
            Some("compressed") => (pagefold::SwapArea::compressed(self.bytes), None),
            _ => (pagefold::SwapArea::unlinked(&self.path, self.bytes), options.placement),
        };
        let area = if options.encrypted { area.encrypted() } else { area };
        placement.into_iter().fold(area, pagefold::SwapArea::placement)
    }

    /// Returns a warning if the swap file's file system lacks room for the file at present. `None`
    /// for areas in memory.
    pub(crate) fn lacks_room(&self) -> Option<String> {
        let path = &*self.path;
        if ["memory", "compressed"].map(Path::new).contains(&path) {
            return None;
        }
        let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let room = free_bytes(if path.is_dir() { path } else { parent })?;
        (room < self.bytes).then(|| {
            let [wanted, room] = [self.bytes, room].map(bytes);
            format!("the swap file in {} may become {wanted}, and there is room for {room}", path.display())
        })
    }
}

/// The value of `--swap`: a list of areas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwapChoices(pub(crate) Vec<SwapChoice>);

impl SwapChoices {
    /// Parses `FILE:SIZE,…`. A comma that doesn't follow a size is part of a file's name; names may
    /// consist of any bytes.
    ///
    /// # Errors
    /// What is wrong with the list.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, String> {
        let (mut areas, mut area) = (Vec::new(), Vec::new());
        let mut wrong = "it has to be FILE:SIZE or compressed:SIZE".to_owned();
        for part in text.as_bytes().split(|&byte| byte == b',') {
            area.extend_from_slice(part);
            match SwapChoice::parse(&area) {
                Ok(choice) => {
                    areas.push(choice);
                    area.clear();
                    continue;
                }
                Err(error) => wrong = error,
            }
            area.push(b',');
        }
        if area.is_empty() { Ok(Self(areas)) } else { Err(wrong) }
    }
}

impl SwapChoice {
    fn parse(text: &[u8]) -> Result<Self, String> {
        let colon = text.iter().rposition(|&byte| byte == b':').filter(|&at| at > 0);
        let (path, size) =
            colon.map(|at| (&text[..at], &text[at + 1..])).ok_or("it has to be FILE:SIZE or compressed:SIZE")?;
        let bytes = parse_positive_size(&String::from_utf8_lossy(size))?;
        Ok(Self { path: OsStr::from_bytes(path).into(), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_parse() {
        assert_eq!("4".parse(), Ok(Groups::Count(4)));
        let named = Groups::Named(vec![("a".to_owned(), 64 << 20), ("b".to_owned(), 4096)]);
        assert_eq!("a=64MiB, b=4096".parse(), Ok(named));
        for bad in
            ["", "0", "1025", "-1", "a", "a=", "=1MiB", "a=1MiB,", "a=1MiB,a=2MiB", "a=0", "a=1 parsec", "\u{1b}=1MiB"]
        {
            assert!(bad.parse::<Groups>().is_err(), "{bad}");
        }
    }

    #[test]
    fn swap_areas_are_listed_and_their_files_may_have_any_name() {
        let parse = |text: &[u8]| SwapChoices::parse(OsStr::from_bytes(text)).map(|list| list.0);
        let area = |path: &[u8], bytes| SwapChoice { path: OsStr::from_bytes(path).into(), bytes };
        assert_eq!(parse(b"compressed:64MiB,/a:2GiB"), Ok(vec![area(b"compressed", 64 << 20), area(b"/a", 2 << 30)]));
        assert_eq!(parse(b"/a, b:c/caf\xe9:4096"), Ok(vec![area(b"/a, b:c/caf\xe9", 4096)]));
        for bad in [&b""[..], b"/a", b":1MiB", b"/a:", b"/a:0", b"/a:1MiB,", b"/a:1MiB,/b", b"/a:1 parsec"] {
            assert!(parse(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn backends_parse_and_print() {
        for text in ["auto", "uring", "threads:3", "posix", "direct", "buffered", "simulated", "simulated:4096"] {
            assert_eq!(text.parse::<BackendChoice>().unwrap().to_string(), text);
        }
        assert_eq!("threads".parse(), Ok(BackendChoice::Threads { threads: 32 }));
        for bad in [
            "",
            "disk",
            "posix:1",
            "uring:1",
            "threads:",
            "threads:0",
            "threads:257",
            "threads:x",
            "simulated:",
            "simulated:0",
        ] {
            assert!(bad.parse::<BackendChoice>().is_err(), "{bad}");
        }
    }
}
