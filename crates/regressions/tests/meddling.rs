//! Files that another process changes during one of our calls, or after a call that failed. Each
//! call must leave the known length in a state that the next call can handle.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError, read_full, write_full};
use pagefold::{Advice, Error, File, Pagefold};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{Arc, SharedBytes};
use test_disks::SimulatedDisk;

use crate::hooked::{Answer, Gate};
use crate::support::manager;

const PAGE: usize = 4096;

type Meddle = Box<dyn FnOnce() + Send>;

/// A disk on which another process changes the file in the middle of our calls, and whose reads can
/// fail.
#[derive(Clone, Default)]
struct Meddled {
    disk: SimulatedDisk,
    /// Called once, right after the file was made longer.
    after_lengthen: Arc<Mutex<Option<Meddle>>>,
    /// Called once, right before the file's length is set.
    before_set_len: Arc<Mutex<Option<Meddle>>>,
    /// Called once, after a call has found that the file has a page, and before it loads the page.
    before_load: Arc<Mutex<Option<Meddle>>>,
    /// Called once, right before the page at this offset is read.
    before_read_of: Arc<Mutex<Option<(u64, Meddle)>>>,
    reads_fail: Arc<AtomicBool>,
}

struct MeddledFile {
    file: Box<dyn BackingFile>,
    of: Meddled,
}

impl Meddled {
    fn with_file(bytes: &[u8]) -> (Self, Pagefold, File) {
        let it = Self::default();
        it.disk.add_bytes("file", bytes);
        let mm = manager(256, it.clone());
        let file = mm.group("ours").build().unwrap().open_options().write(true).open("file").unwrap();
        (it, mm, file)
    }

    /// The file, as the other process opens it.
    fn theirs(&self) -> Box<dyn BackingFile> {
        self.disk.open(Path::new("file"), Access::Write).unwrap()
    }

    /// The other process writes `bytes` at `offset`, a multiple of the page size.
    fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let mut words = vec![0; bytes.len().div_ceil(PAGE) * PAGE];
        words[..bytes.len()].copy_from_slice(bytes);
        let words: Vec<_> =
            words.chunks_exact(8).map(|word| AtomicU64::new(u64::from_ne_bytes(word.try_into().unwrap()))).collect();
        write_full(&*self.theirs(), offset, &[SharedBytes::new(&words)], bytes.len()).unwrap();
    }

    fn on_disk(&self) -> Vec<u8> {
        let theirs = self.theirs();
        let len = theirs.len().unwrap() as usize;
        let words: Vec<_> = (0..len.div_ceil(PAGE) * PAGE / 8).map(|_| AtomicU64::new(0)).collect();
        let shared = SharedBytes::new(&words);
        assert_eq!(read_full(&*theirs, 0, shared).unwrap(), len);
        let mut bytes = vec![0; shared.len()];
        shared.copy_to(0, &mut bytes);
        bytes.truncate(len);
        bytes
    }
}

impl Backend for Meddled {
    fn name(&self) -> &'static str {
        "meddled"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(MeddledFile { file: self.disk.open(path, access)?, of: self.clone() }))
    }
}

impl BackingFile for MeddledFile {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn reads_by_copy(&self) -> bool {
        // The path of a miss asks this first, once it has compared the page with the length.
        let meddle = self.of.before_load.lock().take();
        meddle.into_iter().for_each(|meddle| meddle());
        false
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let meddle = self.of.before_read_of.lock().take_if(|(of, _)| *of == offset);
        meddle.into_iter().for_each(|(_, meddle)| meddle());
        if self.of.reads_fail.load(Ordering::SeqCst) { Err(IoError::IO) } else { self.file.read(offset, into) }
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.file.write(offset, from, len)
    }

    fn sync(&self) -> Result<(), IoError> {
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        let meddle = self.of.before_set_len.lock().take();
        meddle.into_iter().for_each(|meddle| meddle());
        self.file.set_len(len)
    }

    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        self.file.lengthen(len)?;
        let meddle = self.of.after_lengthen.lock().take();
        meddle.into_iter().for_each(|meddle| meddle());
        Ok(())
    }
}

