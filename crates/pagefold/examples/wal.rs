//! A write-ahead log: transfers between accounts, on a simulated disk whose power is cut again and
//! again.
//!
//! Pagefold writes a changed page to its file within seconds, when it chooses. So a transaction
//! must make its log record durable before it changes a page:
//! 1. Take a guard for each page. No other thread can change these pages now.
//! 2. Append a record with the new values to the log, and sync the log.
//! 3. Change the pages, and drop the guards.
//!
//! A power cut after step 2 may lose any of the changed pages. Recovery repeats the records of the
//! log. Each page has the number of the last record that changed it, so recovery skips records that
//! the page already contains. A checkpoint syncs the pages, and then empties the log.
//! ```sh
//! cargo run --release -p pagefold --example wal
//! ```

use pagefold::{Error, File, Pagefold};
use test_disks::SimulatedDisk;

const CRASHES: u64 = 200;
const PAGE: u64 = 4096;
const ACCOUNTS: u64 = 50;
/// Words in a record: its number, two accounts with their new balances, and a checksum.
const RECORD: usize = 6;
const CHECKPOINT_EVERY: u64 = 20;

/// A page holds one account: the number of the last record that changed the account, and the
/// balance. Both words are in one sector, so a power cut keeps both or loses both.
const LAST_RECORD: usize = 0;
const BALANCE: usize = 1;

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[8 * at..8 * at + 8].try_into().map_or(0, u64::from_le_bytes)
}

fn set_word(bytes: &mut [u8], at: usize, word: u64) {
    bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
}

fn sum(words: &[u64]) -> u64 {
    words
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
}

/// The balances count from what each account had at first, so all of them together are 0.
struct Bank {
    log: File,
    accounts: File,
    /// The number of the next record, and its offset in the log.
    next: u64,
    log_end: u64,
}

impl Bank {
    fn open(mm: &Pagefold) -> Result<Self, Error> {
        let group = mm.group("bank").build()?;
        let open = |path| group.open_options().write(true).create(true).open(path);
        let mut bank = Self { log: open("log")?, accounts: open("accounts")?, next: 1, log_end: 0 };
        bank.accounts.set_len(ACCOUNTS * PAGE)?;
        bank.recover()?;
        Ok(bank)
    }

    /// Repeats the records of the log. The log ends where a record is torn, or isn't the next one.
    fn recover(&mut self) -> Result<(), Error> {
        let mut bytes = [0; 8 * RECORD];
        let mut last = None;
        for offset in (0..).step_by(bytes.len()) {
            if self.log.read_at(&mut bytes, offset)? < bytes.len() {
                break;
            }
            let words = std::array::from_fn::<u64, RECORD, _>(|at| word(&bytes, at));
            let [record, changes @ .., their_sum] = &words;
            if sum(&words[..RECORD - 1]) != *their_sum || last.is_some_and(|last| last + 1 != *record) {
                break;
            }
            last = Some(*record);
            for change in changes.chunks_exact(2) {
                let mut page = self.accounts.page_mut_at(change[0] * PAGE)?;
                if word(&page, LAST_RECORD) < *record {
                    set_word(&mut page, LAST_RECORD, *record);
                    set_word(&mut page, BALANCE, change[1]);
                }
            }
        }
        for account in 0..ACCOUNTS {
            self.next = self.next.max(word(&self.accounts.page_at(account * PAGE)?, LAST_RECORD) + 1);
        }
        self.checkpoint()
    }

    /// Makes all pages durable, and then empties the log.
    fn checkpoint(&mut self) -> Result<(), Error> {
        self.accounts.sync()?;
        self.log.set_len(0)?;
        self.log_end = 0;
        Ok(())
    }

    /// Returns the record's number. The transfer is durable then.
    fn transfer(&mut self, from: u64, to: u64, amount: u64) -> Result<u64, Error> {
        let mut pages = [self.accounts.page_mut_at(from * PAGE)?, self.accounts.page_mut_at(to * PAGE)?];
        let balances = [word(&pages[0], BALANCE).wrapping_sub(amount), word(&pages[1], BALANCE).wrapping_add(amount)];
        let number = self.next;
        let words = [number, from, balances[0], to, balances[1]];
        let record: Vec<u8> = words.iter().chain([&sum(&words)]).flat_map(|word| word.to_le_bytes()).collect();
        self.log.write_at(&record, self.log_end)?;
        self.log.sync()?; // If this fails, the pages are unchanged.
        for (page, balance) in pages.iter_mut().zip(balances) {
            set_word(page, LAST_RECORD, number);
            set_word(page, BALANCE, balance);
        }
        drop(pages); // Now other threads see the new balances, and write-back may write them.
        self.next += 1;
        self.log_end += record.len() as u64;
        if number.is_multiple_of(CHECKPOINT_EVERY) {
            self.checkpoint()?;
        }
        Ok(number)
    }
}

/// Makes transfers, and cuts the power. Checks that the last transfer is there, and that no money
/// was lost or created.
fn crash(seed: u64) -> Result<(), Error> {
    let disk = SimulatedDisk::default();
    let start = || Pagefold::builder().memory("1MiB").backend(disk.clone()).build();

    let mm = start()?;
    let (mut bank, mut transfers) = (Bank::open(&mm)?, 0);
    for number in 1..=seed % 70 {
        let from = (seed + number * 7) % ACCOUNTS;
        transfers = bank.transfer(from, (from + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS, number)?;
    }
    drop(bank); // Writes all dirty pages, without a sync.
    disk.power_cut(seed);
    drop(mm);

    let mm = start()?;
    let bank = Bank::open(&mm)?;
    let (mut total, mut last) = (0_u64, 0);
    for account in 0..ACCOUNTS {
        let page = bank.accounts.page_at(account * PAGE)?;
        total = total.wrapping_add(word(&page, BALANCE));
        last = last.max(word(&page, LAST_RECORD));
    }
    assert_eq!((total, last), (0, transfers), "seed {seed}");
    Ok(())
}

fn main() -> Result<(), Error> {
    (0..CRASHES).try_for_each(crash)?;
    println!("{CRASHES} crashes: every transfer was complete, and none was lost");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
