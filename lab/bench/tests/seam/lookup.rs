// Part of `tests/seam.rs`, which includes it once for each seam.

#[path = "../../src/experiments/lookup/speculative.rs"]
mod speculative;
#[path = "../../src/experiments/lookup/tree.rs"]
mod tree;

/// One lookup: find the page, count it, and drop the count.
#[inline(never)]
fn lookup(tree: &tree::Tree, index: u64) -> usize {
    let Some(page) = tree.get_page(index) else { return usize::MAX };
    let number = page.number;
    page.put();
    number
}

/// Where the lookup's code begins.
pub(super) fn code() -> *const u8 {
    lookup as fn(&tree::Tree, u64) -> usize as *const u8
}

/// What lookups in a small tree find.
pub(super) fn sums() -> Vec<usize> {
    let tree = tree::Tree::new(5000);
    // What only the locked designs use.
    if let Some(page) = tree.get_page(0) {
        page.get();
        page.put();
    }
    tree.change(0);
    (0..6000).map(|index| lookup(&tree, index)).collect()
}
