//! The flusher: threads that write back pages that have been dirty for long, and pages of groups
//! that have many dirty pages.
//!
//! Devices with pages to write wait in a queue (`dirty::line`). A thread takes the first device
//! from the queue and *visits* it: the thread writes one of the device's files for at most half a
//! second (`writeback`), then the next one, until no file needs to be written. The next file is
//! always the file with the greatest need (below).
//!
//! A device is never visited by two threads at once. So a device that doesn't answer ties up one
//! thread, and no other device waits for it.
//!
//! # Threads
//! The first thread is started when a file is first opened for writing. A thread that takes a
//! device out of the queue makes sure that another thread waits at the queue, and starts one if
//! none does. So if at most `n` devices were ever visited at the same time, there are `n + 1`
//! threads, up to 64. (If 64 devices don't answer, other devices wait.)
//!
//! While there are dirty pages, one of the threads that wait at the queue wakes up every half
//! second. It puts all devices with dirty pages into the queue, so that old pages are written. If
//! there are no dirty pages, the threads sleep without waking up.
//!
//! # Need
//! A file needs to be written in each of these cases:
//! - Its dirty pages are old.
//! - A thread can't get a frame.
//! - It has dirty pages of a group that has many dirty pages
//!   ([`wants_writing`]), or whose threads wait for pages to become clean.
//!
//! A file's need grows while the file waits, so no file starves. A file that couldn't be written is
//! left alone for a second.
//!
//! # The end of the process
//! When the process exits normally with this Pagefold alive, the flusher's threads still run, and
//! write the dirty pages. Each device is visited once more, and each of its files is written as if
//! its last handle had been dropped (`writeback`). The exiting thread waits for these visits, up to
//! a limit ([`sync::exit`]).
//!
//! Lock order: a device's list → the queue.

use sync::Arc;
use sync::atomic::Ordering;
use sync::tasks::survive;
use sync::thread::{JoinHandle, is_current, spawn};

use crate::dirty::device::{Device, DirtyPart};
use crate::error::Error;
use crate::manager::Manager;
use crate::write::at_exit;
use crate::write::dirty::wants_writing;

/// How old dirty pages get before they are written.
const AGE_MAX_MS: u64 = 5_000;
/// How long a file that couldn't be written is left alone.
const RETRY_MS: u64 = 1_000;
/// A file that needs to be written only because a thread waits for a frame isn't written before
/// this time has passed since its last write, and since it has had dirty pages.
const SHORT_PAUSE_MS: u64 = 100;

/// Ends the flusher when dropped.
pub(crate) struct FlusherThread(pub(crate) Arc<Manager>);

impl Drop for FlusherThread {
    fn drop(&mut self) {
        // A forked child has no flusher threads to join, and perhaps locks that no thread will
        // release.
        if self.0.memory.frames.forked() {
            return;
        }
        let flusher = &self.0.file_io.flusher;
        if !flusher.threads().is_empty() {
            at_exit::write_no_more(&self.0);
        }
        flusher.stop();
        let all_end = self.0.file_io.io_timeout.is_none_or(|time| flusher.wait_for_ends(time));
        loop {
            let Some(thread) = flusher.threads().pop() else { break };
            if all_end && !is_current(&thread) {
                // The thread panics only because of a bug of ours. Its message has been printed
                // already.
                let _ = thread.join();
            }
        }
        flusher.take_active().iter().for_each(|device| device.clear());
    }
}

/// Starts the flusher, if it doesn't run yet.
pub(crate) fn start(manager: &Arc<Manager>) -> Result<(), Error> {
    let mut threads = manager.file_io.flusher.threads();
    if threads.is_empty() {
        manager.file_io.flusher.first_thread();
        threads.push(start_thread(manager).inspect_err(|_| manager.file_io.flusher.not_started())?);
        at_exit::write(manager);
    }
    Ok(())
}

fn start_thread(manager: &Arc<Manager>) -> Result<JoinHandle<()>, Error> {
    let its = Arc::clone(manager);
    spawn("pagefold-flush", move || run(&its)).map_err(Error::no_thread)
}

