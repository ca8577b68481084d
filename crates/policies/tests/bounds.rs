//! What holds for each policy and each trace.

use pagefold_policies::{Accesses, Policy, misses, misses_until};

/// Numbers that look random, from a linear congruence.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Some pages are used often, some in order, some once.
fn mixed(seed: u64, len: u64) -> Vec<u64> {
    let mut random = random(seed);
    let page = |at| match random(4) {
        0 => random(10),
        1 => 10 + random(50),
        2 => 100 + at % 70,
        _ => 1000 * random(1000),
    };
    (0..len).map(page).collect()
}

/// LRU and OPT, by looking at all pages.
fn slowly(pages: &[u64], room: usize, is_opt: bool) -> u64 {
    let (mut cache, mut misses) = (Vec::<u64>::new(), 0);
    for (now, page) in pages.iter().enumerate() {
        match cache.iter().position(|cached| cached == page) {
            Some(place) => drop(cache.remove(place)),
            None => {
                misses += 1;
                if cache.len() == room {
                    let next = |cached: &u64| pages[now..].iter().position(|page| page == cached).unwrap_or(usize::MAX);
                    let farthest = (0..room).max_by_key(|&place| next(&cache[place])).unwrap();
                    cache.remove(if is_opt { farthest } else { 0 });
                }
            }
        }
        cache.push(*page);
    }
    misses
}

#[test]
fn no_policy_is_better_than_opt_or_worse_than_no_cache() {
    for seed in 0..20 {
        let accesses = Accesses::of(mixed(seed, 3000)).unwrap();
        for room in [1, 2, 3, 5, 9, 10, 11, 20, 50, 99, 100, 101, 150, 200, 300] {
            let opt = misses(Policy::Opt, &accesses, room);
            for policy in Policy::ALL {
                let found = misses(policy, &accesses, room);
                assert!((opt..=3000).contains(&found), "{policy}, seed {seed}, {room} pages: {found}, OPT {opt}");
            }
        }
    }
}

#[test]
fn lru_and_opt_are_those_of_the_definition() {
    for seed in 0..5 {
        let pages = mixed(seed, 1000);
        let accesses = Accesses::of(pages.iter().copied()).unwrap();
        for room in [1, 2, 7, 40, 120] {
            assert_eq!(misses(Policy::Lru, &accesses, room), slowly(&pages, room, false), "seed {seed}, {room} pages");
            assert_eq!(misses(Policy::Opt, &accesses, room), slowly(&pages, room, true), "seed {seed}, {room} pages");
        }
    }
}

#[test]
fn the_smallest_and_the_largest_caches() {
    let accesses = Accesses::of(mixed(1, 3000)).unwrap();
    let repeated = Accesses::of([7, 7, u64::MAX, 7, 7, 7, 8]).unwrap();
    for policy in Policy::ALL {
        assert_eq!(misses(policy, &Accesses::default(), 0), 0);
        assert_eq!(misses(policy, &Accesses::default(), 5), 0);
        assert_eq!(misses(policy, &accesses, 0), 3000);
        for room in [accesses.pages(), accesses.pages() + 1, 1 << 40, usize::MAX] {
            assert_eq!(misses(policy, &accesses, room), accesses.pages() as u64, "{policy}");
        }
        assert_eq!(misses(policy, &repeated, 1), 4, "{policy}: what was used last is there");
    }
}

#[test]
fn progress_is_told_and_may_end_the_count() {
    let accesses = Accesses::of((0..200_000).map(|at| at % 100)).unwrap();
    for policy in Policy::ALL {
        let mut told = Vec::new();
        let counted = misses_until(policy, &accesses, 10, |done| {
            told.push(done);
            Ok::<_, ()>(())
        });
        assert_eq!(counted, Ok(misses(policy, &accesses, 10)));
        assert!(told.is_sorted() && told.last() == Some(&200_000), "{policy}: {told:?}");
        let ended = misses_until(policy, &accesses, 10, |done| if done > 100_000 { Err(done) } else { Ok(()) });
        assert_eq!(ended, Err(told[1]), "{policy}");
    }
}
