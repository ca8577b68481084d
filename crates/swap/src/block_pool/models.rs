//! Two threads store and free bytes, with memory for one chunk. Neither thread reads the other's
//! bytes, and all memory is given back.

use super::purse::Purse;
use super::*;
use sync::atomic::AtomicU64;

const PAGE: usize = 64;

#[test]
fn storing_against_freeing() {
    sync::model(|| {
        let chunk = BlockPool::chunk_cost(PAGE);
        let purse = Arc::new(Purse(AtomicU64::new(chunk)));
        let pool = Arc::new(BlockPool::new(2 * chunk, 0, PAGE, Arc::clone(&purse) as _).unwrap());
        let work = |byte: u8| {
            let pool = Arc::clone(&pool);
            move || {
                let Some(place) = pool.store(&[byte; PAGE / 2], Need::Usual) else { return };
                let mut back = [0; PAGE / 2];
                pool.load(place, &mut back);
                assert_eq!(back, [byte; PAGE / 2]);
                pool.free(place);
            }
        };
        let other = sync::thread::spawn("model", work(1)).unwrap();
        work(2)();
        other.join().unwrap();
        pool.release_idle();
        assert_eq!((pool.content(), pool.held_bytes()), (Content::default(), 0));
        assert_eq!(purse.0.load(Ordering::Relaxed), chunk);
    });
}
