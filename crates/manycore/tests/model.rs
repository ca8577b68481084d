//! The costs that the model charges, compared with those that it should charge.

use manycore::time::Duration;
use manycore::{
    AtomicU64, Costs, Machine, Ordering::Relaxed, Ordering::SeqCst, Report, Shape, fence, prefetch, profile, spin_hint,
    thread, work,
};

#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

fn lines(count: usize) -> Vec<Line> {
    (0..count).map(|_| Line::default()).collect()
}

/// Returns a machine with exact costs: without jitter, residual cost and looking ahead.
fn exact(sockets: usize, cores: usize, threads: usize) -> Machine {
    let costs = Costs { jitter: 0.0, residual: 0.0, window: 0.0, line_hit: 1.0, ..Costs::default() };
    Machine::new(Shape::new(sockets, cores, threads).unwrap(), costs).unwrap()
}

/// What `access` costs on CPU `cpu`, after `before` ran on CPU 0.
fn cost(machine: &Machine, cpu: usize, before: impl Fn() + Sync + Send, access: impl Fn() + Sync + Send) -> f64 {
    let cost = std::sync::Mutex::new(0);
    machine
        .run(|| {
            let before = &before;
            thread::scope(|scope| scope.spawn(Some(0), before));
            thread::scope(|scope| {
                scope.spawn(Some(cpu), || {
                    let start = manycore::Instant::now();
                    access();
                    let end = manycore::Instant::now();
                    *cost.lock().unwrap() = (end - start).as_nanos();
                });
            });
        })
        .unwrap();
    let cost = cost.into_inner().unwrap() as f64;
    cost - machine.cost_table().clock_read
}

#[test]
fn lines_cost_what_the_table_says() {
    let machine = exact(2, 2, 2);
    let costs = machine.cost_table().clone();
    let line = Line::default();
    let write = || line.0.store(1, Relaxed);
    let look = || _ = line.0.load(Relaxed);
    let exchange = || _ = line.0.swap(2, Relaxed);
    let near = |ns: f64, expected: f64| assert!((ns - expected).abs() <= 1.0, "{ns} ns, expected {expected}");
    near(cost(&machine, 0, || {}, write), costs.first_touch);
    near(cost(&machine, 0, write, look), costs.line_hit);
    near(cost(&machine, 0, write, exchange), costs.line_hit + costs.rmw);
    // CPU 4 is CPU 0's sibling. CPU 1 is in CPU 0's socket, and CPU 2 is in the other one.
    near(cost(&machine, 4, write, look), costs.line_hit);
    near(cost(&machine, 1, write, look), costs.line_hit + costs.transfer_socket);
    near(cost(&machine, 2, write, look), costs.line_hit + costs.transfer_machine);
    // A core keeps its copy until another core writes.
    near(cost(&machine, 2, write, || (0..3).for_each(|_| look())), 3.0 * costs.line_hit + costs.transfer_machine);
    // A core that has a copy must still take away the other cores' copies before it writes.
    let both = 2.0 * (costs.line_hit + costs.transfer_machine) + costs.rmw;
    let look_and_exchange = || (look(), exchange()).0;
    near(cost(&machine, 2, look, look_and_exchange), both);
    let written = Line::default();
    let there_and_back = || {
        thread::scope(|scope| scope.spawn(Some(2), || _ = (written.0.load(Relaxed), written.0.swap(1, Relaxed))));
        let start = manycore::Instant::now();
        _ = written.0.load(Relaxed);
        let ns = start.elapsed().as_nanos() as f64 - costs.clock_read;
        // The line's memory is in the first socket, and its owner is in the other one.
        near(ns, costs.line_hit + costs.transfer_machine + costs.transfer_detour);
    };
    cost(&machine, 0, || _ = written.0.load(Relaxed), there_and_back);
    // A store doesn't wait until other copies are invalidated. A later read-modify-write of any
    // line does.
    near(cost(&machine, 2, look, write), costs.line_hit);
    let (own, looked_at) = (Line::default(), Line::default());
    let store_and_exchange = || {
        own.0.store(1, Relaxed);
        looked_at.0.store(1, Relaxed);
        own.0.swap(2, Relaxed);
    };
    let waits = costs.first_touch + costs.transfer_machine + costs.line_hit + costs.rmw;
    near(cost(&machine, 2, || _ = looked_at.0.load(Relaxed), store_and_exchange), waits);
}