fn read(file: &File, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let n = file.read_at(&mut bytes, offset as u64).unwrap();
    bytes.truncate(n);
    bytes
}

/// A write past the end made the file longer, up to its own offset. Before the write went on,
/// another process truncated the file again. This left a gap that was in neither file nor memory,
/// and the write didn't notice the gap. Then the other process appended to the file, and write-back
/// overwrote these bytes with zeros.
#[test]
fn a_file_that_is_cut_off_as_a_gap_is_closed_has_the_gap_closed_again() {
    let (meddled, _mm, file) = Meddled::with_file(&[7; 5_000]);
    file.write_at(&[8], 4_200).unwrap();
    let other = meddled.theirs();
    *meddled.after_lengthen.lock() = Some(Box::new(move || other.set_len(5_000).unwrap()));
    file.write_at(&[1; 100], 9_000).unwrap();
    // Another process appends at the end that it finds in the file.
    let end = meddled.theirs().len().unwrap();
    assert_eq!(end, 9_100, "the gap is in no file");
    let _ = file.sync(); // It may tell of a cut.
    file.sync().unwrap();
    let expected = [[7; 4_200].as_slice(), &[8], &[7; 799], &[0; 4_000], &[1; 100]].concat();
    assert!(meddled.on_disk() == expected && read(&file, 0, 20_000) == expected);
}

/// In order: a write past the end made the file longer and then failed, so the file was longer than
/// the handle knew. Another process wrote near the new end, and then made the file a little
/// shorter. The handle took this for a cut of its own bytes, and then grew the file without reading
/// what was in it. Write-back overwrote the other process's bytes with zeros.
#[test]
fn a_cut_behind_the_known_end_is_growth() {
    let (meddled, _mm, file) = Meddled::with_file(&[7; 5_000]);
    meddled.reads_fail.store(true, Ordering::SeqCst);
    assert!(matches!(file.write_at(&[1; 100], 9_000), Err(Error::ReadFailed { .. })));
    meddled.reads_fail.store(false, Ordering::SeqCst);
    assert_eq!((file.len(), meddled.theirs().len().unwrap()), (9_000, 9_100));
    file.write_at(&[8], 8_300).unwrap();
    meddled.overwrite(8_192, &[[0; 808].as_slice(), &[9; 92]].concat());
    meddled.theirs().set_len(9_050).unwrap();
    let _ = file.sync(); // It may tell of the cut.
    file.sync().unwrap();
    let expected = [[7; 5_000].as_slice(), &[0; 3_300], &[8], &[0; 699], &[9; 50]].concat();
    let on_disk = meddled.on_disk();
    assert_eq!(on_disk.len(), expected.len());
    assert_eq!(on_disk.iter().zip(&expected).position(|(is, wanted)| is != wanted), None, "on the disk");
    assert!(read(&file, 0, 20_000) == expected, "what is read");
}

/// A page was being changed through a guard when another process cut the file off before this page.
/// The change was lost with the page, but `sync` returned `Ok`.
#[test]
fn a_change_that_is_cut_off_while_it_is_made_is_told() {
    for len in [100, 0] {
        let (meddled, _mm, file) = Meddled::with_file(&[7; 3 * PAGE]);
        file.sync().unwrap();
        let mut page = file.page_mut_at(2 * 4096).unwrap();
        page[0] = 8;
        meddled.theirs().set_len(len).unwrap();
        assert!(read(&file, 3 * PAGE, 1).is_empty(), "this read notices");
        drop(page);
        let told = file.sync();
        assert!(matches!(told, Err(Error::WriteFailed { error: IoError::CutOff, .. })), "{told:?}");
        file.sync().unwrap();
        assert_eq!(meddled.on_disk(), vec![7; len as usize]);
    }
}

