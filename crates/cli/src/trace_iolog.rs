//! Parses fio's `iolog`, versions 2 and 3, which `fio --write_iolog` writes.
//!
//! The first line contains the version. Each following line is an action on a file, `name action
//! [offset length]`, with a timestamp before it in version 3. If several jobs wrote to one log, the
//! log contains the first line several times.
//!
//! fio doesn't quote file names, which may contain white space. So the parser starts at the right
//! end of a line, where the other fields are. Names may be any bytes, not only UTF-8.

use std::collections::HashMap;

use anyhow::{Context, bail};

use crate::trace_files::Skipped;
use crate::trace_request::{Line, Op};
use crate::trace_text::shown;

/// The beginning and the end of the first line.
const HEADER: (&[u8], &[u8]) = (b"fio version ", b" iolog");

/// The shape of a line, for messages.
const SHAPE: &str = "[timestamp] file action [offset length]";

/// The state of parsing a log.
#[derive(Debug, Default)]
pub(crate) struct Iolog {
    /// 2 or 3; 0 before the first line.
    version: u32,
    /// Names of the files, in the order of their first lines.
    files: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, usize>,
    /// If there are any entries, operations on other files are left out.
    wanted: Vec<Vec<u8>>,
    skipped: Skipped,
}

/// Returns whether a trace that begins with `line` is a log of fio.
pub(crate) fn is_header(line: &[u8]) -> bool {
    line.starts_with(HEADER.0) && line.ends_with(HEADER.1)
}

impl Iolog {
    /// Creates a parser that keeps operations on the files `wanted`, or on all files if `wanted` is
    /// empty.
    pub(crate) fn new(wanted: Vec<Vec<u8>>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Returns the number of operations left out so far.
    pub(crate) fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Returns the names of all files so far, including those that are left out.
    pub(crate) fn files(&self) -> &[Vec<u8>] {
        &self.files
    }

    /// Returns the request of a line; `None` if the line isn't a read, write or sync.
    ///
    /// # Errors
    /// What is wrong with the line; the caller adds its number.
    pub(crate) fn parse(&mut self, line: &[u8]) -> anyhow::Result<Option<Line<'static>>> {
        if is_header(line) {
            self.version = match line {
                b"fio version 2 iolog" => 2,
                b"fio version 3 iolog" => 3,
                _ => bail!("`{}`: versions 2 and 3 of fio's iolog are known", shown(line)),
            };
            return Ok(None);
        }
        let rest = match self.version {
            0 => bail!("no iolog of fio: its first line would be `fio version 2 iolog` or `fio version 3 iolog`"),
            2 => line,
            _ => without_timestamp(line)?,
        };
        let Action { file: name, action, range } = split(rest)?;
        let op = match (action, range.is_some()) {
            (b"add" | b"open" | b"close", false) => None,
            (b"read", true) => Some(Op::Read),
            (b"write", true) => Some(Op::Write),
            // In fio's logs, a sync is of the whole file. Its offset is that of the write before
            // it.
            (b"sync" | b"datasync" | b"sync_file_range" | b"syncfs", true) => Some(Op::Sync),
            (b"trim" | b"wait", true) => None,
            _ => bail!(
                "action `{}`{}: expected add, open or close, or with offset and length read, write, sync, \
                 datasync, sync_file_range, syncfs, trim or wait",
                shown(action),
                if range.is_some() { " with offset and length" } else { "" }
            ),
        };
        let file = self.number(name);
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted == name) {
            self.skipped.elsewhere += u64::from(range.is_some());
            return Ok(None);
        }
        match action {
            b"trim" => self.skipped.trims += 1,
            b"wait" => self.skipped.waits += 1,
            _ => {}
        }
        let (offset, len) = range.filter(|_| op != Some(Op::Sync)).unwrap_or((0, 0));
        Ok(op.map(|op| Line { op, offset, len, group: None, thread: None, file }))
    }

    fn number(&mut self, name: &[u8]) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        self.files.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }
}

fn without_timestamp(line: &[u8]) -> anyhow::Result<&[u8]> {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (timestamp, rest) = line.split_at(end);
    if number(timestamp).is_none() {
        bail!("`{}` isn't a timestamp: expected {}", shown(timestamp), SHAPE.replace(['[', ']'], ""));
    }
    Ok(rest.trim_ascii_start())
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The parts of a line.
struct Action<'a> {
    file: &'a [u8],
    action: &'a [u8],
    /// Offset and length, if the line ends with numbers.
    range: Option<(u64, u64)>,
}

