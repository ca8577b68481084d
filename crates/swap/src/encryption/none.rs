//! Replaces `encryption` in builds without that feature: no area can be encrypted.

use arrayvec::ArrayVec;
use sync::SharedBytes;
use sync::time::Duration;

use crate::page_out::PageOut;
use crate::slot_word::BATCH_MAX;
use crate::{AddError, Owner, SlotId};

/// Whether this build can encrypt.
pub(crate) const IS_COMPILED_IN: bool = false;

/// Has no values, because no area is encrypted.
pub(crate) enum Encryption {}

impl Encryption {
    pub(crate) fn bytes(_: u64, _: usize) -> u64 {
        0
    }

    pub(crate) fn new(area: &str, _: u64, _: usize) -> Result<Self, AddError> {
        Err(AddError::NoEncryption { area: area.to_owned() })
    }

    pub(crate) fn encrypt(&self, _: &[SlotId], _: &[PageOut<'_>], _: Duration) -> Option<Encrypted> {
        match *self {}
    }

    pub(crate) fn decrypt(&self, _: SlotId, _: Owner, _: u32, _: SharedBytes<'_>) -> bool {
        match *self {}
    }

    pub(crate) fn prefetch(&self, _: SlotId) {
        match *self {}
    }
}

/// Has no values, because no page is encrypted.
pub(crate) enum Encrypted {}

impl Encrypted {
    pub(crate) fn pages(&mut self) -> ArrayVec<SharedBytes<'_>, BATCH_MAX> {
        match *self {}
    }
}
