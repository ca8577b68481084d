//! Pagefold: one group with all of the budget, and a handle for each reader. Many operations at
//! once are made by a batch, a queue or futures in one thread, or by as many threads.

use std::future::Future;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::executor::block_on;
use futures::stream::{FuturesUnordered, StreamExt};
use pagefold::io::{Posix, ThreadPool};
use pagefold::{Builder, File, Group, ReadQueue, ReadRequest, WriteRequest};

use super::threads::Threads;
use super::{Blocking, Store};
use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::direct::Aligned;
use crate::peers::disk::log::Log;
use crate::peers::disk::pages;
use crate::peers::disk::workload::{Operation, Operations, Workload};
use crate::peers::scratch::Scratch;

/// `read_at`, `write_at` and `sync`. Pagefold isn't told the order of the operations.
pub(super) struct Pagefold {
    files: Vec<File>,
    group: Group,
}

impl Pagefold {
    /// With `budget_pages` pages, metadata included, and the machine's best backend.
    pub(super) fn new(file: &Scratch, workload: Workload, budget_pages: u32) -> Result<Self> {
        let paths = vec![file.path(); workload.handles()];
        let (group, files) = open(paths.iter().map(AsRef::as_ref), builder(budget_pages))?;
        Ok(Self { files, group })
    }

    /// The same with the backend that is used where io_uring is refused.
    pub(super) fn without_uring(file: &Scratch, workload: Workload, budget_pages: u32) -> Result<Self> {
        let paths = vec![file.path(); workload.handles()];
        let threads = ThreadPool::new(Posix::default(), ThreadPool::THREADS_DEFAULT).context("no thread can be had")?;
        let (group, files) = open(paths.iter().map(AsRef::as_ref), builder(budget_pages).backend(threads))?;
        Ok(Self { files, group })
    }
}

/// A budget of `budget_pages` pages. All of it is touched before the measurement, because a machine
/// may take long to provide memory that was never used.
pub(crate) fn builder(budget_pages: u32) -> Builder {
    let budget = offset_of(budget_pages);
    pagefold::Pagefold::builder().memory(budget).memory_max(budget).page_size(PAGE).pretouch(true)
}

/// A group with all of the budget, and files in it.
pub(crate) fn open<'a>(paths: impl Iterator<Item = &'a Path>, builder: Builder) -> Result<(Group, Vec<File>)> {
    let fold = builder.build().context("pagefold refuses the budget")?;
    let group = fold.group("bench").max(fold.budget()).build().context("pagefold refuses the group")?;
    let open = |path| group.open_options().write(true).open(path).context("pagefold cannot open a file");
    let files = paths.map(open).collect::<Result<_>>()?;
    Ok((group, files))
}

impl Blocking for Pagefold {
    fn read(&self, handle: usize, first: u32, into: &mut [u8]) -> Result<()> {
        let len = self.files[handle].read_at(into, offset_of(first))?;
        ensure!(len == into.len(), "{len} of {} bytes were read", into.len());
        Ok(())
    }

    fn write(&self, page: u32, bytes: &Page) -> Result<()> {
        Ok(self.files[0].write_at(bytes, offset_of(page))?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.files[0].sync()?)
    }

    fn pages_in(&self) -> Option<u64> {
        Some(self.group.stats().bytes_in / PAGE as u64)
    }
}

/// `read_batch` and `write_batch`. Each call has as many operations as are to be in flight; a
/// single read is a `read_at`.
pub(super) struct Batches(pub(super) Threads<Pagefold>);

