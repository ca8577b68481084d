//! Runs several operations of one thread at the same time (`--depth`).

use std::time::Duration;

use pagefold::{ReadRequest, WriteRequest};

use crate::accesses::Access;
use crate::stamp::Stamp;
use crate::tally::Tally;
use crate::trace_request::Op;
use crate::worker::{Failed, Fault, PIECE_BYTES_MAX, Worker, ns};
use crate::write_log::Write;

/// The maximum number of bytes of a batch.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// An operation, and the part of its range that the file has.
#[derive(Clone, Copy, Debug)]
struct Part {
    access: Access,
    wanted: u64,
}

impl Worker {
    /// Returns whether the operation can be part of a batch.
    fn is_batchable(&self, access: Access) -> bool {
        self.depth > 1 && access.op != Op::Sync && access.len <= PIECE_BYTES_MAX
    }

    /// Returns a batch: `first`, and the operations that follow it and have the same kind (reads or
    /// writes).
    pub(crate) fn gather(&mut self, first: Access, most: u64) -> Vec<Access> {
        let mut batch = vec![first];
        let mut bytes = first.len;
        while self.is_batchable(first) && (batch.len() as u64) < most.min(self.depth as u64) && bytes < BATCH_BYTES_MAX
        {
            let Some(next) = self.accesses.next() else { break };
            if next.op != first.op || !self.is_batchable(next) {
                self.pending = Some(next);
                break;
            }
            bytes += next.len;
            batch.push(next);
        }
        batch
    }

    /// Executes a batch, group by group. Returns the time at which it ended.
    pub(crate) fn serve_batch(
        &mut self,
        mut batch: Vec<Access>,
        buffer: &mut Vec<u8>,
        tallies: &mut [Option<Box<Tally>>],
    ) -> Result<Duration, Failed> {
        batch.sort_by_key(|access| access.group); // Stable: a group's operations keep their order.
        let mut now = self.start.elapsed();
        for of_group in batch.chunk_by(|a, b| a.group == b.group) {
            let tally = tallies[of_group[0].group].get_or_insert_with(|| Box::new(Tally::new()));
            now = match of_group {
                [access] => self.serve(*access, buffer, tally).map_err(|fault| Failed { access: *access, fault })?,
                [first, ..] => self.serve_together(of_group, first.op, buffer, tally)?,
                [] => now,
            };
        }
        Ok(now)
    }

    fn serve_together(
        &mut self,
        accesses: &[Access],
        op: Op,
        buffer: &mut Vec<u8>,
        tally: &mut Tally,
    ) -> Result<Duration, Failed> {
        let mut parts = Vec::with_capacity(accesses.len());
        for &access in accesses {
            let wanted = access.len.min(self.end_for(access).saturating_sub(access.offset));
            if access.len > 0 && wanted == 0 {
                tally.past_end += 1;
            } else {
                tally.cut += u64::from(wanted < access.len);
                parts.push(Part { access, wanted });
            }
        }
        let bytes = parts.iter().map(|part| part.wanted as usize).sum();
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        let mut rest = &mut buffer[..bytes];
        let mut slices = Vec::with_capacity(parts.len());
        for part in &parts {
            let (slice, after) = rest.split_at_mut(part.wanted as usize);
            slices.push(slice);
            rest = after;
        }
        let latency =
            if op == Op::Write { self.write_parts(&parts, slices)? } else { self.read_parts(&parts, slices)? };
        for part in &parts {
            let measured = if op == Op::Write { &mut tally.writes } else { &mut tally.reads };
            measured.record(part.wanted, latency);
        }
        if op == Op::Write {
            self.shared.progress(self.number).wrote(parts.len() as u64, latency);
        }
        Ok(self.start.elapsed())
    }

    /// Reads and checks. Returns how long the reading took.
    fn read_parts(&mut self, parts: &[Part], slices: Vec<&mut [u8]>) -> Result<Duration, Failed> {
        let Some(first) = parts.first() else { return Ok(Duration::ZERO) };
        let mut batch: Vec<_> =
            parts.iter().zip(slices).map(|(part, slice)| ReadRequest::new(part.access.offset, slice)).collect();
        let before = self.start.elapsed();
        self.files[first.access.group].read_batch(&mut batch);
        let latency = self.start.elapsed().saturating_sub(before);
        for (part, request) in parts.iter().zip(batch) {
            let failed = |fault| Failed { access: part.access, fault };
            let got = request.result.map_err(|error| failed(Fault::Pagefold(error)))?;
            if (got as u64) < part.wanted {
                return Err(failed(Fault::Short { got: got as u64, wanted: part.wanted }));
            }
            if let Some(checker) = &mut self.checker {
                let checked = checker.check(part.access.offset, &request.into[..got], &self.log);
                checked.map_err(|wrong| failed(Fault::Wrong(wrong)))?;
            }
        }
        Ok(latency)
    }

    /// Stamps and writes. Returns how long the writing took.
    fn write_parts(&mut self, parts: &[Part], mut slices: Vec<&mut [u8]>) -> Result<Duration, Failed> {
        let Some(first) = parts.first() else { return Ok(Duration::ZERO) };
        let mut stamps = Vec::with_capacity(parts.len());
        for (part, slice) in parts.iter().zip(&mut slices) {
            stamps.push(self.stamp(part.access, slice));
        }
        let mut batch: Vec<_> =
            parts.iter().zip(&slices).map(|(part, slice)| WriteRequest::new(part.access.offset, slice)).collect();
        let before = self.start.elapsed();
        self.files[first.access.group].write_batch(&mut batch);
        let done = self.start.elapsed();
        for ((part, request), stamp) in parts.iter().zip(batch).zip(stamps) {
            request.result.map_err(|error| Failed { access: part.access, fault: Fault::Pagefold(error) })?;
            self.written(part.access.offset..part.access.offset + part.wanted, Write { stamp, done_ns: ns(done) });
        }
        Ok(done.saturating_sub(before))
    }

    /// Fills `bytes`, the data of the write `access`, with a new stamp. Returns the stamp.
    pub(crate) fn stamp(&mut self, access: Access, bytes: &mut [u8]) -> Stamp {
        let writer = &mut self.writer;
        writer.version = ns(self.start.elapsed()).max(writer.version + 1);
        // Both are below 1024.
        let stamp = Stamp { version: writer.version, thread: self.number as u16, group: access.group as u16 };
        let end = access.offset.saturating_add(bytes.len() as u64);
        writer.stamps.fill(stamp, access.offset, bytes);
        if self.checker.is_some() {
            writer.mixed.note(access.offset, end);
        }
        stamp
    }

    /// Records a completed write, if the file will be compared later.
    pub(crate) fn written(&mut self, range: std::ops::Range<u64>, write: Write) {
        if self.checker.is_some() {
            self.log.record(range, write);
        }
    }
}
