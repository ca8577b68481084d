//! Encrypted areas: pages leave memory as AES-256-GCM has them.
//!
//! An area's key is made when the area is added, and is in memory alone, so the area can't be read
//! once the process has ended. What a page was encrypted with, its *nonce* and its *tag*, stay in
//! memory beside the slot's word:
//!
//! - N1. A nonce is a count of all pages that were encrypted with this key, in 64 bits: never
//!   random, and never used twice. A write takes as many as it has pages, by one addition; one that
//!   fails, or that is tried again elsewhere, takes new ones.
//! - N2. The tag covers the page's bytes, its slot with the slot's generation, its owner and its
//!   group. It takes the place of the checksum that pages in other areas have (`seal`). A device
//!   that answers with an older page of the same slot, or with another slot's, can't answer with
//!   the nonce and the tag that are remembered here: the page is `SwapCorrupt`.
//!
//! A page is encrypted into a buffer, from which the device reads, while the page itself stays
//! readable and writable in its frame. The area has a few buffers, each for a batch, charged as its
//! tables are: swapping out allocates nothing. A write that finds none free waits, as its device
//! has several writes to do, but only until that device would count as stalled; then the area is
//! full for it. A page that comes back is decrypted by way of the reader's stack.
//!
//! Nonce and tag of a slot are its owner's, as the seal is: written before the slot's word says
//! *swapped*, which publishes them.

mod aes_gcm;
mod buffers;

use arrayvec::ArrayVec;
use sync::atomic::{AtomicU64, Ordering};
use sync::time::Duration;
use sync::zeroed::zeroed;
use sync::{CachePadded, SharedBytes};

use crate::page_out::PageOut;
use crate::slot_word::BATCH_MAX;
use crate::{AddError, Owner, SlotId};
use aes_gcm::Cipher;
use buffers::{Buffer, Buffers};

/// The bytes that a page's tag has.
const TAG: usize = 16;
/// What a page is, besides its bytes: slot, owner and group.
const WHAT: usize = 24;

/// Whether this build can encrypt.
pub(crate) const IS_COMPILED_IN: bool = true;

/// How the pages of one area are encrypted.
pub(crate) struct Encryption {
    cipher: Cipher,
    /// Nonces that were used: the next one (N1).
    used: CachePadded<AtomicU64>,
    /// By the slot's number.
    nonces: Box<[AtomicU64]>,
    tags: Box<[[AtomicU64; TAG / 8]]>,
    buffers: Buffers,
}

impl Encryption {
    /// Memory that it takes for an area of so many slots.
    pub(crate) fn bytes(slots: u64, page_size: usize) -> u64 {
        let each = (size_of::<AtomicU64>() + TAG) as u64;
        slots.saturating_mul(each).saturating_add(Buffers::bytes(slots, page_size))
    }

    /// A new key for an area of that name, of so many slots.
    ///
    /// # Errors
    /// There is no memory for it, or the system gives no random bytes.
    pub(crate) fn new(area: &str, slots: u64, page_size: usize) -> Result<Self, AddError> {
        let cipher = Cipher::new().ok_or_else(|| AddError::NoKey { area: area.to_owned() })?;
        let with_tables = || {
            let count = usize::try_from(slots).ok()?;
            Some(Self {
                cipher,
                used: CachePadded::new(AtomicU64::new(0)),
                nonces: zeroed(count)?,
                tags: zeroed(count)?,
                buffers: Buffers::new(slots, page_size)?,
            })
        };
        with_tables().ok_or_else(|| AddError::NoMemory { area: area.to_owned(), bytes: Self::bytes(slots, page_size) })
    }

    /// Pages as they are written to slots, which are the caller's. `None` if no buffer became free
    /// in `patience`.
    pub(crate) fn encrypt(&self, slots: &[SlotId], pages: &[PageOut<'_>], patience: Duration) -> Option<Encrypted<'_>> {
        let mut buffer = self.buffers.take(patience)?;
        // Relaxed: nothing but the number matters (N1).
        let first = self.used.fetch_add(pages.len() as u64, Ordering::Relaxed);
        for (nonce, (&slot, page)) in (first..).zip(slots.iter().zip(pages)) {
            let at = (nonce - first) as usize;
            let bytes = buffer.page(at);
            page.bytes.copy_to(0, bytes);
            let tag = self.cipher.encrypt(nonce, &what(slot, page.owner, page.group), bytes)?;
            let number = slot.number() as usize;
            // Relaxed: published by the slot's word.
            self.nonces[number].store(nonce, Ordering::Relaxed);
            let words = tag.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word));
            self.tags[number].iter().zip(words).for_each(|(into, word)| into.store(word, Ordering::Relaxed));
        }
        Some(Encrypted { buffer, pages: pages.len() })
    }

    /// Decrypts what was read of a page, where it was read. False if that isn't what was written;
    /// it is unspecified then.
    pub(crate) fn decrypt(&self, slot: SlotId, owner: Owner, group: u32, bytes: SharedBytes<'_>) -> bool {
        let number = slot.number() as usize;
        // Relaxed: written before the word by which the caller knows the page.
        let nonce = self.nonces[number].load(Ordering::Relaxed);
        let mut tag = [0; TAG];
        let words = self.tags[number].iter().map(|word| word.load(Ordering::Relaxed));
        tag.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(into, word)| *into = word.to_le_bytes());
        let what = what(slot, owner, group);
        buffers::with_copy(bytes, |copy| self.cipher.decrypt(nonce, &what, tag, copy))
    }

    /// Asks the CPU to fetch what there is of a slot.
    pub(crate) fn prefetch(&self, slot: SlotId) {
        let number = slot.number() as usize;
        self.nonces.get(number).into_iter().for_each(sync::prefetch::prefetch);
        self.tags.get(number).into_iter().for_each(sync::prefetch::prefetch);
    }
}

/// Pages on their way to a device.
pub(crate) struct Encrypted<'a> {
    buffer: Buffer<'a>,
    pages: usize,
}

impl Encrypted<'_> {
    /// Each of them.
    pub(crate) fn pages(&mut self) -> ArrayVec<SharedBytes<'_>, BATCH_MAX> {
        self.buffer.pages().take(self.pages).collect()
    }
}

/// What the tag covers besides the page's bytes (N2).
fn what(slot: SlotId, owner: Owner, group: u32) -> [u8; WHAT] {
    let mut bytes = [0; WHAT];
    let parts = [slot.bits(), owner.number(), u64::from(group)];
    bytes.as_chunks_mut::<8>().0.iter_mut().zip(parts).for_each(|(into, part)| *into = part.to_le_bytes());
    bytes
}

#[cfg(all(test, not(pagefold_manycore)))]
mod tests;