impl Store for Batches {
    fn run(&self, operations: &Operations, depth: usize, version: u64) -> Result<Log> {
        if depth == 1 {
            return self.0.run(operations, depth, version);
        }
        let file = &self.0.0.files[0];
        let (mut buffers, mut log) = (Aligned::<PAGE>::zeroed_slice(depth), Log::default());
        loop {
            let batch: Vec<Operation> = std::iter::from_fn(|| operations.next()).take(depth).collect();
            if batch.is_empty() {
                return Ok(log);
            }
            let (writes, reads): (Vec<_>, Vec<_>) = batch.into_iter().partition(|operation| operation.write);
            write(file, &writes, &mut buffers, version, &mut log)?;
            read(file, &reads, &mut buffers, &mut log)?;
        }
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn pages_in(&self) -> Option<u64> {
        self.0.pages_in()
    }
}

fn read(file: &File, operations: &[Operation], buffers: &mut [Aligned<PAGE>], log: &mut Log) -> Result<()> {
    let start = Instant::now();
    let pairs = operations.iter().zip(&mut *buffers);
    let mut requests: Vec<_> =
        pairs.map(|(operation, buffer)| ReadRequest::new(offset_of(operation.page), &mut buffer.0)).collect();
    file.read_batch(&mut requests);
    let took = start.elapsed();
    for (request, operation) in requests.into_iter().zip(operations) {
        ensure!(request.result? == PAGE, "page {} is short", operation.page);
        log.read(*operation, request.into, took)?;
    }
    Ok(())
}

fn write(
    file: &File,
    operations: &[Operation],
    buffers: &mut [Aligned<PAGE>],
    version: u64,
    log: &mut Log,
) -> Result<()> {
    for (operation, buffer) in operations.iter().zip(&mut *buffers) {
        pages::fill(operation.page, version, &mut buffer.0);
    }
    let pairs = operations.iter().zip(&*buffers);
    let mut requests: Vec<_> =
        pairs.map(|(operation, buffer)| WriteRequest::new(offset_of(operation.page), &buffer.0)).collect();
    file.write_batch(&mut requests);
    for (request, operation) in requests.into_iter().zip(operations) {
        request.result?;
        log.wrote(*operation);
    }
    Ok(())
}

/// `ReadQueue`, with as many reads in it as operations are to be in flight. Writes aren't queued:
/// each is executed when its turn comes.
pub(super) struct Queue(pub(super) Threads<Pagefold>);

impl Store for Queue {
    fn run(&self, operations: &Operations, depth: usize, version: u64) -> Result<Log> {
        if depth == 1 {
            return self.0.run(operations, depth, version);
        }
        let file = &self.0.0.files[0];
        let (mut buffers, mut log) = (Aligned::<PAGE>::zeroed_slice(depth), Log::default());
        let mut written = Aligned::<PAGE>::zeroed();
        let mut next_read = |log: &mut Log| {
            while let Some(operation) = operations.next() {
                if !operation.write {
                    return Ok(Some((operation, Instant::now())));
                }
                pages::fill(operation.page, version, &mut written.0);
                file.write_at(&written.0, offset_of(operation.page))?;
                log.wrote(operation);
            }
            Ok::<_, anyhow::Error>(None)
        };
        let mut queue = ReadQueue::new(file);
        for buffer in &mut buffers {
            let Some(tag) = next_read(&mut log)? else { break };
            queue.push(ReadRequest::new(offset_of(tag.0.page), &mut buffer.0), tag);
        }
        while let Some((read, (operation, start))) = queue.wait() {
            ensure!(read.result? == PAGE, "page {} is short", operation.page);
            log.read(operation, read.into, start.elapsed())?;
            if let Some(tag) = next_read(&mut log)? {
                queue.push(ReadRequest::new(offset_of(tag.0.page), read.into), tag);
            }
        }
        Ok(log)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn pages_in(&self) -> Option<u64> {
        self.0.pages_in()
    }
}

/// `page_at_async`: one thread has as many futures as operations are to be in flight. Only for
/// reads.
pub(super) struct Futures(pub(super) Threads<Pagefold>);

impl Store for Futures {
    fn run(&self, operations: &Operations, depth: usize, version: u64) -> Result<Log> {
        if depth == 1 {
            return self.0.run(operations, depth, version);
        }
        let file = &self.0.0.files[0];
        let mut log = Log::default();
        block_on(async {
            let mut flight: FuturesUnordered<_> =
                (0..depth).filter_map(|_| Some(page(file, operations.next()?))).collect();
            while let Some(arrived) = flight.next().await {
                let (operation, page, start) = arrived?;
                log.read(operation, &page, start.elapsed())?;
                flight.extend(operations.next().map(|operation| self::page(file, operation)));
            }
            Ok(log)
        })
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn pages_in(&self) -> Option<u64> {
        self.0.pages_in()
    }
}

fn page(
    file: &File,
    operation: Operation,
) -> impl Future<Output = Result<(Operation, pagefold::PageRef<'_>, Instant)>> {
    let start = Instant::now();
    async move {
        ensure!(!operation.write, "there is no future of a write");
        Ok((operation, file.page_at_async(u64::from(operation.page) * PAGE as u64).await?, start))
    }
}
