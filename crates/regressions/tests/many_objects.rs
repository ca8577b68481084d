//! Large numbers of files, handles, groups and spaces. The cost of one of them must not depend on
//! their number.

use std::time::Duration;

use pagefold::{Advice, File, Group, Pagefold, Protection};

use crate::meanwhile::cpu_time;
use crate::support::disk;

fn time(work: impl FnOnce()) -> Duration {
    cpu_time(work).0
}

/// `stats` of a server with 16,000 open files took five seconds: for each file and each group, it
/// went through all handles. Each further `open` took 150 µs, because it also went through all
/// handles and all files; meanwhile it held locks that other tenants' opens and evictions need.
///
/// Only a measurement of time can show this. There are 40 times as many files at the end as at the
/// beginning, so a step that goes through all files takes 40 times as long.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_opening_and_stats_cost_the_same_for_each_file() {
    const FILES: usize = 20_000;
    const PART: usize = 500;
    let mm = Pagefold::builder().memory("512MiB").backend(disk(FILES as u64, 4096)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let mut files: Vec<File> = Vec::new();
    let open = |files: &mut Vec<File>| {
        let first = files.len();
        time(|| files.extend((first..first + PART).map(|i| group.open(format!("f{i}")).unwrap())))
    };
    open(&mut files); // The first files also fill the allocator's caches and the disk's tables.
    let few = open(&mut files);
    let stats = |count| (0..5).map(|_| time(|| assert_eq!(mm.stats().files.len(), count))).min().unwrap();
    let stats_of_few = stats(2 * PART);
    while files.len() < FILES - PART {
        open(&mut files);
    }
    let many = open(&mut files);
    let stats_of_many = stats(FILES);
    let (few_each, many_each) = (stats_of_few / (2 * PART) as u32, stats_of_many / FILES as u32);
    assert!(many < 10 * few, "{PART} opens took {few:?} with few files, {many:?} with many");
    assert!(many_each < 10 * few_each, "stats() took {few_each:?} a file with few files, {many_each:?} with many");
}

