//! A list in the order of last use, which several threads change at the same time. To run it:
//! `cargo run --release -p smp-list --example lru_cache`.
//!
//! Each thread touches random nodes, and moves them to the head in batches. Meanwhile one more
//! thread takes the coldest nodes off the tail, and adds them at the head again.

use std::time::Duration;

use smp_list::{Claim, Links, LocalList, Nodes, SmpList};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::time::Instant;

const NODES: u32 = 4096;
const BATCH: usize = 16;
const TIME: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Node {
    links: Links,
    /// The claim: the thread that changes it from true to false may take the node off its list.
    listed: AtomicBool,
}

struct Arena(Vec<Node>);

impl Nodes for Arena {
    fn links(&self, number: u32) -> &Links {
        &self.0[number as usize].links
    }
}

impl Arena {
    fn claim(&self, number: u32) -> bool {
        // Acquire pairs with the Release in `publish`.
        self.0[number as usize].listed.swap(false, Ordering::Acquire)
    }

    /// Puts claimed nodes at the head; from then on they can be claimed.
    fn publish(&self, list: &SmpList, claimed: &[u32]) {
        let mut local = LocalList::new();
        claimed.iter().for_each(|&number| local.push_front(self, number));
        list.splice_head(self, local);
        claimed.iter().for_each(|&number| self.0[number as usize].listed.store(true, Ordering::Release));
    }
}

fn main() {
    let arena = Arena((0..NODES).map(|_| Node::default()).collect());
    let mut list = SmpList::new(0);
    arena.publish(&list, &(0..NODES).collect::<Vec<_>>());
    let (touched, aged) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    std::thread::scope(|scope| {
        for seed in 1..=threads {
            let (arena, list, touched) = (&arena, &list, &touched);
            scope.spawn(move || {
                let mut random = seed;
                while start.elapsed() < TIME {
                    let mut batch = Vec::with_capacity(BATCH);
                    while batch.len() < BATCH {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let number = (random >> 33) as u32 % NODES;
                        if arena.claim(number) {
                            list.del(arena, number);
                            batch.push(number);
                        }
                    }
                    arena.publish(list, &batch);
                    touched.fetch_add(batch.len() as u64, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while start.elapsed() < TIME {
                let mut coldest = Vec::new();
                list.take_tail(&arena, BATCH, |number| {
                    if !arena.claim(number) {
                        return Claim::Lost;
                    }
                    coldest.push(number);
                    Claim::Won
                });
                arena.publish(&list, &coldest);
                aged.fetch_add(coldest.len() as u64, Ordering::Relaxed);
            }
        });
    });
    assert!(list.is_consistent(&arena, NODES as usize) && list.iter(&arena).count() == NODES as usize);
    println!("{threads} threads touched {touched:?} nodes, one took {aged:?} off the tail; all {NODES} are there");
}
