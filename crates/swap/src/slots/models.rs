//! Models with two CPUs and clusters of two slots. The header takes one slot of cluster 0.

use super::*;
use sync::Arc;
use sync::atomic::AtomicBool;
use sync::thread::JoinHandle;

struct Model {
    slots: Slots,
    /// Set while a thread has the slot. Relaxed: of two swaps of one flag, the later one returns
    /// what the earlier one stored. So if two threads had a slot, one of them would find its flag
    /// set.
    held: Vec<AtomicBool>,
}

impl Model {
    fn new(slots: u64) -> Arc<Self> {
        let held = (0..slots).map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { slots: Slots::new(0, slots, Placement::PerCpu).unwrap(), held })
    }

    fn take(&self) -> Option<SlotId> {
        let mut batch = SlotBatch::new();
        self.slots.allocate(1, &mut batch);
        self.taken(batch)
    }

    /// Makes only the last attempt of an allocation, after which the allocation would report that
    /// the area is full.
    fn search(&self) -> Option<SlotId> {
        let mut batch = SlotBatch::new();
        let mine = self.slots.mine();
        let turn = self.slots.hands[mine].lock();
        self.slots.search_everywhere(&turn, self.slots.way(mine), 1, &mut batch);
        drop(turn);
        self.taken(batch)
    }

    fn taken(&self, mut batch: SlotBatch) -> Option<SlotId> {
        let slot = batch.pop()?;
        assert!(!self.held[slot.number() as usize].swap(true, Ordering::Relaxed), "{slot:?} given twice");
        assert_eq!(self.slots.lookup(slot), Ok(SlotState::Taken));
        Some(slot)
    }

    /// Takes all slots that are free.
    fn take_all(&self) -> Vec<SlotId> {
        std::iter::from_fn(|| self.take()).collect()
    }

    /// Frees slots, and makes them available at once.
    fn put_all(&self, slots: &[SlotId]) {
        slots.iter().for_each(|&slot| self.put(slot));
        self.slots.drain();
    }

    fn put(&self, slot: SlotId) {
        self.held[slot.number() as usize].store(false, Ordering::Relaxed);
        self.slots.free(slot).unwrap();
    }

    /// Checks that no slot is lost: exactly `free` slots can be allocated, one after the other.
    fn all_there(&self, free: usize) {
        self.slots.drain();
        assert_eq!(self.slots.slots() - self.slots.used(), free as u64);
        self.check();
        let all: Vec<_> = (0..free).map(|_| self.take().expect("a slot is lost")).collect();
        assert_eq!(self.take(), None);
        all.into_iter().for_each(|slot| self.put(slot));
        self.slots.drain();
        self.check();
    }

    fn check(&self) {
        let hands = &self.slots.hands;
        let is_in_hand = |cluster| hands.iter().any(|hand| hand.cluster() == cluster);
        self.slots.clusters.check(is_in_hand);
    }
}

/// Returns the slots of a cluster.
fn of_cluster(all: &[SlotId], cluster: u32) -> Vec<SlotId> {
    all.iter().copied().filter(|slot| slot.number() / SLOTS as u32 == cluster).collect()
}

fn thread(model: &Arc<Model>, body: impl FnOnce(&Model) + Send + 'static) -> JoinHandle<()> {
    let model = Arc::clone(model);
    sync::thread::spawn("model", move || body(&model)).unwrap()
}

#[test]
fn two_cpus_on_the_last_cluster_get_a_slot_each() {
    sync::model(|| {
        let model = Model::new(4);
        let first = model.take().unwrap();
        let other = thread(&model, |model| {
            model.take().expect("there are two");
        });
        model.take().expect("there are two");
        other.join().unwrap();
        model.put(first);
        model.all_there(1);
    });
}

