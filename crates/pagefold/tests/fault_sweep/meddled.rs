//! A file that Pagefold writes and reads while another process makes it longer or cuts it off:
//! once, right before call 1 to the backend in the first run, before call 2 in the second, and so
//! on. In some runs the next call, or all later calls, fail.
//!
//! The test keeps a list of whole contents (`worlds`), each of which the file may have. Each read
//! and each sync must find one of them. Other contents are allowed only where the documentation
//! says so:
//!
//! - after a cut that Pagefold can't notice (*hidden*), because a write in flight, or a change of
//!   the length, made the file longer again before Pagefold asked for its length;
//! - after the last handle was dropped while the device failed.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pagefold::io::IoError;
use pagefold::{Error, File, Group, PageRef};
use sync::atomic::{AtomicU64, Ordering};
use test_disks::{Fault, FaultyBackend, Schedule, SimulatedDisk};

use crate::steps::Step::{Change, Forget, SetLen, Sync, SyncRange, Write};
use crate::steps::{Piece, Step};
use crate::stranger::{Deed, Meddler, Plan};
use crate::support::around::Wrapped;
use crate::support::{bytes_on, disk, manager};
use crate::worlds::Worlds;
use crate::writer::sync_in_peace;
use crate::{FIRED, print_injected, side_by_side};

const PLANS: [Plan; 7] = [
    Plan::Append(100),
    Plan::Append(5_000),
    Plan::CutBy(100),
    Plan::CutBy(5_000),
    Plan::CutPage,
    Plan::CutAll,
    Plan::Replace(100),
];

/// How the device fails when the Meddler has acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// The next call fails.
    Once,
    /// All calls fail, until an act has failed.
    Lasting,
}

/// A step of the scenario.
#[derive(Clone, Copy)]
enum Act {
    Do(Step),
    /// Reads the whole file.
    Read,
    ReadAsync,
    /// Pins a page until `Unpin`. Does nothing in runs without pins.
    Pin(u64),
    Unpin,
    /// Drops the last handle, and opens the file again.
    Reopen,
}

/// Pages are pinned only during acts that needn't wait for them.
const ACTS: [Act; 47] = [
    Act::Do(Write(0, 6 * 4096 + 300)),
    Act::Pin(6),
    Act::Do(Sync),
    Act::Do(Forget),
    Act::Read,
    Act::Unpin,
    Act::Do(Write(6 * 4096 + 100, 300)),
    Act::Pin(6),
    Act::Do(Sync),
    Act::Do(Forget),
    Act::ReadAsync,
    Act::Unpin,
    Act::Do(Change(2)),
    Act::Do(Change(6)),
    Act::Pin(2),
    Act::Pin(6),
    Act::Do(SyncRange(2 * 4096, 4 * 4096)),
    Act::Read,
    Act::Unpin,
    Act::Do(SetLen(9 * 4096 + 77)),
    Act::Do(Write(11 * 4096 + 50, 5_000)),
    Act::Do(Write(3 * 4096 + 7, 5_000)),
    Act::Pin(12),
    Act::ReadAsync,
    Act::Do(Sync),
    Act::Unpin,
    Act::Do(Write(2 * 4096 + 5, 20)),
    Act::Do(SetLen(5 * 4096 + 100)),
    Act::Do(Write(5 * 4096 + 50, 30)),
    Act::Pin(5),
    Act::Do(Sync),
    Act::Read,
    Act::Unpin,
    Act::Do(Write(5 * 4096 + 100, 40)),
    Act::Do(SetLen(8 * 4096)),
    Act::Do(Change(5)),
    Act::Do(Forget),
    Act::Read,
    Act::Do(Write(8 * 4096, 3 * 4096 + 50)),
    Act::Do(Write(10, 10)),
    Act::Reopen,
    Act::Do(Write(9 * 4096 + 10, 4096)),
    Act::Do(Write(11 * 4096 + 40, 200)),
    Act::Do(Forget),
    Act::ReadAsync,
    Act::Do(Write(15 * 4096 + 40, 200)),
    Act::Do(Sync),
];

