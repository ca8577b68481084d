//! What a file keeps of its dirty pages; `dirty_part` has what is done with it.

use sync::lock::{Mutex, OnceCell};
use sync::{Arc, Weak};

use crate::dirty::device::{Device, DirtyPart, Flushed};

/// What a file knows of its dirty pages.
#[derive(Default)]
pub(crate) struct FileDirt {
    pub(crate) parts: Mutex<Vec<Arc<DirtyPart>>>,
    /// The file itself, and its device: once it is open for writing.
    pub(crate) home: OnceCell<(Weak<dyn Flushed>, Arc<Device>)>,
}
