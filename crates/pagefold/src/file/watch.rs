//! A file's timeout: how long calls wait for its device.

use sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use sync::lock::OnceCell;
use sync::time::Duration;
use sync::{Arc, Weak};

use crate::dirty::device::{Device, LastTime};

/// The timeout state of a file, if a timeout is set.
pub(crate) struct Watch<F> {
    pub(crate) time: Duration,
    pub(crate) device: Arc<Device>,
    pub(crate) file: Weak<F>,
    /// The times at which the holder of `extension` (`length`), the holder of the file's `turn`
    /// (`cycle`) and a closing (`closing`) last made progress (WATCH-3 of `watchdog`). Each of
    /// these threads writes its own time. Exception: `closing` is also written by the loads that
    /// the closing waits for.
    length: LastTime,
    cycle: LastTime,
    closing: LastTime,
    /// What the holder of `extension` waits for: one of [`Delay`], or 0 for the device or nothing.
    delay: AtomicU8,
    /// The number of closings that wait for `extension`, or hold it.
    closings_at_length: AtomicUsize,
    /// How often a call of the file has given up waiting, and thereby begun a silence of the
    /// device.
    given_up: AtomicU64,
    /// The number of errands that their callers left and that haven't ended.
    pub(crate) left: Arc<AtomicUsize>,
}

/// A file's cell for its [`Watch`].
pub(crate) type WatchCell<F> = OnceCell<Box<Watch<F>>>;

/// The thread whose progress a wait depends on. Whenever that thread makes progress, the wait's
/// timeout restarts (WATCH-3 of `watchdog`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A single request, made without a lock.
    Answer,
    /// The progress of the thread that holds `extension`.
    Length,
    /// The progress of the thread that holds the file's `turn`.
    Cycle,
    /// The progress of the closing itself, or of the thread that holds `turn`. If the closing needs
    /// `extension`, the progress of the thread that holds `extension` counts, too. The holders may
    /// be threads other than the closing if the file was opened again meanwhile.
    Closing,
}

/// What the holder of `extension` waits for instead of its device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delay {
    Memory = 1,
    /// Write-back's `turn`, which the holder then keeps for a while.
    Turn,
}

impl<F> Watch<F> {
    pub(crate) fn new(time: Duration, device: Arc<Device>, file: &Arc<F>) -> Self {
        Self {
            time,
            device,
            file: Arc::downgrade(file),
            length: LastTime::default(),
            cycle: LastTime::default(),
            closing: LastTime::default(),
            delay: AtomicU8::new(0),
            closings_at_length: AtomicUsize::new(0),
            given_up: AtomicU64::new(0),
            left: Arc::default(),
        }
    }

    /// Returns the last time at which the thread that `pace` names made progress. `now_ms` is the
    /// present time.
    pub(crate) fn last_ms(&self, pace: Pace, now_ms: u64) -> u64 {
        match pace {
            Pace::Answer => 0,
            Pace::Cycle => self.cycle.get(),
            // Acquire pairs with the Release in `Delayed::drop`: a thread that finds the delay over
            // also finds the time at which it ended.
            Pace::Length => match self.delay.load(Ordering::Acquire) {
                delay if delay == Delay::Memory as u8 => now_ms,
                delay if delay == Delay::Turn as u8 => self.length.get().max(self.cycle.get()),
                _ => self.length.get(),
            },
            Pace::Closing => {
                // Relaxed: until the number is seen, the closing counts as waiting for the device.
                let needs_extension = self.closings_at_length.load(Ordering::Relaxed) > 0;
                let length = if needs_extension { self.last_ms(Pace::Length, now_ms) } else { 0 };
                length.max(self.cycle.get()).max(self.closing.get())
            }
        }
    }

    /// Notes that the calling thread, which `pace` names, makes progress at `now_ms`.
    pub(crate) fn progresses(&self, pace: Pace, now_ms: u64) {
        match pace {
            Pace::Answer => {}
            Pace::Length => self.length.is(now_ms),
            Pace::Cycle => self.cycle.is(now_ms),
            Pace::Closing => self.closing.is(now_ms),
        }
    }

    /// Notes that a closing needs `extension`, until the returned value is dropped.
    pub(crate) fn closing_at_length(&self) -> impl Drop + use<'_, F> {
        struct Needs<'a, F>(&'a Watch<F>);
        impl<F> Drop for Needs<'_, F> {
            fn drop(&mut self) {
                self.0.closing.is(self.0.length.get()); // From here on, `last_ms` leaves `length` out.
                self.0.closings_at_length.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.closings_at_length.fetch_add(1, Ordering::Relaxed);
        Needs(self)
    }

    /// Forgets all progress.
    #[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
    pub(crate) fn forget(&self) {
        [&self.length, &self.cycle, &self.closing].into_iter().for_each(LastTime::forget);
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.device.is_silent()
    }

    /// Marks the device as silent, for a call of the file that gives up waiting. If `outcome` shows
    /// that the wait is over, returns the outcome instead.
    pub(crate) fn fall_silent<T>(&self, outcome: impl FnOnce() -> Option<T>) -> Option<T> {
        // Counts only if this call begins the silence. A silence that began earlier ends with the
        // device's next answer. Release pairs with the Acquire in `load_without_device`.
        self.device.fall_silent(|| _ = self.given_up.fetch_add(1, Ordering::Release), outcome)
    }

    /// Called before a page is put in *loading* without a request to the device. The page's load
    /// must be over before the returned value is dropped. If one of the file's calls has made the
    /// device silent meanwhile, dropping the value ends the silence, because that call may have
    /// waited for this page (WATCH-1 of `watchdog`). A silence that began earlier stays: the device
    /// has answered nothing.
    pub(crate) fn load_without_device(&self) -> impl Drop + use<'_, F> {
        struct Over<'a, F>(&'a Watch<F>, u64);
        impl<F> Drop for Over<'_, F> {
            fn drop(&mut self) {
                // Pairs with the fence in `Device::fall_silent`: either the call that gives up
                // finds the load over, or this thread finds the call counted, and the device
                // silent.
                fence(Ordering::SeqCst);
                if self.0.given_up.load(Ordering::Relaxed) != self.1 {
                    self.0.device.answered();
                }
            }
        }
        // Acquire pairs with the Release in `fall_silent`: a call that is counted here looked at
        // its page's word before this thread puts the word in *loading*.
        Over(self, self.given_up.load(Ordering::Acquire))
    }

    /// Notes that the calling thread, which holds `extension`, waits for something other than its
    /// device, until the returned value is dropped. `clock` returns the time in milliseconds.
    pub(crate) fn delayed<C: Fn() -> u64>(&self, delay: Delay, clock: C) -> Delayed<'_, F, C> {
        // Relaxed: until the store is seen, the caller counts as waiting for the device.
        self.delay.store(delay as u8, Ordering::Relaxed);
        Delayed { watch: self, clock }
    }
}

/// The holder of `extension` waits for something other than its device until this is dropped.
pub(crate) struct Delayed<'a, F, C: Fn() -> u64> {
    watch: &'a Watch<F>,
    clock: C,
}

impl<F, C: Fn() -> u64> Drop for Delayed<'_, F, C> {
    fn drop(&mut self) {
        self.watch.progresses(Pace::Length, (self.clock)());
        // Release pairs with the Acquire in `last_ms`.
        self.watch.delay.store(0, Ordering::Release);
    }
}
