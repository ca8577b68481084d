//! A use after free that AddressSanitizer has to report: if this test passes under
//! AddressSanitizer, the other tests prove nothing.
//!
//! Run by hand or by the gate: `cargo test --test known_use_after_free -- --ignored`, which must
//! fail under AddressSanitizer.
#![cfg(not(pagefold_loom))]

#[test]
#[ignore = "for AddressSanitizer: a use after free that it must find"]
fn a_word_is_read_after_it_was_freed() {
    let word = Box::into_raw(Box::new(1_u64));
    // SAFETY: it comes from `into_raw`, and is freed once.
    drop(unsafe { Box::from_raw(word) });
    // SAFETY: none. This is what the test is about: the word is gone.
    let _ = unsafe { word.read_volatile() };
}
