//! A FUSE file system with one file, which is in memory. Its server is a thread of this process,
//! and fails when a test asks it to.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use pagefold::io::IoError;
use pagefold::{Advice, Error, File};

use crate::file_systems::{mounted, run, text};
use crate::{NOT_HERE, PAGE, a_file_is_used, open, small_fold};

const NAME: &str = "file";
const FILE: INodeNo = INodeNo(2);
/// The kernel keeps no length and no name: it asks the server each time.
const ASK_AGAIN: Duration = Duration::ZERO;

/// What the server knows.
#[derive(Default)]
struct Served {
    /// The bytes of the file, if there is one.
    bytes: Option<Vec<u8>>,
    /// The next reads, writes and syncs fail with these, the last one first.
    failures: Vec<Errno>,
}

impl Served {
    fn file(&mut self) -> Result<&mut Vec<u8>, Errno> {
        match self.failures.pop() {
            Some(error) => Err(error),
            None => self.bytes.as_mut().ok_or(Errno::ENOENT),
        }
    }

    fn attributes(&self) -> Result<FileAttr, Errno> {
        Ok(attributes(FILE, FileType::RegularFile, self.bytes.as_ref().ok_or(Errno::ENOENT)?.len()))
    }
}

fn attributes(ino: INodeNo, kind: FileType, len: usize) -> FileAttr {
    FileAttr {
        ino,
        size: len as u64,
        blocks: len.div_ceil(512) as u64,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<Served>>);

impl Server {
    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.0.lock().unwrap().bytes.as_mut().unwrap());
    }

    fn fail(&self, failures: impl IntoIterator<Item = Errno>) {
        self.0.lock().unwrap().failures = failures.into_iter().collect();
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().bytes.clone().unwrap()
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = if name == NAME { self.0.lock().unwrap().attributes() } else { Err(Errno::ENOENT) };
        match found {
            Ok(attributes) => reply.entry(&ASK_AGAIN, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino == INodeNo::ROOT {
            return reply.attr(&ASK_AGAIN, &attributes(ino, FileType::Directory, 0));
        }
        match self.0.lock().unwrap().attributes() {
            Ok(attributes) => reply.attr(&ASK_AGAIN, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        len: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut served = self.0.lock().unwrap();
        if let (Some(bytes), Some(len)) = (&mut served.bytes, len) {
            bytes.resize(len as usize, 0);
        }
        match served.attributes() {
            Ok(attributes) => reply.attr(&ASK_AGAIN, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn create(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        if name != NAME {
            return reply.error(Errno::EPERM);
        }
        let mut served = self.0.lock().unwrap();
        served.bytes.get_or_insert_default();
        let attributes = served.attributes().unwrap_or_else(|_| unreachable!("it was just made"));
        reply.created(&ASK_AGAIN, &attributes, Generation(0), FileHandle(0), FopenFlags::empty());
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.lock().unwrap().file() {
            Ok(bytes) => {
                let from = bytes.len().min(at as usize);
                reply.data(&bytes[from..bytes.len().min(from + len as usize)]);
            }
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.lock().unwrap().file() {
            Ok(bytes) => {
                let end = at as usize + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(data);
                reply.written(data.len() as u32);
            }
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.lock().unwrap().file() {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

/// Runs `body` with a FUSE file system, its server and its directory. The file system ends when
/// `body` drops the session.
fn served(body: impl Fn(BackgroundSession, &Server, &Path)) {
    let mount = |at: &Path| fs::create_dir(at).map_err(|error| error.to_string());
    mounted(mount, |at| {
        let server = Server::default();
        match fuser::spawn_mount(server.clone(), at, &Config::default()) {
            Ok(session) => body(session, &server, &at.join(NAME)),
            Err(error) => println!("{NOT_HERE}FUSE ({error})"),
        }
    });
}

#[test]
#[ignore = "for a process of its own"]
fn is_used() {
    served(|_session, _, path| a_file_is_used(&small_fold(), path, 1));
}

fn byte_at(file: &File, at: u64) -> Result<u8, Error> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).map(|()| byte[0])
}

/// Other clients of the server append to the file, and truncate it. The kernel here hears of this
/// only when it asks.
#[test]
#[ignore = "for a process of its own"]
fn is_changed_by_its_server() {
    served(|_session, server, path| {
        let fold = small_fold();
        let file = open(&fold, "a", path);
        file.write_at(&[1; 5000], 0).unwrap();
        file.sync().unwrap();
        server.change(|bytes| bytes.extend([2; 10_000]));
        let mut bytes = vec![0; 20_000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 15_000, "a read that meets the end asks again");
        assert!(bytes[..15_000] == [vec![1; 5000], vec![2; 10_000]].concat());
        file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
        server.change(|bytes| bytes.truncate(6000));
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6000);
        server.change(|bytes| bytes.extend([3; 4000]));
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 10_000);
        assert!(bytes[..10_000] == [vec![1; 5000], vec![2; 1000], vec![3; 4000]].concat(), "a page reappears");
    });
}

/// A server that is interrupted is asked again. After any other failure, a read can be repeated;
/// a sync that failed says so, and the next one writes the bytes.
#[test]
#[ignore = "for a process of its own"]
fn has_a_server_that_fails() {
    served(|_session, server, path| {
        let fold = small_fold();
        let file = open(&fold, "a", path);
        file.write_at(&[1; 100 * PAGE as usize], 0).unwrap();
        server.fail([Errno::EINTR; 3]);
        file.sync().unwrap();
        for page in (0..100).rev() {
            file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
            server.fail([Errno::EINTR; 3]);
            assert_eq!(byte_at(&file, page * PAGE).unwrap(), 1);
        }
        file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
        server.fail([Errno::EIO]);
        let failed = byte_at(&file, 0).unwrap_err();
        assert!(matches!(failed, Error::ReadFailed { error: IoError::Os(libc::EIO), .. }), "{failed:?}");
        assert_eq!(byte_at(&file, 0).unwrap(), 1);
        file.write_at(&[2; 100 * PAGE as usize], 0).unwrap();
        server.fail([Errno::EIO]);
        let failed = file.sync().unwrap_err();
        assert!(matches!(failed, Error::WriteFailed { .. }), "{failed:?}");
        file.sync().unwrap();
        assert!(server.bytes() == [2; 100 * PAGE as usize]);
    });
}

/// The server is gone. What is in memory can be read, all else fails, and nothing waits for ever.
#[test]
#[ignore = "for a process of its own"]
fn has_a_server_that_goes() {
    served(|session, _, path| {
        let fold = small_fold();
        let file = open(&fold, "a", path);
        file.write_at(&[1; 10 * PAGE as usize], 0).unwrap();
        file.sync().unwrap();
        file.advise(5 * PAGE..6 * PAGE, Advice::DontNeed).unwrap();
        file.write_at(&[2; PAGE as usize], 0).unwrap();
        // The kernel refuses to unmount what is in use, but first cuts the server off.
        let _ = run("umount", &["--force", text(path.parent().unwrap())]);
        drop(session);
        assert_eq!((byte_at(&file, 0).unwrap(), byte_at(&file, PAGE).unwrap()), (2, 1));
        let failed = byte_at(&file, 5 * PAGE).unwrap_err();
        assert!(matches!(failed, Error::ReadFailed { error: IoError::Os(libc::ENOTCONN), .. }), "{failed:?}");
        assert!(file.sync().is_err());
        assert!(file.close().is_err(), "bytes are lost, and the caller isn't told");
    });
}