/// Another process truncated a file, and right afterwards the file's last handle was dropped.
/// Write-back refused to write anything before it knew the new length. So all dirty bytes were
/// lost, also those before the new end.
#[test]
fn what_lies_before_a_cut_is_written_when_the_last_handle_is_dropped() {
    let (meddled, _mm, file) = Meddled::with_file(&[7; 3 * PAGE]);
    file.write_at(&[8; 10], 0).unwrap();
    meddled.theirs().set_len(2 * PAGE as u64).unwrap();
    drop(file);
    assert!(meddled.on_disk() == [[8; 10].as_slice(), &[7; 2 * PAGE - 10]].concat());
}

/// In order: a call was about to make a file longer; another thread loaded the page with the old
/// end; another process appended to this page; the file was made longer. The loaded page then
/// counted as whole: readers found zeros in place of the appended bytes, and write-back wrote these
/// zeros.
#[test]
fn what_is_appended_while_the_file_is_made_longer_is_kept() {
    let (meddled, _mm, file) = Meddled::with_file(&[7; 5_000]);
    let (reader, other) = (file.clone(), meddled.clone());
    *meddled.before_set_len.lock() = Some(Box::new(move || {
        assert!(read(&reader, PAGE, 10) == [7; 10]);
        other.overwrite(PAGE as u64, &[[7; 904].as_slice(), &[9; 100]].concat());
    }));
    file.set_len(20_000).unwrap();
    assert!(read(&file, 5_000, 100) == [9; 100], "readers find what was appended");
    file.write_at(&[8], PAGE as u64).unwrap();
    file.sync().unwrap();
    assert!(meddled.on_disk()[5_000..5_100] == [9; 100], "the file has it");
    assert!(meddled.on_disk()[5_100..] == [0; 14_900], "and zeros after it");
}

/// Another process truncated a file. A write past the old end was the first call to notice, as it
/// read its page. The gap between the new end and the write was in neither file nor memory. The
/// other process then appended to the file, and write-back overwrote these bytes with zeros.
#[test]
fn a_write_that_finds_a_cut_closes_the_gap() {
    for cut in [9_000, 100] {
        let (meddled, _mm, file) = Meddled::with_file(&[7; 10_000]);
        meddled.theirs().set_len(cut).unwrap();
        file.write_at(&[1; 100], 10_000).unwrap();
        assert_eq!(meddled.theirs().len().unwrap(), 10_100, "the gap is in no file");
        file.sync().unwrap();
        let expected = [&[7; 10_000][..cut as usize], &vec![0; 10_000 - cut as usize], &[1; 100]].concat();
        assert!(read(&file, 0, 20_000) == expected && meddled.on_disk() == expected, "cut at {cut}");
    }
}

/// As above, with a pinned page past the new end: its bytes were cut off, and came back.
#[test]
fn a_write_that_finds_a_cut_brings_nothing_back() {
    let (meddled, _mm, file) = Meddled::with_file(&[7; 10_000]);
    let pinned = file.page_at(PAGE as u64).unwrap();
    meddled.theirs().set_len(100).unwrap();
    let refused = file.write_at(&[1; 100], 10_000);
    assert!(matches!(refused, Err(Error::PageBusy { .. })), "{refused:?}");
    drop(pinned);
    file.write_at(&[1; 100], 10_000).unwrap();
    assert!(read(&file, 100, 9_900) == [0; 9_900]);
}

/// Opens a file of ten pages of ones. One thread reads page 5, and is held back at the gate after
/// it has found that the file has this page. Then another process truncates the file within page 1,
/// Pagefold notices, and a write makes the rest of page 1 dirty.
fn cut_under_a_reader() -> (Meddled, Pagefold, File, impl FnOnce() + Send) {
    let (meddled, mm, file) = Meddled::with_file(&[1; 10 * PAGE]);
    file.advise(0..u64::MAX, Advice::Random).unwrap();
    let (gate, clone) = (Arc::new(Gate::default()), file.clone());
    let its = Arc::clone(&gate);
    *meddled.before_load.lock() = Some(Box::new(move || its.pass()));
    let reader = Answer::of(move || read(&clone, 5 * PAGE, PAGE));
    gate.wait_for_somebody();
    meddled.theirs().set_len(PAGE as u64 + 100).unwrap();
    assert!(read(&file, 10 * PAGE, 1).is_empty(), "this read notices");
    file.write_at(&[1], PAGE as u64).unwrap();
    let finishes = move || {
        gate.open();
        reader.wait().expect("the reader hangs");
    };
    (meddled, mm, file, finishes)
}

