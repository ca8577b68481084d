//! Threads that use a file while they end, and threads that panic while they change a page.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pagefold::io::Backend;
use pagefold::{Advice, Error, File, Protection};
use sync::Arc;
use sync::lock::Mutex;
use test_disks::SimulatedDisk;

use crate::support::{RealFiles, bytes_on, disk, manager, read};

const PAGE: u64 = 4096;
const LEN: u64 = 64 * PAGE;

/// Uses a file when its thread ends.
struct Last {
    file: File,
    result: Arc<Mutex<Option<Result<(), Error>>>>,
}

impl Drop for Last {
    fn drop(&mut self) {
        let use_it = || {
            self.file.advise(0..LEN, Advice::DontNeed)?;
            for page in 0..8 {
                read(&self.file, 0, page * PAGE, 4096)?;
                read(&self.file, 0, page * PAGE, 4096)?;
            }
            assert_eq!(self.file.page_at(9 * PAGE)?.len(), 4096);
            self.file.write_at(&[7; 5000], 32 * PAGE)?;
            self.file.sync()
        };
        *self.result.lock() = Some(use_it());
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

fn use_in_last_moments(backend: impl Backend + Clone) {
    // A thread drops its thread locals in reverse order of their creation. So if `before` is false,
    // `LAST` is dropped while Pagefold's own thread locals still exist. If `before` is true, `LAST`
    // is dropped after them.
    for before in [false, true] {
        let mm = manager(64, backend.clone());
        let file = mm.group("a").build().unwrap().open_options().write(true).open("f0").unwrap();
        let result = Arc::default();
        let last = Last { file: file.clone(), result: Arc::clone(&result) };
        let thread = std::thread::spawn(move || {
            if !before {
                read(&last.file, 0, 20 * PAGE, 100).unwrap();
                last.file.write_at(&[7], 40 * PAGE).unwrap();
            }
            LAST.with_borrow_mut(|place| *place = Some(last));
            LAST.with_borrow(|last| read(&last.as_ref().unwrap().file, 0, 21 * PAGE, 100).unwrap());
        });
        thread.join().unwrap();
        result.lock().take().expect("the thread had last moments").unwrap();
        drop(file);
        assert_eq!(bytes_on(&backend, "f0")[32 * PAGE as usize..][..5000], [7; 5000]);
    }
}

/// A handle in a thread local is dropped when its thread ends, perhaps after the thread locals that
/// Pagefold itself uses. It must still work.
#[test]
fn a_file_is_used_when_its_thread_ends() {
    use_in_last_moments(disk(1, LEN));
}

#[test]
fn a_file_is_used_through_io_uring_when_its_thread_ends() {
    use_in_last_moments(RealFiles::new(1, LEN));
}

/// After a panic, the page has the bytes that were changed before it, and no lock is held.
#[test]
fn a_panic_in_the_middle_of_a_change_leaves_the_page_usable() {
    let disk: SimulatedDisk = disk(1, LEN);
    let mm = manager(256, disk.clone());
    let group = mm.group("a").build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    let space = group.space().unwrap();
    let own = space.map(16 * PAGE, Protection::ReadWrite).unwrap();
    let mapped = space.map_file(&file, 0, LEN, Protection::ReadWrite).unwrap();
    let panics = |change: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
    panics(&|| {
        let mut page = file.page_mut_at(3 * PAGE).unwrap();
        page[5] = 1;
        panic!("with a page of a file");
    });
    for address in [own.start + 2 * PAGE, mapped.start + 4 * PAGE] {
        panics(&|| {
            let mut page = space.page_mut_at(address).unwrap();
            page[5] = 2;
            panic!("with a page of a space");
        });
        panics(&|| {
            let _ = space.update_u64(address + 8, |_| panic!("with a word of a space"));
        });
        let before = space.update_u64(address + 8, |number| Some(number.wrapping_add(1))).unwrap();
        assert_eq!(space.update_u64(address + 8, |_| None).unwrap(), before.wrapping_add(1));
    }
    // By other threads, too.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            file.write_at(&[9], 3 * PAGE + 6).unwrap();
            space.write_at(&[9], own.start + 2 * PAGE + 6).unwrap();
            assert_eq!(space.page_at(own.start + 2 * PAGE).unwrap()[5..7], [2, 9]);
            assert_eq!(file.page_at(3 * PAGE).unwrap()[5..7], [1, 9]);
        });
    });
    file.sync().unwrap();
    let bytes = bytes_on(&disk, "f0");
    assert_eq!((bytes[3 * 4096 + 5], bytes[4 * 4096 + 5]), (1, 2), "the change so far is kept, and dirty");
    space.unmap(own).unwrap();
    space.unmap(mapped).unwrap();
    file.close().unwrap();
}
