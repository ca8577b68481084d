//! A simulated disk with an observer. The observer is told of each call before the call is made,
//! and can make it fail.

use pagefold::io::IoError;
use sync::Arc;
use test_disks::{Call, SimulatedDisk};

use crate::support::around::{Around, Wrapped};

type Look = dyn Fn(Call) -> Result<(), IoError> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Watched(Arc<Look>);

impl Watched {
    pub(crate) fn new(
        disk: &SimulatedDisk,
        look: impl Fn(Call) -> Result<(), IoError> + Send + Sync + 'static,
    ) -> Wrapped<Self> {
        Wrapped::new(disk, Self(Arc::new(look)))
    }
}

impl Around for Watched {
    fn before(&self, call: Call) -> Result<(), IoError> {
        (self.0)(call)
    }
}
