//! Copies shared bytes in assembly, with the widest moves that every x86-64 CPU has (B1).

use core::arch::asm;
use core::arch::x86_64::__m128i;

use crate::prefetch::LINE;

/// For copies of at least this length, the C library is faster than this module's loop of moves,
/// because the library is tuned to the CPU (measured on Zen 5; `bench peers hit`).
const LIBRARY_COPY_MIN: usize = 512;

/// The same limit for stores. It is lower, because the loop for stores has no wide moves.
pub(super) const LIBRARY_STORE_MIN: usize = 64;

/// Copies the `len` bytes at `from + offset` to `to`. The address and the offset are separate
/// arguments because a load instruction adds them for free.
///
/// A copy of 9 to 128 bytes consists of two runs of moves: one begins at the first byte, the other
/// ends at the last byte. The two runs meet or overlap.
///
/// # Safety
/// The `len` bytes must lie in one run of shared bytes, and `to..to + len` must be writable and
/// exclusive.
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, offset: usize, to: *mut u8, len: usize) {
    // SAFETY: each branch stays within `len` bytes of both, as its pattern shows.
    unsafe {
        match len {
            8 => word(from, offset, to),
            0..8 => bytes(from.add(offset), to, len),
            9..16 => {
                word(from, offset, to);
                word(from, offset + (len - 8), to.add(len - 8));
            }
            16..=32 => {
                pair::<0>(from, offset, to);
                pair::<0>(from, offset + (len - 16), to.add(len - 16));
            }
            33..=64 => {
                half_line(from, offset, to);
                half_line(from, offset + (len - 32), to.add(len - 32));
            }
            65..=128 => {
                line(from, offset, to);
                line(from, offset + (len - 64), to.add(len - 64));
            }
            129..LIBRARY_COPY_MIN => {
                let last = len - 64;
                for at in (0..last).step_by(64) {
                    line(from, offset + at, to.add(at));
                }
                line(from, offset + last, to.add(last));
            }
            _ => library(from.add(offset), to, len),
        }
    }
}

/// # Safety
/// 8 bytes must be valid at both addresses.
#[inline(always)]
unsafe fn word(from: *const u8, offset: usize, to: *mut u8) {
    let word: u64;
    // SAFETY: the caller's; `asm!` instead of a plain load, because other threads may be writing
    // (B1).
    unsafe {
        asm!(
            "mov {}, qword ptr [{} + {}]", out(reg) word, in(reg) from, in(reg) offset,
            options(nostack, preserves_flags, readonly)
        );
        to.cast::<u64>().write_unaligned(word);
    }
}

/// # Safety
/// 64 bytes must be valid at both addresses.
#[inline(always)]
unsafe fn line(from: *const u8, offset: usize, to: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        half_line(from, offset, to);
        pair::<32>(from, offset, to);
        pair::<48>(from, offset, to);
    }
}

/// # Safety
/// 32 bytes must be valid at both addresses.
#[inline(always)]
unsafe fn half_line(from: *const u8, offset: usize, to: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        pair::<0>(from, offset, to);
        pair::<16>(from, offset, to);
    }
}

/// Copies two words, `AT` bytes after both addresses. A constant costs nothing in the move.
///
/// # Safety
/// 16 bytes must be valid `AT` bytes after both addresses.
#[inline(always)]
unsafe fn pair<const AT: usize>(from: *const u8, offset: usize, to: *mut u8) {
    let pair: __m128i;
    // SAFETY: the caller's; see `word`.
    unsafe {
        asm!(
            "movdqu {}, [{} + {} + {at}]", out(xmm_reg) pair, in(reg) from, in(reg) offset, at = const AT,
            options(nostack, preserves_flags, readonly)
        );
        to.add(AT).cast::<__m128i>().write_unaligned(pair);
    }
}

/// # Safety
/// `len` bytes must be valid at both addresses.
#[inline]
unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
    for at in 0..len {
        let byte: u8;
        // SAFETY: the caller's; see `word`.
        unsafe {
            asm!("mov {}, byte ptr \
                  [{}]", out(reg_byte) byte, in(reg) from.add(at), options(nostack, preserves_flags, readonly));
            to.add(at).write(byte);
        }
    }
}

/// Returns whether [`stream`] can write `len` bytes at `to`.
pub(super) fn can_stream(to: *const u8, len: usize) -> bool {
    to.addr().is_multiple_of(16) && len.is_multiple_of(LINE) && len > 0
}

/// # Safety
/// `len` bytes must be valid at both addresses, and [`can_stream`] must be true.
pub(super) unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: each turn copies one line of the caller's.
    unsafe {
        asm!(
            "2:",
            "movdqu xmm0, [{from}]",
            "movdqu xmm1, [{from} + 16]",
            "movdqu xmm2, [{from} + 32]",
            "movdqu xmm3, [{from} + 48]",
            "movntdq [{to}], xmm0",
            "movntdq [{to} + 16], xmm1",
            "movntdq [{to} + 32], xmm2",
            "movntdq [{to} + 48], xmm3",
            "add {from}, 64",
            "add {to}, 64",
            "sub {len}, 64",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            options(nostack)
        );
    }
    stream_fence();
}

/// Zeroes `len` bytes.
///
/// # Safety
/// `len` bytes must be valid at `to`, in one run of shared bytes whose only writer is the caller.
pub(super) unsafe fn zero(to: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "rep stosb", inout("rdi") to => _, inout("rcx") len => _, in("al") 0_u8,
            options(nostack, preserves_flags)
        );
    }
}

/// Zeroes `len` bytes, bypassing the caches. The caller must call [`stream_fence`] afterwards.
///
/// # Safety
/// `len` bytes must be valid at `to`, and `len` is 0 or [`can_stream`] is true.
pub(super) unsafe fn stream_zeros(to: *mut u8, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: each turn zeroes one line of the caller's.
    unsafe {
        asm!(
            "pxor xmm0, xmm0",
            "2:",
            "movntdq [{to}], xmm0",
            "movntdq [{to} + 16], xmm0",
            "movntdq [{to} + 32], xmm0",
            "movntdq [{to} + 48], xmm0",
            "add {to}, 64",
            "sub {len}, 64",
            "jnz 2b",
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            out("xmm0") _,
            options(nostack)
        );
    }
}

/// Orders streaming stores, which are otherwise unordered, before the store that publishes the
/// bytes.
pub(super) fn stream_fence() {
    // SAFETY: a fence.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Copies `len` bytes to shared bytes.
///
/// # Safety
/// `len` bytes must be valid at both addresses; those at `to` must lie in one run of shared bytes
/// whose only writer is the caller.
#[inline]
pub(super) unsafe fn store(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { library(from, to, len) }
}

/// # Safety
/// `len` bytes must be valid at both addresses.
#[inline]
unsafe fn library(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's contract. `memcpy` is called from assembly, so its accesses are moves of
    // machine code, not accesses by Rust code. B1 allows such moves: in the abstract machine, each
    // of them stands for a sequence of relaxed loads or stores of whole words.
    unsafe {
        asm!(
            "call {memcpy}",
            memcpy = sym libc::memcpy,
            in("rdi") to, in("rsi") from, in("rdx") len,
            clobber_abi("C")
        );
    }
}