/// Each of four cores exchanges a line with a core of the other socket. The bandwidth of the links
/// limits the number of transfers.
#[test]
fn links_between_sockets_move_so_many_bytes_and_no_more() {
    let lines_per_ns = |rate: f64, sockets: usize| {
        let costs = Costs { link_bandwidth: rate, link_line: 100.0, jitter: 0.0, residual: 0.0, ..Costs::default() };
        let machine = Machine::new(Shape::new(sockets, 8 / sockets, 1).unwrap(), costs).unwrap();
        let own: Vec<Line> = lines(8);
        // A task and its partner in the other half of the machine exchange a line.
        let exchange = |task: usize| _ = own[task % 4].0.fetch_add(1, Relaxed);
        let report = machine.measure(8, Duration::from_micros(200), exchange).unwrap();
        report.transfers as f64 / report.elapsed_ns
    };
    let (slow, half, off) = (lines_per_ns(1.0, 2), lines_per_ns(2.0, 2), lines_per_ns(1e6, 2));
    assert!((0.009..0.0101).contains(&slow) && (0.0165..0.0202).contains(&half), "{slow} {half}");
    assert!(off > 0.025, "{off}");
    assert!(lines_per_ns(1.0, 1) > 0.07, "one socket has no links");
}

/// A transfer that waits for its line's turn doesn't occupy the links yet.
#[test]
fn links_carry_other_lines_while_many_wait_for_one() {
    let exchanges = |contended: bool| {
        let costs = Costs { link_bandwidth: 1e6, jitter: 0.0, residual: 0.0, ..Costs::default() };
        let machine = Machine::new(Shape::new(2, 8, 1).unwrap(), costs).unwrap();
        let (own, of_all, of_two) = (lines(16), Line::default(), Line::default());
        let count = std::sync::atomic::AtomicU64::new(0);
        let exchange = |task: usize| match task % 8 {
            0 => {
                of_two.0.fetch_add(1, Relaxed);
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            _ if contended => _ = of_all.0.fetch_add(1, Relaxed),
            _ => _ = own[task].0.fetch_add(1, Relaxed),
        };
        machine.measure(16, Duration::from_micros(50), exchange).unwrap();
        count.into_inner() as f64
    };
    let ratio = exchanges(true) / exchanges(false);
    assert!(ratio > 0.95, "{ratio}");
}

#[test]
fn lines_that_dont_fit_into_a_cache_come_from_the_next() {
    // The caches hold 64 lines per core, and 256 per socket.
    let costs = Costs { core_cache: 4096.0, socket_cache: 16384.0, jitter: 0.0, residual: 0.0, ..Costs::default() };
    let machine = Machine::new(Shape::new(2, 2, 1).unwrap(), costs.clone()).unwrap();
    let each = |count: usize, cpu: usize| {
        let all = lines(count);
        let read = || all.iter().for_each(|line| _ = line.0.load(Relaxed));
        cost(&machine, cpu, read, read) / count as f64
    };
    let same = |ns: f64, expected: f64| assert!((ns - expected).abs() <= expected * 0.25, "{ns} ns, not {expected}");
    same(each(16, 0), costs.line_hit);
    same(each(128, 0), costs.socket_hit);
    same(each(2000, 0), costs.first_touch);
    // The memory is that of the socket that touched the lines first.
    same(each(2000, 2), costs.first_touch + costs.memory_detour);
}

#[test]
fn cores_that_fight_for_a_line_each_make_as_many_accesses_as_there_is_time_for() {
    // Additions in the time of a transfer.
    let additions = |cpus: usize, hold: f64| {
        let costs = Costs { transfer_hold: hold, window: 0.0, jitter: 0.0, residual: 0.0, ..Costs::default() };
        let machine = Machine::new(Shape::new(1, 8, 1).unwrap(), costs.clone()).unwrap();
        let counter = Line::default();
        let add = |_| _ = counter.0.fetch_add(1, Relaxed);
        let report = machine.measure(cpus, Duration::from_micros(200), add).unwrap();
        report.operations_per_s * costs.transfer_socket / 1e9
    };
    for cpus in [2, 3, 8] {
        // An addition takes 8 ns. In its turn, a core makes one addition, and as many more as can
        // begin within the hold. The hold is 0, a tenth, a half, or nine tenths of 45 ns.
        for (hold, expected) in [(0.0, 1.0), (0.1, 1.0), (0.5, 3.0), (0.9, 6.0)] {
            let additions = additions(cpus, hold);
            assert!((expected - 0.5..expected + 0.5).contains(&additions), "{cpus} CPUs, {hold}: {additions}");
        }
    }
}

/// Two cores take a test-and-set lock again and again. While a core's request for the line waits,
/// the other core takes the lock several times.
#[test]
fn who_releases_a_lock_gets_it_again_while_others_requests_wait() {
    let throughput = |hold: f64| {
        let costs = Costs { transfer_hold: hold, transfer_overlap: 0.6, transfer_socket: 120.0, ..Costs::default() };
        let machine = Machine::new(Shape::new(1, 2, 1).unwrap(), costs).unwrap();
        let lock = Line::default();
        let take_and_release = |_| {
            while lock.0.swap(1, Relaxed) != 0 {
                while lock.0.load(Relaxed) != 0 {
                    spin_hint();
                }
            }
            lock.0.store(0, Relaxed);
            work::cpu(10);
        };
        machine.measure(2, Duration::from_micros(200), take_and_release).unwrap().operations_per_s
    };
    let gain = throughput(0.6) / throughput(0.0);
    assert!(gain > 2.0, "{gain}");
}

#[test]
fn a_line_is_asked_for_as_early_as_its_access_is_in_the_reorder_buffer() {
    let costs = Costs { window: 30.0, jitter: 0.0, residual: 0.0, ..Costs::default() };
    let machine = Machine::new(Shape::new(1, 2, 1).unwrap(), costs.clone()).unwrap();
    let near = |ns: f64, expected: f64| assert!((ns - expected).abs() <= 1.0, "{ns} ns, expected {expected}");
    let exchange = costs.transfer_socket + costs.line_hit + costs.rmw;
    for work in [0, 10, 30, 100] {
        let line = Line::default();
        let work_and_exchange = || {
            work::cpu(work);
            line.0.swap(1, Relaxed);
        };
        let hidden = costs.window.min(work as f64);
        near(cost(&machine, 1, || line.0.store(1, Relaxed), work_and_exchange), exchange + work as f64 - hidden);
    }
    // While a load waits, the core also requests the line of the next load, but not that of a
    // read-modify-write.
    let pair = lines(2);
    let write_both = || pair.iter().for_each(|line| line.0.store(1, Relaxed));
    let look_at_both = || pair.iter().for_each(|line| _ = line.0.load(Relaxed));
    let exchange_both = || pair.iter().for_each(|line| _ = line.0.swap(2, Relaxed));
    near(cost(&machine, 1, write_both, look_at_both), costs.transfer_socket + 2.0 * costs.line_hit);
    near(cost(&machine, 1, write_both, exchange_both), 2.0 * exchange - costs.rmw - costs.line_hit);
}

#[test]
fn a_prefetched_line_is_waited_for_only_as_long_as_it_is_on_its_way() {
    let machine = exact(2, 2, 1);
    let costs = machine.cost_table().clone();
    let (transfer, hit) = (costs.transfer_machine, costs.line_hit);
    let all = lines(20);
    let write_all = || all.iter().for_each(|line| line.0.store(1, Relaxed));
    // Returns how long accesses to the first `count` lines take, if the lines are prefetched
    // `before` ns earlier.
    let takes = |count: usize, writes: bool, before: f64, access: fn(&Line)| {
        let prefetch_and_access = || {
            all[..count].iter().for_each(|line| prefetch(std::ptr::from_ref(line).addr(), writes));
            work::cpu(before as u64);
            all[..count].iter().for_each(access);
        };
        cost(&machine, 2, write_all, prefetch_and_access) - before.trunc()
    };
    let near = |ns: f64, expected: f64| assert!((ns - expected).abs() <= 2.0, "{ns} ns, expected {expected}");
    let load = |line: &Line| _ = line.0.load(Relaxed);
    let exchange = |line: &Line| _ = line.0.swap(2, Relaxed);
    for writes in [false, true] {
        near(takes(1, writes, 2.0 * transfer, load), hit);
        near(takes(1, writes, 0.4 * transfer, load), hit + 0.6 * transfer);
    }
    near(takes(1, true, 2.0 * transfer, exchange), hit + costs.rmw);
    near(takes(1, false, 2.0 * transfer, exchange), hit + costs.rmw + transfer);
    // A core prefetches ten lines at a time. The other two are fetched when they are accessed.
    near(takes(10, false, 12.0 * transfer, load), 10.0 * hit);
    near(takes(12, false, 12.0 * transfer, load), 12.0 * hit + 2.0 * transfer);
    // Memory that no core has.
    let fresh = lines(2);
    let address = std::ptr::from_ref(&fresh[1]).addr();
    near(cost(&machine, 0, || {}, || (prefetch(address, false), work::cpu(1000), load(&fresh[1])).0), 1000.0 + hit);
}

#[test]
fn a_line_that_is_asked_for_too_early_is_lost_again() {
    let costs = Costs { window: 40.0, transfer_overlap: 0.2, jitter: 0.0, residual: 0.0, ..Costs::default() };
    let machine = Machine::new(Shape::new(1, 2, 1).unwrap(), costs.clone()).unwrap();
    // CPU 1 accesses the line after 100 µs, and requests it 40 ns before that. CPU 0 uses the line
    // once more at `used`.
    let waits = |used: u64| {
        let (line, waits) = (Line::default(), std::sync::Mutex::new(0.0));
        let program = || {
            let start = manycore::Instant::now();
            let until = |ns: u64| work::cpu(ns - start.elapsed().as_nanos() as u64);
            thread::scope(|scope| {
                scope.spawn(Some(0), || {
                    line.0.store(1, Relaxed);
                    until(used);
                    line.0.store(2, Relaxed);
                });
                scope.spawn(Some(1), || {
                    until(100_000);
                    _ = line.0.load(Relaxed);
                    *waits.lock().unwrap() = (start.elapsed().as_nanos() as f64) - 100_000.0 - costs.clock_read;
                });
            });
        };
        machine.run(program).unwrap();
        waits.into_inner().unwrap()
    };
    let (soon, late) = (waits(99_900), waits(99_980));
    assert!((4.0..9.0).contains(&soon) && (45.0..50.0).contains(&late), "{soon} ns, {late} ns");
}

#[test]
fn the_end_of_a_spin_is_not_foreseen() {
    let costs = Costs { jitter: 0.0, residual: 0.0, ..Costs::default() };
    let machine = Machine::new(Shape::new(1, 2, 1).unwrap(), costs.clone()).unwrap();
    let near = |ns: f64, expected: f64| assert!((ns - expected).abs() <= 1.0, "{ns} ns, expected {expected}");
    let elapsed = |window: f64| {
        let machine = machine.clone().costs(Costs { window, ..costs.clone() }).unwrap();
        let [flag, word] = [Line::default(), Line::default()];
        let spin_and_look = |task: usize| {
            if task == 0 {
                word.0.store(1, Relaxed);
                work::cpu(1000);
                // A core doesn't look ahead past a fence, either.
                fence(SeqCst);
                return flag.0.store(1, Relaxed);
            }
            while flag.0.load(Relaxed) == 0 {
                spin_hint();
            }
            _ = word.0.load(Relaxed);
        };
        machine.run_tasks(2, spin_and_look).unwrap().elapsed_ns
    };
    near(elapsed(30.0), elapsed(0.0));
}

#[test]
fn bytes_cost_what_the_cache_they_are_in_costs() {
    let machine = exact(2, 2, 1);
    let costs = machine.cost_table().clone();
    let bytes = vec![0_u64; 3 * 512];
    let page = bytes.as_ptr().addr().next_multiple_of(4096);
    let read = |len: usize| move || manycore::bytes::read(page, len, |_| ());
    let write = move || manycore::bytes::write(page, 4096, |_| ());
    let near = |ns: f64, expected: f64| assert!((ns - expected).abs() <= 1.0, "{ns} ns, expected {expected}");
    let rate = |rate: f64| 4096.0 / rate;
    let memory = costs.first_touch + rate(costs.memory_read_rate);
    near(cost(&machine, 0, || (), read(4096)), memory);
    near(cost(&machine, 0, read(4096), read(4096)), costs.line_hit + rate(costs.first_cache_rate));
    near(cost(&machine, 1, read(4096), read(4096)), costs.socket_hit + rate(costs.socket_cache_rate));
    near(cost(&machine, 2, read(4096), read(4096)), memory + costs.memory_detour);
    // Bytes that another core wrote come from that core. This holds for few bytes and for many.
    let from_writer = costs.transfer_machine + costs.line_hit + rate(costs.socket_cache_rate);
    near(cost(&machine, 2, write, read(4096)), from_writer);
    near(cost(&machine, 2, write, read(8)), costs.transfer_machine + costs.line_hit);
    near(cost(&machine, 0, write, read(8)), costs.line_hit);
    // A device's bytes are in memory.
    let from_device = move || {
        write();
        manycore::bytes::written_by_device(page, 4096);
    };
    near(cost(&machine, 0, from_device, read(4096)), memory);
    near(cost(&machine, 0, from_device, read(8)), costs.first_touch);
}

#[test]
fn a_shared_counter_collapses_while_per_cpu_counters_scale_to_88() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let throughput = |cpus: usize, shared: bool| {
        let counters = lines(cpus);
        let time = Duration::from_micros(200);
        let count = |task: usize| _ = counters[if shared { 0 } else { task }].0.fetch_add(1, Relaxed);
        machine.measure(cpus, time, count).unwrap().operations_per_s
    };
    let (one, own_44, own_88) = (throughput(1, false), throughput(44, false), throughput(88, false));
    assert!(own_44 / one > 43.5, "{}", own_44 / one);
    // Siblings share their core, so 88 hardware threads do the work of 88 / 1.6 cores.
    let expected = 88.0 / machine.cost_table().sibling_slowdown;
    assert!((own_88 / one / expected - 1.0).abs() < 0.03, "{} {expected}", own_88 / one);
    let shared = throughput(88, true);
    assert!(shared < one / 3.0, "88 CPUs on one counter: {} of one CPU", shared / one);
}

