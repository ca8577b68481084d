//! Guards of pages: borrowed or owned, for reading or changing, of files and of spaces.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

mod support;

use std::thread;

use pagefold::{Error, File, Group, PageMut, PageRef, Pagefold, Protection, Space};
use support::{bytes_on, check, disk, manager, when_free};

const PAGE: u64 = 4096;
/// The file ends in the middle of its last page.
const LEN: u64 = 20 * PAGE - 100;

fn file(group: &Group) -> File {
    group.open_options().write(true).open("f0").unwrap()
}

/// Returns a space and two addresses. The first is that of a page that begins with `[7; 8]`, which
/// is followed by a page that was never written. The second is that of the mapped file.
fn space(group: &Group) -> (Space, u64, u64) {
    let space = group.space().unwrap();
    let own = space.map(2 * PAGE, Protection::ReadWrite).unwrap().start;
    space.write_at(&[7; 8], own).unwrap();
    let of_file = space.map_file(&file(group), 0, LEN, Protection::ReadWrite).unwrap().start;
    (space, own, of_file)
}

fn is_send<T: Send + 'static>(_: &T) {}

fn charged(mm: &Pagefold) -> u64 {
    mm.stats().groups.iter().map(|group| group.charged_bytes).sum()
}

#[test]
fn an_owned_guard_outlives_its_file_and_everything_else() {
    let mm = manager(256, disk(1, LEN));
    let group = mm.group("a").build().unwrap();
    let file = file(&group);
    let (page, last) = (file.page_at_owned(3 * PAGE + 17).unwrap(), file.page_at_owned(LEN - 1).unwrap());
    is_send(&page);
    drop((file, group));
    assert_eq!(mm.stats().groups.len(), 1, "the guard keeps the group");
    drop(mm);
    thread::spawn(move || {
        assert_eq!((page.len(), last.len()), (4096, 3996));
        check(0, 3 * PAGE, &page);
        check(0, 19 * PAGE, &last);
    })
    .join()
    .unwrap();
}

#[test]
fn the_last_owned_guard_closes_the_file() {
    let mm = manager(256, disk(1, LEN));
    let group = mm.group("a").build().unwrap();
    let file = file(&group);
    let page = file.page_at_owned(0).unwrap();
    file.read_at(&mut [0; 2 * PAGE as usize], 4 * PAGE).unwrap();
    drop(file);
    assert_eq!(charged(&mm), 3 * PAGE);
    drop(page);
    assert_eq!(charged(&mm), 0);
}

#[test]
fn an_owned_change_arrives_after_its_file_was_dropped() {
    let disk = disk(1, LEN);
    let mm = manager(256, disk.clone());
    let group = mm.group("a").build().unwrap();
    let mut page = file(&group).page_mut_at_owned(2 * PAGE + 5).unwrap();
    is_send(&page);
    let reader = group.open("f0").unwrap();
    page[5..10].copy_from_slice(b"hello");
    let mut bytes = [0; 5];
    reader.read_exact_at(&mut bytes, 2 * PAGE + 5).unwrap();
    check(0, 2 * PAGE + 5, &bytes);
    thread::spawn(move || drop(page)).join().unwrap();
    reader.read_exact_at(&mut bytes, 2 * PAGE + 5).unwrap();
    assert_eq!(&bytes, b"hello");
    drop((reader, group, mm));
    assert_eq!(bytes_on(&disk, "f0")[2 * PAGE as usize + 5..][..5], *b"hello", "written when the file was closed");
}

#[test]
fn owned_guards_keep_a_space() {
    let mm = manager(256, disk(1, LEN));
    let group = mm.group("a").build().unwrap();
    let (space, own, of_file) = space(&group);
    let pages = [own, own + PAGE, of_file + PAGE, of_file + LEN - 1].map(|at| space.page_at_owned(at).unwrap());
    let mut change = space.page_mut_at_owned(of_file + 2 * PAGE).unwrap();
    change.fill(3);
    assert!(matches!(space.unmap(own..own + PAGE), Err(Error::AddressBusy { .. })), "it is pinned");
    drop((space, group));
    assert_eq!((&pages[0][..9], &pages[1][..]), (&[7, 7, 7, 7, 7, 7, 7, 7, 0][..], &[0; 4096][..]));
    check(0, PAGE, &pages[2]);
    assert_eq!(pages[3].len(), 3996);
    drop(change);
    drop(pages);
    assert_eq!((mm.stats().groups.len(), charged(&mm)), (0, 0));
}

