//! One scenario of opening, reading and closing, in which call 1 to the backend fails, then call 2, and so on until
//! the call that was to fail is never made; each in every way, once and for ever.
#![cfg(not(pagefold_loom))]

mod support;

use pagefold::io::{Fault, FaultyBackend, Schedule};
use pagefold::{Advice, Error};
use support::{disk, manager, read};

const FILE_LEN: u64 = 90 * 4096 + 77;

/// Errors come back as errors, pages that did come are right, and afterwards everything works again.
fn scenario(schedule: Schedule) -> u64 {
    let faulty = FaultyBackend::new(disk(2, FILE_LEN), schedule);
    let mm = manager(48, faulty.clone());
    let group = mm.group("a").max(40 * 4096).build().unwrap();
    let attempt = || -> Result<(), Error> {
        let f0 = group.open("f0")?;
        let f1 = group.open("f1")?;
        for round in 0..2 {
            for page in (0..90).step_by(3) {
                read(&f0, 0, page * 4096 + 5, 100)?;
                read(&f1, 1, page * 4096, 5000)?;
            }
            read(&f0, 0, FILE_LEN - 10, 100 * (round + 1))?;
            assert_eq!(f1.page(7)?.len(), 4096);
            assert_eq!(f1.page(90)?.len(), 77);
        }
        f0.advise(Advice::WillNeed, 0..10 * 4096)?;
        assert_eq!(read(&f0, 0, FILE_LEN, 1)?, 0);
        f1.close()
    };
    match attempt() {
        Ok(()) => {}
        Err(error @ (Error::OpenFailed { .. } | Error::ReadFailed { .. })) => {
            assert!(faulty.fired_total() > 0, "{error}");
            assert!(error.to_string().contains("f0") || error.to_string().contains("f1"), "{error} names no file");
        }
        Err(error) => panic!("{error}"),
    }
    let calls = faulty.calls();
    faulty.set_schedule(Schedule::Never);
    attempt().expect("a fault that is over is over");
    assert_eq!(group.charged(), 0);
    calls
}

#[test]
fn any_call_may_fail_in_any_way() {
    let clean = scenario(Schedule::Never);
    let faults = [
        Fault::Errno(5),
        Fault::Errno(28),
        Fault::Errno(12),
        Fault::Errno(24),
        Fault::Interrupted,
        Fault::Again,
        Fault::Short(0),
        Fault::Short(100),
        Fault::Short(4095),
        Fault::ShortThenErrno(512, 5),
    ];
    let mut runs = 0;
    for fault in faults {
        for schedule in [|n, fault| Schedule::Once(n, fault), |n, fault| Schedule::From(n, fault)] {
            let mut call = 1;
            while scenario(schedule(call, fault)) >= call {
                // Every call of the opening, then further apart.
                call += if call < 20 { 1 } else { 7 };
                runs += 1;
            }
            assert!(call <= clean + 100, "retries without end");
        }
    }
    println!("{clean} calls in a clean run, {runs} runs with a fault");
    assert!(runs > 20 * 20);
}