#[test]
fn without_contention_scaling_is_ideal() {
    let machine = Machine::new(Shape::new(2, 22, 1).unwrap(), Costs::default()).unwrap();
    // In the first case, the lock is held so briefly that waiters spin; in the second, so long that
    // they park.
    for held in [200, 5_000] {
        let run = |machine: &Machine, cpus: usize| {
            let (counter, lock) = (Line::default(), manycore::Mutex::new(0));
            let operation = |_| {
                counter.0.fetch_add(1, Relaxed);
                let mut guard = lock.lock();
                work::cpu(held);
                *guard += 1;
                drop(guard);
                work::cpu(100);
            };
            machine.measure(cpus, Duration::from_millis(1), operation)
        };
        let efficiency = machine.efficiency(|machine| run(machine, 44)).unwrap();
        let one = run(&machine.clone().without_contention(), 1).unwrap().operations_per_s;
        let ideal = efficiency.without.operations_per_s / one / 44.0;
        assert!((0.98..1.02).contains(&ideal), "held for {held} ns: {ideal} of ideal scaling");
        assert!(efficiency.ratio() < 0.2, "{}", efficiency.ratio());
        assert_eq!(efficiency.without.shares.transferring, 0.0);
    }
}

#[test]
fn copies_queue_for_their_sockets_memory() {
    let machine = exact(2, 8, 1);
    let costs = machine.cost_table().clone();
    let bytes_per_ns = |cpus: std::ops::Range<usize>| {
        let report = machine
            .run_tasks(16, |task| {
                if cpus.contains(&task) {
                    (0..100).for_each(|_| work::copy(4096));
                }
            })
            .unwrap();
        (cpus.len() * 100 * 4096) as f64 / report.elapsed_ns
    };
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.05, "{a} bytes/ns, expected {b}");
    near(bytes_per_ns(0..1), costs.copy_rate);
    // Eight cores could copy 64 bytes/ns. The bus moves only 60 bytes/ns, and each copied byte
    // crosses it twice.
    near(bytes_per_ns(0..8), costs.memory_bandwidth / costs.copy_traffic);
    near(bytes_per_ns(0..16), 2.0 * costs.memory_bandwidth / costs.copy_traffic);
}

