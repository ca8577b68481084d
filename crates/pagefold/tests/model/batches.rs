//! Many pages at a time: batches, prefetching, futures, and readahead.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pagefold::{Advice, Error, ReadQueue, ReadRequest, WriteRequest};

use crate::refusals::is_refusal;
use crate::support::assert_same;
use crate::world::World;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future until it is done.
pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    poll(&mut Box::pin(future), u64::MAX).expect("polled until it is done")
}

/// Polls until the future is done, or `polls` times.
fn poll<F: Future + Unpin>(future: &mut F, polls: u64) -> Option<F::Output> {
    let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
    for _ in 0..polls {
        match Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return Some(output),
            Poll::Pending => thread::park_timeout(Duration::from_secs(10)),
        }
    }
    None
}

impl World {
    pub(crate) fn read_batch(&mut self) {
        let Some((number, file)) = self.pick(false) else { return };
        let count = self.random.below(30);
        let apart = self.random.one_in(2);
        let first = self.offset(number);
        let places: Vec<_> = (0..count)
            .map(|at| {
                let offset = if apart { self.offset(number) } else { first + at * 4096 };
                (offset, self.size() as usize % 9_000)
            })
            .collect();
        let mut bytes: Vec<_> = places.iter().map(|&(_, len)| vec![0xa5_u8; len]).collect();
        let mut batch: Vec<_> =
            places.iter().zip(&mut bytes).map(|(&(offset, _), into)| ReadRequest::new(offset, into)).collect();
        let start = Instant::now();
        if count.is_multiple_of(2) {
            file.read_batch(&mut batch);
        } else {
            let mut queue = ReadQueue::new(&file);
            batch.drain(..).for_each(|request| queue.push(request, ()));
            batch.extend(std::iter::from_fn(|| queue.wait()).map(|(request, ())| request));
            assert_eq!(batch.len() as u64, count);
        }
        let waited = start.elapsed();
        for request in batch {
            let (offset, len) = (request.offset as usize, request.into.len());
            let result = match request.result {
                Err(error) if is_refusal(&error) => {
                    self.ask_again(file.group(), 1, waited, &error, || file.read_at(request.into, offset as u64))
                }
                result => result,
            };
            match result {
                Ok(n) => {
                    let bytes = self.bytes(number);
                    let expected = &bytes[bytes.len().min(offset)..bytes.len().min(offset + len)];
                    assert_same(&request.into[..n], expected, &format!("f{number} from {offset} on, in a batch"));
                    self.seen.batched_reads += 1;
                }
                Err(error) => {
                    self.tolerate(&error);
                    self.seen.batched_reads_failed += 1;
                }
            }
        }
    }

