//! Another process appends to a file that is in use, cuts it off, overwrites it, replaces it and
//! locks it.
//!
//! The other process is another run of this program, with the ignored test [`stranger`], which
//! reads commands from its standard input.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use pagefold::{Advice, Error, File, Pagefold};
use sync::random::{Random, seeds};

use crate::{PAGE, open, random_bytes, small_fold};

const PATH: &str = "PAGEFOLD_STRANGER_PATH";
/// Rounds, unless `PAGEFOLD_SEEDS` says otherwise.
const ROUNDS: u64 = 20;
const STEPS: u32 = 60;
/// The file gets no longer than this by the stranger.
const LEN_MAX: u64 = 80 * PAGE;
/// The start of the stranger's answers, to find them in the output of the test harness.
const ANSWER: &str = "answer ";

/// The other process's side: reads one command per line, and prints an answer to each.
#[test]
#[ignore = "for a process of its own"]
fn stranger() {
    let path = PathBuf::from(std::env::var_os(PATH).unwrap());
    let file = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut locked = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let bytes = |seed, len| random_bytes(&mut Random::seeded(seed), len);
        let mut answer = 0;
        match words[0] {
            "append" => {
                let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                file.write_all(&bytes(number(1), number(2))).unwrap();
            }
            "cut" => file().set_len(number(1)).unwrap(),
            "overwrite" => file().write_all_at(&bytes(number(1), number(3)), number(2)).unwrap(),
            "replace" => {
                let new = path.with_extension("new");
                fs::write(&new, bytes(number(1), number(2))).unwrap();
                fs::rename(&new, &path).unwrap();
            }
            "lock" => {
                let file = file();
                // SAFETY: the descriptor is open.
                answer = u64::from(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0);
                locked = Some(file);
            }
            "unlock" => locked = None,
            "hash" => answer = hash(&fs::read(&path).unwrap()),
            other => panic!("no order is called {other}"),
        }
        println!("{ANSWER}{answer}");
    }
    drop(locked);
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The other process, for the one that gives orders.
struct Stranger {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Stranger {
    fn start(path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "meddlers::stranger", "--ignored", "--nocapture"]).env(PATH, path);
        let mut process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, orders, answers }
    }

    fn order(&mut self, order: &str) -> u64 {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the other process ended at: {order}");
            // The test harness prints the test's name, without an end of line, before the first
            // answer.
            if let Some((_, answer)) = line.trim_end().rsplit_once(ANSWER) {
                return answer.parse().unwrap();
            }
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

struct World {
    fold: Pagefold,
    file: Option<File>,
    stranger: Stranger,
    random: Random,
    /// What the file has to be, when all is written.
    expected: Vec<u8>,
    /// Nothing has been written since the last sync.
    is_clean: bool,
    /// A write since the last sync has made the file longer.
    has_grown: bool,
}

impl World {
    fn file(&self) -> &File {
        self.file.as_ref().unwrap()
    }

    fn len(&self) -> u64 {
        self.expected.len() as u64
    }

    fn write(&mut self, at: u64, len: u64) {
        let bytes = random_bytes(&mut self.random, len);
        self.file().write_at(&bytes, at).unwrap();
        let end = (at + len) as usize;
        self.has_grown |= end > self.expected.len();
        self.expected.resize(self.expected.len().max(end), 0);
        self.expected[at as usize..end].copy_from_slice(&bytes);
        self.is_clean = false;
    }

    fn sync(&mut self) {
        self.file().sync().unwrap();
        (self.is_clean, self.has_grown) = (true, false);
    }

    /// A read that reaches the end that Pagefold knows makes Pagefold ask for the file's length.
    fn meet_the_end(&self) {
        let mut byte = [0];
        assert_eq!(self.file().read_at(&mut byte, self.file().len().max(self.len())).unwrap(), 0);
    }

    fn read(&mut self) {
        let at = self.random.below(self.len() + 1);
        let mut bytes = vec![0; self.random.below(3 * PAGE) as usize];
        let there = self.file().read_at(&mut bytes, at).unwrap();
        let expected = &self.expected[at as usize..][..bytes.len().min(self.expected.len() - at as usize)];
        assert!(bytes[..there] == *expected, "{there} bytes at {at} of {} aren't what was written there", self.len());
    }

    fn step(&mut self) {
        let number = self.random.next_u64();
        match self.random.below(14) {
            0..3 if self.len() > 0 => {
                let at = self.random.below(self.len());
                let len = (1 + self.random.below(2 * PAGE)).min(self.len() - at);
                self.write(at, len);
            }
            3 => {
                let len = 1 + self.random.below(2 * PAGE);
                self.write(self.len(), len);
            }
            4 => self.sync(),
            5 => {
                self.sync();
                assert_eq!(
                    self.stranger.order("hash"),
                    hash(&self.expected),
                    "another process doesn't see what was synced"
                );
            }
            // If Pagefold has appended bytes, and not written them back yet, write-back would
            // overwrite the stranger's bytes. So `sync` comes first in this case.
            6 | 7 if self.len() < LEN_MAX => {
                if self.has_grown || self.random.one_in(2) {
                    self.sync();
                }
                let len = 1 + self.random.below(3 * PAGE);
                self.stranger.order(&format!("append {number} {len}"));
                self.expected.extend(random_bytes(&mut Random::seeded(number), len));
                // The next call at the new end is a read or a write, each in half of the cases.
                if self.random.one_in(2) {
                    self.meet_the_end();
                } else {
                    self.write(self.len(), 1 + number % 100);
                }
            }
            // Changes that aren't in the file yet would be lost with the bytes that are cut off.
            8 if self.len() > 0 => {
                self.sync();
                let len = self.random.below(self.len());
                self.stranger.order(&format!("cut {len}"));
                self.expected.truncate(len as usize);
                self.meet_the_end();
                assert_eq!(self.file().len(), len, "the length is known");
            }
            9 if self.len() > PAGE => {
                self.sync();
                self.file().advise(0..u64::MAX, Advice::DontNeed).unwrap();
                let at = self.random.below(self.len() - PAGE);
                self.stranger.order(&format!("overwrite {number} {at} 500"));
                let bytes = random_bytes(&mut Random::seeded(number), 500);
                self.expected[at as usize..][..500].copy_from_slice(&bytes);
            }
            10 => assert_eq!(self.stranger.order("lock"), 0, "another process locked what is open for writing"),
            _ => self.read(),
        }
    }
}

fn round(seed: u64) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let mut random = Random::seeded(seed);
    let len = random.below(10 * PAGE);
    let expected = random_bytes(&mut random, len);
    fs::write(&path, &expected).unwrap();
    let fold = small_fold();
    let file = Some(open(&fold, "ours", &path));
    let stranger = Stranger::start(&path);
    let mut world = World { fold, file, stranger, random, expected, is_clean: true, has_grown: false };
    for _ in 0..STEPS {
        world.step();
    }
    if !world.is_clean {
        world.sync();
    }
    assert_eq!(fs::read(&path).unwrap(), world.expected);
    // Another file gets the name. The open handle must keep using the old file, and the next `open`
    // must find the new one.
    world.stranger.order(&format!("replace {seed} 5000"));
    world.write(0, 100);
    world.sync();
    world.read();
    world.file.take().unwrap().close().unwrap();
    assert_eq!(world.stranger.order("lock"), 1, "nobody has the file open for writing");
    // An open waits for a while for a lock.
    if seed.is_multiple_of(100) {
        let group = world.fold.group("locked out").build().unwrap();
        let refused = group.open_options().write(true).open(&path);
        assert!(matches!(refused, Err(Error::FileInUse { .. })), "{refused:?}");
    }
    world.stranger.order("unlock");
    let mut bytes = vec![0; 5000];
    open(&world.fold, "later", &path).read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == random_bytes(&mut Random::seeded(seed), 5000), "the file of that name isn't the new one");
}