fn split(line: &[u8]) -> anyhow::Result<Action<'_>> {
    let (rest, last) = last_field(line)?;
    if !last.first().is_some_and(|&byte| byte.is_ascii_digit() || byte == b'-') {
        return Ok(Action { file: rest, action: last, range: None });
    }
    let (rest, offset) = last_field(rest)?;
    let (file, action) = last_field(rest)?;
    let bytes = |what, text: &[u8]| {
        number(text).with_context(|| format!("{what} `{}` isn't a number of bytes: expected {SHAPE}", shown(text)))
    };
    Ok(Action { file, action, range: Some((bytes("offset", offset)?, bytes("length", last)?)) })
}

fn last_field(text: &[u8]) -> anyhow::Result<(&[u8], &[u8])> {
    let Some(blank) = text.iter().rposition(u8::is_ascii_whitespace) else { bail!("too short: expected {SHAPE}") };
    Ok((text[..blank].trim_ascii_end(), &text[blank + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operation, offset, length, number of the file.
    type Found = (Op, u64, u64, usize);

    fn parse(text: &str) -> Result<(Vec<Found>, Iolog), String> {
        let mut log = Iolog::new(vec![]);
        let mut found = Vec::new();
        for line in text.lines() {
            let line = log.parse(line.as_bytes()).map_err(|error| format!("{error:#}"))?;
            found.extend(line.map(|line| (line.op, line.offset, line.len, line.file)));
        }
        Ok((found, log))
    }

    #[test]
    fn what_fio_wrote_is_read() {
        let (found, log) = parse(
            "fio version 3 iolog\n34 one.dat add\n39 two.dat add\n170 one.dat open\n175 one.dat read 1536 1674\n\
             574 two.dat write 15360 2067\n833 one.dat datasync 11264 0\n8216 two.dat sync_file_range 20480 0\n\
             9000 one.dat trim 0 4096\n11922 one.dat close",
        )
        .unwrap();
        let expected =
            [(Op::Read, 1536, 1674, 0), (Op::Write, 15_360, 2067, 1), (Op::Sync, 0, 0, 0), (Op::Sync, 0, 0, 1)];
        assert_eq!(found, expected);
        assert_eq!((log.files(), log.skipped().trims), (&[b"one.dat".to_vec(), b"two.dat".to_vec()][..], 1));
    }

    #[test]
    fn version_2_has_waits_and_no_timestamps() {
        let (found, log) =
            parse("fio version 2 iolog\n/a add\n/a open\n/a read 0 4096\n/a wait 100 0\n/a sync 0 0").unwrap();
        assert_eq!(found, [(Op::Read, 0, 4096, 0), (Op::Sync, 0, 0, 0)]);
        assert_eq!(log.skipped().waits, 1);
    }

    #[test]
    fn names_have_blanks_and_logs_are_put_together() {
        let (found, log) = parse("fio version 3 iolog\n1 my file read 0 1\nfio version 2 iolog\nb read 7 1").unwrap();
        assert_eq!(found, [(Op::Read, 0, 1, 0), (Op::Read, 7, 1, 1)]);
        assert_eq!(log.files(), [b"my file".to_vec(), b"b".to_vec()]);
    }

    #[test]
    fn files_that_nobody_wants_are_left_out() {
        let mut log = Iolog::new(vec![b"b".to_vec()]);
        let lines = ["fio version 2 iolog", "a add", "b add", "a read 0 1", "b read 7 1", "a trim 0 1"];
        let found: Vec<_> = lines.into_iter().filter_map(|line| log.parse(line.as_bytes()).unwrap()).collect();
        assert_eq!(found.iter().map(|line| (line.offset, line.file)).collect::<Vec<_>>(), [(7, 1)]);
        assert_eq!(log.skipped(), Skipped { elsewhere: 2, ..Skipped::default() });
    }

    #[test]
    fn lines_that_do_not_parse() {
        for (bad, message) in [
            ("a read 0 1", "`a` isn't a timestamp: expected timestamp file action"),
            ("1 a read 0", "too short"),
            ("1", "too short: expected [timestamp] file"),
            ("1 a read zero 1", "offset `zero`"),
            ("1 a read 0 -1", "length `-1`"),
            ("1 a write 99999999999999999999 1", "offset `9999"),
            ("1 a erase 0 1", "action `erase` with offset and length: expected add"),
            ("1 a read", "action `read`: expected"),
            ("1 a open 0 1", "action `open` with offset"),
            ("fio version 4 iolog", "versions 2 and 3"),
        ] {
            let error = parse(&format!("fio version 3 iolog\n{bad}")).unwrap_err();
            assert!(error.contains(message), "{bad}: {error}");
        }
        assert!(parse("1 a read 0 1").unwrap_err().contains("first line would be"));
    }
}
