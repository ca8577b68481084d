//! The seam, which lets `sync` replace its atomics, costs nothing: a lookup that takes its atomics
//! from `sync` has the same machine code as one that takes them from `core`.
//!
//! The radix tree and the lock-free lookup of the experiment `lookup` are compiled here twice, from
//! the same files: once with the atomics of `sync`, once with those of `core`. Then the
//! instructions of both are compared, and those of the functions that they call. Addresses are
//! relative to where the code lies, so jumps and calls are equal if they lead to equal code. A
//! third copy has a seam that does cost something; the comparison must find the difference.
#![cfg(all(target_arch = "x86_64", not(pagefold_manycore)))]
#![allow(clippy::duplicate_mod, reason = "compiling the same files once for each seam is the point")]

mod same_code;

use std::any::TypeId;

/// What Pagefold uses.
mod through_sync {
    mod seam {
        pub(crate) use sync::atomic::{AtomicU32, AtomicU64, Ordering};
    }
    include!("seam/lookup.rs");
}

/// What it would use without a seam.
mod without {
    mod seam {
        pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    }
    include!("seam/lookup.rs");
}

/// A seam that counts loads: what one could overlook.
mod costly {
    mod seam {
        pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
        use core::sync::atomic::{AtomicU64 as Word, Ordering::Relaxed};

        static LOADS: Word = Word::new(0);

        pub(crate) struct AtomicU64(Word);

        impl AtomicU64 {
            pub(crate) const fn new(value: u64) -> Self {
                Self(Word::new(value))
            }

            #[inline]
            pub(crate) fn load(&self, order: Ordering) -> u64 {
                LOADS.fetch_add(1, Relaxed);
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: u64, order: Ordering) {
                self.0.store(value, order);
            }
        }
    }
    include!("seam/lookup.rs");
}

/// Types that aren't the same don't compile here.
const _: () = {
    const fn _atomic(value: &sync::atomic::AtomicU64) -> &core::sync::atomic::AtomicU64 {
        value
    }
    const fn _pointer(value: &sync::atomic::AtomicPtr<u8>) -> &core::sync::atomic::AtomicPtr<u8> {
        value
    }
};

/// Tells where the loader has put the program.
// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pagefold_seam_landmark() {}

#[test]
fn a_lookup_through_the_seam_is_the_same_machine_code() {
    let landmark: extern "C" fn() = pagefold_seam_landmark;
    let program = same_code::Program::this(landmark as *const u8, "pagefold_seam_landmark");
    let [through, without, costly] = [through_sync::code(), without::code(), costly::code()];
    let count = program.compare(through, without).unwrap_or_else(|difference| panic!("{difference}"));
    println!("{count} instructions of the lookup compared: the same with and without the seam");
    // A whole lookup: less would mean that something else was compared.
    assert!(count > 40, "{count} instructions");
    let difference = program.compare(through, costly).expect_err("a counter in the seam is found");
    println!("a seam with a counter: {difference}");
}

#[test]
fn all_three_find_the_same_pages() {
    assert_eq!(through_sync::sums(), without::sums());
    assert_eq!(through_sync::sums(), costly::sums());
    assert_eq!(TypeId::of::<sync::atomic::AtomicU32>(), TypeId::of::<core::sync::atomic::AtomicU32>());
}
