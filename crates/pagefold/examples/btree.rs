//! A B-tree whose nodes are pages of a file. Readers pin the pages, and writers change them in
//! place.
//!
//! If a page of the tree is in memory, a reader needs no lock to find the page. The reader's guard
//! pins the page, so the page can't be evicted while the guard lives. Other pages are evicted when
//! the group reaches its limit, so the tree may be larger than memory.
//!
//! Right after a `sync`, the tree on the disk is complete. If the power fails at another moment,
//! the disk may have only some of the pages that a split changed. A tree that must survive such a
//! power failure needs a log, or has to write new pages instead of changing old ones.
//! ```sh
//! cargo run --release -p pagefold --example btree
//! ```

use std::ops::{Deref, DerefMut};

use pagefold::{Error, File, Pagefold};

const PAGE: u64 = 4096;
const ROOT: u64 = 0;
/// Entries in a node.
const ENTRIES_MAX: usize = 255;
/// The number of keys that this example inserts. Their nodes take about 1.3 MiB.
const KEYS: u64 = 50_000;

/// A node's bytes as 64-bit words. The lower half of the first word is the number of entries, and
/// the upper half is the node's level (0 for leaves). The entries follow, sorted by key; each
/// consists of a key and a value. Above the leaves, an entry's value is the page of the child that
/// has the keys from this entry's key up to the next entry's key.
struct Node<B>(B);

impl<B: Deref<Target = [u8]>> Node<B> {
    fn word(&self, at: usize) -> u64 {
        self.0[8 * at..8 * at + 8].try_into().map_or(0, u64::from_le_bytes)
    }

    fn len(&self) -> usize {
        self.word(0) as u32 as usize
    }

    /// 0 is a leaf.
    fn level(&self) -> u64 {
        self.word(0) >> 32
    }

    fn is_full(&self) -> bool {
        self.len() == ENTRIES_MAX
    }

    fn entry(&self, at: usize) -> (u64, u64) {
        (self.word(1 + 2 * at), self.word(2 + 2 * at))
    }

    /// How many entries have keys up to `key`.
    fn up_to(&self, key: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle).0 <= key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns the page of the child that would contain `key`. There always is such a child,
    /// because no key that is looked up in an inner node is smaller than the node's first key.
    fn child(&self, key: u64) -> u64 {
        self.entry(self.up_to(key) - 1).1
    }
}

impl<B: DerefMut<Target = [u8]>> Node<B> {
    fn set_word(&mut self, at: usize, word: u64) {
        self.0[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn set_head(&mut self, level: u64, len: usize) {
        self.set_word(0, level << 32 | len as u64);
    }

    fn set_entry(&mut self, at: usize, (key, value): (u64, u64)) {
        self.set_word(1 + 2 * at, key);
        self.set_word(2 + 2 * at, value);
    }

    fn insert(&mut self, at: usize, entry: (u64, u64)) {
        let len = self.len();
        for later in (at..len).rev() {
            self.set_entry(later + 1, self.entry(later));
        }
        self.set_entry(at, entry);
        self.set_head(self.level(), len + 1);
    }
}

struct Tree {
    file: File,
}

impl Tree {
    /// A tree without keys, in an empty file.
    fn new(file: File) -> Result<Self, Error> {
        file.set_len(PAGE)?;
        Ok(Self { file })
    }

    fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        let mut page = ROOT;
        loop {
            let node = Node(self.file.page_at(page * PAGE)?);
            if node.level() > 0 {
                page = node.child(key);
                continue;
            }
            let last = node.up_to(key).checked_sub(1).map(|at| node.entry(at));
            return Ok(last.filter(|entry| entry.0 == key).map(|entry| entry.1));
        }
    }

    fn insert(&mut self, key: u64, value: u64) -> Result<(), Error> {
        if Node(self.file.page_at(ROOT * PAGE)?).is_full() {
            self.raise()?;
        }
        let mut page = ROOT;
        loop {
            let node = Node(self.file.page_at(page * PAGE)?);
            if node.level() == 0 {
                break;
            }
            let child = node.child(key);
            drop(node); // Pages that are pinned can't be changed.
            if Node(self.file.page_at(child * PAGE)?).is_full() {
                self.split(page, child)?;
            } else {
                page = child;
            }
        }
        let mut leaf = Node(self.file.page_mut_at(page * PAGE)?);
        match leaf.up_to(key) {
            after @ 1.. if leaf.entry(after - 1).0 == key => leaf.set_entry(after - 1, (key, value)),
            after => leaf.insert(after, (key, value)),
        }
        Ok(())
    }

    /// Puts a level above all others.
    fn raise(&mut self) -> Result<(), Error> {
        let below = self.add_page()?;
        let (mut root, mut copy) =
            (Node(self.file.page_mut_at(ROOT * PAGE)?), Node(self.file.page_mut_at(below * PAGE)?));
        copy.0.copy_from_slice(&root.0);
        root.set_head(copy.level() + 1, 1);
        root.set_entry(0, (0, below));
        drop((root, copy));
        self.split(ROOT, below)
    }

    /// Moves half of the entries of a full node to a new node, which becomes its right neighbour.
    fn split(&mut self, above: u64, full: u64) -> Result<(), Error> {
        let new = self.add_page()?;
        let (mut left, mut right) =
            (Node(self.file.page_mut_at(full * PAGE)?), Node(self.file.page_mut_at(new * PAGE)?));
        let half = left.len() / 2;
        for at in half..left.len() {
            right.set_entry(at - half, left.entry(at));
        }
        right.set_head(left.level(), left.len() - half);
        left.set_head(left.level(), half);
        let first = right.entry(0).0;
        drop((left, right));
        let mut above = Node(self.file.page_mut_at(above * PAGE)?);
        above.insert(above.up_to(first), (first, new));
        Ok(())
    }

    fn add_page(&mut self) -> Result<u64, Error> {
        let page = self.file.len() / PAGE;
        self.file.set_len((page + 1) * PAGE)?;
        Ok(page)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("pagefold-btree-{}", std::process::id()));
    let mm = Pagefold::builder().memory("16MiB").build()?;
    let tenant = mm.group("index").max("1MiB").build()?;
    let file = tenant.open_options().write(true).create_new(true).open(&path)?;

    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut tree = Tree::new(file)?;
    for number in 0..KEYS {
        tree.insert(key(number), number)?;
    }
    tree.file.sync()?;
    for number in 0..KEYS {
        assert_eq!(tree.get(key(number))?, Some(number));
    }
    assert_eq!(tree.get(1)?, None);

    let stats = tenant.stats();
    let (pages, in_memory) = (tree.file.len() / PAGE, stats.charged_bytes / PAGE);
    println!("{KEYS} keys in {pages} pages, {in_memory} of them in memory; {} misses", stats.misses);
    std::fs::remove_file(&path)?;
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