impl Act {
    fn pieces(self, number: u64) -> Vec<Piece> {
        if let Self::Do(step) = self { step.pieces(number) } else { Vec::new() }
    }
}

/// What an act shows.
enum Shown {
    Nothing,
    /// Bytes of the file, from `from` up to `to` or to the end of the file.
    Bytes {
        found: Vec<u8>,
        from: usize,
        to: usize,
    },
    /// The last handle was dropped, and the file was opened again. `has_failed`: the device failed
    /// when the handle was dropped.
    Reopened {
        has_failed: bool,
    },
}

/// The number of runs in which the other process acted (`ACTED`), in which calls failed
/// (`TROUBLED`), in which changes were lost (`LOST`), and in which any mixture of contents was
/// allowed in the end (`SETTLED`).
static ACTED: AtomicU64 = AtomicU64::new(0);
static TROUBLED: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static SETTLED: AtomicU64 = AtomicU64::new(0);

struct Run {
    disk: SimulatedDisk,
    faulty: FaultyBackend,
    meddler: Meddler,
    group: Group,
    /// Two handles of the file. Each of them must report lost changes once.
    files: Option<[File; 2]>,
    is_owed: [bool; 2],
    worlds: Worlds,
    has_pins: bool,
    pins: Vec<(PageRef<'static>, Vec<u8>)>,
    /// The number of faults that fired before the current act.
    fired_before: u64,
    /// How often a sync has reported a cut.
    told: u32,
}

/// One run of the scenario.
#[derive(Debug)]
struct Case {
    plan: Plan,
    trouble: Trouble,
    has_pins: bool,
    before_call: u64,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the run of {self:?}");
        }
    }
}

/// Runs a case. Returns false if the run ends before the call at which the Meddler should act.
fn meddled_scenario(case: &Case) -> bool {
    let Case { plan, trouble, has_pins, before_call: n } = *case;
    let disk = disk(0, 0);
    let meddler = Meddler::new(&disk, plan);
    let faulty = FaultyBackend::new(Wrapped::new(&disk, meddler.clone()), Schedule::Never);
    let mm = manager(256, faulty.clone());
    let group = mm.group("a").build().unwrap();
    let worlds = Worlds { contents: vec![Vec::new()], narrows: !matches!(plan, Plan::Replace(_)) };
    let (files, pins) = (Some(open(&group).unwrap()), Vec::new());
    let is_owed = [false; 2];
    let mut run =
        Run { disk, faulty, meddler, group, files, is_owed, worlds, has_pins, pins, fired_before: 0, told: 0 };
    run.meddler.act_at(n);
    run.meddler.is_let(!has_pins);
    run.faulty.set_schedule(match trouble {
        Trouble::None => Schedule::Never,
        Trouble::Once => Schedule::Once(n + 1, Fault::Errno(5)),
        Trouble::Lasting => Schedule::From(n + 1, Fault::Errno(5)),
    });
    for (number, act) in ACTS.into_iter().enumerate() {
        run.act(act, number as u64);
        if run.meddler.had_its_turn() && !run.meddler.has_acted() {
            return true; // There was nothing to do.
        }
    }
    let had_its_turn = run.meddler.had_its_turn();
    run.meddler.is_let(false);
    let fired = run.faulty.fired_total();
    FIRED.fetch_add(fired, Ordering::Relaxed);
    TROUBLED.fetch_add(u64::from(fired > 0), Ordering::Relaxed);
    run.rest();
    had_its_turn
}

fn open(group: &Group) -> Result<[File; 2], Error> {
    let open = || group.open_options().write(true).create(true).open("new");
    Ok([open()?, open()?])
}

