use super::purse::Purse;
use super::*;
use sync::atomic::AtomicU64;
use sync::random::Random;

const PAGE: usize = 4096;
const CHUNK: u64 = (64 << 10) + 1024;

fn pool(chunks: u64, reserve: u64, memory: u64) -> (BlockPool, Arc<Purse>) {
    let purse = Arc::new(Purse(AtomicU64::new(memory * CHUNK)));
    let pool = BlockPool::new(chunks * CHUNK + CHUNK / 2, reserve * CHUNK, PAGE, Arc::clone(&purse) as _);
    (pool.unwrap(), purse)
}

fn bytes(random: &mut Random, len_max: usize) -> Vec<u8> {
    (0..1 + random.below(len_max as u64)).map(|_| random.next_u64() as u8).collect()
}

fn check(pool: &BlockPool, place: Place, bytes: &[u8]) {
    let mut back = vec![0; bytes.len()];
    pool.load(place, &mut back);
    assert_eq!((place.len as usize, &*back), (bytes.len(), bytes));
}

#[test]
fn what_is_put_in_comes_out_and_memory_is_given_back() {
    let (pool, purse) = pool(20, 2, 100);
    let mut random = Random::seeded(3);
    let mut places = Vec::new();
    for round in 0..20_000 {
        if random.below(100) < if round % 4_000 < 2_000 { 70 } else { 40 } {
            let bytes = bytes(&mut random, pool.len_max());
            places.extend(pool.store(&bytes, Need::Usual).map(|place| (place, bytes)));
        } else if !places.is_empty() {
            let (place, mut bytes) = places.swap_remove(random.below(places.len() as u64) as usize);
            check(&pool, place, &bytes);
            if random.below(2) == 0 && pool.tighter(bytes.len()) > 0 {
                bytes =
                    (0..1 + random.below(pool.tighter(bytes.len()) as u64)).map(|_| random.next_u64() as u8).collect();
                places.push((pool.shrink(place, &bytes).0, bytes));
            } else {
                pool.free(place);
            }
        }
        assert!(pool.held_bytes() <= 20 * CHUNK && pool.held_bytes() + purse.0.load(Ordering::Relaxed) == 100 * CHUNK);
    }
    let sum = |places: &[(Place, Vec<u8>)]| places.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    assert_eq!(pool.content(), Content { pages: places.len() as u64, bytes: sum(&places) });
    for (place, bytes) in places {
        check(&pool, place, &bytes);
        pool.free(place);
    }
    pool.release_idle();
    assert_eq!(
        (pool.content(), pool.held_bytes()),
        (Content::default(), 4 * CHUNK),
        "the stock: two chunks for drains, one for other pages, one for exchanges"
    );
    drop(pool);
    assert_eq!(purse.0.load(Ordering::Relaxed), 100 * CHUNK);
}

#[test]
fn little_lies_idle_when_it_is_full() {
    let (pool, _) = pool(16, 0, 100);
    let mut random = Random::seeded(5);
    let mut places = Vec::new();
    // Sizes that change over time leave holes of all sizes.
    for round in 1..=30_u64 {
        let refused = |places: &mut Vec<_>, random: &mut Random| {
            let bytes = bytes(random, (100 * round) as usize);
            let place = pool.store(&bytes, Need::Usual);
            places.extend(place);
            place.is_none()
        };
        while !refused(&mut places, &mut random) {}
        let used: u64 = places.iter().map(|place: &Place| u64::from(place.len.div_ceil(128))).sum();
        let all = 16 * BLOCKS as u64;
        assert!(used * 8 >= all * 7, "round {round}: {used} blocks of {all} are in use");
        (0..places.len() / 2).for_each(|_| pool.free(places.swap_remove(random.below(places.len() as u64) as usize)));
    }
}

