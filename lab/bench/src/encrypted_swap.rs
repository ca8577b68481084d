//! `encrypted-swap`: the cost of swapping a page out and in with encryption, divided by the cost
//! without.
//!
//! One thread writes to random pages of a space that has eight times as many pages as fit in
//! memory. So nearly every write swaps one page in and another one out. In the same run, the
//! encryption library encrypts and decrypts pages outside Pagefold. The time that encryption adds
//! to a swapped page is compared with the library's time for a page.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Command};
use pagefold::{Pagefold, Protection, Space, SwapArea};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::output::progress;
use crate::peers::measure::process_cpu;
use crate::peers::scratch;
use crate::random::Random;
use crate::rows::Rows;
use crate::summary::Summary;

/// On the command line, and in records.
pub(crate) const NAME: &str = "encrypted-swap";
const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;
/// The thread's memory, in bytes. `PAGES` is the number of pages that the thread writes to.
const ROOM: u64 = 16 * MIB;
const PAGES: u32 = (8 * ROOM / PAGE as u64) as u32;

/// `encrypted-swap`.
#[derive(Clone, Debug, Args)]
pub(crate) struct EncryptedSwapArgs {
    /// Writes of a round
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..))]
    writes: u32,
    /// Where the file is made that swap is in: on a disk
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Repetitions, plain and encrypted in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
}

/// What a page took that was swapped out and in, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    cpu: f64,
    elapsed: f64,
}

/// Plain, encrypted, and the library alone.
#[derive(Clone, Copy, Debug)]
struct Round {
    costs: [Cost; 2],
    alone: f64,
}

impl Round {
    /// The CPU time that encryption adds, over what the library takes alone.
    fn added_ratio_alone(&self) -> f64 {
        (self.costs[1].cpu - self.costs[0].cpu) / self.alone
    }
}

/// The command.
pub(crate) fn command() -> Command {
    EncryptedSwapArgs::augment_args(Command::new(NAME))
        .about("Swapping a page out and in, encrypted, over the same as it is")
}

/// `encrypted-swap`.
pub(crate) fn run(args: &EncryptedSwapArgs) -> Result<()> {
    let directory = scratch::directory(args.dir.as_deref())?;
    let places = [("memory", None), ("a disk", Some(&directory))];
    let bar = progress(NAME, places.len() * args.rounds as usize);
    let how = format!(
        "random writes to {} MiB, of which {} are in memory. {} rounds.",
        8 * ROOM / MIB,
        ROOM / MIB,
        args.rounds
    );
    let mut rows = Rows::new(NAME, &how);
    for (place, directory) in places {
        let mut rounds: Vec<Round> = Vec::new();
        for round in 0..args.rounds {
            // On a disk, the subject that is measured second finds the disk busier. So the two take
            // turns at being first.
            let mut costs = [Cost::default(); 2];
            for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                costs[which] = swap(directory, which == 1, args.writes, round)?;
            }
            rounds.push(Round { costs, alone: alone()? });
            bar.inc(1);
        }
        let summary = |value: &dyn Fn(&Round) -> f64| Summary::of(rounds.iter().map(value));
        for (at, subject) in ["plain", "encrypted"].into_iter().enumerate() {
            let mut metrics = vec![
                ("cpu_per_page", "ns", summary(&|round| round.costs[at].cpu)),
                ("elapsed_per_page", "ns", summary(&|round| round.costs[at].elapsed)),
                ("elapsed_ratio_plain", "x", summary(&|round| round.costs[at].elapsed / round.costs[0].elapsed)),
            ];
            if at == 1 {
                metrics.push(("added_ratio_alone", "x", summary(&Round::added_ratio_alone)));
            }
            rows.add(&format!("swap in {place}"), subject, &metrics);
        }
        rows.add(&format!("swap in {place}"), "ring alone", &[("cpu_per_page", "ns", summary(&|round| round.alone))]);
    }
    bar.finish_and_clear();
    rows.print(args.json)
}

/// What a page takes that is swapped out and in.
fn swap(directory: Option<&PathBuf>, encrypted: bool, writes: u32, round: u32) -> Result<Cost> {
    let bytes = u64::from(PAGES) * PAGE as u64 * 2;
    let area = match directory {
        Some(directory) => SwapArea::unlinked(directory, bytes),
        None => SwapArea::memory(bytes),
    };
    let area = if encrypted { area.encrypted() } else { area };
    let fold = Pagefold::builder().memory(4 * ROOM).swap_area(area).build()?;
    let group = fold.group("all").max(ROOM).build()?;
    let space = group.space()?;
    let base = space.map(u64::from(PAGES) * PAGE as u64, Protection::ReadWrite)?.start;
    let mut random = Random::new(u64::from(round));
    for page in 0..PAGES {
        let bytes: Vec<u8> = (0..PAGE / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
        space.write_at(&bytes, base + u64::from(page) * PAGE as u64)?;
    }
    touch(&space, base, writes / 10, &mut random)?;
    let (before, cpu, start) = (group.stats(), process_cpu(), Instant::now());
    touch(&space, base, writes, &mut random)?;
    let (elapsed, cpu, after) = (start.elapsed(), process_cpu().saturating_sub(cpu), group.stats());
    let pages = (after.swap_ins - before.swap_ins + after.swap_outs - before.swap_outs) as f64 / 2.0;
    let each = |time: Duration| time.as_nanos() as f64 / pages;
    Ok(Cost { cpu: each(cpu), elapsed: each(elapsed) })
}

fn touch(space: &Space, base: u64, writes: u32, random: &mut Random) -> Result<()> {
    for _ in 0..writes {
        let page = u64::from(random.below(PAGES));
        space.write_at(&random.next().to_ne_bytes(), base + page * PAGE as u64)?;
    }
    Ok(())
}

/// Returns the nanoseconds that the library takes to encrypt a page and to decrypt it. As with
/// swapped pages, the page isn't in the nearest cache.
fn alone() -> Result<f64> {
    const COUNT: u64 = 4096;
    let failed = || "the cipher refuses";
    let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).ok().with_context(failed)?;
    let key = LessSafeKey::new(key);
    let mut random = Random::new(1);
    let mut pages: Vec<[u8; PAGE]> = (0..COUNT).map(|_| [random.next() as u8; PAGE]).collect();
    let nonce = |at: u64| {
        let mut bytes = [0; NONCE_LEN];
        bytes[NONCE_LEN - 8..].copy_from_slice(&at.to_be_bytes());
        Nonce::assume_unique_for_key(bytes)
    };
    let what = [1_u8; 24];
    let before = process_cpu();
    let mut tags = Vec::with_capacity(pages.len());
    for (page, at) in pages.iter_mut().zip(0..) {
        tags.push(key.seal_in_place_separate_tag(nonce(at), Aad::from(what), page).ok().with_context(failed)?);
    }
    for ((page, tag), at) in pages.iter_mut().zip(tags).zip(0..) {
        key.open_in_place_separate_tag(nonce(at), Aad::from(what), tag, page, 0..).ok().with_context(failed)?;
    }
    Ok(process_cpu().saturating_sub(before).as_nanos() as f64 / COUNT as f64)
}