impl Run {
    fn file(&self) -> &File {
        &self.files.as_ref().expect("open")[0]
    }

    fn act(&mut self, act: Act, number: u64) {
        self.fired_before = self.faulty.fired_total();
        let had_acted = self.meddler.has_acted();
        let on_disk = matches!(act, Act::Reopen).then(|| bytes_on(&self.disk, "new"));
        let result = self.take(act, number);
        let (pieces, is_done) = (act.pieces(number), result.is_ok());
        if had_acted || !self.meddler.has_acted() {
            if let Err(error) = &result {
                self.check_error(error, act, &self.worlds.clone());
                self.look();
            }
            if !pieces.is_empty() {
                self.worlds = self.worlds.follow(&pieces, is_done);
            }
            match result {
                Ok(Shown::Bytes { found, from, to }) => self.worlds.check(&found, "read", |content| {
                    let end = content.len().min(to);
                    &content[from.min(end)..end]
                }),
                Ok(Shown::Reopened { has_failed: true }) => {
                    self.settle(&self.worlds.clone().with(on_disk), "dropped while the device failed");
                }
                Ok(_) => self.check_disk(act, true),
                Err(_) => {}
            }
            return;
        }
        self.act_with(&self.meddler.deed().unwrap(), act, &pieces, result, on_disk);
    }

    /// Checks an act during which the Meddler acted.
    fn act_with(
        &mut self,
        deed: &Deed,
        act: Act,
        pieces: &[Piece],
        result: Result<Shown, Error>,
        on_disk: Option<Vec<u8>>,
    ) {
        ACTED.fetch_add(1, Ordering::Relaxed);
        let after = self.worlds.follow_with(deed, pieces, result.is_ok());
        let before = std::mem::replace(&mut self.worlds, after);
        assert!(!self.worlds.contents.is_empty());
        self.note_loss(deed, &before, act);
        let meddled = on_disk.iter().flat_map(|on_disk| deed.results(on_disk));
        let either = before.follow(pieces, result.is_ok()).with(self.worlds.contents.clone()).with(before.contents);
        let either = either.with(meddled).with(on_disk.clone());
        if let Err(error) = &result {
            self.check_error(error, act, &either);
        }
        self.told = 0; // A sync that was cut off has failed, but recorded no loss.
        self.look();
        // If the device fails when `set_len` asks for the length, `set_len` sets the length anyway.
        let is_set = matches!(act, Act::Do(SetLen(_))) && self.is_failing();
        if deed.cut.is_some() && (self.meddler.is_hidden() || is_set) {
            return self.settle(&either, "after a hidden cut");
        }
        match result {
            Ok(Shown::Bytes { found, from, to }) => either.check_mixed(&found, from, to, false, "read meanwhile"),
            Ok(Shown::Reopened { has_failed: true }) => self.settle(&either, "dropped while the device failed"),
            Ok(_) => self.check_disk(act, false),
            Err(_) => {}
        }
    }

    fn take(&mut self, act: Act, number: u64) -> Result<Shown, Error> {
        match act {
            Act::Do(step) => step.take(self.file(), number).map(|()| Shown::Nothing),
            Act::Read => {
                let mut found = vec![0; 20 * 4096];
                let len = self.file().read_at(&mut found, 0)?;
                found.truncate(len);
                Ok(Shown::Bytes { found, from: 0, to: usize::MAX })
            }
            Act::ReadAsync => {
                let mut found = vec![0; 20 * 4096];
                let len = block_on(self.file().read_at_async(&mut found, 0))?;
                found.truncate(len);
                Ok(Shown::Bytes { found, from: 0, to: usize::MAX })
            }
            Act::Pin(page) if self.has_pins => {
                self.meddler.is_let(true);
                let pin = self.file().page_at_owned(page * 4096)?;
                let (found, from) = (pin.to_vec(), page as usize * 4096);
                self.pins.push((pin, found.clone()));
                Ok(Shown::Bytes { found, from, to: from + 4096 })
            }
            Act::Pin(_) => Ok(Shown::Nothing),
            Act::Unpin => {
                self.unpin();
                // What was appended to the file while its last page was pinned is noticed by the
                // next read at the end.
                self.look();
                Ok(Shown::Nothing)
            }
            Act::Reopen => {
                self.files = None;
                self.is_owed = [false; 2];
                let has_failed = self.is_failing();
                let opened = open(&self.group).or_else(|error| {
                    assert!(matches!(error, Error::OpenFailed { .. }) && self.is_failing(), "{error}");
                    self.faulty.set_schedule(Schedule::Never);
                    open(&self.group)
                });
                self.files = Some(opened.expect("a fault that is over is over"));
                Ok(Shown::Reopened { has_failed })
            }
        }
    }

