//! Calls of a file, of its group and of the `Pagefold`, with any arguments.

use arbitrary::{Result, Unstructured};
use pagefold::{Advice, File, Group, Pagefold, ReadQueue, ReadRequest, WriteRequest};
use test_disks::SimulatedDisk;

use crate::numbers::{number, range};

const BUDGET: u64 = 1 << 20;
/// More calls than this say nothing new.
const CALLS: usize = 40;
/// Offsets that the simulated disk has room for; or that no file has.
const FAR: u64 = 1 << 59;

pub(crate) fn run(bytes: &[u8]) {
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 1, 50_000);
    let fold = Pagefold::builder().memory(BUDGET).backend(disk.clone()).build().expect("a budget that is large enough");
    let [group, other] = ["a", "b"].map(|name| fold.group(name).max(64_u64 << 10).build().expect("a new name"));
    let open = || group.open_options().write(true).open("f");
    let mut file = open().expect("the file is there");
    disk.set_capacity(1 << 20);
    let mut bytes = Unstructured::new(bytes);
    for _ in 0..CALLS {
        if bytes.is_empty() || call(&mut bytes, &fold, [&group, &other], &file).is_err() {
            break;
        }
        if bytes.ratio(1, 16).unwrap_or(false) {
            let _ = file.close();
            file = open().expect("the file is there");
        }
        assert!(fold.used() <= fold.budget().max(BUDGET), "{} bytes of {}", fold.used(), fold.budget());
        for group in [&group, &other] {
            assert!(group.charged() <= group.max(), "{} bytes of {}", group.charged(), group.max());
        }
    }
    drop(file.close());
    let file = open().expect("the file is there");
    let _ = file.set_len(10_000);
    if file.write_at(b"still usable", 5).is_ok() {
        let mut word = [0; 12];
        file.read_exact_at(&mut word, 5).expect("what was written is there");
        assert_eq!(&word, b"still usable");
    }
}

fn call(bytes: &mut Unstructured<'_>, fold: &Pagefold, groups: [&Group; 2], file: &File) -> Result<()> {
    let [group, other] = groups;
    let at = number(bytes, 0)?;
    let mut space = vec![7; usize::from(bytes.arbitrary::<u16>()? % 9000)];
    let has_room = !(64 << 10..FAR).contains(&at);
    match bytes.int_in_range(0..=17_u8)? {
        0 => drop(file.read_at(&mut space, at)),
        1 => drop(file.read_exact_at(&mut space, at)),
        2 => drop(file.page_at(at).map(|page| page.len())),
        3 if has_room => drop(file.page_mut_at(at).map(|mut page| page.first_mut().map(|first| *first = 1))),
        4 => drop(file.page_at_async(at)),
        5 => {
            let half = space.len() / 2;
            let (one, two) = space.split_at_mut(half);
            file.read_batch(&mut [ReadRequest::new(at, one), ReadRequest::new(number(bytes, 0)?, two)]);
        }
        6 => {
            let mut queue = ReadQueue::new(file);
            queue.push(ReadRequest::new(at, &mut space), ());
            while queue.wait().is_some() {}
        }
        7 if has_room => drop(file.write_at(&space, at)),
        8 if has_room => {
            let next = at.wrapping_add(4096);
            file.write_batch(&mut [WriteRequest::new(at, &space), WriteRequest::new(next, &space)]);
        }
        9 => file.prefetch(range(bytes, 0)?),
        10 => {
            let advice = *bytes.choose(&ADVICE)?;
            drop(file.advise(range(bytes, 0)?, advice));
        }
        11 => drop(file.sync_range(range(bytes, 0)?)),
        12 => drop(file.charge_to(range(bytes, 0)?, other)),
        13 if has_room => drop(file.set_len(at)),
        14 => drop(group.set_max(at)),
        15 => drop(group.set_swap_max(at)),
        16 => drop(fold.resize(at)),
        _ => drop(group.hand_over(other)),
    }
    Ok(())
}

pub(crate) const ADVICE: [Advice; 5] =
    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed];