fn run(manager: &Arc<Manager>) {
    while let Some(device) = manager.file_io.flusher.next_device() {
        if manager.file_io.flusher.lacks_thread() {
            let mut threads = manager.file_io.flusher.threads();
            match start_thread(manager) {
                Ok(thread) => threads.push(thread),
                // The next thread that takes a device tries again. Until then the existing
                // threads do the work.
                Err(_) => manager.file_io.flusher.not_started(),
            }
        }
        let was_leaving = manager.file_io.flusher.is_leaving();
        visit(manager, &device);
        manager.file_io.flusher.visited(&device, was_leaving);
    }
    manager.file_io.flusher.ended();
}

/// Writes files of a device until none needs it.
fn visit(manager: &Manager, device: &Arc<Device>) {
    let visit = 1 + device.visits.fetch_add(1, Ordering::Relaxed);
    let mut stuck = Vec::new();
    device.each_part(|part| {
        if part.group.dirt.stuck() > 0 {
            stuck.push(Arc::clone(&part.group));
        }
    });
    stuck.sort_unstable_by_key(|group| group.id);
    stuck.dedup_by_key(|group| group.id);
    stuck.iter().for_each(|group| _ = group.dirt.count_stuck());
    while !manager.file_io.flusher.is_stopping() {
        let now_ms = manager.memory.now_ms();
        let is_leaving = manager.file_io.flusher.is_leaving();
        let needs = |part: &DirtyPart| match part.tried(visit) {
            true => None,
            false if is_leaving => (part.pages() > 0).then_some(1.0),
            false => need(manager, part, now_ms),
        };
        let Some(part) = device.neediest(needs) else { break };
        let Some(file) = part.file.upgrade() else {
            part.try_no_more(visit); // The file is being closed, which writes its pages.
            continue;
        };
        // The thread survives a panic, because it serves other files, too. A backend's file may
        // panic even when it is dropped, and this thread may hold the last reference to it.
        let flushed = survive(|| file.flush(is_leaving, visit));
        let dropped = survive(|| drop(file));
        if !flushed || !dropped {
            part.try_no_more(visit);
        }
    }
}

/// Returns how urgently the file of a part should be written; `None` if it needn't be.
pub(crate) fn need(manager: &Manager, part: &DirtyPart, now_ms: u64) -> Option<f64> {
    if part.pages() == 0 {
        return None;
    }
    let waited_ms = part.waited_ms(now_ms);
    let is_old = part.age_ms(now_ms) >= AGE_MAX_MS;
    let is_short = || now_ms < manager.file_io.flusher.short_until_ms() && waited_ms >= SHORT_PAUSE_MS;
    let urgency = match part.failed_ms() {
        Some(failed_ms) => (now_ms >= failed_ms + RETRY_MS).then_some(1.0),
        None if part.group.dirt.is_short(now_ms) || is_short() => Some(2.0),
        None => wants_writing(manager, &part.group).or_else(|| is_old.then_some(1.0)),
    };
    Some(urgency? + waited_ms as f64 / 1_000.0)
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use sync::exit::Leaving;

    use crate::Pagefold;
    use crate::patience::WATCHDOG;
    use test_disks::SimulatedDisk;

    /// A regression: an exiting process waited for ten seconds, which is its limit, although the
    /// flusher had written the files at once. The process waits until every device has been visited
    /// once more. The flusher visited the devices, but didn't record that these were the visits
    /// that the process waited for.
    #[test]
    fn the_end_of_a_process_is_over_when_its_files_are_written() {
        let disk = SimulatedDisk::default();
        disk.add_bytes("file", vec![0; 4096]);
        let mm = Pagefold::builder().memory("1MiB").backend(disk).build().unwrap();
        let file = mm.group("a").build().unwrap().open_options().write(true).open("file").unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        let manager = mm.manager();
        manager.begin();
        manager.wait(WATCHDOG);
        assert!(!manager.file_io.flusher.is_awaited());
        assert_eq!(mm.stats().groups[0].unclean_bytes, 0);
    }
}