#[test]
fn disk_requests_overlap_in_latency_and_queue_for_bandwidth() {
    let machine = exact(1, 4, 1);
    let costs = machine.cost_table().clone();
    let elapsed = |requests: usize, bytes: usize| {
        let report = machine.run_tasks(requests, |_| work::disk(bytes)).unwrap();
        assert_eq!(report.works[0].count, requests as u64);
        report.elapsed_ns
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 10_000.0, "{a} ns, expected {b}");
    near(elapsed(1, 4096), costs.disk_latency + 4096.0 / costs.disk_bandwidth);
    near(elapsed(4, 4096), costs.disk_latency + 4.0 * 4096.0 / costs.disk_bandwidth);
    near(elapsed(4, 3_000_000), costs.disk_latency + 4_000_000.0);
}

#[test]
fn a_rotating_disk_seeks_unless_requests_are_adjacent() {
    let machine = exact(1, 4, 1);
    let rotating = machine.cost_table().clone().with("disk_seek", 8e6).unwrap();
    let elapsed = |machine: &Machine, positions: &[u64]| {
        let wait = |&position: &u64| work::disk_wait(work::disk_request_at(position, 4096));
        machine.run_tasks(1, |_| positions.iter().for_each(wait)).unwrap().elapsed_ns
    };
    let rotating = machine.clone().costs(rotating).unwrap();
    for (positions, seeks) in [(&[0, 4096, 8192][..], 0.0), (&[0, 8192, 4096], 2.0), (&[1 << 40, 0, 0], 3.0)] {
        let more = elapsed(&rotating, positions) - elapsed(&machine, positions);
        assert!((more - seeks * 8e6).abs() < 10_000.0, "{positions:?}: {more} ns of seeks");
    }
}