    /// Writes within the file, none to where another one does.
    pub(crate) fn write_batch(&mut self) {
        let Some((number, file)) = self.pick(true) else { return };
        let len = self.bytes(number).len() as u64;
        let step = 1 + self.random.below(9_000);
        let mut offset = self.offset(number);
        let mut writes = Vec::new();
        while writes.len() < 20 && offset + step <= len {
            let size = self.random.below(step) as usize;
            if !self.write_meets_pin(number, offset..offset + size as u64) {
                writes.push((offset, self.new_bytes(offset, size)));
            }
            offset += step;
        }
        if self.random.one_in(2) {
            // A partial write to a page that isn't in memory must first read the page, which may
            // fail.
            let _ = file.advise(0..len, Advice::DontNeed);
        }
        let mut batch: Vec<_> = writes.iter().map(|(offset, bytes)| WriteRequest::new(*offset, bytes)).collect();
        let start = Instant::now();
        file.write_batch(&mut batch);
        let waited = start.elapsed();
        for request in &mut batch {
            if let Err(error) = &request.result
                && is_refusal(error)
            {
                let again = || file.write_at(request.from, request.offset);
                request.result = self.ask_again(file.group(), 1, waited, error, again);
            }
        }
        if batch.iter().any(|request| request.result.is_err()) {
            self.drop_pins(); // They might leave no room for reading.
        }
        for request in batch {
            let range = request.offset as usize..request.offset as usize + request.from.len();
            match request.result {
                Ok(()) => {
                    self.change(number, range.clone(), |bytes| bytes[range].copy_from_slice(request.from));
                    self.seen.batched_writes += 1;
                }
                Err(error) => {
                    self.tolerate(&error);
                    self.seen.batched_writes_failed += 1;
                    // In part: the pages before some page of it.
                    let mut found = vec![0; range.len()];
                    self.in_peace(|_| file.read_exact_at(&mut found, range.start as u64)).expect("without faults");
                    let before = self.bytes(number)[range.clone()].to_vec();
                    let first_page_end = (range.start / 4096 + 1) * 4096 - range.start;
                    let mut possible = std::iter::once(0).chain((first_page_end..range.len()).step_by(4096));
                    let is_it = |&written: &usize| {
                        found[..written] == request.from[..written] && found[written..] == before[written..]
                    };
                    assert!(possible.any(|written| is_it(&written)), "f{number}: neither as before nor written");
                    self.change(number, range.clone(), |bytes| bytes[range].copy_from_slice(&found));
                }
            }
        }
    }

    pub(crate) fn prefetch(&mut self) {
        let Some((number, file)) = self.pick(false) else { return };
        let start = self.offset(number);
        file.prefetch(start..start.saturating_add(self.random.below(300_000)));
        if self.random.one_in(3) {
            drop(file);
            self.close();
        }
    }

    /// Futures, some of which are dropped on the way.
    pub(crate) fn page_async(&mut self) {
        let Some((number, file)) = self.pick(false) else { return };
        let pages: Vec<_> = (0..self.random.below(8)).map(|_| self.offset(number) / 4096).collect();
        let mut futures: Vec<_> = pages.iter().map(|&page| file.page_at_async(page * 4096)).collect();
        for future in &mut futures {
            if self.random.one_in(2) {
                drop(poll(future, 1));
            }
        }
        for (future, page) in futures.iter_mut().zip(pages) {
            if self.random.one_in(3) {
                self.seen.futures_dropped += 1;
                continue;
            }
            // A future that has completed has given its page away; it is replaced by a new one.
            drop(std::mem::replace(future, file.page_at_async(page * 4096)));
            let again = || wait_for(file.page_at_async(page * 4096));
            match self.ask(file.group(), 1, again) {
                Ok(found) => {
                    let bytes = self.bytes(number);
                    let range = page as usize * 4096..bytes.len().min((page as usize + 1) * 4096);
                    assert_same(&found, &bytes[range], &format!("f{number}, page {page} of a future"));
                    self.seen.futures += 1;
                }
                Err(Error::PastEnd { .. }) => {
                    assert!(page >= (self.bytes(number).len() as u64).div_ceil(4096));
                }
                Err(error) => self.tolerate(&error),
            }
        }
    }

    /// A stretch in sequence, forwards or backwards.
    pub(crate) fn scan(&mut self) {
        let Some((number, file)) = self.pick(false) else { return };
        let start = self.offset(number) / 4096;
        let len = self.random.below(60);
        let backwards = self.random.one_in(3);
        for at in 0..len {
            let page = if backwards { start + len - at } else { start + at };
            let mut buf = [0; 4096];
            match self.ask(file.group(), 1, || file.read_at(&mut buf, page * 4096)) {
                Ok(n) => {
                    let bytes = self.bytes(number);
                    let range = bytes.len().min(page as usize * 4096)..bytes.len().min((page as usize + 1) * 4096);
                    assert_same(&buf[..n], &bytes[range], &format!("f{number}, page {page} in sequence"));
                }
                Err(error) => self.tolerate(&error),
            }
        }
    }
}
