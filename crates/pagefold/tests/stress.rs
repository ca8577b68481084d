//! Threads that read, pin, drop, reopen and resize at once, in little memory: for ThreadSanitizer, and for luck.
#![cfg(not(pagefold_loom))]

mod support;

use std::time::Duration;
use sync::atomic::{AtomicBool, Ordering};

use pagefold::io::{Fault, FaultyBackend, Schedule};
use pagefold::{Advice, Error};
use support::{check, disk, manager, read};
use sync::random::Random;

const LEN: u64 = 2 << 20;

#[test]
fn everything_at_once() {
    let faults = vec![Fault::Errno(5), Fault::Interrupted, Fault::Short(512)];
    let mm = manager(150, FaultyBackend::new(disk(2, LEN), Schedule::OneIn { n: 500, seed: 1, faults }));
    let groups = [mm.group("a").max(100 * 4096).build().unwrap(), mm.group("b").max(90 * 4096).build().unwrap()];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..5_u64 {
            let (group, stop) = (&groups[thread as usize % 2], &stop);
            scope.spawn(move || {
                let mut random = Random::seeded(thread);
                while !stop.load(Ordering::Relaxed) {
                    let number = random.below(2);
                    let Ok(file) = group.open(format!("f{number}")) else { continue };
                    for _ in 0..random.below(3_000) {
                        let reach = if random.one_in(2) { LEN } else { LEN / 16 };
                        let offset = random.below(reach);
                        let result = match random.below(20) {
                            0 => file.page(offset / 4096).map(|pin| check(number, offset & !4095, &pin)),
                            1 => file.advise(Advice::DontNeed, offset..offset + 40_000),
                            _ => read(&file, number, offset, random.below(300) as usize).map(|_| ()),
                        };
                        match result {
                            Ok(()) | Err(Error::ReadFailed { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
        let (mm, stop) = (&mm, &stop);
        scope.spawn(move || {
            let mut random = Random::seeded(99);
            while !stop.load(Ordering::Relaxed) {
                match mm.resize((100 + random.below(100)) * 4096 + (256 << 10)) {
                    Ok(()) | Err(Error::BudgetBusy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                let _ = mm.stats().to_string();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        std::thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
    });
    for group in &groups {
        assert_eq!(group.charged(), 0);
        assert!(group.stats().evictions > 0);
    }
}