    /// Pinned bytes must not have changed, whatever happened to the file.
    fn unpin(&mut self) {
        for (pin, before) in self.pins.drain(..) {
            assert!(*pin == before[..], "a pinned page has changed");
        }
        if self.has_pins {
            self.meddler.is_let(false);
        }
    }

    /// Whether a call has failed during the current act.
    fn is_failing(&self) -> bool {
        self.faulty.fired_total() > self.fired_before
    }

    fn heal(&mut self) {
        self.faulty.set_schedule(Schedule::Never);
    }

    /// An error must be that of the device, or report a cut, or say that the page is past the end.
    fn check_error(&mut self, error: &Error, act: Act, worlds: &Worlds) {
        let (has_failed, deed) = (self.is_failing(), self.meddler.deed());
        let is_cut = deed.is_some_and(|deed| deed.cut.is_some());
        let is_sync = matches!(act, Act::Do(Sync | SyncRange(..)));
        match (error, act) {
            (Error::ReadFailed { error, .. } | Error::WriteFailed { error, .. }, _) if *error == IoError::IO => {
                // A sync may also report an earlier failure.
                assert!(has_failed || is_sync && self.faulty.fired_total() > 0, "{error}");
            }
            (Error::WriteFailed { error: IoError::CutOff, .. }, _) => {
                self.told += 1;
                assert!(is_cut && is_sync && self.told == 1, "told {} times: {error}", self.told);
            }
            (Error::PastEnd { .. }, Act::Do(Change(page)) | Act::Pin(page)) => {
                let is_short = |content: &Vec<u8>| content.len() as u64 <= page * 4096;
                assert!(is_cut && worlds.contents.iter().any(is_short), "{error}");
            }
            _ => panic!("{error}"),
        }
        if is_sync {
            self.is_owed[0] = false;
        }
        if has_failed {
            self.heal();
        }
    }

    /// Makes Pagefold notice what the Meddler did.
    fn look(&mut self) {
        let look = |run: &Self| run.file().read_at(&mut [0], 1 << 40);
        if let Err(error) = look(self) {
            assert!(self.is_failing(), "{error}");
            self.heal();
            assert_eq!(look(self).expect("a fault that is over is over"), 0);
        }
    }