#[test]
fn siblings_slow_each_other_down_unless_one_spins() {
    let machine = exact(1, 2, 2);
    let slowdown = machine.cost_table().sibling_slowdown;
    let elapsed = |other: Option<usize>, spin: bool| {
        let flag = Line::default();
        let elapsed = std::sync::Mutex::new(0.0);
        let run = |task| {
            if task == 0 {
                let start = manycore::Instant::now();
                work::cpu(1_000_000);
                *elapsed.lock().unwrap() = start.elapsed().as_nanos() as f64;
                flag.0.store(1, Relaxed);
            } else if Some(task) == other {
                match spin {
                    true => {
                        while flag.0.load(Relaxed) == 0 {
                            spin_hint();
                        }
                    }
                    false => work::cpu(3_000_000),
                }
            }
        };
        machine.run_tasks(4, run).unwrap();
        elapsed.into_inner().unwrap() / 1_000_000.0
    };
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.03, "{a}, expected {b}");
    near(elapsed(None, false), 1.0);
    near(elapsed(Some(1), false), 1.0);
    near(elapsed(Some(2), false), slowdown);
    near(elapsed(Some(2), true), 1.0);
}

#[test]
fn the_profile_adds_up_and_names_the_culprit() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let (own, planted) = (lines(88), Line::default());
    let report: Report = machine
        .measure(88, Duration::from_micros(300), |task| {
            (0..3).for_each(|_| _ = own[task].0.fetch_add(1, Relaxed));
            let _region = profile::region("lookup");
            profile::name(&planted, "planted");
            planted.0.fetch_add(1, Relaxed);
        })
        .unwrap();
    assert!(((report.cpu_ns + report.idle_ns) / (report.elapsed_ns * 88.0) - 1.0).abs() < 1e-9);
    assert!(report.idle_ns < 0.05 * report.cpu_ns, "everybody works all the time: {report}");
    let all = |shares: &manycore::Shares| shares.lost() + shares.working + shares.system;
    assert!((all(&report.shares) - 100.0).abs() < 1e-6);
    assert!((report.lines.iter().map(|line| all(&line.shares)).sum::<f64>() - 100.0).abs() < 1e-6);
    let hottest = report.hottest_line().unwrap();
    assert!(hottest.region == "lookup" && hottest.line.contains("model.rs"), "{hottest:?}");
    assert!(hottest.shares.lost() > 90.0);
    assert_eq!((report.locks[0].name.as_str(), report.locks[0].kind.as_str()), ("planted", "line"));
    assert!((report.shared_writes_per_operation - 1.0).abs() < 0.05, "{}", report.shared_writes_per_operation);
    assert_eq!(report.chains[0].chain, "line.planted.lookup");
    let text = report.to_string();
    assert!(text.contains("line.planted") && text.contains(".lookup"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["locks"][0]["name"], "planted");
}