/// Another process appends, while this one overwrites the bytes that were there before, including
/// those of the page with the old end, and syncs.
fn side_by_side(seed: u64) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let mut random = Random::seeded(seed);
    let len = 1 + random.below(4 * PAGE);
    let mut expected = random_bytes(&mut random, len);
    fs::write(&path, &expected).unwrap();
    let fold = small_fold();
    let file = open(&fold, "ours", &path);
    let mut stranger = Stranger::start(&path);
    std::thread::scope(|scope| {
        let appends = scope.spawn(|| {
            let appended = (0..30).map(|turn| {
                stranger.order(&format!("append {turn} {}", 1 + seed * turn % 700));
                random_bytes(&mut Random::seeded(turn), 1 + seed * turn % 700)
            });
            appended.collect::<Vec<_>>().concat()
        });
        while !appends.is_finished() {
            let at = random.below(len);
            let bytes = random_bytes(&mut random, (1 + at % 300).min(len - at));
            file.write_at(&bytes, at).unwrap();
            expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            if random.one_in(4) {
                file.sync().unwrap();
            }
        }
        file.sync().unwrap();
        expected.extend(appends.join().unwrap());
    });
    let found = fs::read(&path).unwrap();
    assert_eq!(found.len(), expected.len());
    let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "of {} bytes, of which {len} were there first", found.len());
}

#[test]
fn meddlers_lose_nothing_of_ours_and_nothing_of_theirs() {
    for seed in seeds(ROUNDS) {
        for body in [round, side_by_side] {
            let result = std::panic::catch_unwind(|| body(seed));
            assert!(
                result.is_ok(),
                "repeat with: PAGEFOLD_SEED={seed} cargo test -p pagefold --test strangers meddlers"
            );
        }
    }
}
