//! Groups whose last handle is dropped, and whose names are used again.

use pagefold::{Advice, Error};

use crate::limits::Ceiling;
use crate::support::eventually;
use crate::world::World;

impl World {
    /// Drops a group, and builds one with the same name. If a file or a pin keeps the old group
    /// alive, this must fail.
    pub(crate) fn build_group_again(&mut self) {
        // A group needs some memory that isn't for pages. Pinned pages may leave no room for this
        // memory.
        if self.mm.stats().budget_bytes - self.mm.used() < 16 << 10 {
            self.held.clear();
        }
        let at = self.random.below(self.groups.len() as u64) as usize;
        let (name, max) = (self.groups[at].name().to_owned(), self.groups[at].max());
        let is_kept = self.open.iter().any(|open| open.file.group().name() == name) || self.pins_keep_group(&name);
        // Pages that handles of other groups use as well may have to be written or unpinned before
        // the group can go.
        let goes = self.held.is_empty() && self.groups[at].stats().unclean_bytes == 0;
        drop(self.groups.remove(at));
        let builder = self.mm.group(&name);
        let builder = if self.random.one_in(3) { builder } else { builder.max(max) };
        let group = match builder.build() {
            Err(Error::GroupExists { .. }) if is_kept => self.mm.find_group(&name).expect("it exists"),
            Ok(group) if !is_kept => {
                assert_eq!(group.charged(), 0, "{name} was built just now");
                if goes {
                    eventually("a group outlived its pages", || self.is_gone(&name));
                }
                self.ceilings[at] = Ceiling::default();
                self.seen.groups_built_again += 1;
                group
            }
            other => panic!("{name}, which {}: {other:?}", if is_kept { "is in use" } else { "isn't in use" }),
        };
        self.groups.insert(at, group);
    }

    /// Whether a group without handles is gone. A page whose load was in flight when the last
    /// handle was dropped keeps the group alive, so this also evicts all pages that can be evicted.
    fn is_gone(&self, name: &str) -> bool {
        let is_gone = self.mm.stats().groups.iter().all(|group| !group.dropped || group.name != name);
        if !is_gone {
            self.open.iter().for_each(|open| open.file.advise(0..u64::MAX, Advice::DontNeed).unwrap());
        }
        is_gone
    }
}