    /// Changes that the Meddler cut off before they were in the file must be reported by both
    /// handles.
    fn note_loss(&mut self, deed: &Deed, before: &Worlds, act: Act) {
        let is_kept = match (act, &deed.cut) {
            (Act::Do(SetLen(len)), Some((to, _))) => len as usize <= *to, // They go anyway.
            (Act::Reopen, _) => true,                                     // There is no handle to tell.
            _ => false,
        };
        if !is_kept && before.contents.iter().all(|content| deed.lost(content)) {
            self.is_owed = [true; 2];
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Checks that a successful sync has put its bytes on the disk. If `is_quiet`, also checks that
    /// the handle owed no report of lost changes.
    fn check_disk(&mut self, act: Act, is_quiet: bool) {
        let (from, to) = match act {
            Act::Do(Sync) | Act::Reopen => (0, usize::MAX),
            Act::Do(SyncRange(from, to)) => (from as usize, to as usize),
            _ => return,
        };
        if is_quiet && !matches!(act, Act::Reopen) {
            assert!(!self.is_owed[0], "changes were cut off, and a sync tells nothing");
        }
        let there = bytes_on(&self.disk, "new");
        let clip = |content: &[u8]| from.min(content.len())..to.min(content.len());
        self.worlds.check(&there[clip(&there)], "on the disk", |content| &content[clip(content)]);
    }

    /// For cases in which the documentation allows each byte to be old or new: reads the file, and
    /// takes its contents as the only ones from now on.
    fn settle(&mut self, worlds: &Worlds, what: &str) {
        SETTLED.fetch_add(1, Ordering::Relaxed);
        self.unpin();
        self.heal();
        self.files.as_ref().unwrap().iter().for_each(|file| assert!(sync_in_peace(file) < 3, "{what}"));
        Forget.take(self.file(), 0).unwrap();
        let found = bytes_on(&self.disk, "new");
        worlds.check_mixed(&found, 0, usize::MAX, true, what);
        self.worlds.contents = vec![found];
        self.is_owed = [false; 2];
        self.check_read(what);
    }

    fn check_read(&mut self, what: &str) {
        let Ok(Shown::Bytes { found, .. }) = self.take(Act::Read, 0) else { panic!("{what}: can't be read") };
        self.worlds.check(&found, what, |content| content);
    }

    /// Checks at the end that memory and file have the right bytes, and that both handles have
    /// reported what was lost.
    fn rest(&mut self) {
        self.fired_before = self.faulty.fired_total();
        self.unpin();
        self.heal();
        self.look();
        for number in 0..2 {
            let told = sync_in_peace(&self.files.as_ref().unwrap()[number]);
            let may_tell = self.faulty.fired_total() > 0 || self.meddler.deed().is_some_and(|deed| deed.cut.is_some());
            assert!(told <= usize::from(may_tell), "handle {number} is told {told} times");
            assert!(told == 1 || !self.is_owed[number], "handle {number} isn't told what was cut off");
            self.worlds.check(&bytes_on(&self.disk, "new"), "on the disk at last", |content| content);
        }
        self.check_read("read at last");
        self.worlds.narrows = true;
        self.worlds.check(&bytes_on(&self.disk, "new"), "on the disk at last", |content| content);
        Forget.take(self.file(), 0).unwrap();
        self.check_read("read again at last");
        assert_eq!(self.file().stats().unclean_bytes, 0);
        self.files = None;
        self.worlds.check(&bytes_on(&self.disk, "new"), "on the disk, closed", |content| content);
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// Sweeps with one plan. Returns the number of runs.
fn sweep(plan: Plan, has_pins: bool) -> u64 {
    let mut runs = 0;
    for trouble in [Trouble::None, Trouble::Once, Trouble::Lasting] {
        let case = |before_call| Case { plan, has_pins, trouble, before_call };
        let last = (1..).find(|&n| !meddled_scenario(&case(n))).unwrap();
        assert!(last < 1_000, "calls without end");
        runs += last;
    }
    runs
}

/// Sweeps with all plans, with and without pins.
pub(crate) fn sweep_all() {
    let jobs: Vec<_> = PLANS.into_iter().flat_map(|plan| [(plan, false), (plan, true)]).collect();
    let runs = side_by_side(&jobs, |&(plan, has_pins)| sweep(plan, has_pins));
    let [acted, lost, settled] = [&ACTED, &LOST, &SETTLED].map(|count| count.load(Ordering::Relaxed));
    println!("{runs} runs beside another process: acted in {acted}, lost changes in {lost}, left open in {settled}");
    print_injected(TROUBLED.load(Ordering::Relaxed));
    assert!(acted > 20 * 20 && lost > 100 && settled < acted / 4);
}
