//! Distinguishes files that have the same device and inode number.
//!
//! Device and inode number identify a file, except on file systems that combine other file systems
//! or invent the numbers (unions, FUSE). There, two files may have the same numbers. Therefore, if
//! a file has the same numbers as an open file, the two files are compared:
//!
//! | its file system | what is compared |
//! |---|---|
//! | numbers each file uniquely ([`NUMBERING_FILE_SYSTEMS`](crate::posix)) | nothing |
//! | provides handles (`name_to_handle_at`) | the handles: each of the kernel's inodes has its own |
//! | neither | birth time, mode, owner, links, length, allocated blocks, times of change, and a handle that can't be opened (`AT_HANDLE_FID`) |
//!
//! The attributes in the last row change while a file is used, so two fingerprints of one file may
//! differ. Therefore, if the fingerprints differ, the caller compares again. Two files count as the
//! same only if all of the compared values are equal.

#[cfg(not(pagefold_loom))]
use std::os::fd::{AsRawFd, BorrowedFd};

#[cfg(not(pagefold_loom))]
use rustix::fs::{self, AtFlags, StatxFlags};

/// The attributes that distinguish a file from others with the same [`Identity`](crate::Identity).
#[derive(Clone, Debug, Default)]
pub struct Fingerprint(What);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum What {
    /// The identity is sufficient.
    #[default]
    Nothing,
    /// The number that the backend gave the file.
    Number(u64),
    #[cfg(not(pagefold_loom))]
    Handle(Handle),
    #[cfg(not(pagefold_loom))]
    Attributes(Option<Handle>, [i64; ATTRIBUTES]),
    /// The system didn't report any attributes.
    #[cfg(not(pagefold_loom))]
    Unknown,
}

impl Fingerprint {
    /// Returns the fingerprint of the file to which its backend has given this number. The backend
    /// must give no other file the same number.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self(What::Number(number))
    }

    /// Returns whether both belong to the same file. False if the system didn't report the
    /// attributes.
    #[must_use]
    pub fn is_of_the_same_file_as(&self, other: &Self) -> bool {
        #[cfg(not(pagefold_loom))]
        if self.0 == What::Unknown {
            return false;
        }
        self.0 == other.0
    }
}

/// The kernel's handle of an inode: the handle's type and its bytes.
#[cfg(not(pagefold_loom))]
type Handle = (i32, Vec<u8>);

#[cfg(not(pagefold_loom))]
const ATTRIBUTES: usize = 12;

#[cfg(not(pagefold_loom))]
impl Fingerprint {
    /// Returns the fingerprint of an open file.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Self {
        match handle(fd, 0) {
            Some(handle) => Self(What::Handle(handle)),
            None => Self::of_attributes(fd),
        }
    }

    fn of_attributes(fd: BorrowedFd<'_>) -> Self {
        let Some(attributes) = attributes(fd) else { return Self(What::Unknown) };
        Self(What::Attributes(handle(fd, libc::AT_HANDLE_FID), attributes))
    }
}

/// Returns the file's handle. `None` if the file system provides none, or the system doesn't report
/// it.
#[cfg(not(pagefold_loom))]
#[allow(unsafe_code)]
fn handle(fd: BorrowedFd<'_>, flags: i32) -> Option<Handle> {
    /// The largest handle of the kernel (`MAX_HANDLE_SZ`).
    const BYTES_MAX: usize = 128;
    /// The kernel's `struct file_handle`, with space for its bytes.
    #[repr(C)]
    struct Buffer {
        len: u32,
        kind: i32,
        bytes: [u8; BYTES_MAX],
    }
    let mut buffer = Buffer { len: BYTES_MAX as u32, kind: 0, bytes: [0; BYTES_MAX] };
    let mut mount = 0_i32;
    // SAFETY: the path is null-terminated. The kernel writes at most `len` bytes behind the two
    // numbers, and one number to `mount`.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd.as_raw_fd(),
            c"".as_ptr(),
            &raw mut buffer,
            &raw mut mount,
            libc::AT_EMPTY_PATH | flags,
        )
    };
    let len = (buffer.len as usize).min(BYTES_MAX);
    (done == 0).then(|| (buffer.kind, buffer.bytes[..len].to_vec()))
}

#[cfg(not(pagefold_loom))]
fn attributes(fd: BorrowedFd<'_>) -> Option<[i64; ATTRIBUTES]> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    if let Ok(file) = fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted) {
        let (born, changed, written) = (file.stx_btime, file.stx_ctime, file.stx_mtime);
        return Some([
            born.tv_sec,
            born.tv_nsec.into(),
            file.stx_mode.into(),
            file.stx_uid.into(),
            file.stx_gid.into(),
            file.stx_nlink.into(),
            file.stx_size as i64,
            file.stx_blocks as i64,
            changed.tv_sec,
            changed.tv_nsec.into(),
            written.tv_sec,
            written.tv_nsec.into(),
        ]);
    }
    let file = fs::fstat(fd).ok()?;
    Some([
        0,
        0,
        file.st_mode.into(),
        file.st_uid.into(),
        file.st_gid.into(),
        file.st_nlink as i64,
        file.st_size,
        file.st_blocks,
        file.st_ctime,
        file.st_ctime_nsec as i64,
        file.st_mtime,
        file.st_mtime_nsec as i64,
    ])
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    /// A file's fingerprint must be the same under each of the file's names, and after the file has
    /// grown. This is checked for the fingerprint that `of` returns, and for the one made of
    /// attributes. The one that `of` returns must also differ from that of any other file. An
    /// unknown fingerprint must equal no fingerprint, not even itself.
    #[test]
    fn a_file_is_itself_and_no_other_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        std::fs::write(path("a"), [1; 100]).unwrap();
        std::fs::write(path("b"), [1; 100]).unwrap();
        std::fs::hard_link(path("a"), path("link")).unwrap();
        let open = |name| File::open(path(name)).unwrap();
        let (a, b, link) = (open("a"), open("b"), open("link"));
        std::fs::rename(path("a"), path("renamed")).unwrap();
        let renamed = open("renamed");
        for print in [Fingerprint::of, Fingerprint::of_attributes] {
            let is_same = |one: &File, other: &File| print(one.as_fd()).is_of_the_same_file_as(&print(other.as_fd()));
            assert!(is_same(&a, &a) && is_same(&a, &link) && is_same(&a, &renamed));
            File::options().append(true).open(path("link")).unwrap().set_len(200).unwrap();
            assert!(is_same(&a, &renamed), "it has grown");
        }
        assert!(!Fingerprint::of(a.as_fd()).is_of_the_same_file_as(&Fingerprint::of(b.as_fd())));
        let unknown = Fingerprint(What::Unknown);
        assert!(!unknown.is_of_the_same_file_as(&unknown));
    }
}
