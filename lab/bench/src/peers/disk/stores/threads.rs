//! Runs one thread for each operation that is to be in flight.

use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};

use super::{Blocking, Store};
use crate::peers::contents::PAGE;
use crate::peers::direct::Aligned;
use crate::peers::disk::log::Log;
use crate::peers::disk::pages;
use crate::peers::disk::workload::Operations;

pub(super) struct Threads<B>(pub(super) B);

impl<B: Blocking> Store for Threads<B> {
    fn run(&self, operations: &Operations, depth: usize, version: u64) -> Result<Log> {
        if depth == 1 {
            return work(&self.0, operations, version);
        }
        thread::scope(|scope| {
            let start = || thread::Builder::new().spawn_scoped(scope, || work(&self.0, operations, version));
            let threads = (0..depth).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
            let mut all = Log::default();
            for thread in threads {
                all.add(&thread.join().map_err(|_| anyhow!("a thread that reads panicked"))??);
            }
            Ok(all)
        })
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn keeps(&self) -> bool {
        self.0.keeps()
    }

    fn pages_in(&self) -> Option<u64> {
        self.0.pages_in()
    }
}

fn work(store: &impl Blocking, operations: &Operations, version: u64) -> Result<Log> {
    let (mut buffer, mut log) = (Aligned::<PAGE>::zeroed_slice(operations.pages_at_once()), Log::default());
    while let Some(operation) = operations.next() {
        let bytes = Aligned::bytes_of(&mut buffer[..operation.pages as usize]);
        if operation.write {
            let (page, _) = bytes.as_chunks_mut::<PAGE>();
            pages::fill(operation.page, version, &mut page[0]);
            store.write(operation.page, &page[0])?;
            log.wrote(operation);
        } else {
            let start = Instant::now();
            store.read(operation.handle, operation.page, bytes)?;
            log.read(operation, bytes, start.elapsed())?;
        }
    }
    Ok(log)
}