/// Page 5 is the other process's. A write to a part of it changes nothing else.
fn page_5_is_ones(meddled: &Meddled, file: &File) {
    assert!(read(file, 5 * PAGE, PAGE) == [1; PAGE], "zeros in place of what was appended");
    file.write_at(&[1], 5 * PAGE as u64).unwrap();
    let _ = file.sync(); // It may tell of the cut.
    file.sync().unwrap();
    assert!(meddled.on_disk()[5 * PAGE..6 * PAGE] == [1; PAGE], "what was appended is overwritten");
}

/// A reader had found that the file has a page, and waited for memory. Meanwhile another process
/// truncated the file before this page, and later appended to the file again. While Pagefold
/// adopted the growth, the reader loaded the page. By the length that Pagefold knew, the device had
/// no byte of the page, so the page became zeros. These zeros stayed in memory in place of the
/// appended bytes.
#[test]
fn a_load_that_begins_while_growth_is_adopted_leaves_no_zeros() {
    let (meddled, _mm, file, reader_finishes) = cut_under_a_reader();
    meddled.overwrite(PAGE as u64, &[1; 9 * PAGE]);
    *meddled.before_read_of.lock() = Some((PAGE as u64, Box::new(reader_finishes)));
    assert!(read(&file, 9 * PAGE, 10) == [1; 10], "this read adopts the growth");
    assert!(meddled.before_read_of.lock().is_none(), "the dirty page with the old end is completed");
    page_5_is_ones(&meddled, &file);
}

/// As above, but Pagefold itself made the file longer, just after another process had appended to
/// it.
#[test]
fn a_load_that_begins_while_the_file_is_made_longer_leaves_no_zeros() {
    let (meddled, _mm, file, reader_finishes) = cut_under_a_reader();
    let other = meddled.clone();
    *meddled.before_set_len.lock() = Some(Box::new(move || {
        other.overwrite(PAGE as u64, &[1; 5 * PAGE]);
        reader_finishes();
    }));
    file.set_len(10 * PAGE as u64).unwrap();
    page_5_is_ones(&meddled, &file);
}

/// A reader had found that the file has a page. Before the reader loaded the page, the file was
/// truncated before the page, or within it. The reader got zeros in place of the bytes that were
/// cut off, as if the file had these zeros.
#[test]
fn a_reader_whose_page_is_cut_off_before_it_is_loaded_gets_no_zeros() {
    for len in [100, 2 * PAGE as u64 + 100] {
        for is_cut_by_us in [true, false] {
            let (meddled, _mm, file) = Meddled::with_file(&[7; 4 * PAGE]);
            file.advise(0..u64::MAX, Advice::Random).unwrap();
            let (ours, theirs) = (file.clone(), meddled.theirs());
            *meddled.before_load.lock() = Some(Box::new(move || {
                if is_cut_by_us {
                    ours.set_len(len).unwrap();
                } else {
                    theirs.set_len(len).unwrap();
                    assert!(read(&ours, 4 * PAGE, 1).is_empty(), "this read notices");
                }
            }));
            let bytes = read(&file, 2 * PAGE, PAGE);
            assert!(meddled.before_load.lock().is_none());
            assert!(bytes == vec![7; bytes.len()], "cut at {len}: zeros that the file never had");
            assert!(2 * PAGE + bytes.len() <= len.max(2 * PAGE as u64) as usize);
        }
    }
}