/// As above, without measuring time: `stats` lists each file.
#[test]
fn many_files_are_in_the_statistics() {
    const FILES: usize = 20_000;
    let mm = Pagefold::builder().memory("512MiB").backend(disk(FILES as u64, 4096)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let mut files: Vec<File> = Vec::new();
    for count in [500, FILES] {
        files.extend((files.len()..count).map(|i| group.open(format!("f{i}")).unwrap()));
        assert_eq!(mm.stats().files.len(), count);
    }
    drop(files);
    assert_eq!(mm.stats().files.len(), 0);
}

/// A tenant's hits were once found by going through all handles. Now each group has a count of its
/// own, which must be right when handles of several files and groups are opened and closed.
#[test]
fn hits_are_counted_for_the_right_file_and_group() {
    let mm = Pagefold::builder().memory("4MiB").backend(disk(2, 4096)).build().unwrap();
    let groups = ["a", "b"].map(|name| mm.group(name).build().unwrap());
    let read = |file: &File, times: usize| (0..times).for_each(|_| file.read_exact_at(&mut [0], 0).unwrap());
    let handles = [(0, 0, 3), (0, 1, 5), (1, 0, 7), (1, 1, 11), (0, 0, 13)].map(|(group, file, times)| {
        let file = groups[group].open(format!("f{file}")).unwrap();
        read(&file, times);
        file
    });
    let hits = || {
        let stats = mm.stats();
        let mut files: Vec<_> = stats.files.iter().map(|file| (file.path.clone(), file.hits)).collect();
        files.sort();
        (
            stats.groups.iter().map(|group| group.hits).collect::<Vec<_>>(),
            files.iter().map(|it| it.1).collect::<Vec<_>>(),
        )
    };
    // The first read of each file is a miss.
    assert_eq!(hits(), (vec![3 - 1 + 5 - 1 + 13, 7 + 11], vec![3 - 1 + 7 + 13, 5 - 1 + 11]));
    assert_eq!([groups[0].stats().hits, groups[1].stats().hits], [19, 18]);
    assert_eq!([handles[0].stats().hits, handles[1].stats().hits], [22, 15]);
    let [first, second, third, ..] = handles;
    drop((first, second, third));
    assert_eq!(hits(), (vec![19, 18], vec![22, 15]), "closed handles count, too");
}

/// A group without a handle stays in the table until its last page is gone. Meanwhile the group's
/// metadata wasn't charged to the budget. And each close of any file searched all groups for groups
/// without handles, under a lock that stops every eviction.
#[test]
fn groups_without_handles_go_with_their_last_page() {
    let mm = Pagefold::builder().memory("4MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let keeper = mm.group("keeper").build().unwrap();
    let file = keeper.open("f0").unwrap();
    let mut pins = vec![file.page_at(200 * 4096).unwrap()];
    let before = mm.stats().metadata_bytes;
    for round in 0..40 {
        let group = mm.group("tenant").build().unwrap();
        let page = 201 + round;
        let theirs = group.open("f0").unwrap();
        // A page that is charged to the group, and stays pinned after the group is dropped.
        theirs.read_at(&mut [0], page << 12).unwrap();
        pins.push(file.page_at(page * 4096).unwrap());
        drop((theirs, group));
    }
    assert_eq!(mm.stats().groups.len(), 41, "each has a page that is pinned");
    assert!(mm.stats().metadata_bytes >= before + 40 * 2048, "and stays charged as long");
    drop(pins);
    drop(file);
    assert_eq!(mm.stats().groups.len(), 1);
    assert!(mm.stats().metadata_bytes < before, "all of them are gone, and the file");
}

/// Two groups had the same name; one of them had lost its last handle. Both wrote the same series
/// of metrics, so the older group's values hid those of the newer group. When the older group was
/// removed, counters fell.
#[test]
fn metrics_of_a_name_are_those_of_its_living_group() {
    let mm = Pagefold::builder().memory("4MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let file = mm.group("keeper").build().unwrap().open("f0").unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    let of_tenant = |metric: &str| {
        let (text, name) = (mm.stats().to_prometheus(), format!("pagefold_{metric}{{group=\"tenant\"}} "));
        text.lines().find_map(|line| line.strip_prefix(&*name)).map(|value| value.parse::<u64>().unwrap())
    };
    let tenant = mm.group("tenant").build().unwrap();
    let theirs = tenant.open("f0").unwrap();
    theirs.advise(0..1, Advice::Random).unwrap();
    (0..5).for_each(|page| theirs.read_at(&mut [0], page * 4096).map(drop).unwrap());
    assert_eq!(of_tenant("group_misses_total"), Some(5));
    let pin = file.page_at(0).unwrap();
    drop((theirs, tenant));
    assert_eq!((mm.stats().groups.len(), of_tenant("group_misses_total")), (2, None));
    let tenant = mm.group("tenant").build().unwrap();
    let theirs = tenant.open("f0").unwrap();
    theirs.read_at(&mut [0], 100 * 4096).unwrap();
    assert_eq!(of_tenant("group_misses_total"), Some(1));
    let space = tenant.space().unwrap();
    space.map(4096, Protection::ReadWrite).unwrap();
    let stats = tenant.stats();
    assert!(stats.metadata_bytes > 0);
    assert_eq!(of_tenant("group_charged_bytes"), Some(stats.charged_bytes));
    assert_eq!(of_tenant("group_metadata_bytes"), Some(stats.metadata_bytes));
    drop(pin);
    assert_eq!(of_tenant("group_misses_total"), Some(1));
}

/// A group's pages took charges from a stock, which didn't update the group's peak. So the peak was
/// less than what the group was charged.
#[test]
fn a_peak_is_no_less_than_what_is_charged() {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    for page in 0..40 {
        file.read_at(&mut [0], page * 4096).unwrap();
        let stats = group.stats();
        assert!(stats.charged_bytes > page * 4096 && stats.peak_bytes >= stats.charged_bytes, "{stats:?}");
    }
}

/// A tenant opened 2,048 short files for writing. Each of them reserved page words for 64 GiB, so
/// that none were left. From then on, no tenant could open a file (the error was "is too large"),
/// or make a space.
#[test]
fn files_open_for_writing_leave_page_words_for_others() {
    const FILES: usize = 10_000;
    let mm = Pagefold::builder().memory("256MiB").backend(disk(FILES as u64 + 1, 4096)).build().unwrap();
    let hog = mm.group("hog").max("1MiB").build().unwrap();
    let options = hog.open_options().write(true);
    let files: Vec<_> = (0..FILES).map(|i| options.clone().open(format!("f{i}")).unwrap()).collect();
    files[FILES - 1].write_at(&[1; 10_000], 1 << 29).unwrap();
    let quiet = mm.group("quiet").build().unwrap();
    quiet.open(format!("f{FILES}")).unwrap().read_exact_at(&mut [0; 100], 0).unwrap();
    let space = quiet.space().unwrap();
    let range = space.map(1 << 30, Protection::ReadWrite).unwrap();
    space.write_at(&[1], range.start).unwrap();
    // A file may still grow to any length.
    files[0].set_len(60 << 30).unwrap();
}

/// A file's first handle was charged together with the file, at four times what both take; all
/// further handles were free. A tenant that opened one file 100,000 times used 140 MB that were
/// charged to no budget.
#[test]
fn each_handle_is_charged() {
    const HANDLES: u64 = 1000;
    let mm = Pagefold::builder().memory("16MiB").backend(disk(1, 4 << 20)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let charged = || mm.stats().metadata_bytes;
    let read = |file: &File, page: u64| file.read_exact_at(&mut [0], (page % 256) * 4096).unwrap();
    // Makes the records of all frames that the test needs. There are some to spare, because a
    // thread that moves to another CPU leaves free frames behind.
    let file = group.open("f0").unwrap();
    (0..1024).for_each(|page| file.read_exact_at(&mut [0], page * 4096).unwrap());
    drop(file);
    let nothing = charged();
    let first = group.open("f0").unwrap();
    let one = charged();
    assert!(one - nothing < 4096, "a file takes {} bytes", one - nothing);
    let more: Vec<_> = (0..HANDLES).map(|_| group.open("f0").unwrap()).collect();
    let each = (charged() - one) / HANDLES;
    assert!((200..2048).contains(&each), "a handle takes {each} bytes");
    // A handle's readahead state is allocated at its first miss.
    more.iter().zip(0..).for_each(|(file, page)| read(file, page));
    drop(more);
    drop(first);
    assert_eq!((charged(), mm.stats().map_bytes), (nothing, 0));
}

/// Thousands of tenants had a space each, whose tables can't be evicted. One tenant had all the
/// pages that could be evicted. A call that needed a frame looked at a few tenants in turn, found
/// nothing to evict, and failed, although its own group used next to nothing.
#[test]
fn the_only_group_that_can_give_pages_is_found_among_thousands() {
    const BUDGET: u64 = 64 << 20;
    let mm = Pagefold::builder().memory(BUDGET).memory_max(BUDGET).backend(disk(3, 256 << 20)).build().unwrap();
    let groups: Vec<_> = (0..2000).map(|number| mm.group(&format!("g{number}")).build().unwrap()).collect();
    let rich = mm.group("rich").build().unwrap();
    let file = rich.open("f0").unwrap();
    (0..4000).for_each(|page| file.read_exact_at(&mut [0; 8], page * 4096).unwrap());
    let has_room = |group: &&Group| mm.used() + (64 << 10) < BUDGET && group.charged() < 1 << 20;
    let spaces: Vec<_> = groups.iter().cycle().take_while(has_room).map(|group| group.space().unwrap()).collect();
    // A group that uses next to nothing, and one that uses as much as most groups.
    for (number, group) in [(1, &mm.group("poor").build().unwrap()), (2, &groups[0])] {
        let theirs = group.open(format!("f{number}")).unwrap();
        let pinned: Vec<_> = (0..600).map(|page| theirs.page_at(page * 4096).unwrap()).collect();
        drop(pinned);
    }
    drop(spaces);
}

/// A thousand tenants had spaces and a file each, so that there was room for only one page for
/// every two tenants. Over time, page maps took this room: parts of them had no resident page left,
/// but they were freed only to make room for other page maps. So a tenant that needed a frame was
/// refused.
#[test]
fn a_crowd_takes_turns_with_few_pages() {
    const BUDGET: u64 = 64 << 20;
    let mm = Pagefold::builder().memory(BUDGET).memory_max(BUDGET).backend(disk(1000, 256 << 10)).build().unwrap();
    let groups: Vec<_> = (0..1000).map(|number| mm.group(&format!("g{number}")).build().unwrap()).collect();
    let open = |(number, group): (usize, &Group)| group.open(format!("f{number}")).unwrap();
    let files: Vec<_> = groups.iter().enumerate().map(open).collect();
    let has_room = |_: &&Group| mm.used() + (4 << 20) < BUDGET;
    let spaces: Vec<_> = groups.iter().cycle().take_while(has_room).map(|group| group.space().unwrap()).collect();
    for page in 0..8 {
        for file in &files {
            file.read_exact_at(&mut [0; 8], page * (32 << 10)).unwrap();
        }
    }
    drop(spaces);
}
