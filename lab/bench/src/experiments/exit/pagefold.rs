//! The product: the shared pages are a file's, and handing on is a read of it, which sets the
//! page's referenced bit if it isn't set; private pages are another file's.

use pagefold::{Advice, File, Group, Pagefold};

use super::{Memory, PRIVATE, SHARED, measure};
use crate::experiments::OURS;
use crate::experiments::zeros::{self, PAGE};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "Pagefold: a bit in the page's word, set if it isn't; pages are moved when reclaim looks at them",
    hidden: false,
    measure: measure::<Product>,
};

struct Product {
    group: Group,
    shared: File,
    _manager: Pagefold,
}

struct Owner {
    private: File,
    shared: File,
}

impl Memory for Product {
    type Owner = Owner;

    fn new(owners: usize) -> Self {
        let manager = zeros::manager(owners as u64 * 4 * PRIVATE + SHARED);
        let group = manager.group("owners").build().expect("room for a group");
        let shared = zeros::open(&group, 0);
        shared.advise(0..SHARED * PAGE, Advice::WillNeed).expect("zeros");
        Self { group, shared, _manager: manager }
    }

    fn begin(&self, owner: usize) -> Owner {
        Owner { private: zeros::open(&self.group, owner + 1), shared: self.shared.clone() }
    }

    fn take(&self, owner: &mut Owner, page: u64) {
        owner.private.read_at(&mut [0; 8], page * PAGE).expect("zeros");
    }

    fn hand_on(&self, owner: &mut Owner, page: u64) {
        owner.shared.read_at(&mut [0; 8], page * PAGE).expect("zeros");
    }

    fn end(&self, owner: &mut Owner) {
        owner.private.advise(0..PRIVATE * PAGE, Advice::DontNeed).expect("the range is in the file");
    }
}
