//! What the models share: few frames of two words, and pages that say whose they are.
#![allow(dead_code, unreachable_pub, reason = "each model uses some of it, and nobody else any")]

use pagefold_frames::{BeginLoad, Config, Frames, IsolatedFrame, Labels, OwnedFrame, PageMap, PinnedFrame};
use sync::Arc;

/// Bytes in a model's page: two words, so that a copy can be torn.
pub const PAGE: usize = 16;
/// What is charged for an extent, which is one frame with its record, and for a chunk, which has
/// two words.
pub const EXTENT: u64 = PAGE as u64 + 64;
pub const CHUNK: u64 = 16;
/// What is charged for the states of chunks, of which all segments have theirs in one system page
/// of two words.
pub const STATES: u64 = CHUNK;
/// The pages that all maps together can have.
pub const PAGES: u64 = 8;
/// What frames leave for page maps.
const MAP_RESERVE: u64 = 4096;

/// An arena of `count` frames, none of them used yet, and a budget for all of it and for every page
/// word.
pub fn frames(count: usize) -> Arc<Frames> {
    let config = Config { nodes: Some(1), ..Config::new((count * PAGE) as u64, PAGE) };
    let frames = Frames::new(&config).unwrap();
    frames.set_budget(count as u64 * EXTENT + MAP_RESERVE + PAGES / 2 * CHUNK + STATES);
    Arc::new(frames)
}

pub fn map(frames: &Arc<Frames>, pages: u64) -> Arc<PageMap> {
    Arc::new(PageMap::new(Arc::clone(frames), pages).unwrap())
}

/// A page's contents: both words are `mark`.
pub fn contents(mark: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    bytes[..8].copy_from_slice(&mark.to_ne_bytes());
    bytes[8..].copy_from_slice(&mark.to_ne_bytes());
    bytes
}

/// Loads `page` into `frame`, unless it is there or another thread is loading it.
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

/// Lists an isolated frame, or frees an orphan. True if it is listed.
pub fn list(frames: &Frames, frame: IsolatedFrame) -> bool {
    frames.put_back(frame).is_ok()
}

/// Evicts what is in frame 0, if it can be had. Hands back the frame.
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

/// The frame that a resident page is in.
pub fn frame_of(map: &PageMap, page: u64) -> pagefold_frames::FrameId {
    let pagefold_frames::PageState::Resident { frame } = map.state(page) else { panic!("page {page} isn't in memory") };
    frame
}

/// Starts a thread of the model.
pub fn thread(body: impl FnOnce() + Send + 'static) -> sync::thread::JoinHandle<()> {
    sync::thread::spawn("model", body).unwrap()
}

/// Asks again and again until there is an answer, and lets other threads run in between.
pub fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let mut backoff = sync::atomic::Backoff::new();
    loop {
        match ask() {
            Some(answer) => return answer,
            None => backoff.wait(),
        }
    }
}
