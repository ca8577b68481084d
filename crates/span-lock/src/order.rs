//! Detects lock orders that can end in a deadlock, in builds with debug assertions, even if no
//! deadlock occurs.
//!
//! Each thread keeps a list of the ranges that it holds. If a thread waits for a range while it
//! holds another one, it adds an edge from the held range to the requested range, in a graph of the
//! whole process. The graph's nodes are ranges; two ranges of the same lock that overlap count as
//! one node.
//!
//! An edge that closes a cycle causes a panic. The panic names the places where the two ranges of
//! this edge were locked, and where the two ranges of the next edge in the cycle were locked. Every
//! order that a panic reports did occur. But only the last 512 different edges are kept, so an
//! older order may be missed.

#[cfg(not(all(debug_assertions, not(any(pagefold_loom, pagefold_manycore)))))]
pub(crate) use unchecked::{LockName, LockOrder};

#[cfg(all(debug_assertions, not(any(pagefold_loom, pagefold_manycore))))]
pub(crate) use checked::{LockName, LockOrder};

/// Checks nothing, and costs nothing.
#[cfg(not(all(debug_assertions, not(any(pagefold_loom, pagefold_manycore)))))]
mod unchecked {
    use std::panic::Location;

    use crate::claim::Claim;

    #[derive(Debug)]
    pub(crate) struct LockOrder;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct LockName;

    impl LockOrder {
        pub(crate) fn new() -> Self {
            Self
        }

        #[inline]
        pub(crate) fn wait(&self, _: Claim, _: &'static Location<'static>) {}

        #[inline]
        pub(crate) fn taken(&self, _: Claim, _: &'static Location<'static>) {}

        #[inline]
        pub(crate) fn name(&self) -> LockName {
            LockName
        }
    }

    impl LockName {
        #[inline]
        pub(crate) fn released(self, _: impl FnOnce() -> Claim) {}

        #[inline]
        pub(crate) fn downgraded(self, _: Claim) {}
    }
}

#[cfg(all(debug_assertions, not(any(pagefold_loom, pagefold_manycore))))]
mod checked {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::panic::Location;

    use sync::atomic::{AtomicU64, Ordering};
    use sync::lock::Mutex;

    use crate::claim::{Claim, Mode};
    use crate::range::LockRange;

    /// The number of edges that are kept.
    const EDGES: usize = 512;

    /// How many of a thread's held ranges add edges, at most.
    const HELD_MAX: usize = 8;

    /// Identifies a lock in the graph.
    #[derive(Debug)]
    pub(crate) struct LockOrder {
        id: u64,
    }

    /// The lock's identifier, copied into guards.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct LockName(u64);

    /// A range of a lock, and the place where it was locked.
    #[derive(Clone, Copy, Debug)]
    struct Point {
        lock: u64,
        range: LockRange,
        place: &'static Location<'static>,
    }

    impl Point {
        fn meets(&self, other: &Self) -> bool {
            self.lock == other.lock && self.range.overlaps(other.range)
        }

        fn is(&self, other: &Self) -> bool {
            self.lock == other.lock && self.range == other.range
        }
    }

    /// A thread that held the first waited for the second.
    type Edge = (Point, Point);

    thread_local! {
        static HELD: RefCell<Vec<(Point, Mode)>> = const { RefCell::new(Vec::new()) };
    }

    static GRAPH: Mutex<VecDeque<Edge>> = Mutex::new(VecDeque::new());

    impl LockOrder {
        pub(crate) fn new() -> Self {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            // Relaxed: only the number matters, not its order.
            Self { id: NEXT.fetch_add(1, Ordering::Relaxed) }
        }

        /// Checks a claim that the thread is about to wait for.
        pub(crate) fn wait(&self, claim: Claim, place: &'static Location<'static>) {
            let wanted = Point { lock: self.id, range: claim.range, place };
            let held: Vec<Point> =
                HELD.try_with(|held| held.borrow().iter().map(|(held, _)| *held).collect()).unwrap_or_default();
            if let Some(twice) = held.iter().find(|held| held.meets(&wanted)) {
                panic!(
                    "lock order: the range {} is taken at {place} by a thread that took {} of the same lock at {}",
                    wanted.range, twice.range, twice.place
                );
            }
            // If the thread holds many ranges, adds edges only from those that it locked last.
            for held in held.into_iter().rev().take(HELD_MAX) {
                let circle = remember((held, wanted));
                if let Some((first, second)) = circle {
                    panic!(
                        "lock order: {} of lock {} is taken at {place} by a thread that took {} of lock {} at {}; but \
                         {} of lock {} was taken at {} by a thread that had taken {} of lock {} at {}",
                        wanted.range,
                        wanted.lock,
                        held.range,
                        held.lock,
                        held.place,
                        second.range,
                        second.lock,
                        second.place,
                        first.range,
                        first.lock,
                        first.place,
                    );
                }
            }
        }

        /// Records that the thread holds the claim.
        pub(crate) fn taken(&self, claim: Claim, place: &'static Location<'static>) {
            let point = Point { lock: self.id, range: claim.range, place };
            // While the thread exits, its list may be gone already.
            let _ = HELD.try_with(|held| held.borrow_mut().push((point, claim.mode)));
        }

        pub(crate) fn name(&self) -> LockName {
            LockName(self.id)
        }
    }

    impl LockName {
        /// Records that the thread has released the claim.
        pub(crate) fn released(self, claim: impl FnOnce() -> Claim) {
            let claim = claim();
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let at = held.iter().rposition(|(point, mode)| self.is(point, *mode, claim));
                at.map(|at| held.remove(at))
            });
        }

        pub(crate) fn downgraded(self, claim: Claim) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let at = held.iter().rposition(|(point, mode)| self.is(point, *mode, claim));
                at.into_iter().for_each(|at| held[at].1 = Mode::Read);
            });
        }

        fn is(self, point: &Point, mode: Mode, claim: Claim) -> bool {
            point.lock == self.0 && point.range == claim.range && mode == claim.mode
        }
    }

    impl Drop for LockOrder {
        fn drop(&mut self) {
            // The lock's number isn't reused.
            GRAPH.lock().retain(|(first, second)| first.lock != self.id && second.lock != self.id);
        }
    }

    /// Adds an edge to the graph. If it closes a cycle, returns the next edge in the cycle instead.
    fn remember(edge: Edge) -> Option<Edge> {
        let mut graph = GRAPH.lock();
        if graph.iter().any(|known| known.0.is(&edge.0) && known.1.is(&edge.1)) {
            return None;
        }
        if let Some(next) = next_on_circle(&graph, &edge) {
            return Some(next);
        }
        if graph.len() == EDGES {
            graph.pop_front();
        }
        graph.push_back(edge);
        None
    }

    /// Searches for a path from the edge's end to its start. Returns the first edge of the path.
    fn next_on_circle(graph: &VecDeque<Edge>, edge: &Edge) -> Option<Edge> {
        let mut seen = vec![false; graph.len()];
        // Points to continue from, each with the first edge on the path to it.
        let mut ways: Vec<(Point, Option<Edge>)> = vec![(edge.1, None)];
        while let Some((point, first)) = ways.pop() {
            for (at, next) in graph.iter().enumerate().filter(|(_, next)| next.0.meets(&point)) {
                if std::mem::replace(&mut seen[at], true) {
                    continue;
                }
                let first = first.unwrap_or(*next);
                if next.1.meets(&edge.0) {
                    return Some(first);
                }
                ways.push((next.1, Some(first)));
            }
        }
        None
    }
}
