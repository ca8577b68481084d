//! Doubly linked lists over one set of pages.

const NONE: u32 = u32::MAX;

/// `N` lists. A page is on one of them at most.
#[derive(Debug)]
pub(crate) struct Lists<const N: usize> {
    links: Vec<Links>,
    ends: [Ends; N],
}

#[derive(Clone, Copy, Debug)]
struct Links {
    /// The page that was added after this one, and the page that was added before it.
    newer: u32,
    older: u32,
    /// The number of the list.
    list: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
    len: usize,
}

impl<const N: usize> Lists<N> {
    /// Creates empty lists for pages below `pages`.
    pub(crate) fn new(pages: usize) -> Self {
        let links = Links { newer: NONE, older: NONE, list: None };
        Self { links: vec![links; pages], ends: [Ends { newest: NONE, oldest: NONE, len: 0 }; N] }
    }

    /// Returns the number of the list that has the page.
    pub(crate) fn list_of(&self, page: u32) -> Option<u8> {
        self.links[page as usize].list
    }

    /// Returns the number of pages of a list.
    pub(crate) fn len(&self, list: u8) -> usize {
        self.ends[usize::from(list)].len
    }

    /// Returns the page that has been on a list for the longest time.
    pub(crate) fn oldest(&self, list: u8) -> Option<u32> {
        Some(self.ends[usize::from(list)].oldest).filter(|&page| page != NONE)
    }

    /// Adds a page at the new end of a list. The page is on no list.
    pub(crate) fn push(&mut self, list: u8, page: u32) {
        let ends = &mut self.ends[usize::from(list)];
        let older = std::mem::replace(&mut ends.newest, page);
        ends.len += 1;
        if older == NONE {
            ends.oldest = page;
        } else {
            self.links[older as usize].newer = page;
        }
        self.links[page as usize] = Links { newer: NONE, older, list: Some(list) };
    }

    /// Takes a page off its list, if it is on one.
    pub(crate) fn remove(&mut self, page: u32) {
        let Links { newer, older, list: Some(list) } = self.links[page as usize] else { return };
        let ends = &mut self.ends[usize::from(list)];
        ends.len -= 1;
        if newer == NONE {
            ends.newest = older;
        } else {
            self.links[newer as usize].older = older;
        }
        if older == NONE {
            ends.oldest = newer;
        } else {
            self.links[older as usize].newer = newer;
        }
        self.links[page as usize].list = None;
    }

    /// Moves a page to the new end of a list, from whichever list it is on.
    pub(crate) fn renew(&mut self, list: u8, page: u32) {
        self.remove(page);
        self.push(list, page);
    }

    /// Takes the oldest page off a list.
    pub(crate) fn pop(&mut self, list: u8) -> Option<u32> {
        let page = self.oldest(list)?;
        self.remove(page);
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_in_the_order_in_which_they_were_added() {
        let mut lists = Lists::<2>::new(5);
        (0..5).for_each(|page| lists.push(0, page));
        lists.remove(2);
        lists.renew(0, 0);
        lists.renew(1, 4);
        assert_eq!((lists.len(0), lists.len(1), lists.list_of(2), lists.list_of(4)), (3, 1, None, Some(1)));
        let popped: Vec<_> = std::iter::from_fn(|| lists.pop(0)).collect();
        assert_eq!((popped, lists.pop(1), lists.pop(1)), (vec![1, 3, 0], Some(4), None));
    }
}