#[test]
fn the_stock_is_for_when_there_is_nothing_else() {
    let (pool, purse) = pool(10, 2, 6);
    assert!(pool.stock_up() && pool.held_bytes() == 4 * CHUNK);
    let page = vec![7; pool.len_max()];
    let mut places = Vec::new();
    let fill = |need, places: &mut Vec<_>| {
        while let Some(place) = pool.store(&page, need) {
            places.push(place);
        }
        assert_eq!((pool.held_bytes(), purse.0.load(Ordering::Relaxed)), (6 * CHUNK, 0));
        places.len()
    };
    // As many as fit into three chunks of 512 blocks, at 24 blocks each. The fourth and the fifth
    // chunk are for pages of an extent that is drained, the sixth is for exchanges.
    assert_eq!(fill(Need::Usual, &mut places), 3 * 21);
    assert_eq!(fill(Need::Drain, &mut places), 5 * 21);
    let last = pool.store(&page, Need::Last).expect("it is kept");
    assert!(pool.store(&page, Need::Drain).is_none(), "whoever has it");
    (0..20).for_each(|_| _ = pool.store(&page, Need::Last).unwrap());
    assert_eq!((pool.store(&page, Need::Last), pool.stock_up()), (None, false));
    pool.free(last);
    assert!(pool.store(&page, Need::Last).is_some());
    purse.uncharge(7 * CHUNK);
    assert!(pool.stock_up() && pool.held_bytes() == 10 * CHUNK);
    while let Some(place) = pool.store(&page, Need::Usual) {
        places.push(place);
    }
    // At the limit there is nothing to drain extents for.
    assert_eq!((places.len(), pool.held_bytes()), (8 * 21, 10 * CHUNK), "and no more than the limit");
    assert!(pool.stock_up(), "there is nothing that could be missing");
}

#[test]
fn room_that_nobody_finds_is_none() {
    let (pool, _) = pool(1, 0, 1);
    let page = vec![7; 8 * 128];
    let places: Vec<_> = std::iter::from_fn(|| pool.store(&page, Need::Usual)).collect();
    assert_eq!(places.len(), BLOCKS / 8);
    let shrink = |place, blocks: usize| {
        let (shrunk, has_room) = pool.shrink(place, &page[..blocks * 128]);
        check(&pool, shrunk, &page[..blocks * 128]);
        has_room
    };
    assert!(shrink(places[0], 7), "whose hand it is in finds it");
    pool.hands.iter().for_each(|hand| hand.chunk.store(u32::MAX, Ordering::Relaxed)); // As if the hands had moved on.
    assert!(places[1..].iter().all(|&place| !shrink(place, 7)), "a block of each");
    assert_eq!(pool.store(&[7], Need::Usual), None);
    assert!(shrink(Place { len: 7 * 128, ..places[0] }, 6), "enough for an open one");
    assert!(pool.store(&[7], Need::Usual).is_some());
}

#[test]
fn threads_dont_get_each_others_blocks() {
    let (pool, purse) = pool(8, 1, 100);
    let pool = Arc::new(pool);
    let work = |thread: u64| {
        let pool = Arc::clone(&pool);
        move || {
            let mut random = Random::seeded(thread);
            let mut places = Vec::new();
            for _ in 0..4_000 {
                if random.below(places.len() as u64 + 40) < 30 {
                    let bytes = bytes(&mut random, 1_500);
                    places.extend(pool.store(&bytes, Need::Usual).map(|place| (place, bytes)));
                } else if !places.is_empty() {
                    let (place, bytes) = places.swap_remove(random.below(places.len() as u64) as usize);
                    check(&pool, place, &bytes);
                    pool.free(place);
                }
            }
            places.into_iter().for_each(|(place, _)| pool.free(place));
        }
    };
    let threads: Vec<_> = (0..4).map(|thread| sync::thread::spawn("pool", work(thread)).unwrap()).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    pool.release_idle();
    assert_eq!(pool.content(), Content::default());
    assert!(pool.held_bytes() <= 3 * CHUNK, "a full stock");
    drop(pool);
    assert_eq!(purse.0.load(Ordering::Relaxed), 100 * CHUNK);
}

/// Regression: the system didn't take back the memory of an empty *open* chunk, so the chunk had to
/// stay on the *open* list. The pool added the chunk to this list, where it was already, and then
/// removed it. So its free blocks weren't found any more.
#[test]
fn an_open_chunk_that_keeps_its_memory_stays_on_its_list() {
    let (pool, _) = pool(1, 0, 1);
    let place = pool.store(&[7], Need::Usual).unwrap();
    let mut chunk = pool.chunks[place.chunk as usize].lock();
    for _ in 0..2 {
        pool.relist(place.chunk, &mut chunk, List::Open);
        assert_eq!(pool.open.first_in(0..1), Some(0));
    }
}
