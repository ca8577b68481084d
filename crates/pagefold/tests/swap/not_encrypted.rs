//! In a build without encryption.

use super::*;

#[test]
fn an_encrypted_area_is_refused() {
    let mm = Pagefold::builder().memory("8MiB").build().unwrap();
    let refused = mm.add_swap(in_memory(100).encrypted()).unwrap_err();
    assert!(matches!(refused, pagefold::Error::SwapRefused(_)), "{refused}");
    assert!(refused.to_string().contains("without the feature `encrypted-swap`"), "{refused}");
    assert!(mm.stats().swap.is_empty());
}
