use super::*;

fn options() -> Options {
    Options { block_bytes: 4096, ..Options::default() }
}

fn load(text: &str, options: &Options) -> Result<Trace, String> {
    Trace::read(text.as_bytes(), "t", options, |_| {}).map_err(|failure| failure.to_string())
}

fn requests(trace: &Trace, stream: usize) -> Vec<(u64, u64, usize)> {
    trace.streams[stream].iter().map(|r| (r.offset(), r.len(), r.group())).collect()
}

#[test]
fn groups_and_threads_are_sorted_out() {
    let trace = load("op,offset,length,group,thread\nr,0,10,b,7\nr,5,20,a,9\nread,8k,4k,b,7\n", &options()).unwrap();
    assert_eq!(trace.groups, ["b", "a"]);
    assert_eq!(requests(&trace, 0), [(0, 10, 0), (8192, 4096, 0)]);
    assert_eq!(requests(&trace, 1), [(5, 20, 1)]);
    assert_eq!((trace.requests, trace.end), (3, 12_288));
}

#[test]
fn lines_are_dealt_to_threads_and_so_are_the_names_of_threads() {
    let dealt = Options { threads: 2, threads_max: 2, ..options() };
    let trace = load("r,0,1,,a\nr,1,1,,b\nr,2,1,,c\nr,3,1,,a\nr,4,1,,b\n", &dealt).unwrap();
    assert_eq!(requests(&trace, 0), [(0, 1, 0), (2, 1, 0), (3, 1, 0)], "a and c");
    assert_eq!(requests(&trace, 1), [(1, 1, 0), (4, 1, 0)], "b");
    let names: String = (0..1500).map(|thread| format!("r,0,1,,pid{thread}\n")).collect();
    assert_eq!(load(&names, &options()).unwrap().streams.len(), NAMED_THREADS_MAX);
    let trace = load("0 1\n1 1\n2 1\n", &dealt).unwrap();
    assert_eq!(requests(&trace, 0), [(0, 4096, 0), (8192, 4096, 0)]);
    assert!(trace.groups.is_empty());
}

#[test]
fn what_is_no_trace_is_told_both_formats() {
    for text in ["hello world", "one;two;three", "a,b,c", "lorem, ipsum"] {
        let error = load(text, &options()).unwrap_err();
        for part in ["t:1: neither CSV, op,offset,length", "block list, start count", "--format"] {
            assert!(error.contains(part), "{text}: {error}");
        }
    }
    assert_eq!(load("r,7,1\nr,5,1\n", &options()).unwrap().first, Some(5));
}

#[test]
fn lines_without_a_group_go_to_one_of_their_own() {
    let trace = load("r,0,1\nr,1,1,x\nr,2,1\n", &options()).unwrap();
    assert_eq!(trace.groups, ["default", "x"]);
    assert_eq!(requests(&trace, 0), [(0, 1, 0), (1, 1, 1), (2, 1, 0)]);
}

#[test]
fn limits_name_the_only_groups() {
    let named = Options { groups_allowed: Some(vec!["a".into(), "b".into()]), ..options() };
    assert_eq!(load("r,0,1,b\n", &named).unwrap().groups, ["b"]);
    assert!(load("r,0,1\n", &named).unwrap().groups.is_empty());
    assert_eq!(load("sync,0,1\nr,0,1,b\nsync\n", &named).unwrap().groups, ["b"], "a sync is nobody's");
    assert_eq!(load("r,0,1,b\nr,0,1,c\n", &named).unwrap_err(), "t:2: group `c` has no limit: --groups names a, b");
}

#[test]
fn writes_and_syncs_are_kept_or_left_out() {
    let trace = load("r,0,1\nw,5,10\nsync\nw,0,1\n", &options()).unwrap();
    assert_eq!(trace.streams[0].iter().map(|r| r.op()).collect::<Vec<_>>(), [Op::Read, Op::Write, Op::Sync, Op::Write]);
    assert_eq!(requests(&trace, 0)[1], (5, 10, 0));
    assert_eq!((trace.writes, trace.first_write.as_deref(), trace.end), (2, Some("t:2"), 15));
    let skip = Options { skip_writes: true, ..options() };
    let trace = load("r,0,1\nwrite,0,1\nsync\n", &skip).unwrap();
    assert_eq!((trace.requests, trace.skipped.writes), (1, 1));
    assert!(load("w,0,1\n", &skip).unwrap_err().contains("nothing to replay; left out: 1 write"));
}

#[test]
fn files_of_a_log_lie_one_after_the_other() {
    let log = "fio version 2 iolog\na add\nb add\nb read 4096 100\na write 10 5000\nb sync 4096 0\na read 0 1\n";
    let trace = load(log, &options()).unwrap();
    assert_eq!(requests(&trace, 0), [(12_288, 100, 0), (10, 5000, 0), (8192, 4196, 0), (0, 1, 0)]);
    assert_eq!((trace.first, trace.end, trace.groups.len()), (Some(0), 12_388, 0));
    let map = Options { map: vec![Mapped::parse("b=1MiB".as_ref()).unwrap()], ..options() };
    let trace = load(log, &map).unwrap();
    assert_eq!(requests(&trace, 0), [(1_052_672, 100, 0), (0, 0, 0)], "the only file is synced as a whole");
    assert_eq!((trace.skipped.elsewhere, trace.end), (2, 1_052_772));
    assert!(load("r,0,1\n", &map).unwrap_err().contains("names no files"));
}

#[test]
fn the_number_range_is_checked() {
    assert!(load("r,18446744073709551615,1\n", &options()).unwrap_err().starts_with("t:1: offset"));
    assert!(load("r,0,18446744073709551615\n", &options()).unwrap_err().starts_with("t:1: length"));
    assert!(load("18446744073709551615 1\n", &options()).unwrap_err().starts_with("t:1: block"));
    assert_eq!(load("r,18446744073709551614,1\n", &options()).unwrap().end, u64::MAX);
}

#[test]
fn empty_traces_are_errors_and_requests_max_stops_early() {
    for empty in ["", "\n\n", "# nothing\n", "op,offset,length\n"] {
        assert_eq!(load(empty, &options()).unwrap_err(), "t: the trace has nothing to replay", "{empty:?}");
    }
    let first = Options { requests_max: Some(2), ..options() };
    assert_eq!(load("1 1\n2 1\nnonsense\n", &first).unwrap().requests, 2);
}

#[test]
fn lines_without_a_group_are_of_the_one_that_is_named_default() {
    let trace = load("r,0,1\nr,1,1,default\nr,2,1\nr,3,1,x\n", &options()).unwrap();
    assert_eq!(trace.groups, ["default", "x"]);
    assert_eq!(requests(&trace, 0), [(0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 1)]);
}
