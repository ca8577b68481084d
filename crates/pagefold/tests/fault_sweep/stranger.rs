//! Another process, the Meddler, that changes the file's length once, right before a chosen call to
//! the backend.

use std::path::Path;

use pagefold::io::{Access, Backend, IoError, write_full};
use sync::lock::Mutex;
use sync::{Arc, SharedBytes};
use test_disks::{Call, SimulatedDisk};

use crate::support::around::Around;
use crate::support::{bytes_on, version};

/// The version of the bytes that the Meddler appends.
const NUMBER: u64 = 1_000;

/// What the Meddler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Append(usize),
    /// Cuts off this many bytes.
    CutBy(u64),
    /// Cuts off the last page, or the file's part of it.
    CutPage,
    CutAll,
    /// Cuts off everything, and appends this many bytes.
    Replace(usize),
}

/// What the Meddler did.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    /// The length to which the file was cut off, and the bytes that were cut off.
    pub(crate) cut: Option<(usize, Vec<u8>)>,
    /// The appended bytes, and where they are.
    appended: Option<(usize, Vec<u8>)>,
}

impl Deed {
    /// What `content`, as Pagefold knew it, becomes with this deed. Empty if Pagefold can't have
    /// known this content then.
    pub(crate) fn results(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let Some((to, gone)) = &self.cut else {
            let (at, bytes) = self.appended.as_ref().expect("a deed is a cut, an append, or both");
            // Where both have written, Pagefold's write-back overwrites the Meddler's bytes.
            let rest = content.len().checked_sub(*at).map(|own| bytes.get(own..).unwrap_or_default());
            return rest.map(|rest| [content, rest].concat()).into_iter().collect();
        };
        let left = content[..content.len().min(*to)].to_vec();
        match &self.appended {
            None => vec![left],
            // The new bytes; or the old ones, if they were in memory when the Meddler overwrote
            // them.
            Some((_, bytes)) => {
                assert!(gone.len() > bytes.len(), "else the cut isn't noticed");
                vec![[&left, &bytes[..]].concat(), content[..content.len().min(to + bytes.len())].to_vec()]
            }
        }
    }

    /// Whether the Meddler cut off bytes of `content` that weren't in the file at that time.
    pub(crate) fn lost(&self, content: &[u8]) -> bool {
        self.cut.as_ref().is_some_and(|(to, gone)| !gone.starts_with(content.get(*to..).unwrap_or_default()))
    }
}

/// Acts right before call number `at`, counted from the start of the run.
#[derive(Clone)]
pub(crate) struct Meddler(Arc<Mutex<State>>);

struct State {
    disk: SimulatedDisk,
    plan: Plan,
    at: u64,
    calls: u64,
    /// It acts only then.
    is_let: bool,
    deed: Option<Deed>,
    /// The length to which the Meddler set the file, until Pagefold asks for the length.
    unknown_len: Option<u64>,
    is_hidden: bool,
}

impl Meddler {
    pub(crate) fn new(disk: &SimulatedDisk, plan: Plan) -> Self {
        let state = State {
            disk: disk.clone(),
            plan,
            at: 0,
            calls: 0,
            is_let: false,
            deed: None,
            unknown_len: None,
            is_hidden: false,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Counts calls from now on.
    pub(crate) fn act_at(&self, at: u64) {
        let mut state = self.0.lock();
        (state.at, state.calls) = (at, 0);
    }

    pub(crate) fn is_let(&self, is_let: bool) {
        self.0.lock().is_let = is_let;
    }

    /// Whether the call has been made.
    pub(crate) fn had_its_turn(&self) -> bool {
        let state = self.0.lock();
        state.calls >= state.at
    }

    pub(crate) fn has_acted(&self) -> bool {
        self.0.lock().deed.is_some()
    }

    pub(crate) fn deed(&self) -> Option<Deed> {
        self.0.lock().deed.clone()
    }

    /// Whether the file became longer than the Meddler left it, before Pagefold asked for its
    /// length. Pagefold can't notice such a cut.
    pub(crate) fn is_hidden(&self) -> bool {
        self.0.lock().is_hidden
    }
}

impl State {
    fn meddle(&mut self) {
        let before = bytes_on(&self.disk, "new");
        let len = before.len();
        let to = match self.plan {
            Plan::Append(_) => len,
            Plan::CutBy(by) => len.saturating_sub(by as usize),
            Plan::CutPage => len.saturating_sub(1) / 4096 * 4096,
            Plan::CutAll | Plan::Replace(_) => 0,
        };
        let appended = match self.plan {
            Plan::Append(by) => Some((to, version(NUMBER, to as u64, by))),
            // Unless the file is shorter in the end, Pagefold can't notice the cut.
            Plan::Replace(by) if by < len => Some((to, version(NUMBER, to as u64, by))),
            _ => None,
        };
        let cut = (to < len).then(|| (to, before[to..].to_vec()));
        if cut.is_none() && appended.is_none() {
            return;
        }
        self.disk.truncate("new", to as u64).unwrap();
        if let Some((at, bytes)) = &appended {
            append(&self.disk, &before[at / 4096 * 4096..*at], bytes, at / 4096 * 4096);
        }
        let len = to + appended.as_ref().map_or(0, |(_, bytes)| bytes.len());
        (self.unknown_len, self.deed) = (Some(len as u64), Some(Deed { cut, appended }));
    }
}

/// Appends `bytes`. Writes whole pages, so it also writes `before`, the bytes before them in the
/// same page.
fn append(disk: &SimulatedDisk, before: &[u8], bytes: &[u8], at: usize) {
    let mut pages = [before, bytes].concat();
    let len = pages.len();
    pages.resize(len.next_multiple_of(4096), 0);
    let file = disk.open(Path::new("new"), Access::Write).unwrap();
    write_full(&*file, at as u64, &[SharedBytes::of(&mut pages).unwrap()], len).unwrap();
}

impl Around for Meddler {
    fn before(&self, call: Call) -> Result<(), IoError> {
        let mut state = self.0.lock();
        state.calls += 1;
        if state.calls == state.at && state.is_let {
            state.meddle();
        }
        if let Some(len) = state.unknown_len {
            let now = state.disk.open(Path::new("new"), Access::Read)?.len()?;
            state.is_hidden |= now > len;
            state.unknown_len = Some(len).filter(|_| call != Call::Len && !state.is_hidden);
        }
        Ok(())
    }
}
