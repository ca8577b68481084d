//! Reads the lines of a trace, with their numbers. The input may contain any bytes, because names
//! of files may.

use std::fmt;
use std::io::{BufRead, Read};

use anyhow::{Context, bail};

/// The maximum length of a line; a longer one is an error. Without this limit, a file without line
/// ends would be read into memory as a whole.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The error for a trace whose lines end in a carriage return alone. Without this check, only the
/// first line would be replayed.
pub(crate) const LONE_CR: &str =
    "a carriage return within the line: if lines end in it alone, make them lines on the way (tr '\\r' '\\n')";

/// The first bytes of compressed files, and the programs that unpack them.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "zcat"), (b"\x28\xb5\x2f\xfd", "zstdcat"), (b"\xfd7zXZ", "xzcat"), (b"BZh", "bzcat")];

/// Where a line is: `name:number`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    name: &'a str,
    /// Counted from 1.
    pub(crate) number: u64,
    /// Bytes up to the end of the line.
    pub(crate) bytes: u64,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.number)
    }
}

/// The text of a trace.
pub(crate) struct TraceText<'a, R> {
    input: R,
    name: &'a str,
    line: Vec<u8>,
    number: u64,
    bytes: u64,
}

impl<'a, R: BufRead> TraceText<'a, R> {
    /// Creates a reader of the lines of `input`, which messages call `name`.
    pub(crate) fn new(input: R, name: &'a str) -> Self {
        Self { input, name, line: Vec::new(), number: 0, bytes: 0 }
    }

    /// Returns the next line that is neither empty nor a `#` comment, without white space around
    /// it, and its place. While `goes_on` returns true for the text so far, the record continues,
    /// and the next line is appended. The place is that of the first line.
    ///
    /// # Errors
    /// Errors of the system, and a record that is too long.
    pub(crate) fn next(&mut self, goes_on: impl Fn(&[u8]) -> bool) -> anyhow::Result<Option<(&[u8], Place<'a>)>> {
        self.line.clear();
        while self.read_line()? {
            let skip = self.line.iter().find(|byte| !byte.is_ascii_whitespace()).is_none_or(|&byte| byte == b'#');
            if skip {
                self.line.clear();
                continue;
            }
            let number = self.number;
            while goes_on(&self.line) && self.read_line()? {}
            let place = Place { name: self.name, number, bytes: self.bytes };
            return Ok(Some((self.line.trim_ascii(), place)));
        }
        Ok(None)
    }

    /// Appends a line to `self.line`. Returns false at the end of the input.
    fn read_line(&mut self) -> anyhow::Result<bool> {
        let mut bounded = self.input.by_ref().take((LINE_BYTES_MAX + 1 - self.line.len()) as u64);
        let n =
            bounded.read_until(b'\n', &mut self.line).with_context(|| format!("can't read the trace {}", self.name))?;
        self.number += 1;
        self.bytes += n as u64;
        if self.number == 1 {
            self.look_at_start()?;
        }
        if self.line.len() > LINE_BYTES_MAX {
            bail!("{}:{}: longer than {LINE_BYTES_MAX} bytes; is this a trace?", self.name, self.number);
        }
        Ok(n > 0)
    }

    /// Fails, and says what to do, if the trace is compressed or its lines end in carriage returns.
    /// Drops a byte order mark.
    fn look_at_start(&mut self) -> anyhow::Result<()> {
        if let Some((_, tool)) = COMPRESSED.iter().find(|(magic, _)| self.line.starts_with(magic)) {
            bail!("{}: compressed; unpack it on the way: {tool} {0} | pagefold replay --trace -", self.name);
        }
        if self.line.starts_with(b"\xef\xbb\xbf") {
            self.line.drain(..3);
        }
        // If the lines of a trace end in a carriage return alone, the whole trace looks like one
        // line: a comment, or a line that is too long. So this check comes before those for
        // comments and for length. It ignores a line with quotes, because a quoted field may
        // contain a carriage return.
        if self.line.trim_ascii().contains(&b'\r') && !self.line.contains(&b'"') {
            bail!("{}: {LONE_CR}", self.name);
        }
        Ok(())
    }
}

/// Returns a line as text.
///
/// # Errors
/// The line isn't UTF-8, or has control characters. Names from the trace appear in tables and
/// messages, where control characters could control a terminal. Line ends are allowed, because a
/// record may contain them.
pub(crate) fn as_text(line: &[u8]) -> anyhow::Result<&str> {
    let Ok(text) = std::str::from_utf8(line) else { bail!("not text in UTF-8") };
    if text.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\r' | '\n')) {
        bail!("not text: it contains control characters");
    }
    Ok(text)
}

/// Returns bytes as printable text. Bytes that aren't UTF-8, and control characters, are escaped,
/// as in `caf\xe9`.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Result<Vec<(String, u64)>, String> {
        let mut text = TraceText::new(text, "t");
        let mut lines = Vec::new();
        while let Some((line, place)) = text.next(|_| false).map_err(|error| format!("{error:#}"))? {
            lines.push((as_text(line).map_err(|error| format!("{place}: {error}"))?.to_owned(), place.number));
        }
        Ok(lines)
    }

    #[test]
    fn comments_and_empty_lines_count_but_do_not_come() {
        let found = lines(b"\xef\xbb\xbf# head\n\n  a b \r\n\t# more\nlast").unwrap();
        assert_eq!(found, [("a b".to_owned(), 3), ("last".to_owned(), 5)]);
    }

    #[test]
    fn a_line_may_go_on_in_the_next_ones() {
        let mut text = TraceText::new(&b"a(\n# b\n)\nc\nd(\n"[..], "t");
        let mut next = || {
            let goes_on = |line: &[u8]| line.contains(&b'(') && !line.contains(&b')');
            text.next(goes_on).unwrap().map(|(line, place)| (line.to_owned(), place.number))
        };
        let expected = [(&b"a(\n# b\n)"[..], 1), (b"c", 4), (b"d(", 5)];
        for (line, number) in expected {
            assert_eq!(next(), Some((line.to_owned(), number)));
        }
        assert_eq!(next(), None);
    }

    #[test]
    fn what_is_no_text_is_said_to_be_none() {
        assert_eq!(lines(b"a\n\xff\xfe\n").unwrap_err(), "t:2: not text in UTF-8");
        assert_eq!(lines(b"r,0,1,\x1b[2Jx\n").unwrap_err(), "t:1: not text: it contains control characters");
        assert!(lines(b"\x1f\x8b\x08\x00").unwrap_err().contains("zcat t |"));
        assert_eq!(shown(b"caf\xe9 \x1b[2J \xc3\xa9"), "caf\\xe9 \\u{1b}[2J é");
        for one_line in ["# head\rr,0,1\r".to_owned(), "r,0,1\r".repeat(20_000)] {
            assert!(lines(one_line.as_bytes()).unwrap_err().contains("carriage return"));
        }
        assert!(lines(&[b'0'; 100_000]).unwrap_err().starts_with("t:1: longer than"));
    }
}
