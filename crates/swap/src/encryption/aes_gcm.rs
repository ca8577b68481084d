//! AES-256-GCM, as a library has it.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use super::{TAG, WHAT};

/// A key.
pub(super) struct Cipher {
    /// "Less safe" than keys that choose nonces themselves: ours are counted by `Encryption` (N1).
    key: LessSafeKey,
}

impl Cipher {
    /// A new random key; `None` if the system gives no random bytes.
    pub(super) fn new() -> Option<Self> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).ok()?;
        let key = UnboundKey::new(&AES_256_GCM, &key).ok()?;
        Some(Self { key: LessSafeKey::new(key) })
    }

    /// Encrypts bytes where they are. Returns their tag; `None` for more bytes than the algorithm
    /// is for, 64 GiB.
    pub(super) fn encrypt(&self, nonce: u64, what: &[u8; WHAT], bytes: &mut [u8]) -> Option<[u8; TAG]> {
        let tag = self.key.seal_in_place_separate_tag(nonce_of(nonce), Aad::from(what), bytes).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Decrypts bytes where they are. False if they, their tag, nonce or `what` aren't those of one
    /// call of [`encrypt`](Self::encrypt).
    pub(super) fn decrypt(&self, nonce: u64, what: &[u8; WHAT], tag: [u8; TAG], bytes: &mut [u8]) -> bool {
        self.key.open_in_place_separate_tag(nonce_of(nonce), Aad::from(what), Tag::from(tag), bytes, 0..).is_ok()
    }
}

fn nonce_of(count: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&count.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
