//! What no lane reaches, and why.

use std::fs;

use super::places::Kind;
use crate::workspace::root;

/// The file of exceptions, one in a line: `KIND NAME: REASON`.
pub(super) const FILE: &str = "xtask/unreached.txt";

pub(super) struct Exceptions(Vec<(Kind, String, String)>);

impl Exceptions {
    pub(super) fn read() -> Result<Self, String> {
        let text = fs::read_to_string(root().join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let parsed = lines.map(|(at, line)| {
            let parts =
                line.split_once(' ').and_then(|(kind, rest)| Some((Kind::named(kind)?, rest.split_once(": ")?)));
            let (kind, (name, reason)) =
                parts.ok_or_else(|| format!("{FILE}:{}: isn't `KIND NAME: REASON`", at + 1))?;
            Ok((kind, name.to_owned(), reason.to_owned()))
        });
        parsed.collect::<Result<_, String>>().map(Self)
    }

    pub(super) fn reason(&self, kind: Kind, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, other, _)| *of == kind && other == name).map(|(_, _, reason)| &**reason)
    }

    pub(super) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(of, ..)| *of == kind).map(|(_, name, _)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_reason_is_an_error() {
        let good = Exceptions::parse("# why\n\nfunction io::a: can't be\nerror E::B: never\n")
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(good.reason(Kind::Function, "io::a"), Some("can't be"));
        assert_eq!(good.reason(Kind::Error, "io::a"), None);
        for bad in ["function io::a", "thing x: y", "function"] {
            assert!(Exceptions::parse(bad).is_err(), "{bad}");
        }
    }
}
