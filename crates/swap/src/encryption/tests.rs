use std::collections::HashSet;

use super::*;

/// How long a test waits for a buffer that other threads give back.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The words of some pages, presented like pages in frames.
struct Pages(Vec<AtomicU64>);

impl Pages {
    fn new(count: u64) -> Self {
        Self((0..count * 512).map(AtomicU64::new).collect())
    }

    fn page(&self, at: usize) -> SharedBytes<'_> {
        SharedBytes::new(&self.0[at * 512..(at + 1) * 512])
    }

    fn out(&self, count: usize) -> Vec<PageOut<'_>> {
        (0..count).map(|at| PageOut { bytes: self.page(at), frame: 0, owner: owner(at as u64), group: 7 }).collect()
    }
}

fn owner(number: u64) -> Owner {
    Owner::new(number).unwrap()
}

fn slots(count: u32) -> Vec<SlotId> {
    (0..count).map(|number| SlotId::new(1, number + 1, 3)).collect()
}

fn encryption(slots: u64) -> Encryption {
    Encryption::new("swap", slots, 4096).unwrap()
}

/// Returns the encrypted bytes, as a device would have them.
fn on_device(encryption: &Encryption, slots: &[SlotId], pages: &[PageOut<'_>]) -> Vec<[u8; 4096]> {
    let mut encrypted = encryption.encrypt(slots, pages, Duration::ZERO).unwrap();
    let copy = |page: SharedBytes<'_>| {
        let mut bytes = [0; 4096];
        page.copy_to(0, &mut bytes);
        bytes
    };
    encrypted.pages().into_iter().map(copy).collect()
}

#[test]
fn pages_come_back_as_they_were_and_look_like_nothing_meanwhile() {
    let (encryption, pages, slots) = (encryption(16), Pages::new(3), slots(3));
    let encrypted = on_device(&encryption, &slots, &pages.out(3));
    assert!(encrypted.iter().flatten().collect::<HashSet<_>>().len() > 200, "all bytes are there");
    for (at, bytes) in encrypted.iter().enumerate() {
        let into = Pages::new(1);
        into.page(0).copy_from(0, bytes);
        assert!(encryption.decrypt(slots[at], owner(at as u64), 7, into.page(0)));
        assert!(
            into.0
                .iter()
                .zip(&pages.0[at * 512..])
                .all(|(a, b)| a.load(Ordering::Relaxed) == b.load(Ordering::Relaxed))
        );
    }
}

#[test]
fn all_that_the_tag_covers_matters() {
    let (encryption, pages, slots) = (encryption(16), Pages::new(2), slots(2));
    let encrypted = on_device(&encryption, &slots, &pages.out(2));
    let opens = |slot, owner, group, bytes: &[u8; 4096]| {
        let into = Pages::new(1);
        into.page(0).copy_from(0, bytes);
        let opens = encryption.decrypt(slot, owner, group, into.page(0));
        let mut after = [0; 4096];
        into.page(0).copy_to(0, &mut after);
        assert!(opens || after == *bytes, "nothing is made of what isn't right");
        opens
    };
    assert!(opens(slots[0], owner(0), 7, &encrypted[0]));
    assert!(!opens(slots[0], owner(0), 7, &encrypted[1]), "another slot's page");
    assert!(!opens(slots[0], owner(1), 7, &encrypted[0]), "another owner");
    assert!(!opens(slots[0], owner(0), 8, &encrypted[0]), "another group");
    assert!(!opens(SlotId::new(1, 1, 4), owner(0), 7, &encrypted[0]), "another use of the slot");
    for bit in (0..4096 * 8).step_by(331) {
        let mut rotten = encrypted[0];
        rotten[bit / 8] ^= 1 << (bit % 8);
        assert!(!opens(slots[0], owner(0), 7, &rotten), "bit {bit}");
    }
}

/// After a page was written twice to a slot, the bytes of the first write are refused, even though
/// page and slot are the same.
#[test]
fn an_older_page_of_the_slot_is_refused() {
    let (encryption, pages, slots) = (encryption(16), Pages::new(1), slots(1));
    let older = on_device(&encryption, &slots, &pages.out(1));
    let newer = on_device(&encryption, &slots, &pages.out(1));
    assert_ne!(older, newer, "the same page twice looks like two");
    let into = Pages::new(1);
    into.page(0).copy_from(0, &older[0]);
    assert!(!encryption.decrypt(slots[0], owner(0), 7, into.page(0)));
    into.page(0).copy_from(0, &newer[0]);
    assert!(encryption.decrypt(slots[0], owner(0), 7, into.page(0)));
}

#[test]
fn no_nonce_is_used_twice() {
    let encryption = encryption(4096);
    let all = slots(4000);
    std::thread::scope(|scope| {
        for of_one in all.chunks(1000) {
            let encryption = &encryption;
            scope.spawn(move || {
                let pages = Pages::new(8);
                for batch in of_one.chunks(8) {
                    drop(encryption.encrypt(batch, &pages.out(batch.len()), WATCHDOG).unwrap());
                }
            });
        }
    });
    let used = all.iter().map(|slot| encryption.nonces[slot.number() as usize].load(Ordering::Relaxed));
    assert_eq!(used.collect::<HashSet<_>>().len(), all.len());
}

/// Two areas may use equal nonces, because their keys differ.
#[test]
fn each_area_has_a_key_of_its_own() {
    let (pages, slots) = (Pages::new(1), slots(1));
    let [one, other] = [0; 2].map(|_| on_device(&encryption(16), &slots, &pages.out(1)));
    assert_ne!(one, other);
}

#[test]
fn a_write_without_a_buffer_is_told_so_in_time() {
    let (encryption, pages, slots) = (encryption(16), Pages::new(1), slots(1));
    let held = encryption.encrypt(&slots, &pages.out(1), Duration::ZERO);
    assert!(held.is_some());
    assert!(
        encryption.encrypt(&slots, &pages.out(1), Duration::from_millis(1)).is_none(),
        "a small area has one buffer"
    );
    drop(held);
    assert!(encryption.encrypt(&slots, &pages.out(1), Duration::ZERO).is_some());
}

#[test]
fn pages_larger_than_the_stack_has_room_for_are_decrypted_too() {
    let encryption = Encryption::new("swap", 16, 65536).unwrap();
    let words: Vec<_> = (0..8192).map(AtomicU64::new).collect();
    let bytes = SharedBytes::new(&words);
    let page = PageOut { bytes, frame: 0, owner: owner(5), group: 7 };
    let mut encrypted = encryption.encrypt(&slots(1), &[page], Duration::ZERO).unwrap();
    bytes.copy_from_shared(encrypted.pages()[0]);
    assert!(encryption.decrypt(slots(1)[0], owner(5), 7, bytes));
    assert!(words.iter().zip(0..).all(|(word, at)| word.load(Ordering::Relaxed) == at));
}
