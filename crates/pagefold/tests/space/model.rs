//! Several threads make random calls in one space, each in its own part of it, and compare the
//! results with a simple model.

use pagefold::{Advice, File, Protection, Space};
use sync::random::Random;

use crate::world::{PAGE, RW, World, join, threads};

/// A thread's part of the space, and its part of a file. The file's part may be mapped anywhere in
/// the space's part.
struct Model {
    first: u64,
    pages: Vec<Option<(Protection, Content)>>,
    file: File,
    /// The thread's pages of the file.
    file_first: u64,
    file_pages: Vec<[u8; 16]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Own([u8; 16]),
    File(usize),
}

impl Model {
    fn bytes(&mut self, page: usize) -> Option<&mut [u8; 16]> {
        match &mut self.pages[page] {
            None => None,
            Some((_, Content::Own(bytes))) => Some(bytes),
            Some((_, Content::File(page))) => self.file_pages.get_mut(*page),
        }
    }

    fn step(&mut self, space: &Space, random: &mut Random) {
        let count = self.pages.len();
        let start = random.below(count as u64) as usize;
        let end = start + 1 + random.below((count - start) as u64).min(random.below(6)) as usize;
        let (at, first) = (start..end, self.first);
        let address_of = |page: usize| (first + page as u64) * PAGE;
        let range = address_of(start)..address_of(end);
        let protection = [RW, RW, Protection::Read, Protection::None][random.below(4) as usize];
        let mapped = self.pages[at.clone()].iter().all(Option::is_some);
        let free = self.pages[at.clone()].iter().all(Option::is_none);
        let offset = random.below(9) as usize;
        let address = range.start + offset as u64;
        let may = self.pages[start].map(|page| page.0);
        match random.below(14) {
            0 => {
                assert_eq!(space.map_at(range, protection).is_ok(), free);
                if free {
                    self.pages[at].fill(Some((protection, Content::Own([0; 16]))));
                }
            }
            1 | 2 => {
                // The range may reach past the thread's part of the file, where there are other
                // threads' pages, or none.
                let page = random.below(self.file_pages.len() as u64);
                let page = page.min((self.file_pages.len() - at.len()) as u64) as usize;
                let offset = (self.file_first + page as u64) * PAGE;
                assert_eq!(space.map_file_at(range, &self.file, offset, protection).is_ok(), free);
                if free {
                    for (at, page) in at.zip(page..) {
                        self.pages[at] = Some((protection, Content::File(page)));
                    }
                }
            }
            3 => {
                assert_eq!(space.unmap(range).is_ok(), mapped);
                if mapped {
                    self.pages[at].fill(None);
                }
            }
            4 => {
                assert_eq!(space.protect(range, protection).is_ok(), mapped);
                if mapped {
                    self.pages[at].iter_mut().flatten().for_each(|page| page.0 = protection);
                }
            }
            5 => {
                let advice = [Advice::DontNeed, Advice::PageOut, Advice::Cold, Advice::WillNeed, Advice::Sequential];
                let advice = advice[random.below(5) as usize];
                let discards = random.below(3) == 0;
                let done = if discards { space.discard(range) } else { space.advise(range, advice) };
                assert_eq!(done.is_ok(), mapped);
                if mapped && (discards || advice == Advice::DontNeed) {
                    let zero = |page: &mut (Protection, Content)| {
                        if let Content::Own(bytes) = &mut page.1 {
                            *bytes = [0; 16];
                        }
                    };
                    self.pages[at].iter_mut().flatten().for_each(zero);
                }
            }
            6 => {
                let to = random.below((count - at.len() + 1) as u64) as usize;
                let target = to..to + at.len();
                let disjoint = target.end <= start || end <= target.start;
                let possible = mapped && disjoint && self.pages[target.clone()].iter().all(Option::is_none);
                assert_eq!(space.move_to(range, address_of(to)).is_ok(), possible);
                if possible {
                    for (from, to) in at.zip(target) {
                        self.pages[to] = self.pages[from].take();
                    }
                }
            }
            7..=9 => {
                let bytes = random.next_u64().to_ne_bytes();
                let written = match random.below(3) {
                    0 => space.page_mut_at(address).map(|mut page| page[offset..offset + 8].copy_from_slice(&bytes)),
                    _ => space.write_at(&bytes, address),
                };
                assert_eq!(written.is_ok(), may == Some(RW), "{written:?}");
                if let (Ok(()), Some(page)) = (written, self.bytes(start)) {
                    page[offset..offset + 8].copy_from_slice(&bytes);
                }
            }
            10 => {
                let updated = space.update_u64(range.start, |before| Some(before.wrapping_add(3)));
                assert_eq!(updated.is_ok(), may == Some(RW));
                if let (Ok(before), Some(page)) = (updated, self.bytes(start)) {
                    assert_eq!(before.to_ne_bytes(), page[..8]);
                    page[..8].copy_from_slice(&before.wrapping_add(3).to_ne_bytes());
                }
            }
            11 => {
                let page = random.below(self.file_pages.len() as u64) as usize;
                let bytes = random.next_u64().to_ne_bytes();
                self.file.write_at(&bytes, (self.file_first + page as u64) * PAGE + 8).unwrap();
                self.file_pages[page][8..].copy_from_slice(&bytes);
            }
            _ => {
                let mut bytes = [1; 8];
                let read = match random.below(3) {
                    0 => space.page_at(address).map(|page| bytes.copy_from_slice(&page[offset..offset + 8])),
                    _ => space.read_at(&mut bytes, address),
                };
                assert_eq!(read.is_ok(), may.is_some_and(|may| may != Protection::None), "{read:?}");
                if let (Ok(()), Some(page)) = (read, self.bytes(start)) {
                    assert_eq!(bytes, page[offset..offset + 8], "at {address:#x}");
                }
            }
        }
    }
}

#[test]
fn many_threads_agree_with_a_plain_model() {
    const PART: u64 = 37;
    const FILE_PART: u64 = 16;
    for seed in sync::random::seeds(40) {
        // On half of the seeds, the limit is so low that pages of files are evicted.
        let world = World::new(if seed % 2 == 0 { "32MiB" } else { "1MiB" });
        let space = world.group.space().unwrap();
        let file = world.file("f", 4 * FILE_PART * PAGE);
        let first = (1 << 18) + 512 - 2 * PART;
        let (theirs, shared) = (space.clone(), file.clone());
        let at_work = threads(4, move |thread| {
            let file_first = thread * FILE_PART;
            let file_pages = (file_first..file_first + FILE_PART).map(|page| [page as u8 + 1; 16]).collect();
            let pages = vec![None; PART as usize];
            let file = shared.clone();
            let mut model = Model { first: first + thread * PART, pages, file, file_first, file_pages };
            let mut random = Random::seeded(seed * 4 + thread);
            (0..400).for_each(|_| model.step(&theirs, &mut random));
        });
        join(at_work);
        drop((space, file));
        assert!(world.is_freed(), "seed {seed}");
        drop(world.mm);
    }
}
