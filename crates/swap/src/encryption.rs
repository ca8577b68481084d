//! Encrypted areas: pages leave memory only in encrypted form, with AES-256-GCM.
//!
//! An area's key is created when the area is added. The key is only in memory, so the area can't be
//! read once the process has ended. Each page has a *nonce*, which makes its encryption unique, and
//! a *tag*, which authenticates it. Both stay in memory beside the slot's word:
//!
//! - N1. Nonces are never random, and none is used twice. They come from a 64-bit counter, which is
//!   incremented for every page that is encrypted with this key. A write takes the nonces of all
//!   its pages with one atomic addition. If a write fails, or is retried in another area, the next
//!   attempt takes new nonces.
//! - N2. The tag covers the page's bytes, its slot with the slot's generation, its owner and its
//!   group. It replaces the checksum that pages in other areas have (`seal`). A device may return
//!   an older page of the same slot, or another slot's page. Such a page doesn't match the nonce
//!   and the tag in memory, so the read reports `SwapCorrupt`.
//!
//! A page is encrypted into a buffer, and the device reads the buffer. So the page itself stays
//! readable and writable in its frame. Each area has a few buffers, each large enough for one
//! batch. They are allocated and charged together with the area's tables, so swapping out allocates
//! no memory.
//!
//! If no buffer is free, the device already has several writes pending. The writing thread then
//! waits for a buffer, at most for the time after which a silent device counts as stalled. If no
//! buffer becomes free in this time, the write is refused as if the area were full. The further
//! pages of the same call are then refused without another wait.
//!
//! A page that is read back is decrypted in a copy. For pages of 4 KiB the copy is on the reader's
//! stack.
//!
//! Nonce and tag belong to the slot's owner, like the checksum. They are written before the slot's
//! word becomes *swapped*, which publishes them.

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

/// Bytes of a tag.
const TAG: usize = 16;
/// Bytes of a page's identity: slot, owner and group.
const WHAT: usize = 24;

/// Whether this build can encrypt.
pub(crate) const IS_COMPILED_IN: bool = true;

/// The encryption of one area's pages.
pub(crate) struct Encryption {
    cipher: Cipher,
    /// The number of nonces that were used, which is the next nonce (N1).
    used: CachePadded<AtomicU64>,
    /// The nonces, by slot number.
    nonces: Box<[AtomicU64]>,
    tags: Box<[[AtomicU64; TAG / 8]]>,
    buffers: Buffers,
}

impl Encryption {
    /// Returns the bytes that the encryption of an area of `slots` slots takes.
    pub(crate) fn bytes(slots: u64, page_size: usize) -> u64 {
        let each = (size_of::<AtomicU64>() + TAG) as u64;
        slots.saturating_mul(each).saturating_add(Buffers::bytes(slots, page_size))
    }

    /// Creates a new key, and the tables and buffers, for an area of `slots` slots with the name
    /// `area`.
    ///
    /// # Errors
    /// Memory for the tables can't be allocated, or the system provides no random bytes.
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

    /// Encrypts pages for the slots that they are written to, which the caller must own. `None` if
    /// no buffer becomes free within `patience`.
    pub(crate) fn encrypt(&self, slots: &[SlotId], pages: &[PageOut<'_>], patience: Duration) -> Option<Encrypted<'_>> {
        let mut buffer = self.buffers.take(patience)?;
        // Relaxed: only the number matters (N1).
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

    /// Decrypts `bytes`, which were read for a page, in place. Returns false if they aren't the
    /// bytes that were written; then the contents of `bytes` are unspecified.
    pub(crate) fn decrypt(&self, slot: SlotId, owner: Owner, group: u32, bytes: SharedBytes<'_>) -> bool {
        let number = slot.number() as usize;
        // Relaxed: written before the slot's word, from which the caller knows the page.
        let nonce = self.nonces[number].load(Ordering::Relaxed);
        let mut tag = [0; TAG];
        let words = self.tags[number].iter().map(|word| word.load(Ordering::Relaxed));
        tag.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(into, word)| *into = word.to_le_bytes());
        let what = what(slot, owner, group);
        buffers::with_copy(bytes, |copy| self.cipher.decrypt(nonce, &what, tag, copy))
    }

    /// Prefetches the metadata of a slot.
    pub(crate) fn prefetch(&self, slot: SlotId) {
        let number = slot.number() as usize;
        self.nonces.get(number).into_iter().for_each(sync::prefetch::prefetch);
        self.tags.get(number).into_iter().for_each(sync::prefetch::prefetch);
    }
}

/// Encrypted pages, in a buffer that a device reads.
pub(crate) struct Encrypted<'a> {
    buffer: Buffer<'a>,
    pages: usize,
}

impl Encrypted<'_> {
    /// Returns the bytes of each page.
    pub(crate) fn pages(&mut self) -> ArrayVec<SharedBytes<'_>, BATCH_MAX> {
        self.buffer.pages().take(self.pages).collect()
    }
}

/// Returns the bytes that the tag covers besides the page's own (N2).
fn what(slot: SlotId, owner: Owner, group: u32) -> [u8; WHAT] {
    let mut bytes = [0; WHAT];
    let parts = [slot.bits(), owner.number(), u64::from(group)];
    bytes.as_chunks_mut::<8>().0.iter_mut().zip(parts).for_each(|(into, part)| *into = part.to_le_bytes());
    bytes
}

#[cfg(all(test, not(pagefold_manycore)))]
mod tests;
