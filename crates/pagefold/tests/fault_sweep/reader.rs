//! Opening, reading in every way, and closing.

use pagefold::io::Backend;
use pagefold::{Advice, Error, File, ReadQueue, ReadRequest};
use sync::atomic::Ordering;
use test_disks::{FaultyBackend, Schedule};

use crate::support::{check, eventually, manager, read};
use crate::{FILE_LEN, FIRED, may_fail};

/// Each fault must be returned as an error, all pages that are read must be right, and after the
/// fault everything must work again.
pub(crate) fn scenario(backend: impl Backend, schedule: Schedule) -> u64 {
    let may_fail = may_fail(&schedule);
    let faulty = FaultyBackend::new(backend, schedule);
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
            assert_eq!(f1.page_at(7 * 4096)?.len(), 4096);
            assert_eq!(f1.page_at(90 * 4096)?.len(), 77);
        }
        f0.advise(0..10 * 4096, Advice::WillNeed)?;
        batches(&f0)?;
        assert_eq!(read(&f0, 0, FILE_LEN, 1)?, 0);
        f1.close()
    };
    match attempt() {
        Ok(()) => {}
        Err(error @ (Error::OpenFailed { .. } | Error::ReadFailed { .. })) if may_fail => {
            assert!(faulty.fired_total() > 0, "{error}");
            assert!(error.to_string().contains("f0") || error.to_string().contains("f1"), "{error} names no file");
        }
        Err(error) => panic!("{error}"),
    }
    let calls = faulty.calls();
    FIRED.fetch_add(faulty.fired_total(), Ordering::Relaxed);
    faulty.set_schedule(Schedule::Never);
    attempt().expect("a fault that is over is over");
    eventually("a page outlived its file", || group.charged() == 0);
    calls
}

/// Makes several loads at a time. Returns the first error after all of them have ended.
fn batches(file: &File) -> Result<(), Error> {
    file.prefetch(60 * 4096..70 * 4096);
    let mut bytes = vec![0; 24 * 4096];
    // Twelve neighbours, and twelve that aren't.
    let offset = |at: u64| if at < 12 { (20 + at) * 4096 } else { (at * 7 % 90) * 4096 };
    let mut batch: Vec<_> =
        bytes.chunks_mut(4096).zip(0..).map(|(into, at)| ReadRequest::new(offset(at), into)).collect();
    file.read_batch(&mut batch);
    let mut result = Ok(());
    let mut more = vec![0; 8 * 4096];
    let mut queue = ReadQueue::new(file);
    for (into, at) in more.chunks_mut(4096).zip(0..) {
        queue.push(ReadRequest::new((at * 11 % 90) * 4096, into), ());
    }
    batch.extend(std::iter::from_fn(|| queue.wait()).map(|(request, ())| request));
    for request in batch {
        match request.result {
            Ok(n) => check(0, request.offset, &request.into[..n]),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}
