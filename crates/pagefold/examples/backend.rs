//! A custom backend: its files are objects in memory, which stand for objects in a remote store.
//!
//! A backend opens files by name, and reads and writes whole pages of these files. The trait has
//! more methods, with defaults that this example uses. By default, the thread that needs a page
//! executes the request itself. `io::ThreadPool` wraps a backend and executes its requests on a
//! pool of threads, so that many requests are in flight at once.
//! ```sh
//! cargo run --release -p pagefold --example backend
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pagefold::Pagefold;
use pagefold::io::{Access, Backend, BackingFile, Identity, IoError, SharedBytes, ThreadPool};

/// An object: its number, and its bytes.
struct Object {
    number: u64,
    bytes: RwLock<Vec<u8>>,
}

/// Objects by name. Clones are the same store.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<HashMap<PathBuf, Arc<Object>>>>);

impl Backend for Store {
    fn name(&self) -> &'static str {
        "store"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        if matches!(access, Access::Alone | Access::Unnamed) {
            return Err(IoError::INVALID); // For swap, which this store isn't for.
        }
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = objects.len() as u64;
        let object = match objects.get(path) {
            Some(_) if access == Access::CreateNew => return Err(IoError::EXISTS),
            Some(object) => Arc::clone(object),
            None if access.makes() => {
                let object = Arc::new(Object { number, bytes: RwLock::default() });
                objects.insert(path.to_owned(), Arc::clone(&object));
                object
            }
            None => return Err(IoError::NOT_FOUND),
        };
        Ok(Box::new(OpenObject { object, writable: access.writes() }))
    }
}

struct OpenObject {
    object: Arc<Object>,
    writable: bool,
}

impl OpenObject {
    /// Makes the object `len` bytes long, or at least `len` bytes if `cuts` is false. Then changes
    /// its bytes.
    fn change(&self, len: u64, cuts: bool, change: impl FnOnce(&mut [u8])) -> Result<(), IoError> {
        if !self.writable {
            return Err(IoError::BAD_FILE);
        }
        let mut bytes = self.object.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let len = usize::try_from(len).map_err(|_| IoError::FILE_TOO_LARGE)?;
        let len = if cuts { len } else { len.max(bytes.len()) };
        let more = len.saturating_sub(bytes.len());
        bytes.try_reserve(more).map_err(|_| IoError::NO_SPACE)?;
        bytes.resize(len, 0);
        change(&mut bytes);
        Ok(())
    }
}

impl BackingFile for OpenObject {
    // The identity is the same for each opening of the object, so its pages are in memory only
    // once.
    fn identity(&self) -> Identity {
        Identity { device: u64::MAX, inode: self.object.number }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(self.object.bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let bytes = self.object.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let mut rest = bytes.get(offset as usize..).unwrap_or_default();
        let all = rest.len();
        for slice in into {
            let (now, later) = rest.split_at(slice.len().min(rest.len()));
            slice.copy_from(0, now);
            rest = later;
        }
        Ok(all - rest.len()) // 0 is the end. Pagefold goes on after a short read.
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let (start, end) = (offset as usize, offset as usize + len);
        self.change(end as u64, false, |bytes| {
            let mut into = &mut bytes[start..end];
            for slice in from {
                let (now, later) = into.split_at_mut(slice.len().min(into.len()));
                slice.prefix(now.len()).copy_to(0, now);
                into = later;
            }
        })?;
        Ok(len)
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.change(len, true, |_| ())
    }

    fn sync(&self) -> Result<(), IoError> {
        // What was written would be made to last here.
        if self.writable { Ok(()) } else { Err(IoError::BAD_FILE) }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::default();
    let threads = ThreadPool::new(store.clone(), 4)?;
    let mm = Pagefold::builder().memory("16MiB").backend(threads).build()?;
    let tenant = mm.group("tenant-a").build()?;

    let file = tenant.open_options().write(true).create(true).open("objects/1")?;
    for number in 0..100_000_u64 {
        file.write_at(&number.to_le_bytes(), 8 * number)?;
    }
    file.sync()?;
    let object = Arc::clone(&store.0.lock().unwrap_or_else(PoisonError::into_inner)[Path::new("objects/1")]);
    assert_eq!(object.bytes.read().unwrap_or_else(PoisonError::into_inner).len(), 800_000);

    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 8 * 99_999)?;
    assert_eq!(u64::from_le_bytes(bytes), 99_999);
    let error = tenant.open("objects/2").unwrap_err();
    println!("{error}\n{}", mm.stats());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