#[test]
fn idle_time_is_not_cpu_time() {
    let report = exact(1, 4, 1).run(|| work::cpu(1_000_000)).unwrap().report;
    assert_eq!((report.elapsed_ns, report.cpu_ns, report.idle_ns), (1e6, 1e6, 3e6));
}

#[test]
fn a_conclusion_survives_every_cost_halved_and_doubled() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let shared_against_own = |machine: &Machine| {
        let throughput = |lines: Vec<Line>| {
            let time = Duration::from_micros(30);
            let count = |task: usize| _ = lines[task % lines.len()].0.fetch_add(1, Relaxed);
            machine.measure(22, time, count).unwrap().operations_per_s
        };
        throughput(lines(1)) / throughput(lines(22))
    };
    for name in Costs::names() {
        for factor in [0.5, 2.0] {
            let costs = machine.cost_table().clone().scaled(name, factor).unwrap();
            let ratio = shared_against_own(&machine.clone().costs(costs).unwrap());
            assert!(ratio < 0.05, "with {name} × {factor}, one shared counter reaches {ratio} of 22 own ones");
        }
    }
}

/// A reader of a sequence lock has seen two different values in one round. Its spin hint must
/// return at once. It must not wait for another write, because there will be none.
#[test]
fn who_has_seen_a_change_does_not_wait_for_another() {
    let lines = lines(1);
    let report = exact(1, 2, 1).run_tasks(2, |task| {
        if task == 0 {
            work::cpu(5_000);
            lines[0].0.store(1, Relaxed);
            return;
        }
        loop {
            let before = lines[0].0.load(Relaxed);
            work::cpu(20_000);
            if lines[0].0.load(Relaxed) == before {
                break;
            }
            spin_hint();
        }
    });
    report.unwrap();
}

#[test]
fn the_largest_machine_runs() {
    let machine = Machine::new(Shape::new(8, 16, 2).unwrap(), Costs::default()).unwrap();
    let counter = Line::default();
    let seen = std::sync::Mutex::new(vec![false; 256]);
    let count = |task: usize| {
        seen.lock().unwrap()[manycore::cpu::current()] = true;
        assert_eq!(manycore::cpu::current(), task);
        counter.0.fetch_add(1, Relaxed);
    };
    machine.run_tasks(256, count).unwrap();
    assert_eq!(counter.0.into_inner(), 256);
    assert!(seen.into_inner().unwrap().iter().all(|&seen| seen));
}