#[test]
fn a_change_of_own_memory_arrives_after_its_space_was_dropped() {
    let mm = manager(256, disk(1, LEN));
    let group = mm.group("a").build().unwrap();
    let (space, own, _) = space(&group);
    let other = space.clone();
    let mut page = space.page_mut_at_owned(own).unwrap();
    drop(space);
    page[1] = 9;
    drop(page);
    assert_eq!(other.page_at(own).unwrap()[..3], [7, 9, 7]);
}

/// A cursor as an engine would have it.
struct Cursor {
    file: File,
    leaf: PageRef<'static>,
    at: u64,
}

impl Cursor {
    fn next(&mut self) -> Result<u8, Error> {
        let byte = self.leaf[(self.at % PAGE) as usize];
        self.at += 1;
        if self.at.is_multiple_of(PAGE) {
            self.leaf = self.file.page_at_owned(self.at)?;
        }
        Ok(byte)
    }
}

#[test]
fn a_cursor_owns_its_leaf() {
    let mm = manager(64, disk(1, LEN));
    let group = mm.group("a").build().unwrap();
    let file = file(&group);
    let mut cursor = Cursor { leaf: file.page_at_owned(0).unwrap(), file, at: 0 };
    let bytes: Vec<u8> = (0..3 * PAGE).map(|_| cursor.next().unwrap()).collect();
    check(0, 0, &bytes);
}

#[test]
fn what_would_wait_is_refused() {
    let mm = manager(256, disk(1, LEN));
    let group = mm.group("a").build().unwrap();
    let (file, (space, own, of_file)) = (file(&group), space(&group));
    let pins = |at| [file.try_page_at(at).is_some(), space.try_page_at(of_file + at).is_some()];
    let changes = |at| {
        let of_file_itself = file.try_page_mut_at(at).is_some();
        [of_file_itself, space.try_page_mut_at(of_file + at).is_some()]
    };
    let misses = || file.stats().misses;

    assert_eq!((pins(0), changes(0), misses()), ([false; 2], [false; 2], 0), "it isn't in memory");
    for at in [0, 5, LEN - 1] {
        file.read_at(&mut [0; 1], at).unwrap();
        assert_eq!((pins(at), changes(at)), ([true; 2], [true; 2]), "at {at}");
    }
    check(0, 19 * PAGE, &file.try_page_at(LEN - 1).unwrap());
    assert_eq!(space.try_page_mut_at(of_file + LEN - 1).unwrap().len(), 3996);
    for past in [20 * PAGE, u64::MAX] {
        assert!(file.try_page_at(past).is_none() && file.try_page_mut_at(past).is_none(), "at {past}");
    }

    let pin = file.page_at(0).unwrap();
    assert_eq!((pins(0), changes(0)), ([true; 2], [false; 2]), "it is pinned");
    drop(pin);
    let mut change = file.try_page_mut_at(0).unwrap();
    assert_eq!((pins(0), changes(0)), ([false; 2], [false; 2]), "it is being changed");
    change[..3].copy_from_slice(b"new");
    drop(change);
    assert_eq!(&when_free(|| space.page_at(of_file)).unwrap()[..3], b"new");

    assert_eq!(space.try_page_at(own).unwrap()[..8], [7; 8]);
    assert_eq!(space.try_page_at(own + PAGE).unwrap()[..8], [0; 8], "never written");
    assert!(space.try_page_mut_at(own + PAGE).is_none(), "there is no page yet");
    space.try_page_mut_at(own).unwrap()[0] = 8;
    let held = space.page_mut_at(own).unwrap();
    assert!(held[0] == 8 && space.try_page_at(own).is_none() && space.try_page_mut_at(own).is_none());
    drop(held);
    assert!(space.try_page_at(5).is_none() && space.try_page_mut_at(u64::MAX).is_none(), "nothing is there");
    space.protect(own..own + PAGE, Protection::Read).unwrap();
    assert!(space.try_page_at(own).is_some() && space.try_page_mut_at(own).is_none());
    let reader = group.open("f0").unwrap();
    assert!(reader.try_page_at(0).is_some() && reader.try_page_mut_at(0).is_none(), "it was opened for reading");
}

/// A guard for changing needs room for a copy.
#[test]
fn without_room_for_a_copy_a_change_is_refused() {
    let mm = manager(256, disk(1, LEN));
    let group = mm.group("a").max(4 * PAGE).build().unwrap();
    let file = file(&group);
    let pins: Vec<PageRef<'_>> = (0..4).map(|page| file.page_at(page * PAGE).unwrap()).collect();
    drop(pins);
    assert!(group.charged() == 4 * PAGE && file.try_page_mut_at(0).is_none(), "four pages are in memory");
    let page: PageMut<'_> = file.page_mut_at(PAGE).expect("one of them makes room");
    drop(page);
    assert!(group.charged() <= 4 * PAGE);
}
