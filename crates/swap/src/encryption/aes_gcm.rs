//! AES-256-GCM, implemented by a library.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use super::{TAG, WHAT};

/// A key.
pub(super) struct Cipher {
    /// The library calls the key "less safe" because the key doesn't choose nonces itself.
    /// `Encryption` makes sure that no nonce is used twice (N1).
    key: LessSafeKey,
}

impl Cipher {
    /// Creates a new random key; `None` if the system provides no random bytes.
    pub(super) fn new() -> Option<Self> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).ok()?;
        let key = UnboundKey::new(&AES_256_GCM, &key).ok()?;
        Some(Self { key: LessSafeKey::new(key) })
    }

    /// Encrypts bytes in place, and returns their tag; `None` if they exceed the algorithm's limit
    /// of 64 GiB.
    pub(super) fn encrypt(&self, nonce: u64, what: &[u8; WHAT], bytes: &mut [u8]) -> Option<[u8; TAG]> {
        let tag = self.key.seal_in_place_separate_tag(nonce_of(nonce), Aad::from(what), bytes).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Decrypts bytes in place. Returns false if `bytes`, `tag`, `nonce` and `what` aren't all from
    /// one call of [`encrypt`](Self::encrypt).
    pub(super) fn decrypt(&self, nonce: u64, what: &[u8; WHAT], tag: [u8; TAG], bytes: &mut [u8]) -> bool {
        self.key.open_in_place_separate_tag(nonce_of(nonce), Aad::from(what), Tag::from(tag), bytes, 0..).is_ok()
    }
}

fn nonce_of(count: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&count.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
