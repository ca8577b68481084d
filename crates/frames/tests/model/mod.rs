//! Helpers for the models. A model has few frames, of two words each. Both words of a page are its
//! *mark*, which identifies the page and its version.
#![allow(dead_code, unreachable_pub, reason = "each model uses some of it, and nobody else any")]

use pagefold_frames::{BeginLoad, Config, Frames, IsolatedFrame, Labels, OwnedFrame, PageMap, PinnedFrame};
use sync::Arc;

/// The size of a model's page: two words, so that a copy can be torn.
pub const PAGE: usize = 16;
/// The charges for an extent (one frame with its record) and for a chunk (two words).
pub const EXTENT: u64 = PAGE as u64 + 64;
pub const CHUNK: u64 = 16;
/// The charge for the states of chunks. The states of all segments share one system page, which has
/// two words in a model.
pub const STATES: u64 = CHUNK;
/// The number of pages that all maps together can have.
pub const PAGES: u64 = 8;
/// The part of the budget that frames leave free for page maps.
const MAP_RESERVE: u64 = 4096;

/// Creates an arena of `count` frames, all of them unused. The budget has room for all frames and
/// all page words.
pub fn frames(count: usize) -> Arc<Frames> {
    let config = Config { nodes: Some(1), ..Config::new((count * PAGE) as u64, PAGE) };
    let frames = Frames::new(&config).unwrap();
    frames.set_budget(count as u64 * EXTENT + MAP_RESERVE + PAGES / 2 * CHUNK + STATES);
    Arc::new(frames)
}

pub fn map(frames: &Arc<Frames>, pages: u64) -> Arc<PageMap> {
    Arc::new(PageMap::new(Arc::clone(frames), pages).unwrap())
}

/// Returns the contents of a page with this mark.
pub fn contents(mark: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    bytes[..8].copy_from_slice(&mark.to_ne_bytes());
    bytes[8..].copy_from_slice(&mark.to_ne_bytes());
    bytes
}

/// Loads `page` into `frame`, unless the page is in memory or another thread is loading it.
pub fn load_into<'a>(
    map: &'a PageMap,
    page: u64,
    mark: u64,
    frame: OwnedFrame<'a>,
    pin: bool,
) -> Option<(IsolatedFrame, Option<PinnedFrame<'a>>)> {
    let BeginLoad::Begun(loading) = map.begin_load(page) else { return None };
    frame.fill(|bytes| bytes.copy_from(0, &contents(mark)));
    Some(loading.publish(frame, Labels::default(), pin))
}

/// Loads `page` and lists it.
pub fn load(map: &PageMap, page: u64, mark: u64) {
    let frame = map.frames().allocate().expect("a frame is free");
    let (frame, _) = load_into(map, page, mark, frame, false).expect("the page isn't in memory");
    list(map.frames(), frame);
}

/// Lists an isolated frame, or frees an orphan. Returns whether the frame is listed.
pub fn list(frames: &Frames, frame: IsolatedFrame) -> bool {
    frames.put_back(frame).is_ok()
}

/// Evicts the page in `frame`, and returns the frame. Returns `None` if the frame isn't listed, or
/// the page can't be evicted now.
pub fn evict(frames: &Frames, frame: pagefold_frames::FrameId, shadow: u64) -> Option<OwnedFrame<'_>> {
    let isolated = frames.isolate(frame)?;
    match frames.evict(isolated, shadow) {
        Ok(frame) => Some(frame),
        Err(refused) => {
            list(frames, refused.frame);
            None
        }
    }
}

/// Returns the frame of a resident page.
pub fn frame_of(map: &PageMap, page: u64) -> pagefold_frames::FrameId {
    let pagefold_frames::PageState::Resident { frame } = map.state(page) else { panic!("page {page} isn't in memory") };
    frame
}

/// Starts a thread of the model.
pub fn thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> sync::thread::JoinHandle<T> {
    sync::thread::spawn("model", body).unwrap()
}

/// Calls `ask` until it returns a value, and lets other threads run in between.
pub fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let mut backoff = sync::atomic::Backoff::new();
    loop {
        match ask() {
            Some(answer) => return answer,
            None => backoff.wait(),
        }
    }
}