/// One CPU has a cluster in its hand, takes the cluster's remaining slots, and then claims another
/// cluster. Meanwhile the other CPU allocates from the first CPU's cluster.
#[test]
fn who_joins_a_cluster_and_its_owner_miss_nothing() {
    sync::model(|| {
        let model = Model::new(4);
        let [first, second] = [model.take().unwrap(), model.take().unwrap()];
        let other = thread(&model, move |model| {
            let mine = model.take();
            model.put(second);
            assert!(mine.is_some() || model.take().is_some(), "one was free, or is now");
        });
        model.put(first);
        model.take().expect("one is free");
        other.join().unwrap();
        model.all_there(1);
    });
}

#[test]
fn a_slot_freed_during_the_last_search_is_found_then_or_later() {
    sync::model(|| {
        let model = Model::new(2);
        let slot = model.take().unwrap();
        let other = thread(&model, |model| {
            if let Some(slot) = model.take() {
                model.put(slot);
            }
        });
        model.put(slot);
        other.join().unwrap();
        // The allocation succeeds without a `drain` first.
        let again = model.take().expect("it is free");
        model.put(again);
        model.all_there(1);
    });
}

/// The free slot moves against the direction of the search. While the search looks at cluster 2,
/// another thread frees a slot in cluster 1, which the search has passed, and then takes the free
/// slot in cluster 2. A slot was free at every moment, so the search must be repeated
/// ([`until_quiet`]).
#[test]
fn a_slot_that_is_freed_behind_the_search_is_found() {
    sync::model(|| {
        let model = Model::new(6);
        let all = model.take_all();
        model.put_all(&of_cluster(&all, 1));
        let first = model.take_all(); // This CPU's next search begins after cluster 1.
        assert_eq!(of_cluster(&first, 1).len(), 2);
        model.put_all(&of_cluster(&all, 2)[..1]);
        let other = thread(&model, |model| {
            model.search().expect("a slot was free at every moment");
        });
        model.put(first[0]);
        model.take().expect("there are two");
        other.join().unwrap();
    });
}

/// A cluster with a free slot moves from the list of partly used clusters to the list of empty
/// ones. The last search ([`Effort::Last`]) must find the cluster on one of these lists, even if
/// the moving thread still has the cluster locked, and hasn't incremented `changes` yet.
#[test]
fn a_cluster_that_moves_to_another_list_is_found() {
    sync::model(|| {
        let model = Model::new(4);
        let all = model.take_all();
        let moves = of_cluster(&all, 1);
        model.put_all(&moves[..1]);
        let other = thread(&model, move |model| model.put(moves[1]));
        model.search().expect("a slot was free at every moment");
        other.join().unwrap();
        model.put_all(&of_cluster(&all, 0));
        model.all_there(2);
    });
}

#[test]
fn slots_come_and_go_on_two_cpus() {
    sync::model(|| {
        let model = Model::new(4);
        let other = thread(&model, |model| {
            let both = [model.take(), model.take()];
            both.into_iter().flatten().for_each(|slot| model.put(slot));
        });
        let slot = model.take().expect("there are three");
        model.put(slot);
        other.join().unwrap();
        model.all_there(3);
    });
}

/// Two threads of one CPU share a hand; a third thread runs on another CPU.
#[test]
fn threads_of_one_cpu_share_its_hand() {
    sync::model(|| {
        let model = Model::new(4);
        let others = [0; 2].map(|_| {
            thread(&model, |model| {
                model.take().expect("there are three");
            })
        });
        model.take().expect("there are three");
        others.into_iter().for_each(|other| other.join().unwrap());
        model.all_there(0);
    });
}

/// A page is swapped in and evicted again while another thread examines the slot for readahead.
#[test]
fn a_slot_seen_swapped_has_its_note() {
    sync::model(|| {
        let model = Model::new(2);
        let slot = model.take().unwrap();
        let owner = Owner::new(7).unwrap();
        let other = thread(&model, move |model| {
            if model.slots.lookup(slot) == Ok(SlotState::Swapped { owner }) {
                assert_eq!(model.slots.note(slot), Ok(Note::new(3, 9)));
            }
        });
        model.slots.set_cached(slot, 5).unwrap();
        model.slots.set_swapped(slot, owner, Note::new(3, 9)).unwrap();
        other.join().unwrap();
    });
}
